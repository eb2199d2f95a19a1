//! Tools, calls and results in the forms of the APIs of models, for apps that call a model
//! themselves.
//!
//! Pure.
//!
//! Must not: change more of a tool than its API refuses, or change it without a note.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::files::File;
use super::form::without_lone_surrogates;
use super::json::{elements_at_most, lossy, no_members};
use super::schema::for_api;
use super::visible::at_most;
use super::{Answer, Call, Members, member, string_member};

/// The most calls of one request.
const MAX_CALLS: usize = 128;
/// The longest description of a tool in OpenAI's Chat Completions, in characters.
const CHAT_DESCRIPTION: usize = 1024;
/// The most places of a schema that a note names.
const MAX_PLACES: usize = 5;
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
        let begins_with_digit =
            own.trim_start_matches('_').starts_with(|first: char| first.is_numeric());
        if self == Self::Gemini && begins_with_digit { "_" } else { "" }
    }

    /// The value for the API's `tools`, made of MCP's `definitions`, and a note for each change.
    pub fn tools(
        self,
        definitions: impl Iterator<Item = String>,
        more: &str,
    ) -> (String, Vec<String>) {
        let mut notes = Vec::new();
        let texts: Vec<_> =
            definitions.filter_map(|tool| self.tool(&tool, more, &mut notes)).collect();
        let list = format!("[{}]", texts.join(","));
        let tools = without_lone_surrogates(&list).into_owned();
        if self == Self::Gemini && tools != "[]" {
            return (format!("[{{\"functionDeclarations\":{tools}}}]"), notes);
        }
        (tools, notes)
    }

    fn tool(self, tool: &str, more: &str, notes: &mut Vec<String>) -> Option<String> {
        let own = string_member(tool, "name")?;
        if matches!(self, Self::Event | Self::Mcp) {
            return Some(tool.to_owned());
        }
        let (whole_schema, refused_places) = for_api(member(tool, "inputSchema")?.get());
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
            let places = at_most(&refused_places, MAX_PLACES);
            note(&format!(
                "its schema is without {places}, which JSON Schema 2020-12 does not take"
            ));
        }
        let prefix = self.prefix(&own);
        if !prefix.is_empty() {
            note("the API has a `_` more before its name");
        }
        let whole = self.description(tool, &own);
        let most = if self == Self::Chat { CHAT_DESCRIPTION } else { usize::MAX };
        let short: Option<String> = whole.as_ref().map(|text| text.chars().take(most).collect());
        if short != whole {
            note("the end of its description is left out");
        }
        let text = short.map_or(String::new(), |text| format!("\"description\":{},", json!(text)));
        let members = Members::read(&whole_schema).ok()?;
        let mut accepted = Vec::new();
        for (key, value) in &members.0 {
            if REFUSED[..refused].contains(&&**key) {
                note(&format!("its schema is without `{key}`"));
            } else {
                accepted.push(format!("{}:{value}", json!(key)));
            }
        }
        let mut schema = if accepted.len() == members.0.len() {
            whole_schema.clone()
        } else {
            format!("{{{}}}", accepted.join(","))
        };
        if self.is_openai() && members.get("properties").is_none() {
            schema.insert_str(1, "\"properties\":{},");
            note("its schema has empty `properties`");
        }
        Some(format!("{{{head}\"name\":\"{prefix}{own}\",{text}\"{key}\":{schema}{more}{tail}}}"))
    }

    /// The description of a tool. Some runtimes refuse a tool without one; they get its name.
    fn description(self, tool: &str, own: &str) -> Option<String> {
        let description = member(tool, "description").and_then(|text| lossy(text.get()));
        let description = description.map(Cow::into_owned);
        if !matches!(self, Self::Hsafa | Self::Claude) {
            return description;
        }
        Some(description.filter(|text| !text.is_empty()).unwrap_or_else(|| own.to_owned()))
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
        let elements = elements_at_most(body, MAX_CALLS)
            .ok()
            .filter(|list| !list.is_empty())
            .ok_or_else(|| format!("A list has 1 to {MAX_CALLS} calls."))?;
        let calls = elements.iter().enumerate();
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
        if string_member(text, "type").is_some_and(|stated| stated != kind) {
            return Err(format!("`type` of {at} must be {kind}."));
        }
        let string = |object, key| {
            string_member(object, key).ok_or_else(|| format!("`{key}` of {at} must be a string."))
        };
        let inner = member(text, inside).map_or(text, RawValue::get);
        // Of a member that stands twice, neither can be left out in silence.
        for object in [text, inner].map(Members::read).into_iter().flatten() {
            if let Some(key) = object.duplicate() {
                return Err(format!("`{key}` of {at} stands twice."));
            }
        }
        let prefixed = string(inner, "name")?;
        let name = prefixed.strip_prefix(self.prefix(&prefixed)).unwrap_or(&prefixed).to_owned();
        let lax = self == Self::Gemini;
        let id = if lax { string_member(inner, id).unwrap_or_default() } else { string(text, id)? };
        let args = self.arguments(inner, args);
        Ok(Call { tool_use: id.into(), agent_run: None, name, kind: None, args, mcp_server: None })
    }

    /// The arguments of a call, the member `key` of `call`. OpenAI's are text. If the text is no
    /// JSON, the check of the arguments refuses it.
    fn arguments(self, call: &str, key: &str) -> Box<RawValue> {
        if self.is_openai()
            && let Some(text) = string_member(call, key)
        {
            if matches!(text.trim(), "" | "null") {
                return no_members();
            }
            if let Ok(arguments) = RawValue::from_string(text) {
                return arguments;
            }
        }
        match member(call, key) {
            Some(value) if value.get() != "null" => value.to_owned(),
            _ => no_members(),
        }
    }

    /// The result of a call: a message, or a part of one.
    pub fn result(self, call: &Call, answer: &Answer) -> String {
        let id = call.tool_use.as_str();
        let failed = matches!(answer, Answer::Error(_));
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
                "type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed,
            }),
            Self::Gemini => {
                let name = [self.prefix(&call.name), &call.name].concat();
                let key = if failed { "error" } else { "output" };
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
        let mut text = match answer {
            // OpenAI's results have no other sign of an error.
            Answer::Error(_) if self.is_openai() => format!("Error: {text}"),
            _ => text.to_owned(),
        };
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
        let (mime_type, data, name) = (file.mime_type(), file.data(), file.filename());
        let (image, pdf) = (mime_type.starts_with("image/"), mime_type == "application/pdf");
        Some(match self {
            Self::Responses if image || !mime_type.starts_with("audio/") => {
                let url = format!("data:{mime_type};base64,{data}");
                if image {
                    json!({ "type": "input_image", "image_url": url })
                } else {
                    json!({ "type": "input_file", "filename": name, "file_data": url })
                }
            }
            Self::Anthropic if image || pdf => {
                let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
                json!({ "type": if image { "image" } else { "document" }, "source": source })
            }
            Self::Gemini if pdf || image && mime_type != "image/gif" => {
                json!({ "inlineData": { "mimeType": mime_type, "data": data } })
            }
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
mod tests;
