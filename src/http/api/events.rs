//! `GET /v1/events`: the activity of the bridge, as it happens.
//!
//! `calls::changes` pushes runs, calls and questions. The daemon and its backends are polled every
//! second. The stream gets an event where their state differs from the last one sent.
//!
//! Must not: delay other parts of the bridge, or show an app data of another app.

use std::collections::{BTreeMap, VecDeque};
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

use super::logins::Login;
use super::sight::Sight;
use super::{Api, ApiRequest, App, Caller, HandlerResult, approvals, response, runs, status};
use crate::calls::changes::{Announcement, Change, ChangeText};
use crate::logins::LoginView;
use crate::model::AppName;
use crate::model::maps::HashMap;
use crate::run_store::RunStore;
use crate::sse::Frame;

/// The interval of polls.
const LOOK: Duration = Duration::from_secs(1);
/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long the state that one stream has looked at is that of the caller's other streams, too.
/// Without this, five hundred streams of an app would each write the whole state every second.
const FRESH: Duration = Duration::from_millis(500);
/// The most changes that a stream takes before it sends them.
const AT_ONCE: usize = 256;
/// A comment in an idle stream.
const PING: &[u8] = b": ping\n\n";

/// The digest of a state.
type Digest = [u8; 32];

/// The state as a caller sees it.
#[derive(Debug)]
struct Look {
    at: Instant,
    app: Arc<App>,
    daemon: Part,
    backends: Parts,
    /// The logins at backends, for the operator alone.
    logins: Parts,
}

/// Parts of the state, by the names of their backends.
type Parts = BTreeMap<String, Part>;

/// The digests of parts.
type Digests = BTreeMap<String, Digest>;

/// A part of the state, as an event that all streams share.
#[derive(Debug)]
struct Part {
    digest: Digest,
    event: Bytes,
}

impl Part {
    fn new(name: &str, state: &impl Serialize) -> Self {
        let text = written(state);
        Self { digest: Sha256::digest(&text).into(), event: event(name, &text) }
    }

    /// A login. That a request has used it is no change: each call would be news otherwise.
    fn login(view: LoginView) -> Self {
        let unused = LoginView { last_used: None, ..view.clone() };
        let text = written(&Login::from(view));
        Self { event: event("login", &text), ..Self::new("login", &Login::from(unused)) }
    }
}

/// The last look of one caller.
type LastLook = Arc<Mutex<Option<Arc<Look>>>>;

/// The last look of each app, and of the operator as each app.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<(AppName, bool), LastLook>>);

impl Looks {
    /// The state that another stream of the caller has looked at a moment ago.
    fn fresh(&self, caller: &Caller) -> Option<Arc<Look>> {
        let key = (caller.app.name.clone(), caller.is_operator);
        let entry = Arc::clone(self.0.lock().get(&key)?);
        // While another stream looks, this one must not block the thread.
        let last = entry.try_lock()?;
        last.as_ref().filter(|look| look.is_fresh(caller, FRESH)).map(Arc::clone)
    }

    /// The state, at most `age` old. It may have to be written, which takes milliseconds.
    fn look(&self, api: &Api, caller: &Caller, age: Duration) -> Arc<Look> {
        let key = (caller.app.name.clone(), caller.is_operator);
        let entry = {
            let mut looks = self.0.lock();
            looks.retain(|caller, last| *caller == key || was_just_used(last));
            Arc::clone(looks.entry(key).or_default())
        };
        let mut last = entry.lock();
        if let Some(look) = last.as_ref().filter(|look| look.is_fresh(caller, age)) {
            return Arc::clone(look);
        }
        let look = Arc::new(Look::new(api, caller));
        *last = Some(Arc::clone(&look));
        look
    }
}

/// Whether a stream looks now, or has done so within a few seconds.
fn was_just_used(last: &LastLook) -> bool {
    let Some(last) = last.try_lock() else { return true };
    last.as_ref().is_none_or(|look| look.at.elapsed() < 8 * FRESH)
}

impl Look {
    fn new(api: &Api, caller: &Caller) -> Self {
        let backends = status::backends(api, caller);
        let daemon = Part::new("status", &status::daemon(api, caller, &backends));
        let parts = backends.iter().map(|one| (one.name.clone(), Part::new("backend", one)));
        let backends = parts.collect();
        let views = if caller.is_operator { api.facts.logins.list() } else { Vec::new() };
        let logins = views.into_iter().map(|view| (view.backend.to_string(), Part::login(view)));
        let app = Arc::clone(&caller.app);
        Self { at: Instant::now(), app, daemon, backends, logins: logins.collect() }
    }

    fn is_fresh(&self, caller: &Caller, age: Duration) -> bool {
        self.at.elapsed() < age && Arc::ptr_eq(&self.app, &caller.app)
    }
}

/// The stream of one client.
struct Feed {
    api: Api,
    caller: Caller,
    sight: Sight,
    changes: broadcast::Receiver<Arc<Announcement>>,
    /// The events that are to be sent; their bytes are shared.
    ready: VecDeque<Bytes>,
    /// The digest of the daemon's state that was sent last. The states themselves would be held for
    /// each of a thousand streams.
    daemon: Digest,
    /// The digest of each backend's state that was sent last.
    backends: Digests,
    logins: Digests,
    look: Interval,
    sent: Instant,
}

impl Api {
    /// The events that the caller may see, from now on.
    pub(super) fn events(&self, incoming: &ApiRequest) -> HandlerResult {
        let caller = self.viewer(incoming)?;
        // The first poll is due at once. A stream begins with the present state, not with that of
        // another stream. It is written here, in the turn of the app.
        self.looks.look(self, &caller, Duration::ZERO);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let feed = Feed {
            sight: Sight::new(&self.runs, &incoming.caller, incoming.request.headers()),
            caller,
            changes: self.runs.calls.changes.subscribe(),
            ready: VecDeque::new(),
            daemon: Digest::default(),
            backends: Digests::new(),
            logins: Digests::new(),
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
    /// The next event; `None` when the daemon shuts down, or the app may not read the stream any
    /// more.
    async fn next(&mut self) -> Option<Bytes> {
        let draining = self.api.runs.draining().clone();
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.sent = Instant::now();
                return Some(event);
            }
            draining.run_until_cancelled(self.fill()).await??;
            if self.ready.is_empty() && self.sent.elapsed() >= HEARTBEAT {
                self.ready.push_back(Bytes::from_static(PING));
            }
        }
    }

    /// Waits for a change, or for the time of a look at the state, and takes what is new; `None` if
    /// the stream has ended.
    async fn fill(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            _ = self.look.tick() => self.look().await,
            change = self.changes.recv() => self.take(change),
        }
    }

    /// Takes a change, and those queued behind it; `None` when the channel is closed.
    fn take(&mut self, change: Result<Arc<Announcement>, RecvError>) -> Option<()> {
        let mut next = change;
        for _ in 0..AT_ONCE {
            match next {
                Ok(announcement) => self.tell(&announcement),
                Err(RecvError::Lagged(missed)) => {
                    let missed = written(&serde_json::json!({ "changes": missed }));
                    self.ready.push_back(event("missed", &missed));
                }
                Err(RecvError::Closed) => return None,
            }
            let Some(more) = self.changes.recv().now_or_never() else { break };
            next = more;
        }
        Some(())
    }

    fn tell(&mut self, announcement: &Announcement) {
        let runs = &self.api.runs;
        let change = &announcement.change;
        if self.caller.sees().is_some_and(|app| change.app() != app) {
            return;
        }
        let Some(change_text) = announcement.text(|| change_text(runs, change)) else { return };
        let may_see = match change {
            Change::Run(_, key) => self.sight.has_run_of(runs, key),
            Change::Approval(app, _) | Change::Call(app, _) => {
                self.sight.has_call(runs, app, change_text.run.as_ref())
            }
        };
        if may_see {
            self.ready.push_back(change_text.text.clone());
        }
    }

    /// Takes the state of the daemon and the backends where it differs from the last look; `None`
    /// if the app is not configured any more.
    async fn look(&mut self) -> Option<()> {
        // The operator is no app, so a reload cannot remove it.
        if !self.caller.app.is_operator() {
            self.caller.app = self.api.runs.calls.app(&self.caller.app.name)?;
        }
        let look = match self.api.looks.fresh(&self.caller) {
            Some(look) => look,
            None => {
                let (api, caller) = (self.api.clone(), self.caller.clone());
                let look = self
                    .api
                    .views
                    .work(&self.caller.app.name, move || api.looks.look(&api, &caller, FRESH));
                // Without a turn, the stream looks again in a second.
                match look.await {
                    Ok(look) => look,
                    Err(_late) => return Some(()),
                }
            }
        };
        if look.daemon.digest != self.daemon {
            self.ready.push_back(look.daemon.event.clone());
        }
        self.ready.extend(changed(&self.backends, &look.backends));
        for name in self.backends.keys().filter(|name| !look.backends.contains_key(*name)) {
            let removed = serde_json::json!({ "name": name, "state": "removed" });
            self.ready.push_back(event("backend", &written(&removed)));
        }
        self.ready.extend(changed(&self.logins, &look.logins));
        for name in self.logins.keys().filter(|name| !look.logins.contains_key(*name)) {
            let removed = serde_json::json!({ "backend": name, "state": "removed" });
            self.ready.push_back(event("login", &written(&removed)));
        }
        self.daemon = look.daemon.digest;
        self.backends = digests(&look.backends);
        self.logins = digests(&look.logins);
        Some(())
    }
}

/// The events of the parts that differ from what was sent.
fn changed(sent: &Digests, parts: &Parts) -> Vec<Bytes> {
    let news = parts.iter().filter(|(name, part)| sent.get(*name) != Some(&part.digest));
    news.map(|(_, part)| part.event.clone()).collect()
}

fn digests(parts: &Parts) -> Digests {
    parts.iter().map(|(name, part)| (name.clone(), part.digest)).collect()
}

/// The event of a change; `None` if what has changed is forgotten already.
fn change_text(runs: &RunStore, change: &Change) -> Option<ChangeText> {
    Some(match change {
        Change::Run(_, key) => {
            let run = runs.get(key)?;
            ChangeText { run: None, text: event("run", &written(&runs::Shown::new(&run))) }
        }
        Change::Approval(app, id) => {
            let approval = runs.calls.approvals.get(Some(app), id.as_str())?;
            let text = written(&approvals::Shown::new(&approval));
            ChangeText { run: approval.run, text: event("approval", &text) }
        }
        Change::Call(app, number) => {
            let call = runs.calls.history.get(app, *number)?;
            let text = written(&runs::ShownCall::new(&call));
            ChangeText { run: call.run, text: event("call", &text) }
        }
    })
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("the bridge's own answers can be written")
}

/// One event. JSON text has no line ends, but raw text from elsewhere in it may, so that one event
/// can need several `data:` lines.
fn event(name: &str, data: &str) -> Bytes {
    Frame::write(None, Some(name), data).raw
}

#[cfg(test)]
mod tests {
    //! How events are written.

    use super::*;

    #[test]
    fn line_ends_in_the_text_of_others_make_no_events() {
        let out = event("backend", "{\n\"a\":\r1}");
        assert_eq!(&out[..], b"event: backend\ndata: {\ndata: \"a\":\ndata: 1}\n\n");
    }
}
