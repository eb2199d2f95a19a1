//! Reports one call to the history, the metrics, the audit log and the trace.
//!
//! Must not: decide anything, or wait.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Calls;
use super::approvals::Decision;
use super::history::{Outcome, Running};
use crate::audit::Audit;
use crate::model::approval::Outcome as Approval;
use crate::model::{CallRequest, Ending, Target};
use crate::traces::{Context, Kind, Span};
use crate::{audit, clock, metrics};

/// The audit log's word for a call that continues after a first answer.
const PENDING: &str = "pending";

/// Observes a call that runs. If it is dropped without [`CallObserver::ends`], the call was
/// cancelled or, at shutdown, left to the next process.
#[derive(Debug)]
pub(super) struct CallObserver {
    pub(super) running: Running,
    /// `None` for fetching a result, which is no call to a backend.
    metrics: Option<Arc<metrics::Calls>>,
    audit: Option<(Arc<Audit>, audit::Call)>,
    begun: Instant,
    asking: Mutex<Asking>,
    leaving: CancellationToken,
    /// The trace context in which the call is made.
    pub(super) trace: Context,
    /// `None` once the call has ended.
    span: Mutex<Option<Span>>,
}

/// The most questions of its server that the audit log tells of a call.
const MAX_TOLD: usize = 20;

/// On whose behalf a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The bridge asks for the approval of the call.
    Bridge,
    /// The call's server asks its user something.
    Server,
}

/// What a person has been asked about a call.
#[derive(Debug, Default)]
struct Asking {
    /// The open question: since when a person is asked, and for whom.
    open: Option<(Instant, Asker)>,
    /// How long ended questions have waited.
    waited: Duration,
    /// Ended questions, as the audit log tells of them.
    audited: audit::PersonAnswers,
}

impl Asking {
    fn end(&mut self, decision: Decision) {
        let Some((since, asker)) = self.open.take() else { return };
        let elapsed = since.elapsed();
        self.waited += elapsed;
        let approval = audit::Approval {
            outcome: decision.outcome.as_str(),
            by: decision.by,
            reason: decision.reason,
            ms: clock::millis_of(elapsed),
        };
        match asker {
            Asker::Bridge => self.audited.approval = Some(approval),
            Asker::Server if self.audited.questions.len() < MAX_TOLD => {
                self.audited.questions.push(approval);
            }
            Asker::Server => {}
        }
    }
}

impl Calls {
    /// Observes a call that begins, in `trace`.
    pub(super) fn observe(&self, call: &CallRequest, trace: &Context) -> CallObserver {
        let span = span(trace, call);
        CallObserver {
            running: self.history.begin(call),
            metrics: self.backends.metrics(&call.route.backend),
            audit: self.audit.as_ref().map(|audit| (Arc::clone(audit), audited(audit, call))),
            begun: Instant::now(),
            asking: Mutex::default(),
            leaving: self.leave.clone(),
            trace: span.context.clone(),
            span: Mutex::new(Some(span)),
        }
    }

    /// Reports a call that is answered without being made.
    pub fn not_made(&self, call: &CallRequest, trace: &Context, ending: Ending) {
        if let Some(metrics) = self.backends.metrics(&call.route.backend) {
            metrics.ended.of(ending).inc();
        }
        span(trace, call).outcome(ending.as_str(), ending.is_failure());
        if let Some(audit) = &self.audit {
            let nothing = audit::PersonAnswers::default();
            audit.tell(&audited(audit, call), ending.as_str(), Duration::ZERO, &nothing);
        }
    }
}

/// The span of a call, without arguments and results: readers of traces must not see them.
fn span(trace: &Context, call: &CallRequest) -> Span {
    let mut span = trace.begin(Kind::Internal, format_args!("call {}", call.name));
    span.set("gen_ai.operation.name", "execute_tool");
    span.set("gen_ai.tool.name", call.name.as_str());
    span.set("bridge.app", call.app.as_str());
    if !matches!(call.route.target, Target::Own(_)) {
        span.set("bridge.backend", call.route.backend.as_str());
        span.set("bridge.tool", call.tool());
    }
    span.set("bridge.kind", call.route.kind.as_str());
    span.set("mantyx.tool_use_id", call.tool_use.as_str());
    if let Some(by) = &call.run {
        span.set("mantyx.run_id", by.run.as_str());
        if let Some(session) = &by.session {
            span.set("mantyx.session_id", session.as_str());
        }
    }
    span
}

/// The call as the audit log tells of it.
fn audited(audit: &Audit, call: &CallRequest) -> audit::Call {
    // Arguments that are no longer kept are `null`, which no tool takes.
    let arguments = Some(&*call.arguments).filter(|arguments| arguments.get() != "null");
    let backend = match call.route.target {
        Target::Own(_) => None,
        _ => Some(call.route.backend.to_string()),
    };
    let session = call.run.as_ref().and_then(|by| by.session.as_ref());
    audit::Call {
        app: call.app.to_string(),
        run: call.run_id().map(ToString::to_string),
        session: session.map(ToString::to_string),
        workspace: call.run.as_ref().map(|by| by.workspace.to_string()),
        tool_use_id: call.tool_use.to_string(),
        name: call.name.clone(),
        backend,
        tool: call.tool().to_owned(),
        arguments: arguments.map(|arguments| audit.arguments(arguments)).unwrap_or_default(),
    }
}

impl CallObserver {
    /// Notes that the call has had a first answer, and continues.
    pub(super) fn continues(&self) {
        self.running.pending();
        self.note("bridge.pending");
        if let Some((audit, call)) = &self.audit {
            let asking = self.asking.lock();
            audit.tell(call, PENDING, self.took(&asking), &asking.audited);
        }
    }

    /// A person is asked about the call.
    pub(super) fn waits(&self, asker: Asker) {
        self.asking.lock().open = Some((Instant::now(), asker));
        self.running.waits(true);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.asking.lock().open.is_some()
    }

    pub(super) fn decided(&self, decision: Decision) {
        self.asking.lock().end(decision);
        self.running.waits(false);
    }

    /// How long the call took, without the time that a person took.
    fn took(&self, asking: &Asking) -> Duration {
        let open = asking.open.map(|(since, _)| since.elapsed()).unwrap_or_default();
        self.begun.elapsed().saturating_sub(asking.waited + open)
    }

    /// Notes in the span that this is so.
    pub(super) fn note(&self, key: &'static str) {
        if let Some(span) = self.span.lock().as_mut() {
            span.set(key, true);
        }
    }

    /// Reports the end of the call, once: the span is taken by the first report. A call that has
    /// ended is also dropped, and would otherwise be counted a second time, as cancelled.
    pub(super) fn ends(&self, ending: Ending) {
        let Some(mut span) = self.span.lock().take() else { return };
        span.outcome(ending.as_str(), ending.is_failure());
        drop(span);
        self.running.end(Outcome::from_ending(ending));
        let mut asking = self.asking.lock();
        asking.end(Decision::none(Approval::Withdrawn));
        let took = self.took(&asking);
        if let Some((audit, call)) = &self.audit {
            audit.tell(call, ending.as_str(), took, &asking.audited);
        }
        if let Some(metrics) = &self.metrics {
            metrics.ended.of(ending).inc();
            // A call that is left has not come to its end.
            if ending != Ending::Left {
                metrics.duration.observe(took);
            }
        }
    }
}

impl Drop for CallObserver {
    fn drop(&mut self) {
        self.ends(if self.leaving.is_cancelled() { Ending::Left } else { Ending::Cancelled });
    }
}
