//! What a server sends: responses settle open requests, requests are answered, notifications noted.
//!
//! Must not: do IO.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rmcp::model::{CancelledNotificationParam, ErrorCode, ProgressToken, RequestId};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{Kind, MAX_QUESTIONS, OpenRequest, Rpc, STRAYS_ASK, Untaken, error_of, number};
use crate::backend::mcp::handler;
use crate::backend::{CallError, NotRead, Progress};
use crate::model::mcp::{method, notification};
use crate::model::{Members, member};

const TOKEN: &str = "progressToken";
/// The notifications of a changed list.
const CHANGES: [&str; 3] =
    [notification::TOOLS_CHANGED, notification::RESOURCES_CHANGED, notification::PROMPTS_CHANGED];

/// What became of a message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::backend::mcp) enum Incoming {
    Taken,
    /// The message answers no open request, or says nothing that matters; the text says which.
    Ignored(&'static str),
    /// The text is no JSON-RPC message.
    Garbage,
}

impl Rpc {
    /// Handles a message of the server.
    pub(in crate::backend::mcp) fn incoming(self: &Arc<Self>, text: &str) -> Incoming {
        let Some(envelope) = Envelope::read(text) else { return Incoming::Garbage };
        self.messages.fetch_add(1, Ordering::Relaxed);
        match (&envelope.method, &envelope.id) {
            (Some(method), Some(id)) => {
                handler::answer(self, id, method, member(text, "params"));
                Incoming::Taken
            }
            (Some(method), None) => self.notified(method, member(text, "params")),
            (None, id) => match id.as_ref().and_then(number) {
                Some(id) => self.response(&envelope, id, text.len()),
                None => self.without_id(&envelope, text.len()),
            },
        }
    }

    /// Handles a message that came in the answer to the request `id` alone. Some servers and
    /// gateways leave out the id of an error, or write another one. If that were no answer, the
    /// call would end with an unknown outcome, and the server's own words would be lost.
    pub(in crate::backend::mcp) fn answer_to(self: &Arc<Self>, id: i64, text: &str) -> Incoming {
        match Envelope::read(text) {
            Some(envelope) if self.is_uncorrelated(&envelope) => {
                self.response(&envelope, id, text.len())
            }
            _ => self.incoming(text),
        }
    }

    /// Ends the request `id`, whose response was not read for the reason `why`; whether there is
    /// such a request.
    pub(in crate::backend::mcp) fn not_read(&self, id: &RequestId, why: NotRead) -> bool {
        let request = number(id).and_then(|id| self.open.lock().remove(&id));
        let Some(request) = request else { return false };
        request.settle(Err(CallError::NotRead(why)));
        true
    }

    /// Ends the request `id`, which the server did not run, as it has forgotten the session. The
    /// connection is of no more use.
    pub(in crate::backend::mcp) fn no_session(&self, id: i64) {
        let why = "the server has forgotten the session";
        self.lose(why);
        if let Some(request) = self.open.lock().remove(&id) {
            request.without_session();
            request.settle(Err(CallError::NoSession(why.to_owned())));
        }
    }

    /// Begins the server's question `id`: the token is cancelled when the server withdraws it.
    /// `None` if too many are open.
    pub(in crate::backend::mcp) fn open_question(
        &self,
        id: &RequestId,
    ) -> Option<CancellationToken> {
        let mut questions = self.questions.lock();
        if questions.len() >= MAX_QUESTIONS {
            return None;
        }
        let withdrawn = self.ended.child_token();
        questions.insert(id.clone(), withdrawn.clone());
        Some(withdrawn)
    }

    /// Ends the server's question `id`; false if the server has withdrawn it, and wants no
    /// response.
    pub(in crate::backend::mcp) fn end_question(&self, id: &RequestId) -> bool {
        self.questions.lock().remove(id).is_some()
    }

    /// The progress of the call that a question of the server belongs to. A question does not name
    /// its call, so there is none while the server works on several, or may still work on one that
    /// was given up: it would reach the wrong person.
    pub(in crate::backend::mcp) fn call_in_question(&self) -> Option<Progress> {
        if self.has_strays() {
            return None;
        }
        let open = self.open.lock();
        let mut requests = open.values().filter(|request| request.is_for_user());
        let only = requests.next().filter(|_| requests.next().is_none())?;
        if only.kind == Kind::Call { Some(only.progress.clone()) } else { None }
    }

    /// Notes that the server has sent back a request of the handshake: it is no MCP server, and an
    /// answer to it would come back, too.
    pub(in crate::backend::mcp) fn echoed(&self) {
        self.handshake.lock().echoes = true;
        for (_, request) in self.open.lock().drain() {
            request.settle(Err(CallError::Unreadable("it sends back what it gets".to_owned())));
        }
    }

    /// Handles a notification.
    fn notified(&self, method: &str, params: Option<&RawValue>) -> Incoming {
        match method {
            notification::PROGRESS => {
                self.progressed(params);
                return Incoming::Ignored("it tells of progress");
            }
            // The first list is read after the handshake anyway.
            change if CHANGES.contains(&change) && self.info().is_some() => {
                self.changed.notify_one();
            }
            notification::ACKNOWLEDGED => self.subscribed.notify_one(),
            notification::CANCELLED => self.withdrawn(params),
            "notifications/message" => handler::log(self, params),
            _ => (),
        }
        Incoming::Taken
    }

    /// Handles that the server withdraws a question of its own, or ends a subscription.
    fn withdrawn(&self, params: Option<&RawValue>) {
        let params = params.and_then(|params| {
            serde_json::from_str::<CancelledNotificationParam>(params.get()).ok()
        });
        let Some(id) = params.and_then(|params| params.request_id) else { return };
        if let Some(question) = self.questions.lock().remove(&id) {
            return question.cancel();
        }
        let mut open = self.open.lock();
        let subscription = number(&id)
            .filter(|id| open.get(id).is_some_and(|request| request.method == method::LISTEN));
        if let Some(request) = subscription.and_then(|id| open.remove(&id)) {
            request.settle(Err(CallError::Lost("the server cancelled it".to_owned())));
        }
    }

    /// Touches the call that a notification of progress is about. The rest of the notification is
    /// not read: it is only passed on, and its content may be malformed.
    fn progressed(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let id = member(params.get(), TOKEN)
            .and_then(|token| serde_json::from_str::<ProgressToken>(token.get()).ok())
            .and_then(|token| number(&token.0));
        let Some(id) = id else { return };
        let open_request = self.open.lock().get(&id).cloned();
        let mut tasks: Vec<_> = self.tasks.lock().iter().filter_map(Weak::upgrade).collect();
        tasks.retain(|request| request.id == id);
        for request in open_request.into_iter().chain(tasks) {
            request.progress.report(params);
        }
    }

    /// Handles a response of `size` bytes to the request `id`.
    fn response(&self, envelope: &Envelope<'_>, id: i64, size: usize) -> Incoming {
        let request = self.open.lock().remove(&id);
        if let Some(request) = request {
            self.settle(&request, envelope, size);
            return Incoming::Taken;
        }
        if self.take_late_discovery(id, envelope.result) {
            return Incoming::Ignored("it changes the revision");
        }
        if self.strays.lock().remove(&id).is_none() {
            self.oddities.strayed(id);
        }
        Incoming::Ignored("it answers no request that is waited for")
    }

    /// Puts the outcome, verbatim, into `request`, and counts its bytes until it is taken.
    fn settle(&self, request: &OpenRequest, envelope: &Envelope<'_>, size: usize) {
        request.count(Untaken::new(size, &self.untaken));
        if let Some(error) = envelope.error {
            request.settle(Ok(Err(error_of(error))));
        } else if let Some(result) = envelope.result {
            request.settle(Ok(Ok(result.to_owned())));
        }
    }

    /// Whether a message is a response that names no request which waits: for a result, only if it
    /// names none at all, as it may be another client's otherwise.
    fn is_uncorrelated(&self, envelope: &Envelope<'_>) -> bool {
        if envelope.method.is_some() {
            return false;
        }
        match envelope.id.as_ref().and_then(number) {
            Some(id) => envelope.error.is_some() && !self.open.lock().contains_key(&id),
            None => envelope.error.is_some() || !envelope.has_odd_id,
        }
    }

    /// Handles an error response without an id on a stream that several requests share. In a
    /// handshake, it answers the first request: a server reads them in their order. Otherwise, if
    /// only one waits, and none was given up before, it is the answer to that one: a server that
    /// runs a request knows its id (JSON-RPC 2.0 §5), so nothing has run. Without this, the request
    /// would wait for ever.
    fn without_id(&self, envelope: &Envelope<'_>, size: usize) -> Incoming {
        if envelope.has_odd_id {
            return Incoming::Ignored("it answers no request of the bridge's");
        }
        let mut open = self.open.lock();
        let handshakes = open.values().filter(|request| request.kind == Kind::Handshake);
        let first = handshakes.map(|request| request.id).min();
        let only = match open.values().next() {
            Some(request) if open.len() == 1 && request.kind != Kind::Aside => Some(request.id),
            _ => None,
        };
        let request = first.or(only).filter(|_| envelope.error.is_some());
        let Some(request) = request.and_then(|id| open.remove(&id)) else {
            return Incoming::Ignored("it is a response without the id of its request");
        };
        drop(open);
        if let Some(error) = envelope.error.map(error_of)
            && first.is_none()
            && self.has_strays()
            && ![ErrorCode::PARSE_ERROR.0, ErrorCode::INVALID_REQUEST.0].contains(&error.code)
        {
            let why = format!("an error without the id of its request: {}", error.message);
            // Of two outcomes, the first counts.
            request.settle(Err(CallError::Unreadable(why)));
        }
        self.settle(&request, envelope, size);
        Incoming::Taken
    }

    /// Whether the server may still work on a request that was given up.
    fn has_strays(&self) -> bool {
        self.strays.lock().values().any(|since| since.elapsed() < STRAYS_ASK)
    }
}

/// The parts of a JSON-RPC message, each still unparsed.
struct Envelope<'a> {
    id: Option<RequestId>,
    /// It has an id that no request of the bridge's can have.
    has_odd_id: bool,
    method: Option<String>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let members = Members::read(text).ok()?;
        let is_there = |value: &&RawValue| value.get() != "null";
        let raw_id = members.get("id").filter(is_there);
        let id: Option<RequestId> = raw_id.and_then(|id| serde_json::from_str(id.get()).ok());
        let has_odd_id = raw_id.is_some() && id.as_ref().and_then(number).is_none();
        let method = members.string("method");
        let result = members.get("result");
        // Older libraries write `"error": null` beside a result.
        let error = members.get("error").filter(is_there);
        let says_something = method.is_some() || result.is_some() || error.is_some();
        says_something.then_some(Self { id, has_odd_id, method, result, error })
    }
}
