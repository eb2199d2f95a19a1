//! What the models of runs do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{CALL_TIMEOUT, Call, Mantyx, Run};
use crate::daemon::tests::simulation::world::{State, World};

/// Plays all runs, those included that begin later.
pub(in crate::daemon::tests::simulation) async fn play_all(world: Arc<World>) {
    let mut playing = JoinSet::new();
    let mut known = BTreeSet::new();
    loop {
        let news = world.news.notified();
        let new: Vec<String> = {
            let state = world.state();
            let open =
                state.mantyx.runs.iter().filter(|(id, run)| !run.ended && !known.contains(*id));
            open.map(|(id, _)| id.clone()).collect()
        };
        for id in new {
            known.insert(id.clone());
            playing.spawn(play(Arc::clone(&world), id));
        }
        news.await;
    }
}

/// Plays the run to its end, in this life of the process or the next.
async fn play(world: Arc<World>, id: String) {
    loop {
        world.pause(Duration::from_secs(15)).await;
        let ended = world.state().play(&id);
        world.tell();
        if ended {
            return;
        }
    }
}

impl State {
    /// Ends a run from outside its model.
    pub(in crate::daemon::tests::simulation) fn end_run(&mut self, id: &str, kind: &'static str) {
        let Some(run) = self.mantyx.runs.get_mut(id).filter(|run| !run.ended) else { return };
        run.push(run.last(kind), json!({}), None);
        run.ended = true;
    }

    /// One step of the run's model; whether that was the last one.
    fn play(&mut self, id: &str) -> bool {
        let now = self.now();
        let dies = self.fault(4);
        let hides = self.fault(15).then(|| Duration::from_millis(self.below(8_000) as u64));
        let Some(run) = self.mantyx.runs.get_mut(id).filter(|run| !run.ended) else { return true };
        run.note_answers(now);
        if let Some(wait) = hides {
            // Its streams break, and answers find no run.
            run.hidden_until = now + wait;
        }
        if dies {
            self.step(format!("mantyx: {id} fails"));
            self.end_run(id, "error");
            return true;
        }
        let open = run.calls.values().filter(|call| !call.told).count();
        let done = run.left == 0 || self.calm;
        if let Some(run) = self.mantyx.runs.get_mut(id) {
            if run.waits {
                if open == 0 {
                    self.end_run(id, "cancelled");
                }
                return open == 0;
            }
            let fetch = run.pending.pop();
            if let Some(call) = fetch {
                self.call(id, "bridge_call_result", None, &json!({ "callId": call }), true);
                return false;
            }
            if done && open == 0 {
                let last = run.last("result");
                run.push(last, json!({"subtype": "success", "text": "done"}), None);
                run.ended = true;
                self.step(format!("mantyx: {id} has ended"));
                return true;
            }
            if done || open > 2 {
                return false;
            }
            run.left -= 1;
        }
        for _ in 0..1 + self.below(2) {
            self.act_of_model(id);
        }
        false
    }

    fn act_of_model(&mut self, id: &str) {
        let (kind, which) = (self.below(10), self.below(1000));
        let intent = self.id("i");
        let run = &self.mantyx.runs[id];
        let pick = |many: &[(String, Option<String>)]| many.get(which % many.len().max(1)).cloned();
        let tools: Vec<_> =
            run.tools.iter().filter(|(name, _)| name != "bridge_call_result").cloned().collect();
        let own: Vec<_> = run.own.iter().map(|name| (name.clone(), None)).collect();
        let (tool, is_bridges) = match kind {
            0..7 => (pick(&tools), true),
            7 => (pick(&own), false),
            _ => (None, false),
        };
        match tool {
            Some((name, server)) => {
                let args = json!({ "intent": intent });
                let args = match name.as_str() {
                    "bridge_find_tools" => json!({"query": "file something"}),
                    "bridge_call_tool" => {
                        let name = ["hr_file", "hr_task"][which % 2];
                        json!({"name": name, "arguments": args})
                    }
                    _ => args,
                };
                self.call(id, &name, server, &args, is_bridges);
            }
            None => {
                let run = self.mantyx.runs.get_mut(id).expect("it is there");
                let kind = if run.is_eval { "case_started" } else { "assistant_delta" };
                run.push(kind, json!({"text": "hm"}), None);
            }
        }
    }

    fn call(
        &mut self,
        id: &str,
        name: &str,
        server: Option<String>,
        args: &Value,
        is_bridges: bool,
    ) {
        let tool_use = self.id("tu");
        let now = self.now();
        let agent_run = match self.mantyx.runs[id].is_eval {
            true => Some(format!("{id}.{}", self.below(3))),
            false => None,
        };
        self.step(format!("mantyx: {id} calls {name} {args} as {tool_use}"));
        let run = self.mantyx.runs.get_mut(id).expect("it is there");
        let mut data = json!({"toolUseId": tool_use, "name": name, "args": args});
        if let Some(server) = server {
            data["kind"] = "mcp_local".into();
            data["mcpServer"] = server.into();
        }
        if let Some(agent_run) = &agent_run {
            data["agentRunId"] = agent_run.as_str().into();
        }
        run.push("local_tool_call", data, Some(tool_use.clone()));
        let call = Call {
            agent_run,
            name: name.to_owned(),
            intent: [args, &args["arguments"]]
                .into_iter()
                .find_map(|args| args["intent"].as_str())
                .unwrap_or_default()
                .to_owned(),
            asked: now,
            is_bridges,
            posts: Vec::new(),
            tried: None,
            answer: None,
            told: false,
            is_taken: false,
            expired: false,
            is_unkept: false,
            is_excused: false,
        };
        run.calls.insert(tool_use, call);
    }
}

impl Run {
    /// Tells of the answers that have come, and gives up on calls whose time is over.
    fn note_answers(&mut self, now: Duration) {
        let mut told = Vec::new();
        for (tool_use, call) in &mut self.calls {
            call.expired |= call.answer.is_none() && now > call.asked + CALL_TIMEOUT;
            if !call.told && (call.expired || call.answer.is_some()) {
                call.told = true;
                let mut data = json!({"toolUseId": tool_use, "output": "its answer"});
                if let Some(agent_run) = &call.agent_run {
                    data["agentRunId"] = agent_run.as_str().into();
                }
                told.push(data);
            }
        }
        for data in told {
            self.push("local_tool_result_in", data, None);
        }
    }
}

impl Mantyx {
    /// Has a run that is cancelled wait for the bridge's calls, if some are open.
    pub(super) fn waits_for_calls(&mut self, id: &str) -> bool {
        let is_open = |call: &Call| call.is_bridges && call.answer.is_none() && !call.expired;
        let Some(run) = self.runs.get_mut(id).filter(|run| !run.ended) else { return false };
        run.waits = run.calls.values().any(is_open);
        run.waits
    }

    /// Whether the bridge has answered the call with this intent, and could keep the answer.
    pub(in crate::daemon::tests::simulation) fn has_answer(&self, intent: &str) -> bool {
        let mut calls = self.runs.values().flat_map(|run| run.calls.values());
        calls.any(|call| {
            let is_it = call.intent == intent && !call.is_unkept;
            let answer = call.answer.as_ref().filter(|_| is_it);
            answer.is_some_and(|it| it["result"] != "forged")
        })
    }

    /// An app was told that its run is cancelled.
    pub(in crate::daemon::tests::simulation) fn told_cancelled(&mut self, id: &str, now: Duration) {
        if let Some(run) = self.runs.get_mut(id).filter(|run| run.waits) {
            run.cancelled.get_or_insert(now);
        }
    }
}
