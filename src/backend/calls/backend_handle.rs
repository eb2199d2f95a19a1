//! The handle of one backend, for the parts of the bridge that make calls: how it is reached, its
//! rules, and the number of its calls in flight.
//!
//! Must not: make a call.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::circuit_breaker::CircuitBreaker;
use crate::backend::demand::Demand;
use crate::backend::log::Redactor;
use crate::backend::supervisor::Ask;
use crate::backend::switch::Switch;
use crate::backend::{Dial, Remark};
use crate::config::Backend;
use crate::limits::queue::AdmissionQueue;
use crate::limits::quota::Meter;
use crate::model::maps::HashMap;
use crate::model::redaction::Redaction;
use crate::model::{Answer, AppName};
use crate::tasks::in_place_if_large;
use crate::{clock, metrics};

/// The owner of a quota, for the model.
const OF: &str = "This backend";

/// The rules, queue, breaker and supervisor of one backend, as its calls need them.
#[derive(Debug)]
pub struct BackendHandle {
    /// Its entry in bridge.yaml.
    pub rules: Arc<Backend>,
    /// Names the transport by which the backend is reached.
    pub dial: Arc<dyn Dial>,
    /// Bounds how many calls run at once, and how many wait.
    pub(super) queue: AdmissionQueue,
    /// Rejects calls while the backend keeps failing.
    pub breaker: Arc<CircuitBreaker>,
    /// Asks the supervisor for a refresh.
    pub(super) asks: mpsc::Sender<Ask>,
    /// Makes the supervisor connect while calls wait.
    pub demand: Demand,
    /// Whether the operator wants it connected.
    pub switch: Switch,
    /// Counts its calls, if it has a quota.
    pub quota: Option<Arc<Meter>>,
    traffic: Arc<Traffic>,
}

/// The counts of one backend's calls. Reloads keep them.
#[derive(Debug, Default)]
struct Traffic {
    /// The calls of each app of bridge.yaml that has called it.
    by_app: Mutex<HashMap<AppName, AppCalls>>,
    /// When an MCP client with a session last called it.
    last_session_call: Mutex<Option<SystemTime>>,
    metrics: Arc<metrics::Calls>,
}

/// Who reads what is odd about a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Operator,
    App,
}

/// What the calls of one app were.
#[derive(Debug, Default)]
struct AppCalls {
    in_flight: TaskTracker,
    last_call: Option<LastCall>,
}

/// When a call ended, and whether the peer answered; an error of its tool counts as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LastCall {
    pub at: SystemTime,
    pub answered: bool,
}

impl BackendHandle {
    /// The handle of a backend whose supervisor receives `asks`.
    pub fn new(
        rules: Arc<Backend>,
        dial: Arc<dyn Dial>,
        breaker: Arc<CircuitBreaker>,
        asks: mpsc::Sender<Ask>,
    ) -> Self {
        let queue = AdmissionQueue::new(rules.concurrency);
        let quota = Meter::after(None, OF, rules.quota);
        Self {
            rules,
            dial,
            queue,
            breaker,
            asks,
            demand: Demand::default(),
            switch: Switch::default(),
            quota,
            traffic: Arc::default(),
        }
    }

    /// The handle with other rules and the same supervisor. If the concurrency stays the same, so
    /// does the queue, with the calls that wait in it.
    pub fn under(&self, rules: Arc<Backend>) -> Self {
        let dial = Arc::clone(&self.dial);
        let breaker = Arc::clone(&self.breaker);
        let mut backend = Self::new(rules, dial, breaker, self.asks.clone()).after(self);
        backend.demand = self.demand.clone();
        if backend.rules.concurrency == self.rules.concurrency {
            backend.queue = self.queue.clone();
        }
        backend
    }

    /// Takes over the counts and the switch of `earlier`, which this handle replaces.
    pub fn after(mut self, earlier: &Self) -> Self {
        self.traffic = Arc::clone(&earlier.traffic);
        self.switch = earlier.switch.clone();
        self.quota = Meter::after(earlier.quota.as_ref(), OF, self.rules.quota);
        self
    }

    /// Counts a call of `app` as in flight, in the queue or at the peer, until the result is
    /// dropped.
    pub(super) fn enter(&self, app: &AppName) -> TaskTrackerToken {
        self.traffic.by_app.lock().entry(app.clone()).or_default().in_flight.token()
    }

    /// Notes that a call of `app` has ended now.
    pub(super) fn leave(&self, app: &AppName, answered: bool) {
        let last_call = Some(LastCall { at: clock::now(), answered });
        self.traffic.by_app.lock().entry(app.clone()).or_default().last_call = last_call;
    }

    /// What is removed from what the backend says.
    pub(super) fn redactor(&self) -> Redactor {
        let Backend { secrets, redact, .. } = &*self.rules;
        let redacted = self.metrics().redacted.clone();
        Redactor { secrets: Arc::clone(secrets), redact: Arc::clone(redact), redacted }
    }

    /// What is odd about the backend, for the operator or for an app. It may repeat the peer.
    pub fn remark(&self, reader: Reader) -> Option<Remark> {
        let remark = self.dial.remark()?;
        let Reader::Operator = reader else { return Some(Remark { quote: None, ..remark }) };
        let Remark { message, cure, .. } = remark.with_quote();
        let redactor = self.redactor();
        let [message, cure] = [message, cure].map(|text| redactor.text(text, &mut 0));
        Some(Remark { message, cure, quote: None })
    }

    /// `answer` without what the operator wants removed. Without an `await`: a caller that goes
    /// away at this moment would take an answer with it that its peer has given.
    pub(super) fn redacted(&self, answer: Answer) -> Answer {
        if self.rules.redact.0.is_empty() {
            return answer;
        }
        let (Answer::Result { text, .. } | Answer::Error(text)) = &answer;
        let size = text.len();
        let (answer, count) = in_place_if_large(size, || redacted(&self.rules.redact, answer));
        self.metrics().redacted.inc_by(count);
        answer
    }

    /// The metrics of the backend's calls.
    pub fn metrics(&self) -> &Arc<metrics::Calls> {
        &self.traffic.metrics
    }

    /// Counts the calls in flight of `app`, or of all apps.
    pub fn in_flight(&self, app: Option<&AppName>) -> usize {
        let by_app = self.traffic.by_app.lock();
        calls_of(&by_app, app).map(|calls| calls.in_flight.len()).sum()
    }

    /// Notes that an MCP client with a session calls it, or reads something of it: such a client
    /// may expect that the server keeps something between its requests.
    pub fn note_session_call(&self) {
        *self.traffic.last_session_call.lock() = Some(clock::now());
    }

    pub fn last_session_call(&self) -> Option<SystemTime> {
        *self.traffic.last_session_call.lock()
    }

    /// The last call of `app` that has ended, or of any app.
    pub fn last_call(&self, app: Option<&AppName>) -> Option<LastCall> {
        let by_app = self.traffic.by_app.lock();
        calls_of(&by_app, app).filter_map(|calls| calls.last_call).max()
    }
}

/// The calls of `app`, or of each app.
fn calls_of<'a>(
    by_app: &'a HashMap<AppName, AppCalls>,
    app: Option<&'a AppName>,
) -> impl Iterator<Item = &'a AppCalls> {
    let entries = by_app.iter().filter(move |(name, _)| app.is_none_or(|app| *name == app));
    entries.map(|(_, calls)| calls)
}

/// `answer` without what `redact` matches, and how many places that were.
fn redacted(redact: &Redaction, mut answer: Answer) -> (Answer, u64) {
    let mut count = 0;
    if let Answer::Result { text, files } = &mut answer {
        for (number, file) in (1..).zip(files) {
            if redact.apply(file.filename(), &mut count).is_some() {
                file.rename(format!("removed-{number}"), text);
            }
        }
    }
    let (Answer::Result { text, .. } | Answer::Error(text)) = &mut answer;
    if let Some(replaced) = redact.apply(text, &mut count) {
        *text = replaced;
    }
    (answer, count)
}
