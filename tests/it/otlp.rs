//! The bridge's own spans, as a collector on the official messages reads them: joined with the
//! app's trace and with what peers and MANTYX are told, and never in anybody's way.

use serde_json::Value;

use crate::{
    bridge::API,
    frames::Script,
    harness::Harness,
    mantyx::Recorded,
    peers::{self, Peer},
    pending, recovery, wait,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// One span, as the collector has read it.
#[derive(Debug, Clone)]
struct Span(Value);

impl Span {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_else(|| panic!("{key} in {self:?}"))
    }

    fn attribute(&self, key: &str) -> &str {
        let value = &self.0["attributes"][key];
        value.as_str().unwrap_or_else(|| panic!("the attribute {key} of {self:?}"))
    }

    /// The `traceparent` of who is asked in it.
    fn told(&self) -> String {
        format!("00-{}-{}-01", self.text("trace"), self.text("span"))
    }

    #[track_caller]
    fn is_in(&self, parent: &Self) {
        let ids = |span: &Self| (span.text("trace").to_owned(), span.text("span").to_owned());
        let own = (self.text("trace").to_owned(), self.text("parent").to_owned());
        assert_eq!(own, ids(parent), "{self:?} is in {parent:?}");
        assert_eq!(self.0["remote"], false, "{self:?}");
    }
}

/// The POSTs that a collector was sent.
fn posts(collector: &Peer) -> Vec<Value> {
    let log = collector.log();
    let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let posts = whole.filter(|line| !line.starts_with("READY "));
    posts.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{log}"))).collect()
}

fn spans(collector: &Peer) -> Vec<Span> {
    let posts = posts(collector);
    let spans = posts.iter().flat_map(|post| post["spans"].as_array().cloned());
    spans.flatten().map(Span).collect()
}

/// The one span of this name.
#[track_caller]
fn named(spans: &[Span], name: &str) -> Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.text("name") == name).collect();
    assert_eq!(found.len(), 1, "one span {name:?} in {spans:?}");
    found.first().map(|span| (*span).clone()).expect("one")
}

/// A bridge with the server `bad` and the local tool `gone`, whose spans go to `collector`.
async fn rig(collector: &str, env: &[(&str, &str)]) -> Harness {
    let bad = peers::hostile_mcp(&[]);
    let config = format!(
        "mcp:\n  bad: {bad}\nlocal:\n  gone: {{http: {{method: POST, url: \"http://127.0.0.1:1/\"}}, \
         description: x, parameters: {{type: object}}}}\n"
    );
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector)];
    let rig = Harness::bare_with(&config, &[&endpoint, env].concat()).await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig
}

/// The request that reached the server, as it says.
async fn echoed(rig: &Harness, id: &str) -> String {
    let answer = rig.mantyx.answer(id).await;
    answer["result"].as_str().unwrap_or_else(|| panic!("an echo: {answer}")).to_owned()
}

/// The span of the call `bad_echo`, in `request`; the one of its dispatch.
#[track_caller]
fn check_call(all: &[Span], request: &Span, run: &str) -> Span {
    let call = named(all, "call bad_echo");
    call.is_in(request);
    assert_eq!((call.text("kind"), &call.0["failed"]), ("SPAN_KIND_INTERNAL", &false.into()));
    for (key, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "bad_echo"),
        ("bridge.app", "default"),
        ("bridge.backend", "bad"),
        ("bridge.tool", "echo"),
        ("bridge.kind", "mcp_local"),
        ("bridge.outcome", "result"),
        ("mantyx.run_id", run),
        ("mantyx.tool_use_id", "tu_1"),
    ] {
        assert_eq!(call.attribute(key), value, "{key}");
    }
    let dispatch = named(all, "dispatch bad");
    dispatch.is_in(&call);
    assert_eq!((dispatch.text("kind"), dispatch.text("state")), ("SPAN_KIND_CLIENT", "a=1"));
    for (key, value) in [("bridge.tool", "echo"), ("bridge.outcome", "result")] {
        assert_eq!(dispatch.attribute(key), value, "{key}");
    }
    dispatch
}

/// The call of the tool that nobody listens to.
#[track_caller]
fn check_failed_call(all: &[Span], request: &Span) {
    let call = named(all, "call gone");
    call.is_in(request);
    let dispatch = named(all, "dispatch gone");
    dispatch.is_in(&call);
    for span in [call, dispatch] {
        assert_eq!(span.attribute("bridge.outcome"), "unavailable");
        assert_eq!(span.0["failed"], true, "{span:?}");
    }
}

/// The posts of results, and what MANTYX was told with them.
#[track_caller]
fn check_posts(all: &[Span], request: &Span, rig: &Harness) {
    for id in ["tu_1", "tu_2"] {
        let is_it = |span: &&Span| {
            span.text("name") == "POST tool-results"
                && span.0["attributes"]["mantyx.tool_use_id"] == id
        };
        let post = all.iter().find(is_it).expect("the post of a result");
        post.is_in(request);
        assert_eq!(post.text("kind"), "SPAN_KIND_CLIENT");
        assert_eq!(post.attribute("bridge.outcome"), "accepted");
        let posts = rig.mantyx.posts(id);
        let told = posts.first().and_then(|post| post.header("traceparent"));
        assert_eq!(told, Some(post.told().as_str()));
    }
}

#[tokio::test]
async fn a_run_and_its_calls_are_one_trace() {
    let collector = peers::otlp_collector("200").await;
    let env = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary%20key"),
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
    ];
    let mut rig = rig(collector.url(), &env).await;
    let args = r#"{"secret":"canary-argument"}"#;
    let script = Script::new().mcp("tu_1", "bad", "bad_echo", args).answered("tu_1");
    rig.mantyx.script(script.local("tu_2", "gone", "{}").answered("tu_2").done());
    let headers = [("traceparent", PARENT), ("tracestate", "a=1")];
    let run = rig.bridge.post_run_with(r#"{"prompt":"canary-prompt"}"#, &headers).await;
    let echo = echoed(&rig, "tu_1").await;
    assert!(rig.mantyx.answer("tu_2").await["error"].is_string());
    rig.bridge.stop().await;

    let all = spans(&collector);
    assert_eq!(all.len(), 7, "a request, and a call, a dispatch and a post of each: {all:?}");
    let request = named(&all, "POST /api/v1/workspaces/{workspace}/agent-runs");
    assert_eq!((request.text("trace"), request.text("parent")), (TRACE, "b7ad6b7169203331"));
    assert_eq!((request.text("kind"), &request.0["remote"]), ("SPAN_KIND_SERVER", &true.into()));
    assert_eq!(request.0["attributes"]["http.response.status_code"], 202);
    assert_eq!(request.attribute("bridge.app"), "default");
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(Recorded::header(&sent, "traceparent"), Some(request.told().as_str()));
    assert_eq!(Recorded::header(&sent, "tracestate"), Some("a=1"));
    let dispatch = check_call(&all, &request, &run.run_id);
    let told = format!(r#""traceparent":"{}","tracestate":"a=1""#, dispatch.told());
    assert!(echo.contains(&told), "the server is asked in the dispatch: {echo}");
    check_failed_call(&all, &request);
    check_posts(&all, &request, &rig);

    for span in &all {
        let [begin, end] = [0, 1].map(|at| span.0["nanos"][at].as_u64().expect("a time"));
        assert!(begin > 1_600_000_000_000_000_000 && begin <= end, "{span:?}");
        assert_eq!(span.text("scope"), "mantyx-bridge");
        let resource = &span.0["resource"];
        assert_eq!(resource["service.name"], "edge");
        assert_eq!(resource["deployment.environment"], "test");
    }
    for post in posts(&collector) {
        assert_eq!(post["path"], "/v1/traces");
        assert_eq!(post["headers"]["content-type"], "application/x-protobuf");
        assert_eq!(post["headers"]["x-key"], "canary key");
    }
    assert!(!format!("{all:?}").contains("canary"), "nothing of what is said: {all:?}");
    assert!(!rig.bridge.log().contains("canary"), "{}", rig.bridge.log());
}

#[tokio::test]
async fn trace_that_is_not_sampled_passes_as_it_came() {
    let collector = peers::otlp_collector("200").await;
    let mut rig = rig(collector.url(), &[]).await;
    let check = async |rig: &Harness, id: &str, parent: &str| {
        rig.mantyx.forget_requests();
        rig.mantyx.script(Script::one_call(id, "bad", "bad_echo", "{}"));
        rig.bridge.post_run_with("{}", &[("traceparent", parent)]).await;
        let told = echoed(rig, id).await;
        assert!(told.contains(&format!(r#""traceparent":"{parent}""#)), "{told}");
        let sent = rig.mantyx.only("POST", "/agent-runs");
        assert_eq!(Recorded::header(&sent, "traceparent"), Some(parent), "MANTYX is told the same");
        let post = rig.mantyx.only("POST", "/tool-results");
        assert_eq!(Recorded::header(&post, "traceparent"), None, "as without traces");
    };
    check(&rig, "tu_1", &PARENT.replace("-01", "-00")).await;
    rig.bridge.stop().await;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let none =
        [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    rig.bridge.set_env(&[endpoint, none[0], none[1]]);
    rig.bridge.restart().await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig.mantyx.script(Script::one_call("tu_2", "bad", "bad_echo", "{}"));
    rig.bridge.post_run("{}").await;
    let told = echoed(&rig, "tu_2").await;
    assert!(!told.contains("trace"), "and none is begun: {told}");
    rig.bridge.stop().await;
    assert_eq!(posts(&collector), [Value::Null; 0]);
}

#[tokio::test]
async fn a_trace_is_begun_where_none_came() {
    let collector = peers::otlp_collector("200").await;
    let mut rig = rig(collector.url(), &[]).await;
    let sessions = format!("{API}/agent-sessions");
    let session = rig.bridge.api("POST", &sessions, Some("{}")).await.expect(201);
    let messages = format!("{sessions}/{}/messages", session["sessionId"].as_str().expect("an id"));
    rig.mantyx.script(Script::one_call("tu_1", "bad", "bad_echo", "{}"));
    rig.bridge.api("POST", &messages, Some(r#"{"prompt":"x"}"#)).await.expect(202);
    let of_message = echoed(&rig, "tu_1").await;
    rig.mantyx.script(Script::one_call("tu_2", "bad", "bad_echo", "{}"));
    rig.bridge.api("POST", "/v1/runs", Some(r#"{"prompt":"x"}"#)).await.expect(202);
    let of_run = echoed(&rig, "tu_2").await;
    let event = r#"{"toolUseId":"tu_3","name":"bad_echo","args":{}}"#;
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(event)).await.expect(200);
    let by_hand = answer["result"].as_str().expect("an echo").to_owned();
    rig.bridge.stop().await;

    let all = spans(&collector);
    let request = |route: &str| named(&all, &format!("POST {route}"));
    let message = request("/api/v1/workspaces/{workspace}/agent-sessions/{session}/messages");
    let mut traces = Vec::new();
    struct Case {
        request: Span,
        id: &'static str,
        told: String,
    }
    for Case { request, id, told } in [
        Case { request: message, id: "tu_1", told: of_message },
        Case { request: request("/v1/runs"), id: "tu_2", told: of_run },
        Case { request: request("/v1/tool-calls"), id: "tu_3", told: by_hand },
    ] {
        assert_eq!(request.text("parent"), "", "{id} begins the trace");
        let own: Vec<Span> = all
            .iter()
            .filter(|span| span.text("trace") == request.text("trace"))
            .cloned()
            .collect();
        let call = named(&own, "call bad_echo");
        call.is_in(&request);
        assert_eq!(call.attribute("mantyx.tool_use_id"), id);
        let dispatch = named(&own, "dispatch bad");
        dispatch.is_in(&call);
        assert!(told.contains(&format!(r#""traceparent":"{}""#, dispatch.told())), "{id}: {told}");
        traces.push(request.text("trace").to_owned());
    }
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), 3, "each its own");
}

#[tokio::test]
async fn after_a_crash_calls_belong_to_the_trace_of_their_run() {
    let collector = peers::otlp_collector("200").await;
    let mut rig = rig(collector.url(), &[]).await;
    let script = Script::new().mcp("tu_1", "bad", "bad_echo", "{}").answered("tu_1");
    rig.mantyx.script(script.until("later").mcp("tu_2", "bad", "bad_echo", "{}").answered("tu_2"));
    rig.bridge.post_run_with("{}", &[("traceparent", PARENT)]).await;
    echoed(&rig, "tu_1").await;
    let sent = rig.mantyx.only("POST", "/agent-runs");
    let request = Recorded::header(&sent, "traceparent").expect("it is told").to_owned();
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig.mantyx.release("later");
    let told = echoed(&rig, "tu_2").await;
    rig.bridge.stop().await;
    let of_second = |span: &Span| span.0["attributes"]["mantyx.tool_use_id"] == "tu_2";
    let second: Vec<Span> = spans(&collector).into_iter().filter(of_second).collect();
    let call = named(&second, "call bad_echo");
    assert_eq!(format!("00-{}-{}-01", call.text("trace"), call.text("parent")), request);
    let dispatches = spans(&collector);
    let own = dispatches.iter().find(|span| span.text("parent") == call.text("span"));
    let own = own.expect("a dispatch in it");
    assert!(told.contains(&own.told()), "{told}");
}

#[tokio::test]
async fn a_long_call_keeps_its_trace_over_a_crash() {
    let collector = peers::otlp_collector("200").await;
    let agent = peers::a2a_v1("1.0").await;
    let config = format!("a2a:\n  hr: {{url: \"{}\", pending_after: 100ms}}\n", agent.url());
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())];
    let mut rig = Harness::bare_with(&config, &env).await;
    rig.bridge.wait_backend("hr", "ready").await;
    let script = Script::new().a2a("tu_1", "hr", "long 40").answered("tu_1").until("@call");
    rig.mantyx.script(pending::fetch(script, "tu_2", 60).answered("tu_2").done());
    rig.bridge.post_run_with("{}", &[("traceparent", PARENT)]).await;
    pending::pending(&rig.mantyx.answer("tu_1").await);
    let task = recovery::begun_task(&agent).await;
    recovery::wait_journaled(&rig.bridge, &task).await;
    let sent = rig.mantyx.only("POST", "/agent-runs");
    let request = Recorded::header(&sent, "traceparent").expect("it is told").to_owned();
    rig.bridge.kill9();
    rig.bridge.restart().await;
    pending::learn(&rig, "tu_1", "@call").await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "worked 40");
    rig.bridge.stop().await;
    let all = spans(&collector);
    let call = named(&all, "call hr");
    assert_eq!(format!("00-{}-{}-01", call.text("trace"), call.text("parent")), request);
    assert_eq!(call.0["attributes"]["bridge.resumed"], true, "{call:?}");
    let dispatch = named(&all, "dispatch hr");
    dispatch.is_in(&call);
    assert_eq!(dispatch.0["attributes"]["bridge.resumed"], true, "{dispatch:?}");
    named(&all, "call bridge_call_result");
}

/// What the page of the metrics says of spans, by the end of the series.
async fn counted(rig: &Harness, series: &str) -> u64 {
    let page = rig.bridge.api("GET", "/metrics", None).await.text();
    let start = format!("mantyx_bridge_spans_{series} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} in {page}"))
}

/// Waits until so many are counted.
async fn wait_counted(rig: &Harness, series: &str, least: u64) {
    wait::soon(&format!("{series} should reach {least}"), async || {
        (counted(rig, series).await >= least).then_some(())
    })
    .await;
}

async fn call(rig: &Harness, id: &str) {
    rig.mantyx.script(Script::one_call(id, "bad", "bad_echo", "{}"));
    rig.bridge.post_run("{}").await;
    echoed(rig, id).await;
}

/// Batches of one span that wait for nothing, and a queue of two.
const AT_ONCE: [(&str, &str); 3] = [
    ("OTEL_BSP_SCHEDULE_DELAY", "1"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "2"),
];

#[tokio::test]
async fn a_collector_that_hangs_costs_spans_and_nothing_else() {
    let collector = peers::otlp_collector("hang").await;
    let mut rig = rig(collector.url(), &AT_ONCE).await;
    for id in ["tu_1", "tu_2", "tu_3"] {
        call(&rig, id).await;
    }
    // One is on its way and two wait.
    wait_counted(&rig, r#"dropped_total{why="full"}"#, 1).await;
    assert_eq!(counted(&rig, "exported_total").await, 0);
    rig.bridge.stop().await;
    let log = rig.bridge.log();
    assert!(log.contains(r#""spans":3"#), "those that are lost are counted: {log}");
}

#[tokio::test]
async fn a_collector_that_is_away_is_told_of_once() {
    let mut collector = peers::otlp_collector("200").await;
    let url = collector.url().to_owned();
    collector.kill9();
    let mut rig = rig(&url, &[]).await;
    call(&rig, "tu_1").await;
    rig.bridge.stop().await;
    let log = rig.bridge.log();
    let told = "\"lost\":";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    collector.restart().await;
    rig.bridge.restart().await;
    rig.bridge.wait_backend("bad", "ready").await;
    call(&rig, "tu_2").await;
    rig.bridge.stop().await;
    named(&spans(&collector), "call bad_echo");
}

#[tokio::test]
async fn a_busy_collector_is_asked_again() {
    let collector = peers::otlp_collector("503,429,200").await;
    let rig = rig(collector.url(), &[("OTEL_BSP_SCHEDULE_DELAY", "1")]).await;
    call(&rig, "tu_1").await;
    wait::soon("all four spans should be taken", async || {
        (counted(&rig, "exported_total").await == 4).then_some(())
    })
    .await;
    let first: Vec<Value> =
        posts(&collector).into_iter().take(3).map(|post| post["spans"].clone()).collect();
    assert!(first.windows(2).all(|two| two.first() == two.last()), "the same bytes: {first:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let collector = peers::otlp_collector("307").await;
    let rig = rig(collector.url(), &[("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary")]).await;
    call(&rig, "tu_1").await;
    wait_counted(&rig, r#"dropped_total{why="refused"}"#, 4).await;
    let paths: Vec<Value> =
        posts(&collector).into_iter().map(|post| post["path"].clone()).collect();
    assert!(paths.iter().all(|path| path == "/v1/traces"), "{paths:?}");
}

#[tokio::test]
async fn otlp_setting_without_effect_is_told() {
    let env = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let rig = rig("http://127.0.0.1:4317", &env).await;
    let log = rig.bridge.log();
    assert!(log.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{log}");
    let page = rig.bridge.api("GET", "/metrics", None).await.text();
    assert!(!page.contains("mantyx_bridge_spans"), "{page}");
}
