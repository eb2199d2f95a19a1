//! A tool's hints about itself: that a call may be repeated, or that it may destroy something.
//!
//! Must not: decide whether the server is trusted; the operator does.

use super::{Members, json};

/// Whether an MCP tool, as its server sent it, says that it only reads or is idempotent.
///
/// Malformed annotations are no promise, nor is a duplicate hint.
pub fn mcp_tool_is_repeatable(tool: &str) -> bool {
    // MCP's two hints that a second call has no further effect. `idempotentHint` has no meaning
    // beside `readOnlyHint: true`, so either one is enough.
    let hints = ["readOnlyHint", "idempotentHint"];
    let Some([read_only, idempotent]) = said(tool, hints) else { return false };
    read_only == Some(true) || idempotent == Some(true)
}

/// Whether an MCP tool, as its server sent it, may destroy something: it says so, or says neither
/// the contrary nor that it only reads. MCP's defaults are the same: a missing `destructiveHint` is
/// true, and a missing `readOnlyHint` is false.
///
/// A tool with malformed annotations counts as destructive.
pub fn mcp_tool_is_destructive(tool: &str) -> bool {
    match said(tool, ["destructiveHint", "readOnlyHint"]) {
        Some([Some(destructive), _]) => destructive,
        Some([None, read_only]) => read_only != Some(true),
        None => true,
    }
}

/// The values of `hints` in the annotations of a tool; `None` if the annotations are malformed, or
/// a hint is a duplicate.
fn said<const N: usize>(tool: &str, hints: [&str; N]) -> Option<[Option<bool>; N]> {
    let annotations = json::member(tool, "annotations")?;
    let Members(members) = Members::read(annotations.get()).ok()?;
    let mut said = [None; N];
    for (hint, said) in hints.iter().zip(&mut said) {
        let mut values = members.iter().filter(|(name, _)| name == hint);
        *said = match (values.next().map(|(_, value)| value.get()), values.next()) {
            (Some("true"), None) => Some(true),
            (Some("false"), None) => Some(false),
            (None | Some("null"), None) => None,
            _ => return None,
        };
    }
    Some(said)
}

/// Whether the definition of a local tool says `readOnly: true`.
pub fn local_tool_is_repeatable(definition: &str) -> bool {
    json::member(definition, "readOnly").is_some_and(|value| value.get() == "true")
}

#[cfg(test)]
mod tests {
    //! What counts as a promise, and what does not.

    use super::*;

    #[test]
    fn annotations_of_mcp_tools() {
        let promises = [
            r#"{"readOnlyHint":true}"#,
            r#"{ "idempotentHint" : true }"#,
            r#"{"readOnlyHint":true,"idempotentHint":false,"destructiveHint":false}"#,
            r#"{"readOnlyHint":false,"idempotentHint":true,"destructiveHint":true}"#,
            r#"{"title":"T","readOnlyHint":null,"idempotentHint":true,"x-own":[1e400]}"#,
            r#"{"\u0072eadOnlyHint":true}"#,
        ];
        let none = [
            "{}",
            "null",
            "true",
            r#""readOnlyHint""#,
            "[true,true]",
            r#"[{"readOnlyHint":true}]"#,
            r#"{"readOnlyHint":false}"#,
            r#"{"readOnlyHint":"yes"}"#,
            r#"{"readOnlyHint":"true"}"#,
            r#"{"readOnlyHint":1}"#,
            r#"{"readOnlyHint":"yes","idempotentHint":true}"#,
            r#"{"readOnlyHint":true,"readOnlyHint":true}"#,
            r#"{"readOnlyHint":true,"idempotentHint":true,"readOnlyHint":false}"#,
            r#"{"destructiveHint":false,"openWorldHint":false}"#,
            r#"{"readonlyhint":true,"read_only_hint":true}"#,
            r#"{"hints":{"readOnlyHint":true}}"#,
        ];
        let cases = promises.map(|one| (one, true)).into_iter().chain(none.map(|one| (one, false)));
        for (annotations, expected) in cases {
            let tool = format!(r#"{{"name":"t","annotations":{annotations},"_meta":{{}}}}"#);
            assert_eq!(mcp_tool_is_repeatable(&tool), expected, "{annotations}");
        }
    }

    #[test]
    fn hints_count_in_one_place_alone() {
        for tool in [
            r#"{"name":"t"}"#,
            r#"{"name":"t","readOnlyHint":true,"readOnly":true}"#,
            r#"{"name":"t","_meta":{"annotations":{"readOnlyHint":true}}}"#,
            r#"{"annotations":{"readOnlyHint":true},"annotations":{"readOnlyHint":true}}"#,
            "[]",
        ] {
            assert!(!mcp_tool_is_repeatable(tool), "{tool}");
        }
    }

    #[test]
    fn tool_may_destroy_unless_its_hints_say_no() {
        let harmless = [
            r#"{"readOnlyHint":true}"#,
            r#"{"destructiveHint":false}"#,
            r#"{"readOnlyHint":false,"destructiveHint":false}"#,
            r#"{"readOnlyHint":true,"destructiveHint":null,"idempotentHint":"odd"}"#,
        ];
        let may_destroy = [
            "{}",
            "null",
            "[]",
            r#"{"title":"T"}"#,
            r#"{"destructiveHint":true}"#,
            r#"{"readOnlyHint":false}"#,
            r#"{"readOnlyHint":true,"destructiveHint":true}"#,
            r#"{"readOnlyHint":"true"}"#,
            r#"{"destructiveHint":"false"}"#,
            r#"{"destructiveHint":false,"readOnlyHint":1}"#,
            r#"{"destructiveHint":false,"destructiveHint":false}"#,
            r#"{"idempotentHint":true}"#,
        ];
        let cases =
            harmless.map(|one| (one, false)).into_iter().chain(may_destroy.map(|one| (one, true)));
        for (annotations, expected) in cases {
            let tool = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
            assert_eq!(mcp_tool_is_destructive(&tool), expected, "{annotations}");
        }
        assert!(mcp_tool_is_destructive(r#"{"name":"t"}"#), "one that says nothing");
    }

    #[test]
    fn local_tools() {
        assert!(local_tool_is_repeatable(r#"{"description":"d","readOnly":true}"#));
        for definition in [
            "{}",
            r#"{"readOnly":false}"#,
            r#"{"readOnly":"true"}"#,
            r#"{"annotations":{"readOnlyHint":true}}"#,
            r#"{"parameters":{"readOnly":true}}"#,
        ] {
            assert!(!local_tool_is_repeatable(definition), "{definition}");
        }
    }
}
