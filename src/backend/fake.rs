//! A peer whose every answer is decided by the test.
//!
//! Must not: be compiled into the daemon.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::outcome::CallOutcome;
use super::peer::{
    About, CallError, Dial, Handle, NotRecorded, Peer, PeerError, PeerErrorKind, PermissionCheck,
    Progress, ReadPermission, Recorder, Reply, RequestedPause, ToolCall,
};
use super::readiness::{Health, Occasion, Readiness};
use super::registry::{Lease, Registry, RegistryEntry};
use super::supervisor::{ProgramStart, Timing};
use super::turns::{Rank, StartKeys, Turns};
use crate::config;
use crate::model::answer::Answer;
use crate::model::call::{CallRequest, CallingRun};
use crate::model::catalog::{Catalog, Identity};
use crate::model::event::Call;
use crate::model::ids::BackendName;
use crate::model::json::no_members;
use crate::model::naming::Naming;
use crate::model::offer::{OnUnavailable, RefKind, Source};
use crate::model::pin::{Accepted, Mode};
use crate::model::rights::Permission;
use crate::model::routes::{Route, Target};
use crate::model::schema::InputSchema;

/// The permission of every call, until the test takes it away.
#[derive(Debug)]
pub(crate) struct Permitted(pub(crate) watch::Sender<Permission>);

impl Permitted {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Permission::Given)))
    }
}

impl PermissionCheck for Permitted {
    fn now(&self, _call: &CallRequest) -> Permission {
        self.0.borrow().clone()
    }
}

/// Writes nothing down.
#[derive(Debug)]
pub(crate) struct Unrecorded;

impl Recorder for Unrecorded {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn named(&self, _: &Handle) {}
}

/// A call by hand of a tool of the MCP server `fs`.
pub(crate) fn request(tool: &str, arguments: &str) -> CallRequest {
    let target = Target::Tool { name: tool.into(), input: None };
    let backend = BackendName::parse("fs").unwrap();
    let kind = RefKind::McpLocal;
    let route = Route { backend, kind, target, repeatable: false, destructive: false };
    let args = RawValue::from_string(arguments.to_owned()).unwrap();
    let (tool_use, name) = ("by hand".into(), format!("fs_{tool}"));
    let call = Call { tool_use, agent_run: None, name, kind: Some(kind), args, mcp_server: None };
    CallRequest::new("a".into(), None, call, route)
}

/// The same, of the run `run` of the workspace `acme`.
pub(crate) fn request_of(run: &str, session: Option<&str>, tool: &str, args: &str) -> CallRequest {
    let session = session.map(Into::into);
    let run = CallingRun { workspace: "acme".into(), run: run.into(), session };
    CallRequest { run: Some(run), ..request(tool, args) }
}

/// The call as a peer gets it.
pub(crate) fn tool_call(request: CallRequest) -> ToolCall {
    ToolCall {
        request: Arc::new(request),
        trace: None,
        progress: Progress::default(),
        recorder: Arc::new(Unrecorded),
    }
}

/// What the fake does from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Failing,
    /// Another authorization is wanted.
    Refusing,
    Hanging,
    /// Calls are not even sent; the rest fails.
    Gone,
    /// Calls panic; the rest fails.
    Panicking,
}

/// The world of one fake peer: how it feels, and what was asked of it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dialling: watch::Sender<Mood>,
    pub(crate) resolving: watch::Sender<Mood>,
    pub(crate) calling: watch::Sender<Mood>,
    /// How the processes of attempts that were given up end.
    pub(crate) ending: watch::Sender<Mood>,
    /// How many of these ends were waited for.
    pub(crate) ended: AtomicUsize,
    /// Calls ask this and are refused with what they get.
    pub(crate) asking: Mutex<Option<Box<RawValue>>>,
    /// So many calls break, whatever the mood is.
    pub(crate) breaking: AtomicUsize,
    /// So many calls are not run, as their session is forgotten.
    pub(crate) forgetting: AtomicUsize,
    /// So many calls are not sent, as the connection has ended a moment ago.
    pub(crate) crashing: AtomicUsize,
    has_ended: AtomicBool,
    /// Failures to dial and to resolve ask for a pause until then.
    pub(crate) pausing: Mutex<Option<Instant>>,
    pub(crate) tools: Mutex<Vec<&'static str>>,
    pub(crate) changed: Notify,
    pub(crate) lost: Notify,
    /// Calls that hang say that they are getting on.
    pub(crate) getting_on: Notify,
    pub(crate) dials: AtomicUsize,
    pub(crate) resolves: AtomicUsize,
    pub(crate) calls: AtomicUsize,
    /// Requests that only read.
    pub(crate) reads: AtomicUsize,
    pub(crate) closes: AtomicUsize,
    /// For a peer whose endpoint is asked.
    pub(crate) health: Option<Health>,
    pub(crate) probing: watch::Sender<Mood>,
    pub(crate) probes: Mutex<Vec<(Instant, Occasion)>>,
}

impl World {
    /// The world of a peer whose endpoint is asked whether it would answer a call.
    pub(crate) fn with_endpoint() -> Arc<Self> {
        let mut world = Self::new();
        let own = Arc::get_mut(&mut world).expect("it is new");
        own.health = Some(Health::default());
        world
    }

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            health: None,
            probing: watch::Sender::new(Mood::Well),
            probes: Mutex::default(),
            dialling: watch::Sender::new(Mood::Well),
            resolving: watch::Sender::new(Mood::Well),
            calling: watch::Sender::new(Mood::Well),
            ending: watch::Sender::new(Mood::Well),
            ended: AtomicUsize::new(0),
            asking: Mutex::default(),
            breaking: AtomicUsize::new(0),
            forgetting: AtomicUsize::new(0),
            crashing: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            pausing: Mutex::default(),
            tools: Mutex::new(vec!["ls"]),
            changed: Notify::new(),
            lost: Notify::new(),
            getting_on: Notify::new(),
            dials: AtomicUsize::new(0),
            resolves: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            closes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }

    async fn go(mood: &watch::Sender<Mood>) -> Result<(), PeerError> {
        let mut mood = mood.subscribe();
        let mood = mood.wait_for(|mood| *mood != Mood::Hanging).await.map(|mood| *mood);
        assert_ne!(mood.as_ref().ok(), Some(&Mood::Panicking), "the test wants this");
        match mood {
            Ok(Mood::Well) => Ok(()),
            Ok(Mood::Refusing) => Err(PeerError::new(PeerErrorKind::Unauthorized, "HTTP 401")),
            Ok(Mood::Failing | Mood::Hanging | Mood::Gone | Mood::Panicking) | Err(_) => {
                Err(PeerError::new(PeerErrorKind::Connect, "it fails"))
            }
        }
    }
}

impl World {
    async fn go_or_pause(&self, mood: &watch::Sender<Mood>) -> Result<(), PeerError> {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let pause = self.pausing.lock().unwrap().map(|end| RequestedPause { end, status });
        Self::go(mood).await.map_err(|error| error.with_pause(pause))
    }
}

/// A registry of fake backends, and their leases.
pub(crate) fn registry<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> (Arc<Registry>, Vec<Lease>) {
    let registry = Arc::new(Registry::default());
    let lease = |name| registry.lease(BackendName::parse(name).unwrap());
    let leases: Vec<Lease> = names.into_iter().map(lease).collect();
    registry.set(leases.iter().map(entry).collect());
    (registry, leases)
}

/// How the fake backend of `lease` is offered.
pub(crate) fn entry(lease: &Lease) -> RegistryEntry {
    let identity = Some(Identity::from_text(lease.name.as_str()));
    let source = source(lease.name.as_str());
    let features = Arc::default();
    let accepted = Accepted::Nothing;
    RegistryEntry { lease: lease.clone(), source, features, identity, accepted }
}

/// The configuration of a fake backend called `name`.
pub(crate) fn config(name: &str) -> config::Backend {
    config::Backend {
        name: BackendName::parse(name).unwrap(),
        place: 0,
        target: config::Target::Local(config::Local {
            input: Arc::new(InputSchema::of_local(no_members().into())),
            action: config::Action::Internal,
        }),
        naming: Naming::default(),
        required: true,
        on_unavailable: OnUnavailable::Stale,
        refresh: std::time::Duration::from_secs(300),
        refresh_is_own: false,
        start: config::Start::default(),
        call_timeout: std::time::Duration::from_secs(60),
        pending_after: None,
        max_result: None,
        redact: Arc::default(),
        secrets: Arc::default(),
        concurrency: 4,
        trust_annotations: false,
        pin: Mode::Off,
        approve: <_>::default(),
        quota: None,
    }
}

/// A refresh every five minutes, to the second.
pub(crate) fn timing() -> Timing {
    let minute = std::time::Duration::from_secs(60);
    Timing {
        interval: 5 * minute,
        interval_is_own: false,
        jitter: 0.0,
        timeout: minute / 2,
        start_timeout: 5 * minute,
        is_lazy: false,
        idle_stop: None,
        rank: Rank::new(false, 0),
    }
}

/// How a fake program called `name` takes its turn.
pub(crate) fn program_start(name: &str) -> ProgramStart {
    let keys = StartKeys { backend: BackendName::parse(name).unwrap(), package: None };
    ProgramStart { turns: Turns::for_this_machine(), keys }
}

/// The source of a fake backend called `name`.
fn source(name: &str) -> Source {
    Source {
        name: BackendName::parse(name).unwrap(),
        place: 0,
        kind: RefKind::McpLocal,
        naming: Arc::new(Naming { prefix: format!("{name}_"), ..Naming::default() }),
        description: None,
        on_unavailable: OnUnavailable::Stale,
        catalog: None,
        available: false,
        can_pend: false,
        trusted: true,
        pin: Mode::Off,
        review: Arc::default(),
    }
}

#[derive(Debug)]
pub(crate) struct FakeDial(pub(crate) Arc<World>);

#[derive(Debug)]
struct FakePeer(Arc<World>);

#[async_trait]
impl Dial for FakeDial {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        self.0.dials.fetch_add(1, Ordering::SeqCst);
        self.0.go_or_pause(&self.0.dialling).await?;
        Ok(Arc::new(FakePeer(Arc::clone(&self.0))) as Arc<dyn Peer>)
    }

    async fn processes_ended(&self) {
        World::go(&self.0.ending).await.expect("no test lets an end fail");
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn transport(&self) -> &'static str {
        "fake"
    }
}

#[async_trait]
impl Peer for FakePeer {
    fn about(&self) -> About {
        About::default()
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        self.0.resolves.fetch_add(1, Ordering::SeqCst);
        self.0.go_or_pause(&self.0.resolving).await?;
        let tools = self.0.tools.lock().unwrap().clone();
        // A tool that is called `typed` wants a string `a`, and one called `reads` only reads.
        let raw = |name: &&str| {
            let more = match *name {
                "typed" => r#","inputSchema":{"properties":{"a":{"type":"string"}}}"#,
                "reads" => r#","annotations":{"readOnlyHint":true}"#,
                _ => "",
            };
            RawValue::from_string(format!("{{\"name\":\"{name}\"{more}}}"))
        };
        let tools = tools.iter().map(raw).collect::<Result<_, _>>().unwrap();
        Ok(Arc::new(Catalog::mcp(None, tools).0))
    }

    async fn ask(
        &self,
        method: &'static str,
        _params: Value,
        _permission: ReadPermission,
    ) -> Result<Reply, CallError> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        World::go(&self.0.calling).await.map_err(|error| CallError::Lost(error.to_string()))?;
        Ok(Ok(RawValue::from_string(format!("{{\"read\":\"{method}\"}}")).unwrap()))
    }

    async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn health(&self) -> Option<&Health> {
        self.0.health.as_ref()
    }

    async fn probe(&self, occasion: Occasion) {
        let begin = Instant::now();
        self.0.probes.lock().unwrap().push((begin, occasion));
        let readiness = match World::go(&self.0.probing).await {
            Ok(()) => Readiness::Answers("it answers"),
            Err(failure) => Readiness::Fails(failure),
        };
        self.0.health.as_ref().expect("it is asked").judge(readiness, begin);
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended.swap(false, Ordering::SeqCst)
    }

    async fn closed(&self) -> PeerError {
        self.0.lost.notified().await;
        PeerError::new(PeerErrorKind::Connect, "it is gone")
    }

    async fn call(&self, call: ToolCall) -> Result<CallOutcome, CallError> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let fewer = |left: usize| left.checked_sub(1);
        if self.0.breaking.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            return Err(CallError::Lost("it broke".to_owned()));
        }
        if self.0.forgetting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            self.0.lost.notify_one();
            return Err(CallError::NoSession("it is forgotten".to_owned()));
        }
        if self.0.crashing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            self.0.has_ended.store(true, Ordering::SeqCst);
            self.0.lost.notify_one();
            return Err(CallError::NotSent("it has ended".to_owned()));
        }
        let asked = self.0.asking.lock().unwrap().clone();
        if let Some(params) = asked {
            let got = call.progress.ask(None, "1".to_owned(), params).await;
            let got = got.map_or("nothing".to_owned(), |got| got.get().to_owned());
            return Err(CallError::Refused(got));
        }
        if *self.0.calling.borrow() == Mood::Gone {
            return Err(CallError::NotSent("it is gone".to_owned()));
        }
        let mut work = std::pin::pin!(World::go(&self.0.calling));
        loop {
            tokio::select! {
                done = &mut work => break done.map_err(|error| CallError::Lost(error.to_string()))?,
                () = self.0.getting_on.notified() => call.progress.touch(),
            }
        }
        let text = format!("{} {}", call.request.tool(), call.request.arguments.get());
        Ok(Answer::text(text).into())
    }

    async fn close(&self) {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
    }
}
