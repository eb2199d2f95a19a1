//! Peers that die, hang or are not there, and a bridge that is killed itself.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    frames::Script,
    harness::{Harness, ledger_in, tool_names},
    http::Request,
    mantyx::Mantyx,
    peers, sse, wait,
};

const NOTE: &str = r#"{"text":"x"}"#;

#[tokio::test]
async fn a_stdio_server_that_is_killed_while_idle_comes_back() {
    let rig = Harness::start().await;
    let child = peers::child_running(&rig.bridge.children(), "ledger_mcp").expect("a child");
    kill_process(child, Signal::KILL).expect("our own grandchild");
    wait::soon("another child should be started", async || {
        let now = peers::child_running(&rig.bridge.children(), "ledger_mcp");
        now.filter(|pid| *pid != child)
    })
    .await;
    rig.bridge.wait_backend("plain", "ready").await;
    assert_eq!(rig.call("plain", "plain_note", NOTE).await["result"], "noted: x");
}

#[tokio::test]
async fn a_stdio_server_that_is_killed_in_a_call_leaves_an_answer() {
    let rig = Harness::start().await;
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_hang", "{}")).await;
    rig.wait_executions(1).await;
    let child = peers::child_running(&rig.bridge.children(), "ledger_mcp").expect("a child");
    kill_process(child, Signal::KILL).expect("our own grandchild");
    let error = rig.mantyx.answer("tu_1").await["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("OUTCOME_UNKNOWN"), "what the model has to know: {error}");
    sse::whole(&rig.bridge, &run.stream).await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.run(Script::one_call("tu_2", "plain", "plain_note", NOTE)).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x", "it is used again");
    assert_eq!(rig.executions().len(), 2, "a call that may have had an effect is not repeated");
}

#[tokio::test]
async fn an_http_server_that_lost_its_sessions_is_greeted_again() {
    let mut server = peers::everything_http().await;
    let config = format!("mcp:\n  everything: {{url: \"{}/mcp\"}}\n", server.url());
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("everything", "ready").await;
    let echo = r#"{"message":"a"}"#;
    assert_eq!(rig.call("everything", "everything_echo", echo).await["result"], "Echo: a");
    server.kill9();
    server.restart().await;
    // A call may meet the old session before the bridge knows; a later one must not.
    wait::until("calls should work again", Duration::from_secs(40), async || {
        let id = format!("tu_{}", rig.mantyx.recorded().len());
        rig.run(Script::one_call(&id, "everything", "everything_echo", echo)).await;
        (rig.mantyx.answer(&id).await["result"] == "Echo: a").then_some(())
    })
    .await;
}

/// The ways in which tests/peers/forgetful_mcp.py says that a session is forgotten.
const FORGETTING: [&str; 7] = ["404", "410", "401", "400", "own", "200", "stream"];

#[tokio::test]
async fn call_in_a_forgotten_session_is_run_once_in_a_new_one_however_it_is_said() {
    let server = peers::forgetful().await;
    let entry = |form: &&str| format!("  s{form}: {{url: \"{}/{form}\"}}\n", server.url());
    let config = format!("mcp:\n{}", FORGETTING.iter().map(entry).collect::<String>());
    let rig = Harness::bare(&config).await;
    let mut expected = Vec::new();
    for form in FORGETTING {
        let backend = format!("s{form}");
        rig.bridge.wait_backend(&backend, "ready").await;
        for text in ["one", "two"] {
            let id = format!("tu_{form}_{text}");
            let arguments = format!(r#"{{"text":"{text}"}}"#);
            rig.run(Script::one_call(&id, &backend, &format!("{backend}_note"), &arguments)).await;
            let answer = rig.mantyx.answer(&id).await;
            assert_eq!(answer["result"], "noted", "{form} {text}: {answer}");
            expected.push(format!("/{form} {text}"));
        }
    }
    let address = server.url().strip_prefix("http://").expect("it is a plain server");
    let ledger = Request::new("GET", "/ledger").answer(address.parse().expect("an address")).await;
    let lines: Vec<String> = ledger.text().lines().map(str::to_owned).collect();
    assert_eq!(lines, expected, "each call has run once");
}

#[tokio::test]
async fn an_http_server_that_is_gone_is_an_error_and_not_a_wait() {
    let mut server = peers::everything_http().await;
    let config = format!("mcp:\n  everything: {{url: \"{}/mcp\"}}\n", server.url());
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("everything", "ready").await;
    let script = Script::new()
        .mcp(
            "tu_1",
            "everything",
            "everything_trigger_long_running_operation",
            r#"{"duration":60}"#,
        )
        .until("tu_1");
    rig.run(script.done()).await;
    wait::soon("the call should be under way", async || {
        (rig.bridge.backend("everything").await["callsInFlight"] == 1).then_some(())
    })
    .await;
    server.kill9();
    let answer = rig.mantyx.answer("tu_1").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(!error.contains("127.0.0.1"), "no address of ours: {error}");
}

#[tokio::test]
async fn a_backend_that_hangs_delays_no_other() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let deaf = peers::ledger(&ledger_in(&dir), &["--deaf"]);
    let other = peers::ledger(&ledger_in(&dir), &[]);
    let rig = Harness::with(&format!("  deaf: {deaf}\n  other: {other}\n"), &[], "").await;
    rig.bridge.wait_backend("other", "ready").await;
    // More calls that hang than one server is given at once, then one to another.
    let script = (0..20).fold(Script::new(), |script, n| {
        script.mcp(&format!("tu_{n}"), "plain", "plain_hang", "{}")
    });
    rig.run(script.mcp("tu_other", "other", "other_note", NOTE).until("tu_other").done()).await;
    assert_eq!(rig.mantyx.answer("tu_other").await["result"], "noted: x");
    assert_ne!(rig.bridge.backend("deaf").await["state"], "ready", "it never answered");
}

#[tokio::test]
async fn the_bridge_starts_though_its_peers_do_not() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let crash = peers::ledger(&ledger_in(&dir), &["--crash-on-start"]);
    let deaf = peers::ledger(&ledger_in(&dir), &["--deaf"]);
    let entries = format!(
        "  crash: {crash}\n  deaf: {deaf}\n  missing: {{command: /no/such/program}}\n  refused: {{url: \"http://127.0.0.1:1/mcp\"}}\n"
    );
    let rest = "a2a:\n  agent: {url: \"http://127.0.0.1:1\"}\n";
    let rig = Harness::with(&entries, &[], rest).await;
    assert_eq!(
        rig.call("plain", "plain_note", NOTE).await["result"],
        "noted: x",
        "what works, works"
    );
    for name in ["crash", "missing", "refused", "agent"] {
        wait::soon(&format!("{name} should have a reason"), async || {
            rig.bridge.backend(name).await["lastError"].is_string().then_some(())
        })
        .await;
    }
    let status = rig.bridge.status().await;
    for problem in status["problems"].as_array().expect("a list") {
        let expected = match problem["subject"].as_str().expect("a name") {
            "crash" => "Run it by hand",
            "missing" => "Correct `command`",
            _ => "",
        };
        let cure = problem["cure"].as_str().expect("a sentence");
        assert!(cure.starts_with(expected) && !cure.is_empty(), "{problem}");
    }
    // Ready all the same, as none of them is required.
    let stranger = Request::new("GET", "/readyz").answer(rig.bridge.addr()).await;
    assert_eq!(stranger.expect(200), serde_json::json!({"status": "ready"}));
    // A tool that explains stands in for a backend that was never there.
    let sent = rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run").value();
    let names = tool_names(&sent);
    assert!(names.contains(&"refused_unavailable".to_owned()), "{names:?}");
    rig.run(Script::new().local("tu_u", "refused_unavailable", "{}").until("tu_u").done()).await;
    let answer = rig.mantyx.answer("tu_u").await;
    assert!(answer["error"].is_string() || answer["result"].is_string(), "it says why: {answer}");
}

#[tokio::test]
async fn a_required_backend_is_waited_for() {
    let mantyx = Mantyx::start().await;
    let config = "mcp:\n  must: {url: \"http://127.0.0.1:1/mcp\", required: true}\n";
    let bridge = Bridge::start(&format!("{}{config}", mantyx.upstream())).await;
    let stranger = Request::new("GET", "/readyz").bearer("guess").answer(bridge.addr()).await;
    let body = stranger.expect_error(503);
    assert_eq!((&body["status"], &body["unresolved"]), (&"unavailable".into(), &1.into()));
    let text = stranger.text();
    assert!(!text.contains("must") && !text.contains("127.0.0.1"), "no name, no address: {text}");
    wait::soon("the first attempt should have failed", async || {
        bridge.backend("must").await["lastError"].is_string().then_some(())
    })
    .await;
    let body = bridge.api("GET", "/readyz", None).await.expect_error(503);
    assert_eq!(body["error"], "not_ready");
    let message = body["message"].as_str().expect("a sentence");
    assert!(!message.contains("token"), "one was shown: {message}");
    assert_eq!(body["missing"], serde_json::json!(["must"]), "it lists what is missing");
    bridge.api("GET", "/healthz", None).await.expect(200);
}

#[tokio::test]
async fn a_stop_lets_calls_finish() {
    let mut rig = Harness::start().await;
    let script = Script::one_call("tu_1", "plain", "plain_slow", r#"{"text":"2"}"#);
    rig.run(script).await;
    rig.wait_executions(1).await;
    rig.bridge.stop().await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "slept", "posted before the end");
}

#[tokio::test]
async fn cancelling_a_run_cancels_its_calls() {
    let rig = Harness::start().await;
    let run = rig.run(Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("never")).await;
    rig.wait_executions(1).await;
    let cancel = format!("{}/agent-runs/{}/cancel", crate::bridge::API, run.run_id);
    rig.bridge.api("POST", &cancel, None).await.expect(200);
    assert_eq!(rig.mantyx.requests("POST", "/cancel").len(), 1, "forwarded");
    wait::soon("the call should end", async || {
        (rig.bridge.backend("plain").await["callsInFlight"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_catalog_outlives_its_peer() {
    let mut server = peers::everything_http().await;
    let mantyx = Mantyx::start().await;
    let config = format!("mcp:\n  everything: {{url: \"{}/mcp\"}}\n", server.url());
    let mut bridge = Bridge::ready(&format!("{}{config}", mantyx.upstream())).await;
    bridge.wait_backend("everything", "ready").await;
    bridge.stop().await;
    server.kill9();
    bridge.restart().await;
    bridge.wait_ready().await;
    let backend = bridge.backend("everything").await;
    assert_eq!(backend["stale"], true, "{backend}");
    bridge.post_run("{}").await;
    let names = tool_names(&mantyx.only("POST", "/agent-runs").value());
    assert!(names.contains(&"everything_echo".to_owned()), "the last good catalog: {names:?}");
}

/// A run that is handed over may have been given the tools when their server was there.
#[tokio::test]
async fn a_call_of_a_server_that_is_away_is_answered_in_a_run_that_is_handed_over() {
    let mut server = peers::everything_http().await;
    let mantyx = Mantyx::start().await;
    let url = format!("{}/mcp", server.url());
    let config = format!("mcp:\n  everything: {{url: \"{url}\", on_unavailable: stub}}\n");
    let mut bridge = Bridge::ready(&format!("{}{config}", mantyx.upstream())).await;
    bridge.wait_backend("everything", "ready").await;
    bridge.stop().await;
    server.kill9();
    bridge.restart().await;
    bridge.wait_ready().await;
    assert_eq!(bridge.backend("everything").await["stale"], true);
    mantyx.script(Script::one_call("tu_1", "everything", "everything_echo", r#"{"message":"x"}"#));
    let run = bridge.post_run_with("{}", &[("X-Bridge-Backends", "none")]).await.run_id;
    bridge.api("POST", &format!("/v1/runs/{run}/attach"), Some("{}")).await.expect(202);
    let answer = mantyx.answer("tu_1").await;
    assert!(answer["error"].is_string(), "{answer}");
}
