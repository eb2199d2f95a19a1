//! The configured backends, each with its supervisor. A reload changes them, and leaves unchanged
//! ones alone.
//!
//! Must not: read a configuration, or know apps and MANTYX.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;
use url::Url;

use crate::backend::a2a::{A2aDialer, Conversations, Threads};
use crate::backend::calls::{BackendHandle, BackendHandles, Backends};
use crate::backend::circuit_breaker::CircuitBreaker;
use crate::backend::local::LocalDialer;
use crate::backend::program::hiding;
use crate::backend::registry::{Lease, RegistryEntry};
use crate::backend::supervisor::{ProgramStart, Supervisor, Timing};
use crate::backend::turns::{Rank, StartKeys, Turns};
use crate::backend::{Dial, LiveRedaction, mcp, peer};
use crate::config::{
    A2a, Action, Backend, CardSource, Local, Mcp, Program, Refresh, Signers, Target, Unresolved,
    Written,
};
use crate::http_client::address::shown;
use crate::journal::Journal;
use crate::logins::{LoginSettings, Logins};
use crate::model::offer::Source;
use crate::model::pin::Accepted;
use crate::model::{BackendName, Identity, RefKind};
use crate::public_keys::PublicKey;
use crate::state_dir::StateDir;
use crate::{catalogs, demo, http_client, tool_pins};

/// The most requested refreshes of one backend that may wait.
const ASKS: usize = 16;

/// All backends.
#[derive(Debug)]
pub(super) struct BackendManager {
    launcher: Option<PathBuf>,
    state: StateDir,
    /// Conversations with agents are kept there.
    journal: Arc<Journal>,
    /// Ends the supervisors.
    stop: CancellationToken,
    client: http_client::Client,
    /// The turns in which programs start.
    turns: Arc<Turns>,
    logins: Arc<Logins>,
    pub backends: Arc<Backends>,
    managed: BTreeMap<BackendName, ManagedBackend>,
    /// Supervisors, and bundled agents.
    tasks: JoinSet<()>,
}

/// One backend with a supervisor.
#[derive(Debug, Clone)]
struct ManagedBackend {
    lease: Lease,
    handle: Arc<BackendHandle>,
    timing: watch::Sender<Timing>,
    redact: LiveRedaction,
    /// The conversations with an agent.
    conversations: Conversations,
}

/// The backends of the next configuration. All steps that can fail are done.
#[derive(Debug)]
pub(super) struct Prepared {
    backends: Vec<(Arc<Backend>, Connector)>,
    /// The backends that keep their earlier entry, as what the new one refers to is missing; and
    /// why.
    kept: Vec<(BackendName, String)>,
}

/// How a backend is reached.
#[derive(Debug)]
enum Connector {
    Unchanged(ManagedBackend),
    New {
        dial: Arc<dyn Dial>,
        redact: LiveRedaction,
        conversations: Conversations,
        /// For a bundled agent, which ends with its supervisor.
        agent: Option<DropGuard>,
    },
}

/// The names of the backends that a reload touched.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub added: Vec<String>,
    /// Backends that are now reached in another way.
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Backends that keep their earlier entry, and why.
    pub kept: Vec<(BackendName, String)>,
}

impl BackendManager {
    /// A manager without backends, and the registry in which calls look them up.
    pub(super) fn new(
        launcher: Option<PathBuf>,
        state: StateDir,
        journal: Arc<Journal>,
        logins: Arc<Logins>,
        stop: CancellationToken,
    ) -> (Self, Arc<Backends>) {
        let backends = Arc::new(Backends::new(Arc::default()));
        let manager = Self {
            launcher,
            state,
            journal,
            stop,
            client: http_client::new(),
            turns: Turns::for_this_machine(),
            logins,
            backends: Arc::clone(&backends),
            managed: BTreeMap::new(),
            tasks: JoinSet::new(),
        };
        (manager, backends)
    }

    /// Does all steps that can fail, so that [`Self::take`] cannot: a reload takes effect whole or
    /// not at all.
    pub(super) async fn prepare(
        &mut self,
        backends: BTreeMap<BackendName, Backend>,
    ) -> io::Result<Prepared> {
        if let Some(launcher) = self.launcher.clone()
            && backends.values().any(|backend| backend.program().is_some())
        {
            // Done here once, so that no call waits for it. The check of each program reports
            // failures.
            let look =
                tokio::task::spawn_blocking(move || hiding::possible(Some(&launcher)).is_ok());
            look.await.ok();
        }
        let mut prepared = Prepared { backends: Vec::new(), kept: Vec::new() };
        for (name, mut backend) in backends {
            if let Some(program) = backend.program_mut() {
                // The directory in use: a changed `state_dir` takes effect only after a restart.
                program.hide(self.state.path().to_owned());
            }
            let earlier = self.managed.get(&name);
            if let (Some(earlier), Target::Unresolved(Unresolved { why, section, .. })) =
                (earlier, &backend.target)
                && !matches!(earlier.handle.rules.target, Target::Unresolved(_))
                && earlier.handle.rules.target.section() == *section
            {
                prepared.kept.push((name.clone(), why.clone()));
                // Its limits and what it may do are the new ones: they need no secret.
                backend.target = earlier.handle.rules.target.clone();
            }
            let connector = match earlier {
                Some(managed) if managed.handle.rules.target == backend.target => {
                    Connector::Unchanged(managed.clone())
                }
                _ => self.connector(&name, &backend).await?,
            };
            prepared.backends.push((Arc::new(backend), connector));
        }
        Ok(prepared)
    }

    /// Replaces the set of backends. If a backend is reached in another way now, the new connection
    /// is made while the old one serves. All other settings take effect at once.
    pub(super) fn take(
        &mut self,
        Prepared { backends, kept }: Prepared,
        refresh: &Refresh,
        max_concurrent: usize,
    ) -> Changes {
        let mut changes = Changes { kept, ..Changes::default() };
        let mut before = std::mem::take(&mut self.managed);
        let mut entries = Vec::new();
        let mut supervisors = Vec::new();
        for (backend, connector) in backends {
            let name = backend.name.clone();
            let timing = timing(&backend, refresh);
            let identity = identity(&backend.target);
            let mut source = source(&backend);
            let mut features = Arc::default();
            let mut accepted = Accepted::Nothing;
            let earlier = before.remove(&name);
            let managed = match connector {
                Connector::Unchanged(now) => {
                    now.timing.send_if_modified(|old| timing.replaces(old));
                    now.redact.set(&backend.redact);
                    ManagedBackend { handle: Arc::new(now.handle.under(backend)), ..now }
                }
                Connector::New { dial, redact, conversations, agent } => {
                    accepted = tool_pins::load(&self.state, &name);
                    if let Some(kept) = catalogs::load(&self.state, &name, &identity) {
                        source.catalog = Some(kept.catalog);
                        features = kept.features;
                    }
                    let (asks, asked) = mpsc::channel(ASKS);
                    // The failures of the earlier peer say nothing about the new one.
                    let breaker = Arc::new(CircuitBreaker::new(name.clone()));
                    let program = self.program_start(&backend);
                    let handle =
                        BackendHandle::new(backend, Arc::clone(&dial), Arc::clone(&breaker), asks);
                    let demand = handle.demand.clone();
                    let handle = match earlier {
                        Some(earlier) => {
                            changes.changed.push(name.to_string());
                            handle.after(&earlier.handle)
                        }
                        None => {
                            changes.added.push(name.to_string());
                            handle
                        }
                    };
                    let timing = watch::Sender::new(timing);
                    let switch = handle.switch.reader();
                    let lease = self.backends.registry.lease(name.clone());
                    let supervisor = Supervisor {
                        lease: lease.clone(),
                        dial,
                        first_turn: None,
                        program,
                        timing: timing.subscribe(),
                        registry: Arc::clone(&self.backends.registry),
                        breaker,
                        asks: asked,
                        demand,
                        switch,
                        redact: redact.clone(),
                    };
                    supervisors.push((supervisor, agent));
                    let handle = Arc::new(handle);
                    ManagedBackend { lease, handle, timing, redact, conversations }
                }
            };
            entries.push(RegistryEntry {
                lease: managed.lease.clone(),
                source,
                features,
                identity: Some(identity),
                accepted,
            });
            self.managed.insert(name, managed);
        }
        changes.removed = before.keys().map(ToString::to_string).collect();
        self.logins.set(self.login_settings());
        let managed = self.managed.iter();
        let handles = managed.map(|(name, one)| (name.clone(), Arc::clone(&one.handle)));
        // In this order, so that every tool on offer can be called.
        self.backends.set(handles.collect::<BackendHandles>(), max_concurrent);
        self.backends.registry.set(entries);
        self.supervise(supervisors);
        changes
    }

    /// How logins are made at the backends that take one.
    fn login_settings(&self) -> BTreeMap<BackendName, LoginSettings> {
        let targets = self.managed.iter().map(|(name, one)| (name, &one.handle.rules.target));
        let settings = targets
            .filter_map(|(name, target)| Some((name.clone(), LoginSettings::for_target(target)?)));
        settings.collect()
    }

    /// Runs supervisors, each with the bundled agent that ends with it.
    fn supervise(&mut self, mut supervisors: Vec<(Supervisor, Option<DropGuard>)>) {
        // Programs join the queue for their first turns here and by rank. In their tasks, the first
        // to come would start, not the first in the file.
        supervisors.sort_by_key(|(supervisor, _)| supervisor.timing.borrow().rank);
        for (mut supervisor, agent) in supervisors {
            let rank = supervisor.timing.borrow().rank;
            supervisor.first_turn = supervisor.program.as_ref().map(|start| start.join(rank));
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                supervisor.run(stop).await;
                drop(agent);
            });
        }
    }

    /// How the program of `backend` takes its turn to start, if it is an MCP server's: a local
    /// tool's is started by each call.
    fn program_start(&self, backend: &Backend) -> Option<ProgramStart> {
        let Target::Mcp(Mcp::Stdio(program)) = &backend.target else { return None };
        let keys = StartKeys::new(backend.name.clone(), program);
        Some(ProgramStart { turns: Arc::clone(&self.turns), keys })
    }

    /// How `name` is reached by `rules`. It is made before the reload takes effect, as the listener
    /// of a bundled agent can fail. A conversation continues if the agent is the same one: its peer
    /// knows it by id.
    async fn connector(&mut self, name: &BackendName, rules: &Backend) -> io::Result<Connector> {
        let name = name.clone();
        let target = &rules.target;
        let mut redact = LiveRedaction::for_backend(rules);
        let client = self.client.clone();
        let launcher = self.launcher.clone();
        let conversations = match self.managed.get(&name) {
            Some(earlier) if endpoint(&earlier.handle.rules.target) == endpoint(target) => {
                earlier.conversations.clone()
            }
            _ => Threads::kept_in(Arc::clone(&self.journal), &name, &endpoint(target)),
        };
        let mut bundled = None;
        #[cfg(test)]
        if let Some(world) = crate::simulated::world() {
            let dial = world.dial(&name);
            return Ok(Connector::New { dial, redact, conversations, agent: None });
        }
        let dial: Arc<dyn Dial> = match target {
            Target::Mcp(server) => {
                let login = LoginSettings::for_target(target).map(|_| self.logins.login(&name));
                if let Some(login) = &login {
                    redact = redact.with_tokens(login.secrets.clone());
                }
                let mut dialer = mcp::dialer_with(&name, server, launcher, client, login);
                dialer.redact = redact.clone();
                Arc::new(dialer)
            }
            Target::A2a(agent) => {
                let mut agent = agent.clone();
                if matches!(agent.card, CardSource::Bundled) {
                    let (listener, url) = inner_listener().await?;
                    agent.card = CardSource::Base(url.into());
                    let stop = CancellationToken::new();
                    let serving = demo::a2a_agent::serve(listener, stop.clone());
                    bundled = Some(stop.drop_guard());
                    self.tasks.spawn(async move {
                        if let Err(error) = serving.await {
                            warn!(%error, "the bundled agent stopped");
                        }
                    });
                }
                Arc::new(A2aDialer::new(name, &agent, client, conversations.clone()))
            }
            Target::Local(tool) => Arc::new(LocalDialer::new(name, tool, launcher, client)),
            Target::Unresolved(Unresolved { why, .. }) => Arc::new(peer::Unresolved(why.clone())),
        };
        Ok(Connector::New { dial, redact, conversations, agent: bundled })
    }

    /// Waits for a task to end, as those of removed backends do. A panic in one is propagated.
    /// `None` if there is no task.
    pub(super) async fn ended(&mut self) -> Option<()> {
        let Err(error) = self.tasks.join_next().await? else { return Some(()) };
        match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => warn!(%cancelled, "a task of a backend was cancelled"),
        }
        Some(())
    }
}

/// Identifies the peer behind a backend: its stored catalog is only used, and a call is only
/// repeated, at the same peer.
pub(crate) fn identity(target: &Target) -> Identity {
    let mut whose = endpoint(target);
    if let Target::A2a(A2a { signers: Some(Signers { keys, required: true }), .. }) = target {
        // A stored card is as trustworthy as the keys that verified it, so other keys make it
        // another peer.
        let keys = keys.iter().map(PublicKey::fingerprint);
        whose.extend(keys.map(|key| format!(" {key}")));
    }
    Identity::from_text(&whose)
}

/// How often `backend` is refreshed, and how it is started.
fn timing(backend: &Backend, refresh: &Refresh) -> Timing {
    Timing {
        interval: backend.refresh,
        interval_is_own: backend.refresh_is_own,
        jitter: refresh.jitter,
        timeout: refresh.timeout,
        start_timeout: backend.start.timeout,
        is_lazy: backend.start.is_lazy,
        idle_stop: backend.start.idle_stop,
        rank: Rank::new(backend.required, backend.place),
    }
}

/// A listener on loopback for a part that lives inside the process.
pub(super) async fn inner_listener() -> io::Result<(TcpListener, Url)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    Ok((listener, Url::parse(&url).map_err(io::Error::other)?))
}

/// How the bridge reaches a backend. Of a text with references counts what they lead to: with
/// another value of a variable, the same text is another peer.
///
/// The hash of this is on disk and in the journal. Text that changes here, or in the `Debug` of a
/// card's source, makes another peer of each backend: its catalog is fetched again, and calls that
/// are open at the upgrade are not resumed.
fn endpoint(target: &Target) -> String {
    match target {
        // In another directory, the same command may be another server.
        Target::Mcp(Mcp::Stdio(Program { command, args, cwd: Some(cwd), .. })) => {
            format!("{command} {args:?} in {}", cwd.display())
        }
        Target::Mcp(Mcp::Stdio(Program { command, args, .. })) => format!("{command} {args:?}"),
        Target::Mcp(Mcp::Http { url, socket, .. }) => match socket {
            Some(socket) if has_reference(url) => format!("unix:{}", socket.display()),
            _ => address(url),
        },
        // Another address may be another agent, whatever the card is.
        Target::A2a(A2a { card, endpoint, .. }) => {
            let card_text = match card {
                CardSource::Base(url) | CardSource::Url(url) if has_reference(url) => address(url),
                card => format!("{card:?}"),
            };
            match endpoint {
                Some(url) => format!("{card_text} at {:?}", address(url)),
                None => card_text,
            }
        }
        Target::Local(Local { action: Action::Http { method, url, .. }, .. }) => {
            format!("{method} {}", address(url))
        }
        Target::Local(Local { action: Action::Command(program), .. }) => {
            let Program { command, args, cwd, .. } = program;
            match cwd {
                Some(cwd) => format!("local {command} {args:?} in {}", cwd.display()),
                None => format!("local {command} {args:?}"),
            }
        }
        Target::Local(Local { action: Action::Internal, .. }) => "internal".to_owned(),
        Target::Unresolved(_) => "unresolved".to_owned(),
    }
}

fn has_reference(url: &Written<Url>) -> bool {
    url.to_string().contains("${")
}

/// The address of a peer, without a user, a password or a query where they may be secrets.
fn address(url: &Written<Url>) -> String {
    if has_reference(url) { shown(url) } else { url.to_string() }
}

/// The backend as an offer needs it, before its peer has been reached.
pub(crate) fn source(backend: &Backend) -> Source {
    let (kind, description) = match &backend.target {
        Target::Mcp(_) => (RefKind::McpLocal, None),
        Target::A2a(agent) => (RefKind::A2aLocal, agent.description.clone()),
        Target::Local(_) | Target::Unresolved(Unresolved { section: "local", .. }) => {
            (RefKind::Local, None)
        }
        Target::Unresolved(Unresolved { section: "a2a", .. }) => (RefKind::A2aLocal, None),
        Target::Unresolved(_) => (RefKind::McpLocal, None),
    };
    Source {
        name: backend.name.clone(),
        place: backend.place,
        kind,
        naming: Arc::new(backend.naming.clone()),
        description,
        on_unavailable: backend.on_unavailable,
        catalog: None,
        available: false,
        can_pend: backend.pending_after.is_some() || backend.max_result.is_some(),
        trusted: backend.trust_annotations,
        pin: backend.pin,
        review: Arc::default(),
    }
}

#[cfg(test)]
mod tests;
