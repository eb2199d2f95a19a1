//! What stands in the journal at the moment when it counts: the call when it reaches its tool, the
//! answer when it reaches MANTYX. A copy of the file as it is then is given to another bridge, which
//! says what it knows.
//!
//! Must not: read the file itself; what the bridge makes of it is what matters.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    bridge::Bridge,
    effects::Effects,
    frames::Script,
    mantyx::{Mantyx, Reply},
};

/// What a bridge that finds the journal `copy` posts for `id`, to a MANTYX that knows nothing.
async fn posted_after(copy: &Path, id: &str) -> Value {
    let (mantyx, effects) = (Mantyx::start().await, Effects::new());
    mantyx.once();
    let config = format!("{}mcp:\n  plain: {}\n", mantyx.upstream(), effects.server());
    let mut bridge = Bridge::start(&config).await;
    bridge.kill9();
    fs::copy(copy, bridge.state("journal.redb")).expect("a copy of a journal");
    bridge.restart().await;
    let answer = mantyx.taken(id).await;
    assert_eq!(effects.begun(id), 0, "what may have been made is not made again");
    answer
}

/// A bridge whose server copies the journal when a call reaches it.
async fn start() -> (Bridge, Mantyx, Effects) {
    let (mantyx, effects) = (Mantyx::start().await, Effects::new());
    let mut bridge = Bridge::start(&mantyx.upstream()).await;
    bridge.stop().await;
    let plain = effects.server_copying(&bridge.state("journal.redb"));
    bridge.set_config(&format!("{}mcp:\n  plain: {plain}\n", mantyx.upstream()));
    bridge.restart().await;
    bridge.wait_backend("plain", "ready").await;
    (bridge, mantyx, effects)
}

#[tokio::test]
async fn a_call_is_written_down_before_it_reaches_its_tool() {
    let (bridge, mantyx, effects) = start().await;
    for n in 0..5 {
        let id = format!("tu_{n}");
        mantyx.script(Script::one_call(&id, "plain", "plain_unsaid", "{}"));
        bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
        assert!(mantyx.answer(&id).await["result"].is_string());
        let answer = posted_after(&effects.copy(&id), &id).await;
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{id}: {answer}"));
        assert!(error.contains("may or may not"), "it had been noted as made: {error}");
    }
}

#[tokio::test]
async fn an_answer_is_written_down_before_it_is_posted() {
    let (bridge, mantyx, effects) = start().await;
    mantyx.replies("tu_1", [Reply::Reset; 50]);
    mantyx.script(Script::one_call("tu_1", "plain", "plain_unsaid", "{}"));
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let first = mantyx.wait_posts("tu_1", 1).await.pop().expect("one was waited for").value();
    let copy = effects.copy("at the first post");
    fs::copy(bridge.state("journal.redb"), &copy).expect("a journal");
    assert!(first["result"].is_string(), "{first}");
    assert_eq!(posted_after(&copy, "tu_1").await, first, "the answer that was kept");
}
