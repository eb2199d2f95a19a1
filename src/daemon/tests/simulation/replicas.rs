//! Two daemons that share a database. Each has a runtime, and so a clock and tasks of its own, on
//! the one thread of the simulation: a replica that is frozen is one whose runtime does not run.
//! The world has a third one, which never stops. They take turns of a few milliseconds, in an order
//! that the seed says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

#[cfg(tokio_unstable)]
use rand::Rng as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, advance, sleep, sleep_until};

use super::life::END_WITHIN;
use super::tape::Tape;
use super::world::{Plan, State, World};
use super::{Outcome, apps, mantyx, operator, peers};
use crate::config::{ConfigFile, Environment};
use crate::daemon::{Daemon, Options};
use crate::journal::{Chance, Fate, Server};
use crate::simulated;

const REPLICAS: usize = 2;
/// The longest turn while a daemon works, and while none does.
const TURN: Duration = Duration::from_millis(20);
const QUIET_TURN: Duration = Duration::from_millis(128);
/// How long a process that has ended still writes its journal.
const LAST_WRITES: Duration = Duration::from_secs(20);
/// How long a replica may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(120);

/// A process.
struct Replica {
    runtime: Runtime,
    /// When it began, by the clock of the world and by its own.
    base: Duration,
    begun: Instant,
    daemon: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    phase: Phase,
    frozen_until: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Works,
    Stops {
        since: Duration,
    },
    /// It has ended, but for the last writes of its journal.
    Writes {
        until: Duration,
    },
}

/// A place for a process.
enum Place {
    Taken(Replica),
    /// Nothing runs there before this time.
    Free(Duration),
}

struct Group {
    world: Arc<World>,
    server: Arc<Server>,
    outside: Runtime,
    begun: Instant,
    places: Vec<Place>,
    now: Duration,
    turn: Duration,
    /// How often tasks of the daemons have been polled.
    polls: Arc<AtomicU64>,
    lives: usize,
    next_fault: Duration,
    database_starts: Option<Duration>,
}

fn runtime(world: &World, polls: &Arc<AtomicU64>) -> Runtime {
    let mut builder = Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    {
        let seed = world.state().rng.random::<[u8; 8]>();
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed));
        let polls = Arc::clone(polls);
        builder.on_before_task_poll(move |_| {
            polls.fetch_add(1, Ordering::Relaxed);
        });
    }
    builder.enable_all().start_paused(true).build().expect("a runtime can be built")
}

/// Lives through a plan with two replicas.
pub(super) fn live_together(plan: Plan) -> Outcome {
    let dir = tempfile::Builder::new().tempdir_in("/dev/shm").expect("memory has room");
    let world = World::new(plan, REPLICAS);
    world.state().rules.dir = dir.path().to_owned();
    let _tape = tracing::subscriber::set_default(Tape(Arc::clone(&world)));
    simulated::set_world(Some(Arc::clone(&world) as Arc<dyn simulated::World>));
    let mut group = Group::new(&world);
    group.live();
    let lives = group.lives;
    group.end();
    simulated::set_world(None);
    let mut state = world.state();
    (state.server, state.runtime) = (None, None);
    state.judge();
    Outcome {
        broken: std::mem::take(&mut state.broken),
        trace: std::mem::take(&mut state.trace),
        faults: state.faults,
        acts: state.acts,
        lives,
        calls: state.mantyx.runs.values().map(|run| run.calls.len()).sum(),
        effects: state.peers.jobs.values().map(|job| job.effects).sum(),
    }
}

impl Group {
    fn new(world: &Arc<World>) -> Self {
        let outside = runtime(world, &Arc::default());
        let begun = outside.block_on(async { Instant::now() });
        let chance = Arc::clone(world) as Arc<dyn Chance>;
        let server = Server::new(chance, outside.handle().clone());
        let mut state = world.state();
        // The operator's secret is there before the first replica is.
        (0..REPLICAS).for_each(|at| drop(state.rules.write_replica(at, "5s")));
        state.server = Some(Arc::clone(&server));
        state.runtime = Some(outside.handle().clone());
        let mut later = || Place::Free(Duration::from_millis(state.below(3_000) as u64));
        let places = vec![later(), later()];
        // What the law of cancellations asks for can be seen where replicas do not come and go.
        let next_fault = match state.chance(250) {
            true => Duration::MAX,
            false => Duration::from_millis(state.below(40_000) as u64),
        };
        drop(state);
        Self {
            world: Arc::clone(world),
            server,
            outside,
            begun,
            places,
            now: Duration::ZERO,
            turn: TURN,
            polls: Arc::default(),
            lives: 0,
            next_fault,
            database_starts: None,
        }
    }

    /// Lets time pass until all is done, or a law is broken.
    fn live(&mut self) {
        let world = Arc::clone(&self.world);
        let (ending, ended) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let outside = self.outside.handle().clone();
        tasks.spawn_on(peers::work(Arc::clone(&world), ended), &outside);
        tasks.spawn_on(operator::operate(Arc::clone(&world)), &outside);
        tasks.spawn_on(mantyx::play_all(Arc::clone(&world)), &outside);
        let apps = [0, 1].map(|app| {
            let living = apps::live(Arc::clone(&world), app);
            tasks.spawn_on(living, &outside)
        });
        let calm_at = Duration::from_millis(20_000 + world.state().below(160_000) as u64);
        let mut looking: Option<JoinHandle<()>> = None;
        loop {
            self.pass();
            let is_calm = {
                let mut state = world.state();
                if !state.broken.is_empty() {
                    break;
                }
                if self.now >= calm_at && !state.calm {
                    state.become_calm();
                }
                state.calm
            };
            self.manage();
            match &looking {
                Some(looking) if looking.is_finished() => break,
                Some(_) => {}
                None if !is_calm => {}
                None => {
                    let state = world.state();
                    let is_done = state.is_done() && state.drivers().next().is_none();
                    let is_late = self.now > calm_at + END_WITHIN;
                    drop(state);
                    if is_late {
                        let what = world.state().is_undone();
                        let what = format!("not at its end after {END_WITHIN:?}: {what}");
                        world.state().breaks(what);
                        break;
                    }
                    if is_done && apps.iter().all(|app| app.is_finished()) {
                        let world = Arc::clone(&world);
                        looking = Some(outside.spawn(async move {
                            // The last writes, and another heartbeat.
                            sleep(Duration::from_secs(30)).await;
                            for at in 0..REPLICAS {
                                apps::look_at_the_end(&world, at).await;
                                apps::look_at_readiness(&world, at).await;
                            }
                        }));
                    }
                }
            }
        }
        drop(ending);
        drop(tasks);
    }

    /// Lets a turn pass for the world and for each replica.
    fn pass(&mut self) {
        let first = {
            let mut state = self.world.state();
            let is_quiet = self.polls.swap(0, Ordering::Relaxed) == 0;
            self.turn = match is_quiet {
                true => (self.turn * 2).min(QUIET_TURN),
                false => Duration::from_millis(state.wait(TURN).as_millis() as u64 + 1),
            };
            state.below(REPLICAS)
        };
        let target = self.now + self.turn;
        for at in [first, 1 - first] {
            self.pass_at(at, target);
        }
        let world = Arc::clone(&self.world);
        world.state().set_time(Duration::ZERO, Some(self.begun));
        self.outside.block_on(async { sleep_until(self.begun + target).await });
        world.state().set_time(target, None);
        self.now = target;
    }

    fn pass_at(&mut self, at: usize, target: Duration) {
        let Place::Taken(replica) = &mut self.places[at] else { return };
        if replica.frozen_until.is_some() {
            return;
        }
        let (death, interrupt) = {
            let mut state = self.world.state();
            state.at = Some(at);
            state.set_time(replica.base, Some(replica.begun));
            (state.death(at), Arc::clone(&state.processes[at].interrupt))
        };
        let lives = !matches!(replica.phase, Phase::Writes { .. });
        replica.runtime.block_on(async {
            tokio::select! {
                biased;
                () = death.cancelled(), if lives => {}
                () = interrupt.notified() => {}
                () = sleep_until(replica.begun + (target - replica.base)) => {}
            }
        });
        let mut state = self.world.state();
        state.at = None;
        state.set_time(self.now, None);
    }

    /// Begins, ends, kills, freezes, and lets other things go wrong.
    fn manage(&mut self) {
        if self.database_starts.is_some_and(|at| self.now >= at || self.world.state().calm) {
            self.database_starts = None;
            self.server.start();
            self.world.step("database: runs again");
        }
        for at in 0..REPLICAS {
            self.manage_at(at);
        }
        let is_time = self.now >= self.next_fault && !self.world.state().calm;
        if is_time {
            let wait = self.world.state().below(50_000) as u64;
            self.next_fault = self.now + Duration::from_millis(wait);
            self.go_wrong();
        }
    }

    fn manage_at(&mut self, at: usize) {
        let now = self.now;
        let Place::Taken(replica) = &mut self.places[at] else {
            if matches!(self.places[at], Place::Free(until) if now >= until) {
                self.begin(at);
            }
            return;
        };
        let mut state = self.world.state();
        let calm = state.calm;
        if calm {
            let process = &mut state.processes[at];
            (process.cut_from_database, process.cut_from_mantyx) = (now, now);
        }
        if let Some(wait) = state.processes[at].freezes.take() {
            state.step(format!("replica {at}: freezes for {wait:?}"));
            state.troubles.of_replicas.push((now, now + wait));
            replica.frozen_until = Some(now + wait);
        }
        let is_dead = state.death(at).is_cancelled();
        drop(state);
        if replica.frozen_until.is_some_and(|until| now >= until || calm) {
            replica.thaw(at, &self.world, now);
        }
        match replica.phase {
            Phase::Writes { until } if now >= until => self.leave(at),
            Phase::Writes { .. } => {}
            _ if is_dead => self.leave(at),
            Phase::Works if replica.daemon.is_finished() => {
                self.world.state().breaks(format!("the replica {at} has ended by itself"));
            }
            Phase::Works => {}
            Phase::Stops { .. } if replica.daemon.is_finished() => {
                replica.phase = Phase::Writes { until: now + LAST_WRITES };
                self.world.state().exit(at);
            }
            Phase::Stops { since }
                if now > since + STOP_WITHIN && replica.frozen_until.is_none() =>
            {
                self.world.state().breaks(format!("the replica {at} does not stop"));
            }
            Phase::Stops { .. } => {}
        }
    }

    /// A process begins.
    fn begin(&mut self, at: usize) {
        self.lives += 1;
        let world = Arc::clone(&self.world);
        let path = {
            let mut state = world.state();
            let dies_at = 5 + state.below(800);
            let dies = state.fault(300).then_some(dies_at);
            let may_die = !state.calm;
            state.begin(at, dies, may_die);
            state.step(format!("LIFE of the replica {at}"));
            // With a long one, a replica that was frozen may hear of a write of before that.
            let timeout = if state.chance(500) { "5s" } else { "60s" };
            state.rules.write_replica(at, timeout)
        };
        let runtime = runtime(&world, &self.polls);
        let (stop, stopping) = oneshot::channel::<()>();
        let begun = runtime.block_on(async { Instant::now() });
        let daemon = runtime.spawn(async move {
            let (config, _) =
                ConfigFile::load(path, Environment::bare()).expect("the file is right");
            let daemon = match Daemon::build(config, Options::default()).await {
                Ok(daemon) => daemon,
                Err(error) => {
                    return world.state().breaks(format!("the daemon does not start: {error:?}"));
                }
            };
            let stopping = async {
                if stopping.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let ended = daemon.run(stopping, std::future::pending()).await;
            if ended.is_err() {
                world.state().breaks(format!("the daemon ended with {ended:?}"));
            }
        });
        self.places[at] = Place::Taken(Replica {
            runtime,
            base: self.now,
            begun,
            daemon,
            stop: Some(stop),
            phase: Phase::Works,
            frozen_until: None,
        });
    }

    /// The process is gone.
    fn leave(&mut self, at: usize) {
        let again = {
            let mut state = self.world.state();
            let most = if state.calm { 2 } else { 30_000 };
            self.now + Duration::from_millis(state.below(most) as u64)
        };
        let Place::Taken(replica) = std::mem::replace(&mut self.places[at], Place::Free(again))
        else {
            return;
        };
        let was_killed = !matches!(replica.phase, Phase::Writes { .. });
        self.drop_replica(at, replica);
        let mut state = self.world.state();
        state.jobs_after_death(at);
        if was_killed {
            state.troubles.of_replicas.push((self.now, again + Duration::from_secs(15)));
            state.doubt_new_runs();
        }
        state.sleep(|_, run| run.app == 1);
        // What it began while its writes hung was in its memory alone.
        state.forget_unknown(&self.server);
    }

    /// Drops what the process was, with it as the one that runs.
    fn drop_replica(&self, at: usize, replica: Replica) {
        {
            let mut state = self.world.state();
            state.end(at);
            state.at = Some(at);
        }
        drop(replica);
        self.world.state().at = None;
    }

    /// One thing goes wrong.
    fn go_wrong(&mut self) {
        let (which, at, wait) = {
            let mut state = self.world.state();
            if !state.fault(1000) {
                return;
            }
            (state.below(100), state.below(REPLICAS), state.wait(Duration::from_secs(60)))
        };
        let now = self.now;
        let mut state = self.world.state();
        match (which, &mut self.places[at]) {
            (0..25, Place::Taken(replica)) if replica.frozen_until.is_none() => {
                state.processes[at].freezes = Some(wait);
            }
            (25..40, Place::Taken(replica)) if !matches!(replica.phase, Phase::Writes { .. }) => {
                state.step(format!("replica {at}: is killed"));
                state.death(at).cancel();
            }
            (40..52, Place::Taken(replica)) if replica.phase == Phase::Works => {
                state.stops(at);
                replica.phase = Phase::Stops { since: now };
                if let Some(stop) = replica.stop.take() {
                    stop.send(()).ok();
                }
            }
            (52..64, Place::Taken(_)) => state.cut_from_database(at, wait),
            (64..74, Place::Taken(_)) => {
                state.step(format!("replica {at}: is cut off from MANTYX for {wait:?}"));
                state.processes[at].cut_from_mantyx = now + wait;
                state.troubles.of_replicas.push((now, now + wait));
            }
            (74..84, _) => {
                let wait = wait / 3;
                state.step(format!("database: stalls for {wait:?}"));
                state.troubles.of_database.push((now, now + wait));
                self.server.stall(self.begun + now + wait);
            }
            (84..92, _) => {
                let wait = wait / 2;
                state.step(format!("database: is down for {wait:?}"));
                state.troubles.of_database.push((now, now + wait));
                drop(state);
                self.server.stop();
                self.database_starts = Some(now + wait);
            }
            (92.., _) => {
                state.step("database: cuts its connections");
                drop(state);
                self.server.cut();
            }
            _ => {}
        }
    }

    fn end(mut self) {
        for at in 0..REPLICAS {
            if let Place::Taken(replica) =
                std::mem::replace(&mut self.places[at], Place::Free(Duration::MAX))
            {
                self.drop_replica(at, replica);
            }
        }
    }
}

impl State {
    /// The replica `at` does not reach the database for a while.
    pub(super) fn cut_from_database(&mut self, at: usize, wait: Duration) {
        let now = self.now();
        self.step(format!("replica {at}: is cut off from the database for {wait:?}"));
        self.processes[at].cut_from_database = now + wait;
        self.troubles.of_replicas.push((now, now + wait));
    }
}

impl Replica {
    /// It goes on: all of its timers are late.
    fn thaw(&mut self, at: usize, world: &World, now: Duration) {
        self.frozen_until = None;
        {
            let mut state = world.state();
            state.step(format!("replica {at}: goes on"));
            state.at = Some(at);
            state.set_time(self.base, Some(self.begun));
        }
        let (begun, base) = (self.begun, self.base);
        self.runtime.block_on(async {
            let late = (begun + (now - base)).saturating_duration_since(Instant::now());
            advance(late).await;
        });
        let mut state = world.state();
        state.at = None;
        state.set_time(now, None);
    }
}

impl World {
    /// The process may freeze at this moment.
    pub(super) async fn may_freeze(&self) {
        let freezes = {
            let mut state = self.state();
            let at = state.at.filter(|_| state.are_replicas());
            at.filter(|_| state.fault(8)).map(|at| {
                let wait = state.wait(Duration::from_secs(60));
                state.processes[at].freezes = Some(wait);
                state.processes[at].interrupt.notify_one();
            })
        };
        if freezes.is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Chance for World {
    fn process(&self) -> usize {
        self.state().at.expect("a process connects")
    }

    fn fate(&self, of: usize, statement: &'static str) -> Fate {
        let is_reached = self.is_reached(of);
        let mut state = self.state();
        if statement == "fence" {
            // The runs that it takes over wait for the credential of their app.
            state.sleep(|_, run| run.app == 1);
        }
        let mut fate = Fate {
            is_lost: !is_reached || state.fault(1),
            before: state.wait(Duration::from_millis(3)),
            after: state.wait(Duration::from_millis(3)),
            ..Fate::default()
        };
        fate.unhappy(&mut state);
        if state.fault(3) {
            // The machine hangs while the statement is on its way: those who wait for it are late.
            let wait = state.wait(Duration::from_secs(60));
            state.processes[of].freezes = Some(wait);
            state.processes[of].interrupt.notify_one();
        }
        if fate.is_lost {
            state.step(format!("database: {statement} of {of} does not arrive"));
        }
        fate
    }

    fn is_reached(&self, of: usize) -> bool {
        let state = self.state();
        state.now() >= state.processes[of].cut_from_database
    }

    fn step(&self, what: String) {
        self.state().step(what);
    }

    fn now(&self) -> SystemTime {
        crate::clock::time(simulated::World::moment(self).wall)
    }
}

impl Fate {
    fn unhappy(&mut self, state: &mut State) {
        let most = Duration::from_secs(20);
        if state.fault(3) {
            self.planning = state.wait(most);
        }
        if state.fault(6) {
            self.working = state.wait(most);
        }
        if state.fault(3) {
            self.after = state.wait(most);
        }
        self.aborts = state.fault(2);
        self.is_unheard = state.fault(2);
    }
}
