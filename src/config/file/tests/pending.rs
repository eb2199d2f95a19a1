//! When calls go on, and how long they may then take.

use std::time::Duration;

use super::{check, parse};

/// `pending_after` and `call_timeout` of the backend `b` below `section`, with `entry` in its entry
/// and `calls` in `calls`; in seconds.
#[track_caller]
fn limits(section: &str, entry: &str, calls: &str) -> (Option<u64>, u64) {
    let yaml =
        format!("upstream: {{sandbox: true}}\ncalls: {{{calls}}}\n{section}: {{b: {{{entry}}}}}\n");
    let config = parse(&yaml).unwrap_or_else(|errors| panic!("{yaml}{errors}"));
    assert_eq!(config.warnings, [] as [String; 0], "{yaml}");
    let backend = config.backends.get("b").unwrap();
    (backend.pending_after.as_ref().map(Duration::as_secs), backend.call_timeout.as_secs())
}

#[test]
fn only_agents_let_calls_go_on_by_themselves() {
    const DAY: &str = "pending_timeout: 24h";
    struct Case {
        section: &'static str,
        entry: &'static str,
        calls: &'static str,
        expected: (Option<u64>, u64),
    }
    for Case { section, entry, calls, expected } in [
        Case { section: "mcp", entry: "command: a", calls: "", expected: (None, 285) },
        Case { section: "local", entry: "command: [a]", calls: "", expected: (None, 285) },
        Case { section: "a2a", entry: "bundled: true", calls: "", expected: (Some(240), 3600) },
        Case {
            section: "a2a",
            entry: "bundled: true, pending_after: null",
            calls: "",
            expected: (Some(240), 3600),
        },
        Case {
            section: "a2a",
            entry: "bundled: true, pending_after: off",
            calls: "",
            expected: (None, 285),
        },
        Case { section: "a2a", entry: "bundled: true", calls: DAY, expected: (Some(240), 86400) },
        // What ends the call sooner comes first.
        Case {
            section: "a2a",
            entry: "bundled: true, call_timeout: 240s",
            calls: "",
            expected: (None, 240),
        },
        Case {
            section: "a2a",
            entry: "bundled: true",
            calls: "timeout: 60s",
            expected: (None, 60),
        },
        Case {
            section: "a2a",
            entry: "bundled: true, call_timeout: 2h",
            calls: DAY,
            expected: (Some(240), 7200),
        },
        Case {
            section: "mcp",
            entry: "command: a, pending_after: 2m",
            calls: "",
            expected: (Some(120), 3600),
        },
        Case {
            section: "mcp",
            entry: "command: a, pending_after: 2m, call_timeout: 121s",
            calls: "",
            expected: (Some(120), 121),
        },
        Case {
            section: "mcp",
            entry: "command: a, pending_after: off",
            calls: "",
            expected: (None, 285),
        },
        Case {
            section: "local",
            entry: "command: [a], pending_after: 10s, timeout: 20m",
            calls: "",
            expected: (Some(10), 1200),
        },
    ] {
        assert_eq!(limits(section, entry, calls), expected, "{section} {entry} {calls}");
    }
}

#[test]
fn a_call_has_to_go_on_before_it_ends() {
    check(
        "upstream: {sandbox: true}
mcp:
  a: {command: a, pending_after: 285s}
  b: {command: a, pending_after: 2m, call_timeout: 30s}
  c: {command: a, pending_after: 2m, call_timeout: 2h}
a2a: {d: {bundled: true, pending_after: 0s}, e: {bundled: true, pending_after: 'no'}}",
        "error: calls.timeout ends the call first, after 285s
 --> /srv/bridge.yaml:3:34 (mcp.a.pending_after)
  |
3 |   a: {command: a, pending_after: 285s}
  |                                  ^^^^
  = write less than 285s, or `off`

error: the call's own timeout ends the call first, after 30s
 --> /srv/bridge.yaml:4:34 (mcp.b.pending_after)
  |
4 |   b: {command: a, pending_after: 2m, call_timeout: 30s}
  |                                  ^^
  = write less than 30s, or `off`

error: this is too long
 --> /srv/bridge.yaml:5:52 (mcp.c.call_timeout)
  |
5 |   c: {command: a, pending_after: 2m, call_timeout: 2h}
  |                                                    ^^
  = write at most 1h, which calls.pending_timeout is

error: expected a duration such as 250ms, 30s, 5m or 2h, or off, found another text
 --> /srv/bridge.yaml:6:80 (a2a.e.pending_after)
  |
6 | a2a: {d: {bundled: true, pending_after: 0s}, e: {bundled: true, pending_after: '***'}}
  |                                                                                ^^^^^

4 errors in /srv/bridge.yaml",
    );
}

#[test]
fn the_time_of_calls_that_go_on_is_bounded() {
    check(
        "upstream: {sandbox: true}
calls: {timeout: 100s, pending_timeout: 99s}",
        "error: a long call would have less time than any other
 --> /srv/bridge.yaml:2:41 (calls.pending_timeout)
  |
2 | calls: {timeout: 100s, pending_timeout: 99s}
  |                                         ^^^
  = write at least 100s, which calls.timeout is",
    );
    let day = "upstream: {sandbox: true}\ncalls: {pending_timeout: 25h}\n";
    let errors = parse(day).unwrap_err();
    assert_eq!(errors.problems[0].path, "calls.pending_timeout", "{errors}");
    assert!(errors.to_string().contains("24h"), "{errors}");
}

#[test]
fn the_tools_name_is_taken() {
    for section in ["mcp", "a2a", "local"] {
        let entry = if section == "a2a" { "bundled: true" } else { "command: a" };
        let yaml = format!(
            "upstream: {{sandbox: true}}\n{section}: {{bridge_call_result: {{{entry}}}}}\n"
        );
        let errors = parse(&yaml).unwrap_err();
        assert_eq!(errors.problems[0].path, format!("{section}.bridge_call_result"), "{errors}");
    }
}
