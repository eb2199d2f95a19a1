//! The reasons for which a call brings no answer of the tool, and the text that the model gets.
//!
//! Must not: put an address, a path or a secret into the text for the model.

use std::time::Duration;

use super::CallContext;
use crate::backend::circuit_breaker::BreakerOpen;
use crate::backend::{CallError, NotRead, NotRecorded, Source};
use crate::limits::queue::Rejected;
use crate::model::rights::CallRefusal;
use crate::model::sentences;
use crate::model::{BackendName, Ending};

/// Why the tool gave no answer. `Display` is for the log, [`CallFailure::for_model`] for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailure {
    #[error("the backend keeps failing")]
    BreakerOpen(BreakerOpen),
    #[error("too many calls are running")]
    Rejected(Rejected, Duration),
    /// The text is for the model.
    #[error("a quota is used up")]
    OverQuota(String),
    #[error("not connected")]
    NotConnected,
    #[error("the operator has disabled the backend")]
    Disabled,
    #[error("the backend was removed from the configuration")]
    Removed,
    #[error(transparent)]
    NotPermitted(#[from] CallRefusal),
    #[error("a person has to approve the call first")]
    NotApproved,
    #[error("the tool is not what was accepted, and is withdrawn")]
    Withdrawn,
    #[error("the tool is not listed since the program was started again")]
    NotListed,
    /// The text is for the model.
    #[error("the arguments do not fit the tool as it is defined now")]
    Invalid(String),
    #[error("the backend is another peer now than the one that the call was sent to")]
    AnotherPeer,
    #[error("the call was sent before, and its tool is not marked as safe to repeat any more")]
    NotRepeatable,
    #[error("the call was sent before, and could not be repeated: {0}")]
    NotRepeated(String),
    #[error("timed out after {0:.0?}")]
    TimedOut(Duration),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    #[error(transparent)]
    Call(CallError),
}

impl CallFailure {
    /// Whether the request was not sent, so that the tool did not run.
    pub(super) fn is_of_no_call(&self) -> bool {
        matches!(self, Self::AnotherPeer | Self::NotRepeatable) || self.ending().is_of_no_call()
    }

    /// This failure as that of `call`. A call that an earlier process has sent may have taken
    /// effect, so the model must not read that it was not made.
    pub(super) fn for_call(self, call: &CallContext) -> Self {
        if call.peer.is_some() && self.ending().is_of_no_call() {
            Self::NotRepeated(self.to_string())
        } else {
            self
        }
    }

    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::BreakerOpen(_) => Ending::BreakerOpen,
            Self::Rejected(..)
            | Self::NotRecorded(NotRecorded::NoShare | NotRecorded::Elsewhere) => Ending::Busy,
            Self::OverQuota(_) => Ending::OverQuota,
            Self::NotConnected
            | Self::Disabled
            | Self::Removed
            | Self::NotListed
            | Self::Call(CallError::NotSent(_) | CallError::NoSession(_)) => Ending::Unavailable,
            Self::Invalid(_) => Ending::InputInvalid,
            Self::NotPermitted(_) => Ending::Denied,
            Self::NotApproved => Ending::NotApproved,
            Self::Withdrawn => Ending::Withdrawn,
            Self::TimedOut(_) => Ending::TimedOut,
            Self::NotRecorded(NotRecorded::Unwritable) => Ending::Storage,
            Self::AnotherPeer
            | Self::NotRepeatable
            | Self::NotRepeated(_)
            | Self::Call(CallError::Lost(_)) => Ending::ConnectionLost,
            Self::Call(
                CallError::Refused(_) | CallError::Denied(_) | CallError::RefusedWith { .. },
            ) => Ending::Refused,
            Self::Call(CallError::Unreadable(_) | CallError::NotRead(_)) => Ending::Unreadable,
            Self::Call(CallError::Unclear { ending, .. }) => *ending,
        }
    }

    /// The error of an MCP server that a client of MCP gets as it is.
    pub(super) fn source(self) -> Option<Source> {
        match self {
            Self::Call(CallError::RefusedWith { error, .. }) => Some(Source::Error(error)),
            _ => None,
        }
    }

    /// The text for a client whose request only reads.
    pub(super) fn for_reader(&self, name: &BackendName) -> String {
        match self {
            Self::TimedOut(waited) => sentences::read_timed_out(name, seconds(*waited)),
            Self::Call(CallError::Lost(_)) => sentences::read_lost(name),
            Self::Call(CallError::Unreadable(_) | CallError::Unclear { .. }) => {
                sentences::read_unreadable(name)
            }
            Self::Call(CallError::NotRead(why)) => sentences::read_too_large(name, why),
            _ => self.for_model(name),
        }
    }

    pub(super) fn for_model(&self, name: &BackendName) -> String {
        match self {
            Self::BreakerOpen(BreakerOpen { retry_after: wait }) => {
                let wait = wait.as_secs_f64().ceil();
                sentences::backend_keeps_failing(name, wait)
            }
            Self::Rejected(Rejected::QueueFull, _) => sentences::queue_full(name),
            Self::Rejected(Rejected::Late, waited) => {
                sentences::no_turn_in_time(name, seconds(*waited))
            }
            Self::NotConnected | Self::Call(CallError::NotSent(_) | CallError::NoSession(_)) => {
                sentences::backend_unreachable(name)
            }
            Self::Disabled => sentences::backend_disabled(name),
            Self::Removed => CallRefusal::Removed.for_model(name),
            Self::NotPermitted(refusal) => refusal.for_model(name),
            Self::NotApproved => sentences::approval_needed(name),
            Self::Withdrawn => sentences::tool_changed(name),
            Self::NotListed => sentences::tool_not_listed(name),
            Self::NotRecorded(why) => why.for_model(name.as_str()),
            Self::NotRepeatable => sentences::not_repeatable(name),
            Self::NotRepeated(_) => sentences::restart_during_call(name),
            Self::AnotherPeer => sentences::another_peer(name),
            Self::TimedOut(waited) => sentences::call_timed_out(name, seconds(*waited)),
            Self::Call(CallError::Lost(_)) => sentences::connection_lost(name),
            Self::Call(CallError::Unreadable(_)) => sentences::answer_unreadable(name),
            Self::Call(CallError::Unclear { why, .. }) => sentences::outcome_unclear(name, why),
            Self::Call(CallError::NotRead(why @ NotRead::TooLarge { .. })) => {
                sentences::answer_too_large(name, why)
            }
            Self::Call(CallError::NotRead(NotRead::NoRoom(_))) => {
                sentences::no_room_for_answer(name)
            }
            Self::Call(
                CallError::Refused(words)
                | CallError::Denied(words)
                | CallError::RefusedWith { why: words, .. },
            )
            | Self::OverQuota(words)
            | Self::Invalid(words) => words.clone(),
        }
    }
}

/// A time that a call has waited, in whole seconds.
fn seconds(waited: Duration) -> f64 {
    waited.as_secs_f64().max(1.0).round_ties_even()
}

#[cfg(test)]
mod tests {
    //! What a client is told whose request only reads.

    use super::*;
    use crate::model::answer::codes::OUTCOME_UNKNOWN;

    #[test]
    fn a_failed_read_has_no_unknown_outcome() {
        let name = BackendName::parse("a").unwrap();
        let lost = || CallError::Lost("gone".to_owned());
        let unreadable = || CallError::Unreadable("bad".to_owned());
        let too_large = || CallError::NotRead(NotRead::TooLarge { limit: 1, size: None });
        for failure in [
            CallFailure::TimedOut(Duration::from_secs(60)),
            CallFailure::Call(lost()),
            CallFailure::Call(unreadable()),
            CallFailure::Call(too_large()),
        ] {
            assert!(failure.for_model(&name).contains("taken effect"));
            let told = failure.for_reader(&name);
            assert!(!told.contains("effect") && !told.contains(OUTCOME_UNKNOWN), "{told}");
        }
        let removed = CallFailure::Removed;
        assert_eq!(removed.for_reader(&name), removed.for_model(&name));
    }
}
