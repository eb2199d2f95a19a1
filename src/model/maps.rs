//! Maps and sets by hash. In tests, their order is the same each time, so that a seed of the simulation
//! always takes the same way.

#[cfg(not(test))]
pub use std::collections::{HashMap, HashSet};

#[cfg(test)]
type State = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
#[cfg(test)]
pub type HashMap<K, V> = std::collections::HashMap<K, V, State>;
#[cfg(test)]
pub type HashSet<K> = std::collections::HashSet<K, State>;
