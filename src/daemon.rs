//! Builds every part of the daemon, and runs them until it is asked to stop. This is the only file
//! that knows all of them.
//!
//! Start: state directory, listeners, backends, the HTTP service. A failure here is fatal, and the
//! error names the part. After the start, a failure is a state, shown in `/v1/status`. Stop: the
//! daemon accepts no new requests, posts the answers of running calls, and closes the backends.
//!
//! Must not: hold logic beyond this order.

mod backend_manager;
mod listeners;
mod port_holder;
mod reload;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use self::backend_manager::{BackendManager, inner_listener};
pub(crate) use self::backend_manager::{identity, source};
use self::listeners::listeners;
pub use self::reload::Reload;
use self::reload::{Names, Reloader};
use crate::audit::Audit;
use crate::backend::calls::Backends;
use crate::calls::Calls;
use crate::config::{App, Auth, Config, Credential, Environment, Listen, Mantyx, TokenHash};
use crate::error_chain::error_chain;
use crate::group_files::GroupFiles;
use crate::http::api::backends::Doctor;
use crate::http::api::{Api, Facts, Loaded};
use crate::http::auth::Authenticator;
use crate::http::server;
use crate::http::server::socket_activation::{ActivatedSocket, ActivationError};
use crate::http::server::{Listener, socket_activation};
use crate::http::service::{DetachedRequests, Service};
use crate::journal::record::StoredRecords;
use crate::journal::{Event, Journal, Keeper, StoreError};
use crate::logins::Logins;
use crate::notify::Notifier;
use crate::run_store::RunStore;
use crate::runtimes::Runtimes;
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::settings::Settings;
use crate::state_dir::running::{Note, Running};
use crate::state_dir::{StateDir, StateError};
use crate::tasks::{TaskError, Tasks};
use crate::tls::Tls;
use crate::tls::files::FileError;
use crate::traces::{Exporter, Traces};
use crate::upstream::Upstream;
use crate::{catalogs, clock, config, random, systemd, tool_pins};

/// After this time the daemon is ready, even if it is still trying to reach a backend.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(5);
/// How long running calls may take to be answered and posted at shutdown.
const DRAIN: Duration = Duration::from_secs(30);
/// How long running calls may take to be recorded for the next process.
const LEAVE: Duration = Duration::from_millis(500);
/// When calls by hand are answered that have not ended: their answers need time to be sent.
const CUT: Duration = Duration::from_secs(28);
/// How long a replica that is to stop still takes requests, while `GET /readyz` answers 503.
const UNREADY: Duration = Duration::from_secs(3);
/// Extra time for the listeners, which have [`DRAIN`] too, to end by themselves.
const MARGIN: Duration = Duration::from_secs(2);
/// How long backends may take to close; a child process has 3 s each after the end of stdin and
/// after TERM.
const CLOSE: Duration = Duration::from_secs(10);
/// The interval for writing the addresses again if that failed.
const NOTE_AGAIN: Duration = Duration::from_secs(5);
/// The journal's file in the state directory.
const JOURNAL: &str = "journal";

/// A daemon that is built and listens. It serves no request before [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    /// Stops first.
    front: Tasks,
    /// Stops when no call is left.
    back: Tasks,
    runs: Arc<RunStore>,
    logins: Arc<Logins>,
    /// Requests that continue without their connections.
    requests: DetachedRequests,
    /// Where the daemon listens.
    pub urls: Vec<String>,
    /// The token of the app `default`; empty if the configuration has apps.
    pub token: SecretString,
    /// Cancelled when a replica is about to stop.
    leaving: CancellationToken,
    /// Removed at the stop.
    _note: Option<Note>,
}

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    #[error("cannot use the journal {path}")]
    Journal { path: PathBuf, source: StoreError },
    #[error(
        "cannot write the audit log {path}; see that its directory is there and may be written"
    )]
    Audit { path: PathBuf, source: io::Error },
    #[error("{0}; {cure}", cure = .0.cure)]
    Tls(#[from] FileError),
    #[error(transparent)]
    ActivatedSocket(#[from] ActivationError),
    #[error("cannot listen on {address}; {cure}")]
    Listen { address: String, cure: String, source: io::Error },
}

/// The error of an address that cannot be listened on. Who has it is looked up at once: later, it
/// may be free.
fn cannot_listen(address: String, source: io::Error) -> StartError {
    let cure = match source.kind() {
        io::ErrorKind::AddrInUse => port_holder::cure(&address),
        io::ErrorKind::NotFound => {
            "make its directory, which is missing, or change `listen`".to_owned()
        }
        _ => "change `listen`, or what stands in its way".to_owned(),
    };
    StartError::Listen { address, cure, source }
}

/// What the daemon needs in addition to its configuration.
#[derive(Debug, Default)]
pub struct Options {
    /// The executable that starts children for it (`mantyx-bridge __exec`).
    pub launcher: Option<PathBuf>,
    /// The sockets that systemd opened.
    pub handed: Vec<ActivatedSocket>,
    /// The source of the configuration; `None` if the daemon must not read it again.
    pub reload: Option<Reload>,
    /// The recorder and the exporter of its spans.
    pub traces: Option<(Traces, Exporter)>,
    /// The directory of notes about running daemons; `None`: it leaves none.
    pub notes: Option<PathBuf>,
}

impl Options {
    fn doctor(&self) -> Option<Doctor> {
        let file = self.reload.as_ref()?.file.path().to_owned();
        Some(Doctor { program: self.launcher.clone()?, file })
    }
}

impl Daemon {
    /// Builds the daemon and binds its listeners.
    pub async fn build(mut config: Config, options: Options) -> Result<Self, StartError> {
        let state = StateDir::new(config.state_dir.clone());
        state.create()?;
        // Opened before all else: only one bridge at a time can hold the journal open.
        let (journal, past) = journal(&config, &state)?;
        let journal = Arc::new(journal);
        state.sweep_drafts();
        let (mut front, mut back) = (Tasks::default(), Tasks::default());

        let apps = apps(&config, &state)?;
        let operator = TokenHash::new(state.operator()?.expose_secret().as_bytes());
        let token = if config.apps.is_empty() { state.token()? } else { SecretString::default() };
        state.warn_of_exposed();

        let doctor = options.doctor();
        let Options { launcher, handed, reload, traces, notes } = options;
        let traces = spawn_exporter(&mut back, traces);
        let tls = tls(&config.listen).await?;
        if tls.is_none() || config.auth == Auth::Off {
            socket_activation::refuse_open(&handed)?;
        }
        let listeners = listeners(&config.listen, handed, tls.as_ref()).await?;
        let addresses: Vec<SocketAddr> = listeners.iter().filter_map(Listener::address).collect();
        let urls: Vec<String> = listeners.iter().map(Listener::url).collect();
        note_addresses(&mut back, state.clone(), urls.clone());
        let note = notes.and_then(|notes| leave_note(&notes, &state, urls.clone()));

        let Mantyx { base_url, workspace, credential, tls: mantyx_tls } =
            upstream(&config, &mut back).await?;
        let mantyx = Upstream::new(base_url.clone(), mantyx_tls, &credential, state.clone());
        let upstream = client_of(mantyx, &config.upstream);
        let audit = config.audit.as_ref().map(audit).transpose()?;
        let names = Names::new(&config.listen, addresses, tls.clone());
        let logins = names.logins(&config, state.clone());
        let own_binary = launcher.clone();
        let (mut manager, backends) = BackendManager::new(
            launcher,
            state.clone(),
            Arc::clone(&journal),
            Arc::clone(&logins),
            back.stop_token(),
        );
        spawn_keepers(&mut back, &backends, &state);
        let configured = std::mem::take(&mut config.backends);
        let prepared = manager.prepare(configured).await.map_err(inner)?;
        // Before the runs, whose calls look up their backends.
        manager.take(prepared, &config.refresh, config.calls.max_concurrent);
        let (settings, read) =
            watch::channel(Arc::new(Settings::new(config.calls.clone(), apps, None)));
        let calls = Calls::new(Arc::clone(&backends), read.clone(), journal, audit);
        let runs = Arc::new(RunStore::new(upstream, Arc::new(calls), traces.clone()));
        runs.follow_conversations();
        restore(&mut back, &runs, past).await;
        let runtimes = Arc::new(Runtimes::new(Arc::clone(&runs)));
        runtimes.set(std::mem::take(&mut config.runtimes));
        spawn_chores(&mut back, &runs);
        let notifier = notifier(&mut config, names.public_url(), &state, own_binary, &runs);

        let (loaded, taken) = watch::channel(Loaded { at: clock::now(), workspace, flaw: None });
        let leaving = CancellationToken::new();
        let facts = Facts {
            base_url: shown_address(&config.upstream, &base_url),
            since: Instant::now(),
            loaded: taken,
            state: state.clone(),
            tls,
            logins: Arc::clone(&logins),
            runtimes: Arc::clone(&runtimes),
            notifier,
            doctor,
            leaving: leaving.clone(),
        };
        let auth = Authenticator::new(config.auth, operator, read, names.hosts());
        let api = Api::new(Arc::clone(&runs), &auth, facts);
        spawn_notifier(&mut back, &api);
        let requests = DetachedRequests::default();
        let service = Arc::new(Service::new(auth, api, requests.clone()));
        spawn_listeners(&mut front, listeners, &service);
        spawn_readiness(&mut front, Arc::clone(&backends));
        spawn_watchdog(&mut front, Arc::clone(&runs));
        let reloader =
            Reloader { manager, config, names, service, state, settings, runtimes, loaded };
        let reloading = reloader.run(reload, front.stop_token(), back.stop_token());
        back.spawn("backends", reloading);
        Ok(Self { front, back, runs, logins, requests, urls, token, leaving, _note: note })
    }

    /// Runs until `stop` resolves, then shuts down in order; `hurry` ends the waits early. The
    /// error is a task that ended by itself.
    ///
    /// 1. A replica first says that it is not ready. Until the load balancer has seen that, it
    ///    sends requests here, which would be refused.
    /// 2. The listeners and the calls drain at the same time: streams of apps end while calls are
    ///    answered. Calls by hand are answered before the listeners are gone.
    /// 3. Requests that outlive their connections finish. No new ones can come.
    /// 4. The calls leave: what is still under way is recorded for the next process.
    /// 5. The backends close, and the exchanges for tokens end. A call must not run when its
    ///    backend closes: its answer would be a failure of the bridge's own making.
    /// 6. The journal closes last. All that ran before may have written to it.
    pub async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), TaskError> {
        greet(&self.urls);
        let outcome = tokio::select! {
            () = stop => Ok(()),
            error = self.front.failed() => Err(error),
            error = self.back.failed() => Err(error),
        };
        info!("stopping");
        systemd::stopping();
        let orderly = async {
            if self.runs.journal().replica().is_some() {
                // Until then, the load balancer may send requests here.
                self.leaving.cancel();
                sleep(UNREADY).await;
            }
            let until = Instant::now() + DRAIN + MARGIN;
            // Requests end while runs drain: app streams close, and calls are answered.
            let draining = async {
                let drain = timeout(DRAIN, self.runs.drain());
                tokio::join!(self.front.shut_down(DRAIN + MARGIN), drain)
            };
            let cut = async {
                sleep(CUT).await;
                self.runs.cut();
                std::future::pending().await
            };
            let (stuck, drained) = tokio::select! {
                outcome = draining => outcome,
                never = cut => never,
            };
            // The listeners are gone, so no new requests can come.
            let remaining = until.saturating_duration_since(Instant::now());
            let finished = self.requests.finish(remaining).await;
            if stuck > 0 || drained.is_err() || !finished {
                warn!("some calls or requests were not answered within {DRAIN:?}");
            }
        };
        tokio::select! {
            () = orderly => (),
            () = hurry => warn!("asked again to stop; running calls are dropped"),
        }
        // From here on the journal closes, so that no call may continue unrecorded.
        self.requests.finish(Duration::ZERO).await;
        self.runs.leave(LEAVE).await;
        let (stuck, (), ()) = tokio::join!(
            self.back.shut_down(CLOSE),
            self.runs.upstream.finish(),
            self.logins.finish(CLOSE)
        );
        if stuck > 0 {
            warn!("some backends did not close within {CLOSE:?}");
        }
        self.runs.journal().close();
        if let Some(audit) = &self.runs.calls.audit {
            audit.close();
        }
        info!("stopped");
        outcome
    }
}

/// What the runs begin with.
enum Past {
    /// What an earlier process has left.
    Records(StoredRecords),
    /// The group of replicas that this process joins, and what then happens to its runs.
    Group(Keeper, mpsc::Receiver<Event>),
}

fn audit(config: &config::Audit) -> Result<Arc<Audit>, StartError> {
    let audit = Audit::open(config.file.as_deref(), config.syslog.as_ref(), config.arguments);
    let path = config.file.clone().unwrap_or_default();
    Ok(Arc::new(audit.map_err(|source| StartError::Audit { path, source })?))
}

fn journal(config: &Config, state: &StateDir) -> Result<(Journal, Past), StartError> {
    let path = state.path().join(JOURNAL);
    let failed = |source| StartError::Journal { path: path.clone(), source };
    let (Some(postgres), config::Upstream::Mantyx(mantyx)) = (&config.state, &config.upstream)
    else {
        let (journal, kept) = Journal::open(&path, state.has_been_used()).map_err(failed)?;
        return Ok((journal, Past::Records(kept)));
    };
    let upstream = mantyx.base_url.to_string();
    let opened = Journal::replicated(postgres.clone(), upstream, &path);
    let (journal, keeper, events) = opened.map_err(failed)?;
    Ok((journal, Past::Group(keeper, events)))
}

/// Restores the runs of an earlier process, or begins as a replica.
async fn restore(back: &mut Tasks, runs: &Arc<RunStore>, past: Past) {
    match past {
        Past::Records(kept) => {
            if kept.runs.iter().any(|run| run.routes.is_none()) {
                // The journal has lost the routes of these runs; they get the tools that their
                // backends have now.
                timeout(FIRST_ATTEMPTS, runs.calls.backends.registry.settled()).await.ok();
            }
            runs.restore(kept);
            if let Some(late) = runs.journal().late() {
                let runs = Arc::clone(runs);
                // A task that ends before the stop would count as failed.
                back.spawn_until_stop("late journal", async move {
                    if let Ok(kept) = late.await {
                        runs.restore_late(*kept);
                    }
                    std::future::pending::<()>().await;
                });
            }
        }
        Past::Group(keeper, mut events) => {
            back.spawn_until_stop("replica", keeper.run(runs.draining().clone()));
            let sharing = Arc::clone(runs);
            back.spawn_until_stop("replica's shared state", async move {
                let Some(replica) = sharing.journal().replica() else { return };
                let Calls { approvals, backends, .. } = &*sharing.calls;
                let approvals = Box::pin(approvals.share(replica));
                let files = Box::pin(GroupFiles::default().share(&backends.registry, replica));
                let cancellations = Box::pin(sharing.share_cancellations(replica));
                tokio::join!(approvals, files, cancellations);
            });
            let stop = back.stop_token();
            let runs = Arc::clone(runs);
            back.spawn("replica's runs", async move {
                while let Some(Some(event)) = stop.run_until_cancelled(events.recv()).await {
                    match event {
                        Event::Joined(kept) => runs.join(kept),
                        Event::TakenOver(kept) => runs.take_over(kept),
                        Event::Lost(slots) => runs.lose(&slots),
                    }
                }
                stop.cancelled().await;
            });
        }
    }
}

/// Says where the daemon is, and how to get in.
fn greet(urls: &[String]) {
    info!(?urls, "listening");
    if let Some(page) = urls.iter().find(|url| url.starts_with("http")) {
        info!(page, "the status page is there; `mantyx-bridge open` signs a browser in");
    }
}

/// Writes the addresses to a file, where other commands find them. The daemon serves even if it
/// cannot write the file.
fn note_addresses(back: &mut Tasks, state: StateDir, urls: Vec<String>) {
    let Err(first_error) = state.write_listen(&urls) else { return };
    let stop = back.stop_token();
    back.spawn("addresses", async move {
        let mut failure = Some(error_chain(&first_error));
        while let Some(error) = failure {
            warn!(error, "the addresses of the daemon are not on disk; trying again");
            if stop.run_until_cancelled(sleep(NOTE_AGAIN)).await.is_none() {
                return;
            }
            let urls = urls.clone();
            let write = state.in_background(move |state| state.write_listen(&urls));
            failure = write.await.err();
        }
        stop.cancelled().await;
    });
}

/// Leaves a note for commands that do not know the state directory. The daemon serves even if it
/// cannot.
fn leave_note(notes: &Path, state: &StateDir, urls: Vec<String>) -> Option<Note> {
    let state_dir = std::path::absolute(state.path()).ok()?;
    let note = Note::leave(notes, &Running { urls, state_dir });
    note.inspect_err(|error| {
        let directory = notes.display();
        warn!(%error, %directory, "commands find the daemon by its configuration alone");
    })
    .ok()
}

/// The apps that may use the bridge: the configured ones, or else the app with the state
/// directory's token.
fn apps(config: &Config, state: &StateDir) -> Result<Vec<App>, StateError> {
    let mut apps = config.apps.clone();
    if apps.is_empty() {
        let token = TokenHash::new(state.token()?.expose_secret().as_bytes());
        apps.push(App { token: Some(token), ..App::named(App::DEFAULT) });
    }
    // No request is known to be from one of these.
    apps.extend(config.runtimes.iter().map(|runtime| runtime.app.clone()));
    Ok(apps)
}

/// The TLS of all TCP listeners, if it is configured.
async fn tls(listen: &Listen) -> Result<Option<Arc<Tls>>, StartError> {
    let Some(files) = listen.tls.clone() else { return Ok(None) };
    let loading = tokio::task::spawn_blocking(move || {
        Tls::new(files, |path: &Path| Ok(Environment::bare().read(path)?.text))
    });
    let tls = loading.await.map_err(|error| inner(io::Error::other(error)))??;
    Ok(Some(Arc::new(tls)))
}

fn inner(source: io::Error) -> StartError {
    cannot_listen("127.0.0.1:0".to_owned(), source)
}

/// MANTYX, or the sandbox in its place.
async fn upstream(config: &Config, back: &mut Tasks) -> Result<Mantyx, StartError> {
    match &config.upstream {
        config::Upstream::Mantyx(mantyx) => Ok(mantyx.clone()),
        config::Upstream::Sandbox { workspace } => {
            let (listener, url) = inner_listener().await.map_err(inner)?;
            let secret = SecretString::from(random::unguessable().to_string());
            let settings = SandboxConfig::new(workspace.clone(), secret.clone());
            let sandbox = Arc::new(Sandbox::new(settings));
            back.spawn("sandbox", sandbox.serve(listener, back.stop_token()));
            info!(%url, workspace, "the sandbox runtime replaces MANTYX");
            let credential = Credential::Own(secret);
            Ok(Mantyx { base_url: url, workspace: Some(workspace.clone()), credential, tls: None })
        }
    }
}

/// The address of MANTYX for people; that of the sandbox says nothing.
fn shown_address(upstream: &config::Upstream, base_url: &Url) -> String {
    match upstream {
        config::Upstream::Sandbox { .. } => "sandbox".to_owned(),
        config::Upstream::Mantyx(_) => base_url.to_string(),
    }
}

/// Spawns the exporter of spans, if spans are exported.
fn spawn_exporter(back: &mut Tasks, traces: Option<(Traces, Exporter)>) -> Traces {
    let Some((traces, exporter)) = traces else { return Traces::default() };
    back.spawn("traces", exporter.run(back.stop_token()));
    traces
}

/// Writes catalogs and pins to disk.
fn spawn_keepers(back: &mut Tasks, backends: &Backends, state: &StateDir) {
    let registry = &backends.registry;
    let catalogs = catalogs::keep(Arc::clone(registry), state.clone(), back.stop_token());
    back.spawn("catalogs", catalogs);
    let pins = tool_pins::keep(Arc::clone(registry), state.clone(), back.stop_token());
    back.spawn("pins", pins);
}

/// Spawns the chores of runs that belong to no single call.
fn spawn_chores(back: &mut Tasks, runs: &Arc<RunStore>) {
    let upstream = Arc::clone(&runs.upstream);
    back.spawn_until_stop("credential", async move { upstream.keep_authorized().await });
    back.spawn_until_stop("forgetting", Arc::clone(runs).keep_swept());
    back.spawn_until_stop("globs", Arc::clone(&runs.calls).report_idle_globs());
}

/// The receivers of notices; `page` is how browsers reach the bridge.
fn notifier(
    config: &mut Config,
    page: Url,
    state: &StateDir,
    launcher: Option<PathBuf>,
    runs: &RunStore,
) -> Arc<Notifier> {
    let is_shared = runs.journal().replica().is_some();
    let notifier = Notifier::new(page, state.clone(), launcher, is_shared);
    notifier.set(std::mem::take(&mut config.notify), Arc::clone(&config.secrets));
    notifier
}

/// Tells the receivers of notices.
fn spawn_notifier(back: &mut Tasks, api: &Api) {
    let (calls, draining) = (Arc::clone(&api.runs.calls), api.runs.draining().clone());
    let notifier = Arc::clone(&api.facts.notifier);
    let api = api.clone();
    let troubles = Box::new(move || api.troubles());
    back.spawn("notices", notifier.run(calls, troubles, draining, back.stop_token()));
}

/// The client of MANTYX, or of the sandbox in its place.
fn client_of(mantyx: Upstream, kind: &config::Upstream) -> Arc<Upstream> {
    Arc::new(match kind {
        config::Upstream::Sandbox { .. } => mantyx.in_sandbox(),
        config::Upstream::Mantyx(_) => mantyx,
    })
}

fn spawn_listeners(front: &mut Tasks, listeners: Vec<Listener>, service: &Arc<Service>) {
    for listener in listeners {
        let serving = server::serve(listener, Arc::clone(service), front.stop_token());
        front.spawn("listener", serving);
    }
}

/// Marks the daemon ready once it has tried every backend, or after [`FIRST_ATTEMPTS`].
fn spawn_readiness(front: &mut Tasks, backends: Arc<Backends>) {
    let stop = front.stop_token();
    front.spawn("readiness", async move {
        let started = backends.registry.start_within(FIRST_ATTEMPTS);
        if stop.run_until_cancelled(started).await.is_none() {
            return;
        }
        let status = reload::resolved(&backends.registry);
        info!(status, "ready");
        systemd::ready(&status);
        stop.cancelled().await;
    });
}

/// Notifies systemd's watchdog for as long as the daemon's parts respond.
fn spawn_watchdog(front: &mut Tasks, runs: Arc<RunStore>) {
    let stop = front.stop_token();
    front.spawn("watchdog", systemd::watchdog(move || responds(Arc::clone(&runs)), stop));
}

/// Passes through the registry, the runs and the journal, and says whether the journal's thread
/// lives. It never returns if one of their locks is held for good.
async fn responds(runs: Arc<RunStore>) -> bool {
    drop(runs.calls.backends.registry.offer());
    runs.driven(None);
    runs.journal().writer_responds().await
}

#[cfg(test)]
mod tests;
