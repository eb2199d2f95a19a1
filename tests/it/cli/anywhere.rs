//! The daemon is found from anywhere, names are suggested and completed, and arguments can be
//! typed.

use std::fs;

use tempfile::TempDir;

use super::{FAILED, OK, USAGE, desk::Desk, run_with, with};
use crate::{bridge, harness::Harness, http::Request, ports, wait};

/// A home in which `rig` has left what a daemon with the usual state directory leaves there.
fn home_of(rig: &Harness) -> TempDir {
    let home = TempDir::new().expect("the temporary directory is writable");
    let state = home.path().join(".local/state/mantyx-bridge");
    fs::create_dir_all(&state).expect("writable");
    for (name, text) in [("listen", rig.bridge.url()), ("token", rig.bridge.token().to_owned())] {
        fs::write(state.join(name), text).expect("writable");
    }
    home
}

#[tokio::test]
async fn a_daemon_is_found_without_its_directory() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    let named = run_with(&["status"], &[("MANTYX_BRIDGE_CONFIG", &config)]).await.expect(OK);
    assert!(named.out.contains("plain"), "{}", named.out);

    let url = rig.bridge.url();
    run_with(&["status", "--url", &url], &[]).await.expect(USAGE);
    let given = [("MANTYX_BRIDGE_TOKEN", rig.bridge.token())];
    run_with(&["status", "--url", &url], &given).await.expect(OK);
    let file = config.replace("client.yaml", "given");
    fs::write(&file, format!("{}\n", rig.bridge.token())).expect("writable");
    run_with(&["tools", "--url", &url, "--token-file", &file], &[]).await.expect(OK);

    // As it has left its address; also while somebody edits the file.
    let home = home_of(&rig);
    let home = home.path();
    let asked = async |words: &[&str]| {
        let mut command = bridge::command();
        command.args(words).current_dir(home).env("HOME", home);
        let done = tokio::task::spawn_blocking(move || command.output()).await;
        super::Ran::from(done.expect("it does not panic").expect("the binary is there"))
    };
    let left = asked(&["status"]).await.expect(OK);
    assert_eq!(left.err, "");
    fs::write(home.join("bridge.yaml"), "mcp: [\n").expect("writable");
    let broken = asked(&["status"]).await.expect(OK);
    assert!(broken.err.contains("bridge.yaml:") && broken.err.contains(&url), "{}", broken.err);
    assert!(broken.out.contains("plain"), "{}", broken.out);
    // It may be another daemon's.
    let call = asked(&["call", "plain_note", "text=x"]).await.expect(USAGE);
    assert!(call.err.contains("--url"), "{}", call.err);

    let local = run_with(&["check", "--url", &url], &[]).await.expect(USAGE);
    assert!(local.err.contains("--url"), "{}", local.err);
    let none = run_with(&["demo", "-c", "x"], &[]).await.expect(USAGE);
    assert!(none.err.contains("--config"), "{}", none.err);
    let help = run_with(&["demo", "--help"], &[]).await.expect(OK).out;
    assert!(help.contains("--stay") && !help.contains("--url") && !help.contains("--config"));
    let help = run_with(&["call", "--help"], &[]).await.expect(OK).out;
    assert!(help.contains("--url") && help.contains("--config"));
    let secret = run_with(&["status", "--url", "http://a:hunter2@b"], &[]).await.expect(USAGE);
    assert!(secret.err.contains("--token-file") && !secret.err.contains("hunter2"));
    run_with(&["status", "--url", "nonsense"], &given).await.expect(USAGE);
}

#[tokio::test]
async fn running_daemon_with_an_unusual_state_directory_is_found_until_it_stops() {
    let home = TempDir::new().expect("the temporary directory is writable");
    let home = home.path();
    let runtime = home.join("runtime");
    let address = ports::free();
    let text = format!(
        "listen: {address}\nupstream: {{sandbox: true}}\nstate_dir: {}\n",
        home.join("elsewhere").display()
    );
    fs::write(home.join("far.yaml"), text).expect("writable");
    let command = |words: &[&str]| {
        let mut command = bridge::command();
        command.args(words).current_dir(home).env("HOME", home).env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    let asked = async || {
        let mut command = command(&["status"]);
        let done = tokio::task::spawn_blocking(move || command.output()).await;
        super::Ran::from(done.expect("it does not panic").expect("the binary is there"))
    };
    asked().await.expect(USAGE);
    let mut daemon = command(&["serve", "-c", "far.yaml"]).spawn().expect("the binary is there");
    wait::soon("the daemon should be found", async || {
        let found = asked().await;
        (found.code == OK && found.out.contains("sandbox")).then_some(())
    })
    .await;
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let ended = tokio::task::spawn_blocking(move || daemon.wait()).await;
    assert!(ended.expect("it does not panic").expect("it is a child").success());
    asked().await.expect(USAGE);
    let notes = fs::read_dir(runtime.join("mantyx-bridge")).expect("it was made");
    assert_eq!(notes.count(), 0, "nothing is left");
}

#[tokio::test]
async fn arguments_are_typed_and_tools_are_shown() {
    let rig = Harness::start().await;
    let typed = with(&rig, &["call", "plain_args", "by=hand", "count=3"]).await;
    let shown = with(&rig, &["tools", "plain_note"]).await.expect(OK).out;
    assert!(shown.contains("plain_note, of plain") && shown.contains("required"), "{shown}");
    let noted = with(&rig, &["call", "plain_note", "text=a=b"]).await.expect(OK);
    assert_eq!(noted.out, "noted: a=b\n");
    let wrong = with(&rig, &["call", "plain_note", "texd=x"]).await.expect(USAGE);
    assert!(wrong.err.contains("the fields are: text"), "{}", wrong.err);
    let unknown = with(&rig, &["call", "plain_not", "text=x"]).await.expect(FAILED);
    assert!(unknown.err.contains("did you mean `plain_note`"), "{}", unknown.err);
    for arguments in [&["call", "plain_not"][..], &["call", "plain_not", "{}"]] {
        let unknown = with(&rig, arguments).await.expect(FAILED);
        assert!(unknown.err.contains("Did you mean `plain_note`?"), "{}", unknown.err);
    }
    let json = with(&rig, &["tools", "plain", "--json"]).await.expect(OK).json();
    let costs = &json["injected"][0];
    assert_eq!(costs["backends"][0]["name"], "plain", "{costs}");
    assert!(costs["backends"][0]["tokens"].as_u64() > Some(0), "{costs}");
    assert!(json["tools"].is_array(), "the refs are there: {json}");
    assert!(typed.code == OK || typed.err.contains("none of its fields"), "{}", typed.err);
    with(&rig, &["status", "--check"]).await.expect(OK);
    let status = with(&rig, &["status"]).await.expect(OK).out;
    assert!(status.contains("CALLS/H") && status.contains("P95"), "{status}");
}

#[tokio::test]
async fn a_call_that_waits_says_so_and_was_not_made() {
    let rig = Harness::with_keys("approve: [note], ", "", &[], "").await;
    let config = rig.client_config();
    let desk = Desk::start(&["call", "plain_note", "text=x", "-c", &config]);
    wait::soon("the command should tell of the approval", async || {
        desk.err().contains("approve apr_").then_some(())
    })
    .await;
    let mut desk = desk;
    desk.signal(rustix::process::Signal::INT);
    let ran = desk.ended().await.expect(FAILED);
    assert!(ran.err.contains("was not made"), "{}", ran.err);
}

#[tokio::test]
async fn shells_complete_the_tools_and_backends_that_there_are() {
    let rig = Harness::start().await;
    let config = rig.client_config();
    let complete = async |words: &[&str]| {
        let index = (words.len() - 1).to_string();
        let env = [
            ("MANTYX_BRIDGE_CONFIG", config.as_str()),
            ("COMPLETE", "bash"),
            ("_CLAP_COMPLETE_INDEX", &index),
            ("_CLAP_COMPLETE_COMP_TYPE", "9"),
            ("_CLAP_IFS", "\n"),
        ];
        run_with(&[&["--"], words].concat(), &env).await.expect(OK).out
    };
    assert!(complete(&["mantyx-bridge", "call", "plain_no"]).await.contains("plain_note"));
    assert!(complete(&["mantyx-bridge", "refresh", ""]).await.contains("plain"));
    let commands = complete(&["mantyx-bridge", "demo"]).await;
    assert_eq!(commands.trim(), "demo", "no hidden commands");
}

#[tokio::test]
async fn the_operator_needs_no_apps_token() {
    let config = "upstream: {sandbox: true, workspace: acme}\n\
                  local: {echo: {description: Echoes., parameters: {type: object}, command: [cat]}}\n\
                  apps: {mine: {users: [4294967]}}\n";
    let dir = TempDir::new().expect("the temporary directory is writable");
    let socket = dir.path().join("sock").display().to_string();
    let listen = format!("listen: {{tcp: '{}', unix: '{socket}'}}\n", ports::free());
    let bridge = bridge::Bridge::start(&format!("{config}{listen}")).await;
    let config = bridge.config_path().display().to_string();
    let asked = async |words: &[&str]| super::run(&[words, &["-c", &config]].concat()).await;
    let status = asked(&["status"]).await.expect(OK);
    assert!(status.out.contains("echo"), "{}", status.out);
    let called = asked(&["call", "echo", r#"{"a":1}"#]).await.expect(OK);
    assert_eq!(called.out, "{\"a\":1}\n");
    let calls = Request::new("GET", "/v1/calls");
    let calls = calls.header("X-Bridge-Operator", &bridge.operator()).answer(bridge.addr()).await;
    assert_eq!(calls.expect(200)["calls"][0]["app"], "mine");
    let link = asked(&["open", "--print"]).await.expect(OK);
    assert!(link.out.contains("/sign-in?ticket="), "{}", link.out);
    // What only an app can do.
    let run = asked(&["run", "Hi."]).await.expect(FAILED);
    assert!(run.err.contains("an app's token"), "{}", run.err);
    // Who cannot read the operator's secret is told what to do.
    fs::remove_file(bridge.state("operator")).expect("it is there");
    let none = asked(&["status"]).await.expect(FAILED);
    assert!(none.err.contains("operator's secret"), "{}", none.err);
    // A user who is an app needs neither, though there is an address as well.
    let own = rustix::process::geteuid().as_raw().to_string();
    let text = fs::read_to_string(bridge.config_path()).expect("it is there");
    fs::write(bridge.config_path(), text.replace("4294967", &own)).expect("writable");
    wait::soon("the user should be let in", async || {
        let called = asked(&["call", "echo", r#"{"a":2}"#]).await;
        (called.out == "{\"a\":2}\n").then_some(())
    })
    .await;
}
