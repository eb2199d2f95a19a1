//! The bridge's own spans: what it did in the trace of an app's request, for a collector.
//!
//! A span is begun in a [`Context`] and ends when it is dropped. If nothing is recorded (no
//! `OTEL_*` variable asks for traces, or the trace is not sampled), a span is nothing, and its context
//! is the one that it was begun in, so that a trace is passed on as it came.
//!
//! Must not: wait, know what a span is about, or hold anything up: what cannot be kept is counted.

mod otlp;
mod sampler;
mod span;

use std::{fmt, sync::Arc};

use tokio::sync::mpsc;

pub use self::otlp::{Exporter, start};
pub use self::{
    sampler::Sampler,
    span::{Finished, Kind, Span, Value},
};
use crate::{
    metrics::{self, Dropped},
    model::trace::Trace,
};

/// Looks an environment variable up; one that is empty is not set.
pub type Look<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where spans go, if anywhere.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Recorder>>);

/// Where in a trace something is done, and where its spans go.
#[derive(Debug, Clone, Default)]
pub struct Context {
    trace: Option<Arc<Trace>>,
    /// `None`: nothing is recorded.
    recorder: Option<Arc<Recorder>>,
}

#[derive(Debug)]
struct Recorder {
    sampler: Sampler,
    queue: mpsc::Sender<Finished>,
    counted: Arc<metrics::Spans>,
}

impl Traces {
    /// Finished spans of what `sampler` takes go to `queue`, and are counted where it is full.
    pub fn new(
        sampler: Sampler,
        queue: mpsc::Sender<Finished>,
        counted: Arc<metrics::Spans>,
    ) -> Self {
        Self(Some(Arc::new(Recorder { sampler, queue, counted })))
    }

    /// What is counted of spans, if there are any.
    pub fn counted(&self) -> Option<&metrics::Spans> {
        self.0.as_ref().map(|recorder| &*recorder.counted)
    }

    /// The context of what is done in `trace`. No trace is begun.
    pub fn context(&self, trace: Option<Arc<Trace>>) -> Context {
        let takes = |recorder: &&Arc<Recorder>| {
            trace.as_ref().is_some_and(|trace| recorder.sampler.takes(&trace.ids()))
        };
        Context { recorder: self.0.as_ref().filter(takes).cloned(), trace }
    }

    /// Begins the span of a request that came in `trace`. Where it came in none, a trace is begun.
    pub fn request(&self, trace: Option<Arc<Trace>>, name: impl fmt::Display) -> Span {
        match (&self.0, trace) {
            (Some(recorder), None) => {
                let id = rand::random();
                if recorder.sampler.takes_new(id) {
                    Span::begin(Arc::clone(recorder), span::Parent::None(id), Kind::Server, name)
                } else {
                    Span::default()
                }
            }
            (_, trace) => match self.context(trace) {
                Context { trace: Some(trace), recorder: Some(recorder) } => {
                    Span::begin(recorder, span::Parent::Remote(trace), Kind::Server, name)
                }
                context => Span::unrecorded(context),
            },
        }
    }
}

impl Context {
    /// What is told to others, who go on from here.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    /// Begins a span.
    pub fn begin(&self, kind: Kind, name: impl fmt::Display) -> Span {
        match self.clone() {
            Self { trace: Some(trace), recorder: Some(recorder) } => {
                Span::begin(recorder, span::Parent::Local(trace), kind, name)
            }
            context => Span::unrecorded(context),
        }
    }
}

impl Recorder {
    /// Takes a span in, or counts it.
    fn take(&self, span: Finished) {
        if self.queue.try_send(span).is_err() {
            self.counted.dropped.of(Dropped::Full).inc();
        }
    }
}

/// The environment variable that asks for traces, if one does.
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
