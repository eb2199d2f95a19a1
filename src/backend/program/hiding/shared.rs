//! Tells a directory of the bridge's from one that other programs create or fill. A mask over the
//! latter takes from a program what it had: on a fresh account, `~/.local` has nothing but the
//! bridge's state in it, and the first `uvx` makes `~/.local/share`.
//!
//! Must not: judge what is in a directory.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use secrecy::ExposeSecret as _;

use crate::config::Program;

/// A directory with this in its name is the bridge's own, wherever it is.
const OWN_NAME: &str = "mantyx-bridge";

/// The variables that name base directories of the XDG specification.
const BASES: [&str; 6] = [
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_BIN_HOME",
    "XDG_RUNTIME_DIR",
];

/// Base directories below a home, where no variable names them.
const BASES_AT_HOME: [&str; 5] =
    [".config", ".cache", ".local/share", ".local/state", ".local/bin"];

/// What desktops keep at home.
const AT_HOME: [&str; 9] = [
    "bin",
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
];

/// The top-level directories of the Filesystem Hierarchy Standard.
const TOP: [&str; 18] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root",
    "run", "sbin", "srv", "sys", "usr", "var",
];

/// The directories below which each one belongs to some service.
const OF_SERVICES: [&str; 5] = ["/var", "/run", "/usr", "/dev", "/proc"];

/// The directories that programs share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    homes: Vec<PathBuf>,
    /// The XDG base directories.
    bases: Vec<PathBuf>,
}

impl Shared {
    /// The directories that the bridge shares, and those of `program` as its `env` says.
    pub(super) fn with(program: &Program) -> Self {
        let bases = BASES.into_iter().flat_map(|key| directories_in(program, key)).collect();
        Self { homes: directories_in(program, "HOME"), bases }
    }

    /// Whether no other program creates `directory` or puts anything into it.
    pub(super) fn leaves_alone(&self, directory: &Path) -> bool {
        if self.has(directory) {
            return false;
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        name.contains(OWN_NAME) || !self.is_below(directory) || is_unwritable(directory)
    }

    /// Whether `directory` itself is one that programs share, or leads to one.
    fn has(&self, directory: &Path) -> bool {
        let below_homes = self
            .homes
            .iter()
            .flat_map(|home| BASES_AT_HOME.into_iter().chain(AT_HOME).map(|path| home.join(path)));
        let tops = TOP.iter().map(|name| Path::new("/").join(name));
        let below_var =
            ["lib", "cache", "log", "spool", "tmp"].map(|name| Path::new("/var").join(name));
        below_homes
            .chain(tops)
            .chain(below_var)
            .chain(self.homes.iter().chain(&self.bases).cloned())
            .chain([std::env::temp_dir()])
            .any(|shared| shared.starts_with(directory))
    }

    /// Whether `directory` is where a program or a service keeps its files: `~/.aws`,
    /// `~/.config/gh`, `/var/lib/postgresql`.
    fn is_below(&self, directory: &Path) -> bool {
        self.homes.iter().any(|home| has_hidden_part(directory, home))
            || self.bases.iter().any(|base| directory.starts_with(base))
            || OF_SERVICES.iter().any(|top| directory.starts_with(top))
    }
}

/// The directories in the variable `key`, as `program` and as the bridge have it.
fn directories_in(program: &Program, key: &str) -> Vec<PathBuf> {
    let own = program.env.get(key).map(|value| PathBuf::from(value.expose_secret()));
    let inherited = std::env::var_os(key).map(PathBuf::from);
    let paths = own.into_iter().chain(inherited).filter(|path| path.is_absolute());
    paths.map(|path| path.canonicalize().unwrap_or(path)).collect()
}

/// Whether `directory` is below `home` with a part that begins with a dot.
fn has_hidden_part(directory: &Path, home: &Path) -> bool {
    let Ok(below) = directory.strip_prefix(home) else { return false };
    below.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// Whether programs of the bridge's user can put nothing there: a mounted volume of secrets.
fn is_unwritable(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared { homes: vec!["/home/ann".into()], bases: vec!["/data/config".into()] }
    }

    #[test]
    fn shared_directory_is_not_left_alone() {
        for path in [
            "/",
            "/etc",
            "/run",
            "/var",
            "/var/lib",
            "/srv",
            "/home",
            "/home/ann",
            "/home/ann/.local",
            "/home/ann/.local/state",
            "/home/ann/.local/share",
            "/home/ann/.config",
            "/home/ann/.cache",
            "/home/ann/Documents",
            "/data",
            "/data/config",
            "/tmp",
        ] {
            assert!(!shared().leaves_alone(Path::new(path)), "{path}");
        }
    }

    /// Their owners fill them, though nothing may be there yet but the secret that is hidden.
    #[test]
    fn directory_of_another_program_is_not_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let shared = Shared { homes: vec![home.clone()], bases: vec![home.join("config")] };
        for path in [".aws", ".config/gh", "projects/.cache/x", "config/gh"] {
            let path = home.join(path);
            std::fs::create_dir_all(&path).unwrap();
            assert!(!shared.leaves_alone(&path), "{}", path.display());
        }
    }

    #[test]
    fn own_directory_is_left_alone() {
        for path in [
            "/etc/mantyx-bridge",
            "/home/ann/.config/mantyx-bridge",
            "/data/config/mantyx-bridge",
            "/var/lib/mantyx-bridge",
            "/home/ann/bridge",
            "/srv/bridge/secrets",
            "/secrets",
            // No program can put anything there, as it does not exist.
            "/run/secrets/none",
        ] {
            assert!(shared().leaves_alone(Path::new(path)), "{path}");
        }
    }
}
