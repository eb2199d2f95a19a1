//! An offer as one app sees it.
//!
//! Names are assigned over all backends first, so that a tool has the same name for every app. Then
//! the refs and routes that an app may not use are left out.

use std::sync::{Arc, Weak};

use super::{BTreeMap, Offer, Offered, Ref, Target};
use crate::model::rights::Rights;

/// The views of an offer, each with the rights that it was made for. A view without users is
/// dropped when the next one is made.
pub(super) type Seen = parking_lot::Mutex<Vec<(Weak<Rights>, Arc<Offer>)>>;

impl Offer {
    /// The offer as an app with these rights sees it. Made once, however often it is asked for.
    pub fn seen_by(self: &Arc<Self>, rights: &Arc<Rights>) -> Arc<Self> {
        if rights.are_all() {
            return Arc::clone(self);
        }
        let mut seen = self.seen.lock();
        let known = seen.iter().find(|(of, _)| Weak::ptr_eq(of, &Arc::downgrade(rights)));
        if let Some((_, offer)) = known {
            return Arc::clone(offer);
        }
        let offer = Arc::new(self.narrowed(rights));
        seen.retain(|(of, _)| of.strong_count() > 0);
        seen.push((Arc::downgrade(rights), Arc::clone(&offer)));
        offer
    }

    fn narrowed(&self, rights: &Rights) -> Self {
        let may_use = |name: &str| {
            self.route(name).is_some_and(|route| match &route.target {
                Target::Tool { name, .. } => rights.include_tool(&route.backend, name),
                Target::Stub => rights.include(&route.backend),
                // The scope of a long call decides who may fetch its result.
                Target::Results => true,
            })
        };
        let mut backends = BTreeMap::new();
        for (name, offered) in self.backends.iter().filter(|(name, _)| rights.include(name)) {
            backends.insert(name.clone(), offered.narrowed(&may_use));
        }
        let routes = self.routes.iter().filter(|(name, _)| may_use(name));
        let routes = routes.map(|(name, route)| (Arc::clone(name), route.clone())).collect();
        Self::of(backends, routes, self.results.clone())
    }
}

impl Offered {
    fn narrowed(&self, may_use: &impl Fn(&str) -> bool) -> Self {
        let refs: Vec<Arc<Ref>> =
            self.refs.iter().filter_map(|one| Ref::narrowed(one, may_use)).collect();
        let tools = refs.iter().map(|one| one.items.len()).sum();
        let can_pend = self.can_pend && tools > 0;
        Self { kind: self.kind, refs, tools, refused: self.refused, can_pend }
    }
}

impl Ref {
    /// The ref without the tools that may not be used; `None` if none is left.
    fn narrowed(this: &Arc<Self>, may_use: &impl Fn(&str) -> bool) -> Option<Arc<Self>> {
        let kept = this.items.iter().filter(|item| may_use(&item.name));
        let kept: Vec<_> = kept.cloned().collect();
        match kept.len() {
            0 => None,
            all if all == this.items.len() => Some(Arc::clone(this)),
            _ => Some(Arc::new(Self::new(this.head.clone(), kept, this.tail))),
        }
    }
}

#[cfg(test)]
mod tests;
