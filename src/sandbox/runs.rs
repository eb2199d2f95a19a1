//! All runs, and the requests about them (agent-runs-protocol §5, §9, §9a).
//!
//! Must not: read a spec, or play one.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::{Refusal, Reply, Run, Sandbox, Snapshot, Spec, Turn, json, player, spec};
use crate::clock::rfc3339;
use crate::model::maps::HashMap;
use crate::model::{RunId, SessionId};

/// The stored runs.
#[derive(Debug, Default)]
pub(super) struct Runs(HashMap<RunId, Arc<Run>>);

impl Runs {
    pub(super) fn of_session(&self, session: &SessionId) -> Vec<Arc<Run>> {
        let runs = self.0.values();
        runs.filter(|run| run.session.as_ref() == Some(session)).cloned().collect()
    }

    /// Forgets the oldest finished run; false if none has finished.
    pub(super) fn forget_oldest_finished(&mut self) -> bool {
        let finished = self.0.values().filter(|run| run.over.is_cancelled());
        let oldest = finished.min_by_key(|run| run.started).map(|run| run.id.clone());
        oldest.is_some_and(|id| self.0.remove(&id).is_some())
    }
}

/// `POST agent-runs`.
pub(super) fn create(sandbox: &Arc<Sandbox>, body: &[u8]) -> Reply {
    let (spec, turn) = spec::read_run(body)?;
    sandbox.check_agent(&spec)?;
    start(sandbox, (spec, turn), None, body.len())
}

/// Starts a run; `size` is the length of its request in bytes.
pub(super) fn start(
    sandbox: &Arc<Sandbox>,
    spec_and_turn: (Spec, Turn),
    session: Option<SessionId>,
    size: usize,
) -> Reply {
    let limits = &sandbox.config.limits;
    // Counts twice: the spec is stored as it was sent, and its tools beside it.
    let charge = sandbox.charge(2 * size)?;
    let mut runs = sandbox.runs.lock();
    if runs.0.len() >= limits.runs && !runs.forget_oldest_finished() {
        let count = limits.runs;
        return Err(Refusal::full(format!("{count} runs are unfinished, more are not kept")));
    }
    let (id, max_log_bytes) = (sandbox.ids.next("run").into(), limits.log_bytes_per_run);
    let run = Arc::new(Run::new(id, spec_and_turn, session, max_log_bytes, charge));
    runs.0.insert(run.id.clone(), Arc::clone(&run));
    drop(runs);
    let workspace = &sandbox.config.workspace;
    let run_id = run.id.as_str();
    let stream_url = format!("/api/v1/workspaces/{workspace}/agent-runs/{run_id}/stream");
    let accepted = json(StatusCode::ACCEPTED, &json!({"runId": run_id, "streamUrl": stream_url}));
    let sandbox_too = Arc::clone(sandbox);
    sandbox.tasks.spawn(async move { player::play(&sandbox_too, &run).await });
    Ok(accepted)
}

/// The run with the id `id`.
pub(super) fn find(sandbox: &Sandbox, id: &str) -> Result<Arc<Run>, Refusal> {
    let run = sandbox.runs.lock().0.get(&RunId::from(id)).cloned();
    run.ok_or_else(|| {
        Refusal::not_found(format!("there is no run {id:?}, or it was forgotten since it finished"))
    })
}

/// `GET agent-runs/{id}`.
pub(super) fn snapshot(sandbox: &Sandbox, id: &str) -> Reply {
    let run = find(sandbox, id)?;
    let (end, last_seq) = run.view();
    let end = end.as_deref();
    // Null until the run has ended (agent-runs-protocol §7.1).
    let reported = |key| end.map(|end| &end.outcome.data[key]);
    let class = end.and_then(|end| end.outcome.class);
    let rest = json!({
        "id": run.id.as_str(),
        "sessionId": run.session.as_ref().map(SessionId::as_str),
        "status": end.map_or("running", |end| end.outcome.status),
        "turns": reported("turns"),
        "durationMs": end.map(|end| end.duration_ms),
        "metadata": run.spec.metadata,
        "createdAt": rfc3339(run.created),
        "completedAt": end.map(|end| rfc3339(end.at)),
        "finalText": end.and_then(|end| end.outcome.reply()),
        "lastSeq": last_seq,
        "failureReason": class.map(|class| json!({"errorClass": class})),
        "error": reported("error"),
        "model": reported("model"),
    });
    Ok(json(StatusCode::OK, &Snapshot { agent_spec: &run.spec.raw, rest }))
}

/// `POST agent-runs/{id}/cancel`; repeating it changes nothing.
pub(super) fn cancel(sandbox: &Sandbox, id: &str) -> Reply {
    find(sandbox, id)?.cancel("user");
    Ok(json(StatusCode::OK, &json!({"ok": true})))
}
