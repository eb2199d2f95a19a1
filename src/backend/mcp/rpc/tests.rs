//! What becomes of what a server sends, and what a server is sent.

use rmcp::model::ProtocolVersion;
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, ReadHalf, split};

use super::*;
use crate::backend::mcp::stdio::Pipe;
use crate::backend::{Progress, fake};

const ELICIT: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;

fn rpc_over(pipe: Pipe) -> Arc<Rpc> {
    let name = BackendName::parse("a").unwrap();
    let transport = Transport::Pipe(pipe);
    Rpc::new(name, transport, &LiveRedaction::default(), true, Arc::default())
}

/// A connection whose messages go nowhere.
fn unwired() -> Arc<Rpc> {
    rpc_over(Pipe::closed())
}

/// A connection after its handshake, and the lines that the server gets.
fn wired() -> (Arc<Rpc>, tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let rpc = rpc_over(Pipe::new(split(ours).1));
    rpc.establish(ServerInfo {
        protocol_version: ProtocolVersion::V_2025_11_25,
        capabilities: rmcp::model::ServerCapabilities::default(),
    });
    (rpc, BufReader::new(split(theirs).0).lines())
}

fn open(rpc: &Rpc, id: i64, method: &'static str, kind: Kind) -> Arc<OpenRequest> {
    let request = Arc::new(OpenRequest::new(id, method, kind));
    rpc.open(&request);
    request
}

fn open_call(rpc: &Rpc, id: i64) -> Arc<OpenRequest> {
    open(rpc, id, "tools/call", Kind::Call)
}

/// A connection on which call number 5 is waited for.
fn waiting() -> (Arc<Rpc>, Arc<OpenRequest>) {
    let rpc = unwired();
    let request = open_call(&rpc, 5);
    (rpc, request)
}

/// A connection on which no more responses may be read until the call's outcome is taken.
pub(in crate::backend::mcp) fn full() -> (Arc<Rpc>, Arc<OpenRequest>) {
    let (rpc, request) = waiting();
    let text = format!(r#"{{"id":5,"result":"{}"}}"#, "x".repeat(MAX_UNTAKEN));
    assert_eq!(rpc.incoming(&text), Incoming::Taken);
    (rpc, request)
}

fn is_ignored(incoming: &Incoming) -> bool {
    matches!(incoming, Incoming::Ignored(_))
}

/// Whether `changed` would end at once.
fn has_permit(rpc: &Rpc) -> bool {
    use futures_util::FutureExt as _;
    rpc.changed.notified().now_or_never().is_some()
}

#[test]
fn arguments_are_sent_as_they_are_but_on_one_line() {
    let call = fake::request("t", "{\"b\": 1e400,\r\n\"a\":123456789012345678901234567890}");
    let request = Arc::new(OpenRequest::new(5, "tools/call", Kind::Call));
    let message = Message::call(&request, &RequestMetaObject::new(), &call, Some(7), None);
    assert_eq!(
        String::from_utf8(message.text).unwrap(),
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"_meta":{},"name":"t","arguments":{"b": 1e400,  "a":123456789012345678901234567890},"task":{"ttl":7}}}"#
    );
}

#[tokio::test]
async fn reply_is_the_text_of_the_response() {
    let (rpc, mut lines) = wired();
    let request = Arc::new(rpc.reading("resources/read"));
    let message = Message::request(&request, Some(&rpc.meta(&request)), &[r#""uri":"x""#]);
    let server = async {
        let line = lines.next_line().await.unwrap().unwrap();
        let id = request.id;
        assert_eq!(
            line,
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/read","params":{{"_meta":{{"progressToken":{id}}},"uri":"x"}}}}"#
            )
        );
        assert_eq!(
            rpc.incoming(&format!(r#"{{"id":"{id}","result":{{"b" : 1e400}}}}"#)),
            Incoming::Taken
        );
    };
    let (reply, ()) = tokio::join!(rpc.ask(&request, message), server);
    assert_eq!(reply.unwrap().unwrap().get(), r#"{"b" : 1e400}"#);
    assert!(rpc.open.lock().is_empty());
}

#[tokio::test]
async fn end_of_the_connection_ends_each_open_request_by_whether_it_was_written() {
    let (rpc, mut lines) = wired();
    let written = Arc::new(rpc.reading("resources/read"));
    let message = Message::request(&written, None, &[]);
    let server = async {
        lines.next_line().await.unwrap().unwrap();
        rpc.end();
    };
    let (reply, ()) = tokio::join!(rpc.ask(&written, message), server);
    assert_eq!(reply.unwrap_err(), CallError::Lost(CLOSED.to_owned()));
    let unwritten = Arc::new(rpc.reading("resources/read"));
    let message = Message::request(&unwritten, None, &[]);
    let reply = rpc.ask(&unwritten, message).await;
    assert_eq!(reply.unwrap_err(), CallError::NotSent(CLOSED.to_owned()));
}

#[test]
fn results_are_kept_whatever_stands_in_them() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for result in ["{\"x\":1e400, \"a\":1,\"a\":2}", "[]", "null", &deep] {
        for id in ["5", "\"5\""] {
            let (rpc, request) = waiting();
            let text = format!(r#"{{"result":{result},"x":1e400,"id":{id}}}"#);
            assert_eq!(rpc.incoming(&text), Incoming::Taken);
            assert_eq!(request.take_outcome().unwrap().unwrap().unwrap().get(), result);
        }
    }
}

/// Both if the outcome is taken and if nothing wants it any more.
#[tokio::test]
async fn a_large_result_is_taken_before_more_are_read() {
    for is_taken in [true, false] {
        waiting().0.has_room().await;
        let (rpc, request) = full();
        let mut room = Box::pin(rpc.has_room());
        assert!(futures_util::poll!(&mut room).is_pending());
        if is_taken {
            request.take_outcome().unwrap().unwrap().unwrap();
            room.await;
        } else {
            drop(request);
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
        let (rpc, request) = waiting();
        rpc.incoming(&format!(r#"{{"id":5,"error":{error}}}"#));
        assert_eq!(request.take_outcome().unwrap().unwrap().unwrap_err().to_string(), words);
    }
}

#[test]
fn an_answer_counts_once_and_only_if_it_is_waited_for() {
    let (rpc, request) = waiting();
    assert!(is_ignored(&rpc.incoming(r#"{"id":6,"result":1}"#)));
    assert_eq!(rpc.incoming(r#"{"id":5,"result":1,"error":null}"#), Incoming::Taken);
    assert!(is_ignored(&rpc.incoming(r#"{"id":5,"result":2}"#)));
    assert_eq!(request.take_outcome().unwrap().unwrap().unwrap().get(), "1");
}

#[test]
fn a_cancelled_request_is_not_waited_for() {
    let (rpc, request) = waiting();
    rpc.forget(5);
    assert!(is_ignored(&rpc.incoming(r#"{"id":5,"result":1}"#)));
    assert!(request.take_outcome().is_none());
}

#[test]
fn an_error_without_an_id_goes_to_the_only_request() {
    let error = r#"{"id":null,"error":{"code":-32700,"message":"what?"}}"#;
    let (rpc, request) = waiting();
    rpc.incoming(error);
    assert!(request.take_outcome().unwrap().unwrap().is_err());
    let by_code = r#"{"error":{"code":1,"message":"what?"}}"#;
    let (rpc, request) = waiting();
    rpc.incoming(by_code);
    let refused = request.take_outcome().unwrap().unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "what? (JSON-RPC error 1)");
    // It may be about the one that was given up.
    let (rpc, request) = waiting();
    open_call(&rpc, 6);
    rpc.forget(6);
    rpc.incoming(by_code);
    let outcome = request.take_outcome().unwrap();
    assert!(matches!(outcome, Err(CallError::Unreadable(_))), "{outcome:?}");
    // It is no answer to it.
    for id in ["\"zzz\"", "[5]", "{}", "true", "5.5"] {
        let (rpc, request) = waiting();
        let foreign = format!(r#"{{"id":{id},"error":{{"code":-32700,"message":"what?"}}}}"#);
        assert!(is_ignored(&rpc.incoming(&foreign)), "{id}");
        assert!(request.take_outcome().is_none(), "{id}");
    }

    let (rpc, request) = waiting();
    open_call(&rpc, 6);
    assert!(is_ignored(&rpc.incoming(error)));
    assert!(request.take_outcome().is_none());
}

#[test]
fn text_that_is_no_message_is_garbage() {
    let (rpc, _request) = waiting();
    for text in ["", "hello", "[]", "{}", "{\"id\":5}", "7", "{\"id\":5,\"result\":}"] {
        assert_eq!(rpc.incoming(text), Incoming::Garbage, "{text}");
    }
}

#[tokio::test]
async fn a_notification_with_strange_parameters_is_still_understood() {
    let text =
        r#"{"method":"notifications/tools/list_changed","jsonrpc":"2.0","params":{"x":1e400}}"#;
    let rpc = unwired();
    rpc.incoming(text);
    assert!(!has_permit(&rpc), "its tools are read after the handshake");
    let (rpc, _lines) = wired();
    rpc.incoming(text);
    assert!(has_permit(&rpc));
}

#[tokio::test]
async fn a_request_with_strange_parameters_can_be_refused() {
    let (rpc, mut lines) = wired();
    for (method, response) in [
        ("ping", r#""result":{}"#),
        ("sampling/createMessage", r#""error":{"code":-32601,"message":"sampling/createMessage"}"#),
        ("elicitation/create", r#""result":{"action":"cancel"}"#),
    ] {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{{"x":1e400}}}}"#);
        assert_eq!(rpc.incoming(&text), Incoming::Taken);
        let line = lines.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":"a",{response}}}"#));
    }
}

#[test]
fn progress_touches_the_call_that_it_is_about() {
    use futures_util::FutureExt as _;

    let rpc = unwired();
    let calls = [40, 41].map(|id| {
        let progress = Progress::default();
        let call = OpenRequest::new(id, "tools/call", Kind::Call);
        rpc.open(&Arc::new(OpenRequest { progress: progress.clone(), ..call }));
        progress
    });
    let touched = |params: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress"{params}}}"#);
        assert!(is_ignored(&rpc.incoming(&text)), "{text}");
        calls.each_ref().map(|progress| progress.touched().now_or_never().is_some())
    };
    assert_eq!(touched(r#","params":{"progressToken":40,"progress":1e400}"#), [true, false]);
    assert_eq!(touched(r#","params":{"progressToken":"41"}"#), [false, true]);
    for nobody in ["", r#","params":[]"#, r#","params":{"progressToken":42}"#] {
        assert_eq!(touched(nobody), [false, false], "{nobody}");
    }
    rpc.forget(40);
    assert_eq!(touched(r#","params":{"progressToken":40}"#), [false, false]);
}

#[test]
fn a_question_is_for_the_only_request_that_the_server_can_work_on() {
    let rpc = unwired();
    let is_asked = || rpc.call_in_question().is_some();
    assert!(!is_asked(), "of no call");
    open_call(&rpc, 1);
    assert!(is_asked());
    open(&rpc, 3, "tools/list", Kind::List);
    assert!(is_asked(), "no user waits for a list");
    open(&rpc, 4, "prompts/get", Kind::Read);
    assert!(!is_asked(), "it may be of the prompt");
    rpc.incoming(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
    open_call(&rpc, 2);
    assert!(!is_asked(), "it may be of either");
    rpc.forget(1);
    assert!(!is_asked(), "the server may not know yet that the first was cancelled");
    rpc.incoming(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(is_asked());
}

#[tokio::test]
async fn questions_beyond_the_bound_are_cancelled_at_once_and_withdrawn_ones_not_answered() {
    let (rpc, mut lines) = wired();
    open_call(&rpc, 1);
    for number in 0..MAX_QUESTIONS {
        assert!(rpc.open_question(&RequestId::Number(number as i64)).is_some());
    }
    rpc.incoming(ELICIT);
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(line, r#"{"jsonrpc":"2.0","id":"q","result":{"action":"cancel"}}"#);
    rpc.incoming(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
    );
    assert!(!rpc.end_question(&RequestId::Number(7)), "the server has withdrawn it");
    assert!(rpc.end_question(&RequestId::Number(8)));
}

#[test]
fn a_handshake_is_kept_verbatim_and_made_readable() {
    let rpc = unwired();
    let info = r#"{"name":"n","x":1e400}"#;
    let result = format!(
        r#"{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{"listChanged":true}},"x":1e400}},"serverInfo":{info}}}"#
    );
    let result = RawValue::from_string(result).unwrap();
    let agreed = rpc.handshake.lock().initialized(&result).unwrap();
    assert_eq!(agreed.protocol_version.as_str(), "2025-06-18");
    assert!(agreed.tells_changes());
    assert_eq!(rpc.handshake.lock().server_info.as_ref().unwrap().get(), info);
}

#[test]
fn member_of_a_handshake_that_is_null_counts_as_left_out() {
    for capabilities in [
        "null",
        r#"{"tools":null,"resources":null,"prompts":null,"completions":null}"#,
        r#"{"tools":{"listChanged":null},"logging":null,"experimental":null}"#,
    ] {
        let rpc = unwired();
        let text = format!(
            r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":null,"instructions":null,"_meta":null}}"#
        );
        let result = RawValue::from_string(text).unwrap();
        let agreed = rpc.handshake.lock().initialized(&result).unwrap();
        assert!(!agreed.tells_changes() && agreed.capabilities.resources.is_none(), "{result}");
        assert!(rpc.handshake.lock().server_info.is_none(), "{result}");
    }
}

#[test]
fn an_answer_to_discover_that_is_none_is_no_handshake() {
    for answer in ["{}", r#"{"content":[]}"#, "null"] {
        let result = RawValue::from_string(answer.to_owned()).unwrap();
        let discovered = unwired().handshake.lock().discovered(&result);
        assert!(matches!(discovered, Err(NoHandshake::Form)), "{answer}");
    }
}

#[tokio::test]
async fn the_first_loss_is_the_one_that_is_told() {
    let rpc = unwired();
    assert_eq!(rpc.why_lost(), None);
    rpc.lose("first");
    rpc.lose("second");
    assert_eq!(rpc.lost().await, "first");
}
