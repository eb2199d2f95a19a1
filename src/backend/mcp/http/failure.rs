//! What can fail between the bridge and a server on HTTP: its words, its kind and its cure.
//!
//! Must not: show a body, or send anything.

use std::borrow::Cow;

use http::StatusCode;

use super::{answers, pause};
use crate::backend::{CallError, NotRead, PeerError, PeerErrorKind, RequestedPause};
use crate::http_client;
use crate::oauth::TokenError;

/// What an operator does about a pause after too many requests.
const PAUSE_CURE: &str = "wait: the bridge asks again when the pause is over; if it comes often, lower \
    the entry's `concurrency` or set a `quota`, or have the server allow more";
/// What an operator does about the pause of a server that is overloaded, or is not there.
const OUTAGE_CURE: &str = "wait: the bridge asks again when the pause is over; if it lasts, see the log of \
    the server, or of the gateway before it";

/// A failure between the server and the bridge; the text is for operators.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::backend::mcp) enum HttpFailure {
    /// No server has run the request.
    #[error("{0}")]
    NotSent(String, Option<Cow<'static, str>>),
    /// The request or the response was lost on the way.
    #[error("{0}")]
    Lost(String, Option<Cow<'static, str>>),
    /// The request was not sent because there is no token, or the server refused a new token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server does not know the session of the request, which has not run.
    #[error("the server has forgotten the session (HTTP {0})")]
    NoSession(StatusCode),
    /// The server has asked for a pause, and runs nothing before its end.
    #[error("{}", pause::paused(*.0))]
    Paused(RequestedPause),
    /// The server speaks the older HTTP+SSE.
    #[error("the server speaks the older HTTP+SSE: set `transport: sse`, or leave `transport` out")]
    Older,
    /// The response cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A compressed body, which the bridge cannot read.
    #[error("HTTP {_0} with a body in the encoding `{_1}`, which the bridge has not asked for")]
    Encoded(StatusCode, String),
    /// A web page in the place of a message.
    #[error("HTTP {_0} with a web page, where an MCP server has JSON")]
    Page(StatusCode),
    #[error("the reply is not read: {0}")]
    NotRead(NotRead),
    /// The server, or a gateway before it, refused the request.
    #[error("HTTP {}{}", .0, answers::hint(*.0))]
    Status(StatusCode),
}

impl HttpFailure {
    /// Whether it is certain that no server has run the request.
    pub(in crate::backend::mcp) fn is_unsent(&self) -> bool {
        matches!(self, Self::NotSent(..) | Self::Token(_) | Self::NoSession(_) | Self::Paused(_))
    }

    /// Whether the failure comes from a server, which might accept another request.
    pub(in crate::backend::mcp) fn is_by_server(&self) -> bool {
        self.kind() == PeerErrorKind::Protocol
    }

    pub(in crate::backend::mcp) fn kind(&self) -> PeerErrorKind {
        match self {
            Self::NotSent(..) | Self::Lost(..) | Self::NoSession(_) | Self::Paused(_) => {
                PeerErrorKind::Connect
            }
            Self::Token(error) => error.into(),
            Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                PeerErrorKind::Unauthorized
            }
            Self::Older
            | Self::Unreadable(_)
            | Self::Encoded(..)
            | Self::Page(_)
            | Self::NotRead(_)
            | Self::Status(_) => PeerErrorKind::Protocol,
        }
    }

    /// What to do about it, if the failure says that.
    pub(in crate::backend::mcp) fn cure(&self) -> Option<Cow<'static, str>> {
        let fixed = match self {
            Self::NotSent(_, cure) | Self::Lost(_, cure) => return cure.clone(),
            Self::Encoded(..) => Some(answers::ENCODING_CURE),
            Self::Paused(pause) if pause.status == StatusCode::TOO_MANY_REQUESTS => {
                Some(PAUSE_CURE)
            }
            Self::Paused(_) => Some(OUTAGE_CURE),
            Self::Page(_) => Some(answers::PAGE_CURE),
            Self::Status(status) => answers::cure(*status),
            _ => None,
        };
        fixed.map(Cow::Borrowed)
    }

    /// The failure as one of the server.
    pub(in crate::backend::mcp) fn peer_error(&self) -> PeerError {
        let pause = if let Self::Paused(pause) = self { Some(*pause) } else { None };
        let error = PeerError::new(self.kind(), self.to_string());
        error.with_cure(self.cure()).with_pause(pause)
    }

    /// Whether the failure is the answer of a server with the older HTTP+SSE transport to the first
    /// POST of Streamable HTTP, by the specification.
    pub(in crate::backend::mcp) fn may_be_older(&self) -> bool {
        let status = match self {
            Self::Older => return true,
            Self::Status(status) => status,
            _ => return false,
        };
        matches!(
            *status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        )
    }

    /// What the caller of a request is told if the failure is an answer; `None` if the connection
    /// was merely lost. A body is left out, as it may hold text that is not meant for the model.
    pub(in crate::backend::mcp) fn call_error(&self) -> Option<CallError> {
        Some(match self {
            Self::Unreadable(why) => CallError::Unreadable(why.clone()),
            Self::NotRead(why) => CallError::NotRead(*why),
            Self::NotSent(..) | Self::Lost(..) | Self::Token(_) | Self::NoSession(_) => {
                return None;
            }
            Self::Paused(pause) => CallError::paused(*pause),
            Self::Status(status) if http_client::leaves_outcome_open(*status) => return None,
            Self::Status(status) => CallError::Refused(format!("HTTP {status}")),
            Self::Older | Self::Page(_) | Self::Encoded(..) => {
                CallError::Unreadable(self.to_string())
            }
        })
    }
}
