//! The result of a long call is fetched at any replica.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{submitted, two_with};
use crate::{
    bridge::{API, Bridge},
    frames::Script,
    http::{Answer, Request},
    owners::token,
    pending::{Gate, fetch, pending},
    wait,
};

/// What of a dead replica is of no run: a long call, and a request with a key.
#[tokio::test]
async fn call_by_hand_of_a_dead_replica_has_an_unknown_outcome_at_the_others() {
    let gate = Gate::new();
    let keys = format!("apps:\n  a: {{token: {}}}\n{}", token("a"), gate.section());
    let mut it = two_with(&keys, "").await;
    it.mantyx.script(Script::new().local("tu_1", "gate", "{}").answered("tu_1").until("never"));
    submitted(&it.one, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    let call =
        pending(&it.mantyx.answer("tu_1").await)["callId"].as_str().expect("an id").to_owned();
    let hang = r#"{"toolUseId":"tu_2","name":"plain_hang","args":{},"kind":"mcp_local"}"#;
    let keyed = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
    let keyed = || keyed.clone().header("Idempotency-Key", "k").json(hang);
    let (asking, addr) = (keyed(), it.one.addr());
    let mut hanging = tokio::task::JoinSet::new();
    hanging.spawn(async move { asking.answer(addr).await });
    wait::soon("the call should be under way", async || (it.executions() == 1).then_some(())).await;
    drop(hanging);
    it.one.kill9();

    wait::until("the key should have an answer", Duration::from_secs(30), async || {
        let answer = keyed().answer(it.two.addr()).await;
        let text = answer.text();
        assert!(answer.status == 503 || text.contains("OUTCOME_UNKNOWN"), "{text}");
        text.contains("OUTCOME_UNKNOWN").then_some(())
    })
    .await;
    it.mantyx.fill("@call", &call);
    it.mantyx.script(fetch(Script::new(), "tu_3", 20).answered("tu_3").done());
    let by_hand = submitted(&it.two, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    // The result is its run's alone.
    let told = it.mantyx.answer("tu_3").await.to_string();
    assert!(told.contains("There is no such call"), "{by_hand}: {told}");
    let rows = "select count(*) from mantyx_bridge.record join mantyx_bridge.replica on holder = replica.id \
                where kind = 'long' and convert_from(value, 'UTF8') like '%OUTCOME_UNKNOWN%'";
    wait::until("the long call should have ended", Duration::from_secs(30), async || {
        (it.postgres.query(rows) == ["1"]).then_some(())
    })
    .await;
    assert_eq!((it.executions(), gate.calls()), (1, 1));
}

#[tokio::test]
async fn a_result_is_fetched_at_another_replica() {
    let gate = Gate::new();
    let keys = format!("apps:\n  a: {{token: {}}}\n{}", token("a"), gate.section());
    let it = two_with(&keys, "").await;
    let new_session = async || {
        let request = Request::new("POST", &format!("{API}/agent-sessions")).bearer(&token("a"));
        let made: Answer = request.json("{}").answer(it.one.addr()).await;
        made.expect(201)["sessionId"].as_str().expect("an id").to_owned()
    };
    let (session, other) = (new_session().await, new_session().await);
    let messages = |session: &str| format!("agent-sessions/{session}/messages");
    let hello = r#"{"prompt":"hi"}"#;

    it.mantyx.script(Script::new().local("tu_1", "gate", "{}").answered("tu_1").done());
    submitted(&it.one, &messages(&session), hello).await;
    let first = pending(&it.mantyx.answer("tu_1").await);
    it.mantyx.fill("@call", first["callId"].as_str().expect("an id"));

    struct Case<'a> {
        id: &'static str,
        session: &'a str,
        expected: &'static str,
    }
    for Case { id, session, expected } in [
        Case { id: "tu_2", session: &session, expected: "still runs" },
        Case { id: "tu_3", session: &other, expected: "There is no such call" },
    ] {
        it.mantyx.script(fetch(Script::new(), id, 0).answered(id).done());
        submitted(&it.two, &messages(session), hello).await;
        let told = it.mantyx.answer(id).await.to_string();
        assert!(told.contains(expected), "{id}: {told}");
    }
    it.mantyx.script(fetch(Script::new(), "tu_4", 60).answered("tu_4").done());
    submitted(&it.two, &messages(&session), hello).await;
    gate.open();
    assert_eq!(it.mantyx.answer("tu_4").await["result"].as_str().map(str::trim), Some("opened"));
    assert_eq!(gate.calls(), 1);
}

/// What the caller is given, it may show to another replica at once.
#[tokio::test]
async fn a_call_by_hand_is_known_at_another_replica_at_once() {
    let gate = Gate::new();
    let keys = format!("apps:\n  a: {{token: {}}}\n{}", token("a"), gate.section());
    let it = two_with(&keys, "").await;
    for number in 0..3 {
        let by_hand = async |bridge: &Bridge, name: &str, args: Value| {
            let call = json!({"toolUseId": format!("tu_{number}"), "name": name, "args": args, "kind": "local"});
            let request = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
            request.json(call.to_string()).answer(bridge.addr()).await.expect(200)
        };
        let first = pending(&by_hand(&it.one, "gate", json!({})).await);
        let asked = json!({"callId": first["callId"], "wait": 0});
        let told = by_hand(&it.two, "bridge_call_result", asked).await.to_string();
        assert!(told.contains("still runs"), "{told}");
    }
    gate.open();
}

/// The replica that is taken for dead has a result of its own.
#[tokio::test]
async fn the_first_result_that_is_durable_is_the_calls_at_every_replica() {
    let gate = Gate::new();
    let keys = format!("apps:\n  a: {{token: {}}}\n{}", token("a"), gate.section());
    let mut it = two_with(&keys, "").await;
    let target = format!("{API}/agent-sessions");
    let made = Request::new("POST", &target).bearer(&token("a")).json("{}");
    let made = made.answer(it.one.addr()).await.expect(201);
    let messages =
        format!("agent-sessions/{}/messages", made["sessionId"].as_str().expect("an id"));
    let hello = r#"{"prompt":"hi"}"#;
    it.mantyx.script(Script::new().local("tu_1", "gate", "{}").answered("tu_1").done());
    submitted(&it.one, &messages, hello).await;
    it.mantyx
        .fill("@call", pending(&it.mantyx.answer("tu_1").await)["callId"].as_str().expect("an id"));

    it.one.process().signal(Signal::STOP);
    it.mantyx.script(fetch(Script::new(), "tu_2", 60).answered("tu_2").done());
    submitted(&it.two, &messages, hello).await;
    wait::until("its outcome should be unknown", Duration::from_secs(40), async || {
        it.mantyx.is_answered("tu_2").then_some(())
    })
    .await;
    assert!(it.mantyx.answer("tu_2").await.to_string().contains("OUTCOME_UNKNOWN"));
    gate.open();
    it.one.process().signal(Signal::CONT);
    wait::soon("the call should end", async || {
        it.one.log().contains("the call has ended").then_some(())
    })
    .await;
    it.one.wait_ready().await;
    it.mantyx.script(fetch(Script::new(), "tu_3", 0).answered("tu_3").done());
    submitted(&it.one, &messages, hello).await;
    let told = it.mantyx.answer("tu_3").await.to_string();
    assert!(told.contains("OUTCOME_UNKNOWN"), "{told}");
}
