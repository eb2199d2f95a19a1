//! The bridge goes down while a call waits for a person: it is asked about anew, and made once.

use super::{ALL, NOTE, approve, asked, id, list, waiting};
use crate::{
    frames::Script,
    harness::Harness,
    pending::{fetch, learn},
    recovery::wait_journaled,
};

/// C2, RECEIVED: a call that waits has not been dispatched.
#[tokio::test]
async fn approval_is_asked_for_again_after_a_crash_and_the_call_is_made_once() {
    let mut rig = Harness::with_keys(ALL, "", &[], "").await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let first = asked(&rig.bridge).await;
    wait_journaled(&rig.bridge, "tu_1").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let again = asked(&rig.bridge).await;
    assert_eq!(again, first, "the same call with the same arguments");
    assert!(rig.executions().is_empty() && rig.mantyx.posts("tu_1").is_empty());
    approve(&rig.bridge, &again).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
    assert_eq!(rig.executions().len(), 1);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_person_and_denies_nothing() {
    let mut rig = Harness::with_keys(ALL, "", &[], "").await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let first = asked(&rig.bridge).await;
    rig.bridge.process().signal(rustix::process::Signal::TERM);
    // Calls that run are given 30 s.
    let soon = std::time::Duration::from_secs(20);
    let status = rig.bridge.process().ended(soon).await;
    assert_eq!(status.code(), Some(0), "{}", rig.bridge.log());
    assert!(rig.mantyx.posts("tu_1").is_empty(), "nothing is answered");
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(asked(&rig.bridge).await, first);
    approve(&rig.bridge, &first).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
    assert_eq!(rig.executions().len(), 1);
}

/// What a call that goes on is answered with tells the model to wait for a person.
async fn goes_on(rig: &Harness, tool: &str, args: &str) -> String {
    let script = Script::new().mcp("tu_1", "plain", tool, args).answered("tu_1").until("@call");
    rig.run(fetch(script, "tu_2", 60).answered("tu_2").until("never")).await;
    let posted = rig.mantyx.answer("tu_1").await;
    let text = posted["result"].as_str().expect("a pending answer");
    assert!(text.contains("approve"), "{text}");
    asked(&rig.bridge).await
}

#[tokio::test]
async fn a_call_that_goes_on_while_it_waits_outlives_a_crash() {
    let keys = format!("{ALL} pending_after: 300ms,");
    let mut rig = Harness::with_keys(&keys, "", &[], "").await;
    let first = goes_on(&rig, "plain_note", NOTE).await;
    for round in 0..2 {
        rig.bridge.kill9();
        rig.bridge.restart().await;
        assert_eq!(asked(&rig.bridge).await, first, "in round {round}");
    }
    learn(&rig, "tu_1", "@call").await;
    approve(&rig.bridge, &first).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x");
    assert_eq!(rig.executions().len(), 1);
    rig.bridge.kill9();
    rig.bridge.restart().await;
    waiting(&rig.bridge, 0).await;
    assert_eq!(rig.executions().len(), 1, "it has ended, and is kept as such");
}

#[tokio::test]
async fn approved_call_that_was_made_is_not_asked_about_again() {
    let keys = format!("{ALL} pending_after: 300ms,");
    let mut rig = Harness::with_keys(&keys, "", &[], "").await;
    let first = goes_on(&rig, "plain_hang", "{}").await;
    approve(&rig.bridge, &first).await;
    rig.wait_executions(1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    learn(&rig, "tu_1", "@call").await;
    let answer = rig.mantyx.answer("tu_2").await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("an error: {answer}"));
    assert!(error.starts_with("OUTCOME_UNKNOWN"), "{error}");
    assert!(list(&rig.bridge).await.is_empty(), "nobody is asked");
    assert_eq!(rig.executions().len(), 1);
}

#[tokio::test]
async fn pending_call_by_hand_outlives_a_crash_and_a_stop() {
    let keys = format!("{ALL} pending_after: 300ms,");
    let mut rig = Harness::with_keys(&keys, "", &[], "").await;
    let body = format!(r#"{{"toolUseId":"tu_1","name":"plain_note","args":{NOTE}}}"#);
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(&body)).await.expect(200);
    let call = crate::pending::pending(&answer)["callId"].clone();
    wait_journaled(&rig.bridge, call.as_str().expect("an id")).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    waiting(&rig.bridge, 1).await;
    rig.bridge.stop().await;
    rig.bridge.restart().await;
    let shown = waiting(&rig.bridge, 1).await.remove(0);
    approve(&rig.bridge, &id(&shown)).await;
    let ask = serde_json::json!({"toolUseId": "tu_2", "name": "bridge_call_result",
        "args": {"callId": call, "wait": 60}});
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(&ask.to_string())).await;
    assert_eq!(answer.expect(200)["result"], "noted: x");
    assert_eq!(rig.executions().len(), 1);
}
