//! Calls of programs that start, or that run only while something uses them.

use super::*;
use crate::backend::registry::Snapshot;

const IDLE_STOP: Duration = Duration::from_secs(900);

impl Harness {
    async fn phase(&self, phase: Phase) -> Snapshot {
        let found = |registry: &Registry| registry.snapshot("fs").filter(|it| it.phase == phase);
        self.backends.registry.wait_for(found).await
    }

    fn route(&self, name: &str) -> Route {
        self.backends.registry.offer().route(name).expect("it is on offer").clone()
    }
}

/// A program that nothing uses, with the tools that it had when it was read.
async fn idle(world: &Arc<World>) -> Harness {
    let harness = start_program(world, Timing { idle_stop: Some(IDLE_STOP), ..timing() });
    harness.phase(Phase::Idle).await;
    harness
}

#[tokio::test(start_paused = true)]
async fn call_starts_an_idle_program() {
    let world = World::new();
    let harness = idle(&world).await;
    assert_eq!(World::count(&world.dials), 1);
    let made = harness.backends.call(&context(&harness.route("fs_ls"), "{}")).await;
    assert_eq!(made.answer, Answer::text("ls {}".to_owned()));
    assert_eq!(World::count(&world.dials), 2);
}

#[tokio::test(start_paused = true)]
async fn call_waits_for_a_start_until_shortly_before_its_deadline() {
    let world = World::new();
    let harness = idle(&world).await;
    world.dialling.send_replace(Mood::Hanging);
    let begun = Instant::now();
    let made = harness.backends.call(&context(&harness.route("fs_ls"), "{}")).await;
    check_failed(&made, Ending::Unavailable, &["not made"]);
    assert_eq!(begun.elapsed().as_secs(), 275);
    assert_eq!(World::count(&world.calls), 0);
}

#[tokio::test(start_paused = true)]
async fn call_has_its_whole_timeout_after_a_start() {
    let world = World::new();
    let harness = idle(&world).await;
    world.dialling.send_replace(Mood::Hanging);
    world.calling.send_replace(Mood::Hanging);
    let route = harness.route("fs_ls");
    let begun = Instant::now();
    let call = context(&route, "{}");
    let (made, ()) = tokio::join!(harness.backends.call(&call), async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        world.dialling.send_replace(Mood::Well);
    });
    check_failed(&made, Ending::TimedOut, &[OUTCOME_UNKNOWN]);
    assert_eq!(begun.elapsed().as_secs(), 110, "50 s for the start, and the 60 s of the backend");
}

#[tokio::test(start_paused = true)]
async fn call_of_a_program_that_cannot_start_fails_soon_and_is_not_made() {
    let world = World::new();
    let harness = idle(&world).await;
    let route = harness.route("fs_ls");
    world.dialling.send_replace(Mood::Failing);
    let begun = Instant::now();
    let made = harness.backends.call(&context(&route, "{}")).await;
    check_failed(&made, Ending::Unavailable, &["not made"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn call_is_checked_against_the_tools_of_the_program_that_it_started() {
    let world = World::new();
    let harness = idle(&world).await;
    let route = harness.route("fs_ls");
    *world.tools.lock().unwrap() = vec!["other"];
    let made = harness.backends.call(&context(&route, "{}")).await;
    check_failed(&made, Ending::Unavailable, &["does not have this tool"]);

    let world = World::new();
    *world.tools.lock().unwrap() = vec!["typed"];
    let harness = idle(&world).await;
    let mut route = harness.route("fs_typed");
    // As a run has it that was given an earlier definition.
    route.target = Target::Tool { name: "typed".into(), input: None };
    let made = harness.backends.call(&context(&route, r#"{"a":1}"#)).await;
    check_failed(&made, Ending::InputInvalid, &[TOOL_INPUT_INVALID]);
    assert_eq!(World::count(&world.calls), 0);
}

#[tokio::test(start_paused = true)]
async fn program_with_a_call_in_flight_is_never_idle() {
    let world = World::new();
    world.calling.send_replace(Mood::Hanging);
    let harness = start_program(&world, Timing { idle_stop: Some(IDLE_STOP / 10), ..timing() });
    harness.phase(Phase::Ready).await;
    let call = CallContext {
        deadline: Instant::now() + 4 * IDLE_STOP,
        ..context(&harness.route("fs_ls"), "{}")
    };
    let (made, ()) = tokio::join!(harness.backends.call(&call), async {
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            world.getting_on.notify_one();
        }
        world.calling.send_replace(Mood::Well);
    });
    assert_eq!(made.answer, Answer::text("ls {}".to_owned()));
    assert_eq!(World::count(&world.dials), 1);
}
