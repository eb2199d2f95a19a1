//! The messages of OTLP's trace service, with the fields that are written here and no
//! others.
//!
//! Source: opentelemetry-proto 1.x (collector/trace/v1, trace/v1, common/v1, resource/v1). Must not:
//! know how messages travel.

use std::time::SystemTime;

use prost::Message as _;

use crate::traces::{Finished, Kind, Value};

/// The instrumentation scope: the program that records the spans.
const SCOPE: &str = env!("CARGO_PKG_NAME");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `StatusCode`.
const ERROR: i32 = 2;
/// `SpanFlags`, beside the flags of the trace: the first says that the second is valid; the second
/// says that the parent is remote.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, prost::Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// The program that the spans belong to.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3")]
    value: Option<Value>,
}

/// The body that exports `spans`.
pub(super) fn request(resource: &Resource, spans: &[Finished]) -> Vec<u8> {
    let scope = InstrumentationScope { name: SCOPE.to_owned(), version: VERSION.to_owned() };
    let spans = spans.iter().map(Span::from).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let resource = Some(resource.clone());
    let resource_spans = vec![ResourceSpans { resource, scope_spans }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

impl Resource {
    pub(super) fn of(attributes: &[(String, String)]) -> Self {
        let pair = |(key, text): &(String, String)| KeyValue::new(key, Value::Text(text.clone()));
        Self { attributes: attributes.iter().map(pair).collect() }
    }
}

impl From<&Finished> for Span {
    fn from(span: &Finished) -> Self {
        let ids = span.trace.ids();
        let parent = span.parent.map(|parent| parent.get().to_be_bytes().to_vec());
        let attributes = span.attributes.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value.clone()));
        let remote = if span.remote_parent { IS_REMOTE } else { 0 };
        Self {
            trace_id: ids.trace.get().to_be_bytes().to_vec(),
            span_id: ids.span.get().to_be_bytes().to_vec(),
            trace_state: span.trace.state().unwrap_or_default().to_owned(),
            parent_span_id: parent.unwrap_or_default(),
            name: span.name.clone(),
            kind: match span.kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: nanos(span.begun_at),
            end_time_unix_nano: nanos(span.begun_at + span.took),
            attributes: attributes.collect(),
            status: span.failed.then_some(Status { code: ERROR }),
            flags: u32::from(ids.flags) | KNOWS_REMOTE | remote,
        }
    }
}

impl KeyValue {
    fn new(key: &str, value: Value) -> Self {
        let key = key.to_owned();
        Self { key, value: Some(AnyValue { value: Some(value) }) }
    }
}

/// Nanoseconds since the epoch; a `u64` lasts until the year 2554.
fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
