//! Programs: turns, slow starts, starts by calls, and the end of those that nothing uses.

use super::*;
use crate::backend::fake::entry;

const MINUTE: Duration = Duration::from_secs(60);

impl Harness {
    fn state(&self) -> Snapshot {
        self.registry.snapshot("fs").unwrap()
    }

    fn dials(&self) -> usize {
        World::count(&self.world.dials)
    }
}

/// A world whose programs do not finish their start before the test lets them.
fn slow() -> Arc<World> {
    let world = World::new();
    world.dialling.send_replace(Mood::Hanging);
    world
}

fn lazy() -> Timing {
    Timing { is_lazy: true, idle_stop: Some(15 * MINUTE), ..timing() }
}

#[tokio::test(start_paused = true)]
async fn slow_start_is_waited_for_and_shown() {
    let harness = Harness::program(slow(), timing());
    harness.phase(Phase::Starting).await;
    sleep(4 * MINUTE).await;
    assert_eq!(harness.state().phase, Phase::Starting);
    assert_eq!(harness.dials(), 1, "it is started once");
    harness.world.dialling.send_replace(Mood::Well);
    harness.phase(Phase::Ready).await;
    assert_eq!(harness.state().start, None);
}

#[tokio::test(start_paused = true)]
async fn start_that_never_ends_is_given_up_and_is_down_while_it_is_tried_again() {
    let harness = Harness::program(slow(), timing());
    let known = harness.phase(Phase::Down).await;
    assert!(known.last_error.unwrap().contains("did not finish its start within 300s"));
    harness.wait_for(|known| known.start.is_some()).await;
    assert_eq!(harness.state().phase, Phase::Down);
    assert_eq!(
        World::count(&harness.world.ended),
        1,
        "the first has ended before the second start"
    );
}

#[tokio::test(start_paused = true)]
async fn next_start_of_an_entry_waits_for_the_end_of_the_one_before() {
    let (registry, leases) = registry(["fs"]);
    let lease = leases.into_iter().next().unwrap();
    let start = program_start("fs");
    let first = Harness::on(&registry, lease, slow(), timing(), Some(start.clone()));
    first.phase(Phase::Starting).await;
    // The end of the first takes time.
    first.world.ending.send_replace(Mood::Hanging);
    let lease = registry.lease(first.lease.name.clone());
    registry.set(vec![entry(&lease)]);
    let second = Harness::on(&registry, lease, World::new(), timing(), Some(start));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(second.dials(), 0);
    first.world.ending.send_replace(Mood::Well);
    second.phase(Phase::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn silent_program_holds_up_the_next_for_its_place_alone() {
    let turns = program_start("a").turns;
    let begun = Instant::now();
    let mut harnesses = Vec::new();
    for name in
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"]
    {
        let start = ProgramStart { turns: Arc::clone(&turns), ..program_start(name) };
        harnesses.push(Harness::with(slow(), timing(), Some(start)));
    }
    let at_once = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let started = || harnesses.iter().filter(|one| one.dials() > 0).count();
    sleep(Duration::from_secs(44)).await;
    assert_eq!(started(), at_once.min(17));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(started(), (2 * at_once).min(17), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lazy_program_with_a_catalog_is_started_by_its_first_call() {
    let (registry, leases) = registry(["fs"]);
    let lease = leases.into_iter().next().unwrap();
    // The catalog that an earlier process has kept.
    let first = Harness::on(&registry, lease.clone(), World::new(), timing(), None);
    first.phase(Phase::Ready).await;
    first.stop().await;
    let start = Some(program_start("fs"));
    let harness = Harness::on(&registry, lease, World::new(), lazy(), start);
    let known = harness.phase(Phase::Idle).await;
    assert!(!known.is_stale());
    assert!(harness.registry.offer().route("fs_ls").is_some(), "its tools are on offer");
    sleep(MINUTE).await;
    assert_eq!(harness.dials(), 0);
    let waiting = harness.demand.wait();
    harness.phase(Phase::Ready).await;
    drop(waiting);
    assert_eq!(harness.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn lazy_program_without_a_catalog_is_started_to_be_read() {
    let harness = Harness::program(World::new(), lazy());
    harness.phase(Phase::Ready).await;
    harness.phase(Phase::Idle).await;
    assert_eq!(World::count(&harness.world.closes), 1);
}

#[tokio::test(start_paused = true)]
async fn unused_program_is_ended_and_one_in_use_is_not() {
    let timing = Timing { idle_stop: Some(15 * MINUTE), ..timing() };
    let harness = Harness::program(World::new(), timing);
    harness.phase(Phase::Ready).await;
    let in_use = harness.registry.connection(&harness.lease.name).expect("it is connected");
    sleep(60 * MINUTE).await;
    assert_eq!(harness.state().phase, Phase::Ready, "a call is in flight");
    drop(in_use);
    sleep(14 * MINUTE).await;
    assert_eq!(harness.state().phase, Phase::Ready, "it was used less than 15 min ago");
    let begun = Instant::now();
    harness.phase(Phase::Idle).await;
    assert!(begun.elapsed() <= 2 * MINUTE);
    assert!(harness.registry.offer().route("fs_ls").is_some());
    assert!(harness.registry.connection(&harness.lease.name).is_none());
}

#[tokio::test(start_paused = true)]
async fn idle_program_is_started_once_a_day_to_be_read() {
    let harness = Harness::program(World::new(), lazy());
    harness.phase(Phase::Idle).await;
    *harness.world.tools.lock().unwrap() = vec!["cat"];
    let begun = Instant::now();
    harness.wait_for(|_| harness.dials() == 2).await;
    assert!(begun.elapsed() >= 20 * 60 * MINUTE, "{:?}", begun.elapsed());
    harness.phase(Phase::Idle).await;
    assert!(begun.elapsed() < 27 * 60 * MINUTE, "it is ended at once: {:?}", begun.elapsed());
    assert!(harness.registry.offer().route("fs_cat").is_some());
}

#[tokio::test(start_paused = true)]
async fn idle_program_is_started_when_it_is_not_to_be_idle() {
    let harness = Harness::program(World::new(), lazy());
    harness.phase(Phase::Idle).await;
    harness.timing.send_replace(timing());
    harness.phase(Phase::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn program_that_cannot_start_any_more_is_no_longer_on_demand() {
    let harness = Harness::program(World::new(), lazy());
    harness.phase(Phase::Idle).await;
    harness.world.dialling.send_replace(Mood::Failing);
    let _waiting = harness.demand.wait();
    let known = harness.phase(Phase::Down).await;
    assert!(known.is_stale() && known.last_error.is_some());
}

#[tokio::test(start_paused = true)]
async fn call_does_not_start_a_program_that_has_just_ended() {
    let world = World::new();
    world.dialling.send_replace(Mood::Failing);
    let harness = Harness::program(world, timing());
    harness.phase(Phase::Down).await;
    sleep(3 * 60 * MINUTE).await;
    let before = harness.dials();
    let _waiting = harness.demand.wait();
    sleep(10 * MINUTE).await;
    let dials = harness.dials() - before;
    assert!((18..=22).contains(&dials), "{dials} in ten minutes");
}
