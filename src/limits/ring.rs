//! The last entries of a list that only grows, such as the ended calls of one app.
//!
//! Must not: keep an entry longer because a caller has looked at it.

use std::collections::VecDeque;

/// At most `MAX` entries, in the order in which they came. One more takes the place of the oldest.
///
/// With one ring for each app, an app that makes many calls pushes out its own entries alone. A
/// list without a bound would grow for as long as the daemon lives.
#[derive(Debug, Clone)]
pub struct Ring<T, const MAX: usize>(VecDeque<T>);

impl<T, const MAX: usize> Default for Ring<T, MAX> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T, const MAX: usize> Ring<T, MAX> {
    pub fn push(&mut self, entry: T) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }

    /// All entries, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter()
    }

    /// All entries to be changed in place, the oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.0.iter_mut()
    }

    pub fn newest(&self) -> Option<&T> {
        self.0.back()
    }

    /// Removes the entries that do not `stay`. The others keep their order.
    pub fn retain(&mut self, stay: impl FnMut(&T) -> bool) {
        self.0.retain(stay);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(ring: &Ring<u32, 3>) -> Vec<u32> {
        ring.iter().copied().collect()
    }

    #[test]
    fn push_into_a_full_ring_drops_the_oldest_entry() {
        let mut ring: Ring<u32, 3> = Ring::default();
        assert_eq!(ring.newest(), None);
        (1..=5).for_each(|entry| ring.push(entry));
        assert_eq!((entries(&ring), ring.newest()), (vec![3, 4, 5], Some(&5)));
    }

    #[test]
    fn push_after_a_removal_drops_nothing() {
        let mut ring: Ring<u32, 3> = Ring::default();
        (1..=3).for_each(|entry| ring.push(entry));
        ring.retain(|entry| *entry != 2);
        ring.push(4);
        assert_eq!(entries(&ring), [1, 3, 4]);
        ring.iter_mut().for_each(|entry| *entry += 10);
        assert_eq!(entries(&ring), [11, 13, 14]);
        ring.clear();
        assert!(entries(&ring).is_empty());
    }
}
