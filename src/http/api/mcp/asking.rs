//! Calls of clients of 2026-07-28 that wait for an answer of the user. The request of each was
//! answered with the server's question; the next request of the client brings the answer.
//!
//! Must not: know a call's content.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::calls::Answering;
use crate::model::maps::HashMap;
use crate::model::{AppName, member};
use crate::random;

/// The most calls of an app that wait. Beyond that, the one that has waited for longest is
/// cancelled.
const MAX: usize = 256;
/// How long the outcome of a call is kept at least.
const LONGEST: Duration = Duration::from_secs(600);

/// The calls, by the `requestState` that the client sends back.
#[derive(Debug, Default)]
pub(super) struct AskingCalls(Mutex<HashMap<String, AskingCall>>);

/// One call; dropping it cancels it.
#[derive(Debug)]
pub(super) struct AskingCall {
    pub answering: Answering,
    /// Sends the user's answer to the server that asks.
    pub answer: oneshot::Sender<Box<RawValue>>,
    /// The name of the question among the `inputRequests` of the result.
    pub key: String,
    pub app: AppName,
    pub since: Instant,
}

impl AskingCalls {
    /// The calls, without those that ended long ago.
    fn swept(&self) -> MutexGuard<'_, HashMap<String, AskingCall>> {
        let mut calls = self.0.lock();
        calls.retain(|_, call| !call.answer.is_closed() || call.since.elapsed() < LONGEST);
        calls
    }

    /// Keeps a call until its answer comes; returns its `requestState`.
    pub(super) fn insert(&self, call: AskingCall) -> String {
        let state = random::unguessable().simple().to_string();
        let mut calls = self.swept();
        let calls_of_app = calls.iter().filter(|(_, other)| other.app == call.app);
        if calls_of_app.clone().count() >= MAX
            && let Some((oldest, _)) = calls_of_app.min_by_key(|(_, call)| call.since)
        {
            let oldest = oldest.clone();
            calls.remove(&oldest);
        }
        calls.insert(state.clone(), call);
        state
    }

    /// Takes the call of `app` with this `requestState`, and its answer from the `inputResponses`.
    /// The error is a sentence for the client.
    pub(super) fn take(
        &self,
        state: &str,
        app: &AppName,
        responses: &str,
    ) -> Result<(AskingCall, Box<RawValue>), String> {
        let calls = self.swept();
        let Some(call) = calls.get(state).filter(|call| call.app == *app) else {
            return Err(no_such_call());
        };
        let key = call.key.clone();
        // Without the lock: the text may have megabytes, and other apps ask, too.
        drop(calls);
        let answer = member(responses, &key)
            .ok_or_else(|| format!("`inputResponses` must have `{key}`."))?
            .to_owned();
        // Another request may have brought the answer meanwhile.
        let call = self.swept().remove(state).ok_or_else(no_such_call)?;
        Ok((call, answer))
    }
}

fn no_such_call() -> String {
    "No call waits with this `requestState`: it has ended.".to_owned()
}
