//! All runs, and the requests about them (agent-runs-protocol §5, §9, §9a).
//!
//! Must not: read a spec, or play one.

use std::{collections::BTreeMap, collections::HashMap, sync::Arc};

use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Shared,
    page::Page,
    player, read,
    reply::{Refusal, Reply, json, rfc3339},
    run::{Order, Run},
    spec::{self, Metadata},
    terminal::{ModelInfo, StructuredOutput, Tokens},
};
use crate::model::ids::{RunId, SessionId};

/// The longest text of a preview, in characters.
const PREVIEW: usize = 200;

/// The stored runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_id: HashMap<RunId, Arc<Run>>,
    /// In the order of creation.
    by_number: BTreeMap<u64, Arc<Run>>,
    created: u64,
}

impl Runs {
    pub(super) fn of_session(&self, session: &SessionId) -> Vec<Arc<Run>> {
        let mine = |run: &&Arc<Run>| run.session.as_ref() == Some(session);
        self.by_number.values().filter(mine).cloned().collect()
    }

    /// Forgets finished runs, oldest first, until `enough` holds.
    pub(super) fn forget_finished(&mut self, enough: impl Fn() -> bool) {
        let finished: Vec<u64> = {
            let over = self.by_number.iter().filter(|(_, run)| run.is_over());
            over.map(|(number, _)| *number).collect()
        };
        for number in finished {
            if enough() {
                return;
            }
            self.forget(number);
        }
    }

    fn forget_oldest_finished(&mut self) -> bool {
        let oldest = self.by_number.iter().find(|(_, run)| run.is_over());
        let Some(number) = oldest.map(|(number, _)| *number) else {
            return false;
        };
        self.forget(number);
        true
    }

    fn forget(&mut self, number: u64) {
        if let Some(run) = self.by_number.remove(&number) {
            self.by_id.remove(&run.id);
        }
    }
}

/// `POST agent-runs`.
pub(super) fn create(shared: &Arc<Shared>, body: &[u8]) -> Reply {
    let (spec, turn) = spec::read_run(body)?;
    shared.check_names(&spec)?;
    let order = Order { spec, turn, session: None, history_words: 0, size: body.len() };
    let run = start(shared, order)?;
    accepted(shared, &run)
}

/// Starts a run.
pub(super) fn start(shared: &Arc<Shared>, order: Order) -> Result<Arc<Run>, Refusal> {
    let limits = &shared.config.limits;
    // Counts twice: the spec is stored as it was sent, and its tools beside it.
    let size = 2 * order.size;
    shared.make_room(size);
    let mut charge = shared.budget.open();
    if !charge.grow(size) {
        return Err(Refusal::full("the sandbox is full of unfinished runs"));
    }
    let mut runs = shared.runs.lock();
    if runs.by_number.len() >= limits.runs && !runs.forget_oldest_finished() {
        let count = limits.runs;
        return Err(Refusal::full(format!("{count} runs are unfinished, more are not kept")));
    }
    runs.created += 1;
    let (id, max_log_bytes) = (shared.ids.next("run").into(), limits.log_bytes_per_run);
    let run = Arc::new(Run::new(id, runs.created, order, max_log_bytes, charge));
    runs.by_id.insert(run.id.clone(), Arc::clone(&run));
    runs.by_number.insert(run.number, Arc::clone(&run));
    drop(runs);
    let playing = Arc::clone(&run);
    let shared_too = Arc::clone(shared);
    shared.tasks.spawn(async move {
        tokio::select! {
            () = player::play(&shared_too, &playing) => (),
            () = shared_too.stop.cancelled() => (),
        }
    });
    Ok(run)
}

/// The answer to a request that started `run`.
pub(super) fn accepted(shared: &Shared, run: &Run) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Started<'a> {
        run_id: &'a str,
        stream_url: String,
    }
    let workspace = &shared.config.workspace;
    let run_id = run.id.as_str();
    let stream_url = format!("/api/v1/workspaces/{workspace}/agent-runs/{run_id}/stream");
    Ok(json(StatusCode::ACCEPTED, &Started { run_id, stream_url }))
}

/// The run with the id `id`.
pub(super) fn find(shared: &Shared, id: &str) -> Result<Arc<Run>, Refusal> {
    let run = shared.runs.lock().by_id.get(&RunId::from(id)).cloned();
    run.ok_or_else(|| {
        Refusal::not_found(format!("there is no run {id:?}, or it was forgotten since it finished"))
    })
}

/// `GET agent-runs`: newest first.
pub(super) fn list(shared: &Shared, query: &str) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        total: Option<usize>,
        limit: usize,
        next_cursor: Option<String>,
        runs: Vec<Entry<'a>>,
    }
    let page = Page::read(query)?;
    let wanted = |run: &&Arc<Run>| {
        page.matches(&run.spec.metadata)
            && page.status.as_ref().is_none_or(|status| run.view().status() == status)
            && page.model_id.as_ref().is_none_or(|id| run.spec.model_id.as_ref() == Some(id))
            && page.agent_id.as_ref().is_none_or(|id| run.spec.agent_id.as_ref() == Some(id))
    };
    let runs: Vec<Arc<Run>> = {
        let runs = shared.runs.lock();
        runs.by_number.values().rev().cloned().collect()
    };
    let total = page.include_total == Some(true);
    let total = total.then(|| runs.iter().filter(wanted).count());
    let rest = runs.iter().filter(|run| page.cursor.is_none_or(|cursor| run.number < cursor));
    let (found, next_cursor) = page.cut(rest.filter(wanted), |run| run.number);
    let runs = found.iter().map(|run| Entry::new(run)).collect();
    Ok(json(StatusCode::OK, &List { total, limit: page.limit, next_cursor, runs }))
}

/// One run in a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    id: &'a str,
    session_id: Option<&'a str>,
    status: &'static str,
    spec_name: Option<&'a str>,
    agent_id: Option<&'a str>,
    model_id: Option<&'a str>,
    input_preview: String,
    output_preview: Option<String>,
    error: Option<String>,
    tokens: Option<Tokens>,
    turns: Option<u64>,
    duration_ms: Option<u64>,
    tool_call_count: Option<u64>,
    metadata: &'a Metadata,
    created_at: String,
    completed_at: Option<String>,
}

impl<'a> Entry<'a> {
    fn new(run: &'a Run) -> Self {
        let view = run.view();
        let (ended, report) = (view.ended.as_ref(), view.report());
        let preview = |text: &str| text.chars().take(PREVIEW).collect::<String>();
        Self {
            id: run.id.as_str(),
            session_id: run.session.as_ref().map(SessionId::as_str),
            status: view.status(),
            spec_name: run.spec.name.as_deref(),
            agent_id: run.spec.agent_id.as_deref(),
            model_id: run.spec.model_id.as_deref(),
            input_preview: preview(run.turn.script()),
            output_preview: ended.and_then(|ended| ended.end.reply()).map(preview),
            error: ended.and_then(|ended| ended.end.error.as_deref()).map(preview),
            tokens: report.map(|report| report.tokens),
            turns: report.map(|report| report.turns),
            duration_ms: ended.map(|ended| ended.duration_ms()),
            tool_call_count: ended.map(|_| view.calls),
            metadata: &run.spec.metadata,
            created_at: rfc3339(run.created),
            completed_at: ended.map(|ended| rfc3339(ended.at)),
        }
    }
}

/// `GET agent-runs/{id}`.
pub(super) fn snapshot(shared: &Shared, id: &str) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Snapshot<'a> {
        id: &'a str,
        session_id: Option<&'a str>,
        status: &'static str,
        agent_spec: &'a RawValue,
        final_text: Option<&'a str>,
        error: Option<&'a str>,
        failure_reason: Option<FailureReason>,
        // Null until the run has ended (agent-runs-protocol §7.1).
        tokens: Option<Tokens>,
        turns: Option<u64>,
        model: Option<&'a ModelInfo>,
        structured_output: Option<StructuredOutput>,
        metadata: &'a Metadata,
        last_seq: u64,
        duration_ms: Option<u64>,
        created_at: String,
        completed_at: Option<String>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct FailureReason {
        error_class: &'static str,
    }
    let run = find(shared, id)?;
    let view = run.view();
    let (ended, report) = (view.ended.as_ref(), view.report());
    let class = ended.and_then(|ended| ended.end.class);
    Ok(json(
        StatusCode::OK,
        &Snapshot {
            id: run.id.as_str(),
            session_id: run.session.as_ref().map(SessionId::as_str),
            status: view.status(),
            agent_spec: &run.spec.raw,
            final_text: ended.and_then(|ended| ended.end.reply()),
            error: ended.and_then(|ended| ended.end.error.as_deref()),
            failure_reason: class.map(|error_class| FailureReason { error_class }),
            tokens: report.map(|report| report.tokens),
            turns: report.map(|report| report.turns),
            model: report.map(|report| &report.model),
            structured_output: report.map(|report| report.structured_output),
            metadata: &run.spec.metadata,
            last_seq: view.last_seq,
            duration_ms: ended.map(|ended| ended.duration_ms()),
            created_at: rfc3339(run.created),
            completed_at: ended.map(|ended| rfc3339(ended.at)),
        },
    ))
}

/// `POST agent-runs/{id}/cancel`; repeating it changes nothing.
pub(super) fn cancel(shared: &Shared, id: &str) -> Reply {
    #[derive(Serialize)]
    struct Cancelled {
        ok: bool,
    }
    find(shared, id)?.cancel("user");
    Ok(json(StatusCode::OK, &Cancelled { ok: true }))
}

/// `POST agent-runs/{id}/feedback`.
pub(super) fn feedback(shared: &Shared, id: &str, body: &[u8]) -> Reply {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Feedback<'a> {
        id: String,
        verdict: &'a str,
        target_kind: &'static str,
        agent_run_id: &'a str,
    }
    let Ok(run) = find(shared, id) else {
        return Err(Refusal::only(StatusCode::NOT_FOUND, "Run not found"));
    };
    let body = read::body(body, "feedback")?;
    let verdict = body["verdict"].as_str().unwrap_or_default();
    let (id, is_first) = run.feedback(shared.ids.next("fb"));
    let status = if is_first { StatusCode::CREATED } else { StatusCode::OK };
    let agent_run_id = run.id.as_str();
    Ok(json(status, &Feedback { id, verdict, target_kind: "agent_run", agent_run_id }))
}
