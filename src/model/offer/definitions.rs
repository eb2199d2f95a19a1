//! The tools of an offer as MCP's `Tool` objects, for clients of the bridge that speak MCP.
//!
//! Must not: change a byte of a server's tool other than its name.

use serde_json::value::RawValue;

use super::{Offer, Ref};
use crate::model::features::are_typed;
use crate::model::{Members, member, string_member};

/// The input of an A2A agent's tool.
const MESSAGE: &str = r#"{"type":"object","properties":{"message":{"type":"string","description":"The message to the agent."}},"required":["message"]}"#;

/// The characters with which the values of a tool's members, and of its annotations, may start.
const TOOL_TYPES: [(&str, &str); 7] = [
    ("title", "\""),
    ("description", "\""),
    ("outputSchema", "{"),
    ("annotations", "{"),
    ("icons", "["),
    ("execution", "{"),
    ("_meta", "{"),
];
const ANNOTATION_TYPES: [(&str, &str); 5] = [
    ("title", "\""),
    ("readOnlyHint", "tf"),
    ("destructiveHint", "tf"),
    ("idempotentHint", "tf"),
    ("openWorldHint", "tf"),
];

impl Offer {
    /// All tools that a model is given, each as the JSON text of a `Tool` (MCP, Tools: Data Types).
    pub fn definitions(&self) -> Vec<String> {
        self.refs(&self.backends.keys().cloned().collect()).flat_map(Ref::definitions).collect()
    }

    /// The tool of this name in the same form, if a model can find it.
    pub fn hidden_definition(&self, name: &str) -> Option<String> {
        let backend = self.backends.get(&self.route(name)?.backend)?;
        let one = backend.hidden().find(|one| one.names().any(|it| **it == *name))?;
        one.tools().find(|(it, _)| it == name).map(|(_, tool)| tool)
    }

    /// The names of the tools that match `query`, the best first, be they in this view or not.
    pub fn find(&self, query: &str) -> impl Iterator<Item = &String> {
        self.index.find(query)
    }
}

impl Ref {
    /// Its tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = (String, String)> {
        let tools = self.definitions().into_iter();
        tools.filter_map(|tool| Some((string_member(&tool, "name")?, tool)))
    }

    /// Its tools in the same form.
    pub fn definitions(&self) -> Vec<String> {
        let text = str::from_utf8(&self.json).expect("a ref is written from text");
        let members = Members::read(text).expect("a ref is written as an object");
        match members.array("tools") {
            Some(tools) => {
                let typed = tools.iter().filter(|tool| is_typed(tool.get()));
                typed.map(|tool| tool.get().to_owned()).collect()
            }
            None => vec![one(&members)],
        }
    }
}

/// Whether the members of a tool that MCP gives a type have it. A client refuses a whole list for
/// one tool in which they have not, and so every backend would lose its tools for it.
fn is_typed(tool: &str) -> bool {
    let input = member(tool, "inputSchema").map_or("", RawValue::get);
    let annotations = member(tool, "annotations").map_or("{}", RawValue::get);
    are_typed(tool, &TOOL_TYPES)
        && are_typed(annotations, &ANNOTATION_TYPES)
        && are_typed(input, &[("properties", "{"), ("required", "[")])
        && member(input, "type").is_some_and(|kind| kind.get() == "\"object\"")
}

/// The tool of a ref of one tool: a local tool or an agent.
fn one(members: &Members<'_>) -> String {
    let card = members.get("agentCard").and_then(|card| Members::read(card.get()).ok());
    let of_card = card.as_ref().and_then(|card| card.get("description"));
    let name = members.get("name").map_or("\"\"", RawValue::get);
    let description = members.get("description").or(of_card);
    let description = description.map(|text| format!(",\"description\":{text}"));
    let input = if card.is_some() { Some(MESSAGE) } else { None };
    let input = input.or(members.get("parameters").map(RawValue::get));
    let input = input.unwrap_or("{\"type\":\"object\"}");
    let read_only = members.get("readOnly");
    let annotations = read_only.map(|is| format!(",\"annotations\":{{\"readOnlyHint\":{is}}}"));
    let [description, annotations] = [description, annotations].map(Option::unwrap_or_default);
    format!("{{\"name\":{name}{description},\"inputSchema\":{input}{annotations}}}")
}

#[cfg(test)]
mod tests {
    //! Which definitions a client can read.

    use super::is_typed;

    #[test]
    fn a_tool_whose_members_have_other_types_is_left_out() {
        let good = r#""name":"a","inputSchema":{"type":"object","x":1e400},"x-vendor":[1]"#;
        assert!(is_typed(&format!("{{{good}}}")));
        assert!(is_typed(&format!(r#"{{{good},"annotations":{{"readOnlyHint":true,"x":1}}}}"#)));
        for more in [
            r#""outputSchema":7"#,
            r#""execution":5"#,
            r#""title":{}"#,
            r#""description":7"#,
            r#""_meta":[1]"#,
            r#""annotations":{"readOnlyHint":"yes"}"#,
        ] {
            assert!(!is_typed(&format!("{{{good},{more}}}")), "{more}");
        }
        for schema in ["true", "{}", r#"{"type":"string"}"#, r#"{"type":"object","required":7}"#] {
            assert!(!is_typed(&format!(r#"{{"name":"a","inputSchema":{schema}}}"#)), "{schema}");
        }
        assert!(!is_typed(r#"{"name":"a"}"#));
    }
}
