//! What clients send: JSON-RPC's envelope, a message with its ids, the parameters of requests about
//! tasks. Pure.
//!
//! Servers read the names of members in several spellings: protobuf's JSON also has `context_id`,
//! and some libraries ignore letter case. A spelling that the bridge did not know could carry the
//! id of another app's task past it. So each name that matters is written once, in one of the two
//! spellings of the protocol, and goes to the agent in the first.
//!
//! Must not: change what a message says.

use serde_json::json;
use serde_json::value::RawValue;
use sha2::Digest as _;

use super::error::FrontError;
use crate::backend::Generation;
use crate::model::Members;
use crate::model::catalog::{hash_of, hex};
use crate::model::json::{elements_at_most, quoted};
use crate::run_store::RunStore;

/// The most members of an object that the bridge looks into, and the most parts of a message.
const MAX_MEMBERS: usize = 256;
const MAX_PARTS: usize = 4096;
/// The longest id of a request, in bytes: the bridge repeats it.
const MAX_REQUEST_ID: usize = 1024;

/// The members of a message that the bridge reads. 0.3's protobuf form has the parts in `content`.
const READ_OF_MESSAGE: [&str; 6] =
    ["messageId", "contextId", "taskId", "referenceTaskIds", "parts", "content"];

/// A request of JSON-RPC.
#[derive(Debug)]
pub(super) struct RpcRequest<'a> {
    /// As JSON.
    pub id: &'a str,
    pub method: String,
    pub params: &'a str,
}

/// A request that is none, and its id as far as it has one.
#[derive(Debug)]
pub(super) struct BadRpc {
    pub id: String,
    pub error: FrontError,
}

impl<'a> RpcRequest<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, BadRpc> {
        let bad = |id: &str, error| BadRpc { id: id.to_owned(), error };
        serde_json::from_str::<&RawValue>(text)
            .map_err(|error| bad("null", FrontError::not_json(format!("Invalid JSON: {error}"))))?;
        let members = Members::read_at_most(text, MAX_MEMBERS).map_err(|_unread| {
            bad("null", FrontError::invalid_request("A request is one JSON object."))
        })?;
        let id = members.get("id").map_or("null", RawValue::get);
        if id.len() > MAX_REQUEST_ID || id.starts_with(['{', '[']) {
            let why = "`id` must be a number or a short string.";
            return Err(bad("null", FrontError::invalid_request(why)));
        }
        if let Some(twice) = members.duplicate() {
            let why = format!("The member `{twice}` is there twice.");
            return Err(bad(id, FrontError::invalid_request(why)));
        }
        if members.get("jsonrpc").is_none_or(|version| version.get() != "\"2.0\"") {
            let why = "`jsonrpc` must be \"2.0\".";
            return Err(bad(id, FrontError::invalid_request(why)));
        }
        let Some(method) = members.string("method") else {
            return Err(bad(id, FrontError::invalid_request("`method` must be a string.")));
        };
        let params = match members.get("params").map(RawValue::get) {
            None | Some("null") => "{}",
            Some(params) => params,
        };
        Ok(Self { id, method, params })
    }
}

/// A message of a client.
#[derive(Debug)]
pub(super) struct SentMessage {
    /// What goes to the agent.
    pub params: Box<RawValue>,
    pub id: String,
    pub context: Option<String>,
    pub task: Option<String>,
    /// The tasks that the message refers to.
    pub references: Vec<String>,
    /// What the rules and a person read: the text, and what else is in the message.
    pub arguments: Box<RawValue>,
    /// Tells another message with the same id apart.
    pub digest: String,
}

/// The parameters of a request about a task.
#[derive(Debug, Default)]
pub(super) struct TaskParams {
    pub id: String,
    pub history_length: Option<i64>,
    pub metadata: Option<Box<RawValue>>,
}

impl SentMessage {
    /// Reads the parameters of a message, which HTTP+JSON has as its body.
    pub(super) fn read(params: &str, generation: Generation) -> Result<Self, FrontError> {
        let outer =
            Guarded::read(params, "The parameters", &["message", "configuration", "tenant"])?;
        if outer.others().any(|key| plain(key) == "request") {
            // The name of `message` in the protobuf definition of 0.3.
            return Err(FrontError::invalid_params("Name the message `message`."));
        }
        if outer.others().any(is_push) {
            return Err(FrontError::no_push());
        }
        let Some(text) = outer.get("message") else {
            return Err(FrontError::invalid_params("`message` is missing."));
        };
        let message = Guarded::read(text.get(), "`message`", &READ_OF_MESSAGE)?;
        let id = message.id("messageId")?;
        let Some(id) = id else {
            return Err(FrontError::invalid_params("`message.messageId` is missing."));
        };
        let message_text = message.text();
        let mut members = vec![("message".to_owned(), message_text.clone())];
        if let Some(configuration) = outer.get("configuration") {
            members.push(("configuration".to_owned(), configuration_text(configuration)?));
        }
        members.extend(outer.other_members());
        let version = match generation {
            Generation::V03 => "0.3",
            Generation::V10 => "1.0",
        };
        Ok(Self {
            params: object(members)?,
            context: message.id("contextId")?,
            task: message.id("taskId")?,
            references: message.references()?,
            arguments: arguments(&message, &outer)?,
            digest: hex(&hash_of([version, &message_text]).finalize()),
            id,
        })
    }
}

impl TaskParams {
    /// Reads the parameters of a method about one task.
    pub(super) fn read(params: &str) -> Result<Self, FrontError> {
        let members = Guarded::read(
            params,
            "The parameters",
            &["id", "historyLength", "metadata", "tenant"],
        )?;
        let Some(id) = members.id("id")? else {
            return Err(FrontError::invalid_params("`id` is missing."));
        };
        let history_length = match members.get("historyLength") {
            None => None,
            Some(length) => Some(serde_json::from_str(length.get()).map_err(|_not_a_number| {
                FrontError::invalid_params("`historyLength` must be a number.")
            })?),
        };
        let metadata = members.get("metadata").filter(|value| value.get().starts_with('{'));
        Ok(Self { id, history_length, metadata: metadata.map(ToOwned::to_owned) })
    }
}

/// The members of an object, of which some are read by the bridge.
struct Guarded<'a> {
    /// Those that it reads, each under the protocol's own name.
    guarded: Vec<(&'static str, &'a RawValue)>,
    others: Vec<(String, &'a RawValue)>,
}

impl<'a> Guarded<'a> {
    fn read(text: &'a str, what: &str, names: &[&'static str]) -> Result<Self, FrontError> {
        let members = Members::read_at_most(text, MAX_MEMBERS).map_err(|_unread| {
            FrontError::invalid_params(format!("{what} must be a JSON object of few members."))
        })?;
        let (mut guarded, mut others) = (Vec::new(), Vec::new());
        for (key, value) in members.0 {
            let Some(name) = names.iter().find(|name| plain(name) == plain(&key)) else {
                others.push((key.into_owned(), value));
                continue;
            };
            if key != **name && key != snake(name) {
                let why = format!("{what} has the member `{key}`; write it `{name}`.");
                return Err(FrontError::invalid_params(why));
            }
            if guarded.iter().any(|(earlier, _)| earlier == name) {
                let why = format!("{what} has the member `{name}` twice.");
                return Err(FrontError::invalid_params(why));
            }
            guarded.push((*name, value));
        }
        guarded.retain(|(_, value)| value.get() != "null");
        Ok(Self { guarded, others })
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.guarded.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The names of the members that the bridge does not read.
    fn others(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(|(key, _)| key.as_str())
    }

    fn other(&self, key: &str) -> Option<&'a RawValue> {
        self.others.iter().find(|(other, _)| other == key).map(|(_, value)| *value)
    }

    /// The members that the bridge does not read, without `metadata` and those that have one of the
    /// `usual` values.
    fn rest(&self, usual: &[(&str, &str)]) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.others.iter().map(|(key, value)| (key.as_str(), *value)).filter(|(key, value)| {
            let is_usual =
                usual.iter().any(|(name, text)| key == name && value.get() == quoted(text));
            *key != "metadata" && !is_usual && value.get() != "null"
        })
    }

    /// Whether there are members that the bridge does not read, and that have none of the `usual`
    /// values.
    fn has_more_than(&self, usual: &[(&str, &str)]) -> bool {
        self.other("metadata").is_some_and(|value| value.get() != "null")
            || self.rest(usual).next().is_some()
    }

    fn other_members(&self) -> impl Iterator<Item = (String, String)> {
        self.others.iter().map(|(key, value)| (key.clone(), value.get().to_owned()))
    }

    /// The id under `name`. Some clients write an id that they do not have as an empty text.
    fn id(&self, name: &str) -> Result<Option<String>, FrontError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let id: String = serde_json::from_str(value.get()).map_err(|_no_text| {
            FrontError::invalid_params(format!("`{name}` must be a string."))
        })?;
        if !RunStore::is_remembered(&id) {
            return Err(FrontError::invalid_params(format!("`{name}` is too long.")));
        }
        Ok(Some(id).filter(|id| !id.is_empty()))
    }

    fn references(&self) -> Result<Vec<String>, FrontError> {
        let Some(value) = self.get("referenceTaskIds") else { return Ok(Vec::new()) };
        let why = "`referenceTaskIds` must be a list of few strings.";
        let ids: Vec<String> = serde_json::from_str(value.get())
            .map_err(|_no_list| FrontError::invalid_params(why))?;
        if ids.len() > MAX_MEMBERS {
            return Err(FrontError::invalid_params(why));
        }
        Ok(ids)
    }

    /// The object with the protocol's names; all else as it was written.
    fn text(&self) -> String {
        let guarded = self.guarded.iter().map(|(name, value)| (*name, value.get()));
        let others = self.others.iter().map(|(key, value)| (key.as_str(), value.get()));
        let members = guarded.chain(others).map(|(key, value)| format!("{}:{value}", quoted(key)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// The `configuration`, which may ask for no push notification.
fn configuration_text(configuration: &RawValue) -> Result<String, FrontError> {
    let members = Guarded::read(configuration.get(), "`configuration`", &[])?;
    let pushes = members.others.iter().filter(|(key, _)| is_push(key));
    if pushes.clone().any(|(_, value)| value.get() != "null") {
        return Err(FrontError::no_push());
    }
    let rest = members.others.iter().filter(|(key, _)| !is_push(key));
    let rest = rest.map(|(key, value)| format!("{}:{}", quoted(key), value.get()));
    Ok(format!("{{{}}}", rest.collect::<Vec<_>>().join(",")))
}

fn is_push(key: &str) -> bool {
    plain(key).contains("pushnotification")
}

/// The arguments of the call: `message` with all texts, as for the agent's tool; and what else a
/// person has to see who approves the message.
fn arguments(message: &Guarded<'_>, outer: &Guarded<'_>) -> Result<Box<RawValue>, FrontError> {
    let mut texts = Vec::new();
    let mut others = Vec::new();
    for list in [message.get("parts"), message.get("content")].into_iter().flatten() {
        let parts = elements_at_most(list.get(), MAX_PARTS)
            .map_err(|_unread| FrontError::invalid_params("A message has a list of few parts."))?;
        for part in parts {
            // Of two texts in one part, the rules would read one and the agent the other.
            let members = Guarded::read(part.get(), "A part", &["text"])?;
            if let Some(text) = members.get("text") {
                texts.push(part_text(text)?);
            }
            // A part with a text and more, such as `data`, is shown whole: agents may read the rest
            // alone.
            if members.get("text").is_none() || members.has_more_than(&[("kind", "text")]) {
                others.push(part.get());
            }
        }
    }
    let mut members = vec![("message".to_owned(), json!(texts.join("\n\n")).to_string())];
    if !others.is_empty() {
        members.push(("parts".to_owned(), format!("[{}]", others.join(","))));
    }
    for name in ["taskId", "contextId", "referenceTaskIds"] {
        members.extend(message.get(name).map(|value| (name.to_owned(), value.get().to_owned())));
    }
    let rest = message.rest(&[("kind", "message"), ("role", "user"), ("role", "ROLE_USER")]);
    let rest: Vec<_> = rest
        .chain(outer.rest(&[]))
        .map(|(key, value)| format!("{}:{}", quoted(key), value.get()))
        .collect();
    if !rest.is_empty() {
        members.push(("otherMembers".to_owned(), format!("{{{}}}", rest.join(","))));
    }
    let metadata = [message.other("metadata"), outer.other("metadata")];
    let metadata = metadata.into_iter().flatten().filter(|value| value.get() != "null");
    let metadata: Vec<&str> = metadata.map(RawValue::get).collect();
    if !metadata.is_empty() {
        members.push(("metadata".to_owned(), format!("[{}]", metadata.join(","))));
    }
    object(members)
}

fn part_text(text: &RawValue) -> Result<String, FrontError> {
    let why = "The `text` of a part must be a string.";
    serde_json::from_str(text.get()).map_err(|_no_text| FrontError::invalid_params(why))
}

fn object(members: Vec<(String, String)>) -> Result<Box<RawValue>, FrontError> {
    let members = members.into_iter().map(|(key, value)| format!("{}:{value}", quoted(&key)));
    let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    RawValue::from_string(text).map_err(|error| FrontError::invalid_params(error.to_string()))
}

/// A name without what spellings differ in.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The name in the spelling of protobuf: `contextId` is `context_id`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests;
