//! Answers one call of a driven run: makes it, and posts its answer.
//!
//! Must not: decide whether a call is made (`model::run` and `model::recovery` do).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use super::credential::RunPostCredential;
use super::{DrivenRun, RunContext};
use crate::calls::Deferred;
use crate::calls::record::{AnswerOrigin, CallRecorder};
use crate::clock;
use crate::model::answer::Answer;
use crate::model::call::CallRequest;
use crate::model::ending::Ending;
use crate::model::event::Call;
use crate::model::ids::ToolUseId;
use crate::model::offer::Route;
use crate::model::recovery::{LOCAL_TOOL_TIMEOUT, Recovery, decide};
use crate::model::sentences;
use crate::traces::Kind;
use crate::upstream::{Posted, ResultPost};

/// How a call is to be answered.
#[derive(Debug)]
pub enum Task {
    /// Make the call, or ask the peer for the work that the call has started before.
    Make(Route),
    /// Post this error; nothing is called.
    Refuse(String, Ending),
    /// Post this body, which the journal had at the start.
    Post(Bytes),
    /// Post the body that the journal has.
    PostAgain,
}

/// Calls of an earlier process, and how each is to be answered.
pub type EarlierCalls = Vec<(Arc<CallRecorder>, Task)>;

/// The body of a tool-result POST (agent-runs-protocol §8).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    tool_use_id: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Answers `call`, and records every stage in `recorder`. In steps:
///
/// 1. The body comes from the call, from the journal, or is an error. When it is there, it is
///    durable, so that a crash behind this step posts the same bytes.
/// 2. The body is posted, unless the run has ended meanwhile, as MANTYX then no longer waits. At
///    the drain, all drivers end; that says nothing about their runs.
/// 3. If MANTYX does not know the run, the answer is kept until MANTYX shows the run again. Without
///    that, a fault of MANTYX that hides the run for a moment would cost the answer.
/// 4. The record is closed. A record that is not closed has the next process post the body once
///    more.
pub async fn answer(
    context: Arc<RunContext>,
    run: Arc<DrivenRun>,
    call: Call,
    task: Task,
    recorder: Arc<CallRecorder>,
) {
    let to = run.asked_by(&call);
    let tool_use = call.tool_use.clone();
    let origin = match task {
        Task::Post(_) | Task::PostAgain => AnswerOrigin::Kept,
        Task::Make(_) | Task::Refuse(..) => AnswerOrigin::New,
    };
    let Some(body) = result_body(&context, &run, call, task, &recorder).await else { return };
    if body.is_empty() {
        // Replicas keep an empty body of an answer for which MANTYX waits no longer.
        return;
    }
    if run.takes_answers() || context.draining().is_cancelled() {
        let path = run.key.results_path(&to);
        let deadline = Instant::now() + recorder.post_within(LOCAL_TOOL_TIMEOUT, origin);
        let mut span = run.trace.begin(Kind::Client, "POST tool-results");
        span.set("mantyx.run_id", to.as_str());
        span.set("mantyx.tool_use_id", tool_use.as_str());
        let trace = span.told().cloned();
        let post = ResultPost { path: &path, body, trace, deadline };
        let delivered = delivered(&context, &run, &tool_use, &recorder, post).await;
        let Some((posted, body)) = delivered else { return };
        if posted == Posted::Accepted
            && let Some(call) = recorder.history_id.get()
        {
            call.posted();
        }
        span.outcome(posted.as_str(), matches!(posted, Posted::Failed | Posted::Refused(_)));
        // At shutdown the answer stays in the journal too: the next process posts it.
        if posted == Posted::Unwanted(StatusCode::NOT_FOUND)
            && (!run.has_ended() || context.draining().is_cancelled())
            && keep_unwanted(&context, &run, &recorder, body.len())
        {
            info!(
                run = %run.key.run, toolUseId = %tool_use,
                "MANTYX does not know the run; keeping the answer until it does"
            );
            return;
        }
    }
    recorder.close();
}

/// The body to post for `call`. `None`: the call is left to the next process, or another driver
/// answers it.
async fn result_body(
    context: &RunContext,
    run: &Arc<DrivenRun>,
    call: Call,
    task: Task,
    recorder: &Arc<CallRecorder>,
) -> Option<Bytes> {
    let tool_use = call.tool_use.clone();
    let answer = match task {
        Task::Post(body) => return Some(body),
        Task::PostAgain => match context.journal().answer(&recorder.key).await {
            Some(body) => return Some(body),
            None => Answer::Error(sentences::answer_lost(&call.name)),
        },
        Task::Refuse(error, ending) => {
            if let Some(route) = run.table.route_of_call(&call).cloned() {
                context.calls.not_made(&run.request(call, route), &run.trace, ending);
            }
            Answer::Error(error)
        }
        Task::Make(route) => execute(context, run, run.request(call, route), recorder).await?,
    };
    written(&tool_use, answer, recorder).await
}

/// How to answer a call that an earlier process may have made, although the journal has lost the
/// record. It counts as dispatched: a repeatable call is made once more, and any other one gets an
/// error that says that its outcome is unknown. If it were made, a payment could be made twice.
pub fn doubtful(entry: &CallRecorder, route: Route) -> Task {
    entry.doubt();
    match decide(entry.recovery_facts(route.repeatable, LOCAL_TOOL_TIMEOUT)) {
        Recovery::Make | Recovery::Resume => Task::Make(route),
        _ => {
            let name = entry.call().name;
            let why = sentences::record_lost(name);
            Task::Refuse(why, Ending::Unknown)
        }
    }
}

/// Posts the answer. If MANTYX rejects it, as it is too large or MANTYX cannot read it, a short
/// error is posted in its place: without any answer, the model would wait until the call times out.
/// Returns the outcome with the body that was posted last; `None` if another driver has answered
/// the call meanwhile.
async fn delivered(
    context: &RunContext,
    run: &DrivenRun,
    tool_use: &ToolUseId,
    recorder: &CallRecorder,
    post: ResultPost<'_>,
) -> Option<(Posted, Bytes)> {
    let upstream = &context.upstream;
    let credential = RunPostCredential { context, run };
    match upstream.post_result(post.clone(), &credential).await {
        Posted::Refused(status) if !is_replaced(&post.body) => {
            let error = refusal(status, post.body.len());
            let body = written(tool_use, Answer::Error(error), recorder).await?;
            let shorter = ResultPost { body: body.clone(), ..post };
            Some((upstream.post_result(shorter, &credential).await, body))
        }
        posted => Some((posted, post.body)),
    }
}

/// Keeps an answer of `size` bytes that MANTYX refused as it does not know the call
/// ([`DrivenRun::keep_unwanted`]). `false`: MANTYX does not want it, or the app has no room for it.
///
/// Each app has its own share for such answers. MANTYX may never show their runs again, and they
/// would fill the journal, in which then no call of any app could be recorded.
pub fn keep_unwanted(
    context: &RunContext,
    run: &DrivenRun,
    recorder: &Arc<CallRecorder>,
    size: usize,
) -> bool {
    let share = context.unwanted.share(&run.app);
    if !share.hold(size) {
        warn!(
            app = %run.app, run = %run.key.run, toolUseId = %recorder.key.tool_use, size,
            "MANTYX does not know the run, and the app's share of the journal for such answers is used \
             up; this one is dropped"
        );
        return false;
    }
    run.keep_unwanted(recorder, share)
}

/// The beginning of the error that replaces an answer which MANTYX refused.
const REFUSED: &str = "MANTYX refused the answer to this call";

/// The error in place of an answer that MANTYX refused. It says that the effect stands: a model
/// that takes the call for failed would repeat it.
fn refusal(status: StatusCode, size: usize) -> String {
    let cure = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "It is too large: ask for less, or for a part of it.",
        _ => "The tool's answer has something in it that cannot be passed on.",
    };
    format!(
        "{REFUSED} (HTTP {}); it was {size} bytes long. {cure} If the tool was called, its effect \
         stands: check before you repeat the call.",
        status.as_u16()
    )
}

/// Whether `body` is the error of [`refusal`]. It is not replaced once more: a MANTYX that refuses
/// every body would get errors without end. The text tells, as after a restart nothing else does:
/// the journal has the error as the call's answer.
fn is_replaced(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Posted<'a> {
        #[serde(borrow, default)]
        error: Cow<'a, str>,
    }
    serde_json::from_slice::<Posted<'_>>(body).is_ok_and(|body| body.error.starts_with(REFUSED))
}

/// Makes the call, or asks for the work that it has started before. `None`: the call is left to the
/// next process, or to another replica, which then answers it: this one posts nothing.
///
/// Dropping the call's future cancels the call at its peer. So each arm that does not wait for the
/// call is one in which its effect is no longer wanted, or which another part continues.
async fn execute(
    context: &RunContext,
    run: &Arc<DrivenRun>,
    request: CallRequest,
    recorder: &Arc<CallRecorder>,
) -> Option<Answer> {
    let started = Instant::now();
    let request = Arc::new(request);
    let scope = run.scope(&request);
    let stop = scope.stop.clone();
    let patience = context.calls.patience(&request.route, Some(&scope));
    let within = context.calls.settings().within(patience.as_ref());
    let mut call =
        context.calls.activate(Arc::clone(&request), &run.trace, Arc::clone(recorder), within);
    call.scope = Some(scope);
    context.tell(run);
    let run_id = &run.key.run;
    let tool_use = &request.tool_use;
    let tool = &request.name;
    let outcome = tokio::select! {
        // The end first, so that a call does not begin with the permit of one that ends with it.
        biased;
        () = run.cancel.cancelled() => Ok(cancelled()),
        () = stop.cancelled() => Ok(cancelled()),
        outcome = context.calls.call(Arc::new(call), patience) => match outcome {
            Ok(made) => Ok(made.answer),
            Err(Deferred) => Err("the next process, which asks for approval again"),
        },
        () = recorder.lost_with(&run.lost) => Err("the replica that drives the run"),
        () = recorder.left_to_next_process() => Err("the next process, which asks the peer"),
    };
    let answer = match outcome {
        Ok(answer) => answer,
        Err(heir) => {
            info!(run = %run_id, toolUseId = %tool_use, tool, "left to {heir}");
            return None;
        }
    };
    let ok = matches!(answer, Answer::Result { .. });
    info!(
        run = %run_id, toolUseId = %tool_use, tool, backend = %request.route.backend,
        app = %run.app, ok,
        ms = clock::millis_of(started.elapsed()),
        "answered"
    );
    context.tell(run);
    Some(answer)
}

fn cancelled() -> Answer {
    Answer::Error("The call was cancelled because its run was.".to_owned())
}

/// The body to post. When this returns, the journal has it on disk, if the disk works and the app
/// has room for it. `None`: another driver answers the call.
async fn written(tool_use: &ToolUseId, answer: Answer, recorder: &CallRecorder) -> Option<Bytes> {
    let answer = answer.within_limits();
    let result = ToolResult { tool_use_id: tool_use.as_str(), answer: &answer };
    let body = Bytes::from(serde_json::to_vec(&result).expect("strings can be written"));
    recorder.answered(body).await
}

#[cfg(test)]
mod tests {
    //! The error in place of an answer that MANTYX does not take.

    use super::*;

    #[test]
    fn a_refusal_is_known_again() {
        let body = |answer: &Answer| {
            serde_json::to_vec(&ToolResult { tool_use_id: "tu_1", answer }).unwrap()
        };
        for status in [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::BAD_REQUEST] {
            let error = refusal(status, 2_345_678);
            assert!(error.contains("2345678 bytes") && error.contains(status.as_str()), "{error}");
            assert!(is_replaced(&body(&Answer::Error(error))));
        }
        assert!(!is_replaced(&body(&Answer::Error("it failed: \u{1f980}\n\"".to_owned()))));
        assert!(!is_replaced(
            br#"{"toolUseId":"tu_1","result":"MANTYX refused the answer to this call"}"#
        ));
        assert!(!is_replaced(b"{"));
    }
}
