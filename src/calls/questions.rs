//! Puts to a person what the MCP server of a call asks the user while it works on the call, where
//! no MCP client has made the call.
//!
//! Must not: know what an answer must be (model/question.rs does), or who may give it.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Calls;
use super::active::{ActiveCall, Deferred};
use super::approvals::{Decision, TooMany};
use super::observer::Asker;
use crate::backend::{MAX_QUESTION, peer};
use crate::model::approval::Outcome;
use crate::model::question::Question;
use crate::model::{approval, question};

impl Calls {
    /// Puts one question to a person. Returns what the model is told if the call fails.
    ///
    /// `Err(Deferred)` leaves the question to the next process, which asks it again under the same
    /// id. Only a question whose server can be answered later is left so, and only if the call's
    /// record is kept. Any other one is answered as withdrawn: its server would wait for ever.
    pub(super) async fn put(
        &self,
        call: &ActiveCall,
        question: peer::Question,
    ) -> Result<Option<String>, Deferred> {
        // Before a person has the question, the call's record has it, if the server can be answered
        // after a crash. While the replicas' database is away, the question is asked nevertheless:
        // the person's answer still reaches the server, and a crash in between costs the call.
        self.journal.keep(Vec::new()).await;
        let peer::Question { key, mark, params, mut answer } = question;
        let decision = match params.get().len() {
            0..=MAX_QUESTION => {
                self.decided(call, Some((Question::from(params), &mark)), answer.closed()).await
            }
            _ => Err(TooMany),
        };
        let (outcome, content, for_model) = match decision {
            // The call's record has the question, and the next process asks it again.
            Ok(Decision { outcome: Outcome::Withdrawn, .. })
                if key.is_some() && call.recorder.is_kept() =>
            {
                return Err(Deferred);
            }
            Ok(Decision { outcome, content, reason, .. }) => {
                (outcome, content, approval::unanswered(outcome, reason.as_deref()))
            }
            Err(TooMany) => (Outcome::Withdrawn, None, Some(approval::NOT_PUT.to_owned())),
        };
        let result = question::result(outcome, content.as_deref());
        answer.send(RawValue::from_string(result).expect("its parts are JSON")).ok();
        Ok(for_model)
    }

    /// Asks a person to decide about a call, or about a question of its server until `over` ends.
    pub(super) async fn decided(
        &self,
        call: &ActiveCall,
        question: Option<(Question, &str)>,
        over: impl Future<Output = ()>,
    ) -> Result<Decision, TooMany> {
        let remaining = call.deadline.saturating_duration_since(Instant::now());
        let until = Instant::now() + approval::patience(remaining);
        let (asker, why_again) = match question {
            Some(_) => (Asker::Server, None),
            None => (Asker::Bridge, call.permission_check.why_again()),
        };
        let waiting = self.approvals.ask_again(&call.request, question, why_again, until)?;
        call.observer.waits(asker);
        let decision = tokio::select! {
            decision = waiting.decided() => decision,
            () = over => Decision::none(Outcome::Withdrawn),
            () = self.drain.cancelled() => Decision::none(Outcome::Withdrawn),
        };
        call.observer.decided(decision.clone());
        Ok(decision)
    }
}
