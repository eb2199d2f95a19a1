//! Builds every part of the daemon and runs them until it is asked to stop. The only file that
//! knows all of them.
//!
//! Start: state directory, listeners, backends, front door; a failure here is fatal and named.
//! Afterwards, what fails is a state and shown in `/v1/status`.
//! Stop: no new requests, answers of running calls posted, backends closed.
//!
//! Must not: hold logic of its own beyond this order.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use secrecy::SecretString;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{Instant, timeout},
};
use tracing::{info, warn};
use url::Url;

use crate::{
    api::{Api, Facts},
    audit::{self, Audit},
    backend::{
        a2a::A2aDialer,
        board::Board,
        calls::{Backends, CallLimits, Lane},
        gate::Gate,
        local::LocalDialer,
        mcp,
        peer::Dial,
        supervisor::{Supervisor, Timing},
    },
    catalogs::{self, Identity},
    config::{self, A2a, App, CardSource, Config, Credential, Program, Target},
    demo,
    door::{guard::Guard, sessions::Sessions},
    front::Front,
    http_client,
    journal::{self, Journal},
    model::{
        catalog::hex,
        ids::{AppName, BackendName},
        offer::{RefKind, Source},
    },
    proxy::Proxy,
    runs::Runs,
    sandbox::{Sandbox, SandboxConfig},
    server::{self, Listener},
    state::{StateDir, StateError},
    systemd,
    tasks::{TaskError, Tasks},
    upstream::Upstream,
};

/// After so long, the daemon is ready even if a backend is still being tried.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(5);
/// How long running calls may take to be answered and posted at shutdown.
const DRAIN: Duration = Duration::from_secs(30);
/// How long calls may take to be left to the next process.
const LEAVE: Duration = Duration::from_millis(500);
/// For the listeners, which have the same time, to end by themselves.
const MARGIN: Duration = Duration::from_secs(2);
/// How long backends may take to close; a child has 3 s each for stdin and TERM.
const CLOSE: Duration = Duration::from_secs(10);
/// The journal, in the state directory.
const JOURNAL: &str = "journal.redb";
/// Refreshes of one backend that may wait to be taken up.
const ASKS: usize = 16;

/// A daemon that is built and listens; nothing is served before [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon {
    /// Stopped first.
    front: Tasks,
    /// Stopped when no call runs any more.
    back: Tasks,
    runs: Arc<Runs>,
    journal: Arc<Journal>,
    audit: Option<Arc<Audit>>,
    urls: Vec<String>,
    /// The token of the first app.
    token: SecretString,
}

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] journal::OpenError),
    #[error(transparent)]
    Audit(#[from] audit::OpenError),
    #[error("cannot listen on {address}; is another bridge running there?")]
    Listen { address: String, source: io::Error },
}

/// What the daemon needs to know beside its configuration.
#[derive(Debug)]
pub struct Options {
    /// The binary that can start children for it (`mantyx-bridge __exec`).
    pub launcher: Option<PathBuf>,
}

impl Daemon {
    /// Builds the daemon and binds its listeners.
    pub async fn build(config: Config, options: &Options) -> Result<Self, StartError> {
        let state = StateDir::new(config.state_dir.clone());
        state.create()?;
        // First of all: only one bridge can have it open.
        let (journal, kept) = Journal::open(&state.path().join(JOURNAL))?;
        let journal = Arc::new(journal);
        let mut front = Tasks::default();
        let mut back = Tasks::default();

        let mut apps = config.apps.clone();
        if apps.is_empty() {
            apps.push(default_app(state.token()?));
        }
        let token = apps.first().map(|app| app.token.clone()).unwrap_or_default();

        let (listeners, addresses) = bind(&config).await?;
        let urls: Vec<String> = listeners.iter().map(Listener::url).collect();
        state.write_listen(&urls)?;

        let (base_url, workspace, credential) = upstream(&config, &mut back).await?;
        let upstream = Arc::new(Upstream::new(base_url.clone(), &credential));
        let (backends, dialers) = start_backends(&config, options, &state, &mut back).await?;
        let audit = match &config.audit {
            Some(audit) => Some(Arc::new(Audit::open(&audit.file, audit.arguments)?)),
            None => None,
        };
        let runs = Arc::new(Runs::new(
            upstream,
            Arc::clone(&backends),
            &config.calls,
            &apps,
            Arc::clone(&journal),
            audit.clone(),
        ));
        runs.restore(kept, &apps);

        let facts = Facts {
            base_url: shown_url(&config, &base_url),
            workspace,
            loaded_at: SystemTime::now(),
            since: Instant::now(),
            dialers,
        };
        let front_door = Arc::new(Front {
            guard: Guard::new(config.auth, apps, &addresses),
            sessions: Sessions::default(),
            api: Api { runs: Arc::clone(&runs), facts, requests: Arc::default() },
            proxy: Proxy { runs: Arc::clone(&runs) },
        });
        for listener in listeners {
            let serving = server::serve(listener, Arc::clone(&front_door), front.stop_token());
            front.spawn("listener", serving);
        }
        spawn_readiness(&mut front, Arc::clone(&backends));
        let stop = front.stop_token();
        let crossing = move || drop(backends.board.offer());
        front.spawn("watchdog", systemd::watchdog(crossing, stop));
        Ok(Self { front, back, runs, journal, audit, urls, token })
    }

    /// Where the daemon listens.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The token of the first app.
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// Runs until `stop` ends, then shuts down in order; `hurry` cuts the waiting short. The error
    /// is a task that ended by itself.
    pub async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), TaskError> {
        info!(urls = ?self.urls, "listening");
        let ended = tokio::select! {
            () = stop => Ok(()),
            error = self.front.failed() => Err(error),
            error = self.back.failed() => Err(error),
        };
        info!("stopping");
        systemd::stopping();
        let orderly = async {
            // Requests end as runs drain: app streams close, and calls are answered.
            let (stuck, drained) = tokio::join!(
                self.front.shut_down(DRAIN + MARGIN),
                timeout(DRAIN, self.runs.drain())
            );
            if stuck > 0 || drained.is_err() {
                warn!("some calls were not answered within {DRAIN:?}");
            }
        };
        tokio::select! {
            () = orderly => (),
            () = hurry => warn!("asked again to stop; running calls are dropped"),
        }
        self.runs.leave(LEAVE).await;
        if self.back.shut_down(CLOSE).await > 0 {
            warn!("some backends did not close within {CLOSE:?}");
        }
        self.journal.close();
        if let Some(audit) = &self.audit {
            audit.close();
        }
        info!("stopped");
        ended
    }
}

fn default_app(token: SecretString) -> App {
    App {
        name: AppName::from("default"),
        token,
        backends: None,
        max_concurrent_calls: None,
        credential: None,
    }
}

async fn bind(config: &Config) -> Result<(Vec<Listener>, Vec<SocketAddr>), StartError> {
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for address in &config.listen.tcp {
        let failed = |source| StartError::Listen { address: address.to_string(), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        addresses.push(listener.local_addr().map_err(failed)?);
        listeners.push(Listener::Tcp(listener));
    }
    if let Some(path) = &config.listen.unix {
        let failed = |source| StartError::Listen { address: path.display().to_string(), source };
        listeners.push(Listener::unix(path).map_err(failed)?);
    }
    Ok((listeners, addresses))
}

/// A listener on loopback for a part that lives inside the process.
async fn inner_listener() -> Result<(TcpListener, Url), StartError> {
    let address = "127.0.0.1:0".to_owned();
    let failed = |source| StartError::Listen { address, source };
    let bind = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        Ok((listener, Url::parse(&url).map_err(io::Error::other)?))
    };
    bind.await.map_err(failed)
}

/// MANTYX, or the sandbox in its place.
async fn upstream(
    config: &Config,
    back: &mut Tasks,
) -> Result<(Url, Option<String>, Credential), StartError> {
    match &config.upstream {
        config::Upstream::Mantyx { base_url, workspace, credential } => {
            Ok((base_url.clone(), workspace.clone(), credential.clone()))
        }
        config::Upstream::Sandbox { workspace } => {
            let (listener, url) = inner_listener().await?;
            let mut random = [0; 32];
            getrandom::fill(&mut random).map_err(|error| StartError::Listen {
                address: "the sandbox".to_owned(),
                source: io::Error::other(error),
            })?;
            let secret = SecretString::from(hex(&random));
            let settings = SandboxConfig::new(workspace.clone(), secret.clone());
            let sandbox = Arc::new(Sandbox::new(settings));
            back.spawn("sandbox", sandbox.serve(listener, back.stop_token()));
            info!(%url, workspace, "the sandbox runtime stands in for MANTYX");
            Ok((url, Some(workspace.clone()), Credential::Own(secret)))
        }
    }
}

fn shown_url(config: &Config, base_url: &Url) -> String {
    match config.upstream {
        config::Upstream::Sandbox { .. } => "sandbox".to_owned(),
        config::Upstream::Mantyx { .. } => base_url.to_string(),
    }
}

type Dialers = BTreeMap<BackendName, Arc<dyn Dial>>;

/// Starts a supervisor for every backend.
async fn start_backends(
    config: &Config,
    options: &Options,
    state: &StateDir,
    back: &mut Tasks,
) -> Result<(Arc<Backends>, Dialers), StartError> {
    let client = http_client::new();
    let identities: BTreeMap<BackendName, Identity> = config
        .backends
        .values()
        .filter_map(|one| Some((one.name.clone(), identity(&one.target)?)))
        .collect();
    let mut kept = BTreeMap::new();
    let mut sources = Vec::new();
    for backend in config.backends.values() {
        let mut source = source(backend);
        if let Some(identity) = identities.get(&backend.name) {
            source.catalog = catalogs::load(state, &backend.name, identity);
        }
        if let Some(catalog) = &source.catalog {
            kept.insert(backend.name.clone(), catalog.digest().to_owned());
        }
        sources.push(source);
    }
    let board = Arc::new(Board::new(sources));
    let keeping =
        catalogs::keep(Arc::clone(&board), state.clone(), identities, kept, back.stop_token());
    back.spawn("catalogs", keeping);
    let mut lanes = BTreeMap::new();
    let mut dialers = BTreeMap::new();
    for (name, backend) in &config.backends {
        let dial = dialer(backend, options, &client, back).await?;
        dialers.insert(name.clone(), Arc::clone(&dial));
        let (asks, asked) = mpsc::channel(ASKS);
        let limits =
            CallLimits { idle: backend.call_timeout, pending_after: backend.pending_after };
        let gate = Arc::new(Gate::new(name.clone()));
        let lane =
            Lane::new(backend.required, limits, backend.concurrency, Arc::clone(&gate), asks);
        lanes.insert(name.clone(), lane);
        let supervisor = Supervisor {
            name: name.clone(),
            dial,
            timing: Timing {
                interval: backend.refresh,
                jitter: config.refresh.jitter,
                timeout: config.refresh.timeout,
            },
            board: Arc::clone(&board),
            gate,
            asks: asked,
        };
        back.spawn("supervisor", supervisor.run(back.stop_token()));
    }
    Ok((Arc::new(Backends::new(board, lanes, config.calls.max_concurrent)), dialers))
}

/// How a backend is reached, without secrets; `None` for one whose catalog is not kept.
fn identity(target: &Target) -> Option<Identity> {
    Some(match target {
        Target::Mcp(config::Mcp::Stdio(Program { command, args, .. })) => {
            Identity::of(&format!("{command} {args:?}"))
        }
        Target::Mcp(config::Mcp::Http { url, .. }) => Identity::of(&url.to_string()),
        Target::A2a(agent) => Identity::of(&format!("{:?}", agent.card)),
        Target::Local(_) => return None,
    })
}

fn source(backend: &config::Backend) -> Source {
    let (kind, description) = match &backend.target {
        Target::Mcp(_) => (RefKind::McpLocal, None),
        Target::A2a(agent) => (RefKind::A2aLocal, agent.description.clone()),
        Target::Local(_) => (RefKind::Local, None),
    };
    Source {
        name: backend.name.clone(),
        kind,
        naming: Arc::new(backend.naming.clone()),
        description,
        on_unavailable: backend.on_unavailable,
        catalog: None,
        available: false,
        can_pend: backend.pending_after.is_some(),
        trusted: backend.trust_annotations,
    }
}

async fn dialer(
    backend: &config::Backend,
    options: &Options,
    client: &reqwest::Client,
    back: &mut Tasks,
) -> Result<Arc<dyn Dial>, StartError> {
    let name = backend.name.clone();
    Ok(match &backend.target {
        Target::Mcp(server) => {
            Arc::new(mcp::dialer(&name, server, options.launcher.clone(), client.clone()))
        }
        Target::A2a(agent) => {
            let mut agent = A2a::clone(agent);
            if matches!(agent.card, CardSource::Bundled) {
                let (listener, url) = inner_listener().await?;
                agent.card = CardSource::Base(url.into());
                let serving = demo::a2a_agent::serve(listener, back.stop_token().cancelled_owned());
                back.spawn("bundled agent", async move {
                    if let Err(error) = serving.await {
                        warn!(%error, "the bundled agent stopped");
                    }
                });
            }
            Arc::new(A2aDialer::new(name, &agent, client.clone()))
        }
        Target::Local(tool) => {
            Arc::new(LocalDialer::new(name, tool, options.launcher.clone(), client.clone()))
        }
    })
}

/// Marks the daemon ready when every backend has been tried once, or has had its time.
fn spawn_readiness(front: &mut Tasks, backends: Arc<Backends>) {
    let stop = front.stop_token();
    front.spawn("readiness", async move {
        tokio::select! {
            () = stop.cancelled() => return,
            () = backends.board.start_within(FIRST_ATTEMPTS) => (),
        }
        let known = backends.board.snapshots();
        let resolved = known.values().filter(|known| known.catalog.is_some()).count();
        let status = format!("{resolved} of {} backends resolved", known.len());
        info!(status, "ready");
        systemd::ready(&status);
        stop.cancelled().await;
    });
}
