//! Requests of A2A clients about tasks that an agent has: how a task is, its end, its stream. They
//! wait in the same queue as calls do, and an open circuit breaker refuses them.
//!
//! Must not: send a message (a call does), or know whose a task is.

use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::admission::{Sending, admit};
use super::ask::evidence_of_read;
use super::connecting::{Connected, Patience};
use super::failure::CallFailure;
use super::{Backends, CallDeadlines};
use crate::backend::log::Redactor;
use crate::backend::peer::ReadPermission;
use crate::backend::{CallError, RelayReply, RelayRequest};
use crate::model::{AppName, BackendName, Ending};

/// A request that brought no answer of the agent.
#[derive(Debug)]
pub struct NotRelayed {
    pub ending: Ending,
    /// For the client.
    pub why: String,
}

impl Backends {
    /// Sends an agent the request of a client of `app`, and waits for the beginning of its reply.
    /// An event stream holds no permit: it may last for hours, and only listens.
    ///
    /// `permission` is asked right before the request is sent.
    ///
    /// # Errors
    ///
    /// The agent was not asked, or has not answered.
    pub async fn relay(
        &self,
        app: &AppName,
        name: &BackendName,
        request: &RelayRequest,
        permission: ReadPermission,
    ) -> Result<RelayReply, NotRelayed> {
        let all = self.all();
        let Some(backend) = all.handles.get(name) else {
            return Err(not_relayed(&CallFailure::Removed, name, &Redactor::default()));
        };
        let idle = backend.rules.call_timeout;
        let deadlines = CallDeadlines::new(idle, Instant::now() + idle);
        let redactor = backend.redactor();
        let admission = admit(backend, &all.permits, app, Sending::New, deadlines)
            .await
            .map_err(|failure| not_relayed(&failure, name, &redactor))?;
        let outcome = self.send_relayed(name, request, permission, deadlines).await;
        if let Some(pass) = admission.pass {
            pass.end(evidence_of_read(&outcome));
        }
        match outcome.map_err(|failure| not_relayed(&failure, name, &redactor))? {
            RelayReply::One(reply) => Ok(RelayReply::One(reply.without_secrets(&redactor))),
            RelayReply::Events(events) => {
                let cleaned =
                    events.map(move |next| next.map(|reply| reply.without_secrets(&redactor)));
                let bounded = futures_util::stream::unfold(Some(cleaned), move |open| async move {
                    let mut open_events = open?;
                    match timeout(idle, open_events.next()).await {
                        Ok(next) => Some((next?, Some(open_events))),
                        Err(_elapsed) => {
                            let why = "the stream was silent for too long".to_owned();
                            Some((Err(CallError::Lost(why)), None))
                        }
                    }
                });
                Ok(RelayReply::Events(bounded.boxed()))
            }
        }
    }

    async fn send_relayed(
        &self,
        name: &BackendName,
        request: &RelayRequest,
        permission: ReadPermission,
        deadlines: CallDeadlines,
    ) -> Result<RelayReply, CallFailure> {
        let patience = Patience::OfCall(deadlines.deadline);
        let Connected { connection, has_waited } = self.connected(name, None, patience).await?;
        let deadlines = if has_waited { deadlines.with_clock_restarted() } else { deadlines };
        permission()?;
        timeout_at(deadlines.idle_deadline(), connection.peer.relay(request))
            .await
            .map_err(|_elapsed| CallFailure::TimedOut(deadlines.elapsed()))?
            .map_err(CallFailure::Call)
    }
}

fn not_relayed(failure: &CallFailure, name: &BackendName, redactor: &Redactor) -> NotRelayed {
    let why = redactor.text(failure.for_reader(name), &mut 0);
    NotRelayed { ending: failure.ending(), why }
}
