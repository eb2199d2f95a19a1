//! Long calls: a call that outlives its backend's `pending_after` is answered with an id and
//! continues in a task of the daemon. Its result is kept here until the model fetches it.
//!
//! Must not: give anyone the result of a call that another run or session made, or keep results
//! without a bound.

mod durable;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::durable::Beginning;
pub(super) use self::durable::LongWork;
use super::Calls;
use super::active::{ActiveCall, Deferred, RunScope};
use crate::backend::{CallOutcome, NotRecorded};
use crate::error_chain::error_chain;
use crate::journal::record::{LongRecord, Millis};
use crate::journal::{DatabaseError, Journal, Replica, room};
use crate::limits::oldest::{Entry, over_bytes, over_count};
use crate::model::maps::{HashMap, HashSet};
use crate::model::pending::Fetch;
use crate::model::sentences;
use crate::model::{
    Answer, AppName, BackendName, CallId, CallOwner, CallingRun, Own, Route, RunKey, Target,
    paging, pending,
};
use crate::{clock, random};

/// How often a call that waits for its user, or that another replica makes, is looked at.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How long a result is kept.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// The most results of one app that are kept; the oldest are forgotten first.
const KEEP_COUNT: usize = 500;

/// Who may fetch the result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub app: AppName,
    pub of: CallOwner,
}

/// The state of a long call, as its scope sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    Running {
        /// The name that the model called.
        tool: String,
        /// The call has not reached its tool yet.
        waits: bool,
    },
    Finished(Arc<Answer>, Option<BackendName>),
    /// No such call, or it belongs to another scope.
    Unknown,
}

/// The long calls that run, and the results of those that have ended.
#[derive(Debug, Default)]
pub struct LongCalls {
    calls: Mutex<HashMap<CallId, LongCall>>,
    finished: Notify,
    /// Keeps the calls over a restart; `None` in tests.
    journal: Option<Arc<Journal>>,
}

#[derive(Debug)]
struct LongCall {
    scope: Scope,
    /// The name that the model called.
    tool: String,
    /// The backend, whose `max_result` limits the parts of the result.
    backend: Option<BackendName>,
    /// How to ask its peer for it, or to make it; `None` once it has ended.
    work: Option<LongWork>,
    finished: Option<Finished>,
    /// Cancels it.
    stop: CancellationToken,
    /// This process, not an earlier one, took the call to its tool for the first time.
    reached_tool_here: bool,
}

#[derive(Debug)]
struct Finished {
    at: Instant,
    /// The time of the end by the wall clock, which outlives the process.
    wall: Millis,
    answer: Arc<Answer>,
    /// About how many bytes of the journal the result takes.
    size: usize,
}

impl LongCall {
    /// The long call that `call` becomes.
    fn from_active(call: &ActiveCall, stop: CancellationToken) -> Self {
        Self::new(Scope::new(call), call.tool(), Some(LongWork::new(call)), None, stop)
    }

    fn new(
        scope: Scope,
        tool: &str,
        work: Option<LongWork>,
        finished: Option<Finished>,
        stop: CancellationToken,
    ) -> Self {
        let backend = work.as_ref().map(|work| work.request.route.backend.clone());
        let tool = tool.to_owned();
        Self { scope, tool, backend, work, finished, stop, reached_tool_here: false }
    }
}

impl Finished {
    fn new(wall: Millis, answer: Answer) -> Self {
        const RECORD: usize = 500;
        // As in the journal, where control characters take six bytes.
        let size = RECORD + answer.json_len();
        Self { at: Instant::now(), wall, size, answer: Arc::new(answer) }
    }
}

impl Scope {
    fn new(call: &ActiveCall) -> Self {
        let request = &call.request;
        let of = match (call.scope.as_ref(), request.run.clone()) {
            (Some(scope), Some(CallingRun { workspace, run, session })) => match session {
                Some(session) => CallOwner::Session { workspace, session },
                None => CallOwner::Run { driven: scope.key.clone(), agent_run: run },
            },
            _ => CallOwner::App,
        };
        Self { app: request.app.clone(), of }
    }
}

impl LongCalls {
    /// Long calls that are kept in `journal`.
    pub fn kept_in(journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..Self::default() }
    }

    /// Notes that a call continues after its first answer.
    fn begin(&self, id: CallId, call: LongCall) {
        self.write(&id, &call);
        self.calls.lock().insert(id, call);
    }

    /// Keeps the answer of a call; returns whether it can be fetched. Does nothing if the call was
    /// forgotten: then no scope could fetch it.
    ///
    /// The lock is held until the record is written and room is made. Otherwise a call that is
    /// forgotten meanwhile would come back from the journal after a restart.
    fn finish(&self, id: &CallId, answer: Answer) -> bool {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(id) else { return false };
        call.finished = Some(Finished::new(clock::millis(), answer));
        self.write(id, call);
        // The work holds the arguments, which would take memory for a day.
        call.work = None;
        self.erase(make_room(&mut calls));
        let can_be_fetched = calls.contains_key(id);
        drop(calls);
        self.finished.notify_waiters();
        can_be_fetched
    }

    /// The state of the call `id`, for a caller of `scope`. An id of another scope is answered as
    /// an unknown one: otherwise a model could try ids, and read what other runs have got.
    pub fn fetch(&self, id: &CallId, scope: &Scope) -> Fetched {
        match self.calls.lock().get(id).filter(|call| call.scope == *scope) {
            None => Fetched::Unknown,
            Some(call @ LongCall { finished: None, tool, .. }) => {
                Fetched::Running { tool: tool.clone(), waits: call.waits() }
            }
            Some(LongCall { finished: Some(Finished { at, answer, .. }), backend, .. }) => {
                if at.elapsed() < KEEP {
                    Fetched::Finished(Arc::clone(answer), backend.clone())
                } else {
                    Fetched::Unknown
                }
            }
        }
    }

    /// Like [`Self::fetch`], but waits until `deadline` for a call that runs.
    async fn fetch_by(&self, id: &CallId, scope: &Scope, deadline: Instant) -> Fetched {
        loop {
            // Subscribe before the look: a call that ends after it then still wakes this.
            let mut news = pin!(self.finished.notified());
            news.as_mut().enable();
            match self.fetch(id, scope) {
                running @ Fetched::Running { .. } => {
                    if timeout_at(deadline, news).await.is_err() {
                        return running;
                    }
                }
                fetched => return fetched,
            }
        }
    }

    /// Cancels the calls that `run` began. A long call has a task that outlives its run's driver,
    /// and would otherwise work on for a run that MANTYX has cancelled.
    pub fn cancel_of(&self, run: &RunKey) {
        for call in self.calls.lock().values().filter(|call| call.is_of(run)) {
            call.stop.cancel();
        }
    }

    /// Forgets the calls of every scope that `is_over`: no caller can fetch their results. Calls
    /// that still run are cancelled, as the model could not learn of their effects.
    pub fn forget(&self, is_over: impl Fn(&CallOwner) -> bool) {
        let mut over = Vec::new();
        self.calls.lock().retain(|id, call| {
            let keep = !is_over(&call.scope.of);
            if !keep {
                call.stop.cancel();
                over.push(id.clone());
            }
            keep
        });
        self.erase(over);
    }
}

/// Forgets results that are too old or beyond a limit; returns their ids.
///
/// The limits go in this order: age, the number of each app's results, the bytes of all. A result
/// that an earlier limit has dropped must not count for a later one, which would otherwise drop
/// results for which there is room.
fn make_room(calls: &mut HashMap<CallId, LongCall>) -> Vec<CallId> {
    let mut forgotten: HashSet<CallId> = HashSet::default();
    for (id, call) in calls.iter() {
        if call.finished.as_ref().is_some_and(|finished| finished.at.elapsed() >= KEEP) {
            forgotten.insert(id.clone());
        }
    }
    let by_age = rest(calls, &forgotten).map(|(app, entry)| (app, (entry.order, entry.key)));
    let too_many = over_count(KEEP_COUNT, by_age);
    forgotten.extend(too_many.into_iter().cloned());
    let too_large = over_bytes(room::LONG_RESULTS, rest(calls, &forgotten));
    forgotten.extend(too_large.into_iter().cloned());
    calls.retain(|id, _| !forgotten.contains(id));
    forgotten.into_iter().collect()
}

/// The results in `calls` that are not `forgotten` yet, each with its app.
fn rest<'a>(
    calls: &'a HashMap<CallId, LongCall>,
    forgotten: &HashSet<CallId>,
) -> impl Iterator<Item = (&'a AppName, Entry<Instant, &'a CallId>)> {
    calls.iter().filter(|(id, _)| !forgotten.contains(*id)).filter_map(|(id, call)| {
        let Finished { at, size, .. } = call.finished.as_ref()?;
        Some((&call.scope.app, Entry { order: *at, bytes: *size, key: id }))
    })
}

/// How long a call is waited for before its first answer, and how its run then asks for its result.
#[derive(Debug)]
pub struct Patience {
    after: Duration,
    /// The name of the tool that fetches results.
    fetch: String,
}

impl Calls {
    /// How long to wait before the first answer. `None`: the call cannot become a long call, as its
    /// backend has no `pending_after`, or its caller lacks the tool that fetches the result.
    pub fn patience(&self, route: &Route, scope: Option<&RunScope>) -> Option<Patience> {
        if !matches!(route.target, Target::Tool { .. }) {
            return None;
        }
        let after = self.backends.rules(&route.backend)?.pending_after?;
        Some(Patience { after, fetch: self.fetch_tool(scope)? })
    }

    /// The name of the tool that fetches results, for a run or for calls by hand.
    fn fetch_tool(&self, scope: Option<&RunScope>) -> Option<String> {
        match scope {
            Some(scope) => scope.table.results().map(str::to_owned),
            None => {
                let offer = self.backends.registry.offer();
                Some(offer.routes.own(Own::Results)?.to_string())
            }
        }
    }

    /// Makes a call. Returns its answer if that comes in time, and otherwise the first answer,
    /// which says that the call continues. Until then, dropping the future cancels the call.
    pub async fn call(
        self: &Arc<Self>,
        call: Arc<ActiveCall>,
        patience: Option<Patience>,
    ) -> Result<CallOutcome, Deferred> {
        let outcome = self.begun(Arc::clone(&call), patience).await?;
        Ok(self.shortened(&call, outcome).await)
    }

    /// The outcome with an answer as long as the operator wants it. The rest is kept, for the tool
    /// that fetches results.
    async fn shortened(&self, call: &ActiveCall, outcome: CallOutcome) -> CallOutcome {
        let route = &call.request.route;
        let max = match route.target {
            Target::Tool { .. } => {
                self.backends.rules(&route.backend).and_then(|rules| rules.max_result)
            }
            Target::Stub | Target::Own(_) => None,
        };
        let Some(max) = max else { return outcome };
        let Answer::Result { text, files } = &outcome.answer else { return outcome };
        // An MCP client gets the shorter answer, too. But what has a schema cannot be cut.
        let structured = outcome.structured().filter(|json| json.get().len() > max);
        if text.len() <= max && structured.is_none() {
            return outcome;
        }
        let can_be_cut = structured.is_none();
        let text = structured.map_or(text.as_str(), |json| json.get());
        // Only what is kept may be promised: there may be no room for it.
        let stored = self.fetch_tool(call.scope.as_ref()).zip(new_id()).filter(|(_, id)| {
            self.long.begin(id.clone(), LongCall::from_active(call, CancellationToken::new()));
            self.long.finish(id, Answer::Result { text: text.to_owned(), files: files.clone() })
        });
        if stored.is_some() {
            // The caller may count on the rest. If the disk is full, or the database away, this
            // process still has it.
            self.journal.keep(Vec::new()).await;
        }
        let fetch_by = stored.as_ref().map(|(fetch, id)| (fetch.as_str(), id));
        let shorter = if can_be_cut {
            let text = paging::first(text, max, fetch_by);
            Answer::Result { text, files: files.clone() }.within_limits()
        } else {
            Answer::Error(paging::too_large(text.len(), max, fetch_by))
        };
        outcome.cut(shorter)
    }

    /// Executes a call. If it takes longer than `patience`, it becomes a long call:
    ///
    /// 1. An id is drawn. At shutdown there is no later moment to fetch the result in, so the call
    ///    is waited for.
    /// 2. The requests that the call is of are written: repeated after a crash, they would make the
    ///    call a second time otherwise, beside the long call.
    /// 3. The long call's record is written, and the recorder is told, before the task begins: the
    ///    call could end in between, and its result would be lost.
    /// 4. The call moves into a task of the daemon, as its caller's future ends with the first
    ///    answer.
    /// 5. Among replicas, the record is durable before the id is given out. The caller may show the
    ///    id to another replica at once, which finds only what is written.
    async fn begun(
        self: &Arc<Self>,
        call: Arc<ActiveCall>,
        patience: Option<Patience>,
    ) -> Result<CallOutcome, Deferred> {
        let executed = Arc::clone(self).execute(Arc::clone(&call));
        let Some(Patience { after, fetch }) = patience else {
            return executed.await;
        };
        let mut execution = Box::pin(executed);
        // The time that an earlier process has waited counts.
        let mut patience = call.recorder.left_of(after);
        loop {
            if let Ok(outcome) = timeout(patience, &mut execution).await {
                return outcome;
            }
            // After its answer, a client can no longer be asked.
            let client = call.client.as_ref();
            if client.is_none_or(|client| client.open_questions.load(Ordering::Relaxed) == 0) {
                break;
            }
            patience = AGAIN;
        }
        let id = if self.drain.is_cancelled() { None } else { new_id() };
        let Some(id) = id else { return execution.await };
        // The execution is polled meanwhile: it may be about to write the same record.
        let has_begun = tokio::select! {
            biased;
            outcome = &mut execution => return outcome,
            begun = call.recorder.begin_requests() => begun.is_ok(),
        };
        if !has_begun {
            return execution.await;
        }
        call.observer.continues();
        let tool = call.tool();
        info!(app = %call.request.app, tool, call = %id, "the call goes on");
        let waits_for_a_person = call.observer.is_waiting() && !call.recorder.has_reached_tool();
        let first = if waits_for_a_person {
            pending::waits(&id, tool, &fetch)
        } else {
            pending::goes_on(&id, tool, &fetch)
        };
        let stop = call.scope.as_ref().map(|scope| scope.stop.child_token()).unwrap_or_default();
        self.long.begin(id.clone(), LongCall::from_active(&call, stop.clone()));
        call.recorder.becomes_long((Arc::clone(&self.long), id.clone()));
        self.spawn_long(execution, call, id, stop);
        if self.journal.replica().is_some() {
            // The next request for the result may come to another replica. While the database is
            // away, that one cannot know of the call, whatever this one waits for.
            self.journal.keep(Vec::new()).await;
        }
        Ok(CallOutcome::from(first))
    }

    /// Continues a long call to its end, or until its run is cancelled, in a task of the daemon.
    fn spawn_long(
        self: &Arc<Self>,
        executed: impl Future<Output = Result<CallOutcome, Deferred>> + Send + 'static,
        call: Arc<ActiveCall>,
        id: CallId,
        stop: CancellationToken,
    ) {
        let calls = Arc::clone(self);
        let app = call.request.app.clone();
        let to_its_end = async move {
            let outcome = tokio::select! {
                // The end first, as for other calls.
                biased;
                () = stop.cancelled() => Ok(Answer::Error(sentences::cancelled_with_run())),
                outcome = executed => match outcome {
                    Ok(made) => Ok(made.answer),
                    Err(Deferred) => Err("the next process, which asks for approval again"),
                },
                // It became a long call while its dispatch was written.
                () = call.recorder.claimed_elsewhere.cancelled() => {
                    Ok(Answer::Error(NotRecorded::Unwritable.for_model(call.tool())))
                }
                () = calls.left_to_next_process(&id) => {
                    Err("the next process, which asks the peer for the call")
                }
            };
            let answer = match outcome {
                Ok(answer) => answer,
                Err(heir) => return info!(call = %id, "left to {heir}"),
            };
            let ok = matches!(answer, Answer::Result { .. });
            let app = &call.request.app;
            info!(%app, tool = call.tool(), call = %id, ok, "the call has ended");
            drop(call);
            calls.long.finish(&id, answer);
        };
        self.spawn(&app, to_its_end);
    }

    /// Resolves at shutdown if the peer has named the call's work, so that the next process can ask
    /// for it.
    async fn left_to_next_process(&self, id: &CallId) {
        self.leave.cancelled().await;
        if !self.long.has_name(id) {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until `deadline` for the result of a call that another replica makes.
    async fn fetch_elsewhere(
        &self,
        replica: &Replica,
        id: &CallId,
        scope: &Scope,
        deadline: Instant,
    ) -> Result<Fetched, DatabaseError> {
        loop {
            let fetched = match replica.long_call(id).await? {
                Some(record) => of_record(record, scope),
                None => Fetched::Unknown,
            };
            if matches!(fetched, Fetched::Running { .. })
                && Instant::now() + AGAIN <= deadline
                && !self.drain.is_cancelled()
            {
                sleep(AGAIN).await;
                continue;
            }
            return Ok(fetched);
        }
    }

    /// The answer to the tool that fetches the result of a long call; the error is one, too.
    pub(super) async fn result_of(&self, call: &ActiveCall) -> Result<Answer, String> {
        let request = pending::read(call.request.arguments.get())?;
        let scope = Scope::new(call);
        let deadline = Instant::now() + request.wait.min(self.settings().limits.timeout);
        let here = tokio::select! {
            fetched = self.long.fetch_by(&request.call, &scope, deadline) => fetched,
            () = self.drain.cancelled() => self.long.fetch(&request.call, &scope),
        };
        let fetched = match (here, self.journal.replica()) {
            // The first result that is durable is the call's. It may be that of a replica which
            // took this one for dead.
            (own @ Fetched::Finished(..), Some(replica)) => {
                match self.fetch_elsewhere(replica, &request.call, &scope, Instant::now()).await {
                    Ok(durable @ Fetched::Finished(..)) => durable,
                    _ => own,
                }
            }
            (Fetched::Unknown, Some(replica)) => self
                .fetch_elsewhere(replica, &request.call, &scope, deadline)
                .await
                .map_err(|error| {
                    warn!(error = error_chain(&error), "cannot look up a long call");
                    pending::CANNOT_TELL
                })?,
            (here, _) => here,
        };
        Ok(match fetched {
            Fetched::Running { tool, waits } => {
                let fetch = self.fetch_tool(call.scope.as_ref());
                let fetch = fetch.as_deref().unwrap_or(pending::TOOL);
                pending::still(&request.call, &tool, fetch, waits)
            }
            Fetched::Finished(answer, backend) => {
                let max = backend.and_then(|name| self.backends.rules(&name)?.max_result);
                part(&answer, &request, max, self.fetch_tool(call.scope.as_ref()).as_deref())
            }
            Fetched::Unknown => Answer::Error(sentences::no_such_call()),
        })
    }
}

/// The state of a call that another replica makes.
fn of_record(record: LongRecord, scope: &Scope) -> Fetched {
    let LongRecord { app, of, tool, backend, handle, arguments, ended, .. } = record;
    match ended {
        _ if *scope != (Scope { app, of }) => Fetched::Unknown,
        Some((_, answer)) => Fetched::Finished(Arc::new(answer), Some(backend)),
        None => Fetched::Running { tool, waits: arguments.is_some() && handle.is_none() },
    }
}

/// As much of `answer` as `request` asks for, or as its backend's `max_result` allows.
fn part(answer: &Answer, request: &Fetch, max: Option<usize>, fetch: Option<&str>) -> Answer {
    let Answer::Result { text, files } = answer else { return answer.clone() };
    let fetch_by = (fetch.unwrap_or(pending::TOOL), &request.call);
    match (request.part, max) {
        (Some((offset, limit)), _) => {
            let limit = limit.unwrap_or_else(|| max.unwrap_or(paging::PART));
            paging::part(text, offset, limit).map_or_else(Answer::Error, Answer::text)
        }
        (None, Some(max)) if text.len() > max => {
            let text = paging::first(text, max, Some(fetch_by));
            Answer::Result { text, files: files.clone() }
        }
        (None, _) => answer.clone().within_limits(),
    }
}

/// A new id; `None` if the system has no random bytes. The call is then waited for.
fn new_id() -> Option<CallId> {
    let mut bytes = [0; 8];
    match random::fill(&mut bytes) {
        Ok(()) => Some(pending::call_id(bytes)),
        Err(error) => {
            warn!(%error, "no random bytes for the id of a long call; waiting for the call");
            None
        }
    }
}

#[cfg(test)]
mod tests;
