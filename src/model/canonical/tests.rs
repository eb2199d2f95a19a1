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
    assert_eq!(halves.replace("\u{fffd}\u{fffd}\u{fffd}", "?"), "[\"?é\\n\\\\\",\"??😀\"]");
    assert_eq!(form(r#"[[], {}, "", "]}\"", {"":{}}]"#), r#"[[],{},"","]}\"",{"":{}}]"#);
}

#[test]
fn json_that_is_too_deep_is_kept_as_it_is() {
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
    assert_eq!(seen, ["k", "t", "l", "\u{fffd}\u{fffd}\u{fffd}", "1"]);
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
        any::<f64>().prop_map(Value::from),
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

proptest! {
    /// An implementation that is not ours makes the same of it.
    #[test]
    fn the_form_of_the_rfc_is_that_of_others(value in json()) {
        let theirs = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(jcs(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), theirs);
    }
}

fn jcs(json: &str) -> Result<String, Unclear> {
    let raw = RawValue::from_string(json.to_owned()).unwrap();
    Node::read_clear(&raw).map(|node| node.jcs())
}

/// RFC 8785, appendix B: doubles by their bits, and the text of each.
#[test]
fn doubles_are_written_as_the_rfc_has_them() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(number::text(f64::from_bits(bits)), expected, "{bits:016x}");
        assert_eq!(jcs(expected).unwrap(), expected, "it stays what it is");
    }
    assert_eq!(jcs("1e400"), Err(Unclear::Number));
    assert_eq!(jcs("[-1e309]"), Err(Unclear::Number));
}

/// RFC 8785, sections 3.2.2 and 3.2.3.
#[test]
fn documents_are_written_as_the_rfc_has_them() {
    let literals = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,\
                    1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(jcs(literals).unwrap(), expected);
    let sorted = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With
        Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
        "\u00f6":"Latin Small Letter O With Diaeresis"}"#
        .replace("With\n        Dagesh", "With Dagesh");
    let order = ["\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"];
    let form: Vec<(String, Value)> = {
        let text = jcs(&sorted).unwrap();
        let members = json::Members::read(&text).unwrap();
        members
            .0
            .iter()
            .map(|(key, value)| (key.to_string(), serde_json::from_str(value.get()).unwrap()))
            .collect()
    };
    assert_eq!(form.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), order);
}

#[test]
fn json_that_readers_read_differently_has_no_form_of_the_rfc() {
    let twice = Unclear::Twice("a".to_owned());
    assert_eq!(jcs(r#"[{"a":1,"b":2,"\u0061":1}]"#), Err(twice));
    assert_eq!(jcs(r#"{"a":"\ud800"}"#), Err(Unclear::HalfAPair));
    assert_eq!(jcs(r#"{"\udc00":1}"#), Err(Unclear::HalfAPair));
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(jcs(&deep(MAX_DEPTH)), Ok(deep(MAX_DEPTH)));
    assert_eq!(jcs(&deep(MAX_DEPTH + 1)), Err(Unclear::TooDeep));
}

proptest! {
    #[test]
    fn a_double_keeps_its_value(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
        let text = number::text(value);
        prop_assert_eq!(text.parse::<f64>().unwrap(), if value == 0.0 { 0.0 } else { value });
        prop_assert_eq!(jcs(&text).unwrap(), text);
    }
}
