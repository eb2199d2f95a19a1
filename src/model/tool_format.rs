//! Tools, calls and results in the forms of the APIs of models, for apps that call a model
//! themselves.
//!
//! Pure.
//!
//! Must not: change more of a tool than its API refuses, or change it without a note.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::files::File;
use super::json::elements_at_most;
use super::schema::for_api;
use super::visible::at_most;
use super::{Answer, Call, Members, member, string_member};

/// The most calls of one request.
const MAX_CALLS: usize = 128;
/// The longest description of a tool in OpenAI's Chat Completions, in characters.
const CHAT_DESCRIPTION: usize = 1024;
/// The most places of a schema that a note names.
const MOST_PLACES: usize = 5;
/// Members that OpenAI's APIs refuse at the top of a schema. Anthropic's refuses the first three.
const REFUSED: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

/// Whose forms are used; the parameter `format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// MANTYX's `local_tool_call`: one call. Its definitions are refs, which are no part of this.
    Event,
    /// MCP's definitions. Its calls are made at `/mcp`.
    Mcp,
    #[serde(rename = "openai-chat")]
    Chat,
    #[serde(rename = "openai-responses")]
    Responses,
    Anthropic,
    Gemini,
    Hsafa,
    /// Custom tools of an agent of Claude Managed Agents.
    Claude,
}

impl Format {
    fn is_openai(self) -> bool {
        matches!(self, Self::Chat | Self::Responses)
    }

    /// What precedes a tool's own name. Gemini's names do not begin with a digit; a `_` more keeps
    /// them apart.
    fn prefix(self, own: &str) -> &'static str {
        let is_number = own.trim_start_matches('_').starts_with(|first: char| first.is_numeric());
        if self == Self::Gemini && is_number { "_" } else { "" }
    }

    /// The value for the API's `tools`, made of MCP's `definitions`, and a note for each change.
    pub fn tools(
        self,
        definitions: impl Iterator<Item = String>,
        more: &str,
    ) -> (String, Vec<String>) {
        let mut notes = Vec::new();
        let tools: Vec<_> =
            definitions.filter_map(|tool| self.tool(&tool, more, &mut notes)).collect();
        let tools = format!("[{}]", tools.join(","));
        let is_wrapped = self == Self::Gemini && tools != "[]";
        (if is_wrapped { format!("[{{\"functionDeclarations\":{tools}}}]") } else { tools }, notes)
    }

    fn tool(self, tool: &str, more: &str, notes: &mut Vec<String>) -> Option<String> {
        let own = string_member(tool, "name")?;
        if matches!(self, Self::Event | Self::Mcp) {
            return Some(tool.to_owned());
        }
        let (given, refused_places) = for_api(member(tool, "inputSchema")?.get());
        let given = given.as_str();
        let mut note = |what: &str| notes.push(format!("`{own}`: {what}."));
        let (head, key, tail, refused) = match self {
            Self::Chat => ("\"type\":\"function\",\"function\":{", "parameters", "}", 5),
            Self::Responses => ("\"type\":\"function\",\"strict\":false,", "parameters", "", 5),
            Self::Anthropic => ("", "input_schema", "", 3),
            Self::Gemini => ("", "parametersJsonSchema", "", 0),
            Self::Hsafa => ("", "inputSchema", "", 0),
            Self::Claude => ("\"type\":\"custom\",", "input_schema", "", 3),
            Self::Event | Self::Mcp => return None,
        };
        if !refused_places.is_empty() {
            let places = at_most(&refused_places, MOST_PLACES);
            note(&format!(
                "its schema is without {places}, which JSON Schema 2020-12 does not take"
            ));
        }
        let prefix = self.prefix(&own);
        if !prefix.is_empty() {
            note("the API has a `_` more before its name");
        }
        let is_needed = matches!(self, Self::Hsafa | Self::Claude);
        let text = string_member(tool, "description").filter(|text| !is_needed || !text.is_empty());
        let text = text.or(is_needed.then(|| own.clone()));
        let most = if self == Self::Chat { CHAT_DESCRIPTION } else { usize::MAX };
        let short: Option<String> = text.as_ref().map(|text| text.chars().take(most).collect());
        if short != text {
            note("the end of its description is left out");
        }
        let text = short.map_or(String::new(), |text| format!("\"description\":{},", json!(text)));
        let members = Members::read(given).ok()?;
        let mut kept = Vec::new();
        for (key, value) in &members.0 {
            match REFUSED[..refused].contains(&&**key) {
                true => note(&format!("its schema is without `{key}`")),
                false => kept.push(format!("{}:{value}", json!(key))),
            }
        }
        let is_whole = kept.len() == members.0.len();
        let mut schema = if is_whole { given.into() } else { format!("{{{}}}", kept.join(",")) };
        if self.is_openai() && members.get("properties").is_none() {
            schema.insert_str(1, "\"properties\":{},");
            note("its schema has empty `properties`");
        }
        Some(format!("{{{head}\"name\":\"{prefix}{own}\",{text}\"{key}\":{schema}{more}{tail}}}"))
    }

    /// Reads the calls of a request: one, or a list.
    ///
    /// # Errors
    ///
    /// The place that has not the format's shape, for the app.
    pub fn read(self, body: &str) -> Result<Vec<Call>, String> {
        if self == Self::Event {
            // The client may send the whole event, or its `data` alone.
            let event = Members::read(body).ok();
            let data = event.and_then(|event| event.get("data")).map_or(body, RawValue::get);
            let call = Call::read(data).map_err(|error| {
                format!("The body is no local_tool_call event, nor the data of one: {error}.")
            })?;
            let kind = member(data, "kind").map(|_| call.kind.ok_or("Its `kind` is not known."));
            return Ok(vec![Call { kind: kind.transpose()?, ..call }]);
        }
        let _json: &RawValue =
            serde_json::from_str(body).map_err(|error| format!("The body is no JSON: {error}."))?;
        if !body.trim_start().starts_with('[') {
            return Ok(vec![self.read_call("the call", body)?]);
        }
        let calls = elements_at_most(body, MAX_CALLS).ok().filter(|list| !list.is_empty());
        let calls = calls.ok_or_else(|| format!("A list has 1 to {MAX_CALLS} calls."))?;
        let calls = calls.iter().enumerate();
        calls.map(|(at, call)| self.read_call(&format!("[{at}]"), call.get())).collect()
    }

    fn read_call(self, at: &str, text: &str) -> Result<Call, String> {
        let (kind, id, inside, args) = match self {
            Self::Chat => ("function", "id", "function", "arguments"),
            Self::Responses => ("function_call", "call_id", "", "arguments"),
            Self::Anthropic => ("tool_use", "id", "", "input"),
            Self::Gemini => ("", "id", "functionCall", "args"),
            Self::Event | Self::Mcp => return Err("MCP's calls are made at /mcp.".to_owned()),
            Self::Hsafa | Self::Claude => {
                return Err(
                    "`runtimes` in bridge.yaml answers the calls of this runtime.".to_owned()
                );
            }
        };
        let wrong = |key: &str, what: &str| format!("`{key}` of {at} must be {what}.");
        let string = |object, key| string_member(object, key).ok_or_else(|| wrong(key, "a string"));
        if string_member(text, "type").is_some_and(|stated| stated != kind) {
            return Err(wrong("type", kind));
        }
        let inner = member(text, inside).map_or(text, RawValue::get);
        // Of a member that stands twice, neither can be left out in silence.
        for object in [text, inner].map(Members::read).into_iter().flatten() {
            if let Some(key) = object.duplicate() {
                return Err(format!("`{key}` of {at} stands twice."));
            }
        }
        let shown = string(inner, "name")?;
        let name = shown.strip_prefix(self.prefix(&shown)).unwrap_or(&shown).to_owned();
        let lax = self == Self::Gemini;
        let id = if lax { string_member(inner, id).unwrap_or_default() } else { string(text, id)? };
        let given = member(inner, args).map_or("{}", RawValue::get);
        let given = if given == "null" { "{}" } else { given };
        // OpenAI's arguments are text. If it is no JSON, the check of the arguments refuses it.
        let inside = string_member(inner, args).filter(|_| self.is_openai());
        let is_empty = |text: &str| matches!(text.trim(), "" | "null");
        let inside = inside.map(|text| if is_empty(&text) { "{}".into() } else { text });
        let args = inside.and_then(|text| RawValue::from_string(text).ok());
        let args =
            args.unwrap_or_else(|| serde_json::from_str(given).expect("it was read as JSON"));
        Ok(Call { tool_use: id.into(), agent_run: None, name, kind: None, args, mcp_server: None })
    }

    /// The result of a call: a message, or a part of one.
    pub fn result(self, call: &Call, answer: &Answer) -> String {
        let id = call.tool_use.as_str();
        let is_error = matches!(answer, Answer::Error(_));
        let (text, mut blocks) = self.blocks(answer);
        let mut content = json!(text);
        if !blocks.is_empty() && self != Self::Gemini {
            let kind = if self == Self::Responses { "input_text" } else { "text" };
            blocks.insert(0, json!({ "type": kind, "text": text }));
            content = json!(blocks);
        }
        let mut result = match self {
            Self::Chat => json!({ "role": "tool", "tool_call_id": id, "content": content }),
            Self::Responses => {
                json!({ "type": "function_call_output", "call_id": id, "output": content })
            }
            Self::Anthropic => json!({
                "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error,
            }),
            Self::Gemini => {
                let name = [self.prefix(&call.name), &call.name].concat();
                let key = if is_error { "error" } else { "output" };
                let (id, said) = (Some(id).filter(|id| !id.is_empty()), json!({ key: content }));
                let part = json!({ "id": id, "name": name, "response": said, "parts": blocks });
                json!({ "functionResponse": part })
            }
            Self::Event | Self::Mcp | Self::Hsafa | Self::Claude => json!(answer),
        };
        if self == Self::Event {
            result["toolUseId"] = json!(id);
        }
        result.to_string()
    }

    /// The text of an answer, and its files as the API has them.
    pub fn blocks(self, answer: &Answer) -> (String, Vec<Value>) {
        let (text, files) = answer.parts();
        // OpenAI's results have no other sign of an error.
        let is_marked = self.is_openai() && matches!(answer, Answer::Error(_));
        let mut text = if is_marked { format!("Error: {text}") } else { text.to_owned() };
        let mut blocks = Vec::new();
        for file in files {
            match self.file(file) {
                Some(block) => blocks.push(block),
                None => text = file.left_out_of(&text),
            }
        }
        (text, blocks)
    }

    /// A file as a part of a result; `None` if the API has no place for it there.
    fn file(self, file: &File) -> Option<Value> {
        let (kind, data, name) = (file.mime_type(), file.data(), file.filename());
        let (is_image, is_pdf) = (kind.starts_with("image/"), kind == "application/pdf");
        let is_seen = is_pdf || is_image && kind != "image/gif";
        let url = || format!("data:{kind};base64,{data}");
        let source = || json!({ "type": "base64", "media_type": kind, "data": data });
        Some(match self {
            Self::Responses if is_image => json!({ "type": "input_image", "image_url": url() }),
            Self::Responses if !kind.starts_with("audio/") => {
                json!({ "type": "input_file", "filename": name, "file_data": url() })
            }
            Self::Anthropic if is_image => json!({ "type": "image", "source": source() }),
            Self::Anthropic if is_pdf => json!({ "type": "document", "source": source() }),
            Self::Gemini if is_seen => json!({ "inlineData": { "mimeType": kind, "data": data } }),
            _ => return None,
        })
    }

    /// The answer to a request: its results, in the order of the calls.
    pub fn answer(self, results: &[&str]) -> String {
        let (head, tail) = match self {
            Self::Event => ("", ""),
            Self::Anthropic => ("{\"messages\":[{\"role\":\"user\",\"content\":[", "]}]}"),
            Self::Gemini => ("{\"messages\":[{\"role\":\"user\",\"parts\":[", "]}]}"),
            _ => ("{\"messages\":[", "]}"),
        };
        format!("{head}{}{tail}", results.join(","))
    }
}

#[cfg(test)]
mod tests {
    //! The forms of each API, as its clients' types have them.

    use super::*;
    use crate::model::answer::files::{Attachments, DescribedFile};

    const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"maximum": 1e400}}}"#;

    fn tools(format: Format, tools: &[&str]) -> (Value, Vec<String>) {
        let (text, notes) = format.tools(tools.iter().map(|&tool| tool.to_owned()), "");
        // A schema may have numbers that no reader here keeps.
        (serde_json::from_str(&text.replace("1e400", "1")).unwrap(), notes)
    }

    fn tool(schema: &str) -> String {
        format!(r#"{{"name":"x","title":"X","description":"Does \"x\".","inputSchema":{schema}}}"#)
    }

    #[test]
    fn each_api_has_its_own_definitions_and_schemas_stay_as_they_are() {
        let definition = tool(SCHEMA);
        let schema: Value = serde_json::from_str(&SCHEMA.replace("1e400", "1")).unwrap();
        let text = "Does \"x\".";
        for (format, expected) in [
            (
                Format::Chat,
                json!([{ "type": "function", "function": {
                    "name": "x", "description": text, "parameters": schema,
                } }]),
            ),
            (
                Format::Responses,
                json!([{
                    "type": "function", "strict": false, "name": "x", "description": text,
                    "parameters": schema,
                }]),
            ),
            (
                Format::Anthropic,
                json!([{ "name": "x", "description": text, "input_schema": schema }]),
            ),
            (
                Format::Gemini,
                json!([{ "functionDeclarations": [
                    { "name": "x", "description": text, "parametersJsonSchema": schema },
                ] }]),
            ),
            (
                Format::Mcp,
                json!([serde_json::from_str::<Value>(&tool(&schema.to_string())).unwrap()]),
            ),
        ] {
            assert_eq!(tools(format, &[&definition]), (expected, vec![]), "{format:?}");
            let (written, _) = format.tools([definition.clone()].into_iter(), "");
            assert!(written.contains(SCHEMA), "{format:?}: {written}");
            assert_eq!(tools(format, &[]), (json!([]), vec![]), "{format:?}");
        }
    }

    #[test]
    fn runtimes_that_need_a_description_get_the_name_where_there_is_none() {
        for text in ["", r#""description":"","#] {
            let bare = format!(r#"{{"name":"x",{text}"inputSchema":{SCHEMA}}}"#);
            for format in [Format::Hsafa, Format::Claude] {
                assert_eq!(tools(format, &[&bare]).0[0]["description"], "x");
            }
        }
    }

    #[test]
    fn the_parts_that_an_api_refuses_are_changed_and_noted() {
        let combined = tool(r#"{"type":"object","anyOf":[{"required":["a"]}],"enum":[{}]}"#);
        for (format, key, schema, count) in [
            (Format::Chat, "parameters", json!({ "type": "object", "properties": {} }), 3),
            (Format::Responses, "parameters", json!({ "type": "object", "properties": {} }), 3),
            (Format::Anthropic, "input_schema", json!({ "type": "object", "enum": [{}] }), 1),
            (
                Format::Gemini,
                "parametersJsonSchema",
                json!({ "type": "object", "anyOf": [{ "required": ["a"] }], "enum": [{}] }),
                0,
            ),
        ] {
            let (made, notes) = tools(format, &[&combined]);
            let one = match format {
                Format::Chat => &made[0]["function"],
                Format::Gemini => &made[0]["functionDeclarations"][0],
                _ => &made[0],
            };
            assert_eq!((&one[key], notes.len()), (&schema, count), "{notes:?}");
        }
        let long = format!(
            r#"{{"name":"x","description":"{}","inputSchema":{SCHEMA}}}"#,
            "é".repeat(CHAT_DESCRIPTION + 1)
        );
        let (made, notes) = tools(Format::Chat, &[&long]);
        let length = made[0]["function"]["description"].as_str().unwrap().chars().count();
        assert_eq!((length, notes.len()), (CHAT_DESCRIPTION, 1));
        assert_eq!(tools(Format::Responses, &[&long]).1, Vec::<String>::new());
    }

    #[test]
    fn keyword_that_is_of_no_draft_is_left_out_and_noted_with_its_place() {
        for (schema, expected, place) in [
            (
                r#"{"type":"object","properties":{"n":{"minimum":0,"exclusiveMinimum":true}}}"#,
                json!({ "type": "object", "properties": { "n": { "minimum": 0 } } }),
                "/properties/n/exclusiveMinimum",
            ),
            (
                r#"{"type":"object","properties":{"a/b":{"enum":null,"pattern":"("}},"required":null}"#,
                json!({ "type": "object", "properties": { "a/b": {} } }),
                "/properties/a~1b/pattern",
            ),
            (
                r#"{"type":"object","properties":{"n":{"anyOf":[{"type":"strin"},7]}}}"#,
                json!({ "type": "object", "properties": { "n": { "anyOf": [{}, {}] } } }),
                "/properties/n/anyOf/1",
            ),
        ] {
            for format in [Format::Chat, Format::Responses, Format::Anthropic, Format::Gemini] {
                let (made, notes) = tools(format, &[&tool(schema)]);
                let (one, key) = match format {
                    Format::Chat => (&made[0]["function"], "parameters"),
                    Format::Responses => (&made[0], "parameters"),
                    Format::Gemini => (&made[0]["functionDeclarations"][0], "parametersJsonSchema"),
                    _ => (&made[0], "input_schema"),
                };
                assert_eq!(one[key], expected, "{format:?}");
                assert!(notes.len() == 1 && notes[0].contains(place), "{format:?}: {notes:?}");
            }
            let (text, notes) = Format::Mcp.tools([tool(schema)].into_iter(), "");
            assert!(text.contains(schema) && notes.is_empty(), "{text}");
        }
        // Look-around is of JavaScript, though the bridge cannot check it.
        let look = r#"{"type":"object","properties":{"n":{"pattern":"^(?=a)"}}}"#;
        assert_eq!(tools(Format::Anthropic, &[&tool(look)]).1, Vec::<String>::new());
    }

    #[test]
    fn gemini_gets_no_name_that_begins_with_a_digit() {
        for (own, shown) in [("a", "a"), ("_a", "_a"), ("3d", "_3d"), ("_3d", "__3d")] {
            let definition = format!(r#"{{"name":"{own}","inputSchema":{SCHEMA}}}"#);
            let (made, notes) = tools(Format::Gemini, &[&definition]);
            assert_eq!(made[0]["functionDeclarations"][0]["name"], shown);
            assert_eq!(notes.is_empty(), own == shown);
            let call = read(Format::Gemini, &format!(r#"{{"name":"{shown}"}}"#));
            assert_eq!(call.name, own);
            let result = result(Format::Gemini, &call, &Answer::text("hi"));
            assert_eq!(result["functionResponse"]["name"], shown);
        }
    }

    fn read(format: Format, body: &str) -> Call {
        format.read(body).unwrap().remove(0)
    }

    fn result(format: Format, call: &Call, answer: &Answer) -> Value {
        serde_json::from_str(&format.result(call, answer)).unwrap()
    }

    /// A call of each API, with `args` as they stand there.
    fn calls(args: &str) -> [(Format, String); 5] {
        let text = json!(args);
        [
            (
                Format::Chat,
                format!(
                    r#"{{"id":"1","type":"function","function":{{"name":"x","arguments":{text}}}}}"#
                ),
            ),
            (
                Format::Responses,
                format!(
                    r#"{{"id":"fc","call_id":"1","type":"function_call","name":"x","arguments":{text}}}"#
                ),
            ),
            (
                Format::Anthropic,
                format!(r#"{{"id":"1","type":"tool_use","name":"x","input":{args}}}"#),
            ),
            (Format::Gemini, format!(r#"{{"id":"1","name":"x","args":{args}}}"#)),
            (
                Format::Gemini,
                format!(r#"{{"functionCall":{{"id":"1","name":"x","args":{args}}}}}"#),
            ),
        ]
    }

    #[test]
    fn calls_are_read_as_they_came_one_or_a_list() {
        let args = r#"{"n": 12345678901234567890123, "n": 1}"#;
        for (format, body) in calls(args) {
            for body in [body.clone(), format!(" [{body}] ")] {
                let call = read(format, &body);
                let parts = (call.tool_use.as_str(), &*call.name, call.args.get());
                assert_eq!(parts, ("1", "x", args), "{format:?}");
            }
            let two = format.read(&format!("[{body},{body}]")).unwrap();
            assert_eq!(two.len(), 2, "ids need not differ");
            let many = vec![body.as_str(); MAX_CALLS + 1].join(",");
            assert!(format.read(&format!("[{many}]")).is_err());
            assert!(format.read("[]").is_err());
        }
        for (format, body) in calls("null") {
            assert_eq!(read(format, &body).args.get(), "{}", "{format:?} {body}");
        }
        let null = r#"{"id":"1","function":{"name":"x","arguments":null}}"#;
        assert_eq!(read(Format::Chat, null).args.get(), "{}");
        let blank = r#"{"id":"1","function":{"name":"x","arguments":" "}}"#;
        assert_eq!(read(Format::Chat, blank).args.get(), "{}");
        let broken = r#"{"id":"1","function":{"name":"x","arguments":"{\"a\":"}}"#;
        assert_eq!(read(Format::Chat, broken).args.get(), r#""{\"a\":""#);
    }

    #[test]
    fn a_member_that_stands_twice_is_refused() {
        for (format, body) in calls("{}") {
            for key in ["name", "arguments", "input", "args", "type", "function", "functionCall"] {
                let whole = format!(r#""{key}":"#);
                if !body.contains(&whole) {
                    continue;
                }
                let twice = body.replacen(&whole, &format!(r#"{whole}0,{whole}"#), 1);
                let why = format.read(&twice).expect_err(&twice);
                assert_eq!(why, format!("`{key}` of the call stands twice."));
            }
        }
        let args = r#"[{"name":"x","args":{"n":1},"args":{"n":2}}]"#;
        assert_eq!(Format::Gemini.read(args).unwrap_err(), "`args` of [0] stands twice.");
    }

    #[test]
    fn a_refusal_names_the_place() {
        let cases = [
            (Format::Chat, r#"[{"id":"1","function":{"name":7}}]"#, "`name` of [0]"),
            (Format::Chat, r#"{"function":{"name":"x"}}"#, "`id` of the call"),
            (Format::Chat, r#"[{"type":"custom"}]"#, "`type` of [0]"),
            (Format::Responses, r#"{"id":"1","name":"x"}"#, "`call_id` of the call"),
            (Format::Anthropic, r#"[{"id":"1","name":"x","input":{}},"x"]"#, "[1]"),
            (Format::Anthropic, r#"{"type":"text","text":"x"}"#, "`type` of the call"),
            (Format::Gemini, "7", "`name` of the call"),
            (Format::Anthropic, "{\"id\":", "no JSON"),
            (Format::Event, r#"{"toolUseId":"1"}"#, "name"),
            (Format::Event, r#"{"toolUseId":"1","name":"x","kind":"other"}"#, "`kind`"),
            (Format::Mcp, r#"{"name":"x"}"#, "/mcp"),
        ];
        for (format, body, place) in cases {
            let why = format.read(body).expect_err(body);
            assert!(why.contains(place), "{body}: {why}");
        }
    }

    /// An answer with files of these types.
    fn with_files(types: &[&str]) -> Answer {
        let mut files = Attachments::default();
        let lines = types.iter().map(|&mime_type| {
            let (name, mime_type) = (None, Some(mime_type));
            files.add(DescribedFile { kind: "file", name, mime_type, data: "aGk=", twice: false })
        });
        let lines: Vec<_> = lines.collect();
        Answer::Result { text: lines.join("\n"), files: files.files }
    }

    #[test]
    fn results_have_the_form_of_the_api() {
        let (good, bad) = (Answer::text("hi"), Answer::Error("no".to_owned()));
        let of_gemini = |said: Value| json!({ "functionResponse": { "id": "1", "name": "x", "response": said, "parts": [] } });
        for (format, body) in calls("{}") {
            let call = read(format, &body);
            let expected = |text: &str, error: &str, is_error: bool| match format {
                Format::Chat => json!({ "role": "tool", "tool_call_id": "1", "content": error }),
                Format::Responses => {
                    json!({ "type": "function_call_output", "call_id": "1", "output": error })
                }
                Format::Anthropic => json!({
                    "type": "tool_result", "tool_use_id": "1", "content": text, "is_error": is_error,
                }),
                _ if is_error => of_gemini(json!({ "error": text })),
                _ => of_gemini(json!({ "output": text })),
            };
            assert_eq!(result(format, &call, &good), expected("hi", "hi", false));
            assert_eq!(result(format, &call, &bad), expected("no", "Error: no", true));
        }
        let event = read(Format::Event, r#"{"toolUseId":"1","name":"x"}"#);
        let said = result(Format::Event, &event, &good);
        assert_eq!(said, json!({ "toolUseId": "1", "result": "hi" }));
        let unnamed = read(Format::Gemini, r#"{"name":"x"}"#);
        assert_eq!(result(Format::Gemini, &unnamed, &good)["functionResponse"]["id"], Value::Null);
        let two = ["{}", "{}"];
        assert_eq!(Format::Event.answer(&two[..1]), "{}");
        assert_eq!(Format::Chat.answer(&two), r#"{"messages":[{},{}]}"#);
        let message = r#"{"messages":[{"role":"user","content":[{},{}]}]}"#;
        assert_eq!(Format::Anthropic.answer(&two), message);
        assert_eq!(Format::Gemini.answer(&two), message.replace("content", "parts"));
    }

    #[test]
    fn files_are_passed_where_the_api_has_them_and_named_elsewhere() {
        let types = ["image/png", "image/gif", "application/pdf", "audio/wav", "text/csv"];
        let answer = with_files(&types);
        for (format, passed) in [
            (Format::Chat, [false; 5]),
            (Format::Responses, [true, true, true, false, true]),
            (Format::Anthropic, [true, true, true, false, false]),
            (Format::Gemini, [true, false, true, false, false]),
        ] {
            let (_, body) = calls("{}").into_iter().find(|(of, _)| *of == format).unwrap();
            let said = result(format, &read(format, &body), &answer);
            let (text, blocks) = match format {
                Format::Chat => (&said["content"], &Value::Null),
                Format::Gemini => {
                    let said = &said["functionResponse"];
                    (&said["response"]["output"], &said["parts"])
                }
                Format::Responses => (&said["output"][0]["text"], &said["output"]),
                _ => (&said["content"][0]["text"], &said["content"]),
            };
            let texts = usize::from(matches!(format, Format::Responses | Format::Anthropic));
            let blocks = blocks.as_array().map_or(0, Vec::len) - texts;
            assert_eq!(blocks, passed.iter().filter(|passed| **passed).count(), "{said}");
            let lines: Vec<_> = text.as_str().unwrap().lines().collect();
            for ((line, of), passed) in lines.iter().zip(types).zip(passed) {
                assert!(line.contains(of) && line.ends_with("attached]") == passed, "{line}");
            }
        }
        let Answer::Result { files, .. } = answer else { unreachable!() };
        let url = "data:image/png;base64,aGk=";
        let of = |format: Format| format.file(&files[0]).unwrap();
        assert_eq!(of(Format::Responses), json!({ "type": "input_image", "image_url": url }));
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
        assert_eq!(of(Format::Anthropic), json!({ "type": "image", "source": source }));
        let inline = json!({ "inlineData": { "mimeType": "image/png", "data": "aGk=" } });
        assert_eq!(of(Format::Gemini), inline);
        assert_eq!(files[0].left_out_of("cut"), "cut", "its line is gone");
    }
}
