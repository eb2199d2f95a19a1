//! A run that only its app's credential opens goes on at a replica that has the credential.

use std::time::Duration;

use tempfile::TempDir;

use super::{Two, two_of};
use crate::{
    bridge::API, credentials::showing, frames::Script, harness::ledger_in, peers, sse::Stream, wait,
};

/// A run that the first replica drives, with its path. Its model calls a tool at "go".
async fn begun() -> (Two, String) {
    let dir = TempDir::new().expect("a directory");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let upstream = "upstream: {base_url: MANTYX, credential: passthrough}";
    let it = two_of(dir, &format!("{upstream}\nmcp:\n  plain: {plain}\n")).await;
    it.mantyx.lets_in(&["mine"]);
    for bridge in [&it.one, &it.two] {
        bridge.wait_backend("plain", "ready").await;
    }
    let script = Script::new().delta("a").until("go");
    it.mantyx.script(script.mcp("tu_1", "plain", "plain_note", r#"{"text":"x"}"#).until("never"));
    let post = showing(&it.one, "mine", "POST", &format!("{API}/agent-runs"));
    let made = post.json(r#"{"prompt":"x"}"#).answer(it.one.addr()).await.expect(202);
    let stream = format!("{API}/agent-runs/{}/stream", made["runId"].as_str().expect("an id"));
    (it, stream)
}

/// Waits until the second replica owns the run of the first one, which is dead.
async fn inherited(it: &Two) {
    let taken = Duration::from_secs(30);
    wait::until("another replica should own it", taken, async || {
        let rows = it.postgres.query("select count(*) from mantyx_bridge.run where waits");
        (rows == ["1"]).then_some(())
    })
    .await;
}

async fn goes_on(it: &Two) {
    assert_eq!(it.mantyx.answer("tu_1").await["result"], "noted: x");
    assert_eq!(it.executions(), 1);
    assert_eq!(it.postgres.query("select waits from mantyx_bridge.run"), ["f"]);
}

#[tokio::test]
async fn a_run_is_taken_up_where_its_app_shows_its_credential() {
    let (mut it, stream) = begun().await;
    it.one.kill9();
    inherited(&it).await;
    it.one.restart().await;
    it.one.wait_backend("plain", "ready").await;
    it.mantyx.release("go");
    // The second replica owns the run, and the first one is asked.
    let refused = showing(&it.one, "others", "GET", &stream).answer(it.one.addr()).await;
    refused.expect_error(401);
    let _reading = Stream::request(&it.one, showing(&it.one, "mine", "GET", &stream)).await;
    goes_on(&it).await;
}

/// Its app has no reason to ask again.
#[tokio::test]
async fn a_run_is_taken_up_where_its_app_reads_its_events() {
    let (mut it, stream) = begun().await;
    let _reading = Stream::request(&it.two, showing(&it.two, "mine", "GET", &stream)).await;
    it.one.kill9();
    inherited(&it).await;
    it.mantyx.release("go");
    goes_on(&it).await;
}
