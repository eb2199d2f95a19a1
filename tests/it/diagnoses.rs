//! Failures of programs and servers are told by their cause, alike in the status, its problems, the
//! log and the doctor's report.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    cli::{FAILED, OK, run},
    peers,
};

/// A program that fails, and what has to be told of it.
struct Case {
    name: &'static str,
    /// What it writes to stderr.
    stderr: &'static str,
    /// What a shell does then.
    then: &'static str,
    message: &'static str,
    cure: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        name: "unknown",
        stderr: "npm error code E404\nnpm error 404 Not Found - GET https://registry.test/nope\n\
                 npm error 404\nnpm error A complete log of this run can be found in: /x.log\n",
        then: "exit 1",
        message: "`sh` ended with exit status 1: the registry has no such package or version: npm \
                  error 404 Not Found - GET https://registry.test/nope",
        cure: "orrect the name or the version of the package",
    },
    // The message stands before a long trace.
    Case {
        name: "damaged",
        stderr: "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n\
                 Error: Cannot find module 'lru-cache'\nRequire stack:\n\
                 - /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/a.js\n\
                 - /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/b.js\n\
                 \u{20}   at Module._resolveFilename (node:internal/1:1)\n\
                 \u{20}   at Module._load (node:internal/1:1)\n\
                 \u{20}   at Module.require (node:internal/1:1)\n\
                 \u{20}   at require (node:internal/1:1)\n\
                 \u{20}   at Module._compile (node:internal/1:1)\n\
                 \u{20}   at Module._extensions..js (node:internal/1:1)\n\
                 \u{20}   at Module.load (node:internal/1:1) {\n\
                 \u{20} code: 'MODULE_NOT_FOUND',\n  requireStack: [\n\
                 \u{20}   '/home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/a.js',\n\
                 \u{20}   '/home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/b.js'\n  ]\n}\n\n\
                 Node.js v20.20.2\n",
        then: "exit 1",
        message: "`sh` ended with exit status 1: its installed copy is damaged: Error: Cannot find \
                  module 'lru-cache'",
        cure: "emove the directory /home/me/.npm/_npx/9dfaefb6dc6ac94c:",
    },
    Case {
        name: "killed",
        stderr: "",
        then: "kill -9 $$",
        message: "`sh` ended with signal 9: it was killed",
        cure: "journalctl -k",
    },
    Case {
        name: "printing",
        stderr: "",
        then: "echo 'Usage: tool [options]'; exit 0",
        message: "no MCP server with these arguments: Usage: tool [options]",
        cure: "arguments of its stdio server",
    },
    Case {
        name: "framed",
        stderr: "",
        then: r#"printf 'Content-Length: 2\r\n\r\n{}'; exit 1"#,
        message: "frames messages with Content-Length, as language servers do: Content-Length: 2",
        cure: "one message a line",
    },
    Case {
        name: "keyless",
        stderr: "Error: GITHUB_TOKEN environment variable is required\nSee the readme.\n",
        then: "exit 1",
        message: "it does not have a setting or a credential that it needs: Error: GITHUB_TOKEN \
                  environment variable is required",
        cure: "`env` or `args`",
    },
];

/// An entry whose program does what `case` says.
fn entry(dir: &Path, case: &Case) -> String {
    let stderr = dir.join(case.name);
    fs::write(&stderr, case.stderr).expect("the test's directory is writable");
    let script = format!("cat {} >&2; {}", stderr.display(), case.then);
    let args = serde_json::to_string(&["-c", &script]).expect("texts");
    format!("  {}: {{command: sh, args: {args}}}\n", case.name)
}

fn problem(status: &Value, subject: &str) -> [String; 2] {
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    let found = problems.iter().find(|problem| problem["subject"] == subject).cloned();
    let found = found.unwrap_or_else(|| panic!("{subject} is a problem: {status}"));
    ["message", "cure"].map(|key| found[key].as_str().unwrap_or_default().to_owned())
}

/// The steps of `name` in a doctor's report.
fn steps<'r>(report: &'r Value, name: &str) -> &'r [Value] {
    let examined = report["examined"].as_array().map_or(&[][..], Vec::as_slice);
    let one = examined.iter().find(|one| one["name"] == name);
    one.and_then(|one| one["steps"].as_array()).map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn causes_of_failed_programs_are_told_alike_everywhere() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let entries: String = CASES.iter().map(|case| entry(dir.path(), case)).collect();
    let nowhere = "  nowhere: {command: sh, cwd: /no/such/directory}\n";
    let config = format!("upstream: {{sandbox: true}}\nmcp:\n{entries}{nowhere}");
    let bridge = Bridge::start(&config).await;
    for case in &CASES {
        bridge.wait_backend(case.name, "down").await;
    }
    let status = bridge.status().await;
    let file = bridge.config_path();
    let file = file.to_str().expect("a path of the tests is UTF-8");
    let report = run(&["doctor", "-c", file, "--json"]).await.expect(FAILED).json();
    let log = bridge.log();
    for Case { name, message, cure, .. } in &CASES {
        let [told, what_to_do] = problem(&status, name);
        assert!(told.contains(message), "{name}: {told}");
        assert!(what_to_do.contains(cure), "{name}: {what_to_do}");
        let error = bridge.backend(name).await["lastError"].to_string();
        assert!(error.contains(&message.replace('"', "\\\"")), "{name}: {error}");
        let step = steps(&report, name).last().expect("a step");
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        assert!(text("finding").contains(message) && text("cure").contains(cure), "{step}");
        assert!(log.contains(message) && log.contains(cure), "{name}: {log}");
    }
    let [told, what_to_do] = problem(&status, "nowhere");
    assert!(told.contains("/no/such/directory does not exist"), "{told}");
    assert!(what_to_do.contains("ake /no/such/directory"), "{what_to_do}");
}

#[tokio::test]
async fn noise_on_stdout_of_a_server_that_works_is_remarked() {
    let config = format!(
        "upstream: {{sandbox: true}}\nmcp:\n  loud: {}\n",
        peers::hostile_mcp(&["--noise"])
    );
    let bridge = Bridge::start(&config).await;
    let backend = bridge.wait_backend("loud", "ready").await;
    let remark = backend["remark"]["message"].as_str().unwrap_or_default();
    assert!(remark.contains("no MCP message"), "{backend}");
    assert!(backend["since"].is_string(), "{backend}");
    let problems = bridge.status().await["problems"].to_string();
    assert!(!problems.contains("no MCP message"), "what works is no problem: {problems}");
    let file = bridge.config_path();
    let file = file.to_str().expect("a path of the tests is UTF-8");
    let shown = run(&["status", "-c", file]).await.expect(OK);
    assert!(shown.out.contains("loud: Its stdout has"), "{}", shown.out);
    let report = run(&["doctor", "-c", file, "--json"]).await.expect(OK).json();
    let odd = steps(&report, "loud").iter().find(|step| step["step"] == "protocol");
    assert_eq!(odd.map(|step| &step["verdict"]), Some(&Value::from("warn")), "{report}");
}

/// A server may change its ways while it runs, as one does that is replaced below its launcher.
#[tokio::test]
async fn misdeeds_of_a_server_that_has_been_ready_are_named() {
    let config = format!(
        "upstream: {{sandbox: true}}\nrefresh: {{timeout: 2s}}\nmcp:\n  framed: {}\n  constant: {}\n",
        peers::hostile_mcp(&["--later", "frames"]),
        peers::hostile_mcp(&["--later", "zero"])
    );
    let bridge = Bridge::start(&config).await;
    struct Case {
        name: &'static str,
        message: &'static str,
        cure: &'static str,
    }
    for Case { name, message, cure } in [
        Case {
            name: "framed",
            message: "frames messages with Content-Length",
            cure: "one message a line",
        },
        Case {
            name: "constant",
            message: "its responses have the id 0, whatever the request's id is",
            cure: "pdate the server",
        },
    ] {
        bridge.wait_backend(name, "ready").await;
        bridge.api("POST", &format!("/v1/backends/{name}/refresh"), Some("{}")).await;
        let degraded = bridge.wait_backend(name, "degraded").await;
        let error = degraded["lastError"].as_str().unwrap_or_default();
        assert!(error.contains(message), "{name}: {error}");
        let [told, what_to_do] = problem(&bridge.status().await, name);
        assert!(
            told.contains(message) && what_to_do.contains(cure),
            "{name}: {told}; {what_to_do}"
        );
    }
}

#[tokio::test]
async fn server_over_sse_that_refuses_initialized_is_used_and_remarked() {
    let server = peers::refusing_initialized("501").await;
    for transport in ["", ", transport: sse"] {
        let config = format!(
            "upstream: {{sandbox: true}}\nmcp:\n  older: {{url: \"{}/sse\"{transport}}}\n",
            server.url()
        );
        let bridge = Bridge::start(&config).await;
        let backend = bridge.wait_backend("older", "ready").await;
        assert_eq!((&backend["transport"], &backend["tools"]), (&"sse".into(), &1.into()));
        let remark = backend["remark"]["message"].as_str().unwrap_or_default();
        assert!(remark.contains("`notifications/initialized` with HTTP 501"), "{backend}");
        let event = r#"{"toolUseId":"tu_1","kind":"mcp_local","name":"older_add","args":{}}"#;
        let answer = bridge.api("POST", "/v1/tool-calls", Some(event)).await.expect(200);
        assert_eq!(answer["result"], "added", "{answer}");
    }
}

#[tokio::test]
async fn sandbox_begins_empty_without_an_alarm() {
    // A run with tools is driven, and so in the journal.
    let config = "upstream: {sandbox: true, workspace: acme}\nlocal:\n  disk: {description: Space., \
                  parameters: {type: object}, command: [\"true\"]}\n";
    let mut bridge = Bridge::ready(config).await;
    let run = bridge.post_run(r#"{"modelId":"m","systemPrompt":"s","prompt":"hello"}"#).await;
    assert_eq!(run.injected.as_deref(), Some("disk=1"));
    bridge.kill9();
    bridge.restart().await;
    bridge.wait_ready().await;
    let log = bridge.log();
    assert!(!log.contains("another MANTYX"), "{log}");
    assert!(!bridge.status().await["problems"].to_string().contains("MANTYX"), "{log}");
}

#[tokio::test]
async fn check_finds_what_is_missing_without_starting_anything() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let place = |name: &str| dir.path().join(name).display().to_string();
    fs::write(place("plain"), "no program").expect("the test's directory is writable");
    let (file, plain) = (place("bridge.yaml"), place("plain"));
    let text = format!(
        "upstream: {{sandbox: true}}\nstate_dir: {plain}/state\naudit: {{file: {plain}/audit.log}}\n\
         mcp:\n  gone: {{command: no-such-program-here}}\n  flat: {{command: {plain}}}\n  \
         nowhere: {{command: sh, cwd: {plain}/x}}\n"
    );
    fs::write(&file, text).expect("the test's directory is writable");
    let report = run(&["check", "-c", &file, "--json"]).await.expect(OK).json();
    let warnings = report["warnings"].to_string();
    for part in [
        "gone: `no-such-program-here` cannot be started",
        "set PATH for the daemon",
        "it is not executable; run `chmod +x",
        "plain/x does not exist; make",
        "state_dir: ",
        "is no directory",
        "audit.file: its directory",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}
