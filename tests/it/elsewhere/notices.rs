//! Of a notice, one replica is the sender; another one takes its place if it dies.

use std::time::Duration;

use serde_json::json;

use super::{Two, two_with};
use crate::{
    approvals::{ALL, approve, asked},
    frames::Script,
    notify::receiver::Receiver,
    wait,
};

const RUN: &str = r#"{"modelId":"m","prompt":"hi"}"#;

async fn told(it: &Two, count: &str) {
    let rows = "select count(*) from mantyx_bridge.notice where told";
    wait::soon(&format!("{count} notices should be noted as told"), async || {
        (it.postgres.query(rows) == [count]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn notice_of_a_call_comes_from_one_of_the_replicas_and_so_does_its_decision() {
    let receiver = Receiver::start().await;
    let notify =
        format!("notify:\n  ops: {{on: [approval], webhook: {{url: '{}'}}}}\n", receiver.url());
    let it = two_with(&notify, ALL).await;
    it.one.wait_backend("plain", "ready").await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    it.one.post_run(RUN).await;
    let id = asked(&it.two).await;
    let first = receiver.delivery(1).await;
    assert_eq!(first.json()["data"]["approval"], json!(id));
    told(&it, "1").await;
    approve(&it.two, &id).await;
    it.mantyx.answer("tu_1").await;
    let second = receiver.delivery(2).await;
    assert_eq!(second.json()["type"], "approval.decided");
    told(&it, "2").await;
    // Both know of the end by now: the replica that does not hold the row waits for the other.
    wait::soon("both should have looked", async || {
        for replica in [&it.one, &it.two] {
            let status = replica.status().await;
            if status["notify"][0]["waiting"] != 0 || status["approvals"]["waiting"] != 0 {
                return None;
            }
        }
        Some(())
    })
    .await;
    let ids: Vec<_> = receiver.all().iter().map(|one| one.id().to_owned()).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
}

#[tokio::test]
async fn notice_is_told_by_another_replica_if_the_one_that_claimed_it_is_killed() {
    let mut receiver = Receiver::start().await;
    receiver.stop().await;
    let notify =
        format!("notify:\n  ops: {{on: [approval], webhook: {{url: '{}'}}}}\n", receiver.url());
    let mut it = two_with(&notify, ALL).await;
    it.one.wait_backend("plain", "ready").await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    it.one.post_run(RUN).await;
    asked(&it.two).await;
    let rows = "select count(*) from mantyx_bridge.notice";
    wait::soon("it should be claimed", async || (it.postgres.query(rows) == ["1"]).then_some(()))
        .await;
    it.one.kill9();
    receiver.restart().await;
    let delivery =
        wait::until("the other replica should tell", Duration::from_secs(150), async || {
            receiver.all().into_iter().next()
        })
        .await;
    assert_eq!(delivery.json()["type"], "approval.waiting");
    let message = it.postgres.query("select message from mantyx_bridge.notice");
    assert_eq!(message, [delivery.id()], "under the id of the first claim");
}
