//! The bridge from outside: against real peers and as a whole.

// `cfg(test)` holds for all of this crate; clippy allows `unwrap` in helpers only below it.
#[cfg(test)]
mod a2a_peers;
