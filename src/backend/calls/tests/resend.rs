//! Calls whose session the server has forgotten, and calls in a pause that it asks for.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::backend::peer::PermissionCheck;

#[tokio::test(start_paused = true)]
async fn call_in_a_forgotten_session_is_sent_again_once_on_the_next_connection() {
    for (forgotten, is_answered) in [(1, true), (2, false)] {
        let world = World::new();
        let harness = start(&[("fs", &world)], 4);
        harness.backends.registry.settled().await;
        world.forgetting.store(forgotten, Ordering::SeqCst);
        let made = harness.make("fs_ls").await;
        if is_answered {
            assert_eq!(made.answer, Answer::text(r#"ls {"a":1e400}"#));
        } else {
            check_failed(&made, Ending::Unavailable, &["was not made"]);
        }
        assert_eq!(World::count(&world.calls), 2, "{forgotten}");
        assert!(World::count(&world.dials) >= 2, "a session begins with a connection");
    }
}

#[tokio::test(start_paused = true)]
async fn call_right_after_a_crash_waits_for_the_next_connection() {
    for (crashing, is_answered) in [(1, true), (2, false)] {
        let world = World::new();
        let harness = start(&[("fs", &world)], 4);
        harness.backends.registry.settled().await;
        world.crashing.store(crashing, Ordering::SeqCst);
        let made = harness.make("fs_ls").await;
        if is_answered {
            assert_eq!(made.answer, Answer::text(r#"ls {"a":1e400}"#));
        } else {
            check_failed(&made, Ending::Unavailable, &["was not made"]);
        }
        assert_eq!(World::count(&world.calls), 2, "{crashing}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_is_not_sent_again_to_a_server_that_has_the_tool_no_longer() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    world.forgetting.store(1, Ordering::SeqCst);
    *world.tools.lock().unwrap() = vec!["other"];
    let made = harness.make("fs_ls").await;
    check_failed(&made, Ending::Unavailable, &["does not have this tool"]);
    assert_eq!(World::count(&world.calls), 1);

    let (world, harness) = start_breaking(1).await;
    world.calling.send_replace(Mood::Gone);
    let (made, ()) = tokio::join!(harness.make("fs_reads"), async {
        while World::count(&world.calls) < 2 {
            tokio::task::yield_now().await;
        }
        *world.tools.lock().unwrap() = vec!["other"];
        world.calling.send_replace(Mood::Well);
        world.lost.notify_one();
    });
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 2, "the second was not sent");
}

/// Permits as many times as it says, and then wants a person's approval.
#[derive(Debug)]
struct PermittedTimes(AtomicUsize);

impl PermissionCheck for PermittedTimes {
    fn now(&self, _call: &CallRequest) -> Permission {
        let fewer = |left: usize| left.checked_sub(1);
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => Permission::Given,
            Err(_) => Permission::Ask,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_whose_permission_has_ended_is_not_sent_again() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    world.forgetting.store(1, Ordering::SeqCst);
    let offer = harness.backends.registry.offer();
    // A dispatch asks twice.
    let permission_check = Arc::new(PermittedTimes(AtomicUsize::new(2)));
    let call = CallContext { permission_check, ..context(offer.route("fs_ls").unwrap(), "{}") };
    let made = harness.backends.call(&call).await;
    check_failed(&made, Ending::NotApproved, &["was not made"]);
    assert_eq!(World::count(&world.calls), 1);
}

#[tokio::test(start_paused = true)]
async fn call_in_a_pause_is_answered_at_once_with_its_end() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    *world.pausing.lock().unwrap() = Some(Instant::now() + Duration::from_secs(600));
    world.dialling.send_replace(Mood::Failing);
    world.lost.notify_one();
    let paused = |registry: &Registry| {
        let known = registry.snapshot("fs")?;
        known.last_failure?.open_pause()
    };
    harness.backends.registry.wait_for(paused).await;
    let begun = Instant::now();
    let made = harness.make("fs_ls").await;
    check_failed(&made, Ending::Refused, &["HTTP 429", " s. The call was not made"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
