//! Why an agent gave no result, and whether it may have accepted the message.
//!
//! Must not: know how a refusal looks on the wire.

use std::time::Duration;

use a2a::error_code;
use http::StatusCode;
use serde_json::value::RawValue;

use crate::backend::{CallError, NotRead};
use crate::model::{Ending, visible};
use crate::oauth::TokenError;

/// How many bytes of the name of a media type are shown.
const MAX_MEDIA_TYPE: usize = 60;

/// Why an exchange brought no result.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::From)]
pub(super) enum A2aFailure {
    /// The agent's own refusal: `code` is JSON-RPC's, or the one that matches its HTTP status.
    #[from(skip)]
    Refused {
        code: Option<i64>,
        status: StatusCode,
        text: String,
        /// The pause that the refusal asks for (`Retry-After`).
        pause: Option<Duration>,
    },
    /// Any other, which is not [`CallError::Refused`].
    Call(CallError),
}

/// What an exchange brings: the result as JSON, or a value on the way to it.
pub(super) type A2aResult<T = Box<RawValue>> = Result<T, A2aFailure>;

impl A2aFailure {
    /// The reply does not follow the protocol. The model is told `why`: what the agent has done.
    pub(super) fn unclear(why: impl Into<String>) -> Self {
        CallError::Unclear { why: why.into(), ending: Ending::Unreadable }.into()
    }

    /// This failure to read a response, with its media type where that is the cause.
    pub(super) fn of_media_type(self, media_type: &str) -> Self {
        match self {
            Self::Call(CallError::Unclear { why, ending })
                if !media_type.is_empty() && !media_type.ends_with("json") =>
            {
                let media_type = visible::line(media_type, MAX_MEDIA_TYPE);
                let why = format!("{why}, but of the type {media_type}");
                Self::Call(CallError::Unclear { why, ending })
            }
            other => other,
        }
    }

    /// The agent may have received the request.
    pub(super) fn lost(why: impl Into<String>) -> Self {
        CallError::Lost(why.into()).into()
    }

    /// Whether the same request about a task may succeed later. The task goes on meanwhile. A task
    /// that is not found may be found later: behind a balancer, another replica may have it, and
    /// some servers store a task only after they have named it.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Call(error) => !matches!(error, CallError::NotRead(NotRead::TooLarge { .. })),
            // A gateway may have refused, which knows nothing of tasks.
            Self::Refused { code: None, .. } => true,
            Self::Refused { status, .. } => {
                self.has_code(error_code::INTERNAL_ERROR)
                    || self.has_code(error_code::TASK_NOT_FOUND)
                    || status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
                    )
            }
        }
    }

    /// Whether the agent did not accept the message: nothing has run.
    pub(super) fn nothing_was_accepted(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Call(CallError::NotSent(_)))
    }

    pub(super) fn pause(&self) -> Option<Duration> {
        if let Self::Refused { pause, .. } = self { *pause } else { None }
    }

    /// Whether the agent may accept the same message without its task or conversation. If so,
    /// nothing has run.
    pub(super) fn may_reject_context(&self) -> bool {
        const CODES: [i32; 4] = [
            error_code::TASK_NOT_FOUND,
            error_code::UNSUPPORTED_OPERATION,
            error_code::INVALID_REQUEST,
            error_code::INVALID_PARAMS,
        ];
        let Self::Refused { code, status, .. } = self else { return false };
        match code {
            Some(_) => CODES.iter().any(|code| self.has_code(*code)),
            None => matches!(
                *status,
                StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::UNPROCESSABLE_ENTITY
            ),
        }
    }

    /// Whether the agent does not stream, although its card says so. Then nothing has run, and the
    /// same message may be sent in another way. `is_new`: the message continues no task, so that no
    /// such task can be what was not found.
    pub(super) fn rejects_streaming(&self, is_new: bool) -> bool {
        let Self::Refused { code, status, .. } = self else { return false };
        match code {
            Some(_) if self.has_code(error_code::TASK_NOT_FOUND) => is_new,
            Some(_) => {
                self.has_code(error_code::METHOD_NOT_FOUND)
                    || self.has_code(error_code::UNSUPPORTED_OPERATION)
            }
            None => matches!(
                *status,
                StatusCode::NOT_FOUND
                    | StatusCode::METHOD_NOT_ALLOWED
                    | StatusCode::NOT_ACCEPTABLE
                    | StatusCode::NOT_IMPLEMENTED
            ),
        }
    }

    /// Whether the agent may take a message only if the reply waits for the end of the task.
    pub(super) fn may_require_blocking(&self) -> bool {
        const CODES: [i32; 3] = [
            error_code::UNSUPPORTED_OPERATION,
            error_code::INVALID_REQUEST,
            error_code::INVALID_PARAMS,
        ];
        let Self::Refused { code, status, .. } = self else { return false };
        match code {
            Some(_) => CODES.iter().any(|code| self.has_code(*code)),
            None => matches!(
                *status,
                StatusCode::BAD_REQUEST
                    | StatusCode::UNPROCESSABLE_ENTITY
                    | StatusCode::NOT_IMPLEMENTED
            ),
        }
    }

    /// Whether the agent has answered, and will answer the same request in the same way again.
    pub(super) fn is_permanent(&self) -> bool {
        let Self::Refused { status, .. } = self else { return false };
        !self.is_transient()
            || (status.is_client_error()
                && !self.has_code(error_code::TASK_NOT_FOUND)
                && !matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS))
    }

    /// Whether it is the agent's refusal with this code.
    pub(super) fn has_code(&self, wanted: i32) -> bool {
        matches!(self, Self::Refused { code: Some(code), .. } if *code == i64::from(wanted))
    }

    /// The error for the call after the message has reached the agent: no later failure may be
    /// reported as a call that was not made.
    pub(super) fn into_error_after_delivery(self) -> CallError {
        if self.has_code(error_code::TASK_NOT_FOUND) {
            let why = "it no longer knows the task that it made of the message".to_owned();
            return CallError::Unclear { why, ending: Ending::Unknown };
        }
        match self.into() {
            CallError::NotSent(text) | CallError::NoSession(text) => CallError::Lost(text),
            CallError::Refused(text) | CallError::Denied(text) => {
                let why = format!("it does not say what became of its task ({text})");
                CallError::Unclear { why, ending: Ending::Unknown }
            }
            other => other,
        }
    }
}

/// The agent has not run a request that it could not authorize.
impl From<TokenError> for A2aFailure {
    fn from(error: TokenError) -> Self {
        CallError::NotSent(error.to_string()).into()
    }
}

impl From<A2aFailure> for CallError {
    fn from(failure: A2aFailure) -> Self {
        match failure {
            A2aFailure::Refused { text, pause: Some(pause), .. } if !pause.is_zero() => {
                let seconds = pause.as_secs_f64().ceil();
                Self::Refused(format!("{text} (it takes requests again in {seconds} s)"))
            }
            A2aFailure::Refused { code: None, status, text, .. } if is_before_agent(status) => {
                Self::Denied(text)
            }
            A2aFailure::Refused { text, .. } => Self::Refused(text),
            A2aFailure::Call(error) => error,
        }
    }
}

/// Whether this status, without an error of the protocol, comes from what stands before the agent.
fn is_before_agent(status: StatusCode) -> bool {
    status.is_redirection() || matches!(status.as_u16(), 401 | 403 | 404 | 405 | 407)
}

#[cfg(test)]
mod tests {
    //! What a caller is told of a refusal.

    use super::*;

    #[test]
    fn refusal_with_a_pause_tells_when_to_call_again() {
        let refused = |pause: Option<u64>| {
            let (status, text) = (StatusCode::TOO_MANY_REQUESTS, "HTTP 429".to_owned());
            let pause = pause.map(Duration::from_secs);
            CallError::from(A2aFailure::Refused { code: None, status, text, pause })
        };
        let told = CallError::Refused("HTTP 429 (it takes requests again in 30 s)".to_owned());
        assert_eq!(refused(Some(30)), told);
        assert_eq!(refused(None), CallError::Refused("HTTP 429".to_owned()));
    }
}
