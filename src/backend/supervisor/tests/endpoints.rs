//! When the endpoint of calls is asked, and what is shown of it, in paused time.

use super::*;
use crate::backend::readiness::{Health, Occasion, Readiness};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The times from the start until each question, in whole minutes, and their occasions.
fn probes(harness: &Harness, start: Instant) -> Vec<(u64, Occasion)> {
    let probes = harness.world.probes.lock().unwrap();
    probes
        .iter()
        .map(|(at, occasion)| (at.duration_since(start).as_secs() / 60, *occasion))
        .collect()
}

fn health(harness: &Harness) -> &Health {
    harness.world.health.as_ref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn agent_is_ready_only_after_its_endpoint_has_answered() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Hanging);
    let harness = Harness::start(world);
    let known = harness.wait_for(|known| known.connection.is_some()).await;
    assert_eq!(
        known.phase,
        Phase::Connecting,
        "calls may go there, and nothing says that they would be answered"
    );
    assert!(!known.is_stale() && harness.registry.offer().route("fs_ls").is_some());
    harness.world.probing.send_replace(Mood::Well);
    harness.phase(Phase::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_fails_is_told_and_keeps_its_connection_and_its_tools() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Refusing);
    let harness = Harness::start(world);
    let known = harness.phase(Phase::Degraded).await;
    assert_eq!(known.last_error.as_deref(), Some("HTTP 401"));
    assert!(known.connection.is_some() && !known.is_stale());
    assert!(harness.registry.offer().route("fs_ls").is_some());
    // A refresh of the catalog says nothing of the endpoint.
    harness.resolves(3).await;
    assert_eq!(harness.registry.snapshot("fs").unwrap().phase, Phase::Degraded);
    // An operator who has mended it asks.
    harness.world.probing.send_replace(Mood::Well);
    harness.ask().await;
    let known = harness.registry.snapshot("fs").unwrap();
    assert_eq!((known.phase, known.last_error), (Phase::Ready, None));
}

#[tokio::test(start_paused = true)]
async fn idle_agent_is_asked_once_an_hour_and_a_busy_one_is_not() {
    let harness = Harness::start(World::with_endpoint());
    harness.phase(Phase::Ready).await;
    let start = Instant::now();
    sleep(3 * HOUR + MINUTE).await;
    let asked = probes(&harness, start);
    let expected =
        [(0, Occasion::Doubt), (60, Occasion::Idle), (120, Occasion::Idle), (180, Occasion::Idle)];
    assert_eq!(asked, expected);
    for _ in 0..6 {
        health(&harness).call().answered();
        sleep(HOUR / 2).await;
    }
    assert_eq!(probes(&harness, start).len(), 4, "calls that are answered say it themselves");
}

#[tokio::test(start_paused = true)]
async fn idle_agent_that_refuses_is_asked_once_an_hour_too() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Refusing);
    let harness = Harness::start(world);
    harness.phase(Phase::Degraded).await;
    let start = Instant::now();
    sleep(2 * HOUR + MINUTE).await;
    assert_eq!(probes(&harness, start).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_cannot_be_reached_is_tried_sooner_and_recovers() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Failing);
    let harness = Harness::start(world);
    harness.phase(Phase::Degraded).await;
    harness.world.probing.send_replace(Mood::Well);
    let start = Instant::now();
    harness.phase(Phase::Ready).await;
    assert!(start.elapsed() <= MINUTE, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn failed_calls_are_followed_by_one_question_a_minute() {
    let harness = Harness::start(World::with_endpoint());
    harness.phase(Phase::Ready).await;
    let start = Instant::now();
    harness.world.probing.send_replace(Mood::Refusing);
    for _ in 0..30 {
        drop(health(&harness).call());
        sleep(Duration::from_secs(10)).await;
    }
    let known = harness.registry.snapshot("fs").unwrap();
    assert_eq!(known.phase, Phase::Degraded);
    let asked = probes(&harness, start).len();
    assert!((5..=6).contains(&asked), "{asked} in 5 min");
}

#[tokio::test(start_paused = true)]
async fn answered_call_ends_the_trouble_at_once() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Refusing);
    let harness = Harness::start(world);
    harness.phase(Phase::Degraded).await;
    let start = Instant::now();
    health(&harness).call().answered();
    harness.phase(Phase::Ready).await;
    assert!(start.elapsed() < MINUTE);
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_hangs_is_given_up_and_delays_no_refresh_for_long() {
    let world = World::with_endpoint();
    world.probing.send_replace(Mood::Hanging);
    let harness = Harness::start(world);
    let known = harness.phase(Phase::Degraded).await;
    assert!(known.last_error.unwrap().contains("did not answer within"));
    let start = Instant::now();
    harness.ask().await;
    assert!(start.elapsed() <= MINUTE);
}

#[tokio::test(start_paused = true)]
async fn failed_refresh_is_the_nearer_trouble() {
    let harness = Harness::start(World::with_endpoint());
    harness.phase(Phase::Ready).await;
    harness.world.resolving.send_replace(Mood::Failing);
    harness.ask().await;
    let known = harness.registry.snapshot("fs").unwrap();
    assert!(known.phase == Phase::Degraded && known.is_stale());
    assert!(matches!(health(&harness).readiness(), Readiness::Answers(_)));
}
