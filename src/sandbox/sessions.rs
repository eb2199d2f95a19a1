//! Sessions: the stored spec, the history, and the requests about them (agent-runs-protocol §6).
//!
//! Must not: read a spec, or play a run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use http::StatusCode;
use serde_json::json;

use super::{
    Charge, Message, Refusal, Reply, Role, Sandbox, Snapshot, Spec, Turn, grow, json, runs, spec,
};
use crate::clock::{self, rfc3339};
use crate::model::SessionId;
use crate::model::maps::HashMap;

/// The most messages in a history; beyond that, the oldest are forgotten.
const MAX_MESSAGES: usize = 10_000;
/// The stored sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<SessionId, Session>);

/// One conversation.
#[derive(Debug)]
struct Session {
    spec: Spec,
    created: SystemTime,
    last_used: SystemTime,
    ended: Option<SystemTime>,
    history: VecDeque<Message>,
    charge: Charge,
}

impl Sessions {
    /// Appends the messages of a run of `session`, if the session still exists.
    pub(super) fn append(&mut self, session: &SessionId, turn: &Turn, reply: String) {
        let Some(session) = self.0.get_mut(session) else { return };
        // System messages are context of their run, and no part of the conversation.
        let said = turn.messages.iter().filter(|message| message.role != Role::System);
        let reply = Message { role: Role::Assistant, content: reply };
        for message in said.cloned().chain([reply]) {
            session.append(message);
        }
    }

    /// Forgets the session with the oldest last use; ended ones go first.
    fn forget_one(&mut self) {
        let order =
            |(_, session): &(&SessionId, &Session)| (session.ended.is_none(), session.last_used);
        if let Some(id) = self.0.iter().min_by_key(order).map(|(id, _)| id.clone()) {
            self.0.remove(&id);
        }
    }
}

impl Session {
    fn append(&mut self, message: Message) {
        while self.history.len() >= MAX_MESSAGES || !grow(&mut self.charge, message.content.len()) {
            let Some(oldest) = self.history.pop_front() else {
                // This message alone exceeds the limit.
                return;
            };
            drop(self.charge.split(oldest.content.len()));
        }
        self.history.push_back(message);
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::not_found(format!("there is no session {id:?}"))
}

/// `POST agent-sessions`.
pub(super) fn create(sandbox: &Sandbox, body: &[u8]) -> Reply {
    let spec = spec::read_session(body)?;
    sandbox.check_agent(&spec)?;
    let charge = sandbox.charge(2 * body.len())?;
    let id = SessionId::from(sandbox.ids.next("ses"));
    let mut sessions = sandbox.sessions.lock();
    if sessions.0.len() >= sandbox.config.limits.sessions {
        sessions.forget_one();
    }
    let now = clock::now();
    let history = VecDeque::new();
    let session = Session { spec, created: now, last_used: now, ended: None, history, charge };
    sessions.0.insert(id.clone(), session);
    drop(sessions);
    Ok(json(StatusCode::CREATED, &json!({"sessionId": id.as_str()})))
}

/// `POST agent-sessions/{id}/messages`.
pub(super) fn message(sandbox: &Arc<Sandbox>, id: &str, body: &[u8]) -> Reply {
    let message = spec::read_message(body)?;
    let session_id = SessionId::from(id);
    let mut sessions = sandbox.sessions.lock();
    let session = sessions.0.get_mut(&session_id).ok_or_else(|| unknown(id))?;
    if session.ended.is_some() {
        let message = "the session has ended; create a new one";
        return Err(Refusal::new(StatusCode::CONFLICT, "session_ended", message));
    }
    session.last_used = clock::now();
    let size = body.len() + session.spec.raw.get().len();
    let spec_and_turn = session.spec.for_message(message)?;
    drop(sessions);
    runs::start(sandbox, spec_and_turn, Some(session_id), size)
}

/// `DELETE agent-sessions/{id}`: ends the session and its runs. Repeating it changes nothing.
pub(super) fn end(sandbox: &Sandbox, id: &str) -> Reply {
    let session_id = SessionId::from(id);
    let mut sessions = sandbox.sessions.lock();
    let session = sessions.0.get_mut(&session_id).ok_or_else(|| unknown(id))?;
    session.ended.get_or_insert_with(clock::now);
    drop(sessions);
    let running = sandbox.runs.lock().of_session(&session_id);
    running.iter().for_each(|run| run.cancel("session_ended"));
    Ok(json(StatusCode::OK, &json!({"sessionId": id, "status": "ended"})))
}

/// `GET agent-sessions/{id}`.
pub(super) fn snapshot(sandbox: &Sandbox, id: &str) -> Reply {
    let sessions = sandbox.sessions.lock();
    let session = sessions.0.get(&SessionId::from(id)).ok_or_else(|| unknown(id))?;
    let rest = json!({
        "id": id,
        "name": session.spec.name,
        "status": if session.ended.is_some() { "ended" } else { "active" },
        "createdAt": rfc3339(session.created),
        "lastUsedAt": rfc3339(session.last_used),
        "endedAt": session.ended.map(rfc3339),
        "messages": session.history,
        "metadata": session.spec.metadata,
    });
    Ok(json(StatusCode::OK, &Snapshot { agent_spec: &session.spec.raw, rest }))
}
