//! One app's open calls, and whether another's can be made all the same.

use super::harness::{Harness, call, known_run};
use super::*;
use crate::backend::peer::{NotRecorded, Recorder as _};
use crate::config::App;
use crate::model::event::Call;
use crate::settings::Settings;

fn large() -> Bytes {
    Bytes::from(vec![b'x'; 5 << 20])
}

#[tokio::test]
async fn answers_that_nobody_takes_close_the_journal_to_no_other_app() {
    let harness = Harness::start(None).await;
    let limits = harness.runs.calls.settings().limits.clone();
    let apps = ["a", "b"].map(App::named).into();
    harness.settings.send_replace(Arc::new(Settings::new(limits, apps, None)));
    let [of_a, of_b] = [(1, "a"), (2, "b")].map(|(slot, app)| known_run(&harness, slot, app));
    let mut open = Vec::new();
    for number in 0..14 {
        let entry = harness.recorder(&of_a, &call(&format!("tu_{number}")));
        entry.dispatching(None).await.ok();
        entry.answered(large()).await;
        open.push(entry);
    }
    let entry = harness.recorder(&of_b, &call("tu_b"));
    assert_eq!(entry.dispatching(None).await, Ok(()), "b has its own share");
    let late = harness.recorder(&of_a, &call("tu_late"));
    assert_eq!(late.dispatching(None).await, Err(NotRecorded::NoShare));
    assert!(harness.runs.journal().health().bytes < 24 << 20);

    let kept = harness.kept().await;
    let answers = kept.runs.iter().flat_map(|run| &run.calls).filter(|call| call.answer.is_some());
    assert_eq!(answers.count(), 3, "those that there is room for are kept");
    open.iter().for_each(|entry| entry.close());
    assert_eq!(late.dispatching(None).await, Ok(()), "MANTYX has taken them");
}

#[tokio::test]
async fn arguments_that_there_is_no_room_for_are_not_kept() {
    let harness = Harness::start(None).await;
    let run = known_run(&harness, 1, "a");
    let text = format!("\"{}\"", "x".repeat(5 << 20));
    let large = |number: usize| Call {
        args: serde_json::from_str(&text).unwrap(),
        ..call(&format!("tu_{number}"))
    };
    let mut open: Vec<_> = (0..6).map(|_| None).collect();
    for (number, entry) in open.iter_mut().enumerate() {
        let entry = entry.insert(harness.recorder(&run, &large(number)));
        assert_eq!(entry.has_room(), number < 4, "call {number}");
        assert_eq!(entry.change().weight() > 0, number < 4, "call {number}");
    }
    open.clear();
    assert!(harness.recorder(&run, &large(6)).has_room(), "they have ended");
}
