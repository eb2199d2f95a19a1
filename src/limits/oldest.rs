//! Which entries go when there are too many: the oldest of the app that has most, so that no app
//! pushes out what another keeps.
//!
//! Must not: remove anything.

use std::hash::Hash;

use crate::model::maps::HashMap;

/// The keys of each app's oldest entries beyond `max`. An entry is its place in the order, and its
/// key.
///
/// The limit is one for each app. With one limit for all, an app that makes many entries would have
/// those of the others forgotten.
pub fn over_count<'a, A: Eq + Hash + ?Sized + 'a, O: Ord + Copy, K>(
    max: usize,
    entries: impl Iterator<Item = (&'a A, (O, K))>,
) -> Vec<K> {
    let mut by_app: HashMap<&A, Vec<(O, K)>> = HashMap::default();
    for (app, entry) in entries {
        by_app.entry(app).or_default().push(entry);
    }
    let mut beyond = Vec::new();
    for mut own in by_app.into_values().filter(|own| own.len() > max) {
        own.sort_by_key(|(order, _)| *order);
        let over = own.len() - max;
        beyond.extend(own.into_iter().take(over).map(|(_, key)| key));
    }
    beyond
}

/// An entry that takes room.
#[derive(Debug)]
pub struct Entry<O, K> {
    /// Its place among the entries of its app: the first goes first.
    pub order: O,
    pub bytes: usize,
    pub key: K,
}

/// The entries of one app, and what they take.
struct Own<O, K> {
    bytes: usize,
    entries: Vec<Entry<O, K>>,
}

impl<O, K> Default for Own<O, K> {
    fn default() -> Self {
        Self { bytes: 0, entries: Vec::new() }
    }
}

/// The keys of the entries to drop so that the rest takes at most `max` bytes.
///
/// The app that takes most loses its first entry, again and again. So no app loses one before it
/// takes more than an equal share. If the oldest entries of all went first, a new app that writes
/// much would have those of the others dropped.
pub fn over_bytes<'a, A: Eq + Hash + ?Sized + 'a, O: Ord, K>(
    max: usize,
    entries: impl Iterator<Item = (&'a A, Entry<O, K>)>,
) -> Vec<K> {
    let mut by_app: HashMap<&A, Own<O, K>> = HashMap::default();
    let mut total = 0;
    let mut beyond = Vec::new();
    for (app, entry) in entries {
        total += entry.bytes;
        let own = by_app.entry(app).or_default();
        own.bytes += entry.bytes;
        own.entries.push(entry);
    }
    if total <= max {
        return beyond;
    }
    // Sorted backwards: the first is popped from the end.
    for own in by_app.values_mut() {
        own.entries.sort_unstable_by(|a, b| b.order.cmp(&a.order));
    }
    while total > max
        && let Some(own) = by_app.values_mut().max_by_key(|own| own.bytes)
        && let Some(entry) = own.entries.pop()
    {
        own.bytes -= entry.bytes;
        total -= entry.bytes;
        beyond.push(entry.key);
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_count_takes_the_oldest_entries_of_an_app_with_too_many() {
        let of_a = (0..5).map(|number| ("a", (10 + number, number)));
        let of_b = (5..7).map(|number| ("b", (0, number)));
        assert_eq!(over_count(3, of_a.chain(of_b)), [0, 1]);
    }

    #[test]
    fn over_bytes_takes_the_first_entries_of_the_app_with_most() {
        let entry = |order: u32, bytes: usize| Entry { order, bytes, key: order };
        let of_a = [3, 1, 2].map(|order| ("a", entry(order, 40)));
        let of_b = [("b", entry(0, 30))];
        let entries = || of_a.iter().chain(&of_b).map(|(app, e)| (*app, entry(e.order, e.bytes)));
        assert!(over_bytes(150, entries()).is_empty());
        assert_eq!(over_bytes(149, entries()), [1]);
        assert_eq!(
            over_bytes(100, entries()),
            [1, 2],
            "b takes less than a, however old its entry is"
        );
        assert_eq!(over_bytes(30, entries()), [1, 2, 3]);
    }
}
