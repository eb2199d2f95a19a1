//! Calls of tools that are not what was accepted.

use super::*;
use crate::{
    backend::fake::entry,
    model::pin::{Mode, Take},
};

/// The backend `fs`, under `pin: enforce`.
fn enforced(harness: &Harness, seats: &[crate::backend::board::Seat]) {
    let entries = seats.iter().map(|seat| {
        let mut entry = entry(seat);
        entry.source.pin = Mode::Enforce;
        entry
    });
    harness.backends.board.set(entries.collect());
}
