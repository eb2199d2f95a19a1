//! The common part of `mcp`, `a2a` and `local`: names, limits, what becomes of results, and the
//! behaviour while a backend is down.
//!
//! Must not: know how a backend is reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::program::ProgramDefaults;
use super::{UnresolvedEntry, Validator, mistakes};
use crate::config::document::Kind;
use crate::config::error::did_you_mean;
use crate::config::file_format::{CommonKeys, File, Redact};
use crate::config::value::format_duration;
use crate::config::{
    At, Backend, Calls, DurationOrOff, List, Named, Naming, NodeId, OnUnavailable, Pin, Refresh,
    SizeText, Target,
};
use crate::model::loom;
use crate::model::naming;
use crate::model::redaction::Pattern;
use crate::model::{Answer, BackendName, Own, Policy, Redaction};

const SECTIONS: [&str; 4] = ["mcp", "mcpServers", "a2a", "local"];

/// The backends of a file.
pub(super) struct Backends {
    /// Where every name stands in the file, also the names of entries with mistakes.
    places: BTreeMap<String, NodeId>,
    pub ready: BTreeMap<BackendName, Backend>,
    pub disabled: Vec<BackendName>,
    pub programs: ProgramDefaults,
}

/// The defaults of the common keys that depend on the kind of a backend.
pub(super) struct Defaults {
    pub pending_after: Option<Duration>,
    pub concurrency: usize,
    pub pin: Pin,
}

/// The defaults that backends inherit from the file.
#[derive(Clone, Copy)]
pub(super) struct Inherited<'c> {
    refresh: &'c Refresh,
    calls: &'c Calls,
    redact: &'c Redaction,
    pub programs: &'c ProgramDefaults,
}

impl Backends {
    /// The backend that an unknown `name` probably stands for.
    fn candidates(&self, name: &str) -> String {
        let names: Vec<&str> = self.places.keys().map(String::as_str).collect();
        match did_you_mean(name, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if names.is_empty() => "name one below `mcp`, `a2a` or `local` first".into(),
            None => format!("there are: {}", names.join(", ")),
        }
    }
}

/// The entries of a section; a name that is none has been reported already.
fn entries<T>(section: &Option<Named<T>>) -> impl Iterator<Item = (BackendName, &At<T>)> {
    let entries = section.iter().flat_map(|section| &section.value);
    entries.filter_map(|(name, at)| Some((BackendName::parse(name).ok()?, at)))
}

/// Whether `only_on` names other hosts only. Host names have no case.
fn excludes_this_host(only_on: Option<&List<String>>) -> bool {
    let Some(hosts) = only_on else { return false };
    let system = rustix::system::uname();
    let this_host = system.nodename().to_string_lossy();
    !hosts.value.iter().any(|host| host.value.eq_ignore_ascii_case(&this_host))
}

/// The smallest `max_result`, in bytes: room for a few lines.
const LEAST: usize = 1 << 10;

impl Validator<'_> {
    pub(super) fn backends(&self, file: &File, refresh: &Refresh, calls: &Calls) -> Backends {
        let redact = &self.redaction(file.redact.as_ref(), None);
        let programs = self.program_defaults(file.programs.as_ref());
        let inherited = Inherited { refresh, calls, redact, programs: &programs };
        let places = self.backend_names();
        let mut ready = BTreeMap::new();
        let mut disabled = Vec::new();
        for (name, at) in entries(&file.mcp).chain(entries(&file.mcp_servers)) {
            let switched_off = at.value.disabled.as_ref().is_some_and(|at| at.value);
            if switched_off || excludes_this_host(at.value.only_on.as_ref()) {
                disabled.push(name);
                continue;
            }
            let backend = self.entry(|| self.mcp(&name, at, inherited));
            ready.insert(name, backend);
        }
        for (name, at) in entries(&file.a2a) {
            let backend = self.entry(|| self.a2a(&name, at, inherited));
            ready.insert(name, backend);
        }
        for (name, at) in entries(&file.local) {
            if excludes_this_host(at.value.only_on.as_ref()) {
                disabled.push(name);
                continue;
            }
            let backend = self.entry(|| self.local(&name, at, inherited));
            ready.insert(name, backend);
        }
        for (name, backend) in &mut ready {
            backend.place = places.get(name.as_str()).map_or(0, |node| node.index as usize);
        }
        Backends { places, ready, disabled, programs }
    }

    /// The backend that `validate` makes of an entry. If nothing is wrong in the entry, but what it
    /// refers to is missing, the backend is one that cannot be reached.
    fn entry(&self, validate: impl FnOnce() -> Backend) -> Backend {
        let before = self.findings.borrow().mistakes.len();
        let backend = validate();
        if !self.is_only_unresolved(before, || UnresolvedEntry::Backend(backend.name.clone())) {
            return backend;
        }
        Backend { target: Target::unresolved(backend.target.section()), ..backend }
    }

    /// Whether nothing is wrong in an entry but that what it refers to is missing; its mistakes are
    /// those from `before` on. They then count as what keeps `entry` from being reached, and not as
    /// mistakes in the file.
    pub(super) fn is_only_unresolved(
        &self,
        before: usize,
        entry: impl FnOnce() -> UnresolvedEntry,
    ) -> bool {
        let mut findings = self.findings.borrow_mut();
        let new = &findings.mistakes[before..];
        if new.is_empty() || !new.iter().all(|mistake| mistake.is_outside) {
            return false;
        }
        let missing = findings.mistakes.split_off(before);
        findings.unresolved.push((entry(), missing));
        true
    }

    /// The backend that an app names at `node`. The mistakes of one that is not ready are reported
    /// at its own place.
    pub(super) fn named_backend(
        &self,
        node: NodeId,
        name: &str,
        backends: &Backends,
    ) -> Option<BackendName> {
        if !backends.places.contains_key(name) {
            self.error(node, mistakes::no_backend(name, backends.candidates(name)));
        }
        backends.ready.get_key_value(name).map(|(name, _)| name.clone())
    }

    /// The names of all backends, from the document itself, so that an entry with a mistake counts
    /// as well.
    fn backend_names(&self) -> BTreeMap<String, NodeId> {
        let mut names = BTreeMap::new();
        let Kind::Map(sections) = &self.document.root.kind else { return names };
        for (section, node) in sections {
            let Kind::Map(entries) = &node.kind else { continue };
            if !SECTIONS.contains(&section.as_str()) {
                continue;
            }
            for (name, node) in entries {
                let key = node.id.key();
                if let Err(bad) = BackendName::parse(name) {
                    let plain: String =
                        naming::legal(name).chars().take(BackendName::MAX_LEN).collect();
                    let cure = match BackendName::parse(&plain) {
                        Ok(plain) => format!("{bad}: write `{plain}`"),
                        Err(_) => bad.to_string(),
                    };
                    self.error(key, mistakes::backend_name(name, cure));
                }
                if Own::named(name).is_some() || name == loom::CONFIRMATION {
                    self.error(key, mistakes::own_name(name));
                }
                if let Some(&first) = names.get(name) {
                    let line = self.line(first);
                    self.error(key, mistakes::backend_twice(name, line));
                } else {
                    names.insert(name.clone(), node.id);
                }
            }
        }
        names
    }

    pub(super) fn backend(
        &self,
        name: &BackendName,
        target: Target,
        keys: &CommonKeys<'_>,
        defaults: &Defaults,
        inherited: Inherited<'_>,
    ) -> Backend {
        let pending_after = self.pending_after(keys, defaults.pending_after, inherited);
        Backend {
            name: name.clone(),
            place: 0,
            target,
            naming: Naming::default(),
            required: keys.required.is_some_and(|at| at.value),
            on_unavailable: keys.on_unavailable.map_or(OnUnavailable::Stale, |at| at.value),
            refresh: self.refresh_interval(keys.refresh).unwrap_or(inherited.refresh.interval),
            refresh_is_own: keys.refresh.is_some(),
            start: inherited.programs.start,
            call_timeout: self.backend_call_timeout(keys, pending_after.is_some(), inherited),
            pending_after,
            max_result: self.max_result(keys.max_result),
            redact: Arc::new(self.redaction(keys.redact, Some(inherited.redact))),
            secrets: Arc::default(),
            concurrency: keys.concurrency.map_or(defaults.concurrency, |at| at.value.0),
            trust_annotations: false,
            pin: keys.pin.map_or(defaults.pin, |at| at.value),
            approve: Policy::default(),
            quota: keys.quota.and_then(|at| self.quota(at)),
        }
    }

    /// After how long a call gets a first answer and continues. MANTYX no longer waits for the call
    /// then, so a limit for calls that MANTYX waits for must be later than this.
    fn pending_after(
        &self,
        keys: &CommonKeys<'_>,
        default: Option<Duration>,
        inherited: Inherited<'_>,
    ) -> Option<Duration> {
        let own = keys.call_timeout.map(|at| at.value.0);
        let limit = own.map_or(inherited.calls.timeout, |own| own.min(inherited.calls.timeout));
        let Some(at) = keys.pending_after else {
            return default.filter(|after| *after < limit);
        };
        let DurationOrOff(after) = at.value;
        let after = after?;
        if after >= limit {
            let which = if own == Some(limit) { "the call's own timeout" } else { "calls.timeout" };
            let waited = format_duration(limit);
            self.error(at.node, mistakes::ends_first(which, waited));
        }
        Some(after)
    }

    fn backend_call_timeout(
        &self,
        keys: &CommonKeys<'_>,
        can_pend: bool,
        inherited: Inherited<'_>,
    ) -> Duration {
        let at = keys.call_timeout;
        if can_pend {
            let why = ", which calls.pending_timeout is";
            return self
                .duration(at, inherited.calls.pending_timeout, why)
                .unwrap_or(inherited.calls.pending_timeout);
        }
        let Some(timeout) = self.call_timeout(at) else { return inherited.calls.timeout };
        if let Some(at) = at.filter(|_| timeout > inherited.calls.timeout) {
            self.warn(at.node, "this is longer than calls.timeout, which ends the call first");
        }
        timeout
    }

    pub(super) fn max_result(&self, at: Option<&At<SizeText>>) -> Option<usize> {
        let At { value: SizeText(bytes), node } = at?;
        if !(LEAST..=Answer::MAX_RESULT).contains(bytes) {
            self.error(*node, mistakes::result_size());
        }
        Some(*bytes)
    }

    /// `inherited`, and then what `at` adds.
    pub(super) fn redaction(
        &self,
        at: Option<&List<Redact>>,
        inherited: Option<&Redaction>,
    ) -> Redaction {
        let own = at.iter().flat_map(|at| &at.value).filter_map(|at| self.redact(at));
        let all = inherited.iter().flat_map(|all| &all.0).cloned();
        Redaction(all.chain(own).collect())
    }

    fn redact(&self, At { value: entry, node }: &At<Redact>) -> Option<Pattern> {
        let with = entry.with.as_ref().map(|at| at.value.as_str());
        match (&entry.pattern, &entry.known) {
            (Some(_), Some(at)) => self.refuse(at.node.key(), mistakes::pattern_and_use()),
            (None, Some(at)) => Some(Pattern::known(at.value, with)),
            (Some(at), None) => match Pattern::new(&at.value, with) {
                Ok(pattern) if !pattern.matches_nothing() => Some(pattern),
                Ok(_) => self.refuse(at.node, mistakes::matches_nothing()),
                Err(error) => {
                    let message = error.to_string();
                    let why = message.lines().last().unwrap_or_default().trim();
                    self.refuse(at.node, mistakes::no_regex(why))
                }
            },
            (None, None) => self.missing(*node, mistakes::no_pattern()),
        }
    }
}
