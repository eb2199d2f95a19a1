//! What is a message, what is refused as none, and what goes to the agent.

use ::a2a::error_code;
use serde_json::{Value, json};

use super::*;

fn read(params: &Value) -> Result<SentMessage, FrontError> {
    SentMessage::read(&params.to_string(), Generation::V10)
}

#[test]
fn message_goes_out_as_it_was_written() {
    let params = r#"{"tenant":"x","message":{"x":1.0,"context_id":"c","messageId":"m","role":"ROLE_USER","parts":[{"text":"a"},{"data":{"n":1.0}},{"text":"b"}],"referenceTaskIds":["r"],"taskId":""},"configuration":{"returnImmediately":true,"task_push_notification_config":null},"metadata":{"k":1.0}}"#;
    let message = SentMessage::read(params, Generation::V10).expect("a message");
    assert_eq!(
        message.params.get(),
        r#"{"message":{"contextId":"c","messageId":"m","parts":[{"text":"a"},{"data":{"n":1.0}},{"text":"b"}],"referenceTaskIds":["r"],"taskId":"","x":1.0,"role":"ROLE_USER"},"configuration":{"returnImmediately":true},"metadata":{"k":1.0}}"#
    );
    assert_eq!((message.id.as_str(), message.context.as_deref()), ("m", Some("c")));
    assert_eq!(
        (message.task.as_deref(), message.references.as_slice()),
        (None, &["r".to_owned()][..])
    );
    assert_eq!(
        message.arguments.get(),
        r#"{"message":"a\n\nb","parts":[{"data":{"n":1.0}}],"taskId":"","contextId":"c","referenceTaskIds":["r"],"otherMembers":{"x":1.0},"metadata":[{"k":1.0}]}"#
    );
}

#[test]
fn message_with_text_alone_has_the_arguments_of_the_tool() {
    let parts = json!([{"kind": "text", "text": "hi"}]);
    let message = read(&json!({"message": {"messageId": "m", "parts": parts}})).expect("a message");
    assert_eq!(message.arguments.get(), r#"{"message":"hi"}"#);
    let content = json!({"message": {"messageId": "m", "content": [{"text": "hi"}]}});
    assert_eq!(read(&content).expect("a message").arguments.get(), r#"{"message":"hi"}"#);
}

#[test]
fn part_that_has_more_than_its_text_is_shown_whole() {
    for part in [
        json!({"kind": "data", "text": "innocent", "data": {"cmd": "pay"}}),
        json!({"kind": "data", "text": "innocent"}),
        json!({"text": "innocent", "file": {"uri": "http://a.test/"}}),
        json!({"text": "innocent", "metadata": {"cmd": "pay"}}),
        json!({"text": "innocent", "filename": "x"}),
    ] {
        let params = json!({"message": {"messageId": "m", "parts": [part]}});
        let message = read(&params).expect("a message");
        let arguments: Value = serde_json::from_str(message.arguments.get()).expect("JSON");
        assert_eq!(arguments, json!({"message": "innocent", "parts": [part]}));
    }
}

#[test]
fn digest_tells_messages_apart_and_not_their_configuration() {
    let digest = |params: Value| read(&params).expect("a message").digest;
    let message = json!({"messageId": "m", "parts": []});
    let first = digest(json!({"message": message}));
    assert_eq!(first, digest(json!({"message": message, "configuration": {"blocking": true}})));
    assert_ne!(first, digest(json!({"message": {"messageId": "m", "parts": [{"text": ""}]}})));
    let old = SentMessage::read(&json!({"message": message}).to_string(), Generation::V03);
    assert_ne!(first, old.expect("a message").digest);
}

#[test]
fn spelling_that_an_agent_might_read_is_refused() {
    let refused = |message: &str| {
        let params = format!(r#"{{"message":{{"messageId":"m",{message}}}}}"#);
        SentMessage::read(&params, Generation::V10).expect_err(message).code
    };
    for message in [
        r#""ContextId":"c""#,
        r#""contextid":"c""#,
        r#""context-id":"c""#,
        r#""contextId":"c","context_id":"d""#,
        r#""taskId":"c","taskId":"d""#,
        r#""task\u0049d":"c","taskId":"d""#,
        r#""taskId":7"#,
        r#""referenceTaskIds":"r""#,
        r#""parts":[{"text":"a","text":"b"}]"#,
        r#""parts":[{"text":"a","Text":"b"}]"#,
        r#""parts":[],"Parts":[]"#,
        r#""parts":"a""#,
        r#""parts":["a"]"#,
    ] {
        assert_eq!(refused(message), error_code::INVALID_PARAMS, "{message}");
    }
    for params in [
        json!({}),
        json!([]),
        json!({"message": {}}),
        json!({"message": {"messageId": ""}}),
        json!({"request": {"messageId": "m"}}),
        json!({"message": {"messageId": "m"}, "request": {"messageId": "n"}}),
        json!({"message": {"messageId": "x".repeat(2000)}}),
    ] {
        assert_eq!(
            read(&params).expect_err("refused").code,
            error_code::INVALID_PARAMS,
            "{params}"
        );
    }
}

#[test]
fn push_configuration_in_a_message_is_refused() {
    for key in [
        "pushNotificationConfig",
        "push_notification_config",
        "pushNotification",
        "taskPushNotificationConfig",
        "PushNotificationConfig",
    ] {
        let configuration = json!({ key: {"url": "http://x.test"} });
        let params = json!({"message": {"messageId": "m"}, "configuration": configuration});
        let code = read(&params).expect_err(key).code;
        assert_eq!(code, error_code::PUSH_NOTIFICATION_NOT_SUPPORTED, "{key}");
    }
    let params = json!({"message": {"messageId": "m"}, "pushNotificationConfig": {}});
    let code = read(&params).expect_err("refused").code;
    assert_eq!(code, error_code::PUSH_NOTIFICATION_NOT_SUPPORTED);
}

#[test]
fn request_of_json_rpc_is_told_from_what_is_none() {
    let request = RpcRequest::read(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":1}}"#);
    let request = request.expect("a request");
    assert_eq!((request.id, request.method.as_str(), request.params), ("\"a\"", "m", r#"{"b":1}"#));
    for (text, id, code) in [
        ("{", "null", error_code::PARSE_ERROR),
        ("[]", "null", error_code::INVALID_REQUEST),
        (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, "7", error_code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":7}"#, "7", error_code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null", error_code::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"n"}"#, "7", error_code::INVALID_REQUEST),
    ] {
        let bad = RpcRequest::read(text).expect_err(text);
        assert_eq!((bad.id.as_str(), bad.error.code), (id, code), "{text}");
    }
}

#[test]
fn parameters_about_a_task_are_read() {
    let params = TaskParams::read(r#"{"id":"t","history_length":3,"metadata":{"a":1.0}}"#);
    let params = params.expect("parameters");
    assert_eq!((params.id.as_str(), params.history_length), ("t", Some(3)));
    assert_eq!(params.metadata.expect("metadata").get(), r#"{"a":1.0}"#);
    for params in ["{}", r#"{"id":""}"#, r#"{"id":7}"#, r#"{"id":"a","Id":"b"}"#, "[]"] {
        TaskParams::read(params).expect_err(params);
    }
}
