//! What is forgotten of runs and sessions, and when.
//!
//! Must not: forget a run whose calls could then be made again, or write to the journal.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use super::{
    DrivenRun, Inner, KEEP_COUNT, KEEP_ENDED, KEEP_EVENTS, KEEP_TOOLS, RunKey, log::Room,
    owners::Owned,
};
use crate::{journal::record::Change, model::ids::AppName};

impl Inner {
    /// Forgets the oldest sessions of `app`, until `more` bytes of its own tools have room in the
    /// share that each of `apps` apps has: no app pushes out what is another's.
    pub(super) fn make_room_for_tools(
        &mut self,
        app: &AppName,
        more: usize,
        apps: usize,
    ) -> Vec<Change> {
        let share = KEEP_TOOLS / apps.max(1);
        let own = || self.sessions.iter().filter(|(_, session)| session.app == *app);
        let mut with_tools: Vec<_> = own()
            .filter(|(_, session)| session.tools_size() > 0)
            .map(|(key, session)| (session.created, session.tools_size(), key.clone()))
            .collect();
        with_tools.sort_by_key(|(created, ..)| *created);
        let mut held: usize = with_tools.iter().map(|(_, size, _)| size).sum();
        let mut forgotten = Vec::new();
        for (_, size, key) in with_tools {
            if held + more <= share {
                break;
            }
            held -= size;
            self.sessions.remove(&key);
            forgotten.push(Change::ForgetSession((key.0.to_string(), key.1.to_string())));
        }
        if !forgotten.is_empty() {
            warn!(%app, sessions = forgotten.len(), "sessions with large tools are not remembered any more");
        }
        forgotten
    }

    /// Forgets what has outlived its use; at most every few seconds, as it looks at everything. The
    /// changes are for the journal.
    pub(super) fn sweep(&mut self, now: Instant, room: &Room) -> Vec<Change> {
        const EVERY: Duration = Duration::from_secs(10);
        let mut forgotten = Vec::new();
        if self.swept.is_some_and(|swept| now < swept + EVERY) {
            return forgotten;
        }
        self.swept = Some(now);
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
            if age(run).is_some_and(|age| age > KEEP_EVENTS || room.is_scarce()) {
                run.log.forget();
            }
        }
        // What was given up is bounded by the owners that are remembered.
        let idle = self.runs.values().filter(|run| run.in_flight() == 0 && !run.is_given_up());
        let ended = idle.filter_map(|run| Some((&run.app, (run.ended()?.at, run.key.clone()))));
        for key in beyond(KEEP_COUNT, ended) {
            forgotten.extend(self.forget(&key));
        }
        let sessions =
            self.sessions.iter().map(|(key, one)| (&one.app, (one.created, key.clone())));
        for key in beyond(KEEP_COUNT, sessions) {
            self.sessions.remove(&key);
            forgotten.push(Change::ForgetSession((key.0.to_string(), key.1.to_string())));
        }
        forgotten
    }

    /// Whether the run may be handed over again with calls that nobody has answered: it was given up,
    /// and its app is remembered as its owner. Forgotten before that, its calls could be made again.
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

/// The oldest of what each app has beyond `most`: no app pushes out what is another's.
pub(super) fn beyond<'a, K>(
    most: usize,
    all: impl Iterator<Item = (&'a AppName, (Instant, K))>,
) -> Vec<K> {
    let mut by_app: HashMap<&AppName, Vec<(Instant, K)>> = HashMap::new();
    for (app, one) in all {
        by_app.entry(app).or_default().push(one);
    }
    let mut beyond = Vec::new();
    for mut own in by_app.into_values().filter(|own| own.len() > most) {
        own.sort_by_key(|(at, _)| *at);
        let over = own.len() - most;
        beyond.extend(own.into_iter().take(over).map(|(_, key)| key));
    }
    beyond
}
