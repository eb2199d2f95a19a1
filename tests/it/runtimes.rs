//! Other runtimes: hsafa in v3 and v7, and Claude's self-hosted environments, against stand-ins
//! that were written from their documents, and beside their own clients.

mod kills;
mod oracles;
mod waiting;

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    effects::Effects,
    guides,
    http::Request,
    peers::{self, Peer},
    wait,
};

const KEY: &str = "runtime_credential_canary_81c2";

/// A bridge between a server whose effects stand in a ledger and the stand-ins.
struct Rig {
    bridge: Bridge,
    plain: Effects,
    runtimes: Peer,
}

/// The stream on which a wire's calls come.
fn stream(wire: &str) -> &str {
    match wire {
        "claude" => "s1",
        "v7" => "v7/intranet",
        v3 => v3,
    }
}

/// The entries of `runtimes` for one wire.
fn entry(url: &str, wire: &str) -> String {
    let keys = match wire {
        "v3" => "kind: hsafa, api: v3",
        "v7" => "kind: hsafa, api: v7, api_base: /api/v7, skill: intranet",
        _ => "kind: claude-environment, environment: env_1",
    };
    format!("runtimes:\n  other: {{{keys}, url: '{url}', credential: {KEY}, backends: [plain]}}\n")
}

async fn control(runtimes: &Peer, what: &str, body: &Value) -> Value {
    let to = runtimes.url().strip_prefix("http://").expect("an address").parse();
    let request = Request::new("POST", &format!("/_/{what}")).json(body.to_string());
    request.answer(to.expect("an address")).await.expect(200)
}

impl Rig {
    async fn start(wire: &str) -> Self {
        let plain = Effects::new();
        Self::serving(wire, &plain.server(), plain).await
    }

    /// With `server` in place of the one that writes into `plain`.
    async fn serving(wire: &str, server: &str, plain: Effects) -> Self {
        let runtimes = peers::runtimes().await;
        let config = format!(
            "upstream: {{sandbox: true}}\n{}mcp:\n  plain: {}\n",
            entry(runtimes.url(), wire),
            peers::with(server, "approve: []"),
        );
        let bridge = Bridge::ready(&config).await;
        bridge.wait_backend("plain", "ready").await;
        let rig = Self { bridge, plain, runtimes };
        rig.wait_state("ready").await;
        rig
    }

    async fn control(&self, what: &str, body: Value) -> Value {
        control(&self.runtimes, what, &body).await
    }

    /// Has the runtime ask for a call; returns how many listeners heard it.
    async fn ask(&self, wire: &str, id: &str, tool: &str, args: Value) -> Value {
        self.control("call", json!({ "wire": wire, "id": id, "tool": tool, "args": args })).await
    }

    async fn state(&self) -> Value {
        self.control("state", json!({})).await
    }

    async fn wait_state(&self, state: &str) -> Value {
        wait::soon(&format!("the runtime should be {state}"), async || {
            let status = self.bridge.status().await;
            let one = status["runtimes"][0].clone();
            (one["state"] == state).then_some(one)
        })
        .await
    }

    /// The POSTs of the answer to a call, once there is one.
    async fn posts(&self, id: &str) -> Vec<Value> {
        wait::soon(&format!("{id} should be answered"), async || {
            let state = self.state().await;
            let posts = state["posts"].as_array().expect("a list").clone();
            let posts: Vec<_> = posts.into_iter().filter(|post| post["call"] == id).collect();
            (!posts.is_empty()).then_some(posts)
        })
        .await
    }

    /// Waits until no call is open, so that no other POST will come.
    async fn settled(&self) {
        wait::soon("no call should be open", async || {
            let status = self.bridge.status().await;
            (status["runtimes"][0]["openCalls"] == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn hsafa_v3_is_answered_once() {
    let rig = Rig::start("v3").await;
    assert_eq!(rig.ask("v3", "c1", "plain_read", json!({})).await, 1);
    let posts = rig.posts("c1").await;
    assert_eq!((posts.len(), &posts[0]["status"]), (1, &json!(200)));
    assert_eq!(posts[0]["path"], "/api/runs/run_1/tool-results");
    let done = rig.plain.entries();
    assert_eq!(posts[0]["body"], json!({ "callId": "c1", "result": done[1].text }));
    // A call that is announced again is not made again.
    rig.ask("v3", "c1", "plain_read", json!({})).await;
    // Another listener has this tool.
    rig.ask("v3", "c2", "sql_query", json!({})).await;
    rig.ask("v3", "c3", "plain_read", json!("no object")).await;
    let refused = rig.posts("c3").await;
    let error = refused[0]["body"]["result"]["error"].as_str().expect("an error");
    assert!(error.starts_with("tool_input_invalid"), "{error}");
    rig.settled().await;
    let state = rig.state().await;
    assert_eq!(state["posts"].as_array().expect("a list").len(), 2);
    assert_eq!(rig.plain.entries().len(), 2);
}

#[tokio::test]
async fn odd_events_are_skipped_and_a_broken_stream_is_opened_again() {
    let mut rig = Rig::start("v3").await;
    for text in [
        "data: {\"type\":\"tool.call\"}\n\n",
        "data: no json\n\n",
        "data: {\"type\":\"run.started\"}\n\n",
        "event: x\n\n",
        "data: {\"type\":\"tool.call\",\"toolCallId\":\"c0\",\"toolName\":\"plain_read\",\"args\":{}}\n\n",
        "data: {\"type\":\"tool.call\",\"toolCal",
    ] {
        rig.control("raw", json!({ "wire": "v3", "text": text })).await;
    }
    rig.control("refuse", json!({ "path": "tools/stream", "status": 401 })).await;
    rig.control("close", json!({ "wire": "v3" })).await;
    let down = rig.wait_state("down").await;
    assert!(down["lastError"].as_str().is_some(), "{down}");
    let ready = rig.wait_state("ready").await;
    assert!(ready["gap"].as_str().is_some(), "{ready}");
    let status = rig.bridge.status().await;
    let problems = status["problems"].as_array().expect("a list");
    let gap = problems.iter().find(|problem| problem["subject"] == "other");
    assert!(gap.expect("a problem")["message"].as_str().expect("a text").contains("may be lost"));
    rig.ask("v3", "c1", "plain_read", json!({})).await;
    assert_eq!(rig.posts("c1").await[0]["status"], 200);
    rig.settled().await;
    rig.bridge.stop().await;
    assert!(rig.bridge.log().contains("an event cannot be read"), "{}", rig.bridge.log());
    assert!(!rig.bridge.log().contains(KEY));
}

#[tokio::test]
async fn an_answer_is_posted_until_it_is_taken_or_refused() {
    let rig = Rig::start("v3").await;
    for status in [500, 0, 429, 401] {
        rig.control("refuse", json!({ "path": "tool-results", "status": status })).await;
    }
    rig.ask("v3", "c1", "plain_additive", json!({})).await;
    assert_eq!(rig.posts("c1").await[0]["status"], 200);
    rig.control("refuse", json!({ "path": "tool-results", "status": 404 })).await;
    rig.ask("v3", "c2", "plain_additive", json!({})).await;
    rig.settled().await;
    wait::soon("the refusal should be counted", async || {
        let status = rig.bridge.status().await;
        (status["runtimes"][0]["refusedAnswers"] == 1).then_some(())
    })
    .await;
    assert_eq!((rig.plain.begun("c1"), rig.plain.begun("c2")), (1, 1));
}

#[tokio::test]
async fn answers_that_wait_take_the_credential_of_a_reload() {
    let mut rig = Rig::start("v3").await;
    let refusal = json!({ "path": "tool-results", "status": 401, "always": true });
    rig.control("refuse", refusal).await;
    rig.ask("v3", "c1", "plain_additive", json!({})).await;
    wait::soon("the answer should be refused", async || {
        (rig.state().await["refused"].as_u64() > Some(1)).then_some(())
    })
    .await;
    rig.control("forgive", json!({})).await;
    rig.control("key", json!({ "key": "another-key" })).await;
    rig.control("close", json!({ "wire": "v3" })).await;
    rig.wait_state("down").await;
    rig.bridge.change_config(KEY, "another-key");
    let ready = rig.wait_state("ready").await;
    assert!(ready["gap"].is_string(), "nothing is replayed: {ready}");
    assert_eq!(rig.posts("c1").await[0]["status"], 200);
    assert_eq!(rig.plain.begun("c1"), 1);
    // Without it, its calls are heard no more.
    rig.bridge.change_config("runtimes:", "#runtimes:");
    rig.bridge.change_config("  other:", "#  other:");
    wait::soon("the runtime should be gone", async || {
        let status = rig.bridge.status().await;
        (status["runtimes"].as_array().expect("a list").is_empty()).then_some(())
    })
    .await;
    wait::soon("its stream should be closed", async || {
        (rig.state().await["listeners"]["v3"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_that_goes_on_is_answered_at_once_and_fetched_later() {
    let mut rig = Rig::start("v7").await;
    let local = "local: {later: {command: [sleep, '0.2'], pending_after: 0s}}
mcp:";
    rig.bridge.change_config("mcp:", local);

    rig.bridge.change_config("backends: [plain]", "backends: [plain, later]");
    wait::soon("the tool should be registered", async || {
        rig.state().await["tools"]["intranet"][0].to_string().contains("\"later\"").then_some(())
    })
    .await;
    rig.ask("v7/intranet", "a1", "later", json!({})).await;
    let first = rig.posts("a1").await[0]["body"]["result"].clone();
    let first: Value =
        serde_json::from_str(first.as_str().unwrap_or_else(|| panic!("{first}"))).expect("JSON");
    assert_eq!(first["status"], "pending");
    let asked = json!({ "callId": first["callId"], "wait": 20 });
    rig.ask("v7/intranet", "a2", "bridge_call_result", asked).await;
    assert_eq!(rig.posts("a2").await[0]["body"], json!({ "result": "" }));
}

#[tokio::test]
async fn hsafa_v7_gets_the_tools_and_an_answer_to_each_action() {
    let rig = Rig::start("v7").await;
    let tools = rig.state().await["tools"]["intranet"][0].clone();
    let names: Vec<_> = tools.as_array().expect("a list").iter().map(|it| &it["name"]).collect();
    assert!(names.contains(&&json!("plain_additive")), "{names:?}");
    assert!(tools[0]["description"].is_string() && tools[0]["inputSchema"].is_object());
    rig.ask("v7/intranet", "a1", "plain_additive", json!({})).await;
    let post = rig.posts("a1").await.remove(0);
    assert_eq!(post["path"], "/api/v7/actions/a1/result");
    assert_eq!(post["body"], json!({ "result": rig.plain.entries()[1].text }));
    rig.ask("v7/intranet", "a2", "not_there", json!({})).await;
    let error = rig.posts("a2").await[0]["body"]["result"]["error"].clone();
    assert_eq!(error, "The bridge has no tool `not_there`.");
}

#[tokio::test]
async fn a_session_of_claude_is_served_and_left() {
    let rig = Rig::start("claude").await;
    rig.control("session", json!({ "id": "s1" })).await;
    for call in ["c1", "c2"] {
        rig.ask("s1", call, "plain_additive", json!({})).await;
    }
    // The agent has other owners of tools.
    rig.ask("s1", "c3", "browse", json!({})).await;
    for call in ["c1", "c2"] {
        let post = rig.posts(call).await.remove(0);
        let text = post["body"]["content"][0]["text"].as_str().expect("a text");
        assert_eq!((&post["status"], text.is_empty()), (&json!(200), false), "{post}");
        assert_eq!(rig.plain.begun(call), 1);
    }
    // The claim outlives its first term.
    wait::soon("several heartbeats should be there", async || {
        let state = rig.state().await;
        let requests = state["requests"].as_array().expect("a list");
        let beats = requests.iter().filter(|one| one.as_str().unwrap().ends_with("heartbeat"));
        (beats.count() >= 4).then_some(())
    })
    .await;
    assert_eq!(rig.state().await["work"]["work_s1"], "active");
    rig.control("event", json!({ "session": "s1", "event": { "type": "session.deleted" } })).await;
    wait::soon("the item should be stopped", async || {
        (rig.state().await["work"]["work_s1"] == "stopped").then_some(())
    })
    .await;
    let state = rig.state().await;
    assert!(state["posts"].as_array().expect("a list").iter().all(|post| post["call"] != "c3"));
}

/// An event that asks for a call, and one that ends its thread.
fn of_thread(id: &str, thread: &str) -> [Value; 2] {
    let call = json!({
        "type": "agent.custom_tool_use", "id": id, "name": "plain_additive", "input": {},
        "session_thread_id": thread, "processed_at": "2026-11-22T00:00:00Z",
    });
    let over = json!({
        "type": "session.thread_status_terminated", "id": format!("over_{thread}"),
        "session_thread_id": thread, "agent_name": "a", "processed_at": "2026-11-22T00:00:00Z",
    });
    [call, over]
}

#[tokio::test]
async fn calls_whose_result_claude_would_not_take_are_not_made() {
    let rig = Rig::start("claude").await;
    let [call, _] = of_thread("c1", "t1");
    let over = json!({ "type": "session.status_terminated", "id": "over" });
    rig.control("session", json!({ "id": "s0", "events": [call, over] })).await;
    // An archived session ends without an event.
    let [call, _] = of_thread("c2", "t1");
    rig.control("session", json!({ "id": "s-archived", "events": [call] })).await;
    wait::soon("both items should be stopped", async || {
        let work = rig.state().await["work"].clone();
        (work["work_s0"] == "stopped" && work["work_s-archived"] == "stopped").then_some(())
    })
    .await;
    // A thread of a session that goes on, in its history and then on its stream.
    let [[first, over], [second, over_too]] = [of_thread("c3", "t2"), of_thread("c4", "t3")];
    rig.control("session", json!({ "id": "s1", "events": [first, over] })).await;
    rig.hears("claude").await;
    for event in [over_too, second] {
        rig.control("event", json!({ "session": "s1", "event": event })).await;
    }
    rig.ask("s1", "c5", "plain_additive", json!({})).await;
    assert_eq!(rig.posts("c5").await[0]["status"], 200);
    rig.settled().await;
    let made: Vec<_> = rig.plain.entries().into_iter().map(|entry| entry.tool_use).collect();
    assert_eq!(made, ["c5", "c5"]);
}

impl Rig {
    /// Waits until the bridge hears calls; returns the wire on which to ask.
    async fn hears(&self, wire: &'static str) -> &'static str {
        self.wait_state("ready").await;
        let to = stream(wire);
        wait::soon("the bridge should listen", async || {
            (self.state().await["listeners"][to] == 1).then_some(())
        })
        .await;
        to
    }
}

/// Kills the bridge in the middle of a call, and again before its answer is taken.
async fn check_crash(wire: &'static str, path: &str) {
    let mut rig = Rig::start(wire).await;
    if wire == "claude" {
        rig.control("session", json!({ "id": "s1" })).await;
    }
    let to = rig.hears(wire).await;
    rig.ask(to, "c1", "plain_additive", json!({ "hang": "always" })).await;
    rig.plain.wait_begun("c1", 1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let post = rig.posts("c1").await.remove(0);
    assert!(post["body"].to_string().contains("OUTCOME_UNKNOWN"), "{post}");
    rig.settled().await;
    assert_eq!(rig.plain.begun("c1"), 1);

    check_crash_before_the_post(&mut rig, wire, path).await;
}

/// The answer is on disk, and the runtime does not take it yet.
async fn check_crash_before_the_post(rig: &mut Rig, wire: &'static str, path: &str) {
    let to = rig.hears(wire).await;
    let refusal = json!({ "path": path, "status": 503, "method": "POST", "always": true });
    rig.control("refuse", refusal).await;
    rig.ask(to, "c2", "plain_additive", json!({})).await;
    wait::soon("the answer should be posted", async || {
        (rig.state().await["refused"].as_u64() > Some(0)).then_some(())
    })
    .await;
    rig.bridge.kill9();
    rig.control("forgive", json!({})).await;
    rig.bridge.restart().await;
    let post = rig.posts("c2").await.remove(0);
    assert_eq!(post["status"], 200);
    assert!(!post["body"].to_string().contains("OUTCOME_UNKNOWN"), "{post}");
    rig.settled().await;
    assert_eq!(rig.plain.begun("c2"), 1);
}

#[tokio::test]
async fn a_crash_makes_no_call_of_hsafa_v3_twice() {
    check_crash("v3", "tool-results").await;
}

#[tokio::test]
async fn a_crash_makes_no_call_of_hsafa_v7_twice() {
    check_crash("v7", "/result").await;
}

#[tokio::test]
async fn a_crash_makes_no_call_of_claude_twice() {
    check_crash("claude", "s1/events").await;
}

/// Follows a page, and has the runtime ask for a call of the bridge that it started.
async fn check_page(page: &str, wire: &str) {
    let runtimes = peers::runtimes().await;
    let address = [
        ("http://hsafa.intranet:3001", runtimes.url()),
        ("https://api.anthropic.com", runtimes.url()),
        ("the-secret-key-of-the-gateway", KEY),
        ("the-key-of-the-environment", KEY),
    ];
    let _user = guides::follow_with(page, &address).await;
    let to = stream(wire);
    if wire == "claude" {
        control(&runtimes, "session", &json!({ "id": "s1" })).await;
    }
    let args = json!({ "a": 19, "b": 23 });
    let call = json!({ "wire": to, "id": "c1", "tool": "demo_add", "args": args });
    wait::soon("the runtime should be heard", async || {
        (control(&runtimes, "state", &json!({})).await["listeners"][to] == 1).then_some(())
    })
    .await;
    control(&runtimes, "call", &call).await;
    let post = wait::soon("the call should be answered", async || {
        let state = control(&runtimes, "state", &json!({})).await;
        state["posts"].get(0).cloned()
    })
    .await;
    assert!(post["status"] == 200 && post["body"].to_string().contains("42"), "{post}");
}

#[tokio::test]
async fn the_page_of_hsafa() {
    check_page("docs/hsafa.md", "v7").await;
}

#[tokio::test]
async fn the_page_of_claude() {
    check_page("docs/claude.md", "claude").await;
}
