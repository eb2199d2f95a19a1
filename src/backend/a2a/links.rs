//! The ways to call one agent: the interfaces of its card, in the order in which they are tried.
//!
//! Must not: send anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::link::Link;

/// The interfaces that may be called; at least one.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Arc<Link>>,
    /// The place of the one that calls begin with: the last that has answered.
    preferred: AtomicUsize,
    /// Whether the agent has answered in the other version of the protocol, if it was asked.
    pub(super) other_version: Mutex<Option<bool>>,
}

impl Links {
    /// The links of `all`, of which the first is tried first.
    pub(super) fn new(all: Vec<Arc<Link>>) -> Self {
        assert!(!all.is_empty(), "a card without an interface is refused");
        Self { all, preferred: AtomicUsize::new(0), other_version: Mutex::default() }
    }

    pub(super) fn preferred(&self) -> &Arc<Link> {
        let place = self.preferred.load(Ordering::Relaxed);
        self.all.get(place).unwrap_or_else(|| self.first())
    }

    pub(super) fn first(&self) -> &Arc<Link> {
        self.all.first().expect("there is at least one")
    }

    /// All, in the card's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.all.iter()
    }

    /// All, the preferred one in front and the others in the card's order.
    pub(super) fn by_preference(&self) -> impl Iterator<Item = &Arc<Link>> {
        let preferred = self.preferred();
        let others = self.all.iter().filter(|link| !Arc::ptr_eq(link, preferred));
        std::iter::once(preferred).chain(others)
    }

    /// Lets calls begin with `link` from now on: it has answered, and others have not.
    pub(super) fn prefer(&self, link: &Arc<Link>) {
        let place = self.all.iter().position(|one| Arc::ptr_eq(one, link));
        self.preferred.store(place.unwrap_or_default(), Ordering::Relaxed);
    }
}
