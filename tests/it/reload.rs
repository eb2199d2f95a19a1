//! bridge.yaml changes while the bridge runs: what is new in it is taken, what is the same is left
//! alone, and nothing that is under way is lost.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bridge,
    events::{EVENTS, until},
    frames::Script,
    harness::{Harness, ledger_in},
    http::Request,
    mantyx::{CREDENTIAL, Mantyx},
    page::session,
    peers,
    sse::Stream,
    wait,
};

/// A field of the log line that tells what a reload has changed.
const TAKEN: &str = r#""added":""#;

/// A local tool, as an entry of `local:`.
fn tool(name: &str) -> String {
    format!("  {name}: {{description: d, parameters: {{type: object}}, command: [echo, hi]}}\n")
}

fn config(rig: &Harness) -> String {
    fs::read_to_string(rig.bridge.config_path()).expect("the configuration")
}

/// Writes the configuration in place, and does not say so.
fn write(rig: &Harness, text: &str) {
    fs::write(rig.bridge.config_path(), text).expect("the test's directory is writable");
}

/// How often a new configuration was taken.
fn taken(rig: &Harness) -> usize {
    rig.bridge.log().matches(TAKEN).count()
}

async fn wait_taken(rig: &Harness, count: usize) {
    wait::soon(&format!("{count} configurations should be taken"), async || {
        (taken(rig) >= count).then_some(())
    })
    .await;
}

/// Writes the configuration, and asks for it to be read.
async fn reload(rig: &mut Harness, text: &str) {
    let before = taken(rig);
    write(rig, text);
    rig.bridge.process().signal(Signal::HUP);
    wait_taken(rig, before + 1).await;
}

async fn backends(rig: &Harness) -> Vec<String> {
    let status = rig.bridge.status().await;
    let names = status["backends"].as_array().expect("the backends").iter();
    names.map(|backend| backend["name"].as_str().expect("a name").to_owned()).collect()
}

/// The last error of the configuration, once there is one.
async fn last_error(rig: &Harness) -> String {
    wait::soon("what is wrong should be told", async || {
        rig.bridge.status().await["config"]["lastError"].as_str().map(str::to_owned)
    })
    .await
}

/// Makes a call of a tool of `server` by hand.
async fn call(rig: &Harness, server: &str, tool: &str, text: &str) -> Value {
    let call = json!({
        "toolUseId": "tu", "name": format!("{server}_{tool}"), "args": {"text": text},
        "kind": "mcp_local", "mcpServer": server,
    });
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(&call.to_string())).await;
    answer.expect(200)
}

/// The process of a ledger server.
async fn pid(rig: &Harness, server: &str) -> i32 {
    let answer = call(rig, server, "pid", "").await;
    let pid = answer["result"].as_str().and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("no process: {answer}"))
}

fn is_alive(rig: &Harness, pid: i32) -> bool {
    rig.bridge.children().iter().any(|child| Pid::as_raw_nonzero(*child).get() == pid)
}

/// A call to `plain_slow` that lasts until the file is there, and the file.
fn slow_until(rig: &Harness) -> (String, PathBuf) {
    let file = rig.bridge.config_path().with_file_name("enough");
    (json!({"text": file}).to_string(), file)
}

/// Puts `text` into a new file that takes the place of `path`.
fn put_in_place(path: &Path, text: &str) {
    let draft = path.with_extension("new");
    fs::write(&draft, text).expect("the test's directory is writable");
    fs::rename(draft, path).expect("both are in one directory");
}

#[tokio::test]
async fn every_way_to_change_the_file_is_taken_and_what_is_the_same_stays() {
    let rig = Harness::with("", &[], "local:\n").await;
    let (path, first) = (rig.bridge.config_path(), config(&rig));
    let (server, since) = (pid(&rig, "plain").await, rig.bridge.status().await);
    let with = |name: &str| first.replace("local:\n", &format!("local:\n{}", tool(name)));

    fs::write(&path, with("in_place")).expect("the test's directory is writable");
    rig.wait_backends(&["in_place", "plain"]).await;
    put_in_place(&path, &with("renamed"));
    rig.wait_backends(&["plain", "renamed"]).await;
    fs::remove_file(&path).expect("it is there");
    fs::write(&path, with("anew")).expect("the test's directory is writable");
    rig.wait_backends(&["anew", "plain"]).await;

    // The layout of a ConfigMap: the file leads through a symlink that is replaced.
    let root = path.parent().expect("the test's directory");
    for (version, name) in [("..1", "anew"), ("..2", "swapped"), ("..3", "again")] {
        fs::create_dir(root.join(version)).expect("a new directory");
        fs::write(root.join(version).join("bridge.yaml"), with(name)).expect("a new file");
    }
    let link = |to: &str, name: &str| {
        symlink(to, root.join("..link")).expect("a new symlink");
        fs::rename(root.join("..link"), root.join(name)).expect("both are in one directory");
    };
    link("..1", "..data");
    link("..data/bridge.yaml", "bridge.yaml");
    link("..2", "..data");
    rig.wait_backends(&["plain", "swapped"]).await;
    link("..3", "..data");
    rig.wait_backends(&["again", "plain"]).await;

    assert_eq!(pid(&rig, "plain").await, server, "an untouched server keeps its process");
    let now = rig.bridge.status().await;
    assert_ne!(now["config"]["loadedAt"], since["config"]["loadedAt"]);
    assert_eq!(now["config"]["lastError"], Value::Null);
    rig.bridge.wait_backend("again", "ready").await;
    let log = rig.bridge.log();
    assert!(log.contains(r#""added":"swapped","changed":"","removed":"anew""#), "{log}");
}

impl Harness {
    async fn wait_backends(&self, names: &[&str]) {
        wait::soon(&format!("the backends should be {names:?}"), async || {
            (backends(self).await == names).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_burst_of_writes_is_one_reload() {
    let mut rig = Harness::with("", &[], "local:\n").await;
    let first = config(&rig);
    for n in 0..20 {
        let more = first.replace("local:\n", &format!("local:\n{}", tool(&format!("t{n}"))));
        write(&rig, &more);
    }
    rig.wait_backends(&["plain", "t19"]).await;
    // SIGHUP is one more; were there others, they would come before it.
    rig.bridge.process().signal(Signal::HUP);
    wait_taken(&rig, 2).await;
    assert_eq!(taken(&rig), 2, "{}", rig.bridge.log());
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_told_with_its_place() {
    let mut rig = Harness::start().await;
    let (good, server) = (config(&rig), pid(&rig, "plain").await);
    let loaded = rig.bridge.status().await["config"]["loadedAt"].clone();
    let bad = good.replace("mcp:\n", "mcp:\n  other: {comand: [true]}\n");
    let line = 1 + bad.lines().position(|line| line.contains("comand")).expect("the line is there");
    write(&rig, &bad);
    let error = last_error(&rig).await;
    assert!(error.contains(&format!("bridge.yaml:{line}:11: ")), "{error}");
    let status = rig.bridge.status().await;
    assert_eq!(status["config"]["loadedAt"], loaded);
    assert_eq!(backends(&rig).await, ["plain"]);
    assert_eq!(pid(&rig, "plain").await, server, "the old one stays");
    let log = rig.bridge.log();
    assert!(log.contains(r#""line":"other: {comand: [true]}""#), "the log has the line: {log}");
    let mut shown = bridge::command();
    shown.arg("status").arg("-c").arg(rig.bridge.config_path());
    let shown = shown.output().expect("the binary starts");
    let told = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{told}");
    assert!(told.contains("config: ") && told.contains("`comand`"), "{told}");
    assert!(told.contains("cure: "), "{told}");

    write(&rig, &bad.replace("comand: [true]", "command: sh, required: perhaps"));
    wait::soon("another mistake should be told", async || {
        last_error(&rig).await.contains("required").then_some(())
    })
    .await;
    fs::remove_file(rig.bridge.config_path()).expect("it is there");
    wait::soon("that there is no file should be told", async || {
        let error = last_error(&rig).await;
        (error.contains("bridge.yaml") && !error.contains("required")).then_some(())
    })
    .await;
    reload(&mut rig, &good).await;
    let status = rig.bridge.status().await;
    assert_eq!(status["config"]["lastError"], Value::Null, "the fixed file clears it");
    assert_eq!(pid(&rig, "plain").await, server);
}

#[tokio::test]
async fn a_secret_in_another_file_is_read_again_when_that_is_asked_for() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let secret = dir.path().join("secret");
    fs::write(&secret, "one").expect("a new file");
    let other = peers::ledger(&ledger_in(&dir), &[]);
    let env = format!("env: {{SECRET: \"${{file:{}}}\"}}", secret.display());
    let entry = format!("  other: {}\n", peers::with(&other, &env));
    let mut rig = Harness::with(&entry, &[], "").await;
    rig.bridge.wait_backend("other", "ready").await;
    let (same, changed) = (pid(&rig, "plain").await, pid(&rig, "other").await);
    let text = config(&rig);

    reload(&mut rig, &text).await;
    assert_eq!(pid(&rig, "other").await, changed, "nothing has changed yet");
    fs::write(&secret, "two").expect("the file is ours");
    reload(&mut rig, &text).await;
    wait::soon("the server should be started with the new secret", async || {
        (pid(&rig, "other").await != changed).then_some(())
    })
    .await;
    let now = pid(&rig, "other").await;
    let environment = fs::read(format!("/proc/{now}/environ")).expect("a child of ours");
    assert!(String::from_utf8_lossy(&environment).contains("SECRET=two"));
    assert_eq!(pid(&rig, "plain").await, same, "the other keeps its process");
    wait::soon("the earlier process should end", async || (!is_alive(&rig, changed)).then_some(()))
        .await;
    let log = rig.bridge.log();
    assert!(log.contains(r#""added":"","changed":"other","removed":"""#), "{log}");
}

#[tokio::test]
async fn an_entry_that_waits_for_a_secret_is_started_when_that_is_there() {
    let rig = Harness::with("", &[], "local:\n").await;
    let secret = rig.bridge.config_path().with_file_name("secret");
    let entry = tool("needy").replace("command:", "env: {KEY: \"${file:secret}\"}, command:");
    write(&rig, &config(&rig).replace("local:\n", &format!("local:\n{entry}")));
    rig.wait_backends(&["needy", "plain"]).await;
    rig.bridge.wait_backend("needy", "down").await;
    let error = rig.bridge.backend("needy").await["lastError"].to_string();
    assert!(error.contains("local.needy.env.KEY: ${file:secret}"), "{error}");
    // The daemon sees the file that appears.
    fs::write(secret, "hunter22").expect("the test's directory is writable");
    rig.bridge.wait_backend("needy", "ready").await;
    assert!(!rig.bridge.log().contains("hunter22"));
}

#[tokio::test]
async fn calls_of_a_removed_backend_finish_and_later_ones_are_told() {
    let mut rig = Harness::start().await;
    let server = pid(&rig, "plain").await;
    let without = config(&rig)
        .lines()
        .filter(|line| !line.contains("plain:"))
        .fold(String::new(), |text, line| if line == "mcp:" { text } else { text + line + "\n" });
    let (slow, enough) = slow_until(&rig);
    let script = Script::new()
        .mcp("tu_1", "plain", "plain_slow", &slow)
        .until("removed")
        .mcp("tu_2", "plain", "plain_note", r#"{"text":"late"}"#)
        .answered("tu_2")
        .answered("tu_1")
        .done();
    rig.run(script).await;
    rig.wait_executions(2).await;
    reload(&mut rig, &without).await;
    assert!(backends(&rig).await.is_empty(), "it is gone at once");
    let run = rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    assert_eq!(run.injected.unwrap_or_default(), "", "a new run is not given it");
    assert!(is_alive(&rig, server), "its process works on");
    rig.mantyx.release("removed");
    let late = rig.mantyx.answer("tu_2").await;
    let told = late["error"].as_str().unwrap_or_else(|| panic!("{late}"));
    assert!(told.contains("`plain`") && told.contains("not configured"), "{told}");
    fs::write(enough, "").expect("the test's directory is writable");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "slept", "what was under way finishes");
    wait::soon("the process should end", async || rig.bridge.children().is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn a_changed_backend_finishes_its_calls_beside_the_new_one() {
    let mut rig = Harness::start().await;
    let before = pid(&rig, "plain").await;
    let (slow, enough) = slow_until(&rig);
    rig.run(Script::one_call("tu_1", "plain", "plain_slow", &slow)).await;
    rig.wait_executions(2).await;
    let text = config(&rig).replace("plain: {", "plain: {env: {NEW: \"1\"}, ");
    reload(&mut rig, &text).await;
    wait::soon("new calls should go to the new process", async || {
        (pid(&rig, "plain").await != before).then_some(())
    })
    .await;
    assert!(rig.mantyx.posts("tu_1").is_empty() && is_alive(&rig, before), "both work");
    fs::write(enough, "").expect("the test's directory is writable");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "slept");
    wait::soon("the earlier process should end", async || (!is_alive(&rig, before)).then_some(()))
        .await;
    // One that cannot be started takes the place as well: the file says so.
    let broken = text.replace("command: ", "command: /nonexistent/program, cwd: /, #");
    let broken = broken.replace("/, #", "/} #");
    reload(&mut rig, &broken).await;
    rig.bridge.wait_backend("plain", "down").await;
    reload(&mut rig, &text).await;
    rig.bridge.wait_backend("plain", "ready").await;
}

#[tokio::test]
async fn no_request_fails_over_twenty_reloads() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let entry = format!("  other: {}\n", peers::ledger(&ledger_in(&dir), &[]));
    let mut rig = Harness::with(&entry, &[], "local:\n").await;
    rig.bridge.wait_backend("other", "ready").await;
    let (first, server) = (config(&rig), pid(&rig, "plain").await);
    let daemon = rig.bridge.process().pid();
    let (rounds, over) = (Cell::new(0), Cell::new(false));
    let (_, enough) = slow_until(&rig);
    let trickle = async {
        while !over.get() {
            for server in ["plain", "other"] {
                let answer = call(&rig, server, "note", "x").await;
                assert_eq!(answer["result"], "noted: x", "{server}: {answer}");
            }
            rig.bridge.api("GET", "/v1/tool-refs", None).await.expect(200);
            rounds.set(rounds.get() + 1);
        }
    };
    let reloads = async {
        for n in 0..20 {
            let changed = format!("other: {{env: {{N: \"{n}\"}}, ");
            let text = first.replace("other: {", &changed);
            let text = text.replace("local:\n", &format!("local:\n{}", tool(&format!("t{n}"))));
            write(&rig, &text);
            rustix::process::kill_process(daemon, Signal::HUP).expect("it runs");
            wait_taken(&rig, n + 1).await;
            let before = rounds.get();
            wait::soon("calls should go on", async || (rounds.get() > before).then_some(())).await;
        }
        over.set(true);
        fs::write(&enough, "").expect("the test's directory is writable");
    };
    // Under way on the first process from before the first reload to after the last.
    let slow = async || {
        let until = enough.to_str().expect("a path of the tests is UTF-8");
        let answer = call(&rig, "other", "slow", until).await;
        assert_eq!(answer["result"], "slept", "{answer}");
    };
    tokio::join!(slow(), slow(), slow(), trickle, reloads);
    rig.wait_backends(&["other", "plain", "t19"]).await;
    assert_eq!(pid(&rig, "plain").await, server, "the one that never changed is the same");
    wait::soon("all earlier processes should end", async || {
        (rig.bridge.children().len() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_and_the_rest_is_taken() {
    let mut rig = Harness::with("", &[], "local:\n").await;
    let elsewhere = Mantyx::start().await;
    let first = config(&rig);
    let text = first
        .replace(&rig.bridge.addr().to_string(), "127.0.0.1:1")
        .replace("127.0.0.1:0", "127.0.0.1:1")
        .replace("state_dir: ", "state_dir: /nonexistent")
        .replace("local:\n", &format!("local:\n{}", tool("rest")));
    reload(&mut rig, &text).await;
    let error = last_error(&rig).await;
    assert!(error.contains("listen, state_dir ") && error.contains("restart"), "{error}");
    assert_eq!(backends(&rig).await, ["plain", "rest"]);

    // What is meant for another MANTYX does not go to this one.
    let moved =
        first.replace(&rig.mantyx.url(), &elsewhere.url()).replace(CREDENTIAL, "others-key");
    reload(&mut rig, &moved).await;
    let error = last_error(&rig).await;
    assert!(error.contains("upstream.base_url ") && error.contains("restart"), "{error}");
    let mut shown = bridge::command();
    shown.arg("status").arg("-c").arg(rig.bridge.config_path());
    let shown = shown.output().expect("the binary starts").stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("config: taken, but "), "{shown}");
    rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {CREDENTIAL}").as_str()));
    assert!(elsewhere.recorded().is_empty());
    reload(&mut rig, &first).await;
    assert_eq!(rig.bridge.status().await["config"]["lastError"], Value::Null);
}

#[tokio::test]
async fn a_new_credential_is_sent_and_new_apps_come_in() {
    let mut rig = Harness::start().await;
    let first = config(&rig);
    // A run that was begun with the old one posts with the new one.
    let script = Script::new().until("go").mcp("tu_1", "plain", "plain_note", r#"{"text":"x"}"#);
    rig.run(script.answered("tu_1").done()).await;
    let text = first.replace(CREDENTIAL, "a-new-one");
    reload(&mut rig, &text).await;
    rig.mantyx.release("go");
    let posts = rig.mantyx.wait_posts("tu_1", 1).await;
    let header = posts.first().and_then(|post| post.header("authorization"));
    assert_eq!(header, Some("Bearer a-new-one"));

    let status = |token: &str| Request::new("GET", "/v1/status").bearer(token);
    let (addr, token) = (rig.bridge.addr(), rig.bridge.token().to_owned());
    let new = "0123456789abcdef0123456789abcdef";
    let refs = async || {
        let refs = Request::new("GET", "/v1/tool-refs").bearer(new).answer(addr).await;
        refs.expect(200)["tools"].as_array().map(Vec::len)
    };
    let cookie = session(&rig.bridge).await;
    let by_cookie = || Request::new("GET", "/v1/status").header("Cookie", &cookie);
    by_cookie().answer(addr).await.expect(200);
    reload(&mut rig, &format!("{text}apps:\n  default: {{token: {new}}}\n")).await;
    by_cookie().answer(addr).await.expect_error(401);
    reload(&mut rig, &format!("{text}apps:\n  new: {{token: {new}}}\n")).await;
    status(&token).answer(addr).await.expect_error(401);
    assert_eq!(refs().await, Some(1));
    reload(&mut rig, &format!("{text}apps:\n  new: {{token: {new}, backends: []}}\n")).await;
    assert_eq!(refs().await, Some(0), "what it may use is another");
    reload(&mut rig, &text).await;
    status(new).answer(addr).await.expect_error(401);
    status(&token).answer(addr).await.expect(200);
}

#[tokio::test]
async fn event_stream_shows_reloads_and_ends_with_the_right_to_it() {
    let mut rig = Harness::with("", &[], "local:\n").await;
    let first = config(&rig);
    let mut events = Stream::open(&rig.bridge, EVENTS).await;
    write(&rig, "nonsense");
    let problem = |status: &Value| status["problems"][0].clone();
    let told = until(&mut events, "status", |status| problem(status)["subject"] == "config").await;
    let cure = problem(&told)["cure"].as_str().unwrap_or_default().to_owned();
    assert!(cure.contains("file"), "{told}");
    let more = first.replace("local:\n", &format!("local:\n{}", tool("more")));
    reload(&mut rig, &more).await;
    until(&mut events, "backend", |backend| backend["name"] == "more").await;
    reload(&mut rig, &first).await;
    until(&mut events, "backend", |backend| backend["state"] == "removed").await;
    reload(&mut rig, &first.replace("listen: ", "auth: off\nlisten: ")).await;
    let told = until(&mut events, "status", |status| !problem(status).is_null()).await;
    let cure = problem(&told)["cure"].as_str().unwrap_or_default().to_owned();
    assert!(cure.contains("Restart"), "{told}");
    let new = "0123456789abcdef0123456789abcdef";
    reload(&mut rig, &format!("{first}apps:\n  new: {{token: {new}}}\n")).await;
    while events.event().await.is_some() {}
}
