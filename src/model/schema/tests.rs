//! What is refused and in which words, and what a hostile schema cannot do.

use serde_json::json;

use super::*;

fn of(schema: &str) -> InputSchema {
    let tool = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    InputSchema::new(RawValue::from_string(tool).unwrap().into())
}

fn check(schema: &str, arguments: &str) -> Verdict {
    of(schema).check(arguments)
}

#[track_caller]
fn valid(schema: &str, arguments: &str) {
    assert_eq!(check(schema, arguments), Verdict::Valid, "{schema} {arguments}");
}

#[track_caller]
fn invalid_because(schema: &str, arguments: &str, mistakes: &str) {
    assert_eq!(check(schema, arguments), invalid(mistakes), "{schema} {arguments}");
}

#[track_caller]
fn unchecked_because(verdict: &Verdict, part: &str) {
    match verdict {
        Verdict::Unchecked { why, .. } => assert!(why.contains(part), "{why}"),
        other => panic!("{other:?}"),
    }
}

const NOTE: &str = r#"{"type":"object","properties":{"text":{"type":"string"},"n":{"maximum":3}},"required":["text"]}"#;

#[test]
fn mistakes_are_named_with_their_places() {
    valid(NOTE, r#"{"text":"x","more":1}"#);
    invalid_because(NOTE, "{}", r#"the arguments: "text" is required"#);
    invalid_because(
        NOTE,
        r#"{"text":7,"n":4}"#,
        r#"/n: the value is greater than the maximum of 3; /text: the value is not of type "string""#,
    );
    let deep = r#"{"properties":{"a/b":{"items":{"properties":{"c":{"enum":["x","y"]}}}}}}"#;
    invalid_because(
        deep,
        r#"{"a/b":[{"c":"x"},{"c":"secret"}]}"#,
        r#"/a~1b/1/c: the value is not one of "x" or "y""#,
    );
    let names = r#"{"propertyNames":{"maxLength":2},"additionalProperties":true}"#;
    let Verdict::Invalid(text) = check(names, r#"{"long":1}"#) else { panic!("invalid") };
    assert!(text.starts_with("tool_input_invalid: the arguments: "), "{text}");
}

#[test]
fn arguments_are_an_object() {
    for arguments in ["[]", "7", "\"x\"", "null"] {
        invalid_because(NOTE, arguments, "the arguments: they are not a JSON object");
    }
    let without = InputSchema::new(RawValue::from_string(r#"{"name":"t"}"#.into()).unwrap().into());
    assert_eq!(without.check("{}"), Verdict::Valid, "a tool without a schema takes any object");
    assert!(matches!(without.check("[]"), Verdict::Invalid(_)));
    valid("null", "{}");
    valid("true", "{}");
}

#[test]
fn a_text_is_short_whatever_is_wrong() {
    let schema = r#"{"additionalProperties":{"type":"string"}}"#;
    let many: Value =
        (0..500).map(|n| (format!("key{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
    let Verdict::Invalid(text) = check(schema, &many.to_string()) else { panic!("invalid") };
    assert_eq!(text.matches("/key").count(), 10);
    assert!(text.contains(" 490 more"), "{text}");
    let long = json!({"x".repeat(100_000): 1, "y": "z".repeat(100_000)}).to_string();
    for schema in
        [schema, r#"{"additionalProperties":false}"#, r#"{"properties":{"y":{"maxLength":1}}}"#]
    {
        let Verdict::Invalid(text) = check(schema, &long) else { panic!("invalid") };
        assert!(text.len() < 1000, "{} bytes", text.len());
    }
}

#[test]
fn drafts_are_those_that_are_stated() {
    let tuple = |schema: &str| {
        format!(r#"{{{schema}"properties":{{"a":{{"items":[{{"type":"string"}}]}}}}}}"#)
    };
    let draft_7 = tuple(r#""$schema":"http://json-schema.org/draft-07/schema#","#);
    assert!(matches!(check(&draft_7, r#"{"a":[1]}"#), Verdict::Invalid(_)));
    let prefix = r#"{"properties":{"a":{"prefixItems":[{"type":"string"}]}}}"#;
    assert!(matches!(check(prefix, r#"{"a":[1]}"#), Verdict::Invalid(_)), "2020-12 by default");
    let unknown = r#"{"$schema":"https://schema.test/9","type":"object"}"#;
    unchecked_because(&check(unknown, "{}"), "be used");
}

#[test]
fn a_format_refuses_nothing() {
    let draft_7 = r#"{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"uri"}}}"#;
    valid(draft_7, r#"{"a":"not an address"}"#);
}

#[test]
fn references_within_are_followed_and_none_is_fetched() {
    let tree = r##"{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"},"n":{"type":"integer"}}}},"$ref":"#/$defs/node"}"##;
    valid(tree, r#"{"n":1,"next":{"n":2}}"#);
    invalid_because(
        tree,
        r#"{"next":{"next":{"n":"x"}}}"#,
        r#"/next/next/n: the value is not of type "integer""#,
    );
    for reference in ["http://127.0.0.1:9/s.json", "file:///etc/passwd", "#/$defs/none"] {
        let schema = format!(r#"{{"$ref":"{reference}"}}"#);
        unchecked_because(&check(&schema, "{}"), "be used");
    }
}

#[test]
fn a_schema_that_cannot_be_used_is_news_once() {
    for schema in [
        "7",
        r#"{"$schema":"https://schema.test/9"}"#,
        r##"{"$defs":{"a":{"$anchor":"x"}},"$ref":"#x"}"##,
    ] {
        let schema = of(schema);
        let news = |verdict| matches!(verdict, Verdict::Unchecked { news: true, .. });
        assert!(news(schema.check("{}")));
        assert!(!news(schema.check("{}")));
    }
}

/// Otherwise one odd argument would switch off the check of all the others.
#[test]
fn json_that_no_value_can_hold_is_checked_as_far_as_possible() {
    let schema = r#"{"properties":{"force":{"type":"boolean"},"n":{"maximum":5},"text":{"maxLength":3}},
        "additionalProperties":{"type":["number","string","array"]}}"#;
    for odd in ["1e400", "-1e400", r#""\ud800""#, r#"["x\udfff",{"a":1e400}]"#] {
        valid(schema, &format!(r#"{{"force":true,"z":{odd}}}"#));
        let other = format!(r#"{{"force":"yes","z":{odd}}}"#);
        invalid_because(schema, &other, r#"/force: the value is not of type "boolean""#);
    }
    invalid_because(schema, r#"{"n":1e400}"#, "/n: the value is greater than the maximum of 5");
    valid(schema, r#"{"n":-1e400,"text":"\ud800"}"#);
    invalid_because(
        schema,
        r#"{"text":"\ud800a"}"#,
        "/text: the value is longer than 3 characters",
    );
    valid(schema, r#"{"text":"ab"}"#);
    let deep = |levels| format!(r#"{{"z":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    valid(schema, &deep(MAX_NESTING - 1));
    invalid_because(schema, &deep(MAX_NESTING), "the arguments: nested over 126 deep");
    invalid_because(
        schema,
        r#"{"z":[{"\ud800":1e400}]}"#,
        "the arguments: a key cannot be read: unexpected end of hex escape at line 1 column 9",
    );
    // Without the text, which is long.
    let many = |commas: usize| {
        let arguments = format!(r#"{{"z":[0{}]}}"#, ",0".repeat(commas));
        check(r#"{"type":"object"}"#, &arguments)
    };
    assert!(matches!(many(MAX_VALUES - 2), Verdict::Valid));
    assert!(
        matches!(many(MAX_VALUES - 1), Verdict::Invalid(why) if why.contains("over 524288 values"))
    );
    let large = format!(r#"{{"text":"{}"}}"#, "x,".repeat(1 << 20));
    invalid_because(schema, &large, "/text: the value is longer than 3 characters");
}

#[test]
fn too_large_and_too_deep_schemas_are_not_compiled() {
    let large = format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_SCHEMA));
    unchecked_because(&check(&large, "{}"), "bytes, over");
    let deep = format!(r#"{}true{}"#, r#"{"not":"#.repeat(65), "}".repeat(65));
    unchecked_because(&check(&deep, "{}"), "nested over 64 deep");
    let patterns = json!({"anyOf": vec![json!({"pattern": "a{1000}"}); 65]}).to_string();
    unchecked_because(&check(&patterns, "{}"), "regular expressions");
}

/// Each level stands for the next one twice.
fn doubling(levels: usize, keyword: &str) -> String {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), json!({keyword: [next.clone(), next]}));
    }
    defs.insert(format!("l{levels}"), json!({"minProperties": 1}));
    json!({"$ref": "#/$defs/l0", "$defs": defs}).to_string()
}

/// One that went off would not end.
#[test]
fn bombs_do_not_go_off() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for levels in [40, 90, 500] {
            unchecked_because(&check(&doubling(levels, keyword), "{}"), "against its schema");
        }
    }
    let through_members = r##"{"properties":{"c":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##;
    let deep = format!("{}1{}", r#"{"c":"#.repeat(30), "}".repeat(30));
    unchecked_because(&check(through_members, &deep), "against its schema");
    let unevaluated = r##"{"properties":{"c":{"$ref":"#"}},"unevaluatedProperties":{"$ref":"#"}}"##;
    let verdict = check(unevaluated, &deep);
    assert!(matches!(verdict, Verdict::Unchecked { .. }), "{verdict:?}");
    let nested = r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#;
    let text = format!(r#"{{"a":"{}!"}}"#, "a".repeat(5000));
    assert!(matches!(check(nested, &text), Verdict::Invalid(_)));
    for needs_backtracking in [r"^(?=a).*$", r"(?<!a)b", r"(a)\\1"] {
        let schema = format!(r#"{{"properties":{{"a":{{"pattern":"{needs_backtracking}"}}}}}}"#);
        valid(&schema, &text);
    }
}

#[test]
fn schemas_that_stand_for_themselves_end() {
    for schema in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        r##"{"not":{"$recursiveRef":"#"},"$schema":"https://json-schema.org/draft/2019-09/schema"}"##,
    ] {
        let verdict = check(schema, r#"{"a":{}}"#);
        assert!(matches!(verdict, Verdict::Unchecked { .. }), "{schema}: {verdict:?}");
    }
    let list = r##"{"properties":{"next":{"$ref":"#"}},"required":["n"]}"##;
    let deep =
        |levels: usize| format!("{}{{}}{}", r#"{"n":1,"next":"#.repeat(levels), "}".repeat(levels));
    assert!(matches!(check(list, &deep(40)), Verdict::Invalid(_)));
    unchecked_because(&check(list, &deep(120)), "too deep");
}

#[test]
fn all_sorts_of_keywords_are_counted_and_checked() {
    let schema = r##"{
        "type":"object",
        "properties":{"a":{"oneOf":[{"type":"string"},{"type":"null"}]},"b":{"const":1}},
        "patternProperties":{"^x-":{"type":"string"}},
        "dependentSchemas":{"a":{"required":["b"]}},
        "if":{"required":["c"]},"then":{"properties":{"c":{"contains":{"type":"integer"}}}},
        "unevaluatedProperties":false
    }"##;
    valid(schema, r#"{"a":null,"b":1,"x-y":"z","c":[1]}"#);
    for arguments in [r#"{"a":null}"#, r#"{"b":2}"#, r#"{"x-y":1}"#, r#"{"c":["x"]}"#, r#"{"d":1}"#]
    {
        assert!(matches!(check(schema, arguments), Verdict::Invalid(_)), "{arguments}");
    }
}
