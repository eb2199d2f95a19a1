//! The bridge beside the official clients of other runtimes, on the same stand-ins: the same calls
//! get the same answers. Where they differ on purpose, the test says how.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{KEY, Rig};
use crate::{
    effects::Effects,
    peers::{self, fetch, repository},
    process::Group,
    wait,
};

/// An interpreter on two busy cores takes its time to start.
const START: Duration = Duration::from_secs(60);

/// A rig whose server is ledger_mcp.py, and the program on the official client beside it.
struct Pair {
    rig: Rig,
    theirs: Option<Group>,
    program: Command,
    // The last field: the program writes its log there.
    dir: TempDir,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the official client:\n{}---", self.said());
        }
    }
}

impl Pair {
    async fn start(wire: &str, python: PathBuf, script: &str) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let ours = peers::ledger(&dir.path().join("ours"), &[]);
        let rig = Rig::serving(wire, &ours, Effects::new()).await;
        let mut program = Command::new(python);
        program.arg(repository("tests/peers").join(script)).args([rig.runtimes.url(), KEY]);
        program.env("PYTHONUNBUFFERED", "1");
        Self { rig, theirs: None, program, dir }
    }

    /// Starts the program on the official client.
    fn start_theirs(&mut self) {
        self.theirs = Some(Group::spawn(&mut self.program, &self.dir.path().join("log")));
    }

    async fn wait_listener(&self, stream: &str) {
        wait::until(&format!("{stream} should be heard"), START, async || {
            (self.rig.state().await["listeners"][stream] == 1).then_some(())
        })
        .await;
    }

    /// What the program has printed.
    fn said(&self) -> String {
        self.theirs.as_ref().map(Group::log).unwrap_or_default()
    }

    /// How often a ledger has a call of `tool`.
    fn made(&self, ledger: &str, tool: &str) -> usize {
        let text = fs::read_to_string(self.dir.path().join(ledger)).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["tool"] == tool).count()
    }
}

impl Pair {
    /// The posts of both for the calls `id`, ours first, without what tells them apart.
    async fn answers(&self, id: &str) -> [Value; 2] {
        let mut both = [Value::Null, Value::Null];
        for (side, answer) in ["ours", "theirs"].iter().zip(&mut both) {
            let id = format!("{id}-{side}");
            let mut posts = self.rig.posts(&id).await;
            let post = posts.remove(0);
            assert!(posts.is_empty(), "{posts:?}");
            let text = post.to_string();
            let text = text.replace(&id, "ID").replace("s-theirs", "s-ours");
            *answer = serde_json::from_str(&text).expect("it was JSON");
        }
        both
    }
}

/// The words of the error that both have posted, whose form must be the same.
fn errors_of_v7([ours, theirs]: &[Value; 2]) -> [String; 2] {
    let words = |post: &Value| {
        let error = &post["body"]["result"]["error"];
        let words = error.as_str().unwrap_or_else(|| panic!("no error: {post}")).to_owned();
        let form = json!({ "result": { "error": words } });
        assert_eq!(post["body"], form);
        words
    };
    let mut bare = [ours.clone(), theirs.clone()];
    bare.iter_mut().for_each(|post| post["body"] = Value::Null);
    assert_eq!(bare[0], bare[1]);
    [words(ours), words(theirs)]
}

#[tokio::test]
async fn hsafas_own_client_and_the_bridge_speak_alike() {
    let mut pair = Pair::start("v7", fetch::python_hsafa(), "hsafa_service.py").await;
    pair.start_theirs();
    pair.wait_listener("v7/team").await;
    pair.wait_listener("v7/intranet").await;

    let state = pair.rig.state().await;
    let tool = |skill: &str, name: &str| {
        let tools = state["tools"][skill][0].as_array().expect("a list");
        tools.iter().find(|tool| tool["name"] == name).expect("it is registered").clone()
    };
    for name in ["plain_note", "plain_args", "plain_fail"] {
        assert_eq!(tool("intranet", name), tool("team", name));
    }
    // The SDK makes a schema of its short form, and closes it; a server's schema passes as it is.
    let mut theirs = tool("team", "plain_slow")["inputSchema"].clone();
    let closed = theirs.as_object_mut().expect("an object").remove("additionalProperties");
    assert_eq!(closed, Some(json!(false)));
    assert_eq!(tool("intranet", "plain_slow")["inputSchema"], theirs);
    // The SDK registers its tools, and then listens. The bridge listens first, so that no call of a
    // registered tool finds no listener.
    let requests: Vec<_> = state["requests"].as_array().expect("a list").iter().collect();
    let place = |what: &str| requests.iter().position(|one| *one == what).expect("it was asked");
    let paths = |skill: &str| {
        let path = format!("/api/v7/skills/{skill}");
        (place(&format!("PUT {path}/tools")), place(&format!("GET {path}/actions/stream")))
    };
    let ((put_ours, get_ours), (put_theirs, get_theirs)) = (paths("intranet"), paths("team"));
    assert!(get_ours < put_ours && put_theirs < get_theirs, "{requests:?}");

    let ask = async |id: &str, tool: &str, args: Value| {
        for (wire, side) in [("v7/intranet", "ours"), ("v7/team", "theirs")] {
            let id = format!("{id}-{side}");
            assert_eq!(pair.rig.ask(wire, &id, tool, args.clone()).await, 1);
        }
        pair.answers(id).await
    };
    let [ours, theirs] = ask("a1", "plain_note", json!({ "text": "t\u{e9} \u{1f375}\n" })).await;
    assert_eq!(ours, theirs);
    let fails = errors_of_v7(&ask("a2", "plain_fail", json!({})).await);
    let unknown = errors_of_v7(&ask("a3", "not_there", json!({})).await);
    let invalid = errors_of_v7(&ask("a4", "plain_note", json!({ "text": 7 })).await);
    assert_eq!(fails[0], fails[1]);
    // Each names in its own words a tool that it does not have.
    assert_eq!(unknown[0], "The bridge has no tool `not_there`.");
    assert_eq!(unknown[1], "No handler registered for tool \"not_there\"");
    // The bridge checks arguments before the call; the SDK leaves that to the tool.
    assert!(invalid[0].starts_with("tool_input_invalid"), "{invalid:?}");
    assert!(invalid[1].contains("can only concatenate"), "{invalid:?}");
    // An action may come without arguments.
    for (wire, side) in [("v7/intranet", "ours"), ("v7/team", "theirs")] {
        let id = format!("a5-{side}");
        let event = json!({ "type": "action", "actionId": id, "toolName": "plain_args" });
        let text = format!("data: {event}\n\n");
        pair.rig.control("raw", json!({ "wire": wire, "text": text, "call": id })).await;
    }
    let [ours, theirs] = pair.answers("a5").await;
    assert_eq!(ours, theirs);
    // Other events are nothing to be answered, and a broken stream is opened again by both.
    for wire in ["v7/intranet", "v7/team"] {
        let event = json!({ "type": "run.started", "data": { "runId": "r" } });
        let text = format!("data: {event}\n\n");
        pair.rig.control("raw", json!({ "wire": wire, "text": text })).await;
        pair.rig.control("close", json!({ "wire": wire })).await;
    }
    wait::soon("both should listen again", async || {
        let state = pair.rig.state().await;
        let requests = state["requests"].as_array().expect("a list").iter();
        let streams = requests.filter(|one| one.as_str().expect("a text").ends_with("/stream"));
        let listeners = &state["listeners"];
        (streams.count() == 4 && listeners["v7/team"] == 1 && listeners["v7/intranet"] == 1)
            .then_some(())
    })
    .await;
    let [ours, theirs] = ask("a6", "plain_note", json!({ "text": "again" })).await;
    assert_eq!(ours, theirs);
    let state = pair.rig.state().await;
    assert_eq!(state["posts"].as_array().expect("a list").len(), 12);
    // The SDK has registered its tools once. The bridge does so on each stream, in case the runtime
    // has lost them.
    let times = |skill: &str| state["tools"][skill].as_array().expect("a list").len();
    assert!(times("team") == 1 && times("intranet") > 1);
}

/// A session of Claude's, its environment, and whose it is.
struct Session {
    id: &'static str,
    environment: &'static str,
    side: &'static str,
}

const SESSIONS: [Session; 2] = [
    Session { id: "s-ours", environment: "env_1", side: "ours" },
    Session { id: "s-theirs", environment: "env_2", side: "theirs" },
];

impl Pair {
    async fn of_claude() -> Self {
        let mut pair = Self::start("claude", fetch::python_models(), "claude_worker.py").await;
        let ledger = pair.dir.path().join("theirs");
        pair.program.arg("env_2").arg(ledger);
        for Session { id, environment, .. } in SESSIONS {
            let session = json!({ "id": id, "environment": environment });
            pair.rig.control("session", session).await;
        }
        pair.start_theirs();
        pair.wait_listener("s-ours").await;
        pair.wait_listener("s-theirs").await;
        pair
    }

    async fn ask_both(&self, id: &str, tool: &str, args: Value) {
        for Session { id: session, side, .. } in SESSIONS {
            self.rig.ask(session, &format!("{id}-{side}"), tool, args.clone()).await;
        }
    }
}

#[tokio::test]
async fn anthropics_own_worker_and_the_bridge_answer_alike() {
    let pair = Pair::of_claude().await;
    let ask = async |id: &str, tool: &str, args: Value| {
        pair.ask_both(id, tool, args).await;
        pair.answers(id).await
    };
    struct Case {
        id: &'static str,
        tool: &'static str,
        args: Value,
    }
    for Case { id, tool, args } in [
        Case { id: "c1", tool: "plain_note", args: json!({ "text": "t\u{e9} \u{1f375}\n" }) },
        // An empty result, a large one, and one that says that it is an error.
        Case { id: "c2", tool: "plain_big", args: json!({ "bytes": 0 }) },
        Case { id: "c3", tool: "plain_big", args: json!({ "bytes": 60_000 }) },
        Case { id: "c4", tool: "plain_fail", args: json!({}) },
    ] {
        let [ours, theirs] = ask(id, tool, args).await;
        assert_eq!(ours, theirs);
    }
    // Both refuse arguments that do not fit, in words of their own.
    let mut both = ask("c5", "plain_note", json!({ "text": [7] })).await;
    let words = both.each_mut().map(|post| post["body"]["content"][0]["text"].take());
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0]["body"]["is_error"], true);
    assert!(words[0].as_str().expect("a text").starts_with("tool_input_invalid"), "{words:?}");
    // Neither answers a tool that it does not have, since its owner may. Nothing else is posted.
    pair.ask_both("c6", "browse", json!({})).await;
    let [ours, theirs] = ask("c7", "plain_note", json!({ "text": "last" })).await;
    assert_eq!(ours, theirs);
    let state = pair.rig.state().await;
    assert_eq!(state["posts"].as_array().expect("a list").len(), 12);
    assert_eq!(pair.made("ours", "note"), pair.made("theirs", "note"));
    // Their worker has asked of an item whatever the bridge asks.
    let requests = |session: &str, environment: &str| {
        let requests = state["requests"].as_array().expect("a list").iter();
        let requests = requests.map(|one| one.as_str().expect("a text").to_owned());
        let own = requests.filter(|one| one.contains(session) || one.contains(environment));
        own.map(|one| one.replace(session, "S").replace(environment, "E")).collect::<BTreeSet<_>>()
    };
    assert_eq!(requests("s-ours", "env_1"), requests("s-theirs", "env_2"));
}

#[tokio::test]
async fn a_crash_has_anthropics_own_worker_repeat_a_call_and_not_the_bridge() {
    let mut pair = Pair::of_claude().await;
    let gate = pair.dir.path().join("gate");
    pair.ask_both("c1", "plain_slow", json!({ "text": gate })).await;
    wait::soon("both should have begun", async || {
        (pair.made("ours", "slow") == 1 && pair.made("theirs", "slow") == 1).then_some(())
    })
    .await;
    pair.rig.bridge.kill9();
    pair.theirs.as_mut().expect("it runs").kill9();
    fs::write(&gate, "").expect("the test's directory is writable");
    pair.rig.control("lapse", json!({})).await;
    pair.start_theirs();
    pair.rig.bridge.restart().await;
    let [ours, theirs] = pair.answers("c1").await.map(|mut post| post["body"].take());
    // Their worker asks for every call without a result again, as if it had not been made.
    assert_eq!(
        (&theirs["is_error"], &theirs["content"][0]["text"]),
        (&json!(false), &json!("slept"))
    );
    assert_eq!(pair.made("theirs", "slow"), 2);
    let text = ours["content"][0]["text"].as_str().expect("a text");
    assert!(ours["is_error"] == true && text.contains("OUTCOME_UNKNOWN"), "{ours}");
    pair.rig.settled().await;
    assert_eq!(pair.made("ours", "slow"), 1);
}
