//! Permission is what is configured when a call is made, and not when its run began.

use rustix::process::Signal;
use serde_json::Value;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    approvals,
    bridge::{API, Bridge},
    frames::Script,
    http::{Connection, Request},
    owners::{Apps, token},
    page,
    sse::Stream,
    wait,
};

const NOTE: &str = r#"{"text":"x"}"#;

/// A text of the configuration, the one in its place, and what a refusal says that the app may not
/// use.
struct Taken {
    from: &'static str,
    with: &'static str,
    told: &'static str,
}

/// Every change that takes from the app `a` the tool `note`, and what the model is told of it.
const TAKEN: [Taken; 4] = [
    Taken { from: "  a: {", with: "  was_a: {", told: "the app" },
    Taken { from: "  a: {", with: "  a: {backends: [], ", told: "`plain` from this app" },
    Taken {
        from: "  a: {",
        with: "  a: {tools: {plain: {deny: [note]}}, ",
        told: "this tool of `plain`",
    },
    Taken {
        from: "  plain: {",
        with: "  plain: {tools: {deny: [note]}, ",
        told: "this tool of `plain`",
    },
];

/// Has the bridge take its configuration with `with` in place of `from`.
async fn reconfigure(apps: &mut Apps, from: &str, with: &str) {
    let config = std::fs::read_to_string(apps.bridge.config_path()).expect("it is there");
    apps.bridge.set_config(&config.replace(from, with));
    let loaded = async |apps: &Apps| {
        let status = apps.ask("b", "GET", "/v1/status", None).await.expect(200);
        assert_eq!(status["config"]["lastError"], Value::Null, "{status}");
        status["config"]["loadedAt"].clone()
    };
    let before = loaded(apps).await;
    apps.bridge.process().signal(Signal::HUP);
    wait::soon("the configuration should be taken", async || {
        (loaded(apps).await != before).then_some(())
    })
    .await;
}

#[track_caller]
fn check_refused(answer: &Value, told: &str) {
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("an error: {answer}"));
    assert!(error.contains(told) && !error.contains("OUTCOME_UNKNOWN"), "{error}");
}

fn two_calls() -> Script {
    Script::new()
        .mcp("tu_1", "plain", "plain_note", NOTE)
        .answered("tu_1")
        .until("taken")
        .mcp("tu_2", "plain", "plain_note", NOTE)
        .until("never")
}

#[tokio::test]
async fn a_run_under_way_calls_nothing_that_was_taken_away() {
    for Taken { from, with, told } in TAKEN {
        let mut apps = Apps::start().await;
        apps.submit("a", "agent-runs", two_calls()).await;
        assert_eq!(apps.mantyx.answer("tu_1").await["result"], "noted: x");
        reconfigure(&mut apps, from, with).await;
        apps.mantyx.release("taken");
        check_refused(&apps.mantyx.answer("tu_2").await, told);
        assert_eq!(apps.executions(), 1, "{with}");
    }
}

#[tokio::test]
async fn a_run_under_way_calls_nothing_that_was_taken_away_while_the_bridge_was_down() {
    for Taken { from, with, told } in TAKEN {
        let mut apps = Apps::start().await;
        apps.submit("a", "agent-runs", two_calls()).await;
        apps.mantyx.answer("tu_1").await;
        apps.bridge.kill9();
        let config = std::fs::read_to_string(apps.bridge.config_path()).expect("it is there");
        apps.bridge.set_config(&config.replace(from, with));
        apps.mantyx.release("taken");
        apps.bridge.restart().await;
        check_refused(&apps.mantyx.answer("tu_2").await, told);
        assert_eq!(apps.executions(), 1, "{with}");
    }
}

#[tokio::test]
async fn call_that_a_removed_app_has_begun_is_answered_after_a_restart() {
    let mut apps = Apps::start().await;
    let script = Script::new()
        .mcp("tu_hang", "plain", "plain_hang", "{}")
        .mcp("tu_1", "plain", "plain_note", NOTE)
        .until("never");
    // Its answer is not taken for now.
    apps.mantyx.replies("tu_1", std::iter::repeat_n(crate::mantyx::Reply::Status(503), 100));
    apps.submit("a", "agent-runs", script).await;
    apps.mantyx.wait_posts("tu_1", 1).await;
    wait::soon("both should reach the server", async || (apps.executions() == 2).then_some(()))
        .await;
    apps.bridge.kill9();
    let config = std::fs::read_to_string(apps.bridge.config_path()).expect("it is there");
    apps.bridge.set_config(&config.replace("  a: {", "  was_a: {"));
    apps.mantyx.replies("tu_1", []);
    apps.bridge.restart().await;
    let unknown = apps.mantyx.answer("tu_hang").await;
    assert!(
        unknown["error"].as_str().is_some_and(|it| it.starts_with("OUTCOME_UNKNOWN")),
        "{unknown}"
    );
    let posts = wait::soon("the answer that was kept should be taken", async || {
        let posts = apps.mantyx.posts("tu_1");
        (posts.len() >= 2).then_some(posts)
    })
    .await;
    let last = posts.last().expect("two of them").value();
    assert_eq!(last["result"], "noted: x", "{last}");
    assert_eq!(apps.executions(), 2);
}

#[tokio::test]
async fn an_approval_does_not_outlive_the_permission() {
    for Taken { from, with, told } in TAKEN {
        let mut apps = Apps::with(approvals::ALL, "").await;
        apps.submit("a", "agent-runs", Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
        let id = apps.asked().await;
        reconfigure(&mut apps, from, with).await;
        apps.decide(&id, "approve").await.expect(200);
        check_refused(&apps.mantyx.answer("tu_1").await, told);
        assert_eq!(apps.executions(), 0, "{with}");
    }
}

#[tokio::test]
async fn call_that_has_to_be_approved_by_now_is_asked_about() {
    let mut apps = Apps::with("concurrency: 1,", "").await;
    let hangs = Script::new().mcp("tu_hang", "plain", "plain_hang", "{}").until("never");
    let first = apps.submit("b", "agent-runs", hangs).await;
    wait::soon("the first should be made", async || (apps.executions() == 1).then_some(())).await;
    let note = Script::new().mcp("tu_1", "plain", "plain_note", NOTE).until("never");
    apps.submit("a", "agent-runs", note).await;
    wait::soon("the second should wait for its turn", async || {
        (apps.bridge.backend("plain").await["callsInFlight"] == 2).then_some(())
    })
    .await;
    reconfigure(&mut apps, "concurrency: 1,", "concurrency: 1, approve: [note],").await;
    let cancel = format!("{API}/agent-runs/{first}/cancel");
    apps.ask("b", "POST", &cancel, Some("{}")).await.expect(200);
    let id = apps.asked().await;
    assert_eq!(apps.executions(), 1, "nothing was made unapproved");
    apps.decide(&id, "approve").await.expect(200);
    assert_eq!(apps.mantyx.answer("tu_1").await["result"], "noted: x");
}

#[tokio::test]
async fn the_streams_of_a_removed_app_end() {
    let (removed, another) =
        (TAKEN[0].with, "  a: {token: mbt_another-token-of-this-app-0123456789}\n  c: {");
    for with in [removed, another] {
        let mut apps = Apps::start().await;
        let script = || Script::new().delta("a").until("never");
        let driven = apps.submit("a", "agent-runs", script()).await;
        apps.mantyx.has_run("run_piped", script());
        let mut streams = Vec::new();
        for target in [
            format!("{API}/agent-runs/{driven}/stream"),
            format!("{API}/agent-runs/run_piped/stream"),
            "/v1/events".to_owned(),
        ] {
            let request = apps.request("a", "GET", &target);
            let mut stream = Stream::request(&apps.bridge, request).await;
            stream.event().await.expect("it begins");
            streams.push((target, stream));
        }
        let request = apps.request("b", "GET", "/v1/events");
        let mut others = Stream::request(&apps.bridge, request).await;
        reconfigure(&mut apps, "  a: {", with).await;
        for (target, mut stream) in streams {
            let ended = async { while stream.event().await.is_some() {} };
            let patience = std::time::Duration::from_secs(10);
            let ended = tokio::time::timeout(patience, ended).await;
            assert!(ended.is_ok(), "{target} goes on");
        }
        others.event().await.expect("another app's goes on");
    }
}

#[tokio::test]
async fn a_call_by_hand_is_permitted_when_it_is_made() {
    let mut apps = Apps::with(approvals::ALL, "").await;
    let body = format!(r#"{{"toolUseId":"tu_1","name":"plain_note","args":{NOTE}}}"#);
    let request = apps.request("a", "POST", "/v1/tool-calls").json(body);
    let addr = apps.bridge.addr();
    let (answer, ()) = tokio::join!(request.answer(addr), async {
        let id = apps.asked().await;
        let Taken { from, with, .. } = TAKEN[1];
        reconfigure(&mut apps, from, with).await;
        apps.decide(&id, "approve").await.expect(200);
    });
    check_refused(&answer.expect(200), "withdrawn `plain` from this app");
    assert_eq!(apps.executions(), 0);
}

/// Sends all of a request of the app `a` but the last byte, which the bridge waits for.
async fn begin(apps: &Apps, target: &str, body: &str) -> Connection {
    begin_as(&apps.bridge, &format!("Authorization: Bearer {}\r\n", token("a")), target, body).await
}

/// The same with other headers, which say who asks.
async fn begin_as(bridge: &Bridge, who: &str, target: &str, body: &str) -> Connection {
    let (addr, length) = (bridge.addr(), body.len());
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {addr}\r\n{who}\
         Content-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut told = *b"HTTP/1.1 100 Continue\r\n\r\n";
    stream.read_exact(&mut told).await.expect("it answers");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n", "{target}");
    stream.write_all(&body.as_bytes()[..length - 1]).await.expect("it reads");
    Connection::over(stream)
}

async fn end(mut begun: Connection) -> u16 {
    begun.write(b"}").await;
    begun.response().await.status
}

#[tokio::test]
async fn a_body_that_ends_after_its_app_was_removed_does_nothing() {
    let another = "  a: {token: mbt_another-token-of-this-app-0123456789}\n  c: {";
    for with in [TAKEN[0].with, another] {
        let mut apps = Apps::start().await;
        apps.mantyx.has_run("run_a", Script::new().until("never"));
        let script = || Script::new().delta("a").until("never");
        let run = apps.submit("a", "agent-runs", script()).await;
        let session = apps.ask("a", "POST", &format!("{API}/agent-sessions"), Some("{}")).await;
        let session = session.expect(201)["sessionId"].as_str().expect("an id").to_owned();
        let mut begun = Vec::new();
        for target in [
            "/v1/runs".to_owned(),
            "/v1/runs/run_a/attach".to_owned(),
            "/v1/tool-calls".to_owned(),
            "/v1/specs/inject".to_owned(),
            format!("{API}/agent-runs"),
            format!("{API}/agent-runs/{run}/tool-results"),
            format!("{API}/agent-sessions"),
            format!("{API}/agent-sessions/{session}/messages"),
            // These are passed on as they come.
            format!("{API}/agent-runs/{run}/cancel"),
            format!("{API}/agent-runs/run_a/tool-results"),
            format!("{API}/files"),
        ] {
            let connection = begin(&apps, &target, "{}").await;
            begun.push((target, connection));
        }
        reconfigure(&mut apps, "  a: {", with).await;
        let before = apps.mantyx.requests("POST", "").len();
        for (target, connection) in begun {
            assert_eq!(end(connection).await, 401, "{target}");
        }
        assert_eq!(apps.mantyx.requests("POST", "").len(), before, "MANTYX was not asked");
    }
}

#[tokio::test]
async fn a_result_that_ends_after_its_run_was_handed_over_is_none_of_the_bridges() {
    let apps = Apps::start().await;
    apps.mantyx
        .has_run("run_a", Script::new().mcp("tu_1", "plain", "plain_note", NOTE).until("never"));
    let target = format!("{API}/agent-runs/run_a/tool-results");
    let begun = begin(&apps, &target, r#"{"toolUseId":"tu_1","result":"forged"}"#).await;
    assert_eq!(apps.attach("a", "run_a").await.status, 202);
    apps.mantyx.answer("tu_1").await;
    assert_eq!(end(begun).await, 404, "the bridge answers this call itself");
    assert_eq!(apps.mantyx.posts("tu_1").len(), 1);
}

#[tokio::test]
async fn a_decision_that_ends_after_the_right_to_it_does_nothing() {
    const APPROVE: &str = r#"{"decision":"approve"}"#;
    struct Case {
        from: &'static str,
        with: &'static str,
        status: u16,
    }
    for Case { from, with, status } in [
        Case { from: ", approves: true", with: "", status: 403 },
        Case { from: "  a: {", with: "  was_a: {", status: 401 },
    ] {
        let mut apps = Apps::with(approvals::ALL, ", approves: true").await;
        apps.submit("a", "agent-runs", Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
        let id = apps.asked().await;
        let begun = begin(&apps, &format!("/v1/approvals/{id}"), APPROVE).await;
        reconfigure(&mut apps, from, with).await;
        assert_eq!(end(begun).await, status, "{with}");
        assert_eq!(apps.asked().await, id, "{with}: it waits still");
        assert_eq!(apps.executions(), 0, "{with}");
    }
}

#[tokio::test]
async fn call_that_ends_after_its_session_does_nothing() {
    let apps = Apps::with(approvals::ALL, ", approves: true").await;
    let bridge = &apps.bridge;
    apps.submit("a", "agent-runs", Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let id = apps.asked().await;
    let decide = (format!("/v1/approvals/{id}"), r#"{"decision":"approve"}"#);
    let accept = ("/v1/trust/plain".to_owned(), r#"{"accept":"all","digest":"0"}"#);
    for (shown, (target, body)) in
        [(bridge.operator(), decide.clone()), (token("a"), decide), (bridge.operator(), accept)]
    {
        let (cookie, key) = page::session_and_key(bridge, &shown).await;
        let own = bridge.url();
        let who = format!("Cookie: {cookie}\r\nX-Bridge-Key: {key}\r\nOrigin: {own}\r\n");
        let begun = begin_as(bridge, &who, &target, body).await;
        let out = Request::new("POST", "/sign-out").header("Cookie", &cookie);
        assert_eq!(out.answer(bridge.addr()).await.status, 303);
        assert_eq!(end(begun).await, 401, "{target}");
        assert_eq!(apps.asked().await, id, "it waits still");
    }
    assert_eq!(apps.executions(), 0);
}

#[tokio::test]
async fn an_app_that_is_removed_while_its_stream_is_opened_gets_none() {
    let mut apps = Apps::start().await;
    let target = format!("{API}/files/slow");
    let head = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"];
    apps.mantyx.canned("GET", &target, &head, "5\r\nhello\r\n");
    apps.mantyx.hold("GET", "/slow", "go");
    let request = apps.request("a", "GET", &target);
    let addr = apps.bridge.addr();
    let (mut response, ()) = tokio::join!(request.send(addr), async {
        wait::soon("MANTYX should be asked", async || {
            (!apps.mantyx.requests("GET", "/slow").is_empty()).then_some(())
        })
        .await;
        reconfigure(&mut apps, "  a: {", TAKEN[0].with).await;
        apps.mantyx.release("go");
    });
    assert_eq!(response.chunk().await, None);
}
