//! What `/readyz` says: whether the bridge can do its work, and what each part is doing now.
//!
//! Readiness is decided by what was reached once, as a restart mends nothing later; what is down at
//! the moment is told beside it.
//!
//! Must not: tell a stranger an address or an error's text; `/v1/status` has those, for a token.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{Api, status::LastCall};
use crate::door::reply::{self, Body};

#[derive(Debug, Serialize)]
struct Ready<'a> {
    /// `ready`; left out where `error` says that it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(flatten)]
    not_ready: Option<NotReady<'a>>,
    backends: Vec<Backend<'a>>,
    upstream: Upstream,
}

#[derive(Debug, Serialize)]
struct NotReady<'a> {
    error: &'static str,
    message: &'static str,
    /// Required backends that were never reached; before the first attempts have ended, all such.
    missing: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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

#[derive(Debug, Serialize)]
struct Upstream {
    /// `null` before the first exchange.
    reachable: Option<bool>,
}

impl Api {
    pub(super) fn ready(&self) -> Response<Body> {
        let board = &self.backends().board;
        let started = board.is_started();
        let mut backends = Vec::new();
        for (name, lane) in self.backends().lanes() {
            let Some(known) = board.snapshot(name.as_str()) else { continue };
            backends.push(Backend {
                name: name.as_str(),
                state: known.phase.as_str(),
                required: lane.required,
                resolved: known.catalog.is_some(),
                stale: known.is_stale(),
                last_call: lane.last_call().map(LastCall::from),
            });
        }
        let awaited = |backend: &&Backend<'_>| !backend.resolved && (backend.required || !started);
        let missing: Vec<&str> = backends.iter().filter(awaited).map(|one| one.name).collect();
        let is_ready = started && missing.is_empty();
        let not_ready = NotReady {
            error: "not_ready",
            message: "Some backends have not been resolved yet; /v1/status says why.",
            missing,
        };
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = Ready {
            status: is_ready.then_some("ready"),
            not_ready: (!is_ready).then_some(not_ready),
            backends,
            upstream: Upstream { reachable: self.runs.upstream().health().reachable },
        };
        reply::json(status, &body)
    }
}
