//! Sessions: the stored spec, the history, and the requests about them (agent-runs-protocol §6).
//!
//! Must not: read a spec, or play a run.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Sandbox,
    budget::{Charge, grow},
    page::Page,
    reply::{Refusal, Reply, Snapshot, json, rfc3339},
    run::Order,
    runs,
    spec::{self, Message, Role, Spec, Turn},
};
use crate::model::ids::SessionId;

/// The most messages in a history; beyond that, the oldest are forgotten.
const MAX_MESSAGES: usize = 10_000;
/// A summary takes in further messages until it has this many characters.
const INFORMATIVE: usize = 12;
/// The longest summary, in characters.
const MAX_SUMMARY: usize = 120;

/// The stored sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: HashMap<SessionId, Session>,
    /// Counts the uses of all sessions.
    uses: u64,
}

/// One conversation.
#[derive(Debug)]
struct Session {
    spec: Spec,
    created: SystemTime,
    last_used: SystemTime,
    /// Its number in the order of last use.
    use_number: u64,
    ended: Option<SystemTime>,
    history: VecDeque<Message>,
    /// How many messages at the start of the history are forgotten.
    forgotten: u64,
    charge: Charge,
}

impl Sessions {
    /// Appends the messages of a run of `session`, if the session still exists.
    pub(super) fn append(&mut self, session: &SessionId, turn: &Turn, reply: String) {
        let Some(session) = self.by_id.get_mut(session) else {
            return;
        };
        // System messages are context of their run, and no part of the conversation.
        let said = turn.messages.iter().filter(|message| message.role != Role::System);
        for message in said.cloned().chain([Message::new(Role::Assistant, reply)]) {
            session.append(message);
        }
    }

    fn get(&self, id: &str) -> Result<&Session, Refusal> {
        self.by_id.get(&SessionId::from(id)).ok_or_else(|| unknown(id))
    }

    /// Forgets the session with the oldest last use; ended ones go first.
    fn forget_one(&mut self) {
        let order =
            |(_, session): &(&SessionId, &Session)| (session.ended.is_none(), session.use_number);
        if let Some(id) = self.by_id.iter().min_by_key(order).map(|(id, _)| id.clone()) {
            self.by_id.remove(&id);
        }
    }
}

impl Session {
    fn new(spec: Spec, use_number: u64, charge: Charge) -> Self {
        let now = SystemTime::now();
        Self {
            spec,
            created: now,
            last_used: now,
            use_number,
            ended: None,
            history: VecDeque::new(),
            forgotten: 0,
            charge,
        }
    }

    fn append(&mut self, message: Message) {
        while self.history.len() >= MAX_MESSAGES || !grow(&mut self.charge, message.content.len()) {
            let Some(oldest) = self.history.pop_front() else {
                // This message alone exceeds the limit.
                self.forgotten += 1;
                return;
            };
            drop(self.charge.split(oldest.content.len()));
            self.forgotten += 1;
        }
        self.history.push_back(message);
    }

    fn status(&self) -> &'static str {
        if self.ended.is_some() { "ended" } else { "active" }
    }

    /// A label from the first prompt; if that is very short, also from the messages after it.
    fn summary(&self) -> String {
        let mut summary = String::new();
        for message in &self.history {
            if !summary.is_empty() {
                summary.push(' ');
            }
            summary.extend(message.content.trim().chars().take(MAX_SUMMARY));
            if summary.chars().count() >= INFORMATIVE {
                break;
            }
        }
        summary.chars().take(MAX_SUMMARY).collect()
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
    if sessions.by_id.len() >= sandbox.config.limits.sessions {
        sessions.forget_one();
    }
    sessions.uses += 1;
    let session = Session::new(spec, sessions.uses, charge);
    sessions.by_id.insert(id.clone(), session);
    drop(sessions);
    Ok(json(StatusCode::CREATED, &json!({"sessionId": id.as_str()})))
}

/// `POST agent-sessions/{id}/messages`.
pub(super) fn message(sandbox: &Arc<Sandbox>, id: &str, body: &[u8]) -> Reply {
    let message = spec::read_message(body)?;
    let order = {
        let mut sessions = sandbox.sessions.lock();
        sessions.uses += 1;
        let use_number = sessions.uses;
        let session_id = SessionId::from(id);
        let session = sessions.by_id.get_mut(&session_id).ok_or_else(|| unknown(id))?;
        if session.ended.is_some() {
            let message = "the session has ended; create a new one";
            return Err(Refusal::new(StatusCode::CONFLICT, "session_ended", message));
        }
        session.last_used = SystemTime::now();
        session.use_number = use_number;
        let size = body.len() + session.spec.raw.get().len();
        let (spec, turn) = session.spec.for_message(message)?;
        Order { spec, turn, session: Some(session_id), size }
    };
    let run = runs::start(sandbox, order)?;
    runs::accepted(sandbox, &run)
}

/// `DELETE agent-sessions/{id}`: ends the session and its runs. Repeating it changes nothing.
pub(super) fn end(sandbox: &Sandbox, id: &str) -> Reply {
    let session_id = SessionId::from(id);
    {
        let mut sessions = sandbox.sessions.lock();
        let session = sessions.by_id.get_mut(&session_id).ok_or_else(|| unknown(id))?;
        session.ended.get_or_insert_with(SystemTime::now);
    }
    let running = sandbox.runs.lock().of_session(&session_id);
    running.iter().for_each(|run| run.cancel("session_ended"));
    Ok(json(StatusCode::OK, &json!({"sessionId": id, "status": "ended"})))
}

/// `GET agent-sessions/{id}`.
pub(super) fn snapshot(sandbox: &Sandbox, id: &str) -> Reply {
    let sessions = sandbox.sessions.lock();
    let session = sessions.get(id)?;
    let rest = json!({
        "id": id,
        "name": session.spec.name,
        "status": session.status(),
        "createdAt": rfc3339(session.created),
        "lastUsedAt": rfc3339(session.last_used),
        "endedAt": session.ended.map(rfc3339),
        "messages": session.history,
        "metadata": session.spec.metadata,
    });
    Ok(json(StatusCode::OK, &Snapshot { agent_spec: &session.spec.raw, rest }))
}

/// `GET agent-sessions`: most recently used first.
pub(super) fn list(sandbox: &Sandbox, query: &str) -> Reply {
    let page = Page::read(query)?;
    let sessions = sandbox.sessions.lock();
    let wanted = |(_, session): &(&SessionId, &Session)| {
        page.matches(&session.spec.metadata)
            && page.status.as_ref().is_none_or(|status| session.status() == status)
    };
    let all: Vec<(&SessionId, &Session)> = sessions.by_id.iter().filter(wanted).collect();
    let total = page.include_total.unwrap_or(true).then_some(all.len());
    let (found, next_cursor) = page.cut(all, |(_, session)| session.use_number);
    let entry = |(id, session): &(&SessionId, &Session)| {
        json!({
            "sessionId": id.as_str(),
            "creationDate": rfc3339(session.created),
            "lastInteractionDate": rfc3339(session.last_used),
            "summary": session.summary(),
            "metadata": session.spec.metadata,
            "status": session.status(),
        })
    };
    let body = json!({
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
        "nextCursor": next_cursor,
        "sessions": found.iter().map(entry).collect::<Vec<Value>>(),
    });
    Ok(json(StatusCode::OK, &body))
}

/// The requested part of a history (§6.2).
#[derive(Debug, Default)]
struct Window {
    full: bool,
    last_messages: Option<u64>,
    before_seq: Option<u64>,
}

impl Window {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut window = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let number = |max: u64| {
                let number = value.parse().ok().filter(|number| (1..=max).contains(number));
                number.ok_or_else(|| {
                    Refusal::invalid(format!("{key}: must be an integer from 1 to {max}"))
                })
            };
            match key.as_ref() {
                "full" => window.full = matches!(value.as_ref(), "1" | "true"),
                "lastMessages" => window.last_messages = Some(number(500)?),
                "beforeSeq" => window.before_seq = Some(number(u64::MAX)?),
                _ => (),
            }
        }
        Ok(window)
    }

    /// The positions of the wanted messages in a history of `total`, whose first `forgotten` are
    /// gone. Counted from 0: the first one, and the one behind the last.
    fn bounds(&self, forgotten: u64, total: u64) -> (u64, u64) {
        const PAGE: u64 = 100;
        if self.full || (self.last_messages.is_none() && self.before_seq.is_none()) {
            return (forgotten, total);
        }
        let end = self.before_seq.map_or(total, |seq| (seq - 1).min(total)).max(forgotten);
        let start = end.saturating_sub(self.last_messages.unwrap_or(PAGE)).max(forgotten);
        (start, end)
    }
}

/// `GET agent-sessions/{id}/events`.
pub(super) fn events(sandbox: &Sandbox, id: &str, query: &str) -> Reply {
    let window = Window::read(query)?;
    let sessions = sandbox.sessions.lock();
    let session = sessions.get(id)?;
    let total = session.forgotten + session.history.len() as u64;
    let (start, end) = window.bounds(session.forgotten, total);
    let numbered = (session.forgotten..).zip(&session.history);
    let event = |(index, message): (u64, &Message)| {
        let kind = match message.role {
            Role::User => "user_message",
            Role::Assistant => "assistant_message",
            Role::System => "message",
        };
        let mut event = json!({"seq": index + 1, "type": kind, "text": message.content});
        if !message.attachments.is_empty() {
            event["attachments"] = json!(message.attachments);
        }
        event
    };
    let wanted = numbered.filter(|(index, _)| (start..end).contains(index));
    let events: Vec<Value> = wanted.map(event).collect();
    let truncated = start > session.forgotten;
    let body = json!({
        "sessionId": id,
        "total": total,
        "events": events,
        "nextBeforeSeq": truncated.then_some(start + 1),
        "truncated": truncated,
    });
    Ok(json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests;
