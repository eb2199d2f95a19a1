//! One span, from its begin to its end.
//!
//! Must not: hold arguments, results or secrets. The code that sets an attribute has to make sure.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use tokio::time::Instant;

use super::otlp::messages;
use super::{Context, Recorder};
use crate::metrics::Dropped;
use crate::model::Trace;

/// The longest name, and the longest text of an attribute, in bytes. Peers choose the names of
/// their tools, so they may be long.
const MAX_TEXT: usize = 256;

const OUTCOME: &str = "bridge.outcome";

/// The role of a span in a request, with OTLP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    /// It serves a request.
    Server,
    /// It makes a request.
    Client,
}

/// The value of an attribute, in the form of OTLP's `AnyValue`.
#[derive(Clone, PartialEq, Eq, prost::Oneof, derive_more::From)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    #[from]
    Flag(bool),
    #[prost(int64, tag = "3")]
    #[from(u16)]
    Number(i64),
}

/// An open span, or an empty one if it is not recorded. It ends when it is dropped.
#[derive(Debug, Default)]
pub struct Span {
    /// The context for work in this span.
    pub context: Context,
    pub(super) open: Option<Box<Open>>,
}

#[derive(Debug)]
pub(super) struct Open {
    recorder: Arc<Recorder>,
    /// Its end is not set yet.
    span: messages::Span,
    /// For the duration: the wall clock may be changed in between.
    begun: Instant,
}

impl Span {
    /// A span that begins now, at the place `trace`, within `parent`, which may be another
    /// program's.
    pub(super) fn begin(
        recorder: Arc<Recorder>,
        trace: Trace,
        parent: Option<NonZeroU64>,
        is_remote: bool,
        kind: Kind,
        name: impl fmt::Display,
    ) -> Self {
        let span = messages::Span::begin(&trace, parent, is_remote, kind, cut(name.to_string()));
        let context =
            Context { trace: Some(Arc::new(trace)), recorder: Some(Arc::clone(&recorder)) };
        Self { context, open: Some(Box::new(Open { recorder, span, begun: Instant::now() })) }
    }

    /// The trace context for other programs; `None` if the span is not recorded, and their context
    /// is unchanged.
    pub fn told(&self) -> Option<&Arc<Trace>> {
        self.open.as_ref().and(self.context.trace())
    }

    /// Sets an attribute; replaces an earlier value.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open {
            open.span.set(key, value.into());
        }
    }

    /// Sets the outcome in a word, and whether that is a failure.
    pub fn outcome(&mut self, word: &str, is_failure: bool) {
        self.set(OUTCOME, word);
        self.set_failed(is_failure);
    }

    /// Sets whether the work of this span has failed.
    pub fn set_failed(&mut self, is_failure: bool) {
        if let Some(open) = &mut self.open {
            open.span.set_failed(is_failure);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let Open { recorder, mut span, begun } = *open;
            span.end(begun.elapsed());
            if recorder.queue.try_send(span).is_err() {
                recorder.counted.dropped.of(Dropped::Full).inc();
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(cut(text.to_owned()))
    }
}

/// At most [`MAX_TEXT`] bytes of `text`, in whole characters.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}
