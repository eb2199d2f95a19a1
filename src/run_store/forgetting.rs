//! When runs and sessions are forgotten.
//!
//! Must not: forget a run whose calls could then be made again, or write to the journal.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::owners::Owned;
use super::{DrivenRun, Inner, KEEP_COUNT, KEEP_ENDED, KEEP_EVENTS, KEEP_RUNS, RunStore};
use crate::clock;
use crate::journal::record::{Change, Key};
use crate::journal::room;
use crate::limits::oldest::{Entry, over_bytes, over_count};
use crate::model::RunKey;
use crate::runs::log::Room;

/// How often runs and sessions are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

impl RunStore {
    /// Forgets runs and sessions that are too old or too many, in the journal too, every few
    /// seconds: also while no app asks for anything, so that an idle bridge gives their memory
    /// back. Never ends.
    pub async fn keep_swept(self: Arc<Self>) {
        loop {
            sleep(SWEEP_EVERY).await;
            let mut inner = self.inner.lock();
            let mut changes = inner.sweep(Instant::now(), &self.context.log_room);
            changes.extend(inner.owners.expire(clock::millis()));
            changes.extend(inner.sweep_awaiting(|moment| self.journal().since(moment)));
            if !changes.is_empty() {
                // Under the lock: if an app attached a run between the two, its new record would be
                // written before the change that forgets the old one.
                self.journal().write(changes);
            }
        }
    }
}

impl Inner {
    /// Forgets sessions until the rest fits into the journal: of the app whose sessions take most,
    /// those with its own tools go first, and of these the oldest.
    pub(super) fn make_room_for_sessions(&mut self) -> Vec<Change> {
        let all = self.sessions.iter().map(|(key, session)| {
            let order = (session.tools.is_none(), session.created);
            (&session.app, Entry { order, bytes: session.size(), key })
        });
        let over: Vec<_> = over_bytes(room::SESSIONS, all).into_iter().cloned().collect();
        if !over.is_empty() {
            warn!(
                sessions = over.len(),
                "forgot sessions; the journal has no room for their tools"
            );
        }
        let mut changes = Vec::with_capacity(over.len());
        for key in over {
            self.sessions.remove(&key);
            changes.push(Change::Forget(Key::Session(key)));
        }
        changes
    }

    /// Forgets runs and sessions that are too old or too many, and looks at all of them for it. The
    /// changes are for the journal.
    ///
    /// 1. An ended run is forgotten a day after its end. A run with calls in flight stays, as their
    ///    answers need its record; so does a given-up run that an app may attach again.
    /// 2. A run that ended a minute ago, and that no app reads, gives back its events: MANTYX has
    ///    them. Its calls go too, unless one of them may still be answered.
    /// 3. Of the ended runs and the sessions that are left, each app keeps its latest ones.
    pub(super) fn sweep(&mut self, now: Instant, room: &Room) -> Vec<Change> {
        let mut changes = Vec::new();
        let outlived: Vec<RunKey> = self
            .runs
            .values()
            .filter(|run| {
                run.in_flight() == 0
                    && since_end(run, now).is_some_and(|age| age >= KEEP_ENDED)
                    && !self.may_come_back(&run.key, run.is_given_up())
            })
            .map(|run| run.key.clone())
            .collect();
        for key in outlived {
            changes.extend(self.forget(&key));
        }
        for run in self.runs.values() {
            let Some(age) = since_end(run, now) else { continue };
            let unread = age > KEEP_EVENTS && !run.log.is_read();
            if unread || room.is_scarce() {
                run.log.forget();
            }
            if unread && run.in_flight() == 0 && !run.is_given_up() {
                run.state().forget_calls();
            }
        }
        // The number of given-up runs is bounded by the owners that are remembered.
        let idle = self.runs.values().filter(|run| run.in_flight() == 0 && !run.is_given_up());
        let by_end = idle.filter_map(|run| Some((&run.app, (run.ended()?.at, run.key.clone()))));
        for key in over_count(KEEP_RUNS, by_end) {
            changes.extend(self.forget(&key));
        }
        let sessions = self.sessions.iter();
        let by_begin = sessions.map(|(key, one)| (&one.app, (one.created, key.clone())));
        for key in over_count(KEEP_COUNT, by_begin) {
            self.sessions.remove(&key);
            changes.push(Change::Forget(Key::Session(key)));
        }
        changes
    }

    /// Whether an app may attach the run again with unanswered calls: it was given up, and its app
    /// is remembered as its owner. If it were forgotten before that, its calls could be made again.
    pub(super) fn may_come_back(&self, key: &RunKey, is_given_up: bool) -> bool {
        is_given_up && self.owners.get(&Owned::Run(key.clone())).is_some()
    }

    /// Forgets a run, and what its driver has claimed; the change is for the journal.
    fn forget(&mut self, key: &RunKey) -> Option<Change> {
        let run = self.runs.remove(key)?;
        self.claims.forget(run.slot);
        Some(Change::ForgetRun(run.slot))
    }
}

/// How long ago `run` ended; `None` while it is driven.
fn since_end(run: &DrivenRun, now: Instant) -> Option<Duration> {
    run.ended().map(|ended| now.saturating_duration_since(ended.at))
}
