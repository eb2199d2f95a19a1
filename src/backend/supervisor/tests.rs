//! The life of a connection, in paused time: every reason to refresh, every way to end.

use tokio::time::sleep;

use super::*;
use crate::backend::fake::{FakeDial, Mood, World, program_start, registry};
use crate::backend::registry::Snapshot;
use crate::backend::switch::Switch;

mod programs;
mod switching;

struct Harness {
    world: Arc<World>,
    registry: Arc<Registry>,
    lease: Lease,
    asks: mpsc::Sender<Ask>,
    demand: Demand,
    switch: Switch,
    timing: watch::Sender<Timing>,
    stop: CancellationToken,
    task: tokio::task::JoinSet<()>,
}

fn timing() -> Timing {
    Timing { jitter: 0.1, ..crate::backend::fake::timing() }
}

impl Harness {
    fn start(world: Arc<World>) -> Self {
        Self::with(world, timing(), None)
    }

    /// A supervisor of a program.
    fn program(world: Arc<World>, timing: Timing) -> Self {
        Self::with(world, timing, Some(program_start("fs")))
    }

    fn with(world: Arc<World>, timing: Timing, program: Option<ProgramStart>) -> Self {
        let (registry, leases) = registry(["fs"]);
        let lease = leases.into_iter().next().unwrap();
        Self::on(&registry, lease, world, timing, program)
    }

    /// A supervisor that writes with `lease`.
    fn on(
        registry: &Arc<Registry>,
        lease: Lease,
        world: Arc<World>,
        timing: Timing,
        program: Option<ProgramStart>,
    ) -> Self {
        let registry = Arc::clone(registry);
        let (asks, asked) = mpsc::channel(8);
        let (stop, demand) = (CancellationToken::new(), Demand::default());
        let switch = Switch::default();
        let timing = watch::Sender::new(timing);
        let supervisor = Supervisor {
            breaker: Arc::new(CircuitBreaker::new(lease.name.clone())),
            lease: lease.clone(),
            dial: Arc::new(FakeDial(Arc::clone(&world))),
            first_turn: None,
            program,
            timing: timing.subscribe(),
            registry: Arc::clone(&registry),
            asks: asked,
            demand: demand.clone(),
            switch: switch.reader(),
            redact: LiveRedaction::default(),
        };
        let mut task = tokio::task::JoinSet::new();
        task.spawn(supervisor.run(stop.clone()));
        Self { world, registry, lease, asks, demand, switch, timing, stop, task }
    }

    async fn wait_for(&self, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let found = |registry: &Registry| registry.snapshot("fs").filter(|known| wanted(known));
        self.registry.wait_for(found).await
    }

    async fn phase(&self, phase: Phase) -> Snapshot {
        self.wait_for(|known| known.phase == phase).await
    }

    async fn resolves(&self, count: usize) {
        let enough = |_: &Registry| (World::count(&self.world.resolves) >= count).then_some(());
        self.registry.wait_for(enough).await;
    }

    async fn ask(&self) {
        let (done, wait) = oneshot::channel();
        self.asks.send(done).await.unwrap();
        wait.await.unwrap();
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn supervisor_connects_resolves_and_closes() {
    let harness = Harness::start(World::new());
    let known = harness.phase(Phase::Ready).await;
    assert_eq!(known.catalog.unwrap().tool_count(), 1);
    assert!(harness.registry.offer().route("fs_ls").is_some());
    let world = Arc::clone(&harness.world);
    harness.stop().await;
    assert_eq!(World::count(&world.closes), 1);
}

#[tokio::test(start_paused = true)]
async fn the_timer_refreshes_with_jitter() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    let start = Instant::now();
    harness.resolves(2).await;
    let waited = start.elapsed().as_secs_f64();
    assert!((269.0..=331.0).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_taken_at_once_and_a_flapping_one_is_not() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    let start = Instant::now();
    *harness.world.tools.lock().unwrap() = vec!["ls", "cat"];
    harness.world.changed.notify_one();
    harness.resolves(2).await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(harness.registry.offer().route("fs_cat").is_some());
    harness.world.changed.notify_one();
    harness.resolves(3).await;
    assert!(start.elapsed() >= LIST_CHANGED_GAP);
}

#[tokio::test(start_paused = true)]
async fn an_ask_is_answered_when_the_refresh_has_been_tried() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    *harness.world.tools.lock().unwrap() = vec!["cat"];
    harness.ask().await;
    assert!(harness.registry.offer().route("fs_cat").is_some());
    harness.world.dialling.send_replace(Mood::Failing);
    harness.world.lost.notify_one();
    harness.phase(Phase::Down).await;
    harness.ask().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_refreshes_are_answered_and_the_peer_is_left_alone() {
    for (mood, most) in [(Mood::Failing, 65), (Mood::Refusing, 1)] {
        let world = World::new();
        world.dialling.send_replace(mood);
        let harness = Harness::start(world);
        harness.phase(Phase::Down).await;
        let before = World::count(&harness.world.dials);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(59) {
            harness.ask().await;
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let dials = World::count(&harness.world.dials) - before;
        assert!(dials <= most, "{mood:?}: {dials}");
    }
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        harness.ask().await;
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let resolves = World::count(&harness.world.resolves);
    assert!(resolves <= 12, "connected: {resolves}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_keeps_the_catalog_and_three_redial() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    harness.world.resolving.send_replace(Mood::Failing);
    harness.ask().await;
    let known = harness.phase(Phase::Degraded).await;
    assert!(known.catalog.is_some() && known.is_stale());
    assert_eq!(known.last_error.as_deref(), Some("it fails"));
    harness.phase(Phase::Down).await;
    assert!(World::count(&harness.world.resolves) >= 4);
    assert!(harness.registry.offer().route("fs_ls").is_some(), "the last good catalog stays");
    harness.world.resolving.send_replace(Mood::Well);
    let known = harness.phase(Phase::Ready).await;
    assert_eq!(known.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_dial_and_a_hanging_refresh_end() {
    let world = World::new();
    world.dialling.send_replace(Mood::Hanging);
    let harness = Harness::start(world);
    let known = harness.phase(Phase::Down).await;
    assert!(known.last_error.is_some_and(|error| error.contains("30s")));
    harness.world.dialling.send_replace(Mood::Well);
    harness.phase(Phase::Ready).await;
    harness.world.resolving.send_replace(Mood::Hanging);
    harness.ask().await;
    let known = harness.phase(Phase::Degraded).await;
    assert!(known.last_error.is_some_and(|error| error.contains("30s")));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_anew_and_a_dead_peer_is_not_hammered() {
    let harness = Harness::start(World::new());
    harness.phase(Phase::Ready).await;
    harness.world.lost.notify_one();
    harness.phase(Phase::Down).await;
    harness.phase(Phase::Ready).await;
    assert_eq!(World::count(&harness.world.dials), 2);

    harness.world.dialling.send_replace(Mood::Failing);
    harness.world.lost.notify_one();
    harness.phase(Phase::Down).await;
    let before = World::count(&harness.world.dials);
    sleep(Duration::from_secs(600)).await;
    let attempts = World::count(&harness.world.dials) - before;
    assert!((15..=80).contains(&attempts), "{attempts} attempts in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn refused_credential_is_tried_less_and_less_often() {
    let world = World::new();
    world.dialling.send_replace(Mood::Refusing);
    let harness = Harness::start(world);
    harness.phase(Phase::Down).await;
    sleep(Duration::from_secs(600)).await;
    let dials = World::count(&harness.world.dials);
    assert!((3..=7).contains(&dials), "{dials} in ten minutes");
    harness.world.dialling.send_replace(Mood::Well);
    let begun = Instant::now();
    harness.ask().await;
    assert!(begun.elapsed() < Duration::from_secs(2), "an ask does not wait for the next attempt");
    harness.phase(Phase::Ready).await;
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn call_makes_the_supervisor_dial_and_at_most_once_in_five_seconds() {
    let world = World::new();
    world.dialling.send_replace(Mood::Failing);
    let harness = Harness::start(world);
    harness.phase(Phase::Down).await;
    // Until waits are long.
    sleep(Duration::from_secs(3600)).await;
    let before = World::count(&harness.world.dials);
    let waiting = harness.demand.wait();
    sleep(Duration::from_secs(60)).await;
    let dials = World::count(&harness.world.dials) - before;
    assert!((11..=13).contains(&dials), "{dials} in a minute");
    harness.world.dialling.send_replace(Mood::Well);
    let begun = Instant::now();
    harness.phase(Phase::Ready).await;
    assert!(begun.elapsed() <= Duration::from_secs(5));
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn call_never_uses_a_refused_credential() {
    let world = World::new();
    world.dialling.send_replace(Mood::Refusing);
    let harness = Harness::start(world);
    harness.phase(Phase::Down).await;
    sleep(Duration::from_secs(4 * 3600)).await;
    let before = World::count(&harness.world.dials);
    let _waiting = harness.demand.wait();
    sleep(Duration::from_secs(20 * 60)).await;
    let dials = World::count(&harness.world.dials) - before;
    assert!(dials <= 1, "{dials}");
}

#[tokio::test(start_paused = true)]
async fn ttl_of_a_server_takes_the_place_of_the_timer() {
    struct Row {
        ttl: Option<u64>,
        is_own: bool,
        expected: std::ops::RangeInclusive<u64>,
    }
    let rows = [
        Row { ttl: Some(60), is_own: false, expected: 60..=60 },
        Row { ttl: Some(1), is_own: false, expected: 30..=30 },
        Row { ttl: Some(86_400), is_own: false, expected: 3600..=3600 },
        Row { ttl: Some(0), is_own: false, expected: 269..=331 },
        Row { ttl: None, is_own: false, expected: 269..=331 },
        Row { ttl: Some(60), is_own: true, expected: 269..=331 },
    ];
    for Row { ttl, is_own, expected } in rows {
        let timing = Timing { interval_is_own: is_own, ..timing() };
        let wait = timing.next_refresh(ttl.map(Duration::from_secs)).as_secs();
        assert!(expected.contains(&wait), "{ttl:?}: {wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn peer_that_asks_for_a_pause_is_left_alone_until_it_is_over() {
    let world = World::new();
    let pause = Duration::from_secs(900);
    *world.pausing.lock().unwrap() = Some(Instant::now() + pause);
    world.dialling.send_replace(Mood::Failing);
    let harness = Harness::start(Arc::clone(&world));
    harness.phase(Phase::Down).await;
    sleep(pause - Duration::from_secs(1)).await;
    harness.ask().await;
    assert_eq!(World::count(&world.dials), 1, "an ask does not change that");
    world.dialling.send_replace(Mood::Well);
    harness.phase(Phase::Ready).await;
    assert_eq!(World::count(&world.dials), 2);

    // A connection whose refreshes are put off is kept.
    *world.pausing.lock().unwrap() = Some(Instant::now() + pause);
    world.resolving.send_replace(Mood::Failing);
    for _ in 0..FAILURES_TO_REDIAL + 2 {
        harness.ask().await;
        sleep(ASKED_GAP).await;
    }
    let known = harness.phase(Phase::Degraded).await;
    assert!(known.connection.is_some());
    assert_eq!(World::count(&world.dials), 2);
}
