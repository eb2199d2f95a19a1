//! Hands an admitted call to its backend, and has a person asked what the call's server asks
//! meanwhile.
//!
//! Must not: check a call (`execute` has), or know what a question is.

use std::future;
use std::pin::pin;

use super::Calls;
use super::active::{ActiveCall, Deferred};
use crate::backend::CallOutcome;
use crate::model::Answer;

impl Calls {
    /// Has the backend make an admitted call. If the call then fails, its error also says what
    /// became of its server's question.
    pub(super) async fn send(&self, call: &ActiveCall) -> Result<CallOutcome, Deferred> {
        let context = call.context();
        let mut backend_call = pin!(self.backends.call(&context));
        let mut questions = call.questions.lock().await;
        let mut unanswered = None;
        let mut outcome = loop {
            let next_question = async {
                let Some(question) = questions.recv().await else { return future::pending().await };
                self.put(call, question).await
            };
            tokio::select! {
                biased;
                outcome = &mut backend_call => break outcome,
                result = next_question => unanswered = result?.or(unanswered),
            }
        };
        if let (Answer::Error(why), Some(unanswered)) = (&mut outcome.answer, unanswered) {
            *why = format!("{why} {unanswered}");
        }
        Ok(outcome)
    }
}
