//! Files of a person's that are changed: read whole or not at all, and replaced whole or not at
//! all, with their owner, their mode and the link that leads to them.
//!
//! Must not: change what cannot be read, or what another program has changed meanwhile.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::cli::{Failure, Outcome};
use crate::state_dir::open_file;

/// No list of servers is larger; the largest files that have one keep a person's whole history.
const MAX_BYTES: u64 = 16 << 20;
/// Why a file is not written over.
const CHANGED: &str = "another program has changed it meanwhile; run the command again";
/// The end of a backup's name.
const BACKUP: &str = "before-mantyx-bridge";

/// A file that was read.
#[derive(Debug)]
pub(in crate::cli) struct OwnFile {
    /// The file itself, where a link leads to it.
    path: PathBuf,
    pub(in crate::cli) text: String,
    /// `None`: the file is absent.
    about: Option<fs::Metadata>,
}

impl OwnFile {
    /// The file at `path`; an absent one has the text `empty`.
    pub(in crate::cli) fn read(path: &Path, empty: &str) -> Outcome<Self> {
        let refuse = |why: String| refusal(path, &why);
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                let absolute = std::path::absolute(path)?;
                return Ok(Self { path: absolute, text: empty.to_owned(), about: None });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refuse("it is a link that leads to nothing".to_owned()));
            }
            Err(error) => return Err(refuse(plain(&error))),
        };
        let (text, about) = contents(&real).map_err(refuse)?;
        Ok(Self { path: real, text, about: Some(about) })
    }

    /// Replaces the file's text. The earlier one stays beside it as a backup, if `keeps_backup`;
    /// its path is the result.
    ///
    /// A draft is written, synced, and renamed: a crash leaves the old file or the new one. What
    /// another program has written since the file was read would be lost, so that is refused.
    pub(in crate::cli) fn replace(
        &self,
        text: &str,
        keeps_backup: bool,
    ) -> Outcome<Option<PathBuf>> {
        let refuse = |why: String| refusal(&self.path, &why);
        let now = match contents(&self.path) {
            Ok((text, _)) => Some(text),
            Err(_) if self.about.is_none() => None,
            Err(why) => return Err(refuse(why)),
        };
        if now.is_some_and(|now| now != self.text) {
            return Err(refuse(CHANGED.to_owned()));
        }
        let backup = match &self.about {
            Some(_) if keeps_backup => {
                let path = self.beside(BACKUP);
                self.write(&path, &self.text).map_err(|error| refuse(plain(&error)))?;
                Some(path)
            }
            _ => None,
        };
        self.write(&self.path, text).map_err(|error| refuse(plain(&error)))?;
        Ok(backup)
    }

    /// The text that the file had before this program changed it last, if its backup is there.
    pub(in crate::cli) fn backup(&self) -> Option<String> {
        contents(&self.beside(BACKUP)).ok().map(|(text, _)| text)
    }

    /// Removes the file, unless another program has changed it since it was read.
    pub(in crate::cli) fn remove(&self) -> Outcome {
        let (text, _) = contents(&self.path).map_err(|why| refusal(&self.path, &why))?;
        if text != self.text {
            return Err(refusal(&self.path, CHANGED));
        }
        fs::remove_file(&self.path).map_err(|error| refusal(&self.path, &plain(&error)))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let draft = self.beside(&format!("new{}", std::process::id()));
        let outcome = self.write_draft(&draft, text).and_then(|()| fs::rename(&draft, path));
        if outcome.is_err() {
            fs::remove_file(&draft).ok();
        }
        outcome?;
        path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
    }

    fn write_draft(&self, draft: &Path, text: &str) -> io::Result<()> {
        if let Some(directory) = draft.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = fs::OpenOptions::new();
        // The text may have secrets in it. A link that another user has put there is not followed.
        let mut file = options.write(true).create_new(true).mode(0o600).open(draft)?;
        file.write_all(text.as_bytes())?;
        if let Some(about) = &self.about {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (about.uid(), about.gid()) {
                fchown(&file, Some(about.uid()), Some(about.gid()))?;
            }
            file.set_permissions(fs::Permissions::from_mode(about.mode() & 0o7777))?;
        }
        file.sync_all()
    }

    /// `NAME.end` in the directory of the file.
    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(end);
        self.path.with_file_name(name)
    }
}

/// The text of the regular file at `path`, or why it is not read.
fn contents(path: &Path) -> Result<(String, fs::Metadata), String> {
    let (bytes, about) = bytes(path).map_err(|error| plain(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {} MiB", MAX_BYTES >> 20));
    }
    if bytes.contains(&0) {
        return Err("it has zero bytes, as UTF-16 text has; save it as UTF-8".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_bad| "it is not UTF-8 text".to_owned())?;
    Ok((text, about))
}

/// The content, and one byte more than may be read.
fn bytes(path: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    let file = open_file(fs::OpenOptions::new().read(true), path)?;
    let about = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes, about))
}

/// The reason without what `open_file` says to a daemon.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let kind = text.split(" and no file").next().unwrap_or_default();
    match error.kind() {
        io::ErrorKind::PermissionDenied => "you may not read or write it".to_owned(),
        _ => kind.to_owned(),
    }
}

fn refusal(path: &Path, why: &str) -> Failure {
    Failure::Failed(format!("{} is left as it is: {why}", path.display()))
}

#[cfg(test)]
mod tests;
