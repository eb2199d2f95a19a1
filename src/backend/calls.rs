//! Makes one call: finds the backend, waits for a permit, bounds the time, and describes every
//! failure in a sentence that a model can act on.
//!
//! Must not: know runs or MANTYX, or put an address, a path or a secret into an answer.

mod admission;
mod ask;
mod backend_handle;
mod changes;
mod connecting;
mod deadlines;
mod failure;
pub mod relay;
mod resend;
mod switching;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::circuit_breaker::CallEvidence;
use super::outcome::CallOutcome;
use super::peer::{
    A2aClient, CallError, Handle, McpClient, PermissionCheck, Progress, Question, Recorder,
    ToolCall,
};
use super::registry::{InUse, Phase, Registry};
use super::seat::Seat;
use crate::config::Backend;
use crate::limits::queue::{AdmissionQueue, Rejected};
use crate::metrics;
use crate::model::sentences;
use crate::model::{
    Answer, BackendName, CallRequest, Ending, Identity, Permission, Target, Verdict,
};
use crate::tasks::in_background_if_large;
use crate::traces::{Context, Kind, Span};
use admission::{Sending, admit};
pub use backend_handle::{BackendHandle, Reader};
pub use changes::BackendChanges;
use connecting::{Connected, Patience};
use deadlines::CallDeadlines;
use failure::CallFailure;
use resend::not_run;

/// How long a request waits for the refresh that it has asked for: a program may take minutes to
/// start.
const REFRESH_PATIENCE: Duration = Duration::from_secs(60);

/// How long a call counts for the calls of all backends together. After that, only its own backend
/// bounds it: else a few backends that hang would take all permits.
const SHARED_FOR: Duration = Duration::from_secs(10);

/// All backends, for the parts of the bridge that make calls.
#[derive(Debug)]
pub struct Backends {
    pub registry: Arc<Registry>,
    /// A reload replaces this as a whole; a running call keeps the version that it began with.
    all: watch::Sender<Arc<All>>,
}

/// The handles of all backends.
pub type BackendHandles = BTreeMap<BackendName, Arc<BackendHandle>>;

#[derive(Debug)]
struct All {
    handles: Arc<BackendHandles>,
    max_concurrent: usize,
    /// Bounds the calls of all backends together.
    permits: AdmissionQueue,
}

/// One call on its way to its backend.
#[derive(Debug)]
pub struct CallContext {
    pub request: Arc<CallRequest>,
    /// The call's place in a trace.
    pub trace: Context,
    /// Asked right before each dispatch: the call may have waited for minutes since the first
    /// check, and a reload may have changed the configuration meanwhile.
    pub permission_check: Arc<dyn PermissionCheck>,
    /// Writes each step to the journal before the bridge takes it.
    pub recorder: Arc<dyn Recorder>,
    /// The work that this call started before a restart. If it is set, the bridge asks the peer for
    /// the outcome and starts nothing.
    pub handle: Option<Handle>,
    /// The peer that the call was sent to before. The bridge neither repeats the call to another
    /// peer, nor asks another peer for its outcome.
    pub peer: Option<Identity>,
    /// The latest time for the answer, whatever the backend's timeout is and whatever progress it
    /// reports.
    pub deadline: Instant,
    /// The MCP client that has made the call, if one has.
    pub client: Option<Arc<McpClient>>,
    /// The A2A client whose message the call is.
    pub a2a_client: Option<Arc<A2aClient>>,
    /// Takes the questions of the call's server for a person, if no MCP client has made the call.
    pub person: Option<mpsc::Sender<Question>>,
    /// The permits of the call.
    pub seat: Arc<Seat>,
}

/// Whether this process has sent the call before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dispatch {
    First,
    Repeated,
}

impl CallContext {
    fn sending(&self) -> Sending {
        match self.handle {
            None => Sending::New,
            Some(_) => Sending::Resumed,
        }
    }

    /// Refuses `now` if the call was sent to another peer: that one alone knows what became of it.
    fn check_peer(&self, now: Option<&Identity>) -> Result<(), CallFailure> {
        match &self.peer {
            Some(peer) if Some(peer) != now => Err(CallFailure::AnotherPeer),
            _ => Ok(()),
        }
    }
}

impl All {
    fn new(handles: BackendHandles, max_concurrent: usize) -> Self {
        let permits = AdmissionQueue::new(max_concurrent);
        Self { handles: Arc::new(handles), max_concurrent, permits }
    }
}

impl Backends {
    /// No backends yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, all: watch::Sender::new(Arc::new(All::new(BackendHandles::new(), 0))) }
    }

    /// Replaces the backends: one handle for every backend that is about to be in the registry.
    pub fn set(&self, handles: BackendHandles, max_concurrent: usize) {
        let mut all = All::new(handles, max_concurrent);
        let before = self.all();
        if before.max_concurrent == max_concurrent {
            all.permits = before.permits.clone();
        }
        self.all.send_replace(Arc::new(all));
    }

    /// Tells of each time that [`Self::set`] replaces the backends.
    pub fn changes(&self) -> BackendChanges {
        BackendChanges::new(self.all.subscribe())
    }

    fn all(&self) -> Arc<All> {
        Arc::clone(&self.all.borrow())
    }

    /// Checks the arguments against the tool's input schema, large ones in the background. If they
    /// are invalid, returns the answer for the model.
    pub async fn refuse_invalid(&self, call: &Arc<CallRequest>) -> Option<CallOutcome> {
        let Target::Tool { name: tool, input: Some(input) } = &call.route.target else {
            return None;
        };
        let backend = &call.route.backend;
        let request = Arc::clone(call);
        let schema = Arc::clone(input);
        let verdict = in_background_if_large(call.arguments.get().len(), move || {
            schema.check(request.arguments.get())
        });
        match verdict.await {
            Verdict::Valid => {}
            Verdict::Invalid(mistakes) => {
                info!(%backend, tool = &**tool, "a call was refused: its arguments are invalid");
                return Some(invalid_arguments(mistakes));
            }
            Verdict::Unchecked { why, news: true } => {
                warn!(%backend, tool = &**tool, why, "arguments of the tool cannot be checked");
            }
            Verdict::Unchecked { why, news: false } => {
                debug!(%backend, tool = &**tool, why, "arguments are not checked");
            }
        }
        None
    }

    /// The entry of `name` in bridge.yaml.
    pub fn rules(&self, name: &BackendName) -> Option<Arc<Backend>> {
        self.all().handles.get(name).map(|backend| Arc::clone(&backend.rules))
    }

    pub fn metrics(&self, name: &BackendName) -> Option<Arc<metrics::Calls>> {
        self.all().handles.get(name).map(|backend| Arc::clone(backend.metrics()))
    }

    pub fn handles(&self) -> Arc<BackendHandles> {
        Arc::clone(&self.all().handles)
    }

    /// Makes a call whose arguments are valid. Always returns an answer: within the backend's
    /// timeout, which restarts with every sign of progress, and by the call's own deadline.
    ///
    /// If a person has to approve the call first, it ends as [`Ending::NotApproved`], and nothing
    /// was dispatched.
    ///
    /// Dropping the future cancels the call at the peer.
    pub async fn call(&self, call: &CallContext) -> CallOutcome {
        let route = &call.request.route;
        let name = &route.backend;
        let all = self.all();
        if matches!(route.target, Target::Own(_)) {
            return CallOutcome::failed(
                Ending::Unavailable,
                format!("`{name}` is no backend's tool."),
            );
        }
        let Some(backend) = all.handles.get(name) else {
            let not_configured = match call.handle {
                None => CallFailure::Removed,
                Some(_) => CallFailure::Call(CallError::Lost(CallFailure::Removed.to_string())),
            };
            let failure = not_configured.for_call(call);
            return CallOutcome::failed(failure.ending(), failure.for_model(name));
        };
        if route.target == Target::Stub {
            return CallOutcome::failed(Ending::Unavailable, self.why_unavailable(name));
        }
        let _in_flight = backend.enter(&call.request.app);
        let deadlines = CallDeadlines::new(backend.rules.call_timeout, call.deadline);
        let outcome = self.admit_and_dispatch(backend, &all.permits, call, deadlines).await;
        // Nothing was learnt of the backend, so its last call stays the one that it had.
        if let Err(
            failure @ (CallFailure::BreakerOpen(_) | CallFailure::Rejected(Rejected::QueueFull, _)),
        ) = outcome
        {
            let failure = failure.for_call(call);
            debug!(backend = %name, %failure, "a call was not made");
            return CallOutcome::failed(failure.ending(), failure.for_model(name));
        }
        // A server that wants another credential lives, and yet nothing has answered.
        let was_denied = matches!(outcome, Err(CallFailure::Call(CallError::Denied(_))));
        backend.leave(&call.request.app, evidence(&outcome) == CallEvidence::Alive && !was_denied);
        let made = match outcome {
            Ok(outcome) => outcome,
            Err(CallFailure::Invalid(mistakes)) if call.peer.is_none() => {
                return invalid_arguments(mistakes);
            }
            Err(failure) => {
                let failure = failure.for_call(call);
                // The server may repeat the token that it refuses.
                let words = backend.rules.secrets.hide(failure.for_model(name));
                let why = backend.redactor().text(failure.to_string(), &mut 0);
                warn!(backend = %name, failure = why, "a call failed");
                let ending = failure.ending();
                CallOutcome { source: failure.source(), ..CallOutcome::failed(ending, words) }
            }
        };
        let redacted = backend.redacted(made.answer);
        let answer = match (&redacted, backend.rules.max_result) {
            // `Calls` cuts it to `max_result`, and keeps the rest for the tool that reads it.
            (Answer::Result { .. }, Some(_)) => redacted,
            _ => redacted.within_limits(),
        };
        CallOutcome { answer, ..made }
    }

    /// Waits for the permits of `call`, and dispatches it.
    ///
    /// The permit of all backends is given back after [`SHARED_FOR`]; the backend's own one, and
    /// the breaker's pass, only with the answer. A pass that ended before would let the next call
    /// through to a backend of which nothing is known yet.
    async fn admit_and_dispatch(
        &self,
        backend: &BackendHandle,
        permits: &AdmissionQueue,
        call: &CallContext,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        self.check_peer(call)?;
        let app = &call.request.app;
        let admission = admit(backend, permits, app, call.sending(), deadlines).await?;
        let _in_seat = call.seat.put(&backend.queue, app, admission.own);
        let mut answer = pin!(self.dispatch(call, deadlines));
        let outcome = match timeout(SHARED_FOR, answer.as_mut()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => {
                drop(admission.of_all);
                answer.await
            }
        };
        if let Some(pass) = admission.pass {
            pass.end(evidence(&outcome));
        }
        outcome
    }

    /// Refuses a call that was sent to another peer than the configured one, which need not be
    /// connected yet.
    fn check_peer(&self, call: &CallContext) -> Result<(), CallFailure> {
        if call.peer.is_none() {
            return Ok(());
        }
        match self.registry.snapshot(call.request.route.backend.as_str()) {
            Some(backend) => call.check_peer(backend.identity.as_ref()),
            None => Ok(()),
        }
    }

    /// Dispatches an admitted call. If the connection breaks and the tool is repeatable, dispatches
    /// it once more.
    ///
    /// 1. The connection: a call that waited for it is checked against the peer and the definition
    ///    of today, as a reload or another program may be behind the name.
    /// 2. The first attempt, after its dispatch is in the journal. A session that the server has
    ///    forgotten had no effect there, so the call is sent once more in a new one.
    /// 3. After a lost connection, the tool may have run. Only a tool that may run twice is called
    ///    again, once. A call that an earlier process has repeated is not repeated a third time.
    async fn dispatch(
        &self,
        call: &CallContext,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        let route = &call.request.route;
        let name = &route.backend;
        // A reload may have come while the call waited for its permits.
        self.check_peer(call)?;
        let Connected { connection, has_waited } = match call.handle {
            None => self.connected(name, None, Patience::OfCall(deadlines.deadline)).await?,
            // Work that has begun is worth the full wait. If the peer cannot be asked for it, the
            // answer is "outcome unknown", never "not made": the tool may have run.
            Some(_) => self
                .connected(name, None, Patience::Until(deadlines.idle_deadline()))
                .await
                .map_err(|failure| CallFailure::Call(CallError::Lost(failure.to_string())))?,
        };
        let deadlines = if has_waited { deadlines.with_clock_restarted() } else { deadlines };
        call.check_peer(connection.identity.as_ref())?;
        if has_waited && call.handle.is_none() {
            self.check_definition(call)?;
        }
        // The call was sent before a restart, when its tool was marked as repeatable. A reload or a
        // new catalog may have removed the mark since.
        let repeats_earlier_process = call.handle.is_none() && call.peer.is_some();
        if repeats_earlier_process && !self.registry.is_repeatable(route) {
            return Err(CallFailure::NotRepeatable);
        }
        let first = self.first_attempt(&connection, call, deadlines).await;
        let peer = connection.identity.clone();
        if call.handle.is_none()
            && let Some(why) = not_run(&first, &connection)
        {
            return self.send_on_next(connection, call, why, deadlines).await;
        }
        drop(connection);
        let why = match first {
            Err(CallFailure::Call(CallError::Lost(why)))
                // One that a crash has repeated already is not made a third time.
                if !repeats_earlier_process
                    && self.registry.is_repeatable(route)
                    && Instant::now() < deadlines.idle_deadline() =>
            {
                why
            }
            outcome => return outcome,
        };
        // Work that was only asked for was not checked against this schema.
        if self.refuse_invalid(&call.request).await.is_some() {
            return Err(CallFailure::Call(CallError::Lost(why)));
        }
        // A repeatable tool has no further effect the second time, so the call is made again, once,
        // like after a crash.
        info!(backend = %name, why, "connection lost; retrying the repeatable call once");
        match self.repeat(call, peer.as_ref(), deadlines).await {
            // The repetition was not sent, but the first attempt may have taken effect. "Not made"
            // would be wrong.
            Err(failure) if failure.is_of_no_call() => Err(CallFailure::Call(CallError::Lost(why))),
            outcome => outcome,
        }
    }

    async fn first_attempt(
        &self,
        connection: &InUse,
        call: &CallContext,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        if call.handle.is_none() {
            self.record_dispatch(connection, call, Dispatch::First).await?;
        }
        self.attempt(connection, call, call.handle.clone(), deadlines).await
    }

    /// Sends the call to the peer once or, with `handle`, asks the peer for the outcome of that
    /// work. Waits for the answer.
    async fn attempt(
        &self,
        connection: &InUse,
        call: &CallContext,
        handle: Option<Handle>,
        deadlines: CallDeadlines,
    ) -> Result<CallOutcome, CallFailure> {
        let mut span = span(call, handle.is_some());
        let all = self.all();
        let backend = all.handles.get(&call.request.route.backend);
        let mut progress = Progress::new(
            call.client.clone(),
            call.person.clone(),
            Arc::clone(&call.permission_check),
            Arc::clone(&call.request),
        );
        progress.seat = Some(Arc::clone(&call.seat));
        progress.a2a_client.clone_from(&call.a2a_client);
        if let Some(backend) = backend {
            progress.redactor = backend.redactor();
        }
        let tool_call = ToolCall {
            request: Arc::clone(&call.request),
            // The peer continues the trace from this span.
            trace: span.context.trace().cloned(),
            progress: progress.clone(),
            recorder: Arc::clone(&call.recorder),
        };
        let mut answer = match handle {
            Some(handle) => connection.peer.resume(handle, tool_call),
            None => connection.peer.call(tool_call),
        };
        let mut silent_until = pin!(sleep_until(deadlines.idle_deadline()));
        let outcome = loop {
            tokio::select! {
                // An answer that has arrived counts, even if this task looks at it after the
                // time-out.
                biased;
                answer = &mut answer => break answer.map_err(CallFailure::Call),
                () = &mut silent_until => break Err(CallFailure::TimedOut(deadlines.elapsed())),
                () = progress.touched() => silent_until.as_mut().reset(deadlines.idle_deadline_from_now()),
            }
        };
        let ending = match &outcome {
            Ok(outcome) => outcome.ending,
            Err(failure) => failure.ending(),
        };
        span.outcome(ending.as_str(), ending.is_failure());
        outcome
    }

    /// Checks that the call is permitted and writes its dispatch to the journal. Only then may the
    /// call be sent: after a crash, the journal says which calls may have taken effect.
    ///
    /// Permission is asked twice. Before the record, so that a call which may not be made leaves
    /// none; and after it, as the disk may have been slow while a reload took the right away. If
    /// the second answer is no, the record of a first dispatch is taken back: a later driver would
    /// otherwise take the call for one that may have run.
    async fn record_dispatch(
        &self,
        connection: &InUse,
        call: &CallContext,
        dispatch: Dispatch,
    ) -> Result<(), CallFailure> {
        call.permission_check.prepare(&call.request).await;
        self.check_permission(call)?;
        call.recorder.dispatching(connection.identity.as_ref()).await?;
        self.check_permission(call).and_then(|()| count(call, dispatch)).inspect_err(|_| {
            if dispatch == Dispatch::First {
                call.recorder.not_dispatched();
            }
        })
    }

    /// Checks that the call may be sent at this moment.
    fn check_permission(&self, call: &CallContext) -> Result<(), CallFailure> {
        // A new connection may have brought a new catalog, in which the tool is withdrawn.
        if self.registry.withdraws(&call.request.route.backend, call.request.tool()) {
            return Err(CallFailure::Withdrawn);
        }
        match call.permission_check.now(&call.request) {
            Permission::Given => Ok(()),
            Permission::Ask => Err(CallFailure::NotApproved),
            Permission::Refused(refusal) => Err(refusal.into()),
        }
    }

    fn why_unavailable(&self, name: &BackendName) -> String {
        let snapshot = self.registry.snapshot(name.as_str());
        match snapshot.map(|snapshot| snapshot.phase) {
            Some(Phase::Ready | Phase::Degraded | Phase::Idle) => {
                sentences::tools_available_next_run(name)
            }
            Some(Phase::Starting) => sentences::backend_starts(name),
            Some(Phase::Disabled) => sentences::backend_disabled(name),
            Some(Phase::Connecting | Phase::Down) | None => sentences::backend_never_reached(name),
        }
    }

    /// Refreshes `name` now and waits for the attempt to end, failed or not, but no longer than
    /// [`REFRESH_PATIENCE`]. `None`: there is no such backend.
    pub async fn refresh(&self, name: &str) -> Option<()> {
        let backend = Arc::clone(self.all().handles.get(name)?);
        let (done, wait) = oneshot::channel();
        if backend.asks.send(done).await.is_ok() {
            // An error means that the supervisor stopped: another one has taken over, or the daemon
            // is going down.
            drop(timeout(REFRESH_PATIENCE, wait).await);
        }
        Some(())
    }
}

/// The outcome of a call whose arguments do not fit its tool; `mistakes` is for the model.
fn invalid_arguments(mistakes: String) -> CallOutcome {
    CallOutcome {
        answer: Answer::Error(mistakes).within_limits(),
        ending: Ending::InputInvalid,
        source: None,
    }
}

/// Counts the call against the quotas of its app. A call that was sent before has been counted;
/// "not made" would be wrong for it.
fn count(call: &CallContext, dispatch: Dispatch) -> Result<(), CallFailure> {
    if dispatch == Dispatch::Repeated || call.peer.is_some() {
        return Ok(());
    }
    call.permission_check.count(&call.request).map_err(CallFailure::OverQuota)
}

/// The span of one dispatch to a peer.
fn span(call: &CallContext, again: bool) -> Span {
    let route = &call.request.route;
    let mut span = call.trace.begin(Kind::Client, format_args!("dispatch {}", route.backend));
    span.set("bridge.backend", route.backend.as_str());
    span.set("bridge.tool", route.target.tool());
    span.set("bridge.kind", route.kind.as_str());
    if again {
        span.set("bridge.resumed", true);
    }
    span
}

/// What the outcome of a call says about the backend.
fn evidence<T>(outcome: &Result<T, CallFailure>) -> CallEvidence {
    match outcome {
        Ok(_)
        | Err(CallFailure::Call(
            CallError::Refused(_)
            | CallError::Denied(_)
            | CallError::RefusedWith { .. }
            | CallError::NotRead(_),
        )) => CallEvidence::Alive,
        Err(CallFailure::NotConnected | CallFailure::TimedOut(_) | CallFailure::Call(_)) => {
            CallEvidence::Failed
        }
        // The call ended before it reached the backend.
        Err(_) => CallEvidence::Inconclusive,
    }
}

#[cfg(test)]
mod tests;
