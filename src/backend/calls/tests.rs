//! Every way that a call can fail has its ending, and no backend waits for another.

mod failing;
mod permitted;
mod reading;
mod redacted;
mod reload;
mod resend;
mod starting;
mod withdrawn;

use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::backend::LiveRedaction;
use crate::backend::circuit_breaker::CircuitBreaker;
use crate::backend::fake::{
    FakeDial, Mood, Permitted, Unrecorded, World, program_start, registry, request, timing,
};
use crate::backend::peer::Dial;
use crate::backend::registry::Lease;
use crate::backend::supervisor::{Supervisor, Timing};
use crate::model::answer::codes::{OUTCOME_UNKNOWN, TOOL_INPUT_INVALID};
use crate::model::catalog::Identity;
use crate::model::offer::Route;
use crate::traces::Context;

struct Harness {
    backends: Arc<Backends>,
    leases: Vec<Lease>,
    _tasks: tokio::task::JoinSet<()>,
    _stop: DropGuard,
}

fn start(worlds: &[(&str, &Arc<World>)], concurrency: usize) -> Harness {
    start_with(worlds, concurrency, Duration::from_secs(60))
}

fn start_with(worlds: &[(&str, &Arc<World>)], concurrency: usize, idle: Duration) -> Harness {
    start_as(worlds, concurrency, idle, None)
}

/// The backend `fs` as a program with this timing.
fn start_program(world: &Arc<World>, timing: Timing) -> Harness {
    start_as(&[("fs", world)], 4, Duration::from_secs(60), Some(timing))
}

/// With `programs`, all backends are programs.
fn start_as(
    worlds: &[(&str, &Arc<World>)],
    concurrency: usize,
    idle: Duration,
    programs: Option<Timing>,
) -> Harness {
    let (registry, leases) = registry(worlds.iter().map(|(name, _)| *name));
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut handles = BTreeMap::new();
    let is_program = programs.is_some();
    let timing = watch::Sender::new(programs.unwrap_or_else(timing));
    for ((_, world), lease) in worlds.iter().zip(leases.clone()) {
        let (asks, asked) = mpsc::channel(8);
        let rules = Backend {
            call_timeout: idle,
            concurrency,
            ..crate::backend::fake::config(lease.name.as_str())
        };
        let dial: Arc<dyn Dial> = Arc::new(FakeDial(Arc::clone(world)));
        let breaker = Arc::new(CircuitBreaker::new(lease.name.clone()));
        let backend =
            BackendHandle::new(Arc::new(rules), Arc::clone(&dial), Arc::clone(&breaker), asks);
        let (demand, switch) = (backend.demand.clone(), backend.switch.reader());
        handles.insert(lease.name.clone(), Arc::new(backend));
        let program = if is_program { Some(program_start(lease.name.as_str())) } else { None };
        let supervisor = Supervisor {
            lease,
            dial,
            timing: timing.subscribe(),
            registry: Arc::clone(&registry),
            breaker,
            asks: asked,
            first_turn: None,
            program,
            demand,
            switch,
            redact: LiveRedaction::default(),
        };
        tasks.spawn(supervisor.run(stop.clone()));
    }
    let backends = Arc::new(Backends::new(registry));
    backends.set(handles, 256);
    Harness { backends, leases, _tasks: tasks, _stop: stop.drop_guard() }
}

/// A call along `route`, for whom all is permitted.
fn context(route: &Route, arguments: &str) -> CallContext {
    let request = CallRequest { route: route.clone(), ..request("", arguments) };
    CallContext {
        request: Arc::new(request),
        trace: Context::default(),
        permission_check: Permitted::new(),
        recorder: Arc::new(Unrecorded),
        handle: None,
        peer: None,
        deadline: Instant::now() + Duration::from_secs(285),
        client: None,
        a2a_client: None,
        seat: Arc::default(),
        person: None,
    }
}

impl Harness {
    /// The connection to `fs` breaks, and there will be no other until `world` says so.
    async fn lose(&self, world: &World) {
        world.dialling.send_replace(Mood::Hanging);
        world.lost.notify_one();
        let down = |registry: &Registry| {
            registry.snapshot("fs").filter(|known| known.connection.is_none())
        };
        self.backends.registry.wait_for(down).await;
    }

    /// Asks for work that an earlier life of the bridge has begun.
    async fn resume(&self, name: &str) -> CallOutcome {
        let offer = self.backends.registry.offer();
        let route = offer.route(name).unwrap();
        let handle = Some(Handle("work".to_owned()));
        self.backends.call(&CallContext { handle, ..context(route, "{}") }).await
    }

    async fn call(&self, name: &str) -> Answer {
        self.make(name).await.answer
    }

    async fn make(&self, name: &str) -> CallOutcome {
        self.backends.registry.settled().await;
        let offer = self.backends.registry.offer();
        let route = offer.route(name).unwrap();
        self.backends.call(&context(route, r#"{"a":1e400}"#)).await
    }
}

/// The call failed as `ending`, and its text for the model has these facts.
#[track_caller]
fn check_failed(made: &CallOutcome, ending: Ending, facts: &[&str]) {
    let Answer::Error(text) = &made.answer else { panic!("{made:?}") };
    assert_eq!(made.ending, ending, "{text}");
    for fact in facts {
        assert!(text.contains(fact), "{fact}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_and_answers_are_verbatim() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    assert_eq!(harness.call("fs_ls").await, Answer::text(r#"ls {"a":1e400}"#));
    let handles = harness.backends.handles();
    let (_, backend) = handles.iter().next().unwrap();
    assert_eq!(backend.in_flight(None), 0);
    assert!(backend.last_call(None).unwrap().answered);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_and_a_slow_tool_are_told() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    world.calling.send_replace(Mood::Failing);
    let unknown = [OUTCOME_UNKNOWN, "`fs`"];
    check_failed(&harness.make("fs_ls").await, Ending::ConnectionLost, &unknown);
    world.calling.send_replace(Mood::Hanging);
    let unknown = [OUTCOME_UNKNOWN, "`fs`", "60 s"];
    check_failed(&harness.make("fs_ls").await, Ending::TimedOut, &unknown);
}

#[tokio::test(start_paused = true)]
async fn each_ending_has_its_word() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    let ending = async || harness.make("fs_ls").await.ending;
    assert_eq!(ending().await, Ending::Result);
    world.calling.send_replace(Mood::Failing);
    assert_eq!(ending().await, Ending::ConnectionLost);
    world.calling.send_replace(Mood::Hanging);
    assert_eq!(ending().await, Ending::TimedOut);
    world.calling.send_replace(Mood::Failing);
    for _ in 0..5 {
        ending().await;
    }
    assert_eq!(ending().await, Ending::BreakerOpen);
}

/// A backend whose tool `reads` is trusted to read only, and `ls` is not, and whose next calls
/// break.
async fn start_breaking(calls: usize) -> (Arc<World>, Harness) {
    let world = World::new();
    *world.tools.lock().unwrap() = vec!["ls", "reads"];
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    world.breaking.store(calls, Ordering::SeqCst);
    (world, harness)
}

#[tokio::test(start_paused = true)]
async fn call_that_a_crash_has_repeated_is_not_made_a_third_time() {
    let (world, harness) = start_breaking(1).await;
    let offer = harness.backends.registry.offer();
    let peer = Some(Identity::from_text("fs"));
    let call = CallContext { peer, ..context(offer.route("fs_reads").unwrap(), "{}") };
    check_failed(&harness.backends.call(&call).await, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_breaks_is_made_again_once_where_that_does_no_harm() {
    let (world, harness) = start_breaking(1).await;
    assert_eq!(harness.call("fs_reads").await, Answer::text(r#"reads {"a":1e400}"#));
    assert_eq!(World::count(&world.calls), 2);

    let (world, harness) = start_breaking(5).await;
    let made = harness.make("fs_reads").await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 2, "no third time");

    let (world, harness) = start_breaking(1).await;
    let made = harness.make("fs_ls").await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 1, "nobody said that it may be made twice");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_breaks_with_its_connection_waits_for_the_next() {
    let (world, harness) = start_breaking(1).await;
    world.calling.send_replace(Mood::Gone);
    let (answer, ()) = tokio::join!(harness.call("fs_reads"), async {
        while World::count(&world.calls) < 2 {
            tokio::task::yield_now().await;
        }
        world.calling.send_replace(Mood::Well);
        world.lost.notify_one();
    });
    assert_eq!(answer, Answer::text(r#"reads {"a":1e400}"#));
    assert_eq!(World::count(&world.calls), 3, "the second was not sent");

    let (world, harness) = start_breaking(1).await;
    world.calling.send_replace(Mood::Gone);
    let made = harness.make("fs_reads").await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 2, "there is no other connection");
}

/// Calls a tool that says every `every` seconds, `times` times, that it is getting on, and then
/// answers; the outcome, and how many seconds it took.
async fn call_with_progress(every: u64, times: usize, within: u64) -> (CallOutcome, u64) {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Hanging);
    let begin = Instant::now();
    let worker = async {
        for _ in 0..times {
            tokio::time::sleep(Duration::from_secs(every)).await;
            world.getting_on.notify_one();
        }
        tokio::time::sleep(Duration::from_secs(every)).await;
        world.calling.send_replace(Mood::Well);
        std::future::pending::<()>().await;
    };
    let offer = harness.backends.registry.offer();
    let deadline = begin + Duration::from_secs(within);
    let call = CallContext { deadline, ..context(offer.route("fs_ls").unwrap(), "{}") };
    tokio::select! {
        made = harness.backends.call(&call) => (made, begin.elapsed().as_secs()),
        () = worker => unreachable!("the worker never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn progress_makes_a_call_longer_than_its_backends_timeout() {
    let (made, seconds) = call_with_progress(50, 4, 285).await;
    assert_eq!((made.answer, seconds), (Answer::text("ls {}".to_owned()), 250));
}

#[tokio::test(start_paused = true)]
async fn progress_that_stops_is_waited_for_once_more() {
    let (made, seconds) = call_with_progress(61, 1, 285).await;
    assert_eq!(seconds, 60, "the first sign came too late");
    check_failed(&made, Ending::TimedOut, &["60 s"]);
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Hanging);
    let (made, ()) = tokio::join!(harness.make("fs_ls"), async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        world.getting_on.notify_one();
    });
    check_failed(&made, Ending::TimedOut, &["100 s"]);
}

#[tokio::test(start_paused = true)]
async fn progress_for_ever_ends_at_the_deadline() {
    let (made, seconds) = call_with_progress(1, usize::MAX, 285).await;
    assert_eq!(seconds, 285);
    check_failed(&made, Ending::TimedOut, &["285 s"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_backend_is_waited_for_a_little() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    harness.lose(&world).await;
    check_failed(&harness.make("fs_ls").await, Ending::Unavailable, &["`fs`"]);
    let (answer, _) = tokio::join!(harness.call("fs_ls"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.dialling.send_replace(Mood::Well)
    });
    assert!(matches!(answer, Answer::Result { .. }), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn work_that_has_begun_is_never_said_not_to_have() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    harness.lose(&world).await;
    let start = Instant::now();
    let made = harness.resume("fs_ls").await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(start.elapsed(), Duration::from_secs(60), "the backend's own timeout");
}

#[tokio::test(start_paused = true)]
async fn backend_that_hangs_delays_no_other() {
    let (slow, fast) = (World::new(), World::new());
    slow.calling.send_replace(Mood::Hanging);
    let harness = start(&[("slow", &slow), ("fast", &fast)], 2);
    harness.backends.registry.settled().await;
    let mut stuck = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let backends = Arc::clone(&harness.backends);
        stuck.spawn(async move {
            let offer = backends.registry.offer();
            backends.call(&context(offer.route("slow_ls").unwrap(), "{}")).await
        });
    }
    let begin = Instant::now();
    assert!(matches!(harness.call("fast_ls").await, Answer::Result { .. }));
    assert!(begin.elapsed() < Duration::from_secs(1));
    while let Some(made) = stuck.join_next().await {
        let made = made.unwrap();
        assert!(matches!(made.ending, Ending::TimedOut | Ending::Busy), "{made:?}");
    }
    assert_eq!(World::count(&slow.calls), 2, "the rest waited for a turn");
}

#[tokio::test(start_paused = true)]
async fn several_that_hang_do_not_take_the_permits_of_all() {
    let worlds: Vec<_> = (0..3).map(|_| World::new()).collect();
    let [fast, slow, slower] = &worlds[..] else { panic!("three") };
    for world in [slow, slower] {
        world.calling.send_replace(Mood::Hanging);
    }
    let harness = start(&[("fast", fast), ("slow", slow), ("slower", slower)], 2);
    harness.backends.set((*harness.backends.handles()).clone(), 4);
    harness.backends.registry.settled().await;
    let begin = Instant::now();
    let hang = async |name| harness.make(name).await;
    let stuck = [hang("slow_ls"), hang("slow_ls"), hang("slower_ls"), hang("slower_ls")];
    let answered = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answer = harness.call("fast_ls").await;
        assert!(matches!(answer, Answer::Result { .. }), "{answer:?}");
        begin.elapsed()
    };
    let (_, took) = tokio::join!(futures_util::future::join_all(stuck), answered);
    assert_eq!(took.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_not_waited_for_as_long_as_a_call_may_take() {
    let world = World::new();
    let hour = Duration::from_secs(60 * 60);
    let harness = start_with(&[("fs", &world)], 1, hour);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Hanging);
    let begin = Instant::now();
    let call = async || {
        let offer = harness.backends.registry.offer();
        let route = offer.route("fs_ls").unwrap();
        let call = CallContext { deadline: begin + hour, ..context(route, "{}") };
        let made = harness.backends.call(&call).await;
        (made, begin.elapsed())
    };
    let ((first, long), (second, short)) = tokio::join!(call(), call());
    check_failed(&first, Ending::TimedOut, &["3600 s"]);
    check_failed(&second, Ending::Busy, &["145 s"]);
    assert_eq!((long, short.as_secs()), (hour, 145));
}

#[tokio::test(start_paused = true)]
async fn calls_to_what_hangs_do_not_pile_up() {
    let (slow, fast) = (World::new(), World::new());
    slow.calling.send_replace(Mood::Hanging);
    let harness = start(&[("slow", &slow), ("fast", &fast)], 4);
    harness.backends.registry.settled().await;
    let begin = Instant::now();
    let one = async || (harness.make("slow_ls").await, begin.elapsed().as_secs());
    let made = futures_util::future::join_all((0..500).map(|_| one())).await;
    let (busy, others): (Vec<_>, Vec<_>) =
        made.into_iter().partition(|(made, _)| made.ending == Ending::Busy);
    assert_eq!((others.len(), World::count(&slow.calls)), (4, 4), "those that were made");
    let soon = busy.into_iter().filter(|(_, took)| *took <= 3);
    let soon: Vec<CallOutcome> = soon.map(|(made, _)| made).collect();
    assert_eq!(soon.len(), 500 - 4 - 32, "the rest waits for half of its time");
    for made in soon {
        check_failed(&made, Ending::Busy, &["`slow`"]);
    }
    // The same number is no burden to what answers.
    let made = async || harness.call("fast_ls").await;
    let answers = futures_util::future::join_all((0..500).map(|_| made())).await;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Result { .. })), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_a_call_waits() {
    let world = World::new();
    *world.tools.lock().unwrap() = vec!["typed"];
    world.calling.send_replace(Mood::Hanging);
    let harness = start(&[("fs", &world)], 1);
    harness.backends.registry.settled().await;
    let call = async |arguments: &str| {
        let offer = harness.backends.registry.offer();
        let call = context(offer.route("fs_typed").unwrap(), arguments);
        match harness.backends.refuse_invalid(&call.request).await {
            Some(made) => made,
            None => harness.backends.call(&call).await,
        }
    };
    let begin = Instant::now();
    let (_, slow) = tokio::join!(
        async {
            for wrong in [r#"{"a":1}"#, "[1]"] {
                check_failed(&call(wrong).await, Ending::InputInvalid, &[TOOL_INPUT_INVALID]);
            }
            assert!(begin.elapsed() < Duration::from_secs(1));
            world.calling.send_replace(Mood::Well);
        },
        call(r#"{"a":"x"}"#)
    );
    assert_eq!(slow.ending, Ending::Result, "{slow:?}");
    // What no copy can hold reaches the server as it was written.
    let made = call(r#"{"a":"x","b":1e400}"#).await;
    assert_eq!(made.answer, Answer::text(r#"typed {"a":"x","b":1e400}"#));
    assert_eq!(World::count(&world.calls), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stub_says_why() {
    let world = World::new();
    world.dialling.send_replace(Mood::Failing);
    let harness = start(&[("fs", &world)], 4);
    let made = harness.make("fs_unavailable").await;
    check_failed(&made, Ending::Unavailable, &["`fs`", "since it started"]);
}
