//! The limit of open files. A driven run takes one descriptor, an app that reads it another, and
//! what shells give a process is often 1,024; the daemon takes what the system allows it.
//!
//! Must not: let programs inherit it. Some wait with `select`, which fails on descriptors from
//! 1,024 on; they get the limit back that the daemon was started with.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that the process was started with.
static STARTED_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the limit as far as it may be raised, and says how far that is. `None`: without bound.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => {
            if let Some(before) = current {
                STARTED_WITH.get_or_init(|| before);
            }
            maximum
        }
        // Some systems have a bound below what they call the maximum.
        Err(_refused) => current,
    }
}

/// The limit to give back to programs, where it was raised.
pub fn started_with() -> Option<u64> {
    STARTED_WITH.get().copied()
}

/// Gives this process the limit `files`, as far as it may have it.
pub fn give_back(files: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // It can only be refused where it is above the maximum, and then there is nothing to give back.
    let _given = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).is_ok();
}
