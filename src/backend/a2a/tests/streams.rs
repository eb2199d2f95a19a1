//! Agents that stream: whole streams, streams that break, and what is asked for then.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::*;
use crate::backend::peer::{Handle, NotRecorded, Recorder};
use crate::fake_http::StreamEnd;
use crate::model::catalog::Identity;

/// Remembers the name of the task, and what the agent has said.
#[derive(Debug, Default)]
struct Notes {
    names: Mutex<Vec<String>>,
    texts: Mutex<Vec<String>>,
}

impl Recorder for Notes {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(async { Ok(()) })
    }

    fn named(&self, handle: &Handle) {
        self.names.lock().push(handle.0.clone());
    }

    fn progressed(&self, text: &str) {
        self.texts.lock().push(text.to_owned());
    }
}

type MakeReply = fn() -> Reply;
fn noted() -> (Arc<Notes>, ToolCall) {
    let notes = Arc::new(Notes::default());
    (Arc::clone(&notes), ToolCall { recorder: notes, ..hello() })
}

/// An agent whose card says that it streams.
async fn streamer(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Agent {
    let card = card().replace("\"big\"", r#""capabilities":{"streaming":true},"big""#);
    Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(card.clone()),
        _ => answer(seen),
    })
    .await
}

fn event(result: &serde_json::Value) -> String {
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": result});
    format!(": a comment\n\ndata: {response}\n\n")
}

fn begun() -> String {
    event(&json!({"task": {
        "id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_SUBMITTED"},
    }}))
}

fn says(text: &str) -> String {
    event(&json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {
        "state": "TASK_STATE_WORKING", "message": {"messageId": text, "parts": [{"text": text}]},
    }}}))
}

fn piece(text: &str, is_appended: bool) -> String {
    event(&json!({"artifactUpdate": {
        "taskId": "t1", "artifact": {"artifactId": "a", "parts": [{"text": text}]},
        "append": is_appended,
    }}))
}

fn status(state: &str) -> String {
    event(&json!({"statusUpdate": {"taskId": "t1", "status": {"state": state}}}))
}

/// A stream that tells all of a task.
fn whole() -> String {
    [
        begun(),
        says("looking"),
        piece("do", false),
        piece("ne", true),
        status("TASK_STATE_COMPLETED"),
    ]
    .concat()
}

fn stream(text: &str, end: StreamEnd) -> Reply {
    Reply::event_bytes(text.as_bytes(), end)
}

/// The methods that the agent was asked for, in their order.
fn methods(agent: &Agent) -> Vec<String> {
    agent.seen().iter().map(method).filter(|method| !method.is_empty()).collect()
}

fn working() -> Reply {
    result(&task("TASK_STATE_WORKING", ""))
}

fn completed() -> Reply {
    result(&task("TASK_STATE_COMPLETED", "done"))
}

#[tokio::test]
async fn whole_stream_is_the_answer_and_nothing_else_is_asked() {
    for end in [StreamEnd::Closed, StreamEnd::Open, StreamEnd::Broken] {
        let agent = streamer(move |_| stream(&whole(), end)).await;
        let (notes, call) = noted();
        let progress = call.progress.clone();
        let peer = dial(&agent).await;
        assert_eq!(peer.call(call).await.unwrap().answer, ok("done"), "{end:?}");
        peer.close().await;
        assert_eq!(methods(&agent), ["SendStreamingMessage"], "{end:?}");
        assert_eq!(*notes.names.lock(), [r#"{"task":"t1","context":"c1"}"#]);
        assert_eq!(*notes.texts.lock(), ["looking", "do", "ne", "completed"]);
        assert!(progress.touched().now_or_never().is_some());
    }
}

#[tokio::test]
async fn task_is_named_by_the_first_event_of_its_stream() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => stream(&begun(), StreamEnd::Open),
        "CancelTask" => result(&task("TASK_STATE_CANCELED", "")),
        _ => working(),
    })
    .await;
    let (notes, call) = noted();
    let peer = dial(&agent).await;
    let named = async {
        while notes.names.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = peer.call(call) => panic!("{answer:?}"),
        () = named => {}
    }
    // The call was dropped: its task is cancelled.
    peer.close().await;
    assert_eq!(count(&agent, "CancelTask"), 1);
}

#[tokio::test]
async fn stream_that_breaks_at_any_byte_is_neither_sent_again_nor_joined() {
    let text = whole();
    let first_event_ends = begun().len() - 1;
    let places = Arc::new(AtomicUsize::new(0));
    let place_of_agent = Arc::clone(&places);
    let agent = streamer(move |seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            let place = place_of_agent.load(Ordering::SeqCst);
            let text = whole();
            Reply::event_bytes(text.as_bytes().get(..place).unwrap(), StreamEnd::Broken)
        }
        "GetTask" => completed(),
        other => panic!("{other}"),
    })
    .await;
    let peer = dial(&agent).await;
    for place in 0..=text.len() {
        places.store(place, Ordering::SeqCst);
        let outcome = peer.call(hello()).await;
        if place <= first_event_ends {
            let error = outcome.unwrap_err();
            assert!(matches!(error, CallError::Lost(_)), "{place}: {error:?}");
        } else {
            assert_eq!(outcome.unwrap().answer, ok("done"), "{place}");
        }
    }
    assert_eq!(count(&agent, "SendStreamingMessage"), text.len() + 1);
}

#[tokio::test]
async fn broken_stream_is_opened_again_after_a_look_at_its_task() {
    let looks = AtomicUsize::new(0);
    let agent = streamer(move |seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            stream(&[begun(), piece("lost", false)].concat(), StreamEnd::Broken)
        }
        "SubscribeToTask" => {
            let rest = [piece("st", true), status("TASK_STATE_COMPLETED")].concat();
            stream(&rest, StreamEnd::Closed)
        }
        _ => match looks.fetch_add(1, Ordering::SeqCst) {
            0 => working(),
            _ => completed(),
        },
    })
    .await;
    let peer = dial(&agent).await;
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("done"));
    peer.close().await;
    let expected = ["SendStreamingMessage", "GetTask", "SubscribeToTask", "GetTask"];
    assert_eq!(methods(&agent), expected);
}

#[tokio::test]
async fn task_whose_stream_is_not_opened_again_is_polled() {
    for code in [-32001, -32004, -32601] {
        let looks = AtomicUsize::new(0);
        let agent = streamer(move |seen| match method(seen).as_str() {
            "SendStreamingMessage" => stream(&begun(), StreamEnd::Closed),
            "SubscribeToTask" => Reply::json(refusal(code)),
            _ => match looks.fetch_add(1, Ordering::SeqCst) {
                0..3 => working(),
                _ => completed(),
            },
        })
        .await;
        let peer = dial(&agent).await;
        assert_eq!(peer.call(hello()).await.unwrap().answer, ok("done"), "{code}");
        assert_eq!((count(&agent, "SubscribeToTask"), count(&agent, "GetTask")), (1, 4), "{code}");
    }
}

#[tokio::test]
async fn stream_that_tells_of_another_task_is_left() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            let other = whole().replace("\"t1\"", "\"t2\"");
            stream(&[begun(), other].concat(), StreamEnd::Open)
        }
        "GetTask" => {
            assert!(seen.body.contains("\"t1\""), "{}", seen.body);
            completed()
        }
        other => panic!("{other}"),
    })
    .await;
    let (notes, call) = noted();
    assert_eq!(dial(&agent).await.call(call).await.unwrap().answer, ok("done"));
    assert_eq!(*notes.names.lock(), [r#"{"task":"t1","context":"c1"}"#]);
}

#[tokio::test]
async fn doubtful_pieces_are_asked_for() {
    let twice = [piece("do", false), piece("ne", true), piece("ne", true)].concat();
    let unknown = [piece("do", false), event(&json!({"kind": "thought"}))].concat();
    for pieces in [twice, unknown] {
        let text = [begun(), pieces, status("TASK_STATE_COMPLETED")].concat();
        let agent = streamer(move |seen| match method(seen).as_str() {
            "SendStreamingMessage" => stream(&text, StreamEnd::Closed),
            "GetTask" => completed(),
            other => panic!("{other}"),
        })
        .await;
        assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("done"));
    }
}

#[tokio::test]
async fn old_question_at_the_begin_of_a_stream_is_no_reply() {
    let question = |text: &str| {
        event(&json!({"task": {"id": "t1", "contextId": "c1", "status": {
            "state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": text}]},
        }}}))
    };
    let [old, again] = ["Which day?", "Which month?"].map(question);
    let agent = streamer(move |seen| {
        if seen.body.contains("Monday") {
            let text = [&old, &piece("sent", false), &status("TASK_STATE_COMPLETED")];
            return stream(&text.map(String::as_str).concat(), StreamEnd::Closed);
        }
        // The agent may ask again in the same form.
        let text = if seen.body.contains("Sunday") { &again } else { &old };
        stream(text, StreamEnd::Closed)
    })
    .await;
    let peer = dial(&agent).await;
    for (message, expected) in
        [("hello", "Which day?\n["), ("Sunday", "Which month?\n["), ("Monday", "sent")]
    {
        let arguments = json!({"message": message}).to_string();
        let request = request_of("r", None, "", &arguments);
        let call = tool_call(CallRequest { tool_use: message.into(), ..request });
        let Answer::Result { text, .. } = peer.call(call).await.unwrap().answer else { panic!() };
        assert!(text.starts_with(expected), "{message}: {text}");
    }
}

#[tokio::test]
async fn error_in_the_middle_is_told_at_once_with_what_was_made() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            let error = format!("event: error\ndata: {}\n\n", refusal(-32603));
            stream(&[begun(), piece("letter 1", false), error].concat(), StreamEnd::Closed)
        }
        "GetTask" => working(),
        other => panic!("{other}"),
    })
    .await;
    let peer = dial(&agent).await;
    let Answer::Error(text) = peer.call(hello()).await.unwrap().answer else { panic!() };
    assert!(text.starts_with("A2A error -32603: no\n") && text.ends_with("letter 1"), "{text}");
    peer.close().await;
    assert_eq!(methods(&agent), ["SendStreamingMessage", "GetTask"]);
}

#[tokio::test]
async fn failed_task_without_a_reason_has_the_one_of_its_stream() {
    let mute = || result(&json!({"id": "t1", "status": {"state": "TASK_STATE_FAILED"}}));
    let spoken = || result(&task("TASK_STATE_FAILED", "letter 1"));
    let replies: [(MakeReply, &str); 2] =
        [(mute, "A2A error -32603: no"), (spoken, "A2A error -32603: no\nthe agent failed")];
    for (reply, expected) in replies {
        let agent = streamer(move |seen| match method(seen).as_str() {
            "SendStreamingMessage" => {
                let error = format!("data: {}\n\n", refusal(-32603));
                stream(&[begun(), error].concat(), StreamEnd::Closed)
            }
            _ => reply(),
        })
        .await;
        let answer = dial(&agent).await.call(hello()).await.unwrap().answer;
        let Answer::Error(text) = answer else { panic!("{answer:?}") };
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test]
async fn failure_under_an_id_of_its_own_is_told_at_once() {
    let failed = |context: &str| {
        event(&json!({"statusUpdate": {"taskId": "t9", "contextId": context, "status": {
            "state": "TASK_STATE_FAILED", "message": {"parts": [{"text": "it threw"}]},
        }}}))
    };
    for (context, expected) in [("c1", Answer::Error("it threw".to_owned())), ("c9", ok("done"))] {
        let text = [begun(), failed(context)].concat();
        let looks = AtomicUsize::new(0);
        let agent = streamer(move |seen| match method(seen).as_str() {
            "SendStreamingMessage" => stream(&text, StreamEnd::Closed),
            "SubscribeToTask" => Reply::json(refusal(-32004)),
            _ => match looks.fetch_add(1, Ordering::SeqCst) {
                0 => working(),
                _ => completed(),
            },
        })
        .await;
        assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, expected, "{context}");
    }
}

#[tokio::test]
async fn error_in_the_place_of_a_stream_is_a_refusal() {
    let agent = streamer(|_| stream(&format!("data: {}\n\n", refusal(-32603)), StreamEnd::Closed));
    let agent = agent.await;
    let error = dial(&agent).await.call(hello()).await.unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why == "A2A error -32603: no"), "{error}");
    assert_eq!(methods(&agent), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn agent_that_drops_its_work_without_a_word_is_found_out() {
    const CARD: &str =
        r#"{"name":"HR","url":"/rpc","protocolVersion":"0.3.0","capabilities":{"streaming":true}}"#;
    let agent = Agent::start(|seen| match method(seen).as_str() {
        "message/stream" => stream(&begun(), StreamEnd::Broken),
        // a2a-sdk 0.3 does this with a task whose executor has failed.
        "tasks/resubscribe" => stream("", StreamEnd::Open),
        "tasks/get" => working(),
        "tasks/cancel" => result(&task("TASK_STATE_CANCELED", "")),
        _ => Reply::json(CARD.to_owned()),
    })
    .await;
    let peer = dial(&agent).await;
    let start = tokio::time::Instant::now();
    let called = peer.call(hello());
    let error = hurried(|| count(&agent, "tasks/get") > 0, called).await.unwrap_err();
    assert!(error.to_string().contains("has shown no work since"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    peer.close().await;
    assert_eq!((count(&agent, "tasks/cancel"), count(&agent, "message/stream")), (1, 1));
}

#[tokio::test]
async fn stream_that_is_held_back_does_not_hide_the_end() {
    let looks = AtomicUsize::new(0);
    let agent = streamer(move |seen| match method(seen).as_str() {
        "SendStreamingMessage" => stream(&begun(), StreamEnd::Open),
        _ => match looks.fetch_add(1, Ordering::SeqCst) {
            0..30 => working(),
            _ => completed(),
        },
    })
    .await;
    let peer = dial(&agent).await;
    let call = hello();
    let progress = call.progress.clone();
    let called = hurried(|| count(&agent, "GetTask") > 0, peer.call(call));
    assert_eq!(called.await.unwrap().answer, ok("done"));
    assert!(progress.touched().now_or_never().is_some());
}

#[tokio::test]
async fn agent_that_does_not_stream_after_all_is_asked_otherwise_from_then_on() {
    let refusals: [MakeReply; 5] = [
        || Reply::json(refusal(-32601)),
        || Reply::json(refusal(-32004)),
        || Reply::status(405),
        || Reply::json("{\"detail\":\"Not Found\"}".to_owned()).but(404),
        || stream(&format!("data: {}\n\n", refusal(-32004)), StreamEnd::Closed),
    ];
    for refuse in refusals {
        let agent = streamer(move |seen| match method(seen).as_str() {
            "SendStreamingMessage" => refuse(),
            _ => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        })
        .await;
        let peer = dial(&agent).await;
        for _ in 0..2 {
            assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));
        }
        let expected = ["SendStreamingMessage", "SendMessage", "SendMessage"];
        assert_eq!(methods(&agent), expected);
    }
}

#[tokio::test]
async fn agent_that_only_waits_is_waited_for() {
    for code in [-32004, -32602] {
        let agent = json_rpc(move |seen| match seen.body.contains(r#""returnImmediately":true"#) {
            true => Reply::json(refusal(code)),
            false => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        })
        .await;
        let peer = dial(&agent).await;
        for _ in 0..2 {
            assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));
        }
        assert_eq!(count(&agent, "SendMessage"), 3, "{code}: it is known from then on");
        // What it refuses in both ways is refused.
        let agent = json_rpc(move |_| Reply::json(refusal(code))).await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error}");
        assert_eq!(count(&agent, "SendMessage"), 2);
    }
}

#[tokio::test]
async fn entry_that_says_blocking_has_neither_streams_nor_polls() {
    let agent = streamer(|seen| {
        assert!(seen.body.contains(r#""returnImmediately":false"#), "{}", seen.body);
        result(&json!({"task": task("TASK_STATE_COMPLETED", "done")}))
    })
    .await;
    let mut config = config(CardSource::Base(agent.url.clone().into()));
    config.blocking = true;
    let name = BackendName::parse("hr").unwrap();
    let dialer = A2aDialer::new(name, &config, http_client::new(), Conversations::default());
    let answer = dialer.dial().await.unwrap().call(hello()).await.unwrap().answer;
    assert_eq!(answer, ok("done"));
    assert_eq!(methods(&agent), ["SendMessage"]);
}

#[tokio::test]
async fn stream_in_reply_to_a_plain_message_is_read() {
    let message = event(&json!({"message": {"parts": [{"text": "hi"}]}}));
    for (text, expected) in [(message, "hi"), (whole(), "done")] {
        let agent = json_rpc(move |_| stream(&text, StreamEnd::Closed)).await;
        assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok(expected));
        assert_eq!(methods(&agent), ["SendMessage"]);
    }
}

#[tokio::test]
async fn last_event_may_lack_its_blank_line() {
    let text = whole();
    let agent = streamer(move |_| stream(text.trim_end(), StreamEnd::Closed)).await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("done"));
    assert_eq!(methods(&agent), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn whole_task_behind_its_last_status_is_read() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            let named = |result: serde_json::Value| event(&result);
            let text = [
                named(json!({"kind": "status-update", "task_id": "t1", "context_id": "c1",
                    "status": {"state": "working"}, "final": false})),
                named(
                    json!({"kind": "message", "message_id": "m", "task_id": "t1", "role": "agent",
                    "parts": [{"kind": "text", "text": "do"}]}),
                ),
                named(json!({"kind": "status-update", "task_id": "t1", "context_id": "c1",
                    "status": {"state": "completed"}, "final": true})),
                named(json!({"kind": "task", "id": "t1", "context_id": "c1",
                    "status": {"state": "completed"}, "history": [{"role": "agent",
                    "message_id": "m", "parts": [{"kind": "text", "text": "done"}]}]})),
            ];
            stream(&text.concat(), StreamEnd::Closed)
        }
        _ => Reply::status(400),
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("done"));
}

#[tokio::test]
async fn question_in_a_stream_comes_with_its_draft_and_waits_for_the_answer() {
    let agent = streamer(|seen| match seen.body.contains("Monday") {
        false => {
            let question = event(&json!({"statusUpdate": {"taskId": "t1", "status": {
                "state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "Send it?"}]},
            }}}));
            stream(&[begun(), piece("the draft", false), question].concat(), StreamEnd::Closed)
        }
        true => {
            let text = [piece("sent", false), status("TASK_STATE_COMPLETED")].concat();
            stream(&text, StreamEnd::Closed)
        }
    })
    .await;
    let peer = dial(&agent).await;
    let of_run = |message: &str| {
        let arguments = json!({"message": message}).to_string();
        let request = request_of("r", None, "", &arguments);
        tool_call(CallRequest { tool_use: message.into(), ..request })
    };
    let Answer::Result { text, .. } = peer.call(of_run("hello")).await.unwrap().answer else {
        panic!()
    };
    assert!(text.starts_with("the draft\nSend it?\n["), "{text}");
    assert_eq!(peer.call(of_run("Monday")).await.unwrap().answer, ok("sent"));
    let seen = agent.seen();
    assert!(seen.last().unwrap().body.contains(r#""taskId":"t1""#));
    assert_eq!(methods(&agent), ["SendStreamingMessage", "SendStreamingMessage"]);
}

#[tokio::test]
async fn event_beyond_the_limit_is_refused_and_its_task_cancelled() {
    let agent = streamer(|seen| match method(seen).as_str() {
        "SendStreamingMessage" => {
            let large = format!("data: {}", "x".repeat(link::MAX_REPLY + 1));
            stream(&[begun(), large].concat(), StreamEnd::Open)
        }
        _ => result(&task("TASK_STATE_CANCELED", "")),
    })
    .await;
    let peer = dial(&agent).await;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::NotRead(_)), "{error:?}");
    peer.close().await;
    assert_eq!(methods(&agent), ["SendStreamingMessage", "CancelTask"]);
}

#[tokio::test]
async fn answer_in_the_history_alone_is_asked_for() {
    let agent = json_rpc(|seen| match method(seen).as_str() {
        "GetTask" => {
            assert!(seen.body.contains(r#""historyLength":100"#), "{}", seen.body);
            result(&json!({"id": "t1", "status": {"state": "TASK_STATE_COMPLETED"}, "history": [
                {"role": "ROLE_USER", "parts": [{"text": "hello"}]},
                {"role": "ROLE_AGENT", "parts": [{"text": "hi"}]},
            ]}))
        }
        _ => result(&json!({"task": {"id": "t1", "status": {"state": "TASK_STATE_COMPLETED"}}})),
    })
    .await;
    assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("hi"));
}

#[tokio::test]
async fn request_has_the_types_that_the_card_and_the_server_want() {
    let card =
        card().replace("\"big\"", r#""defaultOutputModes":["text/plain","image/png"],"big""#);
    let agent = Agent::start(move |seen| match seen.path.as_str() {
        "/.well-known/agent-card.json" => Reply::json(card.clone()),
        _ if seen.header("content-type") != "application/a2a+json" => Reply::status(415),
        _ => {
            assert!(seen.body.contains(r#""acceptedOutputModes":["text/plain","image/png"]"#));
            assert!(seen.header("accept").contains("application/a2a+json"));
            assert_eq!(seen.header("accept-encoding"), "identity");
            result(&json!({"message": {"parts": [{"text": "hi"}]}}))
        }
    })
    .await;
    let peer = dial(&agent).await;
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));
    assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"));
    assert_eq!(methods(&agent).len(), 3, "it is known from then on");
}

#[tokio::test]
async fn reply_that_cannot_be_read_says_why() {
    let replies: [(MakeReply, &str); 3] = [
        (|| Reply::json("\u{1f}\u{8b}".to_owned()).with("content-encoding", "gzip"), "(gzip)"),
        (|| Reply::json("<p>".to_owned()).with("content-type", "text/html"), "type text/html"),
        (|| stream("", StreamEnd::Closed), "ended before its task did"),
    ];
    for (reply, expected) in replies {
        let agent = json_rpc(move |_| reply()).await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
