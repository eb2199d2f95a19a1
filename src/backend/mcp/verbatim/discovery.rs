//! The answer to `server/discover` that comes after the one to `initialize`. Until the first call,
//! it still makes the connection one of revision 2026-07-28: otherwise the revision of a program
//! would depend on how busy the machine was when it started.
//!
//! Must not: do IO, or send anything again.

use std::borrow::Cow;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, GetMeta as _, JsonRpcMessage, ProtocolVersion, RequestId, ServerPeerInfo,
    ServerResult,
};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::ConnectionState;
use super::handshake::Kind;
use crate::backend::mcp::handler;

/// The state of that answer.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// The id of the request, while the answer still counts.
    awaited: Mutex<Option<i64>>,
    /// What the server has answered.
    info: OnceLock<ServerPeerInfo>,
    arrived: Notify,
}

impl ConnectionState {
    /// Lets the answer to the `server/discover` with this id count from now on.
    pub(in crate::backend::mcp) fn await_discovery(&self, id: i64) {
        self.forget_handshake(id);
        *self.discovery.awaited.lock() = Some(id);
    }

    /// Whether the revision may still change, or has changed.
    pub(in crate::backend::mcp) fn may_be_discovered(&self) -> bool {
        self.discovery.awaited.lock().is_some() || self.discovered().is_some()
    }

    /// Fixes the revision, since a call is about to be sent.
    pub(in crate::backend::mcp) fn end_discovery(&self) {
        *self.discovery.awaited.lock() = None;
    }

    /// What the server has answered late, if it has.
    pub(in crate::backend::mcp) fn discovered(&self) -> Option<&ServerPeerInfo> {
        self.discovery.info.get()
    }

    /// Waits for the late answer, for ever if there is none.
    pub(in crate::backend::mcp) async fn late_discovery(&self) -> &ServerPeerInfo {
        loop {
            // Made first, so that an answer which comes now is noticed.
            let arrived = self.discovery.arrived.notified();
            if let Some(info) = self.discovered() {
                return info;
            }
            arrived.await;
        }
    }

    /// Stops expecting an answer to a request of the handshake.
    pub(in crate::backend::mcp) fn forget_handshake(&self, id: i64) {
        self.forget(&RequestId::Number(id));
    }

    /// Notes the body of an HTTP refusal, which may say what a server would accept. It is not
    /// shown: servers repeat the headers that they refuse, and those are secrets.
    pub(in crate::backend::mcp) fn note_refusal(&self, body: &str) {
        let mut handshake = self.handshake.lock();
        if !handshake.established {
            handshake.refusal = Some(body.to_owned());
        }
    }

    pub(in crate::backend::mcp) fn take_refusal(&self) -> Option<String> {
        self.handshake.lock().refusal.take()
    }

    /// Takes `text` if it is the late answer. If it names 2026-07-28, the connection is of that
    /// revision.
    pub(super) fn take_late_discovery(
        &self,
        id: i64,
        text: &str,
        result: Option<&RawValue>,
    ) -> bool {
        let mut awaited = self.discovery.awaited.lock();
        if *awaited != Some(id) {
            return false;
        }
        *awaited = None;
        let revision = ProtocolVersion::V_2026_07_28;
        if !result.is_some_and(|result| result.get().contains(revision.as_str())) {
            return true;
        }
        let message = self.handshake.lock().take(Kind::Discover, text, id, result);
        if let JsonRpcMessage::Response(response) = message
            && let ServerResult::DiscoverResult(result) = response.result
        {
            let info = ServerPeerInfo::from_discover_result(revision, result);
            // The id was awaited once.
            let _first = self.discovery.info.set(info).is_ok();
            self.handshake.lock().repeated = false;
            self.discovery.arrived.notify_waiters();
            // The definitions of its tools may be others in this revision.
            self.changed.notify_one();
        }
        true
    }

    /// `message` as a server expects it once it has answered late: rmcp was given the earlier
    /// revision, and does not say in each request what that revision says once.
    pub(super) fn in_revision<'a>(
        &self,
        message: &'a ClientJsonRpcMessage,
    ) -> Cow<'a, ClientJsonRpcMessage> {
        if self.discovered().is_none() || !matches!(message, JsonRpcMessage::Request(_)) {
            return Cow::Borrowed(message);
        }
        let mut message = message.clone();
        if let JsonRpcMessage::Request(request) = &mut message {
            request.request.get_meta_mut().extend(handler::request_context());
        }
        Cow::Owned(message)
    }
}
