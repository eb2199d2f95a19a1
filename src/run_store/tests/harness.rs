//! Runs between a backend and a MANTYX that are made up.

use std::sync::atomic::AtomicBool;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::backend::LiveRedaction;
use crate::backend::calls::{BackendHandle, Backends};
use crate::backend::circuit_breaker::CircuitBreaker;
use crate::backend::fake::{FakeDial, World, registry};
use crate::backend::peer::Dial;
use crate::backend::registry::RegistryEntry;
use crate::backend::supervisor::Supervisor;
use crate::calls::record::CallRecorder;
use crate::config;
use crate::config::{App, Credential};
use crate::fake_http::{Agent, Reply};
use crate::journal::record::StoredRecords;
use crate::model::event::Call;
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::traces::Context;

/// Runs with the backend `fs`, in front of a MANTYX whose every run wants `fs_ls` as `tu_1`.
pub(super) struct Harness {
    pub(super) runs: Arc<RunStore>,
    pub(super) world: Arc<World>,
    pub(super) mantyx: Agent,
    pub(super) settings: watch::Sender<Arc<Settings>>,
    /// While this is set, MANTYX knows no run that results are posted to.
    pub(super) is_forgetful: Arc<AtomicBool>,
    pub(super) dir: tempfile::TempDir,
    _tasks: tokio::task::JoinSet<()>,
}

/// How many calls the backend gets at once.
pub(super) const CONCURRENCY: usize = 4;

pub(super) const RUN: &str = "run_1";

pub(super) fn key(id: &str) -> RunKey {
    RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: id.into() }
}

/// A call of the backend's tool.
pub(super) fn call(tool_use: &str) -> Call {
    Call {
        tool_use: tool_use.into(),
        agent_run: None,
        name: "fs_ls".to_owned(),
        kind: None,
        args: serde_json::from_str("{}").unwrap(),
        mcp_server: None,
    }
}

/// A run of `app` that has no driver yet.
pub(super) fn known_run(harness: &Harness, slot: u64, app: &str) -> Arc<DrivenRun> {
    let new = NewRun { app: app.into(), ..harness.new_run(&format!("{RUN}{slot}")) };
    let run = Arc::new(DrivenRun::new(Slot(slot), new, &harness.runs.context.log_room));
    harness.runs.journal().write(run.changes());
    harness.runs.inner.lock().runs.insert(run.key.clone(), Arc::clone(&run));
    run
}

impl Harness {
    pub(super) async fn start(pending_after: Option<Duration>) -> Self {
        let is_forgetful = Arc::new(AtomicBool::new(false));
        let forgets = Arc::clone(&is_forgetful);
        let mantyx = Agent::start(move |seen| {
            if seen.path.ends_with("/tool-results") && forgets.load(Ordering::SeqCst) {
                return Reply::status(404);
            }
            if !seen.path.ends_with("/stream") {
                return Reply::json("{}".to_owned());
            }
            let call = r#"{"seq":1,"type":"local_tool_call","data":{"toolUseId":"tu_1","name":"fs_ls","kind":"mcp_local","args":{}}}"#;
            Reply::events(&[call])
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let (world, (registry, leases)) = (World::new(), registry(["fs"]));
        let mut entry: RegistryEntry = crate::backend::fake::entry(&leases[0]);
        entry.source.can_pend = pending_after.is_some();
        registry.set(vec![entry]);
        let (asks, asked) = mpsc::channel(8);
        let rules = config::Backend {
            pending_after,
            concurrency: CONCURRENCY,
            ..crate::backend::fake::config("fs")
        };
        let dial: Arc<dyn Dial> = Arc::new(FakeDial(Arc::clone(&world)));
        let breaker = Arc::new(CircuitBreaker::new(leases[0].name.clone()));
        let backend =
            BackendHandle::new(Arc::new(rules), Arc::clone(&dial), Arc::clone(&breaker), asks);
        let (demand, switch) = (backend.demand.clone(), backend.switch.reader());
        let supervisor = Supervisor {
            lease: leases[0].clone(),
            dial,
            timing: watch::Sender::new(crate::backend::fake::timing()).subscribe(),
            registry: Arc::clone(&registry),
            breaker,
            asks: asked,
            first_turn: None,
            program: None,
            demand,
            switch,
            redact: LiveRedaction::default(),
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(supervisor.run(CancellationToken::new()));
        let backends = Arc::new(Backends::new(Arc::clone(&registry)));
        backends.set([(leases[0].name.clone(), Arc::new(backend))].into(), 16);
        let state = StateDir::new(dir.path().to_owned());
        let url = mantyx.url.clone();
        let upstream = Upstream::new(url, None, &Credential::Own("token".into()), state);
        let (journal, _) = Journal::open(&dir.path().join("journal"), false).unwrap();
        let limits = config::Calls {
            timeout: Duration::from_secs(285),
            pending_timeout: Duration::from_secs(3600),
            max_concurrent: 16,
        };
        let settings = Settings::new(limits, vec![App::named("a")], None);
        let (settings, read) = watch::channel(Arc::new(settings));
        let calls = Calls::new(backends, read, Arc::new(journal), None);
        let runs = RunStore::new(Arc::new(upstream), Arc::new(calls), Traces::default());
        let runs = Arc::new(runs);
        registry
            .wait_for(|registry| registry.snapshot("fs").filter(|fs| fs.connection.is_some()))
            .await;
        Self { runs, world, mantyx, settings, is_forgetful, dir, _tasks: tasks }
    }

    /// The run `id`, as its app creates it.
    pub(super) fn new_run(&self, id: &str) -> NewRun {
        let offer = self.runs.calls.backends.registry.offer();
        let names = offer.backends().map(|(name, _)| name.clone()).collect();
        NewRun {
            key: key(id),
            app: "a".into(),
            session: None,
            credential: self.runs.upstream.own().unwrap(),
            table: Arc::new(Table::assumed(&offer, names)),
            prompt: Box::default(),
            has_past: false,
            past_is_lost: false,
            trace: Context::default(),
        }
    }

    /// The recorder of a call of `run`.
    pub(super) fn recorder(&self, run: &DrivenRun, call: &Call) -> Arc<CallRecorder> {
        run.recorder(&self.runs.calls, &*self.runs, call)
    }

    pub(super) async fn drive(&self) -> Arc<DrivenRun> {
        self.runs.start(self.new_run(RUN)).await.unwrap()
    }

    /// What is on disk, once all that was given to the journal is.
    pub(super) async fn kept(&self) -> StoredRecords {
        self.runs.settled().await;
        let copy = self.dir.path().join("copy");
        std::fs::copy(self.dir.path().join("journal"), &copy).unwrap();
        Journal::open(&copy, false).unwrap().1
    }

    /// The bodies that were posted as results, once there are `count`.
    pub(super) async fn posted(&self, count: usize) -> Vec<Value> {
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
}
