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

/// An output schema, and whether it goes to all clients and to those with a session.
struct OutputSchema {
    schema: &'static str,
    is_for_all: bool,
    is_for_sessions: bool,
}

const OUTPUT_SCHEMAS: [OutputSchema; 17] = [
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"type":"string"}}}"#,
        is_for_all: true,
        is_for_sessions: true,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"pattern":"^(?!b)a\\.$"}}}"#,
        is_for_all: true,
        is_for_sessions: true,
    },
    OutputSchema {
        schema: r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}"##,
        is_for_all: true,
        is_for_sessions: true,
    },
    OutputSchema {
        schema: r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#,
        is_for_all: true,
        is_for_sessions: true,
    },
    OutputSchema { schema: r#"{"type":"array"}"#, is_for_all: true, is_for_sessions: false },
    OutputSchema {
        schema: r#"{"anyOf":[{"type":"object"},{"type":"string"}]}"#,
        is_for_all: true,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":["object","null"]}"#,
        is_for_all: true,
        is_for_sessions: false,
    },
    OutputSchema { schema: "{}", is_for_all: true, is_for_sessions: false },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"exclusiveMinimum":true}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"type":"strin"}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"pattern":"\\<"}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"pattern":"a\\-b"}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"pattern":"(?i)a"}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}"##,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"enum":null}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
    OutputSchema {
        schema: r#"{"type":"object","properties":{"a":{"nullable":true}}}"#,
        is_for_all: false,
        is_for_sessions: false,
    },
];

#[test]
fn output_schema_goes_to_clients_that_can_use_it() {
    for OutputSchema { schema, is_for_all, is_for_sessions } in OUTPUT_SCHEMAS {
        let [all, sessions] = definitions(&format!(r#","outputSchema":{schema}"#));
        assert_eq!(all.contains(schema), is_for_all, "{schema}: {all}");
        assert_eq!(sessions.contains("outputSchema"), is_for_sessions, "{schema}: {sessions}");
        assert!(sessions.contains(r#""name":"s_t""#), "{sessions}");
    }
}

#[test]
fn tool_that_clients_cannot_read_is_left_out() {
    assert_eq!(definitions(r#","annotations":{"readOnlyHint":"yes"}"#), ["", ""]);
}
