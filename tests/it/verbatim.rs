//! What passes through the proxy as it came, and what does not: targets, methods, cookies, and
//! specs that get no tools.

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    harness::Harness,
    http::Request,
    mantyx::Mantyx,
    sse::{self, Stream},
};

#[tokio::test]
async fn paths_and_queries_go_out_as_they_came() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    for target in [
        format!("{API}/agent-runs?metadata=name:O'Brien"),
        format!("{API}/files/{{a}}|b^c/\"d\"?q={{|}}^`'"),
        format!("{API}//files/%7e/a%2Fb?%27='&a=%5f"),
        format!("{API}/files/?"),
    ] {
        bridge.api("GET", &target, None).await.expect(200);
        let sent = mantyx.recorded().pop().expect("a request");
        assert_eq!(sent.target, target);
    }
}

/// A run is its app's however its path is spelled, and the bridge's calls in it are masked.
#[tokio::test]
async fn a_run_is_known_however_its_path_is_spelled() {
    let rig = Harness::start().await;
    let script = Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#);
    let run = rig.run(script).await;
    rig.mantyx.answer("tu_1").await;
    let encoded = run.run_id.replace('_', "%5F");
    for path in [
        format!("{API}/agent-runs/{encoded}/stream"),
        format!("{API}//agent-runs/{}/stream", run.run_id),
        format!("{API}/agent%2Druns/{}/stream", run.run_id),
    ] {
        let mut stream = Stream::open(&rig.bridge, &path).await;
        let mut kinds = Vec::new();
        while let Some(frame) = stream.event().await {
            kinds.push(sse::event_type(&frame));
        }
        assert!(kinds.iter().any(|kind| kind == "tool_call"), "{path}: {kinds:?}");
        assert!(!kinds.iter().any(|kind| kind == "local_tool_call"), "{path}: {kinds:?}");
    }
    let before = rig.mantyx.recorded().len();
    for path in [
        format!("{API}/agent-runs%2F{}/stream", run.run_id),
        format!("{API}/x/../agent-runs/{}/stream", run.run_id),
        format!("{API}/x/%2e%2e/agent-runs/{}", run.run_id),
        "/api/%2e%2e/admin".to_owned(),
    ] {
        let refused = rig.bridge.api("GET", &path, None).await.expect_error(400);
        assert_eq!(refused["error"], "invalid_request", "{path}");
    }
    assert_eq!(rig.mantyx.recorded().len(), before, "MANTYX is not asked");
}

/// Neither shows MANTYX's answer to the request's own headers, which has the credential in it.
#[tokio::test]
async fn trace_and_track_go_nowhere() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    for method in ["TRACE", "TRACK"] {
        for path in [format!("{API}/models"), "/".to_owned(), "/v1/status".to_owned()] {
            let answer = bridge.request(method, &path).answer(bridge.addr()).await;
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
    assert!(mantyx.recorded().is_empty());
}

/// A cookie belongs to a browser's host: MANTYX neither gets the page's nor sets one there.
#[tokio::test]
async fn cookies_stay_on_their_side() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    let models = format!("{API}/models");
    mantyx.canned("GET", &models, &["HTTP/1.1 200 OK", "Set-Cookie: theirs=1", "X-Kept: 1"], "{}");
    let request = bridge.request("GET", &models).header("Cookie", "mine=1").header("Cookie", "b=2");
    let answer = request.answer(bridge.addr()).await;
    assert_eq!((answer.header("set-cookie"), answer.header("x-kept")), (None, Some("1")));
    assert_eq!(mantyx.only("GET", "/models").header("cookie"), None);
}

/// White space, order and encodings of a spec that gets no tools are its app's.
#[tokio::test]
async fn a_spec_that_gets_no_tools_passes_as_it_came() {
    let rig = Harness::start().await;
    let spec = r#" { "tools" : [ {"kind":"local", "name" : "x"} ,  {"kind":"mcp"}] , "a": 1.0 } "#;
    let post = |path: &str, headers: &[(&str, &str)]| {
        let request = rig.bridge.request("POST", &format!("{API}/{path}")).json(spec);
        let request = headers
            .iter()
            .fold(request, |request: Request, (name, value)| request.header(name, value));
        request.answer(rig.bridge.addr())
    };
    let none = ("X-Bridge-Backends", "none");
    for path in ["agent-runs", "agent-sessions", "eval-runs", "agent-sessions/ses_x/messages"] {
        for headers in [vec![none], vec![none, ("Content-Encoding", "gzip")]] {
            let answer = post(path, &headers).await;
            assert!(answer.status < 300, "{path} {headers:?}: {}", answer.text());
            let sent = rig.mantyx.recorded().pop().expect("a request");
            assert_eq!(sent.text(), spec, "{path} {headers:?}");
            let coding = headers.get(1).map(|(_, value)| *value);
            assert_eq!(sent.header("content-encoding"), coding);
        }
        // The bridge would have to put its tools into what it cannot read.
        let refused = post(path, &[("Content-Encoding", "gzip")]).await.expect_error(415);
        assert_eq!(refused["code"], "unsupported_encoding");
    }
    let answer = post("agent-runs", &[("Content-Encoding", "identity")]).await;
    assert_eq!(answer.header("x-bridge-injected"), Some("plain=8"), "it says that there is none");
}
