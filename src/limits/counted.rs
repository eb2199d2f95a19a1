//! Counts what exists at the moment: the calls in flight of a run, or the bytes of all event logs.
//!
//! Must not: refuse anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum of all [`Counted`] that were made of it. Clones share the sum.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

/// A part of a [`Count`], which is taken off when this is dropped. An owner that added and
/// subtracted by hand would miss a subtraction on a panic or a dropped future, and the sum would
/// grow for ever.
#[derive(Debug, Default)]
pub struct Counted {
    sum: Count,
    part: usize,
}

impl Count {
    /// A part that counts 0 until [`Counted::set`].
    pub fn nothing(&self) -> Counted {
        Counted { sum: self.clone(), part: 0 }
    }

    /// A part that counts 1.
    pub fn one(&self) -> Counted {
        let mut counted = self.nothing();
        counted.set(1);
        counted
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counted {
    /// What this part counts now.
    pub fn get(&self) -> usize {
        self.part
    }

    /// Has this part count `part`, in place of what it has counted.
    pub fn set(&mut self, part: usize) {
        let Count(sum) = &self.sum;
        if part >= self.part {
            sum.fetch_add(part - self.part, Ordering::Relaxed);
        } else {
            sum.fetch_sub(self.part - part, Ordering::Relaxed);
        }
        self.part = part;
    }

    /// The sum that this is a part of.
    pub fn sum(&self) -> usize {
        self.sum.get()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_that_of_the_parts_that_exist() {
        let count = Count::default();
        let call = count.one();
        let mut bytes = count.nothing();
        assert_eq!(count.get(), 1);
        bytes.set(7);
        assert_eq!((bytes.get(), bytes.sum()), (7, 8));
        bytes.set(3);
        assert_eq!(count.get(), 4);
        drop(call);
        assert_eq!(count.get(), 3);
        drop(bytes);
        assert_eq!(count.get(), 0);
    }
}
