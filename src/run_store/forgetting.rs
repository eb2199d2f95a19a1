//! When runs and sessions are forgotten.
//!
//! Must not: forget a run whose calls could then be made again, or write to the journal.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::owners::Owned;
use super::{DrivenRun, Inner, KEEP_COUNT, KEEP_ENDED, KEEP_EVENTS, KEEP_RUNS, RunStore};
use crate::journal::record::{Change, Key};
use crate::journal::room;
use crate::limits::oldest::{over_bytes, over_count};
use crate::model::RunKey;
use crate::runs::log::Room;

/// How often runs and sessions are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

impl RunStore {
    /// Forgets runs and sessions that are too old or too many, in the journal too, every few seconds:
    /// also while no app asks for anything, so that an idle bridge gives their memory back. Never ends.
    pub async fn keep_swept(self: Arc<Self>) {
        loop {
            sleep(SWEEP_EVERY).await;
            let mut inner = self.inner.lock();
            let mut forgotten = inner.sweep(Instant::now(), &self.context.log_room);
            forgotten.extend(inner.sweep_awaiting(|moment| self.journal().since(moment)));
            if !forgotten.is_empty() {
                self.journal().write(forgotten);
            }
        }
    }
}

impl Inner {
    /// Forgets sessions until the rest fits into the journal: of the app whose sessions take most,
    /// those with tools of its own go first, and of these the oldest.
    pub(super) fn make_room_for_sessions(&mut self) -> Vec<Change> {
        let all = self.sessions.iter().map(|(key, session)| {
            let order = (session.tools.is_none(), session.created);
            (&session.app, (order, session.size(), key))
        });
        let over: Vec<_> = over_bytes(room::SESSIONS, all).into_iter().cloned().collect();
        if !over.is_empty() {
            warn!(
                sessions = over.len(),
                "forgot sessions; the journal has no room for their tools"
            );
        }
        let forget = |key| {
            self.sessions.remove(&key);
            Change::Forget(Key::Session(key))
        };
        over.into_iter().map(forget).collect()
    }

    /// Forgets runs and sessions that are too old or too many, and looks at all of them for it. The
    /// changes are for the journal.
    pub(super) fn sweep(&mut self, now: Instant, room: &Room) -> Vec<Change> {
        let mut forgotten = Vec::new();
        let age =
            |run: &DrivenRun| run.ended().map(|ended| now.saturating_duration_since(ended.at));
        let outlived = |run: &DrivenRun| {
            run.in_flight() == 0
                && age(run).is_some_and(|age| age >= KEEP_ENDED)
                && !self.may_come_back(&run.key, run.is_given_up())
        };
        let old = self.runs.values().filter(|run| outlived(run)).map(|run| run.key.clone());
        for key in old.collect::<Vec<_>>() {
            forgotten.extend(self.forget(&key));
        }
        for run in self.runs.values() {
            let Some(age) = age(run) else { continue };
            let is_old = age > KEEP_EVENTS && !run.log.is_read();
            if is_old || room.is_scarce() {
                run.log.forget();
            }
            if is_old && run.in_flight() == 0 && !run.is_given_up() {
                run.state().forget_calls();
            }
        }
        // The number of given-up runs is bounded by the owners that are remembered.
        let idle = self.runs.values().filter(|run| run.in_flight() == 0 && !run.is_given_up());
        let ended = idle.filter_map(|run| Some((&run.app, (run.ended()?.at, run.key.clone()))));
        for key in over_count(KEEP_RUNS, ended) {
            forgotten.extend(self.forget(&key));
        }
        let sessions =
            self.sessions.iter().map(|(key, one)| (&one.app, (one.created, key.clone())));
        for key in over_count(KEEP_COUNT, sessions) {
            self.sessions.remove(&key);
            forgotten.push(Change::Forget(Key::Session(key)));
        }
        forgotten
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
