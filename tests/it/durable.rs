//! What stands in the journal at the moment when it counts: the call when it reaches its tool, the
//! answer when it reaches MANTYX. A copy of the file as it is then is given to another bridge,
//! which says what it knows.
//!
//! Must not: read the file itself; what the bridge makes of it is what matters.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    bridge::Bridge,
    effects::Effects,
    frames::Script,
    mantyx::{Mantyx, Reply},
    peers,
};

/// What a bridge that finds the journal `copy` posts for `id`, of which MANTYX knows nothing.
async fn posted_after(copy: &Path, mantyx: &Mantyx, id: &str) -> Value {
    let effects = Effects::new();
    let config = format!("{}mcp:\n  plain: {}\n", mantyx.upstream(), effects.server());
    let mut bridge = Bridge::start(&config).await;
    bridge.kill9();
    fs::copy(copy, bridge.state("journal")).expect("a copy of a journal");
    let before = mantyx.posts(id).len();
    bridge.restart().await;
    let posts = mantyx.wait_posts(id, before + 1).await;
    assert_eq!(effects.begun(id), 0, "what may have been made is not made again");
    posts.get(before).expect("one more was waited for").value()
}

/// A run with one call, whose stream never tells of the answer.
fn one_call(id: &str) -> Script {
    Script::new().mcp(id, "plain", "plain_unsaid", "{}").until("the end")
}

/// A bridge whose server copies the journal when a call reaches it.
async fn start() -> (Bridge, Mantyx, Effects) {
    let (mantyx, effects) = (Mantyx::start().await, Effects::new());
    let mut bridge = Bridge::start(&mantyx.upstream()).await;
    bridge.stop().await;
    let plain = effects.server_copying(&bridge.state("journal"));
    // It reads what is hidden from others.
    let plain = peers::with(&plain, "sandbox: off");
    bridge.set_config(&format!("{}mcp:\n  plain: {plain}\n", mantyx.upstream()));
    bridge.restart().await;
    bridge.wait_backend("plain", "ready").await;
    (bridge, mantyx, effects)
}

#[tokio::test]
async fn a_call_is_written_down_before_it_reaches_its_tool() {
    let (mut bridge, mantyx, effects) = start().await;
    let ids: Vec<String> = (0..5).map(|n| format!("tu_{n}")).collect();
    for id in &ids {
        mantyx.script(one_call(id));
        bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
        assert!(mantyx.answer(id).await["result"].is_string());
    }
    bridge.kill9();
    for id in &ids {
        let answer = posted_after(&effects.copy(id), &mantyx, id).await;
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{id}: {answer}"));
        assert!(error.contains("OUTCOME_UNKNOWN"), "it had been noted as made: {error}");
    }
}

#[tokio::test]
async fn an_answer_is_written_down_before_it_is_posted() {
    let (mut bridge, mantyx, effects) = start().await;
    mantyx.replies("tu_1", [Reply::Reset; 50]);
    mantyx.script(one_call("tu_1"));
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let first = mantyx.wait_posts("tu_1", 1).await.swap_remove(0).value();
    let copy = effects.copy("at the first post");
    fs::copy(bridge.state("journal"), &copy).expect("a journal");
    bridge.kill9();
    assert!(first["result"].is_string(), "{first}");
    assert_eq!(posted_after(&copy, &mantyx, "tu_1").await, first, "the answer that was kept");
}
