//! The proxy: what it injects, that it changes nothing else, and that it pipes the rest.

use serde_json::Value;

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    harness::{Harness, LEDGER_TOOLS, injected, tool_names},
    http::{Answer, Connection},
    mantyx::{CREDENTIAL, Mantyx},
    sse,
};

/// `text` without its top-level `tools` and without the one comma that goes with them, for both
/// commas that it could be.
fn without_tools(text: &str) -> [String; 2] {
    let members = mantyx_bridge::internals::Members::read(text).expect("a spec is an object");
    let value = members.get("tools").expect("the spec has tools");
    let value = mantyx_bridge::internals::json::span(text, value);
    let before = text.get(..value.start).unwrap_or_default();
    let key = before.rfind("\"tools\"").expect("the key stands before its value");
    let before = before.get(..key).unwrap_or_default();
    let after = text.get(value.end..).unwrap_or_default();
    let comma_before = before.trim_end().strip_suffix(',').unwrap_or(before);
    let comma_after = after.trim_start().strip_prefix(',').unwrap_or(after);
    [format!("{comma_before}{after}"), format!("{before}{comma_after}")]
}

async fn submitted(rig: &Harness, spec: &str) -> String {
    rig.mantyx.script(Script::new().done());
    rig.bridge.post_run(spec).await;
    let sent = rig.mantyx.requests("POST", "/agent-runs");
    sent.last().expect("the run should reach MANTYX").text()
}

#[tokio::test]
async fn a_spec_without_tools_gets_them_and_keeps_every_other_byte() {
    let rig = Harness::start().await;
    let specs = [
        r#"{"prompt":"hi"}"#,
        r#"{ "z":1.0, "prompt" : "a\u00e9\/b", "big":123456789012345678901234567890,"e":1E400 , "x-new":{"b":[],"a":null} }"#,
        "{\n  \"prompt\": \"h\u{e9}\",\n  \"nested\": {\"tools\": [1]}\n}\n",
    ];
    for spec in specs {
        let sent = submitted(&rig, spec).await;
        let kept = without_tools(&sent).map(|text| text.trim_end().to_owned());
        assert!(kept.contains(&spec.trim_end().to_owned()), "{spec} became {sent}");
        let members = mantyx_bridge::internals::Members::read(&sent).expect("an object");
        let tools = members.get("tools").expect("tools").get();
        let tools: Value = serde_json::from_str(tools).expect("refs are JSON");
        let names = tool_names(&serde_json::json!({ "tools": tools }));
        assert_eq!(names, LEDGER_TOOLS, "the tools of the one backend, in its order");
    }
}

#[tokio::test]
async fn own_tools_stay_as_they_are_and_come_first() {
    let rig = Harness::start().await;
    let own = r#"{"kind" : "local","name":"mine","x":1.0,"parameters":{"b":1,"a":12345678901234567890123}}"#;
    let head = format!(r#"{{"prompt":"hi","tools":[ {own}"#);
    let tail = r#" ] , "after":-0}"#;
    let sent = submitted(&rig, &format!("{head}{tail}")).await;
    assert!(
        sent.starts_with(r#"{"prompt":"hi","tools":["#),
        "before the refs nothing changes: {sent}"
    );
    let refs = sent.split_once('[').map_or("", |(_, refs)| refs.trim_start());
    assert!(refs.starts_with(own), "an own ref comes first, byte for byte: {sent}");
    assert!(sent.ends_with(r#" , "after":-0}"#), "after the refs nothing changes: {sent}");
    let empty = submitted(&rig, r#"{"tools" : [ ],"prompt":"hi"}"#).await;
    assert!(empty.starts_with(r#"{"tools" : ["#) && empty.ends_with(r#"],"prompt":"hi"}"#));
    let names = tool_names(&serde_json::from_str(&empty).expect("a spec"));
    assert_eq!(names, LEDGER_TOOLS, "an empty list is filled");
}

#[tokio::test]
async fn a_ref_is_the_servers_own_bytes_under_the_models_name() {
    let rig = Harness::start().await;
    let sent = submitted(&rig, r#"{"prompt":"hi"}"#).await;
    let info = r#""serverInfo":{"version": "1", "name": "ledger", "x-vendor": true}"#;
    assert!(sent.contains(info), "serverInfo verbatim, unknown fields and all: {sent}");
    let tool =
        r#"{"x-vendor": {"b": 1.0, "a": 123456789012345678901234567890}, "name": "plain_note","#;
    assert!(sent.contains(tool), "a tool verbatim but for its name: {sent}");
    assert!(sent.contains(r#""_meta": {"z": 1, "a": 2}"#), "_meta in its order: {sent}");
    let spec: Value = serde_json::from_str(&sent).expect("a spec");
    assert_eq!(spec["tools"][0]["kind"], "mcp_local");
    assert_eq!(spec["tools"][0]["name"], "plain");
}

#[tokio::test]
async fn a_body_that_cannot_be_injected_into_is_refused() {
    let rig = Harness::start().await;
    let post =
        async |body: &str| rig.bridge.api("POST", &format!("{API}/agent-runs"), Some(body)).await;
    for body in [
        r#"{"prompt":"a","tools":[],"prompt":"b"}"#,
        r#"{"tools":[],"prompt":"a","tools":[]}"#,
        "[1]",
        "\"text\"",
        "{\"prompt\":",
        "",
    ] {
        post(body).await.expect_error(400);
    }
    post(r#"{"prompt":"a","tools":7}"#).await.expect_error(400);
    let none = rig.mantyx.requests("POST", "/agent-runs");
    assert!(none.is_empty(), "a refused body never reaches MANTYX: {none:?}");
}

#[tokio::test]
async fn the_header_chooses_the_backends() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let other = crate::peers::ledger(&crate::harness::ledger_in(&dir), &[]);
    let rig = Harness::with(&format!("  other: {other}\n"), &[], "").await;
    rig.bridge.wait_backend("other", "ready").await;
    let spec = r#"{"prompt":"hi"}"#;
    let run = async |choice: Option<&str>| {
        rig.mantyx.script(Script::new().done());
        let headers = choice.map(|choice| ("X-Bridge-Backends", choice));
        let run = rig.bridge.post_run_with(spec, headers.as_slice()).await;
        let sent = rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run");
        (injected(run.injected.as_deref()), sent)
    };
    let (all, _) = run(None).await;
    assert_eq!(all, [("other".into(), 8), ("plain".into(), 8)].into(), "all by default");
    let (one, sent) = run(Some("other")).await;
    assert_eq!(one, [("other".to_owned(), 8)].into(), "one that is named");
    assert!(sent.header("x-bridge-backends").is_none(), "the header is the bridge's alone");
    let (none, sent) = run(Some("none")).await;
    assert_eq!((none.len(), sent.text().as_str()), (0, spec), "none: the body as it came");
    let refused = rig.bridge.request("POST", &format!("{API}/agent-runs")).json(spec);
    let refused = refused.header("X-Bridge-Backends", "plane").answer(rig.bridge.addr()).await;
    let error = refused.expect_error(400);
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("candidates")), "{error}");
    let candidates = error["candidates"].as_array().expect("candidates");
    assert!(
        candidates.contains(&"plain".into()) && candidates.contains(&"other".into()),
        "{error}"
    );
}

#[tokio::test]
async fn placeholders_choose_the_backends_and_are_filled_in_place() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let other = crate::peers::ledger(&crate::harness::ledger_in(&dir), &[]);
    let rig = Harness::with(&format!("  other: {other}\n"), &[], "").await;
    rig.bridge.wait_backend("other", "ready").await;
    let mine = r#"{"kind":"local","name":"mine","parameters":{}}"#;
    let last = r#"{"kind":"mantyx","id":"t_1"}"#;
    let spec = format!(r#"{{"tools":[{mine},{{"kind":"mcp_local","name":"plain"}},{last}]}}"#);
    let sent: Value = serde_json::from_str(&submitted(&rig, &spec).await).expect("a spec");
    let kinds: Vec<_> =
        sent["tools"].as_array().expect("refs").iter().map(|r| &r["kind"]).collect();
    assert_eq!(kinds, ["local", "mcp_local", "mantyx"], "in the placeholder's place, no other");
    assert_eq!(sent["tools"][1]["tools"].as_array().map(Vec::len), Some(8), "filled");

    let resolved = r#"{"tools":[{"kind":"mcp_local","name":"theirs","tools":[{"name":"t","inputSchema":{}}]}]}"#;
    let sent: Value = serde_json::from_str(&submitted(&rig, resolved).await).expect("a spec");
    assert_eq!(sent["tools"].as_array().map(Vec::len), Some(3), "a resolved ref is no placeholder");
    let unknown = r#"{"tools":[{"kind":"mcp_local","name":"nobody"}]}"#;
    let answer = rig.bridge.api("POST", &format!("{API}/agent-runs"), Some(unknown)).await;
    assert!(answer.expect_error(400)["candidates"].is_array(), "what it could have been");
}

#[tokio::test]
async fn sessions_and_messages_are_injected_where_the_protocol_has_tools() {
    let rig = Harness::start().await;
    let post = async |path: &str, body: &str| {
        rig.bridge.api("POST", &format!("{API}{path}"), Some(body)).await
    };
    let created = post("/agent-sessions", r#"{"modelId":"m"}"#).await.expect(201);
    let session = created["sessionId"].as_str().expect("an id").to_owned();
    let names = tool_names(&rig.mantyx.only("POST", "/agent-sessions").value());
    assert_eq!(names, LEDGER_TOOLS, "a session gets the tools");

    let messages = format!("/agent-sessions/{session}/messages");
    rig.mantyx.script(Script::one_call("tu_s", "plain", "plain_note", r#"{"text":"a"}"#));
    let run = post(&messages, r#"{"prompt":"one"}"#).await.expect(202);
    let sent = rig.mantyx.only("POST", "/messages");
    assert_eq!(sent.text(), r#"{"prompt":"one"}"#, "a message without tools is left alone");
    assert_eq!(rig.mantyx.answer("tu_s").await["result"], "noted: a", "its run is driven");
    sse::whole(&rig.bridge, run["streamUrl"].as_str().expect("a stream")).await;

    post(&messages, r#"{"prompt":"two","tools":[]}"#).await.expect(202);
    let sent = rig.mantyx.requests("POST", "/messages").pop().expect("a message");
    assert_eq!(tool_names(&sent.value()), LEDGER_TOOLS, "its own tools replace the session's");
}

#[tokio::test]
async fn eval_runs_are_injected_where_their_agent_is() {
    let rig = Harness::start().await;
    for (body, inline) in [
        (r#"{"datasetId":"d","agent":{"modelId":"m"}}"#, true),
        (r#"{"datasetId":"d","agentId":"a"}"#, false),
    ] {
        rig.mantyx.script(Script::new().done());
        let answer = rig.bridge.api("POST", &format!("{API}/eval-runs"), Some(body)).await;
        answer.expect(202);
        let sent = rig.mantyx.requests("POST", "/eval-runs").pop().expect("a run").value();
        let holder = if inline { &sent["agent"] } else { &sent };
        assert_eq!(tool_names(holder), LEDGER_TOOLS, "{sent}");
    }
}

#[tokio::test]
async fn everything_else_is_piped_as_it_is() {
    let rig = Harness::start().await;
    let target = format!("{API}/agent-runs?status=failed&metadata=a%3Ab&metadata=c:d&x=%2F");
    let request = rig.bridge.request("GET", &target).header("X-Custom", "kept");
    let request = request.header("Connection", "close, X-Hop").header("X-Hop", "dropped");
    request.header("X-Bridge-Backends", "none").answer(rig.bridge.addr()).await.expect(200);
    let sent = rig.mantyx.only("GET", "/agent-runs");
    assert_eq!(sent.target, target, "path and query unchanged");
    assert_eq!(sent.header("x-custom"), Some("kept"));
    assert_eq!(sent.header("x-hop"), None, "a header that Connection names ends here");
    assert_eq!(
        sent.header("authorization"),
        Some(format!("Bearer {CREDENTIAL}").as_str()),
        "the upstream's credential replaces the app's"
    );
    assert_eq!(sent.header("x-api-key"), None, "one credential");
    assert!(!format!("{sent:?}").contains(rig.bridge.token()), "the app's token stays here");

    let body = r#"{"b":1.0,"a":{},"b":2}"#;
    rig.bridge.api("POST", &format!("{API}/agent-runs/r/feedback"), Some(body)).await.expect(200);
    assert_eq!(rig.mantyx.only("POST", "/feedback").text(), body, "not read, not refused");
}

#[tokio::test]
async fn an_answer_of_mantyx_comes_back_as_it_is() {
    let rig = Harness::start().await;
    let target = format!("{API}/models");
    let head =
        ["HTTP/1.1 418 Odd", "X-RateLimit-Remaining: 7", "Retry-After: 3", "Content-Type: x/y"];
    rig.mantyx.canned("GET", &target, &head, "bytes");
    let answer = rig.bridge.api("GET", &target, None).await;
    assert_eq!((answer.status, answer.text().as_str()), (418, "bytes"));
    for (name, value) in
        [("x-ratelimit-remaining", "7"), ("retry-after", "3"), ("content-type", "x/y")]
    {
        assert_eq!(answer.header(name), Some(value), "header {name}");
    }
}

#[tokio::test]
async fn redirect_elsewhere_is_an_error_without_its_location() {
    let rig = Harness::start().await;
    let elsewhere = Mantyx::start().await;
    let location = format!("{}/elsewhere", elsewhere.url());
    for status in [300, 301, 302, 303, 307, 308] {
        let line = format!("HTTP/1.1 {status} Moved");
        let head = [line.as_str(), &format!("Location: {location}")];
        rig.mantyx.canned("GET", &format!("{API}/models"), &head, &location);
        let answer = rig.bridge.api("GET", &format!("{API}/models"), None).await;
        assert_eq!((answer.status, answer.header("location")), (502, None), "{status}");
        let text = answer.text();
        assert!(text.contains("upstream_broken") && text.contains(&status.to_string()), "{text}");
        assert!(!text.contains("/elsewhere"), "{text}");
    }
    assert!(elsewhere.recorded().is_empty(), "the credential went to another origin");
}

#[tokio::test]
async fn redirect_within_mantyx_leads_to_the_bridge() {
    let rig = Harness::start().await;
    let location = format!("Location: {}{API}/models/?a=1", rig.mantyx.url());
    let head = ["HTTP/1.1 307 Temporary Redirect", &location];
    rig.mantyx.canned("GET", &format!("{API}/models"), &head, "");
    let answer = rig.bridge.api("GET", &format!("{API}/models"), None).await;
    let target = format!("{API}/models/?a=1");
    assert_eq!((answer.status, answer.header("location")), (307, Some(target.as_str())));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_at_its_head() {
    let rig = Harness::start().await;
    let mut connection = Connection::open(rig.bridge.addr()).await;
    let head = format!(
        "POST {API}/agent-runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        rig.bridge.addr(),
        rig.bridge.token(),
        (64 << 20) + 1
    );
    connection.write(head.as_bytes()).await;
    connection.response().await.answer().await.expect_error(413);
}

#[tokio::test]
async fn a_run_that_mantyx_refuses_is_not_driven() {
    let rig = Harness::start().await;
    let head = ["HTTP/1.1 400 Bad Request", "Content-Type: application/json"];
    let refusal = r#"{"error":"invalid_model","message":"No such model."}"#;
    rig.mantyx.canned("POST", &format!("{API}/agent-runs"), &head, refusal);
    let answer = rig.bridge.api("POST", &format!("{API}/agent-runs"), Some("{}")).await;
    assert_eq!(answer.expect(400)["error"], "invalid_model", "the answer of MANTYX");
    assert_eq!(rig.bridge.status().await["runs"]["driven"], 0, "there is no run to drive");
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let rig = Harness::start().await;
    let mut connection = Connection::open(rig.bridge.addr()).await;
    let head = format!(
        "POST {API}/echo-stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n",
        rig.bridge.addr(),
        rig.bridge.token()
    );
    connection.write(head.as_bytes()).await;
    let mut response = connection.response().await;
    assert_eq!(response.status, 200);
    assert_eq!(response.chunk().await.as_deref(), Some(b"one".as_slice()), "before the rest");
    response.write(b"3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!(response.answer().await.body, b"two");
}

/// Everything of an answer, for a search.
fn all_of(answer: &Answer) -> String {
    format!("{:?}{}", answer.head, answer.text())
}

#[tokio::test]
async fn no_app_ever_sees_the_upstreams_credential() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::ready(&mantyx.upstream()).await;
    struct Case {
        method: &'static str,
        target: String,
        body: Option<&'static str>,
    }
    for Case { method, target, body } in [
        Case { method: "GET", target: format!("{API}/models"), body: None },
        Case { method: "POST", target: format!("{API}/agent-runs"), body: Some("[]") },
        Case { method: "GET", target: "/v1/status".to_owned(), body: None },
        Case { method: "GET", target: "/metrics".to_owned(), body: None },
        Case { method: "GET", target: "/openapi.json".to_owned(), body: None },
        Case { method: "GET", target: "/nothing".to_owned(), body: None },
    ] {
        let answer = bridge.api(method, &target, body).await;
        assert!(!all_of(&answer).contains(CREDENTIAL), "{method} {target} shows the credential");
    }
    // With MANTYX gone, errors are where a credential slips out.
    drop(mantyx);
    let answer = bridge.api("GET", &format!("{API}/models"), None).await;
    assert!(matches!(answer.status, 502..=504), "MANTYX is gone: {}", answer.status);
    assert!(!all_of(&answer).contains(CREDENTIAL), "an error shows the credential");
    answer.expect_error(answer.status);
    assert!(!bridge.log().contains(CREDENTIAL), "the log shows the credential");
}

#[tokio::test]
async fn a_bridge_credential_does_not_reach_mantyx_twice() {
    let rig = Harness::start().await;
    let request = crate::http::Request::new("GET", &format!("{API}/models"));
    let request = request.header("X-API-Key", rig.bridge.token());
    request.answer(rig.bridge.addr()).await.expect(200);
    let sent = rig.mantyx.only("GET", "/models");
    assert!(!format!("{sent:?}").contains(rig.bridge.token()), "the app's token stays here");
    assert!(format!("{sent:?}").contains(CREDENTIAL), "the upstream's credential goes out");
}

#[tokio::test]
async fn a_spec_with_too_many_tools_is_refused_where_it_would_get_some() {
    let rig = Harness::start().await;
    let spec = format!("{{\"tools\":[{}]}}", vec!["0"; 3_000_000].join(","));
    for target in [&format!("{API}/agent-runs"), "/v1/runs", "/v1/specs/inject"] {
        let body = rig.bridge.api("POST", target, Some(&spec)).await.expect_error(400);
        let message = body["message"].as_str().or(body["error"]["message"].as_str());
        let message = message.unwrap_or_else(|| panic!("{body}"));
        assert!(message.contains("`tools`") && message.contains("4096"), "{message}");
    }
    assert!(rig.mantyx.requests("POST", "/agent-runs").is_empty());
    let request = rig.bridge.request("POST", &format!("{API}/agent-runs")).json(spec.clone());
    let request = request.header("X-Bridge-Backends", "none");
    rig.mantyx.script(Script::new().done());
    request.answer(rig.bridge.addr()).await.expect(202);
    assert!(rig.mantyx.only("POST", "/agent-runs").text() == spec, "untouched");
}
