//! The secrets that `mantyx-bridge secret set` keeps, and that bridge.yaml names as
//! `${secret:NAME}`: a file each, in a directory of its own below the state directory.
//!
//! Programs of backends do not see these files: the whole state directory is hidden from them.
//!
//! Must not: show a value.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::{StateDir, StateError};

/// The directory below the state directory.
pub const DIRECTORY: &str = "secrets";

/// A longer name is no name that a person gave.
const MAX_NAME: usize = 100;

/// Whether a secret can have this name. It becomes a file's name, so it has neither `/` nor `.`.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_part_of_name)
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

impl StateDir {
    /// Keeps `value` under `name`, in place of an earlier value, readable by the daemon's user
    /// alone.
    ///
    /// The directory belongs to the owner of the state directory: a secret that an administrator
    /// sets for a daemon of another user could not be read by that daemon otherwise.
    pub fn write_secret(&self, name: &str, value: &SecretString) -> Result<(), StateError> {
        self.create()?;
        let directory = self.path.join(DIRECTORY);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.and_then(|()| {
            let owner = fs::metadata(&self.path)?;
            let about = fs::metadata(&directory)?;
            if about.uid() == 0 && owner.uid() != 0 {
                chown(&directory, Some(owner.uid()), Some(owner.gid()))?;
            }
            Ok(())
        })
        .map_err(|source| self.failed("make", DIRECTORY, source))?;
        self.write_kept(&file_of(name), value.expose_secret())
    }

    /// Removes the secret `name`. Returns whether there was one.
    pub fn remove_secret(&self, name: &str) -> Result<bool, StateError> {
        match fs::remove_file(self.path.join(file_of(name))) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("remove", file_of(name), error)),
        }
    }

    /// The names of the secrets, in order.
    pub fn secret_names(&self) -> Vec<String> {
        let names = self.files(Path::new(DIRECTORY)).filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            is_name(&name).then_some(name)
        });
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// The value of the secret `name`, if there is one that can be read.
    pub fn stored_secret(&self, name: &str) -> Option<SecretString> {
        let text = self.read_kept(&file_of(name)).ok().flatten()?;
        Some(text.strip_suffix('\n').unwrap_or(&text).to_owned().into())
    }
}

fn file_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

#[cfg(test)]
mod tests {
    //! Names, and who may read a secret.

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn name_of_a_secret_is_the_name_of_a_file_and_nothing_else() {
        for name in ["A", "MANTYX_API_KEY", "jira-token", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a.b", "a b", "ä", &"x".repeat(101)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn secret_is_its_owners_alone_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().join("state"));
        for value in ["first-value", "second\nof two lines"] {
            state.write_secret("KEY", &value.into()).unwrap();
            assert_eq!(state.stored_secret("KEY").unwrap().expose_secret(), value);
        }
        let file = state.path().join("secrets/KEY");
        for (path, mode) in [(file.as_path(), 0o600), (file.parent().unwrap(), 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(state.secret_names(), ["KEY"]);
        assert!(state.remove_secret("KEY").unwrap() && !state.remove_secret("KEY").unwrap());
        assert_eq!(state.secret_names(), [""; 0]);
    }
}
