//! The table and the notes below it.

use super::*;
use crate::cli::page::Paper;

const TEXT: &str = r#"{"version":"1.2.3","uptimeSeconds":61,"upstream":{"baseUrl":"https://m.test",
    "workspace":"acme","reachable":false,"lastError":"refused","tokenError":null},
    "runs":{"driven":2,"asleep":0},"approvals":{"waiting":2},"operator":false,
    "tls":null,"runtimes":[{"name":"claude","kind":"claude-environment","state":"ready","since":"","lastError":null,"openCalls":1,"refusedAnswers":0,"gap":null}],
    "config":{"loadedAt":"","lastError":null},
    "problems":[{"subject":"config","message":"line 3","cure":"Mend it."},
    {"subject":"hr","message":"is not\nthere","cure":"Start it."}],"backends":[
    {"name":"fs","kind":"mcp","state":"ready","required":false,"transport":"stdio","protocolVersion":"2025-11-25",
     "tools":7,"stale":false,"lastRefresh":"2026-01-01T00:00:00.000Z","lastError":null,
     "callsInFlight":3,"pin":{"mode":"off","changed":0,"withdrawn":0},
     "breaker":{"state":"closed","retryAt":null}},
    {"name":"hr","kind":"a2a","state":"down","required":false,"transport":"jsonrpc","protocolVersion":null,
     "tools":1,"stale":true,"lastRefresh":null,"lastError":"is not\nthere","callsInFlight":0,
     "pin":{"mode":"off","changed":0,"withdrawn":0},
     "breaker":{"state":"open","retryAt":"2026-01-01T00:01:35.000Z"}}]}"#;

#[test]
fn status_shows_backends_runs_and_problems() {
    let now = humantime::parse_rfc3339("2026-01-01T00:01:15Z").unwrap();
    let status: Status = parse(TEXT).unwrap_or_else(|error| panic!("{error:?}"));
    let call = |ms: u64, at: &str, outcome: &str| {
        serde_json::json!({"backend": "fs", "ms": ms, "startedAt": at, "state": "answered",
            "outcome": outcome})
    };
    let calls = [
        call(9000, "2025-12-31T23:00:00Z", "error"),
        call(10, "2026-01-01T00:00:01Z", "result"),
        call(30, "2026-01-01T00:01:00Z", "error"),
    ];
    let recent = Recent::read(&serde_json::json!({ "calls": calls }).to_string(), now);
    let text = page(&status, &recent, now).text(Paper { colours: false, columns: None });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "mantyx-bridge 1.2.3, up 1m 1s",
            "upstream https://m.test (not reachable), workspace acme",
            "2 runs driven",
            "2 calls wait for a person: mantyx-bridge approvals",
            "runtime claude (claude-environment): ready, open calls: 1",
            "last upstream error: refused",
            "",
            "BACKEND  STATE         TOOLS  IN FLIGHT  CALLS/H  ERRORS  P95    REFRESHED   SPEAKS",
            "fs       ready         7      3          2        1       30 ms  1m 15s ago  mcp 2025-11-25, stdio",
            "hr       down (stale)  1      0          0        0       -      never       a2a, jsonrpc",
            "",
            "config: line 3",
            "cure: Mend it.",
            "",
            "hr: is not there",
            "cure: Start it.",
        ]
    );
}

#[test]
fn state_that_is_not_usual_says_for_how_long() {
    let now = humantime::parse_rfc3339("2026-01-01T00:01:15Z").unwrap();
    let since = r#""state":"connecting","since":"2026-01-01T00:01:03.000Z","required""#;
    let text = TEXT.replacen(r#""state":"down","required""#, since, 1);
    let usual = r#""state":"ready","since":"2026-01-01T00:01:03.000Z","remark":{"message":"It is loud.","cure":"Let it."},"required""#;
    let text = text.replacen(r#""state":"ready","required""#, usual, 1);
    let status: Status = parse(&text).unwrap_or_else(|error| panic!("{error:?}"));
    let text = page(&status, &BTreeMap::new(), now).text(Paper { colours: false, columns: None });
    assert!(text.contains("hr       connecting for 12s (stale)  1"), "{text}");
    assert!(text.contains("fs       ready                       7"), "{text}");
    assert!(text.contains("\nfs: It is loud.\nLet it.\n"), "{text}");
}
