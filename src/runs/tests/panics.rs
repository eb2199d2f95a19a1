//! A call whose task panics is answered, in a run, as a long call and by hand; so is every other.

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::*;
use crate::{
    backend::{
        board::Entry as Seated,
        calls::{CallLimits, Lane, LaneRules},
        fake::{FakeDial, Mood, World, board},
        gate::Gate,
        peer::Dial,
        supervisor::{Supervisor, Timing},
    },
    config::Credential,
    fake_http::{Agent, Reply, Then},
    model::{
        answer::Answer,
        ending::{Ending, Made},
        event::Call,
        offer::RefKind,
    },
    state::StateDir,
};

/// Runs with the backend `fs`, in front of a MANTYX whose every run wants `fs_ls` as `tu_1`.
struct Scene {
    runs: Arc<Runs>,
    world: Arc<World>,
    mantyx: Agent,
    _dir: tempfile::TempDir,
    _tasks: tokio::task::JoinSet<()>,
}

fn app() -> App {
    App {
        name: "a".into(),
        token: None,
        users: Vec::new(),
        certificate: None,
        credential: None,
        rights: Arc::default(),
        approves: false,
        max_concurrent_calls: None,
        rate: None,
    }
}

impl Scene {
    async fn start(pending_after: Option<Duration>) -> Self {
        let mantyx = Agent::start(|seen| {
            if !seen.path.ends_with("/stream") {
                return Reply::json("{}".to_owned());
            }
            let call = r#"{"seq":1,"type":"local_tool_call","data":{"toolUseId":"tu_1","name":"fs_ls","kind":"mcp_local","args":{}}}"#;
            Reply::events(&[call], Then::Hang)
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let (world, (board, seats)) = (World::new(), board(["fs"]));
        let mut entry: Seated = crate::backend::fake::entry(&seats[0]);
        entry.source.can_pend = pending_after.is_some();
        board.set(vec![entry]);
        let (asks, asked) = mpsc::channel(8);
        let limits = CallLimits { idle: Duration::from_secs(60), pending_after };
        let approve = crate::model::approval::Policy::default();
        let tools = crate::model::naming::ToolFilter::default();
        let rules = LaneRules { required: true, limits, concurrency: 4, tools, approve };
        let dial: Arc<dyn Dial> = Arc::new(FakeDial(Arc::clone(&world)));
        let gate = Arc::new(Gate::new(seats[0].name().clone()));
        let lane = Lane::new(rules, Arc::clone(&dial), Arc::clone(&gate), asks);
        let second = Duration::from_secs(1);
        let timing = Timing { interval: 300 * second, jitter: 0.0, timeout: 30 * second };
        let supervisor = Supervisor {
            seat: seats[0].clone(),
            dial,
            timing: watch::Sender::new(timing).subscribe(),
            board: Arc::clone(&board),
            gate,
            asks: asked,
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(supervisor.run(CancellationToken::new()));
        let backends = Arc::new(Backends::new(Arc::clone(&board)));
        backends.set([(seats[0].name().clone(), Arc::new(lane))].into(), 16);
        let state = StateDir::new(dir.path().to_owned());
        let url = mantyx.url.clone();
        let upstream = Upstream::new(url, None, &Credential::Own("token".into()), state);
        let (journal, _) = Journal::open(&dir.path().join("journal"), false).unwrap();
        let limits = Calls {
            timeout: Duration::from_secs(285),
            pending_timeout: Duration::from_secs(3600),
            max_concurrent: 16,
        };
        let (upstream, journal) = (Arc::new(upstream), Arc::new(journal));
        let runs = Arc::new(Runs::new(upstream, backends, &limits, &[app()], journal, None));
        board.wait_for(|board| board.snapshot("fs").filter(|fs| fs.connection.is_some())).await;
        Self { runs, world, mantyx, _dir: dir, _tasks: tasks }
    }

    async fn drive(&self) {
        let offer = self.runs.backends.board.offer();
        let names = offer.backends().map(|(name, _)| name.clone()).collect();
        let new = NewRun {
            key: RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: "run_1".into() },
            app: "a".into(),
            session: None,
            authority: self.runs.upstream.own().unwrap(),
            table: Arc::new(Table::assumed(&offer, names)),
            has_past: false,
            past_is_lost: false,
            trace: Context::default(),
        };
        self.runs.start(new).await.unwrap();
    }

    /// The bodies that were posted as results, once there are `count`.
    async fn posted(&self, count: usize) -> Vec<Value> {
        let bodies = async || {
            let posts = self.mantyx.seen().into_iter();
            let posts = posts.filter(|seen| seen.path.ends_with("/tool-results"));
            posts.map(|seen| serde_json::from_str(&seen.body).unwrap()).collect::<Vec<Value>>()
        };
        loop {
            let found = bodies().await;
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn by_hand(&self) -> Made {
        let offer = self.runs.backends.board.offer();
        let call = Call {
            tool_use: "by hand".into(),
            agent_run: None,
            name: "fs_ls".to_owned(),
            kind: Some(RefKind::McpLocal),
            args: RawValue::from_string("{}".to_owned()).unwrap(),
            mcp_server: None,
        };
        let (app, route) = ("a".into(), offer.route("fs_ls").unwrap());
        let made = self.runs.call(&app, route, call, None, Context::default()).await;
        made.unwrap()
    }
}

#[track_caller]
fn assert_unknown(error: &str) {
    assert!(error.starts_with("OUTCOME_UNKNOWN: internal error"), "{error}");
}

#[tokio::test]
async fn a_call_whose_task_panics_is_answered_once() {
    let scene = Scene::start(None).await;
    scene.world.calling.send_replace(Mood::Panicking);
    scene.drive().await;
    let posted = scene.posted(1).await;
    assert_eq!(posted[0]["toolUseId"], "tu_1");
    assert_unknown(posted[0]["error"].as_str().unwrap());
    assert_eq!(World::count(&scene.world.calls), 1, "it may have had its effect");
}

#[tokio::test]
async fn a_panic_before_the_tool_is_reached_says_so() {
    let made = Made::internal("fs_ls", false);
    let Answer::Error(why) = made.answer else { panic!("no error") };
    assert!(why.contains("was not made"), "{why}");
    assert_eq!(made.ending, Ending::Internal);
}

#[tokio::test]
async fn a_call_by_hand_that_panics_is_answered() {
    let scene = Scene::start(None).await;
    scene.world.calling.send_replace(Mood::Panicking);
    let Answer::Error(why) = scene.by_hand().await.answer else { panic!("no error") };
    assert_unknown(&why);
}

#[tokio::test]
async fn a_long_call_that_panics_has_a_result() {
    let scene = Scene::start(Some(Duration::from_millis(20))).await;
    scene.world.calling.send_replace(Mood::Hanging);
    scene.drive().await;
    let first: Value =
        serde_json::from_str(scene.posted(1).await[0]["result"].as_str().unwrap()).unwrap();
    assert_eq!(first["status"], "pending", "{first}");
    scene.world.calling.send_replace(Mood::Panicking);
    let call = first["callId"].as_str().unwrap().into();
    let driven = RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: "run_1".into() };
    let of = pending::Of::Run { driven, agent_run: "run_1".into() };
    let scope = pending::Scope { app: "a".into(), of };
    let answer = loop {
        match scene.runs.long_calls.fetch(&call, &scope) {
            pending::Fetched::Finished(answer) => break answer,
            pending::Fetched::Running { .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            pending::Fetched::Unknown => panic!("it is forgotten"),
        }
    };
    let Answer::Error(why) = &*answer else { panic!("no error: {answer:?}") };
    assert_unknown(why);
}
