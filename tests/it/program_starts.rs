//! Programs that start slowly, only when they are used, or not at all.

use std::{
    collections::BTreeMap, fs, path::PathBuf, thread::available_parallelism, time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{bridge::Bridge, harness::new_dir, mcp_server::Client, peers, wait};

/// The directory that steers the servers of tests/peers/starting_mcp.py.
struct Servers(TempDir);

impl Servers {
    fn new() -> Self {
        Self(new_dir())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// The server `name` answers nothing until [`Self::release`].
    fn hold(&self, name: &str) {
        fs::write(self.path(&format!("{name}.hold")), "").expect("a file");
    }

    fn release(&self, name: &str) {
        fs::remove_file(self.path(&format!("{name}.hold"))).expect("it was held");
    }

    /// The configuration with these servers; `keys` stand in each entry.
    fn config(&self, names: &[&str], keys: &str) -> String {
        let mut text = "upstream: {sandbox: true}\nmcp:\n".to_owned();
        for name in names {
            let directory = self.0.path().to_str().expect("UTF-8");
            let entry = peers::starting(name, directory).replacen('{', &format!("{{{keys}"), 1);
            text += &format!("  {name}: {entry}\n");
        }
        text
    }

    /// How often each event has happened: `begun a`, `ready a`.
    fn events(&self) -> BTreeMap<String, usize> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let mut events = BTreeMap::new();
        for line in log.lines() {
            *events.entry(line.to_owned()).or_default() += 1;
        }
        events
    }

    fn count(&self, event: &str) -> usize {
        self.events().get(event).copied().unwrap_or_default()
    }

    /// How many servers have begun to start.
    fn begun(&self) -> usize {
        self.events().keys().filter(|event| event.starts_with("begun")).count()
    }

    async fn wait_for(&self, event: &str, times: usize) {
        let what = format!("{event} should happen {times} times");
        wait::soon(&what, async || (self.count(event) >= times).then_some(())).await;
    }
}

async fn call(bridge: &Bridge, tool: &str) -> Value {
    let event = json!({"toolUseId": "tu_1", "kind": "mcp_local", "name": tool, "args": {}});
    bridge.api("POST", "/v1/tool-calls", Some(&event.to_string())).await.expect(200)
}

/// The server's process id, as its tool answers it.
async fn called_pid(bridge: &Bridge, tool: &str) -> String {
    let answer = call(bridge, tool).await;
    answer["result"].as_str().unwrap_or_else(|| panic!("no result: {answer}")).to_owned()
}

#[tokio::test]
async fn programs_take_turns_to_start_and_each_starts_once() {
    let servers = Servers::new();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    names.iter().for_each(|name| servers.hold(name));
    let places = available_parallelism().map_or(2, usize::from).clamp(2, names.len() - 1);
    let bridge = Bridge::start(&servers.config(&names, "")).await;
    let enough = async || (servers.begun() >= places).then_some(());
    wait::soon("as many programs as have a turn should start", enough).await;
    assert_eq!(servers.begun(), places, "{:?}", servers.events());
    assert_eq!(bridge.backend("h").await["state"], "starting");
    for name in names {
        servers.release(name);
    }
    for name in names {
        bridge.wait_backend(name, "ready").await;
        assert_eq!(servers.count(&format!("begun {name}")), 1);
        assert_eq!(servers.count(&format!("term {name}")), 0);
    }
}

#[tokio::test]
async fn programs_start_in_the_order_of_the_file_and_what_is_required_first() {
    let servers = Servers::new();
    let names = ["h", "g", "f", "e", "d", "c", "b", "a"];
    names.iter().for_each(|name| servers.hold(name));
    let config = servers.config(&names, "");
    let config = config.replace("  c: {", "  c: {required: true, ");
    let places = available_parallelism().map_or(2, usize::from).clamp(2, names.len());
    let bridge = Bridge::start(&config).await;
    let enough = async || (servers.begun() >= places).then_some(());
    wait::soon("as many programs as have a turn should start", enough).await;
    let mut order = vec!["c"];
    order.extend(names.iter().filter(|name| **name != "c"));
    let first: BTreeMap<_, _> =
        order.iter().take(places).map(|name| (format!("begun {name}"), 1)).collect();
    assert_eq!(servers.events(), first);
    if places < names.len() {
        assert_eq!(bridge.backend(order[places]).await["queued"], true);
    }
    assert_eq!(bridge.backend("c").await["queued"], false);
    for name in names {
        servers.release(name);
    }
    bridge.wait_backend("a", "ready").await;
}

#[tokio::test]
async fn starting_program_is_shown_with_its_last_output() {
    let servers = Servers::new();
    servers.hold("slow");
    let bridge = Bridge::start(&servers.config(&["slow"], "")).await;
    servers.wait_for("begun slow", 1).await;
    let shown = wait::soon("its output should be shown", async || {
        let status = bridge.status().await;
        let backend = status["backends"][0].clone();
        (backend["lastOutput"] == "installing 3 packages").then_some(backend)
    })
    .await;
    assert_eq!(shown["state"], "starting");
    assert!(shown["since"].is_string(), "{shown}");
    let seen = bridge.app_status().await["backends"][0].clone();
    assert_eq!((&seen["state"], &seen["lastOutput"]), (&"starting".into(), &Value::Null));
    servers.release("slow");
    bridge.wait_backend("slow", "ready").await;
}

#[tokio::test]
async fn call_of_a_starting_program_is_made_once_it_has_started() {
    let servers = Servers::new();
    let config = servers.config(&["slow"], "");
    let mut bridge = Bridge::start(&config).await;
    bridge.wait_backend("slow", "ready").await;
    bridge.stop().await;
    servers.hold("slow");
    bridge.spawn();
    bridge.wait_listening().await;
    servers.wait_for("begun slow", 2).await;
    let released = async {
        let waits = async || {
            let slow = bridge.backend("slow").await;
            (slow["callsInFlight"] == 1).then_some(())
        };
        wait::soon("the call should wait", waits).await;
        servers.release("slow");
    };
    let (pid, ()) = tokio::join!(called_pid(&bridge, "slow_pid"), released);
    assert!(pid.parse::<u32>().is_ok(), "{pid}");
}

#[tokio::test]
async fn starting_program_has_time_to_end_at_a_stop() {
    let servers = Servers::new();
    servers.hold("slow");
    let mut bridge = Bridge::start(&servers.config(&["slow"], "")).await;
    servers.wait_for("begun slow", 1).await;
    bridge.stop().await;
    assert_eq!(servers.count("term slow"), 1);
    assert_eq!(servers.count("ended slow"), 1, "it was not cut off");
}

#[tokio::test]
async fn changed_entry_starts_when_its_earlier_start_has_ended() {
    let servers = Servers::new();
    servers.hold("slow");
    let mut bridge = Bridge::start(&servers.config(&["slow"], "")).await;
    servers.wait_for("begun slow", 1).await;
    servers.release("slow");
    servers.hold("slow");
    let more = servers.config(&["slow"], "env: {CHANGED: '1'}, ");
    bridge.set_config(&more);
    servers.wait_for("begun slow", 2).await;
    let log = fs::read_to_string(servers.path("log")).expect("a log");
    assert_eq!(log, "begun slow\nterm slow\nended slow\nbegun slow\n");
    servers.release("slow");
    bridge.wait_backend("slow", "ready").await;
}

#[tokio::test]
async fn lazy_program_is_started_by_its_first_call() {
    let servers = Servers::new();
    let mut bridge = Bridge::start(&servers.config(&["lazy"], "start: lazy, ")).await;
    // Without a kept catalog, it is started to be read.
    bridge.wait_backend("lazy", "ready").await;
    let kept = bridge.state("catalogs/lazy.json");
    wait::soon("its catalog should be kept", async || kept.exists().then_some(())).await;
    bridge.stop().await;
    bridge.restart().await;
    let idle = bridge.wait_backend("lazy", "idle").await;
    assert_eq!((&idle["tools"], &idle["stale"]), (&json!(1), &json!(false)));
    assert_eq!(servers.count("begun lazy"), 1);
    called_pid(&bridge, "lazy_pid").await;
    assert_eq!(servers.count("begun lazy"), 2);
    bridge.wait_backend("lazy", "ready").await;
}

#[tokio::test]
async fn features_of_an_idle_program_are_listed_and_a_read_starts_it() {
    let servers = Servers::new();
    let mut bridge = Bridge::start(&servers.config(&["lazy"], "start: lazy, ")).await;
    bridge.wait_backend("lazy", "ready").await;
    let kept = bridge.state("catalogs/lazy.json");
    wait::soon("its resources should be kept", async || {
        let text = fs::read_to_string(&kept).unwrap_or_default();
        text.contains("pid:own").then_some(())
    })
    .await;
    struct Case {
        request: &'static str,
        params: &'static str,
        begun: usize,
    }
    for Case { request, params, begun } in [
        Case { request: "resources/read", params: r#""uri":"pid:own""#, begun: 2 },
        Case { request: "prompts/get", params: r#""name":"lazy_ask""#, begun: 3 },
    ] {
        bridge.stop().await;
        bridge.restart().await;
        bridge.wait_backend("lazy", "idle").await;
        let client = Client::with_session(&bridge).await;
        let resources = client.answer("resources/list", "").await.expect(200);
        assert_eq!(resources["result"]["resources"][0]["uri"], "pid:own", "{resources}");
        let prompts = client.answer("prompts/list", "").await.expect(200);
        assert_eq!(prompts["result"]["prompts"][0]["name"], "lazy_ask", "{prompts}");
        assert_eq!(servers.count("begun lazy"), begun - 1, "{request}: a list starts nothing");
        let answer = client.answer(request, params).await.expect(200);
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(servers.count("begun lazy"), begun, "{request}");
        let shown = bridge.request("GET", "/v1/backends");
        let shown = shown.header("X-Bridge-Operator", &bridge.operator());
        let shown = shown.answer(bridge.addr()).await.expect(200);
        let is_noted = shown["backends"][0]["lastSessionCall"].is_string();
        assert!(is_noted, "{request} counts as a use by a session: {shown}");
    }
}

#[tokio::test]
async fn unused_program_is_ended_and_its_next_call_starts_it() {
    let servers = Servers::new();
    let bridge = Bridge::start(&servers.config(&["brief"], "idle_stop: 1s, ")).await;
    bridge.wait_backend("brief", "idle").await;
    servers.wait_for("ended brief", 1).await;
    bridge.wait_childless().await;
    let first = called_pid(&bridge, "brief_pid").await;
    bridge.wait_backend("brief", "idle").await;
    let second = called_pid(&bridge, "brief_pid").await;
    assert_ne!(first, second);
}

/// Asserts how many lines about `backend` in `log` have `text`.
#[track_caller]
fn assert_logged(log: &str, backend: &str, text: &str, expected: usize) {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(backend)).collect();
    let count = lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count, expected, "`{text}`: {lines:#?}");
}

#[tokio::test]
async fn broken_program_is_told_less_and_less_often() {
    let servers = Servers::new();
    fs::write(servers.path("broken.fails"), "E404 no such package\nsee the log").expect("a file");
    let bridge = Bridge::start(&servers.config(&["broken"], "")).await;
    servers.wait_for("begun broken", 6).await;
    let log = bridge.log();
    assert_logged(&log, "broken", "started the server", 1);
    assert_logged(&log, "broken", "stderr: E404", 1);
    assert_logged(&log, "broken", "the server ended", 1);
    // At the failures 1 and 4.
    assert_logged(&log, "broken", "keeps trying to connect", 2);
    assert_eq!(bridge.backend("broken").await["state"], "down");
}

#[tokio::test]
async fn program_that_ends_after_each_start_is_told_less_and_less_often() {
    let servers = Servers::new();
    fs::write(servers.path("brief.leaves"), "").expect("a file");
    let bridge = Bridge::start(&servers.config(&["brief"], "")).await;
    servers.wait_for("begun brief", 5).await;
    let log = bridge.log();
    assert_logged(&log, "brief", "started the server", 1);
    assert_logged(&log, "brief", "noise on stdout", 1);
    assert_logged(&log, "brief", "the server ended", 1);
}

#[tokio::test]
async fn start_that_takes_too_long_is_given_up() {
    let servers = Servers::new();
    servers.hold("slow");
    let bridge = Bridge::start(&servers.config(&["slow"], "start_timeout: 1s, ")).await;
    let down = bridge.wait_backend("slow", "down").await;
    let why = down["lastError"].as_str().expect("an error");
    assert!(why.contains("did not finish its start within 1s"), "{why}");
    servers.wait_for("term slow", 1).await;
    servers.release("slow");
    let ready = wait::until("it should be ready", Duration::from_secs(120), async || {
        let slow = bridge.backend("slow").await;
        (slow["state"] == "ready").then_some(slow)
    });
    ready.await;
}
