//! What tests of many runs ask of the scripted MANTYX: a script for each run that comes, and when
//! its events were sent.
//!
//! Must not: send anything (serve.rs does).

use std::fmt;

use tokio::time::Instant;

use super::Mantyx;
use crate::frames::Script;

/// Writes the script of the run `run_N`, given N.
pub(super) struct Author(Box<dyn Fn(usize) -> Script + Send>);

impl Author {
    pub(super) fn write(&self, run: usize) -> Script {
        self.0(run)
    }
}

impl fmt::Debug for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Author")
    }
}

impl Mantyx {
    /// The run `run_N` follows what `write` makes of N, if it is given no other script.
    pub(crate) fn author(&self, write: impl Fn(usize) -> Script + Send + 'static) {
        self.shared.change(|state| state.author = Some(Author(Box::new(write))));
    }

    /// The runs that have been submitted.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.shared.state().runs.keys().cloned().collect()
    }

    /// When the event `seq` of a run was sent first.
    pub(crate) fn sent_at(&self, run: &str, seq: u64) -> Option<Instant> {
        self.shared.state().runs.get(run)?.sent_at.get(&seq).copied()
    }

    /// Gives all that is known of runs, calls and requests back.
    pub(crate) fn forget(&self) {
        self.shared.change(|state| {
            state.recorded.clear();
            state.deliveries.clear();
            state.released.clear();
            state.runs.clear();
        });
    }
}
