//! Which arguments fit, however they are written.

mod plain;
mod readings;

use super::*;

fn when(path: &str, test: Test) -> Rule {
    let when = vec![Condition { path: path.to_owned(), keys: keys(path).unwrap(), test }];
    Rule { glob: Glob::new("*").unwrap(), when, place: "approve[0]".to_owned() }
}

fn glob(text: &str) -> Test {
    Test::Glob(Glob::new(text).unwrap().compile_matcher())
}

#[track_caller]
fn check(rule: &Rule, expected: bool, all: &[&str]) {
    for arguments in all {
        assert_eq!(rule.holds(arguments), expected, "{}: {arguments}", rule.conditions());
    }
}

#[test]
fn numbers_are_compared_and_what_is_no_number_fits() {
    let gt = when("/amount", Test::Gt(1000.0));
    let beyond = [
        r#"{"amount":1001}"#,
        r#"{"amount":1000.5}"#,
        r#"{"amount":1.001e3}"#,
        r#"{"amount":18446744073709551616}"#,
        r#"{"amount":340282366920938463463374607431768211456000}"#,
        r#"{"amount":1e400}"#,
        r#"{"amount":-1e400}"#,
        r#"{"amount":1000.00000000000000000001}"#,
        r#"{"amount":"5000"}"#,
        r#"{"amount":"1"}"#,
        r#"{"amount":null}"#,
        r#"{"amount":true}"#,
        r#"{"amount":[1]}"#,
        r#"{"amount":{"value":1}}"#,
        r#"{"am\u006funt":1001}"#,
        r#"{ "amount" : 1001 , "to":"x"}"#,
        // Servers read the first, the last, or one in another case.
        r#"{"amount":1,"amount":1001}"#,
        r#"{"amount":1001,"amount":1}"#,
        r#"{"amount":1,"AMOUNT":1001}"#,
        // A key that no text can hold.
        r#"{"amount":1,"\ud800":1}"#,
        // No object at all.
        "null",
        "[]",
        r#""x""#,
        "{",
    ];
    check(&gt, true, &beyond);
    let within =
        [r#"{"amount":1000}"#, r#"{"amount":1e3}"#, r#"{"amount":-5}"#, "{}", r#"{"a":5000}"#];
    check(&gt, false, &within);
    let lt = when("/amount", Test::Lt(-2.5));
    check(&lt, true, &[r#"{"amount":-3}"#, r#"{"amount":"x"}"#, r#"{"amount":1e400}"#]);
    check(&lt, false, &[r#"{"amount":-2.5}"#, r#"{"amount":7}"#]);
    let negative = when("/amount", Test::Lt(0.0));
    check(&negative, true, &[r#"{"amount":-1e-400}"#, r#"{"amount":-0.5}"#]);
    check(&negative, false, &[r#"{"amount":0}"#, r#"{"amount":-0.0e5}"#, r#"{"amount":3}"#]);
}

#[test]
fn texts_are_compared_unescaped_and_as_plain_paths() {
    let etc = when("/path", glob("/etc/**"));
    let inside = [
        r#"{"path":"/etc/passwd"}"#,
        r#"{"path":"/etc"}"#,
        r#"{"path":"/etc/"}"#,
        r#"{"path":"\/etc\/passwd"}"#,
        r#"{"path":"\u002fetc/passwd"}"#,
        r#"{"path":"/tmp/../etc/passwd"}"#,
        r#"{"path":"/tmp/../etc"}"#,
        r#"{"path":"//etc//passwd"}"#,
        r#"{"path":"/./etc/./passwd"}"#,
        r#"{"path":"/../etc/passwd"}"#,
        r#"{"path":"/a/b/../../../etc/x"}"#,
        r#"{"path":"/etc/../tmp/x"}"#,
        r#"{"path":"/etc/a\nb"}"#,
        r#"{"path":"\ud800"}"#,
        r#"{"path":["/tmp/x"]}"#,
        r#"{"path":null}"#,
        r#"{"path":"/tmp/x","path":"/etc/x"}"#,
        r#"{"path":"/etc\u0000"}"#,
        r#"{"path":"/tmp/../etc\u0000.txt"}"#,
        r#"{"path":"/x\u0000/../etc/passwd"}"#,
        r#"{"path":"etc/passwd"}"#,
        r#"{"path":"file:///etc/passwd"}"#,
        r#"{"path":""}"#,
    ];
    check(&etc, true, &inside);
    let outside = [
        r#"{"path":"/tmp/x"}"#,
        r#"{"path":"/tmp/etc/passwd"}"#,
        r#"{"path":"/etcetera"}"#,
        r#"{"path":5}"#,
        r#"{"paths":"/etc/passwd"}"#,
    ];
    check(&etc, false, &outside);
    assert_eq!(plain_path("../a/../../b/."), "../../b");
}

#[test]
fn numbers_and_booleans_match_globs_as_they_are_written() {
    let force = when("/force", glob("true"));
    check(&force, true, &[r#"{"force":true}"#, r#"{"force":"true"}"#, r#"{"force":null}"#]);
    // What a lenient server takes for a boolean.
    let odd = ["1", r#""yes""#, r#""True""#, r#""""#, "[]"];
    let odd = odd.map(|odd| format!(r#"{{"force":{odd}}}"#));
    check(&force, true, &odd.each_ref().map(String::as_str));
    check(&when("/force", glob("false")), true, &[r#"{"force":0}"#, r#"{"force":"no"}"#]);
    check(&force, false, &[r#"{"force":false}"#, r#"{"force":"False"}"#, "{}"]);
    check(&when("/n", glob("5")), true, &[r#"{"n":"5.0"}"#, r#"{"n":" 5"}"#]);
    check(&when("/n", glob("5*")), true, &[r#"{"n":50}"#, r#"{"n":5e400}"#, r#"{"n":-1e400}"#]);
    check(&when("/n", glob("5*")), false, &[r#"{"n":15}"#]);
    // One number has several forms.
    for text in ["5", "5.0", "{5,6}", "5e0"] {
        check(&when("/n", glob(text)), true, &[r#"{"n":5}"#, r#"{"n":5.0}"#, r#"{"n":0.5e1}"#]);
        check(&when("/n", glob(text)), false, &[r#"{"n":50}"#, r#"{"n":5.5}"#, r#"{"n":true}"#]);
    }
}

#[test]
fn pointers_lead_into_objects_and_lists() {
    struct Case {
        path: &'static str,
        arguments: &'static str,
        expected: bool,
    }
    for Case { path, arguments, expected } in [
        Case { path: "/a/b", arguments: r#"{"a":{"b":9}}"#, expected: true },
        Case { path: "/a/b", arguments: r#"{"a":{"b":1},"a":{"b":9}}"#, expected: true },
        Case { path: "/a/b", arguments: r#"{"a":{"c":9}}"#, expected: false },
        // A server may make an object of it.
        Case { path: "/a/b", arguments: r#"{"a":"{\"b\":9}"}"#, expected: true },
        Case { path: "/a/b", arguments: r#"{"a":[{"b":1}]}"#, expected: true },
        Case { path: "/a/1", arguments: r#"{"a":[1,9]}"#, expected: true },
        Case { path: "/a/1", arguments: r#"{"a":[9]}"#, expected: false },
        Case { path: "/a/1", arguments: r#"{"a":{"1":9}}"#, expected: true },
        Case { path: "/a~1b/c~0d", arguments: r#"{"a/b":{"c~d":9}}"#, expected: true },
        Case { path: "/~01", arguments: r#"{"~1":9}"#, expected: true },
        Case { path: "/", arguments: r#"{"":9}"#, expected: true },
        Case { path: "/sk", arguments: "{\"\u{17f}\u{212a}\":9}", expected: true },
    ] {
        check(&when(path, Test::Gt(5.0)), expected, &[arguments]);
    }
    let deep = "/a".repeat(MAX_KEYS);
    assert!(keys(&deep).is_some());
    for bad in ["", "amount", "$.amount", "/a~", "/a~2", &format!("{deep}/a")] {
        assert!(keys(bad).is_none(), "{bad}");
    }
}

#[test]
fn all_conditions_must_hold() {
    let both = Rule {
        when: [when("/n", Test::Gt(1.0)).when, when("/p", glob("a*")).when].concat(),
        ..when("/n", Test::Gt(1.0))
    };
    check(&both, true, &[r#"{"n":2,"p":"ab"}"#]);
    check(&both, false, &[r#"{"n":2,"p":"b"}"#, r#"{"n":1,"p":"a"}"#, r#"{"n":2}"#]);
    assert_eq!(both.conditions(), "`/n` is greater than 1 and `/p` matches `a*`");
    check(&Rule { when: Vec::new(), ..both }, true, &["{}"]);
}

/// Whether the path may lead somewhere in arguments that fit the schema.
#[track_caller]
fn check_known(schema: &str, known: &[&str], unknown: &[&str]) {
    let value = serde_json::from_str(schema).unwrap();
    for (paths, expected) in [(known, true), (unknown, false)] {
        for path in paths {
            let is_known = when(path, Test::Gt(1.0)).when[0].is_known(&value);
            assert_eq!(is_known, expected, "{schema} {path}");
        }
    }
}

#[test]
fn a_schema_knows_its_properties_alone() {
    check_known(r#"{"properties":{"A":{}}}"#, &["/a", "/a/x", "/a/0"], &["/b", "/b/a"]);
    check_known(r#"{"properties":{"a":{}},"additionalProperties":true}"#, &["/a"], &["/b"]);
    check_known(r#"{"properties":{"a":{"properties":{"b":{}}}}}"#, &["/a/b"], &["/a/c"]);
    let typed = r#"{"properties":{"a":{}},"additionalProperties":{"type":"number"}}"#;
    check_known(typed, &["/a", "/b"], &["/b/c"]);
    check_known(r#"{"properties":{}}"#, &[], &["/a"]);
    check_known(r#"{"patternProperties":{"^x":{"type":"string"}}}"#, &["/xa"], &["/xa/b"]);
}

#[test]
fn only_what_is_open_knows_all() {
    for open in ["true", "{}", "null", r#"{"type":"object"}"#, r#"{"additionalProperties":{}}"#] {
        check_known(open, &["/a", "/a/0"], &[]);
    }
    let closed = r#"{"type":"object","additionalProperties":false}"#;
    for closed in ["false", closed, r#"{"type":["string","null"]}"#, r#"{"type":"number"}"#] {
        check_known(closed, &[], &["/a", "/0"]);
    }
}

#[test]
fn the_elements_of_a_list_are_known_by_numbers() {
    let items = r#"{"properties":{"a":{"type":"array","items":{"properties":{"n":{}}}}}}"#;
    check_known(items, &["/a/0", "/a/7/n"], &["/a/n", "/a/-/n", "/a/*/n", "/a/0/m"]);
    check_known(r#"{"properties":{"a":{"type":"array"}}}"#, &["/a/0", "/a/0/n"], &["/a/n"]);
    for key in ["prefixItems", "items"] {
        let tuple = format!(
            r#"{{"properties":{{"a":{{"type":"array","{key}":[{{"type":"string"}},{{"properties":{{"n":{{}}}}}}]}}}}}}"#
        );
        check_known(&tuple, &["/a/1/n", "/a/5"], &["/a/0/n", "/a/1/m"]);
    }
}

#[test]
fn references_and_alternatives_are_followed() {
    let root =
        r##"{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"amount":{}}}}}"##;
    check_known(root, &["/amount"], &["/amont"]);
    let inner = r##"{"properties":{"to":{"$ref":"#/definitions/T"}},"definitions":{"T":{"properties":{"iban":{}}}}}"##;
    check_known(inner, &["/to/iban"], &["/to/ibn"]);
    for key in ["anyOf", "oneOf", "allOf"] {
        let either = format!(
            r#"{{"properties":{{"any":{{"{key}":[{{"type":"object","properties":{{"q":{{}}}}}},{{"type":"null"}}]}}}}}}"#
        );
        check_known(&either, &["/any/q"], &["/any/r", "/any/0"]);
    }
    let required = r#"{"properties":{"a":{}},"anyOf":[{"required":["a"]},{"required":["b"]}],"then":{"properties":{"c":{}}}}"#;
    check_known(required, &["/a", "/c"], &["/b"]);
    check_known(r#"{"anyOf":[{"type":"string"},{"type":"object"}]}"#, &["/a"], &[]);
    check_known(r#"{"anyOf":[{"type":"string"},{"type":"number"}]}"#, &[], &["/a"]);
    // Elsewhere, or nowhere.
    for reference in ["https://schemas.example/x", "#/$defs/gone", "#name"] {
        check_known(&format!(r#"{{"$ref":"{reference}","properties":{{}}}}"#), &["/a"], &[]);
    }
    let circle =
        r##"{"$ref":"#","anyOf":[{"$ref":"#"},{"$ref":"#"}],"properties":{"a":{"$ref":"#"}}}"##;
    check_known(circle, &["/a/a/a"], &["/b", "/a/a/b"]);
}
