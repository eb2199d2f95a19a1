//! A stdio server that does what no server should (tests/peers/hostile_mcp.py), and what becomes of
//! the bridge.

use std::{collections::BTreeMap, time::Duration};

use rustix::process::{Pid, test_kill_process};
use serde_json::Value;

use crate::{
    approvals,
    bridge::{API, Bridge},
    frames::Script,
    harness::{Harness, tool_names},
    peers, wait,
};

async fn with(args: &[&str]) -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  bad: {}\n", peers::hostile_mcp(args))).await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig
}

async fn call(rig: &Harness, id: &str, tool: &str) -> Value {
    rig.run(Script::one_call(id, "bad", tool, "{}")).await;
    rig.mantyx.answer(id).await
}

#[tokio::test]
async fn a_strange_catalog_reaches_mantyx_as_it_is() {
    let rig = with(&["--noise"]).await;
    rig.bridge.post_run("{}").await;
    let sent = rig.mantyx.only("POST", "/agent-runs").text();
    let info = r#""serverInfo":{"version":"0.1","name":"hostile","x-build":123456789012345678901234567890,"x-limit":1e400,"x-path":"\u00e9\/"}"#;
    assert!(sent.contains(info), "serverInfo verbatim: {sent}");
    let tool = r#"{"zeta":1,"name":"bad_strange", "description":"Strange \u00e9\/ results","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1e400,"#;
    assert!(sent.contains(tool), "a tool verbatim but for its name: {sent}");
}

#[tokio::test]
async fn misdeeds_become_answers() {
    let rig = with(&[]).await;
    let garbage = call(&rig, "tu_1", "bad_garbage").await;
    assert_eq!(garbage["result"], "after the garbage");
    let fail = call(&rig, "tu_2", "bad_fail").await;
    assert_eq!(fail["error"], "the disk is full");
    let refuse = call(&rig, "tu_3", "bad_refuse").await;
    assert!(
        refuse["error"].as_str().is_some_and(|error| error.contains("not on a Sunday")),
        "{refuse}"
    );
    let strange = call(&rig, "tu_4", "bad_strange").await;
    assert!(strange["result"].as_str().is_some_and(|result| result.contains("kept")), "{strange}");
    let structured = call(&rig, "tu_5", "bad_structured").await;
    let exact = r#"{"z":1.10,"a":123456789012345678901234567890,"big":1e400,"a":2}"#;
    assert_eq!(structured["result"], exact, "its JSON, digit by digit");
    // Its revision has no questions before a call: it was made, and is not made again.
    let asks = call(&rig, "tu_8", "bad_want_input").await;
    assert!(asks["error"].as_str().is_some_and(|it| it.contains("OUTCOME_UNKNOWN")), "{asks}");
    let crash = call(&rig, "tu_6", "bad_crash").await;
    assert!(crash["error"].is_string(), "{crash}");
    assert!(rig.bridge.log().contains("the reactor is gone"), "stderr is in the log");
    // Until the bridge has noticed the end, the backend still counts as ready.
    wait::soon("the bridge should notice the end", async || {
        rig.bridge.log().contains("down; the bridge keeps trying to connect").then_some(())
    })
    .await;
    rig.bridge.wait_backend("bad", "ready").await;
    assert_eq!(call(&rig, "tu_7", "bad_fail").await["error"], "the disk is full", "back again");
}

#[tokio::test]
async fn requests_of_a_server_are_refused_properly() {
    let rig = with(&[]).await;
    let declined = async {
        let id = approvals::asked(&rig.bridge).await;
        approvals::decide(&rig.bridge, &id, r#"{"decision":"deny"}"#).await.expect(200);
    };
    let (answer, ()) = tokio::join!(call(&rig, "tu_1", "bad_ask"), declined);
    let replies = answer["result"].as_str().expect("what the bridge replied");
    let replies: BTreeMap<String, Value> = serde_json::from_str(replies).expect("a map");
    assert_eq!(replies["ping"], "ok", "a ping is answered");
    for method in ["sampling/createMessage", "elicitation/create", "x/unknown"] {
        assert!(replies.contains_key(method), "{method} is answered: {replies:?}");
    }
}

#[tokio::test]
async fn a_child_sees_what_it_was_given_and_no_more() {
    let rig = with(&[]).await;
    let answer = call(&rig, "tu_1", "bad_environment").await;
    let seen: Value = serde_json::from_str(answer["result"].as_str().expect("JSON")).expect("JSON");
    let env = seen["env"].as_object().expect("an environment");
    for name in env.keys() {
        // Python sets LC_CTYPE itself where the locale is C.
        let given = ["PATH", "HOME", "LANG", "TMPDIR", "LC_CTYPE", "MANTYX_BRIDGE_PROGRAM"];
        assert!(given.contains(&name.as_str()), "{name} was not given to it");
    }
    // The listing of the descriptors is one itself.
    let fds: Vec<_> = seen["fds"].as_array().expect("descriptors").iter().collect();
    assert!(
        fds.len() <= 4 && fds.starts_with(&[&0.into(), &1.into(), &2.into()]),
        "no descriptor but the three: {fds:?}"
    );
    assert_eq!(seen["pid"], seen["group"], "a group of its own");
    let all = answer.to_string();
    assert!(!all.contains(crate::mantyx::CREDENTIAL) && !all.contains(rig.bridge.token()));
}

/// A machine may have no way out but by a proxy.
#[tokio::test]
async fn programs_get_proxies_certificates_and_what_is_given_to_all() {
    let programs = "upstream: {sandbox: true}\nprograms: {env: {REGISTRY: r, PORT: 80}}\n";
    let own = peers::with(&peers::hostile_mcp(&[]), "env: {PORT: 90, NO_PROXY: own.test}");
    let env = [
        ("https_proxy", "http://127.0.0.1:9"),
        ("NO_PROXY", "127.0.0.1"),
        ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
        ("OTHER", "x"),
    ];
    let config = format!(
        "{programs}mcp:\n  bad: {own}\nlocal:\n  shows: {{command: [sh, -c, 'echo $https_proxy $REGISTRY $PORT']}}\n"
    );
    let bridge = Bridge::start_with(&config, &env).await;
    bridge.wait_backend("bad", "ready").await;
    bridge.wait_backend("shows", "ready").await;
    let call = async |tool: &str| {
        let event = format!(r#"{{"toolUseId":"tu_1","name":"{tool}","args":{{}}}}"#);
        let answer = bridge.api("POST", "/v1/tool-calls", Some(&event)).await.expect(200);
        answer["result"].as_str().expect("a result").to_owned()
    };
    let seen: Value = serde_json::from_str(&call("bad_environment").await).expect("JSON");
    for (name, expected) in [
        ("https_proxy", Some(env[0].1)),
        ("SSL_CERT_FILE", Some(env[2].1)),
        ("NO_PROXY", Some("own.test")),
        ("PORT", Some("90")),
        ("REGISTRY", Some("r")),
        ("OTHER", None),
    ] {
        assert_eq!(seen["env"][name].as_str(), expected, "{name}");
    }
    assert_eq!(call("shows").await, format!("{} r 80", env[0].1));
}

#[tokio::test]
async fn no_grandchild_outlives_a_stop() {
    let mut rig = with(&["--ignore-stdin-end"]).await;
    let answer = call(&rig, "tu_1", "bad_fork").await;
    let pid = answer["result"].as_str().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let pid = pid.expect("the grandchild's id");
    test_kill_process(pid).expect("the grandchild lives");
    rig.bridge.stop().await;
    // What is killed last may still be on its way out.
    let soon = Duration::from_secs(2);
    wait::until("it should die with its group", soon, async || test_kill_process(pid).err()).await;
}

#[tokio::test]
async fn a_changed_catalog_is_read_again() {
    let rig = with(&[]).await;
    let before = rig.bridge.backend("bad").await;
    assert_eq!(call(&rig, "tu_1", "bad_change").await["result"], "changed");
    let after = wait::soon("the new tool should be there", async || {
        let now = rig.bridge.backend("bad").await;
        (now["tools"].as_u64() > before["tools"].as_u64()).then_some(now)
    })
    .await;
    assert_ne!(after["digest"], before["digest"], "another catalog");
    assert_eq!(call(&rig, "tu_2", "bad_added_0").await["result"], "added_0");
}

#[tokio::test]
async fn a_session_gets_the_tools_that_came_after_it() {
    let rig = with(&[]).await;
    let own = r#"{"kind":"local","name":"mine","parameters":{"type":"object"},"x":1.0}"#;
    let sessions = format!("{API}/agent-sessions");
    let body = format!(r#"{{"tools":[{own}]}}"#);
    let session = rig.bridge.api("POST", &sessions, Some(&body)).await.expect(201);
    let messages = format!("{sessions}/{}/messages", session["sessionId"].as_str().expect("an id"));
    assert_eq!(call(&rig, "tu_1", "bad_change").await["result"], "changed");
    wait::soon("the new tool should be there", async || {
        let refs = rig.bridge.api("GET", "/v1/tool-refs", None).await;
        refs.text().contains("bad_added_0").then_some(())
    })
    .await;
    rig.mantyx.script(Script::one_call("tu_2", "bad", "bad_added_0", "{}"));
    rig.bridge.api("POST", &messages, Some(r#"{"prompt":"two"}"#)).await.expect(202);
    let sent = rig.mantyx.requests("POST", "/messages").pop().expect("a message");
    assert!(sent.text().contains(own), "the session's own tools, as they were: {}", sent.text());
    assert!(tool_names(&sent.value()).contains(&"bad_added_0".to_owned()), "and fresh refs");
    assert_eq!(sent.value()["prompt"], "two");
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "added_0");
}

#[tokio::test]
async fn a_list_that_never_ends_is_given_up() {
    let rig = Harness::bare(&format!(
        "mcp:\n  bad: {}\n",
        peers::hostile_mcp(&["--pages", "3", "--circle"])
    ))
    .await;
    wait::soon("the bridge should stop asking", async || {
        let bad = rig.bridge.backend("bad").await;
        (bad["state"] == "ready" || bad["lastError"].is_string()).then_some(())
    })
    .await;
}
