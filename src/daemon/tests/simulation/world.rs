//! What all parts of the made-up world share: the dice, the clock, the trace, and the moment of
//! death.

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
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::apps::AppState;
use super::disk::Disk;
use super::mantyx::Mantyx;
use super::operator::Rules;
use super::peers::Peers;
use super::troubles::Troubles;
use crate::backend::peer::Dial;
use crate::budget::Budget;
use crate::journal::Server;
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
    pub(super) fn from_seed(seed: u64) -> Self {
        Self { seed, faults: usize::MAX, acts: usize::MAX, lives: usize::MAX }
    }
}

/// The made-up world.
pub(super) struct World {
    state: Mutex<State>,
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
    /// The processes: one, or the replicas.
    pub(super) processes: Vec<Process>,
    /// The process whose task runs now. `None`: a part of the world runs.
    pub(super) at: Option<usize>,
    pub(super) trace: Vec<String>,
    begun: Option<Instant>,
    /// The time that had passed when the clock of the tasks that run now began.
    passed: Duration,
    /// The boot of the machine, and when it began.
    boot: (u64, Duration),
    /// What the wall clock is wrong by, in milliseconds.
    wall_off: i64,
    pub(super) broken: Vec<String>,
    pub(super) mantyx: Mantyx,
    pub(super) peers: Peers,
    pub(super) disk: Disk,
    pub(super) rules: Rules,
    pub(super) apps: Vec<AppState>,
    /// The database of the replicas, and what goes wrong with it.
    pub(super) server: Option<Arc<Server>>,
    pub(super) troubles: Troubles,
    /// Where the tasks of the world run, if each process has a runtime of its own.
    pub(super) runtime: Option<Handle>,
}

/// The process that has sent a request.
pub(super) struct Sender {
    at: usize,
    dead: CancellationToken,
}

impl Sender {
    /// Stops what belongs to the process if that is dead.
    pub(super) async fn if_alive(&self) {
        if self.dead.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn is_cut(&self, world: &World) -> bool {
        let state = world.state();
        state.now() < state.processes[self.at].cut_from_mantyx
    }
}

/// A process of the daemon.
#[derive(Default)]
pub(super) struct Process {
    /// It has died: it has no effect any more.
    dead: CancellationToken,
    /// It has come to its end; only its journal is still written.
    exited: bool,
    /// It was asked to stop.
    is_stopping: bool,
    /// It dies after this step.
    dies_at: Option<usize>,
    /// It may also die of a fault.
    may_die: bool,
    connections: Option<mpsc::Receiver<DuplexStream>>,
    doors: Option<mpsc::Sender<DuplexStream>>,
    /// Its room for bodies.
    pub(super) budget: Option<Arc<Budget>>,
    /// The runs that it drives, with their apps.
    pub(super) drivers: BTreeSet<(String, String)>,
    /// The runs that it has refused to their apps.
    pub(super) refused: BTreeSet<String>,
    /// Its journal's writer has work.
    disk_work: Arc<Notify>,
    /// It is to freeze for so long, from this moment on.
    pub(super) freezes: Option<Duration>,
    pub(super) interrupt: Arc<Notify>,
    /// Until when it reaches neither the database nor MANTYX.
    pub(super) cut_from_database: Duration,
    pub(super) cut_from_mantyx: Duration,
}

impl State {
    pub(super) fn now(&self) -> Duration {
        self.passed + self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Adds a step to the trace. The process may die of it.
    pub(super) fn step(&mut self, what: impl AsRef<str>) {
        self.note(what);
        let at = self.now();
        let steps = self.trace.len();
        let Some(process) = self.at.map(|at| &mut self.processes[at]) else { return };
        if process.dies_at.is_some_and(|step| steps >= step) && !process.dead.is_cancelled() {
            process.dies_at = None;
            process.dead.cancel();
            self.trace.push(format!("{:>9.3} {}KILLED", at.as_secs_f64(), self.mark()));
        }
    }

    /// Tells the replicas apart.
    fn mark(&self) -> String {
        match self.at {
            Some(at) if self.are_replicas() => format!("[{at}] "),
            _ => String::new(),
        }
    }

    pub(super) fn are_replicas(&self) -> bool {
        self.processes.len() > 1
    }

    /// Adds a line to the trace that is no step.
    pub(super) fn note(&mut self, what: impl AsRef<str>) {
        let at = self.now();
        self.trace.push(format!("{:>9.3} {}{}", at.as_secs_f64(), self.mark(), what.as_ref()));
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

    /// Notes that the process `at` was asked to stop.
    pub(super) fn stops(&mut self, at: usize) {
        self.step(format!("process {at}: SIGTERM"));
        self.processes[at].is_stopping = true;
    }

    /// Whether the process whose task runs now was asked to stop, or is dead.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_dead() || self.at.is_some_and(|at| self.processes[at].is_stopping)
    }

    /// Whether the process dies at this moment: the next step is its last.
    pub(super) fn may_die(&mut self, in_thousand: usize) {
        let Some(at) = self.at else { return };
        if self.processes[at].may_die && self.fault(in_thousand) {
            self.processes[at].dies_at = Some(0);
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

    fn process(&self) -> Option<&Process> {
        self.at.map(|at| &self.processes[at])
    }

    /// The process whose task runs now.
    pub(super) fn sender(&self) -> Sender {
        let at = self.at.expect("a process sends");
        Sender { at, dead: self.death(at) }
    }

    pub(super) fn is_cut_from_mantyx(&self) -> bool {
        self.process().is_some_and(|process| self.now() < process.cut_from_mantyx)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.process().is_some_and(|process| process.dead.is_cancelled())
    }

    pub(super) fn disk_is_dead(&self) -> bool {
        self.process().is_some_and(|process| process.dead.is_cancelled() && !process.exited)
    }

    /// The process `at` ends by itself.
    pub(super) fn exit(&mut self, at: usize) {
        let process = &mut self.processes[at];
        process.exited = true;
        process.may_die = false;
        process.dies_at = None;
        process.dead.cancel();
    }

    /// The death of the process `at`.
    pub(super) fn death(&self, at: usize) -> CancellationToken {
        self.processes[at].dead.clone()
    }

    /// A door to the process `at`, and what ends what goes through it.
    pub(super) fn door(
        &self,
        at: usize,
    ) -> Option<(mpsc::Sender<DuplexStream>, CancellationToken)> {
        let process = &self.processes[at];
        Some((process.doors.clone()?, process.dead.clone()))
    }

    /// A new life of the process `at` begins.
    pub(super) fn begin(&mut self, at: usize, dies_at: Option<usize>, may_die: bool) {
        if self.boot.1 == self.passed || self.are_replicas() {
            // Over a reboot, a clock that was set forward would make answers too old to be posted.
            // The clocks of replicas are kept in step.
            if !self.are_replicas() {
                self.set_clock(-7_200_000..1);
            }
        } else {
            self.set_clock(-7_200_000..7_200_000);
        }
        let (doors, connections) = mpsc::channel(64);
        self.processes[at] = Process {
            may_die,
            dies_at: dies_at.map(|after| self.trace.len() + after),
            budget: Some(Budget::with_room(ROOM)),
            doors: Some(doors),
            connections: Some(connections),
            ..Process::default()
        };
    }

    /// Sets the clock of the tasks that run now, which began when `passed` had passed; `None`: it
    /// stands still at that.
    pub(super) fn set_time(&mut self, passed: Duration, begun: Option<Instant>) {
        (self.passed, self.begun) = (passed, begun);
    }

    /// The life of the process `at` has ended.
    pub(super) fn end(&mut self, at: usize) {
        let process = &mut self.processes[at];
        process.dead.cancel();
        process.doors = None;
        process.connections = None;
        process.drivers.clear();
        self.forget_refused(at);
    }
}

impl World {
    /// A world of so many processes.
    pub(super) fn new(plan: Plan, processes: usize) -> Arc<Self> {
        let state = State {
            rng: StdRng::seed_from_u64(plan.seed),
            plan,
            faults: 0,
            acts: 0,
            calm: false,
            processes: (0..processes).map(|_| Process::default()).collect(),
            at: (processes == 1).then_some(0),
            trace: Vec::new(),
            begun: None,
            passed: Duration::ZERO,
            boot: (1, Duration::ZERO),
            wall_off: 0,
            broken: Vec::new(),
            mantyx: Mantyx::default(),
            peers: Peers::default(),
            disk: Disk::new(plan.seed),
            rules: Rules::default(),
            apps: AppState::all(),
            server: None,
            troubles: Troubles::default(),
            runtime: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
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
        let mut state = self.state();
        let at = state.at.expect("a process listens");
        state.processes[at].connections.take().expect("a life has one listener")
    }

    fn dial(self: Arc<Self>, backend: &BackendName) -> Arc<dyn Dial> {
        super::peers::dial(self, backend.as_str())
    }

    fn budget(&self) -> Arc<Budget> {
        let state = self.state();
        Arc::clone(state.process().and_then(|it| it.budget.as_ref()).expect("a process asks"))
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
        let (work, are_replicas) = {
            let state = self.state();
            let process = state.process().expect("a process writes");
            (Arc::clone(&process.disk_work), state.are_replicas())
        };
        async move {
            work.notified().await;
            if are_replicas {
                return self.pause(Duration::from_millis(10)).await;
            }
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
        self.state().process().expect("a process writes").disk_work.notify_one();
    }

    fn database(&self) -> Arc<Server> {
        Arc::clone(self.state().server.as_ref().expect("replicas have one"))
    }
}

impl simulated::Disk for World {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.state().disk_write(file, bytes, offset)
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.state().disk_allocate(file, bytes)
    }

    fn set_len(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.state().disk_set_len(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.state().disk_sync(file)
    }
}
