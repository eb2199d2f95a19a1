//! loom-mcp's sets of external tools and its confirmations, as its runtime sends and takes them.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    bridge::Bridge,
    effects::{Effects, Step},
    harness::Harness,
    http::{Answer, Request},
    peers, wait,
};

const SET: &str = "/v1/external-tools";

async fn post(bridge: &Bridge, path: &str, body: &Value) -> Answer {
    bridge.request("POST", path).json(body.to_string()).answer(bridge.addr()).await
}

fn item(tool: &str, id: &str, payload: &Value) -> Value {
    json!({ "tool_name": tool, "tool_call_id": id, "payload": payload })
}

const TOKEN: &str = "loom-token-of-the-tests-0000000001";

#[tokio::test]
async fn a_set_is_answered_whole_and_once() {
    let all = format!("  all: {}\n", peers::everything_stdio());
    let rig = Harness::with(&all, &[], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    let set = json!({
        "id": "await-1", "runId": "run-1", "more": 1,
        "items": [
            item("plain_note", "c1", &json!({ "text": "tea" })),
            item("all_get_structured_content", "c2", &json!({ "location": "New York" })),
            item("plain_note", "c3", &json!({ "text": 7 })),
            item("not_there", "c4", &json!({})),
            item("all_echo", "c5", &json!({ "message": "hi" })),
        ],
        "returns": {
            "all_get_structured_content": { "type": "object" },
            "all_echo": { "type": "object" },
        },
    });
    let first = post(&rig.bridge, SET, &set).await.expect(200);
    assert_eq!((&first["RunID"], &first["ID"]), (&json!("run-1"), &json!("await-1")));
    let results = first["Results"].as_array().expect("a list");
    let ids: Vec<_> = results.iter().map(|one| one["ToolCallID"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4", "c5"]);
    assert_eq!(results[0]["Name"], "plain_note");
    assert!(results[0]["Result"].is_string() && results[0]["Error"].is_null());
    assert!(results[1]["Result"]["temperature"].is_number(), "{}", results[1]);
    assert_eq!(results[2]["RetryHint"]["Reason"], "invalid_arguments");
    assert_eq!(results[3]["RetryHint"]["Reason"], "tool_unavailable");
    assert!(
        results[4]["Error"]["Message"].as_str().unwrap().contains("not what the caller expects")
    );
    // A set that is posted again runs once.
    let again = post(&rig.bridge, SET, &set).await.expect(200);
    assert_eq!(again, first);
    rig.wait_executions(1).await;
    assert_eq!(rig.executions().len(), 1);
    let other =
        json!({ "id": "await-1", "runId": "run-1", "items": [item("all_echo", "c1", &json!({}))] });
    assert_eq!(post(&rig.bridge, SET, &other).await.status, 422);
    for bad in [
        json!({ "id": "x", "items": [] }),
        json!({ "id": "x", "items": [item("a", "c", &json!({})), item("a", "c", &json!({}))] }),
    ] {
        post(&rig.bridge, SET, &bad).await.expect_error(400);
    }
}

#[tokio::test]
async fn a_crash_makes_no_item_twice() {
    let plain = Effects::new();
    let config = format!("upstream: {{sandbox: true}}\nmcp:\n  plain: {}\n", plain.server());
    let mut bridge = Bridge::ready(&config).await;
    bridge.wait_backend("plain", "ready").await;
    let set = json!({
        "id": "w", "runId": "r",
        "items": [
            item("plain_additive", "c1", &json!({ "hang": "always" })),
            item("plain_additive", "c2", &json!({})),
        ],
    });
    let body = set.to_string();
    let request = bridge.request("POST", SET).json(body);
    let mut waiting = JoinSet::new();
    waiting.spawn(request.send(bridge.addr()));
    plain.wait_begun("c1", 1).await;
    let result = wait::soon("the other call should be answered", async || {
        let entries = plain.entries();
        let done = entries.iter().find(|it| it.tool_use == "c2" && it.step == Step::Done)?;
        Some(done.text.clone())
    })
    .await;
    let journal = bridge.state("journal");
    wait::soon("its result should be on disk", async || {
        let bytes = std::fs::read(&journal).expect("the daemon writes it");
        String::from_utf8_lossy(&bytes).contains(&result).then_some(())
    })
    .await;
    bridge.kill9();
    drop(waiting);
    bridge.restart().await;
    let answer = post(&bridge, SET, &set).await.expect(200);
    let error = answer["Results"][0]["Error"]["Message"].as_str().expect("an error");
    assert!(error.starts_with("OUTCOME_UNKNOWN"), "{error}");
    assert_eq!(answer["Results"][1]["Result"], result);
    assert_eq!((plain.begun("c1"), plain.begun("c2")), (1, 1));
}

#[tokio::test]
async fn a_set_whose_client_hung_up_is_made_to_its_end() {
    let plain = Effects::new();
    let config = format!("upstream: {{sandbox: true}}\nmcp:\n  plain: {}\n", plain.server());
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("plain", "ready").await;
    // More than run at once.
    let ids: Vec<String> = (0..24).map(|number| format!("c{number}")).collect();
    let call = |id: &String| item("plain_additive", id, &json!({ "ms": 200 }));
    let items: Vec<Value> = ids.iter().map(call).collect();
    let body = json!({ "id": "w", "runId": "r", "items": items }).to_string();
    let mut waiting = JoinSet::new();
    waiting.spawn(bridge.request("POST", SET).json(body).send(bridge.addr()));
    plain.wait_begun("c0", 1).await;
    waiting.shutdown().await;
    wait::soon("all calls should be made", async || {
        ids.iter().all(|id| plain.begun(id) == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_confirmation_is_decided_by_a_person() {
    let rig = Harness::start().await;
    let asked = json!({
        "id": "await-2", "runId": "run-1", "title": "Refund", "prompt": "Refund 40 EUR?",
        "tool_name": "payments.refund", "tool_call_id": "c9", "payload": { "amount": 40 },
    });
    for (decision, approved) in [("approve", true), ("deny", false)] {
        let request = rig.bridge.request("POST", "/v1/confirmations").json(asked.to_string());
        let mut answer = JoinSet::new();
        answer.spawn(request.answer(rig.bridge.addr()));
        let id = wait::soon("the question should be there", async || {
            let list = rig.bridge.api("GET", "/v1/approvals", None).await.value();
            let all = list["approvals"].as_array().expect("a list");
            let waits = all.iter().find(|it| it["state"] == "waiting")?;
            let shown = waits["argumentsText"].as_str().expect("a text");
            assert!(shown.contains("Refund 40 EUR?"), "{waits}");
            assert_eq!(waits["name"], "payments.refund", "{waits}");
            assert_eq!(waits["tool"], "payments.refund", "{waits}");
            assert_eq!(waits["backend"], "bridge_confirmation", "no tool of the bridge's: {waits}");
            Some(waits["id"].as_str()?.to_owned())
        })
        .await;
        let body = format!(r#"{{"decision":"{decision}"}}"#);
        let decide = rig.bridge.request("POST", &format!("/v1/approvals/{id}")).json(body);
        let decide = decide.header("X-Bridge-Operator", &rig.bridge.operator());
        decide.answer(rig.bridge.addr()).await.expect(200);
        let said = answer.join_next().await.expect("a task").expect("it ends").expect(200);
        let right = json!({
            "RunID": "run-1", "ID": "await-2", "Approved": approved, "RequestedBy": "operator",
        });
        assert_eq!(said, right);
    }
}

#[tokio::test]
async fn tools_are_known_by_the_names_that_the_app_gives_them() {
    let config = format!(
        "upstream: {{sandbox: true}}\napps:\n  loom: {{token: {TOKEN}, names: {{helpers.note: \
         note}}}}\nlocal:\n  note: {{internal: true}}\n"
    );
    let bridge = Bridge::ready(&config).await;
    let set = json!({ "id": "w", "items": [item("helpers.note", "c1", &json!({ "a": 1 }))] });
    let request = Request::new("POST", SET).bearer(TOKEN).json(set.to_string());
    let answer = request.answer(bridge.addr()).await.expect(200);
    // An internal tool executes nothing: its arguments are its result.
    let right = json!({
        "Name": "helpers.note", "ToolCallID": "c1", "Result": "{\"a\":1}", "Bounds": null,
        "Error": null, "RetryHint": null,
    });
    assert_eq!(answer, json!({ "RunID": "", "ID": "w", "Results": [right] }));
}
