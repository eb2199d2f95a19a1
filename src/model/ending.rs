//! How a call ended, in one word: for metrics, the audit log and people. The text for the model is
//! in the answer.
//!
//! Must not: carry a text; there is a known number of words.

use super::answer::{Answer, codes::OUTCOME_UNKNOWN};

/// How a call ended. Those in which the tool was not called stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// The tool gave a result.
    Result,
    /// The tool said that it failed.
    ToolError,
    /// The arguments were not what the tool takes; it was not called.
    InputInvalid,
    /// There was no connection, or there are no tools of the backend; it was not called.
    Unavailable,
    /// The backend keeps failing, so it was not called.
    BreakerOpen,
    /// It got no permit in time; it was not called.
    Busy,
    /// Its app or its backend has made as many calls as it may; it was not called.
    OverQuota,
    /// The journal cannot be written, so it was not called.
    Storage,
    /// Too little time was left after a restart; it was not called.
    TooLate,
    /// The bridge refused it: it is not what the run was given.
    Denied,
    /// Its tool is not what was accepted, and is withdrawn; it was not called.
    Withdrawn,
    /// A person denied it, or no decision came in time; it was not called.
    NotApproved,
    /// No answer came in time.
    TimedOut,
    /// The connection broke during the call.
    ConnectionLost,
    /// The bridge was restarted or failed during the call, so that its effect is not known.
    Unknown,
    /// The peer refused the request in its protocol's words.
    Refused,
    /// The peer's answer cannot be read.
    Unreadable,
    /// Its run ended or was cancelled, or its caller hung up.
    Cancelled,
    /// The bridge shuts down; the next process decides what becomes of it.
    Left,
    /// The bridge's own code failed before the tool was reached.
    Internal,
}

impl Ending {
    /// How a call ended with this answer of its tool.
    pub fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Result { .. } => Self::Result,
            Answer::Error(_) => Self::ToolError,
        }
    }

    pub const ALL: [Self; 20] = [
        Self::Result,
        Self::ToolError,
        Self::InputInvalid,
        Self::Unavailable,
        Self::BreakerOpen,
        Self::Busy,
        Self::OverQuota,
        Self::Storage,
        Self::TooLate,
        Self::Denied,
        Self::Withdrawn,
        Self::NotApproved,
        Self::TimedOut,
        Self::ConnectionLost,
        Self::Unknown,
        Self::Refused,
        Self::Unreadable,
        Self::Cancelled,
        Self::Left,
        Self::Internal,
    ];

    /// Whether the call failed; a cancelled call has not failed.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Result | Self::Cancelled | Self::Left)
    }

    /// Whether the tool was certainly not called.
    pub fn is_of_no_call(self) -> bool {
        (Self::InputInvalid..=Self::NotApproved).contains(&self)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool_error",
            Self::InputInvalid => "input_invalid",
            Self::Unavailable => "unavailable",
            Self::BreakerOpen => "breaker_open",
            Self::Busy => "busy",
            Self::OverQuota => "over_quota",
            Self::Storage => "storage",
            Self::TooLate => "too_late",
            Self::Denied => "denied",
            Self::Withdrawn => "withdrawn",
            Self::NotApproved => "not_approved",
            Self::TimedOut => "timed_out",
            Self::ConnectionLost => "connection_lost",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::Cancelled => "cancelled",
            Self::Left => "left",
            Self::Internal => "internal_error",
        }
    }
}

/// The answer of a call, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub answer: Answer,
    pub ending: Ending,
}

impl Made {
    /// A call without an answer of the tool; `why` is for the model.
    pub fn failed(ending: Ending, why: impl Into<String>) -> Self {
        Self { answer: Answer::Error(why.into()), ending }
    }
}

impl Made {
    /// The bridge's own code failed during a call of `tool`, which may have been reached.
    pub fn internal(tool: &str, has_reached_tool: bool) -> Self {
        if has_reached_tool {
            let why = format!(
                "{OUTCOME_UNKNOWN}: internal error of the bridge while `{tool}` was being called. \
                 The outcome is unknown: the call may or may not have taken effect; check before \
                 you repeat it."
            );
            return Self::failed(Ending::Unknown, why);
        }
        let why = format!(
            "Internal error of the bridge before `{tool}` was called. It was not made; call it \
             again if it is still needed."
        );
        Self::failed(Ending::Internal, why)
    }
}

/// The tool's own answer.
impl From<Answer> for Made {
    fn from(answer: Answer) -> Self {
        Self { ending: Ending::of(&answer), answer }
    }
}

#[cfg(test)]
mod tests {
    //! The list has all words in the order of the enum.

    use super::*;

    #[test]
    fn the_list_is_in_order() {
        for (at, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, at, "{ending:?}");
        }
    }
}
