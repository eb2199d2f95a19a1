//! The daemon's log, on the trace of the world.

use std::fmt::Write as _;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::world::World;

/// Writes what the daemon logs into the trace.
pub(super) struct Tape(pub(super) Arc<World>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let name = field.name();
        if name == "message" {
            self.0.insert_str(0, &format!("{value:?} "));
        } else if name != "waited" {
            // That one is by the wall clock, and differs from run to run.
            write!(self.0, "{name}={value:?} ").expect("a string takes it");
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
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut state = self.0.state();
        if state.is_dead() {
            return;
        }
        let text = line.0.replace(&state.rules.dir.display().to_string(), "DIR");
        state.note(format!("  log: {}", text.trim_end()));
        state.journal_says(&text);
        state.driver_says(&text);
        state.call_says(&text);
        state.refusal_says(&text);
        if text.starts_with("the configuration was taken") {
            state.rules_are_taken();
        }
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}
