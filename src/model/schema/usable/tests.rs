//! What of a schema is checked where a part of it cannot be.

use serde_json::value::RawValue;

use crate::model::schema::{InputSchema, Verdict};

/// A schema, arguments that it must take and arguments that it must refuse, and the parts that are
/// told as unchecked.
struct Case<'a> {
    schema: &'a str,
    good: &'a [&'a str],
    bad: &'a [&'a str],
    unchecked: &'a [&'a str],
}

#[track_caller]
fn check(case: &Case<'_>) {
    let Case { schema, good, bad, unchecked } = *case;
    let input = InputSchema::alone(&RawValue::from_string(schema.to_owned()).unwrap());
    for arguments in good {
        assert_eq!(input.check(arguments), Verdict::Valid, "{schema} {arguments}");
    }
    for arguments in bad {
        let verdict = input.check(arguments);
        assert!(matches!(verdict, Verdict::Invalid(_)), "{schema} {arguments}: {verdict:?}");
    }
    let parts = input.unchecked();
    assert_eq!(parts.len(), unchecked.len(), "{schema}: {parts:?}");
    for (part, expected) in parts.iter().zip(unchecked) {
        assert!(part.starts_with(expected), "{schema}: {parts:?}");
    }
}

#[test]
fn bad_keyword_leaves_its_own_schema_unchecked() {
    for (bad_part, unchecked) in [
        (
            r#"{"type":"number","minimum":0,"exclusiveMinimum":true}"#,
            "/properties/n/exclusiveMinimum: it is not of type",
        ),
        (r#"{"type":"nmber"}"#, "/properties/n/type: "),
        (r#"{"enum":7}"#, "/properties/n/enum: "),
        (r#"{"required":true}"#, "/properties/n/required: "),
        (r#"{"pattern":"("}"#, "/properties/n/pattern: "),
        (r#"{"pattern":"^(?=a).*$"}"#, "/properties/n/pattern: "),
        (r#"{"pattern":"((a{100}){100}){100}"}"#, "/properties/n/pattern: "),
        (r#"{"patternProperties":{"(":{}}}"#, "/properties/n/patternProperties/(: "),
        (r##"{"$ref":"#/$defs/none"}"##, "/properties/n/$ref: the reference is not followed"),
        (r#"{"$ref":"https://a.example/b.json"}"#, "/properties/n/$ref: "),
        (r#"{"properties":7}"#, "/properties/n/properties: "),
        (r#"{"anyOf":[]}"#, "/properties/n/anyOf: "),
        ("7", "/properties/n: "),
    ] {
        check(&Case {
            schema: &format!(
                r#"{{"properties":{{"n":{bad_part},"m":{{"type":"string"}}}},"required":["m"]}}"#
            ),
            good: &[r#"{"n":1,"m":"a"}"#, r#"{"m":"a"}"#],
            bad: &[r#"{"n":1,"m":1}"#, "{}"],
            unchecked: &[unchecked],
        });
    }
}

#[test]
fn bad_keyword_of_the_whole_schema_leaves_the_rest_checked() {
    check(&Case {
        schema: r#"{"type":"object","properties":{"m":{"type":"string"}},"required":true}"#,
        good: &[r#"{"m":"a"}"#, "{}"],
        bad: &[r#"{"m":1}"#],
        unchecked: &["/required: "],
    });
    // Without `properties`, `additionalProperties` would refuse everything.
    check(&Case {
        schema: r#"{"properties":[],"additionalProperties":false,"maxProperties":1}"#,
        good: &[r#"{"m":1}"#],
        bad: &[r#"{"m":1,"n":1}"#],
        unchecked: &["/properties: "],
    });
}

/// What is unchecked below one of these would refuse more.
#[test]
fn keyword_that_turns_a_bad_schema_around_is_unchecked_whole() {
    for turning in [
        r#""not":{"type":"nmber"}"#,
        r#""oneOf":[{"required":["a"]},{"type":"nmber"}]"#,
        r#""if":{"type":"nmber"},"then":{"required":["b"]}"#,
        r#""not":{"properties":{"a":{"oneOf":[{"type":"nmber"}]}}}"#,
        r##""not":{"$ref":"#/$defs/bad"},"$defs":{"bad":{"type":"nmber"}}"##,
        r##""allOf":[{"$ref":"#/$defs/bad"}],"$defs":{"bad":{"not":{"type":"nmber"}}}"##,
        r#""allOf":[{"properties":{"a":{"type":"nmber"}},"required":0}],"unevaluatedProperties":false"#,
    ] {
        let schema = format!(r#"{{{turning},"properties":{{"m":{{"type":"string"}}}}}}"#);
        let input = InputSchema::alone(&RawValue::from_string(schema.clone()).unwrap());
        assert_eq!(input.check(r#"{"a":1}"#), Verdict::Valid, "{schema}");
        assert!(matches!(input.check(r#"{"m":1}"#), Verdict::Invalid(_)), "{schema}");
        assert!(!input.unchecked().is_empty(), "{schema}");
    }
}

#[test]
fn null_is_taken_where_the_schema_says_so() {
    for taking in [
        r#"{"type":"string","nullable":true}"#,
        r#"{"type":"string","x-nullable":true}"#,
        r#"{"type":"string","default":null}"#,
        r#"{"type":["string"],"minLength":1,"nullable":true}"#,
        r#"{"type":"string","enum":["a","b"],"nullable":true}"#,
        r#"{"const":"a","default":null}"#,
        r##"{"$ref":"#/$defs/text","nullable":true}"##,
        r##"{"allOf":[{"$ref":"#/$defs/text"}],"default":null}"##,
        r#"{"oneOf":[{"type":"string"},{"type":"null"}],"default":null}"#,
        r#"{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}"#,
        r#"{"not":{"type":["null","number"]},"nullable":true}"#,
        r#"{"oneOf":[{"type":"string","nullable":true},{"type":"null"}]}"#,
        r#"{"oneOf":[{"type":"string","nullable":true},{"type":"boolean","default":null}]}"#,
        r#"{"not":{"type":"number","nullable":true}}"#,
    ] {
        check(&Case {
            schema: &format!(
                r#"{{"properties":{{"n":{taking}}},"$defs":{{"text":{{"type":"string"}}}}}}"#
            ),
            good: &[r#"{"n":null}"#, r#"{"n":"a"}"#],
            bad: &[r#"{"n":7}"#],
            unchecked: &[],
        });
    }
    check(&Case {
        schema: r#"{"properties":{"n":{"type":"string","nullable":false,"default":"a"}}}"#,
        good: &[r#"{"n":"a"}"#],
        bad: &[r#"{"n":null}"#],
        unchecked: &[],
    });
    // Only a schema says it, and no value in one, nor a property of that name.
    check(&Case {
        schema: r#"{"properties":{"nullable":{"type":"string"},"n":{"type":"string","const":"a"}}}"#,
        good: &[r#"{"nullable":"a","n":"a"}"#],
        bad: &[r#"{"nullable":null}"#, r#"{"n":null}"#],
        unchecked: &[],
    });
}

#[test]
fn keyword_that_is_null_counts_as_left_out() {
    check(&Case {
        schema: r#"{"type":"object","properties":{"n":{"type":"string","enum":null,"pattern":null,
            "description":null,"items":null}},"required":null,"$defs":null,"$schema":null}"#,
        good: &[r#"{"n":"a"}"#],
        bad: &[r#"{"n":1}"#],
        unchecked: &[],
    });
}

#[test]
fn escaped_angle_brackets_are_characters() {
    check(&Case {
        schema: r#"{"properties":{"n":{"pattern":"^\\<[a-z]+\\>$"}},
            "patternProperties":{"^\\<":{"type":"string"}}}"#,
        good: &[r#"{"n":"<a>","<b":"c"}"#],
        bad: &[r#"{"n":"a"}"#, r#"{"<b":7}"#],
        unchecked: &[],
    });
}

#[test]
fn schema_with_an_id_of_its_own_is_checked_if_nothing_refers_from_it() {
    check(&Case {
        schema: r#"{"properties":{"n":{"$id":"n","type":"string"},"m":{"id":"m","type":"string"}}}"#,
        good: &[r#"{"n":"a","m":"a"}"#],
        bad: &[r#"{"n":1}"#, r#"{"m":1}"#],
        unchecked: &[],
    });
    check(&Case {
        schema: r##"{"properties":{"n":{"$id":"n","$ref":"#/$defs/a"},"m":{"type":"string"}},
            "$defs":{"a":{"type":"string"}}}"##,
        good: &[r#"{"n":1}"#],
        bad: &[r#"{"m":1}"#],
        unchecked: &["/properties/n/$id: "],
    });
}

#[test]
fn number_that_no_value_holds_leaves_its_schema_checked() {
    check(&Case {
        schema: r#"{"properties":{"n":{"maximum":1e400},"m":{"type":"string"}}}"#,
        good: &[r#"{"n":1}"#],
        bad: &[r#"{"m":1}"#],
        unchecked: &[],
    });
}

#[test]
fn schema_with_too_many_bad_parts_is_not_checked() {
    let members: Vec<String> = (0..40).map(|n| format!(r#""p{n}":{{"type":"nmber"}}"#)).collect();
    let schema = format!(r#"{{"properties":{{{}}},"required":["a"]}}"#, members.join(","));
    let input = InputSchema::alone(&RawValue::from_string(schema).unwrap());
    assert!(matches!(input.check("{}"), Verdict::Unchecked { .. }));
    assert_eq!(input.unchecked().len(), 1);
}
