//! The lives of a daemon: it begins, works, and stops or is killed, and begins again with what its
//! disk has kept.

use std::sync::Arc;
use std::time::Duration;

#[cfg(tokio_unstable)]
use rand::Rng as _;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::tape::Tape;
use super::world::{Plan, World};
use super::{Outcome, apps, mantyx, operator, peers};
use crate::config::{ConfigFile, Environment};
use crate::daemon::reload::Reload;
use crate::daemon::{Daemon, Options};
use crate::simulated;
use crate::watch::Watch;

/// The most lives of one daemon.
const LIVES: usize = 4;
/// How long what has begun may take to come to its end: a call that outlives `pending_after` may
/// take an hour.
pub(super) const END_WITHIN: Duration = Duration::from_secs(2 * 60 * 60);

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
    /// All that was begun is done.
    Done,
}

/// Lives through a plan.
pub(super) fn live(plan: Plan) -> Outcome {
    let dir = tempfile::Builder::new().tempdir_in("/dev/shm").expect("memory has room");
    let world = World::new(plan, 1);
    world.state().rules.dir = dir.path().to_owned();
    world.state().write_yaml();
    let _tape = tracing::subscriber::set_default(Tape(Arc::clone(&world)));
    simulated::set_world(Some(Arc::clone(&world) as Arc<dyn simulated::World>));
    let mut lives = 0;
    let most = plan.lives.min(1 + world.state().below(LIVES));
    loop {
        lives += 1;
        let last = lives >= most;
        let end = one(&world, last);
        let broken = !world.state().broken.is_empty();
        if end == End::Done || broken {
            break;
        }
    }
    simulated::set_world(None);
    let mut state = world.state();
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

/// One life of the process.
fn one(world: &Arc<World>, last: bool) -> End {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&world.state().rng.random::<[u8; 8]>()));
    let runtime = builder.enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be built");
    let end = runtime.block_on(async {
        {
            let mut state = world.state();
            let dies_at = 5 + state.below(400);
            let killed = state.chance(700) && !last;
            state.begin(0, killed.then_some(dies_at), !last);
            let passed = state.now();
            state.set_time(passed, Some(Instant::now()));
            state.step(format!("LIFE (last: {last})"));
        }
        let end = work(world, last).await;
        world.state().step(format!("END: {end:?}"));
        let mut state = world.state();
        let passed = state.now();
        state.end(0);
        state.set_time(passed, None);
        drop(state);
        end
    });
    drop(runtime);
    let mut state = world.state();
    if end == End::Killed {
        state.disk_after_crash();
    }
    state.put_journal_back();
    if end != End::Done {
        state.forget_unwritten();
        state.doubt_new_runs();
        state.sleep(|_, run| run.app == 1);
    }
    state.jobs_after_death(0);
    end
}

async fn work(world: &Arc<World>, last: bool) -> End {
    let death = world.state().death(0);
    let path = world.state().rules.dir.join("bridge.yaml");
    let (config, file) = ConfigFile::load(path, Environment::bare()).expect("the file is right");
    world.state().rules_are_taken();
    let watch = Watch::told_by(Arc::clone(&world.file_changed));
    let options = Options { reload: Some(Reload { file, watch }), ..Options::default() };
    let daemon = match Daemon::build(config, options).await {
        Ok(daemon) => daemon,
        Err(error) => {
            let mut state = world.state();
            if !state.is_dead() {
                state.breaks(format!("the daemon does not start: {error:?}"));
            }
            return End::Killed;
        }
    };
    let (stop, stopping) = oneshot::channel::<()>();
    let (ending, ended) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let stopping = async {
        stopping.await.ok();
    };
    let mut running = Box::pin(daemon.run(stopping, std::future::pending()));
    tasks.spawn(peers::work(Arc::clone(world), ended));
    tasks.spawn(operator::operate(Arc::clone(world)));
    tasks.spawn(mantyx::play_all(Arc::clone(world)));
    let apps = [0, 1].map(|app| tasks.spawn(apps::live(Arc::clone(world), app)));
    let stops_at = {
        let mut state = world.state();
        Duration::from_secs(1 + state.below(40) as u64)
    };
    let worked = async {
        if !last {
            sleep(stops_at).await;
            return End::Stopped;
        }
        sleep(stops_at).await;
        world.state().become_calm();
        world.tell();
        let done = async {
            let is_done = || {
                let state = world.state();
                state.is_done() && state.drivers().next().is_none()
            };
            while !is_done() || apps.iter().any(|app| !app.is_finished()) {
                sleep(Duration::from_secs(1)).await;
            }
        };
        if timeout(END_WITHIN, done).await.is_err() {
            let what = world.state().is_undone();
            world.state().breaks(format!("not at its end after {END_WITHIN:?}: {what}"));
        }
        apps::look_at_the_end(world, 0).await;
        End::Done
    };
    let end = tokio::select! {
        biased;
        () = death.cancelled() => return End::Killed,
        ended = &mut running => {
            world.state().breaks(format!("the daemon ended with {ended:?}"));
            return End::Done;
        }
        end = worked => end,
    };
    world.state().stops(0);
    stop.send(()).ok();
    let ended = tokio::select! {
        biased;
        () = death.cancelled() => return End::Killed,
        ended = timeout(Duration::from_secs(120), running) => ended,
    };
    // The process ends in this very moment; its journal has been written by then.
    world.state().exit(0);
    if !matches!(ended, Ok(Ok(()))) {
        world.state().breaks(format!("the daemon ended with {ended:?}"));
    }
    sleep(Duration::from_secs(60)).await;
    drop(ending);
    end
}
