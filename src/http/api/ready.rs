//! The content of `/readyz`: whether the bridge can do its work.
//!
//! A backend that was reached once counts as ready for good, since a restart of the bridge would
//! not repair a later failure.
//!
//! Must not: show a stranger more than whether the bridge is ready, and how many backends it still
//! waits for.

use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, App, Body, Code, response};

/// The bridge can do its work.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ready {
    /// `ready`.
    status: &'static str,
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
}

impl Api {
    /// The answer for `app`; `None` is a stranger.
    pub(super) fn ready(&self, app: Option<&App>) -> Response<Body> {
        let registry = &self.backends().registry;
        let started = registry.is_started();
        let mut missing = Vec::new();
        let mut unresolved = 0;
        let handles = self.backends().handles();
        for (name, backend) in handles.iter() {
            let Some(snapshot) = registry.snapshot(name.as_str()) else { continue };
            if snapshot.catalog.is_none() && (backend.rules.required || !started) {
                unresolved += 1;
                if app.is_some_and(|app| app.rights.include(name)) {
                    missing.push(name.as_str());
                }
            }
        }
        if self.facts.leaving.is_cancelled() {
            return response::error(Code::NotReady, "The bridge is about to stop.");
        }
        if self.runs.database_is_away() {
            return response::error(
                Code::NotReady,
                "The bridge's database does not answer; `mantyx-bridge status` has the reason.",
            );
        }
        if started && unresolved == 0 {
            return response::json(&Ready { status: "ready" });
        }
        let count =
            if unresolved == 1 { "1 backend has" } else { &format!("{unresolved} backends have") };
        let which = if app.is_none() { "; with a token, this says which" } else { "" };
        let not_ready = NotReady {
            error: Code::NotReady.as_str(),
            message: format!("{count} not been resolved yet{which}."),
            status: "unavailable",
            unresolved,
            missing: app.map(|_| missing),
        };
        response::with_status(response::json(&not_ready), StatusCode::SERVICE_UNAVAILABLE)
    }
}
