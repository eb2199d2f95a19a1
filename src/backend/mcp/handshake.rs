//! The handshake: `server/discover` (2026-07-28) or `initialize` (earlier revisions), sent over the
//! bridge's own transports. rmcp's handshake gives a server that is slow to start another revision
//! than a quick one, and knows one proposal only. rmcp serves the connection from then on.
//!
//! Must not: open a transport, start a program, or give up a server that is merely slow.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, DiscoverRequest,
    DiscoverRequestParams, ErrorCode, ErrorData, InitializeRequest, InitializedNotification,
    JsonRpcMessage, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerPeerInfo, ServerRequest, ServerResult,
};
use rmcp::service::{ClientCacheConfig, RunningService, serve_directly_with_ct};
use rmcp::transport::{DynamicTransportError, Transport};
use serde_json::json;

use super::Era;
use super::handler::{self, Handler};
use super::verbatim::{ConnectionState, number, says_no_revision};
use crate::model::BackendName;

mod failure;
mod pipe;
mod proposal;

pub(super) use failure::Failure;
pub(super) use pipe::PipeHandshake;
pub(super) use proposal::{Proposal, Proposals, after_discover};

/// The id of the first request of a handshake. rmcp counts its own requests from 0, so a late
/// answer to the handshake is never taken for one of theirs. Some servers keep ids in 32 bits.
const FIRST_ID: i64 = 2_000_000_000;

/// The requests of a handshake, which no server sends.
const OWN_METHODS: [&str; 2] = ["initialize", "server/discover"];

/// How long answers are waited for before something else is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    /// From `server/discover` to `initialize`, which some servers need in order to say anything.
    pub(super) discover: Duration,
    /// From the answer to `initialize` to the end of the handshake, if `server/discover` has no
    /// answer yet. A server that is slow to start answers both at nearly the same time.
    pub(super) late: Duration,
    /// How long a program may say nothing at all after it has read the first message. It is then
    /// taken for one that only knows `initialize` and waits for ever after anything else. The wait
    /// is long, since a program on a busy machine looks the same.
    pub(super) silence: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            discover: Duration::from_secs(10),
            late: Duration::from_secs(1),
            silence: Duration::from_secs(120),
        }
    }
}

/// The message that a handshake begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opening {
    Discover,
    Initialize(Proposal),
}

/// What a server has agreed to.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) info: ServerPeerInfo,
    /// What `initialize` has proposed; `None` after `server/discover`.
    pub(super) proposal: Option<Proposal>,
}

impl Agreement {
    pub(super) fn era(&self) -> Era {
        if self.proposal.is_some() { Era::Legacy } else { Era::Modern }
    }
}

/// An answer to one of the handshake's requests. An error may lack the id.
struct Answer {
    id: Option<i64>,
    outcome: Result<ServerResult, ErrorData>,
}

/// The handshake's side of one transport.
pub(super) struct Conversation<T> {
    backend: BackendName,
    state: Arc<ConnectionState>,
    transport: T,
    next_id: i64,
}

impl<T: Transport<RoleClient> + 'static> Conversation<T> {
    pub(super) fn new(backend: BackendName, state: Arc<ConnectionState>, transport: T) -> Self {
        Self { backend, state, transport, next_id: FIRST_ID }
    }

    /// Performs the handshake of 2026-07-28.
    pub(super) async fn discover(&mut self) -> Result<Agreement, Failure> {
        let mut outcome = self.discover_once().await;
        if outcome.as_ref().is_err_and(Failure::wants_repeat) {
            outcome = self.discover_once().await;
        }
        outcome
    }

    async fn discover_once(&mut self) -> Result<Agreement, Failure> {
        let id = self.send_discover().await?;
        agreement_on_discover(self.answer_to(id).await?)
    }

    /// Performs the handshake of the earlier revisions.
    pub(super) async fn initialize(&mut self, proposal: &Proposal) -> Result<Agreement, Failure> {
        let id = self.send_initialize(proposal).await?;
        let agreement = agreement_on_initialize(self.answer_to(id).await?, proposal)?;
        self.send_initialized().await?;
        Ok(agreement)
    }

    /// Hands the connection to rmcp.
    pub(super) async fn serve(self, info: ServerPeerInfo) -> RunningService<RoleClient, Handler> {
        let stop = self.state.stop.clone();
        let handler = Handler { backend: self.backend, state: self.state };
        let running = serve_directly_with_ct(handler, self.transport, Some(info), stop);
        // Without the cache, so that a refresh asks the server.
        running.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        running
    }

    /// Closes the transport; a program's stdin closes with it.
    pub(super) async fn close(mut self) {
        if let Err(error) = self.transport.close().await {
            tracing::debug!(backend = %self.backend, "the transport does not close: {error}");
        }
    }

    async fn send_discover(&mut self) -> Result<i64, Failure> {
        let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
        discover.extensions.insert(handler::request_context());
        self.send_request(discover.into()).await
    }

    async fn send_initialize(&mut self, proposal: &Proposal) -> Result<i64, Failure> {
        self.send_request(InitializeRequest::new(proposal.config()).into()).await
    }

    async fn send_initialized(&mut self) -> Result<(), Failure> {
        let initialized = InitializedNotification::default();
        let initialized = ClientNotification::InitializedNotification(initialized);
        self.send(JsonRpcMessage::notification(initialized)).await
    }

    async fn send_request(&mut self, request: ClientRequest) -> Result<i64, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(JsonRpcMessage::request(request, RequestId::Number(id))).await?;
        Ok(id)
    }

    async fn send(&mut self, message: ClientJsonRpcMessage) -> Result<(), Failure> {
        let sent = self.transport.send(message).await;
        sent.map_err(|error| {
            Failure::transport(DynamicTransportError::new::<T, RoleClient>(error), &self.state)
        })
    }

    async fn answer_to(&mut self, id: i64) -> Result<Result<ServerResult, ErrorData>, Failure> {
        loop {
            let message = self.transport.receive().await.ok_or(Failure::Closed)?;
            match self.answer_in(message).await? {
                Some(answer) if answer.id.is_none_or(|other| other == id) => {
                    return Ok(answer.outcome);
                }
                _ => (),
            }
        }
    }

    /// The answer in `message`, if it is one. A server may also log, ping and ask before the
    /// handshake is done. It gets its answer, for which some wait.
    ///
    /// # Errors
    ///
    /// The message is one of the bridge's own requests. An answer to it would come back, too, and
    /// be taken for the server's.
    async fn answer_in(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> Result<Option<Answer>, Failure> {
        let reply = match message {
            JsonRpcMessage::Response(response) => {
                let id = number(&response.id);
                return Ok(Some(Answer { id, outcome: Ok(response.result) }));
            }
            JsonRpcMessage::Error(error) => {
                let id = error.id.as_ref().and_then(number);
                return Ok(Some(Answer { id, outcome: Err(error.error) }));
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::LoggingMessageNotification(logged) =
                    &notification.notification
                {
                    handler::log(&self.backend, &self.state, &logged.params);
                }
                return Ok(None);
            }
            JsonRpcMessage::Request(request) => match request.request {
                ServerRequest::CustomRequest(own) if OWN_METHODS.contains(&own.method.as_str()) => {
                    return Err(Failure::Echo);
                }
                ServerRequest::PingRequest(_) => {
                    JsonRpcMessage::response(ClientResult::empty(()), request.id)
                }
                _ => {
                    let early = "the handshake is not done";
                    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, early, None);
                    JsonRpcMessage::error(error, Some(request.id))
                }
            },
        };
        if let Err(failure) = self.send(reply).await {
            let why = failure.describe(&self.state);
            tracing::debug!(backend = %self.backend, "a reply cannot be sent: {why}");
        }
        Ok(None)
    }
}

/// What an answer to `server/discover` agrees to.
fn agreement_on_discover(outcome: Result<ServerResult, ErrorData>) -> Result<Agreement, Failure> {
    let result = match outcome {
        Ok(ServerResult::DiscoverResult(result)) => result,
        Ok(_) => return Err(Failure::NoHandshake),
        Err(error) => return Err(Failure::Refused(error)),
    };
    let revision = ProtocolVersion::V_2026_07_28;
    if !result.supported_versions.contains(&revision) {
        let supported = json!({ "supported": result.supported_versions });
        let why = "it speaks other revisions";
        let code = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION;
        return Err(Failure::Refused(ErrorData::new(code, why, Some(supported))));
    }
    Ok(Agreement { info: ServerPeerInfo::from_discover_result(revision, result), proposal: None })
}

/// What an answer to the `initialize` with `proposal` agrees to.
fn agreement_on_initialize(
    outcome: Result<ServerResult, ErrorData>,
    proposal: &Proposal,
) -> Result<Agreement, Failure> {
    match outcome {
        Ok(ServerResult::InitializeResult(result)) => {
            Ok(Agreement { info: result.into(), proposal: Some(proposal.clone()) })
        }
        Ok(_) => Err(Failure::NoHandshake),
        Err(error) if says_no_revision(&error) => Err(Failure::NoRevision),
        Err(error) => Err(Failure::Refused(error)),
    }
}

#[cfg(test)]
mod tests;
