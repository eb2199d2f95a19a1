//! Calls of other runtimes, and what their results look like on each wire.
//!
//! Pure.
//!
//! Must not: know how an event came, or how a result is posted.

use serde_json::json;
use serde_json::value::RawValue;

use super::tool_format::Format;
use super::{Answer, Call, Members, string_member};

/// The longest id or name of a tool, in bytes.
const LONGEST_ID: usize = 1_024;

/// The names under which a runtime's events have the parts of a call.
#[derive(Debug, Clone, Copy)]
pub struct EventForm {
    /// The `type` of an event that asks for a call.
    pub kind: &'static str,
    pub id: &'static str,
    pub tool: &'static str,
    pub arguments: &'static str,
}

pub const HSAFA_V3: EventForm =
    EventForm { kind: "tool.call", id: "toolCallId", tool: "toolName", arguments: "args" };
pub const HSAFA_V7: EventForm =
    EventForm { kind: "action", id: "actionId", tool: "toolName", arguments: "args" };
pub const CLAUDE: EventForm =
    EventForm { kind: "agent.custom_tool_use", id: "id", tool: "name", arguments: "input" };

impl EventForm {
    /// The call that an event asks for; `None` for an event of another type.
    ///
    /// # Errors
    ///
    /// The event is no JSON object, or lacks a part of the call, as the text says.
    pub fn read(self, event: &str) -> Result<Option<Call>, String> {
        let members = Members::read(event).map_err(|error| format!("it is no object: {error}"))?;
        if members.string("type").as_deref() != Some(self.kind) {
            return Ok(None);
        }
        let id = required_id(&members, self.id)?;
        let name = required_id(&members, self.tool)?;
        Ok(Some(Call::by_hand(&id, name, members.get(self.arguments))))
    }
}

fn required_id(members: &Members<'_>, key: &str) -> Result<String, String> {
    let id = members.string(key).filter(|text| is_id(text));
    id.ok_or_else(|| format!("its `{key}` is no id"))
}

/// Whether a text of a runtime can stand as one segment of a path, and in the journal.
pub fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.chars().any(char::is_control)
}

/// The value that hsafa takes as the result of a call: a text, or an object with `error`.
fn of_hsafa(answer: &Answer) -> serde_json::Value {
    match answer {
        Answer::Error(why) => json!({ "error": why }),
        Answer::Result { text, files } => {
            json!(files.iter().fold(text.clone(), |text, file| file.left_out_of(&text)))
        }
    }
}

/// The body of hsafa v3's `POST /api/runs/{runId}/tool-results`.
pub fn hsafa_v3(id: &str, answer: &Answer) -> String {
    json!({ "callId": id, "result": of_hsafa(answer) }).to_string()
}

/// The body of hsafa v7's `POST /actions/{actionId}/result`.
pub fn hsafa_v7(answer: &Answer) -> String {
    json!({ "result": of_hsafa(answer) }).to_string()
}

/// The body of `POST /v1/sessions/{id}/events` with the result of a custom tool.
pub fn claude(id: &str, answer: &Answer) -> String {
    const EMPTY: &str = "(no output)";
    let (text, files) = Format::Anthropic.blocks(answer);
    let text = if text.is_empty() { EMPTY } else { &text };
    let mut content = vec![json!({ "type": "text", "text": text })];
    content.extend(files);
    let result = json!({
        "type": "user.custom_tool_result",
        "custom_tool_use_id": id,
        "is_error": matches!(answer, Answer::Error(_)),
        "content": content,
    });
    json!({ "events": [result] }).to_string()
}

/// The member of a session's events that names their thread.
pub const THREAD: &str = "session_thread_id";

/// What an event of a session of Claude says beside calls.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionNews {
    /// The call with this id has its result.
    Answered(String),
    /// No result is taken any more for the calls of the thread with this id.
    ThreadOver(String),
    /// The agent waits for its user, and for nothing else.
    Idle,
    /// No result is taken any more.
    Over,
    /// It tells nothing of whether the agent works.
    Neutral,
    Works,
}

impl SessionNews {
    pub fn read(event: &str) -> Self {
        let Ok(members) = Members::read(event) else { return Self::Neutral };
        match members.string("type").as_deref().unwrap_or_default() {
            "user.custom_tool_result" => {
                required_id(&members, "custom_tool_use_id").map_or(Self::Neutral, Self::Answered)
            }
            "session.status_terminated" | "session.deleted" => Self::Over,
            "session.status_idle" => {
                let why = members.get("stop_reason").map_or("", RawValue::get);
                match string_member(why, "type").as_deref() {
                    Some("requires_action") => Self::Works,
                    _ => Self::Idle,
                }
            }
            "session.thread_status_terminated" => {
                required_id(&members, THREAD).map_or(Self::Works, Self::ThreadOver)
            }
            "user.tool_confirmation" => Self::Neutral,
            _ => Self::Works,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Events and results, as each wire has them.

    use serde_json::Value;

    use super::*;

    #[test]
    fn calls_are_read_from_the_events_of_each_wire() {
        let v3 = r#"{"type":"tool.call","toolCallId":"c1","toolName":"fs_read","args":{"n":1e400},"runId":"r"}"#;
        let v7 = r#"{"type":"action","actionId":"c1","toolName":"fs_read","args":{"n":1e400},"haseef":{}}"#;
        let claude =
            r#"{"type":"agent.custom_tool_use","id":"c1","name":"fs_read","input":{"n":1e400}}"#;
        for (form, event) in [(HSAFA_V3, v3), (HSAFA_V7, v7), (CLAUDE, claude)] {
            let call = form.read(event).unwrap().unwrap();
            assert_eq!((call.tool_use.as_str(), &*call.name), ("c1", "fs_read"));
            assert_eq!(call.args.get(), r#"{"n":1e400}"#);
            let other = event.replace(form.kind, "run.started");
            assert!(form.read(&other).unwrap().is_none());
            let unnamed = event.replace(&format!("\"{}\":\"c1\"", form.id), "\"x\":1");
            assert_eq!(form.read(&unnamed).unwrap_err(), format!("its `{}` is no id", form.id));
            for id in ["", "..", "a\\nb", &"x".repeat(1_025)] {
                let event = event.replace("\"c1\"", &format!("\"{id}\""));
                assert!(form.read(&event).is_err(), "{id}");
            }
            // A call without arguments has none to check.
            let bare = event.replace(&format!("\"{}\":{{\"n\":1e400}}", form.arguments), "\"x\":1");
            for event in [bare, event.replace("{\"n\":1e400}", "null")] {
                assert_eq!(form.read(&event).unwrap().unwrap().args.get(), "{}");
            }
        }
        assert!(HSAFA_V3.read("[]").unwrap_err().starts_with("it is no object"));
    }

    #[test]
    fn results_have_the_form_of_the_wire() {
        let json = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let (good, bad) = (Answer::text("hi"), Answer::Error("no".to_owned()));
        assert_eq!(json(hsafa_v3("c1", &good)), json!({ "callId": "c1", "result": "hi" }));
        assert_eq!(json(hsafa_v7(&bad)), json!({ "result": { "error": "no" } }));
        let said = json(claude("c1", &bad));
        let event = json!({
            "type": "user.custom_tool_result", "custom_tool_use_id": "c1", "is_error": true,
            "content": [{ "type": "text", "text": "no" }],
        });
        assert_eq!(said, json!({ "events": [event] }));
        let empty = json(claude("c1", &Answer::text("")));
        assert_eq!(empty["events"][0]["content"][0]["text"], "(no output)");
        assert_eq!(empty["events"][0]["is_error"], false);
    }

    #[test]
    fn a_session_says_whether_its_agent_works() {
        let idle = |why: &str| format!(r#"{{"type":"session.status_idle","stop_reason":{why}}}"#);
        for (event, news) in [
            (idle(r#"{"type":"end_turn"}"#), SessionNews::Idle),
            (idle("null"), SessionNews::Idle),
            (idle(r#"{"type":"requires_action","event_ids":["a"]}"#), SessionNews::Works),
            (r#"{"type":"session.deleted"}"#.to_owned(), SessionNews::Over),
            (r#"{"type":"user.tool_confirmation"}"#.to_owned(), SessionNews::Neutral),
            (
                r#"{"type":"session.thread_status_terminated","session_thread_id":"t"}"#.to_owned(),
                SessionNews::ThreadOver("t".to_owned()),
            ),
            (r#"{"type":"agent.message"}"#.to_owned(), SessionNews::Works),
            (
                r#"{"type":"user.custom_tool_result","custom_tool_use_id":"a"}"#.to_owned(),
                SessionNews::Answered("a".to_owned()),
            ),
        ] {
            assert_eq!(SessionNews::read(&event), news, "{event}");
        }
    }
}
