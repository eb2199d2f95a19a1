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
pub(super) struct Kept {
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
    /// The same, and `sandbox` lists a directory with this file in it.
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

/// Why `program` can read files of the bridge's own, if it can; `possible` is what [`possible`] says.
pub fn exposure(program: &Program, possible: &Result<(), String>) -> Option<Exposure> {
    let why = || possible.clone().err();
    match &program.sandbox {
        _ if program.hidden.is_empty() => None,
        ProgramSandbox::Off => Some(Exposure::Off),
        ProgramSandbox::Secrets => None,
        ProgramSandbox::Masked => why().map(Exposure::Unmasked),
        ProgramSandbox::Listed(lists) => {
            let why = why()?;
            listed(&program.hidden, lists).map(|listed| Exposure::Listed(listed, why))
        }
    }
}

/// What [`possible`] found.
static FOUND: OnceLock<Result<(), String>> = OnceLock::new();

/// The result of [`possible`], if it has been called before; for callers that must not block.
pub(in crate::backend) fn known() -> Option<&'static Result<(), String>> {
    FOUND.get()
}

/// Whether this system lets files be hidden from programs; if not, why. The first call starts a
/// program that does nothing, and waits for it.
pub fn possible(launcher: Option<&Path>) -> Result<(), String> {
    let launcher = launcher.ok_or("the bridge's own binary cannot be found")?;
    FOUND.get_or_init(|| probe(launcher)).clone()
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
    let lists: Vec<PathBuf> =
        lists.read.iter().chain(&lists.write).filter_map(|path| path.canonicalize().ok()).collect();
    let hidden = existing(hidden);
    let opens = |path: &PathBuf| lists.iter().any(|l| path.starts_with(l) || l.starts_with(path));
    hidden.into_iter().find(opens)
}

/// What is kept from `program`, which is the file `file`, where masks are `possible`.
pub(super) fn kept(program: &Program, file: &Path, possible: bool) -> Kept {
    if matches!(program.sandbox, ProgramSandbox::Off) {
        return Kept::default();
    }
    // Beside Landlock, too, as that does not cover changes of permissions: only a mask prevents them.
    let masks = if possible {
        Some(masks(&program.hidden, &in_use(program, file), &Shared::with(program)))
    } else {
        None
    };
    let is_forbidden = matches!(program.sandbox, ProgramSandbox::Secrets);
    let forbidden =
        if is_forbidden { existing(&program.hidden).into_iter().collect() } else { Vec::new() };
    Kept { masks, forbidden }
}

/// The files behind these paths, so far as there are any.
fn existing(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// The paths that must stay visible to the program: its own file, and those that it is given.
fn in_use(program: &Program, file: &Path) -> Vec<PathBuf> {
    let of = |key: &str| {
        let own = program.env.get(key).map(|value| PathBuf::from(value.expose_secret()));
        own.or_else(|| std::env::var_os(key).map(PathBuf::from))
    };
    let cwd = program.cwd.clone().or_else(|| std::env::current_dir().ok());
    let places = [Some(file.to_owned()), cwd, of("HOME"), of("TMPDIR"), Some("/tmp".into())];
    let told = program.args.iter().map(|arg| arg.as_str());
    let told = told.chain(program.env.values().map(|value| value.expose_secret()));
    let told = told.flat_map(paths_in).map(Path::to_owned);
    // Files of certificates among them.
    let told = told.chain(PASSED_ON.iter().filter_map(|key| of(key)));
    // The program may be about to create a file: then it needs the directory.
    let there = |place: PathBuf| place.ancestors().find_map(|place| place.canonicalize().ok());
    places.into_iter().flatten().chain(told).filter_map(there).collect()
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
    let is_file = |path: &&PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
    // The directory that is named, and the one that it leads to over links: in a volume of
    // Kubernetes, the latter is replaced as a whole.
    let named = hidden.iter().filter(is_file).filter_map(|path| path.parent()?.canonicalize().ok());
    let real = files.iter().filter(is_file).filter_map(|path| path.parent().map(Path::to_owned));
    let whole = named.chain(real).filter(|directory| {
        !in_use.iter().any(|place| place.starts_with(directory))
            && shared.leaves_alone(directory)
            && holds_nothing_else(directory, &files)
    });
    let whole: Vec<PathBuf> = whole.collect();
    outermost(files.into_iter().chain(whole)).to_vec()
}

/// Whether all that can be read in `directory` is hidden, and there is something.
fn holds_nothing_else(directory: &Path, hidden: &BTreeSet<PathBuf>) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let is_hidden = |path: &Path| path.ancestors().any(|above| hidden.contains(above));
    let mut entries = entries.peekable();
    entries.peek().is_some()
        && entries.all(|entry| {
            let Ok(path) = entry.map(|entry| entry.path()) else { return false };
            if is_hidden(&path) || path.canonicalize().is_ok_and(|target| is_hidden(&target)) {
                return true;
            }
            match fs::metadata(&path) {
                Ok(found) if found.is_dir() => {
                    fs::read_dir(&path).is_err() || holds_nothing_else(&path, hidden)
                }
                // A pipe is not opened: that would wait for a writer.
                Ok(found) => found.is_file() && File::open(&path).is_err(),
                Err(_) => false,
            }
        })
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
        let singles = files.filter_map(|path| Some((path.clone(), file(path)?))).collect();
        Self { exposure, singles }
    }

    /// Why the program can read files of the bridge at this moment, if it can.
    pub(in crate::backend) fn exposure(&self) -> Option<Exposure> {
        let replaced = || self.singles.iter().find(|(path, then)| file(path) != Some(*then));
        let replaced = || replaced().map(|(path, _)| Exposure::Replaced(path.clone()));
        self.exposure.clone().or_else(replaced)
    }
}

/// Which file there is.
fn file(path: &Path) -> Option<Inode> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
