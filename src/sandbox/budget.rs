//! Counts the bytes that the sandbox keeps, so that they have an upper bound.
//!
//! Must not: decide what is forgotten when the bound is reached.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The limit in bytes, and how many are in use.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

/// A part of the budget; returned on drop.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// Whether there is room for `bytes` more.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }

    /// An empty charge.
    pub(super) fn open(self: &Arc<Self>) -> Charge {
        Charge { budget: Arc::clone(self), bytes: 0 }
    }
}

impl Charge {
    /// Takes `bytes` more; without room, takes nothing and returns false.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.budget.limit);
        let taken = self.budget.used.try_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }

    /// Takes `bytes` more even without room, for data that has to be kept, such as the end of a
    /// run.
    pub(super) fn force(&mut self, bytes: usize) {
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Returns `bytes` to the budget.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_drops_give_back() {
        let budget = Budget::new(10);
        let mut first = budget.open();
        assert!(first.grow(6));
        let mut second = budget.open();
        assert!(!second.grow(5));
        drop(first);
        assert!(second.grow(10));
        second.shrink(1);
        second.force(3);
        assert_eq!(second.bytes, 12);
        assert!(!budget.open().grow(1));
    }
}
