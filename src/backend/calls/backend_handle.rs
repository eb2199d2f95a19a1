//! What is known of one backend by those who have calls for it: the way there, the rules, and how
//! many are on it.
//!
//! Must not: make a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{
    backend::{
        circuit_breaker::CircuitBreaker, circuit_breaker::Look, peer::Dial, queue::AdmissionQueue,
        supervisor::Ask,
    },
    metrics,
    model::{approval::Policy, naming::ToolFilter},
};

/// What is needed to make calls to one backend.
#[derive(Debug)]
pub struct BackendHandle {
    pub rules: BackendRules,
    /// Says by which transport the backend is reached.
    pub dial: Arc<dyn Dial>,
    /// Where calls wait for their turn.
    pub(super) queue: Arc<AdmissionQueue>,
    /// Keeps calls from a backend that keeps failing.
    pub(super) breaker: Arc<CircuitBreaker>,
    /// To the supervisor.
    pub(super) asks: mpsc::Sender<Ask>,
    traffic: Arc<Traffic>,
}

/// What the configuration says of one backend's calls.
#[derive(Debug, Clone)]
pub struct BackendRules {
    /// `/readyz` waits for it.
    pub required: bool,
    pub limits: CallLimits,
    /// Calls that it is given at once.
    pub concurrency: usize,
    /// The tools that it offers, by its own names.
    pub tools: ToolFilter,
    /// Which of them a person has to approve.
    pub approve: Policy,
}

/// The calls of one backend, over reloads.
#[derive(Debug, Default)]
struct Traffic {
    in_flight: AtomicUsize,
    last_call: Mutex<Option<LastCall>>,
    metrics: Arc<metrics::Calls>,
}

/// The times of one backend's calls.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// How long a call may go without a sign of life, waiting for a turn included. Without
    /// progress, it is the longest that a call may take.
    pub idle: Duration,
    /// After how long a call should go on without anybody who waits for it.
    pub pending_after: Option<Duration>,
}

/// How the last call to a backend ended.
#[derive(Debug, Clone, Copy)]
pub struct LastCall {
    pub at: SystemTime,
    /// Whether the peer gave an answer, be it an error of its tool.
    pub answered: bool,
}

/// A call that waits in queue or runs; counts itself out when it is dropped.
pub(super) struct InFlight<'a>(&'a AtomicUsize);

impl BackendHandle {
    /// A backend to the supervisor that listens to `asks`.
    pub fn new(
        rules: BackendRules,
        dial: Arc<dyn Dial>,
        breaker: Arc<CircuitBreaker>,
        asks: mpsc::Sender<Ask>,
    ) -> Self {
        let queue = Arc::new(AdmissionQueue::new(rules.concurrency));
        Self { rules, dial, queue, breaker, asks, traffic: Arc::default() }
    }

    /// The backend to the same supervisor under other rules.
    pub fn under(&self, rules: BackendRules) -> Self {
        let (dial, breaker) = (Arc::clone(&self.dial), Arc::clone(&self.breaker));
        let mut backend = Self::new(rules, dial, breaker, self.asks.clone()).after(self);
        if backend.rules.concurrency == self.rules.concurrency {
            backend.queue = Arc::clone(&self.queue);
        }
        backend
    }

    /// The backend that comes in the place of `earlier`, whose calls are counted on.
    pub fn after(mut self, earlier: &Self) -> Self {
        self.traffic = Arc::clone(&earlier.traffic);
        self
    }

    /// Counts a call as in flight for as long as the result lives.
    pub(super) fn enter(&self) -> InFlight<'_> {
        self.traffic.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.traffic.in_flight)
    }

    /// A call has ended just now; `answered` as in [`LastCall`].
    pub(super) fn leave(&self, answered: bool) {
        let last = LastCall { at: SystemTime::now(), answered };
        *self.traffic.last_call.lock() = Some(last);
    }

    /// Where its calls are counted.
    pub fn metrics(&self) -> &Arc<metrics::Calls> {
        &self.traffic.metrics
    }

    pub fn in_flight(&self) -> usize {
        self.traffic.in_flight.load(Ordering::Relaxed)
    }

    /// How the breaker stands that keeps calls from a backend which keeps failing.
    pub fn breaker(&self) -> Look {
        self.breaker.look()
    }

    pub fn last_call(&self) -> Option<LastCall> {
        *self.traffic.last_call.lock()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
