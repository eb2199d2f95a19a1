//! Which definitions clients of each era get.

use crate::model::offer::Offer;
use crate::model::offer::tests::server;

/// The definitions of the tool `t` with these members, for clients without and with sessions.
fn definitions(members: &str) -> [String; 2] {
    let tool = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{members}}}"#);
    let offer = Offer::build(&[server("s", &[&tool])]);
    [offer.definitions(), offer.definitions_for_sessions()].map(|all| all.concat())
}

#[test]
fn member_that_is_null_is_left_out_for_clients_and_kept_for_runs() {
    let nulls = r#","outputSchema":null,"annotations":{"readOnlyHint":null},"_meta":null"#;
    let expected = r#"{"name":"s_t","inputSchema":{"type":"object"},"annotations":{}}"#;
    assert_eq!(definitions(nulls), [expected, expected]);
    let tool = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{nulls}}}"#);
    let offer = Offer::build(&[server("s", &[&tool])]);
    let refs = offer.backend("s").unwrap().refs().next().unwrap().json.clone();
    assert!(String::from_utf8_lossy(&refs).contains(nulls), "{refs:?}");
}

#[test]
fn output_schema_goes_to_clients_that_can_use_it() {
    for (schema, is_for_all, is_for_sessions) in [
        (r#"{"type":"object","properties":{"a":{"type":"string"}}}"#, true, true),
        (r#"{"type":"object","properties":{"a":{"pattern":"^(?!b)a\\.$"}}}"#, true, true),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}"##,
            true,
            true,
        ),
        (r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#, true, true),
        (r#"{"type":"array"}"#, true, false),
        (r#"{"anyOf":[{"type":"object"},{"type":"string"}]}"#, true, false),
        (r#"{"type":["object","null"]}"#, true, false),
        ("{}", true, false),
        (r#"{"type":"object","properties":{"a":{"exclusiveMinimum":true}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"type":"strin"}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"pattern":"\\<"}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"pattern":"a\\-b"}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"pattern":"(?i)a"}}}"#, false, false),
        (r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}"##, false, false),
        (r#"{"type":"object","properties":{"a":{"enum":null}}}"#, false, false),
        (r#"{"type":"object","properties":{"a":{"nullable":true}}}"#, false, false),
    ] {
        let [all, sessions] = definitions(&format!(r#","outputSchema":{schema}"#));
        assert_eq!(all.contains(schema), is_for_all, "{all}");
        assert_eq!(sessions.contains("outputSchema"), is_for_sessions, "{sessions}");
        assert!(sessions.contains(r#""name":"s_t""#), "{sessions}");
    }
}

#[test]
fn tool_that_clients_cannot_read_is_left_out() {
    assert_eq!(definitions(r#","annotations":{"readOnlyHint":"yes"}"#), ["", ""]);
}
