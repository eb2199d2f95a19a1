//! MANTYX: it takes runs, lets their models call tools, and sends their events (agent-runs-protocol
//! §§3–6). Its network loses requests and answers, and its streams break, stall and repeat.

mod play;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(super) use self::play::play_all;
use super::world::{Sender, State, World};

/// MANTYX gives up on a call after this time.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Mantyx {
    /// The credentials of app `b` from this number on are valid.
    valid_from: usize,
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) sessions: BTreeMap<String, Value>,
    next: usize,
}

/// A run or an eval.
pub(super) struct Run {
    pub(super) is_eval: bool,
    /// The app that it was created for.
    pub(super) app: usize,
    /// How many streams of it are open.
    streams: usize,
    /// A stream has sent events of it in another order.
    pub(super) is_reordered: bool,
    /// From when to when the bridge had no credential for it.
    pub(super) sleeps: Vec<(Duration, Duration)>,
    /// The tools of the bridge and those of the app: the name, and the server if it has one.
    pub(super) tools: Vec<(String, Option<String>)>,
    pub(super) own: Vec<String>,
    pub(super) log: Vec<Event>,
    pub(super) calls: BTreeMap<String, Call>,
    pub(super) ended: bool,
    /// It was cancelled, and MANTYX waits for its calls to end.
    waits: bool,
    /// When its app was told that it is cancelled, while MANTYX waited for its calls.
    pub(super) cancelled: Option<Duration>,
    /// What its model still has to do.
    left: usize,
    /// The ids of long calls whose results it has not got.
    pending: Vec<String>,
    /// Until when MANTYX does not show the run.
    hidden_until: Duration,
    created: Duration,
    /// The bridge was given the run, and has certainly not lost it.
    pub(super) is_driven: bool,
    /// The bridge has refused it to its app, and its disk has kept that.
    pub(super) is_refused: bool,
}

pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) data: Value,
    pub(super) tool_use: Option<String>,
}

/// A tool call that a model has made.
pub(super) struct Call {
    /// In an eval, the agent run that it belongs to.
    pub(super) agent_run: Option<String>,
    pub(super) name: String,
    pub(super) intent: String,
    pub(super) asked: Duration,
    pub(super) is_bridges: bool,
    /// The bodies that were posted, and what MANTYX said.
    pub(super) posts: Vec<(String, u16)>,
    /// When the bridge first tried to post an answer, arrived or not.
    pub(super) tried: Option<Duration>,
    pub(super) answer: Option<Value>,
    told: bool,
    /// The bridge has taken it, so that its app cannot answer it any more.
    pub(super) is_taken: bool,
    pub(super) expired: bool,
    /// The bridge could not keep its answer: a later process may not know of it, and make the call.
    pub(super) is_unkept: bool,
    /// The bridge need not answer it: a stream has sent it behind a later event, or MANTYX did not
    /// know the run when the answer came, and showed its stream.
    pub(super) is_excused: bool,
}

/// What MANTYX answers.
enum Reply {
    Json(u16, Value),
    /// The events of a run behind this number, perhaps of one agent run alone.
    Stream {
        run: String,
        agent_run: Option<String>,
        after: usize,
    },
}

/// What becomes of a request.
enum Fate {
    Taken,
    /// It takes effect, and its answer is lost.
    AnswerLost,
    /// It does not arrive.
    Lost,
    Refused(u16),
}

/// An error as a broken connection gives it.
async fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> reqwest::Error {
    let error = error.into();
    let stream = futures_util::stream::once(async { Err::<Bytes, _>(error) });
    let response = reqwest::Response::from(http::Response::new(reqwest::Body::wrap_stream(stream)));
    response.bytes().await.expect_err("it breaks")
}

/// The answer to a request of the bridge. What was sent takes effect although the bridge may not
/// wait for the answer.
pub(super) async fn exchange(
    world: Arc<World>,
    request: reqwest::Request,
) -> reqwest::Result<reqwest::Response> {
    let within = request.timeout().copied().unwrap_or(Duration::from_secs(3600));
    let (from, runtime) = {
        let state = world.state();
        let here = tokio::runtime::Handle::current;
        (state.sender(), state.runtime.clone().unwrap_or_else(here))
    };
    let sent = runtime.spawn(answer(world, from, request));
    match timeout(within, sent).await {
        Ok(answered) => answered.expect("MANTYX does not panic"),
        Err(_elapsed) => Err(broken("no answer in time").await),
    }
}

async fn answer(
    world: Arc<World>,
    from: Sender,
    mut request: reqwest::Request,
) -> reqwest::Result<reqwest::Response> {
    from.if_alive().await;
    let body = match request.body_mut().take() {
        None => Bytes::new(),
        Some(body) => match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Err(broken(error).await),
        },
    };
    let slow = world.state().fault(15);
    world.pause(Duration::from_millis(if slow { 40_000 } else { 60 })).await;
    // The process has died before the request was on its way.
    from.if_alive().await;
    if from.is_cut(&world) {
        return Err(broken("the network is down").await);
    }
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let path = path.trim_start_matches("/api/v1/workspaces/acme").to_owned();
    let query = request.url().query().unwrap_or_default();
    let header = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let after = [query.strip_prefix("lastSeq="), header].into_iter().flatten();
    let after = after.filter_map(|text| text.parse().ok()).max().unwrap_or(0);
    let credential = request.headers().get("authorization").and_then(|it| it.to_str().ok());
    let credential = credential.unwrap_or_default().trim_start_matches("Bearer ").to_owned();
    let reply = {
        let mut state = world.state();
        state.note_try(&path, &body);
        state.reply((&method, &path, &credential), &body, after)
    };
    world.tell();
    world.pause(Duration::from_millis(60)).await;
    from.if_alive().await;
    match reply {
        _ if from.is_cut(&world) => Err(broken("the network is down").await),
        None => Err(broken("the connection broke").await),
        Some(Reply::Json(status, body)) => {
            let response = http::Response::builder().status(status);
            let response = response.header("content-type", "application/json");
            let response = match status {
                429 => response.header("retry-after", "2"),
                _ => response,
            };
            let text = if status == 204 { String::new() } else { body.to_string() };
            Ok(response.body(text).expect("it is well-formed").into())
        }
        Some(Reply::Stream { run, agent_run, after }) => {
            let response = http::Response::builder().header("content-type", "text/event-stream");
            let events = stream::events(world, run, agent_run, after);
            let body = reqwest::Body::wrap_stream(events);
            Ok(response.body(body).expect("it is well-formed").into())
        }
    }
}

impl State {
    /// What MANTYX replies to a request that has arrived; `None` if the request or the reply is
    /// lost.
    fn reply(
        &mut self,
        (method, path, credential): (&Method, &str, &str),
        body: &[u8],
        after: usize,
    ) -> Option<Reply> {
        let refusal = self.refusal(credential, path, body);
        match self.fate(path) {
            Fate::Taken | Fate::AnswerLost if refusal.is_some() => refusal,
            Fate::Lost => {
                self.step(format!("mantyx: {method} {path} is lost"));
                None
            }
            Fate::Refused(status) => {
                self.step(format!("mantyx: {method} {path} is refused with {status}"));
                if matches!(status, 401 | 403) {
                    let id = path.split('/').nth(2).unwrap_or_default();
                    let refused = id.split('.').next().unwrap_or_default();
                    self.sleep(|id, run| run.app == 1 && id == refused);
                }
                let error = json!({"error": "scripted", "message": "The seed wants this."});
                Some(Reply::Json(status, error))
            }
            Fate::AnswerLost => {
                if let Reply::Json(201, made) = self.route(method, path, body, after)
                    && let Some(run) = made["runId"].as_str()
                    && let Some(run) = self.mantyx.runs.get_mut(run)
                {
                    run.is_driven = false;
                }
                self.step(format!("mantyx: the answer to {method} {path} is lost"));
                None
            }
            Fate::Taken => Some(self.route(method, path, body, after)),
        }
    }

    fn fate(&mut self, path: &str) -> Fate {
        let mut refused = self.processes.iter().flat_map(|process| &process.refused);
        // Else a run that was refused seldom outlives that.
        if path.strip_suffix("/cancel").is_some_and(|run| refused.any(|id| run.ends_with(id)))
            && self.fault(700)
        {
            return Fate::Lost;
        }
        if self.fault(20) {
            return Fate::Lost;
        }
        if self.fault(20) {
            return Fate::AnswerLost;
        }
        if self.fault(25) {
            let passing = [401, 403, 408, 425, 429, 500, 502, 503, 504];
            let final_ones = [400, 404, 405, 409, 413, 415, 422];
            // A result that is refused for good is another matter than one that is late, and
            // `hides` is what makes runs unknown.
            let may_be_final = !path.ends_with("/tool-results") && !path.ends_with("/stream");
            let status = match may_be_final && self.chance(400) {
                true => final_ones[self.below(final_ones.len())],
                false => passing[self.below(passing.len())],
            };
            return Fate::Refused(status);
        }
        Fate::Taken
    }

    /// MANTYX's answer to a credential that may not do this.
    fn refusal(&mut self, credential: &str, path: &str, body: &[u8]) -> Option<Reply> {
        let refuse = |status: u16| {
            Some(Reply::Json(status, json!({"error": "scripted", "message": "Not with this one."})))
        };
        let number = credential.strip_prefix("of_b_").and_then(|it| it.parse::<usize>().ok());
        let app = match (credential, number) {
            ("key_of_mantyx", _) => 0,
            (_, Some(number)) if number >= self.mantyx.valid_from => 1,
            _ => {
                self.step(format!("mantyx: {credential} is not valid for {path}"));
                return refuse(401);
            }
        };
        let mut parts = path.split('/').skip(1);
        let kind = parts.next().unwrap_or_default();
        let Some(id) = parts.next() else {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            if body["app"] != app {
                self.breaks(format!("{path} for {} came with {credential}", body["app"]));
            }
            return None;
        };
        let (run, _) = self.mantyx.run_of(kind, id);
        let run = run.and_then(|run| self.mantyx.runs.get(&run))?;
        if run.app != app {
            self.step(format!("mantyx: {credential} may not see {id}"));
            return refuse(404);
        }
        None
    }

    /// App `b` gets a new credential, or its old ones end.
    pub(super) fn rotate(&mut self) {
        let held = self.apps[1].credential;
        if self.mantyx.valid_from < held {
            self.mantyx.valid_from = held;
            self.step(format!("mantyx: credentials of b before {held} end"));
            self.sleep(|_, run| run.app == 1);
        } else {
            self.apps[1].credential += 1;
            self.step(format!("b: has the credential {}", held + 1));
        }
    }

    /// The bridge cannot post results for these runs, until [`Self::wake`].
    pub(super) fn sleep(&mut self, which: impl Fn(&str, &Run) -> bool) {
        let now = self.now();
        for (_, it) in self.mantyx.runs.iter_mut().filter(|(id, it)| which(id, it)) {
            let sleeps = it.sleeps.last().is_some_and(|(_, until)| *until == Duration::MAX);
            if !sleeps {
                it.sleeps.push((now, Duration::MAX));
            }
        }
    }

    /// The app has been served with its credential.
    pub(super) fn wake(&mut self, run: &str) {
        let now = self.now();
        let are_replicas = self.are_replicas();
        let run = self.mantyx.runs.get_mut(run);
        // The app may have been served by a replica that does not drive its run.
        let run = run.filter(|run| !are_replicas || run.app != 1);
        if let Some((_, until)) = run.and_then(|run| run.sleeps.last_mut()) {
            *until = now.min(*until);
        }
    }

    fn route(&mut self, method: &Method, path: &str, body: &[u8], after: usize) -> Reply {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let not_found = || Reply::Json(404, json!({"error": "not_found", "message": "No such."}));
        match (method.as_str(), parts.as_slice()) {
            ("POST", ["agent-runs"]) => self.take_run(&body, false, &body["tools"]),
            ("POST", ["eval-runs"]) => {
                let tools = if body["agent"].is_object() {
                    &body["agent"]["tools"]
                } else {
                    &body["tools"]
                };
                self.take_run(&body, true, tools)
            }
            ("POST", ["agent-sessions"]) => {
                let id = self.id("ses");
                self.mantyx.sessions.insert(id.clone(), body["tools"].clone());
                self.step(format!("mantyx: session {id}"));
                Reply::Json(201, json!({ "sessionId": id }))
            }
            ("POST", ["agent-sessions", id, "messages"]) => {
                let Some(kept) = self.mantyx.sessions.get(*id).cloned() else { return not_found() };
                let tools = if body["tools"].is_array() { &body["tools"] } else { &kept };
                self.take_run(&body, false, &tools.clone())
            }
            ("DELETE", ["agent-sessions", id]) => match self.mantyx.sessions.remove(*id) {
                Some(_) => Reply::Json(204, Value::Null),
                None => not_found(),
            },
            ("GET", [kind @ ("agent-runs" | "eval-runs"), id, "stream"]) => {
                let now = self.now();
                let hides = self.fault(10).then(|| self.wait(Duration::from_secs(20)));
                let (run, agent_run) = self.mantyx.run_of(kind, id);
                let Some(found) =
                    run.and_then(|id| Some((id.clone(), self.mantyx.runs.get_mut(&id)?)))
                else {
                    return not_found();
                };
                let (run, found) = found;
                if let Some(wait) = hides {
                    found.hidden_until = now + wait;
                }
                if now < found.hidden_until {
                    self.step(format!("mantyx: hides {id}"));
                    return not_found();
                }
                self.step(format!("mantyx: stream of {id} after {after}"));
                Reply::Stream { run, agent_run, after }
            }
            ("GET", [kind @ ("agent-runs" | "eval-runs"), id]) => {
                let (run, _) = self.mantyx.run_of(kind, id);
                let Some(run) = run.and_then(|id| self.mantyx.runs.get(&id)) else {
                    return not_found();
                };
                let status = if run.ended { "succeeded" } else { "running" };
                Reply::Json(200, json!({ "id": id, "status": status }))
            }
            ("POST", ["agent-runs", id, "tool-results"]) => self.take_result(id, &body),
            ("POST", [kind @ ("agent-runs" | "eval-runs"), id, "cancel"]) => {
                let (run, _) = self.mantyx.run_of(kind, id);
                let Some(run) = run else { return not_found() };
                if *id == run && self.chance(500) && self.mantyx.waits_for_calls(&run) {
                    self.step(format!("mantyx: {id} is cancelled, and waits for its calls"));
                } else {
                    self.step(format!("mantyx: {id} is cancelled"));
                    self.end_run(&run, "cancelled");
                }
                Reply::Json(200, json!({ "ok": true }))
            }
            _ => not_found(),
        }
    }

    pub(super) fn id(&mut self, kind: &str) -> String {
        self.mantyx.next += 1;
        format!("{kind}_{}", self.mantyx.next)
    }

    /// Creates a run with the `tools` of `spec`.
    pub(super) fn new_run(&mut self, spec: &Value, is_eval: bool, tools: &Value) -> String {
        let id = self.id(if is_eval { "ev" } else { "run" });
        let app = spec["app"].as_u64().unwrap_or_default() as usize;
        let (mut names, mut own) = (Vec::new(), Vec::new());
        for one in tools.as_array().into_iter().flatten() {
            let name = one["name"].as_str().unwrap_or_default().to_owned();
            match one["kind"].as_str() {
                Some("mcp_local") => {
                    let tools = one["tools"].as_array().into_iter().flatten();
                    names.extend(tools.filter_map(|tool| {
                        Some((tool["name"].as_str()?.to_owned(), Some(name.clone())))
                    }));
                }
                _ if name.starts_with("app_") => own.push(name),
                _ => names.push((name, None)),
            }
        }
        let left = 1 + self.below(6);
        let run = Run {
            is_eval,
            app,
            streams: 0,
            is_reordered: false,
            sleeps: Vec::new(),
            tools: names,
            own,
            log: Vec::new(),
            calls: BTreeMap::new(),
            ended: false,
            waits: false,
            cancelled: None,
            left,
            pending: Vec::new(),
            hidden_until: Duration::ZERO,
            created: self.now(),
            is_driven: false,
            is_refused: false,
        };
        self.step(format!(
            "mantyx: {id} of app {app} begins with {} tools of the bridge and {} of its own",
            run.tools.len(),
            run.own.len()
        ));
        self.mantyx.runs.insert(id.clone(), run);
        id
    }

    fn take_run(&mut self, spec: &Value, is_eval: bool, tools: &Value) -> Reply {
        let id = self.new_run(spec, is_eval, tools);
        let run = self.mantyx.runs.get_mut(&id).expect("it is new");
        run.is_driven = !run.tools.is_empty();
        let kind = if is_eval { "eval-runs" } else { "agent-runs" };
        let stream = format!("/api/v1/workspaces/acme/{kind}/{id}/stream");
        Reply::Json(201, json!({ "runId": id, "streamUrl": stream }))
    }

    /// Notes that a result is on its way.
    fn note_try(&mut self, path: &str, body: &[u8]) {
        let now = self.now();
        let mut parts = path.split('/').skip(1);
        let (Some("agent-runs"), Some(id), Some("tool-results")) =
            (parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let tool_use = body["toolUseId"].as_str().unwrap_or_default();
        let (Some(run), _) = self.mantyx.run_of("agent-runs", id) else { return };
        let run = self.mantyx.runs.get_mut(&run);
        if let Some(call) = run.and_then(|run| run.calls.get_mut(tool_use)) {
            call.tried.get_or_insert(now);
        }
    }

    /// The process has ended. It may have lost a run that began just before.
    pub(super) fn doubt_new_runs(&mut self) {
        let now = self.now();
        for run in self.mantyx.runs.values_mut() {
            run.is_driven &= now > run.created + Duration::from_secs(60);
            for call in run.calls.values_mut().filter(|call| call.posts.is_empty()) {
                call.is_taken = false;
            }
        }
    }

    fn take_result(&mut self, id: &str, body: &Value) -> Reply {
        let tool_use = body["toolUseId"].as_str().unwrap_or_default().to_owned();
        let (run, agent_run) = self.mantyx.run_of("agent-runs", id);
        let now = self.now();
        let text = body.to_string();
        let disk_failed = self.disk.failed;
        let troubles = self.troubles.clone();
        let are_replicas = self.are_replicas();
        let reply = |status: u16| Reply::Json(status, json!({"error": "scripted", "message": "."}));
        let Some(run) = run.and_then(|id| self.mantyx.runs.get_mut(&id)) else {
            self.breaks(format!("a result for the unknown run {id}"));
            return reply(404);
        };
        if now < run.hidden_until {
            let is_shown = run.streams > 0;
            if let Some(call) = run.calls.get_mut(&tool_use) {
                call.is_excused |= is_shown;
            }
            self.step(format!("mantyx: hides {id} from the result of {tool_use}"));
            return reply(404);
        }
        let ended = run.ended;
        let Some(call) = run.calls.get_mut(&tool_use).filter(|it| it.agent_run == agent_run) else {
            self.breaks(format!("a result for the unknown call {tool_use} of {id}"));
            return reply(404);
        };
        let status = if ended || call.expired || call.answer.is_some() { 409 } else { 200 };
        let other = call.posts.iter().find(|(earlier, _)| *earlier != text).cloned();
        if body["result"] == "forged" && status == 409 {
            self.step(format!("mantyx: takes no forged result of {tool_use}"));
            return reply(409);
        }
        if body["result"] == "forged" && !call.is_taken {
            // As if the app had handed the run over a moment later.
            call.answer = Some(body.clone());
            self.step(format!("mantyx: its app has answered {tool_use} before the bridge read it"));
            return reply(status);
        }
        let was_unkept = disk_failed.is_some_and(|at| at >= call.asked)
            || troubles.may_be_unkept(call.asked, now);
        call.posts.push((text.clone(), status));
        if status == 200 {
            call.answer = Some(body.clone());
            call.is_unkept = was_unkept;
            if let Some(id) = body["result"].as_str().and_then(call_id) {
                run.pending.push(id);
            }
        }
        let shown = text.get(..300).unwrap_or(&text);
        self.step(format!("mantyx: result of {tool_use} in {id}: {status} {shown}"));
        // An app may answer what it was shown of a run whose beginning was not committed yet.
        let results = [r#""result":"own""#, r#""result":"forged""#];
        let is_apps = |text: &str| are_replicas && results.iter().any(|it| text.contains(it));
        let other = other.filter(|(earlier, _)| !is_apps(earlier) && !is_apps(&text));
        // An answer that cannot be kept is posted all the same.
        if let (Some((earlier, _)), false) = (other, was_unkept) {
            self.breaks(format!("{tool_use} got two answers: {earlier} and {text}"));
        }
        reply(status)
    }
}

/// The id of a long call, if this is the first answer of one.
fn call_id(text: &str) -> Option<String> {
    let text: Value = serde_json::from_str(text).ok()?;
    (text["status"] == "pending").then(|| text["callId"].as_str().map(str::to_owned))?
}

impl Mantyx {
    /// The run or eval with this id, or the eval that the agent run `id` belongs to, and that.
    fn run_of(&self, kind: &str, id: &str) -> (Option<String>, Option<String>) {
        let is = |run: &Run| run.is_eval == (kind == "eval-runs");
        if self.runs.get(id).is_some_and(is) {
            return (Some(id.to_owned()), None);
        }
        let eval = id.split_once('.').map(|(eval, _)| eval);
        let eval = eval.filter(|eval| kind == "agent-runs" && self.runs.contains_key(*eval));
        (eval.map(str::to_owned), Some(id.to_owned()))
    }
}

impl Run {
    fn push(&mut self, kind: &'static str, data: Value, tool_use: Option<String>) {
        self.log.push(Event { kind, data, tool_use });
    }

    /// The last event of a run and that of an eval.
    fn last(&self, kind: &'static str) -> &'static str {
        match (self.is_eval, kind) {
            (true, "result") => "run_completed",
            (true, "error") => "run_failed",
            (true, "cancelled") => "run_cancelled",
            (_, kind) => kind,
        }
    }
}
