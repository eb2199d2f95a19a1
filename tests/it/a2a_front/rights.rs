//! Rules, removed texts, the audit log, the extended card, and conversations of other calls: the
//! front holds what other doors hold.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Front, agent_of_1_0, data_of, message, message_in};
use crate::{bridge::Bridge, frames::Script, mantyx::Mantyx, owners::token, peers, wait};

#[tokio::test]
async fn rule_that_denies_a_message_refuses_it_in_the_protocols_words() {
    let agent = agent_of_1_0().await;
    let rule = "{tool: '*', when: [{path: /message, glob: '*salary*'}]}";
    let of_a = format!(", tools: {{hr: {{deny: [{rule}]}}}}");
    let front = Front::before(agent.url.as_str(), "", &of_a).await;
    let refused = front.rpc("a", "SendMessage", message("m1", "task the salary of B")).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let params = message("m2", "task the salary of B");
    let rest = front.ask("a", "POST", "/a2a/hr/message:send", Some(&params)).await;
    assert_eq!(rest.status, 403, "{}", rest.text());
    let events = front.events("a", "SendStreamingMessage", message("m3", "msg salary")).await;
    assert_eq!(events[0]["error"]["code"], -32600, "{events:?}");
    // In any of its parts.
    let mut params = message("m4", "task a");
    params["message"]["parts"] = json!([{"text": "task a"}, {"text": "salary"}]);
    assert_eq!(front.code("a", "SendMessage", params).await, -32600);
    let all = front.rpc("a", "ListTasks", json!({})).await;
    assert_eq!(all["result"]["totalSize"], 0, "nothing was sent: {all}");
    let answer = front.rpc("b", "SendMessage", message("m5", "msg salary")).await;
    assert!(answer["result"]["message"].is_object(), "it is a rule of `a`: {answer}");
    let task = front.begin("a", "m6", 1).await;
    front.wait_state("a", &task, "TASK_STATE_COMPLETED").await;
}

#[tokio::test]
async fn redaction_leaves_ids_and_removes_what_the_agent_says() {
    let agent = agent_of_1_0().await;
    let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    let keys = format!("redact: [{{pattern: '{uuid}'}}], ");
    let front = Front::before(agent.url.as_str(), &keys, "").await;
    let secret = "0b5b0c4e-8f0b-4c55-9d3a-2f9f51a27be4";
    let events =
        front.events("a", "SendStreamingMessage", message("m", &format!("task {secret}"))).await;
    let task = events[0]["result"]["task"]["id"].as_str().expect("an id").to_owned();
    let context = events[0]["result"]["task"]["contextId"].clone();
    let answer = front.rpc("a", "GetTask", json!({ "id": task })).await;
    let artifact = &answer["result"]["artifacts"][0];
    assert_eq!(answer["result"]["id"], json!(task), "{answer}");
    assert_eq!(artifact["parts"][0]["text"], "[removed]", "{answer}");
    assert!(artifact["artifactId"].as_str().is_some_and(|id| id != "[removed]"), "{answer}");
    for event in &events {
        let text = event["result"]["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str();
        assert!(text.is_none_or(|text| text == "[removed]"), "{event}");
    }
    // The conversation continues.
    let next = message_in("n", "context", "contextId", context.clone());
    let next = front.rpc("a", "SendMessage", next).await;
    assert_eq!(next["result"]["message"]["contextId"], context, "{next}");
    assert_eq!(next["result"]["message"]["parts"][0]["text"], "[removed]", "{next}");
}

#[tokio::test]
async fn message_is_a_line_of_the_audit_log() {
    let agent = agent_of_1_0().await;
    let mantyx = Mantyx::start().await;
    let apps = format!(
        "apps:\n  a: {{token: {}, tools: {{hr: {{deny: [{{tool: '*', when: [{{path: /message, glob: no}}]}}]}}}}}}\n  b: {{token: {}}}\n",
        token("a"),
        token("b")
    );
    let entry = format!("a2a:\n  hr: {{allow_hosts: [127.0.0.1], url: \"{}\"}}\n", agent.url);
    let audit = "audit: {file: state/audit.jsonl}\n";
    let bridge = Bridge::ready(&format!("{}{apps}{entry}{audit}", mantyx.upstream())).await;
    let front = Front { bridge, mantyx };
    front.wait_for_agent().await;
    front.rpc("a", "SendMessage", message("m1", "msg a secret")).await;
    front.rpc("a", "SendMessage", message("m2", "no")).await;
    front.events("a", "SendStreamingMessage", message("m3", "fail")).await;
    let lines = wait::soon("three lines should be written", async || {
        let text = fs::read_to_string(front.bridge.state("audit.jsonl")).unwrap_or_default();
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() == 3).then_some(lines)
    })
    .await;
    let outcomes: Vec<&str> = lines.iter().filter_map(|line| line["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["result", "denied", "tool_error"], "{lines:?}");
    for line in &lines {
        assert_eq!((&line["app"], &line["backend"]), (&json!("a"), &json!("hr")), "{line}");
        assert!(
            line["argumentsSha256"].is_string() && !line.to_string().contains("secret"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn extended_card_of_each_version_has_the_bridges_address() {
    const TOKEN: &str = "token-canary";
    for (sdk, method, path) in [
        ("0.3", "agent/getAuthenticatedExtendedCard", "v1/card"),
        ("1", "GetExtendedAgentCard", "extendedAgentCard"),
    ] {
        let agent = peers::a2a_ready(sdk, &["--extended", "--token", TOKEN]).await;
        let keys = format!("extended_card: true, headers: {{Authorization: 'Bearer {TOKEN}'}}, ");
        let front = Front::before(agent.url(), &keys, "").await;
        let card = wait::soon("the extended card should be there", async || {
            let answer = front.rpc("a", method, json!({})).await;
            answer.get("result").cloned()
        })
        .await;
        assert_eq!(card["name"], "Extended agent", "{sdk}: {card}");
        let (text, url) = (card.to_string(), format!("{}/a2a/hr", front.bridge.url()));
        assert!(text.contains(&url) && !text.contains(agent.url()), "{sdk}: {card}");
        assert!(!text.contains(TOKEN), "{sdk}: {card}");
        let rest = front.ask("a", "GET", &format!("/a2a/hr/{path}"), None).await;
        if rest.status == 200 {
            assert_eq!(rest.value(), card, "{sdk}");
        }
        let public = front.ask("a", "GET", "/a2a/hr/.well-known/agent-card.json", None).await;
        assert_ne!(public.expect(200)["name"], "Extended agent", "{sdk}");
    }
    // One that has none says so.
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    assert_eq!(front.code("a", "GetExtendedAgentCard", json!({})).await, -32007);
}

#[tokio::test]
async fn conversation_of_a_call_belongs_to_its_app() {
    let agent = agent_of_1_0().await;
    let mut front = Front::before(agent.url.as_str(), "", "").await;
    let call = json!({"toolUseId": "t", "name": "hr", "args": {"message": "context"}});
    let made = front.ask("a", "POST", "/v1/tool-calls", Some(&call)).await.expect(200);
    let by_hand = made["result"].clone();
    front.mantyx.script(Script::new().a2a("tu_1", "hr", "context").answered("tu_1").done());
    let run = r#"{"modelId":"m","prompt":"hi"}"#;
    let target = format!("{}/agent-runs", crate::bridge::API);
    let request = front.request("a", "POST", &target).json(run);
    request.answer(front.bridge.addr()).await.expect(202);
    let of_run = front.mantyx.answer("tu_1").await["result"].clone();
    for restarted in [false, true] {
        if restarted {
            front.bridge.kill9();
            front.bridge.restart().await;
            front.wait_for_agent().await;
        }
        for (place, context) in [&by_hand, &of_run].into_iter().enumerate() {
            assert!(context.as_str().is_some_and(|id| id.len() > 30), "{context}");
            let params = |app: &str| {
                let id = format!("{app}{place}{restarted}");
                message_in(&id, "context", "contextId", context.clone())
            };
            assert_eq!(front.code("b", "SendMessage", params("b")).await, -32001, "{place}");
            let own = front.rpc("a", "SendMessage", params("a")).await;
            assert_eq!(own["result"]["message"]["contextId"], *context, "{own}");
        }
    }
}

#[tokio::test]
async fn reload_that_takes_the_agent_away_ends_open_streams() {
    let agent = agent_of_1_0().await;
    let mut front = Front::before(agent.url.as_str(), "", "").await;
    let open = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
        let mut stream = request.send(front.bridge.addr()).await;
        let first = String::from_utf8(stream.chunk().await.expect("an event")).expect("text");
        (stream, data_of(&first)[0].clone())
    };
    let (sent, first) = open("SendStreamingMessage", message("m", "steps 3000")).await;
    let task = first["result"]["task"]["id"].clone();
    let (subscribed, _) = open("SubscribeToTask", json!({ "id": task })).await;
    let (other, _) = {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("m", "steps 3000")});
        let request = front.request("b", "POST", "/a2a/hr").json(body.to_string());
        let mut stream = request.send(front.bridge.addr()).await;
        let first = stream.chunk().await.expect("an event");
        (stream, first)
    };
    let app = format!("a: {{token: {}", token("a"));
    front.bridge.change_config(&app, &format!("{app}, backends: []"));
    front.bridge.process().signal(Signal::HUP);
    for stream in [sent, subscribed] {
        let events = data_of(&stream.answer().await.text());
        let last = events.last().expect("an error");
        assert_eq!(last["error"]["code"], -32600, "{last}");
        let why = last["error"]["message"].as_str().expect("a sentence");
        assert!(why.contains("hr") && why.contains("not cancelled"), "{why}");
    }
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": task}});
    front.ask("a", "POST", "/a2a/hr", Some(&body)).await.expect_error(404);
    // The other app reads on.
    let mut other = other;
    for _ in 0..3 {
        let event = String::from_utf8(other.chunk().await.expect("an event")).expect("text");
        assert!(!event.contains("\"error\""), "{event}");
    }
}

#[tokio::test]
async fn agent_of_grpc_alone_and_a_list_of_0_3_are_refused_in_the_protocols_words() {
    let agent = peers::a2a_v03().await;
    let front = Front::before(agent.url(), "", "").await;
    let answer = front.rpc("a", "tasks/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains("0.3")), "{answer}");
    let rest = front.ask("a", "GET", "/a2a/hr/v1/tasks", None).await;
    assert!(rest.status == 501 || rest.status == 404, "{}", rest.text());
    assert!([-32004, -32601].contains(&rest.value()["code"].as_i64().expect("a code")));
    let agent =
        crate::a2a_peers::start(peers::fetch::python(), "a2a_v1_agent.py", &["--bindings", "grpc"])
            .await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let answer = front.rpc("a", "SendMessage", message("m", "msg hi")).await;
    assert_eq!(answer["error"]["code"], -32004, "{answer}");
    assert!(
        answer["error"]["message"].as_str().is_some_and(|why| why.contains("gRPC")),
        "{answer}"
    );
    let all = front.ask("a", "GET", "/a2a", None).await.expect(200);
    assert_eq!(all["agents"], json!([]));
}
