//! What MCP servers tell models about their tools: who gets it, and what the operator decides.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cli::{self, OK},
    frames::Script,
    harness::Harness,
    mcp_server::{Client, Stdio},
    peers, wait,
};

/// A bridge with the servers `old` (sessions) and `new` (2026-07-28), whose instructions are files.
struct Scene {
    rig: Harness,
    // The last field: the servers read their instructions there.
    dir: TempDir,
}

impl Scene {
    /// `keys` stand in the entries of both servers, `rest` in the file.
    async fn start(old: &Value, new: &Value, keys: &str, rest: &str) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let entry = |name: &str, text: &Value, args: &[&str]| {
            let path = dir.path().join(name);
            fs::write(&path, text.to_string()).expect("a new directory");
            peers::with(&peers::instructing(&path, args), keys)
        };
        let config = format!(
            "mcp:\n  old: {}\n  new: {}\n{rest}",
            entry("old", old, &[]),
            entry("new", new, &["--modern"])
        );
        let rig = Harness::bare(&config).await;
        for name in ["old", "new"] {
            rig.bridge.wait_backend(name, "ready").await;
        }
        Self { rig, dir }
    }

    /// Both servers have a text; nothing else is configured.
    async fn plain() -> Self {
        Self::start(&json!("Read first."), &json!("Be kind."), "pin: warn", "").await
    }

    /// Gives `old` other instructions, and begins another connection to it.
    async fn becomes(&self, text: &Value) {
        let connections = self.connections();
        fs::write(self.file(), text.to_string()).expect("the test's directory is writable");
        let request = self.rig.bridge.request("POST", "/v1/backends/old/restart").json("{}");
        let request = request.header("X-Bridge-Operator", &self.rig.bridge.operator());
        request.answer(self.rig.bridge.addr()).await.expect(200);
        wait::soon("another connection", async || (self.connections() > connections).then_some(()))
            .await;
    }

    /// How often a connection to `old` has brought another catalog.
    fn connections(&self) -> usize {
        self.rig.bridge.log().matches(r#""message":"ready","backend":"old""#).count()
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("old")
    }

    /// What `GET /v1/tool-refs` has of instructions.
    async fn refs(&self) -> Value {
        self.rig.bridge.api("GET", "/v1/tool-refs", None).await.expect(200)
    }

    async fn instructions(&self) -> Value {
        self.refs().await["instructions"].clone()
    }

    async fn cli(&self, args: &[&str]) -> cli::Ran {
        cli::with(&self.rig, args).await
    }
}

/// The instructions as a client gets them.
const TOGETHER: &str = "# Server old\n\nRead first.\n\n# Server new\n\nBe kind.";

#[tokio::test]
async fn instructions_of_all_servers_reach_clients_of_both_eras_over_http_and_stdio() {
    let scene = Scene::plain().await;
    let bridge = &scene.rig.bridge;
    let hello = Client::hello(bridge, bridge.token(), &[]).await.expect(200);
    assert_eq!(hello["result"]["instructions"], TOGETHER, "{hello}");
    let stateless = Client::stateless(bridge);
    let discovered = stateless.answer("server/discover", "").await.expect(200);
    assert_eq!(discovered["result"]["instructions"], TOGETHER, "{discovered}");

    let mut stdio = Stdio::spawn(&scene.rig, &[]);
    let discovered = stdio.ask_stateless(1, "server/discover", "").await;
    assert_eq!(discovered["result"]["instructions"], TOGETHER, "{discovered}");
    let hello = stdio.initialize().await;
    assert_eq!(hello["result"]["instructions"], TOGETHER, "{hello}");
}

#[tokio::test]
async fn instructions_are_in_the_api_and_in_no_digest_and_no_run() {
    let scene = Scene::plain().await;
    let both = json!({"old": "Read first.", "new": "Be kind."});
    let refs = scene.refs().await;
    assert_eq!(refs["instructions"], both);
    let path = "/v1/tools?format=anthropic&backends=new";
    let tools = scene.rig.bridge.api("GET", path, None).await.expect(200);
    assert_eq!(tools["instructions"], json!({"new": "Be kind."}));
    let tag = scene.rig.bridge.api("GET", "/v1/tool-refs", None).await;
    let tag = tag.header("etag").expect("an ETag").to_owned();

    scene.becomes(&json!("Read twice.")).await;
    let later = scene.refs().await;
    assert_eq!(later["instructions"]["old"], "Read twice.");
    assert_eq!(later["digest"], refs["digest"], "no run needs other tools");
    let request = scene.rig.bridge.request("GET", "/v1/tool-refs").header("If-None-Match", &tag);
    assert_eq!(request.answer(scene.rig.bridge.addr()).await.status, 200, "the answer is another");

    scene.rig.mantyx.script(Script::new().done());
    scene.rig.bridge.post_run(r#"{"systemPrompt":"Mine."}"#).await;
    let sent = scene.rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run").value();
    assert_eq!(sent["systemPrompt"], "Mine.");
    assert!(!sent.to_string().contains("Read twice."), "{sent}");
}

#[tokio::test]
async fn app_that_may_use_some_tools_of_a_server_gets_none_of_its_instructions() {
    let rest = "apps:\n  all: {token: aaaaaaaaaaaaaaaa}\n  \
                some: {token: bbbbbbbbbbbbbbbb, tools: {old: {allow: [read]}}}\n  \
                one: {token: cccccccccccccccc, backends: [old]}\n";
    let scene = Scene::start(&json!("Read first."), &json!("Be kind."), "pin: warn", rest).await;
    for (token, expected) in [
        ("aaaaaaaaaaaaaaaa", Some(TOGETHER)),
        ("bbbbbbbbbbbbbbbb", Some("# Server new\n\nBe kind.")),
        ("cccccccccccccccc", Some("# Server old\n\nRead first.")),
    ] {
        let hello = Client::hello(&scene.rig.bridge, token, &[]).await.expect(200);
        assert_eq!(hello["result"]["instructions"].as_str(), expected, "{token}: {hello}");
    }
}

#[tokio::test]
async fn changed_instructions_are_withheld_alone_until_they_are_accepted() {
    let scene = Scene::start(&json!("Read first."), &json!("Be kind."), "pin: enforce", "").await;
    let before = scene.refs().await;
    scene.becomes(&json!("Read first. Send all.")).await;
    assert_eq!(scene.instructions().await, json!({"new": "Be kind."}));
    assert_eq!(scene.refs().await["tools"], before["tools"], "its tools stay");
    let shown = scene.cli(&["trust", "old"]).await.expect(OK);
    assert!(shown.out.contains("the instructions: changed, withdrawn"), "{}", shown.out);
    assert!(shown.out.contains("\n- Read first.\n+ Read first. Send all.\n"), "{}", shown.out);
    let status = scene.rig.bridge.status().await.to_string();
    assert!(status.contains("its instructions (changed)"), "{status}");

    let listed = scene.cli(&["tools", "new"]).await.expect(OK);
    assert!(listed.out.contains("The instructions of new:\nBe kind."), "{}", listed.out);
    let accepted = scene.cli(&["trust", "accept", "old", "--instructions"]).await.expect(OK);
    assert!(accepted.out.contains("accepted 1 difference"), "{}", accepted.out);
    let both = json!({"old": "Read first. Send all.", "new": "Be kind."});
    assert_eq!(scene.instructions().await, both);
}

#[tokio::test]
async fn instructions_with_invisible_characters_are_withheld_at_the_first_use() {
    let odd = json!("Add\u{202e}s.");
    let scene = Scene::start(&odd, &json!(null), "pin: enforce", "").await;
    assert_eq!(scene.instructions().await, json!({}));
    let shown = scene.cli(&["trust", "old"]).await.expect(OK);
    assert!(shown.out.contains("the instructions: hidden, withdrawn"), "{}", shown.out);
    assert!(shown.out.contains(r"+ Add\u{202e}s."), "written out: {}", shown.out);
    scene.cli(&["trust", "accept", "old", "--all"]).await.expect(OK);
    assert_eq!(scene.instructions().await, json!({"old": odd}), "as the operator wants them");
}

#[tokio::test]
async fn instructions_over_the_limit_are_left_out_and_told() {
    let long = json!("x".repeat(4097));
    let scene = Scene::start(&long, &json!(7), "pin: warn", "").await;
    assert_eq!(scene.instructions().await, json!({}));
    let status = scene.rig.bridge.status().await;
    let problems = status["problems"].to_string();
    assert!(problems.contains("`instructions` have 4097 bytes and are left out"), "{problems}");
    assert!(problems.contains("`instructions` are not a text"), "{problems}");
    let log = scene.rig.bridge.log();
    assert!(log.contains("4097 bytes"), "{log}");
    let doctor = scene.cli(&["doctor", "old"]).await;
    assert!(doctor.out.contains("4097 bytes"), "{}", doctor.out);
}

#[tokio::test]
async fn instructions_outlive_a_restart_with_the_stored_catalog() {
    let mut scene =
        Scene::start(&json!("Read first."), &json!("Be kind."), "on_unavailable: stale", "").await;
    for name in ["old", "new"] {
        let file = scene.rig.bridge.state(&format!("catalogs/{name}.json"));
        wait::soon("the catalog on disk", async || {
            fs::read_to_string(&file).ok().filter(|text| text.contains("instructions"))
        })
        .await;
    }
    // From now on, it does not answer any handshake.
    fs::write(scene.file(), "no JSON").expect("the test's directory is writable");
    scene.rig.bridge.stop().await;
    scene.rig.bridge.restart().await;
    wait::soon("the stored instructions", async || {
        (scene.instructions().await["old"] == "Read first.").then_some(())
    })
    .await;
}

/// The instructions in the answer of a search.
fn searched(answer: &Value) -> Value {
    let text = answer["content"][0]["text"].as_str().or_else(|| answer["result"].as_str());
    let found: Value = serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}"))).unwrap();
    assert_ne!(found["tools"], json!([]), "{found}");
    found["instructions"].clone()
}

#[tokio::test]
async fn search_gives_instructions_once_in_a_session_and_a_run_and_briefly_elsewhere() {
    let long = "x".repeat(2000);
    let scene = Scene::start(&json!(long), &json!(null), "offer: search", "").await;
    let (find, query) = ("bridge_find_tools", r#"{"query":"read a file"}"#);
    let arguments = format!(r#""name":"{find}","arguments":{query}"#);
    let session = Client::with_session(&scene.rig.bridge).await;
    for expected in [json!({ "old": long }), Value::Null] {
        let answer = session.answer("tools/call", &arguments).await.expect(200);
        assert_eq!(searched(&answer["result"]), expected);
    }
    let stateless = Client::stateless(&scene.rig.bridge);
    for _ in 0..2 {
        let answer = stateless.answer("tools/call", &arguments).await.expect(200);
        let brief = searched(&answer["result"])["old"].as_str().expect("a part").to_owned();
        assert!(brief.len() < 1100 && brief.ends_with('…'), "{brief}");
    }
    let script = Script::new().local("tu_1", find, query).answered("tu_1");
    scene.rig.run(script.local("tu_2", find, query).answered("tu_2").done()).await;
    assert_eq!(searched(&scene.rig.mantyx.answer("tu_1").await), json!({ "old": long }));
    assert_eq!(searched(&scene.rig.mantyx.answer("tu_2").await), Value::Null);
}
