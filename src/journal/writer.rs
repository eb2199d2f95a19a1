//! The thread that writes the journal's file.
//!
//! Must not: know what a record is for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(test)]
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::batch::{Batch, Group, Waiter};
use super::lock::Lock;
use super::record::{CallKey, Change, Key, LossRecord, Millis, StoredRecords};
use super::store::{State, Store};
use super::{Health, NotWritten, Shared, StoreError, store, weight};
use crate::error_chain::error_chain;
use crate::state_dir::NoFile;

/// The most changes without a waiting caller that are kept while the disk fails, and about the most
/// bytes.
const BACKLOG: usize = 10_000;
const BACKLOG_BYTES: usize = 32 << 20;
/// If about this many bytes are written during a compaction, it is done again while nothing else is
/// written: the file would grow faster than it is made smaller.
const MAX_RECENT: usize = 2 << 20;
/// A file of up to this size is not compacted, in bytes.
const SMALL: u64 = 4 << 20;
/// The least time between two attempts to shrink a file that is too large.
const ROOM_EVERY: Duration = Duration::from_secs(3);

/// The thread's side.
pub(super) struct Writer {
    path: PathBuf,
    shared: Arc<Shared>,
    /// There has been a journal before.
    has_run: bool,
    /// `None` until the file could be opened.
    lock: Option<Lock>,
    /// `None` while the disk fails.
    store: Option<Store>,
    /// What the file is made of when the disk works again; `None` while there is a store, and until
    /// the file could be read.
    state: Option<State>,
    /// Gets what the file keeps, if that could not be read at the start.
    late: Option<oneshot::Sender<Box<StoredRecords>>>,
    /// Changes that could not be written and are kept.
    backlog: Vec<Change>,
    /// How many of those changes were given up.
    given_up: usize,
    max_size: u64,
    /// When the file was last made smaller.
    room_made: Option<Instant>,
    /// The last write found no room.
    is_cramped: bool,
    /// How long the last write took, with its sync.
    last: Duration,
    compaction: Compaction,
}

/// What the file keeps, or what gets that once the disk can be read.
pub(super) type Past = Result<StoredRecords, oneshot::Receiver<Box<StoredRecords>>>;

/// A compaction beside the file.
enum Compaction {
    None,
    /// With what was written since it has begun.
    UnderWay(Vec<Change>),
    /// Its file will be of no use.
    Abandoned,
}

impl Writer {
    /// Opens the file at `path`, and reads what it keeps, unless the disk fails.
    pub(super) fn open(
        path: &Path,
        has_run: bool,
        max_size: u64,
        shared: Arc<Shared>,
    ) -> Result<(Self, Past), StoreError> {
        let mut this = Self {
            path: path.to_owned(),
            shared,
            has_run,
            lock: None,
            store: None,
            state: None,
            late: None,
            backlog: Vec::new(),
            given_up: 0,
            max_size,
            room_made: None,
            is_cramped: false,
            last: Duration::ZERO,
            compaction: Compaction::None,
        };
        let past = match this.begin() {
            Ok(kept) => Ok(kept),
            Err(StoreError::Failed(error)) if may_pass(&error) => {
                this.fail(&error.into());
                let (late, kept) = oneshot::channel();
                this.late = Some(late);
                Err(kept)
            }
            Err(error) => return Err(error),
        };
        this.look_at_size();
        Ok((this, past))
    }

    /// Locks and reads the file, and opens it, if it can be written.
    fn begin(&mut self) -> Result<StoredRecords, StoreError> {
        let mut lock = Lock::take(&self.path, self.has_run)?;
        let (kept, opened) = Store::open(&self.path, &mut lock)?;
        self.lock = Some(lock);
        self.shared.health.lock().lost.clone_from(&kept.lost);
        match opened {
            Ok(store) => self.store = Some(store),
            Err((error, state)) => {
                self.state = Some(state);
                self.fail(&error);
            }
        }
        Ok(kept)
    }

    pub(super) fn last_sync(&self) -> Duration {
        self.last
    }

    /// About how many bytes were given and not written.
    pub(super) fn queued(&self) -> usize {
        *self.shared.queue.0.borrow()
    }

    /// Whether the thread should make the file smaller. On a small disk, the file is compacted
    /// before it counts as full: a full journal stops all calls.
    pub(super) fn is_too_large(&self) -> bool {
        let Some(store) = &self.store else { return false };
        if let Compaction::UnderWay(_) = self.compaction {
            return false;
        }
        let wasteful = store.has_doubled() && store.size > SMALL.min(self.max_size / 2);
        wasteful || self.may_make_room() && store.size > self.max_size
    }

    /// Whether enough time has passed since the file was last made smaller. On a disk that is
    /// nearly full, each write would otherwise have all records written again.
    fn may_make_room(&self) -> bool {
        self.room_made.is_none_or(|at| at.elapsed() > ROOM_EVERY)
    }

    /// Whether more was written than a new file would take.
    fn has_doubled(&self) -> bool {
        self.store.as_ref().is_some_and(Store::has_doubled)
    }

    /// Begins a compaction beside the file: its path, and what it is made of. `None`: it is to be
    /// made smaller at once, as it has reached its largest size, or another one still ends.
    pub(super) fn begin_compaction(&mut self) -> Option<(PathBuf, State)> {
        let store = self.store.as_ref().filter(|store| store.size <= self.max_size)?;
        if !matches!(self.compaction, Compaction::None) {
            return None;
        }
        self.compaction = Compaction::UnderWay(Vec::new());
        Some((self.path.clone(), store.state()))
    }

    /// Takes the new file that a compaction has written, unless the old one was replaced meanwhile:
    /// the new file would then lack what was written to the replacement, and a call would be
    /// forgotten.
    ///
    /// Returns the old one. Dropping it takes milliseconds, as the disk then frees its space, and
    /// no write should wait for that.
    pub(super) fn end_compaction(&mut self, new_file: Result<Store, StoreError>) -> Option<Store> {
        let mut old = None;
        match (std::mem::replace(&mut self.compaction, Compaction::None), new_file) {
            (Compaction::UnderWay(recent), Ok(store)) => match store.replace(&self.path, &recent) {
                Ok(store) => {
                    self.lock.iter().for_each(|lock| lock.note(store.extent()));
                    old = self.store.replace(store);
                }
                // The old file may be gone from its place.
                Err(error) => self.fail(&error),
            },
            (Compaction::UnderWay(_), Err(error)) => {
                self.store.iter_mut().for_each(Store::postpone);
                warn!(%error, "the journal cannot be compacted; it is used as it is");
            }
            (Compaction::Abandoned | Compaction::None, _) => {}
        }
        store::remove_compacted(&self.path);
        self.note_health();
        old
    }

    /// Writes as a task, whose turns come when `world` says so.
    #[cfg(test)]
    pub(super) async fn run_in(
        mut self,
        world: Arc<dyn crate::simulated::World>,
        jobs: mpsc::Receiver<super::batch::Job>,
    ) {
        loop {
            tokio::time::timeout(super::RETRY, Arc::clone(&world).disk_turns()).await.ok();
            let mut batch = Batch::default();
            while !batch.is_full() {
                match jobs.try_recv() {
                    Ok(job) => batch.add(job),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return self.close(),
                }
            }
            let stop = batch.stop;
            self.take(batch);
            if stop {
                return self.close();
            }
            self.look_at_size();
        }
    }

    /// Writes a batch, and tells its callers what became of it.
    ///
    /// A caller that is told `Ok` acts at once: it dispatches a call, or posts an answer. So
    /// nothing is told before the sync. Changes that no caller takes back go to the backlog, before
    /// the callers are told: the next batch must not overtake them.
    pub(super) fn take(&mut self, batch: Batch) {
        let Batch { changes, groups, weight, .. } = batch;
        let outcome = self
            .write(groups.iter().map(|group| changes.get(group.range.clone()).unwrap_or_default()));
        if outcome.is_err() {
            self.keep(changes, &groups);
        }
        for group in groups {
            // The caller may have gone away.
            match group.waiter {
                Waiter::Commit(done) => drop(done.send(outcome)),
                Waiter::Keep(done) => drop(done.map(|done| done.send(()))),
                Waiter::First(done) => drop(done.send(true)),
                Waiter::Answer(key, done) => drop(done.send(self.answer(&key))),
            }
        }
        self.shared.queue.remove(weight);
        if let Compaction::UnderWay(recent) = &self.compaction
            && super::weight(recent) > MAX_RECENT
        {
            self.compaction = Compaction::Abandoned;
            self.look_at_size();
        }
        self.note_health();
    }

    /// The kept answer to a call. While the disk fails, the one of before the failure.
    fn answer(&self, key: &CallKey) -> Option<Bytes> {
        match (&self.store, &self.state) {
            (Some(store), _) => store.answer(key),
            (None, Some(state)) => state.live.answer(key),
            (None, None) => None,
        }
    }

    /// Looks whether the file is still in its place, as long as it was. If not, the next write
    /// makes a new one from memory.
    ///
    /// This looks before each write, too: what is written to a file that has no name any longer is
    /// lost with the process, and its caller would rely on it.
    fn look_at_place(&mut self) {
        let Some(store) = &self.store else { return };
        let Some(displacement) = store.displacement(&self.path) else { return };
        let path = self.path.display();
        let what = format!(
            "{path} was {displacement} while the bridge ran. The bridge has written it again from memory, \
             and nothing was lost."
        );
        error!(
            "the journal was {displacement} while the bridge runs; writing it again from memory"
        );
        self.shared.health.lock().rewritten = Some(what);
        self.state = Some(store.displaced_state(displacement, &self.path));
        self.store = None;
        self.abandon_compaction();
    }

    fn abandon_compaction(&mut self) {
        if let Compaction::UnderWay(_) = self.compaction {
            self.compaction = Compaction::Abandoned;
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(Err(error)) = self.store.take().map(Store::close) {
            warn!(%error, "cannot write the journal's length into its head");
        }
    }

    /// Writes the backlog, and then `groups` of changes. After an error, no group counts as
    /// written, and the next write makes a new file: what the disk has of this one is unknown.
    fn write<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a [Change]> + Clone,
    ) -> Result<(), NotWritten> {
        self.look_at_place();
        if self.store.is_none() && !self.reopen() {
            return Err(NotWritten::Failed);
        }
        let outcome = match self.append(groups.clone()) {
            Err(error) if error.lacks_room() && (self.may_make_room() || self.has_doubled()) => {
                self.append_to_smaller(&error, groups)
            }
            outcome => outcome,
        };
        outcome.map_err(|error| {
            self.fail(&error);
            NotWritten::Failed
        })
    }

    /// Appends the backlog and `groups` to the file. The backlog is first: its changes were given
    /// before, and an old stage of a call would otherwise replace the new one.
    ///
    /// The extent is noted after the sync, never before (see [`Lock::note`]). A compaction under
    /// way gets the changes, too: its file would otherwise lack them.
    fn append<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a [Change]> + Clone,
    ) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        if self.backlog.is_empty() && groups.clone().all(<[Change]>::is_empty) {
            return Ok(());
        }
        let start = Instant::now();
        // Their lifetime is as short as that of the backlog.
        let new_groups = groups.map(|changes| -> &[Change] { changes });
        let all_groups = std::iter::once(self.backlog.as_slice()).chain(new_groups);
        store.apply(all_groups.clone())?;
        self.lock.iter().for_each(|lock| lock.note(store.extent()));
        if let Compaction::UnderWay(recent) = &mut self.compaction {
            recent.extend(all_groups.flatten().cloned());
        }
        self.last = start.elapsed();
        self.shared.metrics.commits.observe(self.last);
        self.backlog.clear();
        self.given_up = 0;
        Ok(())
    }

    /// Writes `groups`, for which the disk had no room, after the file was written again without
    /// the records that are gone. The disk may be full of just that.
    fn append_to_smaller<'a>(
        &mut self,
        full: &StoreError,
        groups: impl Iterator<Item = &'a [Change]> + Clone,
    ) -> Result<(), StoreError> {
        self.close_store();
        self.renew()?;
        self.room_made = Some(Instant::now());
        info!(error = %full, "the disk has no room; the journal was made smaller");
        self.append(groups)
    }

    /// Adds to the backlog those of `changes` that are kept. The others are dropped, as their
    /// callers get the error.
    fn keep(&mut self, changes: Vec<Change>, groups: &[Group]) {
        let mut remaining = changes.into_iter();
        for Group { range, waiter, .. } in groups {
            let own = remaining.by_ref().take(range.len());
            match waiter {
                Waiter::Commit(_) => own.for_each(drop),
                Waiter::Keep(_) | Waiter::First(_) | Waiter::Answer(..) => self.backlog.extend(own),
            }
        }
        let mut bytes = 0;
        // Keep the newest.
        let fits = self.backlog.iter().rev().take_while(|change| {
            bytes += weight(std::slice::from_ref(change));
            bytes <= BACKLOG_BYTES
        });
        let over = self.backlog.len() - fits.count().min(BACKLOG);
        if over > 0 {
            for change in self.backlog.drain(..over) {
                self.given_up += usize::from(!matches!(change, Change::Lost(_)));
            }
            let what = format!(
                "The journal could not be written for so long that {} changes were given up. Runs \
                 and sessions of that time may not be known after a restart; calls of theirs may \
                 have been made.",
                self.given_up
            );
            error!("{what}");
            let loss = LossRecord::now(what);
            self.shared.health.lock().lost = Some(loss.clone());
            // The loss goes to disk before any change that followed a lost one.
            self.backlog.insert(0, Change::Lost(loss));
        }
    }

    /// Notes that the disk fails, and gives up the file: after a failed write or sync, what is in
    /// the file is unknown, and a later sync would report success for bytes that the disk has
    /// dropped.
    fn fail(&mut self, error: &StoreError) {
        let why = error_chain(error);
        error!(
            name: "journal_failed",
            why, "the journal cannot be written; no calls are made until it can"
        );
        self.note_failure(why);
        self.is_cramped = error.lacks_room();
        self.close_store();
    }

    /// Closes a file that cannot be relied on, and keeps what the next one is made of.
    fn close_store(&mut self) {
        if let Some(store) = self.store.take() {
            self.state = Some(store.state());
        }
        self.abandon_compaction();
    }

    fn note_failure(&self, why: String) {
        let mut health = self.shared.health.lock();
        (health.error, health.is_full) = (Some(why), false);
        self.shared.metrics.errors.inc();
    }

    /// Makes a file after a failure; returns whether there is one. On a disk without room that is
    /// tried every few seconds only, as each attempt writes all records.
    fn reopen(&mut self) -> bool {
        if self.state.is_none() {
            return self.open_late();
        }
        if self.is_cramped && !self.may_make_room() {
            return false;
        }
        if let Err(error) = self.renew() {
            self.note_failure(error_chain(&error));
            return false;
        }
        if std::mem::take(&mut self.is_cramped) {
            self.room_made = Some(Instant::now());
        }
        info!(name: "journal_works_again", "the journal can be written again");
        self.note_health();
        true
    }

    /// Writes a new file with the records and the backlog, and reserves the room of the next one.
    /// The file before has to be closed: until then, the disk keeps its blocks.
    fn renew(&mut self) -> Result<(), StoreError> {
        let (Some(state), Some(lock)) = (&self.state, &mut self.lock) else { return Ok(()) };
        let store = Store::renew(&self.path, lock, state.with(&self.backlog))?;
        self.backlog.clear();
        self.given_up = 0;
        match store.with_reserve() {
            Ok(store) => {
                self.state = None;
                self.store = Some(store);
                Ok(())
            }
            Err((error, state)) => {
                self.state = Some(state);
                Err(error)
            }
        }
    }

    /// Opens the file that could not be opened at the start, and hands over what it keeps.
    fn open_late(&mut self) -> bool {
        match self.begin() {
            Ok(kept) => {
                info!("the journal can be read");
                // Without a receiver, the daemon stops.
                if let Some(late) = self.late.take() {
                    late.send(Box::new(kept)).ok();
                }
                self.note_health();
                self.store.is_some()
            }
            Err(error) => {
                self.note_failure(error_chain(&error));
                false
            }
        }
    }

    /// Makes the file smaller, if it is too large. Nothing else is written meanwhile.
    pub(super) fn look_at_size(&mut self) {
        if self.is_too_large() {
            self.room_made = Some(Instant::now());
            if let Err(error) = self.make_room() {
                return self.fail(&error);
            }
        }
        self.note_health();
    }

    fn note_health(&self) {
        let Some(store) = &self.store else { return };
        let bytes = store.size;
        // What a new file would not have goes with the next compaction.
        let (live, most) = (store.live_bytes().min(bytes), self.max_size);
        let full = live > most;
        let error = if full {
            Some(format!("the journal is full: {live} bytes, and at most {most} on this disk"))
        } else {
            None
        };
        let mut health = self.shared.health.lock();
        // A loss that was noted since is still to be written.
        let losses = store.lost().into_iter().chain(health.lost.take());
        let latest_loss = losses.max_by_key(|loss| loss.at);
        let rewritten = health.rewritten.take();
        *health = Health { error, is_full: full, bytes, lost: latest_loss, rewritten };
    }

    /// Shrinks the file to what is kept. If that is not enough, forgets ended runs and
    /// conversations with agents, the older half of each first.
    fn make_room(&mut self) -> Result<(), StoreError> {
        loop {
            self.close_store();
            self.renew()?;
            let Some(store) = &mut self.store else { break };
            let bytes = store.size;
            let forget = if bytes > self.max_size {
                older_half_of_the_idle(store.records())
            } else {
                Vec::new()
            };
            if !forget.is_empty() {
                let records = forget.len();
                info!(records, "the journal is too large; forgetting ended runs and conversations");
                store.apply([forget.as_slice()])?;
                self.lock.iter().for_each(|lock| lock.note(store.extent()));
                continue;
            }
            if bytes > self.max_size {
                warn!(bytes, "the journal is full; no calls are made until answers are posted");
            }
            break;
        }
        Ok(())
    }
}

/// Whether an error of the disk may pass while the bridge runs. Something else than a file in the
/// journal's place is a mistake that an operator has to mend.
fn may_pass(error: &io::Error) -> bool {
    !error.get_ref().is_some_and(|inner| inner.is::<NoFile>())
}

/// What a full journal forgets first. A run that was given up stays: an app may attach it again,
/// and none of its calls may be made twice.
fn older_half_of_the_idle(kept: StoredRecords) -> Vec<Change> {
    let mut runs = Vec::new();
    for run in &kept.runs {
        if let Some(ended_at) = run.record.ended_at
            && !run.record.given_up
        {
            runs.push((ended_at, Change::ForgetRun(run.slot)));
        }
    }
    let mut conversations = Vec::new();
    for (id, record) in kept.conversations {
        conversations.push((record.used_at, Change::Forget(Key::Conversation(id))));
    }
    older_half(runs).chain(older_half(conversations)).collect()
}

fn older_half(mut changes: Vec<(Millis, Change)>) -> impl Iterator<Item = Change> {
    changes.sort_by_key(|(at, _)| *at);
    let half = changes.len().div_ceil(2);
    changes.into_iter().take(half).map(|(_, change)| change)
}
