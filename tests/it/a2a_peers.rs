//! The A2A backend against agents on the official Python SDK, in both generations and over both
//! bindings.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use mantyx_bridge::internals::{
    A2a, A2aBinding, A2aDialer, Answer, BackendName, CallError, CallingRun, CardSource, Catalog,
    Content, Conversations, Dial, Handle, Identity, NotRecorded, Peer, Recorder, ToolCall, body,
    new_client,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    time::timeout,
};
use url::Url;

use crate::{
    frames::Script,
    harness::Harness,
    mcp_tasks::{Names, tool_call},
    peers::{self, fetch},
    wait,
};

pub(crate) struct Agent {
    pub(crate) url: Url,
    lines: Lines<BufReader<ChildStdout>>,
    /// Killed when the test ends.
    _child: Child,
}

impl Agent {
    /// Whether it says within `patience` that a task was cancelled; what else it says is left out.
    pub(crate) async fn cancels(&mut self, patience: Duration) -> bool {
        self.says("CANCELLED ", patience).await
    }

    /// Whether it says within `patience` a line that begins with `start`.
    pub(crate) async fn says(&mut self, start: &str, patience: Duration) -> bool {
        let said =
            async { while !self.lines.next_line().await.unwrap().unwrap().starts_with(start) {} };
        timeout(patience, said).await.is_ok()
    }
}

/// Starts a script of tests/peers. What its agent throws is meant to be thrown, so that stderr is
/// not shown.
pub(crate) async fn start(interpreter: PathBuf, script: &str, arguments: &[&str]) -> Agent {
    let mut child = Command::new(interpreter)
        .arg(format!("{}/tests/peers/{script}", env!("CARGO_MANIFEST_DIR")))
        .stderr(Stdio::null())
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
    let url = ready.as_deref().and_then(|line| line.strip_prefix("READY ")).unwrap();
    Agent { url: Url::parse(url).unwrap(), lines, _child: child }
}

pub(crate) async fn dial(agent: &Agent, binding: Option<A2aBinding>) -> Arc<dyn Peer> {
    dial_url(&agent.url, binding).await
}

async fn dial_url(url: &Url, binding: Option<A2aBinding>) -> Arc<dyn Peer> {
    let config = config(url, binding);
    let name = BackendName::parse("hr").unwrap();
    A2aDialer::new(name, &config, new_client(), Conversations::default()).dial().await.unwrap()
}

/// A peer of which each message waits for its reply.
pub(crate) async fn dial_blocking(agent: &Agent) -> Arc<dyn Peer> {
    let config = A2a { blocking: true, ..config(&agent.url, None) };
    let name = BackendName::parse("hr").unwrap();
    A2aDialer::new(name, &config, new_client(), Conversations::default()).dial().await.unwrap()
}

fn config(url: &Url, binding: Option<A2aBinding>) -> A2a {
    A2a {
        binding,
        // gRPC has a port of its own.
        allow_hosts: vec!["127.0.0.1".to_owned()],
        ..A2a::new(CardSource::Base(url.clone().into()))
    }
}

pub(crate) async fn call(peer: &Arc<dyn Peer>, message: &str) -> Result<Answer, CallError> {
    peer.call(asking(message)).await.map(|outcome| outcome.answer)
}

/// The same, of a run.
async fn call_of(
    peer: &Arc<dyn Peer>,
    run: CallingRun,
    message: &str,
) -> Result<Answer, CallError> {
    let mut call = asking(message);
    let request = Arc::get_mut(&mut call.request).expect("nobody else has it");
    request.run = Some(run);
    request.tool_use = message.into();
    peer.call(call).await.map(|outcome| outcome.answer)
}

pub(crate) fn asking(message: &str) -> ToolCall {
    let arguments = json!({"message": message}).to_string();
    tool_call("", &arguments, Arc::<Names>::default())
}

pub(crate) async fn result(peer: &Arc<dyn Peer>, message: &str) -> String {
    match call(peer, message).await {
        Ok(Answer::Result { text, files }) if files.is_empty() => text,
        other => panic!("{message}: {other:?}"),
    }
}

/// Everything that an agent of tests/peers does, over one binding.
pub(crate) async fn check(agent: &mut Agent, binding: A2aBinding, version: &str, streaming: bool) {
    let peer = dial(agent, Some(binding)).await;
    assert_eq!(peer.about().protocol_version.as_deref(), Some(version));
    check_card(agent, &peer.resolve().await.unwrap()).await;
    // Only the word of the card tells pieces that were appended from parts of their own.
    let chunks = if streaming { "one two three" } else { "one \ntwo \nthree" };
    for (message, expected) in [
        ("msg hello \u{e9}\u{1f642}", "hello \u{e9}\u{1f642}"),
        ("task report", "report"),
        ("long 5", "worked 5"),
        ("early 10", "worked 10"),
        ("chunks", chunks),
    ] {
        assert_eq!(result(&peer, message).await, expected);
    }
    assert!(result(&peer, "input").await.starts_with("Which day?\n["));
    let failed = call(&peer, "fail").await.unwrap();
    assert_eq!(failed, Answer::Error("it went wrong".to_owned()));
    check_files(call(&peer, "file").await.unwrap());
    check_talk(&peer).await;
    check_cancel(agent, peer).await;
}

#[track_caller]
fn check_files(answer: Answer) {
    let Answer::Result { text: answer, files } = answer else { panic!("{answer:?}") };
    let (head, tail) = answer.split_once("\n[").unwrap();
    let (text, data) = head.split_once('\n').unwrap();
    assert_eq!(text, "see the report");
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["days"].as_f64(), Some(12.0), "{answer}");
    assert_eq!(
        tail,
        "file report.pdf application/pdf, 12,345 bytes: attached]\n\
         [file application/pdf: http://files.test/r.pdf]"
    );
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((file.filename(), file.mime_type()), ("report.pdf", "application/pdf"));
    // `x` 12,345 times, whatever the wire made of it.
    assert!(file.data() == "eHh4".repeat(4115), "{} bytes", file.data().len());
}

/// A run answers the agent's question in the task that waits for it, and another run does not.
async fn check_talk(peer: &Arc<dyn Peer>) {
    let talk = async |run: &str, session: Option<&str>, message: &str| {
        let session = session.map(Into::into);
        let run = CallingRun { workspace: "acme".into(), run: run.into(), session };
        match call_of(peer, run, message).await {
            Ok(Answer::Result { text, .. }) => text,
            other => panic!("{message}: {other:?}"),
        }
    };
    for session in [None, Some("s")] {
        let next = if session.is_some() { "r2" } else { "r1" };
        let asked = talk("r1", session, "input").await;
        assert!(asked.starts_with("Which day?\n["), "{asked}");
        assert_eq!(talk("r3", None, "msg Monday").await, "Monday");
        assert_eq!(talk(next, session, "Friday").await, "day: Friday");
        // That task has ended; the next message begins another in the same conversation.
        assert_eq!(talk(next, session, "task report").await, "report");
    }
}

/// The agent hears that nobody waits for its task any more.
async fn check_cancel(agent: &mut Agent, peer: Arc<dyn Peer>) {
    let dropped = timeout(Duration::from_millis(600), call(&peer, "early 100")).await;
    assert!(dropped.is_err());
    peer.close().await;
    assert!(agent.cancels(Duration::from_secs(5)).await);
}

/// The card is the agent's, byte for byte.
async fn check_card(agent: &Agent, catalog: &Catalog) {
    let url = agent.url.join(".well-known/agent-card.json").unwrap();
    let served = new_client().get(url).send().await.unwrap();
    let served = body(served, 1 << 20).await.unwrap();
    let Content::A2a { card, .. } = catalog.content() else { panic!("{catalog:?}") };
    assert_eq!(card.get().as_bytes(), served);
}

async fn check_v1(card: &str, version: &str, streaming: bool) {
    let mut arguments = vec!["--card", card];
    arguments.extend((!streaming).then_some("--no-streaming"));
    let mut agent = start(fetch::python(), "a2a_v1_agent.py", &arguments).await;
    check(&mut agent, A2aBinding::JsonRpc, version, streaming).await;
    check(&mut agent, A2aBinding::HttpJson, version, streaming).await;
}

#[tokio::test]
async fn an_agent_of_1_0() {
    check_v1("1.0", "1.0", true).await;
}

#[tokio::test]
async fn an_agent_of_1_0_that_does_not_stream() {
    check_v1("1.0", "1.0", false).await;
}

#[tokio::test]
async fn an_agent_of_1_0_that_serves_0_3() {
    check_v1("0.3", "0.3", true).await;
}

#[tokio::test]
async fn an_agent_of_1_0_that_serves_0_3_and_does_not_stream() {
    check_v1("0.3", "0.3", false).await;
}

#[tokio::test]
async fn an_agent_of_both_is_called_in_1_0() {
    check_v1("both", "1.0", true).await;
}

#[tokio::test]
async fn an_agent_of_0_3() {
    let mut agent = start(fetch::python_v03(), "a2a_v03_agent.py", &[]).await;
    check(&mut agent, A2aBinding::JsonRpc, "0.3.0", true).await;
    check(&mut agent, A2aBinding::HttpJson, "0.3.0", true).await;
}

#[tokio::test]
async fn an_agent_of_0_3_that_does_not_stream() {
    let arguments = ["--no-streaming"];
    let mut agent = start(fetch::python_v03(), "a2a_v03_agent.py", &arguments).await;
    check(&mut agent, A2aBinding::JsonRpc, "0.3.0", false).await;
    check(&mut agent, A2aBinding::HttpJson, "0.3.0", false).await;
}

#[tokio::test]
async fn an_unchanged_card_is_the_same_catalog() {
    let agent = start(fetch::python(), "a2a_v1_agent.py", &["--card", "1.0"]).await;
    let peer = dial(&agent, None).await;
    let first = peer.resolve().await.unwrap();
    assert!(Arc::ptr_eq(&first, &peer.resolve().await.unwrap()));
}

/// A peer whose card is the agent's own with a change, as an operator's file.
pub(crate) async fn dial_with(
    agent: &Agent,
    binding: A2aBinding,
    change: impl FnOnce(String) -> String,
) -> Arc<dyn Peer> {
    let url = agent.url.join(".well-known/agent-card.json").unwrap();
    let served = new_client().get(url).send().await.unwrap();
    let served = body(served, 1 << 20).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card.json");
    std::fs::write(&path, change(String::from_utf8(served.to_vec()).unwrap())).unwrap();
    let config = A2a { binding: Some(binding), ..A2a::new(CardSource::File(path)) };
    let name = BackendName::parse("hr").unwrap();
    A2aDialer::new(name, &config, new_client(), Conversations::default()).dial().await.unwrap()
}

#[tokio::test]
async fn a_card_that_promises_too_much_is_found_out() {
    for version in ["1.0", "0.3"] {
        let arguments = ["--card", version, "--no-streaming"];
        let agent = start(fetch::python(), "a2a_v1_agent.py", &arguments).await;
        let streaming = |card: String| {
            let mut card: serde_json::Value = serde_json::from_str(&card).unwrap();
            card["capabilities"]["streaming"] = true.into();
            card.to_string()
        };
        let peer = dial_with(&agent, A2aBinding::JsonRpc, streaming).await;
        assert_eq!(result(&peer, "task report").await, "report", "{version}");
        assert_eq!(result(&peer, "long 3").await, "worked 3", "{version}");
    }
}

#[tokio::test]
async fn an_agent_that_asks_back_keeps_its_context() {
    let agent = peers::a2a_v1("1.0").await;
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url())).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let script = Script::new().a2a("tu_ask", "hr", "input").answered("tu_ask").until("the other");
    rig.run(script.a2a("tu_reply", "hr", "Friday").answered("tu_reply").done()).await;
    let asked = rig.mantyx.answer("tu_ask").await["result"].to_string();
    assert!(asked.contains("Which day?"), "{asked}");
    // Another run's message is no answer to the question of the first.
    rig.run(Script::new().a2a("tu_other", "hr", "task Monday").answered("tu_other").done()).await;
    assert_eq!(rig.mantyx.answer("tu_other").await["result"], "Monday");
    rig.mantyx.release("the other");
    assert_eq!(rig.mantyx.answer("tu_reply").await["result"], "day: Friday", "the task goes on");
}

/// Tells a test what a task is called.
#[derive(Debug)]
struct Notes(mpsc::Sender<Handle>);

impl Recorder for Notes {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(async { Ok(()) })
    }

    fn named(&self, handle: &Handle) {
        // The first one is enough.
        drop(self.0.try_send(handle.clone()));
    }
}

/// Sends `message` to the agent at `url` from a bridge that crashes as soon as the task has a name:
/// its connections break, and nobody cancels anything.
async fn crash(url: Url, binding: A2aBinding, message: &'static str) -> Handle {
    let (named, mut handles) = mpsc::channel(1);
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let peer = dial_url(&url, Some(binding)).await;
            let call = ToolCall { recorder: Arc::new(Notes(named)), ..asking(message) };
            tokio::select! {
                answer = peer.call(call) => panic!("{answer:?}"),
                handle = handles.recv() => handle.unwrap(),
            }
            // Here the call is dropped, and the runtime never gets to send the cancellation.
        })
    });
    tokio::task::spawn_blocking(|| life.join().unwrap()).await.unwrap()
}

/// What a fresh bridge makes of a task that another one has begun at `agent`.
pub(crate) async fn check_resume(mut agent: Agent, bindings: &[A2aBinding], what: &str) {
    for &binding in bindings {
        let what = format!("{what} over {binding:?}");
        let handle = crash(agent.url.clone(), binding, "early 10").await;
        let peer = dial(&agent, Some(binding)).await;
        // Twice: while it works, and when it has ended.
        for _ in 0..2 {
            let answer = peer.resume(handle.clone(), asking("")).await;
            assert_eq!(answer.unwrap().answer, Answer::text("worked 10"), "{what}");
        }
        let handle = crash(agent.url.clone(), binding, "early 100").await;
        let resumed = peer.resume(handle, asking(""));
        assert!(timeout(Duration::from_secs(1), resumed).await.is_err(), "{what}");
        peer.close().await;
        assert!(agent.cancels(Duration::from_secs(5)).await, "{what}");
    }
}

#[tokio::test]
async fn a_task_outlives_the_bridge() {
    let v1 = |card| (fetch::python(), "a2a_v1_agent.py", vec!["--card", card]);
    let v03 = (fetch::python_v03(), "a2a_v03_agent.py", Vec::new());
    let agents = [v1("1.0"), v1("0.3"), v03].into_iter().flat_map(|(python, script, arguments)| {
        [None, Some("--no-streaming")].map(|without| {
            let arguments: Vec<&str> = arguments.iter().copied().chain(without).collect();
            (python.clone(), script, arguments)
        })
    });
    let checks = agents.map(async |(python, script, arguments)| {
        let agent = start(python, script, &arguments).await;
        let bindings = [A2aBinding::JsonRpc, A2aBinding::HttpJson];
        check_resume(agent, &bindings, &format!("{script} {arguments:?}")).await;
    });
    join_all(checks).await;
}

#[tokio::test]
async fn task_that_died_with_its_agent_is_asked_for_longer_than_a_restart_takes() {
    for mut agent in [peers::a2a_v1("1.0").await, peers::a2a_v03().await] {
        let url = Url::parse(agent.url()).unwrap();
        let handle = crash(url.clone(), A2aBinding::JsonRpc, "early 100").await;
        agent.kill9();
        agent.restart().await;
        let peer = dial_url(&url, None).await;
        // The agent says that there is no such task, and another replica might have it.
        let resumed = timeout(Duration::from_secs(2), peer.resume(handle, asking(""))).await;
        assert!(resumed.is_err(), "{resumed:?}");
    }
}

#[tokio::test]
async fn a_task_that_is_seen_at_work_outlives_the_timeout() {
    let (v1, v03) = (peers::a2a_v1("1.0").await, peers::a2a_v03().await);
    let backends = format!(
        "a2a:\n  new: {{url: \"{}\", call_timeout: 2s}}\n  old: {{url: \"{}\", call_timeout: 2s}}\n",
        v1.url(),
        v03.url()
    );
    let rig = Harness::bare(&backends).await;
    let calls = |script: Script, agent: &'static str| {
        let call = |verb: &str| format!("tu_{agent}_{verb}");
        let script =
            script.a2a(&call("steps"), agent, "steps 30").a2a(&call("long"), agent, "long 60");
        script.answered(&call("steps")).answered(&call("long"))
    };
    for agent in ["new", "old"] {
        rig.bridge.wait_backend(agent, "ready").await;
    }
    rig.run(calls(calls(Script::new(), "new"), "old").done()).await;
    for agent in ["new", "old"] {
        let steps = rig.mantyx.answer(&format!("tu_{agent}_steps")).await;
        assert_eq!(steps["result"], "worked 30", "{agent}");
        let long = rig.mantyx.answer(&format!("tu_{agent}_long")).await;
        assert_eq!(long["result"], "worked 60", "{agent}");
    }
}

#[tokio::test]
async fn a_bridge_that_was_killed_picks_its_task_up_again() {
    for streaming in [None, Some("--no-streaming")] {
        let arguments: Vec<&str> = ["--card", "1.0"].into_iter().chain(streaming).collect();
        let mut agent = start(fetch::python(), "a2a_v1_agent.py", &arguments).await;
        let mut rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url)).await;
        rig.bridge.wait_backend("hr", "ready").await;
        rig.run(Script::new().a2a("tu_1", "hr", "early 40").answered("tu_1").done()).await;
        wait::soon("the call should be under way", async || {
            (rig.bridge.backend("hr").await["callsInFlight"] == 1).then_some(())
        })
        .await;
        picks_its_task_up_again(&mut rig, &mut agent).await;
    }
}

/// Kills the bridge in the middle of `tu_1`, a task of 40 steps, which it then ends once.
pub(crate) async fn picks_its_task_up_again(rig: &mut Harness, agent: &mut Agent) {
    wait::soon("the task should be noted down", async || {
        journal(rig).contains(r#"\"task\":"#).then_some(())
    })
    .await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "worked 40");
    assert_eq!(rig.mantyx.posts("tu_1").len(), 1);
    rig.bridge.stop().await;
    assert!(!agent.cancels(Duration::from_millis(50)).await, "nothing is cancelled");
}

/// What the bridge has written down of its calls.
pub(crate) fn journal(rig: &Harness) -> String {
    let mut text = String::new();
    let mut left = vec![rig.bridge.state("")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => left.push(entry.path()),
                false => text.push_str(&String::from_utf8_lossy(
                    &std::fs::read(entry.path()).unwrap_or_default(),
                )),
            }
        }
    }
    text
}

/// As a tool, and through the front: its streams, its failures, and its tasks.
#[tokio::test]
async fn agent_on_google_adk_is_called_as_a_tool_and_by_a_client_of_a2a() {
    let agent = start(fetch::python_adk(), "a2a_adk_agent.py", &[]).await;
    let peer = dial(&agent, None).await;
    assert_eq!(result(&peer, "hello").await, "you said: hello");
    assert_eq!(result(&peer, "long 5").await, "you said: long 5");
    let failed = call(&peer, "throw").await;
    assert!(
        matches!(&failed, Ok(Answer::Error(why)) if why.contains("the agent fails")),
        "{failed:?}"
    );
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url)).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let rpc = async |method: &str, params: serde_json::Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        rig.bridge.api("POST", "/a2a/hr", Some(&body.to_string())).await
    };
    let message = |id: &str, text: &str| json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}});
    let streamed = rpc("SendStreamingMessage", message("m1", "long 5")).await.text();
    assert!(streamed.contains("you said: long 5"), "{streamed}");
    assert!(streamed.contains("TASK_STATE_COMPLETED"), "{streamed}");
    let failed = rpc("SendStreamingMessage", message("m2", "throw")).await.text();
    assert!(failed.contains("TASK_STATE_FAILED") && failed.contains("the agent fails"), "{failed}");
    let listed = rpc("ListTasks", json!({})).await.expect(200);
    assert_eq!(listed["result"]["totalSize"], 2, "{listed}");
}
