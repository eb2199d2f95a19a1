//! The content of `/v1/status`. Other programs read the names, so they are fixed (DESIGN); more may
//! be added.
//!
//! Must not: show an app a backend that it may not use, a peer's own words, a path of the bridge,
//! or anything secret. What an app reads in their place is in the bridge's own words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::notify::NoticeReceiver;
use super::problems::Problem;
use super::sight::sees_app;
use super::{Api, Caller, notify, problems};
use crate::backend::calls::Reader;
use crate::backend::registry::{Snapshot, StartStage};
use crate::backend::{PeerError, Remark, Signature};
use crate::clock::{self, rfc3339};
use crate::model::offer::cost::Injected;
use crate::model::{AppName, BackendName, Offer, RefKind};
use crate::tls;

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
    /// Why it has not taken answers that wait.
    pub(super) untaken: Option<String>,
    /// Answers that it has refused for good.
    pub(super) refused_answers: u64,
    /// When the bridge did not hear it, if its wire replays nothing.
    pub(super) gap: Option<String>,
}

/// What an app reads where the operator reads why a runtime is not heard.
pub(super) const UNHEARD: &str = "The runtime cannot be heard.";
/// What an app reads where the operator reads why a runtime does not take answers.
const UNTAKEN: &str = "The runtime has not taken answers that wait.";
/// What an app reads where the operator reads why there is no connection to MANTYX.
const UNREACHABLE: &str = "MANTYX cannot be reached.";
/// What an app reads where the operator reads why there is no token.
pub(super) const NO_TOKEN: &str = "MANTYX cannot be shown a token.";
/// What an app reads where the operator reads why a card counts as not signed.
const UNSIGNED: &str = "The card is not signed by a configured key.";

/// The operator's `text` for the operator, and `for_apps` for apps.
pub(super) fn words(caller: &Caller, text: Option<String>, for_apps: &str) -> Option<String> {
    if caller.is_operator { text } else { text.map(|_| for_apps.to_owned()) }
}

impl Runtime {
    fn new(caller: &Caller, runtime: &crate::runtimes::Runtime) -> Self {
        let health = runtime.health();
        Self {
            name: runtime.name.to_string(),
            kind: runtime.wire().map_or("", |wire| wire.as_str()).to_owned(),
            state: health.state.as_str().to_owned(),
            since: rfc3339(health.since),
            last_error: words(caller, health.last_error, UNHEARD),
            open_calls: runtime.open_calls(),
            untaken: words(caller, health.untaken, UNTAKEN),
            refused_answers: runtime.refused.get(),
            gap: health.gap.map(|(from, to)| format!("{} to {}", rfc3339(from), rfc3339(to))),
        }
    }
}

/// A process of the bridge that shares the journal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replica {
    id: String,
    pub(crate) host: String,
    pub(crate) version: String,
    since: String,
    /// It answers this request.
    pub(crate) is_self: bool,
}

fn replicas(api: &Api) -> Vec<Replica> {
    let members = api.runs.group().into_iter().map(|member| Replica {
        id: member.id,
        host: member.host,
        version: member.version,
        since: rfc3339(member.since),
        is_self: member.is_self,
    });
    members.collect()
}

/// The state of the daemon itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Daemon {
    pub(crate) upstream: Upstream,
    pub(crate) runs: Runs,
    pub(crate) approvals: Approvals,
    /// The other runtimes whose calls the bridge answers; not for one of several apps.
    pub(crate) runtimes: Vec<Runtime>,
    /// Who is told of what waits, for the operator; empty where nobody is.
    #[serde(default)]
    pub(crate) notify: Vec<NoticeReceiver>,
    /// Whether the caller has shown the operator's secret, and so sees the data of all apps.
    operator: bool,
    /// `null` where the listeners speak plain HTTP.
    tls: Option<Tls>,
    config: Config,
    /// What each of the caller's apps is given for its runs; the operator sees all apps.
    #[serde(default)]
    pub(crate) injected: Vec<Injected>,
    /// The replicas of the group, for the operator; empty where the journal is a file.
    #[serde(default)]
    pub(crate) replicas: Vec<Replica>,
    /// The current problems, with their cures. The operator reads their causes, too.
    pub(crate) problems: Vec<Problem>,
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
    token_error: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// `connecting`, `starting`, `ready`, `idle`, `degraded`, `down` or `disabled`. An agent is
    /// `ready` if its endpoint would answer a call, and `degraded` if it would not.
    pub(crate) state: String,
    /// What it needs of a person: `login` (`mantyx-bridge login NAME`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) needs: Option<String>,
    /// Since when it has this state.
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// Its program waits for its turn to start: only a few start at a time.
    #[serde(default)]
    pub(crate) queued: bool,
    /// While its program starts: the last line that the program wrote to stderr. For the operator
    /// alone.
    #[serde(default)]
    pub(crate) last_output: Option<String>,
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
    /// Why it is not `ready`. The operator reads the peer's own words, without secrets; an app, the
    /// bridge's.
    pub(crate) last_error: Option<String>,
    /// The caller's last call that has ended; the operator sees that of any app.
    last_call: Option<LastCall>,
    /// The caller's calls; the operator sees the number of all.
    pub(crate) calls_in_flight: usize,
    pub(crate) breaker: Breaker,
    pub(crate) pin: Pin,
    /// What is odd about it, though it works; while its program starts, for the operator alone.
    #[serde(default)]
    pub(crate) remark: Option<Remark>,
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
    /// Whether the peer answered. An error of its tool counts as an answer; a refusal of what
    /// stands before an agent (HTTP 401, a redirect, no such path) does not.
    answered: bool,
}

/// The certificate of the listeners.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Its subjects: DNS names and addresses.
    names: Vec<String>,
    /// The end of its validity.
    not_after: String,
}

impl From<tls::Health> for Tls {
    fn from(health: tls::Health) -> Self {
        let facts = &health.settings.facts;
        let names = facts.names.iter().map(ToString::to_string);
        Self {
            names: names.chain(facts.addresses.iter().map(ToString::to_string)).collect(),
            not_after: rfc3339(facts.not_after),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Runs {
    /// The caller's runs that the bridge drives; the operator sees the number of all.
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
    /// The path of bridge.yaml, for the operator; `null` if the bridge was started without one.
    #[serde(default)]
    file: Option<String>,
    /// When the bridge last took bridge.yaml over.
    loaded_at: String,
    /// What the bridge has not taken over since; `null` if it took everything. The operator reads
    /// why, too.
    last_error: Option<String>,
}

/// The status, limited to what the caller may see.
pub(super) fn status(api: &Api, caller: &Caller) -> Status {
    let backends = backends(api, caller);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: api.facts.since.elapsed().as_secs(),
        daemon: daemon(api, caller, &backends),
        backends,
    }
}

/// The state of the daemon, for a caller that sees these backends.
pub(super) fn daemon(api: &Api, caller: &Caller, backends: &[Backend]) -> Daemon {
    let loaded = api.loaded();
    let mut daemon = Daemon {
        upstream: upstream(api, caller),
        runs: Runs {
            driven: api.runs.driven(caller.sees()),
            asleep: api.runs.awaiting_credential(caller.sees()),
        },
        approvals: Approvals { waiting: api.runs.calls.approvals.waiting(caller.sees()) },
        runtimes: runtimes(api, caller),
        notify: notify::receivers(api, caller),
        operator: caller.is_operator,
        tls: api.facts.tls.as_ref().map(|tls| tls.health().into()),
        config: Config {
            file: if caller.is_operator { file(api) } else { None },
            loaded_at: rfc3339(loaded.at),
            last_error: loaded.flaw.map(|flaw| {
                if caller.is_operator { flaw.to_string() } else { flaw.for_apps().to_owned() }
            }),
        },
        injected: injected(api, caller.sees()),
        replicas: if caller.is_operator { replicas(api) } else { Vec::new() },
        problems: Vec::new(),
    };
    daemon.problems = problems::all(api, caller, &daemon, backends);
    daemon
}

/// The state of MANTYX, for `caller`.
pub(super) fn upstream(api: &Api, caller: &Caller) -> Upstream {
    let health = api.runs.upstream.health();
    let token_error = api.runs.upstream.token_failure().map(|failure| failure.text);
    Upstream {
        base_url: api.facts.base_url.clone(),
        workspace: api.loaded().workspace,
        reachable: health.reachable,
        last_error: words(caller, health.last_error, UNREACHABLE)
            .or_else(|| problems::refused_runs(api, caller).into_keys().next()),
        token_error: words(caller, token_error, NO_TOKEN),
    }
}

/// The runtimes that `caller` may see.
pub(super) fn runtimes(api: &Api, caller: &Caller) -> Vec<Runtime> {
    let mut runtimes = api.facts.runtimes.all();
    runtimes.retain(|runtime| sees_app(api, caller, &runtime.name));
    runtimes.iter().map(|runtime| Runtime::new(caller, runtime)).collect()
}

/// The path of bridge.yaml.
fn file(api: &Api) -> Option<String> {
    let file = &api.facts.doctor.as_ref()?.file;
    Some(std::path::absolute(file).as_ref().unwrap_or(file).display().to_string())
}

/// What the runs of `app` are given, or those of each app.
pub(super) fn injected(api: &Api, app: Option<&AppName>) -> Vec<Injected> {
    let calls = &api.runs.calls;
    let settings = calls.settings();
    let names = settings.apps.iter().map(|entry| &entry.app.name);
    names
        .filter(|name| app.is_none_or(|app| *name == app))
        .map(|name| calls.offer(name).injected(name.as_str()))
        .collect()
}

/// The backends that the caller may use.
pub(super) fn backends(api: &Api, caller: &Caller) -> Vec<Backend> {
    let handles = api.runs.calls.backends.handles();
    let visible = handles.keys().filter(|name| caller.app.rights.include(name));
    visible.filter_map(|name| backend(api, caller, name)).collect()
}

/// The word for the kind of the backend `name`.
pub(super) fn kind(offer: &Offer, name: &BackendName) -> Option<&'static str> {
    Some(match offer.backend(name.as_str())?.kind {
        RefKind::McpLocal => "mcp",
        RefKind::A2aLocal => "a2a",
        RefKind::Local => "local",
    })
}

/// What the caller may read of one backend. Each answer that shows a backend is made here: one that
/// is made elsewhere would show apps what its program has written.
pub(super) fn backend(api: &Api, caller: &Caller, name: &BackendName) -> Option<Backend> {
    let handles = api.runs.calls.backends.handles();
    let backend = handles.get(name)?;
    let registry = &api.runs.calls.backends.registry;
    let snapshot: Snapshot = registry.snapshot(name.as_str())?;
    let kind = kind(&registry.offer(), name)?;
    let since = registry.states(name).last().map(|(since, _)| rfc3339(*since));
    let shows_start = snapshot.start == Some(StartStage::Running) && caller.is_operator;
    let last_output = if shows_start { backend.dial.stderr().pop() } else { None };
    let why = snapshot.last_failure.as_ref().map(PeerError::for_apps).unwrap_or_default();
    let mut signature = snapshot.about.signature.as_deref().cloned();
    if let Some(signature) = &mut signature {
        signature.error = words(caller, signature.error.take(), UNSIGNED);
    }
    // What a program that starts has written is not meant for apps.
    let remark = if snapshot.connection.is_some() || shows_start {
        backend.remark(if caller.is_operator { Reader::Operator } else { Reader::App })
    } else {
        None
    };
    let needs_login = api.facts.logins.needs_login(name.as_str());
    let (breaker, wait) = backend.breaker.state();
    let retry_at = wait.map(|wait| rfc3339(clock::now() + wait));
    Some(Backend {
        name: name.to_string(),
        kind: kind.to_owned(),
        state: snapshot.phase.as_str().to_owned(),
        needs: if needs_login { Some("login".to_owned()) } else { None },
        since,
        queued: snapshot.start == Some(StartStage::Queued),
        last_output,
        required: backend.rules.required,
        stale: snapshot.is_stale(),
        transport: backend.dial.transport().to_owned(),
        protocol_version: snapshot.about.protocol_version,
        server_info: snapshot.about.server_info.map(|info| RawValue::to_owned(&info)),
        signature,
        tools: snapshot.catalog.as_ref().map_or(0, |catalog| catalog.tool_count()),
        digest: snapshot.catalog.as_ref().map(|catalog| catalog.digest().to_owned()),
        last_refresh: snapshot.last_refresh.map(rfc3339),
        next_refresh: snapshot.next_refresh.map(rfc3339),
        last_error: words(caller, snapshot.last_error, &why),
        last_call: backend
            .last_call(caller.sees())
            .map(|last| LastCall { at: rfc3339(last.at), answered: last.answered }),
        calls_in_flight: backend.in_flight(caller.sees()),
        breaker: Breaker { state: breaker.as_str().to_owned(), retry_at },
        pin: Pin {
            mode: snapshot.review.mode.as_str().to_owned(),
            changed: snapshot.review.open().count(),
            withdrawn: snapshot.review.withdrawn_tools(),
        },
        remark,
    })
}
