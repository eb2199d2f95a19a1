//! A bridge that is stopped with many calls under way: what ends in time is answered by it, and the
//! rest by the next one.
//!
//! Must not: kill (crash.rs does); here it is asked to go.

use rustix::process::Signal;

use crate::{bridge::DRAIN, effects_harness::EffectsHarness, frames::Script, wait};

impl EffectsHarness {
    /// Starts a run with calls of these arguments, and waits until all have reached the server.
    async fn call_all(&self, args: &[String]) -> Vec<String> {
        let ids: Vec<String> = (0..args.len()).map(|n| format!("tu_{n}")).collect();
        let calls = ids.iter().zip(args).fold(Script::new(), |script, (id, args)| {
            script.mcp(id, "plain", "plain_unsaid", args)
        });
        let script = ids.iter().fold(calls, |script, id| script.answered(id));
        self.mantyx.script(script.done());
        self.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
        wait::soon("all calls should reach the server", async || {
            let entries = self.plain.entries();
            ids.iter().all(|id| entries.iter().any(|e| e.tool_use == *id)).then_some(())
        })
        .await;
        ids
    }

    /// Stops the bridge by so many signals.
    async fn stop_by(&mut self, signals: usize) {
        let told = [r#""message":"stopping""#, r#""message":"asked again"#];
        for words in told.into_iter().take(signals) {
            self.bridge.process().signal(Signal::TERM);
            wait::soon("the signal should be met", async || {
                self.bridge.log().contains(words).then_some(())
            })
            .await;
        }
        self.bridge.process().ended(DRAIN).await;
        // It has ended; this only says so to the kit.
        self.bridge.kill9();
    }
}

#[tokio::test]
async fn a_stop_loses_none_of_a_hundred_calls() {
    let mut rig = EffectsHarness::start(Some("concurrency: 128")).await;
    // 0.1 s to 5 s.
    let args: Vec<String> = (0..100).map(|n| format!(r#"{{"ms":{}}}"#, 100 + n * 49)).collect();
    let ids = rig.call_all(&args).await;
    rig.bridge.stop().await;
    for id in &ids {
        let answer = rig.mantyx.taken(id).await;
        assert!(answer["result"].is_string(), "{id}: {answer}");
        assert_eq!(rig.plain.begun(id), 1, "{id}");
    }
}

/// Of two calls one ends while the bridge drains; the other is left to the next start.
async fn leave_one_behind(signals: usize) {
    let mut rig = EffectsHarness::start(Some("concurrency: 128")).await;
    rig.call_all(&[r#"{"hang":"always"}"#.to_owned()]).await;
    rig.stop_by(signals).await;
    rig.bridge.restart().await;
    let answer = rig.mantyx.taken("tu_0").await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
    assert_eq!(rig.plain.begun("tu_0"), 1);
}

#[tokio::test]
async fn calls_that_a_second_signal_drops_are_answered_after_the_next_start() {
    leave_one_behind(2).await;
}

#[tokio::test]
#[ignore = "waits for the 30 s that calls are given to end"]
async fn calls_that_outlast_the_drain_are_answered_after_the_next_start() {
    leave_one_behind(1).await;
}
