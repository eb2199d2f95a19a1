//! The runs that the bridge drives for an app: submit a run, hand one over, list runs and their
//! calls.
//!
//! Must not: show an app the runs of another, or anyone the arguments or the result of a call.

use std::sync::Arc;

use http::{Request, Response, StatusCode, Uri, header};
use http_body::Body as _;
use hyper::body::Incoming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::sight::Sight;
use super::{
    Api, ApiRequest, App, Body, Code, HandlerResult, MAX_CALL, bad_request, choose, json_body,
    operator_only, parameter, proxy, response,
};
use crate::calls::history::HistoryEntry;
use crate::clock::{self, millis_of, rfc3339};
use crate::error_chain::error_chain;
use crate::http::proxy::{Outgoing, Resource, forward};
use crate::model::ids::is_segment;
use crate::model::{BackendName, RunId, RunKey, RunKind, Table, Workspace};
use crate::run_store::NotAttached;
use crate::runs::{DrivenRun, NewRun};
use crate::upstream::UpstreamCredential;

/// The most ended runs in a list; a list has all driven runs.
const MAX_ENDED: usize = 500;
/// The largest answer to a submission, in bytes; MANTYX's holds two short strings.
const MAX_ANSWER: usize = 1 << 20;

/// One run, as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown<'a> {
    run_id: &'a str,
    app: &'a str,
    workspace: &'a str,
    kind: &'static str,
    state: &'static str,
    session_id: Option<&'a str>,
    backends: Vec<&'a str>,
    last_seq: u64,
    calls: usize,
    calls_in_flight: usize,
    started_at: String,
    ended_at: Option<String>,
    stream_url: String,
    /// The first words of its prompt, if this process created the run; not in events, and not for a
    /// session of the page without its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
}

/// One call, as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownCall<'a> {
    number: u64,
    app: &'a str,
    run_id: Option<&'a str>,
    tool_use_id: &'a str,
    name: &'a str,
    backend: &'a str,
    started_at: String,
    state: &'static str,
    pending: bool,
    outcome: Option<&'static str>,
    /// How long it took, or has taken so far, and how much of that it waited for a person.
    ms: u64,
    waited_ms: u64,
    /// When, after its start, it was sent to its backend; `null` if it was not.
    sent_ms: Option<u64>,
    /// When, after its start, MANTYX took its answer; `null` also for a call that no run asked for.
    posted_ms: Option<u64>,
}

/// What a call was made with, its answer, and what its peer has said of its work last: the first 4
/// KiB of each.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallTexts<'a> {
    arguments: &'a str,
    /// Empty as long as there is none.
    answer: &'a str,
    /// Empty if the peer says nothing, as most do.
    progress: &'a str,
}

/// The options of an attachment.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Attach {
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backends: Option<Vec<String>>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(run: &'a DrivenRun) -> Self {
        let RunKey { workspace, kind, run: id } = &run.key;
        Self {
            run_id: id.as_str(),
            app: run.app.as_str(),
            workspace: workspace.as_str(),
            kind: match kind {
                RunKind::Agent => "agent",
                RunKind::Eval => "eval",
            },
            state: run.phase().as_str(),
            session_id: run.session.as_ref().map(|session| session.as_str()),
            backends: run.table.backends().iter().map(BackendName::as_str).collect(),
            last_seq: run.last_seq(),
            calls: run.calls(),
            calls_in_flight: run.in_flight(),
            started_at: rfc3339(run.started_at()),
            ended_at: run.ended_at().map(rfc3339),
            stream_url: run.key.stream_path(),
            prompt: None,
        }
    }

    /// The run for a reader who may see what it is about.
    fn with_prompt(run: &'a DrivenRun) -> Self {
        let prompt = if run.prompt.is_empty() { None } else { Some(&*run.prompt) };
        Self { prompt, ..Self::new(run) }
    }
}

impl<'a> ShownCall<'a> {
    pub(super) fn new(call: &'a HistoryEntry) -> Self {
        Self {
            number: call.number,
            app: call.app.as_str(),
            run_id: call.run.as_ref().map(RunId::as_str),
            tool_use_id: call.tool_use.as_str(),
            name: &call.name,
            backend: call.backend.as_str(),
            started_at: rfc3339(call.started_at),
            state: match call.ended {
                Some(_) => "answered",
                None if call.is_waiting() => "waiting",
                None => "running",
            },
            pending: call.is_pending(),
            outcome: call.ended.map(|(outcome, _)| outcome.as_str()),
            ms: millis_of(call.took()),
            waited_ms: millis_of(call.waited()),
            sent_ms: call.sent.map(millis_of),
            posted_ms: call.posted.map(millis_of),
        }
    }
}

impl Api {
    /// Submits a spec to MANTYX, and drives the run that MANTYX creates.
    pub(super) async fn submit(&self, incoming: ApiRequest) -> HandlerResult {
        let ApiRequest { caller, mut request, .. } = incoming;
        let Some(workspace) = self.loaded().workspace else {
            return Err(response::error(
                Code::NoWorkspace,
                "The bridge's configuration has no `upstream.workspace` to submit runs to. Set \
                 it, or post the spec to /api/v1/workspaces/{workspace}/agent-runs.",
            ));
        };
        if !super::is_json(request.headers()) {
            return Err(super::not_json());
        }
        let workspace = Workspace::from(workspace.as_str());
        let kind = RunKind::Agent;
        let path = format!("/api/v1/workspaces/{workspace}/{}", kind.as_str());
        let Ok(uri) = path.parse::<Uri>() else {
            return Err(bad_request("The workspace of the configuration cannot stand in a path."));
        };
        *request.uri_mut() = uri;
        let mut from = Outgoing::new(
            (&self.runs, &self.views),
            &caller,
            request.headers(),
            Resource::default(),
        );
        let answer = from.create_run(workspace.clone(), kind, request).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut parts, body) = answer.into_parts();
        let text = response::read_anyway(body, MAX_ANSWER).await?;
        let Some(run) = proxy::id_in(&text, "runId") else {
            return Err(response::error(
                Code::UpstreamBroken,
                "MANTYX took the spec, and its answer names no run.",
            ));
        };
        let key = RunKey { workspace, kind, run };
        let submitted = serde_json::json!({
            "runId": key.run.as_str(),
            "streamUrl": key.stream_path(),
        });
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, response::full(submitted.to_string())))
    }

    /// Drives a run that the app submitted itself.
    pub(super) async fn attach(&self, incoming: ApiRequest) -> HandlerResult {
        let ApiRequest { caller, mut request, segment: run } = incoming;
        let mut from = Outgoing::new(
            (&self.runs, &self.views),
            &caller,
            request.headers(),
            Resource::default(),
        );
        let trace = self.runs.context.traces.context(proxy::trace(request.headers()));
        let Attach { workspace, backends } = attach_body(&mut request).await?;
        from.renew(request.headers())?;
        let app = Arc::clone(&from.caller.app);
        let Some(workspace) = workspace.or(self.loaded().workspace) else {
            return Err(response::error(
                Code::NoWorkspace,
                "The bridge's configuration has no `upstream.workspace`; name the run's own as \
                 `workspace` in the body.",
            ));
        };
        if !is_segment(&workspace) || !is_segment(&run) {
            return Err(bad_request("The workspace or the run's id cannot stand in a path."));
        }
        let workspace = Workspace::from(workspace.as_str());
        let key = RunKey { workspace, kind: RunKind::Agent, run: run.into() };
        from.learn_of(&key.workspace, &[key.run.as_str().to_owned()]).await?;
        if self.runs.others(&key.workspace, key.run.as_str(), &app.name).is_some() {
            return Err(no_such_run());
        }
        let earlier_run = from.own_run(&key).await?;
        if let Some(run) = &earlier_run
            && !run.is_given_up()
        {
            return show_if_own(run, &app);
        }
        // A second driver beside the one of the eval would repeat its calls.
        if let Some(eval) = self.runs.driven_by_eval(&key) {
            return Err(driven_already(&eval));
        }
        let table = match &earlier_run {
            // The run keeps the tools that it had.
            Some(run) => Table::clone(&run.table),
            None => self.table(&app, backends).await?,
        };
        // If the run does not exist, the app learns it now; otherwise a driver would start and give
        // up later, unseen by the app.
        let snapshot = self.snapshot(&key, &from.credential).await?;
        let record_is_lost = self.may_have_been_driven(snapshot).await;
        if let Some(run) = earlier_run.as_ref().filter(|run| self.runs.revive(run)) {
            info!(run = %run.key.run, app = %run.app, "attached again");
            return Ok(accepted(run));
        }
        // The bridge may have forgotten the run while it asked MANTYX, or the run belonged to an
        // eval that the bridge has forgotten. In both cases the record of the run's calls is gone,
        // and calls may have been made.
        let past_is_lost = record_is_lost || earlier_run.is_some() || self.runs.is_of_an_eval(&key);
        let handed_over = key.clone();
        let new = NewRun {
            key,
            app: app.name.clone(),
            session: None,
            credential: from.credential.clone(),
            table: Arc::new(table),
            prompt: Box::default(),
            has_past: true,
            past_is_lost,
            trace,
        };
        match self.runs.attach(new).await {
            Ok(run) => {
                info!(run = %run.key.run, app = %run.app, "attached");
                Ok(accepted(&run))
            }
            Err(NotAttached::Driven(run)) => show_if_own(&run, &app),
            Err(NotAttached::Unkept) => Err(forward::away(&self.runs)),
            // Another request has claimed the run since the look-up above.
            Err(NotAttached::Taken) => Err(match self.runs.driven_by_eval(&handed_over) {
                Some(eval) if self.runs.get(&eval).is_some_and(|run| run.app == app.name) => {
                    driven_already(&eval)
                }
                _ => no_such_run(),
            }),
        }
    }

    /// MANTYX's answer about the run `key`, if MANTYX shows the run to the bridge.
    async fn snapshot(
        &self,
        key: &RunKey,
        credential: &UpstreamCredential,
    ) -> HandlerResult<reqwest::Response> {
        let answer = self
            .runs
            .upstream
            .ask(&key.path(), credential)
            .await
            .map_err(|error| forward::unreachable(&error.to_string()))?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(no_such_run()),
            status => Err(response::error(
                Code::UpstreamRefused,
                &format!("MANTYX does not show the run to the bridge ({status})."),
            )),
        }
    }

    /// Whether the bridge may have driven the run of this snapshot before it lost its journal. If
    /// so, a call without an answer may already have been made.
    async fn may_have_been_driven(&self, snapshot: reqwest::Response) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Snapshot {
            created_at: String,
        }
        if !self.runs.has_lost_records() {
            return false;
        }
        // The age is measured by MANTYX's own clock where `Date` shows it: the clocks may differ.
        let date = snapshot.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let now =
            date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or_else(clock::now);
        let text = self.runs.upstream.text(snapshot).await.ok();
        let created_at = text
            .and_then(|text| serde_json::from_slice::<Snapshot>(&text).ok())
            .and_then(|snapshot| humantime::parse_rfc3339_weak(&snapshot.created_at).ok());
        let age = created_at.map(|created| now.duration_since(created).unwrap_or_default());
        self.runs.may_have_driven(age)
    }

    /// The table of a run that is handed over: the tools on offer now, and those of backends that
    /// are away, since the app may have given the run their tools earlier.
    async fn table(&self, app: &App, backends: Option<Vec<String>>) -> HandlerResult<Table> {
        self.backends().registry.settled().await;
        let offer = Arc::new(self.backends().registry.offer_of_known()).seen_by(&app.rights);
        let chosen = choose(&offer, backends)?;
        if chosen.is_empty() {
            return Err(bad_request(
                "There is no backend to answer the run's calls with; name at least one that the \
                 app may use.",
            ));
        }
        Ok(Table::assumed(&offer, chosen))
    }

    /// The runs that the caller may see: all driven ones and recently ended ones, the latest first.
    pub(super) async fn list_runs(&self, incoming: ApiRequest) -> HandlerResult {
        let mut runs = self.runs_of(&incoming, None).await?;
        runs.sort_by_key(|run| std::cmp::Reverse(run.started_at()));
        let mut ended_runs = 0;
        runs.retain(|run| {
            ended_runs += usize::from(run.ended_at().is_some());
            run.ended_at().is_none() || ended_runs <= MAX_ENDED
        });
        let sees_prompts = self.sees_prompts(&incoming);
        let answer = self.write(&incoming.caller.app.name, move |_| {
            let shown = runs
                .iter()
                .map(|run| if sees_prompts { Shown::with_prompt(run) } else { Shown::new(run) });
            let runs: Vec<Shown<'_>> = shown.collect();
            Ok(response::json(&serde_json::json!({ "runs": runs })))
        });
        Ok(answer.await)
    }

    /// One run that the caller may see; where several workspaces have the id, the latest.
    pub(super) async fn show_run(&self, incoming: ApiRequest) -> HandlerResult {
        let runs = self.runs_of(&incoming, Some(&incoming.segment)).await?;
        match runs.iter().max_by_key(|run| run.started_at()) {
            Some(run) if self.sees_prompts(&incoming) => {
                Ok(response::json(&Shown::with_prompt(run)))
            }
            Some(run) => Ok(response::json(&Shown::new(run))),
            None => Err(no_such_run()),
        }
    }

    /// Whether the caller may see the first words of prompts. Other programs of the host may have
    /// the cookie of a session, but not its key: with the cookie alone, no content is shown.
    fn sees_prompts(&self, incoming: &ApiRequest) -> bool {
        !incoming.caller.in_session || self.sessions.has_key(incoming.request.headers())
    }

    /// The runs that the caller may see, or those with the id `named`. Replicas know of each
    /// other's.
    async fn runs_of(
        &self,
        incoming: &ApiRequest,
        named: Option<&str>,
    ) -> HandlerResult<Vec<Arc<DrivenRun>>> {
        let caller = &incoming.caller;
        let headers = incoming.request.headers();
        let sight = Sight::new(&self.runs, caller, headers);
        let id = named.map(RunId::from);
        let mut runs = self.runs.of_app(caller.sees());
        runs.retain(|run| id.as_ref().is_none_or(|id| run.key.run == *id));
        if runs.is_empty() || named.is_none() {
            let credential = forward::credential(&self.runs, caller, headers);
            match self.runs.elsewhere(caller.sees(), named, &credential).await {
                Ok(others) => runs.extend(others),
                Err(error) => {
                    warn!(error = error_chain(&error), "cannot tell what other replicas drive");
                    // A list has what is known here; `problems` says that the database is away.
                    named.map_or(Ok(()), |_| Err(forward::away(&self.runs)))?;
                }
            }
        }
        runs.retain(|run| sight.has_run(&self.runs, run));
        Ok(runs)
    }

    /// The calls that the caller may see: the running ones, and the last answered ones.
    pub(super) fn list_calls(
        &self,
        ApiRequest { caller, request, .. }: &ApiRequest,
    ) -> HandlerResult {
        let sight = Sight::new(&self.runs, caller, request.headers());
        let mut calls = self.runs.calls.history.of(caller.sees());
        calls.retain(|call| sight.has_call(&self.runs, &call.app, call.run.as_ref()));
        if let Some(limit) = parameter(request, "limit") {
            let limit = limit
                .parse()
                .map_err(|_bad| bad_request("`limit` has to be a whole number, 0 or more."))?;
            calls.truncate(limit);
        }
        let shown_calls: Vec<ShownCall<'_>> = calls.iter().map(ShownCall::new).collect();
        Ok(response::json(&serde_json::json!({ "calls": shown_calls })))
    }

    /// What a call was made with, for the operator.
    pub(super) fn show_call(
        &self,
        ApiRequest { caller, segment, .. }: &ApiRequest,
    ) -> HandlerResult {
        operator_only(caller, "What a call was made with")?;
        let number = segment.parse().ok();
        let Some(call) = number.and_then(|number| self.runs.calls.history.find(number)) else {
            let message = "There is no such call; GET /v1/calls lists them.";
            return Err(response::error(Code::NotFound, message));
        };
        let HistoryEntry { arguments, answer, progress, .. } = &call;
        let texts = CallTexts { arguments, answer, progress };
        Ok(response::json(&texts))
    }
}

/// The body of an attachment. An empty one leaves all choices to the bridge.
async fn attach_body(request: &mut Request<Incoming>) -> HandlerResult<Attach> {
    if request.body().is_end_stream() {
        return Ok(Attach::default());
    }
    let body = json_body(request, MAX_CALL).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let shape = r#"{"workspace": "…", "backends": ["…"]}, both optional"#;
        bad_request(&format!("The body is not {shape}: {error}."))
    })
}

fn accepted(run: &DrivenRun) -> Response<Body> {
    response::with_status(response::json(&Shown::new(run)), StatusCode::ACCEPTED)
}

/// The run, if it is `app`'s. Another app gets the answer for a run that there is not: it must not
/// learn that there is one.
fn show_if_own(run: &DrivenRun, app: &App) -> HandlerResult {
    if run.app == app.name { Ok(response::json(&Shown::new(run))) } else { Err(no_such_run()) }
}

/// The answer for an agent run whose calls the driver of its eval answers.
fn driven_already(eval: &RunKey) -> Response<Body> {
    response::error(
        Code::DrivenAlready,
        &format!(
            "The run is an agent run of the eval {}, which the bridge drives: its calls are answered \
             there. Read its events by {}.",
            eval.run,
            eval.stream_path()
        ),
    )
}

fn no_such_run() -> Response<Body> {
    response::error(
        Code::NotFound,
        "There is no such run; GET /v1/runs lists those that the bridge drives for this app.",
    )
}
