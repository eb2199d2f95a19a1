//! What a call has brought: the answer for the model, how the call ended, and what its MCP server
//! itself said, for a client that speaks MCP.
//!
//! Must not: decide which of the two a client gets.

use serde_json::value::RawValue;

use super::ErrorReply;
use crate::budget::Held;
use crate::model::sentences;
use crate::model::{Answer, Ending, member};

/// The answer of a call, and how the call ended.
#[derive(Debug)]
pub struct CallOutcome {
    pub answer: Answer,
    pub ending: Ending,
    /// What the answer was made of, if an MCP client has made the call, and an MCP server answered
    /// it.
    pub source: Option<Source>,
}

/// What an MCP server itself said to a call.
#[derive(Debug)]
pub enum Source {
    /// The `CallToolResult`, as it came.
    Result {
        json: Box<RawValue>,
        /// Its content is too long: that of the answer takes its place.
        is_cut: bool,
        /// Counts the result, and the response that is made of it, for the client's app.
        held: Held,
    },
    /// There was no room to keep the result.
    NoRoom,
    /// An error of JSON-RPC that means something to the client.
    Error(ErrorReply),
}

impl CallOutcome {
    /// A call without an answer of the tool; `why` is for the model.
    pub fn failed(ending: Ending, why: impl Into<String>) -> Self {
        Self { answer: Answer::Error(why.into()), ending, source: None }
    }

    /// The bridge's own code failed during a call of `tool`, which may have been reached.
    pub fn internal(tool: &str, has_reached_tool: bool) -> Self {
        if has_reached_tool {
            Self::failed(Ending::Unknown, sentences::internal_error_during_call(tool))
        } else {
            Self::failed(Ending::Internal, sentences::internal_error_before_call(tool))
        }
    }

    /// The `structuredContent` of the server's result.
    pub fn structured(&self) -> Option<&RawValue> {
        match &self.source {
            Some(Source::Result { json, .. }) => member(json.get(), "structuredContent"),
            _ => None,
        }
    }

    /// The length of the answer and of the server's result as JSON, in bytes.
    pub fn json_len(&self) -> usize {
        let source = match &self.source {
            Some(Source::Result { json, .. }) => json.get().len(),
            _ => 0,
        };
        self.answer.json_len() + source
    }

    /// This outcome with a shorter `answer`, which stands for the content of the server's result.
    #[must_use]
    pub fn cut(mut self, answer: Answer) -> Self {
        if let Some(Source::Result { is_cut, .. }) = &mut self.source {
            *is_cut = true;
        }
        Self { answer, ..self }
    }
}

/// The tool's own answer.
impl From<Answer> for CallOutcome {
    fn from(answer: Answer) -> Self {
        Self { ending: Ending::from_answer(&answer), answer, source: None }
    }
}
