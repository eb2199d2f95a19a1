//! The tools of an offer as MCP's `Tool` objects, for clients of the bridge that speak MCP.
//!
//! Must not: change a byte of a server's tool other than its name.

use serde_json::value::RawValue;

use super::{Offer, Ref};
use crate::model::json::{Elements, Members};

/// The input of an A2A agent's tool.
const MESSAGE: &str = r#"{"type":"object","properties":{"message":{"type":"string","description":"The message to the agent."}},"required":["message"]}"#;

impl Offer {
    /// All tools, each as the JSON text of a `Tool` (MCP, Tools: Data Types), in the order of the
    /// backends' names and then that of each server.
    pub fn definitions(&self) -> impl Iterator<Item = String> {
        let refs = self.backends.values().flat_map(|offered| offered.refs());
        refs.chain(self.results()).flat_map(Ref::definitions)
    }
}

impl Ref {
    fn definitions(&self) -> Vec<String> {
        let text = str::from_utf8(&self.json).expect("a ref is written from text");
        let members = Members::read(text).expect("a ref is written as an object");
        match members.get("tools").and_then(|tools| Elements::read(tools.get()).ok()) {
            Some(tools) => tools.0.iter().map(|tool| tool.get().to_owned()).collect(),
            None => vec![one(&members)],
        }
    }
}

/// The tool of a ref of one tool: a local tool or an agent.
fn one(members: &Members<'_>) -> String {
    let card = members.get("agentCard").and_then(|card| Members::read(card.get()).ok());
    let of_card = card.as_ref().and_then(|card| card.get("description"));
    let name = members.get("name").map_or("\"\"", RawValue::get);
    let mut tool = format!("{{\"name\":{name}");
    if let Some(description) = members.get("description").or(of_card) {
        tool.push_str(",\"description\":");
        tool.push_str(description.get());
    }
    let input = if card.is_some() { Some(MESSAGE) } else { None };
    let input = input.or(members.get("parameters").map(RawValue::get));
    tool.push_str(",\"inputSchema\":");
    tool.push_str(input.unwrap_or("{\"type\":\"object\"}"));
    if let Some(read_only) = members.get("readOnly") {
        tool.push_str(&format!(",\"annotations\":{{\"readOnlyHint\":{read_only}}}"));
    }
    tool.push('}');
    tool
}
