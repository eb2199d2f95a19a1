//! MCP servers: how to reach one. rmcp speaks the protocol. The bridge brings its own transports
//! below rmcp, so that catalogs and results stay verbatim, and that memory and waits are bounded.
//!
//! Must not: retry a failed dial (the supervisor does), or show a configured secret.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use tokio::time::{Instant, timeout};

use super::log::LastLines;
use super::program::hiding::{Coverage, Exposure};
use super::{Dial, LiveRedaction, Peer, PeerError, PeerErrorKind, auth};
use crate::config::{HttpTransport, Mcp, Program};
use crate::error_chain::error_chain;
use crate::http_client::{Client, Clients};
use crate::model::BackendName;

mod child;
mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handler;
mod http;
mod lines;
mod listen;
mod pages;
pub mod param_headers;
mod questions;
pub mod result;
mod sse;
mod stdio;
mod tasks;
mod verbatim;

use child::Child;
use connection::Connection;
use handler::Handler;
use verbatim::ConnectionState;

/// The longest stdio line, event and JSON body, in bytes: four times what MANTYX takes as a result.
const LIMIT: usize = 8 * 1024 * 1024;

/// How long a server that spoke 2026-07-28 last time has to do so again. After that, the dialer
/// tries other revisions.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(10);

/// How long a failed handshake waits for the end of the process: its exit status and stderr say
/// more than the broken pipe.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);

/// Reaches one MCP server.
#[derive(Debug)]
pub struct McpDialer {
    backend: BackendName,
    target: Target,
    /// The era that the server spoke last. A reconnect starts with it, and so does not wait for
    /// rmcp's ten seconds if the server ignores unknown methods.
    last: Mutex<Option<Era>>,
    /// The hidden files that the program which was started last can read.
    coverage: Mutex<Coverage>,
    /// The last lines on the stderr of that program.
    stderr: Mutex<Arc<Mutex<LastLines>>>,
    /// What is removed from what the server writes into the log.
    pub redact: LiveRedaction,
}

#[derive(Debug)]
enum Target {
    Stdio { program: Program, launcher: Option<PathBuf> },
    Http { endpoint: Arc<http::Endpoint>, transport: HttpTransport, listens: bool },
}

/// The generations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    /// HTTP+SSE, the HTTP transport of 2024-11-05.
    Oldest,
    /// `initialize` and sessions, up to 2025-11-25.
    Legacy,
    /// `server/discover`, from 2026-07-28 on.
    Modern,
}

/// One way to try the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Either,
    Only(Era),
}

/// A failed attempt.
struct Failed {
    error: PeerError,
    /// Whether another kind of handshake may succeed.
    try_other: bool,
    /// Whether the server seems not to know Streamable HTTP.
    may_be_older: bool,
}

impl Failed {
    fn for_good(error: PeerError) -> Self {
        Self { error, try_other: false, may_be_older: false }
    }
}

/// A dialer for the server `name`. `launcher` is the daemon's own binary, which keeps a child from
/// outliving the daemon (see [`super::program::launcher::exec`]); without it, the program is
/// started directly. `client` must follow no redirects, like those of [`crate::http_client::new`].
pub fn dialer(
    name: &BackendName,
    config: &Mcp,
    launcher: Option<PathBuf>,
    client: Client,
) -> McpDialer {
    let target = match config {
        Mcp::Stdio(program) => Target::Stdio { program: program.clone(), launcher },
        Mcp::Http { url, headers, socket, transport, oauth, tls, listen } => {
            let url = url::Url::clone(url);
            // Behind a unix socket, `url` may name any host, so it does not identify the
            // resource.
            let resource = Some(&url).filter(|_| socket.is_none());
            let socket = socket.as_deref();
            let clients = Clients::of(Some(&url), tls.as_ref(), client).on_socket(socket);
            let own = clients.own.clone();
            let tokens = auth::tokens(name, oauth.as_ref(), resource, clients);
            let endpoint = http::Endpoint::new(own, url, headers.clone(), socket, tokens);
            Target::Http { endpoint: Arc::new(endpoint), transport: *transport, listens: *listen }
        }
    };
    McpDialer {
        backend: name.clone(),
        target,
        last: Mutex::new(None),
        coverage: Mutex::default(),
        stderr: Mutex::default(),
        redact: LiveRedaction::default(),
    }
}

impl McpDialer {
    fn is_pinned_to_sse(&self) -> bool {
        matches!(self.target, Target::Http { transport: HttpTransport::Sse, .. })
    }

    /// The end of the pause that the server has asked for, if it is not over.
    fn pause(&self) -> Option<Instant> {
        match &self.target {
            Target::Http { endpoint, .. } => endpoint.pause(),
            Target::Stdio { .. } => None,
        }
    }

    /// The attempt to make after `first` has failed: `second` or another one; `None` if none may
    /// succeed.
    fn after(&self, first: Attempt, second: Attempt, failed: &Failed) -> Option<Attempt> {
        let oldest = Attempt::Only(Era::Oldest);
        let either = matches!(self.target, Target::Http { transport: HttpTransport::Either, .. });
        if failed.may_be_older && either && first != oldest {
            return Some(oldest);
        }
        (failed.try_other && !self.is_pinned_to_sse()).then_some(second)
    }

    async fn attempt(&self, attempt: Attempt) -> Result<Connection, Failed> {
        match &self.target {
            Target::Stdio { program, launcher } => {
                self.attempt_stdio(program, launcher.as_deref(), attempt).await
            }
            Target::Http { endpoint, listens, .. } => {
                let state = ConnectionState::of(&self.redact, *listens);
                let http = http::Http {
                    backend: self.backend.clone(),
                    endpoint: Arc::clone(endpoint),
                    state: Arc::clone(&state),
                    streams: Arc::default(),
                    is_doubtful: Arc::default(),
                };
                let running = if attempt == Attempt::Only(Era::Oldest) {
                    let transport = sse::Sse::open(http).await.map_err(|failure| Failed {
                        try_other: failure.is_by_server(),
                        ..Failed::for_good(failure.peer_error())
                    })?;
                    self.shake_hands(transport, &state, attempt).await?
                } else {
                    let transport = StreamableHttpClientTransport::with_client(http, config());
                    self.shake_hands(transport, &state, attempt).await?
                };
                Ok(Connection::new(self.backend.clone(), state, running, None))
            }
        }
    }

    async fn attempt_stdio(
        &self,
        program: &Program,
        launcher: Option<&std::path::Path>,
        attempt: Attempt,
    ) -> Result<Connection, Failed> {
        let started = Child::start(&self.backend, program, launcher, &self.redact).await;
        let (mut child, stdin, stdout, coverage) = started.map_err(Failed::for_good)?;
        *self.coverage.lock() = coverage;
        self.stderr.lock().clone_from(&child.last_lines);
        let state = ConnectionState::of(&self.redact, true);
        let (transport, rest) =
            stdio::Stdio::new(self.backend.clone(), Arc::clone(&state), stdout, stdin);
        child.drain_stdout(rest);
        let pipe = transport.pipe();
        match self.shake_hands(transport, &state, attempt).await {
            Ok(running) => {
                let child = Some((child, pipe));
                Ok(Connection::new(self.backend.clone(), state, running, child))
            }
            Err(mut failed) => {
                let command = &program.command;
                let ended = child.exit_description(EXIT_PATIENCE).await;
                failed.error = match (ended, child.stderr_tail()) {
                    (Some(exited), tail) => {
                        failed.try_other &= tail.is_none();
                        let text = format!("`{command}` did not finish the handshake: {exited}");
                        PeerError::new(PeerErrorKind::Program, text)
                    }
                    (None, tail) => {
                        let tail = tail.map(|tail| format!("; its stderr ends with: {tail}"));
                        let tail = tail.unwrap_or_default();
                        let text = format!("`{command}`: {}{tail}", failed.error);
                        PeerError::new(failed.error.kind, text)
                    }
                };
                Err(failed)
            }
        }
    }

    async fn shake_hands<T, E, A>(
        &self,
        transport: T,
        state: &Arc<ConnectionState>,
        attempt: Attempt,
    ) -> Result<RunningService<RoleClient, Handler>, Failed>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let handler = Handler { backend: self.backend.clone(), state: Arc::clone(state) };
        let (mode, stop) = (attempt.lifecycle(), state.stop.clone());
        let serve = serve_client_with_lifecycle_and_ct(handler, transport, mode, stop);
        // Boxed, since rmcp's future is large.
        let serve = Box::pin(serve);
        let outcome = if attempt == Attempt::Only(Era::Modern) {
            timeout(DISCOVER_PATIENCE, serve).await.map_err(|_late| {
                let why = "the server no longer answers server/discover";
                let error = PeerError::new(PeerErrorKind::Timeout, why);
                Failed { error, try_other: true, may_be_older: false }
            })?
        } else {
            serve.await
        };
        let running = outcome.map_err(|error| Failed {
            error: PeerError::new(kind(&error), describe(&error, state))
                .with_cure(http_failure(&error).and_then(http::HttpFailure::cure)),
            // A server that answered may speak the other revision.
            try_other: http_failure(&error).is_none_or(http::HttpFailure::is_by_server),
            may_be_older: http_failure(&error).is_some_and(http::HttpFailure::may_be_older),
        })?;
        // Without the cache, so that a refresh asks the server.
        running.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(running)
    }
}

#[async_trait]
impl Dial for McpDialer {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        let is_sse = self.is_pinned_to_sse();
        let known = if is_sse { Some(Era::Oldest) } else { *self.last.lock() };
        let [mut attempt, second] = plan(known);
        let mut outcome = self.attempt(attempt).await;
        // A program that exited and said why is started once at a time: the next attempt begins with
        // the other handshake.
        let has_exited = |it: &Failed| it.error.kind == PeerErrorKind::Program && !it.try_other;
        if outcome.as_ref().err().is_some_and(has_exited) {
            let mut last = self.last.lock();
            *last = if last.is_none() { Some(Era::Legacy) } else { None };
        }
        if let Err(failed) = &outcome
            && let Some(next) = self.after(attempt, second, failed)
        {
            tracing::debug!(
                backend = %self.backend,
                "the handshake {attempt:?} failed, trying {next:?}: {}", failed.error
            );
            let streamable = error_chain(&failed.error);
            attempt = next;
            outcome = self.attempt(next).await;
            if let Err(Failed { error, .. }) = &mut outcome
                && next == Attempt::Only(Era::Oldest)
            {
                let why = error_chain(error);
                let both = match why == streamable {
                    true => format!("{why}, neither with Streamable HTTP nor with HTTP+SSE"),
                    false => format!("{streamable}; and with the older HTTP+SSE: {why}"),
                };
                *error = PeerError::new(error.kind, both);
            }
        }
        let connection = outcome.map_err(|failed| failed.error.with_pause(self.pause()))?;
        let modern = !connection.revision.has_initialize();
        *self.last.lock() = Some(match attempt {
            Attempt::Only(Era::Oldest) => Era::Oldest,
            _ if modern => Era::Modern,
            _ => Era::Legacy,
        });
        tracing::info!(
            backend = %self.backend,
            transport = self.transport(),
            revision = %connection.revision,
            "connected"
        );
        Ok(Arc::new(connection))
    }

    fn transport(&self) -> &'static str {
        match self.target {
            Target::Stdio { .. } => "stdio",
            Target::Http { transport: HttpTransport::Sse, .. } => "sse",
            Target::Http { .. } if *self.last.lock() == Some(Era::Oldest) => "sse",
            Target::Http { .. } => "streamable-http",
        }
    }

    fn stderr(&self) -> Vec<String> {
        self.stderr.lock().lock().all()
    }

    fn exposure(&self) -> Option<Exposure> {
        self.coverage.lock().exposure()
    }
}

/// How rmcp reaches a server by Streamable HTTP.
fn config() -> StreamableHttpClientTransportConfig {
    // The client adds the address and the headers itself; rmcp need not know them.
    let mut config = StreamableHttpClientTransportConfig::with_uri("");
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(http::MOST_FAILURES);
    retry.base_duration = Duration::from_millis(200);
    retry.max_delay = Some(Duration::from_secs(2));
    config.retry_config = Arc::new(retry);
    config.max_sse_event_size = LIMIT;
    config
}

/// The attempts to make, by the era that worked last.
fn plan(last: Option<Era>) -> [Attempt; 2] {
    match last {
        Some(era) => [Attempt::Only(era), Attempt::Either],
        // Some servers exit, or never answer again, if the first message is not `initialize`. So
        // `initialize` alone is the second attempt.
        None => [Attempt::Either, Attempt::Only(Era::Legacy)],
    }
}

impl Attempt {
    fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Either => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
            Self::Only(Era::Modern) => ClientLifecycleMode::Discover { preferred_versions },
            // The handler's configuration names the revision.
            Self::Only(Era::Legacy | Era::Oldest) => ClientLifecycleMode::Initialize,
        }
    }
}

/// The reason for which a handshake failed, for operators.
fn describe(error: &ClientInitializeError, state: &ConnectionState) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => http::words(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => describe(fallback, state),
        ClientInitializeError::ConnectionClosed(_) => {
            let why = state.why_lost();
            why.unwrap_or_else(|| "the connection ended during the handshake".to_owned())
        }
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "it does not answer the handshake as an MCP server would".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refuses the handshake: {} (JSON-RPC error {})", error.message, error.code.0)
        }
        error => error.to_string(),
    }
}

fn kind(error: &ClientInitializeError) -> PeerErrorKind {
    if let Some(failure) = http_failure(error) {
        return failure.kind();
    }
    match error {
        ClientInitializeError::TransportError { .. }
        | ClientInitializeError::ConnectionClosed(_) => PeerErrorKind::Connect,
        _ => PeerErrorKind::Protocol,
    }
}

/// The failure of an HTTP transport behind `error`, if it is one.
fn http_failure(error: &ClientInitializeError) -> Option<&http::HttpFailure> {
    match error {
        ClientInitializeError::TransportError { error, .. } => http::failure_of(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => http_failure(fallback),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
