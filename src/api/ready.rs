//! What `/readyz` says: whether the bridge can do its work, and what each part is doing now.
//!
//! Readiness is decided by what was reached once, as a restart mends nothing later; what is down at
//! the moment is told beside it.
//!
//! Must not: tell a stranger an address or an error's text; `/v1/status` has those, for a token.

use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, status::LastCall};
use crate::door::reply::{self, Body};

/// The bridge can do its work.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Ready<'a> {
    /// `ready`.
    status: &'static str,
    #[serde(flatten)]
    now: Now<'a>,
}

/// It cannot yet.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NotReady<'a> {
    /// `not_ready`.
    error: &'static str,
    message: &'static str,
    /// Required backends that were never reached; until the first attempts have ended, all such.
    missing: Vec<&'a str>,
    #[serde(flatten)]
    now: Now<'a>,
}

/// How the parts are at this moment.
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
    pub(super) fn ready(&self) -> Response<Body> {
        let board = &self.backends().board;
        let started = board.is_started();
        let mut backends = Vec::new();
        let lanes = self.backends().lanes();
        for (name, lane) in lanes.iter() {
            let Some(known) = board.snapshot(name.as_str()) else { continue };
            backends.push(Backend {
                name: name.as_str(),
                state: known.phase.as_str(),
                required: lane.rules.required,
                resolved: known.catalog.is_some(),
                stale: known.is_stale(),
                last_call: lane.last_call().map(LastCall::from),
            });
        }
        let awaited = |backend: &&Backend<'_>| !backend.resolved && (backend.required || !started);
        let missing: Vec<&str> = backends.iter().filter(awaited).map(|one| one.name).collect();
        let upstream = Upstream { reachable: self.runs.upstream().health().reachable };
        if started && missing.is_empty() {
            let now = Now { backends, upstream };
            return reply::json(StatusCode::OK, &Ready { status: "ready", now });
        }
        let not_ready = NotReady {
            error: "not_ready",
            message: "Some backends have not been resolved yet; /v1/status says why.",
            missing,
            now: Now { backends, upstream },
        };
        reply::json(StatusCode::SERVICE_UNAVAILABLE, &not_ready)
    }
}
