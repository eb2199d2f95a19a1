//! The answers of real servers, gateways and tools.

use super::*;

/// The id of the request that is answered.
const OWN: i64 = 7;

struct Row {
    status: u16,
    body: &'static str,
    verdict: Verdict,
}

const fn lost(status: u16, body: &'static str) -> Row {
    Row { status, body, verdict: Verdict::Lost }
}

const fn doubtful(status: u16, body: &'static str) -> Row {
    Row { status, body, verdict: Verdict::Doubtful }
}

const fn holds(status: u16, body: &'static str) -> Row {
    Row { status, body, verdict: Verdict::Holds }
}

#[track_caller]
fn check(rows: &[Row]) {
    for row in rows {
        let status = StatusCode::from_u16(row.status).unwrap();
        assert_eq!(verdict(status, row.body, Some(OWN)), row.verdict, "{status} {}", row.body);
    }
}

#[test]
fn refusal_of_a_lost_session_is_recognized_in_any_form() {
    check(&[
        // 404 and 410, whatever they say.
        lost(404, ""),
        lost(404, "<html>Not Found</html>"),
        lost(
            404,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#,
        ),
        lost(
            404,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Not Found: Session has been terminated"}}"#,
        ),
        lost(410, "gone"),
        // Refusals whose text says so.
        lost(401, "Unauthorized: Session not found"),
        lost(401, r#"{"error":"Invalid session ID"}"#),
        lost(403, "Session expired"),
        lost(422, "Unexpected message, expect initialize request"),
        lost(400, "Invalid session ID"),
        lost(400, "Bad Request: Missing session ID"),
        lost(400, r#"{"detail":"Session 4f0c7a is unknown"}"#),
        lost(
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        lost(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#,
        ),
        lost(
            400,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"Session not found"}}"#,
        ),
        lost(400, r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"}}"#),
        lost(
            400,
            r#"{"jsonrpc":"2.0","id":"7","error":{"code":-32603,"message":"Mcp-Session-Id header is required"}}"#,
        ),
    ]);
}

#[test]
fn answer_about_a_session_is_lost_only_if_the_request_was_not_run() {
    check(&[
        // Answers whose code or id says that the request was not run.
        lost(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session expired"}}"#,
        ),
        lost(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":32600,"message":"Session terminated"}}"#,
        ),
        lost(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Unknown session: 12"}}"#,
        ),
        lost(
            200,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"session not found"}}"#,
        ),
        lost(
            200,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32603,"message":"No valid session"}}"#,
        ),
        lost(
            500,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Session does not exist"}}"#,
        ),
        // A tool may have said this.
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"Session expired, log in again"}}"#,
        ),
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":"7","error":{"code":-32000,"message":"browser session closed"}}"#,
        ),
        doubtful(
            500,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"session not found"}}"#,
        ),
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"session request timed out"}}"#,
        ),
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"session not found in table sessions"}}"#,
        ),
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"unknown session"}}"#,
        ),
        doubtful(
            400,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"`session` is required"}}"#,
        ),
        // Of another session that the tool uses: it may have done its work.
        doubtful(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Browser session not initialized"}}"#,
        ),
        doubtful(400, r#"{"error":"checkout session expired, payment captured"}"#),
        doubtful(409, "session expired"),
        doubtful(403, "the user session is invalid"),
        doubtful(
            422,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"payment session not found"}}"#,
        ),
        doubtful(200, r#"{"error":"session expired"}"#),
        doubtful(500, "Session not found"),
        doubtful(502, "session expired"),
    ]);
}

#[test]
fn answer_about_something_else_leaves_the_session() {
    check(&[
        holds(
            404,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found"}}"#,
        ),
        holds(
            404,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown tool: t"}}"#,
        ),
        holds(400, ""),
        holds(400, "<p>Your session has expired.</p>"),
        holds(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"}}"#,
        ),
        holds(
            400,
            r#"{"got":{"session":"x","note":"a text that is long enough to stand between both words of it"},"error":"invalid"}"#,
        ),
        holds(401, "Unauthorized"),
        holds(403, "invalid api key"),
        holds(408, "session timed out"),
        holds(429, "too many sessions: limit is required"),
        holds(500, "<p>Session not found</p>"),
        holds(200, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"boom"}}"#),
        holds(
            200,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Browser not initialized"}}"#,
        ),
        holds(
            200,
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"session expired"}]}}"#,
        ),
        holds(200, "<p>session expired</p>"),
    ]);
}

#[test]
fn text_with_wide_letters_is_cut_between_letters() {
    let wide = "é".repeat(100);
    assert_eq!(word_of(&format!("{wide}session{wide} invalid")), Word::Nothing);
    assert_eq!(word_of(&format!("{wide}: Session invalid {wide}")), Word::OfThisSession);
}
