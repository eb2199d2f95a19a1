//! Calls of clients of 2026-07-28 that wait for an answer of the user. The request of each was
//! answered with the server's question; the next request of the client brings the answer.
//!
//! Must not: know a call's content.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{sync::oneshot, time::Instant};

use super::calls::Answering;
use crate::model::ids::AppName;

/// The name of the question among the `inputRequests` of a result.
pub(super) const QUESTION: &str = "question";
/// The most calls of an app that wait. Beyond that, the one that has waited for longest is
/// cancelled.
const MOST: usize = 256;
/// How long a call waits: longer than any call may take.
const LONGEST: Duration = Duration::from_secs(600);

/// The calls, by the `requestState` that the client sends back.
#[derive(Debug, Default)]
pub(super) struct AskingCalls(Mutex<HashMap<String, AskingCall>>);

/// One call; dropping it cancels it.
#[derive(Debug)]
pub(super) struct AskingCall {
    pub answering: Answering,
    /// Takes the answer.
    pub question: oneshot::Sender<Box<RawValue>>,
    pub app: AppName,
    pub since: Instant,
}

impl AskingCalls {
    /// Keeps a call; returns its `requestState`.
    pub(super) fn insert(&self, call: AskingCall) -> String {
        let state = uuid::Uuid::new_v4().simple().to_string();
        let mut calls = self.0.lock();
        calls.retain(|_, call| call.since.elapsed() < LONGEST);
        let of_app = || calls.iter().filter(|(_, other)| other.app == call.app);
        if of_app().count() >= MOST
            && let Some((oldest, _)) = of_app().min_by_key(|(_, call)| call.since)
        {
            let oldest = oldest.clone();
            calls.remove(&oldest);
        }
        calls.insert(state.clone(), call);
        state
    }

    /// Takes the call of `app` with this `requestState`.
    pub(super) fn take(&self, state: &str, app: &AppName) -> Option<AskingCall> {
        let mut calls = self.0.lock();
        calls.retain(|_, call| call.since.elapsed() < LONGEST);
        calls.get(state).filter(|call| call.app == *app)?;
        calls.remove(state)
    }
}
