//! What the tools of an offer cost a run: every turn of its model reads them.
//!
//! Must not: know a model's own way to count tokens; the numbers are for comparing.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Offer, Ref};
use crate::model::answer::files::grouped;

/// How many of the largest tools are named.
const LARGEST: usize = 10;

/// The tokens that `bytes` of refs are, about: JSON in English takes one for every four bytes.
pub(super) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

/// What is put into each run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Tools that the model is given.
    pub tools: usize,
    /// Tools that it has to search for.
    pub searched: usize,
    /// Bytes of the tool refs.
    pub bytes: usize,
    /// An estimate: a token for every four bytes.
    pub tokens: usize,
}

/// What the runs of one app are given.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Injected {
    pub app: String,
    /// Of all backends, the bridge's own tools included.
    #[serde(flatten)]
    pub cost: Cost,
    /// In the order of bridge.yaml.
    pub backends: Vec<OfBackend>,
    /// The ten tools that take most, the largest first.
    pub largest: Vec<Large>,
}

/// What one backend contributes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OfBackend {
    pub name: String,
    #[serde(flatten)]
    pub cost: Cost,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Large {
    /// The name that the model sees.
    pub name: String,
    pub backend: String,
    pub bytes: usize,
    pub tokens: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tools, searched, bytes, tokens } = *self;
        let word = if tools == 1 { "tool" } else { "tools" };
        let [bytes, tokens] = [bytes, tokens].map(grouped);
        write!(f, "{tools} {word}, about {tokens} tokens ({bytes} bytes)")?;
        if searched > 0 {
            write!(f, ", and {searched} to search for")?;
        }
        Ok(())
    }
}

impl Injected {
    /// The tools of `backend`, or of all, that take most of a run, with their tokens.
    pub fn largest(&self, backend: Option<&str>) -> String {
        let mut tools = Vec::new();
        for one in &self.largest {
            if backend.is_none_or(|name| one.backend == name) {
                tools.push(format!("{} {}", one.name, grouped(one.tokens)));
            }
        }
        tools.join(", ")
    }
}

impl Cost {
    pub(super) fn new<'a>(refs: impl Iterator<Item = &'a Ref>) -> Self {
        let (tools, bytes) = refs
            .fold((0, 0), |(tools, bytes), one| (tools + one.items.len(), bytes + one.json.len()));
        Self { tools, searched: 0, bytes, tokens: tokens(bytes) }
    }
}

impl Offer {
    /// What a run of `app` with all backends of this offer is given.
    pub fn injected(&self, app: &str) -> Injected {
        let mut backends = Vec::new();
        for name in self.in_order(|_| true) {
            let offered = &self.backends[name];
            let searched = Cost::new(offered.hidden()).tools;
            let cost = Cost { searched, ..Cost::new(offered.refs()) };
            backends.push(OfBackend { name: name.to_string(), cost });
        }
        let all = Cost::new(self.refs(&self.backends.keys().cloned().collect()));
        let searched = backends.iter().map(|one| one.cost.searched).sum();
        let items = self.backends.iter().flat_map(|(name, offered)| {
            offered.refs().flat_map(move |one| one.sizes().map(move |size| (name, size)))
        });
        let mut sizes: Vec<_> = items.collect();
        sizes.sort_by(|(_, (a, x)), (_, (b, y))| y.cmp(x).then(a.cmp(b)));
        let largest = sizes.into_iter().take(LARGEST).map(|(backend, (name, bytes))| Large {
            name: name.to_owned(),
            backend: backend.to_string(),
            bytes,
            tokens: tokens(bytes),
        });
        Injected {
            app: app.to_owned(),
            cost: Cost { searched, ..all },
            largest: largest.collect(),
            backends,
        }
    }
}

impl Ref {
    /// Its tools, and the bytes of each.
    fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.items.iter().map(|item| {
            let quotes = 2;
            (&*item.name, item.before.len() + quotes + item.name.len() + item.after.len())
        })
    }
}
