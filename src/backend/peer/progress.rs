//! The signs of progress of one call, and the questions that its server asks meanwhile.
//!
//! Must not: make a call, or know who answers a question.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{A2aClient, CallError, ErrorReply, McpClient, PermissionCheck, Question};
use crate::backend::log::Redactor;
use crate::backend::seat::Seat;
use crate::model::redaction::Part;
use crate::model::{CallRequest, Permission};
use crate::tasks::in_place_if_large;

/// The longest progress notification that is passed on, in bytes: several wait for a slow client.
const MAX_PROGRESS: usize = 64 << 10;

/// The longest question of a server, in bytes: many may be open. A person is not shown more either.
pub const MAX_QUESTION: usize = 64 << 10;

/// How long a peer may give no news of a task that it has taken before the call fails. A restart of
/// the peer, or of a gateway before it, takes less.
pub const TASK_SILENCE: Duration = Duration::from_secs(60);

/// How often an open question extends the time-out of its call.
const ALIVE: Duration = Duration::from_secs(1);

/// The signs of progress of one call. The peer gives them, and each extends the caller's time-out.
/// Several signs before the caller looks count as one.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    touched: Arc<Notify>,
    /// How many texts of a peer without progress of MCP were passed on.
    told: Arc<AtomicUsize>,
    pub(in crate::backend) client: Option<Arc<McpClient>>,
    /// The A2A client whose message the call is.
    pub(in crate::backend) a2a_client: Option<Arc<A2aClient>>,
    person: Option<mpsc::Sender<Question>>,
    permission: Option<(Arc<dyn PermissionCheck>, Arc<CallRequest>)>,
    /// The permits of the call.
    pub(in crate::backend) seat: Option<Arc<Seat>>,
    /// What is removed from what the peer says.
    pub(in crate::backend) redactor: Redactor,
}

impl Progress {
    /// The progress of a call that `client` has made, if an MCP client has. Without one, `person`
    /// takes the questions of the call's server.
    pub fn new(
        client: Option<Arc<McpClient>>,
        person: Option<mpsc::Sender<Question>>,
        check: Arc<dyn PermissionCheck>,
        request: Arc<CallRequest>,
    ) -> Self {
        Self { client, person, permission: Some((check, request)), ..Self::default() }
    }

    /// `json` of the peer without what matches, if anything does.
    pub fn without_secrets(&self, json: &RawValue, part: Part) -> Option<Box<RawValue>> {
        let mut count = 0;
        let size = json.get().len();
        let changed =
            in_place_if_large(size, || self.redactor.redact.in_json(json, part, &mut count));
        self.redactor.redacted.inc_by(count);
        changed
    }

    /// Whether the call may still be made, by the configuration when this returns.
    pub async fn is_permitted(&self) -> bool {
        let Some((check, request)) = &self.permission else { return true };
        check.prepare(request).await;
        check.now(request) == Permission::Given
    }

    /// Notes that the peer is still working on the call.
    pub fn touch(&self) {
        self.touched.notify_one();
    }

    /// The same, where an MCP server said so with these parameters of `notifications/progress`.
    pub fn report(&self, params: &RawValue) {
        self.touch();
        if let Some(progress) = self.client.as_ref().and_then(|client| client.progress.as_ref())
            && params.get().len() <= MAX_PROGRESS
        {
            // A client that reads slowly misses some progress; the next one says more anyway.
            let changed = self.without_secrets(params, Part::Params);
            progress.try_send(changed.unwrap_or_else(|| params.to_owned())).ok();
        }
    }

    /// Notes that the peer works on the call, and has said `text` of it, as peers do that have no
    /// progress of MCP. An MCP client that asked for progress gets it. Returns the text without
    /// what is removed.
    pub fn tell(&self, text: String) -> String {
        self.touch();
        let mut count = 0;
        let text = self.redactor.text(text, &mut count);
        self.redactor.redacted.inc_by(count);
        if let Some(progress) = self.client.as_ref().and_then(|client| client.progress.as_ref()) {
            // The number has to grow with each notification (MCP, Progress).
            let number = self.told.fetch_add(1, Ordering::Relaxed) + 1;
            let params = json!({ "progress": number, "message": text });
            let params = to_raw_value(&params).expect("a number and a text are always JSON");
            progress.try_send(params).ok();
        }
        text
    }

    /// The refusal of an MCP server by an `error` that means something to an MCP client; `why` is
    /// for other callers.
    pub fn refused_with(&self, why: String, mut error: ErrorReply) -> CallError {
        if self.client.is_none() {
            return CallError::Refused(why);
        }
        // The answer has the same text, and counts it.
        error.redact(&self.redactor, &mut 0);
        CallError::RefusedWith { why, error }
    }

    /// Puts a question of an MCP server, the parameters of `elicitation/create`, to the client that
    /// has made the call, or to a person if no client has; returns the `ElicitResult`. The server
    /// has a `key` for it since 2026-07-28; `mark` tells it apart from the same question asked
    /// again.
    ///
    /// `None` if no client can answer it, the daemon stops, or the call may no longer be made: the
    /// answer may start it again. The call's time-out does not pass meanwhile; its deadline does.
    /// Of a server that names the call of each question, other calls have its permits.
    pub async fn ask(
        &self,
        key: Option<String>,
        mark: String,
        params: Box<RawValue>,
    ) -> Option<Box<RawValue>> {
        // A server with sessions does not say which of several calls asks, so that another call
        // which begins meanwhile may cost both their answers.
        let names_call = key.is_some();
        let (answer, mut answered) = oneshot::channel();
        let params = self.without_secrets(&params, Part::Params).unwrap_or(params);
        let question = Question { key, mark, params, answer };
        let client = self.client.as_ref();
        if !self.is_permitted().await {
            return None;
        }
        match client {
            Some(client) => client.ask(question)?,
            None => self.person.as_ref()?.try_send(question).ok()?,
        }
        // Dropped with the call, if it ends before the answer: then the count has no reader.
        let (unread, never) = <(AtomicUsize, CancellationToken)>::default();
        // What asks a person knows by itself when the daemon stops.
        let (open, draining) =
            client.map_or((&unread, &never), |client| (&client.open_questions, &client.draining));
        open.fetch_add(1, Ordering::Relaxed);
        let vacant_seat = self.seat.as_ref().filter(|_| names_call).map(Seat::vacate);
        let answer = self
            .alive_until(async {
                tokio::select! {
                    answer = &mut answered => answer.ok(),
                    () = draining.cancelled() => None,
                }
            })
            .await;
        open.fetch_sub(1, Ordering::Relaxed);
        if let Some(seat) = vacant_seat {
            self.alive_until(seat.refill()).await;
        }
        let answer = answer?;
        // The operator may have taken the permission away while the person was asked.
        if self.is_permitted().await { Some(answer) } else { None }
    }

    /// Waits for `work`, while the call's time-out does not pass.
    async fn alive_until<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = sleep(ALIVE) => self.touch(),
            }
        }
    }

    /// Ends when the call has been touched since this last ended.
    pub async fn touched(&self) {
        self.touched.notified().await;
    }
}
