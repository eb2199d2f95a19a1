//! Selects what to show of a run: its text, and a line for each call (agent-runs-protocol §7,
//! wire-protocol §4). Pure.
//!
//! Must not: write anything.

use serde_json::value::RawValue;

use crate::model::maps::HashMap;
use crate::model::{Members, string_member};

/// How many characters of a tool's arguments or result a line shows.
const MUCH: usize = 400;

/// One event of a run.
#[derive(Debug)]
pub(super) struct Event<'a> {
    kind: String,
    data: &'a RawValue,
}

/// The part of an event to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part of the answer.
    Text(String),
    /// A line about the run.
    Line(String),
}

/// How the run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    Well,
    Badly(String),
}

/// The state of the transcript.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// Text was shown in the present message.
    said: bool,
    /// Text was shown in any message.
    said_ever: bool,
    /// The last line of the answer is not finished.
    in_line: bool,
    /// The names of calls without a result.
    calls: HashMap<String, String>,
}

impl<'a> Event<'a> {
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let kind = string_member(text, "type")?;
        Some(Self { kind, data: Members::read(text).ok()?.get("data")? })
    }

    fn text(&self, key: &str) -> Option<String> {
        string_member(self.data.get(), key)
    }

    fn raw(&self, key: &str) -> Option<&'a str> {
        Some(Members::read(self.data.get()).ok()?.get(key)?.get())
    }
}

impl Transcript {
    pub(super) fn take(&mut self, event: &Event<'_>) -> (Vec<Piece>, Option<RunEnd>) {
        let mut pieces = Vec::new();
        let mut end = None;
        let text = |key: &str| event.text(key).unwrap_or_default();
        match event.kind.as_str() {
            "assistant_delta" => self.say(&mut pieces, text("text")),
            "assistant_message" => {
                if !self.said {
                    self.say(&mut pieces, text("text"));
                }
                self.end_line(&mut pieces);
                self.said = false;
            }
            "tool_call" | "local_tool_call" => {
                self.end_line(&mut pieces);
                let name = text("name");
                let input = event.raw("input").or_else(|| event.raw("args")).unwrap_or_default();
                pieces.push(Piece::Line(format!("-> {name} {}", much(input))));
                self.calls.insert(text("toolUseId"), name);
            }
            "tool_result" | "local_tool_result_in" => pieces.push(Piece::Line(self.result(event))),
            "result" => {
                if !self.said_ever {
                    self.say(&mut pieces, text("text"));
                }
                self.end_line(&mut pieces);
                let subtype = text("subtype");
                end = Some(match subtype.as_str() {
                    "success" => RunEnd::Well,
                    _ => RunEnd::Badly(event.text("error").unwrap_or(subtype)),
                });
            }
            "error" => {
                self.end_line(&mut pieces);
                let why = event.text("error").or_else(|| event.text("code"));
                end = Some(RunEnd::Badly(why.unwrap_or_else(|| "the run failed".to_owned())));
            }
            "cancelled" => {
                self.end_line(&mut pieces);
                end = Some(RunEnd::Badly("the run is cancelled".to_owned()));
            }
            _ => (),
        }
        (pieces, end)
    }

    fn say(&mut self, pieces: &mut Vec<Piece>, text: String) {
        if text.is_empty() {
            return;
        }
        (self.said, self.said_ever) = (true, true);
        self.in_line = !text.ends_with('\n');
        pieces.push(Piece::Text(text));
    }

    fn end_line(&mut self, pieces: &mut Vec<Piece>) {
        if std::mem::take(&mut self.in_line) {
            pieces.push(Piece::Text("\n".to_owned()));
        }
    }

    fn result(&mut self, event: &Event<'_>) -> String {
        let call_name = event.text("toolUseId").and_then(|id| self.calls.remove(&id));
        let name = event.text("name").or(call_name).unwrap_or_else(|| "a tool".to_owned());
        let error = event.text("error").filter(|error| !error.is_empty());
        let failed = error.is_some() || event.raw("ok") == Some("false");
        let keys = ["output", "summary", "result"];
        let result = error.or_else(|| keys.iter().find_map(|key| event.text(key)));
        let word = if failed { " failed:" } else { ":" };
        format!("<- {name}{word} {}", much(&result.unwrap_or_default()))
    }
}

/// The beginning of `text`.
fn much(text: &str) -> String {
    match text.char_indices().nth(MUCH) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
