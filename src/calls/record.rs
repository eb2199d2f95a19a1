//! The durable record of one call: every stage is on disk before the bridge takes the step that
//! only the next stage allows.
//!
//! Must not: decide what a stage means after a crash (model/recovery.rs does).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::ConversationOwners;
use super::history::HistoryId;
use super::long::{LongCalls, LongWork};
use super::once::RequestStart;
use crate::backend::{Handle, NotRecorded, Recorder};
use crate::journal::record::{CallKey, CallRecord, Change, Key, Slot};
use crate::journal::{Journal, KeptAnswer, NotWritten};
use crate::limits::shares::Share;
use crate::model::recovery::{LOCAL_TOOL_TIMEOUT, RecoveryFacts};
use crate::model::{Call, CallId, CallRequest, Identity, Moment, RunId, Stage, Workspace};

/// An answer that was kept over a restart, or until MANTYX knew its run again, is posted for at
/// least this long, however late it is.
const POST_KEPT: Duration = Duration::from_secs(30);

/// If the journal's database is away, an answer is posted without it in the last seconds.
const LAST_POST: Duration = Duration::from_secs(10);

/// What a recorder needs.
#[derive(Debug)]
pub struct Keeping {
    pub journal: Arc<Journal>,
    /// Cancelled when the bridge shuts down and no longer waits for calls.
    pub leaving: CancellationToken,
    /// The app's share of the journal, which the call's arguments and answer are charged to.
    pub share: Share,
    /// Who is told of the conversations that an agent begins with the call's app.
    pub conversation_owners: Option<Weak<dyn ConversationOwners>>,
}

/// Records the stages of one call. A call by hand has no record before it continues after a first
/// answer: after a restart, no caller could ask for it.
#[derive(Debug)]
pub struct CallRecorder {
    keeping: Keeping,
    is_by_hand: bool,
    /// The requests that the call is of, whose records come before it.
    requests: Vec<Arc<RequestStart>>,
    pub key: CallKey,
    record: Mutex<CallRecord>,
    /// When this process first knew the call.
    since: Instant,
    /// Its name in the history, once it is made.
    pub history_id: OnceLock<HistoryId>,
    /// Set when it becomes a long call.
    long: OnceLock<(Arc<LongCalls>, CallId)>,
    /// For how long earlier processes had known it, by the clocks that outlive a process.
    before: Duration,
    /// Cancelled when the journal has refused its dispatch, as another driver makes the call.
    pub claimed_elsewhere: CancellationToken,
    /// Whether the journal was given an answer, which the next one replaces.
    has_answer: AtomicBool,
}

impl CallRecorder {
    /// The recorder of a call that was just read; `seq` is the last event of its run that was read.
    pub fn new(
        keeping: Keeping,
        slot: Slot,
        agent_run: Option<&RunId>,
        call: &Call,
        seq: u64,
    ) -> Self {
        let key = CallKey { slot, agent_run: agent_run.cloned(), tool_use: call.tool_use.clone() };
        keeping.share.hold(call.args.get().len());
        let record = CallRecord {
            content: call.content(),
            name: call.name.clone(),
            kind: call.kind,
            mcp_server: call.mcp_server.clone(),
            args: Some(call.args.clone()),
            ..CallRecord::received(seq)
        };
        Self::with_record(keeping, key, record, Duration::ZERO)
    }

    /// Has one driver of all replicas send the call, as drivers of other runs may read it, too. The
    /// claim is written with the dispatch: the database takes one dispatch for one claim.
    pub fn claimed_for(mut self, agent_run: Option<(Workspace, RunId)>) -> Self {
        self.record.get_mut().claim = agent_run;
        self
    }

    /// The recorder of a call by hand, which is a part of `requests`.
    pub fn by_hand(keeping: Keeping, call: &CallRequest, requests: Vec<Arc<RequestStart>>) -> Self {
        let tool_use = call.tool_use.clone();
        let key = CallKey { slot: Slot(0), agent_run: None, tool_use };
        // Its own record is never written.
        Self {
            is_by_hand: true,
            requests,
            ..Self::with_record(keeping, key, CallRecord::received(0), Duration::ZERO)
        }
    }

    /// The recorder of a long call that an earlier process began `before` ago.
    pub fn long(keeping: Keeping, work: &LongWork, before: Duration) -> Self {
        let recorder = Self { before, ..Self::by_hand(keeping, &work.request, Vec::new()) };
        {
            let mut record = recorder.record.lock();
            record.handle = work.handle.as_ref().map(|handle| handle.0.clone());
            record.peer.clone_from(&work.peer);
        }
        recorder
    }

    fn with_record(keeping: Keeping, key: CallKey, record: CallRecord, before: Duration) -> Self {
        let has_answer = record.stage >= Stage::Answered;
        Self {
            has_answer: AtomicBool::new(has_answer),
            keeping,
            is_by_hand: false,
            requests: Vec::new(),
            key,
            record: Mutex::new(record),
            since: Instant::now(),
            history_id: OnceLock::new(),
            long: OnceLock::new(),
            before,
            claimed_elsewhere: CancellationToken::new(),
        }
    }

    /// The recorder of a call that an earlier process has left, with the size of its answer.
    pub fn kept(keeping: Keeping, key: CallKey, record: CallRecord, answer: usize) -> Self {
        keeping.share.hold(size(&record) + answer);
        let received = Moment { wall: record.received_at, up: record.received_up };
        // If that is not known, its time counts as over: MANTYX may no longer wait for it.
        let before = keeping.journal.since(received).unwrap_or(Duration::MAX);
        Self::with_record(keeping, key, record, before)
    }

    /// The change that writes the record as it is now.
    pub fn change(&self) -> Change {
        Change::Call(self.key.clone(), self.record.lock().clone())
    }

    /// Counts the call as dispatched, as the record of its dispatch may be lost. Without that, a
    /// call that an earlier process has made would be made again.
    pub fn doubt(&self) {
        let mut record = self.record.lock();
        if record.stage == Stage::Received {
            record.stage = Stage::Dispatched;
            record.attempts = record.attempts.max(1);
        }
    }

    /// The rest of `whole`, which began when the call was read.
    pub fn left_of(&self, whole: Duration) -> Duration {
        whole.saturating_sub(self.before).saturating_sub(self.since.elapsed())
    }

    /// Has the requests that the call is of on disk.
    ///
    /// # Errors
    ///
    /// One of them could not be written, or another replica has it: the call must not be sent.
    pub async fn begin_requests(&self) -> Result<(), NotRecorded> {
        for request in &self.requests {
            request.begin().await?;
        }
        Ok(())
    }

    /// For how long its answer may be posted, if MANTYX waits for `whole`.
    ///
    /// An answer that was kept gets a while in any case, also if its time is over by the clocks.
    /// The bridge was away, and MANTYX alone decides whether it still waits.
    pub fn post_within(&self, whole: Duration, origin: AnswerOrigin) -> Duration {
        let remaining = self.left_of(whole);
        match origin {
            AnswerOrigin::New if self.before.is_zero() => remaining,
            AnswerOrigin::New | AnswerOrigin::Kept => remaining.max(POST_KEPT),
        }
    }

    /// Resolves at shutdown if the call's peer has named the work, so that the next process can ask
    /// for it.
    ///
    /// Without a name, the call is waited for until the end of the drain: the next process could
    /// only say that the outcome is unknown.
    pub async fn left_to_next_process(&self) {
        self.keeping.leaving.cancelled().await;
        let answered = self.record.lock().stage >= Stage::Answered;
        if answered || self.handle().is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when another replica has taken the run over, by `lost`, or sends the call, if the
    /// call has not reached its tool here.
    ///
    /// A call that has reached its tool continues here: it is made already, and its answer is the
    /// first. If the driver dropped it, the other replica could only say that the outcome is
    /// unknown.
    pub async fn lost_with(&self, lost: &CancellationToken) {
        tokio::select! {
            () = self.claimed_elsewhere.cancelled() => return,
            () = lost.cancelled() => (),
        }
        // Its dispatch may still wait for the journal, which then says that it is another's.
        if self.has_reached_tool() {
            self.claimed_elsewhere.cancelled().await;
        }
    }

    /// The peer's name for the work that the call has started.
    pub fn handle(&self) -> Option<Handle> {
        self.record.lock().handle.clone().map(Handle)
    }

    /// The peer that the call was dispatched to.
    pub fn peer(&self) -> Option<Identity> {
        self.record.lock().peer.clone()
    }

    /// What `model::recovery` decides by. MANTYX waits for `whole`.
    pub fn recovery_facts(&self, repeatable: bool, whole: Duration) -> RecoveryFacts {
        let record = self.record.lock();
        // A call without its arguments cannot be made.
        let remaining = record.args.as_ref().map_or(Duration::ZERO, |_| self.left_of(whole));
        let stage = record.stage;
        let attempts = record.attempts;
        RecoveryFacts {
            stage,
            attempts,
            has_handle: record.handle.is_some(),
            repeatable,
            remaining,
        }
    }

    /// The call as it was read; with `null` for arguments that are no longer kept.
    pub fn call(&self) -> Call {
        let record = self.record.lock();
        Call {
            tool_use: self.key.tool_use.clone(),
            agent_run: self.key.agent_run.clone(),
            name: record.name.clone(),
            kind: record.kind,
            args: record.args.clone().unwrap_or_else(|| RawValue::NULL.to_owned()),
            mcp_server: record.mcp_server.clone(),
        }
    }

    /// Whether the app's share has room for all of its open calls, with the arguments of this one.
    /// If not, the arguments are dropped, and the call must not be made.
    ///
    /// The check comes before the record is written. A call whose arguments do not fit would fill
    /// the journal for all apps, and a full journal lets no call of any app be made.
    pub fn has_room(&self) -> bool {
        let mut record = self.record.lock();
        // A call that may have reached its tool is checked again before its next dispatch.
        if self.keeping.share.fits() || record.stage != Stage::Received {
            return true;
        }
        (record.stage, record.args) = (Stage::Answered, None);
        self.keeping.share.hold(0);
        false
    }

    /// Records the answer, to be posted as `body`.
    ///
    /// The answer is durable before it is posted. Otherwise a process that crashes between the two
    /// would say of a call that MANTYX has an answer for that its outcome is unknown.
    ///
    /// 1. The stage becomes `Answered`, and the arguments go: the call is never made again.
    /// 2. If the app has no room for the body, only the stage is written. After a crash, the model
    ///    then hears that the answer is lost.
    /// 3. The journal writes both in one piece, and says what is to be posted. Another replica may
    ///    have answered the call: the first durable answer is the call's, so that all posts of it
    ///    have one body. `None`: another driver answers the call, or may: that of another replica,
    ///    or of the next process, if this one's journal was closed first.
    /// 4. If the disk fails, the answer is posted nevertheless, and written when the disk works
    ///    again. A process that begins before that says that the outcome is unknown, and MANTYX,
    ///    which has the answer, ignores that.
    pub async fn answered(&self, body: Bytes) -> Option<Bytes> {
        let answer_change = {
            let mut record = self.record.lock();
            record.stage = Stage::Answered;
            record.args = None;
            match record.attempts {
                _ if self.has_answer.swap(true, Ordering::Relaxed) => Change::Replace,
                0 => Change::Refuse,
                _ => Change::Answer,
            }
        };
        let mut changes = vec![self.change()];
        if self.keeping.share.hold(body.len()) {
            changes.push(answer_change(self.key.clone(), body.clone()));
        } else {
            warn!(
                tool = self.record.lock().name,
                toolUseId = %self.key.tool_use,
                "the app has no room in the journal for the answer; it is posted, and a crash would \
                 lose it"
            );
            // An earlier answer that this one replaces.
            changes.push(Change::Forget(Key::Answer(self.key.clone())));
        }
        let within =
            self.post_within(LOCAL_TOOL_TIMEOUT, AnswerOrigin::New).saturating_sub(LAST_POST);
        match self.keeping.journal.keep_answer(&self.key, changes, within).await {
            KeptAnswer::First => Some(body),
            KeptAnswer::Superseded(first) => Some(first),
            KeptAnswer::NotOurs => None,
        }
    }

    /// Closes the call, as MANTYX no longer waits for its answer.
    pub fn close(&self) {
        self.keeping.journal.write(self.closed());
    }

    /// The changes that close the call, in one piece with those of the caller. They give the call's
    /// room in the journal back, and after them a restart has nothing to do for it.
    pub fn closed(&self) -> Vec<Change> {
        {
            let mut record = self.record.lock();
            (record.stage, record.args, record.handle) = (Stage::Closed, None, None);
        }
        self.keeping.share.hold(0);
        vec![self.change(), Change::Forget(Key::Answer(self.key.clone()))]
    }

    /// The changes that leave the call to another driver for good. They must be durable: the other
    /// driver may have ended, and be forgotten, before this one reads the call again.
    pub fn left_to_others(&self) -> Vec<Change> {
        self.record.lock().is_others = true;
        self.closed()
    }

    /// Turns the call into the long call `to`, as it has had its first answer.
    pub fn becomes_long(&self, to: (Arc<LongCalls>, CallId)) {
        // A call becomes a long call only once.
        self.long.set(to).ok();
    }

    /// The changes that write both records of the call at once, its run's and `long`: after a
    /// crash, neither may show a call that was not made.
    ///
    /// Its run may get the answer at the same time, so they are given to the journal under the
    /// record's lock: changes are written in the order in which the record changes.
    fn both(
        &self,
        call: impl Fn(CallKey, CallRecord) -> Change,
        record: &CallRecord,
        long: Change,
    ) -> Vec<Change> {
        if self.is_by_hand {
            return vec![long];
        }
        vec![call(self.key.clone(), record.clone()), long]
    }

    /// Whether the next process knows of the call.
    pub fn is_kept(&self) -> bool {
        !self.is_by_hand || self.long.get().is_some()
    }

    /// Whether the call has neither reached its tool nor been answered.
    pub fn is_received(&self) -> bool {
        self.record.lock().stage == Stage::Received
    }

    /// Whether the tool may have been reached.
    pub fn has_reached_tool(&self) -> bool {
        match self.long.get() {
            Some((calls, id)) => !calls.waits(id),
            None => !self.is_received(),
        }
    }
}

/// About how many bytes of the journal a record takes.
fn size(record: &CallRecord) -> usize {
    let args = record.args.as_ref().map_or(0, |args| args.get().len());
    args + record.handle.as_ref().map_or(0, String::len)
}

/// Where the answer to be posted comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOrigin {
    /// The call has just been answered.
    New,
    /// The journal has kept the answer.
    Kept,
}

impl Recorder for CallRecorder {
    /// Returns when the call may be sent to `peer`: the journal then has its dispatch on disk.
    ///
    /// A call that is sent without that record is made a second time after a crash. In steps:
    ///
    /// 1. A call that no process could ask for after a crash, as it is by hand, needs no record.
    ///    But the requests that it is of need one: repeated after a crash, they would send it
    ///    again.
    /// 2. While the bridge leaves its calls, nothing is dispatched: the next process makes the
    ///    call.
    /// 3. The app must have room for the record, as a full journal stops the calls of all apps.
    /// 4. The change is given to the journal under the record's lock. An answer that comes at the
    ///    same moment is then written behind the dispatch, and never before it.
    /// 5. After the write, `may_dispatch` asks whether the group still counts this replica as
    ///    alive. If not, another one may have taken the run over, and would send the call as well.
    /// 6. If the database says that another driver has the claim, this driver drops the call and
    ///    says nothing: the other one answers it.
    /// 7. Any other failure takes the dispatch back, and the call is answered as not made. The
    ///    record may still be written later, so that the answer must come from the run's owner.
    fn dispatching(&self, peer: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        let peer = peer.cloned();
        Box::pin(async move {
            let journal = &self.keeping.journal;
            let long = self.long.get();
            self.begin_requests().await?;
            self.history_id.get().inspect(|call| call.sent());
            if !self.is_kept() {
                self.record.lock().dispatch(peer);
                return Ok(());
            }
            if self.keeping.leaving.is_cancelled() {
                // A call that was left has made room. The next process makes this one.
                std::future::pending::<()>().await;
            }
            if !journal.is_open() {
                return Err(NotRecorded::Unwritable);
            }
            if !self.is_by_hand && !self.keeping.share.fits() {
                return Err(NotRecorded::NoShare);
            }
            let mut commit = None;
            match long {
                // The call has had its first answer, or is about to: the long call keeps its
                // result.
                Some((calls, id)) => calls.reaches(id, peer.as_ref(), |long| {
                    let mut record = self.record.lock();
                    let call_change = if record.stage == Stage::Received {
                        record.dispatch(peer.clone());
                        Change::Dispatch
                    } else {
                        Change::Call
                    };
                    commit = Some(journal.commit(self.both(call_change, &record, long)));
                })?,
                None => {
                    let mut record = self.record.lock();
                    record.dispatch(peer);
                    self.keeping.share.hold(size(&record));
                    let change = Change::Dispatch(self.key.clone(), record.clone());
                    commit = Some(journal.commit(vec![change]));
                }
            }
            // Where nothing changes, the barrier: what was given before is written.
            match commit.unwrap_or_else(|| journal.commit(Vec::new())).await {
                // Another replica may count this one as dead since the commit began.
                Ok(()) if journal.may_dispatch() => Ok(()),
                Err(NotWritten::Taken) if long.is_none() => {
                    // This driver drops the call.
                    self.record.lock().take_back_dispatch();
                    self.claimed_elsewhere.cancel();
                    std::future::pending().await
                }
                _ => {
                    // The call is not sent, even if its dispatch is written later. So its answer is
                    // that of the run's owner alone, who may send it meanwhile.
                    self.not_dispatched();
                    Err(NotRecorded::Unwritable)
                }
            }
        })
    }

    /// Takes the dispatch back, as the call was not sent. Without that, a restart would take the
    /// call for one that may have been made, and would tell the model so.
    fn not_dispatched(&self) {
        if let Some((calls, id)) = self.long.get() {
            calls.not_reached(id, |long| {
                let mut record = self.record.lock();
                record.take_back_dispatch();
                self.keeping.journal.write(self.both(Change::Call, &record, long));
            });
            return;
        }
        self.record.lock().take_back_dispatch();
        if self.is_kept() {
            self.keeping.journal.write(vec![self.change()]);
        }
    }

    /// Records the peer's name for the work, by which the next process asks for the result in place
    /// of saying that the outcome is unknown.
    fn named(&self, handle: &Handle) {
        if let Some((calls, id)) = self.long.get() {
            calls.named(id, handle);
            return;
        }
        let mut record = self.record.lock();
        record.handle = Some(handle.0.clone());
        if !self.is_by_hand {
            self.keeping.share.hold(size(&record));
            drop(record);
            self.keeping.journal.write(vec![self.change()]);
        }
    }

    fn in_conversation(&self, call: &CallRequest, context: &str) {
        let owners = self.keeping.conversation_owners.as_ref().and_then(Weak::upgrade);
        if let Some(owners) = owners {
            owners.own(&call.route.backend, context, &call.app);
        }
    }

    fn progressed(&self, text: &str) {
        self.history_id.get().inspect(|call| call.progressed(text));
    }

    fn is_left(&self) -> bool {
        self.keeping.leaving.is_cancelled()
    }
}
