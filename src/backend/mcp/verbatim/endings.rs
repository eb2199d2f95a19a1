//! How requests end by something else than a response with their id.
//!
//! Must not: do IO.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{
    ConnectionState, Envelope, Incoming, STRAYS_ASK, Waiting, error_of, number, unreadable,
};
use crate::backend::{CallError, ErrorReply, NotRead};

impl ConnectionState {
    /// Ends the request `id`, whose response was not read for the reason `why`; with a message for
    /// rmcp, if it knows the request.
    pub(in crate::backend::mcp) fn not_read(
        &self,
        id: &RequestId,
        why: NotRead,
    ) -> Option<ServerJsonRpcMessage> {
        let id = number(id)?;
        if let Waiting::Raw(raw_request) = self.waiting.lock().remove(&id)? {
            raw_request.settle(Err(CallError::NotRead(why)));
            if raw_request.is_direct.load(Ordering::Relaxed) {
                return None;
            }
        }
        Some(unreadable(id, &why.to_string()))
    }

    /// Ends the request `id`, which the server did not run, as it has forgotten the session; with a
    /// message for rmcp, if it knows the request. The connection is of no more use.
    pub(in crate::backend::mcp) fn no_session(
        &self,
        id: &RequestId,
    ) -> Option<ServerJsonRpcMessage> {
        let why = "the server has forgotten the session";
        self.lose(why);
        let id = number(id)?;
        if let Waiting::Raw(raw_request) = self.waiting.lock().remove(&id)? {
            raw_request.without_session();
            raw_request.settle(Err(CallError::NoSession(why.to_owned())));
        }
        Some(unreadable(id, why))
    }

    /// Handles a message that came in the answer to the request `id` alone. Some servers and
    /// gateways leave out the id of an error, or write another one. If that were no answer, the
    /// call would end with an unknown outcome, and the server's own words would be lost.
    pub(in crate::backend::mcp) fn answer_to(&self, id: &RequestId, text: &str) -> Incoming {
        match (Envelope::read(text), number(id)) {
            (Some(envelope), Some(id)) if self.is_uncorrelated(&envelope) => {
                match envelope.error.filter(|_| !self.expects_raw(id)) {
                    Some(error) => self.error_for_rmcp(id, error),
                    None => self.response(&envelope, id, text),
                }
            }
            _ => self.incoming(text),
        }
    }

    /// Whether a message is a response that names no request which waits: for a result, only if it
    /// names none at all, as it may be another client's otherwise.
    fn is_uncorrelated(&self, envelope: &Envelope<'_>) -> bool {
        if envelope.method.is_some() {
            return false;
        }
        match envelope.id.as_ref().and_then(number) {
            Some(id) => envelope.error.is_some() && !self.waiting.lock().contains_key(&id),
            None => envelope.error.is_some() || !envelope.has_odd_id,
        }
    }

    fn expects_raw(&self, id: i64) -> bool {
        self.waiting.lock().get(&id).is_some_and(|one| one.raw().is_some())
    }

    /// The error of a request that rmcp has made by itself.
    fn error_for_rmcp(&self, id: i64, error: &RawValue) -> Incoming {
        self.waiting.lock().remove(&id);
        let ErrorReply { code, message, data } = error_of(error);
        let data = data.and_then(|data| serde_json::from_str(data.get()).ok());
        let error = ErrorData::new(ErrorCode(code), message, data);
        Incoming::Message(Box::new(JsonRpcMessage::error(error, Some(RequestId::Number(id)))))
    }

    /// Handles an error response without an id on a stream that several requests share. If only one
    /// waits, and none was given up before, it is the answer to that one: a server that runs a
    /// request knows its id (JSON-RPC 2.0 §5), so nothing has run. rmcp drops such a response, and
    /// its request would wait for ever.
    pub(super) fn without_id(&self, envelope: &Envelope<'_>) -> Incoming {
        if envelope.has_odd_id {
            return Incoming::Ignored("it answers no request of the bridge's");
        }
        let has_strays = self.has_strays();
        let mut waiting = self.waiting.lock();
        if waiting.len() == 1
            && let Some(error) = envelope.error
            && let Some((&id, Waiting::Raw(raw_request))) = waiting.iter().next()
        {
            let raw_request = Arc::clone(raw_request);
            waiting.clear();
            let error = error_of(error);
            let unread = [ErrorCode::PARSE_ERROR.0, ErrorCode::INVALID_REQUEST.0];
            if has_strays && !unread.contains(&error.code) {
                let why = format!("an error without the id of its request: {}", error.message);
                // Of two outcomes, the first counts.
                raw_request.settle(Err(CallError::Unreadable(why)));
            }
            return envelope.settle(id, &raw_request);
        }
        match envelope.error {
            Some(error) if waiting.values().any(|one| matches!(one, Waiting::Handshake(_))) => {
                let ErrorReply { code, message, data } = error_of(error);
                let data = data.and_then(|data| serde_json::from_str(data.get()).ok());
                let error = ErrorData::new(ErrorCode(code), message, data);
                Incoming::Message(Box::new(JsonRpcMessage::error(error, None)))
            }
            _ => Incoming::Ignored("it is a response without the id of its request"),
        }
    }

    /// Whether the server may still work on a request that was given up.
    pub(super) fn has_strays(&self) -> bool {
        let may_be_worked_on = |since: &Instant| since.elapsed() < STRAYS_ASK;
        self.strays.lock().values().any(may_be_worked_on)
    }
}
