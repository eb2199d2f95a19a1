//! Which entries go when there are too many: the oldest of the app that has most, so that no app pushes
//! out what another keeps.
//!
//! Must not: remove anything.

use std::hash::Hash;

use crate::model::maps::HashMap;

/// The oldest entries of each app beyond `most`: no app pushes out the entries of another.
pub fn over_count<'a, A: Eq + Hash + ?Sized + 'a, T: Ord + Copy, K>(
    most: usize,
    all: impl Iterator<Item = (&'a A, (T, K))>,
) -> Vec<K> {
    let mut by_app: HashMap<&A, Vec<(T, K)>> = HashMap::default();
    for (app, one) in all {
        by_app.entry(app).or_default().push(one);
    }
    let mut beyond = Vec::new();
    for mut own in by_app.into_values().filter(|own| own.len() > most) {
        own.sort_by_key(|(at, _)| *at);
        let over = own.len() - most;
        beyond.extend(own.into_iter().take(over).map(|(_, key)| key));
    }
    beyond
}

/// Entries, each with its place in the order and its size.
type Measured<O, K> = Vec<(O, usize, K)>;

/// The entries to drop so that the rest takes at most `most` bytes. The app that takes most loses
/// its first one by its order, again and again, so that no app loses any before it takes more than
/// an equal share.
pub fn over_bytes<'a, A: Eq + Hash + ?Sized + 'a, O: Ord, K>(
    most: usize,
    all: impl Iterator<Item = (&'a A, (O, usize, K))>,
) -> Vec<K> {
    let mut by_app: HashMap<&A, (usize, Measured<O, K>)> = HashMap::default();
    let mut total = 0;
    let mut beyond = Vec::new();
    for (app, one) in all {
        total += one.1;
        let (bytes, own) = by_app.entry(app).or_default();
        *bytes += one.1;
        own.push(one);
    }
    if total <= most {
        return beyond;
    }
    // Sorted backwards: the first is popped from the end.
    by_app.values_mut().for_each(|(_, own)| own.sort_unstable_by(|a, b| b.0.cmp(&a.0)));
    while total > most
        && let Some((bytes, own)) = by_app.values_mut().max_by_key(|(bytes, _)| *bytes)
        && let Some((_, size, key)) = own.pop()
    {
        *bytes -= size;
        total -= size;
        beyond.push(key);
    }
    beyond
}
