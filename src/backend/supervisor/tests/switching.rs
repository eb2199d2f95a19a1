//! What a supervisor does while the operator disables, enables and restarts its backend.

use super::*;

#[tokio::test(start_paused = true)]
async fn disabled_backend_is_closed_and_not_dialled_until_enabled() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    harness.switch.turn_off();
    let known = harness.phase(Phase::Disabled).await;
    assert!(known.connection.is_none() && known.last_error.is_none());
    assert!(known.catalog.is_some(), "its tools are known for when it is enabled");
    assert_eq!(World::count(&harness.world.closes), 1);
    sleep(Duration::from_secs(24 * 60 * 60)).await;
    harness.ask().await;
    assert_eq!(World::count(&harness.world.dials), 1);
    harness.switch.turn_on();
    harness.phase(Phase::Ready).await;
    assert_eq!(World::count(&harness.world.dials), 2);
    harness.ask().await;
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restarted_backend_is_closed_and_dialled_again() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    harness.switch.restart();
    harness.wait_for(|known| known.connections == 2).await;
    let world = &harness.world;
    assert_eq!((World::count(&world.closes), World::count(&world.dials)), (1, 2));
    harness.switch.turn_off();
    harness.phase(Phase::Disabled).await;
    harness.switch.restart();
    harness.ask().await;
    assert_eq!(World::count(&harness.world.dials), 2, "a restart enables nothing");
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restart_ends_the_wait_of_an_outage() {
    let world = World::new();
    world.dialling.send_replace(Mood::Failing);
    let harness = Harness::start(world);
    sleep(Duration::from_secs(60 * 60)).await;
    harness.world.dialling.send_replace(Mood::Well);
    let asked_at = Instant::now();
    harness.switch.restart();
    harness.phase(Phase::Ready).await;
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disabled_backend_ends_with_the_daemon() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    harness.switch.turn_off();
    harness.phase(Phase::Disabled).await;
    harness.stop().await;
}
