//! What programs that the bridge starts can reach, and that none outlives it (SECURITY.md).

use std::{fs, path::Path, time::Duration};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::{bridge::Bridge, cli, peers, wait};

/// The configuration of a hostile server, with `more` keys in its entry.
fn hostile(args: &[&str], more: &str) -> String {
    let entry = peers::hostile_mcp(args).replacen('{', &format!("{{{more}"), 1);
    format!("upstream: {{sandbox: true}}\nmcp:\n  bad: {entry}\n")
}

/// One call by hand; its answer as the model would read it.
async fn call(bridge: &Bridge, tool: &str, args: Value) -> Value {
    let event = json!({"toolUseId": "tu_1", "name": tool, "args": args});
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

/// Each run takes descriptors, so the daemon takes what it may have of them; programs have the
/// limit that they would have had without it.
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
    kill_process(first, Signal::KILL).expect("it lives");
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

/// The processes whose ids `text` lists.
fn listed(text: &str) -> Vec<Pid> {
    let ids: Vec<i32> = serde_json::from_str(text).expect("a list of ids");
    ids.into_iter().map(|id| Pid::from_raw(id).expect("an id")).collect()
}

/// The processes that the server has detached, which live.
async fn detached(bridge: &Bridge, args: Value) -> Vec<Pid> {
    let answer = call(bridge, "bad_detach", args).await;
    let pids = listed(answer["result"].as_str().expect("a result"));
    assert_eq!(pids.len(), 4);
    pids
}

/// Waits until no process of these is left, and none to be waited for.
async fn wait_gone(pids: &[Pid], why: &str) {
    let soon = Duration::from_secs(10);
    wait::until(&format!("what it detached should end {why}"), soon, async || {
        pids.iter().all(|pid| test_kill_process(*pid).is_err()).then_some(())
    })
    .await;
}

/// Browsers and language servers are no members of the server's group. They live in a user
/// namespace of their own where the bridge's files are masked, and the bridge need not be root to
/// find them.
#[tokio::test]
async fn detached_processes_end_with_their_program() {
    for (sandbox, powerless) in
        [("", false), ("", true), ("sandbox: off, ", true), ("sandbox: secrets, ", true)]
    {
        let config = hostile(&[], sandbox);
        let mut bridge = match powerless {
            true => Bridge::start_powerless(&config).await,
            false => Bridge::start(&config).await,
        };
        bridge.wait_backend("bad", "ready").await;
        let pids = detached(&bridge, json!({})).await;
        assert!(pids.iter().all(|pid| test_kill_process(*pid).is_ok()), "they live");
        let guard = guard_of(bridge.process().pid());
        call(&bridge, "bad_crash", json!({})).await;
        wait_gone(&pids, "with its death").await;
        bridge.wait_backend("bad", "ready").await;
        assert_eq!(guard_of(bridge.process().pid()), guard, "which is no orphan");

        let pids = detached(&bridge, json!({})).await;
        bridge.set_config("upstream: {sandbox: true}\n");
        wait_gone(&pids, "with its removal").await;

        bridge.set_config(&config);
        wait::soon("the entry should be back", async || {
            let status = bridge.status().await;
            status["backends"].as_array().is_some_and(|all| !all.is_empty()).then_some(())
        })
        .await;
        bridge.wait_backend("bad", "ready").await;
        let pids = detached(&bridge, json!({})).await;
        bridge.stop().await;
        assert!(pids.iter().all(|pid| test_kill_process(*pid).is_err()), "none is left at a stop");
    }
}

/// After kill -9, the guard finds them.
#[tokio::test]
async fn detached_processes_end_with_a_killed_daemon() {
    for sandbox in ["", "sandbox: off, ", "sandbox: secrets, "] {
        let mut bridge = Bridge::start_powerless(&hostile(&[], sandbox)).await;
        bridge.wait_backend("bad", "ready").await;
        let pids = detached(&bridge, json!({})).await;
        bridge.kill9();
        wait_gone(&pids, "with the daemon").await;
        bridge.wait_childless().await;
    }
}

/// The bridge is the parent of orphans, so the bridge has to wait for their end. It leaves alone
/// what lives, as its program does.
#[tokio::test]
async fn orphans_that_end_are_waited_for() {
    let mut bridge = Bridge::start(&hostile(&[], "")).await;
    bridge.wait_backend("bad", "ready").await;
    let lasting = detached(&bridge, json!({})).await;
    let brief = detached(&bridge, json!({"seconds": 0.05})).await;
    // The first is the server's own child.
    wait_gone(&brief[1..2], "by itself").await;
    assert!(lasting.iter().all(|pid| test_kill_process(*pid).is_ok()), "their program lives");
    // Other processes are still waited for by those who have started them.
    for _ in 0..3 {
        call(&bridge, "bad_crash", json!({})).await;
        bridge.wait_backend("bad", "ready").await;
    }
    wait_gone(&lasting, "with their program").await;
    bridge.stop().await;
}

/// A script may leave a process in the background; its output is read, and it ends after the call.
#[tokio::test]
async fn detached_processes_of_a_local_tool_end_after_the_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script");
    fs::write(&script, "setsid sleep 600 </dev/null >/dev/null 2>&1 &\necho \"[$!]\"\n")
        .expect("writable");
    let config = format!(
        "upstream: {{sandbox: true}}\nlocal:\n  leaves: {{command: [sh, {}]}}\n",
        script.display()
    );
    let mut bridge = Bridge::start(&config).await;
    bridge.wait_backend("leaves", "ready").await;
    for _ in 0..3 {
        let answer = call(&bridge, "leaves", json!({})).await;
        wait_gone(&listed(answer["result"].as_str().expect("an id")), "after the call").await;
    }
    bridge.stop().await;
}

#[tokio::test]
async fn detached_processes_end_with_the_doctor() {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = dir.path().join("ids");
    let config = dir.path().join("bridge.yaml");
    let args = ["--detach", ids.to_str().expect("UTF-8")];
    let state = dir.path().join("state").display().to_string();
    fs::write(&config, format!("state_dir: {state}\n{}", hostile(&args, ""))).expect("writable");
    let config = config.to_str().expect("UTF-8");
    cli::run(&["doctor", "bad", "-c", config]).await.expect(cli::OK);
    let started = fs::read_to_string(&ids).expect("the server has started them");
    wait_gone(&listed(&started), "with the doctor").await;
}
