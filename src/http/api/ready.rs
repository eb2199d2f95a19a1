//! The content of `/readyz`: whether the bridge can do its work, and the present state of each
//! part.
//!
//! A backend that was reached once counts as ready for good, since a restart of the bridge would
//! not repair a later failure. The answer shows backends that are down now beside that.
//!
//! Must not: show a stranger more than whether the bridge is ready, and how many backends it still
//! waits for.

use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, status::LastCall};
use crate::{
    config::App,
    http::{
        error_code::Code,
        response::{self, Body},
    },
};

/// The bridge can do its work.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ready<'a> {
    /// `ready`.
    status: &'static str,
    #[serde(flatten)]
    now: Option<Now<'a>>,
}

/// It cannot yet.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NotReady<'a> {
    /// `not_ready`.
    error: &'static str,
    message: String,
    /// `unavailable`.
    status: &'static str,
    /// How many required backends were never reached. Until the first attempts have ended: how many
    /// of all backends.
    unresolved: usize,
    /// Their names, as far as the app may use them. For a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<&'a str>>,
    #[serde(flatten)]
    now: Option<Now<'a>>,
}

/// How the parts are at this moment, as an app may see them. For a token.
#[derive(Debug, Serialize, JsonSchema)]
struct Now<'a> {
    backends: Vec<Backend<'a>>,
    upstream: Upstream,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BackendNow")]
struct Backend<'a> {
    name: &'a str,
    state: &'static str,
    required: bool,
    /// Whether there is a catalog of it, be it an old one.
    resolved: bool,
    stale: bool,
    last_error: Option<String>,
    /// The last call that reached it, or tried to.
    last_call: Option<LastCall>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UpstreamNow")]
struct Upstream {
    /// `null` before the first exchange.
    reachable: Option<bool>,
}

impl Api {
    /// The answer for `app`; `None` is a stranger.
    pub(super) fn ready(&self, app: Option<&App>) -> Response<Body> {
        let registry = &self.backends().registry;
        let started = registry.is_started();
        let mut backends = Vec::new();
        let mut missing = Vec::new();
        let mut unresolved = 0;
        let handles = self.backends().handles();
        for (name, backend) in handles.iter() {
            let Some(known) = registry.snapshot(name.as_str()) else { continue };
            let required = backend.rules.required;
            let resolved = known.catalog.is_some();
            let is_awaited = !resolved && (required || !started);
            unresolved += usize::from(is_awaited);
            if !app.is_some_and(|app| app.rights.include(name)) {
                continue;
            }
            missing.extend(is_awaited.then_some(name.as_str()));
            backends.push(Backend {
                name: name.as_str(),
                state: known.phase.as_str(),
                required,
                resolved,
                stale: known.is_stale(),
                last_error: known.last_error,
                last_call: backend.last_call().map(LastCall::from),
            });
        }
        let reachable = self.runs.upstream().health().reachable;
        let now = app.is_some().then_some(Now { backends, upstream: Upstream { reachable } });
        if started && unresolved == 0 {
            return response::json(StatusCode::OK, &Ready { status: "ready", now });
        }
        let count =
            if unresolved == 1 { "1 backend has" } else { &format!("{unresolved} backends have") };
        let not_ready = NotReady {
            error: Code::NotReady.as_str(),
            message: format!("{count} not been resolved yet; with a token, this says which."),
            status: "unavailable",
            unresolved,
            missing: app.is_some().then_some(missing),
            now,
        };
        response::json(StatusCode::SERVICE_UNAVAILABLE, &not_ready)
    }
}
