//! Programs are started as the configuration has them: no shell reads their arguments, and nothing
//! but the file changes them.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::{bridge::Bridge, cli, harness::Harness, wait};

/// A server that says nothing.
const IDLE: &str = "sleep 600; :";

/// What a shell would make something of.
const WORDS: [&str; 8] = [
    "; touch MARK",
    "$(touch MARK)",
    "`touch MARK`",
    "| tee MARK",
    "&& touch MARK",
    "a b\nc",
    "*",
    "> MARK",
];

/// A32: argv, as it is, and no shell: for local tools and MCP servers alike.
#[tokio::test]
async fn arguments_reach_a_program_as_they_stand() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let mark = dir.path().join("mark").display().to_string();
    let words = WORDS.map(|word| word.replace("MARK", &mark));
    let json = serde_json::to_string(&words).expect("strings are JSON");
    let list = json.trim_start_matches('[').trim_end_matches(']');
    let tool = "description: d, parameters: {type: object}";
    let config = format!(
        "mcp:\n  idle: {{command: sh, args: [-c, '{IDLE}', {list}]}}\n\
         local:\n  say: {{{tool}, command: [printf, '<%s>', {list}]}}\n"
    );
    let rig = Harness::bare(&config).await;
    // What the call says is input of the program, and no part of its command line.
    let args = format!(r#"{{"a":"$(touch {mark})"}}"#);
    let call = format!(r#"{{"toolUseId":"tu_1","name":"say","args":{args}}}"#);
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200);
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    assert_eq!(answer["result"], expected.as_str(), "{answer}");
    // Behind the program itself, which is looked up.
    let expected = [&["-c", IDLE].map(str::to_owned)[..], &words[..]].concat().join("\0");
    let expected = format!("sh\0{expected}\0");
    wait::soon("the server should have its command line", async || {
        let children = rig.bridge.children();
        let line = |pid: &Pid| fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
        let mut lines = children.iter().filter_map(|pid| line(pid).ok());
        lines.any(|line| line.ends_with(expected.as_bytes())).then_some(())
    })
    .await;
    assert!(!dir.path().join("mark").exists(), "no shell has read them");
}

/// A32: a file that everybody may change is not used, however it is looked at.
#[tokio::test]
async fn a_configuration_that_everybody_may_change_is_refused() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    let text = format!("upstream: {{sandbox: true}}\nstate_dir: {}\n", dir.path().display());
    fs::write(&path, text).expect("a new file");
    let shown = path.to_str().expect("a path of the tests is UTF-8");
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
    mode(0o666);
    for command in ["check", "serve", "doctor", "status"] {
        let ran = cli::run(&[command, "-c", shown]).await.expect(cli::USAGE);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains(&format!("chmod o-w {shown}")), "{command}: {told}");
    }
    mode(0o664);
    let ran = cli::run(&["check", "-c", shown]).await.expect(cli::OK);
    assert!(
        ran.out.contains("chmod g-w") || ran.err.contains("chmod g-w"),
        "{}{}",
        ran.out,
        ran.err
    );
    mode(0o600);
    let ran = cli::run(&["check", "-c", shown]).await.expect(cli::OK);
    assert!(!format!("{}{}", ran.out, ran.err).contains("chmod"), "{}{}", ran.out, ran.err);
}

/// A32: a running bridge keeps what it has when the file becomes one that everybody may change.
#[tokio::test]
async fn a_reload_of_such_a_file_changes_nothing() {
    let bridge = Bridge::ready("upstream: {sandbox: true}\n").await;
    fs::write(bridge.config_path(), "upstream: {sandbox: true}\nlocal: {x: {command: [id]}}\n")
        .and_then(|()| fs::set_permissions(bridge.config_path(), fs::Permissions::from_mode(0o646)))
        .expect("the file is ours");
    wait::soon("the flaw should be told", async || {
        let status = bridge.status().await;
        let error = status["config"]["lastError"].as_str()?.to_owned();
        error.contains("can change this file").then_some(())
    })
    .await;
    assert_eq!(bridge.status().await["backends"], Value::Array(Vec::new()));
}

/// A32: nothing that a request can carry is a command, an address, a header or an environment.
#[tokio::test]
async fn no_route_takes_a_command() {
    let bridge = Bridge::ready("upstream: {sandbox: true}\n").await;
    let api = bridge.api("GET", "/openapi.json", None).await.expect(200);
    let paths = api["paths"].as_object().expect("the routes");
    let (mut bodies, mut seen) = (0, Vec::new());
    // The address there is the one to which the issuer has sent a browser; it is read, and not
    // requested.
    let callback = "/v1/logins/{backend}/callback";
    for (path, methods) in paths.iter().filter(|(path, _)| *path != callback) {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            seen.extend(parameters.iter().map(|one| one["name"].to_string()));
            if let Some(body) = operation.get("requestBody") {
                bodies += 1;
                keys(&api, body, &mut seen, 0);
            }
            // A configuration is no resource of the API.
            assert!(!path.contains("config"), "{method} {path}");
        }
    }
    assert!(bodies > 0 && !seen.is_empty(), "the document tells of bodies");
    let forbidden =
        ["command", "argv", "env", "cwd", "url", "headers", "program", "sandbox", "tls"];
    let found: Vec<_> =
        seen.iter().filter(|key| forbidden.contains(&key.trim_matches('"'))).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// All names of properties below `node`, references followed.
fn keys(api: &Value, node: &Value, found: &mut Vec<String>, depth: usize) {
    if depth > 20 {
        return;
    }
    match node {
        Value::Object(members) => {
            if let Some(pointer) = node["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
                keys(api, api.pointer(pointer).unwrap_or(&Value::Null), found, depth + 1);
            }
            if let Some(properties) = node["properties"].as_object() {
                found.extend(properties.keys().cloned());
            }
            members.values().for_each(|value| keys(api, value, found, depth + 1));
        }
        Value::Array(items) => items.iter().for_each(|item| keys(api, item, found, depth + 1)),
        _ => (),
    }
}
