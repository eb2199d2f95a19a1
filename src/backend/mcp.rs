//! MCP servers: how to reach one. The client is the bridge's own (`rpc`), with rmcp's types for
//! what both sides say of themselves: catalogs and results stay verbatim, and memory and waits are
//! bounded.
//!
//! docs/design/mcp.md says what it is not, and how it came about.
//!
//! Must not: retry a failed dial (the supervisor does), or show a configured secret.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::diagnosis::Remark;
use super::program::hiding::{Coverage, Exposure};
use super::{Dial, LiveRedaction, Peer, PeerError, PeerErrorKind, StartLog, auth};
use crate::config::{HttpTransport, Mcp, OauthClient, Program};
use crate::http_client::{Client, Clients};
use crate::logins::Login;
use crate::model::BackendName;

mod child;
mod connection;
mod dial_http;
mod dial_program;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handler;
mod handshake;
mod http;
mod lines;
mod listen;
mod observed;
mod oddities;
mod pages;
mod questions;
pub mod result;
mod rpc;
mod sse;
mod stdio;
mod tasks;
mod transport;

use child::Starts;
use dial_http::HttpServer;
use handshake::{Proposal, Waits};
use observed::Observed;
use oddities::Oddities;

/// The longest stdio line, event and JSON body, in bytes: four times what MANTYX takes as a result.
const LIMIT: usize = 8 * 1024 * 1024;

/// Reaches one MCP server.
#[derive(Debug)]
pub struct McpDialer {
    backend: BackendName,
    target: Target,
    /// The handshake that worked last.
    memory: Memory,
    waits: Waits,
    /// The hidden files that the program which was started last can read.
    coverage: Mutex<Coverage>,
    /// What is kept of that program.
    observed: Mutex<Option<Observed>>,
    /// What the server that was reached last by HTTP does that MCP does not have.
    oddities: Mutex<Arc<Oddities>>,
    starts: Starts,
    /// The login that the bridge may keep for the server.
    login: Option<Arc<Login>>,
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

/// The handshake that worked last, with which a reconnect begins. A connection notes here that its
/// server has named a newer revision late.
#[derive(Debug, Clone, Default)]
struct Memory {
    last: Arc<Mutex<Option<LastHandshake>>>,
    /// The operator wants a revision with sessions, whatever the server speaks.
    wants_sessions: bool,
}

#[derive(Debug, Clone)]
struct LastHandshake {
    era: Era,
    /// What the server has accepted in `initialize`, if there was one.
    proposal: Option<Proposal>,
}

impl Memory {
    fn era(&self) -> Option<Era> {
        let last = self.last.lock().as_ref().map(|last| last.era);
        if self.wants_sessions { last.or(Some(Era::Legacy)) } else { last }
    }

    /// The proposal with which `initialize` begins.
    fn proposal(&self) -> Proposal {
        let accepted = self.last.lock().as_ref().and_then(|last| last.proposal.clone());
        accepted.unwrap_or_else(Proposal::newest)
    }

    fn keep(&self, era: Era, proposal: Option<Proposal>) {
        *self.last.lock() = Some(LastHandshake { era, proposal });
    }

    fn forget(&self) {
        *self.last.lock() = None;
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
    dialer_with(name, config, launcher, client, None)
}

/// [`dialer`] with the login that the bridge may keep for the server.
pub fn dialer_with(
    name: &BackendName,
    config: &Mcp,
    launcher: Option<PathBuf>,
    client: Client,
    login: Option<Arc<Login>>,
) -> McpDialer {
    let mut memory = Memory::default();
    let target = match config {
        Mcp::Stdio(program) => Target::Stdio { program: program.clone(), launcher },
        Mcp::Http { url, headers, socket, transport, oauth, tls, listen, sessions } => {
            memory.wants_sessions = *sessions;
            let url = url::Url::clone(url);
            // Behind a unix socket, `url` may name any host, so it does not identify the resource.
            let resource = Some(&url).filter(|_| socket.is_none());
            let socket = socket.as_deref();
            let clients = Clients::new(Some(&url), tls.as_ref(), client).on_socket(socket);
            let own = clients.own.clone();
            let tokens = match (oauth, &login) {
                (Some(OauthClient::Credentials(credentials)), _) => {
                    auth::tokens(name, Some(credentials), resource, clients)
                }
                (_, Some(login)) => Some(auth::Tokens::of_login(login)),
                (_, None) => None,
            };
            let endpoint = http::Endpoint::new(own, url, headers.clone(), socket, tokens);
            Target::Http { endpoint: Arc::new(endpoint), transport: *transport, listens: *listen }
        }
    };
    McpDialer {
        backend: name.clone(),
        target,
        memory,
        waits: Waits::default(),
        coverage: Mutex::default(),
        observed: Mutex::default(),
        oddities: Mutex::default(),
        starts: Starts::default(),
        login,
        redact: LiveRedaction::default(),
    }
}

#[async_trait]
impl Dial for McpDialer {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        // Boxed, since the futures of the handshake are large.
        let connection = match &self.target {
            Target::Stdio { program, launcher } => {
                Box::pin(self.dial_program(program, launcher.as_deref())).await?
            }
            Target::Http { endpoint, transport, listens } => {
                let server = HttpServer { endpoint: Arc::clone(endpoint), listens: *listens };
                Box::pin(self.dial_http(&server, *transport)).await?
            }
        };
        tracing::debug!(
            backend = %self.backend,
            transport = self.transport(),
            revision = %connection.revision(),
            "connected"
        );
        Ok(Arc::new(connection))
    }

    fn transport(&self) -> &'static str {
        match self.target {
            Target::Stdio { .. } => "stdio",
            Target::Http { transport: HttpTransport::Sse, .. } => "sse",
            Target::Http { .. } if self.memory.era() == Some(Era::Oldest) => "sse",
            Target::Http { .. } => "streamable-http",
        }
    }

    fn log_starts(&self, log: StartLog) {
        self.starts.is_quiet.store(log == StartLog::Quiet, Ordering::Relaxed);
    }

    async fn processes_ended(&self) {
        self.starts.endings.close();
        self.starts.endings.wait().await;
    }

    fn stderr(&self) -> Vec<String> {
        let observed = self.observed.lock();
        observed.as_ref().map(|observed| observed.stderr.lock().shown()).unwrap_or_default()
    }

    async fn login_changed(&self) {
        match &self.login {
            Some(login) => login.changed().await,
            None => std::future::pending().await,
        }
    }

    fn overdue(&self, what: String) -> PeerError {
        match &*self.observed.lock() {
            Some(observed) => observed.overdue(&what),
            None => PeerError::new(PeerErrorKind::Timeout, what),
        }
    }

    fn remark(&self) -> Option<Remark> {
        match &*self.observed.lock() {
            Some(observed) if !observed.oddities.has_shaken_hands() => observed.starting_remark(),
            Some(observed) => observed.oddities.remark(),
            None => self.oddities.lock().remark(),
        }
    }

    fn exposure(&self) -> Option<Exposure> {
        self.coverage.lock().exposure()
    }
}

#[cfg(test)]
mod tests;
