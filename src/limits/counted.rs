//! Counts what exists at the moment, such as the calls in flight of a run.
//!
//! Must not: refuse anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many of its [`Counted`] exist.
#[derive(Debug, Default)]
pub struct Count(Arc<AtomicUsize>);

/// One that is counted until it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Count {
    /// Counts one more.
    pub fn add(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
