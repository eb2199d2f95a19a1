//! How the journal's room is divided: about how many bytes each kind of record may take, of all
//! apps together. Who reaches a bound loses its own oldest records.
//!
//! While the journal is full, the bridge makes no call. So what is kept for later (owners,
//! sessions, results, answers) may never take the room of calls under way.
//!
//! Must not: count, or forget, a record; each owner of a kind does.

use super::MAX_SIZE;

/// The owners of runs and sessions.
pub const OWNERS: usize = MAX_SIZE / 4;
/// Sessions, with the tools that their apps brought.
pub const SESSIONS: usize = MAX_SIZE / 8;
/// The results of long calls.
pub const LONG_RESULTS: usize = MAX_SIZE / 8;
/// The answers to requests with an `Idempotency-Key`.
pub const KEYED_ANSWERS: usize = MAX_SIZE / 16;
/// The arguments and answers of open calls.
pub const OPEN_CALLS: usize = MAX_SIZE / 8 * 3;
/// The answers that MANTYX refused as it did not know their runs. They belong to open calls, so
/// this is a part of [`OPEN_CALLS`].
pub const UNWANTED_ANSWERS: usize = MAX_SIZE / 8;

/// The arguments and answers of calls whose runs wait for their app's credential, as far as they
/// have no driver that counts them as open. If both fill what they may, the journal is full until
/// MANTYX takes answers.
pub const AWAITING_CALLS: usize = MAX_SIZE / 8;

const _: () = {
    let parts = OWNERS + SESSIONS + LONG_RESULTS + KEYED_ANSWERS + OPEN_CALLS;
    assert!(parts < MAX_SIZE, "runs, routes and conversations need the rest");
    assert!(UNWANTED_ANSWERS < OPEN_CALLS, "other open calls need the rest");
};
