//! The reasons for which a call brings no answer of the tool, and the text that the model gets.
//!
//! Must not: put an address, a path or a secret into the text for the model.

use std::time::Duration;

use crate::backend::circuit_breaker::Shut;
use crate::backend::queue::Rejected;
use crate::backend::{CallError, NotRead, NotRecorded};
use crate::model::answer::codes::OUTCOME_UNKNOWN;
use crate::model::rights::CallRefusal;
use crate::model::{BackendName, Ending};

/// Why the tool gave no answer. `Display` is for the log, [`CallFailure::for_model`] for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailure {
    #[error("the backend keeps failing")]
    Shut(Shut),
    #[error("too many calls are running")]
    Rejected(Rejected, Duration),
    /// The text is for the model.
    #[error("a quota is used up")]
    OverQuota(String),
    #[error("not connected")]
    NotConnected,
    #[error("the backend was removed from the configuration")]
    Removed,
    #[error(transparent)]
    NotPermitted(#[from] CallRefusal),
    #[error("a person has to approve the call first")]
    NotApproved,
    #[error("the tool is not what was accepted, and is withdrawn")]
    Withdrawn,
    #[error("the backend is another peer now than the one that the call was sent to")]
    AnotherPeer,
    #[error("the call was sent before, and its tool is not marked as safe to repeat any more")]
    NotRepeatable,
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

    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Shut(_) => Ending::BreakerOpen,
            Self::Rejected(..) => Ending::Busy,
            Self::OverQuota(_) => Ending::OverQuota,
            Self::NotConnected | Self::Removed | Self::Call(CallError::NotSent(_)) => {
                Ending::Unavailable
            }
            Self::NotPermitted(_) => Ending::Denied,
            Self::NotApproved => Ending::NotApproved,
            Self::Withdrawn => Ending::Withdrawn,
            Self::TimedOut(_) => Ending::TimedOut,
            Self::NotRecorded(NotRecorded::Unwritable) => Ending::Storage,
            Self::NotRecorded(NotRecorded::NoShare) => Ending::Busy,
            Self::AnotherPeer | Self::NotRepeatable | Self::Call(CallError::Lost(_)) => {
                Ending::ConnectionLost
            }
            Self::Call(CallError::Refused(_)) => Ending::Refused,
            Self::Call(CallError::Unreadable(_) | CallError::NotRead(_)) => Ending::Unreadable,
        }
    }

    /// The text for a client whose request only reads.
    pub(super) fn for_reader(&self, name: &BackendName) -> String {
        match self {
            Self::TimedOut(waited) => {
                format!("`{name}` gave no answer within {:.0} s.", waited.as_secs_f64().max(1.0))
            }
            Self::Call(CallError::Lost(_)) => {
                format!("The connection to `{name}` broke before the answer. Ask again.")
            }
            Self::Call(CallError::Unreadable(_)) => {
                format!("`{name}` gave an answer that cannot be read.")
            }
            Self::Call(CallError::NotRead(why)) => {
                format!("`{name}` gave an answer that is not read: {why}.")
            }
            _ => self.for_model(name),
        }
    }

    pub(super) fn for_model(&self, name: &BackendName) -> String {
        let within = |waited: &Duration| format!("{:.0} s", waited.as_secs_f64().max(1.0));
        match self {
            Self::Shut(Shut(wait)) => format!(
                "`{name}` keeps failing, so the call was not made. It is tried again in {:.0} s; \
                 wait that long, or do without it.",
                wait.as_secs_f64().ceil()
            ),
            Self::Rejected(Rejected::QueueFull, _) => format!(
                "`{name}` is busy, and too many other calls wait for it already. This one was not \
                 made; try again later or do without it."
            ),
            Self::Rejected(Rejected::Late, waited) => format!(
                "`{name}` is busy with other calls, and this one got no turn within {}. It was not \
                 made; try again later.",
                within(waited)
            ),
            Self::NotConnected | Self::Call(CallError::NotSent(_)) => format!(
                "`{name}` cannot be reached at the moment. The call was not made; try again later \
                 or do without it."
            ),
            Self::Removed => CallRefusal::Removed.for_model(name),
            Self::NotPermitted(refusal) => refusal.for_model(name),
            Self::NotApproved => {
                format!("A person has to approve this call of `{name}` first. It was not made.")
            }
            Self::Withdrawn => format!(
                "This tool of `{name}` is withdrawn: it does not say of itself what the operator of \
                 the bridge has accepted. The call was not made; do without it."
            ),
            Self::NotRecorded(why) => why.for_model(name.as_str()),
            Self::NotRepeatable => format!(
                "{OUTCOME_UNKNOWN}: the bridge sent the call to `{name}` before and got no answer, and \
                 its tool is not marked as safe to repeat any more. The call may or may not have \
                 taken effect; check before you repeat it."
            ),
            Self::AnotherPeer => format!(
                "{OUTCOME_UNKNOWN}: the bridge sent the call to the earlier server of `{name}`, and \
                 the configuration names another one now. The call may or may not have taken \
                 effect; check before you repeat it."
            ),
            Self::TimedOut(waited) => format!(
                "{OUTCOME_UNKNOWN}: `{name}` gave no answer within {}, and the call was cancelled. \
                 It may or may not have taken effect; check before you repeat it.",
                within(waited)
            ),
            Self::Call(CallError::Lost(_)) => format!(
                "{OUTCOME_UNKNOWN}: the connection to `{name}` broke during the call. It may or may \
                 not have taken effect; check before you repeat it."
            ),
            Self::Call(CallError::Unreadable(_)) => format!(
                "{OUTCOME_UNKNOWN}: `{name}` gave an answer that cannot be read. The call has \
                 probably taken effect; check before you repeat it."
            ),
            Self::Call(CallError::NotRead(why @ NotRead::TooLarge { .. })) => format!(
                "{OUTCOME_UNKNOWN}: `{name}` gave an answer that is too large: {why}. The call has \
                 probably taken effect; check before you repeat it, and ask for less at once."
            ),
            Self::Call(CallError::NotRead(NotRead::NoRoom(_))) => format!(
                "{OUTCOME_UNKNOWN}: `{name}` gave an answer that could not be read, as the bridge is \
                 busy with other large ones. The call has probably taken effect; check before you repeat it, and \
                 ask for less at once."
            ),
            Self::Call(CallError::Refused(words)) | Self::OverQuota(words) => words.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a client is told whose request only reads.

    use super::*;

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
