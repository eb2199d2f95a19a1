//! Which calls a person is asked about, as the file says it.

use super::{check, parse};
use crate::model::ids::BackendName;
use crate::model::offer::{RefKind, Route, Target};

/// Whether calls of `tool` of the backend `b` are asked about, where its server says that they may
/// destroy something, and where it says that they do not.
#[track_caller]
fn asks(entry: &str, tool: &str) -> [bool; 2] {
    let config = parse(&format!("upstream: {{sandbox: true}}\n{entry}\n"));
    let config = config.unwrap_or_else(|errors| panic!("{entry}\n{errors}"));
    assert_eq!(config.warnings, [] as [String; 0], "{entry}");
    let backend = BackendName::parse("b").unwrap();
    let policy = &config.backends.get("b").unwrap().approve;
    [true, false].map(|destructive| {
        let target = Target::Tool { name: tool.into(), input: None };
        let (backend, kind) = (backend.clone(), RefKind::McpLocal);
        let route = Route { backend, kind, target, repeatable: false, destructive };
        policy.asks(&route, "{}").is_some()
    })
}

#[test]
fn globs_and_the_word() {
    struct Case {
        approve: &'static str,
        tool: &'static str,
        expected: [bool; 2],
    }
    for Case { approve, tool, expected } in [
        Case { approve: "null", tool: "rm", expected: [false, false] },
        Case { approve: "[]", tool: "rm", expected: [false, false] },
        Case { approve: "['*']", tool: "rm", expected: [true, true] },
        Case { approve: "rm", tool: "rm", expected: [true, true] },
        Case { approve: "'r?'", tool: "rm", expected: [true, true] },
        Case { approve: "[write, 'r*']", tool: "rmdir", expected: [true, true] },
        Case { approve: "[write, 'r*']", tool: "list", expected: [false, false] },
        Case { approve: "destructive", tool: "rm", expected: [true, false] },
        Case { approve: "[destructive, 'list*']", tool: "list_all", expected: [true, true] },
        // The word is no glob; a tool of that name is written otherwise.
        Case { approve: "destructive", tool: "destructive", expected: [true, false] },
        Case { approve: "'[d]estructive'", tool: "destructive", expected: [true, true] },
    ] {
        let entry = format!("mcp: {{b: {{command: a, approve: {approve}}}}}");
        assert_eq!(asks(&entry, tool), expected, "{approve} {tool}");
    }
    for (approve, expected) in [("[]", false), ("['*']", true), ("b", true), ("[x, 'b*']", true)] {
        let entry = format!("a2a: {{b: {{bundled: true, approve: {approve}}}}}");
        assert_eq!(asks(&entry, ""), [expected; 2], "{approve}");
    }
}

#[test]
fn approve_that_asks_no_person_is_a_mistake() {
    check(
        "upstream: {sandbox: true}
mcp: {a: {command: a, approve: true}, b: {command: a, approve: ['[']}}
a2a: {c: {bundled: true, approve: [c_*]}, d: {bundled: true, approve: [destructive]}}",
        r#"error: expected a glob or a list of globs and rules, found the boolean true
 --> /srv/bridge.yaml:2:32 (mcp.a.approve)
  |
2 | mcp: {a: {command: a, approve: true}, b: {command: a, approve: ['[']}}
  |                                ^^^^
  = write `["*"]` for all, `[]` for none

error: `[` is no glob: unclosed character class; missing ']'
 --> /srv/bridge.yaml:2:65 (mcp.b.approve[0])
  |
2 | mcp: {a: {command: a, approve: true}, b: {command: a, approve: ['[']}}
  |                                                                 ^^^
  = write a tool's name, with * for any characters and ? for one

error: no glob matches `c`, the name of this agent's one tool
 --> /srv/bridge.yaml:3:35 (a2a.c.approve)
  |
3 | a2a: {c: {bundled: true, approve: [c_*]}, d: {bundled: true, approve: [destructive]}}
  |                                   ^
  = write `approve: ["*"]` to be asked before every message to it, or leave it out

error: an agent does not say what may destroy something
 --> /srv/bridge.yaml:3:72 (a2a.d.approve[0])
  |
3 | a2a: {c: {bundled: true, approve: [c_*]}, d: {bundled: true, approve: [destructive]}}
  |                                                                        ^^^^^^^^^^^
  = write `approve: ["*"]` to be asked before every message to it, or leave it out

4 errors in /srv/bridge.yaml"#,
    );
}

/// A rule on an argument that an agent cannot get would never ask.
#[test]
fn an_agent_has_one_argument() {
    let rule = |path: &str| {
        format!(
            "upstream: {{sandbox: true}}\n\
             a2a: {{c: {{bundled: true, approve: [{{tool: c, when: [{{path: {path}, glob: x}}]}}]}}}}\n"
        )
    };
    assert!(parse(&rule("/message")).is_ok());
    check(
        &rule("/mesage"),
        r#"error: an agent has no argument `/mesage`
 --> /srv/bridge.yaml:2:60 (a2a.c.approve[0].when[0].path)
  |
2 | a2a: {c: {bundled: true, approve: [{tool: c, when: [{path: /mesage, glob: x}]}]}}
  |                                                            ^^^^^^^
  = write `path: /message`, its only argument"#,
    );
}
