//! The content of `/v1/status`. Other programs read the names, so they are fixed (DESIGN); more may
//! be added.
//!
//! Must not: show an app a backend that it may not use, or anything secret.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Api, Flaw, Loaded,
    problems::{self, Problem},
    time,
};
use crate::{
    backend::{
        circuit_breaker::Look, peer::Signature, program::hiding::Exposure, registry::Snapshot,
    },
    budget::{Budget, Shortage},
    config::App,
    http::auth::Caller,
    model::{
        ids::BackendName,
        offer::{Offer, RefKind},
        pin::Review,
    },
    tls::{self, certificate::Validity},
    upstream::OpenError,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) uptime_seconds: u64,
    #[serde(flatten)]
    pub(crate) daemon: Daemon,
    pub(crate) backends: Vec<Backend>,
}

/// The state of another runtime.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Runtime {
    pub(crate) name: String,
    /// `hsafa v3`, `hsafa v7` or `claude-environment`.
    pub(crate) kind: String,
    /// `connecting`, `ready` or `down`.
    pub(crate) state: String,
    /// Since when.
    since: String,
    pub(crate) last_error: Option<String>,
    /// Its calls that are made, or whose answers it has not taken yet.
    pub(crate) open_calls: usize,
    /// Answers that it has refused for good.
    pub(super) refused_answers: u64,
    /// When the bridge did not hear it, if its wire replays nothing.
    pub(super) gap: Option<String>,
}

impl Runtime {
    fn of(runtime: &crate::runtimes::Runtime) -> Self {
        let health = runtime.health();
        Self {
            name: runtime.name.to_string(),
            kind: runtime.wire.as_str().to_owned(),
            state: health.state.as_str().to_owned(),
            since: time(health.since),
            last_error: health.last_error,
            open_calls: runtime.open_calls(),
            refused_answers: runtime.refused.get(),
            gap: health.gap.map(|(from, to)| format!("{} to {}", time(from), time(to))),
        }
    }
}

/// The state of the daemon itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Daemon {
    pub(crate) upstream: Upstream,
    pub(crate) runs: Runs,
    pub(crate) approvals: Approvals,
    /// The other runtimes whose calls the bridge answers.
    pub(crate) runtimes: Vec<Runtime>,
    /// Whether the caller has shown the operator's secret, and so sees the data of all apps.
    operator: bool,
    pub(super) journal: Journal,
    pub(super) state: State,
    /// `null` where no audit log is configured.
    pub(super) audit: Option<Audit>,
    /// `null` where the listeners speak plain HTTP.
    pub(super) tls: Option<Tls>,
    pub(super) config: Config,
    /// The caller's runs whose streams cannot be opened.
    #[serde(skip)]
    pub(super) failing: Vec<Failing>,
    /// Why the bridge has refused bodies within the last minutes.
    #[serde(skip)]
    pub(super) shortage: Option<String>,
    /// The current problems, with their cures.
    pub(crate) problems: Vec<Problem>,
}

/// Runs whose streams cannot be opened, all for the same reason.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) error: String,
    pub(super) status: Option<StatusCode>,
    /// Whether MANTYX answered and refused, rather than being out of reach.
    pub(super) is_refusal: bool,
    /// One of the runs; `count` says how many there are.
    pub(super) run: String,
    pub(super) count: usize,
}

impl Failing {
    fn of(api: &Api, caller: &Caller) -> Vec<Self> {
        let mut all = api.runs.failing(caller.sees());
        all.sort_by(|(one, _), (other, _)| one.run.as_str().cmp(other.run.as_str()));
        let mut found: Vec<Self> = Vec::new();
        for (key, failure) in all {
            let error = failure.error.to_string();
            match found.iter_mut().find(|known| known.error == error) {
                Some(known) => known.count += 1,
                None => found.push(Self {
                    error,
                    status: failure.error.status(),
                    is_refusal: matches!(
                        failure.error,
                        OpenError::Refused(_) | OpenError::NotAStream(_)
                    ),
                    run: key.run.to_string(),
                    count: 1,
                }),
            }
        }
        found
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upstream {
    pub(crate) base_url: String,
    pub(crate) workspace: Option<String>,
    /// `null` before the first exchange.
    pub(crate) reachable: Option<bool>,
    pub(crate) last_error: Option<String>,
    /// Why there is no token of `upstream.oauth`, or no newer one; `null` if the last request for
    /// one succeeded.
    pub(super) token_error: Option<String>,
    /// Whether a person has to log in again.
    #[serde(skip)]
    pub(super) grant_ended: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    required: bool,
    pub(crate) transport: String,
    pub(crate) protocol_version: Option<String>,
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    server_info: Option<Box<RawValue>>,
    /// Whether an agent's card is signed; `null` where no keys are configured, or no card was read.
    pub(super) signature: Option<Signature>,
    /// How many tools it offers.
    pub(crate) tools: usize,
    digest: Option<String>,
    pub(crate) stale: bool,
    pub(crate) last_refresh: Option<String>,
    next_refresh: Option<String>,
    pub(crate) last_error: Option<String>,
    /// Why the program can read the bridge's own files; `problems` explains it.
    #[serde(skip)]
    pub(super) exposure: Option<Exposure>,
    last_call: Option<LastCall>,
    pub(crate) calls_in_flight: usize,
    pub(crate) breaker: Breaker,
    pub(crate) pin: Pin,
    /// The listed tools that the bridge does not offer, as they are too large or too many.
    pub(super) left_out: Option<String>,
    /// A resource that MCP clients read from another server, which has the same URI.
    pub(super) shadowed: Option<String>,
}

/// The differences between a backend and what the operator has accepted; `GET /v1/trust` has more.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pin {
    /// `off`, `warn` or `enforce`.
    mode: String,
    /// Tools that changed, or that are new.
    changed: usize,
    /// How many of them are neither offered nor called.
    pub(crate) withdrawn: usize,
    #[serde(skip)]
    pub(super) review: Arc<Review>,
    #[serde(skip)]
    pub(super) unkept: Option<String>,
}

/// Whether calls reach the backend.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Breaker {
    /// `closed`: calls reach the backend. `open`: it keeps failing, and no call does. `half-open`:
    /// one call may try.
    pub(crate) state: String,
    /// While it is open: when the next call may try.
    pub(crate) retry_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LastCall {
    at: String,
    /// Whether the peer answered; an error of its tool counts as an answer.
    answered: bool,
}

impl From<(SystemTime, bool)> for LastCall {
    fn from((at, answered): (SystemTime, bool)) -> Self {
        Self { at: time(at), answered }
    }
}

/// The journal of runs and calls. While it has an error, the bridge makes no calls.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Journal {
    bytes: u64,
    pub(super) last_error: Option<String>,
    /// The disk works, but the journal has reached its largest size.
    pub(super) full: bool,
    /// What the journal has lost in the last 24 h, because it was damaged, shortened or gone;
    /// `null` if nothing.
    pub(super) lost: Option<String>,
}

/// The rest of the state directory. Its errors do not stop calls.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// Why a file could not be written; the bridge tries again.
    pub(super) last_error: Option<String>,
    /// A file that other users of the machine can read or replace.
    pub(super) exposed: Option<String>,
}

/// The audit log. Its errors do not stop calls.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Audit {
    pub(super) last_error: Option<String>,
    /// The lines that were dropped before they could be written.
    pub(super) lost: u64,
}

/// The certificate of the listeners.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Its subjects: DNS names and addresses.
    names: Vec<String>,
    /// The end of its validity.
    pub(super) not_after: String,
    /// Why the bridge does not use newer files.
    pub(super) last_error: Option<String>,
    #[serde(skip)]
    pub(super) cure: &'static str,
    #[serde(skip)]
    pub(super) validity: Validity,
}

impl From<tls::Health> for Tls {
    fn from(health: tls::Health) -> Self {
        let facts = &health.settings.facts;
        let names = facts.names.iter().map(ToString::to_string);
        Self {
            names: names.chain(facts.addresses.iter().map(ToString::to_string)).collect(),
            not_after: time(facts.not_after),
            last_error: health.flaw.as_ref().map(ToString::to_string),
            cure: health.flaw.as_ref().map_or("", |flaw| flaw.cure),
            validity: health.validity,
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Runs {
    pub(crate) driven: usize,
    /// Runs from before a restart that wait for their app's credential; 0 where the app uses the
    /// bridge's.
    asleep: usize,
}

/// The questions to the app's people.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Approvals {
    /// The app's calls that wait for a person.
    pub(crate) waiting: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// When the bridge last took bridge.yaml over.
    loaded_at: String,
    /// What the bridge has not taken over since, and why; `null` if it took everything.
    pub(super) last_error: Option<String>,
    /// `lastError` is no mistake: some keys wait for a restart.
    #[serde(skip)]
    pub(super) needs_restart: bool,
}

impl Config {
    fn of(loaded: &Loaded) -> Self {
        Self {
            loaded_at: time(loaded.at),
            last_error: loaded.flaw.as_ref().map(ToString::to_string),
            needs_restart: matches!(loaded.flaw, Some(Flaw::NeedsRestart(_))),
        }
    }
}

/// The status, limited to what the caller may see.
pub(super) fn status(api: &Api, caller: &Caller) -> Status {
    let backends = backends(api, &caller.app);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: api.facts.since.elapsed().as_secs(),
        daemon: daemon(api, caller, &backends),
        backends,
    }
}

/// The state of the daemon, for a caller that sees these backends.
pub(super) fn daemon(api: &Api, caller: &Caller, backends: &[Backend]) -> Daemon {
    let health = api.runs.upstream().health();
    let token_failure = api.runs.upstream().token_failure();
    let loaded = api.loaded();
    let journal = api.runs.journal().health();
    let failing = Failing::of(api, caller);
    let refused = failing.iter().find(|failing| failing.is_refusal);
    let last_error = health.last_error.or_else(|| refused.map(|failing| failing.error.clone()));
    let mut daemon = Daemon {
        upstream: Upstream {
            base_url: api.facts.base_url.clone(),
            workspace: loaded.workspace.clone(),
            reachable: health.reachable,
            last_error,
            grant_ended: token_failure.as_ref().is_some_and(|failure| failure.grant_ended),
            token_error: token_failure.map(|failure| failure.text),
        },
        runs: Runs {
            driven: api.runs.driven(),
            asleep: api.runs.awaiting_credential(caller.sees()),
        },
        approvals: Approvals { waiting: api.runs.calls.approvals.waiting(caller.sees()) },
        runtimes: api.facts.runtimes.all().iter().map(|it| Runtime::of(it)).collect(),
        operator: caller.is_operator,
        journal: Journal {
            bytes: journal.bytes,
            last_error: journal.error,
            full: journal.is_full,
            lost: api.runs.journal().lost().map(|loss| loss.what),
        },
        state: State {
            last_error: api.facts.state.unwritten().into_iter().next(),
            exposed: api.facts.state.exposed(),
        },
        audit: api.runs.calls.audit.as_deref().map(|audit| {
            let health = audit.health();
            Audit { last_error: health.error, lost: health.lost }
        }),
        tls: api.facts.tls.as_ref().map(|tls| tls.health().into()),
        config: Config::of(&loaded),
        failing,
        shortage: shortage(caller),
        problems: Vec::new(),
    };
    daemon.problems = problems::all(&daemon, backends);
    daemon
}

/// Which room ran out within the last minutes, in a sentence. Only the operator sees the names of
/// other apps.
fn shortage(caller: &Caller) -> Option<String> {
    const TOLD_FOR: Duration = Duration::from_secs(5 * 60);
    let Shortage { used, most } = Budget::of_process().shortage(TOLD_FOR)?;
    let most = most.map(|(app, bytes)| {
        let is_shown = caller.is_operator || app == caller.app.name;
        let app = if is_shown { format!("the app `{app}`") } else { "another app".to_owned() };
        format!(", {} MiB of them for {app}", bytes >> 20)
    });
    Some(format!(
        "Requests or answers were refused, as the bridge held {} MiB of them{}.",
        used >> 20,
        most.unwrap_or_default()
    ))
}

/// The backends that `app` may use.
pub(super) fn backends(api: &Api, app: &App) -> Vec<Backend> {
    let handles = api.runs.calls.backends.handles();
    let mine = handles.keys().filter(|name| app.rights.include(name));
    mine.filter_map(|name| backend(api, name)).collect()
}

/// The word for the kind of the backend `name`.
pub(super) fn kind(offer: &Offer, name: &BackendName) -> Option<&'static str> {
    Some(match offer.backend(name.as_str())?.kind {
        RefKind::McpLocal => "mcp",
        RefKind::A2aLocal => "a2a",
        RefKind::Local => "local",
    })
}

/// The status of one backend.
pub(super) fn backend(api: &Api, name: &BackendName) -> Option<Backend> {
    let handles = api.runs.calls.backends.handles();
    let backend = handles.get(name)?;
    let registry = &api.runs.calls.backends.registry;
    let known: Snapshot = registry.snapshot(name.as_str())?;
    let offer = registry.offer();
    let kind = kind(&offer, name)?;
    let stale = known.is_stale();
    Some(Backend {
        name: name.to_string(),
        kind: kind.to_owned(),
        state: known.phase.as_str().to_owned(),
        required: backend.rules.required,
        transport: backend.dial.transport().to_owned(),
        protocol_version: known.about.protocol_version,
        server_info: known.about.server_info.map(|info| RawValue::to_owned(&info)),
        signature: known.about.signature.as_deref().cloned(),
        tools: known.catalog.as_ref().map_or(0, |catalog| catalog.tool_count()),
        digest: known.catalog.as_ref().map(|catalog| catalog.digest().to_owned()),
        stale,
        last_refresh: known.last_refresh.map(time),
        next_refresh: known.next_refresh.map(time),
        last_error: known.last_error,
        exposure: backend.dial.exposure(),
        last_call: backend.last_call().map(LastCall::from),
        calls_in_flight: backend.in_flight(),
        breaker: breaker(backend.breaker()),
        left_out: known.catalog.as_ref().and_then(|catalog| Some(catalog.left_out()?.to_owned())),
        shadowed: registry.shadowed(name),
        pin: Pin {
            mode: known.review.mode.as_str().to_owned(),
            changed: known.review.open().count(),
            withdrawn: known.review.withdrawn(),
            review: known.review,
            unkept: known.unkept,
        },
    })
}

fn breaker(look: Look) -> Breaker {
    let wait = match look {
        Look::Open(wait) => Some(wait),
        Look::Closed | Look::HalfOpen => None,
    };
    let retry_at = wait.map(|wait| time(SystemTime::now() + wait));
    Breaker { state: look.as_str().to_owned(), retry_at }
}
