//! What the scripted MANTYX does with the results that are posted: which it takes, and a record of
//! all.
//!
//! Must not: send anything (serve.rs does).

use serde_json::Value;
use tokio::time::Instant;

use super::{Mantyx, Recorded, Reply, State};
use crate::{http::read_json, wait};

/// One POST of a tool result.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) body: String,
    pub(crate) at: Instant,
    /// Whether MANTYX has taken it.
    pub(crate) accepted: bool,
}

/// What the next POST for `tool` is answered with.
pub(super) fn reply(state: &mut State, tool: &str) -> Reply {
    // MANTYX takes the first result of a tool use, and refuses every other.
    if state.deliveries.get(tool).is_some_and(|all| all.iter().any(|d| d.accepted)) {
        return Reply::Status(409);
    }
    let next = state.replies.get_mut(tool).and_then(|replies| replies.pop_front());
    next.unwrap_or(Reply::Status(200))
}

pub(super) fn note(state: &mut State, tool: &str, request: &Recorded, reply: Reply) {
    let accepted = matches!(reply, Reply::Status(200..=299) | Reply::TakenAndReset);
    let delivery = Delivery { body: request.text(), at: request.at, accepted };
    state.deliveries.entry(tool.to_owned()).or_default().push(delivery);
}

impl Mantyx {
    /// All POSTs for one tool use, in their order.
    pub(crate) fn deliveries(&self, id: &str) -> Vec<Delivery> {
        self.shared.state().deliveries.get(id).cloned().unwrap_or_default()
    }

    /// Whether the result of a tool use was taken.
    pub(crate) fn is_answered(&self, id: &str) -> bool {
        let state = self.shared.state();
        state.deliveries.get(id).is_some_and(|all| all.iter().any(|delivery| delivery.accepted))
    }

    /// Waits until the result of a tool use is taken, and gives it. Asserts that it was taken once,
    /// and that whatever else was posted for it was the same; unlike [`Mantyx::answer`], for a
    /// bridge that is killed may not know that its POST got through.
    pub(crate) async fn taken(&self, id: &str) -> Value {
        wait::soon(&format!("the result of {id} should be taken"), async || {
            self.is_answered(id).then_some(())
        })
        .await;
        let all = self.deliveries(id);
        assert_eq!(all.iter().filter(|one| one.accepted).count(), 1, "taken once: {all:?}");
        let body = all.first().map(|one| one.body.clone()).unwrap_or_default();
        assert!(all.iter().all(|one| one.body == body), "one answer, the same bytes: {all:?}");
        read_json(body.as_bytes()).unwrap_or(Value::Null)
    }

    /// When the bridge first asked for anything of `run` at or after `since`.
    pub(crate) fn first_request(&self, run: &str, since: Instant) -> Option<Instant> {
        let state = self.shared.state();
        let of_run = |request: &&Recorded| request.at >= since && request.target.contains(run);
        state.recorded.iter().find(of_run).map(|request| request.at)
    }

    /// Whether the last event of a run was sent.
    pub(crate) fn has_ended(&self, run: &str) -> bool {
        self.shared.state().runs.get(run).is_some_and(|run| run.sent >= run.script.last_seq())
    }

    /// Gives the record of all requests back; deliveries and runs stay.
    pub(crate) fn forget_requests(&self) {
        self.shared.change(|state| state.recorded.clear());
    }
}
