//! Puts to a person what the MCP server of a call asks the user while it works on the call, where no
//! MCP client has made the call.
//!
//! Must not: know what an answer must be (model/question.rs does), or who may give it.

use std::{future, pin::pin};

use serde_json::value::RawValue;

use super::{
    approvals::Decision,
    calls::{ActiveCall, Calls, Left},
};
use crate::{
    backend::peer::{self, MAX_QUESTION},
    model::{
        answer::Answer,
        approval::{self, Outcome},
        ending::Made,
        question::{self, Question},
    },
};

/// How many questions of one call wait for their turn: a person is asked one at a time.
pub(super) const MOST_QUEUED: usize = 16;

impl Calls {
    /// Has the backend make an admitted call, and a person asked what its server asks meanwhile. If
    /// the call then fails, its error also says what became of the question.
    pub(super) async fn make(&self, call: &ActiveCall) -> Result<Made, Left> {
        let mut made = pin!(self.backends.call(&call.context));
        let mut questions = call.questions.lock().await;
        let mut told = None;
        let mut made = loop {
            let put = async {
                match questions.recv().await {
                    Some(question) => self.put(call, question).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                made = &mut made => break made,
                put = put => told = put?.or(told),
            }
        };
        if let (Answer::Error(why), Some(told)) = (&mut made.answer, told) {
            *why = format!("{why} {told}");
        }
        Ok(made)
    }

    /// Puts one question to a person. Returns what the model is told if the call fails.
    async fn put(
        &self,
        call: &ActiveCall,
        question: peer::Question,
    ) -> Result<Option<String>, Left> {
        let peer::Question { key, mark, params, mut answer } = question;
        let is_short = params.get().len() <= MAX_QUESTION;
        let asked = is_short.then(|| {
            let question = Question::new(params);
            self.approvals.ask(call.request(), Some((question, &mark)), call.patience())
        });
        let (result, told) = match asked {
            Some(Ok(asked)) => {
                call.observer.waits(true);
                let decision = tokio::select! {
                    decision = asked.decided() => Some(decision),
                    // The server does not wait any more.
                    () = answer.closed() => None,
                    // The call's record has the question, and the next process asks it again.
                    () = self.drain.cancelled() => match key.is_some() && call.recorder.is_kept() {
                        true => return Err(Left),
                        false => None,
                    },
                };
                call.observer.decided(decision.as_ref().map(Option::as_ref));
                reply(decision)
            }
            _ => (question::CANCEL.to_owned(), Some(approval::NOT_PUT.to_owned())),
        };
        answer.send(RawValue::from_string(result).expect("its parts are JSON")).ok();
        Ok(told)
    }
}

/// The result for the server after a decision, after none in time, or if the question was withdrawn;
/// and what the model is told of it.
fn reply(decision: Option<Option<Decision>>) -> (String, Option<String>) {
    match decision {
        Some(Some(Decision { outcome: Outcome::Answered, content, .. })) => {
            (question::accepted(content.as_deref()), None)
        }
        Some(Some(Decision { reason, .. })) => {
            (question::DECLINE.to_owned(), Some(approval::declined(reason.as_deref())))
        }
        Some(None) => (question::CANCEL.to_owned(), Some(approval::UNANSWERED.to_owned())),
        None => (question::CANCEL.to_owned(), None),
    }
}
