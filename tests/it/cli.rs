//! The command line: what is printed for people and for programs, and the exit codes.

mod anywhere;
mod approvals;
mod call;
mod desk;
mod doctor;
mod import;
mod init;
pub(crate) mod laptop;
mod operator;
mod run;
mod status;
mod words;

use std::{fs, process::Output, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{bridge, harness::Harness, mantyx::CREDENTIAL, process::Group, wait};

pub(crate) const OK: Option<i32> = Some(0);
pub(crate) const FAILED: Option<i32> = Some(1);
pub(crate) const USAGE: Option<i32> = Some(2);

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: Option<i32>) -> Self {
        assert_eq!(self.code, code, "exit code; stdout: {} stderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("--json prints JSON ({error}): {}", self.out))
    }
}

/// Runs the binary in an empty directory.
pub(crate) async fn run(args: &[&str]) -> Ran {
    run_with(args, &[]).await
}

/// [`run`] with further environment variables.
pub(crate) async fn run_with(args: &[&str], env: &[(&str, &str)]) -> Ran {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let mut command = tokio::process::Command::from(bridge::command());
    command.args(args).current_dir(dir.path()).env("HOME", dir.path());
    command.envs(env.iter().copied());
    let output = command.kill_on_drop(true).output();
    let limit = Duration::from_secs(60);
    let output = tokio::time::timeout(limit, output).await.expect("a command ends in time");
    output.expect("the binary should start").into()
}

/// Runs the binary against a running bridge.
pub(crate) async fn with(rig: &Harness, args: &[&str]) -> Ran {
    run(&[args, &["-c", &rig.client_config()]].concat()).await
}

impl Harness {
    fn client_config(&self) -> String {
        client_config(&self.bridge)
    }
}

/// The configuration of a running bridge as a client reads it; the path of the file.
fn client_config(bridge: &bridge::Bridge) -> String {
    let config = bridge.config_path();
    let listening = fs::read_to_string(&config).expect("the configuration of the test");
    // The daemon chose its port; a client of the command line reads where it is.
    let path = config.with_file_name("client.yaml");
    let listening = listening.replace("127.0.0.1:0", &bridge.addr().to_string());
    fs::write(&path, listening).expect("the test's directory is writable");
    path.to_str().expect("a path of the tests is UTF-8").to_owned()
}

async fn check(text: &str, more: &[&str]) -> Ran {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    fs::write(&path, text).expect("the test's directory is writable");
    let path = path.to_str().expect("a path of the tests is UTF-8");
    run(&[&["check", "-c", path], more].concat()).await
}

const GOOD: &str = "upstream: {sandbox: true, workspace: acme}\nmcp:\n  fs: {command: cat}\n";

#[tokio::test]
async fn check_says_what_would_run() {
    let good = check(GOOD, &[]).await.expect(OK);
    assert!(good.out.contains("fs") && good.out.contains("cat"), "the plan: {}", good.out);
    let json = check(GOOD, &["--json"]).await.expect(OK).json();
    assert_eq!(json["ok"], true, "{json}");
}

#[tokio::test]
async fn check_shows_where_a_mistake_is_and_its_cure() {
    let bad = GOOD.replace("command", "comand");
    let shown = check(&bad, &[]).await.expect(USAGE);
    let text = format!("{}{}", shown.out, shown.err);
    assert!(text.contains("bridge.yaml:3:"), "file and line: {text}");
    assert!(text.contains("fs: {comand: ***}"), "the line, without its value: {text}");
    assert!(text.contains("command"), "what would be right: {text}");
    let json = check(&bad, &["--json"]).await.expect(USAGE).json();
    assert_eq!((&json["ok"], &json["errors"][0]["line"]), (&false.into(), &3.into()), "{json}");
}

#[tokio::test]
async fn check_names_a_missing_secret_and_never_shows_one() {
    let missing = "upstream: {base_url: \"https://m.test\", credential: \"${env:NOT_THERE}\"}\n";
    let shown = check(missing, &[]).await.expect(USAGE);
    assert!(format!("{}{}", shown.out, shown.err).contains("NOT_THERE"), "{}", shown.err);
    let plain = format!("upstream: {{base_url: \"https://m.test\", credential: {CREDENTIAL}}}\n");
    let shown = check(&plain, &[]).await.expect(OK);
    let text = format!("{}{}", shown.out, shown.err);
    assert!(!text.contains(CREDENTIAL), "a secret is never shown: {text}");
    assert!(text.to_lowercase().contains("warning"), "a plain secret is warned of: {text}");
}

#[tokio::test]
async fn unknown_argument_is_a_usage_error() {
    for args in [
        &["serve", "--no-such-flag"][..],
        &["no-such-command"],
        &["call"],
        &["check", "-c", "missing.yaml"],
    ] {
        let ran = run(args).await.expect(USAGE);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(!said.trim().is_empty(), "{args:?} says what is wrong");
    }
    let help = run(&["--help"]).await.expect(OK);
    for command in ["serve", "check", "demo", "status", "tools", "call", "token"] {
        assert!(help.out.contains(command), "--help names {command}: {}", help.out);
    }
    let version = run(&["--version"]).await.expect(OK);
    assert!(version.out.contains(env!("CARGO_PKG_VERSION")), "{}", version.out);
}

#[tokio::test]
async fn commands_speak_to_the_running_bridge() {
    let rig = Harness::start().await;
    let status = with(&rig, &["status", "--json"]).await.expect(OK).json();
    assert_eq!(status["backends"][0]["name"], "plain", "{status}");
    let shown = with(&rig, &["status"]).await.expect(OK);
    assert!(shown.out.contains("plain") && shown.out.contains("ready"), "{}", shown.out);
    let tools = with(&rig, &["tools"]).await.expect(OK);
    assert!(tools.out.contains("plain_note"), "{}", tools.out);
    with(&rig, &["tools", "plain", "--json"]).await.expect(OK).json();
    let call = with(&rig, &["call", "plain_note", r#"{"text":"a"}"#]).await.expect(OK);
    assert_eq!(call.out.trim(), "noted: a");
    let fail = with(&rig, &["call", "plain_fail"]).await.expect(FAILED);
    assert!(format!("{}{}", fail.out, fail.err).contains("it failed on purpose"), "{}", fail.err);
    let token = with(&rig, &["token"]).await.expect(OK);
    assert_eq!(token.out.trim(), rig.bridge.token(), "and nothing else, for scripts");
}

#[tokio::test]
async fn a_tool_that_stands_in_is_told_as_its_backends() {
    let bridge =
        bridge::Bridge::start("upstream: {sandbox: true}\nmcp: {gone: {command: /nowhere}}\n")
            .await;
    bridge.wait_backend("gone", "down").await;
    let config = bridge.config_path().display().to_string();
    let tools = run(&["tools", "-c", &config]).await.expect(OK);
    let words: Vec<&str> = tools.out.split_whitespace().collect();
    assert!(words.windows(2).any(|pair| pair == ["gone_unavailable", "gone"]), "{}", tools.out);
    let trust = run(&["trust", "-c", &config]).await.expect(OK);
    assert!(trust.out.contains("gone"), "{}", trust.out);
}

#[tokio::test]
async fn a_refresh_can_be_asked_for() {
    let rig = Harness::start().await;
    with(&rig, &["refresh", "plain"]).await.expect(OK);
    for command in
        [&["refresh", "plane"][..], &["tools", "plane"], &["run", "--backends", "plane", "x"]]
    {
        let unknown = with(&rig, command).await.expect(FAILED);
        assert!(unknown.err.contains(": plain"), "{command:?}: {}", unknown.err);
    }
}

#[tokio::test]
async fn a_socket_without_a_directory_is_told() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    let state = dir.path().join("state");
    let text = format!(
        "{GOOD}state_dir: {}\nlisten: {{unix: {}}}\n",
        state.display(),
        dir.path().join("no/such.sock").display()
    );
    fs::write(&path, text).expect("the test's directory is writable");
    let path = path.to_str().expect("a path of the tests is UTF-8");
    let ran = run(&["serve", "-c", path]).await.expect(FAILED);
    assert!(ran.err.contains("directory, which is missing"), "{}", ran.err);
    assert!(!ran.err.contains("another bridge"), "{}", ran.err);
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let temporary = dir.path().join("tmp");
        fs::create_dir(&temporary).expect("the test's directory is writable");
        let left = || fs::read_dir(&temporary).expect("it is there").count();
        let mut command = bridge::command();
        command.arg("demo").env("TMPDIR", &temporary);
        let mut demo = Group::spawn(&mut command, &dir.path().join("log"));
        wait::soon("the demo should have begun", async || (left() > 0).then_some(())).await;
        demo.signal(signal);
        demo.ended(Duration::from_secs(30)).await;
        assert_eq!(left(), 0, "{signal:?}: {}", demo.log());
    }
}

#[tokio::test]
async fn demo_does_the_main_job() {
    // A proxy is for the network, and this machine is none.
    let nowhere = "http://127.0.0.1:1";
    let env = [("HTTP_PROXY", nowhere), ("http_proxy", nowhere), ("ALL_PROXY", nowhere)];
    let demo = run_with(&["demo"], &env).await.expect(OK);
    for expected in ["local_tool_result_in", "result"] {
        assert!(demo.out.contains(expected), "the event stream as it happens: {}", demo.out);
    }
    assert!(demo.out.matches("tool_call").count() >= 2, "a call of each peer: {}", demo.out);
}

#[tokio::test]
async fn demo_shows_each_other_runtime() {
    for (runtime, parts) in [
        ("hsafa", ["tool.call", r#""result":"42""#, "/api/runs/demo/tool-results"]),
        ("loom", [r#""Result":"42""#, r#""RetryHint":null"#, "invalid_arguments"]),
        ("claude", ["agent.custom_tool_use", r#""text":"42""#, "/demo/stop"]),
    ] {
        let demo = run(&["demo", "--runtime", runtime]).await.expect(OK);
        for part in parts {
            assert!(demo.out.contains(part), "{runtime}: {part} is shown: {}", demo.out);
        }
        assert!(demo.out.contains("photo ID"), "{runtime}: the agent's answer: {}", demo.out);
        let last = demo.out.lines().last().expect("it prints");
        let page = format!("docs/{runtime}.md");
        assert!(last.starts_with("Shown: ") && last.contains(&page), "{last}");
        assert_eq!(demo.err, "", "{runtime}");
        // The demo keeps its state in the temporary directory.
        let broken = run_with(&["demo", "--runtime", runtime], &[("TMPDIR", "/dev/null")]).await;
        assert!(!broken.expect(FAILED).err.is_empty(), "{runtime} says why it failed");
    }
    run(&["demo", "--runtime", "other"]).await.expect(USAGE);
}

#[tokio::test]
async fn shells_and_man_are_told_of_the_command_line() {
    let page = run(&["man"]).await.expect(OK).out;
    assert!(page.contains(".SH EXAMPLES") && page.contains("service install"), "{page}");
    assert_eq!(page.matches("Exit codes").count(), 0, "they have a section");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).await.expect(OK);
        assert!(script.out.contains("COMPLETE="), "{shell}: {}", script.out);
    }
    run(&["completions", "no-such-shell"]).await.expect(USAGE);
    let page = run(&["man"]).await.expect(OK);
    assert!(
        page.out.contains(".TH mantyx-bridge 1") && page.out.contains("status"),
        "{}",
        page.out
    );
    let page = run(&["man", "call"]).await.expect(OK);
    assert!(page.out.contains(".TH mantyx-bridge-call 1"), "{}", page.out);
    assert!(page.out.contains("demo_add"), "with the example: {}", page.out);
    let none = run(&["man", "no-such-command"]).await.expect(USAGE);
    assert!(none.err.contains("call"), "what there is: {}", none.err);
}

#[tokio::test]
async fn a_backend_that_keeps_failing_is_shown() {
    let gone = "{http: {url: 'http://127.0.0.1:1/'}}";
    let rig =
        Harness::bare(&format!("local:\n  gone: {gone}\n  fine: {{command: [echo, hi]}}\n")).await;
    let call = async || with(&rig, &["call", "gone"]).await.expect(FAILED).err;
    let shown = with(&rig, &["status"]).await.expect(OK).out;
    assert!(!shown.contains("circuit breaker"), "{shown}");
    for _ in 0..7 {
        let error = call().await;
        assert!(error.contains("`gone`") && !error.contains("keeps failing"), "{error}");
    }
    // Whether or not a second has passed since, and with it the time until a call may try.
    let shown = with(&rig, &["status"]).await.expect(OK).out;
    assert!(shown.contains("gone: ") && shown.contains("circuit breaker"), "{shown}");
    let breaker = rig.bridge.backend("gone").await["breaker"].clone();
    assert!(breaker["state"] == "open" || breaker["state"] == "half-open", "{breaker}");
    assert_eq!(breaker["retryAt"].is_string(), breaker["state"] == "open", "{breaker}");
    wait::soon("a call should be refused", async || {
        call().await.contains("keeps failing").then_some(())
    })
    .await;
    let breaker = rig.bridge.backend("fine").await["breaker"].clone();
    assert_eq!(breaker["state"], "closed", "another backend is none of its business");
    assert_eq!(with(&rig, &["call", "fine"]).await.expect(OK).out.trim(), "hi");
    let log = rig.bridge.log();
    let is_told = |line: &str| line.contains("keeps failing") && line.contains(" 1s");
    assert!(log.lines().any(is_told), "{log}");
}
