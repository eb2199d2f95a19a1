//! From the file format to a valid configuration: defaults, ranges, references, clashes.
//!
//! Every check continues after a mistake, so that one run reports all of them.
//!
//! Must not: put a resolved reference into a message.

mod a2a;
mod auth;
mod backend;
pub(super) mod listen;
mod local;
mod mcp;
mod notify;
mod program;
mod rules;
mod runtime;
mod state;
mod upstream;
mod web;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use self::backend::{Backends, Defaults, Inherited};
use super::deserialize::Mistake;
use super::environment::{Environment, SmallFile};
use super::file_format::File;
use super::mistakes::{self, MistakeText};
use super::program::outermost;
use super::reference::{Directories, Template, for_a_shell, plain_reason, reading_cure};
use super::value::format_duration;
use super::{
    At, Calls, Config, Contact, Dialect, Document, DurationText, Listen, NodeId, NoticeWay,
    Refresh, Secret, Secrets, Written, file_format,
};
use crate::model::BackendName;
use crate::model::maps::HashSet;
use crate::state_dir::stored_secrets;

/// The longest call: MANTYX gives up on a tool call after 300 s, and the answer takes time to
/// travel.
const MAX_CALL: Duration = Duration::from_secs(290);
/// The longest call that continues after a first answer: as long as the bridge keeps its result.
const MAX_PENDING: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_REFRESH: Duration = Duration::from_secs(1);
/// The longest refresh interval: a longer one is a mistake in the unit.
const MAX_REFRESH: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What every check needs.
pub(super) struct Validator<'a> {
    document: &'a Document,
    env: &'a Environment,
    /// The configuration file.
    file: &'a Path,
    /// The directory at which relative paths start.
    directory: &'a Path,
    /// Values that were reported as wrong already.
    left_out: &'a HashSet<NodeId>,
    pub findings: RefCell<Findings>,
    /// Where `${secret:NAME}` is looked for, once the state directory is known.
    secrets_dir: OnceCell<PathBuf>,
}

/// What the checks have found so far. They continue after a mistake, so all of them add to it.
#[derive(Default)]
pub(super) struct Findings {
    pub mistakes: Vec<Mistake>,
    pub warnings: Vec<(NodeId, String)>,
    /// What keeps single backends and receivers of notices from being reached.
    pub unresolved: Vec<(UnresolvedEntry, Vec<Mistake>)>,
    /// Files with secrets of the bridge, and directories of such files.
    secret_files: Vec<PathBuf>,
    /// The secrets among their contents that the bridge sends to peers.
    secrets: Secrets,
}

/// An entry of the file that refers to something that is missing.
#[derive(Debug, Clone)]
pub(super) enum UnresolvedEntry {
    Backend(BackendName),
    /// Of `notify`.
    Receiver(BackendName),
}

impl<'a> Validator<'a> {
    pub(super) fn new(
        document: &'a Document,
        env: &'a Environment,
        file: &'a Path,
        directory: &'a Path,
        left_out: &'a HashSet<NodeId>,
    ) -> Self {
        let (findings, secrets_dir) = (RefCell::default(), OnceCell::new());
        Self { document, env, file, directory, left_out, findings, secrets_dir }
    }

    /// The configuration; `None` if a mistake was reported that prevents it.
    pub(super) fn config(&self, file: &File) -> Option<Config> {
        // First, as `${secret:NAME}` anywhere else is looked for there.
        let state_dir = self.state_dir(file.state_dir.as_ref());
        let listen = self.listen(file.listen.as_ref());
        let auth = self.auth(file.auth.as_ref(), listen.as_ref());
        let upstream = self.upstream(file.upstream.as_ref());
        let state = optional(&file.state, |at| self.state(at, upstream.as_ref()));
        let seal_keys = self.seal_keys(file.seal_key.as_ref());
        let refresh =
            self.refresh(file.refresh.as_ref().unwrap_or(&file_format::Refresh::default()));
        let calls = self.calls(file.calls.as_ref().unwrap_or(&file_format::Calls::default()));
        let audit = optional(&file.audit, |at| self.audit(at));
        let backends = self.backends(file, &refresh, &calls);
        let apps = self.apps(file.apps.as_ref(), &backends, auth, listen.as_ref());
        let runtimes = self.runtimes(file, &backends);
        let mut notify = self.notify(file.notify.as_ref(), &backends);
        self.check_tls(file.listen.as_ref(), listen.as_ref());
        let Backends { ready: mut backends, disabled, .. } = backends;
        let hidden = self.hidden(listen.as_ref(), state_dir.as_ref());
        self.keep_proxies_secret();
        let secrets = Arc::new(std::mem::take(&mut self.findings.borrow_mut().secrets));
        let programs_of_notices =
            notify.iter_mut().filter_map(|receiver| match &mut receiver.way {
                NoticeWay::Command(program) => Some(program),
                NoticeWay::Webhook(_) | NoticeWay::Unresolved(_) => None,
            });
        let programs_of_backends = backends.values_mut().filter_map(|backend| {
            backend.secrets = Arc::clone(&secrets);
            backend.program_mut()
        });
        for program in programs_of_backends.chain(programs_of_notices) {
            program.hidden = Arc::clone(&hidden);
            program.secrets = Arc::clone(&secrets);
        }
        Some(Config {
            listen: listen?,
            upstream: upstream?,
            state_dir: state_dir?,
            state: state?,
            seal_keys: seal_keys?,
            auth,
            apps,
            refresh,
            calls,
            audit: audit?,
            notify,
            disabled,
            backends,
            runtimes,
            secrets,
            warnings: Vec::new(),
        })
    }

    /// The bridge's own files, which no program may read: this file, the state directory, and every
    /// file with a secret or a private key that this file names. A program that could write a note
    /// of a running daemon could have the command line show the operator's secret to it.
    fn hidden(&self, listen: Option<&Listen>, state_dir: Option<&PathBuf>) -> Arc<[PathBuf]> {
        let file = self.file.file_name().map(|name| self.directory.join(name));
        let key = listen.and_then(|listen| listen.tls.as_ref()).map(|files| files.key.clone());
        let secrets = std::mem::take(&mut self.findings.borrow_mut().secret_files);
        let own = [file, key, state_dir.cloned(), self.env.notes()].into_iter().flatten();
        outermost(own.chain(secrets))
    }

    /// What a client of the daemon needs. Other files that the configuration refers to need not
    /// exist.
    pub(super) fn contact(&self, file: &File, app: Option<&str>) -> Option<Contact> {
        if let (Some(app), None) = (app, &file.apps) {
            return self.missing(self.document.root.id, mistakes::no_apps(app));
        }
        let state_dir = self.state_dir(file.state_dir.as_ref());
        let app = optional(&file.apps, |apps| self.first_app(apps, app))?;
        Some(Contact { listen: self.listen(file.listen.as_ref())?, state_dir: state_dir?, app })
    }

    fn refresh(&self, section: &file_format::Refresh) -> Refresh {
        let interval = self.refresh_interval(section.interval.as_ref());
        let timeout = self.duration(section.timeout.as_ref(), Duration::from_secs(60 * 60), "");
        let jitter = section.jitter.as_ref().map_or(0.1, |at| at.value);
        if let Some(at) = section.jitter.as_ref().filter(|_| !(0.0..=1.0).contains(&jitter)) {
            self.error(at.node, mistakes::no_share());
        }
        Refresh {
            interval: interval.unwrap_or(Duration::from_secs(5 * 60)),
            jitter,
            timeout: timeout.unwrap_or(Duration::from_secs(30)),
        }
    }

    fn calls(&self, section: &file_format::Calls) -> Calls {
        let timeout =
            self.call_timeout(section.timeout.as_ref()).unwrap_or(Duration::from_secs(285));
        let pending = section.pending_timeout.as_ref();
        let pending_timeout = self.duration(pending, MAX_PENDING, "");
        if let Some(at) = pending.filter(|_| pending_timeout < Some(timeout)) {
            let least = format_duration(timeout);
            self.error(at.node, mistakes::less_time(least));
        }
        Calls {
            timeout,
            pending_timeout: pending_timeout.unwrap_or(Duration::from_secs(60 * 60)),
            max_concurrent: section.max_concurrent.as_ref().map_or(256, |at| at.value.0),
        }
    }

    pub(super) fn state_dir(&self, section: Option<&At<String>>) -> Option<PathBuf> {
        let state_dir = match section {
            Some(at) => self.path(at),
            None => self
                .default_state_dir()
                .filter(|dir| dir.is_absolute())
                .or_else(|| self.missing(self.document.root.id, mistakes::no_state_dir())),
        }?;
        let _once = self.secrets_dir.set(state_dir.join(stored_secrets::DIRECTORY));
        Some(state_dir)
    }

    /// systemd's directory of the service, else the place for states in the user's home.
    fn default_state_dir(&self) -> Option<PathBuf> {
        if let Some(list) = self.env.filled_var("STATE_DIRECTORY") {
            // systemd sets a list if the unit names several directories.
            return list.split(':').next().map(PathBuf::from);
        }
        let states = self.env.users_directory("XDG_STATE_HOME", ".local/state")?;
        Some(states.join("mantyx-bridge"))
    }

    fn refresh_interval(&self, at: Option<&At<DurationText>>) -> Option<Duration> {
        let interval = self.duration(at, MAX_REFRESH, "")?;
        if let Some(at) = at.filter(|_| interval < MIN_REFRESH) {
            self.error(at.node, mistakes::flood());
        }
        Some(interval)
    }

    fn call_timeout(&self, at: Option<&At<DurationText>>) -> Option<Duration> {
        self.duration(
            at,
            MAX_CALL,
            ": MANTYX gives up on a call after 300s, and the answer has to travel",
        )
    }

    /// A duration above 0 and up to `max`; `why` says where the maximum comes from.
    fn duration(
        &self,
        at: Option<&At<DurationText>>,
        max: Duration,
        why: &str,
    ) -> Option<Duration> {
        let at = at?;
        let DurationText(duration) = at.value;
        let max_text = format_duration(max);
        if duration.is_zero() {
            self.error(at.node, mistakes::no_time(max_text));
        } else if duration > max {
            self.error(at.node, mistakes::too_long(max_text, why));
        }
        Some(duration)
    }

    /// Reports a mistake in a value, or in its key.
    fn error(&self, node: NodeId, text: MistakeText) {
        self.findings.borrow_mut().mistakes.push(Mistake::from(text).at(node));
    }

    /// What `check` gives. The mistakes that it reports count as outside of the file, unless a
    /// `template` is plain text.
    fn outside<T>(&self, template: Option<&Template>, check: impl FnOnce() -> T) -> T {
        let before = self.findings.borrow().mistakes.len();
        let checked = check();
        if template.is_none_or(|template| !template.is_plain()) {
            for mistake in &mut self.findings.borrow_mut().mistakes[before..] {
                mistake.is_outside = true;
            }
        }
        checked
    }

    /// [`Self::error`] in a value of which nothing can be used.
    fn refuse<T>(&self, node: NodeId, text: MistakeText) -> Option<T> {
        self.error(node, text);
        None
    }

    /// Reports that the map `node` lacks a required value. Says nothing if a value of the map was
    /// wrong already, since that may be the missing one.
    fn missing<T>(&self, node: NodeId, text: MistakeText) -> Option<T> {
        if !self.left_out.iter().any(|&wrong| self.document.parent(wrong) == Some(node)) {
            self.error(node.key(), text);
        }
        None
    }

    /// The value of a key that the map `node` must have; [`Self::missing`] without one.
    fn needed<'t, T>(
        &self,
        node: NodeId,
        value: &'t Option<T>,
        text: MistakeText,
    ) -> Option<&'t T> {
        value.as_ref().or_else(|| self.missing(node, text))
    }

    fn warn(&self, node: NodeId, message: impl Into<String>) {
        self.findings.borrow_mut().warnings.push((node, message.into()));
    }

    /// A text with its references resolved, and the template that it came from.
    fn resolve(&self, node: NodeId, text: &str, dialect: Dialect) -> Option<(String, Template)> {
        self.resolve_with(node, text, dialect, &BTreeMap::new())
    }

    /// [`Self::resolve`], where `${NAME}` stands for a variable of `own` first.
    fn resolve_with(
        &self,
        node: NodeId,
        text: &str,
        dialect: Dialect,
        own: &BTreeMap<String, Secret>,
    ) -> Option<(String, Template)> {
        let parsed = Template::parse(text, dialect).map(|template| template.with_own(own));
        let resolved = parsed.and_then(|template| {
            let secrets = self.secrets_dir.get().map(PathBuf::as_path);
            let directories = Directories { file: self.directory, secrets };
            let values = template.resolve(self.env, directories)?;
            Ok((values, template))
        });
        match resolved {
            Ok((resolved, template)) => {
                for path in resolved.exposed_files {
                    self.warn(node, everybody_reads(&path));
                }
                self.findings.borrow_mut().secret_files.extend(resolved.sources);
                Some((resolved.value, template))
            }
            Err(mistake) => {
                self.findings.borrow_mut().mistakes.push(mistake.at(node));
                None
            }
        }
    }

    /// Resolves a text that other people see: only environment variables are allowed in it.
    fn open_text(&self, node: NodeId, text: &str, dialect: Dialect) -> Option<String> {
        let (value, template) = self.resolve(node, text, dialect)?;
        if template.is_secret() {
            self.error(node, mistakes::secret_here());
        }
        Some(value)
    }

    /// Resolves a secret that the bridge sends to a peer; `name` is its name in the warning about
    /// plain text.
    fn secret(&self, node: NodeId, text: &str, name: &str) -> Option<SecretString> {
        let secret = self.token(node, text, name)?;
        self.keep_secret(secret.expose_secret());
        Some(secret)
    }

    /// Registers `value` as a secret that no text of a peer may repeat.
    fn keep_secret(&self, value: &str) {
        self.findings.borrow_mut().secrets.add(value);
    }

    /// Resolves a secret that the bridge only compares.
    fn token(&self, node: NodeId, text: &str, name: &str) -> Option<SecretString> {
        let (value, template) = self.resolve(node, text, Dialect::Own)?;
        if template.is_plain() {
            self.warn(node, plain_secret(name));
        }
        self.outside(Some(&template), || {
            if value.is_empty() {
                let which =
                    if template.is_plain() { name.to_owned() } else { template.to_string() };
                return self.refuse(node, mistakes::is_empty(which));
            }
            if let Some(bad) = value.chars().find(|c| !c.is_ascii_graphic()) {
                let kind =
                    if bad.is_whitespace() { "a space or a line break" } else { "a character" };
                return self.refuse(node, mistakes::odd_character(name, kind));
            }
            Some(value.into())
        })
    }

    /// A path; a relative one starts at the directory of the file.
    fn path(&self, at: &At<String>) -> Option<PathBuf> {
        self.path_in(at, Dialect::Own)
    }

    fn path_in(&self, at: &At<String>, dialect: Dialect) -> Option<PathBuf> {
        let path = self.open_text(at.node, &at.value, dialect)?;
        self.check_shell(at.node, &at.value);
        if path.is_empty() || path.contains('\0') {
            return self.refuse(at.node, mistakes::no_path());
        }
        Some(self.directory.join(path))
    }

    /// Refuses what only a shell would understand in a path.
    fn check_shell(&self, node: NodeId, text: &str) {
        let Some(what) = for_a_shell(text) else { return };
        self.error(node, mistakes::no_shell(what));
    }

    /// Reads a file that the value `node` names.
    fn file(&self, node: NodeId, path: &Path, cure: &str) -> Option<SmallFile> {
        match self.env.read(path) {
            Ok(file) => Some(file),
            Err(error) => {
                let (path, why) = (path.display(), plain_reason(&error));
                let cure = reading_cure(&error, cure);
                self.outside(None, || self.refuse(node, mistakes::unread(path, why, cure)))
            }
        }
    }

    /// `value`, with the text that may be shown for it.
    fn written<T: ToString>(&self, value: T, shown: String) -> Written<T> {
        let text = value.to_string();
        if text != shown {
            self.keep_secret(&text);
        }
        Written::new(value, shown)
    }

    fn line(&self, node: NodeId) -> usize {
        self.document.place(node.key()).line
    }
}

/// All values. Those behind a `None` are computed as well, so that every mistake is reported.
fn all<T, C: FromIterator<T>>(values: impl Iterator<Item = Option<T>>) -> Option<C> {
    values.collect::<Vec<_>>().into_iter().collect()
}

/// The value of a key that may be absent. `None` outside: a mistake was reported.
fn optional<A, T>(at: &Option<A>, read: impl FnOnce(&A) -> Option<T>) -> Option<Option<T>> {
    match at {
        Some(at) => read(at).map(Some),
        None => Some(None),
    }
}

fn everybody_reads(path: &Path) -> String {
    format!("every user can read {}; run chmod o-rwx on it", path.display())
}

fn everybody_writes(path: &Path) -> String {
    format!("every user can change {}; run chmod o-w on it", path.display())
}

fn plain_secret(name: &str) -> String {
    format!(
        "{name} is a secret in plain text; write ${{env:NAME}}, ${{file:/path}}, ${{secret:NAME}} or ${{cred:NAME}}"
    )
}
