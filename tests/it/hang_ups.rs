//! Apps that hang up while MANTYX answers: what has been created is driven, and its calls are
//! answered, as if the app had stayed.

use std::time::Duration;

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{
    bridge::{API, Bridge},
    evals::{call_of, flat},
    frames::Script,
    harness::Harness,
    wait,
};

const SPEC: &str = r#"{"modelId":"m","prompt":"hi"}"#;

/// A POST as an app sends it.
fn post(bridge: &Bridge, target: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        bridge.addr(),
        bridge.token(),
        body.len()
    )
}

/// Waits until the bridge has no connection open but the one that asks.
async fn wait_alone(bridge: &Bridge) {
    wait_counted(bridge, r#"mantyx_bridge_connections_open{listener="tcp"} 1"#).await;
}

/// Waits until `line` stands in the metrics.
async fn wait_counted(bridge: &Bridge, line: &str) {
    wait::soon(line, async || {
        let page = bridge.api("GET", "/metrics", None).await.text();
        page.lines().any(|found| found == line || found == format!("{line}.0")).then_some(())
    })
    .await;
}

/// Posts `body`, and hangs up while MANTYX holds its answer to `suffix`, which is released then.
async fn hang_up(rig: &Harness, target: &str, suffix: &'static str, body: &str) {
    let before = rig.mantyx.requests("POST", suffix).len();
    rig.mantyx.hold("POST", suffix, target);
    let mut app = TcpStream::connect(rig.bridge.addr()).await.expect("it listens");
    app.write_all(post(&rig.bridge, target, body).as_bytes()).await.expect("it reads");
    wait::soon("the request should reach MANTYX", async || {
        (rig.mantyx.requests("POST", suffix).len() > before).then_some(())
    })
    .await;
    drop(app);
    wait_alone(&rig.bridge).await;
    rig.mantyx.release(target);
}

#[tokio::test]
async fn a_run_whose_app_hung_up_is_driven() {
    let rig = Harness::with("", &[], "").await;
    let call = |id: &str| Script::one_call(id, "plain", "plain_note", r#"{"text":"a"}"#);
    let runs = [
        (format!("{API}/agent-runs"), "/agent-runs", call("tu_run")),
        ("/v1/runs".to_owned(), "/agent-runs", call("tu_own")),
        (
            format!("{API}/eval-runs"),
            "/eval-runs",
            Script::new()
                .raw_event(&call_of("run_case", "tu_eval", "plain_note"))
                .until("tu_eval")
                .raw_event(&flat("run_completed", "")),
        ),
    ];
    for ((target, suffix, script), id) in runs.into_iter().zip(["tu_run", "tu_own", "tu_eval"]) {
        rig.mantyx.script(script);
        hang_up(&rig, &target, suffix, SPEC).await;
        assert_eq!(rig.mantyx.answer(id).await["toolUseId"], id);
    }
    assert_eq!(rig.executions().len(), 3, "each call is made once");
}

#[tokio::test]
async fn a_session_whose_app_hung_up_is_known_and_so_are_its_messages() {
    let rig = Harness::start().await;
    hang_up(&rig, &format!("{API}/agent-sessions"), "/agent-sessions", SPEC).await;
    let handled = r#"mantyx_bridge_requests_total{route="create_session",status="2xx"} 1"#;
    wait_counted(&rig.bridge, handled).await;
    // The scripted MANTYX counts: this was its first answer.
    let messages = format!("{API}/agent-sessions/ses_1/messages");
    rig.mantyx.script(Script::one_call("tu_m", "plain", "plain_note", r#"{"text":"a"}"#));
    hang_up(&rig, &messages, "/messages", r#"{"prompt":"hi"}"#).await;
    assert_eq!(rig.mantyx.answer("tu_m").await["toolUseId"], "tu_m");
}

/// Without its app, a call of its own is nobody's: it is cancelled, and noted as that.
#[tokio::test]
async fn a_call_whose_app_hung_up_is_cancelled_and_noted() {
    let rig = Harness::start().await;
    let call = r#"{"toolUseId":"tu_1","name":"plain_hang","args":{},"kind":"mcp_local"}"#;
    let mut app = TcpStream::connect(rig.bridge.addr()).await.expect("it listens");
    let request = post(&rig.bridge, "/v1/tool-calls", call);
    app.write_all(request.as_bytes()).await.expect("it reads");
    rig.wait_executions(1).await;
    drop(app);
    wait::soon("the call should be noted as ended", async || {
        let calls = rig.bridge.api("GET", "/v1/calls", None).await.expect(200);
        (calls["calls"][0]["state"] == "answered").then_some(())
    })
    .await;
    assert_eq!(rig.bridge.backend("plain").await["callsInFlight"], 0);
}

/// A stop waits for a request whose app is gone.
#[tokio::test]
async fn a_stop_waits_for_what_an_app_left() {
    let mut rig = Harness::start().await;
    rig.mantyx.hold("POST", "/agent-runs", "created");
    let mut app = TcpStream::connect(rig.bridge.addr()).await.expect("it listens");
    let request = post(&rig.bridge, &format!("{API}/agent-runs"), SPEC);
    app.write_all(request.as_bytes()).await.expect("it reads");
    wait::soon("the request should reach MANTYX", async || {
        (!rig.mantyx.requests("POST", "/agent-runs").is_empty()).then_some(())
    })
    .await;
    drop(app);
    wait_alone(&rig.bridge).await;
    let stopping = rig.bridge.stop();
    let mut stopping = std::pin::pin!(stopping);
    let early = timeout(Duration::from_millis(300), stopping.as_mut()).await;
    early.expect_err("it should wait for MANTYX's answer");
    rig.mantyx.release("created");
    stopping.await;
}
