//! The messages of OTLP's trace service, with the fields that are written here and no others.
//!
//! Source: opentelemetry-proto 1.x (collector/trace/v1, trace/v1, common/v1, resource/v1). Must
//! not: know how messages travel.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use prost::Message as _;

use crate::clock;
use crate::model::Trace;
use crate::traces::{Kind, Value};

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

/// A span; it has ended when it is in a request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::traces) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::traces) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(in crate::traces) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(in crate::traces) name: String,
    #[prost(int32, tag = "6")]
    pub(in crate::traces) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(in crate::traces) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(in crate::traces) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(in crate::traces) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(in crate::traces) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(in crate::traces) flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub(in crate::traces) key: String,
    #[prost(message, optional, tag = "2")]
    pub(in crate::traces) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3")]
    pub(in crate::traces) value: Option<Value>,
}

/// The body that exports `spans`.
pub(super) fn request(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let scope = InstrumentationScope { name: SCOPE.to_owned(), version: VERSION.to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.to_vec() }];
    let resource = Some(resource.clone());
    let resource_spans = vec![ResourceSpans { resource, scope_spans }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

impl Resource {
    pub(super) fn new(attributes: &[(String, String)]) -> Self {
        let pair = |(key, text): &(String, String)| KeyValue::new(key, Value::Text(text.clone()));
        Self { attributes: attributes.iter().map(pair).collect() }
    }
}

impl Span {
    /// A span that begins now. Its place in the trace is `trace`.
    pub(in crate::traces) fn begin(
        trace: &Trace,
        parent: Option<NonZeroU64>,
        is_remote_parent: bool,
        kind: Kind,
        name: String,
    ) -> Self {
        let ids = trace.ids();
        let parent = parent.map(|parent| parent.get().to_be_bytes().to_vec());
        let since = clock::now().duration_since(SystemTime::UNIX_EPOCH);
        let remote = if is_remote_parent { IS_REMOTE } else { 0 };
        Self {
            trace_id: ids.trace.get().to_be_bytes().to_vec(),
            span_id: ids.span.get().to_be_bytes().to_vec(),
            trace_state: trace.state().unwrap_or_default().to_owned(),
            parent_span_id: parent.unwrap_or_default(),
            name,
            kind: kind as i32,
            start_time_unix_nano: nanos(since.unwrap_or_default()),
            flags: u32::from(ids.flags) | KNOWS_REMOTE | remote,
            ..Self::default()
        }
    }

    /// Sets an attribute; replaces an earlier value.
    pub(in crate::traces) fn set(&mut self, key: &str, value: Value) {
        self.attributes.retain(|known| known.key != key);
        self.attributes.push(KeyValue::new(key, value));
    }

    pub(in crate::traces) fn set_failed(&mut self, is_failure: bool) {
        self.status = is_failure.then_some(Status { code: ERROR });
    }

    pub(in crate::traces) fn end(&mut self, took: Duration) {
        self.end_time_unix_nano = self.start_time_unix_nano.saturating_add(nanos(took));
    }
}

impl KeyValue {
    fn new(key: &str, value: Value) -> Self {
        let key = key.to_owned();
        Self { key, value: Some(AnyValue { value: Some(value) }) }
    }
}

/// Nanoseconds; since the epoch, a `u64` lasts until the year 2554.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
