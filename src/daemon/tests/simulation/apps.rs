//! The apps: they create runs and read them, call tools by hand, hand runs over, hang up anywhere,
//! and try what they may not do.

mod client;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use self::client::{Asked, ask};
use self::reading::read;
use super::world::{State, World};
use crate::journal::Server;
use crate::model::{RunKey, RunKind};

/// MANTYX's part of a path.
const API: &str = "/api/v1/workspaces/acme";

/// What an app remembers over the lives of the bridge.
#[derive(Default)]
pub(super) struct AppState {
    pub(super) name: &'static str,
    runs: Vec<Known>,
    /// Its sessions, and when it got to know each.
    sessions: Vec<(String, Duration)>,
    /// Its own tools' calls that it has not answered: the run and the call.
    own: Vec<(String, String)>,
    /// Calls of the bridge that it has seen: the run and the call.
    seen: Vec<(String, String)>,
    /// The number of its own credential for MANTYX; app `b` brings one.
    pub(super) credential: usize,
    /// What its requests with a key were, and what was answered.
    pub(super) keyed: BTreeMap<String, (String, Option<Value>)>,
}

/// A run that the app knows of.
#[derive(Debug, Clone, Default)]
struct Known {
    id: String,
    is_eval: bool,
    /// The number of the last event that it has read.
    last: usize,
    has_ended: bool,
    /// The bridge drives it.
    is_driven: bool,
    /// The app has submitted it, and handed it over.
    is_attached: bool,
    known_at: Duration,
}

impl AppState {
    pub(super) fn all() -> Vec<Self> {
        ["a", "b"].map(|name| Self { name, ..Self::default() }).into()
    }

    /// The runs that it has not read to their ends, and the calls that it has not answered.
    pub(super) fn unread(&self) -> impl Iterator<Item = String> {
        let runs = self.runs.iter().filter(|run| !run.has_ended);
        let runs = runs.map(|run| format!("{} unread after {}", run.id, run.last));
        runs.chain(self.own.iter().map(|(_, call)| format!("{call} unanswered by its app")))
    }
}

impl State {
    /// The replicas do not know the runs and sessions any more of which their database knows
    /// nothing.
    pub(super) fn forget_unknown(&mut self, server: &Server) {
        for app in &mut self.apps {
            app.sessions.retain(|(id, _)| server.knows_session("acme", id));
        }
        for known in self.apps.iter_mut().flat_map(|app| &mut app.runs) {
            let kind = if known.is_eval { RunKind::Eval } else { RunKind::Agent };
            let run = RunKey { workspace: "acme".into(), kind, run: known.id.as_str().into() };
            if !server.knows_run(&run) {
                (known.is_driven, known.is_attached) = (false, true);
                if let Some(run) = self.mantyx.runs.get_mut(&known.id) {
                    run.is_driven = false;
                }
            }
        }
    }

    /// The bridge does not know the runs and sessions any more that it was given since `when`.
    pub(super) fn forget_runs_since(&mut self, when: Duration) {
        for app in &mut self.apps {
            app.sessions.retain(|(_, known_at)| *known_at < when);
        }
        for known in self.apps.iter_mut().flat_map(|app| &mut app.runs) {
            if known.known_at >= when {
                (known.is_driven, known.is_attached) = (false, true);
                if let Some(run) = self.mantyx.runs.get_mut(&known.id) {
                    run.is_driven = false;
                }
            }
        }
    }
}

/// Lives until the world is calm and all of the app's runs have been read to their ends.
pub(super) async fn live(world: Arc<World>, app: usize) {
    loop {
        world.pause(Duration::from_secs(20)).await;
        world.if_alive().await;
        answer_own(&world, app).await;
        let (may_act, which, is_calm) = {
            let mut state = world.state();
            (state.act(), state.below(100), state.calm)
        };
        if may_act {
            match which {
                0..30 => create(&world, app).await,
                30..40 => create_eval(&world, app).await,
                40..52 => talk(&world, app).await,
                52..60 => call_by_hand(&world, app).await,
                60..64 => call_over_mcp(&world, app).await,
                64..74 => hand_over(&world, app).await,
                74..80 => cancel(&world, app).await,
                80..86 => pry(&world, app).await,
                86..91 => forge(&world, app).await,
                91..94 => impersonate(&world).await,
                94..97 => world.state().rotate(),
                _ => {}
            }
        }
        let next = {
            let mut state = world.state();
            let open: Vec<usize> = (0..state.apps[app].runs.len())
                .filter(|at| !state.apps[app].runs[*at].has_ended)
                .collect();
            if open.is_empty() { None } else { Some(open[state.below(open.len())]) }
        };
        match next {
            Some(at) => read(&world, app, at).await,
            None if is_calm && world.state().is_done() => return,
            None => {}
        }
    }
}

/// A spec of app number `app`, with a tool of its own at times.
fn spec(world: &World, app: usize) -> Value {
    let own = json!({"kind": "local", "name": "app_note", "description": "d", "parameters": {}});
    let tools = if world.state().chance(300) { json!([own]) } else { json!([]) };
    json!({"app": app, "model": "m", "prompt": "p", "tools": tools})
}

fn know(world: &World, app: usize, id: &str, is_eval: bool, is_driven: bool) {
    let mut state = world.state();
    let is_attached = !is_driven;
    let known_at = state.now();
    let id = id.to_owned();
    let known = Known { id, is_eval, is_driven, is_attached, known_at, ..Known::default() };
    state.apps[app].runs.push(known);
}

/// Notes the run that an answer names.
fn note(world: &World, app: usize, answer: Option<(u16, Value)>, is_eval: bool) {
    if let Some((200..=299, body)) = answer
        && let Some(id) = body["runId"].as_str()
    {
        know(world, app, id, is_eval, true);
    }
}

async fn create(world: &Arc<World>, app: usize) {
    let body = spec(world, app).to_string();
    let own_api = world.state().chance(200);
    let path = if own_api { "/v1/runs".to_owned() } else { format!("{API}/agent-runs") };
    let asked = Asked { body, ..Asked::new(app, "POST", &path) };
    let answer = ask(world, asked.breaking(world)).await;
    note(world, app, answer, false);
}

async fn create_eval(world: &Arc<World>, app: usize) {
    let spec = spec(world, app);
    let body = json!({"app": app, "datasetId": "d", "agent": spec}).to_string();
    let asked = Asked { body, ..Asked::new(app, "POST", &format!("{API}/eval-runs")) };
    let answer = ask(world, asked.breaking(world)).await;
    let eval = answer.as_ref().and_then(|(_, body)| Some(body["runId"].as_str()?.to_owned()));
    note(world, app, answer, true);
    if let Some(eval) = eval.filter(|_| app == 0) {
        share_calls(world, &eval).await;
    }
}

/// Attaches an agent run of a new eval. Its driver and that of the eval may then have one call, at
/// two replicas, of which one may be cut off from what they share.
async fn share_calls(world: &Arc<World>, eval: &str) {
    let agent_run = {
        let mut state = world.state();
        if !state.are_replicas() || state.chance(500) {
            return;
        }
        if state.fault(500) {
            let at = state.below(2);
            let wait = Duration::from_secs(12 + state.below(30) as u64);
            state.cut_from_database(at, wait);
        }
        format!("{eval}.{}", state.below(3))
    };
    attach(world, 0, &agent_run).await;
}

/// Begins a session, or sends a message to one.
async fn talk(world: &Arc<World>, app: usize) {
    let session = {
        let mut state = world.state();
        let count = state.apps[app].sessions.len();
        if count == 0 || state.chance(300) { None } else { Some(state.below(count)) }
    };
    match session {
        None => {
            let body = spec(world, app).to_string();
            let asked = Asked { body, ..Asked::new(app, "POST", &format!("{API}/agent-sessions")) };
            if let Some((200..=299, body)) = ask(world, asked.breaking(world)).await {
                let id = body["sessionId"].as_str().expect("an id").to_owned();
                let mut state = world.state();
                let now = state.now();
                state.apps[app].sessions.push((id, now));
            }
        }
        Some(at) => {
            let (id, _) = world.state().apps[app].sessions[at].clone();
            let body = json!({"app": app, "prompt": "p"}).to_string();
            let path = format!("{API}/agent-sessions/{id}/messages");
            let asked = Asked { body, ..Asked::new(app, "POST", &path) };
            let answer = ask(world, asked.breaking(world)).await;
            note(world, app, answer, false);
        }
    }
}

/// Has a tool called, perhaps twice under one key.
async fn call_by_hand(world: &Arc<World>, app: usize) {
    let (name, key, body) = {
        let mut state = world.state();
        let keys: Vec<String> = state.apps[app].keyed.keys().cloned().collect();
        if !keys.is_empty() && state.chance(500) {
            let key = keys[state.below(keys.len())].clone();
            let body = state.apps[app].keyed[&key].0.clone();
            ("again", Some(key), body)
        } else {
            let name = ["fs_write", "fs_read", "fs_ask", "fs_survey", "hr_file"][state.below(5)];
            let (intent, tool_use) = (state.id("i"), state.id("hand"));
            let body = json!({"toolUseId": tool_use, "name": name, "args": {"intent": intent}});
            let key = state.chance(600).then(|| format!("key-of-{tool_use}"));
            if let Some(key) = &key {
                let kept = (body.to_string(), None);
                state.apps[app].keyed.insert(key.clone(), kept);
            }
            (name, key, body.to_string())
        }
    };
    world.step(format!("{}: calls {name} by hand: {body}", ["a", "b"][app]));
    let asked = Asked { body, key: key.clone(), ..Asked::new(app, "POST", "/v1/tool-calls") };
    let Some((200, answer)) = ask(world, asked.breaking(world)).await else { return };
    let Some(key) = key else { return };
    let mut state = world.state();
    let kept = &state.apps[app].keyed[&key];
    let intent = serde_json::from_str::<Value>(&kept.0).expect("JSON")["args"]["intent"].clone();
    // A refusal leaves the key free.
    if !state.peers.jobs.contains_key(intent.as_str().expect("an intent")) {
        return;
    }
    let are_replicas = state.are_replicas();
    let kept = state.apps[app].keyed.get_mut(&key).expect("it was kept");
    let is_unknown = |answer: &Value| answer.to_string().contains("OUTCOME_UNKNOWN");
    match &kept.1 {
        // A replica that froze brings the answer of a request that another one counts as lost.
        Some(before) if are_replicas && is_unknown(before) => kept.1 = Some(answer),
        Some(before) if *before != answer => {
            let what = format!("{key} was answered with {before} and with {answer}");
            state.breaks(what);
        }
        _ => kept.1 = Some(answer),
    }
}

/// Calls a tool as an MCP client, which cancels the call by hanging up.
async fn call_over_mcp(world: &Arc<World>, app: usize) {
    let (name, body) = {
        let mut state = world.state();
        let name = ["fs_write", "fs_read", "fs_ask", "fs_survey", "hr_task"][state.below(5)];
        let intent = state.id("i");
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let arguments = json!({ "intent": intent });
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        state.step(format!("{}: calls {name} over MCP for {intent}", ["a", "b"][app]));
        (name, body.to_string())
    };
    let asked = Asked { body, mcp: Some(name), ..Asked::new(app, "POST", "/mcp") };
    ask(world, asked.breaking(world)).await;
}

/// Submits a run itself, and has the bridge answer its calls.
async fn hand_over(world: &Arc<World>, app: usize) {
    let again = {
        let mut state = world.state();
        let known: Vec<String> = state.apps[app].runs.iter().map(|run| run.id.clone()).collect();
        if known.is_empty() || state.chance(600) {
            None
        } else {
            Some(known[state.below(known.len())].clone())
        }
    };
    // An agent run of an eval, which the eval's driver may not know yet. With credentials of its
    // own, the app would have to show one for the agent run after a restart, too, and it reads
    // evals alone.
    let agent_run = {
        let mut state = world.state();
        let evals: Vec<String> = state.apps[app]
            .runs
            .iter()
            .filter(|run| run.is_eval)
            .map(|run| run.id.clone())
            .collect();
        let which = state.below(3);
        match evals.is_empty() || app == 1 || state.chance(600) {
            true => None,
            false => Some(format!("{}.{which}", evals[state.below(evals.len())])),
        }
    };
    let id = match agent_run.or(again) {
        Some(id) => id,
        None => {
            let Some((200, refs)) = ask(world, Asked::new(app, "GET", "/v1/tool-refs")).await
            else {
                return;
            };
            let id = world.state().new_run(&json!({ "app": app }), false, &refs["tools"]);
            world.tell();
            world.pause(Duration::from_secs(20)).await;
            know(world, app, &id, false, false);
            id
        }
    };
    if world.state().chance(300) {
        tokio::join!(attach(world, app, &id), attach(world, app, &id));
    } else {
        attach(world, app, &id).await;
    }
}

async fn attach(world: &Arc<World>, app: usize, id: &str) {
    let asked = Asked::new(app, "POST", &format!("/v1/runs/{id}/attach"));
    let answer = ask(world, asked.breaking(world)).await;
    if let Some((200..=299, _)) = answer {
        let mut state = world.state();
        // Calls of tools that the bridge does not offer any more stay the app's, so that the law of
        // answers leaves the run out.
        let now = state.now();
        for known in state.apps[app].runs.iter_mut().filter(|known| known.id == id) {
            (known.is_driven, known.known_at) = (true, now);
        }
    }
}

async fn cancel(world: &Arc<World>, app: usize) {
    let Some(Known { id, is_eval, .. }) = some_run(world, app) else { return };
    let kind = if is_eval { "eval-runs" } else { "agent-runs" };
    let asked = Asked::new(app, "POST", &format!("{API}/{kind}/{id}/cancel")).breaking(world);
    if let Some((200, _)) = ask(world, asked).await {
        let mut state = world.state();
        let now = state.now();
        state.mantyx.told_cancelled(&id, now);
    }
}

fn some_run(world: &World, app: usize) -> Option<Known> {
    let mut state = world.state();
    let count = state.apps[app].runs.len();
    let at = if count == 0 { return None } else { state.below(count) };
    Some(state.apps[app].runs[at].clone())
}

/// A request for a run that only its app may make.
fn request_for(world: &World, Known { id, is_eval, .. }: &Known) -> (&'static str, String) {
    let kind = if *is_eval { "eval-runs" } else { "agent-runs" };
    match world.state().below(4) {
        0 => ("GET", format!("{API}/{kind}/{id}/stream")),
        1 => ("POST", format!("{API}/{kind}/{id}/cancel")),
        2 => ("GET", format!("/v1/runs/{id}")),
        _ => ("POST", format!("/v1/runs/{id}/attach")),
    }
}

/// Asks for what is another app's.
async fn pry(world: &Arc<World>, app: usize) {
    let Some(known) = some_run(world, 1 - app).filter(|known| known.is_driven) else { return };
    let (method, path) = request_for(world, &known);
    let Some((status, body)) = ask(world, Asked::new(app, method, &path)).await else { return };
    if status < 400 {
        let what = format!("{method} {path} of another app: {status} {body}");
        world.state().breaks(what);
    }
}

/// Asks for a run of app `b` with a credential that MANTYX has not issued.
async fn impersonate(world: &Arc<World>) {
    let Some(known) = some_run(world, 1).filter(|known| known.is_driven) else { return };
    let (method, path) = request_for(world, &known);
    let asked = Asked { is_strangers: true, ..Asked::new(1, method, &path) };
    let Some((status, body)) = ask(world, asked).await else { return };
    if status < 400 {
        let what = format!("{method} {path} with a stranger's credential: {status} {body}");
        world.state().breaks(what);
    }
}

/// Answers a call that is the bridge's.
async fn forge(world: &Arc<World>, app: usize) {
    let forged = {
        let mut state = world.state();
        match state.apps[app].seen.len() {
            0 => None,
            count => {
                let at = state.below(count);
                Some(state.apps[app].seen[at].clone())
            }
        }
    };
    if let Some((run, tool_use)) = forged {
        result(world, app, &run, &tool_use, "forged").await;
    }
}

async fn result(
    world: &Arc<World>,
    app: usize,
    run: &str,
    tool_use: &str,
    text: &str,
) -> Option<(u16, Value)> {
    let body = json!({"toolUseId": tool_use, "result": text}).to_string();
    let path = format!("{API}/agent-runs/{run}/tool-results");
    ask(world, Asked { body, ..Asked::new(app, "POST", &path) }).await
}

/// Answers the calls of the app's own tools.
async fn answer_own(world: &Arc<World>, app: usize) {
    let own = world.state().apps[app].own.clone();
    for (run, tool_use) in own {
        let answer = result(world, app, &run, &tool_use, "own").await;
        if let Some((200..=299 | 404 | 409, _)) = answer {
            world.state().apps[app].own.retain(|(_, it)| *it != tool_use);
        }
    }
}

/// Whether a replica is ready once all is done.
pub(super) async fn look_at_readiness(world: &Arc<World>, at: usize) {
    let asked = Asked { to: Some(at), ..Asked::new(0, "GET", "/readyz") };
    match ask(world, asked).await {
        Some((200, _)) => {}
        other => world.state().breaks(format!("the replica {at} is not ready: {other:?}")),
    }
}

/// What the bridge itself says once all is done.
pub(super) async fn look_at_the_end(world: &Arc<World>, at: usize) {
    let asked = Asked { operator: true, to: Some(at), ..Asked::new(0, "GET", "/v1/status") };
    let Some((200, status)) = ask(world, asked).await else {
        return world.state().breaks("the status cannot be read at the end");
    };
    let in_flight: u64 = status["backends"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|backend| backend["callsInFlight"].as_u64())
        .sum();
    // The request for the status has ended as well by then.
    world.pause(Duration::from_secs(5)).await;
    world.state().check_memory(at);
    let driven = status["runs"]["driven"].as_u64();
    if driven != Some(0) || in_flight > 0 {
        world.state().breaks(format!("at the end: {driven:?} driven, {in_flight} calls in flight"));
    }
}
