//! Reads bridge.yaml again while the daemon runs, and applies the changes.
//!
//! If the file has a mistake, nothing changes but `config.lastError` in the status, and log lines.
//! From a valid file, the daemon applies all keys but those that need a restart ([`differences`]);
//! the status names them.
//!
//! Must not: stop the daemon, whatever the file says.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use url::Url;

use super::apps;
use super::backend_manager::BackendManager;
use crate::backend::registry::Registry;
use crate::config::{Config, ConfigErrors, ConfigFile, Listen, Upstream};
use crate::error_chain::error_chain;
use crate::http::api::{Flaw, Loaded};
use crate::http::auth::hosts::Hosts;
use crate::http::service::Service;
use crate::logins::Logins;
use crate::model::BackendName;
use crate::runtimes::Runtimes;
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::tasks::in_background;
use crate::tls::Tls;
use crate::watch::{News, Watch};
use crate::{clock, systemd};

/// The most mistakes of one file that are logged.
const MAX_TOLD: usize = 10;

/// The source of the configuration, and the signal that it may have changed.
#[derive(Debug)]
pub struct Reload {
    pub file: ConfigFile,
    pub watch: Watch,
}

/// The key that identifies the MANTYX behind the bridge, and its value.
fn mantyx(upstream: &Upstream) -> (&'static str, String) {
    match upstream {
        Upstream::Sandbox { workspace } => ("upstream.workspace", workspace.clone()),
        Upstream::Mantyx(mantyx) => ("upstream.base_url", mantyx.base_url.to_string()),
    }
}

/// The keys that only a restart can change, and whose values differ in `config`. `bound` are the
/// bound addresses: a configured port of 0 has become another.
fn differences(before: &Config, bound: &[SocketAddr], config: &Config) -> Vec<&'static str> {
    let Listen { tcp, unix, tls, hosts: _, public_url, by_default } = &config.listen;
    let as_written = *tcp == before.listen.tcp && *by_default == before.listen.by_default;
    let same_listen =
        (as_written || *tcp == bound) && *unix == before.listen.unix && *tls == before.listen.tls;
    let same_public_url = *public_url == before.listen.public_url;
    let (now, mantyx) = (mantyx(&config.upstream), mantyx(&before.upstream));
    let upstream = if now.0 == mantyx.0 { now.0 } else { "upstream.sandbox" };
    let keys = [
        ("listen", !same_listen),
        ("listen.public_url", !same_public_url),
        ("seal_key", config.seal_keys != before.seal_keys),
        ("state_dir", config.state_dir != before.state_dir),
        ("state", config.state != before.state),
        ("auth", config.auth != before.auth),
        ("audit", config.audit != before.audit),
        (upstream, now != mantyx),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

/// The settings that determine the bridge's host names.
#[derive(Debug)]
pub(super) struct Names {
    /// The bound addresses.
    pub addresses: Vec<SocketAddr>,
    /// `listen.hosts`.
    pub others: Vec<String>,
    /// `listen.public_url`.
    pub public_url: Option<Url>,
    pub tls: Option<Arc<Tls>>,
}

impl Names {
    pub(super) fn hosts(&self) -> Hosts {
        let settings = self.tls.as_ref().map(|tls| tls.health().settings);
        let facts = settings.as_ref().map(|settings| &settings.facts);
        Hosts::new(&self.addresses, &self.others, facts).and_public(self.public_url.as_ref())
    }
}

impl Names {
    pub(super) fn new(listen: &Listen, addresses: Vec<SocketAddr>, tls: Option<Arc<Tls>>) -> Self {
        let (others, public_url) = (listen.hosts.clone(), listen.public_url.clone());
        Self { addresses, others, public_url, tls }
    }

    /// The logins at backends. Replicas would renew the same login, which ends it at many issuers,
    /// so they keep none.
    pub(super) fn logins(&self, config: &Config, state: StateDir) -> Arc<Logins> {
        let is_shared = config.state.is_some();
        Logins::new(state, &config.seal_keys, self.public_url(), is_shared)
    }

    /// How browsers reach the bridge. It is never taken from a request's `Host`: the sender of a
    /// request could then choose where an issuer sends a code.
    pub(super) fn public_url(&self) -> Url {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let is_loopback = |address: &&SocketAddr| address.ip().is_loopback();
        let loopback = self.addresses.iter().find(is_loopback).or_else(|| self.addresses.first());
        let port = loopback.map_or(0, SocketAddr::port);
        let settings = self.tls.as_ref().map(|tls| tls.health().settings);
        let name = settings.as_ref().and_then(|settings| settings.facts.names.first());
        let text = match (&settings, name, loopback) {
            (Some(_), Some(name), _) => format!("https://{name}:{port}"),
            (Some(_), None, Some(address)) => format!("https://{address}"),
            (None, _, Some(address)) if address.ip().is_unspecified() => {
                format!("http://127.0.0.1:{port}")
            }
            (None, _, Some(address)) => format!("http://{address}"),
            (_, _, None) => "http://127.0.0.1".to_owned(),
        };
        let fallback = || Url::parse("http://127.0.0.1").expect("an address");
        Url::parse(&text).unwrap_or_else(|_odd| fallback())
    }
}

/// Applies new configurations, and watches the supervisors.
#[derive(Debug)]
pub(super) struct Reloader {
    pub manager: BackendManager,
    /// The configuration that the daemon was started with, without its backends and runtimes.
    pub config: Config,
    pub names: Names,
    pub service: Arc<Service>,
    pub state: StateDir,
    /// Replaced once by each reload.
    pub settings: watch::Sender<Arc<Settings>>,
    pub runtimes: Arc<Runtimes>,
    pub loaded: watch::Sender<Loaded>,
}

impl Reloader {
    /// Applies changes from `reload` until `close`. After `stop`, ends when all supervisors have
    /// ended.
    pub(super) async fn run(
        mut self,
        mut reload: Option<Reload>,
        close: CancellationToken,
        stop: CancellationToken,
    ) {
        let registry = Arc::clone(&self.manager.backends.registry);
        if let (Some(reload), Some(tls)) = (&mut reload, &self.names.tls) {
            reload.watch.follow(tls.files.paths());
            // They may have changed between their reading and their watch.
            self.look_at_certificate().await;
        }
        // Not earlier: a reload would report to systemd that the daemon is ready.
        let mut started = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = close.cancelled(), if reload.is_some() => reload = None,
                Some(()) = self.manager.ended() => {}
                () = registry.started(), if !started => started = true,
                Some(news) = news(reload.as_mut()), if started => {
                    if let Some(reload) = &mut reload {
                        self.look_at_certificate().await;
                        self.look(&mut reload.file, news).await;
                    }
                }
            }
        }
        while self.manager.ended().await.is_some() {}
    }

    /// Loads a new certificate for the listeners, if there is one. Open connections keep the old
    /// one.
    async fn look_at_certificate(&self) {
        let Some(tls) = self.names.tls.clone() else { return };
        match in_background(move || tls.look()).await {
            Ok(true) => self.service.auth.set_hosts(self.names.hosts()),
            Ok(false) => (),
            Err(error) => error!(%error, "cannot reload the certificate; the earlier one stays"),
        }
    }

    /// Reads the file if necessary, and applies it.
    async fn look(&mut self, file: &mut ConfigFile, news: News) {
        let mut reader = file.clone();
        let reading = in_background(move || {
            let config = match news {
                News::Asked => Some(reader.reload()),
                News::MayHaveChanged => reader.reload_if_changed(),
            };
            (reader, config)
        });
        let config = match reading.await {
            Ok((reader, config)) => {
                *file = reader;
                config
            }
            Err(error) => {
                return error!(%error, "cannot read the configuration again; the earlier one stays");
            }
        };
        let Some(config) = config else { return };
        systemd::reloading();
        match config {
            Ok(config) => {
                if let Err(why) = self.take(config).await {
                    error!(why, "the configuration was not taken");
                    self.not_taken(&why);
                }
            }
            Err(mistakes) => self.refuse(&mistakes),
        }
        let resolved = resolved(&self.manager.backends.registry);
        systemd::ready(&match &self.loaded.borrow().flaw {
            Some(flaw) => format!("{resolved}; configuration {flaw}"),
            None => resolved,
        });
    }

    /// Applies a configuration whole. The error is a failure that is not a mistake in the file.
    ///
    /// All steps that can fail come first, so that a reload takes effect whole or not at all. Then
    /// apps are replaced before backends: no app gets a new backend for which it has no right yet.
    /// If the file names another MANTYX, its credential is not taken before a restart, as it would
    /// be sent to the present one.
    async fn take(&mut self, config: Config) -> Result<(), String> {
        for warning in &config.warnings {
            warn!("{warning}");
        }
        let fixed = differences(&self.config, &self.names.addresses, &config);
        let apps = apps(&config, &self.state).map_err(|error| error_chain(&error))?;
        // Whole, so that a new section of the file cannot be forgotten here. What is not taken
        // needs a restart (`differences`), or was taken above.
        let Config {
            listen,
            upstream,
            refresh,
            calls,
            backends,
            runtimes,
            state_dir: _,
            state: _,
            seal_keys: _,
            auth: _,
            apps: _,
            audit: _,
            notify,
            disabled: _,
            secrets,
            warnings: _,
        } = config;
        let prepared = self.manager.prepare(backends).await.map_err(|error| error_chain(&error))?;
        // From here on, no step fails. Apps are replaced first, so that none gets a new backend
        // that it may not use.
        let runs = &self.service.api.runs;
        let same_mantyx = mantyx(&upstream) == mantyx(&self.config.upstream);
        let mut loaded = self.loaded.borrow().clone();
        let max_concurrent = calls.max_concurrent;
        self.settings.send_modify(|now| {
            *now = Arc::new(if same_mantyx {
                Settings::new(calls, apps, Some(now))
            } else {
                Settings { limits: calls, apps: now.apps.clone() }
            });
        });
        // A credential for one MANTYX must not be sent to another.
        if same_mantyx && let Upstream::Mantyx(mantyx) = upstream {
            runs.upstream.set(mantyx.tls, &mantyx.credential);
            loaded.workspace = mantyx.workspace;
        }
        self.names.others = listen.hosts;
        self.service.auth.set_hosts(self.names.hosts());
        let changes = self.manager.take(prepared, &refresh, max_concurrent);
        if same_mantyx {
            self.runtimes.set(runtimes);
        }
        self.service.api.facts.notifier.set(notify, secrets);
        let flaw = kept(&changes.kept).or_else(|| restart_needed(&fixed, same_mantyx));
        loaded.at = clock::now();
        loaded.flaw.clone_from(&flaw);
        self.loaded.send_replace(loaded);
        info!(
            name: "configuration_taken",
            added = changes.added.join(", "),
            changed = changes.changed.join(", "),
            removed = changes.removed.join(", "),
            "the configuration was taken"
        );
        if let Some(flaw) = flaw {
            warn!("{flaw}");
        }
        Ok(())
    }

    /// Reports the mistakes in the file; nothing of it is applied.
    fn refuse(&self, mistakes: &ConfigErrors) {
        for problem in mistakes.problems.iter().take(MAX_TOLD) {
            error!(
                at = problem.place(&mistakes.file),
                key = problem.path,
                line = problem.snippet.as_ref().map(|line| line.text.trim_start()),
                mistake = problem.message,
                cure = problem.cure,
                "the configuration was not taken"
            );
        }
        self.not_taken(&mistakes.summary());
    }

    fn not_taken(&self, why: &str) {
        self.loaded.send_modify(|loaded| loaded.flaw = Some(Flaw::NotTaken(why.to_owned())));
    }
}

/// The next news of the file; `None` at once if the configuration is not read again.
async fn news(reload: Option<&mut Reload>) -> Option<News> {
    Some(reload?.watch.next().await)
}

/// The backends that keep their earlier connection.
fn kept(backends: &[(BackendName, String)]) -> Option<Flaw> {
    if backends.is_empty() {
        return None;
    }
    let reasons = backends.iter();
    let reasons = reasons.map(|(name, why)| format!("`{name}` is reached as before: {why}"));
    Some(Flaw::ReachedAsBefore(reasons.collect::<Vec<_>>().join("; ")))
}

/// Tells the operator which keys need a restart.
fn restart_needed(keys: &[&str], same_mantyx: bool) -> Option<Flaw> {
    if keys.is_empty() {
        return None;
    }
    let unchanged =
        if same_mantyx { "" } else { "; until then, `upstream` and `apps` stay as they were" };
    let key_list = keys.join(", ");
    let what = format!("what has changed in {key_list} needs a restart{unchanged}");
    Some(Flaw::NeedsRestart(what))
}

/// The state of the backends in a few words.
pub(super) fn resolved(registry: &Registry) -> String {
    let backends = registry.snapshots();
    let resolved = backends.values().filter(|backend| backend.catalog.is_some()).count();
    // systemd shows this as it was at the start: "0 of 11" would be an alarm, and is none.
    match (resolved, backends.len()) {
        (_, 0) => "serving; no backends".to_owned(),
        (0, all) => format!("serving; backends that connect: {all}"),
        (resolved, all) if resolved == all => format!("serving; backends resolved: {all}"),
        (resolved, all) => {
            let others = all - resolved;
            format!("serving; backends resolved: {resolved}, backends that connect: {others}")
        }
    }
}

#[cfg(test)]
mod tests;
