//! `GET /v1/events`: the activity of the bridge, as it happens.
//!
//! `calls::changes` pushes runs, calls and questions. The daemon and its backends are polled every
//! second. The stream gets an event where their state differs from the last one sent.
//!
//! Must not: delay other parts of the bridge, or show an app data of another app.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::sight::Sight;
use super::{Answered, Api, ApiRequest, App, Caller, approvals, response, runs, status};
use crate::calls::approvals::Approval;
use crate::calls::changes::Change;
use crate::calls::history::HistoryEntry;
use crate::model::AppName;
use crate::sse::Frame;

/// The interval of polls.
const LOOK: Duration = Duration::from_secs(1);
/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long the state that one stream has looked at is that of the caller's other streams, too. Without
/// this, five hundred streams of an app would each write the whole state every second.
const FRESH: Duration = Duration::from_millis(500);
/// The most changes in one chunk.
const AT_ONCE: usize = 256;

/// The digest of a state.
type Digest = [u8; 32];

/// The state as a caller sees it.
#[derive(Debug)]
struct Look {
    at: Instant,
    app: Arc<App>,
    daemon: (Digest, String),
    backends: BTreeMap<String, (Digest, String)>,
}

/// The last look of one caller.
type LastLook = Arc<Mutex<Option<Arc<Look>>>>;

/// The last look of each app, and of the operator as each app.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<(AppName, bool), LastLook>>);

impl Looks {
    /// The state, at most `age` old.
    fn look(&self, api: &Api, caller: &Caller, age: Duration) -> Arc<Look> {
        let key = (caller.app.name.clone(), caller.is_operator);
        let last = {
            let mut looks = self.0.lock();
            // Those that no stream has used for a while.
            let is_used = |last: &LastLook| {
                let Some(last) = last.try_lock() else { return true };
                last.as_ref().is_none_or(|look| look.at.elapsed() < 8 * FRESH)
            };
            looks.retain(|of, last| *of == key || is_used(last));
            Arc::clone(looks.entry(key).or_default())
        };
        let mut last = last.lock();
        let is_same =
            |look: &&Arc<Look>| look.at.elapsed() < age && Arc::ptr_eq(&look.app, &caller.app);
        if let Some(look) = last.as_ref().filter(is_same) {
            return Arc::clone(look);
        }
        let look = Arc::new(Look::new(api, caller));
        *last = Some(Arc::clone(&look));
        look
    }
}

impl Look {
    fn new(api: &Api, caller: &Caller) -> Self {
        let backends = status::backends(api, caller);
        let daemon = written(&status::daemon(api, caller, &backends));
        let digested = |text: String| (digest(&text), text);
        let text = |backend: &status::Backend| (backend.name.clone(), digested(written(backend)));
        Self {
            at: Instant::now(),
            app: Arc::clone(&caller.app),
            daemon: digested(daemon),
            backends: backends.iter().map(text).collect(),
        }
    }
}

/// The stream of one client.
struct Feed {
    api: Api,
    caller: Caller,
    sight: Sight,
    changes: broadcast::Receiver<Change>,
    /// The digest of the daemon's state that was sent last. The states themselves would be held for
    /// each of a thousand streams.
    daemon: Digest,
    /// The same of each backend.
    backends: BTreeMap<String, Digest>,
    look: Interval,
    sent: Instant,
}

impl Api {
    /// The events that the caller may see, from now on.
    pub(super) fn events(&self, asked: &ApiRequest) -> Answered {
        // The first poll is due at once.
        // A stream begins with the present state, not with that of another stream. It is written here, in
        // the turn of the app.
        self.looks.look(self, &asked.caller, Duration::ZERO);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let feed = Feed {
            sight: Sight::of(&self.runs, &asked.caller, asked.request.headers()),
            caller: asked.caller.clone(),
            changes: self.runs.calls.changes.subscribe(),
            daemon: Digest::default(),
            backends: BTreeMap::new(),
            look,
            sent: Instant::now(),
            api: self.clone(),
        };
        Ok(response::events(stream::unfold(feed, |mut feed| async move {
            Some((feed.next().await?, feed))
        })))
    }
}

impl Feed {
    /// The next events; `None` when the daemon shuts down, or the app may not read the stream any
    /// more.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let mut out = Vec::new();
            tokio::select! {
                biased;
                () = self.api.runs.draining().cancelled() => return None,
                _ = self.look.tick() => self.look(&mut out)?,
                change = self.changes.recv() => self.take(change, &mut out)?,
            }
            if out.is_empty() && self.sent.elapsed() >= HEARTBEAT {
                out.extend_from_slice(b": ping\n\n");
            }
            if !out.is_empty() {
                self.sent = Instant::now();
                return Some(Bytes::from(out));
            }
        }
    }

    /// Writes a change, and those queued behind it; `None` when the channel is closed.
    fn take(&mut self, change: Result<Change, RecvError>, out: &mut Vec<u8>) -> Option<()> {
        let mut next = change;
        for _ in 0..AT_ONCE {
            match next {
                Ok(change) => self.tell(&change, out),
                Err(RecvError::Lagged(missed)) => {
                    frame(out, "missed", &serde_json::json!({ "changes": missed }));
                }
                Err(RecvError::Closed) => return None,
            }
            let Some(more) = self.changes.recv().now_or_never() else { break };
            next = more;
        }
        Some(())
    }

    fn tell(&self, change: &Change, out: &mut Vec<u8>) {
        let runs = &self.api.runs;
        if self.caller.sees().is_some_and(|app| change.app() != app) {
            return;
        }
        match change {
            Change::Run(_, key) => {
                if let Some(run) = runs.get(key).filter(|run| self.sight.has_run(runs, run)) {
                    frame(out, "run", &runs::Shown::of(&run));
                }
            }
            Change::Approval(app, id) => {
                let approval = runs.calls.approvals.get(Some(app), id.as_str());
                let seen = |one: &Approval| self.sight.has_call(runs, app, one.run.as_ref());
                if let Some(approval) = approval.filter(seen) {
                    frame(out, "approval", &approvals::Shown::of(&approval));
                }
            }
            Change::Call(app, number) => {
                let call = runs.calls.history.get(app, *number);
                let seen = |call: &HistoryEntry| self.sight.has_call(runs, app, call.run.as_ref());
                if let Some(call) = call.filter(seen) {
                    frame(out, "call", &runs::ShownCall::of(&call));
                }
            }
        }
    }

    /// Writes the state of the daemon and the backends where it differs from the last poll; `None`
    /// if the app is not configured any more.
    fn look(&mut self, out: &mut Vec<u8>) -> Option<()> {
        // The operator is no app, so a reload cannot remove it.
        if let Some(app) = self.caller.sees() {
            self.caller.app = self.api.runs.calls.app(app)?;
        }
        let look = self.api.looks.look(&self.api, &self.caller, FRESH);
        let (of_daemon, daemon) = &look.daemon;
        if *of_daemon != self.daemon {
            text_frame(out, "status", daemon);
        }
        let mut now = BTreeMap::new();
        for (name, (of_backend, text)) in &look.backends {
            if self.backends.get(name) != Some(of_backend) {
                text_frame(out, "backend", text);
            }
            now.insert(name.clone(), *of_backend);
        }
        for name in self.backends.keys().filter(|name| !now.contains_key(*name)) {
            frame(out, "backend", &serde_json::json!({ "name": name, "state": "removed" }));
        }
        (self.daemon, self.backends) = (*of_daemon, now);
        Some(())
    }
}

fn digest(text: &str) -> Digest {
    Sha256::digest(text).into()
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("the bridge's own answers can be written")
}

fn frame(out: &mut Vec<u8>, event: &str, data: &impl Serialize) {
    text_frame(out, event, &written(data));
}

/// Writes one event. JSON text has no line ends, but raw text from elsewhere in it may, so that one
/// event can need several `data:` lines.
fn text_frame(out: &mut Vec<u8>, event: &str, data: &str) {
    out.extend_from_slice(&Frame::write(None, Some(event), data).raw);
}

#[cfg(test)]
mod tests {
    //! How events are written.

    use super::*;

    #[test]
    fn line_ends_in_the_text_of_others_make_no_events() {
        let mut out = Vec::new();
        text_frame(&mut out, "backend", "{\n\"a\":\r1}");
        assert_eq!(out, b"event: backend\ndata: {\ndata: \"a\":\ndata: 1}\n\n");
    }
}
