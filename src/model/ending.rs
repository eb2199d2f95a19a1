//! How a call ended, in one word: for metrics, the audit log and people who look. What the model is
//! told stands in the answer.
//!
//! Must not: carry a text; there is a known number of words.

use super::answer::Answer;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// There was no turn for it in time; it was not called.
    Busy,
    /// The journal cannot be written, so it was not called.
    Storage,
    /// Too little time was left after a restart; it was not called.
    TooLate,
    /// The bridge refused it: it is not what the run was given.
    Denied,
    /// A person denied it, or nobody decided in time; it was not called.
    NotApproved,
    /// No answer came in time.
    TimedOut,
    /// The connection broke during the call.
    ConnectionLost,
    /// The bridge was restarted during the call, and nobody can tell what it did.
    Unknown,
    /// The peer refused the request in its protocol's words.
    Refused,
    /// The peer's answer cannot be read.
    Unreadable,
    /// Its run ended or was cancelled, or whoever asked went away.
    Cancelled,
    /// The bridge goes down; the next process says what becomes of it.
    Left,
}

impl Ending {
    /// How the call ended whose tool gave this answer.
    pub fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Result { .. } => Self::Result,
            Answer::Error(_) => Self::ToolError,
        }
    }

    pub const ALL: [Self; 17] = [
        Self::Result,
        Self::ToolError,
        Self::InputInvalid,
        Self::Unavailable,
        Self::BreakerOpen,
        Self::Busy,
        Self::Storage,
        Self::TooLate,
        Self::Denied,
        Self::NotApproved,
        Self::TimedOut,
        Self::ConnectionLost,
        Self::Unknown,
        Self::Refused,
        Self::Unreadable,
        Self::Cancelled,
        Self::Left,
    ];

    /// Whether something went wrong; a call that nobody wants any more has not failed.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Result | Self::Cancelled | Self::Left)
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
            Self::Storage => "storage",
            Self::TooLate => "too_late",
            Self::Denied => "denied",
            Self::NotApproved => "not_approved",
            Self::TimedOut => "timed_out",
            Self::ConnectionLost => "connection_lost",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::Cancelled => "cancelled",
            Self::Left => "left",
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
    /// A call that brought no answer of the tool; `why` is for the model.
    pub fn failed(ending: Ending, why: impl Into<String>) -> Self {
        Self { answer: Answer::Error(why.into()), ending }
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
