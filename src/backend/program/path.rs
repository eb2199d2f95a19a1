//! Finds a program as a shell would, so that a missing one is reported, with its remedy, before
//! anything is started.
//!
//! Must not: start anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The file that `command` names: a path as it is (relative to `cwd`), a bare name out of `path`.
pub(super) fn find(command: &str, path: &str, cwd: Option<&Path>) -> Result<PathBuf, String> {
    if command.contains('/') {
        let file = match cwd {
            Some(cwd) => cwd.join(command),
            None => PathBuf::from(command),
        };
        return match std::path::absolute(&file) {
            Ok(file) if is_program(&file) => Ok(file),
            Ok(file) if file.exists() => {
                Err(format!("`{command}` is not executable: run `chmod +x {}`", file.display()))
            }
            _ => Err(format!(
                "there is no program `{command}`: correct `command` in the configuration"
            )),
        };
    }
    let candidates = std::env::split_paths(path).map(|directory| directory.join(command));
    candidates.filter(|file| file.is_absolute()).find(|file| is_program(file)).ok_or_else(|| {
        format!(
            "there is no program `{command}` in PATH ({path}): install it, give its full path as \
             `command`, or set PATH for the daemon"
        )
    })
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
