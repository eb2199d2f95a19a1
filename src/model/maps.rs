//! Maps and sets by hash, and the hash of a value. In tests, their order is the same each time, so
//! that a seed of the simulation always takes the same way.

#[cfg(not(test))]
use std::hash::RandomState as State;
use std::hash::{DefaultHasher, Hash, Hasher as _};

#[cfg(test)]
type State = std::hash::BuildHasherDefault<DefaultHasher>;

/// A number by which values are told apart: two that differ have the same one by chance alone.
pub fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

pub type HashMap<K, V> = std::collections::HashMap<K, V, State>;
pub type HashSet<K> = std::collections::HashSet<K, State>;
