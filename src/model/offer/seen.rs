//! An offer as one app sees it.
//!
//! Names are assigned over all backends first, so that a tool has the same name for every app. Then
//! the refs and routes that an app may not use are left out.

use std::sync::{Arc, Weak};

use super::cost::Cost;
use super::{AUTO_TOKENS, AUTO_TOOLS, BTreeMap, Offer, OfferMode, Offered, Ref, Target, count};
use crate::model::Rights;

/// The views of an offer, each with the rights that it was made for. A view without users is
/// dropped when the next one is made.
pub(super) type Seen = parking_lot::Mutex<Vec<(Weak<Rights>, Arc<Offer>)>>;

impl Offer {
    /// The offer as an app with these rights sees it. Made once, however often it is asked for.
    pub fn seen_by(self: &Arc<Self>, rights: &Arc<Rights>) -> Arc<Self> {
        let hides = |offered: &Offered| offered.is_searched(rights.offer, &offered.refs);
        if rights.are_all() && !self.backends.values().any(hides) {
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
            self.routes.get(name).is_some_and(|route| match &route.target {
                Target::Tool { name, .. } => rights.include_tool(&route.backend, name),
                Target::Stub => rights.include(&route.backend),
                // The scope of a long call decides who may fetch its result, and a tool that was
                // found has rights of its own.
                Target::Own(_) => true,
            })
        };
        let mut backends = BTreeMap::new();
        for (name, offered) in self.backends.iter().filter(|(name, _)| rights.include(name)) {
            let is_always = |name: &str| {
                let route = self.routes.get(name);
                route.is_some_and(|route| offered.naming.always.is_match(route.target.tool()))
            };
            backends.insert(name.clone(), offered.narrowed(rights.offer, &may_use, &is_always));
        }
        let routes = self.routes.iter().filter(|(name, _)| may_use(name));
        let routes = routes.map(|(name, route)| (Arc::clone(name), route.clone())).collect();
        Self::assemble(backends, routes, self.own.clone(), Arc::clone(&self.index))
    }
}

impl Offered {
    fn narrowed(
        &self,
        offer: Option<OfferMode>,
        may_use: &impl Fn(&str) -> bool,
        is_always: &impl Fn(&str) -> bool,
    ) -> Self {
        let narrowed = |refs: &[Arc<Ref>], is_kept: &dyn Fn(&str) -> bool| -> Vec<Arc<Ref>> {
            refs.iter().filter_map(|one| Ref::narrowed(one, is_kept)).collect()
        };
        let mut refs = narrowed(&self.refs, may_use);
        let mut hidden = Vec::new();
        let can_pend = self.can_pend && !refs.is_empty();
        if self.is_searched(offer, &refs) {
            hidden = narrowed(&refs, &|name| !is_always(name));
            refs = narrowed(&refs, is_always);
        }
        let tools = count(&refs);
        let naming = Arc::clone(&self.naming);
        Self { refs, hidden, tools, can_pend, naming, ..*self }
    }

    /// Whether a model has to search for these tools of it; `offer` is the app's own setting.
    fn is_searched(&self, offer: Option<OfferMode>, refs: &[Arc<Ref>]) -> bool {
        match offer.unwrap_or(self.naming.offer) {
            OfferMode::Search => self.has_peer,
            OfferMode::All => false,
            OfferMode::Auto => {
                let Cost { tools, tokens, .. } = Cost::new(refs.iter().map(Arc::as_ref));
                tools > AUTO_TOOLS || tokens > AUTO_TOKENS
            }
        }
    }
}

impl Ref {
    /// The ref without the tools that may not be used; `None` if none is left.
    fn narrowed(this: &Arc<Self>, is_kept: &dyn Fn(&str) -> bool) -> Option<Arc<Self>> {
        let kept = this.items.iter().filter(|item| is_kept(&item.name));
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
