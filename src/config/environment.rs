//! The world outside the file that a configuration may depend on: environment variables, files, the
//! bridge's own program. Tests replace it.
//!
//! Must not: know bridge.yaml.

use std::collections::BTreeMap;
use std::io;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[cfg(any(test, fuzzing))]
mod fake;

/// No secret and no configuration is larger; the bound also ends the read of an endless device.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// The process's environment, or one made by a test.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Environment({} variables, {own_program:?})", vars.len())]
pub struct Environment {
    vars: BTreeMap<String, String>,
    /// `None`: those of the file system.
    files: Option<BTreeMap<PathBuf, SmallFile>>,
    /// The bridge's own program, if the operating system tells.
    pub own_program: Option<PathBuf>,
}

/// A file that was read whole.
#[derive(Clone)]
pub struct SmallFile {
    pub text: String,
    /// The permission bits.
    pub mode: u32,
    /// Whether root or the bridge's user owns it; the owner of a file can change it.
    pub is_ours: bool,
}

impl Environment {
    /// The environment of this process, without variables that are not UTF-8.
    pub fn of_process() -> Self {
        let vars = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { vars, files: None, own_program: std::env::current_exe().ok() }
    }

    /// An environment with nothing in it but the file system.
    pub fn bare() -> Self {
        Self::default()
    }

    /// The same environment with these variables and no others, such as a service has it.
    pub fn with_only(&self, names: &[&str]) -> Self {
        let mut other = self.clone();
        other.vars.retain(|name, _| names.contains(&name.as_str()));
        other
    }

    /// The variable `name`, if it is set.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    /// The variable `name`, if it is set to something.
    pub fn filled_var(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|value| !value.is_empty())
    }

    /// The directory in the variable `name`; a relative one does not count (XDG Base Directory).
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        self.filled_var(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The user's directory for files of one kind: the one in the variable `name`, else `path`
    /// below the home directory (XDG Base Directory).
    pub fn users_directory(&self, name: &str, path: &str) -> Option<PathBuf> {
        self.directory(name).or_else(|| Some(Path::new(self.filled_var("HOME")?).join(path)))
    }

    /// Where a daemon with this environment leaves its note (`state_dir::running`): in systemd's
    /// directory for the service, else in that of [`Self::users_notes`].
    pub fn notes(&self) -> Option<PathBuf> {
        // A list, if the unit names several directories.
        let service = self.filled_var("RUNTIME_DIRECTORY").and_then(|list| list.split(':').next());
        let service = service.map(PathBuf::from).filter(|path| path.is_absolute());
        service.or_else(|| self.users_notes())
    }

    /// Where the daemons of this user leave their notes.
    pub fn users_notes(&self) -> Option<PathBuf> {
        Some(self.directory("XDG_RUNTIME_DIR")?.join("mantyx-bridge"))
    }

    /// Reads a regular file of UTF-8 text.
    pub fn read(&self, path: &Path) -> io::Result<SmallFile> {
        match &self.files {
            Some(files) => files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into()),
            None => read_file(path),
        }
    }
}

fn read_file(path: &Path) -> io::Result<SmallFile> {
    // A pipe would block, so the kind is looked at before the file is opened.
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    let is_utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    let text = String::from_utf8(bytes).map_err(|error| {
        let why = match is_utf16 {
            true => "it is UTF-16 text, not UTF-8".to_owned(),
            false => format!("it is not UTF-8 text: {}", error.utf8_error()),
        };
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    Ok(SmallFile { text, mode: metadata.mode() & 0o777, is_ours })
}

// Values and texts may be secrets.
