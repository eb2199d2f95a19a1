//! Dials a URL: Streamable HTTP, and the older HTTP+SSE for servers that have only that. Each
//! message of a handshake that may be refused gets a transport to itself, so that no session is
//! left of one that failed.
//!
//! Must not: send a request whose first try may have run, or give up a slow server.

use std::sync::Arc;

use ::http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::Connection;
use super::handshake::{Failure, Opening, Proposal, Proposals, after_discover};
use super::http::{HttpFailure, Streamable};
use super::rpc::{Link, Rpc, ServerInfo};
use super::sse::Sse;
use super::transport::Transport;
use super::{Era, McpDialer, http, sse};
use crate::backend::PeerError;
use crate::config::HttpTransport;
use crate::error_chain::error_chain;
use crate::model::mcp::method;

/// A server behind a URL.
pub(super) struct HttpServer {
    pub(super) endpoint: Arc<http::Endpoint>,
    /// Whether the bridge reads what the server says without being asked.
    pub(super) listens: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Streamable,
    Sse,
}

/// A handshake that is done.
struct Established {
    link: Link,
    info: ServerInfo,
    era: Era,
    proposal: Option<Proposal>,
}

/// A handshake that failed.
struct HttpFailed {
    error: PeerError,
    /// The status that the server refused a message with, if that is what failed.
    status: Option<StatusCode>,
    /// What the server has said against the proposal; `None` if no other would be accepted.
    refusal: Option<String>,
    /// Whether a server has answered, so that another message may do better.
    is_by_server: bool,
    /// Whether the server seems not to know Streamable HTTP.
    may_be_older: bool,
}

impl HttpFailed {
    /// Whether the server has shown that it has only the older transport: it answered the message
    /// with its stream. A status alone, which other servers answer as well, shows nothing.
    fn is_older(&self) -> bool {
        self.may_be_older && self.status.is_none()
    }
}

impl McpDialer {
    pub(super) async fn dial_http(
        &self,
        server: &HttpServer,
        transport: HttpTransport,
    ) -> Result<Connection, PeerError> {
        let established = match transport {
            HttpTransport::Streamable => self.streamable(server).await,
            HttpTransport::Sse => {
                self.initialize_over(server, Way::Sse, self.memory.proposal()).await
            }
            HttpTransport::Either => self.either(server).await,
        };
        let pause = || server.endpoint.pause();
        let established = established.map_err(|failed| failed.error.with_pause(pause()))?;
        let Established { link, info, era, proposal } = established;
        self.memory.keep(era, proposal);
        Ok(Connection::new(link, info, None, None))
    }

    /// Tries the transport that worked last, and then the other one.
    async fn either(&self, server: &HttpServer) -> Result<Established, HttpFailed> {
        if self.memory.era() == Some(Era::Oldest) {
            let proposal = self.memory.proposal();
            let failed = match self.initialize_over(server, Way::Sse, proposal).await {
                Ok(established) => return Ok(established),
                Err(failed) => failed,
            };
            if !failed.is_by_server {
                return Err(failed);
            }
            return self.streamable(server).await;
        }
        let streamable = match self.streamable(server).await {
            Err(failed) if failed.may_be_older => failed,
            outcome => return outcome,
        };
        let outcome = self.initialize_over(server, Way::Sse, Proposal::newest()).await;
        outcome.map_err(|older| HttpFailed { error: both(&streamable, &older), ..older })
    }

    /// Performs the handshake over Streamable HTTP.
    async fn streamable(&self, server: &HttpServer) -> Result<Established, HttpFailed> {
        if self.memory.era() == Some(Era::Legacy) {
            let proposal = self.memory.proposal();
            let failed = match self.initialize_over(server, Way::Streamable, proposal).await {
                Err(failed) if failed.is_by_server && !self.memory.wants_sessions => failed,
                outcome => return outcome,
            };
            // The server may be another one now, which knows no `initialize`.
            let discover = timeout(self.waits.discover, self.discover(server)).await;
            return match discover {
                Ok(Ok(established)) => Ok(established),
                Ok(Err(_)) | Err(_) => Err(failed),
            };
        }
        let mut discover = Box::pin(self.discover(server));
        let failed = match timeout(self.waits.discover, &mut discover).await {
            Ok(Err(failed)) if failed.is_older() => return Err(failed),
            Ok(Err(failed)) if failed.is_by_server => failed,
            Ok(outcome) => return outcome,
            Err(_late) => {
                let backend = &self.backend;
                tracing::debug!(%backend, "server/discover has no answer yet, trying initialize");
                return self.race(server, discover).await;
            }
        };
        let refusal = failed.refusal.unwrap_or_default();
        if Proposals::default().leaves_modern(&refusal) {
            // It wants no other revision, but refuses this one as well.
            let refused = failed.error.clone();
            let outcome = self.initialize_over(server, Way::Streamable, Proposal::newest()).await;
            return outcome.map_err(|failed| HttpFailed { error: refused, ..failed });
        }
        self.initialize_over(server, Way::Streamable, after_discover(&refusal)).await
    }

    /// Sends `initialize` while `discover` has no answer. A server that answers both is of
    /// 2026-07-28, however long it takes: the revision must not depend on how busy it is.
    async fn race(
        &self,
        server: &HttpServer,
        mut discover: impl Future<Output = Result<Established, HttpFailed>> + Unpin,
    ) -> Result<Established, HttpFailed> {
        let mut initialize =
            Box::pin(self.initialize_over(server, Way::Streamable, Proposal::newest()));
        tokio::select! {
            biased;
            discovered = &mut discover => match discovered {
                Ok(established) => Ok(established),
                Err(_) => initialize.await,
            },
            initialized = &mut initialize => match timeout(self.waits.late, discover).await {
                Ok(Ok(established)) => Ok(established),
                Ok(Err(_)) | Err(_) => initialized,
            },
        }
    }

    async fn discover(&self, server: &HttpServer) -> Result<Established, HttpFailed> {
        self.try_http(server, Way::Streamable, &Opening::Discover).await
    }

    /// Sends `initialize` with `first` and, as long as the server refuses, with other proposals.
    async fn initialize_over(
        &self,
        server: &HttpServer,
        way: Way,
        first: Proposal,
    ) -> Result<Established, HttpFailed> {
        let mut proposals = Proposals::default();
        let mut proposal = first;
        let mut first_failed: Option<HttpFailed> = None;
        loop {
            proposals.add(&proposal);
            let opening = Opening::Initialize(proposal);
            let failed = match self.try_http(server, way, &opening).await {
                Ok(established) => return Ok(established),
                Err(failed) => failed,
            };
            let refusal = failed.refusal.as_deref();
            let refusal = refusal.filter(|refusal| !proposals.leaves_modern(refusal));
            let next = refusal.and_then(|refusal| proposals.after(refusal));
            // The first refusal is the one of what is usual; a failure of another kind says more.
            let shown = match first_failed {
                Some(first) if failed.is_by_server => first,
                _ => failed,
            };
            let Some(next) = next else {
                let error = proposals.add_summary(shown.error);
                return Err(HttpFailed { error, ..shown });
            };
            first_failed = Some(shown);
            proposal = next;
        }
    }

    /// Performs one handshake on a new transport.
    async fn try_http(
        &self,
        server: &HttpServer,
        way: Way,
        opening: &Opening,
    ) -> Result<Established, HttpFailed> {
        let oddities = Arc::default();
        self.oddities.lock().clone_from(&oddities);
        let endpoint = Arc::clone(&server.endpoint);
        let (transport, events) = match way {
            Way::Streamable => (Transport::Streamable(Streamable::new(endpoint)), None),
            Way::Sse => {
                let opened = Sse::open(endpoint).await.map_err(|failure| unopened(&failure))?;
                (Transport::Sse(opened.0), Some(opened.1))
            }
        };
        let backend = self.backend.clone();
        let rpc = Rpc::new(backend, transport, &self.redact, server.listens, oddities);
        let mut link = Link { rpc: Arc::clone(&rpc), tasks: JoinSet::new() };
        if let Some(events) = events {
            link.tasks.spawn(sse::read(rpc, events));
        }
        let outcome = match opening {
            Opening::Discover => link.discover().await,
            Opening::Initialize(proposal) => link.initialize(proposal).await,
        };
        let agreement = outcome.map_err(|failure| {
            let refusal = failed(&failure, &link.rpc);
            let what = match opening {
                Opening::Discover => method::DISCOVER.to_owned(),
                Opening::Initialize(proposal) => format!("initialize with {proposal}"),
            };
            tracing::debug!(backend = %self.backend, "{what} failed: {}", refusal.error);
            refusal
        })?;
        let era = if way == Way::Sse { Era::Oldest } else { agreement.era() };
        Ok(Established { link, info: agreement.info, era, proposal: agreement.proposal })
    }
}

fn failed(failure: &Failure, rpc: &Rpc) -> HttpFailed {
    HttpFailed {
        error: failure.error(rpc),
        status: failure.status(),
        refusal: failure.refusal(),
        is_by_server: failure.http().is_none_or(HttpFailure::is_by_server),
        may_be_older: failure.http().is_some_and(HttpFailure::may_be_older),
    }
}

/// The failure to open the stream of HTTP+SSE.
fn unopened(failure: &HttpFailure) -> HttpFailed {
    let error = failure.peer_error();
    let is_by_server = failure.is_by_server();
    let status = match failure {
        HttpFailure::Status(status) => Some(*status),
        _ => None,
    };
    HttpFailed { error, status, refusal: None, is_by_server, may_be_older: false }
}

/// The error if neither transport works.
fn both(streamable: &HttpFailed, older: &HttpFailed) -> PeerError {
    let [first, second] = [streamable, older].map(|failed| error_chain(&failed.error));
    let text = match older.status {
        _ if first == second => {
            format!("{first}, neither with Streamable HTTP nor with HTTP+SSE")
        }
        // A server that has refused the handshake is there, so the hint that none is would mislead.
        Some(status) if streamable.status == Some(StatusCode::BAD_REQUEST) => {
            format!("{first}; the older HTTP+SSE is not there either (HTTP {status})")
        }
        _ => format!("{first}; and with the older HTTP+SSE: {second}"),
    };
    PeerError::new(older.error.kind, text)
}
