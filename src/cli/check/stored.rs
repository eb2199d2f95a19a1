//! What `check` knows of the backends without asking them: what the daemon has stored.
//!
//! Must not: write anything, or take what is stored for what the servers say now.

use std::sync::Arc;

use super::texts;
use crate::config::{App, Backend, Config, Target};
use crate::model::offer::Source;
use crate::model::offer::cost::Injected;
use crate::model::{Catalog, Offer, globs};
use crate::state_dir::StateDir;
use crate::{catalogs, daemon, tool_pins};

/// What the stored catalogs say of the configuration.
#[derive(Debug, Default)]
pub(super) struct CatalogFindings {
    /// What each app's runs would be given.
    pub injected: Vec<Injected>,
    /// Backends whose tools are not known, as the daemon has never reached them.
    pub not_counted: Vec<String>,
    /// For each backend with globs that match none of its tools.
    pub warnings: Vec<String>,
}

impl CatalogFindings {
    pub(super) fn new(config: &Config) -> Self {
        let (stored, missing): (Vec<_>, Vec<_>) =
            sources(config).into_iter().partition(|source| source.catalog.is_some());
        let warnings = stored.iter().filter_map(|Source { name, catalog, .. }| {
            let rules = config.backends.get(name)?.rules();
            let idle = globs::idle(name, catalog.as_deref()?, rules, config.all_rights())?;
            Some(format!("{name}: {idle} {}", globs::CURE))
        });
        let offer = Arc::new(Offer::build(&stored));
        let injected = apps(config)
            .into_iter()
            .map(|app| offer.seen_by(&app.rights).injected(app.name.as_str()));
        Self {
            warnings: warnings.collect(),
            injected: injected.collect(),
            not_counted: texts(missing.iter().map(|source| &source.name)),
        }
    }
}

/// The apps and the other runtimes.
pub(super) fn apps(config: &Config) -> Vec<App> {
    let mut apps = Vec::new();
    if config.apps.is_empty() {
        apps.push(App::named(App::DEFAULT));
    }
    apps.extend(config.all_apps().cloned());
    apps
}

/// All backends, with the catalogs and the pins that the daemon has stored last.
pub(super) fn sources(config: &Config) -> Vec<Source> {
    let state = StateDir::new(config.state_dir.clone());
    config.backends.values().map(|backend| source(&state, backend)).collect()
}

fn source(state: &StateDir, backend: &Backend) -> Source {
    let catalog = match &backend.target {
        Target::Local(tool) => Some(Arc::new(Catalog::local(Arc::clone(&tool.input)))),
        target => catalogs::load(state, &backend.name, &daemon::identity(target))
            .map(|stored| stored.catalog),
    };
    let mut accepted = tool_pins::load(state, &backend.name);
    let review = accepted.judge(backend.pin, catalog.as_deref(), &backend.naming);
    Source { catalog, available: true, review: Arc::new(review), ..daemon::source(backend) }
}
