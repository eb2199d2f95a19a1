//! What an app reads of other apps: nothing of their calls, and no name of theirs.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{bridge::Bridge, http::Request, owners::token, wait};

/// A bridge with the apps `a` and `b`, a runtime, and a tool that takes as long as nobody ends it.
async fn start() -> Bridge {
    let watcher = token("w");
    Bridge::ready(&format!(
        "upstream: {{sandbox: true}}\n\
         apps:\n  a: {{token: {}, backends: [ok]}}\n  b: {{token: {}}}\n  \
         watcher: {{token: {watcher}, backends: []}}\n\
         runtimes:\n  other: {{kind: hsafa, api: v3, url: 'http://127.0.0.1:9', credential: x}}\n\
         local:\n  ok: {{description: d, parameters: {{type: object}}, command: [echo, hi]}}\n  \
         slow: {{description: d, parameters: {{type: object}}, command: [sleep, '300']}}\n",
        token("a"),
        token("b"),
    ))
    .await
}

async fn read(bridge: &Bridge, path: &str, app: &str) -> Value {
    Request::new("GET", path).bearer(&token(app)).answer(bridge.addr()).await.expect(200)
}

fn backend(status: &Value, name: &str) -> Value {
    let backends = status["backends"].as_array().expect("a list");
    backends.iter().find(|one| one["name"] == name).expect("it may be seen").clone()
}

fn call(app: &str, tool: &str) -> Request {
    let call = json!({"toolUseId": "tu", "name": tool, "args": {}}).to_string();
    Request::new("POST", "/v1/tool-calls").bearer(&token(app)).json(call)
}

#[tokio::test]
async fn app_sees_its_own_calls_and_the_operator_those_of_all() {
    let bridge = start().await;
    let mut open = JoinSet::new();
    open.spawn(call("b", "slow").answer(bridge.addr()));
    wait::soon("the call should be in flight", async || {
        (bridge.backend("slow").await["callsInFlight"] == 1).then_some(())
    })
    .await;
    assert_eq!(backend(&read(&bridge, "/v1/status", "b").await, "slow")["callsInFlight"], 1);
    call("b", "ok").answer(bridge.addr()).await.expect(200);
    assert_eq!(backend(&read(&bridge, "/v1/status", "a").await, "ok")["lastCall"], Value::Null);
    assert_eq!(bridge.backend("ok").await["lastCall"]["answered"], true);
    call("a", "ok").answer(bridge.addr()).await.expect(200);
    let seen = backend(&read(&bridge, "/v1/status", "a").await, "ok");
    assert_eq!(seen["lastCall"]["answered"], true);
    open.abort_all();
}

#[tokio::test]
async fn app_sees_no_open_call_of_another_at_a_backend_of_both() {
    let bridge = Bridge::ready(&format!(
        "upstream: {{sandbox: true}}\napps:\n  a: {{token: {}}}\n  b: {{token: {}}}\n\
         local:\n  slow: {{description: d, parameters: {{type: object}}, command: [sleep, '300']}}\n",
        token("a"),
        token("b"),
    ))
    .await;
    let mut open = JoinSet::new();
    open.spawn(call("b", "slow").answer(bridge.addr()));
    wait::soon("the call should be in flight", async || {
        (bridge.backend("slow").await["callsInFlight"] == 1).then_some(())
    })
    .await;
    let of = async |app: &str| {
        backend(&read(&bridge, "/v1/status", app).await, "slow")["callsInFlight"].clone()
    };
    assert_eq!((of("a").await, of("b").await), (json!(0), json!(1)));
    open.abort_all();
}

#[tokio::test]
async fn app_reads_no_name_of_a_runtime_or_of_another_app() {
    let bridge = start().await;
    assert_eq!(bridge.status().await["runtimes"][0]["name"], "other");
    assert_eq!(read(&bridge, "/v1/status", "a").await["runtimes"], json!([]));
    let metrics = async |app: &str| {
        let request = Request::new("GET", "/metrics").bearer(&token(app));
        request.answer(bridge.addr()).await.text()
    };
    let of_a = metrics("a").await;
    assert!(of_a.contains(r#"backend="ok""#) && of_a.contains(r#"app="a""#), "{of_a}");
    for hidden in [r#"app="b""#, r#"backend="slow""#, r#"runtime="other""#] {
        assert!(!of_a.contains(hidden), "{hidden}: {of_a}");
    }
    let all = metrics("w").await;
    for named in [r#"app="a""#, r#"app="b""#, r#"backend="slow""#, r#"runtime="other""#] {
        assert!(all.contains(named), "{named}: {all}");
    }
}
