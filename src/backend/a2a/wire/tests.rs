//! What each of the four wires sends, and how its refusals read.

use serde_json::Value;

use super::*;
use crate::backend::CallError;

fn endpoint(generation: Generation, binding: A2aBinding, tenant: Option<&str>) -> Endpoint {
    Endpoint {
        url: Url::parse("https://hr.acme/a2a/").unwrap(),
        binding,
        generation,
        version: "1.0".to_owned(),
        tenant: tenant.map(str::to_owned),
    }
}

/// Method, URL and body, with the body's keys sorted.
fn sent(endpoint: &Endpoint, operation: Operation<'_>) -> (String, String) {
    let Request { method, url, body } = encode(endpoint, operation, "7");
    let body = body.map_or(Value::Null, |body| serde_json::from_slice(&body).unwrap());
    (format!("{method} {url}"), body.to_string())
}

const MESSAGE: Message<'_> = Message {
    text: "a \"b\"",
    id: "m1",
    context: None,
    task: None,
    output_modes: &[],
    trace: None,
};
const SEND: Operation<'_> = Operation::Send(MESSAGE, ReplyMode::WhenDone);
const NEXT: Operation<'_> =
    Operation::Send(Message { context: Some("c"), task: Some("t"), ..MESSAGE }, ReplyMode::AtOnce);

#[test]
fn json_rpc_1_0() {
    let endpoint = endpoint(Generation::V10, A2aBinding::JsonRpc, Some("t"));
    let (line, body) = sent(&endpoint, SEND);
    assert_eq!(line, "POST https://hr.acme/a2a/");
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"SendMessage","params":{"configuration":{"historyLength":0,"returnImmediately":false},"message":{"messageId":"m1","parts":[{"text":"a \"b\""}],"role":"ROLE_USER"},"tenant":"t"}}"#
    );
    let (_, body) = sent(&endpoint, Operation::GetTask("x"));
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"GetTask","params":{"historyLength":0,"id":"x","tenant":"t"}}"#
    );
    let (_, body) = sent(&endpoint, NEXT);
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"SendMessage","params":{"configuration":{"historyLength":0,"returnImmediately":true},"message":{"contextId":"c","messageId":"m1","parts":[{"text":"a \"b\""}],"role":"ROLE_USER","taskId":"t"},"tenant":"t"}}"#
    );
}

#[test]
fn json_rpc_0_3() {
    let endpoint = endpoint(Generation::V03, A2aBinding::JsonRpc, None);
    let (_, body) = sent(&endpoint, SEND);
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"message/send","params":{"configuration":{"blocking":true,"historyLength":1},"message":{"kind":"message","messageId":"m1","parts":[{"kind":"text","text":"a \"b\""}],"role":"user"}}}"#
    );
    let (_, body) = sent(&endpoint, Operation::GetTask("x"));
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"tasks/get","params":{"historyLength":1,"id":"x"}}"#
    );
    let (_, body) = sent(&endpoint, Operation::CancelTask("x"));
    assert_eq!(body, r#"{"id":"7","jsonrpc":"2.0","method":"tasks/cancel","params":{"id":"x"}}"#);
    let (_, body) = sent(&endpoint, NEXT);
    assert_eq!(
        body,
        r#"{"id":"7","jsonrpc":"2.0","method":"message/send","params":{"configuration":{"blocking":false,"historyLength":1},"message":{"contextId":"c","kind":"message","messageId":"m1","parts":[{"kind":"text","text":"a \"b\""}],"role":"user","taskId":"t"}}}"#
    );
}

#[test]
fn http_json_1_0() {
    let plain = endpoint(Generation::V10, A2aBinding::HttpJson, None);
    let (line, body) = sent(&plain, SEND);
    assert_eq!(line, "POST https://hr.acme/a2a/message:send");
    assert_eq!(
        body,
        r#"{"configuration":{"historyLength":0,"returnImmediately":false},"message":{"messageId":"m1","parts":[{"text":"a \"b\""}],"role":"ROLE_USER"}}"#
    );
    let tenant = endpoint(Generation::V10, A2aBinding::HttpJson, Some("t"));
    let (line, _) = sent(&tenant, Operation::GetTask("a/b?c"));
    assert_eq!(line, "GET https://hr.acme/a2a/t/tasks/a%2Fb%3Fc?historyLength=0");
    let (line, _) = sent(&plain, Operation::CancelTask("x"));
    assert_eq!(line, "POST https://hr.acme/a2a/tasks/x:cancel");
    let (line, body) = sent(&plain, NEXT);
    assert_eq!(line, "POST https://hr.acme/a2a/message:send");
    assert!(body.contains(r#""contextId":"c""#) && body.contains(r#""taskId":"t""#), "{body}");
}

#[test]
fn http_json_0_3() {
    let endpoint = endpoint(Generation::V03, A2aBinding::HttpJson, None);
    let (line, body) = sent(&endpoint, SEND);
    assert_eq!(line, "POST https://hr.acme/a2a/v1/message:send");
    assert_eq!(
        body,
        r#"{"configuration":{"blocking":true,"historyLength":1},"message":{"content":[{"text":"a \"b\""}],"messageId":"m1","role":"ROLE_USER"}}"#
    );
    let (line, _) = sent(&endpoint, Operation::GetTask("x"));
    assert_eq!(line, "GET https://hr.acme/a2a/v1/tasks/x?historyLength=1");
    let (line, body) = sent(&endpoint, NEXT);
    assert_eq!(line, "POST https://hr.acme/a2a/v1/message:send");
    assert!(body.contains(r#""contextId":"c""#) && body.contains(r#""taskId":"t""#), "{body}");
}

#[test]
fn a_result_is_kept_as_it_came() {
    let body = br#"{"jsonrpc":"2.0","id":1,"result":{"n":1e400,"a":1.0},"error":null}"#;
    let result = decode(A2aBinding::JsonRpc, StatusCode::OK, body).unwrap();
    assert_eq!(result.get(), r#"{"n":1e400,"a":1.0}"#);
    let result = decode(A2aBinding::HttpJson, StatusCode::OK, br#"{"task":{}}"#).unwrap();
    assert_eq!(result.get(), r#"{"task":{}}"#);
}

#[track_caller]
fn refusal(binding: A2aBinding, status: u16, body: &str) -> (Option<i64>, String) {
    let status = StatusCode::from_u16(status).unwrap();
    match decode(binding, status, body.as_bytes()) {
        Err(A2aFailure::Refused { code, text, .. }) => (code, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals() {
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method\nnot found"}}"#;
    for status in [200, 400, 500] {
        assert_eq!(
            refusal(A2aBinding::JsonRpc, status, body),
            (Some(-32601), "A2A error -32601: Method not found".to_owned())
        );
    }
    assert_eq!(
        refusal(A2aBinding::HttpJson, 404, r#"{"error":{"code":404,"message":"no such task"}}"#),
        (Some(-32001), "HTTP 404 Not Found: no such task".to_owned())
    );
    assert_eq!(
        refusal(A2aBinding::HttpJson, 422, r#"{"message":"bad"}"#),
        (None, "HTTP 422 Unprocessable Entity: bad".to_owned())
    );
    assert_eq!(
        refusal(A2aBinding::JsonRpc, 401, "<html>secret</html>"),
        (None, "HTTP 401 Unauthorized".to_owned())
    );
    let long = format!(r#"{{"error":"{}"}}"#, "é".repeat(2000));
    assert!(refusal(A2aBinding::HttpJson, 400, &long).1.len() <= 1024 + "…".len());
}

#[test]
fn a_gateways_page_leaves_open_what_the_agent_did() {
    let failure = |binding, status: u16, body: &str| {
        decode(binding, StatusCode::from_u16(status).unwrap(), body.as_bytes()).unwrap_err()
    };
    for binding in [A2aBinding::JsonRpc, A2aBinding::HttpJson, A2aBinding::Grpc] {
        for status in [502, 504, 520, 524] {
            let lost = failure(binding, status, "<html>gateway</html>");
            assert!(
                matches!(lost, A2aFailure::Call(CallError::Lost(_))),
                "{binding:?} {status}: {lost:?}"
            );
        }
        // The agent has not got the request, or has refused it itself.
        for status in [401, 404, 408, 429, 500, 503] {
            assert_eq!(refusal(binding, status, "<html>page</html>").0, None, "{status}");
        }
    }
    // These errors of A2A are 502 in HTTP.
    let own = r#"{"error":{"message":"no","details":[{"reason":"INVALID_AGENT_RESPONSE"}]}}"#;
    assert_eq!(refusal(A2aBinding::HttpJson, 502, own).0, Some(-32006));
    let own = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32006,"message":"no"}}"#;
    assert_eq!(refusal(A2aBinding::JsonRpc, 502, own).0, Some(-32006));
}

#[test]
fn body_that_is_no_reply_is_unreadable() {
    for body in ["", "[]", "<html>", r#"{"jsonrpc":"2.0","id":1}"#] {
        let reply = decode(A2aBinding::JsonRpc, StatusCode::OK, body.as_bytes());
        assert!(matches!(reply, Err(A2aFailure::Call(CallError::Unclear { .. }))), "{body}");
    }
    let reply = decode(A2aBinding::HttpJson, StatusCode::OK, b"\xff");
    assert!(matches!(reply, Err(A2aFailure::Call(CallError::Unclear { .. }))));
}

#[test]
fn refusal_is_judged_by_its_status_and_reason() {
    let refused = |status: u16, reason: &str| {
        let body = format!(
            r#"{{"error":{{"code":{status},"message":"no","details":[{{"reason":"{reason}"}}]}}}}"#
        );
        let status = StatusCode::from_u16(status).unwrap();
        decode(A2aBinding::HttpJson, status, body.as_bytes()).unwrap_err()
    };
    assert!(refused(400, "TASK_NOT_CANCELABLE").has_code(error_code::TASK_NOT_CANCELABLE));
    for (status, thread) in [(400, true), (404, true), (422, true), (401, false), (500, false)] {
        assert_eq!(refused(status, "").may_reject_context(), thread, "{status}");
    }
}
