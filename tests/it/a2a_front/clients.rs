//! The official clients of A2A, of both generations and languages: what they get through the bridge
//! is what they get directly.

use std::path::PathBuf;

use serde_json::Value;
use tokio::process::Command;

use super::Front;
use crate::{
    a2a_peers::{self as a2a},
    owners::token,
    peers::{fetch, repository},
};

const JSON_RPC: &str = "JSONRPC";
const HTTP_JSON: &str = "HTTP+JSON";

/// What a client prints.
async fn printed(mut command: Command) -> Value {
    let output = command.kill_on_drop(true).output().await.expect("the client starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn python(interpreter: &PathBuf, url: &str, binding: &str, token: Option<&str>) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(repository("tests/peers/a2a_client.py")).args([url, binding]).args(token);
    command
}

fn node(
    modules: &PathBuf,
    version: &str,
    url: &str,
    binding: &str,
    token: Option<&str>,
) -> Command {
    let mut command = Command::new(fetch::node());
    let card = format!("{}/.well-known/agent-card.json", url.trim_end_matches('/'));
    command.arg(repository("tests/peers/a2a_client.mjs")).arg(modules);
    command.args([version, &card, binding]).args(token);
    command
}

/// Takes out of a card what the bridge writes into it.
fn without_address_and_security(mut card: Value) -> Value {
    let members = card.as_object_mut().expect("a card");
    for key in ["url", "security", "securitySchemes", "securityRequirements", "signatures"] {
        members.remove(key);
    }
    members["capabilities"].as_object_mut().expect("capabilities").remove("pushNotifications");
    for list in ["additionalInterfaces", "supportedInterfaces"] {
        for interface in members.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            interface.as_object_mut().expect("an interface").remove("url");
        }
    }
    card
}

/// Whether the agent has broken the connection off, as a2a-sdk 0.3 does in place of an error. The
/// bridge says it by an error of the protocol.
fn is_broken(told: &Value) -> bool {
    told[0]["code"].is_null() && told[0]["status"] == 503
}

#[track_caller]
fn assert_same(what: &str, mut direct: Value, mut through: Value) {
    for side in [&mut direct, &mut through] {
        side["card"] = without_address_and_security(side["card"].take());
    }
    assert_eq!(direct["card"], through["card"], "{what}");
    let told = direct["told"].as_object().expect("what was told");
    for (key, expected) in told {
        let outcome = &through["told"][key];
        if is_broken(expected) {
            assert!(outcome[0]["error"].is_string(), "{what}: {key}: {outcome}");
        } else {
            assert_eq!(expected, outcome, "{what}: {key}");
        }
    }
}

#[tokio::test]
async fn python_clients_get_what_they_get_directly() {
    let old = || (fetch::python_v03(), "a2a_v03_agent.py", &[][..]);
    let new = |card: &'static [&'static str]| (fetch::python(), "a2a_v1_agent.py", card);
    for (what, (interpreter, script, arguments), client) in [
        ("0.3", old(), fetch::python_v03()),
        ("1.0", new(&["--card", "1.0"]), fetch::python()),
        ("both, asked in 1.0", new(&["--card", "both"]), fetch::python()),
        ("both, asked in 0.3", new(&["--card", "both"]), fetch::python_v03()),
    ] {
        let agent = a2a::start(interpreter, script, arguments).await;
        let front = Front::before(agent.url.as_str(), "", "").await;
        let bridge = format!("{}/a2a/hr", front.bridge.url());
        for binding in [JSON_RPC, HTTP_JSON] {
            let direct = printed(python(&client, agent.url.as_str(), binding, None)).await;
            let token = token("a");
            let through = printed(python(&client, &bridge, binding, Some(&token))).await;
            assert_same(&format!("{what} over {binding}"), direct, through);
        }
    }
}

#[tokio::test]
async fn javascript_clients_get_what_they_get_directly() {
    let old = (fetch::python_v03(), "a2a_v03_agent.py", &[][..], fetch::a2a_node_v03(), "0.3");
    let new_arguments = &["--card", "1.0"][..];
    let new = (fetch::python(), "a2a_v1_agent.py", new_arguments, fetch::a2a_node_v1(), "1.0");
    for (interpreter, script, arguments, modules, version) in [old, new] {
        // Over HTTP+JSON, a2a-js 0.3 cannot read the streams of a2a-sdk 0.3.
        let bindings = if version == "0.3" { &[JSON_RPC][..] } else { &[JSON_RPC, HTTP_JSON] };
        let agent = a2a::start(interpreter, script, arguments).await;
        let front = Front::before(agent.url.as_str(), "", "").await;
        let bridge = format!("{}/a2a/hr", front.bridge.url());
        for binding in bindings {
            let direct = node(&modules, version, agent.url.as_str(), binding, None);
            let token = token("a");
            let through = node(&modules, version, &bridge, binding, Some(&token));
            let what = format!("{version} over {binding}");
            assert_same(&what, printed(direct).await, printed(through).await);
        }
    }
}
