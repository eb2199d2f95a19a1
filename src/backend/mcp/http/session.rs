//! Whether an answer says that the server has forgotten the session of the request. A server that
//! was restarted, or that lets idle sessions go, says so in many ways, and not only by the 404 that
//! the specification asks for. If the bridge misses one, every call fails while the backend looks
//! ready.
//!
//! Must not: do IO, or decide what becomes of the request.

use http::StatusCode;
use serde_json::value::RawValue;

use crate::backend::ErrorReply;
use crate::backend::mcp::rpc::error_of;
use crate::model::Members;
use crate::model::mcp::error_code;

/// What an answer to a request with a session's id says about the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It says nothing against the session.
    Holds,
    /// It speaks of a lost session, but a tool may have said that about another session, after it
    /// began its work. The request must not be sent again.
    Doubtful,
    /// The server did not run the request, as it knows no such session.
    Lost,
}

/// The JSON-RPC errors of requests that a server refuses before it runs them, even with the id of
/// the request. -32001 is the TypeScript SDK's code for an unknown session. 32600 is what the
/// Python SDK makes of a 404 that it got from the server behind it.
const REFUSED_UNREAD: [i32; 3] = [-32001, error_code::INVALID_REQUEST, 32600];

/// What the TypeScript SDK says with the same code -32001 of a request that took too long, which
/// may have run: a tool that asks another server passes that error on.
const TIMED_OUT: &str = "timed out";

/// The JSON-RPC errors about the method or the arguments of a request: parse error, no such method,
/// invalid parameters. Their texts may quote arguments, which may be about sessions: at most they
/// leave it in doubt.
const ABOUT_REQUEST: [i32; 3] =
    [error_code::PARSE_ERROR, error_code::METHOD_NOT_FOUND, error_code::INVALID_PARAMS];

/// The JSON-RPC error without a fixed meaning. Transports use it for requests that they refuse.
const BY_TRANSPORT: i32 = -32000;

/// What is said of a session that a server does not know.
const LOST: [&str; 35] = [
    "not found",
    "cannot find",
    "could not find",
    "couldn't find",
    "can't find",
    "no valid",
    "not valid",
    "no longer valid",
    "invalid",
    "expired",
    "unknown",
    "not known",
    "unrecognized",
    "not recognized",
    "terminated",
    "closed",
    "ended",
    "timed out",
    "missing",
    "required",
    "must be provided",
    "not provided",
    "not exist",
    "doesn't exist",
    "no longer",
    "no such",
    "no active",
    "no session",
    "not active",
    "inactive",
    "not initialized",
    "not initialised",
    "deleted",
    "stale",
    "lost",
];

/// What is said of a lost session without the word.
const UNINITIALIZED: [&str; 6] = [
    "server not initialized",
    "server not initialised",
    "uninitialized",
    "initialize request",
    "before initialization",
    "no transport found",
];

/// The words before `session` in a text about the session of the request. A tool that has a session
/// of its own says which: a browser's, a checkout's, a user's.
const PLAIN: [&str; 24] = [
    "", "a", "active", "any", "bad", "current", "existing", "expired", "for", "given", "invalid",
    "mcp", "missing", "no", "of", "such", "that", "the", "this", "unknown", "valid", "with",
    "without", "your",
];

/// How many bytes may stand between the word `session` and what is said of it.
const NEAR: usize = 60;

/// What a text says about the session of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Nothing,
    /// A session is lost, but it may be a tool's own.
    OfSomeSession,
    /// The session of the request is lost.
    OfThisSession,
}

/// What the answer with this status and body says about the session. `own_id` is the id of the
/// request, if it has one.
///
/// Two faults are to be avoided. If a lost session is missed, every later call fails. If an error
/// of a tool counts as one, the tool runs twice, and other calls on the session are cut off. So an
/// answer that a tool may have given counts only if its code says that the request was not run.
pub(super) fn verdict(status: StatusCode, body: &str, own_id: Option<i64>) -> Verdict {
    let error = RpcError::read(body);
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => match error {
            // Servers also answer 404 where there is no such method or tool.
            Some(error)
                if error.is_about_request() && word_of(&error.reply.message) == Word::Nothing =>
            {
                Verdict::Holds
            }
            _ => Verdict::Lost,
        },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Verdict::Holds,
        status if status.is_client_error() => refused(status, body, error),
        _ => match error {
            Some(error) => answered(&error, own_id),
            None if is_note(body) && word_of(body) > Word::Nothing => Verdict::Doubtful,
            None => Verdict::Holds,
        },
    }
}

/// Whether a body is for the client, and no JSON-RPC message: a page of HTML is for a person, whose
/// own session it may mean.
fn is_note(body: &str) -> bool {
    let is_page = body.trim_start().starts_with('<');
    let is_message = Members::read(body)
        .is_ok_and(|members| members.get("result").is_some() || members.get("method").is_some());
    !is_page && !is_message
}

/// Whether a refusal with this status and body says that the server does not know the session.
pub(in crate::backend::mcp) fn says_no_session(status: StatusCode, body: &str) -> bool {
    status.is_client_error() && verdict(status, body, None) == Verdict::Lost
}

/// The verdict on a refusal by the server, or by a gateway before it: the request has not run.
fn refused(status: StatusCode, body: &str, error: Option<RpcError>) -> Verdict {
    let is_in_doubt = error.as_ref().is_some_and(RpcError::is_about_request)
        // A conflict is found by what runs.
        || status == StatusCode::CONFLICT;
    let word = match error {
        Some(RpcError { reply, id }) => {
            let by_transport = status == StatusCode::BAD_REQUEST
                && reply.code == BY_TRANSPORT
                && id.is_none()
                && !reply.message.to_lowercase().contains("protocol version");
            if by_transport { Word::OfThisSession } else { word_of(&reply.message) }
        }
        None if is_note(body) => word_of(body),
        None => Word::Nothing,
    };
    match word {
        Word::Nothing => Verdict::Holds,
        Word::OfThisSession if !is_in_doubt => Verdict::Lost,
        Word::OfThisSession | Word::OfSomeSession => Verdict::Doubtful,
    }
}

/// The verdict on an error that a tool may have given.
fn answered(error: &RpcError, own_id: Option<i64>) -> Verdict {
    let word = word_of(&error.reply.message);
    if word == Word::Nothing {
        return Verdict::Holds;
    }
    if error.is_about_request() {
        return Verdict::Doubtful;
    }
    // A server that runs a request answers with its id.
    let is_correlated = error.id.is_some() && error.id == own_id;
    let is_unread = REFUSED_UNREAD.contains(&error.reply.code)
        && word == Word::OfThisSession
        && !error.reply.message.to_lowercase().contains(TIMED_OUT);
    if is_unread || !is_correlated { Verdict::Lost } else { Verdict::Doubtful }
}

/// A JSON-RPC error, and the number that its id is or holds, if there is one.
struct RpcError {
    reply: ErrorReply,
    id: Option<i64>,
}

impl RpcError {
    fn read(body: &str) -> Option<Self> {
        let members = Members::read(body).ok()?;
        let error = members.get("error").filter(|error| error.get().starts_with('{'))?;
        let id = members.get("id").map(RawValue::get);
        let id = id.and_then(|id| id.trim_matches('"').parse().ok());
        // Gateways and frameworks put other errors into such a member.
        Members::read(error.get()).ok()?.get("code")?.get().parse::<i64>().ok()?;
        Some(Self { reply: error_of(error), id })
    }

    fn is_about_request(&self) -> bool {
        ABOUT_REQUEST.contains(&self.reply.code)
    }
}

/// Whether `text` says of a session that the server does not know it, and of which. Both have to
/// stand near each other: a text that quotes a request may have `session` in one place and
/// `invalid` in another.
fn word_of(text: &str) -> Word {
    let text = text.to_lowercase();
    let words = text.match_indices("session").filter_map(|(at, word)| {
        let before = text.get(..at).unwrap_or_default();
        let from = before.len().saturating_sub(NEAR);
        let from = (from..=at).find(|from| text.is_char_boundary(*from)).unwrap_or(at);
        let to = at + word.len() + NEAR;
        let to = (at..=to.min(text.len())).rev().find(|to| text.is_char_boundary(*to));
        let around = text.get(from..to.unwrap_or(at)).unwrap_or_default();
        let is_lost = LOST.iter().any(|words| around.contains(words));
        is_lost.then(|| if is_plain(before) { Word::OfThisSession } else { Word::OfSomeSession })
    });
    // A text may speak of two: it is about the one that a tool has named.
    if let Some(word) = words.min() {
        return word;
    }
    let is_uninitialized = UNINITIALIZED.iter().any(|words| text.contains(words));
    if is_uninitialized { Word::OfThisSession } else { Word::Nothing }
}

/// Whether the word at the end of `before`, which is followed by `session`, leaves it the session
/// of the request.
fn is_plain(before: &str) -> bool {
    // `mcp-session-id` is a header, and `"session"` a member.
    let before = before.trim_end_matches([' ', '-', '_']);
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    PLAIN.contains(&word)
}

#[cfg(test)]
mod tests;
