//! The content of `/metrics`. docs/metrics.md describes each name, and a test compares the two.
//!
//! The operator, and an app that may use no backend, get the numbers of the whole bridge: a
//! monitoring system needs no right to a backend. Another app reads no name of another app, or of a
//! backend that it may not use.
//!
//! Must not: give a label a value that comes from elsewhere than an enum or the configuration. Free
//! values would make the number of time series unbounded.

mod notices;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Metric;

use self::notices::notices;
use super::sight::{sees_app, shares_with_none};
use super::{Api, ApiRequest, Caller, RunStore, Runtime, Tls, response, status};
use crate::audit::{Audit, Health};
use crate::backend::calls::BackendHandle;
use crate::backend::registry::Snapshot;
use crate::clock;
use crate::logins::LoginState;
use crate::metrics::page::{Row, by_label, counter, each, each_by, gauge, one_of};
use crate::metrics::{
    AnswerClass, Connections, Label as _, ListenerConnections, RefreshOutcome, Requests, RouteKind,
    TokenKind, Way, page, process,
};
use crate::model::offer::cost::{Cost, OfBackend};
use crate::model::{AppName, BackendName, Ending};
use crate::runtimes::State;

const APP: &str = "app";
const BACKEND: &str = "backend";
const STATE: &str = "state";
const RUNTIME: &str = "runtime";

/// Whose names a reader of the page may see.
#[derive(Clone, Copy)]
struct Reader<'a> {
    api: &'a Api,
    caller: &'a Caller,
    /// The operator, or an app for monitoring.
    sees_all: bool,
}

impl<'a> Reader<'a> {
    fn new(api: &'a Api, caller: &'a Caller) -> Self {
        let rights = &caller.app.rights;
        let is_monitor = rights.backends.as_ref().is_some_and(BTreeSet::is_empty);
        Self { api, caller, sees_all: caller.is_operator || is_monitor }
    }

    fn sees_app(self, name: &AppName) -> bool {
        self.sees_all || sees_app(self.api, self.caller, name)
    }

    fn sees_backend(self, name: &BackendName) -> bool {
        self.sees_all || self.caller.app.rights.include(name)
    }

    /// The backends that the reader may know of.
    fn handles(self, runs: &RunStore) -> Vec<(BackendName, Arc<BackendHandle>)> {
        let handles = runs.calls.backends.handles();
        let visible = handles.iter().filter(|(name, _)| self.sees_backend(name));
        visible.map(|(name, backend)| (name.clone(), Arc::clone(backend))).collect()
    }
}

impl Api {
    pub(super) fn metrics(&self, incoming: &ApiRequest) -> response::HandlerResult {
        let runs = &self.runs;
        let reader = Reader::new(self, &incoming.caller);
        let handles = reader.handles(runs);
        let groups = [
            backends(runs, &handles),
            calls(runs, &handles),
            self.of_logins(&handles),
            approvals(runs),
            self.injected(reader),
            self.of_runtimes(reader),
            of_runs(runs, reader),
            posts(runs),
            of_requests(&self.requests),
            connections(&self.requests.connections),
            self.facts.tls.as_deref().map(certificate).into_iter().collect(),
            journal(runs),
            runs.calls.audit.as_deref().map(audit).unwrap_or_default(),
            self.of_notices(reader),
            spans(runs),
            build_info(),
        ];
        let own_rows = groups.into_iter().flatten();
        let started = clock::now().checked_sub(self.facts.since.elapsed());
        let process_rows = of_process(started);
        let text = page::write(own_rows.collect(), process_rows.collect());
        Ok(response::text(page::CONTENT_TYPE, text))
    }

    /// The receivers of notices, whose names are nothing to one of several apps.
    fn of_notices(&self, reader: Reader<'_>) -> Vec<Row> {
        if reader.sees_all || shares_with_none(self, reader.caller) {
            notices(&self.facts.notifier.health())
        } else {
            Vec::new()
        }
    }

    /// What the runs of each app are given.
    fn injected(&self, reader: Reader<'_>) -> Vec<Row> {
        let mut injected = status::injected(self, None);
        injected.retain(|tools| reader.sees_app(&tools.app.as_str().into()));
        let apps: Vec<(&str, &[OfBackend])> =
            injected.iter().map(|tools| (tools.app.as_str(), &*tools.backends)).collect();
        vec![
            Row::new(
                "injected_bytes",
                "Bytes of tools in each run of the app",
                costs(&apps, |cost| cost.bytes),
            ),
            Row::new(
                "injected_tokens",
                "The same in tokens, by estimate: one for every four bytes",
                costs(&apps, |cost| cost.tokens),
            ),
        ]
    }

    /// The logins at backends; nothing where there are none.
    fn of_logins(&self, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Row> {
        let logins = &self.facts.logins;
        let names = handles.iter().map(|(name, _)| name.as_str());
        let needed: Vec<(&str, bool)> =
            names.clone().map(|name| (name, logins.needs_login(name))).collect();
        let states: Vec<(&str, LoginState)> =
            names.clone().filter_map(|name| Some((name, logins.view(name)?.state))).collect();
        if states.is_empty() && !needed.iter().any(|(_, needed)| *needed) {
            return Vec::new();
        }
        let refreshes: Vec<_> = names
            .filter(|name| states.iter().any(|(with_login, _)| with_login == name))
            .filter_map(|name| Some((name, logins.refreshes(name)?)))
            .collect();
        vec![
            Row::new(
                "logins",
                "1 for the present state of the login at the backend",
                each_by([BACKEND, STATE], &states, |state| one_of(*state)),
            ),
            Row::new(
                "login_refreshes",
                "Exchanges of the login's refresh token",
                each_by([BACKEND, RefreshOutcome::NAME], &refreshes, Clone::clone),
            ),
            Row::new(
                "login_needed",
                "Whether the backend needs a person to log in",
                each(BACKEND, &needed, |needed| ConstGauge::new(f64::from(*needed))),
            ),
        ]
    }

    fn of_runtimes(&self, reader: Reader<'_>) -> Vec<Row> {
        let mut visible = self.facts.runtimes.all();
        visible.retain(|runtime| reader.sees_app(&runtime.name));
        let runtimes: Vec<(&str, &Runtime)> =
            visible.iter().map(|runtime| (runtime.name.as_str(), &**runtime)).collect();
        if runtimes.is_empty() {
            return Vec::new();
        }
        let connected = each(RUNTIME, &runtimes, |runtime| {
            ConstGauge::new(f64::from(runtime.health().state == State::Ready))
        });
        let open_calls =
            each(RUNTIME, &runtimes, |runtime| ConstGauge::new(count(runtime.open_calls())));
        vec![
            Row::new("runtime_connected", "Whether the bridge hears the runtime", connected),
            Row::new(
                "runtime_open_calls",
                "Calls that are made, or whose answers were not taken yet",
                open_calls,
            ),
            Row::new(
                "runtime_answers_refused",
                "Answers that the runtime refused for good",
                each(RUNTIME, &runtimes, |runtime| runtime.refused.clone()),
            ),
        ]
    }
}

/// What the tools of each backend cost the runs of each app, in the unit that `value` takes.
fn costs(apps: &[(&str, &[OfBackend])], value: fn(&Cost) -> usize) -> Box<dyn Metric> {
    each_by([APP, BACKEND], apps, |backends| {
        let gauges = backends
            .iter()
            .map(|backend| (&*backend.name, ConstGauge::new(count(value(&backend.cost)))));
        gauges.collect()
    })
}

fn build_info() -> Vec<Row> {
    let version = (env!("CARGO_PKG_VERSION"), ());
    vec![Row::new(
        "build_info",
        "Always 1; the version is a label",
        each("version", &[version], |()| ConstGauge::new(1.0)),
    )]
}

/// A backend, and what the registry knew of it at one moment.
struct BackendState<'a> {
    handle: &'a BackendHandle,
    snapshot: Snapshot,
}

/// The state of each backend.
fn backends(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Row> {
    let registry = &runs.calls.backends.registry;
    let mut states: Vec<(&str, BackendState<'_>)> = Vec::new();
    for (name, handle) in handles {
        if let Some(snapshot) = registry.snapshot(name.as_str()) {
            states.push((name.as_str(), BackendState { handle, snapshot }));
        }
    }
    let refreshes: Vec<(&str, SystemTime)> = states
        .iter()
        .filter_map(|(name, state)| Some((*name, state.snapshot.last_refresh?)))
        .collect();
    let phases = each_by([BACKEND, STATE], &states, |state| one_of(state.snapshot.phase));
    let breakers =
        each_by([BACKEND, STATE], &states, |state| one_of(state.handle.breaker.state().0));
    let tools = gauges(&states, |snapshot| {
        snapshot.catalog.as_ref().map_or(0, |catalog| catalog.tool_count())
    });
    vec![
        Row::new("backend_state", "1 for the backend's present state, 0 for the others", phases),
        Row::new("backend_breaker", "1 for the present state of its circuit breaker", breakers),
        Row::new("backend_tools", "Tools of the last good catalog", tools),
        Row::new(
            "backend_last_refresh_timestamp_seconds",
            "Time of the last complete refresh",
            each(BACKEND, &refreshes, |at| ConstGauge::new(timestamp(*at))),
        ),
        Row::new(
            "backend_failures",
            "Failed refreshes and connections",
            counters(&states, |snapshot| snapshot.failures),
        ),
        Row::new(
            "backend_reconnects",
            "Connections after the first",
            counters(&states, |snapshot| snapshot.connections.saturating_sub(1)),
        ),
        Row::new(
            "backend_tool_changes",
            "Tools that differ from what was accepted",
            counters(&states, |snapshot| snapshot.changes),
        ),
        Row::new(
            "backend_tools_withdrawn",
            "Tools that are withdrawn until they are accepted",
            gauges(&states, |snapshot| snapshot.review.withdrawn_tools()),
        ),
    ]
}

fn counters(states: &[(&str, BackendState<'_>)], value: fn(&Snapshot) -> u64) -> Box<dyn Metric> {
    each(BACKEND, states, |state| ConstCounter::new(value(&state.snapshot)))
}

fn gauges(states: &[(&str, BackendState<'_>)], value: fn(&Snapshot) -> usize) -> Box<dyn Metric> {
    each(BACKEND, states, |state| ConstGauge::new(count(value(&state.snapshot))))
}

/// The calls of each backend.
fn calls(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Row> {
    let all: Vec<(&str, &BackendHandle)> =
        handles.iter().map(|(name, backend)| (name.as_str(), backend.as_ref())).collect();
    let endings =
        each_by([BACKEND, Ending::NAME], &all, |backend| backend.metrics().ended.cloned());
    let durations = each(BACKEND, &all, |backend| backend.metrics().duration.metric());
    let in_flight = each(BACKEND, &all, |backend| ConstGauge::new(count(backend.in_flight(None))));
    vec![
        Row::new("calls", "Calls that have ended, by outcome", endings),
        Row::new(
            "call_duration_seconds",
            "Duration of calls, with the wait for a permit, without that for a person",
            durations,
        ),
        Row::new(
            "call_turn_seconds",
            "Time that calls waited for a permit",
            each(BACKEND, &all, |backend| backend.metrics().turn.metric()),
        ),
        Row::new(
            "redactions",
            "Texts that were replaced in results",
            each(BACKEND, &all, |backend| backend.metrics().redacted.clone()),
        ),
        Row::new("calls_in_flight", "Calls that wait for a permit or run", in_flight),
        Row::new(
            "calls_pending",
            "Calls that go on after a first answer",
            gauge(count(runs.calls.history.pending())),
        ),
    ]
}

/// Questions to people.
fn approvals(runs: &RunStore) -> Vec<Row> {
    let approvals = &runs.calls.approvals;
    vec![
        Row::new(
            "approvals_waiting",
            "Calls that wait for a person",
            gauge(count(approvals.waiting(None))),
        ),
        Row::new(
            "approvals",
            "Questions to people that have ended, by outcome",
            by_label(&approvals.ended),
        ),
    ]
}

fn of_runs(runs: &RunStore, reader: Reader<'_>) -> Vec<Row> {
    let metrics = &runs.context.metrics;
    // Read in this order: a stream that closes meanwhile was opened before, so the difference is
    // never negative.
    let closed = metrics.app_streams_closed.get();
    let opened = metrics.app_streams.get();
    let tokens_by_app = metrics.tokens.lock();
    let visible = tokens_by_app.iter().filter(|(app, _)| reader.sees_app(app));
    let tokens: Vec<(&str, _)> = visible.map(|(app, tokens)| (app.as_str(), tokens)).collect();
    vec![
        Row::new("runs_driven", "Runs that are driven now", gauge(count(runs.driven(None)))),
        Row::new(
            "runs_started",
            "Runs that the bridge began to drive",
            counter(metrics.started.get()),
        ),
        Row::new(
            "runs_ended",
            "Runs that are not driven any more, by outcome",
            by_label(&metrics.ended),
        ),
        Row::new(
            "run_stream_reconnects",
            "Streams of runs that broke and were opened again",
            counter(metrics.reconnects.get()),
        ),
        Row::new(
            "tokens",
            "Tokens of ended runs, as MANTYX counts them",
            each_by([APP, TokenKind::NAME], &tokens, |tokens| tokens.cloned()),
        ),
        Row::new(
            "app_streams_open",
            "Streams that apps read now",
            gauge(as_f64(opened.saturating_sub(closed))),
        ),
        Row::new("app_streams_opened", "Streams that apps have read", counter(opened)),
        Row::new(
            "app_streams_slow",
            "Streams that were closed because the app reads too slowly",
            counter(metrics.app_streams_slow.get()),
        ),
    ]
}

fn posts(runs: &RunStore) -> Vec<Row> {
    let metrics = &runs.upstream.posts;
    let mut rows: Vec<Row> = vec![
        Row::new(
            "result_posts",
            "Attempts to post a result, by the status of the answer",
            by_label(&metrics.answered),
        ),
        Row::new(
            "result_post_retries",
            "Attempts after the first for a result",
            counter(metrics.retries.get()),
        ),
        Row::new(
            "results_undelivered",
            "Results that MANTYX refused, or that could not be delivered",
            counter(metrics.failed.get()),
        ),
        Row::new(
            "result_post_wait_seconds",
            "Time that attempts waited for MANTYX's rate limit",
            Box::new(metrics.held_back.metric()),
        ),
    ];
    if let Some(reachable) = runs.upstream.health().reachable {
        rows.push(Row::new(
            "upstream_reachable",
            "Whether MANTYX answered the last request",
            gauge(f64::from(reachable)),
        ));
    }
    rows
}

fn of_requests(requests: &Requests) -> Vec<Row> {
    let routes: Vec<_> = requests.by_route.iter().collect();
    let labels = [RouteKind::NAME, AnswerClass::NAME];
    let duration = each(RouteKind::NAME, &routes, |route| route.duration.metric());
    vec![
        Row::new(
            "requests",
            "Answered requests, by status",
            each_by(labels, &routes, |route| route.answered.cloned()),
        ),
        Row::new("request_duration_seconds", "Time until the head of the answer", duration),
        Row::new("refused_requests", "Refused requests", by_label(&requests.refused)),
    ]
}

fn connections(metrics: &Connections) -> Vec<Row> {
    let listeners: Vec<(_, &ListenerConnections)> = metrics.by_way.iter().collect();
    let open = each(Way::NAME, &listeners, |listener| {
        // Read in this order: a connection that closes meanwhile was opened before.
        let closed = listener.closed.get();
        ConstGauge::new(as_f64(listener.opened.get().saturating_sub(closed)))
    });
    vec![
        Row::new(
            "connections",
            "Accepted connections",
            each(Way::NAME, &listeners, |listener| listener.opened.clone()),
        ),
        Row::new("connections_open", "Open connections", open),
        Row::new(
            "connections_evicted",
            "Unused connections that were closed for new ones",
            each(Way::NAME, &listeners, |listener| listener.evicted.clone()),
        ),
        Row::new(
            "tls_handshakes_failed",
            "Failed TLS handshakes, by reason",
            by_label(&metrics.handshakes_failed),
        ),
    ]
}

/// The expiry of the listeners' certificate, if they have one.
fn certificate(tls: &Tls) -> Row {
    let until = tls.health().settings.facts.not_after;
    Row::new(
        "tls_certificate_end_timestamp_seconds",
        "Expiry of the certificate",
        gauge(timestamp(until)),
    )
}

fn journal(runs: &RunStore) -> Vec<Row> {
    let health = runs.storage_health();
    let metrics = runs.storage_metrics();
    vec![
        Row::new(
            "replicas",
            "Replicas of the group; 0 without a group",
            gauge(count(runs.group().len())),
        ),
        Row::new(
            "runs_taken_over",
            "Runs taken over from other replicas",
            counter(metrics.taken_over.get()),
        ),
        Row::new(
            "runs_lost",
            "Runs that another replica has taken over",
            counter(metrics.lost.get()),
        ),
        Row::new("journal_bytes", "Size of the journal's file", gauge(as_f64(health.bytes))),
        Row::new(
            "journal_writable",
            "0 while it cannot be written; no calls are made then",
            gauge(f64::from(health.error.is_none())),
        ),
        Row::new(
            "journal_commit_duration_seconds",
            "Writes of the journal, fsync included",
            Box::new(metrics.commits.metric()),
        ),
        Row::new(
            "journal_errors",
            "Failed writes, and failed attempts to open the file again",
            counter(metrics.errors.get()),
        ),
    ]
}

fn audit(audit: &Audit) -> Vec<Row> {
    let file = audit.file_health().as_ref().map(audit_file);
    let syslog = audit.syslog_health().as_ref().map(audit_syslog);
    file.into_iter().chain(syslog).flatten().collect()
}

fn audit_syslog(health: &Health) -> Vec<Row> {
    vec![
        Row::new(
            "audit_syslog_lines",
            "Lines of the audit log that went to the syslog receiver",
            counter(health.written),
        ),
        Row::new(
            "audit_syslog_lines_lost",
            "Lines lost because the syslog receiver did not take them in time",
            counter(health.lost),
        ),
        Row::new(
            "audit_syslog_reachable",
            "0 while the syslog receiver takes no lines",
            gauge(f64::from(health.error.is_none())),
        ),
    ]
}

fn audit_file(health: &Health) -> Vec<Row> {
    vec![
        Row::new("audit_lines", "Lines of the audit log on disk", counter(health.written)),
        Row::new(
            "audit_lines_lost",
            "Lines lost because the disk did not accept them in time",
            counter(health.lost),
        ),
        Row::new(
            "audit_writable",
            "0 while the audit log cannot be written",
            gauge(f64::from(health.error.is_none())),
        ),
    ]
}

fn spans(runs: &RunStore) -> Vec<Row> {
    let Some(metrics) = runs.context.traces.counted() else { return Vec::new() };
    vec![
        Row::new(
            "spans_exported",
            "Spans that the collector accepted",
            counter(metrics.exported.get()),
        ),
        Row::new("spans_dropped", "Spans that reached no collector", by_label(&metrics.dropped)),
    ]
}

/// The common metrics of a process, as far as they are known.
fn of_process(started: Option<SystemTime>) -> impl Iterator<Item = Row> {
    let start = started.map(|at| gauge(timestamp(at)));
    let memory = process::resident_bytes().map(|bytes| gauge(as_f64(bytes)));
    let descriptors = process::open_fds().map(|number| gauge(count(number)));
    let threads = process::threads().map(|number| gauge(count(number)));
    let rows = [
        start.map(|metric| Row::new("process_start_time_seconds", "Start of the process", metric)),
        memory.map(|metric| Row::new("process_resident_memory_bytes", "Resident memory", metric)),
        descriptors.map(|metric| Row::new("process_open_fds", "Open file descriptors", metric)),
        threads.map(|metric| Row::new("process_threads", "Threads", metric)),
    ];
    rows.into_iter().flatten()
}

fn timestamp(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn count(number: usize) -> f64 {
    as_f64(u64::try_from(number).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn as_f64(number: u64) -> f64 {
    number as f64
}
