//! Tasks against a scripted server, over lines in memory and with the clock stopped.

use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use tokio::time::sleep;

use super::*;
use crate::backend::fake::{request, tool_call};
use crate::backend::mcp::Era;
use crate::backend::mcp::handshake::Proposal;
use crate::backend::mcp::stdio::linked;
use crate::backend::peer::{NotRecorded, Peer as _, Recorder};
use crate::model::answer::codes::OUTCOME_UNKNOWN;
use crate::model::catalog::Identity;

/// What the server says to one request.
enum Reply {
    /// This JSON text as the result.
    Result(String),
    Error(i32, &'static str),
    Silence,
    /// Ends the connection.
    HangUp,
}

/// A server, the connection to it, and what it saw when.
struct Fake {
    connection: Connection,
    seen: Arc<Mutex<Vec<(Instant, Value)>>>,
    /// Sends the client a line.
    say: mpsc::Sender<String>,
    _server: JoinSet<()>,
}

/// What the handshake and the list say, beside the era.
#[derive(Clone, Copy)]
struct Offer {
    /// The capability `tasks` of 2025-11-25.
    takes_tasks: bool,
    /// The tool's `taskSupport`.
    support: &'static str,
}

const OFFERED: Offer = Offer { takes_tasks: true, support: "required" };

fn old(status: &str, more: &str) -> Reply {
    let task =
        format!(r#""taskId":"t-1","status":"{status}","ttl":null,"pollInterval":2000{more}"#);
    Reply::Result(format!("{{{task}}}"))
}

fn old_created() -> Reply {
    let Reply::Result(task) = old("working", "") else { unreachable!("it is a result") };
    Reply::Result(format!(r#"{{"task":{task}}}"#))
}

fn new(kind: &str, status: &str, more: &str) -> Reply {
    Reply::Result(format!(
        r#"{{"resultType":"{kind}","taskId":"t-1","status":"{status}","ttlMs":null,"pollIntervalMs":2000{more}}}"#
    ))
}

const CONTENT: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

impl Fake {
    /// `answer` says what comes back for the method and how often it has come, from 1.
    async fn start(
        era: Era,
        offer: Offer,
        answer: impl Fn(&str, usize) -> Reply + Send + 'static,
    ) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let (say, said) = mpsc::channel(8);
        let mut server = JoinSet::new();
        server.spawn(serve(theirs, offer, Arc::clone(&seen), said, answer));

        let link = linked("fake", ours);
        let agreement = match era {
            Era::Modern => link.discover().await,
            Era::Legacy | Era::Oldest => link.initialize(&Proposal::newest()).await,
        };
        let connection = Connection::new(link, agreement.unwrap().info, None, None);
        connection.resolve().await.unwrap();
        Self { connection, seen, say, _server: server }
    }

    fn seen(&self, method: &str) -> Vec<(Instant, Value)> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(_, message)| message["method"] == method).cloned().collect()
    }

    fn count(&self, method: &str) -> usize {
        self.seen(method).len()
    }

    async fn wait_for(&self, method: &str) -> Value {
        for _ in 0..1000 {
            if let Some((_, message)) = self.seen(method).pop() {
                return message;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("the server should see {method}")
    }

    async fn call(&self) -> Result<Answer, CallError> {
        self.connection.call(order().0).await.map(|outcome| outcome.answer)
    }

    async fn resume(&self, handle: &str) -> Result<Answer, CallError> {
        let resumed = self.connection.resume(Handle(handle.to_owned()), order().0).await;
        resumed.map(|outcome| outcome.answer)
    }
}

async fn serve(
    stream: tokio::io::DuplexStream,
    offer: Offer,
    seen: Arc<Mutex<Vec<(Instant, Value)>>>,
    mut said: mpsc::Receiver<String>,
    answer: impl Fn(&str, usize) -> Reply + Send,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line.unwrap(),
            Some(text) = said.recv() => {
                writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
                continue;
            }
        };
        let Some(line) = line else { return };
        let message: Value = serde_json::from_str(&line).unwrap();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let count = {
            let mut seen = seen.lock().unwrap();
            seen.push((Instant::now(), message.clone()));
            seen.iter().filter(|(_, message)| message["method"] == *method).count()
        };
        let id = &message["id"];
        if id.is_null() {
            continue;
        }
        let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        let tasks = if offer.takes_tasks { tasks } else { Value::Null };
        let reply = match method.as_str() {
            "initialize" => Reply::Result(
                json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "tasks": tasks},
                    "serverInfo": {"name": "fake", "version": "1"},
                })
                .to_string(),
            ),
            "server/discover" => Reply::Result(
                json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
                    "cacheScope": "private", "capabilities": {"tools": {}},
                })
                .to_string(),
            ),
            "tools/list" => Reply::Result(
                json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [{
                    "name": "t",
                    "inputSchema": {"type": "object"},
                    "execution": {"taskSupport": offer.support},
                }]})
                .to_string(),
            ),
            _ => answer(&method, count),
        };
        let text = match reply {
            Reply::Result(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            Reply::Error(code, message) => {
                let error = json!({"code": code, "message": message});
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
            }
            Reply::Silence => continue,
            Reply::HangUp => return,
        };
        writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }
}

/// Remembers what was named.
#[derive(Debug, Default)]
struct Names(Mutex<Vec<String>>);

impl Recorder for Names {
    fn dispatching(
        &self,
        _: Option<&Identity>,
    ) -> futures_util::future::BoxFuture<'_, Result<(), NotRecorded>> {
        panic!("whoever calls a peer tells of that before")
    }

    fn named(&self, handle: &Handle) {
        self.0.lock().unwrap().push(handle.0.clone());
    }
}

impl Names {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn order() -> (ToolCall, Arc<Names>) {
    let names = Arc::<Names>::default();
    let call = tool_call(request("t", r#"{"n":1e2}"#));
    (ToolCall { recorder: Arc::clone(&names) as _, ..call }, names)
}

fn done() -> Answer {
    Answer::text("done")
}

/// Answers as a server of `era` does that works for two questions and is then `end`ed.
fn usual(era: Era, end: impl Fn() -> Reply + Send + 'static) -> impl Fn(&str, usize) -> Reply {
    move |method, count| match (method, era) {
        ("tools/call", Era::Modern) => new("task", "working", ""),
        ("tools/call", _) => old_created(),
        ("tasks/get", Era::Modern) if count < 3 => new("complete", "working", ""),
        ("tasks/get", _) if count < 3 => old("working", ""),
        ("tasks/get", _) => end(),
        ("tasks/result", _) => Reply::Result(CONTENT.to_owned()),
        _ => Reply::Result("{}".to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_2025_is_asked_for_named_followed_and_fetched() {
    for support in ["required", "optional"] {
        let end = || old("completed", "");
        let fake =
            Fake::start(Era::Legacy, Offer { support, ..OFFERED }, usual(Era::Legacy, end)).await;
        let (call, names) = order();
        let progress = call.progress.clone();
        assert_eq!(fake.connection.call(call).await.unwrap().answer, done());
        let (start, call) = fake.seen("tools/call").remove(0);
        assert_eq!(call["params"]["task"], json!({"ttl": 3_600_000}));
        assert_eq!(call["params"]["arguments"]["n"], 100.0);
        assert_eq!(names.all(), [r#"{"mcpTask":"t-1"}"#]);
        let mut before = start;
        for (at, question) in fake.seen("tasks/get") {
            assert_eq!(question["params"]["taskId"], "t-1");
            let gap = (at - before).as_millis();
            assert!((2000..=2250).contains(&gap), "the server's interval and a little: {gap}");
            before = at;
        }
        assert_eq!(fake.seen("tasks/result")[0].1["params"]["taskId"], "t-1");
        assert_eq!((fake.count("tasks/get"), fake.count("tasks/result")), (3, 1));
        assert_eq!(fake.count("tasks/cancel"), 0);
        timeout(Duration::ZERO, progress.touched()).await.expect("it was seen to work");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_2026_is_the_server_s_own_idea_and_brings_its_result() {
    let end = || new("complete", "completed", &format!(r#","result":{CONTENT}"#));
    let offer = Offer { takes_tasks: true, support: "forbidden" };
    let fake = Fake::start(Era::Modern, offer, usual(Era::Modern, end)).await;
    let (call, names) = order();
    assert_eq!(fake.connection.call(call).await.unwrap().answer, done());
    assert_eq!(names.all(), [r#"{"mcpTask":"t-1"}"#]);
    assert_eq!((fake.count("tasks/get"), fake.count("tasks/result")), (3, 0));
    let extension = "/params/_meta/io.modelcontextprotocol~1clientCapabilities/extensions/io.modelcontextprotocol~1tasks";
    for method in ["tools/call", "tasks/get"] {
        let (_, message) = fake.seen(method).remove(0);
        assert_eq!(message.pointer(extension), Some(&json!({})), "{message}");
        assert!(message["params"].get("task").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_once_is_as_good() {
    for era in [Era::Legacy, Era::Modern] {
        let answer = |_: &str, _| Reply::Result(CONTENT.to_owned());
        let fake = Fake::start(era, OFFERED, answer).await;
        let (call, names) = order();
        assert_eq!(fake.connection.call(call).await.unwrap().answer, done());
        assert!(names.all().is_empty() && fake.count("tasks/get") == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_is_asked_for_where_none_is_offered() {
    for (takes_tasks, support) in [(false, "required"), (false, "optional"), (true, "forbidden")] {
        let answer = |_: &str, _| Reply::Error(-32601, "tasks only");
        let fake = Fake::start(Era::Legacy, Offer { takes_tasks, support }, answer).await;
        let CallError::Refused(why) = fake.call().await.unwrap_err() else { panic!("refused") };
        assert!(why.starts_with("tasks only (JSON-RPC error -32601)"), "{why}");
        assert!(fake.seen("tools/call")[0].1["params"].get("task").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_says_why() {
    let tool = r#"{"content":[{"type":"text","text":"no disk"}],"isError":true}"#;
    let message = r#","statusMessage":"it broke""#;
    let error = r#","error":{"code":-32000,"message":"limit"}"#;
    let both = format!("{message}{error}");
    let refused = |words: &str| Err(CallError::Refused(words.to_owned()));
    let answered = |words: &str| Ok(Answer::Error(words.to_owned()));
    let limit = "limit (JSON-RPC error -32000)";
    for (era, more, kept, expected) in [
        (Era::Legacy, "", Some(tool), answered("no disk")),
        (Era::Legacy, message, Some(tool), answered("no disk")),
        (Era::Legacy, message, None, refused("it broke")),
        (Era::Legacy, "", None, refused("nothing kept (JSON-RPC error -32603)")),
        (Era::Legacy, "", Some(CONTENT), answered("done")),
        (
            Era::Legacy,
            "",
            Some("{}"),
            answered("{}\n[out of form: this is no result of MCP, and is passed on as it came]"),
        ),
        (Era::Modern, error, None, refused(limit)),
        (Era::Modern, both.as_str(), None, refused(&format!("it broke: {limit}"))),
    ] {
        let (of_task, kept) = (more.to_owned(), kept.map(str::to_owned));
        let fake = Fake::start(era, OFFERED, move |method, count| match (method, &kept) {
            ("tasks/get", _) if era == Era::Modern => new("complete", "failed", &of_task),
            ("tasks/get", _) => old("failed", &of_task),
            ("tasks/result", Some(kept)) => Reply::Result(kept.clone()),
            ("tasks/result", None) => Reply::Error(-32603, "nothing kept"),
            _ => usual(era, || Reply::Silence)(method, count),
        })
        .await;
        let outcome = fake.call().await;
        assert_eq!(format!("{outcome:?}"), format!("{expected:?}"), "{era:?} {more}");
        assert_eq!(fake.count("tasks/cancel"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_server_cancels_is_an_error_with_its_words() {
    for (more, words) in [(r#","statusMessage":"Maintenance.""#, "Maintenance."), ("", "no reason")]
    {
        let fake = Fake::start(Era::Legacy, OFFERED, {
            usual(Era::Legacy, move || old("cancelled", more))
        })
        .await;
        let CallError::Refused(why) = fake.call().await.unwrap_err() else { panic!("refused") };
        assert!(why.starts_with(OUTCOME_UNKNOWN));
        assert!(why.contains("cancelled") && why.contains(words), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_wants_input_is_cancelled() {
    for era in [Era::Legacy, Era::Modern] {
        let more = r#","statusMessage":"Which one?""#;
        let end = move || match era {
            Era::Modern => new("complete", "input_required", more),
            _ => old("input_required", more),
        };
        let fake = Fake::start(era, OFFERED, usual(era, end)).await;
        let CallError::Refused(why) = fake.call().await.unwrap_err() else { panic!("refused") };
        assert!(why.starts_with(OUTCOME_UNKNOWN));
        assert!(why.contains("input") && why.contains("(Which one?)"), "{why}");
        assert_eq!(fake.wait_for("tasks/cancel").await["params"]["taskId"], "t-1");
        assert_eq!(fake.count("tasks/result"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_cancels_its_task_or_else_its_request() {
    for era in [Era::Legacy, Era::Modern] {
        let fake = Fake::start(era, OFFERED, usual(era, || Reply::Silence)).await;
        let waited = Duration::from_secs(3);
        assert!(timeout(waited, fake.call()).await.is_err(), "it still works");
        assert_eq!(fake.wait_for("tasks/cancel").await["params"]["taskId"], "t-1");
        assert_eq!(fake.count("notifications/cancelled"), 0);

        let fake = Fake::start(era, OFFERED, |_, _| Reply::Silence).await;
        assert!(timeout(waited, fake.call()).await.is_err(), "it is not even a task");
        let id = fake.seen("tools/call")[0].1["id"].clone();
        assert_eq!(fake.wait_for("notifications/cancelled").await["params"]["requestId"], id);
        assert_eq!(fake.count("tasks/cancel"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_after_its_cancellations() {
    let fake = Fake::start(Era::Legacy, OFFERED, usual(Era::Legacy, || Reply::Silence)).await;
    assert!(timeout(Duration::from_secs(3), fake.call()).await.is_err(), "it still works");
    fake.connection.close().await;
    fake.wait_for("tasks/cancel").await;

    // One that takes no answer from the server is not waited for.
    let fake = Fake::start(Era::Legacy, OFFERED, |method, count| match method {
        "tasks/cancel" => Reply::Silence,
        _ => usual(Era::Legacy, || Reply::Silence)(method, count),
    })
    .await;
    assert!(timeout(Duration::from_secs(3), fake.call()).await.is_err(), "it still works");
    let start = Instant::now();
    fake.connection.close().await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_task_is_taken_up_by_another_connection() {
    for era in [Era::Legacy, Era::Modern] {
        let end = move || match era {
            Era::Modern => new("complete", "completed", &format!(r#","result":{CONTENT}"#)),
            _ => old("completed", ""),
        };
        let fake = Fake::start(era, OFFERED, usual(era, end)).await;
        let start = Instant::now();
        assert_eq!(fake.resume(r#"{"mcpTask":"t-1"}"#).await.unwrap(), done());
        let (first, question) = fake.seen("tasks/get").remove(0);
        assert_eq!((first, &question["params"]["taskId"]), (start, &json!("t-1")), "at once");
        assert_eq!((fake.count("tools/call"), fake.count("tasks/get")), (0, 3));

        let fake = Fake::start(era, OFFERED, usual(era, || Reply::Silence)).await;
        let resumed = fake.resume(r#"{"mcpTask":"t-1"}"#);
        assert!(timeout(Duration::from_secs(3), resumed).await.is_err(), "it still works");
        assert_eq!(fake.wait_for("tasks/cancel").await["params"]["taskId"], "t-1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_unknown_is_lost_and_nothing_is_started() {
    for (code, words) in [(-32602, "Task not found"), (-32601, "no such method")] {
        for era in [Era::Legacy, Era::Modern] {
            let fake = Fake::start(era, OFFERED, move |_, _| Reply::Error(code, words)).await;
            let lost = fake.resume(r#"{"mcpTask":"t-1"}"#).await.unwrap_err();
            assert!(matches!(&lost, CallError::Lost(why) if why.contains(words)), "{lost:?}");
            for handle in ["", "{}", "t-1", r#"{"a2aTask":"t-1"}"#] {
                let lost = fake.resume(handle).await.unwrap_err();
                assert!(matches!(lost, CallError::Lost(_)), "{handle}: {lost:?}");
            }
            sleep(Duration::from_secs(60)).await;
            let seen = ["tasks/get", "tools/call", "tasks/cancel"].map(|one| fake.count(one));
            assert_eq!(seen, [1, 0, 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_in_trouble_is_asked_again() {
    let trouble = |tries: usize| {
        move |method: &str, count: usize| match method {
            "tasks/get" if count <= tries => Reply::Error(-32603, "no database"),
            "tasks/get" => old("completed", ""),
            _ => usual(Era::Legacy, || Reply::Silence)(method, count),
        }
    };
    let fake = Fake::start(Era::Legacy, OFFERED, trouble(50)).await;
    assert_eq!(fake.call().await.unwrap(), done());
    let fake = Fake::start(Era::Legacy, OFFERED, trouble(70)).await;
    let lost = fake.call().await.unwrap_err();
    assert!(matches!(&lost, CallError::Lost(why) if why.contains("no database")), "{lost:?}");
    // It may still be at work.
    fake.wait_for("tasks/cancel").await;
}

#[tokio::test(start_paused = true)]
async fn a_completed_task_without_its_result_is_no_refusal() {
    let fake = Fake::start(Era::Legacy, OFFERED, |method, count| match method {
        "tasks/result" => Reply::Error(-32602, "expired"),
        _ => usual(Era::Legacy, || old("completed", ""))(method, count),
    })
    .await;
    let error = fake.call().await.unwrap_err();
    assert!(matches!(&error, CallError::Unreadable(why) if why.contains("expired")), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_is_the_end_of_the_call() {
    let fake = Fake::start(Era::Legacy, OFFERED, usual(Era::Legacy, || Reply::HangUp)).await;
    let start = Instant::now();
    let lost = fake.call().await.unwrap_err();
    assert!(matches!(lost, CallError::Lost(_)), "{lost:?}");
    assert!(start.elapsed() < Duration::from_secs(7), "three questions, and no fourth");
    // Nothing of it was sent, but the task is there: it is lost, too.
    let lost = fake.resume(r#"{"mcpTask":"t-1"}"#).await.unwrap_err();
    assert!(matches!(lost, CallError::Lost(_)), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_task_is_heard() {
    let completed = || old("completed", "");
    let fake = Fake::start(Era::Legacy, OFFERED, move |method, count| match method {
        "tasks/get" => completed(),
        _ => usual(Era::Legacy, completed)(method, count),
    })
    .await;
    let (call, _names) = order();
    let progress = call.progress.clone();
    let events = async {
        let begun = fake.wait_for("tools/call").await;
        let tell = |text: Value| fake.say.try_send(text.to_string()).unwrap();
        let calm = async || timeout(Duration::from_millis(50), progress.touched()).await.is_err();
        assert!(calm().await);
        // The token of the request is good for as long as the task lives.
        let token = &begun["params"]["_meta"]["progressToken"];
        tell(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1}}));
        progress.touched().await;
        // Other words of the server are no progress.
        tell(json!({"jsonrpc": "2.0", "method": "notifications/tasks/status",
                    "params": {"taskId": "t-1", "status": "working", "x": 1}}));
        assert!(calm().await && fake.count("tasks/get") == 0, "it is not the first wait's end");
    };
    let (answer, ()) = tokio::join!(fake.connection.call(call), events);
    assert_eq!(answer.unwrap().answer, done());
}
