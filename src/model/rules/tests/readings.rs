//! One reading for all rules answers what the rules answer one by one.

#![expect(clippy::disallowed_types, reason = "one test measures, without a runtime")]

use std::hint::black_box;
use std::time::Instant;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::*;
use super::{glob, plain, when};

const KEYS: &[&str] = &["a", "A", "b", "s", "\u{17f}", "k", "0", "1", "01", "+1", "", "x/y"];
const GLOBS: &[&str] = &[
    "*", "a*", "*b", "/etc/**", "/a", "true", "false", "5", "5.0", "1*", "nan", "", "?", "{5,x}",
    "[ab]*", "*\u{e9}*", "/*/b",
];
const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "5",
    "5.0",
    "-1",
    "1e400",
    "1e-400",
    "15",
    "1000.0000000000000000001",
    r#""""#,
    r#""a""#,
    r#""ab""#,
    r#""/etc""#,
    r#""/etc/../a""#,
    r#""/tmp/../etc/x""#,
    r#""\u002fa""#,
    r#""a\u0000b""#,
    r#""/a\u0000/../b""#,
    r#""5""#,
    r#"" 5.0 ""#,
    r#""nan""#,
    r#""True""#,
    r#""\ud800""#,
    "\"\u{e9}\"",
    r#""{\"a\":5}""#,
    r#""a\nb""#,
];

fn document() -> impl Strategy<Value = String> {
    let scalar = select(SCALARS).prop_map(str::to_owned);
    let value = scalar.prop_recursive(3, 24, 5, |inner| {
        let key = prop_oneof![
            8 => select(KEYS).prop_map(|key| serde_json::to_string(key).unwrap()),
            1 => select(&[r#""\u0061""#, r#""\ud800""#][..]).prop_map(str::to_owned),
        ];
        let member = (key, inner.clone()).prop_map(|(key, value)| format!("{key}: {value}"));
        let members = prop::collection::vec(member, 0..5);
        let items = prop::collection::vec(inner, 0..4);
        prop_oneof![
            3 => members.prop_map(|all| format!("{{{}}}", all.join(","))),
            1 => items.prop_map(|all| format!("[ {} ]", all.join(" ,"))),
        ]
    });
    // Some are broken.
    let cut = prop::option::weighted(0.15, any::<Index>());
    (value, cut).prop_map(|(text, cut)| {
        let length = cut.map_or(text.len(), |cut| cut.index(text.len()));
        text.chars().take(length).collect()
    })
}

fn rule(when: Vec<Condition>) -> Rule {
    Rule { glob: Glob::new("*").unwrap(), when, place: String::new() }
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let test = prop_oneof![
        select(&[-1.0, 0.0, 4.5, 1000.0][..]).prop_map(Test::Gt),
        select(&[-0.5, 0.0, 5.0, 1000.0][..]).prop_map(Test::Lt),
        select(GLOBS).prop_map(glob),
        select(GLOBS).prop_map(glob),
    ];
    let path = prop::collection::vec(select(KEYS), 1..4).prop_map(|keys| {
        let keys = keys.iter().map(|key| format!("/{}", key.replace('/', "~1")));
        keys.collect::<String>()
    });
    let condition = (path, test).prop_map(|(path, test)| when(&path, test).when.remove(0));
    let some = prop::collection::vec(prop::collection::vec(condition, 0..3), 0..5);
    // As many globs on one member as are searched at once.
    let many = prop::collection::vec(select(GLOBS), 4..12);
    (some, prop::option::of(many)).prop_map(|(some, many)| {
        let many = many.into_iter().flatten().map(|text| when("/a", glob(text)).when);
        some.into_iter().chain(many).map(rule).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn one_reading_of_arguments_answers_what_each_rule_answers_alone(
        documents in prop::collection::vec(document(), 1..6),
        rules in rules(),
    ) {
        let tree = ConditionTree::new(&rules);
        let all: Vec<usize> = (0..rules.len()).collect();
        for document in documents {
            let first = rules.iter().position(|rule| plain::holds(rule, &document));
            prop_assert_eq!(tree.first(&all, &document), first, "{} {:?}", &document, &rules);
            for (number, rule) in rules.iter().enumerate() {
                let holds = tree.first(&[number], &document).is_some();
                prop_assert_eq!(holds, plain::holds(rule, &document), "{} {:?}", &document, rule);
            }
        }
    }
}

/// Arguments of about `bytes` bytes, and what they are.
fn arguments(bytes: usize) -> [(&'static str, String); 5] {
    let text = "lorem/ipsum ".repeat(bytes / 12);
    let members = r#""Kk":1,"#.repeat(bytes / 7);
    let same = r#""a":"/x","#.repeat(bytes / 9);
    [
        ("a text beside", format!(r#"{{"a":"/tmp/x","content":"{text}"}}"#)),
        ("a text that globs are about", format!(r#"{{"a":"/{text}"}}"#)),
        ("members beside", format!(r#"{{{members}"a":"/tmp/x"}}"#)),
        ("a member again and again", format!(r#"{{{same}"b":1}}"#)),
        ("a list beside", format!(r#"{{"list":[{}1]}}"#, "1,".repeat(bytes / 2))),
    ]
}

fn many(count: usize) -> Vec<Rule> {
    let one = |number| match number % 3 {
        0 => when("/a", glob(&format!("/etc/{number}/**"))),
        1 => when("/a", glob(&format!("/*secret{number}*"))),
        _ => when(&format!("/amount{number}"), Test::Gt(5.0)),
    };
    (0..count).map(one).collect()
}

/// Prints how long one check takes: each rule alone, and in one reading.
#[test]
#[ignore = "it measures"]
fn time_of_one_check() {
    struct Case {
        count: usize,
        bytes: usize,
        times: u32,
    }
    for Case { count, bytes, times } in [
        Case { count: 3, bytes: 200, times: 2_000 },
        Case { count: 100, bytes: 200, times: 200 },
        Case { count: 3, bytes: 5 << 20, times: 1 },
        Case { count: 100, bytes: 5 << 20, times: 1 },
    ] {
        let rules = many(count);
        let tree = ConditionTree::new(&rules);
        let all: Vec<usize> = (0..count).collect();
        for (what, text) in arguments(bytes) {
            let begin = Instant::now();
            for _ in 0..times {
                black_box(rules.iter().position(|rule| plain::holds(rule, black_box(&text))));
            }
            let alone = begin.elapsed() / times;
            let begin_of_reading = Instant::now();
            for _ in 0..times {
                black_box(tree.first(&all, black_box(&text)));
            }
            let reading = begin_of_reading.elapsed() / times;
            let ratio = alone.as_secs_f64() / reading.as_secs_f64();
            println!("{count} rules, {bytes} bytes, {what}: {alone:?} {reading:?} {ratio:.1}");
        }
    }
}
