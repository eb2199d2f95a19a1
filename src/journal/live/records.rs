//! Records by their keys, and how many bytes a file with them takes.
//!
//! The writer asks for the bytes at each write, so they are counted as records come and go.
//!
//! Must not: know what a record is for.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bytes::Bytes;

use crate::journal::frames::record_bytes;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Records {
    by_key: BTreeMap<Bytes, Bytes>,
    /// What they take in a file, each in a frame of its own.
    bytes: u64,
}

impl Records {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn insert(&mut self, key: Bytes, value: Bytes) {
        // The map keeps its own key, which may share the bytes of another file.
        self.remove(&key);
        self.bytes += record_bytes(&key, &value);
        self.by_key.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, value)) = self.by_key.remove_entry(key) {
            self.bytes -= record_bytes(&key, &value);
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.by_key.get(key)
    }

    pub(super) fn contains_key(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    /// The records from `key` on, in the order of their keys.
    pub(super) fn range_from(&self, key: &[u8]) -> btree_map::Range<'_, Bytes, Bytes> {
        self.by_key.range::<[u8], _>((Bound::Included(key), Bound::Unbounded))
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, Bytes, Bytes> {
        self.by_key.iter()
    }
}

impl IntoIterator for Records {
    type Item = (Bytes, Bytes);
    type IntoIter = btree_map::IntoIter<Bytes, Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_key.into_iter()
    }
}
