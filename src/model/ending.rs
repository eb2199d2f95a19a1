//! How a call ended, in one word: for metrics, the audit log and people. The text for the model is
//! in the answer.
//!
//! Must not: carry a text; there is a known number of words.

use super::Answer;
use super::sentences;
use super::words::words;

words! {
    /// How a call ended. Those in which the tool was not called stand together.
    #[derive(PartialOrd, Ord)]
    pub enum Ending {
        /// The tool gave a result.
        Result = "result",
        /// The tool said that it failed.
        ToolError = "tool_error",
        /// The arguments were not what the tool takes; it was not called.
        InputInvalid = "input_invalid",
        /// There was no connection, or there are no tools of the backend; it was not called.
        Unavailable = "unavailable",
        /// The backend keeps failing, so it was not called.
        BreakerOpen = "breaker_open",
        /// It got no permit in time; it was not called.
        Busy = "busy",
        /// Its app or its backend has made as many calls as it may; it was not called.
        OverQuota = "over_quota",
        /// The journal cannot be written, so it was not called.
        Storage = "storage",
        /// Too little time was left after a restart; it was not called.
        TooLate = "too_late",
        /// The bridge refused it: it is not what the run was given.
        Denied = "denied",
        /// Its tool is not what was accepted, and is withdrawn; it was not called.
        Withdrawn = "withdrawn",
        /// A person denied it, or no decision came in time; it was not called.
        NotApproved = "not_approved",
        /// No answer came in time.
        TimedOut = "timed_out",
        /// The connection broke during the call.
        ConnectionLost = "connection_lost",
        /// The bridge was restarted or failed during the call, so that its effect is not known.
        Unknown = "unknown",
        /// The peer refused the request in its protocol's words.
        Refused = "refused",
        /// The peer's answer cannot be read.
        Unreadable = "unreadable",
        /// Its run ended or was cancelled, or its caller hung up.
        Cancelled = "cancelled",
        /// The bridge shuts down; the next process decides what becomes of it.
        Left = "left",
        /// The bridge's own code failed before the tool was reached.
        Internal = "internal_error",
    }
}

impl Ending {
    /// How a call ended with this answer of its tool.
    pub fn from_answer(answer: &Answer) -> Self {
        match answer {
            Answer::Result { .. } => Self::Result,
            Answer::Error(_) => Self::ToolError,
        }
    }

    /// Whether the call failed; a cancelled call has not failed.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Result | Self::Cancelled | Self::Left)
    }

    /// Whether the tool was certainly not called.
    pub fn is_of_no_call(self) -> bool {
        (Self::InputInvalid..=Self::NotApproved).contains(&self)
    }
}

words! {
    /// How the driving of a run ended.
    pub enum RunEnding {
        Result = "result",
        Error = "error",
        Cancelled = "cancelled",
        /// Its stream could not be opened.
        GivenUp = "given_up",
        /// The bridge stopped; the next process drives the run on.
        Left = "left",
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

    /// The bridge's own code failed during a call of `tool`, which may have been reached.
    pub fn internal(tool: &str, has_reached_tool: bool) -> Self {
        match has_reached_tool {
            true => Self::failed(Ending::Unknown, sentences::internal_error_during_call(tool)),
            false => Self::failed(Ending::Internal, sentences::internal_error_before_call(tool)),
        }
    }
}

/// The tool's own answer.
impl From<Answer> for Made {
    fn from(answer: Answer) -> Self {
        Self { ending: Ending::from_answer(&answer), answer }
    }
}

#[cfg(test)]
mod tests {
    //! The list has all words in the order of the enum.

    use super::*;
    use crate::model::words::Words as _;

    #[test]
    fn the_list_is_in_order() {
        for (at, ending) in Ending::ALL.iter().enumerate() {
            assert_eq!(*ending as usize, at, "{ending:?}");
        }
    }
}
