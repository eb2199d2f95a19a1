//! `/mcp` and `mantyx-bridge mcp`, as the official MCP clients use them: the SDKs of Python and
//! TypeScript, and the Inspector.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    bridge::BINARY,
    harness::Harness,
    peers::{self, fetch, repository},
};

const SESSIONS: (&str, &str) = ("sessions", "2025-11-25");
const STATELESS: (&str, &str) = ("stateless", "2026-07-28");

#[tokio::test]
async fn the_official_sdks_use_all_backends() {
    let all = format!("  all: {}\n  ask: {}\n", peers::everything_stdio(), peers::asking());
    let rig = Harness::with(&all, &[], "").await;
    for backend in ["all", "ask"] {
        rig.bridge.wait_backend(backend, "ready").await;
    }
    let url = format!("{}/mcp", rig.bridge.url());
    let config = rig.bridge.config_path();
    for (era, revision) in [SESSIONS, STATELESS] {
        let script = repository("tests/peers/mcp_client.py");
        let mut command = Command::new(fetch::python());
        check(command.arg(&script).args([&url, rig.bridge.token(), era]), revision).await;
        let mut command = Command::new(fetch::python());
        command.arg(&script).args(["stdio", era, BINARY, "mcp", "-c"]).arg(&config);
        check(&mut command, revision).await;
    }
    let mcp = fetch::mcp_node();
    for (sdk, (era, revision)) in [("v1", SESSIONS), ("v2", SESSIONS), ("v2", STATELESS)] {
        let client = || {
            let mut command = Command::new(&mcp.node);
            command.arg(repository("tests/peers/mcp_client.mjs")).arg(&mcp.modules);
            command.args([sdk, era]);
            command
        };
        check(client().args([&url, rig.bridge.token()]), revision).await;
        check(client().args(["stdio", BINARY, "mcp", "-c"]).arg(&config), revision).await;
    }
}

#[tokio::test]
async fn the_inspector_lists_and_calls() {
    let all = format!("  all: {}\n", peers::everything_stdio());
    let rig = Harness::with(&all, &[], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    let url = format!("{}/mcp", rig.bridge.url());
    let bearer = format!("Authorization: Bearer {}", rig.bridge.token());
    let config = rig.bridge.config_path();
    for era in ["legacy", "modern"] {
        let http = [&url, "--transport", "http", "--header", &bearer, "--protocol-era", era];
        check_inspector(&rig, &http, &[]).await;
        let command = [BINARY, "mcp", "-c", config.to_str().unwrap()];
        let stdio = ["--transport", "stdio", "--protocol-era", era];
        check_inspector(&rig, &stdio, &command).await;
    }
}

async fn check_inspector(rig: &Harness, args: &[&str], command: &[&str]) {
    let home = rig.bridge.state("");
    let inspect = async |method: &[&str]| inspector(&home, &[args, method].concat(), command).await;
    let tools = inspect(&["--method", "tools/list"]).await;
    assert_eq!(tools["tools"][0]["name"], "plain_note", "{args:?}: {tools}");
    let echo = ["--method", "tools/call", "--tool-name", "all_echo", "--tool-arg", "message=hi"];
    let echo = inspect(&echo).await;
    assert_eq!(echo["content"][0]["text"], "Echo: hi", "{args:?}: {echo}");
    let resources = inspect(&["--method", "resources/list"]).await;
    assert!(resources["resources"].as_array().unwrap().len() >= 7, "{args:?}: {resources}");
    let prompts = inspect(&["--method", "prompts/list"]).await;
    assert_eq!(prompts["prompts"][0]["name"], "all_simple_prompt", "{args:?}: {prompts}");
}

/// What the Inspector's command line prints; it keeps files in `home`.
async fn inspector(home: &Path, args: &[&str], command: &[&str]) -> Value {
    let mcp = fetch::mcp_node();
    let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut inspector = Command::new(&mcp.node);
    inspector.arg(mcp.modules.join(script)).arg("--cli").args(args).env("HOME", home);
    if !command.is_empty() {
        inspector.arg("--").args(command);
    }
    let output = inspector.kill_on_drop(true).output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs an official client, and checks all that it did.
async fn check(command: &mut Command, revision: &str) {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["revision"], revision);
    let tools = said["tools"].as_array().unwrap();
    assert!(tools.len() == 24 && tools[0] == "plain_note", "in the file's order: {said}");
    assert_eq!(said["echo"], "Echo: hi");
    let asked = said["asked"].to_string();
    assert!(asked.contains("User provided") && asked.contains("Ada"), "{said}");
    assert_eq!(said["greeted"], "Ada likes red");
    // The TypeScript SDK forgets a call's progress when its result comes in the same piece.
    let progress: Vec<(f64, f64)> = serde_json::from_value(said["progress"].clone()).unwrap();
    let all = [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0), (4.0, 4.0)];
    assert!(progress.len() >= 3 && all.starts_with(&progress), "{said}");
    assert!(said["long"].as_str().unwrap().contains("completed"), "{said}");
    assert!(said["structured"]["temperature"].is_number(), "{said}");
    assert_eq!(said["image"], json!(["text", "image", "text"]));
    assert_eq!(said["failed"], json!([true, "it failed on purpose"]));
    let invalid = said["invalid"][1].as_str().unwrap();
    assert!(said["invalid"][0] == true && invalid.starts_with("tool_input_invalid"));
    assert_eq!(said["unknown"], -32602);
    check_features(&said, revision);
}

/// What the official client did with the resources and prompts of server-everything.
fn check_features(said: &Value, revision: &str) {
    assert!(said["resources"].as_u64().unwrap() >= 7, "{said}");
    let templates = json!([
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}"
    ]);
    assert_eq!(said["templates"], templates);
    let prompts =
        ["simple", "args", "completable", "resource"].map(|name| format!("all_{name}_prompt"));
    assert_eq!(said["prompts"], json!(prompts));
    assert_eq!(said["text"], "Resource 7:");
    assert!(said["prompt"].as_str().unwrap().contains("Rome"), "{said}");
    assert_eq!(said["completion"], json!(["Engineering"]));
    // The second TypeScript SDK makes the newer code of the older.
    let missing: &[i64] = if revision == STATELESS.1 { &[-32602] } else { &[-32002, -32602] };
    assert!(missing.contains(&said["missing"].as_i64().unwrap()), "{said}");
}
