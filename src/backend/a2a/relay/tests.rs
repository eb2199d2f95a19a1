//! How requests of clients look to the agent, and what its replies are read as.

use serde_json::Value;

use super::*;

fn endpoint(binding: A2aBinding, generation: Generation) -> Endpoint {
    Endpoint {
        url: "http://agent.test/a2a".parse().expect("an address"),
        binding,
        generation,
        version: "1.0".to_owned(),
        tenant: Some("t".to_owned()),
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

#[test]
fn request_of_each_wire_is_that_of_its_client() {
    let task = || "a/b".to_owned();
    struct Case {
        operation: RelayOperation,
        methods: [&'static str; 2],
        path: &'static str,
    }
    let message = r#"{"message":{"messageId":"m","n":1.0}}"#;
    for Case { operation, methods, path } in [
        Case {
            operation: RelayOperation::Send(raw(message)),
            methods: ["message/send", "SendMessage"],
            path: "message:send",
        },
        Case {
            operation: RelayOperation::Stream(raw(message)),
            methods: ["message/stream", "SendStreamingMessage"],
            path: "message:stream",
        },
        Case {
            operation: RelayOperation::GetTask { task: task(), history_length: Some(3) },
            methods: ["tasks/get", "GetTask"],
            path: "tasks/a%2Fb?historyLength=3",
        },
        Case {
            operation: RelayOperation::CancelTask { task: task(), metadata: Some(raw("{}")) },
            methods: ["tasks/cancel", "CancelTask"],
            path: "tasks/a%2Fb:cancel",
        },
        Case {
            operation: RelayOperation::Subscribe { task: task() },
            methods: ["tasks/resubscribe", "SubscribeToTask"],
            path: "tasks/a%2Fb:subscribe",
        },
    ] {
        let encode = |binding, generation| encode(&endpoint(binding, generation), &operation, "7");
        for (generation, method) in [Generation::V03, Generation::V10].into_iter().zip(methods) {
            let request = encode(A2aBinding::JsonRpc, generation);
            let text = request.body.expect("a body");
            let body: Value = serde_json::from_slice(&text).expect("JSON");
            assert_eq!(body["method"], method);
            let tenant = (generation == Generation::V10).then_some("t");
            assert_eq!(body["params"]["tenant"].as_str(), tenant, "{body}");
            if body["params"]["message"].is_object() {
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(text.contains(r#"{"messageId":"m","n":1.0}"#), "{text}");
            }
        }
        for (generation, prefix) in [(Generation::V03, "v1"), (Generation::V10, "t")] {
            let request = encode(A2aBinding::HttpJson, generation);
            assert_eq!(request.url.as_str(), format!("http://agent.test/a2a/{prefix}/{path}"));
        }
    }
}

#[test]
fn error_of_the_agent_is_told_from_one_before_it() {
    let read = |binding, status: u16, body: &str| {
        own_error(binding, StatusCode::from_u16(status).expect("a status"), body.as_bytes())
            .map(|error| (error.json.get().to_owned(), error.is_refusal))
    };
    let (rpc, rest) = (A2aBinding::JsonRpc, A2aBinding::HttpJson);
    let error = |text: &str, is_refusal| Some((text.to_owned(), is_refusal));
    let not_found = r#"{"code":-32001,"message":"no","data":[1.0]}"#;
    let reply = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{not_found}}}"#);
    assert_eq!(read(rpc, 200, &reply), error(not_found, true));
    assert_eq!(read(rpc, 500, &reply), error(not_found, true));
    let internal = r#"{"code":-32603,"message":"no"}"#;
    assert_eq!(read(rpc, 200, &format!(r#"{{"error":{internal}}}"#)), error(internal, false));
    assert_eq!(read(rpc, 200, r#"{"result":{},"error":null}"#), None);
    let body = r#"{"message":"no"}"#;
    for (status, is_refusal) in [(404, true), (400, true), (503, true), (500, false)] {
        assert_eq!(read(rest, status, body), error(body, is_refusal), "{status}");
    }
    for (binding, status) in [(rest, 401), (rest, 403), (rest, 200), (rest, 302), (rpc, 401)] {
        assert_eq!(read(binding, status, &reply), None, "{status}");
    }
    assert_eq!(read(rest, 502, "<html>"), None);
}

#[test]
fn result_says_what_it_is_about() {
    for (text, task, context, is_settled) in [
        (
            r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#,
            Some("t"),
            Some("c"),
            false,
        ),
        (
            r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}"#,
            Some("t"),
            Some("c"),
            true,
        ),
        (r#"{"kind":"message","contextId":"c","parts":[]}"#, None, Some("c"), true),
        (
            r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}"#,
            Some("t"),
            Some("c"),
            true,
        ),
        (r#"{"artifactUpdate":{"taskId":"t","artifact":{}}}"#, Some("t"), None, false),
        (r#"{"x":1}"#, None, None, false),
    ] {
        let AgentEvent::Result(result) = agent_event(raw(text)) else { panic!("{text}") };
        assert_eq!(result.task.as_deref(), task, "{text}");
        assert_eq!(result.context.as_deref(), context, "{text}");
        assert_eq!(result.is_settled, is_settled, "{text}");
        assert_eq!(result.json.get(), text);
    }
}
