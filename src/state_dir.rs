//! The state directory: the tokens of the app `default` and of the operator, the daemon's
//! addresses, the refresh token that replaced a configured one, and the files of `catalogs` and
//! `pins`.
//!
//! Must not: hold anything in memory; other programs read these files.

pub mod running;
pub mod stored_secrets;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, fchown,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error_chain::error_chain;
use crate::model::catalog::hex;
use crate::tasks;

/// The state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    /// The files that could not be written last time, and why; shared by all clones.
    unwritten: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    /// The damaged files that were replaced; shared by all clones.
    replaced: Arc<Mutex<BTreeMap<PathBuf, Replaced>>>,
}

/// A damaged file, in whose place the bridge uses something else.
#[derive(Debug, Clone)]
pub struct Replaced {
    /// What was damaged, and what takes its place.
    pub message: String,
    /// What an operator does about that.
    pub cure: &'static str,
}

/// A file that another user may have read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    pub message: String,
    pub cure: String,
}

/// Who may use a file.
#[derive(Debug, Clone, Copy)]
struct Access {
    owner: u32,
    mode: u32,
}

impl Access {
    fn read(path: &Path) -> Option<Self> {
        let facts = fs::metadata(path).ok()?;
        Some(Self { owner: facts.uid(), mode: facts.mode() & 0o7777 })
    }
}

/// What another user may have done with the file at `path`, in a directory that none but its owner
/// may write.
///
/// A file may have been put there by another user before the directory was closed, so its owner and
/// who may write it matter in a directory of mode 0700, too: the secret in it may be that user's.
fn exposed_file(path: &Path, file: Access, dir: Access, group_may_read: bool) -> Option<Exposed> {
    let (shown, mode) = (path.display(), file.mode);
    if ![0, dir.owner].contains(&file.owner) {
        let message =
            format!("{shown} belongs to another user (uid {}), who can write it.", file.owner);
        let cure = format!("Run `chown {} {shown}`. {MAY_BE_THEIRS}", dir.owner);
        return Some(Exposed { message, cure });
    }
    if mode & 0o022 != 0 {
        let message = format!("Other users can write {shown} (mode {mode:04o}).");
        return Some(Exposed {
            message,
            cure: format!("Run `chmod go-w {shown}`. {MAY_BE_THEIRS}"),
        });
    }
    // A file can only be read if its directory can be entered.
    let group = if dir.mode & 0o010 == 0 || group_may_read { 0 } else { 0o040 };
    let others = if dir.mode & 0o001 == 0 { 0 } else { 0o004 };
    if mode & (group | others) == 0 {
        return None;
    }
    let message = format!("Other users can read {shown} (mode {mode:04o}).");
    Some(Exposed { message, cure: EXPOSED.to_owned() })
}

/// A file in the state directory could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}{}", self.cure())]
pub struct StateError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl StateError {
    fn cure(&self) -> &'static str {
        match self.source.get_ref() {
            // Its own words say it.
            Some(inner) if inner.is::<NoFile>() || inner.is::<TooLarge>() => "",
            _ => "; set `state_dir` to a directory that the bridge may write to",
        }
    }
}

/// Something else than a file has the place of one.
#[derive(Debug, thiserror::Error)]
#[error("it is {0} and no file; move it away, and the bridge makes a file in its place")]
pub struct NoFile(&'static str);

/// A file is larger than what it is for.
#[derive(Debug, thiserror::Error)]
#[error(
    "it has {size} bytes, and at most {limit} are read of it; move it away, and the bridge makes a \
     file in its place"
)]
pub struct TooLarge {
    size: u64,
    limit: u64,
}

/// Opens the file at `path`. A pipe would keep its reader waiting for a writer, and the bridge
/// would never start; a device may give bytes without end.
pub fn open_file(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    // Before it is opened, as that alone may set a device going.
    match fs::metadata(path) {
        Ok(about) => check_is_file(about.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(error),
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    // Another file may have taken its place meanwhile.
    check_is_file(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_is_file(kind: fs::FileType) -> io::Result<()> {
    let name = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(NoFile(name)))
}

/// The most bytes of a file with a secret of the bridge's own.
const MAX_SECRET_BYTES: u64 = 4 << 10;
/// The most bytes of the file with the refresh token, which is MANTYX's to choose, and of the file
/// with the addresses.
const MAX_TEXT_BYTES: u64 = 64 << 10;
/// The fewest bytes of a secret that an operator has chosen. A shorter one can be guessed.
const MIN_SECRET_BYTES: usize = 8;
/// The fewest bytes of one that begins as the bridge's own do: those have a prefix and 64 digits,
/// and what a crash leaves of one can be guessed if it is much shorter.
const MIN_OWN_BYTES: usize = 4 + 32;

/// The most bytes of the file `name`. Without a limit, a daemon whose token was replaced by a large
/// file would hold all of it, and read it again with each command.
fn max_bytes(name: &Path) -> u64 {
    match name.to_str() {
        Some(TOKEN | OPERATOR) => MAX_SECRET_BYTES,
        Some(REFRESH_TOKEN | LISTEN) => MAX_TEXT_BYTES,
        _ if name.starts_with(LOGINS) || name.starts_with(REGISTRATIONS) => MAX_TEXT_BYTES,
        _ => u64::MAX,
    }
}

/// Whether a stored secret can be one. After a crash, a file may be empty, be cut short, or have
/// zero bytes in the place of its text.
fn is_secret(text: &str) -> bool {
    let least = if text.starts_with(TOKEN_PREFIX) || text.starts_with(OPERATOR_PREFIX) {
        MIN_OWN_BYTES
    } else {
        MIN_SECRET_BYTES
    };
    text.len() >= least && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The secret in a file with these `bytes`, unless it is damaged.
fn stored_secret(bytes: &[u8]) -> Option<SecretString> {
    let text = str::from_utf8(bytes).ok()?.trim();
    if is_secret(text) { Some(text.to_owned().into()) } else { None }
}

/// What the secrets begin with that the bridge makes.
const TOKEN_PREFIX: &str = "mbt_";
const OPERATOR_PREFIX: &str = "mbo_";

/// What to do once a token was replaced.
const TELL_TOKEN: &str = "Give the new one to the apps that used the old one: `mantyx-bridge token`. \
                          This is shown until the next start.";
/// What to do once the operator's secret was replaced.
const TELL_OPERATOR: &str = "The new one is shown by `mantyx-bridge token --operator`; sign in again at \
                             the page. This is shown until the next start.";
/// What to do once the refresh token was lost: the bridge has only the configured one.
const LOG_IN: &str = "If MANTYX does not take it, as it was replaced before, log in again, and write the \
                      new refresh token to where upstream.oauth says. This is shown until the next start.";

/// Refuses a file whose format is not the one that this version writes.
pub fn check_format(format: u32, own: u32) -> Result<(), String> {
    if format == own {
        return Ok(());
    }
    Err(format!("it has the format {format}, and this version writes {own}"))
}

/// Whether a later version wrote the file with this `text`, in a format after `own`.
pub fn has_later_format(text: &str, own: u32) -> bool {
    #[derive(Deserialize)]
    struct Format {
        version: u32,
    }
    serde_json::from_str::<Format>(text).is_ok_and(|file| file.version > own)
}

impl StateDir {
    pub fn new(path: PathBuf) -> Self {
        Self { path, unwritten: Arc::default(), replaced: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory, for its owner alone.
    pub fn create(&self) -> Result<(), StateError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|source| self.failed("make", "", source))
    }

    /// The token of the app `default`; created at the first call, with mode 0600.
    pub fn token(&self) -> Result<SecretString, StateError> {
        self.secret(TOKEN, TOKEN_PREFIX)
    }

    /// The operator's secret, which gives rights that no app has. Sent beside an app's token;
    /// created at the first call, with mode 0600.
    pub fn operator(&self) -> Result<SecretString, StateError> {
        self.secret(OPERATOR, OPERATOR_PREFIX)
    }

    /// The secret in `file`; created if there is none.
    fn secret(&self, file: &str, prefix: &str) -> Result<SecretString, StateError> {
        let bytes = self.read_bytes(Path::new(file))?;
        if let Some(secret) = bytes.as_deref().and_then(stored_secret) {
            return Ok(secret);
        }
        let mut random = [0; 32];
        crate::random::fill(&mut random)
            .map_err(|error| self.failed("draw random bytes for", file, io::Error::other(error)))?;
        let secret = SecretString::from(format!("{prefix}{}", hex(&random)));
        self.write_kept(Path::new(file), secret.expose_secret())?;
        if bytes.is_some() {
            let cure = if file == OPERATOR { TELL_OPERATOR } else { TELL_TOKEN };
            self.note_replaced(file, "the bridge made another secret", cure);
        }
        Ok(secret)
    }

    /// Tells, in the log and in `problems`, that the file `name` was damaged, and what is used now.
    fn note_replaced(&self, name: &str, instead: &str, cure: &'static str) {
        let path = self.path.join(name);
        let message = format!(
            "{} was empty, too short or damaged, as after a crash: {instead}.",
            path.display()
        );
        warn!(cure, "{message}");
        self.replaced.lock().insert(path, Replaced { message, cure });
    }

    /// The damaged files that were replaced since the start.
    pub fn replaced(&self) -> Vec<Replaced> {
        self.replaced.lock().values().cloned().collect()
    }

    /// The secret in `file`, if it exists and is not damaged.
    pub fn existing(&self, file: &str) -> Result<Option<SecretString>, StateError> {
        let bytes = self.read_bytes(Path::new(file))?.unwrap_or_default();
        Ok(stored_secret(&bytes))
    }

    /// Whether a daemon has run here before: files exist that no other command writes.
    pub fn has_been_used(&self) -> bool {
        [LISTEN].iter().chain(&KEPT).any(|name| self.path.join(name).exists())
    }

    /// Writes the daemon's addresses, one a line.
    pub fn write_listen(&self, urls: &[String]) -> Result<(), StateError> {
        self.write_noted(Path::new(LISTEN), &urls.join("\n"))
    }

    /// Writes `text` to `path` below the directory, for a file that the daemon can do without.
    /// [`Self::unwritten`] shows a failure until a later write succeeds.
    pub fn write_noted(&self, path: &Path, text: &str) -> Result<(), StateError> {
        let outcome = self.write_kept(path, text);
        let mut unwritten = self.unwritten.lock();
        match &outcome {
            Ok(()) => drop(unwritten.remove(path)),
            Err(error) => drop(unwritten.insert(path.to_owned(), error_chain(error))),
        }
        outcome
    }

    /// The files that could not be written, and why: a sentence each.
    pub fn unwritten(&self) -> Vec<String> {
        self.unwritten.lock().values().cloned().collect()
    }

    /// The first file that another user of the machine can read, write or replace, or that is
    /// another user's. The group may read an app's token; all other files are the owner's.
    pub fn exposed(&self) -> Option<Exposed> {
        let dir = Access::read(&self.path)?;
        // In a sticky directory, users cannot replace other users' files.
        if dir.mode & 0o022 != 0 && dir.mode & 0o1000 == 0 {
            let (path, mode) = (self.path.display(), dir.mode);
            let message = format!("Other users can replace files in {path} (mode {mode:04o}).");
            return Some(Exposed { message, cure: EXPOSED.to_owned() });
        }
        [TOKEN, OPERATOR, JOURNAL, REFRESH_TOKEN].into_iter().find_map(|name| {
            let path = self.path.join(name);
            let group_may_read = name == TOKEN;
            exposed_file(&path, Access::read(&path)?, dir, group_may_read)
        })
    }

    /// Logs [`Self::exposed`], once at the start.
    pub fn warn_of_exposed(&self) {
        if let Some(Exposed { message, cure }) = self.exposed() {
            warn!(cure, "{message}");
        }
    }

    /// The damaged journals that were set aside.
    pub fn damaged_journals(&self) -> Vec<PathBuf> {
        let mut journals: Vec<PathBuf> = self
            .files(Path::new(""))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("journal.damaged-")
            })
            .collect();
        journals.sort_unstable();
        journals
    }

    /// The addresses of the daemon, or of the last one that ran.
    pub fn listen(&self) -> Result<Vec<String>, StateError> {
        let Some(text) = self.read_kept(Path::new(LISTEN))? else {
            return Err(self.failed("read", LISTEN, io::ErrorKind::NotFound.into()));
        };
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The replacement of the refresh token whose hash is `of`, if there is one.
    pub fn refresh_token(&self, of: &str) -> Result<Option<SecretString>, StateError> {
        let Some(text) = self.read_kept(Path::new(REFRESH_TOKEN))? else { return Ok(None) };
        let Ok(stored) = serde_json::from_str::<RefreshToken>(&text) else {
            self.note_replaced(REFRESH_TOKEN, "the configured refresh token is used", LOG_IN);
            return Ok(None);
        };
        if stored.of != of {
            // The operator has configured another one since.
            return Ok(None);
        }
        Ok(Some(stored.refresh_token.into()))
    }

    /// Stores the replacement of the refresh token whose hash is `of`.
    pub fn write_refresh_token(&self, of: &str, next: &SecretString) -> Result<(), StateError> {
        let token = RefreshToken { of: of.into(), refresh_token: next.expose_secret().into() };
        let text = serde_json::to_string(&token).expect("two texts can be written");
        self.write_kept(Path::new(REFRESH_TOKEN), &text)
    }

    /// Reads the file at `path` below the directory; `None` if it does not exist.
    pub fn read_kept(&self, path: &Path) -> Result<Option<String>, StateError> {
        let Some(bytes) = self.read_bytes(path)? else { return Ok(None) };
        String::from_utf8(bytes).map(Some).map_err(|error| {
            self.failed("read", path, io::Error::new(io::ErrorKind::InvalidData, error))
        })
    }

    /// [`Self::read_kept`] as bytes.
    fn read_bytes(&self, path: &Path) -> Result<Option<Vec<u8>>, StateError> {
        match read_bounded(&self.path.join(path), max_bytes(path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    /// Runs `work` on a thread that may wait for the disk. The error is a sentence for people.
    pub async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, String> {
        let state = self.clone();
        let outcome = tasks::in_background(move || work(&state)).await;
        outcome.map_err(|error| error.to_string())?.map_err(|error| error_chain(&error))
    }

    /// The files in the directory `dir` below this one; none if it cannot be read.
    fn files(&self, dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(self.path.join(dir)).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    }

    /// Removes unfinished files of commands and daemons that have died.
    pub fn sweep_drafts(&self) {
        let own_names = [TOKEN, OPERATOR, REFRESH_TOKEN, LISTEN];
        let own_files = self.files(Path::new("")).filter(|path| {
            path.file_stem().is_some_and(|stem| own_names.iter().any(|name| stem == *name))
        });
        let backend_files = KEPT.iter().flat_map(|dir| self.files(Path::new(dir)));
        let login_files = self.files(Path::new(LOGINS)).flat_map(|dir| self.files(&dir));
        let registrations = self.files(Path::new(REGISTRATIONS));
        for path in own_files.chain(backend_files).chain(login_files).chain(registrations) {
            if let Some(writer) = draft_writer(&path)
                && test_kill_process(writer) == Err(Errno::SRCH)
                && let Err(error) = fs::remove_file(&path)
            {
                warn!(%error, path = %path.display(), "an unfinished file cannot be removed");
            }
        }
    }

    /// Writes `text` to the file `name` below the directory, for its owner alone: the whole file or
    /// nothing.
    pub fn write_kept(&self, name: &Path, text: &str) -> Result<(), StateError> {
        let path = self.path.join(name);
        let draft = path.with_extension(format!("new{}", std::process::id()));
        replace_file(&path, &draft, text).map_err(|error| {
            // The unfinished file takes disk space, which may be what is missing.
            fs::remove_file(&draft).ok();
            self.failed("write", name, error)
        })
    }

    /// Removes the file `name` below the directory; it may be gone already.
    pub fn remove_kept(&self, name: &Path) -> Result<(), StateError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", name, error))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, doing: &'static str, name: impl AsRef<Path>, source: io::Error) -> StateError {
        StateError { doing, path: self.path.join(name), source }
    }
}

/// The process that writes, or wrote, the unfinished file at `path`; `None` if it is another file.
fn draft_writer(path: &Path) -> Option<Pid> {
    Pid::from_raw(path.extension()?.to_str()?.strip_prefix("new")?.parse().ok()?)
}

/// Reads the file at `path`; an error if it has more than `limit` bytes.
fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_file(fs::OpenOptions::new().read(true), path)?;
    let size = file.metadata()?.len();
    if size > limit {
        return Err(io::Error::other(TooLarge { size, limit }));
    }
    let mut bytes = Vec::new();
    // Another process may lengthen it meanwhile.
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes `text` to the file at `path`, which takes the place of the one there.
///
/// The draft is synced before it is renamed, and the directory after that. Otherwise a crash may
/// leave an empty file in the place of a token that apps already have.
fn replace_file(path: &Path, draft: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent()
        && !dir.is_dir()
    {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // A crash would otherwise take the new directory away, with the file in it.
        for above in dir.ancestors().skip(1).take(NEW_DIRS) {
            fs::File::open(above)?.sync_all()?;
        }
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(draft)?;
    writeln!(file, "{text}")?;
    belongs_to_the_daemon(&file, path)?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    path.parent().map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
}

/// How many directories below the state directory a file may need.
const NEW_DIRS: usize = 2;

/// Gives a file of root's to the owner of its directory: otherwise a command that an administrator
/// runs would leave a file that the daemon cannot read.
fn belongs_to_the_daemon(file: &fs::File, path: &Path) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Ok(()) };
    let about_dir = dir.metadata()?;
    if file.metadata()?.uid() == 0 && about_dir.uid() != 0 {
        fchown(file, Some(about_dir.uid()), Some(about_dir.gid()))?;
    }
    Ok(())
}

/// The token that replaced a refresh token.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefreshToken {
    of: String,
    refresh_token: String,
}

/// What to do about a secret that another user may have chosen.
const MAY_BE_THEIRS: &str = "If you cannot tell that its content is the bridge's own, remove it and start \
                             the bridge again.";

/// What to do about files that others can read or replace.
const EXPOSED: &str = "They may act as an app or as the operator: `chmod 700` the state directory, \
                           and replace what they may have read.";

pub const TOKEN: &str = "token";
pub const OPERATOR: &str = "operator";
const REFRESH_TOKEN: &str = "upstream-refresh-token";
const LISTEN: &str = "listen";
/// The directories with the files of backends.
const KEPT: [&str; 3] = ["catalogs", "pins", "notices"];
const JOURNAL: &str = "journal";
/// The directory with a directory of logins for each backend.
pub const LOGINS: &str = "logins";
/// The directory with the clients that the bridge has registered.
pub const REGISTRATIONS: &str = "registrations";

#[cfg(test)]
mod tests;
