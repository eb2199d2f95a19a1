//! Keeps account of one call for those who look: the history, the metrics, the audit log and the
//! trace.
//!
//! Must not: decide anything, or wait.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    DrivenRun, Runs,
    history::{Begun, Outcome, Running},
};
use crate::{
    audit::{self, Audit},
    metrics,
    model::{
        ending::Ending,
        event::Call,
        offer::{Route, Target},
    },
    traces::{Context, Kind, Span},
};

/// What the audit log calls a call that goes on after a first answer.
const PENDING: &str = "pending";

/// The account of a call that runs. Dropped without [`Account::ends`], the call was cancelled or,
/// where the bridge goes down, left to the next process.
#[derive(Debug)]
pub(super) struct Account {
    running: Running,
    /// `None` for what is no call to a backend: fetching a result.
    metrics: Option<Arc<metrics::Calls>>,
    audit: Option<(Arc<Audit>, audit::Call)>,
    begun: Instant,
    leaving: CancellationToken,
    /// What the call is done in.
    trace: Context,
    /// `None` once the call has ended.
    span: Mutex<Option<Span>>,
}

/// What a call belongs to; nothing for a call by hand.
#[derive(Debug, Default)]
pub(super) struct Of {
    pub(super) workspace: Option<String>,
    pub(super) session: Option<String>,
}

impl From<&DrivenRun> for Of {
    fn from(run: &DrivenRun) -> Self {
        Self {
            workspace: Some(run.key.workspace.to_string()),
            session: run.session.as_ref().map(ToString::to_string),
        }
    }
}

impl Runs {
    /// A call of these arguments begins, as far as they are known.
    pub(super) fn account(
        &self,
        begun: Begun,
        route: &Route,
        arguments: Option<&RawValue>,
        (of, trace): (Of, &Context),
    ) -> Account {
        let span = span(trace, &begun, route, of.session.as_deref());
        let metrics = self.backends.metrics(&begun.backend);
        let audit = self.audit.as_ref().map(|audit| {
            let call = audited(audit, &begun, route, arguments, of);
            (Arc::clone(audit), call)
        });
        Account {
            running: self.history.begin(begun),
            metrics,
            audit,
            begun: Instant::now(),
            leaving: self.leave.clone(),
            trace: span.context().clone(),
            span: Mutex::new(Some(span)),
        }
    }
}

/// The span of a call. Arguments and results are nobody's who reads traces.
fn span(trace: &Context, begun: &Begun, route: &Route, session: Option<&str>) -> Span {
    let mut span = trace.begin(Kind::Internal, format_args!("call {}", begun.name));
    span.set("gen_ai.operation.name", "execute_tool");
    span.set("gen_ai.tool.name", begun.name.as_str());
    span.set("bridge.app", begun.app.as_str());
    if route.target != Target::Results {
        span.set("bridge.backend", route.backend.as_str());
        span.set("bridge.tool", route.target.tool());
    }
    span.set("bridge.kind", route.kind.as_str());
    span.set("mantyx.tool_use_id", begun.tool_use.as_str());
    if let Some(run) = &begun.run {
        span.set("mantyx.run_id", run.as_str());
    }
    if let Some(session) = session {
        span.set("mantyx.session_id", session);
    }
    span
}

/// How the call of `span` ended.
fn end(mut span: Span, ending: Ending) {
    span.outcome(ending.as_str(), ending.is_failure());
}

/// The call as the audit log tells of it.
fn audited(
    audit: &Audit,
    begun: &Begun,
    route: &Route,
    arguments: Option<&RawValue>,
    of: Of,
) -> audit::Call {
    // Those that are not kept any more are `null`, which is no tool's.
    let arguments = arguments.filter(|arguments| arguments.get() != "null");
    let is_backends = route.target != Target::Results;
    audit::Call {
        app: begun.app.to_string(),
        run: begun.run.as_ref().map(ToString::to_string),
        session: of.session,
        workspace: of.workspace,
        tool_use_id: begun.tool_use.to_string(),
        name: begun.name.clone(),
        backend: is_backends.then(|| route.backend.to_string()),
        tool: route.target.tool().to_owned(),
        arguments: arguments.map(|arguments| audit.arguments(arguments)).unwrap_or_default(),
    }
}

impl Runs {
    /// A call of `run` is answered without being made.
    pub(super) fn not_made(&self, run: &DrivenRun, call: &Call, ending: Ending) {
        let route = run.table.claims(call);
        if let Some(metrics) = route.and_then(|route| self.backends.metrics(&route.backend)) {
            metrics.ended.of(ending).inc();
        }
        let Some(route) = route else { return };
        let begun = Begun {
            app: run.app.clone(),
            run: Some(run.asked_by(call)),
            tool_use: call.tool_use.clone(),
            name: call.name.clone(),
            backend: route.backend.clone(),
        };
        let of = Of::from(run);
        end(span(&run.trace, &begun, route, of.session.as_deref()), ending);
        if let Some(audit) = &self.audit {
            let call = audited(audit, &begun, route, Some(&call.args), of);
            audit.tell(&call, ending.as_str(), Duration::ZERO);
        }
    }
}

impl Account {
    /// Where in a trace the call is made.
    pub(super) fn trace(&self) -> &Context {
        &self.trace
    }

    /// The call has had a first answer, and goes on.
    pub(super) fn goes_on(&self) {
        self.running.pending();
        self.note("bridge.pending");
        if let Some((audit, call)) = &self.audit {
            audit.tell(call, PENDING, self.begun.elapsed());
        }
    }

    /// The same, where an earlier process has told so.
    pub(super) fn goes_on_again(&self) {
        self.running.pending();
        self.resumed();
    }

    /// What the call has begun in an earlier process is asked for.
    pub(super) fn resumed(&self) {
        self.note("bridge.resumed");
    }

    /// Notes in the span that this is so.
    fn note(&self, key: &'static str) {
        let mut span = self.span.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(span) = span.as_mut() {
            span.set(key, true);
        }
    }

    /// The call has ended.
    pub(super) fn ends(&self, ending: Ending) {
        let Some(span) = self.span.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        end(span, ending);
        self.running.end(Outcome::of(ending));
        if let Some((audit, call)) = &self.audit {
            audit.tell(call, ending.as_str(), self.begun.elapsed());
        }
        if let Some(metrics) = &self.metrics {
            metrics.ended.of(ending).inc();
            // A call that is left has not come to its end.
            if ending != Ending::Left {
                metrics.duration.observe(self.begun.elapsed());
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let left = self.leaving.is_cancelled();
        self.ends(if left { Ending::Left } else { Ending::Cancelled });
    }
}
