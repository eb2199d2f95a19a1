//! The bridge's own spans: its work in the trace of an app's request, for a collector.
//!
//! A span begins in a [`Context`], and ends when it is dropped. If nothing is recorded (no `OTEL_*`
//! variable asks for traces, or the trace is not sampled), a span is empty, and its context is the
//! one that it began in. So the bridge passes the trace on as it came.
//!
//! Must not: wait, know the meaning of a span, or delay other work: a span that finds no room is
//! dropped and counted.

mod otlp;
mod sampler;
mod span;

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use self::otlp::messages;
pub use self::otlp::{Exporter, start};
pub use self::sampler::Sampler;
pub use self::span::{Kind, Span, Value};
use crate::metrics;
use crate::model::Trace;
use crate::random;

/// Looks up an environment variable; an empty one counts as not set.
pub type Look<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The recorder of spans, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Recorder>>);

/// A position in a trace, and the recorder of its spans.
#[derive(Debug, Clone, Default)]
pub struct Context {
    trace: Option<Arc<Trace>>,
    /// `None`: nothing is recorded.
    recorder: Option<Arc<Recorder>>,
}

#[derive(Debug)]
struct Recorder {
    sampler: Sampler,
    queue: mpsc::Sender<messages::Span>,
    counted: Arc<metrics::Spans>,
}

impl Traces {
    /// Sends finished spans that `sampler` accepts to `queue`; if that is full, drops and counts
    /// them.
    pub fn new(
        sampler: Sampler,
        queue: mpsc::Sender<messages::Span>,
        counted: Arc<metrics::Spans>,
    ) -> Self {
        Self(Some(Arc::new(Recorder { sampler, queue, counted })))
    }

    /// Counters of spans, if spans are recorded.
    pub fn counted(&self) -> Option<&metrics::Spans> {
        self.0.as_ref().map(|recorder| &*recorder.counted)
    }

    /// The context of work in `trace`. It does not begin a trace.
    pub fn context(&self, trace: Option<Arc<Trace>>) -> Context {
        // Work in a trace of another program is recorded if that program records it.
        let is_recorded = trace.as_ref().is_some_and(|trace| trace.ids().is_sampled());
        Context { recorder: self.0.clone().filter(|_| is_recorded), trace }
    }

    /// Begins the span of a request that came in `trace`. Without a trace, begins one.
    pub fn request(&self, trace: Option<Arc<Trace>>, name: impl fmt::Display) -> Span {
        if trace.is_some() {
            return self.context(trace).begin_in(true, Kind::Server, name);
        }
        let id = random::trace_id();
        match &self.0 {
            Some(recorder) if recorder.sampler.takes_new(id) => {
                let trace = Trace::begin(id, random::span_id());
                Span::begin(Arc::clone(recorder), trace, None, false, Kind::Server, name)
            }
            _ => Span::default(),
        }
    }
}

impl Context {
    /// The trace context for other programs that continue from here.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    /// Begins a span.
    pub fn begin(&self, kind: Kind, name: impl fmt::Display) -> Span {
        self.clone().begin_in(false, kind, name)
    }

    fn begin_in(self, is_remote: bool, kind: Kind, name: impl fmt::Display) -> Span {
        match self {
            Self { trace: Some(trace), recorder: Some(recorder) } => {
                let here = trace.within(random::span_id());
                Span::begin(recorder, here, Some(trace.ids().span), is_remote, kind, name)
            }
            context => Span { context, open: None },
        }
    }
}

/// The environment variable that asks for traces, if there is one.
fn asked_by(look: Look<'_>) -> Option<&'static str> {
    let is = |name, word: &str| look(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    let endpoints = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let endpoint = endpoints.into_iter().find(|name| look(name).is_some());
    endpoint.or_else(|| is("OTEL_TRACES_EXPORTER", "otlp").then_some("OTEL_TRACES_EXPORTER"))
}

#[cfg(test)]
mod tests;
