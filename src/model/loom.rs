//! The sets of external tools of loom-mcp's runtime, and their results, under the names that its Go
//! types give them.
//!
//! Pure.
//!
//! Must not: know how a call is made. A set is answered whole: the runtime fails a run for a result
//! that is missing, comes twice, or is a text where its tool returns an object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{
    Answer, BackendName, Call, Ending, InputSchema, RefKind, Route, Target, Verdict, member,
    pending,
};

use crate::model::maps::HashSet;

/// The most items of one set.
const MAX: usize = 128;

/// Stands in place of a backend's name where a person confirms a tool that the bridge does not
/// have; no backend may have this name.
pub const CONFIRMATION: &str = "bridge_confirmation";

/// What `await_external_tools` asks for.
#[derive(Debug, Deserialize)]
pub struct Set {
    pub id: String,
    pub items: Vec<Item>,
    #[serde(rename = "runId")]
    pub run: Option<String>,
    /// The JSON Schemas of results, by the names of tools.
    #[serde(default)]
    returns: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub struct Item {
    pub tool_name: String,
    pub tool_call_id: String,
    pub payload: Option<Box<RawValue>>,
}

/// What `await_confirmation` asks for.
#[derive(Debug, Deserialize)]
pub struct Confirmation {
    pub id: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub prompt: String,
    #[serde(rename = "runId")]
    pub run: Option<String>,
}

impl Confirmation {
    /// What a body asks for, and the call that waits for it.
    ///
    /// # Errors
    ///
    /// The body is no confirmation, as the text says.
    pub fn read(body: &[u8]) -> Result<(Self, Item), String> {
        // Apart, as `flatten` loses numbers.
        let parts = serde_json::from_slice(body)
            .and_then(|confirmation| Ok((confirmation, serde_json::from_slice(body)?)));
        parts.map_err(|error| format!("The body is no confirmation: {error}."))
    }
}

impl Set {
    /// # Errors
    ///
    /// The body is no set, or no results of it could be given whole, as the text says.
    pub fn read(body: &str) -> Result<Self, String> {
        let set: Self = serde_json::from_str(body)
            .map_err(|error| format!("The body is no set of external tools: {error}."))?;
        let mut ids = HashSet::default();
        if !(1..=MAX).contains(&set.items.len()) {
            return Err(format!("`items` has 1 to {MAX} items."));
        }
        match set.items.iter().find(|item| !ids.insert(&item.tool_call_id)) {
            Some(twice) => Err(format!("`tool_call_id` {:?} is there twice.", twice.tool_call_id)),
            None => Ok(set),
        }
    }

    /// The result of the item at `place`, whose call ended so; `structured` is the server's
    /// `structuredContent`.
    pub fn result(
        &self,
        place: usize,
        answer: &Answer,
        ending: Ending,
        structured: Option<&RawValue>,
    ) -> String {
        let Item { tool_name, tool_call_id, .. } = &self.items[place];
        let (value, error, hint) = match self.value(tool_name, answer, structured) {
            Ok(value) => (value, None, None),
            Err(why) => {
                let reason = match ending {
                    Ending::InputInvalid => Some("invalid_arguments"),
                    // The tool was called: a retry would call it twice.
                    Ending::Result | Ending::ToolError => None,
                    _ => Some("tool_unavailable"),
                };
                let hint = reason
                    .map(|reason| json!({ "Reason": reason, "Tool": tool_name, "Message": why }));
                ("null".to_owned(), Some(json!({ "Message": why })), hint)
            }
        };
        let (name, id) = (json!(tool_name), json!(tool_call_id));
        let (error, hint) = (json!(error), json!(hint));
        format!(
            "{{\"Name\":{name},\"ToolCallID\":{id},\"Result\":{value},\"Bounds\":null,\
             \"Error\":{error},\"RetryHint\":{hint}}}"
        )
    }

    /// The value of a result as JSON text.
    fn value(
        &self,
        tool: &str,
        answer: &Answer,
        structured: Option<&RawValue>,
    ) -> Result<String, String> {
        let (text, files) = match answer {
            Answer::Error(why) => return Err(why.clone()),
            Answer::Result { text, files } => (text, files),
        };
        if pending::is_first_answer(text) {
            return Err(format!("`{tool}` takes long, and its call goes on: {text}"));
        }
        let structured = structured.map(RawValue::get);
        let text = files.iter().fold(text.clone(), |text, file| file.left_out_of(&text));
        let Some(schema) = self.returns.get(tool) else {
            return Ok(structured.map_or_else(|| json!(text).to_string(), str::to_owned));
        };
        let compiled = InputSchema::alone(schema);
        let json_string = json!(text).to_string();
        let inner_json = serde_json::from_str::<&RawValue>(text.trim()).ok().map(|_| text.trim());
        let candidates = [structured, Some(&*json_string), inner_json];
        let value = candidates.into_iter().flatten().find(|value| {
            // A value that is too large, or a schema that is too costly, is not checked further.
            may_be(schema.get(), value)
                && !matches!(compiled.check_value(value), Verdict::Invalid(_))
        });
        value.map(str::to_owned).ok_or_else(|| {
            format!("`{tool}` was called, but its result is not what the caller expects: {text}")
        })
    }

    /// The answer to the set, of the results of all its items in their order.
    pub fn answer(&self, results: &[&str]) -> String {
        let (run, id) = (json!(self.run.as_deref().unwrap_or_default()), json!(self.id));
        format!("{{\"RunID\":{run},\"ID\":{id},\"Results\":[{}]}}", results.join(","))
    }
}

/// Whether a JSON text is of a type that the schema takes, as far as its own keywords tell.
fn may_be(schema: &str, value: &str) -> bool {
    let kinds = match value.bytes().next() {
        Some(b'{') => ["object"; 2],
        Some(b'[') => ["array"; 2],
        Some(b'"') => ["string"; 2],
        Some(b't' | b'f') => ["boolean"; 2],
        Some(b'n') => ["null"; 2],
        _ => ["number", "integer"],
    };
    let has = |key| member(schema, key).is_some();
    match member(schema, "type").map(RawValue::get) {
        Some(types) => kinds.iter().any(|kind| types.contains(&format!("\"{kind}\""))),
        None if has("properties") || has("required") => kinds[0] == "object",
        None => !has("items") || kinds[0] == "array",
    }
}

impl Item {
    /// What a person is shown who confirms the item's tool, where the bridge has no such tool. It
    /// leads nowhere: the runtime calls the tool itself.
    pub fn confirmed_route(&self) -> Route {
        Route {
            backend: BackendName::parse(CONFIRMATION).expect("it has no odd character"),
            kind: RefKind::Local,
            target: Target::Tool { name: self.tool_name.as_str().into(), input: None },
            repeatable: false,
            destructive: false,
        }
    }

    /// The call of the tool `name`.
    pub fn call(&self, name: String) -> Call {
        Call::by_hand(&self.tool_call_id, name, self.payload.as_deref())
    }
}

#[cfg(test)]
mod tests {
    //! Which sets are read, and what their results look like.

    use serde_json::Value;

    use super::*;

    const SET: &str = r#"{"id":"w1","runId":"r1","x":1,"items":[
        {"tool_name":"helpers.answer","tool_call_id":"c1","payload":{"n":1e400}},
        {"tool_name":"helpers.text","tool_call_id":"c2","payload":null}],
        "returns":{"helpers.answer":{"type":"object","required":["a"]},"helpers.text":{"type":"string"}}}"#;

    fn result(place: usize, answer: &Answer, structured: Option<&str>) -> Value {
        result_after(Ending::from_answer(answer), place, answer, structured)
    }

    fn result_after(
        ending: Ending,
        place: usize,
        answer: &Answer,
        structured: Option<&str>,
    ) -> Value {
        let structured = structured.map(|text| serde_json::from_str::<&RawValue>(text).unwrap());
        let text = Set::read(SET).unwrap().result(place, answer, ending, structured);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_set_is_read_or_refused_whole() {
        let set = Set::read(SET).unwrap();
        let call = set.items[0].call("fs_read".to_owned());
        assert_eq!((call.tool_use.as_str(), call.args.get()), ("c1", r#"{"n":1e400}"#));
        assert_eq!(set.items[1].call("x".to_owned()).args.get(), "{}");
        for (body, part) in [
            (SET.replace("c2", "c1"), "twice"),
            (r#"{"id":"w1","items":[]}"#.to_owned(), "1 to 128"),
            (r#"{"id":"w1"}"#.to_owned(), "`items`"),
        ] {
            let why = Set::read(&body).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let whole = set.answer(&["1", "2"]);
        assert_eq!(whole, r#"{"RunID":"r1","ID":"w1","Results":[1,2]}"#);
    }

    #[test]
    fn an_object_is_given_where_one_is_due() {
        let text = Answer::text("no object");
        let good = result(0, &text, Some(r#"{"a":1}"#));
        assert_eq!(good["Result"], json!({ "a": 1 }));
        assert_eq!((&good["Name"], &good["ToolCallID"]), (&json!("helpers.answer"), &json!("c1")));
        assert!(good["Error"].is_null() && good["RetryHint"].is_null() && good["Bounds"].is_null());
        let written = result(0, &Answer::text(r#"{"a":2}"#), None);
        assert_eq!(written["Result"], json!({ "a": 2 }));
        for structured in [None, Some(r#"{"b":1}"#)] {
            let bad = result(0, &text, structured);
            assert!(bad["Result"].is_null() && bad["Error"]["Message"].is_string(), "{bad}");
        }
        assert_eq!(result(1, &text, None)["Result"], "no object");
        assert_eq!(result(1, &text, Some("{}"))["Result"], "no object");
    }

    #[test]
    fn a_text_stands_only_where_the_schema_takes_one() {
        struct Case {
            schema: &'static str,
            text: &'static str,
            value: Value,
        }
        for Case { schema, text, value } in [
            Case { schema: r#"{"type":["object","null"]}"#, text: "done", value: Value::Null },
            Case {
                schema: r##"{"$ref":"#/$defs/X","$defs":{"X":{"type":"object"}}}"##,
                text: "done",
                value: Value::Null,
            },
            Case { schema: r#"{"allOf":[{"type":"object"}]}"#, text: "done", value: Value::Null },
            Case { schema: r#"{"required":["a"]}"#, text: "done", value: Value::Null },
            Case { schema: r#"{"required":["a"]}"#, text: r#"{"a":1}"#, value: json!({ "a": 1 }) },
            Case { schema: r#"{"type":"array"}"#, text: "[1]", value: json!([1]) },
            Case { schema: r#"{"type":"integer"}"#, text: " 5\n", value: json!(5) },
            Case { schema: r#"{"type":"integer"}"#, text: "five", value: Value::Null },
            Case { schema: r#"{"type":"string"}"#, text: "5", value: json!("5") },
            Case { schema: "{}", text: r#"{"a":1}"#, value: json!(r#"{"a":1}"#) },
            Case {
                schema: r#"{"type":"object","pattern":"(?=x)"}"#,
                text: "done",
                value: Value::Null,
            },
            Case {
                schema: r#"{"type":"array","items":{"pattern":"(?=x)"}}"#,
                text: "[\"x\"]",
                value: json!(["x"]),
            },
        ] {
            let mut set = Set::read(SET).unwrap();
            let schema = RawValue::from_string(schema.to_owned()).unwrap();
            let name = set.items[0].tool_name.clone();
            set.returns.insert(name, schema.clone());
            let said = set.result(0, &Answer::text(text), Ending::Result, None);
            let said: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(said["Result"], value, "{schema} {text}");
            assert_eq!(said["Error"].is_null(), !value.is_null(), "{schema} {text}");
            assert!(said["RetryHint"].is_null(), "the call was made: {said}");
        }
    }

    #[test]
    fn an_error_says_whether_it_pays_to_call_again() {
        for (ending, reason) in [
            (Ending::InputInvalid, json!("invalid_arguments")),
            (Ending::Unavailable, json!("tool_unavailable")),
            (Ending::ToolError, Value::Null),
        ] {
            let said = result_after(ending, 0, &Answer::Error("no".to_owned()), None);
            assert_eq!(said["Error"], json!({ "Message": "no" }));
            assert_eq!(said["RetryHint"]["Reason"], reason);
        }
        let first = pending::goes_on(&"call_1".into(), "helpers.text", "bridge_call_result");
        let said = result(1, &first, None);
        assert!(said["Error"]["Message"].as_str().unwrap().contains("goes on"), "{said}");
    }
}
