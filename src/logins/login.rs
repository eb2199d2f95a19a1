//! One login: its record, its tokens, and its end. The tokens are renewed by one exchange at a
//! time, in a task that outlives the request which has asked for it (`oauth::Tokens`).
//!
//! ```text
//! none --a person logs in--> ok <--a person logs in-- needs_scopes, ended
//!                            |  `--403 insufficient_scope--> needs_scopes
//!                            `--invalid_grant, another issuer, no refresh token--> ended
//! ```
//!
//! An issuer that rotates refresh tokens ends the login if one is shown twice. So the new one is
//! written and synced before the answer that brought it is judged.
//!
//! Must not: send a token anywhere, or show one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::discovery::{LoginSettings, Network};
use super::grant::Grant;
use super::record::{LoginState, Record};
use super::store::Store;
use crate::backoff::Backoff;
use crate::clock;
use crate::config::{LiveSecrets, Secret};
use crate::http_client;
use crate::http_client::address::shown;
use crate::metrics::{ByLabel, Counter, RefreshOutcome};
use crate::model::BackendName;
use crate::oauth::challenge::Challenge;
use crate::oauth::{self, Issued};

/// The waits between attempts to write a record.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a server that refuses requests is asked where its issuer is.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The tokens of a login.
pub type Tokens = oauth::Tokens<Grant>;

/// A login, as the connection to its backend uses it.
#[derive(Debug)]
pub struct Login {
    pub tokens: Arc<Tokens>,
    /// The tokens that no text may repeat.
    pub secrets: LiveSecrets,
    changes: AsyncMutex<watch::Receiver<()>>,
}

/// What all parts that use a login share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) backend: BackendName,
    store: Arc<Store>,
    pub(super) http: http_client::Client,
    /// Exchanges, writes and looks at metadata, which a stop waits for.
    pub(super) tasks: TaskTracker,
    stop: CancellationToken,
    inner: Mutex<Inner>,
    /// Held while the file is written, so that an older record is never written over a newer one.
    writing: AsyncMutex<()>,
    /// It belongs to a command that only looks: nothing is exchanged, and nothing is written.
    is_reader: bool,
    /// A person has logged in, or out: the backend may be reached in another way now.
    changes: watch::Sender<()>,
    /// Whether the record may be renewed has changed.
    states: watch::Sender<()>,
    pub(super) secrets: LiveSecrets,
    pub(super) refreshes: ByLabel<RefreshOutcome, Counter>,
}

#[derive(Debug, Default)]
struct Inner {
    settings: Option<Arc<LoginSettings>>,
    record: Option<Record>,
    /// Why the file cannot be used. It is no login, and not no login either.
    damage: Option<String>,
    /// Why the newest record is not on disk.
    unwritten: Option<String>,
    is_retried: bool,
    /// Counts the logins and logouts, so that an exchange of an earlier login changes no later one.
    generation: u64,
    /// What the server has said last to a request without a token.
    challenge: Option<Challenge>,
    /// The refusal leads to an issuer.
    wants_login: bool,
    /// The issuer has refused the client of the login: the next login registers another one.
    is_client_refused: bool,
    looked: Option<Instant>,
    last_used: Option<SystemTime>,
}

/// A login that can be used, and which one it is.
#[derive(Debug, Clone)]
pub(super) struct Usable {
    pub(super) settings: Arc<LoginSettings>,
    pub(super) record: Record,
    pub(super) generation: u64,
}

/// A login for people to look at.
#[derive(Debug, Clone)]
pub struct LoginView {
    pub backend: BackendName,
    pub issuer: String,
    pub scopes: Vec<String>,
    pub since: SystemTime,
    pub last_used: Option<SystemTime>,
    /// When it ends by itself: `None` as long as the bridge can renew it.
    pub expires: Option<SystemTime>,
    pub state: LoginState,
    /// Why it is not on disk, if so.
    pub unwritten: Option<String>,
}

/// Something that is wrong with a login, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginProblem {
    pub message: String,
    pub cure: String,
}

impl Inner {
    /// Why the record is not used, if so.
    fn obstacle(&self) -> Option<String> {
        let record = self.record.as_ref()?;
        let settings = self.settings.as_ref()?;
        if record.state == LoginState::Ended {
            return Some(record.end.clone().unwrap_or_else(|| "it has ended".to_owned()));
        }
        if record.server.origin() != settings.server.origin() {
            // A token for one server is not shown to another one.
            return Some(format!("it was made for {}", shown(&record.server)));
        }
        if record.client.is_configured && settings.client.id.as_ref() != Some(&record.client.id) {
            return Some("it was made with another `client_id`".to_owned());
        }
        None
    }

    fn usable(&self) -> Option<Usable> {
        if self.obstacle().is_some() {
            return None;
        }
        let settings = Arc::clone(self.settings.as_ref()?);
        Some(Usable { settings, record: self.record.clone()?, generation: self.generation })
    }
}

impl Shared {
    pub(super) fn new(
        backend: BackendName,
        store: Arc<Store>,
        http: http_client::Client,
        (tasks, stop): (TaskTracker, CancellationToken),
        is_reader: bool,
    ) -> Arc<Self> {
        let (record, damage) = match store.read(&backend) {
            Ok(record) => (record, None),
            Err(why) => {
                error!(%backend, "a login cannot be used: {why}");
                (None, Some(why))
            }
        };
        let secrets = LiveSecrets::default();
        for secret in record.iter().flat_map(|one| [&one.refresh, &one.access]).flatten() {
            secrets.add(secret);
        }
        Arc::new(Self {
            backend,
            store,
            http,
            tasks,
            stop,
            inner: Mutex::new(Inner { record, damage, ..Inner::default() }),
            writing: AsyncMutex::default(),
            is_reader,
            changes: watch::Sender::new(()),
            states: watch::Sender::new(()),
            secrets,
            refreshes: ByLabel::default(),
        })
    }

    /// The login for one connection.
    pub(super) fn login(&self, tokens: &Arc<Tokens>) -> Login {
        let changes = AsyncMutex::new(self.changes.subscribe());
        Login { tokens: Arc::clone(tokens), secrets: self.secrets.clone(), changes }
    }

    /// The login, if it is good for requests.
    pub(super) fn usable(&self) -> Option<Usable> {
        self.inner.lock().usable()
    }

    /// Notes that a request gets a token of it.
    pub(super) fn used(&self) -> Option<Usable> {
        let mut inner = self.inner.lock();
        let usable = inner.usable()?;
        inner.last_used = Some(clock::now());
        Some(usable)
    }

    /// Notes what the server has said to a request without a token.
    pub(super) fn refused(self: &Arc<Self>, challenge: &Challenge) {
        let is_usable = {
            let mut inner = self.inner.lock();
            inner.challenge = Some(challenge.clone());
            inner.usable().is_some()
        };
        if !is_usable {
            self.look(challenge.clone());
        }
    }

    pub(super) fn settings(&self) -> Option<Arc<LoginSettings>> {
        self.inner.lock().settings.clone()
    }

    /// Takes the settings of a new configuration; `None`: the backend takes no login now.
    pub(super) fn set(&self, settings: Option<LoginSettings>) {
        let mut inner = self.inner.lock();
        if inner.settings.as_deref() != settings.as_ref() {
            inner.settings = settings.map(Arc::new);
            inner.challenge = None;
            inner.wants_login = false;
            inner.looked = None;
        }
    }

    /// What the server has said to a request without a token, if it has.
    pub(super) fn challenge(&self) -> Option<Challenge> {
        self.inner.lock().challenge.clone()
    }

    /// The scopes that a call has lacked.
    pub(super) fn missing_scopes(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner.record.as_ref().map(|record| record.missing_scopes.clone()).unwrap_or_default()
    }

    /// The access token that is still valid, for the first requests after a start.
    pub(super) fn kept_token(&self) -> Option<Issued> {
        let usable = self.inner.lock().usable()?;
        let access = usable.record.access.as_ref()?;
        let lifetime = match usable.record.expires {
            Some(expires) => Some(expires.duration_since(clock::now()).ok()?),
            None => None,
        };
        issued(access, lifetime.filter(|_| usable.record.refresh.is_some()))
    }

    /// Whether the backend needs a person to log in.
    pub(super) fn needs_login(&self) -> bool {
        let inner = self.inner.lock();
        let Some(settings) = &inner.settings else { return false };
        let has_one = inner.record.is_some() || inner.damage.is_some();
        let wants_one = settings.is_explicit || inner.wants_login || has_one;
        wants_one && inner.usable().is_none()
    }

    pub(super) fn view(&self) -> Option<LoginView> {
        let inner = self.inner.lock();
        let record = inner.record.as_ref()?;
        let is_over = inner.obstacle().is_some();
        Some(LoginView {
            backend: self.backend.clone(),
            issuer: record.issuer.clone(),
            scopes: record.scopes.clone(),
            since: record.since,
            last_used: inner.last_used,
            expires: if record.refresh.is_none() { record.expires } else { None },
            state: if is_over { LoginState::Ended } else { record.state },
            unwritten: inner.unwritten.clone(),
        })
    }

    /// What is wrong with the login. `redirect_uri` is the present one.
    pub(super) fn problems(&self, redirect_uri: &url::Url) -> Vec<LoginProblem> {
        let inner = self.inner.lock();
        let backend = &self.backend;
        let login = format!("Run `mantyx-bridge login {backend}`.");
        let mut problems = Vec::new();
        let mut add = |message: String, cure: &str| {
            problems.push(LoginProblem { message, cure: cure.to_owned() });
        };
        if let Some(why) = &inner.damage {
            add(format!("Its login is not used: {why}."), &login);
        }
        if let Some(why) = &inner.unwritten {
            let cure = "The bridge tries again. Free space on the disk of the state directory; if \
                        the login cannot be written before a restart, log in again.";
            add(format!("Its login is not on disk: {why}."), cure);
        }
        if let Some(why) = inner.obstacle() {
            add(format!("Its login is not used: {why}."), &login);
        }
        let Some(record) = inner.record.as_ref().filter(|_| inner.obstacle().is_none()) else {
            return problems;
        };
        if record.state == LoginState::NeedsScopes {
            let scopes = record.missing_scopes.join(" ");
            add(format!("A call has lacked scopes; the server names: {scopes}."), &login);
        }
        if record.refresh.is_none() {
            let end = record.expires.map(|end| format!(", at {}", clock::rfc3339(end)));
            let message = format!(
                "Its login ends with its token{}: the issuer gave no refresh token.",
                end.unwrap_or_default()
            );
            add(
                message,
                "Log in again then; or ask the issuer to give this client refresh tokens.",
            );
        }
        if record.client.is_configured && record.client.redirect_uri != *redirect_uri {
            let message = format!(
                "Its next login needs the redirect URI {redirect_uri}; the last one had {}.",
                record.client.redirect_uri
            );
            add(message, "Register the new redirect URI for the client at the issuer.");
        }
        problems
    }

    /// Whether the tokens are renewed ahead of time.
    pub(super) fn is_renewed(&self) -> bool {
        let usable = self.inner.lock().usable();
        usable.is_some_and(|usable| usable.record.refresh.is_some())
    }

    /// Whether nothing is exchanged.
    pub(super) fn is_reader(&self) -> bool {
        self.is_reader
    }

    /// Counts the exchanges of refresh tokens.
    pub(super) fn count(&self, outcome: RefreshOutcome) {
        self.refreshes.of(outcome).inc();
    }

    pub(super) fn states(&self) -> watch::Receiver<()> {
        self.states.subscribe()
    }

    /// Puts a new login in place of any earlier one, and writes it.
    pub(super) async fn install(self: &Arc<Self>, record: Record) {
        for secret in [&record.refresh, &record.access].into_iter().flatten() {
            self.secrets.add(secret);
        }
        {
            let mut inner = self.inner.lock();
            inner.record = Some(record);
            inner.damage = None;
            inner.wants_login = false;
            inner.challenge = None;
            inner.generation += 1;
        }
        self.save().await;
    }

    /// Notes that the issuer has forgotten the client.
    pub(super) fn refuse_client(&self) {
        self.inner.lock().is_client_refused = true;
    }

    /// The issuer and the redirect URI of a registered client that the issuer has refused.
    pub(super) fn take_refused_client(&self) -> Option<(String, url::Url)> {
        let mut inner = self.inner.lock();
        let is_refused = std::mem::take(&mut inner.is_client_refused);
        let record = inner.record.as_ref().filter(|record| !record.client.is_configured);
        let record = record.filter(|_| is_refused)?;
        Some((record.issuer.clone(), record.client.redirect_uri.clone()))
    }

    /// Tells the renewal that there are other settings.
    pub(super) fn announce_settings(&self) {
        self.states.send_replace(());
    }

    /// Tells the backend's connection and the renewal that there is another login, or none.
    pub(super) fn announce(&self) {
        self.changes.send_replace(());
        self.states.send_replace(());
    }

    /// Removes the login; gives it back, to be revoked.
    pub(super) async fn forget(self: &Arc<Self>) -> Option<(Record, Option<Secret>)> {
        let (record, had_file) = {
            let mut inner = self.inner.lock();
            inner.generation += 1;
            let had_file = inner.damage.take().is_some();
            // A server that had a login wants one; until it has said so again, its refusal would be
            // taken for that of a wrong token.
            inner.wants_login = inner.settings.is_some();
            let settings = inner.settings.clone();
            let secret = settings.and_then(|settings| settings.client.secret.clone());
            (inner.record.take().map(|record| (record, secret)), had_file)
        };
        if record.is_some() || had_file {
            self.save().await;
        }
        record
    }

    /// Why the disk has not what this process knows.
    pub(super) fn why_unwritten(&self) -> Option<String> {
        self.inner.lock().unwritten.clone()
    }

    /// Whether there is a login, or a file in the place of one.
    pub(super) fn has_login(&self) -> bool {
        let inner = self.inner.lock();
        inner.record.is_some() || inner.damage.is_some()
    }

    /// Changes the record, if it still is the one of `generation`; whether it is.
    pub(super) fn update(&self, generation: u64, change: impl FnOnce(&mut Record)) -> bool {
        let mut inner = self.inner.lock();
        if inner.generation != generation {
            return false;
        }
        let Some(record) = &mut inner.record else { return false };
        change(record);
        true
    }

    /// Notes that the login has become useless.
    pub(super) async fn end(self: &Arc<Self>, generation: u64, why: &str) {
        let is_it = self.update(generation, |record| {
            record.state = LoginState::Ended;
            record.end = Some(why.to_owned());
            record.access = None;
            record.refresh = None;
        });
        if is_it {
            let cure = format!("mantyx-bridge login {}", self.backend);
            warn!(backend = %self.backend, cure, "the login has ended: {why}");
            self.save().await;
            self.states.send_replace(());
        }
    }

    /// Writes the newest record. When this returns, it is on disk, or a task keeps trying.
    pub(super) async fn save(self: &Arc<Self>) {
        if self.is_reader {
            return;
        }
        if self.write().await || std::mem::replace(&mut self.inner.lock().is_retried, true) {
            return;
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move { this.write_until_done().await });
    }

    /// Writes the record as it is now, or removes its file; whether that worked.
    async fn write(&self) -> bool {
        let _writing = self.writing.lock().await;
        let record = self.inner.lock().record.clone();
        let outcome = match record {
            Some(record) => self.store.write(&self.backend, &record).await,
            None => self.store.remove(&self.backend).await,
        };
        if let Err(why) = &outcome {
            let cure = "it is tried again; if it cannot be written before a restart, log in again";
            error!(backend = %self.backend, cure, "a login cannot be kept: {why}");
        }
        let is_written = outcome.is_ok();
        self.inner.lock().unwritten = outcome.err();
        is_written
    }

    async fn write_until_done(&self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            self.stop.run_until_cancelled(sleep(backoff.next_wait())).await;
            let is_stopping = self.stop.is_cancelled();
            let is_written = self.write().await;
            let mut inner = self.inner.lock();
            if is_stopping || is_written && inner.unwritten.is_none() {
                inner.is_retried = false;
                return;
            }
        }
    }

    /// Finds out whether a refusal leads to an issuer, at most once a minute.
    fn look(self: &Arc<Self>, challenge: Challenge) {
        let settings = {
            let mut inner = self.inner.lock();
            let now = Instant::now();
            let lately = inner.looked.is_some_and(|at| now < at + LOOK_AGAIN);
            let Some(settings) = inner.settings.clone() else { return };
            if inner.wants_login || lately {
                return;
            }
            inner.looked = Some(now);
            settings
        };
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let network = Network::new(&settings, &this.http);
            let look = network.leads_to_issuer(&challenge);
            if this.stop.run_until_cancelled(look).await == Some(true) {
                let cure = format!("mantyx-bridge login {}", this.backend);
                info!(backend = %this.backend, cure, "the server wants a login");
                this.inner.lock().wants_login = true;
            }
        });
    }
}

/// A token as requests carry it; `None` if no header can.
pub(super) fn issued(access: &SecretString, lifetime: Option<Duration>) -> Option<Issued> {
    let value = http_client::sensitive(&format!("Bearer {}", access.expose_secret())).ok()?;
    Some(Issued { value, lifetime })
}

impl Login {
    /// Ends when a person has logged in or out since the last time this ended.
    pub async fn changed(&self) {
        if self.changes.lock().await.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
