//! The durable record of one call: every stage is on disk before the bridge takes the step that
//! only the next stage allows.
//!
//! Must not: decide what a stage means after a crash (model/recovery.rs does).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::history::HistoryId;
use super::long::{LongCalls, Work};
use crate::backend::{Handle, NotRecorded, Recorder};
use crate::journal::record::{CallKey, CallRecord, Change, Key, Slot};
use crate::journal::{Journal, NotWritten};
use crate::limits::shares::Share;
use crate::model::recovery::{Known, LOCAL_TOOL_TIMEOUT};
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
}

/// Records the stages of one call. A call by hand has no record before it continues after a first
/// answer: after a restart, no caller could ask for it.
#[derive(Debug)]
pub struct CallRecorder {
    keeping: Keeping,
    is_by_hand: bool,
    pub key: CallKey,
    record: Mutex<CallRecord>,
    /// When this process first knew the call.
    since: Instant,
    /// Its name in the history, once it is made.
    pub shown: OnceLock<HistoryId>,
    /// Set when it becomes a long call.
    long: OnceLock<(Arc<LongCalls>, CallId)>,
    /// For how long earlier processes had known it, by the clocks that outlive a process.
    before: Duration,
    /// Cancelled when the journal has refused its dispatch, as another driver makes the call.
    pub taken: CancellationToken,
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

    /// Has one of all replicas send the call, as drivers of other runs may read it, too.
    pub fn claimed_for(mut self, agent_run: Option<(Workspace, RunId)>) -> Self {
        self.record.get_mut().claim = agent_run;
        self
    }

    /// The recorder of a call by hand.
    pub fn by_hand(keeping: Keeping, call: &CallRequest) -> Self {
        let tool_use = call.tool_use.clone();
        let key = CallKey { slot: Slot(0), agent_run: None, tool_use };
        // Its own record is never written.
        Self {
            is_by_hand: true,
            ..Self::with_record(keeping, key, CallRecord::received(0), Duration::ZERO)
        }
    }

    /// The recorder of a long call that an earlier process began `before` ago.
    pub fn long(keeping: Keeping, work: &Work, before: Duration) -> Self {
        let recorder = Self { before, ..Self::by_hand(keeping, &work.request) };
        {
            let mut record = recorder.record.lock();
            record.handle = work.handle.as_ref().map(|handle| handle.0.clone());
            record.peer.clone_from(&work.peer);
        }
        recorder
    }

    fn with_record(keeping: Keeping, key: CallKey, record: CallRecord, before: Duration) -> Self {
        Self {
            has_answer: AtomicBool::new(record.stage >= Stage::Answered),
            keeping,
            is_by_hand: false,
            key,
            record: Mutex::new(record),
            since: Instant::now(),
            shown: OnceLock::new(),
            long: OnceLock::new(),
            before,
            taken: CancellationToken::new(),
        }
    }

    /// The recorder of a call that an earlier process has left, with the size of its answer.
    pub fn kept(keeping: Keeping, key: CallKey, record: CallRecord, answer: usize) -> Self {
        keeping.share.hold(size(&record) + answer);
        let received = Moment { wall: record.received_at, up: record.received_up };
        // If that is not known, its time counts as over: MANTYX may not wait for it any more.
        let before = keeping.journal.since(received).unwrap_or(Duration::MAX);
        Self::with_record(keeping, key, record, before)
    }

    /// The change that writes the record as it is now.
    pub fn change(&self) -> Change {
        Change::Call(self.key.clone(), self.record.lock().clone())
    }

    /// Counts the call as dispatched, as the record of its dispatch may be lost.
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

    /// For how long its answer may be posted, if MANTYX waits for `whole`.
    pub fn post_within(&self, whole: Duration, is_kept: bool) -> Duration {
        let is_new = self.before.is_zero() && !is_kept;
        let least = if is_new { Duration::ZERO } else { POST_KEPT };
        self.left_of(whole).max(least)
    }

    /// Resolves at shutdown if the call's peer has named the work, so that the next process can ask
    /// for it.
    pub async fn left(&self) {
        self.keeping.leaving.cancelled().await;
        let is_answered = self.record.lock().stage >= Stage::Answered;
        if self.handle().is_none() || is_answered {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when another replica has taken the run over, by `lost`, or sends the call, if the call
    /// has not reached its tool here.
    pub async fn lost_with(&self, lost: &CancellationToken) {
        tokio::select! {
            () = self.taken.cancelled() => return,
            () = lost.cancelled() => (),
        }
        // Its dispatch may still wait for the journal, which then says that it is another's.
        if self.has_reached_tool() {
            self.taken.cancelled().await;
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

    /// What `model::recovery` decides by; MANTYX waits for `whole`.
    pub fn known(&self, repeatable: bool, whole: Duration) -> Known {
        let record = self.record.lock();
        // A call without its arguments cannot be made.
        let budget = record.args.as_ref().map_or(Duration::ZERO, |_| self.left_of(whole));
        let stage = record.stage;
        let attempts = record.attempts;
        Known { stage, attempts, has_handle: record.handle.is_some(), repeatable, budget }
    }

    /// The call as it was read; with `null` for arguments that are not kept any more.
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
    pub fn has_room(&self) -> bool {
        let mut record = self.record.lock();
        // A call that may have reached its tool is checked again before its next dispatch.
        let has_room = self.keeping.share.fits() || record.stage != Stage::Received;
        if !has_room {
            (record.stage, record.args) = (Stage::Answered, None);
            self.keeping.share.hold(0);
        }
        has_room
    }

    /// Records the answer, to be posted as `body`.
    ///
    /// If the app has no room for the body, only the stage is written.
    ///
    /// If the disk fails, the answer is posted nevertheless, and written when the disk works again. A
    /// process that begins before that says that the outcome is unknown, and MANTYX, which has the
    /// answer, ignores that.
    ///
    /// Returns the body that is to be posted: another replica may have answered the call. It is empty
    /// if nothing is to be posted, as another driver answers the call, or may: that of another replica,
    /// or of the next process, if this one's journal was closed first.
    pub async fn answered(&self, body: Bytes) -> Bytes {
        let answer = {
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
            changes.push(answer(self.key.clone(), body.clone()));
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
        let within = self.post_within(LOCAL_TOOL_TIMEOUT, false).saturating_sub(LAST_POST);
        let other = self.keeping.journal.keep_answer(&self.key, changes, within).await;
        other.unwrap_or(body)
    }

    /// Closes the call, as MANTYX no longer waits for its answer.
    pub fn close(&self) {
        self.keeping.journal.write(self.closed());
    }

    /// The changes that close the call.
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
    pub fn goes_on(&self, to: (Arc<LongCalls>, CallId)) {
        // A call becomes a long call only once.
        self.long.set(to).ok();
    }

    /// The changes that write both records of the call at once, its run's and `long`: after a crash,
    /// neither may show a call that was not made.
    ///
    /// Its run may get the answer at the same time, so they are given to the journal under the record's
    /// lock: changes are written in the order in which the record changes.
    fn both(
        &self,
        call: impl Fn(CallKey, CallRecord) -> Change,
        record: &CallRecord,
        long: Change,
    ) -> Vec<Change> {
        let own = (!self.is_by_hand).then(|| call(self.key.clone(), record.clone()));
        own.into_iter().chain([long]).collect()
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

impl Recorder for CallRecorder {
    fn dispatching(&self, peer: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        let peer = peer.cloned();
        Box::pin(async move {
            let journal = &self.keeping.journal;
            let long = self.long.get();
            self.shown.get().inspect(|call| call.sent());
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
            let mut written = None;
            match long {
                // The call has had its first answer, or is about to: the long call keeps its
                // result.
                Some((calls, id)) => calls.reaches(id, peer.as_ref(), |long| {
                    let mut record = self.record.lock();
                    let is_first = record.stage == Stage::Received;
                    if is_first {
                        record.dispatch(peer.clone());
                    }
                    let call = if is_first { Change::Dispatch } else { Change::Call };
                    written = Some(journal.commit(self.both(call, &record, long)));
                })?,
                None => {
                    let mut record = self.record.lock();
                    record.dispatch(peer);
                    self.keeping.share.hold(size(&record));
                    let change = Change::Dispatch(self.key.clone(), record.clone());
                    written = Some(journal.commit(vec![change]));
                }
            }
            // Where nothing changes, the barrier: what was given before is written.
            match written.unwrap_or_else(|| journal.commit(Vec::new())).await {
                // Another replica may count this one as dead since the commit began.
                Ok(()) if journal.may_dispatch() => Ok(()),
                Err(NotWritten::Taken) if long.is_none() => {
                    // This driver drops the call.
                    self.record.lock().take_back_dispatch();
                    self.taken.cancel();
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

    fn is_left(&self) -> bool {
        self.keeping.leaving.is_cancelled()
    }
}
