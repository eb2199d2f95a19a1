//! What programs that the bridge starts can reach, and that none outlives it (SECURITY.md).

use std::{fs, path::Path, time::Duration};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::{bridge::Bridge, peers, wait};

/// The configuration of a hostile server, with `more` keys in its entry.
fn hostile(args: &[&str], more: &str) -> String {
    let entry = peers::hostile_mcp(args).replacen('{', &format!("{{{more}"), 1);
    format!("upstream: {{sandbox: true}}\nmcp:\n  bad: {entry}\n")
}

/// One call by hand; its answer as the model would read it.
async fn call(bridge: &Bridge, tool: &str, args: Value) -> Value {
    let event = json!({"toolUseId": "tu_1", "kind": "mcp_local", "name": tool, "args": args});
    bridge.api("POST", "/v1/tool-calls", Some(&event.to_string())).await.expect(200)
}

/// What became of each attempt.
async fn pry(bridge: &Bridge, args: Value) -> Value {
    let answer = call(bridge, "bad_pry", args).await;
    let seen = answer["result"].as_str().expect("a result");
    serde_json::from_str(seen).expect("the tool answers in JSON")
}

fn of_process(pid: Pid, file: &str) -> String {
    format!("/proc/{}/{file}", pid.as_raw_nonzero())
}

/// A13: a program of the same user sees nothing of the daemon's memory, environment and files that
/// are open.
#[tokio::test]
async fn the_daemon_cannot_be_looked_into() {
    let mut bridge = Bridge::start_powerless(&hostile(&[], "")).await;
    bridge.wait_backend("bad", "ready").await;
    let daemon = bridge.process().pid();
    let secret = ["environ", "mem", "fd/0", "root"].map(|file| of_process(daemon, file));
    let mut read = secret.to_vec();
    read.push("/proc/self/environ".to_owned());
    let seen = pry(&bridge, json!({"read": read})).await;
    for path in secret {
        assert!(["EACCES", "EPERM"].contains(&seen[&path].as_str().expect("seen")), "{seen}");
    }
    assert_eq!(seen["/proc/self/environ"], "done", "it can look at all: {seen}");
}

/// Each run takes descriptors, so the daemon takes what it may have of them; programs have the limit
/// that they would have had without it.
#[tokio::test]
async fn the_daemon_alone_may_have_more_files_open() {
    let mut bridge = Bridge::start_with_few_files(&hostile(&[], "")).await;
    bridge.wait_backend("bad", "ready").await;
    let daemon = bridge.process().pid();
    let limit = |pid: Pid| -> Vec<String> {
        let limits = fs::read_to_string(of_process(pid, "limits")).expect("a process of ours");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let words = line.expect("a limit of files").split_whitespace();
        words.take(2).map(str::to_owned).collect()
    };
    assert_eq!(limit(daemon), ["4096", "4096"]);
    let children = bridge.children();
    assert!(!children.is_empty());
    for child in children {
        assert_eq!(limit(child), ["512", "4096"]);
    }
}

/// A13: a program that is shut in sees what its `sandbox` lists and what it takes to run.
#[tokio::test]
async fn a_sandbox_shuts_a_program_in() {
    let allowed = tempfile::tempdir().expect("a directory");
    let file = |name: &str| allowed.path().join(name).to_str().expect("UTF-8").to_owned();
    for name in ["docs", "out"] {
        fs::create_dir(file(name)).expect("a new directory is empty");
    }
    fs::write(file("docs/a"), "a").expect("a file");
    fs::write(file("beside"), "b").expect("a file");
    let scripts = peers::repository("tests/peers");
    let venv = peers::python_home();
    let lists = format!(
        "sandbox: {{read: [{}, {}, {}], write: [{}]}}, ",
        scripts.display(),
        venv.display(),
        file("docs"),
        file("out")
    );
    // As the service runs: root may read whatever it likes.
    let mut bridge = Bridge::start_powerless(&hostile(&[], &lists)).await;
    bridge.wait_backend("bad", "ready").await;
    let daemon = bridge.process().pid();
    let token = bridge.state("token").to_str().expect("UTF-8").to_owned();
    let environ = of_process(daemon, "environ");
    let seen = pry(
        &bridge,
        json!({
            "read": [file("docs"), file("docs/a"), file("out"), "/etc/hosts",
                     file("beside"), allowed.path(), token, environ, "/etc/shadow", "/root"],
            "write": [file("out/new"), "/dev/null", file("docs/a"), file("docs/new"),
                      file("beside"), "/usr/new", token],
            "signal": daemon.as_raw_nonzero(),
        }),
    )
    .await;
    let out = file("out/new");
    for open in [
        &file("docs"),
        &file("docs/a"),
        &file("out"),
        "/etc/hosts",
        &format!("w:{out}"),
        "w:/dev/null",
    ] {
        assert_eq!(seen[open], "done", "{open}: {seen}");
    }
    assert!(Path::new(&out).exists(), "it was written");
    for shut in seen.as_object().expect("a map").iter().filter(|(_, what)| *what != "done") {
        assert!(["EACCES", "EPERM"].contains(&shut.1.as_str().expect("a word")), "{shut:?}");
    }
    let open = seen.as_object().expect("a map").values().filter(|what| *what == "done").count();
    assert_eq!(open, 6, "and nothing else: {seen}");
    // What it starts is shut in as well, and all of it ends with the bridge.
    bridge.stop().await;
}

/// A path that does not exist is told with its cure, and the program does not run without.
#[tokio::test]
async fn a_sandbox_that_cannot_be_made_starts_nothing() {
    let bridge = Bridge::start(&hostile(&[], "sandbox: {read: [/nowhere/at-all]}, ")).await;
    bridge.wait_backend("bad", "down").await;
    let told = bridge.status().await["problems"][0].clone();
    let text = |key: &str| told[key].as_str().unwrap_or_default();
    assert!(text("message").contains("`sandbox` lists /nowhere/at-all"), "{told}");
    assert!(text("cure").contains("ake it off the list"), "{told}");
}

/// The process that outlives the daemon to kill what is left.
fn guard_of(daemon: Pid) -> Option<Pid> {
    let entries = fs::read_dir("/proc").expect("the tests run on Linux");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).find(|pid| {
        let read = |file| fs::read_to_string(of_process(*pid, file)).unwrap_or_default();
        let parent = format!("PPid:\t{}\n", daemon.as_raw_nonzero());
        read("status").contains(&parent) && read("cmdline").contains("__guard")
    })
}

/// A22: after kill -9, what a program has started is killed, too, though it heeds neither SIGTERM
/// nor the end of its stdin.
#[tokio::test]
async fn no_grandchild_outlives_a_killed_daemon() {
    let mut bridge = Bridge::start(&hostile(&["--ignore-stdin-end"], "")).await;
    bridge.wait_backend("bad", "ready").await;
    let daemon = bridge.process().pid();
    let grandchild = || async {
        let answer = call(&bridge, "bad_fork", json!({})).await;
        let pid = answer["result"].as_str().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        pid.expect("the grandchild's id")
    };
    let pids = [grandchild().await, grandchild().await];
    let guard = guard_of(daemon).expect("a guard");
    bridge.kill9();
    let soon = Duration::from_secs(10);
    wait::until("all of them should die, and the guard end", soon, async || {
        pids.iter().chain([&guard]).all(|pid| test_kill_process(*pid).is_err()).then_some(())
    })
    .await;
    bridge.wait_childless().await;
}

/// A guard that is killed is replaced with the next program.
#[tokio::test]
async fn a_guard_that_died_is_replaced() {
    let config = hostile(&["--ignore-stdin-end"], "");
    let mut bridge = Bridge::start(&config).await;
    bridge.wait_backend("bad", "ready").await;
    let daemon = bridge.process().pid();
    let first = guard_of(daemon).expect("a guard");
    rustix::process::kill_process(first, rustix::process::Signal::KILL).expect("it lives");
    // The server ends; the next one makes the bridge speak to its guard.
    call(&bridge, "bad_crash", json!({})).await;
    let second = wait::soon("another guard should stand", async || {
        guard_of(daemon).filter(|pid| *pid != first)
    })
    .await;
    bridge.wait_backend("bad", "ready").await;
    call(&bridge, "bad_fork", json!({})).await;
    bridge.kill9();
    bridge.wait_childless().await;
    wait::soon("the guard should end", async || test_kill_process(second).err()).await;
}
