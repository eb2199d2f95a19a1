//! Spans and their contexts: what is joined, what is recorded, and what passes as it came.

use std::time::Duration;

use super::otlp::messages::Span as Sent;
use super::*;
use crate::metrics::Dropped;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn trace(parent: &str) -> Option<Arc<Trace>> {
    Some(Arc::new(Trace::read(&[parent], &["a=1"]).unwrap()))
}

fn sampled(share: f64, size: usize) -> (Traces, mpsc::Receiver<Sent>) {
    let (sender, queue) = mpsc::channel(size);
    (Traces::new(Sampler::with_share(share), sender, Arc::default()), queue)
}

#[tokio::test(start_paused = true)]
async fn spans_of_one_request_are_joined() {
    let (traces, mut queue) = sampled(1.0, 9);
    let mut request = traces.request(trace(PARENT), "POST /x");
    request.set("http.response.status_code", 500_u16);
    request.set_failed(true);
    let mut call = request.context.begin(Kind::Internal, format_args!("call {}", "t"));
    let told = call.told().unwrap().parent().to_owned();
    assert_eq!(told.get(..36), PARENT.get(..36), "the app's trace");
    let dispatch = call.context.begin(Kind::Client, "dispatch");
    assert_eq!(dispatch.context.trace().unwrap().state(), Some("a=1"));
    tokio::time::advance(Duration::from_millis(1500)).await;
    drop(dispatch);
    call.set("bridge.pending", false);
    call.set("bridge.pending", true);
    call.outcome("timed_out", true);
    drop((call, request));

    let mut next = || queue.try_recv().unwrap();
    let (dispatch, call, request) = (next(), next(), next());
    assert_eq!(request.parent_span_id, trace(PARENT).unwrap().ids().span.get().to_be_bytes());
    assert_eq!([&call.parent_span_id, &dispatch.parent_span_id], [&request.span_id, &call.span_id]);
    let is_remote = [&dispatch, &call, &request].map(|span| span.flags & 0x200 != 0);
    assert_eq!(is_remote, [false, false, true]);
    let kinds = [Kind::Server, Kind::Internal, Kind::Client].map(|kind| kind as i32);
    assert_eq!([request.kind, call.kind, dispatch.kind], kinds);
    let ids = Trace::read(&[told.as_str()], &[]).unwrap().ids();
    assert_eq!((call.name.as_str(), &*call.span_id), ("call t", &ids.span.get().to_be_bytes()[..]));
    assert_eq!(dispatch.end_time_unix_nano - dispatch.start_time_unix_nano, 1_500_000_000);
    let outcome = ("bridge.outcome".to_owned(), Value::from("timed_out"));
    assert_eq!(attributes(&call), [("bridge.pending".to_owned(), Value::Flag(true)), outcome]);
    let status = ("http.response.status_code".to_owned(), Value::Number(500));
    assert_eq!(attributes(&request), [status]);
    assert_eq!([&call, &request, &dispatch].map(|span| span.status.is_some()), [true, true, false]);
}

fn attributes(span: &Sent) -> Vec<(String, Value)> {
    let pair = |one: &messages::KeyValue| {
        (one.key.clone(), one.value.clone().and_then(|any| any.value).unwrap())
    };
    span.attributes.iter().map(pair).collect()
}

#[track_caller]
fn passes(traces: &Traces, given: Option<&str>) {
    let given = given.and_then(trace);
    let mut request = traces.request(given.clone(), "POST /x");
    request.set("a", "b");
    assert_eq!(request.told(), None, "nobody is told of a span that nobody sees");
    let call = request.context.begin(Kind::Client, "dispatch");
    assert_eq!(call.context.trace(), given.as_ref());
    assert_eq!(traces.context(given.clone()).trace(), given.as_ref());
}

#[test]
fn context_that_is_not_recorded_passes_as_it_came() {
    passes(&Traces::default(), None);
    passes(&Traces::default(), Some(PARENT));
    let (traces, mut queue) = sampled(1.0, 9);
    let unsampled = PARENT.replace("-01", "-00");
    passes(&traces, Some(&unsampled));
    passes(&traces, Some(&format!("cc{}-more", unsampled.trim_start_matches("00"))));
    assert!(queue.try_recv().is_err());
    let (traces, mut queue) = sampled(0.0, 9);
    passes(&traces, None);
    assert!(queue.try_recv().is_err());
    // Of a trace of another program, that program decides.
    drop(traces.request(trace(PARENT), "POST /x"));
    assert!(queue.try_recv().is_ok());
}

#[test]
fn a_trace_is_begun_where_none_came() {
    let (traces, mut queue) = sampled(1.0, 9);
    let told = traces.request(None, "POST /x").told().cloned().unwrap();
    let other = traces.request(None, "POST /x").told().cloned().unwrap();
    assert_ne!(told.ids().trace, other.ids().trace);
    let span = queue.try_recv().unwrap();
    let id = told.ids();
    assert_eq!((span.parent_span_id.len(), span.flags & 0x200), (0, 0));
    assert_eq!(span.trace_id, id.trace.get().to_be_bytes());
    assert_eq!(span.span_id, id.span.get().to_be_bytes());
    // What goes on in it later, in another process too, is recorded, and begins nothing.
    drop(traces.context(Some(told)).begin(Kind::Client, "later"));
    drop(traces.context(None).begin(Kind::Client, "nowhere"));
    assert!(queue.try_recv().is_ok_and(|span| span.name == "POST /x"));
    assert!(queue.try_recv().is_ok_and(|span| span.name == "later"));
    assert!(queue.try_recv().is_err());
}

#[test]
fn span_without_room_is_counted() {
    let (traces, mut queue) = sampled(1.0, 2);
    for _ in 0..5 {
        drop(traces.request(None, "POST /x"));
    }
    assert_eq!(traces.counted().unwrap().dropped.of(Dropped::Full).get(), 3);
    queue.try_recv().unwrap();
    drop(traces.request(None, "POST /x"));
    assert_eq!(traces.counted().unwrap().dropped.of(Dropped::Full).get(), 3);
}

#[test]
fn texts_of_peers_are_cut() {
    let (traces, mut queue) = sampled(1.0, 2);
    let long = format!("x{}", "é".repeat(200));
    traces.request(None, &long).set("bridge.tool", long.as_str());
    let span = queue.try_recv().unwrap();
    assert_eq!(span.name.len(), 255, "in whole characters");
    assert_eq!(attributes(&span), [("bridge.tool".to_owned(), Value::Text(span.name.clone()))]);
}

#[track_caller]
fn asks(vars: &[(&str, &str)], by: Option<&str>) {
    let look = |name: &str| {
        let found = vars.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    assert_eq!(asked_by(&look), by, "{vars:?}");
}

#[test]
fn traces_are_asked_for_by_the_environment() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4318");
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x:4318/v1/traces");
    asks(&[], None);
    asks(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_HEADERS", "a=b")], None);
    asks(&[endpoint], Some(endpoint.0));
    asks(&[endpoint, traces], Some(traces.0));
    asks(&[("OTEL_TRACES_EXPORTER", "otlp")], Some("OTEL_TRACES_EXPORTER"));
    asks(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], None);
    asks(&[endpoint, ("OTEL_SDK_DISABLED", "True")], None);
    asks(&[endpoint, ("OTEL_SDK_DISABLED", "false")], Some(endpoint.0));
}
