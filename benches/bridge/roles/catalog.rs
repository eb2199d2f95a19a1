//! Tools that nobody calls: as large as those of the servers that people use, where a tool takes
//! several hundred bytes.
//!
//! Must not: depend on anything but the number.

use serde_json::json;

/// The largest catalog.
pub(super) const MOST: usize = 2_000;

const VERBS: [&str; 8] =
    ["list", "get", "create", "update", "delete", "search", "export", "archive"];
const NOUNS: [&str; 10] = [
    "issue", "page", "customer", "invoice", "ticket", "document", "calendar", "order", "contact",
    "report",
];

/// The tool with this number, as JSON.
pub(super) fn tool(number: usize) -> String {
    let pick = |words: &[&'static str], at: usize| words.get(at % words.len()).copied();
    let verb = pick(&VERBS, number).unwrap_or_default();
    let noun = pick(&NOUNS, number / VERBS.len()).unwrap_or_default();
    json!({
        "name": format!("{verb}_{noun}_{number}"),
        "title": format!("{verb} {noun} {number}"),
        "description": format!(
            "Use this to {verb} the {noun} of a project. Returns the fields that were asked for, \
             or an error that says which {noun} is missing and what can be done about it."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "project": { "type": "string", "description": "Key of the project, such as ACME." },
                "id": { "type": "string", "description": format!("Id of the {noun}.") },
                "fields": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Names of the fields to return; all of them where left out.",
                },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100, "default": 20 },
            },
            "required": ["project", "id"],
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": number.is_multiple_of(2), "openWorldHint": false },
    })
    .to_string()
}
