//! A backend is configured anew, or no more, while calls to it are under way.

use tokio::time::timeout;

use super::*;
use crate::backend::LiveRedaction;
use crate::backend::fake::entry;
use crate::backend::registry::{Lease, RegistryEntry};
use crate::model::catalog::Identity;
use crate::model::globs::Globs;
use crate::model::naming::{Naming, ToolFilter};
use crate::model::rights::CallRefusal;

/// Backends whose supervisors a test starts as a reload does.
struct FakeManager {
    backends: Arc<Backends>,
    tasks: tokio::task::JoinSet<()>,
    timing: watch::Sender<Timing>,
    /// That of the last one.
    lease: Option<Lease>,
}

impl FakeManager {
    /// One backend, `fs`, that is connected to `world`.
    async fn start(world: &Arc<World>) -> Self {
        let backends = Arc::new(Backends::new(Arc::default()));
        let timing = watch::Sender::new(timing());
        let mut manager =
            Self { backends, tasks: tokio::task::JoinSet::new(), timing, lease: None };
        manager.change(world, None);
        manager.backends.registry.settled().await;
        manager
    }

    /// Has `fs` reached at `world`. With an `identity`, it is another peer than before.
    fn change(&mut self, world: &Arc<World>, identity: Option<&str>) {
        let registry = &self.backends.registry;
        let lease = registry.lease(BackendName::parse("fs").unwrap());
        let (asks, asked) = mpsc::channel(8);
        let dial: Arc<dyn Dial> = Arc::new(FakeDial(Arc::clone(world)));
        let rules = Backend {
            call_timeout: Duration::from_secs(600),
            concurrency: 2,
            ..crate::backend::fake::config("fs")
        };
        let breaker = Arc::new(CircuitBreaker::new(lease.name.clone()));
        let backend =
            BackendHandle::new(Arc::new(rules), Arc::clone(&dial), Arc::clone(&breaker), asks);
        let (demand, switch) = (backend.demand.clone(), backend.switch.reader());
        self.backends.set(BackendHandles::from([(lease.name.clone(), Arc::new(backend))]), 256);
        let identity = identity.map(Identity::from_text);
        let like_before = entry(&lease);
        registry.set(vec![RegistryEntry {
            identity: identity.or(like_before.identity),
            ..like_before
        }]);
        let supervisor = Supervisor {
            lease: lease.clone(),
            dial,
            timing: self.timing.subscribe(),
            registry: Arc::clone(registry),
            breaker,
            asks: asked,
            first_turn: None,
            program: None,
            demand,
            switch,
            redact: LiveRedaction::default(),
        };
        self.tasks.spawn(supervisor.run(CancellationToken::new()));
        self.lease = Some(lease);
    }

    fn remove(&self) {
        self.backends.set(BackendHandles::new(), 256);
        self.backends.registry.set(Vec::new());
    }

    fn route(&self) -> Route {
        self.backends.registry.offer().route("fs_ls").unwrap().clone()
    }

    /// Begins a call, which has reached `world` when this returns.
    async fn begin(&self, world: &World) -> tokio::task::JoinSet<CallOutcome> {
        let before = World::count(&world.calls);
        let mut call = tokio::task::JoinSet::new();
        let (backends, route) = (Arc::clone(&self.backends), self.route());
        call.spawn(async move { backends.call(&context(&route, "{}")).await });
        until(|| World::count(&world.calls) > before).await;
        call
    }

    async fn call(&self) -> CallOutcome {
        self.backends.call(&context(&self.route(), "{}")).await
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(600), waiting).await.expect("it should come to be");
}

#[tokio::test(start_paused = true)]
async fn the_old_connection_serves_until_the_new_one_does_and_finishes_its_calls() {
    let (old, new) = (World::new(), World::new());
    let mut manager = FakeManager::start(&old).await;
    old.calling.send_replace(Mood::Hanging);
    new.dialling.send_replace(Mood::Hanging);
    let mut first = manager.begin(&old).await;
    let lease = manager.lease.clone().unwrap();
    manager.change(&new, None);
    let mut second = manager.begin(&old).await;
    new.dialling.send_replace(Mood::Well);
    lease.lost().await;
    assert_eq!(manager.call().await.answer, Answer::text("ls {}"));
    assert_eq!(World::count(&new.calls), 1, "new calls go to the new one");
    assert_eq!(World::count(&old.closes), 0, "the old one is not closed under its calls");
    old.calling.send_replace(Mood::Well);
    for call in [&mut first, &mut second] {
        assert_eq!(call.join_next().await.unwrap().unwrap().answer, Answer::text("ls {}"));
    }
    until(|| World::count(&old.closes) == 1).await;
    manager.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(World::count(&old.dials), 1, "its supervisor has ended, and does not dial again");
}

#[tokio::test(start_paused = true)]
async fn narrower_tools_of_a_reload_hold_at_once() {
    let (old, new) = (World::new(), World::new());
    let mut manager = FakeManager::start(&old).await;
    new.dialling.send_replace(Mood::Hanging);
    manager.change(&new, None);
    let mut as_configured = entry(manager.lease.as_ref().unwrap());
    let tools = ToolFilter { allow: Some(Globs::default()), ..ToolFilter::default() };
    let nothing = Naming { tools, ..Naming::default() };
    as_configured.source.naming = Arc::new(nothing);
    let registry = Arc::clone(&manager.backends.registry);
    registry.set(vec![as_configured]);
    assert!(
        registry.offer().route("fs_ls").is_none(),
        "the old connection serves no more than that"
    );
    new.dialling.send_replace(Mood::Well);
    until(|| World::count(&old.closes) == 1).await;
    assert!(registry.offer().route("fs_ls").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_holds_the_old_connection_to_its_own_deadline() {
    let (old, new) = (World::new(), World::new());
    let mut manager = FakeManager::start(&old).await;
    old.calling.send_replace(Mood::Hanging);
    let mut call = manager.begin(&old).await;
    let begin = Instant::now();
    manager.change(&new, None);
    until(|| World::count(&old.closes) == 1).await;
    assert_eq!(begin.elapsed().as_secs(), 285);
    check_failed(&call.join_next().await.unwrap().unwrap(), Ending::TimedOut, &["285 s"]);
}

#[tokio::test(start_paused = true)]
async fn unreachable_backend_takes_the_place_as_well() {
    let (old, new) = (World::new(), World::new());
    let mut manager = FakeManager::start(&old).await;
    new.dialling.send_replace(Mood::Failing);
    manager.change(&new, None);
    let registry = Arc::clone(&manager.backends.registry);
    let down =
        |registry: &Registry| registry.snapshot("fs").filter(|known| known.phase == Phase::Down);
    registry.wait_for(down).await;
    assert!(registry.offer().route("fs_ls").is_some(), "it is the same peer: its tools are known");
    assert_eq!(manager.call().await.ending, Ending::Unavailable);
    until(|| World::count(&old.closes) == 1).await;

    // Another peer of that name does not inherit them.
    manager.change(&new, Some("another"));
    registry.wait_for(down).await;
    assert!(registry.offer().route("fs_ls").is_none());
}

#[tokio::test(start_paused = true)]
async fn later_of_two_changes_counts() {
    let [old, skipped, new] = [World::new(), World::new(), World::new()];
    let mut manager = FakeManager::start(&old).await;
    skipped.dialling.send_replace(Mood::Hanging);
    new.dialling.send_replace(Mood::Hanging);
    manager.change(&skipped, None);
    let lease = manager.lease.clone().unwrap();
    manager.change(&new, None);
    lease.lost().await;
    skipped.dialling.send_replace(Mood::Well);
    new.dialling.send_replace(Mood::Well);
    until(|| World::count(&old.closes) == 1).await;
    assert_eq!(manager.call().await.answer, Answer::text("ls {}"));
    assert_eq!([&skipped, &new].map(|world| World::count(&world.calls)), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn removed_backend_finishes_running_calls_and_refuses_waiting_ones() {
    let world = World::new();
    let mut manager = FakeManager::start(&world).await;
    world.calling.send_replace(Mood::Hanging);
    let mut running = [manager.begin(&world).await, manager.begin(&world).await];
    let route = manager.route();
    // Only two at a time: this one waits for its turn.
    let wants = context(&route, "{}");
    let mut waiting = Box::pin(manager.backends.call(&wants));
    assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err());
    manager.remove();
    assert!(manager.backends.registry.offer().route("fs_ls").is_none());
    let removed =
        (Ending::Unavailable, Answer::Error(CallRefusal::Removed.for_model(&route.backend)));
    let refused = manager.backends.call(&context(&route, "{}")).await;
    assert_eq!((refused.ending, refused.answer), removed);
    world.calling.send_replace(Mood::Well);
    for call in &mut running {
        assert_eq!(call.join_next().await.unwrap().unwrap().answer, Answer::text("ls {}"));
    }
    let waited = waiting.await;
    assert_eq!((waited.ending, waited.answer), removed);
    assert_eq!(World::count(&world.calls), 2);
    manager.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(World::count(&world.closes), 1);
}

#[tokio::test(start_paused = true)]
async fn another_interval_holds_at_once_and_costs_no_connection() {
    let world = World::new();
    let manager = FakeManager::start(&world).await;
    manager.timing.send_modify(|timing| timing.interval = Duration::from_secs(10));
    let begin = Instant::now();
    until(|| World::count(&world.resolves) == 4).await;
    assert!(begin.elapsed() <= Duration::from_secs(21), "{:?}", begin.elapsed());
    assert_eq!(World::count(&world.dials), 1);
}

/// A call that an earlier process sent to one server is neither asked for nor repeated at another
/// one of that name.
#[tokio::test(start_paused = true)]
async fn call_that_was_sent_to_one_server_is_not_looked_for_at_another() {
    let (old, new) = (World::new(), World::new());
    for world in [&old, &new] {
        *world.tools.lock().unwrap() = vec!["ls", "reads"];
    }
    let mut manager = FakeManager::start(&old).await;
    let route = manager.backends.registry.offer().route("fs_reads").unwrap().clone();
    let sent = |to: &str, handle: Option<&str>| CallContext {
        peer: Some(Identity::from_text(to)),
        handle: handle.map(|handle| Handle(handle.to_owned())),
        ..context(&route, "{}")
    };
    let again = manager.backends.call(&sent("fs", None)).await.answer;
    assert_eq!(again, Answer::text("reads {}"), "it is the same server");
    // While the call runs, the connection to the old server breaks, and a new one has the name.
    old.calling.send_replace(Mood::Hanging);
    let mut call = tokio::task::JoinSet::new();
    let (backends, to) = (Arc::clone(&manager.backends), route.clone());
    call.spawn(async move { backends.call(&context(&to, "{}")).await });
    until(|| World::count(&old.calls) == 2).await;
    let lease = manager.lease.clone().unwrap();
    manager.change(&new, Some("another"));
    lease.lost().await;
    old.calling.send_replace(Mood::Failing);
    let made = call.join_next().await.unwrap().unwrap();
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    for handle in [None, Some("work")] {
        let made = manager.backends.call(&sent("fs", handle)).await;
        check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    }
    assert_eq!(World::count(&new.calls), 0);
    // Nor does it wait for a permit of the new one, which has as many calls as it may.
    new.calling.send_replace(Mood::Hanging);
    let _running = [manager.begin(&new).await, manager.begin(&new).await];
    for handle in [None, Some("work")] {
        let sent = sent("fs", handle);
        let made = timeout(Duration::from_secs(1), manager.backends.call(&sent)).await;
        let made = made.expect("an answer at once");
        check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    }
}
