//! The daemon's log, on the trace of the world.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::world::World;

/// Writes what the daemon logs into the trace.
pub(super) struct Tape(pub(super) Arc<World>);

/// An event of the daemon's log. Laws read its name and its fields; its words are for people.
pub(super) struct LogEvent {
    pub name: &'static str,
    fields: BTreeMap<&'static str, String>,
    /// The line of the trace.
    line: String,
}

impl LogEvent {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for LogEvent {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let name = field.name();
        if name == "message" {
            self.line.insert_str(0, &format!("{value:?} "));
        } else if name != "waited" {
            // That one is by the wall clock, and differs from run to run.
            write!(self.line, "{name}={value:?} ").expect("a string takes it");
            self.fields.insert(name, format!("{value:?}"));
        }
    }
}

impl Subscriber for Tape {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mantyx_bridge") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let name = event.metadata().name();
        let mut logged = LogEvent { name, fields: BTreeMap::new(), line: String::new() };
        event.record(&mut logged);
        let mut state = self.0.state();
        if state.is_dead() {
            return;
        }
        let line = logged.line.replace(&state.rules.dir.display().to_string(), "DIR");
        state.note(format!("  log: {}", line.trim_end()));
        state.journal_says(&logged);
        state.driver_says(&logged);
        state.call_says(&logged);
        state.refusal_says(&logged);
        if logged.name == "configuration_taken" {
            state.rules_are_taken();
        }
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}
