//! One call under way: what was asked for, its record, its observer, and what its run may decide.
//!
//! Must not: make the call (`execute` does).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Calls;
use super::observer::CallObserver;
use super::permission_check::PermissionCheck;
use super::record::CallRecorder;
use crate::backend::calls::CallContext;
use crate::backend::seat::Seat;
use crate::backend::{A2aClient, CallOutcome, Handle, McpClient, Question};
use crate::limits::counted::Counted;
use crate::model::instructions::Informed;
use crate::model::sentences;
use crate::model::{CallRequest, Ending, Identity, Rights, RunKey, Table};
use crate::traces::Context;

/// How many questions of a call's server wait for their turn.
const QUESTIONS: usize = 16;

/// The bridge shuts down before the call was made. The next process makes the call, or asks a
/// person again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferred;

/// What a call knows of the driven run that waits for it.
///
/// Calls are made by hand, for MCP clients and for other runtimes, too: this is all that the run of
/// a call may decide about it.
#[derive(Debug)]
pub struct RunScope {
    /// The driven run: of a call in an eval, the eval.
    pub key: RunKey,
    /// The tools that the run was given.
    pub table: Arc<Table>,
    /// Cancels the call, with its run.
    pub stop: CancellationToken,
    /// Counts the call as one of its run's, until it has ended.
    pub _in_flight: Counted,
    /// The servers whose instructions the run's searches have given it; `None` in an eval, whose
    /// agent runs do not see what the others were given.
    pub informed: Option<Arc<Informed>>,
}

/// What a caller without a driven run sees of its app's tools when it searches for some.
#[derive(Debug, Clone, Default)]
pub struct CallerView {
    /// A part of the app's rights; `None`: all of them.
    pub rights: Option<Arc<Rights>>,
    /// The servers whose instructions the caller has been given.
    pub informed: Option<Arc<Informed>>,
}

/// A call under way.
#[derive(Debug)]
pub struct ActiveCall {
    pub request: Arc<CallRequest>,
    pub recorder: Arc<CallRecorder>,
    /// The run that waits for the call. `None` for a call by hand, and for one whose first answer
    /// an earlier process has posted.
    pub scope: Option<RunScope>,
    /// The MCP client that has made the call, if one has.
    pub client: Option<Arc<McpClient>>,
    pub view: CallerView,
    /// The A2A client whose message the call is, if it is one's.
    pub a2a_client: Option<Arc<A2aClient>>,
    pub(super) observer: CallObserver,
    pub(super) permission_check: Arc<PermissionCheck>,
    /// The work that the call began in an earlier process, and the peer that has it.
    pub(super) handle: Option<Handle>,
    peer: Option<Identity>,
    pub(super) deadline: Instant,
    /// The permits that the call holds.
    pub(super) seat: Arc<Seat>,
    /// What the call's server asks a person: its end for the backend, and the one for the bridge.
    person: mpsc::Sender<Question>,
    pub(super) questions: Mutex<mpsc::Receiver<Question>>,
}

impl Calls {
    /// Prepares the call of `request`. Its time `within` counts from when the recorder was created,
    /// in this process or an earlier one. If the recorder knows work that a peer has named, the
    /// peer is asked for that work.
    pub fn activate(
        &self,
        request: Arc<CallRequest>,
        trace: &Context,
        recorder: Arc<CallRecorder>,
        within: Duration,
    ) -> ActiveCall {
        let observer = self.observe(&request, trace);
        // A call is activated only once.
        recorder.history_id.set(observer.running.id()).ok();
        let permission_check = self.permission_check(&request.app);
        let handle = recorder.handle();
        if handle.is_some() {
            // The peer is asked for work that the call began in an earlier process.
            observer.note("bridge.resumed");
            // An earlier process has made the call, so what had to be approved was.
            permission_check.approve();
        }
        // A person is asked one question at a time.
        let (person, questions) = mpsc::channel(QUESTIONS);
        ActiveCall {
            request,
            scope: None,
            client: None,
            view: CallerView::default(),
            a2a_client: None,
            observer,
            permission_check,
            handle,
            peer: recorder.peer(),
            deadline: Instant::now() + recorder.left_of(within),
            seat: Arc::default(),
            person,
            questions: Mutex::new(questions),
            recorder,
        }
    }
}

impl ActiveCall {
    /// The name that the model called.
    pub(super) fn tool(&self) -> &str {
        &self.request.name
    }

    /// What the call's backend needs to make it.
    pub(super) fn context(&self) -> CallContext {
        CallContext {
            request: Arc::clone(&self.request),
            trace: self.observer.trace.clone(),
            permission_check: Arc::clone(&self.permission_check) as _,
            recorder: Arc::clone(&self.recorder) as _,
            handle: self.handle.clone(),
            peer: self.peer.clone(),
            deadline: self.deadline,
            client: self.client.clone(),
            a2a_client: self.a2a_client.clone(),
            person: Some(self.person.clone()),
            seat: Arc::clone(&self.seat),
        }
    }

    /// The answer of a call by hand that has not ended when the bridge shuts down.
    pub(super) fn going_down(&self) -> CallOutcome {
        let tool = self.tool();
        let (ending, why) = if self.recorder.has_reached_tool() {
            (Ending::Cancelled, sentences::shutdown_during_call(tool))
        } else {
            (Ending::Unavailable, sentences::shutdown_before_call(tool))
        };
        CallOutcome::failed(ending, why)
    }

    /// Reports the outcome to the history, the metrics, the audit log and the trace.
    pub(super) fn end(&self, outcome: &Result<CallOutcome, Deferred>) {
        let ending = match outcome {
            Ok(made) => {
                self.observer.running.answered(made.answer.parts().0);
                made.ending
            }
            Err(Deferred) if self.recorder.is_kept() => Ending::Left,
            Err(Deferred) => Ending::Cancelled,
        };
        self.observer.ends(ending);
    }
}
