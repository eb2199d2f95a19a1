//! The sessions of MCP clients that speak a revision before 2026-07-28.
//!
//! A session is small: it has an id, and the calls that it waits for. It ends when the client says
//! so, when it was not used for a day, or when its app has too many newer ones. The client then
//! gets 404, and begins another.
//!
//! Must not: know a method or a call's content.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asking::AskingCalls;
use super::selection::{NarrowedRights, Selection};
use super::{List, Modes};
use crate::model::AppName;
use crate::model::instructions::Informed;
use crate::model::maps::HashMap;
use crate::random;

/// How long a session lives that nothing uses.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// The most sessions of an app. Beyond that, the one that was unused for longest ends.
const MAX: usize = 4096;
/// How many questions a client leaves open.
const QUESTIONS: usize = 64;
/// How many cancellations of calls are remembered that have not come yet.
const EARLY: usize = 64;

/// How often the sessions of all apps are searched for unused ones. A search at each `initialize`
/// would hold up the requests of all clients: there may be tens of thousands.
const SWEEP: Duration = Duration::from_secs(10 * 60);

/// All sessions, and the calls of clients without one that wait for an answer.
#[derive(Debug, Default)]
pub struct McpSessions {
    sessions: Mutex<AllSessions>,
    pub(super) asking: Arc<AskingCalls>,
    /// The rights of apps within the selections of clients.
    pub(super) narrowed: NarrowedRights,
}

#[derive(Debug, Default)]
struct AllSessions {
    /// By app, and by the id of the session.
    by_app: HashMap<AppName, HashMap<String, Arc<Session>>>,
    last_sweep: Option<Instant>,
}

impl AllSessions {
    fn sweep(&mut self) {
        if self.last_sweep.is_some_and(|last_sweep| last_sweep.elapsed() < SWEEP) {
            return;
        }
        self.last_sweep = Some(Instant::now());
        self.by_app.retain(|_, sessions| {
            sessions.retain(|_, session| !session.is_old());
            !sessions.is_empty()
        });
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    state: Mutex<State>,
    over: CancellationToken,
    pub lists: Arc<ClientLists>,
    /// The backends that the client has chosen at its begin.
    pub selection: Selection,
    /// The servers whose instructions its searches have given it.
    pub informed: Arc<Informed>,
    /// The questions that the client can put to its user.
    pub modes: Modes,
}

/// The lists that a client knows, by their digests.
#[derive(Debug, Default)]
pub(super) struct ClientLists(Mutex<HashMap<List, String>>);

impl ClientLists {
    /// Notes that the client knows the list with this digest. Returns whether it knew another.
    pub(super) fn learn(&self, list: List, digest: &str) -> bool {
        let before = self.0.lock().insert(list, digest.to_owned());
        before.is_some_and(|before| before != digest)
    }
}

#[derive(Debug)]
struct State {
    last_use: Instant,
    /// The calls that are waited for, by the id of their request.
    calls: HashMap<Box<str>, CancellationToken>,
    /// The ids of cancelled requests that have not come yet: two requests of a client can overtake
    /// each other.
    cancelled: VecDeque<Box<str>>,
    /// The questions that the client has to answer, by the id of the bridge's request.
    questions: HashMap<String, AwaitedAnswer>,
    /// The stream of notifications; a newer one ends it.
    stream: Option<CancellationToken>,
}

/// The answer to a question that a server puts during a call.
#[derive(Debug)]
struct AwaitedAnswer {
    /// The id of the call's request.
    call: Box<str>,
    answer: oneshot::Sender<Box<RawValue>>,
}

impl McpSessions {
    /// Begins a session of `app`; returns its id. `None` if the app has too many that are in use.
    pub(super) fn begin(
        &self,
        app: &AppName,
        modes: Modes,
        selection: Selection,
    ) -> Option<String> {
        let id = random::unguessable().simple().to_string();
        let state = State {
            last_use: Instant::now(),
            calls: HashMap::default(),
            cancelled: VecDeque::new(),
            questions: HashMap::default(),
            stream: None,
        };
        let (state, over) = (Mutex::new(state), CancellationToken::new());
        let (lists, informed) = (Arc::default(), Arc::default());
        let session = Session { state, over, lists, selection, informed, modes };
        let mut sessions = self.sessions.lock();
        sessions.sweep();
        let app_sessions = sessions.by_app.entry(app.clone()).or_default();
        if app_sessions.len() >= MAX {
            let (oldest, _) = app_sessions
                .iter()
                .filter(|(_, session)| !session.state.lock().is_used())
                .min_by_key(|(_, session)| session.state.lock().last_use)?;
            let oldest = oldest.clone();
            end(app_sessions.remove(&oldest));
        }
        app_sessions.insert(id.clone(), Arc::new(session));
        Some(id)
    }

    /// The session `id`, if it is one of `app`.
    pub(super) fn get(&self, id: &str, app: &AppName) -> Option<Arc<Session>> {
        let session = Arc::clone(self.sessions.lock().by_app.get(app)?.get(id)?);
        session.state.lock().last_use = Instant::now();
        Some(session)
    }

    /// Ends a session of `app`, and its calls with it: their answers can reach no client.
    pub(super) fn end(&self, id: &str, app: &AppName) {
        let mut sessions = self.sessions.lock();
        end(sessions.by_app.get_mut(app).and_then(|app_sessions| app_sessions.remove(id)));
    }
}

fn end(session: Option<Arc<Session>>) {
    if let Some(session) = session {
        session.over.cancel();
    }
}

impl Session {
    /// Notes a call whose request is `id`. `None` if the session waits for another with that id.
    pub(super) fn begin_call(&self, id: &str) -> Option<CancellationToken> {
        let stop = self.over.child_token();
        let mut state = self.state.lock();
        if state.calls.contains_key(id) {
            return None;
        }
        if let Some(at) = state.cancelled.iter().position(|cancelled| **cancelled == *id) {
            state.cancelled.remove(at);
            stop.cancel();
        }
        state.calls.insert(id.into(), stop.clone());
        Some(stop)
    }

    /// Forgets the call of the request `id`, and its questions: an answer to them comes too late.
    pub(super) fn end_call(&self, id: &str) {
        let mut state = self.state.lock();
        state.calls.remove(id);
        state.questions.retain(|_, question| *question.call != *id);
        state.last_use = Instant::now();
    }

    /// Notes a question during the call of the request `call`; returns the id of the request for
    /// the client, as JSON. `None` if as many as may be are open: a person may be answering those.
    /// The server of the new one is told that the user cancels.
    pub(super) fn ask(&self, call: &str, answer: oneshot::Sender<Box<RawValue>>) -> Option<String> {
        let mut state = self.state.lock();
        if state.questions.len() == QUESTIONS {
            return None;
        }
        let id = format!("\"{}\"", random::unguessable().simple());
        state.questions.insert(id.clone(), AwaitedAnswer { call: call.into(), answer });
        Some(id)
    }

    /// Takes the client's answer to the request `id`. Without a result, the client has refused: the
    /// sender is dropped, and the server is told that the user cancels.
    pub(super) fn answer(&self, id: &str, result: Option<&RawValue>) {
        let question = self.state.lock().questions.remove(id);
        if let (Some(question), Some(result)) = (question, result) {
            // The call may have ended meanwhile.
            question.answer.send(result.to_owned()).ok();
        }
    }

    /// Cancels the call of the request `id`, also if it comes later.
    pub(super) fn cancel(&self, id: &str) {
        let mut state = self.state.lock();
        match state.calls.get(id) {
            Some(stop) => stop.cancel(),
            None => {
                state.cancelled.truncate(EARLY - 1);
                state.cancelled.push_front(id.into());
            }
        }
    }

    /// Begins the stream of notifications, and ends the one before: a notification goes to one
    /// stream of a session (2025-11-25, Transports: Multiple Connections). The caller cancels the
    /// token when the stream has ended otherwise.
    pub(super) fn begin_stream(&self) -> CancellationToken {
        let stream = self.over.child_token();
        if let Some(before) = self.state.lock().stream.replace(stream.clone()) {
            before.cancel();
        }
        stream
    }

    fn is_old(&self) -> bool {
        let state = self.state.lock();
        !state.is_used() && state.last_use.elapsed() >= IDLE
    }
}

impl State {
    /// Whether the client waits for a call, or has a stream.
    fn is_used(&self) -> bool {
        !self.calls.is_empty() || self.stream.as_ref().is_some_and(|stream| !stream.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    //! When a session ends, in paused time.

    use super::*;

    /// Begins a session of `app`.
    fn begin(sessions: &McpSessions, app: &AppName) -> Option<String> {
        sessions.begin(app, Modes::default(), Selection::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_was_not_used_for_a_day() {
        let sessions = McpSessions::default();
        let app = AppName::from("a");
        let (idle, used) = (begin(&sessions, &app).unwrap(), begin(&sessions, &app).unwrap());
        let call = sessions.get(&used, &app).unwrap().begin_call("1").unwrap();
        tokio::time::advance(IDLE).await;
        begin(&sessions, &app).unwrap();
        assert!(sessions.get(&idle, &app).is_none());
        assert!(sessions.get(&used, &app).is_some(), "it waits for a call");
        assert!(!call.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn session_beyond_the_limit_ends_the_oldest_that_is_not_in_use() {
        let sessions = McpSessions::default();
        let (app, other) = (AppName::from("a"), AppName::from("b"));
        let of_other = begin(&sessions, &other).unwrap();
        let (used, idle) = (begin(&sessions, &app).unwrap(), begin(&sessions, &app).unwrap());
        let call = sessions.get(&used, &app).unwrap().begin_call("1").unwrap();
        for _ in 0..MAX {
            tokio::time::advance(Duration::from_secs(1)).await;
            begin(&sessions, &app).unwrap();
        }
        assert!(sessions.get(&idle, &app).is_none());
        assert!(sessions.get(&used, &app).is_some() && !call.is_cancelled());
        assert!(sessions.get(&of_other, &other).is_some());
        for session in sessions.sessions.lock().by_app[&app].values() {
            session.begin_call("2").unwrap();
        }
        assert_eq!(begin(&sessions, &app), None, "all are in use");
    }

    #[tokio::test(start_paused = true)]
    async fn session_of_an_app_looks_at_none_of_another_for_a_while() {
        let sessions = McpSessions::default();
        let (app, other) = (AppName::from("a"), AppName::from("b"));
        begin(&sessions, &app).unwrap();
        let id = begin(&sessions, &other).unwrap();
        let session = sessions.get(&id, &other).unwrap();
        {
            // A look at it would wait for this for ever.
            let _state = session.state.lock();
            begin(&sessions, &app).unwrap();
        }
        tokio::time::advance(IDLE).await;
        begin(&sessions, &app).unwrap();
        assert!(sessions.get(&id, &other).is_none(), "those that are old end nevertheless");
    }

    #[test]
    fn a_cancellation_may_overtake_its_request() {
        let sessions = McpSessions::default();
        let app = AppName::from("a");
        let session = sessions.get(&begin(&sessions, &app).unwrap(), &app).unwrap();
        for id in 0..=EARLY {
            session.cancel(&id.to_string());
        }
        assert!(!session.begin_call("0").unwrap().is_cancelled(), "too many are not remembered");
        assert!(session.begin_call("1").unwrap().is_cancelled());
        session.end_call("1");
        assert!(!session.begin_call("1").unwrap().is_cancelled(), "it counts once");
    }

    #[test]
    fn question_beyond_the_limit_leaves_the_open_ones() {
        let sessions = McpSessions::default();
        let app = AppName::from("a");
        let session = sessions.get(&begin(&sessions, &app).unwrap(), &app).unwrap();
        let ask = || {
            let (sender, answer) = oneshot::channel();
            (session.ask("1", sender), answer)
        };
        let mut open: Vec<_> = (0..QUESTIONS).map(|_| ask()).collect();
        let (id, mut refused) = ask();
        assert!(id.is_none() && refused.try_recv().is_err(), "its server is told at once");
        let (id, mut first) = open.swap_remove(0);
        let result = RawValue::from_string("{}".to_owned()).unwrap();
        session.answer(&id.unwrap(), Some(&result));
        assert_eq!(first.try_recv().unwrap().get(), "{}");
    }

    #[test]
    fn a_session_belongs_to_its_app_and_an_id_to_one_call() {
        let sessions = McpSessions::default();
        let app = AppName::from("a");
        let id = begin(&sessions, &app).unwrap();
        assert!(sessions.get(&id, &AppName::from("b")).is_none());
        let session = sessions.get(&id, &app).unwrap();
        let call = session.begin_call("1").unwrap();
        assert!(session.begin_call("1").is_none());
        assert!(session.begin_call("\"1\"").is_some(), "a string is another id");
        session.cancel("1");
        assert!(call.is_cancelled());
        session.end_call("1");
        assert!(session.begin_call("1").is_some());
        let (one, two) = (session.begin_stream(), session.begin_stream());
        assert!(one.is_cancelled() && !two.is_cancelled());
        sessions.end(&id, &AppName::from("b"));
        assert!(!two.is_cancelled(), "it is another app's");
        sessions.end(&id, &app);
        assert!(two.is_cancelled());
    }
}
