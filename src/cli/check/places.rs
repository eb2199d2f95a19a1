//! What bridge.yaml names on this machine, and what of it is not there or cannot be used: programs,
//! their directories, the directory of the state, the file of the audit log.
//!
//! Must not: start a program, make a file or a directory, or refuse the configuration. A file may
//! be checked on another machine than the one that it is meant for.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::audit::syslog::Receiver;
use crate::backend::program;
use crate::config::Config;
use crate::error_chain::error_chain;

/// A warning for each place that `serve` could not use.
pub(in crate::cli) fn missing(config: &Config) -> Vec<String> {
    let programs = config.backends.values().filter_map(|backend| {
        let error = program::locate(backend.program()?).err()?;
        let cure = error.cure(&backend.target);
        Some(format!("{}: {}; {cure}", backend.name, error_chain(&error)))
    });
    let state = unusable_directory(&config.state_dir).map(|why| {
        format!("state_dir: {why}; correct it, or give the daemon's user the right to it")
    });
    let audit = config.audit.as_ref();
    let unusable_audit = audit.and_then(|audit| unusable_file(audit.file.as_deref()?));
    let audit_file = unusable_audit.map(|why| {
        format!("audit.file: {why}; make its directory, and give the daemon's user the right to it")
    });
    let missing_socket = audit.and_then(|audit| missing_socket(audit.syslog.as_ref()?));
    let of_notices = config.notice_programs().filter_map(|(name, program)| {
        let error = program::locate(program).err()?;
        let cure = error.own_cure().map(|cure| format!("; {cure}")).unwrap_or_default();
        Some(format!("notify.{name}: {}{cure}", error_chain(&error)))
    });
    let others = state.into_iter().chain(audit_file).chain(missing_socket);
    programs.chain(of_notices).chain(others).collect()
}

/// A warning if the socket of a syslog receiver is not there, or something else is in its place.
fn missing_socket(receiver: &Receiver) -> Option<String> {
    let Receiver::Unix(path) = receiver else { return None };
    let what = match path.metadata() {
        Ok(about) if about.file_type().is_socket() => return None,
        Ok(_) => format!("{} is no socket", path.display()),
        Err(_) => format!("there is no socket {}", path.display()),
    };
    Some(format!(
        "audit.syslog.to: {what}; start the syslog service or journald, or correct the path"
    ))
}

/// Why files cannot be made in `directory`, which is made if it is missing.
fn unusable_directory(directory: &Path) -> Option<String> {
    let nearest = nearest(directory);
    let path = nearest.display();
    if !nearest.is_dir() {
        return Some(format!("{path} is no directory"));
    }
    if cannot_write(&nearest) { Some(format!("{path} cannot be written")) } else { None }
}

/// Why lines cannot be added to `file`, whose directory is not made.
fn unusable_file(file: &Path) -> Option<String> {
    let path = file.display();
    if file.is_dir() {
        return Some(format!("{path} is a directory"));
    }
    if file.exists() {
        return if cannot_write(file) { Some(format!("{path} cannot be written")) } else { None };
    }
    let absolute = std::path::absolute(file).ok()?;
    let directory = absolute.parent()?;
    if !directory.is_dir() {
        return Some(format!("its directory {} does not exist", directory.display()));
    }
    if cannot_write(directory) {
        return Some(format!("its directory {} cannot be written", directory.display()));
    }
    None
}

/// `path`, or the nearest place above it that there is.
fn nearest(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let nearest = path.ancestors().find(|place| place.symlink_metadata().is_ok());
    nearest.unwrap_or(Path::new("/")).to_owned()
}

/// Whether the user of this process may not write there.
fn cannot_write(path: &Path) -> bool {
    let rights = if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    access(path, rights).is_err()
}

#[cfg(test)]
mod tests {
    //! Places that are there, and places that are not.

    use std::fs;

    use rustix::fs::{CWD, FileType};

    use super::*;

    #[test]
    fn places_that_cannot_be_used_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        fs::write(place("file"), "").unwrap();
        fs::create_dir(place("directory")).unwrap();
        let told = |why: Option<String>, part: &str| {
            let why = why.unwrap_or_default();
            assert!(why.contains(part), "{why:?} has {part}");
        };
        assert_eq!(unusable_directory(&place("directory")), None);
        assert_eq!(unusable_directory(&place("made/at/the/start")), None);
        told(unusable_directory(&place("file")), "file is no directory");
        told(unusable_directory(&place("file/below")), "file is no directory");
        told(unusable_directory(Path::new("/proc/version/x")), "/proc/version is no directory");
        assert_eq!(unusable_file(&place("audit.log")), None);
        assert_eq!(unusable_file(&place("file")), None);
        told(unusable_file(&place("directory")), "is a directory");
        told(unusable_file(&place("missing/audit.log")), "missing does not exist");
        let socket = |name: &str| missing_socket(&Receiver::Unix(place(name)));
        let _bound = std::os::unix::net::UnixDatagram::bind(place("log")).unwrap();
        assert_eq!(socket("log"), None);
        told(socket("missing"), "there is no socket");
        told(socket("file"), "file is no socket");
        let fifo = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(CWD, place("fifo"), FileType::Fifo, fifo, 0).unwrap();
        told(socket("fifo"), "fifo is no socket");
    }
}
