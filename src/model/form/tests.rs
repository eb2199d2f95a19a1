//! Which definitions clients can read, and what is taken from them for that.

use super::*;

const GOOD: &str = r#""name":"a","inputSchema":{"type":"object","x":1e400},"x-vendor":[1]"#;

fn tool_flaw(members: &str) -> Option<String> {
    flaw(&format!("{{{members}}}"), &TOOL)
}

#[test]
fn tool_with_a_member_of_another_form_is_named_with_it() {
    assert_eq!(tool_flaw(GOOD), None);
    for (more, expected) in [
        (r#""outputSchema":7"#, "`outputSchema` is no object"),
        (r#""execution":5"#, "`execution` is no object"),
        (r#""execution":{"taskSupport":"maybe"}"#, "`execution.taskSupport` is not required or"),
        (r#""title":{}"#, "`title` is no text"),
        (r#""description":7"#, "`description` is no text"),
        (r#""_meta":[1]"#, "`_meta` is no object"),
        (r#""annotations":{"readOnlyHint":"yes"}"#, "`annotations.readOnlyHint` is not true or"),
        (r#""icons":[{"src":"a"},{}]"#, "`icons[1].src` is missing"),
        (r#""icons":[{"src":"a","sizes":"48x48"}]"#, "`icons[0].sizes` is no list"),
    ] {
        let found = tool_flaw(&format!("{GOOD},{more}")).unwrap_or_default();
        assert!(found.starts_with(expected), "{more}: {found}");
    }
    for (schema, expected) in [
        ("true", "`inputSchema` is no object"),
        ("null", "`inputSchema` is missing"),
        ("{}", "`inputSchema.type` is missing"),
        (r#"{"type":"string"}"#, "`inputSchema.type` is not object"),
        (r#"{"type":"object","required":7}"#, "`inputSchema.required` is no list"),
        (r#"{"type":"object","required":[1]}"#, "`inputSchema.required[0]` is not"),
        (r#"{"type":"object","properties":{"a":7}}"#, "`inputSchema.properties.a` is no schema"),
    ] {
        let found = tool_flaw(&format!(r#""name":"a","inputSchema":{schema}"#)).unwrap_or_default();
        assert!(found.starts_with(expected), "{schema}: {found}");
    }
    assert_eq!(tool_flaw(r#""name":"a""#).as_deref(), Some("`inputSchema` is missing"));
}

#[test]
fn null_counts_as_left_out() {
    let nulls = r#""title":null,"description":null,"outputSchema":null,"annotations":null,
        "icons":null,"execution":null,"_meta":null"#;
    let tool = format!("{{{GOOD},{nulls}}}");
    assert_eq!(flaw(&tool, &TOOL), None);
    assert_eq!(trimmed(&tool, &TOOL), format!("{{{GOOD}}}"));

    let inner = r#"{"name":"a", "inputSchema":{"type":"object","properties":null,"required":null, "default":null},
        "annotations":{"readOnlyHint":null,"x":null},"execution":{"taskSupport":null},
        "icons":[{"src":"a","theme":null}],"_meta":{"a":null},"x":null}"#;
    assert_eq!(flaw(inner, &TOOL), None);
    assert_eq!(
        trimmed(inner, &TOOL),
        r#"{"name":"a","inputSchema":{"type":"object","default":null},"annotations":{"x":null},"execution":{},"icons":[{"src":"a"}],"_meta":{"a":null},"x":null}"#
    );
}

#[test]
fn json_without_null_keeps_its_bytes() {
    let tool = r#"{ "name" : "a\u0041", "inputSchema": {"type":"object", "properties": {"n": {"default": null}}}, "_meta": {"a": 1.0} }"#;
    assert!(matches!(trimmed(tool, &TOOL), Cow::Borrowed(text) if text == tool));
}

#[test]
fn resource_has_a_whole_uri_and_loses_hints_of_another_form() {
    let resource = |more: &str| format!(r#"{{"uri":"x://a","name":"n"{more}}}"#);
    for (more, is_kept) in [
        (
            r#","annotations":{"priority":0.5,"audience":["user"],"lastModified":"2026-01-12T15:00:58Z"}"#,
            true,
        ),
        (r#","annotations":{"priority":5}"#, false),
        (r#","annotations":{"audience":["me"]}"#, false),
        (r#","annotations":{"lastModified":"2026-01-12"}"#, false),
        (r#","annotations":7"#, false),
    ] {
        let text = resource(more);
        assert_eq!(flaw(&text, &RESOURCE), None, "{more}");
        let expected = if is_kept { text.clone() } else { resource("") };
        assert_eq!(trimmed(&text, &RESOURCE), expected, "{more}");
    }
    for (text, expected) in [
        (r#"{"uri":"a/b","name":"n"}"#.to_owned(), "`uri` is no whole URI"),
        (resource(r#","size":1.5"#), "`size` is no whole number"),
        (resource(r#","size":"large""#), "`size` is no whole number"),
    ] {
        assert_eq!(flaw(&text, &RESOURCE).as_deref(), Some(expected));
    }
}

#[test]
fn arguments_of_a_prompt_are_looked_at_one_by_one() {
    let prompt = r#"{"name":"p","arguments":[{"name":"a","required":null,"description":null}]}"#;
    assert_eq!(flaw(prompt, &PROMPT), None);
    assert_eq!(trimmed(prompt, &PROMPT), r#"{"name":"p","arguments":[{"name":"a"}]}"#);
    let flawed = r#"{"name":"p","arguments":[{"name":"a"},{"required":true}]}"#;
    assert_eq!(flaw(flawed, &PROMPT).as_deref(), Some("`arguments[1].name` is missing"));
}

#[test]
fn block_that_clients_cannot_read_is_none() {
    for (json, expected) in [
        (r#"{"type":"text","text":"a","x":null}"#, Some(r#"{"type":"text","text":"a","x":null}"#)),
        (
            r#"{"type":"text","text":"a","_meta":null,"annotations":null}"#,
            Some(r#"{"type":"text","text":"a"}"#),
        ),
        (
            r#"{"type":"text","text":"a","annotations":{"priority":7}}"#,
            Some(r#"{"type":"text","text":"a"}"#),
        ),
        (r#"{"type":"text","text":7}"#, None),
        (
            r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#,
            Some(r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#),
        ),
        (r#"{"type":"image","data":"aGk=","mimeType":null}"#, None),
        (r#"{"type":"image","data":"a_k=","mimeType":"image/png"}"#, None),
        (
            r#"{"type":"resource_link","uri":"x://a","name":"n","size":null}"#,
            Some(r#"{"type":"resource_link","uri":"x://a","name":"n"}"#),
        ),
        (r#"{"type":"resource_link","uri":"x://a"}"#, None),
        (
            r#"{"type":"resource","resource":{"uri":"x://a","text":"t","mimeType":null}}"#,
            Some(r#"{"type":"resource","resource":{"uri":"x://a","text":"t"}}"#),
        ),
        (r#"{"type":"resource","resource":{"uri":"x://a"}}"#, None),
        (r#"{"type":"resource","resource":{"uri":"a","text":"t"}}"#, None),
        (r#"{"type":"hologram"}"#, None),
        ("7", None),
    ] {
        assert_eq!(block(json).as_deref(), expected, "{json}");
    }
}

#[test]
fn client_with_sessions_gets_schemas_of_its_revision() {
    let tool = |schema: &str| {
        format!(r#"{{"name":"a","inputSchema":{schema},"outputSchema":{{"type":"array"}}}}"#)
    };
    let plain = r#"{"type":"object", "properties":{"a":{}}}"#;
    assert!(matches!(tool_for_sessions(&tool(plain), true), Cow::Borrowed(_)));
    let without_output = format!(r#"{{"name":"a","inputSchema":{plain}}}"#);
    assert_eq!(tool_for_sessions(&tool(plain), false), without_output);
    let flags = r#"{"type":"object", "properties":{"a":true, "b":false,"c":{"type":"string"}}}"#;
    assert_eq!(
        tool_for_sessions(&tool(flags), false),
        r#"{"name":"a","inputSchema":{"type":"object", "properties":{"a":{},"b":{"not":{}},"c":{"type":"string"}}}}"#
    );
}

#[test]
fn half_of_a_character_is_replaced_and_whole_ones_stay() {
    for (text, expected) in [
        (r#""a\ud800b""#, r#""a\ufffdb""#),
        (r#""\uDC00""#, r#""\ufffd""#),
        (r#""\ud83d\ude00 \u00e9""#, r#""\ud83d\ude00 \u00e9""#),
        (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
        (r#""\\ud800""#, r#""\\ud800""#),
        (r#""\\\ud800""#, r#""\\\ufffd""#),
        (r#""\ud800\n""#, r#""\ufffd\n""#),
        (r#""é\n""#, r#""é\n""#),
        (r#""\ud8"#, r#""\ud8"#),
    ] {
        assert_eq!(without_lone_surrogates(text), expected, "{text}");
    }
}
