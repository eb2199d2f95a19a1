//! What stands on a wire between programs: event-stream framing.
//!
//! Must not: do IO or decide anything about a run.

pub mod blank_line;
pub mod sse;
