//! Documents that say the same have one form, and no others have.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn form(json: &str) -> String {
    Node::read(&RawValue::from_string(json.to_owned()).unwrap()).canonical()
}

#[test]
fn order_whitespace_and_escapes_say_nothing() {
    let one = form(r#"{"b" : [1, {"y":null,"x":"\u00e9\/"} ], "a":true}"#);
    assert_eq!(one, r#"{"a":true,"b":[1,{"x":"é/","y":null}]}"#);
    assert_eq!(form("\n{\"a\":true,\t\"b\":[1,{\"x\":\"é/\",\"y\":null}]}\r\n"), one);
    // The example of RFC 8785 for the order of keys: by UTF-16 units.
    let keys = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    assert_eq!(
        form(keys),
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}"
    );
}

#[test]
fn numbers_and_members_that_stand_twice_are_kept() {
    assert_ne!(form("1.0"), form("1"));
    let numbers = "[1e400,-0,123456789012345678901234567890]";
    assert_eq!(form(numbers), numbers);
    assert_eq!(form(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":1,"a":3,"b":2}"#);
    assert_ne!(form(r#"{"a":1,"a":3}"#), form(r#"{"a":3,"a":1}"#), "readers take one of the two");
    let halves = form(r#"["\ud800é\n\\","\udc00\ud800\ud83d\ude00"]"#);
    assert_eq!(halves, "[\"\u{10f800}é\\n\\\\\",\"\u{10fc00}\u{10f800}😀\"]");
    assert_eq!(form(r#"[[], {}, "", "]}\"", {"":{}}]"#), r#"[[],{},"","]}\"",{"":{}}]"#);
}

#[test]
fn what_is_too_deep_is_kept_as_it_is() {
    let deep = |levels: usize| {
        format!(r#"{}{{"b":"]","a":"\"["}}{}"#, "[ ".repeat(levels), "]".repeat(levels))
    };
    assert!(form(&deep(100)).contains(r#"{"a":"\"[","b":"]"}"#));
    let kept = form(&deep(100_000));
    assert!(kept.contains(r#"{"b":"]","a":"\"["}"#) && kept.contains("[ ["), "not looked into");
    assert_eq!(kept.matches(']').count(), 100_001);
}

#[test]
fn every_text_is_looked_at() {
    let raw = RawValue::from_string(r#"{"k":["t",{"l":"\ud800"},1]}"#.to_owned()).unwrap();
    let mut seen = Vec::new();
    Node::read(&raw).each_text(&mut |text| seen.push(text.to_owned()));
    assert_eq!(seen, ["k", "t", "l", "\u{10f800}", "1"]);
}

#[test]
fn lines_are_those_that_a_person_would_write() {
    let raw = RawValue::from_string(r#"{"b":[1,{}],"a":{"c":"d"}}"#.to_owned()).unwrap();
    let mut lines = Vec::new();
    Node::read(&raw).lines("x: ", 1, &mut lines);
    let expected =
        ["  x: {", "    \"a\": {", "      \"c\": \"d\"", "    }", "    \"b\": [", "      1,"];
    let expected = expected.map(|line| line.trim_end_matches(','));
    assert_eq!(lines[..6], expected);
    assert_eq!(lines[6..], ["      {}", "    ]", "  }"]);
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_form_says_the_same_and_is_its_own_form(value in json()) {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let form_of_it = form(&pretty);
        prop_assert_eq!(&form(&value.to_string()), &form_of_it);
        prop_assert_eq!(&form(&form_of_it), &form_of_it);
        prop_assert_eq!(serde_json::from_str::<Value>(&form_of_it).unwrap(), value);
    }
}
