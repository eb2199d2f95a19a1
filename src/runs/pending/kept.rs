//! Long calls in the journal: what goes on is asked for again after a restart where its peer has
//! named it, and results can be fetched as before.
//!
//! Must not: decide who may fetch a result (pending.rs does).

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Finished, InHand, KEEP, LongCall, LongCalls, Of, Scope};
use crate::{
    backend::{
        calls::Wanted,
        peer::{Handle, NotRecorded, Origin, Witness},
    },
    journal::{
        self,
        record::{Change, LongOf, LongRecord, Millis},
    },
    model::{
        answer::Answer,
        ids::{BackendName, CallId, RunKind, SessionId},
        offer::{RefKind, Route, Target},
        pending,
    },
    runs::{RunKey, Runs, account, history::Begun},
    traces::Context,
};

/// What is needed to ask for a call that goes on.
#[derive(Debug)]
pub(in crate::runs) struct Work {
    pub route: Route,
    /// Which call of which run began it; `None` for a call by hand.
    pub origin: Option<Origin>,
    /// What the peer calls it.
    pub handle: Option<Handle>,
    pub begun_at: Millis,
}

/// The witness of a long call that is asked for again.
#[derive(Debug)]
struct Resumed {
    calls: Arc<LongCalls>,
    id: CallId,
    leaving: CancellationToken,
}

impl Witness for Resumed {
    fn dispatching(&self) -> BoxFuture<'_, Result<(), NotRecorded>> {
        // Nothing is started anew.
        Box::pin(async { Err(NotRecorded) })
    }

    fn named(&self, handle: &Handle) {
        self.calls.named(&self.id, handle);
    }

    fn is_left(&self) -> bool {
        self.leaving.is_cancelled()
    }
}

impl LongCalls {
    /// The peer has named a call that goes on.
    pub(in crate::runs) fn named(&self, id: &CallId, handle: &Handle) {
        let mut calls = self.lock();
        let Some(call) = calls.get_mut(id) else { return };
        if let Some(work) = &mut call.work {
            work.handle = Some(handle.clone());
        }
        self.write(id, call);
    }

    /// Whether the peer has named it.
    pub(super) fn has_name(&self, id: &CallId) -> bool {
        let calls = self.lock();
        let work = calls.get(id).and_then(|call| call.work.as_ref());
        work.is_some_and(|work| work.handle.is_some())
    }

    /// Has the journal write down how `call` stands.
    pub(super) fn write(&self, id: &CallId, call: &LongCall) {
        if let (Some(journal), Some(record)) = (&self.journal, call.record()) {
            journal.write(vec![Change::Long(id.to_string(), record)]);
        }
    }

    /// Has the journal forget calls.
    pub(super) fn erase(&self, ids: &[CallId]) {
        if let Some(journal) = &self.journal
            && !ids.is_empty()
        {
            journal.write(ids.iter().map(|id| Change::ForgetLong(id.to_string())).collect());
        }
    }
}

impl LongCall {
    /// The call as it is to be kept.
    fn record(&self) -> Option<LongRecord> {
        let Work { route, origin, handle, begun_at } = self.work.as_ref()?;
        let ended = self.finished.as_ref();
        Some(LongRecord {
            app: self.scope.app.to_string(),
            of: self.scope.of.kept(),
            tool: self.tool.clone(),
            backend: route.backend.to_string(),
            kind: route.kind.as_str().to_owned(),
            target: route.target.tool().to_owned(),
            origin: origin.as_ref().map(|it| (it.run.to_string(), it.tool_use.to_string())),
            handle: handle.as_ref().map(|handle| handle.0.clone()),
            begun_at: *begun_at,
            ended: ended.map(|ended| (ended.told, Answer::clone(&ended.answer))),
        })
    }
}

impl Of {
    fn kept(&self) -> LongOf {
        match self {
            Self::Session { workspace, session } => {
                LongOf::Session { workspace: workspace.to_string(), session: session.to_string() }
            }
            Self::Run { driven, agent_run } => LongOf::Run {
                workspace: driven.workspace.to_string(),
                kind: driven.kind.collection().to_owned(),
                run: driven.run.to_string(),
                agent_run: agent_run.to_string(),
            },
            Self::App => LongOf::App,
        }
    }

    /// `None`: of a kind that this version does not know.
    fn restore(kept: LongOf) -> Option<Self> {
        Some(match kept {
            LongOf::Session { workspace, session } => {
                Self::Session { workspace: workspace.into(), session: session.into() }
            }
            LongOf::Run { workspace, kind, run, agent_run } => {
                let kind = RunKind::of_collection(&kind)?;
                let driven = RunKey { workspace: workspace.into(), kind, run: run.into() };
                Self::Run { driven, agent_run: agent_run.into() }
            }
            LongOf::App => Self::App,
        })
    }

    fn account(&self) -> account::Of {
        let (workspace, session) = match self {
            Self::Session { workspace, session } => (Some(workspace), Some(session)),
            Self::Run { driven, .. } => (Some(&driven.workspace), None),
            Self::App => (None, None),
        };
        account::Of {
            workspace: workspace.map(ToString::to_string),
            session: session.map(ToString::to_string),
        }
    }

    fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session { session, .. } => Some(session),
            Self::Run { .. } | Self::App => None,
        }
    }
}

impl Runs {
    /// Takes up the long calls that an earlier process left.
    pub(in crate::runs) fn restore_long_calls(self: &Arc<Self>, kept: Vec<(String, LongRecord)>) {
        for (id, record) in kept {
            let id = CallId::from(id);
            if self.restore_long_call(&id, record).is_none() {
                warn!(call = %id, "a long call in the journal is not one of this version; left out");
                self.long_calls.erase(&[id]);
            }
        }
    }

    fn restore_long_call(self: &Arc<Self>, id: &CallId, record: LongRecord) -> Option<()> {
        let age = |at: Millis| Duration::from_millis(journal::now().saturating_sub(at));
        let scope = Scope { app: record.app.as_str().into(), of: Of::restore(record.of)? };
        let target = Target::Tool { name: record.target.into(), input: None };
        let backend = BackendName::parse(&record.backend).ok()?;
        let kind = RefKind::parse(&record.kind)?;
        let route = Route { backend, kind, target, repeatable: false };
        let session = scope.of.session().cloned();
        let origin = record.origin.map(|(run, tool_use)| Origin {
            run: run.into(),
            session,
            tool_use: tool_use.into(),
        });
        if record.ended.as_ref().is_some_and(|(at, _)| age(*at) >= KEEP) {
            self.long_calls.erase(std::slice::from_ref(id));
            return Some(());
        }
        let handle = record.handle.map(Handle);
        let goes_on = record.ended.is_none();
        let work = Work {
            route: route.clone(),
            origin: origin.clone(),
            handle: handle.clone(),
            begun_at: record.begun_at,
        };
        let finished = record.ended.map(|(told, answer)| Finished {
            at: Instant::now(),
            told,
            answer: Arc::new(answer),
        });
        let call = LongCall {
            scope: scope.clone(),
            tool: record.tool.clone(),
            work: Some(work),
            finished,
        };
        self.long_calls.lock().insert(id.clone(), call);
        if !goes_on {
            return Some(());
        }
        let left = self.settings().calls.pending_timeout.saturating_sub(age(record.begun_at));
        let Some(handle) = handle.filter(|_| !left.is_zero()) else {
            self.long_calls.finish(id, pending::lost(&record.tool));
            return Some(());
        };
        info!(app = %scope.app, tool = record.tool, call = %id, "a long call is asked for again");
        let of = scope.of.account();
        let begun = Begun {
            app: scope.app.clone(),
            run: origin.as_ref().map(|origin| origin.run.clone()),
            tool_use: origin.as_ref().map_or_else(|| "".into(), |origin| origin.tool_use.clone()),
            name: record.tool.clone(),
            backend: route.backend.clone(),
        };
        let trace = self.trace_of(&scope.of, origin.as_ref());
        let account = self.account(begun, &route, None, (of, &trace));
        account.goes_on_again();
        let stop = self.stop_of(origin.as_ref());
        let wanted = Wanted {
            arguments: RawValue::from_string("{}".to_owned()).ok()?,
            origin: origin.clone(),
            trace: account.trace().clone(),
            witness: Some(Arc::new(Resumed {
                calls: Arc::clone(&self.long_calls),
                id: id.clone(),
                leaving: self.leave.clone(),
            })),
            handle: Some(handle),
            deadline: Instant::now() + left,
        };
        let (runs, to) = (Arc::clone(self), route.clone());
        let making = async move { runs.backends.call(&to, wanted).await };
        let in_hand =
            InHand { app: scope.app, tool: record.tool, route, origin, account, asked_by: None };
        self.tracker.spawn(Arc::clone(self).go_on(making, in_hand, id.clone(), stop));
        Some(())
    }

    /// What cancels the calls of the run that `origin` names, if it is known.
    fn stop_of(&self, origin: Option<&Origin>) -> CancellationToken {
        let inner = self.lock();
        let run =
            origin.and_then(|origin| inner.runs.values().find(|run| run.key.run == origin.run));
        run.map(|run| run.stop.clone()).unwrap_or_default()
    }

    /// Where in a trace the run is that began a call, if it is known: the one that `of` or `origin`
    /// names.
    fn trace_of(&self, of: &Of, origin: Option<&Origin>) -> Context {
        let is_it = |key: &RunKey| match of {
            Of::Run { driven, .. } => key == driven,
            Of::Session { .. } | Of::App => origin.is_some_and(|origin| origin.run == key.run),
        };
        let inner = self.lock();
        if let Some((_, run)) = inner.runs.iter().find(|(key, _)| is_it(key)) {
            return run.trace.clone();
        }
        let asleep = inner.asleep.iter().find(|(key, _)| is_it(key));
        asleep.map(|(_, kept)| self.kept_trace(&kept.record)).unwrap_or_default()
    }
}
