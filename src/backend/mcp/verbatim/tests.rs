//! What passes by rmcp and what rmcp is given in its place.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientConfig, ClientJsonRpcMessage, ClientNotification, ClientRequest, CustomRequest,
    InitializeRequest, JsonRpcMessage, RequestMetaObject, ServerNotification, ServerRequest,
};

use super::*;
use crate::backend::{CallError, fake};

fn request(id: i64, request: impl Into<ClientRequest>) -> ClientJsonRpcMessage {
    JsonRpcMessage::request(request.into(), RequestId::Number(id))
}

fn call(arguments: &str) -> (CallToolRequest, Arc<RawRequest>) {
    let asked = Arc::new(fake::request("t", arguments));
    let raw_request = RawRequest::of_call(asked, Vec::new(), Progress::default(), None, None);
    let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
    call.extensions.insert(Marker(Arc::clone(&raw_request)));
    (call, raw_request)
}

/// A connection on which call number 5 is waited for.
fn waiting() -> (ConnectionState, Arc<RawRequest>) {
    let state = ConnectionState::default();
    let (call, raw_request) = call("{}");
    state.outgoing(&request(5, call)).unwrap();
    (state, raw_request)
}

/// A connection on which no more responses may be read until the call's outcome is taken.
pub(in crate::backend::mcp) fn full() -> (ConnectionState, Arc<RawRequest>) {
    let (state, raw_request) = waiting();
    let text = format!(r#"{{"id":5,"result":"{}"}}"#, "x".repeat(MAX_UNTAKEN));
    message(state.incoming(&text));
    (state, raw_request)
}

#[track_caller]
fn message(incoming: Incoming) -> ServerJsonRpcMessage {
    match incoming {
        Incoming::Message(message) => *message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn arguments_are_sent_as_they_are_but_on_one_line() {
    let (call, _raw_request) = call("{\"b\": 1e400,\r\n\"a\":123456789012345678901234567890}");
    let text = ConnectionState::default().outgoing(&request(5, call)).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"_meta":{},"name":"t","arguments":{"b": 1e400,  "a":123456789012345678901234567890}}}"#
    );
}

#[tokio::test]
async fn a_call_past_rmcp_is_ended_by_its_response_alone() {
    let state = ConnectionState::default();
    let (_call, raw_request) = call("{\"a\":1}");
    let (id, line) = state.direct(RequestMetaObject::new(), "t", &raw_request).unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(line.ends_with("\"arguments\":{\"a\":1}}}\n"), "{line}");
    state.expect_direct(&id, &raw_request);
    let response = format!(r#"{{"id":{id},"result":{{"b" : 2}}}}"#);
    let incoming = state.incoming(&response);
    assert!(matches!(incoming, Incoming::Ignored(_)), "rmcp does not know the call: {incoming:?}");
    raw_request.ended().await;
    let result = raw_request.take_outcome().unwrap().unwrap().unwrap();
    assert_eq!(result.get(), r#"{"b" : 2}"#);
    let again = state.incoming(&response);
    assert!(matches!(again, Incoming::Ignored(_)), "a second response: {again:?}");
    assert!(raw_request.take_outcome().is_none());
}

#[test]
fn results_are_kept_whatever_stands_in_them() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for result in ["{\"x\":1e400, \"a\":1,\"a\":2}", "[]", "null", &deep] {
        for id in ["5", "\"5\""] {
            let (state, raw_request) = waiting();
            let text = format!(r#"{{"result":{result},"x":1e400,"id":{id}}}"#);
            let message = message(state.incoming(&text));
            let JsonRpcMessage::Response(response) = message else { panic!("{message:?}") };
            assert_eq!(response.id, RequestId::Number(5));
            assert_eq!(raw_request.take_outcome().unwrap().unwrap().unwrap().get(), result);
        }
    }
}

/// Both if the outcome is taken and if nothing wants it any more.
#[tokio::test]
async fn a_large_result_is_taken_before_more_are_read() {
    for is_taken in [true, false] {
        waiting().0.has_room().await;
        let (state, raw_request) = full();
        let mut room = Box::pin(state.has_room());
        assert!(futures_util::poll!(&mut room).is_pending());
        if is_taken {
            raw_request.take_outcome().unwrap().unwrap().unwrap();
            room.await;
        } else {
            drop(raw_request);
            room.await;
        }
    }
}

#[test]
fn errors_are_read_whatever_they_lack() {
    for (error, words) in [
        (r#"{"code":-5,"message":"no","data":1e400}"#, "no (JSON-RPC error -5)"),
        (r#"{"message":7}"#, "an error without a message (JSON-RPC error -32603)"),
        ("\"no\"", "an error without a message (JSON-RPC error -32603)"),
    ] {
        let (state, raw_request) = waiting();
        message(state.incoming(&format!(r#"{{"id":5,"error":{error}}}"#)));
        assert_eq!(raw_request.take_outcome().unwrap().unwrap().unwrap_err().to_string(), words);
    }
}

#[test]
fn an_answer_counts_once_and_only_if_it_is_waited_for() {
    let (state, raw_request) = waiting();
    assert!(matches!(state.incoming(r#"{"id":6,"result":1}"#), Incoming::Ignored(_)));
    message(state.incoming(r#"{"id":5,"result":1,"error":null}"#));
    assert!(matches!(state.incoming(r#"{"id":5,"result":2}"#), Incoming::Ignored(_)));
    assert_eq!(raw_request.take_outcome().unwrap().unwrap().unwrap().get(), "1");
}

#[test]
fn a_cancelled_request_is_not_waited_for() {
    let (state, raw_request) = waiting();
    let params = CancelledNotificationParam::new(Some(RequestId::Number(5)), None);
    let cancelled = CancelledNotification::new(params);
    let cancelled = ClientNotification::CancelledNotification(cancelled);
    state.outgoing(&JsonRpcMessage::notification(cancelled)).unwrap();
    assert!(matches!(state.incoming(r#"{"id":5,"result":1}"#), Incoming::Ignored(_)));
    assert!(raw_request.take_outcome().is_none());
}

#[test]
fn an_error_without_an_id_goes_to_the_only_request() {
    let error = r#"{"id":null,"error":{"code":-32700,"message":"what?"}}"#;
    let (state, raw_request) = waiting();
    message(state.incoming(error));
    assert!(raw_request.take_outcome().unwrap().unwrap().is_err());
    let by_code = r#"{"error":{"code":1,"message":"what?"}}"#;
    let (state, raw_request) = waiting();
    message(state.incoming(by_code));
    let refused = raw_request.take_outcome().unwrap().unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "what? (JSON-RPC error 1)");
    // It may be about the one that was given up.
    let (state, raw_request) = waiting();
    state.outgoing(&request(6, call("{}").0)).unwrap();
    state.forget(&RequestId::Number(6));
    message(state.incoming(by_code));
    let outcome = raw_request.take_outcome().unwrap();
    assert!(matches!(outcome, Err(CallError::Unreadable(_))), "{outcome:?}");
    // It is no answer to it.
    for id in ["\"zzz\"", "[5]", "{}", "true", "5.5"] {
        let (state, raw_request) = waiting();
        let foreign = format!(r#"{{"id":{id},"error":{{"code":-32700,"message":"what?"}}}}"#);
        assert!(matches!(state.incoming(&foreign), Incoming::Ignored(_)), "{id}");
        assert!(raw_request.take_outcome().is_none(), "{id}");
    }

    let (state, raw_request) = waiting();
    state.outgoing(&request(6, call("{}").0)).unwrap();
    assert!(matches!(state.incoming(error), Incoming::Ignored(_)));
    assert!(raw_request.take_outcome().is_none());
}

#[test]
fn text_that_is_no_message_is_garbage() {
    let (state, _raw_request) = waiting();
    for text in ["", "hello", "[]", "{}", "{\"id\":5}", "7", "{\"id\":5,\"result\":}"] {
        assert!(matches!(state.incoming(text), Incoming::Garbage), "{text}");
    }
}

#[test]
fn a_notification_with_strange_parameters_is_still_understood() {
    let state = ConnectionState::default();
    let text =
        r#"{"method":"notifications/tools/list_changed","jsonrpc":"2.0","params":{"x":1e400}}"#;
    let JsonRpcMessage::Notification(notification) = message(state.incoming(text)) else {
        panic!("a notification")
    };
    let notification = notification.notification;
    assert!(matches!(notification, ServerNotification::ToolListChangedNotification(_)));
}

#[test]
fn a_request_with_strange_parameters_can_be_refused() {
    let state = ConnectionState::default();
    let request = |method: &str| {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{{"x":1e400}}}}"#);
        let JsonRpcMessage::Request(request) = message(state.incoming(&text)) else {
            panic!("a request")
        };
        assert_eq!(request.id, RequestId::String("a".into()));
        request.request
    };
    assert!(matches!(request("sampling/createMessage"), ServerRequest::CustomRequest(_)));
    // Its parameters are kept aside.
    assert!(matches!(request("elicitation/create"), ServerRequest::ElicitRequest(_)));
}

#[test]
fn progress_touches_the_call_that_it_is_about() {
    use futures_util::FutureExt as _;
    use rmcp::model::NumberOrString;

    let state = ConnectionState::default();
    let calls = [(1, 40), (2, 41)].map(|(id, token)| {
        let progress = Progress::default();
        let asked = Arc::new(fake::request("t", "{}"));
        let raw_request = RawRequest::of_call(asked, Vec::new(), progress.clone(), None, None);
        let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
        call.extensions.insert(Marker(raw_request));
        let mut call = ClientRequest::from(call);
        call.get_meta_mut().set_progress_token(ProgressToken(NumberOrString::Number(token)));
        state.outgoing(&request(id, call)).unwrap();
        progress
    });
    let touched = |params: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress"{params}}}"#);
        assert!(matches!(state.incoming(&text), Incoming::Ignored(_)), "{text}");
        calls.each_ref().map(|progress| progress.touched().now_or_never().is_some())
    };
    assert_eq!(touched(r#","params":{"progressToken":40,"progress":1e400}"#), [true, false]);
    assert_eq!(touched(r#","params":{"progressToken":"41"}"#), [false, true]);
    for nobody in ["", r#","params":[]"#, r#","params":{"progressToken":42}"#] {
        assert_eq!(touched(nobody), [false, false], "{nobody}");
    }
    state.forget(&RequestId::Number(1));
    assert_eq!(touched(r#","params":{"progressToken":40}"#), [false, false]);
}

#[test]
fn a_question_is_for_the_only_request_that_the_server_can_work_on() {
    let state = ConnectionState::default();
    let begin = |id: i64| {
        let asked = Arc::new(fake::request("t", "{}"));
        let raw_request = RawRequest::of_call(asked, Vec::new(), Progress::default(), None, None);
        let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
        call.extensions.insert(Marker(raw_request));
        state.outgoing(&request(id, ClientRequest::from(call))).unwrap();
    };
    let is_asked = || {
        let text = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;
        state.incoming(text);
        state.take_question(&RequestId::String("q".into())).is_some()
    };
    assert!(!is_asked(), "of no call");
    begin(1);
    assert!(is_asked());
    let read = |id: i64, method: &str| {
        let mut list = CustomRequest::new(method, None);
        list.extensions.insert(Marker(RawRequest::reading(method)));
        state.outgoing(&request(id, ClientRequest::CustomRequest(list))).unwrap();
    };
    read(3, "tools/list");
    assert!(is_asked(), "no user waits for a list");
    read(4, "prompts/get");
    assert!(!is_asked(), "it may be of the prompt");
    state.incoming(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
    begin(2);
    assert!(!is_asked(), "it may be of either");
    state.forget(&RequestId::Number(1));
    assert!(!is_asked(), "the server may not know yet that the first was cancelled");
    state.incoming(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(is_asked());
    for number in 0..=MAX_QUESTIONS {
        let unread = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"elicitation/create","params":{{"x":1e400}}}}"#
        );
        state.incoming(&unread);
    }
    assert!(is_asked(), "questions that were not handed over have no end otherwise");
}

#[test]
fn a_handshake_is_kept_verbatim_and_made_readable() {
    let state = ConnectionState::default();
    let hello = || request(1, InitializeRequest::new(ClientConfig::default()));
    state.outgoing(&hello()).unwrap();
    let info = r#"{"name":"n","x":1e400}"#;
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{"listChanged":true}},"x":1e400}},"serverInfo":{info}}}}}"#
    );
    let JsonRpcMessage::Response(response) = message(state.incoming(&text)) else {
        panic!("a response")
    };
    let ServerResult::InitializeResult(result) = response.result else { panic!("a handshake") };
    assert_eq!(result.protocol_version.as_str(), "2025-06-18");
    assert_eq!(result.capabilities.tools.unwrap().list_changed, Some(true));
    assert_eq!(state.handshake.lock().server_info.as_ref().unwrap().get(), info);

    assert!(!has_permit(&state), "the first handshake is no change");
    state.handshake.lock().established = true;
    state.outgoing(&hello()).unwrap();
    message(state.incoming(&text));
    assert!(has_permit(&state), "a second one is");
}

#[test]
fn member_of_a_handshake_that_is_null_counts_as_left_out() {
    for capabilities in [
        "null",
        r#"{"tools":null,"resources":null,"prompts":null,"completions":null}"#,
        r#"{"tools":{"listChanged":null},"logging":null,"experimental":null}"#,
    ] {
        let state = ConnectionState::default();
        let hello = InitializeRequest::new(ClientConfig::default());
        state.outgoing(&request(1, hello)).unwrap();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":null,"instructions":null,"_meta":null}}}}"#
        );
        let JsonRpcMessage::Response(response) = message(state.incoming(&text)) else {
            panic!("a response to {text}")
        };
        let ServerResult::InitializeResult(result) = response.result else { panic!("{text}") };
        let tells = result.capabilities.tools.and_then(|tools| tools.list_changed);
        assert!(tells != Some(true) && result.capabilities.resources.is_none(), "{text}");
        assert!(state.handshake.lock().server_info.is_none(), "{text}");
    }
}

#[test]
fn an_answer_to_discover_that_is_none_is_an_error_for_rmcp() {
    for answer in [r#""result":{}"#, r#""result":{"content":[]}"#, r#""result":null"#] {
        let state = ConnectionState::default();
        let discover = rmcp::model::DiscoverRequest::new(rmcp::model::DiscoverRequestParams {});
        state.outgoing(&request(1, discover)).unwrap();
        let message = message(state.incoming(&format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#)));
        assert!(matches!(message, JsonRpcMessage::Error(_)), "{answer}: {message:?}");
    }
}

#[tokio::test]
async fn the_first_loss_is_the_one_that_is_told() {
    let state = ConnectionState::default();
    assert_eq!(state.why_lost(), None);
    state.lose("first");
    state.lose("second");
    assert_eq!(state.lost().await, "first");
}

/// Whether `changed` would end at once.
fn has_permit(state: &ConnectionState) -> bool {
    use futures_util::FutureExt as _;
    state.changed.notified().now_or_never().is_some()
}
