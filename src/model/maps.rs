//! Maps and sets by hash. In tests, their order is the same each time, so that a seed of the
//! simulation always takes the same way.

#[cfg(not(test))]
use std::hash::RandomState as State;

#[cfg(test)]
type State = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

pub type HashMap<K, V> = std::collections::HashMap<K, V, State>;
pub type HashSet<K> = std::collections::HashSet<K, State>;
