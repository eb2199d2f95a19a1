//! All runs, and the requests about them (agent-runs-protocol §5, §9, §9a).
//!
//! Must not: read a spec, or play one.

use std::{collections::HashMap, sync::Arc};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Sandbox,
    page::Page,
    player, read,
    reply::{Refusal, Reply, Snapshot, json, rfc3339},
    run::{Order, Run, View},
    spec,
    terminal::RunEnd,
};
use crate::model::ids::{RunId, SessionId};

/// The longest text of a preview, in characters.
const PREVIEW: usize = 200;

/// The stored runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_id: HashMap<RunId, Arc<Run>>,
    created: u64,
}

impl Runs {
    pub(super) fn of_session(&self, session: &SessionId) -> Vec<Arc<Run>> {
        let mine = |run: &&Arc<Run>| run.session.as_ref() == Some(session);
        self.by_id.values().filter(mine).cloned().collect()
    }

    /// Forgets the oldest finished run; false if none has finished.
    pub(super) fn forget_oldest_finished(&mut self) -> bool {
        let finished = self.by_id.values().filter(|run| run.is_over());
        let Some(id) = finished.min_by_key(|run| run.number).map(|run| run.id.clone()) else {
            return false;
        };
        self.by_id.remove(&id).is_some()
    }
}

/// `POST agent-runs`.
pub(super) fn create(sandbox: &Arc<Sandbox>, body: &[u8]) -> Reply {
    let (spec, turn) = spec::read_run(body)?;
    sandbox.check_agent(&spec)?;
    let order = Order { spec, turn, session: None, size: body.len() };
    let run = start(sandbox, order)?;
    accepted(sandbox, &run)
}

/// Starts a run.
pub(super) fn start(sandbox: &Arc<Sandbox>, order: Order) -> Result<Arc<Run>, Refusal> {
    let limits = &sandbox.config.limits;
    // Counts twice: the spec is stored as it was sent, and its tools beside it.
    let charge = sandbox.charge(2 * order.size)?;
    let mut runs = sandbox.runs.lock();
    if runs.by_id.len() >= limits.runs && !runs.forget_oldest_finished() {
        let count = limits.runs;
        return Err(Refusal::full(format!("{count} runs are unfinished, more are not kept")));
    }
    runs.created += 1;
    let (id, max_log_bytes) = (sandbox.ids.next("run").into(), limits.log_bytes_per_run);
    let run = Arc::new(Run::new(id, runs.created, order, max_log_bytes, charge));
    runs.by_id.insert(run.id.clone(), Arc::clone(&run));
    drop(runs);
    let playing = Arc::clone(&run);
    let sandbox_too = Arc::clone(sandbox);
    sandbox.tasks.spawn(async move { player::play(&sandbox_too, &playing).await });
    Ok(run)
}

/// The answer to a request that started `run`.
pub(super) fn accepted(sandbox: &Sandbox, run: &Run) -> Reply {
    let workspace = &sandbox.config.workspace;
    let run_id = run.id.as_str();
    let stream_url = format!("/api/v1/workspaces/{workspace}/agent-runs/{run_id}/stream");
    Ok(json(StatusCode::ACCEPTED, &json!({"runId": run_id, "streamUrl": stream_url})))
}

/// The run with the id `id`.
pub(super) fn find(sandbox: &Sandbox, id: &str) -> Result<Arc<Run>, Refusal> {
    let run = sandbox.runs.lock().by_id.get(&RunId::from(id)).cloned();
    run.ok_or_else(|| {
        Refusal::not_found(format!("there is no run {id:?}, or it was forgotten since it finished"))
    })
}

/// `GET agent-runs`: newest first.
pub(super) fn list(sandbox: &Sandbox, query: &str) -> Reply {
    let page = Page::read(query)?;
    let wanted = |run: &&Arc<Run>| {
        page.matches(&run.spec.metadata)
            && page.status.as_ref().is_none_or(|status| run.view().status() == status)
            && page.model_id.as_ref().is_none_or(|id| run.spec.model_id.as_ref() == Some(id))
            && page.agent_id.as_ref().is_none_or(|id| run.spec.agent_id.as_ref() == Some(id))
    };
    let all: Vec<Arc<Run>> = sandbox.runs.lock().by_id.values().filter(wanted).cloned().collect();
    let total = (page.include_total == Some(true)).then_some(all.len());
    let (found, next_cursor) = page.cut(all, |run| run.number);
    let runs: Vec<Value> = found.iter().map(|run| entry(run)).collect();
    let body =
        json!({"total": total, "limit": page.limit, "nextCursor": next_cursor, "runs": runs});
    Ok(json(StatusCode::OK, &body))
}

/// One run in a list.
fn entry(run: &Run) -> Value {
    let view = run.view();
    let end = view.ended.as_ref().map(|ended| &ended.end);
    let preview = |text: &str| text.chars().take(PREVIEW).collect::<String>();
    let mut entry = common(run, &view);
    entry["specName"] = json!(run.spec.name);
    entry["agentId"] = json!(run.spec.agent_id);
    entry["modelId"] = json!(run.spec.model_id);
    entry["inputPreview"] = json!(preview(run.turn.script()));
    entry["outputPreview"] = json!(end.and_then(RunEnd::reply).map(preview));
    entry["error"] = json!(end.and_then(|end| end.data["error"].as_str()).map(preview));
    entry
}

/// The members that a snapshot and an entry of a list have in common.
fn common(run: &Run, view: &View) -> Value {
    let ended = view.ended.as_ref();
    let reported = |key| ended.map(|ended| &ended.end.data[key]);
    json!({
        "id": run.id.as_str(),
        "sessionId": run.session.as_ref().map(SessionId::as_str),
        "status": view.status(),
        // Null until the run has ended (agent-runs-protocol §7.1).
        "turns": reported("turns"),
        "durationMs": ended.map(|ended| ended.duration_ms()),
        "metadata": run.spec.metadata,
        "createdAt": rfc3339(run.created),
        "completedAt": ended.map(|ended| rfc3339(ended.at)),
    })
}

/// `GET agent-runs/{id}`.
pub(super) fn snapshot(sandbox: &Sandbox, id: &str) -> Reply {
    let run = find(sandbox, id)?;
    let view = run.view();
    let end = view.ended.as_ref().map(|ended| &ended.end);
    let mut rest = common(&run, &view);
    rest["finalText"] = json!(end.and_then(RunEnd::reply));
    rest["lastSeq"] = json!(view.last_seq);
    let class = end.and_then(|end| end.class);
    rest["failureReason"] = json!(class.map(|class| json!({"errorClass": class})));
    for key in ["error", "model"] {
        rest[key] = json!(end.map(|end| &end.data[key]));
    }
    Ok(json(StatusCode::OK, &Snapshot { agent_spec: &run.spec.raw, rest }))
}

/// `POST agent-runs/{id}/cancel`; repeating it changes nothing.
pub(super) fn cancel(sandbox: &Sandbox, id: &str) -> Reply {
    find(sandbox, id)?.cancel("user");
    Ok(json(StatusCode::OK, &json!({"ok": true})))
}

/// `POST agent-runs/{id}/feedback`.
pub(super) fn feedback(sandbox: &Sandbox, id: &str, body: &[u8]) -> Reply {
    let Ok(run) = find(sandbox, id) else {
        return Err(Refusal::only(StatusCode::NOT_FOUND, "Run not found"));
    };
    let body = read::body(body, "feedback")?;
    let (id, is_first) = run.feedback(sandbox.ids.next("fb"));
    let status = if is_first { StatusCode::CREATED } else { StatusCode::OK };
    let body = json!({
        "id": id,
        "verdict": body["verdict"],
        "targetKind": "agent_run",
        "agentRunId": run.id.as_str(),
    });
    Ok(json(status, &body))
}
