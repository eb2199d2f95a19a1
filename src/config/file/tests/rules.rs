//! Rules on arguments, and quotas, as the file has them.

use std::time::Duration;

use super::{check, parse};
use crate::config::{Config, Quota};

fn good(entry: &str) -> Config {
    let config = parse(&format!("upstream: {{sandbox: true}}\n{entry}\n"));
    config.unwrap_or_else(|errors| panic!("{entry}\n{errors}"))
}

#[test]
fn a_rule_stands_beside_globs() {
    let rule = "{tool: 'p*', when: [{path: /n, gt: 5}, {path: /to, glob: 'a*'}]}";
    let config = good(&format!(
        "mcp: {{b: {{command: a, approve: [rm, {rule}, destructive], tools: {{deny: [{rule}]}}}}}}
apps: {{mine: {{token: '0123456789abcdef0123456789abcdef', tools: {{b: {{deny: [{rule}]}}}}}}}}"
    ));
    let backend = config.backends.get("b").unwrap();
    let of_app = config.apps[0].rights.tools.get("b").unwrap();
    assert!(backend.approve.destructive && backend.approve.tools.is_match("rm"));
    let (both, one) = (r#"{"n":6,"to":"ann"}"#, r#"{"n":6,"to":"bob"}"#);
    for (globs, place) in [
        (&backend.approve.tools, "mcp.b.approve[1], line 2"),
        (&backend.naming.tools.deny, "mcp.b.tools.deny[0], line 2"),
        (&of_app.deny, "apps.mine.tools.b.deny[0], line 3"),
    ] {
        let found = globs.of_call("pay", both).expect("the rule");
        assert_eq!(found.place, place);
        assert_eq!(found.conditions(), "`/n` is greater than 5 and `/to` matches `a*`");
        assert!(globs.of_call("pay", one).is_none(), "{place}");
        assert!(globs.of_call("look", both).is_none(), "{place}");
        assert!(!globs.is_match("pay"), "{place}");
    }
}

#[test]
fn mistakes_in_rules_have_their_places() {
    check(
        "upstream: {sandbox: true}
mcp:
  a:
    command: a
    disabled: false
    approve:
      - {when: [{path: /n, gt: 1}]}
      - {tool: x}
      - {tool: x, when: []}
      - {tool: '[', when: [{path: /n, gt: 1}]}
      - {tool: x, when: [{gt: 1}, {path: n, gt: 1}, {path: /n}]}
      - {tool: x, when: [{path: /n, gt: '5'}]}
      - {tool: x, when: [{path: /n, gt: 1, lt: 2}]}
      - {tool: x, when: [{path: /n, gte: 1}]}",
        r#"error: nothing says of which tools this is
 --> /srv/bridge.yaml:7:9 (mcp.a.approve[0])
  |
7 |       - {when: [{path: /n, gt: 1}]}
  |         ^
  = write `tool: GLOB`; `"*"` is for all

error: nothing says of which calls this is
 --> /srv/bridge.yaml:8:9 (mcp.a.approve[1])
  |
8 |       - {tool: x}
  |         ^
  = write `when: [{path: /amount, gt: 1000}]`, or the glob alone

error: nothing says of which calls this is
 --> /srv/bridge.yaml:9:9 (mcp.a.approve[2])
  |
9 |       - {tool: x, when: []}
  |         ^
  = write `when: [{path: /amount, gt: 1000}]`, or the glob alone

error: `[` is no glob: unclosed character class; missing ']'
  --> /srv/bridge.yaml:10:16 (mcp.a.approve[3].tool)
   |
10 |       - {tool: '[', when: [{path: /n, gt: 1}]}
   |                ^^^
   = write a tool's name, with * for any characters and ? for one

error: nothing says which argument this is about
  --> /srv/bridge.yaml:11:26 (mcp.a.approve[4].when[0])
   |
11 |       - {tool: x, when: [{gt: 1}, {path: n, gt: 1}, {path: /n}]}
   |                          ^
   = write `path: /amount`: a JSON Pointer into the arguments

error: `n` is no JSON Pointer to an argument
  --> /srv/bridge.yaml:11:42 (mcp.a.approve[4].when[1].path)
   |
11 |       - {tool: x, when: [{gt: 1}, {path: n, gt: 1}, {path: /n}]}
   |                                          ^
   = write `/` before each key, such as /options/force; `~1` stands for a `/` in a key, `~0` for a `~`

error: this compares the argument with nothing
  --> /srv/bridge.yaml:11:53 (mcp.a.approve[4].when[2])
   |
11 |       - {tool: x, when: [{gt: 1}, {path: n, gt: 1}, {path: /n}]}
   |                                                     ^
   = write one of `gt`, `lt` and `glob` into it

error: expected a number, found a text
  --> /srv/bridge.yaml:12:41 (mcp.a.approve[5].when[0].gt)
   |
12 |       - {tool: x, when: [{path: /n, gt: '***'}]}
   |                                         ^^^^^

error: a condition has one comparison
  --> /srv/bridge.yaml:13:26 (mcp.a.approve[6].when[0])
   |
13 |       - {tool: x, when: [{path: /n, gt: 1, lt: 2}]}
   |                          ^
   = write a condition for each; all of `when` must hold

error: unknown key `gte`
  --> /srv/bridge.yaml:14:37 (mcp.a.approve[7].when[0].gte)
   |
14 |       - {tool: x, when: [{path: /n, gte: ***}]}
   |                                     ^^^
   = did you mean `gt`? Known keys here: glob, gt, lt, path

10 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn a_list_has_so_many_rules_and_a_rule_so_many_conditions() {
    let file = |rules: usize, conditions: usize| {
        let when = vec!["{path: /n, gt: 1}"; conditions].join(", ");
        let rules = vec![format!("{{tool: x, when: [{when}]}}"); rules].join(", ");
        parse(&format!(
            "upstream: {{sandbox: true}}\nmcp: {{a: {{command: a, approve: [{rules}]}}}}"
        ))
    };
    assert!(file(100, 2).is_ok() && file(1, 20).is_ok());
    struct Case {
        rules: usize,
        conditions: usize,
        expected: &'static str,
    }
    for Case { rules, conditions, expected } in [
        Case { rules: 101, conditions: 1, expected: "these are 101 rules" },
        Case { rules: 1, conditions: 21, expected: "these are 21 conditions" },
    ] {
        let told = file(rules, conditions).unwrap_err().to_string();
        assert!(
            told.contains(expected) && told.contains("write at most"),
            "{rules} {conditions}: {told}"
        );
    }
}

#[test]
fn a_number_that_nothing_can_be_compared_with_is_refused() {
    for number in [".nan", ".inf", "-.inf", "1e400"] {
        let rule = format!("{{tool: x, when: [{{path: /n, gt: {number}}}]}}");
        let file =
            format!("upstream: {{sandbox: true}}\nmcp: {{a: {{command: a, approve: [{rule}]}}}}");
        let told = parse(&file).unwrap_err().to_string();
        assert!(told.contains("nothing can be compared with this number"), "{number}: {told}");
    }
}

#[test]
fn quotas_are_of_apps_and_of_every_kind_of_backend() {
    let config = good(
        "mcp: {a: {command: a, quota: {calls: 100, per: 1h, identical: 10}}}
a2a: {b: {bundled: true, quota: {identical: 3}}}
local: {c: {internal: true, parameters: {type: object}, quota: {calls: 1, per: 500ms}}}
apps: {mine: {token: '0123456789abcdef0123456789abcdef', quota: {calls: 5, per: 24h}}}",
    );
    let of = |name: &str| config.backends.get(name).unwrap().quota;
    let time = |calls, seconds| Some((calls, Duration::from_secs_f64(seconds)));
    assert_eq!(of("a"), Some(Quota { calls: time(100, 3600.0), identical: Some(10) }));
    assert_eq!(of("b"), Some(Quota { calls: None, identical: Some(3) }));
    assert_eq!(of("c"), Some(Quota { calls: time(1, 0.5), identical: None }));
    assert_eq!(config.apps[0].quota, Some(Quota { calls: time(5, 86_400.0), identical: None }));
    check(
        "upstream: {sandbox: true}
mcp:
  a: {command: a, quota: {}}
  b: {command: b, quota: {calls: 5}}
  c: {command: c, quota: {per: 1h}}
  d: {command: d, quota: {calls: 0, per: 1h}}
  e: {command: e, quota: {calls: 1000000, per: 1000h}}
  f: {command: f, quota: {identical: 0}}
  g: {command: g, quota: 5}",
        r#"error: this limits nothing
 --> /srv/bridge.yaml:3:19 (mcp.a.quota)
  |
3 |   a: {command: a, quota: {}}
  |                   ^^^^^
  = write `calls: 100` and `per: 1h`

error: `per` is missing
 --> /srv/bridge.yaml:4:19 (mcp.b.quota)
  |
4 |   b: {command: b, quota: {calls: 5}}
  |                   ^^^^^
  = write `per: 1h` to it

error: `calls` is missing
 --> /srv/bridge.yaml:5:19 (mcp.c.quota)
  |
5 |   c: {command: c, quota: {per: 1h}}
  |                   ^^^^^
  = write `calls: 100` to it

error: expected a whole number of at least 1, found the number 0
 --> /srv/bridge.yaml:6:34 (mcp.d.quota.calls)
  |
6 |   d: {command: d, quota: {calls: 0, per: 1h}}
  |                                  ^

error: these are 1000000 calls
 --> /srv/bridge.yaml:7:34 (mcp.e.quota.calls)
  |
7 |   e: {command: e, quota: {calls: 1000000, per: 1000h}}
  |                                  ^^^^^^^
  = write at most 100000

error: this is too long
 --> /srv/bridge.yaml:7:48 (mcp.e.quota.per)
  |
7 |   e: {command: e, quota: {calls: 1000000, per: 1000h}}
  |                                                ^^^^^
  = write at most 168h

error: expected a whole number of at least 1, found the number 0
 --> /srv/bridge.yaml:8:38 (mcp.f.quota.identical)
  |
8 |   f: {command: f, quota: {identical: 0}}
  |                                      ^

error: expected a map with calls and per, or identical, found a number
 --> /srv/bridge.yaml:9:26 (mcp.g.quota)
  |
9 |   g: {command: g, quota: ***}
  |                          ^^^

8 errors in /srv/bridge.yaml"#,
    );
}
