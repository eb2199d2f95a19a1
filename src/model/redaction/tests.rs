//! What is found, and what stays as it is.

use super::*;

fn redacted(known: &[Known], text: &str) -> (String, u64) {
    let all = known.iter().map(|known| Pattern::known(*known, Some("X"))).collect();
    let mut count = 0;
    let replaced = Redaction(all).apply(text, &mut count);
    (replaced.unwrap_or_else(|| text.to_owned()), count)
}

#[test]
fn known_secrets_are_found() {
    use Known::{AccessTokens, CardNumbers, PrivateKeys};
    let ghp = format!("ghp_{}", "aB3".repeat(12));
    let jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.abc-_";
    struct Case {
        known: Known,
        text: String,
        expected: &'static str,
        count: u64,
    }
    for Case { known, text, expected, count } in [
        Case {
            known: AccessTokens,
            text: format!("a {ghp}, {ghp}."),
            expected: "a X, X.",
            count: 2,
        },
        Case {
            known: AccessTokens,
            text: format!("Authorization: bearer {}", "x".repeat(20)),
            expected: "Authorization: X",
            count: 1,
        },
        Case { known: AccessTokens, text: format!("t={jwt};"), expected: "t=X;", count: 1 },
        Case {
            known: AccessTokens,
            text: "AKIAIOSFODNN7EXAMPLE and a bearer of news".into(),
            expected: "X and a bearer of news",
            count: 1,
        },
        Case {
            known: PrivateKeys,
            text: "a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b".into(),
            expected: "a X b",
            count: 1,
        },
        Case {
            known: PrivateKeys,
            text: "-----BEGIN PRIVATE KEY-----\nMII cut".into(),
            expected: "X",
            count: 1,
        },
        Case {
            known: PrivateKeys,
            text: "-----BEGIN CERTIFICATE-----".into(),
            expected: "-----BEGIN CERTIFICATE-----",
            count: 0,
        },
        Case {
            known: CardNumbers,
            text: "4111 1111 1111 1111 or 4111111111111112".into(),
            expected: "X or 4111111111111112",
            count: 1,
        },
        Case {
            known: CardNumbers,
            text: "order 20261122143000123".into(),
            expected: "order 20261122143000123",
            count: 0,
        },
    ] {
        assert_eq!(redacted(&[known], &text), (expected.to_owned(), count), "{text}");
    }
}

#[test]
fn json_changes_only_in_its_strings() {
    let all = [Known::CardNumbers, Known::AccessTokens];
    for (text, expected) in [
        (
            r#"{ "4111111111111111" : 4111111111111111, "s":"4111111111111111"}"#.to_owned(),
            r#"{ "X" : 4111111111111111, "s":"X"}"#.to_owned(),
        ),
        (r#"["a\"4111111111111111\u0041", 1.0e400]"#.into(), r#"["a\"XA", 1.0e400]"#.into()),
        (
            r#"[{"text":"{\"n\":4111111111111111}"},"\\", "5500000000000004"]"#.into(),
            r#"[{"text":"{\"n\":4111111111111111}"},"\\", "X"]"#.into(),
        ),
        (r#""\u0034111111111111111 \ud800""#.into(), "\"X \u{fffd}\u{fffd}\u{fffd}\"".into()),
        // No JSON at all.
        ("{4111111111111111".into(), "{X".into()),
    ] {
        assert_eq!(redacted(&all, &text).0, expected);
    }
}

#[test]
fn a_card_number_is_found_beside_other_digits() {
    struct Case {
        text: &'static str,
        expected: &'static str,
        count: u64,
    }
    for Case { text, expected, count } in [
        Case { text: "4111 1111 1111 1111 123", expected: "X 123", count: 1 },
        Case { text: "4111111111111111 12/27", expected: "X 12/27", count: 1 },
        Case { text: "1 4111 1111 1111 1111", expected: "1 X", count: 1 },
        Case { text: "2 5500000000000004", expected: "2 X", count: 1 },
        Case { text: "5500-0000-0000-0004-1", expected: "X-1", count: 1 },
        Case {
            text: "2026-11-22 4111-1111-1111-1111 5500000000000004-7",
            expected: "2026-11-22 X X-7",
            count: 2,
        },
        Case { text: "3782 822463 10005 1", expected: "X 1", count: 1 },
        Case { text: "12 4111111111111112", expected: "12 4111111111111112", count: 0 },
        // The earlier of two that overlap does not end the search for the later.
        Case { text: "1004 4111 1111 1111 1111", expected: "X", count: 1 },
        // In small groups, only if nothing else is there.
        Case { text: "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", expected: "X", count: 1 },
        Case {
            text: "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 3",
            expected: "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2 3",
            count: 0,
        },
    ] {
        assert_eq!(redacted(&[Known::CardNumbers], text), (expected.to_owned(), count), "{text}");
    }
    let long = "1234 ".repeat(1 << 16);
    assert_eq!(redacted(&[Known::CardNumbers], &long).0, long, "1234 four times is none");
}

#[test]
fn a_card_number_is_found_beside_letters_and_in_groups() {
    for text in [
        "%B4111111111111111^DOE/J^27121010000?",
        "x4111111111111111y",
        "no4111 1111 1111 1111",
        "_4111111111111111_",
        "4111.1111.1111.1111",
        "4111\u{a0}1111\u{a0}1111\u{a0}1111",
        "4111\u{202f}1111\u{202f}1111\u{202f}1111",
        "4111\u{2009}1111\u{2009}1111\u{2009}1111",
        "4111\t1111\t1111\t1111",
        "4111  1111  1111  1111",
        "4111\u{2013}1111\u{2013}1111\u{2013}1111",
        "4111\u{2011}1111\u{2011}1111\u{2011}1111",
        "3782.822463.10005",
        "2026 4111.1111.1111.1111",
    ] {
        let (new, count) = redacted(&[Known::CardNumbers], text);
        assert!(count == 1 && new.contains('X') && !new.contains("11"), "{text}: {new}");
    }
    for text in [
        // Each with a right check digit.
        "id1700000000006",
        "f4111111111111111 of a hash",
        "1111.4444444444440",
        "1700000000.1234569",
        "2019\t2020\t2021\t2025",
        "4111.1111 1111.1111",
    ] {
        assert_eq!(redacted(&[Known::CardNumbers], text), (text.to_owned(), 0));
    }
}

#[test]
fn tokens_are_found_by_their_issuers() {
    let r = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9aB3dE5gH7jK9mN1pQ3sT5vW7";
    let hex = "0123456789abcdef".repeat(4);
    for token in [
        format!("glpat-{}.0a.1b2c3d4e5", r.split_at(27).0),
        format!("glrt-{}", r.split_at(20).0),
        format!("glptt-{}", hex.split_at(40).0),
        format!("glcbt-64_{}", r.split_at(20).0),
        format!("gldt-{}", r.split_at(20).0),
        format!("xapp-1-A0123ABC-1234567890-{hex}"),
        format!("xoxc-1-2-3-{r}"),
        format!("xoxd-{r}%2B{r}%3D"),
        format!("whsec_{}+/=", r.split_at(32).0),
        format!("ya29.{r}"),
        format!("GOCSPX-{}", r.split_at(28).0),
        format!("SG.{}.{}", r.split_at(22).0, r.split_at(43).0),
        format!("hf_{}", r.split_at(34).0),
        format!("hvs.{r}"),
        format!("dckr_pat_{}", r.split_at(27).0),
        format!("dop_v1_{hex}"),
        format!("shpat_{}", hex.split_at(32).0),
        format!("eyJhbGciOiJSU0EtT0FFUCJ9.{r}.{r}.{r}.{r}"),
        format!("eyJhbGciOiJkaXIiLCJl..{r}.{r}.{r}"),
    ] {
        let text = format!("a {token} b");
        assert_eq!(redacted(&[Known::AccessTokens], &text), ("a X b".to_owned(), 1), "{text}");
    }
    for (text, expected) in [
        ("Bearer  aB3dE5gH7jK9mN1pQ3", "X"),
        ("bearer\tabc123", "X"),
        ("Bearer: abc123", "X"),
        ("Bearer \"abc123\"", "X\""),
        ("Bearer abc123,", "X,"),
        ("Bearer 12|aB3dE5gH7jK9mN1pQ3", "X"),
        (r#"{"h":"Bearer \"abc123\""}"#, r#"{"h":"X\""}"#),
    ] {
        assert_eq!(redacted(&[Known::AccessTokens], text), (expected.to_owned(), 1));
    }
    for text in [
        "the bearer of 3 letters",
        "OAuth 2.0 Bearer tokens are short-lived",
        "Bearer realm=\"x\", error=\"invalid_token\"",
        "| Bearer |\n|--------|",
        "token_type: bearer\nscope1: x",
        "hf_transfer, SG.rules, xapp-my-application and glpat-x",
    ] {
        assert_eq!(redacted(&[Known::AccessTokens], text), (text.to_owned(), 0));
    }
}

#[test]
fn a_private_key_is_found_in_parts() {
    let first = "-----BEGIN PRIVATE KEY-----";
    let last = "-----END PRIVATE KEY-----";
    let list = format!(r#"{{"a":["x","{first}","MII1","MII2","{last} y","z"],"b":"MII3"}}"#);
    for (text, expected) in [
        (list.as_str(), r#"{"a":["x","X","",""," y","z"],"b":"MII3"}"#),
        // The last line alone, as of the end of a file.
        (&format!("a\nMIIB+/=\r\nMII=\n{last}\nb"), "X\nb"),
        (&format!("see {last}"), &format!("see {last}")),
        // What has no last line is no list.
        (&format!(r#"["{first}","b"]"#), r#"["X","b"]"#),
    ] {
        assert_eq!(redacted(&[Known::PrivateKeys], text).0, expected, "{text}");
    }
    let redact = Redaction(vec![Pattern::known(Known::PrivateKeys, None)]);
    let mut in_key = false;
    let mut after = |line: &str| redact.after_key(line, &mut in_key).to_owned();
    let begun = format!("a {first}");
    assert_eq!(after(&begun), begun);
    assert_eq!([after("MII"), after(&format!("MII {last} b")), after("c")], ["", " b", "c"]);
    let whole = format!("{first}MII{last}");
    assert_eq!([after(&whole), after("c")], [&whole, "c"]);
}

#[test]
fn json_in_a_text_is_read_as_json() {
    let (key, rest) = ("-----BEGIN PRIVATE KEY-----", "\nMII\n-----END PRIVATE KEY-----");
    let known = [Known::AccessTokens, Known::PrivateKeys];
    let token = r"\u0041KIAIOSFODNN7EXAMPLE";
    for (text, expected) in [
        (format!("{{\"a\":\"{token}\"}}\r\n[1]\n\"{token}\"\nb"), "{\"a\":\"X\"}\r\n[1]\n\"X\"\nb"),
        (format!("x\n{{\"a\":\"{token}\"}}"), "x\n{\"a\":\"X\"}"),
        (format!("```json\n{{\n \"a\": \"{token}\"\n}}\n```"), "```json\n{\n \"a\": \"X\"\n}\n```"),
        (format!("# It\n[\n\"{token}\"]\nb"), "# It\n[\n\"X\"]\nb"),
        (format!("\u{feff}{{\"a\":\"{token}\"}}"), "\u{feff}{\"a\":\"X\"}"),
        (format!("data: [\"{token}\"]\r5\" }}}}\n\"{token}\""), "data: [\"X\"]\r5\" }}\n\"X\""),
        // A key that begins in such a line goes on behind it.
        (format!("\"{key}\"{rest}"), "\"X"),
    ] {
        assert_eq!(
            redacted(&known, &text),
            (expected.to_owned(), expected.matches('X').count() as u64),
            "{text}"
        );
    }
}

#[test]
fn result_of_a_server_keeps_the_protocols_own_members() {
    let bytes = format!("AKIAIOSFODNN7EXAMPLE/{}", "A".repeat(60));
    let redact = Redaction(vec![Pattern::new("AKIA[A-Z0-9]+|content", Some("X")).unwrap()]);
    let apply = |part, text: String| {
        let (json, mut count) = (RawValue::from_string(text).unwrap(), 0);
        let json = redact.in_json(&json, part, &mut count).unwrap_or(json);
        (Box::<str>::from(json).into_string(), count)
    };
    let result = |bytes: &str, rest: &str| {
        format!(
            r#"{{"content":[{{"type":"image","data":"{bytes}"}},{{"type":"resource","resource":{{"blob":"{bytes}"}}}},{rest}}}"#
        )
    };
    let before = r#"{"type":"text","text":"AKIA1","data":"AKIA2"}],"structuredContent":{"AKIA3":{"content":1},"data":"B"}"#;
    let after =
        r#"{"type":"text","text":"X","data":"X"}],"structuredContent":{"X":{"X":1},"data":"X/A"}"#;
    let long = format!("\"{bytes}\"");
    assert_eq!(
        apply(Part::Result, result(&bytes, &before.replace("\"B\"", &long))),
        (result(&bytes, &after.replace("X/A", &bytes.replace("AKIAIOSFODNN7EXAMPLE", "X"))), 5)
    );
    // In a text, nothing is the protocol's.
    let text = format!(r#"{{"content":[{{"type":"image","data":"{bytes}"}}]}}"#);
    let replaced = redact.apply(&text, &mut 0).unwrap();
    assert!(replaced.starts_with(r#"{"X":[{"type":"image","data":"X/AAA"#), "{replaced}");
    let params = r#"{"message":"AKIA1","requestedSchema":{"message":"AKIA2"},"url":"AKIA3","_meta":{"AKIA1":"AKIA1"},"progressToken":"AKIA4"}"#;
    assert_eq!(apply(Part::Params, params.to_owned()), (params.replace("AKIA1", "X"), 3));
    let data = r#"{"elicitations":[{"url":"AKIA2","message":"AKIA1","AKIA1":1}],"a":"AKIA1"}"#;
    assert_eq!(apply(Part::Params, data.to_owned()), (data.replace("AKIA1", "X"), 3));
    // Keys that the protocol does not know.
    let result = r#"{"content":[{"type":"content","text":"AKIA1","AKIA1":1,"annotations":{"AKIA1":1},"_meta":{"AKIA1":1}}],"AKIA1":1}"#;
    assert_eq!(apply(Part::Result, result.to_owned()), (result.replace("AKIA1", "X"), 5));
}

#[test]
fn a_pattern_is_checked() {
    assert!(Pattern::new("(", None).is_err());
    assert!(Pattern::new(r"(\w{1000}){1000}", None).is_err(), "too large");
    assert!(Pattern::new("a*", None).unwrap().matches_nothing());
    let pattern = Pattern::new("secret-[0-9]+", Some("$0")).unwrap();
    let mut count = 0;
    let replaced = Redaction(vec![pattern]).apply("a secret-12", &mut count);
    assert_eq!((replaced.as_deref(), count), (Some("a $0"), 1), "as it is written");
    assert_eq!(Redaction::default().apply("secret-12", &mut count), None);
}

#[test]
fn ids_and_words_of_an_agents_result_stay() {
    let redaction =
        Redaction(vec![Pattern::new("[0-9a-f]{4}|task|TASK", Some("X")).expect("a pattern")]);
    let apply = |text: &str| {
        let json = RawValue::from_string(text.to_owned()).expect("JSON");
        let changed = redaction.in_json(&json, Part::AgentResult, &mut 0);
        changed.map_or_else(|| text.to_owned(), |json| json.get().to_owned())
    };
    let bytes = "ab12".repeat(20);
    for (before, expected) in [
        // Tasks, messages and events of both versions.
        (r#"{"id":"ab12","contextId":"ab12","kind":"task"}"#, None),
        (
            r#"{"task":{"id":"ab12","context_id":"ab12","status":{"state":"TASK_STATE_WORKING"}}}"#,
            None,
        ),
        (r#"{"message":{"messageId":"ab12","referenceTaskIds":["ab12","cd34"]}}"#, None),
        (r#"{"statusUpdate":{"taskId":"ab12","status":{"message":{"taskId":"ab12"}}}}"#, None),
        (r#"{"artifacts":[{"artifactId":"ab12"}],"history":[{"messageId":"ab12"}]}"#, None),
        (r#"{"status":{"state":"working","timestamp":"2026-01-01T00:00:00.1234Z"}}"#, None),
        // What the agent says.
        (
            r#"{"id":"ab12","status":{"message":{"parts":[{"text":"see ab12"}]}}}"#,
            Some(r#"{"id":"ab12","status":{"message":{"parts":[{"text":"see X"}]}}}"#),
        ),
        (
            r#"{"artifacts":[{"artifactId":"ab12","name":"ab12","parts":[{"data":{"id":"ab12","taskId":["ab12"]}}]}]}"#,
            Some(
                r#"{"artifacts":[{"artifactId":"ab12","name":"X","parts":[{"data":{"id":"X","XId":["X"]}}]}]}"#,
            ),
        ),
        (
            r#"{"id":"ab12","metadata":{"id":"ab12"},"other":{"id":"ab12"},"state":"ab12"}"#,
            Some(r#"{"id":"ab12","metadata":{"id":"X"},"other":{"id":"X"},"state":"X"}"#),
        ),
        (r#"{"parts":[{"id":"ab12"}]}"#, Some(r#"{"parts":[{"id":"X"}]}"#)),
    ] {
        assert_eq!(apply(before), expected.unwrap_or(before));
    }
    let file = format!(r#"{{"parts":[{{"raw":"{bytes}"}},{{"file":{{"bytes":"{bytes}"}}}}]}}"#);
    assert_eq!(apply(&file), file, "a file would be damaged");
    let data = format!(r#"{{"parts":[{{"data":{{"raw":"{bytes}"}}}}]}}"#);
    assert_ne!(apply(&data), data);
}
