//! Decides how to hide the bridge's files from a program: which paths to mask, whether this system
//! allows masks, and what the program can read nevertheless.
//!
//! Must not: mask anything itself. The launcher does, in the program's process.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use secrecy::ExposeSecret as _;

use self::shared::Shared;
use super::{launcher, orphans};
use crate::config::{Confinement, PASSED_ON, Program, ProgramSandbox, outermost};

mod shared;

/// The paths that the launcher hides from a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// The paths hidden by mounts; `None` if the program gets no mounts of its own.
    pub masks: Option<Vec<PathBuf>>,
    /// The paths that Landlock forbids.
    pub forbidden: Vec<PathBuf>,
}

/// Why a program can read files of the bridge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Exposure {
    /// The configuration says so.
    #[error("With `sandbox: off` it can read {OWN}.")]
    Off,
    /// Nothing can be masked on this system, for this reason.
    #[error("It can read {OWN}: this system does not let them be hidden ({0}).")]
    Unmasked(String),
    /// Nothing can be masked, and `sandbox` lists a directory with this file in it.
    #[error("Its `sandbox` lists {0}, and this system does not let it be hidden ({1}).")]
    Listed(PathBuf, String),
    /// Another file has taken the place of this one, and with it the mask was gone.
    #[error("{0} was replaced, and programs that had started before can read the new one.")]
    Replaced(PathBuf),
}

/// What a program can read then.
const OWN: &str = "bridge.yaml, the state directory, and the secrets in files that bridge.yaml \
                   names";

impl Exposure {
    /// What to do about it.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Off => {
                "Leave `sandbox` out, or write `sandbox: secrets`. If the program is meant to read \
                 them, nothing is to be done."
            }
            Self::Unmasked(_) => {
                "Allow the bridge to make user namespaces, or write `sandbox: secrets`, which \
                 needs none (docs/programs.md)."
            }
            Self::Listed(..) => {
                "List less in `sandbox`, or allow the bridge to make user namespaces \
                 (docs/programs.md)."
            }
            Self::Replaced(_) => {
                "If these programs may know what is in it, nothing is to be done; bridge.yaml need \
                 not have a secret in it, as it can refer to files. Else restart the bridge. So \
                 that it does not come again, keep the file in a directory with nothing else in \
                 it, or write `sandbox: secrets` (docs/programs.md)."
            }
        }
    }
}

/// Why `program` can read files of the bridge's own, if it can; `possible` is what [`possible`]
/// says.
pub fn exposure(program: &Program, possible: &Result<(), String>) -> Option<Exposure> {
    if program.hidden.is_empty() {
        return None;
    }
    match (&program.sandbox, possible) {
        (ProgramSandbox::Off, _) => Some(Exposure::Off),
        (ProgramSandbox::Secrets, _) | (_, Ok(())) => None,
        (ProgramSandbox::Masked, Err(why)) => Some(Exposure::Unmasked(why.clone())),
        (ProgramSandbox::Listed(lists), Err(why)) => {
            listed(&program.hidden, lists).map(|path| Exposure::Listed(path, why.clone()))
        }
    }
}

/// The result of [`possible`], as the system does not change while the bridge runs.
static POSSIBLE: OnceLock<Result<(), String>> = OnceLock::new();

/// The result of [`possible`], if it has been called before; for callers that must not block.
pub(in crate::backend) fn known() -> Option<&'static Result<(), String>> {
    POSSIBLE.get()
}

/// Whether this system lets files be hidden from programs; if not, why. The first call starts a
/// program that does nothing, and waits for it.
pub fn possible(launcher: Option<&Path>) -> Result<(), String> {
    let launcher = launcher.ok_or("the bridge's own binary cannot be found")?;
    POSSIBLE.get_or_init(|| probe(launcher)).clone()
}

fn probe(launcher: &Path) -> Result<(), String> {
    let mut command = Command::new(launcher);
    command.args(launcher::probe(launcher)).env_clear().current_dir("/").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = orphans::start_own(&mut command)
        .and_then(std::process::Child::wait_with_output)
        .map_err(|error| format!("cannot start {}: {error}", launcher.display()))?;
    if output.status.success() { Ok(()) } else { Err(launcher::apology(&output.stderr)) }
}

/// A file of the bridge's own that a list opens to a program.
fn listed(hidden: &[PathBuf], lists: &Confinement) -> Option<PathBuf> {
    let listed: Vec<PathBuf> =
        lists.read.iter().chain(&lists.write).filter_map(|path| path.canonicalize().ok()).collect();
    existing(hidden).into_iter().find(|file| {
        listed.iter().any(|directory| file.starts_with(directory) || directory.starts_with(file))
    })
}

/// What is hidden from `program`, which is the file `file`, where masks are `possible`.
pub(super) fn hidden(program: &Program, file: &Path, possible: bool) -> Hidden {
    if matches!(program.sandbox, ProgramSandbox::Off) {
        return Hidden::default();
    }
    // Beside Landlock, too, as that does not cover changes of permissions: only a mask prevents
    // them.
    let masks = if possible {
        Some(masks(&program.hidden, &in_use(program, file), &Shared::with(program)))
    } else {
        None
    };
    let forbidden = match program.sandbox {
        ProgramSandbox::Secrets => existing(&program.hidden).into_iter().collect(),
        _ => Vec::new(),
    };
    Hidden { masks, forbidden }
}

/// The files behind these paths, so far as there are any.
fn existing(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// The paths that must stay visible to the program: its own file, and those that it is given.
fn in_use(program: &Program, file: &Path) -> Vec<PathBuf> {
    let mut paths = vec![file.to_owned(), PathBuf::from("/tmp")];
    paths.extend(program.cwd.clone().or_else(|| std::env::current_dir().ok()));
    // Files of certificates are among those that are passed on.
    for key in ["HOME", "TMPDIR"].iter().chain(&PASSED_ON) {
        paths.extend(path_variable(program, key));
    }
    let values = program.env.values().map(|value| value.expose_secret());
    for text in program.args.iter().map(|arg| arg.as_str()).chain(values) {
        paths.extend(paths_in(text).map(Path::to_owned));
    }
    // The program may be about to create a file: then it needs the directory.
    paths
        .iter()
        .filter_map(|path| path.ancestors().find_map(|above| above.canonicalize().ok()))
        .collect()
}

/// The path in the variable `key`, as the program has it.
fn path_variable(program: &Program, key: &str) -> Option<PathBuf> {
    match program.env.get(key) {
        Some(value) => Some(PathBuf::from(value.expose_secret())),
        None => std::env::var_os(key).map(PathBuf::from),
    }
}

/// The absolute paths in an argument, such as `--data=/srv/data`, or a list of them.
fn paths_in(text: &str) -> impl Iterator<Item = &Path> {
    let words = text.split(|c: char| c.is_whitespace() || "=,:;\"'".contains(c));
    words.filter(|word| word.starts_with('/')).map(Path::new)
}

/// The paths to mask. A mask over a file disappears if another file replaces it; a mask over its
/// directory stays. So the directory of a hidden file is masked whole if it has nothing but hidden
/// files in it, and no other program would create or fill it. Directories above are not: what a
/// program makes there would be lost to it.
fn masks(hidden: &[PathBuf], in_use: &[PathBuf], shared: &Shared) -> Vec<PathBuf> {
    let files = existing(hidden);
    // The directory that is configured, and the one that it leads to over links: in a volume of
    // Kubernetes, the latter is replaced as a whole.
    let mut directories = Vec::new();
    for path in hidden.iter().filter(|path| is_file(path)) {
        directories.extend(path.parent().and_then(|parent| parent.canonicalize().ok()));
    }
    for path in files.iter().filter(|path| is_file(path)) {
        directories.extend(path.parent().map(Path::to_owned));
    }
    directories.retain(|directory| {
        !in_use.iter().any(|path| path.starts_with(directory))
            && shared.leaves_alone(directory)
            && holds_nothing_else(directory, &files)
    });
    outermost(files.into_iter().chain(directories)).to_vec()
}

fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_file())
}

/// Whether all that can be read in `directory` is hidden, and there is something.
fn holds_nothing_else(directory: &Path, hidden: &BTreeSet<PathBuf>) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let mut empty = true;
    for entry in entries {
        empty = false;
        if !entry.is_ok_and(|entry| is_hidden_or_closed(&entry.path(), hidden)) {
            return false;
        }
    }
    !empty
}

/// Whether a program can read nothing at `path` that is not hidden.
fn is_hidden_or_closed(path: &Path, hidden: &BTreeSet<PathBuf>) -> bool {
    if is_below(path, hidden) || path.canonicalize().is_ok_and(|target| is_below(&target, hidden)) {
        return true;
    }
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            fs::read_dir(path).is_err() || holds_nothing_else(path, hidden)
        }
        // A pipe is not opened: that would wait for a writer.
        Ok(about) => about.is_file() && File::open(path).is_err(),
        Err(_) => false,
    }
}

fn is_below(path: &Path, directories: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| directories.contains(above))
}

/// The files of the bridge that a running program can read.
#[derive(Debug, Default)]
pub(in crate::backend) struct Coverage {
    exposure: Option<Exposure>,
    /// The files that were masked one by one, with their inodes at that time.
    singles: Vec<(PathBuf, Inode)>,
}

type Inode = (u64, u64);

impl Coverage {
    pub(super) fn new(exposure: Option<Exposure>, masks: Option<&[PathBuf]>) -> Self {
        let files = masks.unwrap_or_default().iter();
        let singles = files.filter_map(|path| Some((path.clone(), inode_of(path)?))).collect();
        Self { exposure, singles }
    }

    /// Why the program can read files of the bridge at this moment, if it can.
    pub(in crate::backend) fn exposure(&self) -> Option<Exposure> {
        if self.exposure.is_some() {
            return self.exposure.clone();
        }
        let (path, _) = self.singles.iter().find(|(path, inode)| inode_of(path) != Some(*inode))?;
        Some(Exposure::Replaced(path.clone()))
    }
}

/// The device and the number of the file at `path`; `None` if there is no file.
fn inode_of(path: &Path) -> Option<Inode> {
    let about = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests;
