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
pub(super) type Views = parking_lot::Mutex<Vec<(Weak<Rights>, Arc<Offer>)>>;

impl Offer {
    /// The offer as an app with these rights sees it. Made once, however often it is asked for.
    pub fn seen_by(self: &Arc<Self>, rights: &Arc<Rights>) -> Arc<Self> {
        let mut backends = self.backends.values();
        if rights.are_all() && !backends.any(|one| one.is_searched(rights.offer, &one.refs)) {
            return Arc::clone(self);
        }
        let mut views = self.views.lock();
        let view = views.iter().find(|(owner, _)| Weak::ptr_eq(owner, &Arc::downgrade(rights)));
        if let Some((_, offer)) = view {
            return Arc::clone(offer);
        }
        let offer = Arc::new(self.narrowed(rights));
        views.retain(|(owner, _)| owner.strong_count() > 0);
        views.push((Arc::downgrade(rights), Arc::clone(&offer)));
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
            let mut narrowed = offered.narrowed(rights.offer, &may_use, &|name: &str| {
                let route = self.routes.get(name);
                route.is_some_and(|route| offered.naming.always.is_match(route.target.tool()))
            });
            // They may speak of any tool of the server.
            if !rights.include_features(name) {
                narrowed.instructions = None;
            }
            backends.insert(name.clone(), narrowed);
        }
        let routes = self
            .routes
            .iter()
            .filter(|(name, _)| may_use(name))
            .map(|(name, route)| (Arc::clone(name), route.clone()))
            .collect();
        Self::assemble(backends, routes, self.own.clone(), Arc::clone(&self.index))
    }
}

impl Offered {
    fn narrowed(
        &self,
        offer: Option<OfferMode>,
        may_use: &impl Fn(&str) -> bool,
        always: &impl Fn(&str) -> bool,
    ) -> Self {
        let mut refs = narrowed(&self.refs, may_use);
        let mut hidden = Vec::new();
        let can_pend = self.can_pend && !refs.is_empty();
        if self.is_searched(offer, &refs) {
            hidden = narrowed(&refs, &|name| !always(name));
            refs = narrowed(&refs, always);
        }
        let tools = count(&refs);
        let naming = Arc::clone(&self.naming);
        let instructions = self.instructions.clone();
        Self { refs, hidden, tools, can_pend, naming, instructions, ..*self }
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

/// The tools in `refs` that pass.
fn narrowed(refs: &[Arc<Ref>], passes: &dyn Fn(&str) -> bool) -> Vec<Arc<Ref>> {
    refs.iter().filter_map(|one| Ref::narrowed(one, passes)).collect()
}

impl Ref {
    /// The ref with the tools that pass; `None` if none does.
    fn narrowed(this: &Arc<Self>, passes: &dyn Fn(&str) -> bool) -> Option<Arc<Self>> {
        let items: Vec<_> = this.items.iter().filter(|item| passes(&item.name)).cloned().collect();
        match items.len() {
            0 => None,
            all if all == this.items.len() => Some(Arc::clone(this)),
            _ => Some(Arc::new(Self::new(this.head.clone(), items, this.tail))),
        }
    }
}

#[cfg(test)]
mod tests;
