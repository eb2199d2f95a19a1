//! The calls that run and recent ones that have ended, for people: names and times, and the
//! beginnings of arguments and answers.
//!
//! Must not: decide anything, or grow without a bound.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::changes::{Change, Changes};
use crate::limits::ring::Ring;
use crate::model::maps::HashMap;
use crate::model::words::words;
use crate::model::{AppName, BackendName, CallRequest, Ending, RunId, ToolUseId};

/// The most ended calls of one app that are remembered.
pub const KEEP: usize = 500;

/// The bytes of the arguments, and of the answer, that are remembered.
const MAX_TEXT: usize = 4 << 10;

/// How often subscribers are told of what the peer of a running call says.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// The calls of all apps.
#[derive(Debug, Default)]
pub struct History {
    inner: Mutex<Inner>,
    changes: Changes,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// In the order of their start.
    running: BTreeMap<u64, HistoryEntry>,
    ended: HashMap<AppName, Ring<HistoryEntry, KEEP>>,
}

/// One call.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    /// Its number among the calls of this process; later calls have greater ones.
    pub number: u64,
    pub app: AppName,
    /// `None` for a call that no run asked for.
    pub run: Option<RunId>,
    pub tool_use: ToolUseId,
    /// The name that the model called.
    pub name: String,
    pub backend: BackendName,
    pub started_at: SystemTime,
    begun: Instant,
    /// It had a first answer, and continues.
    pending: bool,
    /// When, after its begin, it was first sent to its backend, and when MANTYX took its answer.
    pub sent: Option<Duration>,
    pub posted: Option<Duration>,
    /// When subscribers were last told of what its peer says.
    progress_told: Option<Instant>,
    /// Since when it waits for a person, if it does, and how long it has waited before.
    asked: Option<Instant>,
    waited: Duration,
    /// The beginnings of both. They are the operator's alone to see. Lists share them: a copy of
    /// those of 500 calls would be made under the lock.
    pub arguments: Arc<str>,
    pub answer: Arc<str>,
    /// What its peer has said of its work last; the operator's alone, too.
    pub progress: Arc<str>,
    /// How it ended and how long it took; `None` while it runs.
    pub ended: Option<(Outcome, Duration)>,
}

words! {
    /// How a call ended.
    pub enum Outcome {
        Result = "result",
        Error = "error",
        /// It was cancelled before it had an answer.
        Cancelled = "cancelled",
    }
}

/// A call that runs. Dropped without [`Running::end`], it was cancelled.
#[derive(Debug)]
pub struct Running(HistoryId);

/// The name of a call in the history.
#[derive(Debug, Clone)]
pub struct HistoryId {
    history: Arc<History>,
    app: AppName,
    id: u64,
}

impl Outcome {
    pub fn from_ending(ending: Ending) -> Self {
        match ending {
            Ending::Result => Self::Result,
            Ending::Cancelled | Ending::Left => Self::Cancelled,
            _ => Self::Error,
        }
    }
}

impl HistoryEntry {
    /// Whether it has had a first answer and still runs.
    pub fn is_pending(&self) -> bool {
        self.pending && self.ended.is_none()
    }

    pub fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// How long it waited for a person, or has waited so far.
    pub fn waited(&self) -> Duration {
        self.waited + self.asked.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// How long it took, or has taken so far.
    pub fn took(&self) -> Duration {
        self.ended.map_or_else(|| self.begun.elapsed(), |(_, took)| took)
    }
}

impl History {
    /// Reports every change of a call to `changes`.
    pub fn telling(changes: Changes) -> Self {
        Self { changes, ..Self::default() }
    }

    /// A call begins.
    pub fn begin(self: &Arc<Self>, call: &CallRequest) -> Running {
        let mut inner = self.inner.lock();
        let id = inner.next;
        inner.next += 1;
        let entry = HistoryEntry {
            number: id,
            app: call.app.clone(),
            run: call.run_id().cloned(),
            tool_use: call.tool_use.clone(),
            name: call.name.clone(),
            backend: call.route.backend.clone(),
            started_at: crate::clock::now(),
            begun: Instant::now(),
            pending: false,
            progress_told: None,
            asked: None,
            waited: Duration::ZERO,
            sent: None,
            posted: None,
            arguments: beginning(call.arguments.get()),
            answer: Arc::default(),
            progress: Arc::default(),
            ended: None,
        };
        inner.running.insert(id, entry);
        drop(inner);
        self.changes.tell(|| Change::Call(call.app.clone(), id));
        Running(HistoryId { history: Arc::clone(self), app: call.app.clone(), id })
    }

    /// The call of this number, if it is `app`'s and remembered.
    pub fn get(&self, app: &AppName, id: u64) -> Option<HistoryEntry> {
        let inner = self.inner.lock();
        if let Some(entry) = inner.running.get(&id) {
            return Some(entry.clone()).filter(|entry| entry.app == *app);
        }
        inner.ended.get(app)?.iter().rev().find(|entry| entry.number == id).cloned()
    }

    /// The call of this number of any app, if it is remembered.
    pub fn find(&self, id: u64) -> Option<HistoryEntry> {
        let inner = self.inner.lock();
        let mut finished_calls = inner.ended.values().flat_map(Ring::iter);
        inner.running.get(&id).or_else(|| finished_calls.find(|entry| entry.number == id)).cloned()
    }

    /// The calls of `app`, or of all apps, the latest first: running calls, then ended ones.
    pub fn of(&self, app: Option<&AppName>) -> Vec<HistoryEntry> {
        let inner = self.inner.lock();
        let running = inner.running.values().rev();
        let Some(app) = app else {
            let mut all: Vec<HistoryEntry> = running.cloned().collect();
            let first_ended = all.len();
            all.extend(inner.ended.values().flat_map(|calls| calls.iter().rev()).cloned());
            // Each app's own are in order already.
            all[first_ended..].sort_by_key(|entry| Reverse(entry.begun + entry.took()));
            return all;
        };
        let finished_calls = inner.ended.get(app).into_iter().flat_map(|calls| calls.iter().rev());
        running.filter(|entry| entry.app == *app).chain(finished_calls).cloned().collect()
    }

    /// How many calls continue after a first answer.
    pub fn pending(&self) -> usize {
        self.inner.lock().running.values().filter(|entry| entry.pending).count()
    }

    fn end(&self, id: u64, outcome: Outcome) {
        let mut inner = self.inner.lock();
        let Some(mut entry) = inner.running.remove(&id) else { return };
        entry.ended = Some((outcome, entry.begun.elapsed()));
        (entry.waited, entry.asked) = (entry.waited(), None);
        let app = entry.app.clone();
        inner.ended.entry(app.clone()).or_default().push(entry);
        drop(inner);
        self.changes.tell(|| Change::Call(app, id));
    }
}

impl Running {
    pub fn id(&self) -> HistoryId {
        self.0.clone()
    }

    /// Notes that the call has had a first answer, and continues.
    pub fn pending(&self) {
        self.0.change(|entry| entry.pending = true);
    }

    /// Notes whether the call waits for a person.
    pub fn waits(&self, waiting: bool) {
        self.0.change(|entry| {
            entry.waited = entry.waited();
            entry.asked = if waiting { Some(Instant::now()) } else { None };
        });
    }

    /// Notes the text of the answer, just before the call ends.
    pub fn answered(&self, text: &str) {
        let mut inner = self.0.history.inner.lock();
        if let Some(entry) = inner.running.get_mut(&self.0.id) {
            entry.answer = beginning(text);
        }
    }

    pub fn end(&self, outcome: Outcome) {
        self.0.history.end(self.0.id, outcome);
    }
}

impl HistoryId {
    /// Notes that the call is sent to its backend.
    pub fn sent(&self) {
        self.change(|entry| entry.sent = entry.sent.or(Some(entry.begun.elapsed())));
    }

    /// Notes what the peer says of its work. A peer may say much: subscribers are told once in
    /// [`PROGRESS_INTERVAL`].
    pub fn progressed(&self, text: &str) {
        let mut inner = self.history.inner.lock();
        let Some(entry) = inner.running.get_mut(&self.id) else { return };
        entry.progress = beginning(text);
        if entry.progress_told.is_some_and(|told| told.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        entry.progress_told = Some(Instant::now());
        drop(inner);
        self.history.changes.tell(|| Change::Call(self.app.clone(), self.id));
    }

    /// Notes that MANTYX has taken the answer.
    pub fn posted(&self) {
        self.change(|entry| entry.posted = Some(entry.begun.elapsed()));
    }

    fn change(&self, change: impl FnOnce(&mut HistoryEntry)) {
        let mut inner = self.history.inner.lock();
        let Inner { running, ended, .. } = &mut *inner;
        let entry = running.get_mut(&self.id).or_else(|| {
            ended.get_mut(&self.app)?.iter_mut().rev().find(|entry| entry.number == self.id)
        });
        let Some(entry) = entry else { return };
        change(entry);
        drop(inner);
        self.history.changes.tell(|| Change::Call(self.app.clone(), self.id));
    }
}

/// As much of a text as is remembered.
fn beginning(text: &str) -> Arc<str> {
    match text.get(..text.floor_char_boundary(MAX_TEXT)) {
        Some(start) if start.len() < text.len() => format!("{start}…").into(),
        _ => text.into(),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing is left to do after `end`.
        self.end(Outcome::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    //! Bounded, and each app for itself.

    use super::*;
    use crate::backend::fake::request;

    fn begin(history: &Arc<History>, app: &str, tool_use: &str) -> Running {
        let tool_use = tool_use.into();
        history.begin(&CallRequest { app: app.into(), tool_use, ..request("ls", "{}") })
    }

    fn told(history: &History, app: &str) -> Vec<(String, Option<Outcome>)> {
        let told = |entry: &HistoryEntry| {
            (entry.tool_use.to_string(), entry.ended.map(|(outcome, _)| outcome))
        };
        history.of(Some(&app.into())).iter().map(told).collect()
    }

    #[test]
    fn the_latest_come_first_and_an_app_sees_its_own() {
        let history = Arc::new(History::default());
        begin(&history, "a", "1").end(Outcome::Result);
        begin(&history, "b", "2").end(Outcome::Error);
        let running = begin(&history, "a", "3");
        drop(begin(&history, "a", "4"));
        let expected = [
            ("3".to_owned(), None),
            ("4".to_owned(), Some(Outcome::Cancelled)),
            ("1".to_owned(), Some(Outcome::Result)),
        ];
        assert_eq!(told(&history, "a"), expected);
        running.end(Outcome::Error);
        assert_eq!(told(&history, "a")[0], ("3".to_owned(), Some(Outcome::Error)));
        assert_eq!(told(&history, "b").len(), 1);
    }

    #[test]
    fn words_of_a_peer_are_shown_while_the_call_runs_and_told_now_and_then() {
        let changes = Changes::default();
        let mut subscriber = changes.subscribe();
        let history = Arc::new(History::telling(changes));
        let running = begin(&history, "a", "1");
        for text in ["looking", "found"] {
            running.id().progressed(text);
        }
        assert_eq!(&*history.of(None)[0].progress, "found");
        running.end(Outcome::Result);
        HistoryId::progressed(&running.id(), "too late");
        assert_eq!(&*history.of(None)[0].progress, "found");
        // Its begin, the first text and its end.
        let told = std::iter::from_fn(|| subscriber.try_recv().ok()).count();
        assert_eq!(told, 3);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let history = Arc::new(History::default());
        for number in 0..KEEP + 3 {
            begin(&history, "a", &number.to_string()).end(Outcome::Result);
        }
        begin(&history, "b", "x").end(Outcome::Result);
        let told = told(&history, "a");
        assert_eq!((told.len(), told.last().unwrap().0.as_str()), (KEEP, "3"));
    }
}
