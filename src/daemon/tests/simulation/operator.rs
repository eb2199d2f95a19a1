//! The operator: decides what waits for a person, and changes bridge.yaml while the daemon runs.

use std::collections::BTreeSet;
use std::fs;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::apps;
use super::apps::Asked;
use super::world::{State, World};
use crate::model::call::CallRequest;

/// What bridge.yaml allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of the file")]
pub(super) struct Permissions {
    b_has_hr: bool,
    a_may_write: bool,
    fs_may_write: bool,
    fs_asks: bool,
    hr_is_there: bool,
}

/// The file, and what is known of it.
pub(super) struct Rules {
    pub(super) dir: PathBuf,
    now: Permissions,
    /// What the file says, if the daemon has not read that yet.
    next: Option<Permissions>,
    /// The intents that a person has approved.
    approved: BTreeSet<String>,
    /// What a person has answered to the question of a call: its intent, and the number.
    answered: BTreeSet<(String, u64)>,
}

impl Default for Rules {
    fn default() -> Self {
        let now = Permissions {
            b_has_hr: true,
            a_may_write: true,
            fs_may_write: true,
            fs_asks: true,
            hr_is_there: true,
        };
        Self {
            dir: PathBuf::new(),
            now,
            next: None,
            approved: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }
}

impl Permissions {
    fn yaml(self, dir: &std::path::Path) -> String {
        let Self { b_has_hr, a_may_write, fs_may_write, fs_asks, hr_is_there } = self;
        let if_not = |is: bool, text: &'static str| if is { "" } else { text };
        let hr = if hr_is_there { ", hr" } else { "" };
        let b = if b_has_hr { hr } else { "" };
        let asks = if fs_asks { "[ask]" } else { "[]" };
        let hr_entry = match hr_is_there {
            true => {
                "  hr: {url: 'http://127.0.0.1:2/mcp', pending_after: 20s, pin: off, offer: search, quota: {calls: 6, per: 60s}}\n"
            }
            false => "",
        };
        format!(
            "listen: {{unix: {dir}/socket, hosts: [bridge]}}\n\
             upstream: {{base_url: 'http://127.0.0.1:9', workspace: acme, credential: key_of_mantyx}}\n\
             state_dir: {dir}/state\n\
             apps:\n\
             \x20 a: {{token: token_of_the_app_a, backends: [fs{hr}]{a}}}\n\
             \x20 b: {{token: token_of_the_app_b, credential: passthrough, backends: [fs{b}]}}\n\
             mcp:\n\
             \x20 fs: {{command: /simulated/fs, start: lazy, idle_stop: 20s, trust_annotations: true, approve: {asks}, pin: off{fs}}}\n\
             {hr_entry}",
            dir = dir.display(),
            a = if_not(a_may_write, ", tools: {fs: {deny: [write, ask]}}"),
            fs = if_not(fs_may_write, ", tools: {deny: [write]}"),
        )
    }

    fn allow(self, app: &str, backend: &str, tool: &str) -> bool {
        match (backend, tool) {
            ("hr", _) => self.hr_is_there && (app == "a" || self.b_has_hr),
            ("fs", "write") => self.fs_may_write && (app != "a" || self.a_may_write),
            ("fs", "ask") => app != "a" || self.a_may_write,
            _ => true,
        }
    }
}

impl Rules {
    /// The operator's secret.
    pub(super) fn secret(&self) -> String {
        let files = ["state/operator", "0/state/operator"].map(|path| self.dir.join(path));
        let found = files.into_iter().find_map(|path| fs::read_to_string(path).ok());
        found.expect("the operator has a secret")
    }

    /// Writes the file of a replica, in its own directory; the file.
    pub(super) fn write_replica(&self, at: usize, timeout: &str) -> PathBuf {
        let dir = self.dir.join(at.to_string());
        let state = dir.join("state");
        DirBuilder::new().recursive(true).mode(0o700).create(&state).expect("memory has room");
        let operator = state.join("operator");
        fs::write(&operator, format!("mbo_{}", "0".repeat(64))).expect("memory has room");
        fs::set_permissions(&operator, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let url = "postgres://bridge@127.0.0.1:3/bridge";
        let text = format!(
            "{}state: {{postgres: '{url}', statement_timeout: {timeout}}}\n",
            self.now.yaml(&dir)
        );
        let path = dir.join("bridge.yaml");
        fs::write(&path, text).expect("memory has room");
        path
    }
}

impl State {
    pub(super) fn write_yaml(&mut self) {
        let text = self.rules.next.unwrap_or(self.rules.now).yaml(&self.rules.dir);
        fs::write(self.rules.dir.join("bridge.yaml"), text).expect("the file can be written");
    }

    /// The daemon has read the file.
    pub(super) fn rules_are_taken(&mut self) {
        if let Some(next) = self.rules.next.take() {
            if self.rules.now.hr_is_there != next.hr_is_there {
                // The counts of its quota begin again at zero.
                self.peers.sent.clear();
            }
            self.rules.now = next;
            self.step(format!("operator: in force: {next:?}"));
        }
    }

    /// Changes one line of bridge.yaml, unless the daemon has not read the last change yet.
    pub(super) fn change_rules(&mut self) -> bool {
        if self.rules.next.is_some() || self.are_replicas() {
            return false;
        }
        let mut next = self.rules.now;
        let flags = [
            &mut next.b_has_hr,
            &mut next.a_may_write,
            &mut next.fs_may_write,
            &mut next.fs_asks,
            &mut next.hr_is_there,
        ];
        let which = self.below(flags.len());
        for (at, flag) in flags.into_iter().enumerate() {
            *flag ^= at == which;
        }
        self.rules.next = Some(next);
        self.step(format!("operator: changes the file to {next:?}"));
        self.write_yaml();
        true
    }

    /// The law of questions: a server is given what a person has answered to this one.
    pub(super) fn check_answer(&mut self, intent: &str, result: &Value) -> bool {
        let is_accepted = result["action"] == "accept";
        let number = result["content"]["n"].as_u64().unwrap_or(u64::MAX);
        if is_accepted && !self.rules.answered.contains(&(intent.to_owned(), number)) {
            self.breaks(format!("{intent} was answered with {result}, which no person has said"));
        }
        is_accepted
    }

    /// The law of dispatches: what is sent may be sent now.
    pub(super) fn check_dispatch(&mut self, backend: &str, request: &CallRequest, intent: &str) {
        let (app, tool) = (request.app.as_str(), request.tool());
        let may = [Some(self.rules.now), self.rules.next]
            .into_iter()
            .flatten()
            .any(|rules| rules.allow(app, backend, tool));
        if !may {
            self.breaks(format!("{tool} of {backend} was sent for {app}, which may not use it"));
        }
        let asks = self.rules.now.fs_asks && self.rules.next.is_none_or(|next| next.fs_asks);
        if asks && (backend, tool) == ("fs", "ask") && !self.rules.approved.contains(intent) {
            self.breaks(format!("{tool} for {intent} was sent and no person had approved it"));
        }
    }
}

/// Acts until there are no more acts.
pub(super) async fn operate(world: Arc<World>) {
    loop {
        world.pause(Duration::from_secs(40)).await;
        world.if_alive().await;
        let (may_act, reloads) = {
            let mut state = world.state();
            if !state.are_replicas() && state.fault(50) {
                state.set_clock(-7_200_000..7_200_000);
            }
            (state.act(), state.chance(300))
        };
        if reloads && may_act {
            change(&world);
        } else {
            // What waits for a person is decided in the end.
            decide(&world, !may_act).await;
        }
    }
}

fn change(world: &World) {
    if world.state().change_rules() {
        world.file_changed.notify_one();
    }
}
async fn decide(world: &Arc<World>, all: bool) {
    let asked = Asked { operator: true, ..Asked::new(0, "GET", "/v1/approvals") };
    let Some((200, list)) = apps::ask(world, asked).await else { return };
    let waiting: Vec<Value> = list["approvals"].as_array().cloned().unwrap_or_default();
    for one in waiting.iter().filter(|one| one["state"] == "waiting") {
        let (ignores, denies, twice) = {
            let mut state = world.state();
            (state.chance(300), state.chance(300), state.chance(200))
        };
        if ignores && !all {
            continue;
        }
        let id = one["id"].as_str().unwrap_or_default();
        let intent = one["arguments"]["intent"].as_str().unwrap_or_default().to_owned();
        let is_question = one["kind"] == "question";
        let decision = match (denies, is_question) {
            (true, _) => "deny",
            (false, true) => "answer",
            (false, false) => "approve",
        };
        for _ in 0..1 + usize::from(twice) {
            let mut body = json!({ "decision": decision });
            let number = {
                let mut state = world.state();
                // The server takes numbers below ten.
                let number = state.below(12) as u64;
                state.step(format!("operator: {decision} {intent} {number}"));
                if is_question && !denies && number < 10 {
                    state.rules.answered.insert((intent.clone(), number));
                } else if !denies && !is_question {
                    state.rules.approved.insert(intent.clone());
                }
                number
            };
            if decision == "answer" {
                body["content"] = json!({ "n": number });
            }
            let path = format!("/v1/approvals/{id}");
            let body = body.to_string();
            let asked = Asked { operator: true, body, ..Asked::new(0, "POST", &path) };
            let answer = apps::ask(world, asked).await;
            if let (Some((200..=299, _)), true, 10..) = (answer, decision == "answer", number) {
                world.state().breaks(format!("the answer {number} to {intent} was taken"));
            }
        }
    }
}
