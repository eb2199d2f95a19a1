//! The desk's answers and refusals, without a network.

use http::HeaderValue;
use serde_json::json;

use super::*;

fn respond_to(version: Option<&'static str>, request: &Value) -> Value {
    let mut headers = HeaderMap::new();
    if let Some(version) = version {
        headers.insert("a2a-version", HeaderValue::from_static(version));
    }
    serde_json::from_str(&respond(&headers, request.to_string().as_bytes())).unwrap()
}

fn send(text: &str) -> Value {
    let message =
        json!({"messageId": "1", "role": "ROLE_USER", "contextId": "c", "parts": [{"text": text}]});
    json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message}})
}

#[test]
fn a_question_is_answered_in_its_context() {
    let response = respond_to(Some("1.0"), &send("When does PTO reset?"));
    assert_eq!(response["id"], 7);
    let message = &response["result"]["message"];
    assert_eq!(message["role"], "ROLE_AGENT");
    assert_eq!(message["contextId"], "c");
    assert!(message["parts"][0]["text"].as_str().unwrap().starts_with("PTO resets on 1 January"));
}

#[test]
fn an_unknown_question_is_named() {
    assert!(answer("weather?").contains("\"weather?\""));
    assert!(answer(" ").contains("What can we do"));
}

#[track_caller]
fn check_error(version: Option<&'static str>, request: &Value, code: i32) {
    let response = respond_to(version, request);
    assert_eq!(response["error"]["code"], code, "{response}");
    assert!(response["result"].is_null());
}

#[test]
fn refusals_have_a2as_codes() {
    let call = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
    check_error(None, &send("x"), -32009);
    check_error(Some("0.3"), &send("x"), -32009);
    check_error(Some("1.0"), &call("GetTask", json!({"id": "t"})), -32601);
    check_error(Some("1.0"), &call("SendMessage", json!({"message": 1})), -32602);
    check_error(Some("1.0"), &call("message/send", json!({})), -32601);
    check_error(Some("1.0"), &json!({"id": 1}), -32600);
    let response: Value = serde_json::from_str(&respond(&HeaderMap::new(), b"{")).unwrap();
    assert_eq!(response["error"]["code"], a2a::error_code::PARSE_ERROR);
}
