//! The daemons that run on this machine: each leaves a note where its user's programs keep what
//! lasts as long as they run.
//!
//! The state directory says where a daemon listens, too. But a command that has no configuration
//! looks in the usual state directories alone, and finds no daemon with another one.
//!
//! Must not: believe a note that another user may have written. A command shows the secrets that
//! lie in the state directory which the note names.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// No note is larger.
const MAX_BYTES: u64 = 64 << 10;
/// The end of the name of a note.
const EXTENSION: &str = "daemon";

/// Where a daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub urls: Vec<String>,
    pub state_dir: PathBuf,
}

/// The note of this process. It is locked as long as the process lives, so that one which a killed
/// process has left is known; it is removed at the stop.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    _locked: File,
}

impl Note {
    /// Leaves a note in `directory`, which is made if it is missing. Notes of dead processes are
    /// removed.
    pub fn leave(directory: &Path, running: &Running) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        sweep(directory);
        let path = directory.join(format!("{}.{EXTENSION}", std::process::id()));
        let draft = path.with_extension("new");
        // A link there would be followed.
        fs::remove_file(&draft).ok();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&draft)?;
        file.lock()?;
        file.write_all(&serde_json::to_vec(running)?)?;
        // Whatever the umask is: other users of the machine may know where the daemon is.
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&draft, &path)?;
        Ok(Self { path, _locked: file })
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            warn!(%error, path = %self.path.display(), "the daemon's note cannot be removed");
        }
    }
}

/// The daemons that have left a note in `directory` and run, as far as their notes can be trusted.
pub fn running(directory: &Path) -> Vec<Running> {
    let Ok(about) = fs::metadata(directory) else { return Vec::new() };
    // A user who may write there can put any note there.
    if about.mode() & 0o022 != 0 {
        return Vec::new();
    }
    let notes = notes(directory);
    notes.filter_map(|path| trusted(&path, about.uid()).filter(is_whole)).collect()
}

fn notes(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
}

/// The note at `path`, if a process lives that holds it, and if its owner is root, this user or the
/// owner of both its directory and the state directory that it names.
fn trusted(path: &Path, directory_owner: u32) -> Option<Running> {
    // A pipe would block, and a link may lead anywhere.
    let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let owner = about.uid();
    if about.mode() & 0o022 != 0 || ![0, owner, geteuid().as_raw()].contains(&directory_owner) {
        return None;
    }
    let file = File::open(path).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    Read::take(&file, MAX_BYTES).read_to_string(&mut text).ok()?;
    let running: Running = serde_json::from_str(&text).ok()?;
    // Otherwise a user could have another one show secrets to an address of his choice.
    if owner == 0
        || owner == geteuid().as_raw()
        || fs::metadata(&running.state_dir).is_ok_and(|state| state.uid() == owner)
    {
        Some(running)
    } else {
        None
    }
}

fn is_whole(running: &Running) -> bool {
    running.state_dir.is_absolute() && !running.urls.is_empty()
}

/// Removes what dead processes have left.
fn sweep(directory: &Path) {
    for path in notes(directory) {
        // A process that lives holds the lock.
        if File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok()) {
            // Another user's stays.
            fs::remove_file(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which notes are believed.

    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn daemon(state: &Path) -> Running {
        Running { urls: vec!["http://127.0.0.1:1".to_owned()], state_dir: state.to_owned() }
    }

    #[test]
    fn note_of_a_running_daemon_is_found_until_it_stops() {
        let dir = TempDir::new().unwrap();
        let notes = dir.path().join("notes");
        assert_eq!(running(&notes), []);
        let one = daemon(dir.path());
        let note = Note::leave(&notes, &one).unwrap();
        assert_eq!(running(&notes), [one]);
        drop(note);
        assert_eq!(running(&notes), []);
        assert_eq!(fs::read_dir(&notes).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn note_of_a_dead_process_is_ignored_and_swept() {
        let dir = TempDir::new().unwrap();
        let notes = dir.path().join("notes");
        fs::create_dir(&notes).unwrap();
        let stale = notes.join("1.daemon");
        fs::write(&stale, serde_json::to_vec(&daemon(dir.path())).unwrap()).unwrap();
        fs::set_permissions(&stale, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&notes, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(running(&notes), [], "nothing holds it");
        let _note = Note::leave(&notes, &daemon(dir.path())).unwrap();
        assert!(!stale.exists());
        assert_eq!(running(&notes).len(), 1);
    }

    #[test]
    fn note_that_others_may_have_written_is_not_believed() {
        let dir = TempDir::new().unwrap();
        let notes = dir.path().join("notes");
        let note = Note::leave(&notes, &daemon(dir.path())).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        mode(&notes, 0o777);
        assert_eq!(running(&notes), [], "the directory is anybody's");
        mode(&notes, 0o755);
        mode(&note.path, 0o666);
        assert_eq!(running(&notes), [], "the note is anybody's");
        mode(&note.path, 0o644);
        assert_eq!(running(&notes).len(), 1);
        symlink(&note.path, notes.join("2.daemon")).unwrap();
        assert_eq!(running(&notes).len(), 1, "a link is no note");
    }

    #[test]
    fn note_of_another_version_is_believed_where_it_can_be_read() {
        struct Case {
            name: &'static str,
            text: &'static str,
            is_believed: bool,
        }
        for Case { name, text, is_believed } in [
            Case {
                name: "an earlier one",
                text: r#"{"urls":["http://127.0.0.1:1"],"stateDir":"/var/lib/bridge"}"#,
                is_believed: true,
            },
            Case {
                name: "one with a member that is not known",
                text: r#"{"urls":["http://127.0.0.1:1"],"stateDir":"/var/lib/bridge","version":"9"}"#,
                is_believed: true,
            },
            Case {
                name: "one in another form",
                text: r#"{"urls":[{"http":1}],"stateDir":"/var/lib/bridge"}"#,
                is_believed: false,
            },
        ] {
            let dir = TempDir::new().unwrap();
            let notes = dir.path().join("notes");
            let note = Note::leave(&notes, &daemon(dir.path())).unwrap();
            fs::write(&note.path, text).unwrap();
            assert_eq!(running(&notes).len(), usize::from(is_believed), "{name}");
        }
    }

    #[test]
    fn note_without_an_address_is_not_believed() {
        let dir = TempDir::new().unwrap();
        let notes = dir.path().join("notes");
        let nowhere = Running { urls: Vec::new(), state_dir: dir.path().to_owned() };
        let _note = Note::leave(&notes, &nowhere).unwrap();
        assert_eq!(running(&notes), []);
    }
}
