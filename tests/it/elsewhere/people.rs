//! A person decides at any replica, and the decision outlives the replica whose call waits.

use std::time::Duration;

use super::{Two, two_with};
use crate::{
    approvals::{ALL, approve, asked, decide, list},
    frames::Script,
    wait,
};

const RUN: &str = r#"{"modelId":"m","prompt":"hi"}"#;

/// Two replicas, of which the first has a call that waits for approval.
async fn with_waiting_call() -> Two {
    let it = two_with("", ALL).await;
    it.one.wait_backend("plain", "ready").await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    it.one.post_run(RUN).await;
    it
}

#[tokio::test]
async fn a_call_is_approved_at_another_replica() {
    let it = with_waiting_call().await;
    let id = asked(&it.two).await;
    assert_eq!(id, asked(&it.one).await);
    let whole = list(&it.two).await.remove(0);
    assert_eq!(whole["argumentsText"], r#"{"text":"x"}"#);
    assert_eq!(it.two.status().await["approvals"]["waiting"], 1);
    assert_eq!(approve(&it.two, &id).await["state"], "approved");
    assert_eq!(it.mantyx.answer("tu_1").await["result"], "noted: x");
    assert_eq!(it.executions(), 1);
    for replica in [&it.one, &it.two] {
        wait::soon("the decision should be known", async || {
            (list(replica).await[0]["state"] == "approved").then_some(())
        })
        .await;
        let late = decide(replica, &id, r#"{"decision":"deny"}"#).await.expect_error(409);
        assert_eq!(late["error"], "already_decided", "{late}");
    }
}

/// Who has just seen it at one replica may decide at another, which looks only once a second.
#[tokio::test]
async fn approval_that_one_replica_lists_is_decided_at_another_at_once() {
    for _ in 0..3 {
        let it = with_waiting_call().await;
        let id = asked(&it.one).await;
        let shared = "select count(*) from mantyx_bridge.approval";
        wait::soon("it should be shared", async || {
            (it.postgres.query(shared) == ["1"]).then_some(())
        })
        .await;
        assert_eq!(approve(&it.two, &id).await["state"], "approved");
    }
}

#[tokio::test]
async fn first_of_two_decisions_at_two_replicas_counts() {
    let it = with_waiting_call().await;
    let id = asked(&it.two).await;
    let (denied, approved) = tokio::join!(
        decide(&it.one, &id, r#"{"decision":"deny"}"#),
        decide(&it.two, &id, r#"{"decision":"approve"}"#)
    );
    let statuses = [denied.status, approved.status];
    assert!(statuses == [200, 409] || statuses == [409, 200], "{statuses:?}");
    it.mantyx.answer("tu_1").await;
    assert_eq!(it.executions(), usize::from(approved.status == 200));
}

/// Nobody is asked again what has been decided.
#[tokio::test]
async fn a_decision_outlives_the_replica_whose_call_waits() {
    let mut it = with_waiting_call().await;
    let id = asked(&it.two).await;
    it.one.kill9();
    approve(&it.two, &id).await;
    assert_eq!(it.executions(), 0);
    wait::until("the call should be made", Duration::from_secs(40), async || {
        it.mantyx.is_answered("tu_1").then_some(())
    })
    .await;
    assert_eq!(it.executions(), 1);
    let metrics = it.two.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains("mantyx_bridge_runs_taken_over_total 1"), "{metrics}");
}
