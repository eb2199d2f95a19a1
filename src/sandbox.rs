//! A stand-in of MANTYX inside the process: it speaks the agent-runs protocol, for `demo`, for
//! development without an account, and for tests.
//!
//! It is a model of MANTYX's wire, not of its intelligence: the language model is scripted, see
//! [`model`] for what a prompt may say. Where the protocol's documents leave a choice or contradict
//! each other, the sandbox is the stricter reader: "MB" is 1,000,000 bytes, names of tools are
//! unique over the whole spec, a key that stands twice counts once.
//!
//! What MANTYX has and the sandbox has not: stored agents other than one, evals, OAuth and scopes,
//! rate limits other than its own size, tools that it runs itself, validation of arguments against
//! a tool's schema, lists of runs and sessions, feedback, budgets, structured outputs, plans, loop
//! detection, the supervisor, counts of tokens. Any `modelId` names the script.
//!
//! Everything that it keeps is bounded by [`Limits`]: finished runs are forgotten oldest first.
//!
//! [`wires`] has the stand-ins of other runtimes, which share nothing with MANTYX's.
//!
//! Must not: make a connection of its own, or keep anything on disk.

mod byte_limit;
mod ids;
mod model;
mod player;
mod read;
mod reply;
mod results;
mod routes;
mod run;
mod runs;
mod sessions;
mod spec;
mod stream;
pub mod wires;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::byte_limit::{Charge, grow};
use self::ids::Ids;
use self::read::Invalid;
use self::reply::{Body, Refusal, Reply, Snapshot, json};
use self::run::{Run, RunEnd};
use self::runs::Runs;
use self::sessions::Sessions;
use self::spec::{Message, Role, Spec, Turn};
use crate::small_server;

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_mins(2);
/// The id of the only stored agent, which has no tools and no prompt.
const AGENT: &str = "agent_sandbox";

/// What a sandbox is like.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// The slug of the only workspace.
    pub workspace: String,
    /// The only credential.
    pub credential: SecretString,
    /// How long a client may take to answer a call; then the run ends with
    /// `error_local_tool_timeout`.
    pub local_tool_timeout: Duration,
    /// How often a stream without events carries a comment.
    pub heartbeat: Duration,
    pub limits: Limits,
}

/// How much a sandbox keeps.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Runs, finished ones included. More unfinished ones are refused with 429.
    pub runs: usize,
    /// Sessions. Past it the one that was not used for longest is forgotten, an ended one first.
    pub sessions: usize,
    /// Bytes of the events of one run. Past it the run ends with an error.
    pub log_bytes_per_run: usize,
    /// Bytes of specs, events and histories together.
    pub bytes: usize,
    /// Bytes of one request's body; a larger one is answered with 413.
    pub body_bytes: usize,
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runs: 10_000,
            sessions: 10_000,
            log_bytes_per_run: 64 << 20,
            bytes: 512 << 20,
            body_bytes: 64 << 20,
            connections: 16_384,
        }
    }
}

impl SandboxConfig {
    /// A sandbox with the protocol's own numbers.
    pub fn new(workspace: impl Into<String>, credential: SecretString) -> Self {
        Self {
            workspace: workspace.into(),
            credential,
            local_tool_timeout: Duration::from_mins(5),
            heartbeat: Duration::from_secs(15),
            limits: Limits::default(),
        }
    }
}

/// A sandbox. Its runs continue without a listener; [`Sandbox::serve`] is only the door to them.
#[derive(Debug)]
pub struct Sandbox {
    config: SandboxConfig,
    ids: Ids,
    /// A permit for each byte that may be kept.
    byte_limit: Arc<Semaphore>,
    /// Locked after `sessions` where both are, and before the state of a run.
    runs: Mutex<Runs>,
    sessions: Mutex<Sessions>,
    /// The runs being played.
    tasks: TaskTracker,
}

impl Sandbox {
    pub fn new(config: SandboxConfig) -> Self {
        Self {
            ids: Ids::default(),
            byte_limit: Arc::new(Semaphore::new(config.limits.bytes)),
            config,
            runs: Mutex::default(),
            sessions: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Answers requests until `stop`, then closes all connections, streams included, within a
    /// second. The runs continue, as they do in MANTYX, and can be served again.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let limits =
            small_server::Limits { connections: self.config.limits.connections, idle: IDLE };
        small_server::serve(&listener, limits, &stop.clone(), move |request| {
            let (sandbox, stop) = (Arc::clone(&self), stop.clone());
            async move { routes::answer(&sandbox, &stop, request).await }
        })
        .await;
    }

    /// Forgets finished runs until `bytes` more fit, if they can be made to.
    fn make_room(&self, bytes: usize) {
        while self.byte_limit.available_permits() < bytes
            && self.runs.lock().forget_oldest_finished()
        {}
    }

    /// Takes `bytes` of the limit, for a new run or session.
    fn charge(&self, bytes: usize) -> Result<Charge, Refusal> {
        self.make_room(bytes);
        byte_limit::take(&self.byte_limit, bytes)
            .ok_or_else(|| Refusal::full("the sandbox is full"))
    }

    /// Refuses a spec whose agent the sandbox does not have. Every `modelId` names the scripted
    /// model.
    fn check_agent(&self, spec: &Spec) -> Result<(), Refusal> {
        let Some(agent) = spec.agent_id.as_ref().filter(|agent| *agent != AGENT) else {
            return Ok(());
        };
        let why = format!("agentId: the credential may not use {agent:?}; the sandbox has {AGENT}");
        Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why))
    }

    /// Ends a run. A success is in the history of its session before anyone can see the end.
    fn finish(&self, run: &Run, end: RunEnd) {
        let reply = end.reply().map(str::to_owned);
        let mut sessions = self.sessions.lock();
        if run.finish(end)
            && let (Some(session), Some(reply)) = (&run.session, reply)
        {
            sessions.append(session, &run.turn, reply);
        }
    }
}

#[cfg(test)]
mod tests;
