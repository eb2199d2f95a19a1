//! How an app reads a run's stream. What it gets must be what MANTYX has said, event for event,
//! except for the calls that the bridge answers.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::client::{Asked, Opened, open};
use super::{API, Known};
use crate::daemon::tests::simulation::world::{State, World};
use crate::model::{RunKey, RunKind};

/// Reads some of a run's events, or all that are left.
pub(super) async fn read(world: &Arc<World>, app: usize, at: usize) {
    let (known, patience) = {
        let mut state = world.state();
        (state.apps[app].runs[at].clone(), state.wait(Duration::from_secs(120)))
    };
    timeout(patience.max(Duration::from_secs(1)), follow(world, app, at, known)).await.ok();
}

async fn follow(world: &Arc<World>, app: usize, at: usize, known: Known) {
    let kind = if known.is_eval { "eval-runs" } else { "agent-runs" };
    let path = format!("{API}/{kind}/{}/stream", known.id);
    let by_query = world.state().chance(500);
    let last_event = (!by_query && known.last > 0).then_some(known.last);
    let path = match known.last {
        last if by_query && last > 0 => format!("{path}?lastSeq={last}"),
        _ => path,
    };
    let asked = Asked { last_event, ..Asked::new(app, "GET", &path) };
    // A stream that was opened before stays as it is.
    let is_kept = world.state().is_durable(&known);
    let Some(Opened { response, _connection }) = open(world, asked.breaking(world)).await else {
        return;
    };
    if response.status() != 200 {
        let status = response.status();
        world.step(format!("{}: the stream of {} is refused: {status}", ["a", "b"][app], known.id));
        return;
    }
    {
        let mut state = world.state();
        // A replica that does not drive the run serves its stream as well.
        if !state.are_replicas() {
            state.wake(&known.id);
        }
    }
    let mut body = response.into_body();
    let mut text = String::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(bytes) = frame.into_data() else { continue };
        text.push_str(std::str::from_utf8(&bytes).expect("MANTYX has sent ASCII alone"));
        let slow = world.state().chance(20);
        if slow {
            world.pause(Duration::from_secs(5)).await;
        }
        while let Some((event, rest)) = text.split_once("\n\n") {
            let event = event.to_owned();
            text = rest.to_owned();
            world.state().check_event(app, at, &event, is_kept);
        }
    }
}

impl State {
    /// The law of streams: no gap, no event twice, nothing else than MANTYX has said.
    fn check_event(&mut self, app: usize, at: usize, event: &str, is_kept: bool) {
        let field = |name: &str| {
            let mut lines = event.lines();
            lines.find_map(|line| line.strip_prefix(name)).map(|it| it.trim_start().to_owned())
        };
        let Some(data) = field("data:") else { return };
        let data: Value = serde_json::from_str(&data).expect("MANTYX has sent JSON alone");
        let kind = field("event:").unwrap_or_default();
        let known = self.apps[app].runs[at].clone();
        if known.is_eval {
            self.check_event_of_eval(app, at, &kind, &data, is_kept);
            return;
        }
        let seq: usize = field("id:").and_then(|id| id.parse().ok()).unwrap_or_default();
        self.apps[app].runs[at].last = seq;
        let run = &self.mantyx.runs[&known.id];
        let Some(said) = run.log.get(seq.wrapping_sub(1)) else {
            return self.breaks(format!("{} has no event {seq}: {event}", known.id));
        };
        // A client stops reading there, also if an earlier event was left out.
        if matches!(kind.as_str(), "result" | "error" | "cancelled") {
            self.apps[app].runs[at].has_ended = true;
        }
        let is_passed = !known.is_driven || !is_kept;
        if seq != known.last + 1 && is_passed {
            // The bridge passes MANTYX's bytes through, repetitions and changed order included.
            return;
        }
        // What came behind a later event is left out, as the app has read past it.
        if seq != known.last + 1 && !(run.is_reordered && seq > known.last) {
            let what = format!("{}: event {seq} came after {}", known.id, known.last);
            return self.breaks(what);
        }
        let call = said.tool_use.as_ref().map(|id| (id.clone(), run.calls[id].is_bridges));
        let is_bridges = call.as_ref().is_some_and(|(_, is_bridges)| *is_bridges);
        let is_masked = kind == "tool_call" && is_bridges;
        // A run that was handed over may have tools that the bridge has not any more.
        let must_mask = is_bridges && !is_passed && !known.is_attached;
        let expected = if must_mask { "tool_call" } else { said.kind };
        if kind != expected && !is_masked {
            let what = format!("{}: event {seq} is {kind} in place of {expected}", known.id);
            return self.breaks(what);
        }
        if let (Some((tool_use, _)), true) = (&call, is_masked) {
            let seen = (known.id.clone(), tool_use.clone());
            self.apps[app].seen.push(seen);
        }
        // What an app is shown is its own to answer.
        let is_own = !is_bridges || known.is_driven;
        if let (Some((tool_use, _)), "local_tool_call", true) = (call, kind.as_str(), is_own) {
            self.apps[app].own.push((known.id.clone(), tool_use));
        }
    }

    /// Whether all replicas can know of the run: the write that begins it is committed.
    fn is_durable(&self, known: &Known) -> bool {
        let kind = if known.is_eval { RunKind::Eval } else { RunKind::Agent };
        let run = RunKey { workspace: "acme".into(), kind, run: known.id.as_str().into() };
        self.server.as_ref().is_none_or(|server| server.knows_run(&run))
    }

    fn check_event_of_eval(
        &mut self,
        app: usize,
        at: usize,
        kind: &str,
        data: &Value,
        is_kept: bool,
    ) {
        let known = self.apps[app].runs[at].clone();
        let id = known.id;
        if kind == "local_tool_call" {
            let tool_use = data["toolUseId"].as_str().unwrap_or_default().to_owned();
            let agent_run = data["agentRunId"].as_str().unwrap_or_default().to_owned();
            let is_bridges =
                self.mantyx.runs[&id].calls.get(&tool_use).is_none_or(|it| it.is_bridges);
            if is_bridges && known.is_driven && is_kept {
                return self.breaks(format!("{id}: {tool_use} is shown to its app"));
            }
            if !self.apps[app].own.iter().any(|(_, it)| *it == tool_use) {
                self.apps[app].own.push((agent_run, tool_use));
            }
        }
        if kind.starts_with("run_") {
            self.apps[app].runs[at].has_ended = true;
        }
    }
}
