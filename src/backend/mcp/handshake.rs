//! The handshake: `server/discover` (2026-07-28) or `initialize` (earlier revisions). rmcp's own
//! gives a server that is slow to start another revision than a quick one, and knows one proposal
//! only.
//!
//! Must not: open a transport, start a program, or give up a server that is merely slow.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientConfig, ErrorCode, ErrorData, ProtocolVersion, RequestMetaObject, ServerCapabilities,
};
use serde_json::json;
use serde_json::value::RawValue;

use super::rpc::{
    Kind, Link, Message, NoHandshake, OpenRequest, Rpc, ServerInfo, Unanswered, error_data, members,
};
use super::{Era, handler};
use crate::backend::{CallError, Reply};
use crate::model::mcp::method;

mod failure;
mod pipe;
mod proposal;

pub(super) use failure::Failure;
pub(super) use pipe::PipeHandshake;
pub(super) use proposal::{Proposal, Proposals, after_discover};

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
    pub(super) info: ServerInfo,
    /// What `initialize` has proposed; `None` after `server/discover`.
    pub(super) proposal: Option<Proposal>,
}

impl Agreement {
    pub(super) fn era(&self) -> Era {
        if self.proposal.is_some() { Era::Legacy } else { Era::Modern }
    }
}

/// A request of a handshake that has no answer yet.
struct Request {
    id: i64,
    reply: BoxFuture<'static, Result<Reply, Unanswered>>,
}

impl Link {
    /// Performs the handshake of 2026-07-28.
    pub(super) async fn discover(&self) -> Result<Agreement, Failure> {
        let outcome = self.discover_once().await;
        if outcome.as_ref().is_err_and(Failure::wants_repeat) {
            return self.discover_once().await;
        }
        outcome
    }

    async fn discover_once(&self) -> Result<Agreement, Failure> {
        let reply = Request::discover(&self.rpc).reply.await;
        agreement_on_discover(&self.rpc, reply)
    }

    /// Performs the handshake of the earlier revisions.
    pub(super) async fn initialize(&self, proposal: &Proposal) -> Result<Agreement, Failure> {
        let reply = Request::initialize(&self.rpc, proposal).reply.await;
        let agreement = agreement_on_initialize(&self.rpc, reply, proposal)?;
        self.send_initialized().await?;
        Ok(agreement)
    }

    async fn send_initialized(&self) -> Result<(), Failure> {
        let sent = self.rpc.send(Message::initialized()).await;
        sent.map_err(|failure| Failure::transport(failure, &self.rpc))
    }
}

impl Request {
    fn discover(rpc: &Arc<Rpc>) -> Self {
        Self::new(rpc, method::DISCOVER, Some(&handler::request_context()), "")
    }

    fn initialize(rpc: &Arc<Rpc>, proposal: &Proposal) -> Self {
        let config: ClientConfig = proposal.config();
        Self::new(rpc, method::INITIALIZE, None, &members(&config))
    }

    fn new(
        rpc: &Arc<Rpc>,
        method: &'static str,
        meta: Option<&RequestMetaObject>,
        members: &str,
    ) -> Self {
        let request = Arc::new(OpenRequest::new(rpc.next_id(), method, Kind::Handshake));
        let message = Message::request(&request, meta, &[members]);
        let (id, rpc) = (request.id, Arc::clone(rpc));
        Self { id, reply: Box::pin(async move { rpc.exchange(&request, message).await }) }
    }
}

/// The result in a reply to a request of the handshake.
fn result_of(rpc: &Rpc, reply: Result<Reply, Unanswered>) -> Result<Box<RawValue>, Failure> {
    match reply {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(Failure::Refused(error_data(error))),
        Err(_) if rpc.echoes() => Err(Failure::Echo),
        Err(Unanswered::Known(CallError::NotRead(why))) => {
            Err(Failure::Refused(ErrorData::internal_error(why.to_string(), None)))
        }
        Err(Unanswered::Transport(failure)) => Err(Failure::transport(failure, rpc)),
        Err(Unanswered::Known(_) | Unanswered::Ended) => Err(Failure::Closed),
    }
}

/// What an answer to `server/discover` agrees to.
fn agreement_on_discover(
    rpc: &Rpc,
    reply: Result<Reply, Unanswered>,
) -> Result<Agreement, Failure> {
    let result = result_of(rpc, reply)?;
    let discovered = rpc.handshake.lock().discovered(&result);
    let (revisions, capabilities): (Vec<ProtocolVersion>, ServerCapabilities) =
        discovered.map_err(unfit)?;
    let revision = ProtocolVersion::V_2026_07_28;
    if !revisions.contains(&revision) {
        let supported = json!({ "supported": revisions });
        let why = "it speaks other revisions";
        let code = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION;
        return Err(Failure::Refused(ErrorData::new(code, why, Some(supported))));
    }
    let info = ServerInfo { protocol_version: revision, capabilities };
    Ok(Agreement { info, proposal: None })
}

/// What an answer to the `initialize` with `proposal` agrees to.
fn agreement_on_initialize(
    rpc: &Rpc,
    reply: Result<Reply, Unanswered>,
    proposal: &Proposal,
) -> Result<Agreement, Failure> {
    let result = result_of(rpc, reply)?;
    let initialized = rpc.handshake.lock().initialized(&result);
    Ok(Agreement { info: initialized.map_err(unfit)?, proposal: Some(proposal.clone()) })
}

fn unfit(why: NoHandshake) -> Failure {
    match why {
        NoHandshake::Revision => Failure::NoRevision,
        NoHandshake::Form => {
            let why = "the server answered the handshake with something else";
            Failure::Refused(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None))
        }
    }
}

#[cfg(test)]
mod tests;
