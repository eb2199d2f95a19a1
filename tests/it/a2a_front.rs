//! The front `/a2a`: agents on the SDKs, as the official clients use them directly and through the
//! bridge; whose a task is; what the bridge refuses; what a crash leaves.

mod clients;
mod crashes;
mod listeners;
mod rights;

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    a2a_peers::{self as a2a, Agent},
    approvals,
    bridge::Bridge,
    http::{Answer, Request},
    mantyx::Mantyx,
    owners::token,
    peers::{self, Peer, fetch},
    wait,
};

/// A bridge with the apps `a` and `b`, and the agent `hr`.
struct Front {
    bridge: Bridge,
    mantyx: Mantyx,
}

impl Front {
    /// `keys` stand in the agent's entry, and `of_a` in that of the app `a`.
    async fn before(url: &str, keys: &str, of_a: &str) -> Self {
        let mantyx = Mantyx::start().await;
        let (a, b) = (token("a"), token("b"));
        let apps = format!("apps:\n  a: {{token: {a}{of_a}}}\n  b: {{token: {b}}}\n");
        let agent = format!("a2a:\n  hr: {{{keys}allow_hosts: [127.0.0.1], url: \"{url}\"}}\n");
        let bridge = Bridge::ready(&format!("{}{apps}{agent}", mantyx.upstream())).await;
        let front = Self { bridge, mantyx };
        front.wait_for_agent().await;
        front
    }

    async fn wait_for_agent(&self) {
        wait::soon("the agent should be ready", async || {
            let status = self.ask("b", "GET", "/v1/status", None).await.expect(200);
            (status["backends"][0]["state"] == "ready").then_some(())
        })
        .await;
    }

    fn request(&self, app: &str, method: &str, target: &str) -> Request {
        Request::new(method, target).bearer(&token(app))
    }

    async fn ask(&self, app: &str, method: &str, target: &str, body: Option<&Value>) -> Answer {
        let mut request = self.request(app, method, target);
        if let Some(body) = body {
            request = request.json(body.to_string());
        }
        request.answer(self.bridge.addr()).await
    }

    /// The response of JSON-RPC.
    async fn rpc(&self, app: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = self.ask(app, "POST", "/a2a/hr", Some(&body)).await.expect(200);
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        answer
    }

    /// The code of the error that JSON-RPC answers with.
    async fn code(&self, app: &str, method: &str, params: Value) -> i64 {
        let answer = self.rpc(app, method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    /// The events of a stream, to its end.
    async fn events(&self, app: &str, method: &str, params: Value) -> Vec<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = self.ask(app, "POST", "/a2a/hr", Some(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        data_of(&answer.text())
    }

    /// The task that a message of 1.0 of `app` becomes, which works for `tenths` of a second.
    async fn begin(&self, app: &str, id: &str, tenths: usize) -> String {
        let mut params = message(id, &format!("early {tenths}"));
        params["configuration"] = json!({"returnImmediately": true});
        let answer = self.rpc(app, "SendMessage", params).await;
        let task = answer["result"]["task"]["id"].as_str();
        task.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn wait_state(&self, app: &str, task: &str, state: &str) -> Value {
        wait::soon(&format!("the task should be {state}"), async || {
            let answer = self.rpc(app, "GetTask", json!({ "id": task })).await;
            (answer["result"]["status"]["state"] == state).then_some(answer)
        })
        .await
    }
}

/// The data of the events in a stream.
fn data_of(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

/// The parameters of a message of 1.0.
fn message(id: &str, text: &str) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// The same, in a conversation or a task.
fn message_in(id: &str, text: &str, key: &str, value: Value) -> Value {
    let mut params = message(id, text);
    params["message"][key] = value;
    params
}

async fn agent_of_1_0() -> Agent {
    a2a::start(fetch::python(), "a2a_v1_agent.py", &["--card", "1.0"]).await
}

#[tokio::test]
async fn agents_are_listed_and_their_cards_have_the_bridges_address() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", ", backends: [hr]").await;
    let all = front.ask("a", "GET", "/a2a", None).await.expect(200);
    let url = format!("{}/a2a/hr", front.bridge.url());
    let card = format!("{url}/.well-known/agent-card.json");
    let listed = &all["agents"][0];
    assert_eq!((&listed["name"], &listed["title"]), (&json!("hr"), &json!("Test agent")), "{all}");
    assert_eq!((&listed["url"], &listed["card"]), (&json!(url), &json!(card)), "{all}");
    for path in ["agent-card.json", "agent.json"] {
        let card = front.ask("a", "GET", &format!("/a2a/hr/.well-known/{path}"), None).await;
        let card = card.expect(200);
        for interface in card["supportedInterfaces"].as_array().expect("interfaces") {
            assert_eq!(interface["url"], json!(url), "{card}");
        }
        assert_eq!(card["capabilities"]["pushNotifications"], false, "{card}");
        assert!(card["securitySchemes"]["bridge"].is_object(), "{card}");
    }
    let addr = front.bridge.addr();
    let stranger = Request::new("GET", "/a2a/hr/.well-known/agent-card.json").answer(addr).await;
    assert_eq!(stranger.status, 401, "{}", stranger.text());
    let unknown = front.ask("a", "GET", "/a2a/nobody/.well-known/agent-card.json", None).await;
    unknown.expect_error(404);
}

#[tokio::test]
async fn agent_that_an_app_may_not_use_is_not_there() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", ", backends: []").await;
    let all = front.ask("a", "GET", "/a2a", None).await.expect(200);
    assert_eq!(all["agents"], json!([]));
    let card = front.ask("a", "GET", "/a2a/hr/.well-known/agent-card.json", None).await;
    card.expect_error(404);
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": message("m", "msg hi")});
    front.ask("a", "POST", "/a2a/hr", Some(&body)).await.expect_error(404);
}

#[tokio::test]
async fn another_apps_task_and_conversation_are_not_found() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let task = front.begin("a", "m1", 30).await;
    let own = front.rpc("a", "GetTask", json!({ "id": task })).await;
    let context = own["result"]["contextId"].clone();
    for (method, params) in [
        ("GetTask", json!({ "id": task })),
        ("CancelTask", json!({ "id": task })),
        ("SendMessage", message_in("m2", "msg hi", "taskId", json!(task))),
        ("SendMessage", message_in("m3", "msg hi", "contextId", context.clone())),
        ("SendMessage", message_in("m4", "msg hi", "context_id", context.clone())),
        ("SendMessage", message_in("m5", "msg hi", "referenceTaskIds", json!([task]))),
        ("GetTask", json!({ "id": "nowhere" })),
    ] {
        assert_eq!(front.code("b", method, params).await, -32001, "{method}");
    }
    let events = front.events("b", "SubscribeToTask", json!({ "id": task })).await;
    assert_eq!(events[0]["error"]["code"], -32001, "{events:?}");
    for (method, path) in
        [("GET", ""), ("POST", ":cancel"), ("GET", ":subscribe"), ("POST", ":subscribe")]
    {
        let answer = front.ask("b", method, &format!("/a2a/hr/tasks/{task}{path}"), None).await;
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
        assert_eq!(answer.value()["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
    }
    let listed = async |app: &str| front.rpc(app, "ListTasks", json!({})).await["result"].clone();
    assert_eq!(listed("b").await["tasks"], json!([]));
    let all = listed("a").await;
    assert_eq!((&all["tasks"][0]["id"], &all["totalSize"]), (&json!(task), &json!(1)), "{all}");
    // The owner may.
    front.rpc("a", "CancelTask", json!({ "id": task })).await;
    front.wait_state("a", &task, "TASK_STATE_CANCELED").await;
}

#[tokio::test]
async fn push_notifications_are_refused() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let mut params = message("m", "msg hi");
    params["configuration"] = json!({"taskPushNotificationConfig": {"url": "http://127.0.0.1:1"}});
    assert_eq!(front.code("a", "SendMessage", params).await, -32003);
    let config = json!({"taskId": "t", "url": "http://127.0.0.1:1"});
    assert_eq!(front.code("a", "CreateTaskPushNotificationConfig", config).await, -32003);
    let path = "/a2a/hr/tasks/t/pushNotificationConfigs";
    let answer = front.ask("a", "POST", path, Some(&json!({}))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[tokio::test]
async fn message_that_comes_again_is_answered_with_its_task() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let task = front.begin("a", "m1", 3).await;
    assert_eq!(front.begin("a", "m1", 3).await, task, "it is the same task");
    let again = front.events("a", "SendStreamingMessage", message("m1", "early 3")).await;
    assert_eq!(again[0]["result"]["task"]["id"], json!(task), "{again:?}");
    front.wait_state("a", &task, "TASK_STATE_COMPLETED").await;
    // Another app's message with that id is its own.
    assert_ne!(front.begin("b", "m1", 1).await, task);
    assert_eq!(front.code("a", "SendMessage", message("m1", "msg other")).await, -32602);
    let reply = async || front.rpc("a", "SendMessage", message("m2", "msg hi")).await;
    let first = reply().await;
    assert_eq!(first["result"]["message"]["parts"][0]["text"], "hi", "{first}");
    assert_eq!(reply().await, first, "the agent's own reply, and no second one");
    let all = front.rpc("a", "ListTasks", json!({"pageSize": 1})).await;
    assert_eq!(all["result"]["totalSize"], 1, "{all}");
}

#[tokio::test]
async fn message_waits_for_a_person_and_its_stream_lives() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "approve: ['*'], ", ", approves: true").await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("m", "task report")});
    let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
    let mut stream = request.send(front.bridge.addr()).await;
    let mut text = String::new();
    while !text.contains(": ping") {
        text += &String::from_utf8(stream.chunk().await.expect("a comment")).expect("text");
    }
    let waiting = list(&front).await;
    assert_eq!(waiting[0]["arguments"]["message"], "task report", "{waiting:?}");
    decide(&front, &waiting, "approve").await;
    let rest = stream.answer().await.text();
    let events = data_of(&(text + &rest));
    let last = events.last().expect("an event");
    assert_eq!(
        last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{events:?}"
    );

    let denied = front.rpc("a", "SendMessage", message("n", "task report"));
    let deny = async {
        let waiting = wait::soon("a call should wait", async || {
            let all = list(&front).await;
            (!all.is_empty()).then_some(all)
        });
        decide(&front, &waiting.await, "deny").await;
    };
    let (denied, ()) = tokio::join!(denied, deny);
    assert_eq!(denied["error"]["code"], -32600, "{denied}");
    let text = denied["error"]["message"].as_str().expect("a sentence");
    assert!(text.contains("denied"), "{text}");
    let all = front.rpc("a", "ListTasks", json!({})).await;
    assert_eq!(all["result"]["totalSize"], 1, "a refusal leaves no task: {all}");
}

/// The calls of `a` that wait for a person.
async fn list(front: &Front) -> Vec<Value> {
    let all = front.ask("a", "GET", "/v1/approvals", None).await.expect(200);
    let all = all["approvals"].as_array().expect("a list").iter();
    all.filter(|one| one["state"] == "waiting").cloned().collect()
}

async fn decide(front: &Front, waiting: &[Value], decision: &str) {
    let path = format!("/v1/approvals/{}", approvals::id(&waiting[0]));
    let decision = json!({ "decision": decision });
    front.ask("a", "POST", &path, Some(&decision)).await.expect(200);
}

#[tokio::test]
async fn quota_refuses_in_a_sentence_of_the_protocol() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", ", quota: {calls: 2, per: 1h}").await;
    for id in ["m2", "m3"] {
        let answer = front.rpc("a", "SendMessage", message(id, "msg hi")).await;
        assert!(answer["result"]["message"].is_object(), "{answer}");
    }
    let refused = front.rpc("a", "SendMessage", message("m4", "msg hi")).await;
    let text = refused["error"]["message"].as_str().expect("a sentence");
    assert!(text.contains("quota"), "{refused}");
    let rest = front.ask("a", "POST", "/a2a/hr/message:send", Some(&message("m5", "msg hi"))).await;
    assert_eq!(rest.status, 429, "{}", rest.text());
    let events = front.events("a", "SendStreamingMessage", message("m6", "msg hi")).await;
    assert_eq!(events[0]["error"]["code"], -32600, "{events:?}");
    let answer = front.rpc("b", "SendMessage", message("m7", "msg hi")).await;
    assert!(answer["result"]["message"].is_object(), "another app has its own quota: {answer}");
}

/// A bridge that is killed in the middle of a task finds it again, and sends no message twice.
#[tokio::test]
async fn task_is_found_again_after_a_crash_and_its_message_is_not_sent_twice() {
    let dir = TempDir::new().expect("a directory");
    let agent = peers::a2a_v1("1.0").await;
    let mut front = Front::before(agent.url(), "", "").await;
    let task = front.begin("a", "m1", 30).await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("m2", "long 30")});
    let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
    let mut stream = request.send(front.bridge.addr()).await;
    let first = String::from_utf8(stream.chunk().await.expect("an event")).expect("text");
    let streamed = data_of(&first)[0]["result"]["task"]["id"].clone();
    front.bridge.kill9();
    front.bridge.restart().await;
    front.wait_for_agent().await;
    for (app, code) in [("a", None), ("b", Some(-32001))] {
        for id in [json!(task), streamed.clone()] {
            let answer = front.rpc(app, "GetTask", json!({ "id": id })).await;
            assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
        }
    }
    let again = front.rpc("a", "SendMessage", message("m2", "long 30")).await;
    assert_eq!(again["result"]["task"]["id"], streamed, "{again}");
    assert_eq!(front.begin("a", "m1", 30).await, task);
    let events = front.events("a", "SubscribeToTask", json!({ "id": task })).await;
    let last = events.last().expect("an event");
    assert_eq!(
        last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{events:?}"
    );
    front.wait_state("a", streamed.as_str().expect("an id"), "TASK_STATE_COMPLETED").await;
    let all = front.rpc("a", "ListTasks", json!({})).await;
    assert_eq!(all["result"]["totalSize"], 2, "no message was sent twice: {all}");
    drop(dir);
}

#[tokio::test]
async fn client_that_hangs_up_loses_nothing() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("m", "long 10")});
    let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
    let mut stream = request.send(front.bridge.addr()).await;
    let first = String::from_utf8(stream.chunk().await.expect("an event")).expect("text");
    let task = data_of(&first)[0]["result"]["task"]["id"].as_str().expect("an id").to_owned();
    drop(stream);
    let done = front.wait_state("a", &task, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["result"]["artifacts"][0]["parts"][0]["text"], "worked 10", "{done}");
    // The call was read to its end, as the agent's stream was.
    wait::soon("the call should end", async || {
        let calls = front.ask("a", "GET", "/v1/calls", None).await.expect(200);
        (calls["calls"][0]["outcome"] == "result").then_some(())
    })
    .await;
}

#[tokio::test]
async fn bad_input_is_refused_in_the_protocols_words() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    for (text, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":[]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}"#, -32602),
    ] {
        let request = front.request("a", "POST", "/a2a/hr").json(text);
        let answer = request.answer(front.bridge.addr()).await.expect(200);
        assert_eq!(answer["error"]["code"], code, "{text}: {answer}");
    }
    // The agent speaks 1.0 alone.
    let old = json!({"message": {"messageId": "m", "role": "user", "parts": []}});
    assert_eq!(front.code("a", "message/send", old).await, -32601);
    for (method, path, status) in [
        ("GET", "/a2a/hr", 404),
        ("DELETE", "/a2a/hr/tasks/t", 405),
        ("GET", "/a2a/hr/message:send", 404),
        ("POST", "/a2a/hr/v1/message:send", 400),
        ("GET", "/a2a/hr/tasks/..%2f..%2fx", 404),
    ] {
        let body = json!({});
        let body = (method == "POST").then_some(&body);
        let answer = front.ask("a", method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    }
    let large = front.request("a", "POST", "/a2a/hr").header("Content-Type", "application/json");
    let large = large.header("Content-Length", "9000000").answer(front.bridge.addr()).await;
    assert_eq!(large.status, 413, "{}", large.text());
    let form = front.request("a", "POST", "/a2a/hr").body("text/plain", "{}");
    assert_eq!(form.answer(front.bridge.addr()).await.status, 415);
    let json = front.request("a", "POST", "/a2a/hr/message:send");
    let json = json.body("application/a2a+json", message("m", "msg hi").to_string());
    let answer = json.answer(front.bridge.addr()).await.expect(200);
    assert_eq!(answer["message"]["parts"][0]["text"], "hi", "{answer}");
}

/// A stream that breaks off is told, and its task is there.
#[tokio::test]
async fn stream_that_breaks_is_told_and_its_task_is_known() {
    let mut agent: Peer = peers::a2a_v1("1.0").await;
    let front = Front::before(agent.url(), "", "").await;
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("m", "long 100")});
    let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
    let mut stream = request.send(front.bridge.addr()).await;
    let first = String::from_utf8(stream.chunk().await.expect("an event")).expect("text");
    let task = data_of(&first)[0]["result"]["task"]["id"].clone();
    agent.kill9();
    let rest = data_of(&stream.answer().await.text());
    let last = rest.last().expect("an error");
    assert_eq!(last["error"]["code"], -32603, "{rest:?}");
    agent.restart().await;
    // The restarted agent has forgotten it, and says so itself.
    let forgotten = wait::until("the agent should answer", Duration::from_secs(60), async || {
        let answer = front.rpc("a", "GetTask", json!({ "id": task })).await;
        (answer["error"]["code"] == -32001).then_some(answer)
    })
    .await;
    assert_ne!(forgotten["error"]["message"], "", "{forgotten}");
}
