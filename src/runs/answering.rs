//! Answers one call of a driven run: has it made, and posts what comes of it.
//!
//! Must not: decide whether a call is to be made; `model::run` has.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use tracing::info;

use super::{DrivenRun, Runs};
use crate::model::{
    answer::Answer,
    event::Call,
    ids::{RunId, ToolUseId},
    offer::Route,
};

/// MANTYX waits so long for a result (`localToolTimeoutMs`, wire-protocol §5); later, nobody does.
const POST_WITHIN: Duration = Duration::from_secs(300);

/// The body of a tool-result POST (agent-runs-protocol §8).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    tool_use_id: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Makes `call` and posts its answer.
pub(super) async fn make(runs: Arc<Runs>, run: Arc<DrivenRun>, call: Call, route: Route) {
    let begun = Instant::now();
    let asked_by = run.begin(&call);
    let (to, tool_use, tool) = (asked_by.run.clone(), call.tool_use.clone(), call.name.clone());
    let answer = tokio::select! {
        answer = runs.call(&run.app, &route, call, Some(Arc::clone(&asked_by))) => answer,
        () = run.cancel.cancelled() => {
            Answer::Error("The call was cancelled because its run was.".to_owned())
        }
    };
    let ok = matches!(answer, Answer::Result { .. });
    info!(
        run = %run.key.run, %tool_use, tool, backend = %route.backend, ok,
        ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    if !run.has_ended() || runs.draining().is_cancelled() {
        post(&runs, &run, (&to, &tool_use), answer, begun + POST_WITHIN).await;
    }
}

/// Posts `error` as the answer of `call`, which is not made.
pub(super) async fn refuse(runs: Arc<Runs>, run: Arc<DrivenRun>, call: Call, error: String) {
    let deadline = Instant::now() + POST_WITHIN;
    let to = (&run.asked_by(&call), &call.tool_use);
    post(&runs, &run, to, Answer::Error(error), deadline).await;
}

async fn post(
    runs: &Runs,
    run: &DrivenRun,
    (asked_by, tool_use): (&RunId, &ToolUseId),
    answer: Answer,
    deadline: Instant,
) {
    let answer = answer.within_limits();
    let result = ToolResult { tool_use_id: tool_use.as_str(), answer: &answer };
    let body = serde_json::to_vec(&result).expect("strings can be written");
    let path = run.key.results_path(asked_by);
    runs.upstream.post_result(&path, Bytes::from(body), &run.authority, deadline).await;
}
