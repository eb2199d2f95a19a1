//! The tools of an offer as MCP's `Tool` objects, for clients of the bridge that speak MCP.
//!
//! Must not: change a byte of a server's tool other than its name, members that are `null`, and
//! what the client's revision has not.

use serde_json::value::RawValue;

use super::{Offer, Output, Ref};
use crate::model::json::{around, quoted};
use crate::model::schema::is_good_output;
use crate::model::{Members, form, member, string_member};

/// The input of an A2A agent's tool.
const MESSAGE: &str = r#"{"type":"object","properties":{"message":{"type":"string","description":"The message to the agent."}},"required":["message"]}"#;

impl Offer {
    /// All tools that a model is given, each as the JSON text of a `Tool` (MCP, Tools: Data Types).
    pub fn definitions(&self) -> Vec<String> {
        self.refs(&self.backends.keys().cloned().collect()).flat_map(Ref::definitions).collect()
    }

    /// The same for clients with sessions, which know less of schemas.
    pub fn definitions_for_sessions(&self) -> Vec<String> {
        let backends = self.backends.keys().cloned().collect();
        self.refs(&backends).flat_map(Ref::definitions_for_sessions).collect()
    }

    /// The tool `name` in the same form, if a model can find it, under the name `run_name`.
    pub fn hidden_definition(&self, name: &str, run_name: &str) -> Option<String> {
        let backend = self.backends.get(&self.routes.get(name)?.backend)?;
        let server = backend.hidden().find(|one| one.names().any(|own| **own == *name))?;
        let (_, tool) = server.tools().find(|(own, _)| own == name)?;
        if name == run_name {
            return Some(tool);
        }
        let (before, after) = around(&tool, "name")?;
        Some([before, &quoted(run_name), after].concat())
    }

    /// The names of the tools that match `query`, the best first, be they in this view or not.
    pub fn find(&self, query: &str) -> impl Iterator<Item = &String> {
        self.index.find(query)
    }
}

impl Ref {
    /// Its tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = (String, String)> {
        let tools = self.readable().into_iter();
        tools.filter_map(|tool| Some((string_member(&tool, "name")?, tool)))
    }

    /// Its tools in the same form. An `outputSchema` that cannot be used is left out: a client
    /// would refuse each call of its tool.
    pub fn definitions(&self) -> Vec<String> {
        self.readable()
            .into_iter()
            .zip(self.outputs())
            .map(|(tool, output)| match output {
                Output::Unusable => form::without(&tool, "outputSchema"),
                Output::None | Output::Any | Output::OfObject => tool,
            })
            .collect()
    }

    fn definitions_for_sessions(&self) -> Vec<String> {
        self.readable()
            .into_iter()
            .zip(self.outputs())
            .map(|(tool, output)| {
                let keeps_output = matches!(output, Output::None | Output::OfObject);
                form::tool_for_sessions(&tool, keeps_output).into_owned()
            })
            .collect()
    }

    /// Its tools, as far as clients can read them: a client refuses a whole list for one tool with
    /// a member of another form, and so every backend would lose its tools for it.
    fn readable(&self) -> Vec<String> {
        let text = str::from_utf8(&self.json).expect("a ref is written from text");
        let members = Members::read(text).expect("a ref is written as an object");
        let Some(tools) = members.array("tools") else { return vec![one(&members)] };
        let readable = tools.iter().filter(|tool| form::flaw(tool.get(), &form::TOOL).is_none());
        readable.map(|tool| form::trimmed(tool.get(), &form::TOOL).into_owned()).collect()
    }

    /// The kinds of its tools' outputs, in the order of [`Self::readable`].
    fn outputs(&self) -> impl Iterator<Item = Output> {
        let outputs = self
            .outputs
            .get_or_init(|| self.readable().iter().map(|tool| Output::of_tool(tool)).collect());
        outputs.iter().copied()
    }
}

impl Output {
    fn of_tool(tool: &str) -> Self {
        match member(tool, "outputSchema") {
            None => Self::None,
            Some(schema) if !is_good_output(schema) => Self::Unusable,
            Some(schema) if form::is_of_object(schema.get()) => Self::OfObject,
            Some(_) => Self::Any,
        }
    }
}

/// The tool of a ref of one tool: a local tool or an agent.
fn one(members: &Members<'_>) -> String {
    let card = members.get("agentCard").and_then(|card| Members::read(card.get()).ok());
    let of_card = card.as_ref().and_then(|card| card.get("description"));
    let name = members.get("name").map_or("\"\"", RawValue::get);
    let description = match members.get("description").or(of_card) {
        Some(text) if text.get().starts_with('"') => format!(",\"description\":{text}"),
        _ => String::new(),
    };
    let input = match members.get("parameters") {
        _ if card.is_some() => MESSAGE,
        Some(parameters) => parameters.get(),
        None => "{\"type\":\"object\"}",
    };
    let annotations = match members.get("readOnly") {
        Some(read_only) => format!(",\"annotations\":{{\"readOnlyHint\":{read_only}}}"),
        None => String::new(),
    };
    format!("{{\"name\":{name}{description},\"inputSchema\":{input}{annotations}}}")
}

#[cfg(test)]
mod tests;
