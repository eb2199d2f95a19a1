//! Which marks count, which tools must not be offered, and what becomes of values.

use proptest::prelude::*;

use super::*;

fn of(schema: &str) -> Result<ParamHeaders, String> {
    ParamHeaders::read(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
}

/// The headers of a call, each as a line.
fn lines(schema: &str, arguments: &str) -> Result<Vec<String>, String> {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    let headers = of(schema).unwrap().headers(&arguments)?;
    Ok(headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect())
}

fn one(kind: &str, header: &str) -> String {
    format!(r#"{{"properties":{{"a":{{"type":{kind},"x-mcp-header":{header}}}}}}}"#)
}

/// The examples of the specification.
#[test]
fn values_are_encoded_as_the_specification_has_it() {
    for (value, expected) in [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        // Beside them.
        ("", ""),
        ("a b", "a b"),
        ("\ttab", "=?base64?CXRhYg==?="),
        ("a\r\nX-Evil: 1", "=?base64?YQ0KWC1FdmlsOiAx?="),
        ("nul\0", "=?base64?bnVsAA==?="),
        ("=?base64?open", "=?base64?open"),
    ] {
        let arguments = serde_json::json!({ "a": value }).to_string();
        let lines = lines(&one(r#""string""#, r#""Text""#), &arguments).unwrap();
        assert_eq!(lines, [format!("Mcp-Param-Text: {expected}")]);
    }
}

proptest! {
    #[test]
    fn no_value_is_more_than_a_value(value in any::<String>()) {
        let plain = encoded(value.clone());
        prop_assert!(plain.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        prop_assert_eq!(plain.trim(), &plain);
        let inner = plain.strip_prefix(SENTINEL.0).and_then(|rest| rest.strip_suffix(SENTINEL.1));
        let back = match inner {
            Some(inner) => BASE64_STANDARD.decode(inner).unwrap(),
            None => plain.into_bytes(),
        };
        prop_assert_eq!(back, value.into_bytes());
    }
}

#[test]
fn numbers_and_booleans_have_one_form() {
    let schema = one(r#""integer""#, r#""N""#);
    for (value, expected) in [
        ("42", "42"),
        ("-7", "-7"),
        ("-0", "0"),
        ("42.0", "42"),
        ("4.2e1", "42"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("true", "true"),
        ("false", "false"),
    ] {
        let found = lines(&schema, &format!(r#"{{"a":{value}}}"#)).unwrap();
        assert_eq!(found, [format!("Mcp-Param-N: {expected}")], "{value}");
    }
    for value in ["9007199254740992", "-9007199254740992", "1e400", "1e300", "0.5", "[1]", "{}"] {
        let error = lines(&schema, &format!(r#"{{"a":{value}}}"#)).unwrap_err();
        assert!(error.starts_with("tool_input_invalid: /a: "), "{error}");
    }
    let error = lines(&schema, r#"{"a":"\ud800"}"#).unwrap_err();
    assert!(error.starts_with("tool_input_invalid: /a: "), "{error}");
}

#[test]
fn argument_that_is_null_or_absent_has_no_header() {
    let schema = r#"{"properties":{
        "a":{"type":["string","null"],"x-mcp-header":"A"},
        "deep":{"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}
    }}"#;
    for arguments in ["{}", r#"{"a":null}"#, r#"{"deep":7}"#, r#"{"deep":{"b":null}}"#, "[]"] {
        assert_eq!(lines(schema, arguments).unwrap(), [] as [&str; 0], "{arguments}");
    }
    let both = lines(schema, r#"{"deep":{"b":true},"b":false,"a":"x","a":"y"}"#).unwrap();
    assert_eq!(both, ["Mcp-Param-A: y", "Mcp-Param-B: true"]);
}

#[test]
fn a_schema_without_a_mark_has_no_headers() {
    for schema in [
        "true",
        "null",
        "[]",
        "{}",
        r#"{"properties":{"x-mcp-header":{"type":"string"},"\u0061":{}}}"#,
        r#"{"properties":{"a":{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}}}"#,
        r#"{"description":"x-mcp-header"}"#,
    ] {
        assert!(of(schema).unwrap().is_empty(), "{schema}");
    }
    assert!(ParamHeaders::read(r#"{"name":"t"}"#).unwrap().is_empty());
}

#[test]
fn annotation_that_no_client_may_follow_is_told() {
    let text = |header| one(r#""string""#, header);
    let name = "header's name";
    let way = "`properties`";
    let marked = r#"{"type":"string","x-mcp-header":"A"}"#;
    for (schema, expected) in [
        (text(r#""""#), name),
        (text("7"), name),
        (text("null"), name),
        (text(r#""a b""#), name),
        (text(r#""a:b""#), name),
        (text(r#""a\r\nX-Evil: 1""#), name),
        (text(r#""a\u0000""#), name),
        (text(r#""é""#), name),
        (one(r#""number""#, r#""A""#), "/a is no"),
        (one(r#""object""#, r#""A""#), "/a is no"),
        (one(r#"["string","integer"]"#, r#""A""#), "/a is no"),
        (one(r#"["null"]"#, r#""A""#), "/a is no"),
        (r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#.into(), "/a is no"),
        (r#"{"type":"string","x-mcp-header":"A"}"#.into(), way),
        (format!(r#"{{"properties":{{"a":{{"items":{marked}}}}}}}"#), way),
        (format!(r#"{{"properties":{{"a":{{"anyOf":[{{}},{marked}]}}}}}}"#), way),
        (format!(r#"{{"anyOf":[{{"properties":{{"a":{marked}}}}}]}}"#), way),
        (
            format!(
                r##"{{"properties":{{"a":{{"$ref":"#/$defs/a"}}}},"$defs":{{"a":{marked}}}}}"##
            ),
            way,
        ),
        (format!(r#"{{"patternProperties":{{"a":{marked}}}}}"#), way),
        (format!(r#"{{"if":{marked}}}"#), way),
        (r#"{"properties":{"a":{"type":"string","x-\u006dcp-header":""}}}"#.into(), name),
        (
            format!(
                r#"{{"properties":{{"a":{marked},"b":{{"type":"string","x-mcp-header":"a"}}}}}}"#
            ),
            "/b",
        ),
        (
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}}"#
                .into(),
            "\"x-mcp-header\" twice",
        ),
    ] {
        let error = of(&schema).unwrap_err();
        assert!(error.contains("x-mcp-header"), "{error}");
        assert!(error.contains(expected), "{schema}: {error}");
    }
}

#[test]
fn param_headers_of_a_tool_are_looked_for_once() {
    let tool = format!(r#"{{"name":"t","inputSchema":{}}}"#, one("\"string\"", "\"A\""));
    let input = crate::model::InputSchema::new(RawValue::from_string(tool).unwrap().into());
    assert!(!input.param_headers().is_empty());
    assert!(std::ptr::eq(input.param_headers(), input.param_headers()));
}
