//! What all parts of the made-up world share: the dice, the clock, the trace, and the moment of death.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::apps::AppState;
use super::disk::Disk;
use super::mantyx::Mantyx;
use super::operator::Rules;
use super::peers::Peers;
use crate::backend::peer::Dial;
use crate::budget::Budget;
use crate::model::ids::BackendName;
use crate::model::moment::{Moment, Uptime};
use crate::simulated;
use crate::simulated::File;

/// The room for bodies that are larger than small ones: for two large results.
const ROOM: usize = 512 << 10;

/// What a seed may do. Less of it is tried when a failure is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon::tests) struct Plan {
    pub(super) seed: u64,
    /// The most faults.
    pub(super) faults: usize,
    /// The most acts of apps and of the operator.
    pub(super) acts: usize,
    /// How often the process may begin.
    pub(super) lives: usize,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        Self { seed, faults: usize::MAX, acts: usize::MAX, lives: usize::MAX }
    }
}

/// The made-up world.
pub(super) struct World {
    state: Mutex<State>,
    /// The journal's writer has work.
    pub(super) disk_work: Notify,
    /// MANTYX has news.
    pub(super) news: Notify,
    /// bridge.yaml has changed.
    pub(super) file_changed: Arc<Notify>,
}

pub(super) struct State {
    pub(super) rng: StdRng,
    plan: Plan,
    pub(super) faults: usize,
    pub(super) acts: usize,
    /// No more faults and no more acts: what has begun comes to its end.
    pub(super) calm: bool,
    /// The process has died: it has no effect any more.
    dead: CancellationToken,
    /// The process has come to its end; only its journal is still written.
    exited: bool,
    /// The process dies after this step.
    dies_at: Option<usize>,
    /// It may also die of a fault.
    may_die: bool,
    pub(super) trace: Vec<String>,
    begun: Option<Instant>,
    /// The time that has passed in earlier lives.
    passed: Duration,
    /// The boot of the machine, and when it began.
    boot: (u64, Duration),
    /// What the wall clock is wrong by, in milliseconds.
    wall_off: i64,
    connections: Option<mpsc::Receiver<DuplexStream>>,
    pub(super) doors: Option<mpsc::Sender<DuplexStream>>,
    pub(super) broken: Vec<String>,
    pub(super) mantyx: Mantyx,
    pub(super) peers: Peers,
    pub(super) disk: Disk,
    pub(super) rules: Rules,
    pub(super) apps: Vec<AppState>,
    /// The process's room for bodies.
    pub(super) budget: Arc<Budget>,
    /// The runs that are being driven, with their apps.
    pub(super) drivers: BTreeSet<(String, String)>,
}

impl State {
    pub(super) fn now(&self) -> Duration {
        self.passed + self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Adds a step to the trace. The process may die of it.
    pub(super) fn step(&mut self, what: impl AsRef<str>) {
        self.note(what);
        let at = self.now();
        if self.dies_at.is_some_and(|step| self.trace.len() >= step) && !self.dead.is_cancelled() {
            self.dies_at = None;
            self.trace.push(format!("{:>9.3} KILLED", at.as_secs_f64()));
            self.dead.cancel();
        }
    }

    /// Adds a line to the trace that is no step.
    pub(super) fn note(&mut self, what: impl AsRef<str>) {
        let at = self.now();
        self.trace.push(format!("{:>9.3} {}", at.as_secs_f64(), what.as_ref()));
    }

    /// A law is broken.
    pub(super) fn breaks(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.step(format!("BROKEN: {what}"));
        self.broken.push(what);
    }

    pub(super) fn below(&mut self, top: usize) -> usize {
        self.rng.random_range(0..top)
    }

    /// Whether something happens that happens in so many of a thousand cases.
    pub(super) fn chance(&mut self, in_thousand: usize) -> bool {
        self.below(1000) < in_thousand
    }

    /// Whether a fault happens. None does once the world is calm.
    pub(super) fn fault(&mut self, in_thousand: usize) -> bool {
        let happens = self.chance(in_thousand) && !self.calm && self.faults < self.plan.faults;
        self.faults += usize::from(happens);
        happens
    }

    /// Whether the process dies at this moment: the next step is its last.
    pub(super) fn may_die(&mut self, in_thousand: usize) {
        if self.may_die && self.fault(in_thousand) {
            self.dies_at = Some(0);
        }
    }

    /// Whether there may be another act.
    pub(super) fn act(&mut self) -> bool {
        let may = !self.calm && self.acts < self.plan.acts;
        self.acts += usize::from(may);
        may
    }

    /// A time of at most `most`; short ones are as frequent as long ones.
    pub(super) fn wait(&mut self, most: Duration) -> Duration {
        let top = most.as_micros().max(2) as f64;
        let share: f64 = self.rng.random();
        Duration::from_micros(top.powf(share) as u64)
    }

    /// The wall clock may be set to another time.
    pub(super) fn set_clock(&mut self, by: Range<i64>) {
        if self.fault(200) {
            let by = self.rng.random_range(by);
            self.wall_off += by;
            self.note(format!("the wall clock is set by {by} ms"));
        }
    }

    /// The machine has started again.
    pub(super) fn reboot(&mut self) {
        self.boot = (self.boot.0 + 1, self.now());
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    pub(super) fn disk_is_dead(&self) -> bool {
        self.is_dead() && !self.exited
    }

    /// The process ends by itself.
    pub(super) fn exit(&mut self) {
        self.exited = true;
        self.may_die = false;
        self.dies_at = None;
        self.dead.cancel();
    }

    pub(super) fn death(&self) -> CancellationToken {
        self.dead.clone()
    }

    /// A new life begins.
    pub(super) fn begin(&mut self, dies_at: Option<usize>, may_die: bool) {
        self.may_die = may_die;
        self.budget = Budget::with_room(ROOM);
        if self.boot.1 == self.passed {
            // Over a reboot, a clock that was set forward would make answers too old to be posted.
            self.set_clock(-7_200_000..1);
        } else {
            self.set_clock(-7_200_000..7_200_000);
        }
        self.dead = CancellationToken::new();
        self.exited = false;
        self.dies_at = dies_at.map(|after| self.trace.len() + after);
        self.begun = Some(Instant::now());
        let (doors, connections) = mpsc::channel(64);
        self.doors = Some(doors);
        self.connections = Some(connections);
    }

    /// The life has ended.
    pub(super) fn end(&mut self) {
        self.dead.cancel();
        self.passed = self.now();
        self.begun = None;
        self.doors = None;
        self.connections = None;
    }
}

impl World {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        let state = State {
            rng: StdRng::seed_from_u64(plan.seed),
            plan,
            faults: 0,
            acts: 0,
            calm: false,
            dead: CancellationToken::new(),
            exited: false,
            dies_at: None,
            may_die: false,
            trace: Vec::new(),
            begun: None,
            passed: Duration::ZERO,
            boot: (1, Duration::ZERO),
            wall_off: 0,
            connections: None,
            doors: None,
            broken: Vec::new(),
            mantyx: Mantyx::default(),
            peers: Peers::default(),
            disk: Disk::default(),
            rules: Rules::default(),
            apps: AppState::all(),
            budget: Budget::with_room(ROOM),
            drivers: BTreeSet::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            disk_work: Notify::new(),
            news: Notify::new(),
            file_changed: Arc::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn step(&self, what: impl AsRef<str>) {
        self.state().step(what);
    }

    /// Waits for at most `most`.
    pub(super) async fn pause(&self, most: Duration) {
        let wait = self.state().wait(most);
        sleep(wait).await;
    }

    /// Stops what belongs to the process if that is dead.
    pub(super) async fn if_alive(&self) {
        if self.state().is_dead() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn tell(&self) {
        // No `watch`: that wakes those who wait in an order of its own.
        self.news.notify_waiters();
    }
}

impl simulated::World for World {
    fn exchange(
        self: Arc<Self>,
        request: reqwest::Request,
    ) -> BoxFuture<'static, reqwest::Result<reqwest::Response>> {
        super::mantyx::exchange(self, request).boxed()
    }

    fn connections(&self) -> mpsc::Receiver<DuplexStream> {
        self.state().connections.take().expect("a life has one listener")
    }

    fn dial(self: Arc<Self>, backend: &BackendName) -> Arc<dyn Dial> {
        super::peers::dial(self, backend.as_str())
    }

    fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.state().budget)
    }

    fn random(&self) -> u64 {
        self.state().rng.random()
    }

    fn moment(&self) -> Moment {
        /// 2026-11-01.
        const BEGIN: u64 = 1_793_491_200_000;
        let state = self.state();
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("not that long");
        let (boot, since) = state.boot;
        let wall = BEGIN + millis(state.now());
        Moment {
            wall: wall.saturating_add_signed(state.wall_off),
            up: Some(Uptime(boot, millis(state.now() - since))),
        }
    }

    fn disk_turns(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move {
            self.disk_work.notified().await;
            let (wait, changes) = {
                let mut state = self.state();
                let wait = state.disk_wait();
                // Rights may go while a call waits for the disk.
                let is_long = wait > Duration::from_secs(1);
                (wait, is_long && state.chance(700) && state.act() && state.change_rules())
            };
            if changes {
                self.file_changed.notify_one();
            }
            sleep(wait).await;
            if self.state().disk_is_dead() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn disk_has_work(&self) {
        self.disk_work.notify_one();
    }

    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.state().disk_write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.state().disk_sync(file)
    }
}
