//! The content of `/metrics`. docs/metrics.md describes each name, and a test compares the two.
//!
//! Every app gets the numbers of the whole bridge, so that a monitoring system needs no right to a
//! backend.
//!
//! Must not: give a label a value that comes from elsewhere than an enum or the configuration. Free
//! values would make the number of time series unbounded.

use std::time::SystemTime;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Api, ApiRequest, Runs, Runtime, Tls, response, status};
use crate::audit::Audit;
use crate::backend::calls::BackendHandle;
use crate::backend::circuit_breaker::Look;
use crate::backend::registry::{Phase, Snapshot};
use crate::clock;
use crate::metrics::page::{Row, by_label, counter, each, each_by, gauge, one_of};
use crate::metrics::{
    Answered, Connections, Label as _, OfListener, Requests, RouteKind, TokenKind, Way, page,
    process,
};
use crate::model::Ending;
use crate::model::offer::cost::{Cost, OfBackend};
use crate::model::words::Words as _;
use crate::runtimes::State;

const APP: &str = "app";
const BACKEND: &str = "backend";
const STATE: &str = "state";
const RUNTIME: &str = "runtime";

impl Api {
    pub(super) fn metrics(&self, _: &ApiRequest) -> response::Answered {
        let runs = &self.runs;
        let own = [
            backends(runs),
            calls(runs),
            approvals(runs),
            self.injected(),
            self.of_runtimes(),
            of_runs(runs),
            posts(runs),
            of_requests(&self.requests),
            connections(&self.requests.connections),
            self.facts.tls.as_deref().map(certificate).into_iter().collect(),
            journal(runs),
            runs.calls.audit.as_deref().map(audit).unwrap_or_default(),
            spans(runs),
            build_info(),
        ];
        let started = clock::now().checked_sub(self.facts.since.elapsed());
        let text = page::write(own.into_iter().flatten().collect(), of_process(started));
        Ok(response::text(page::CONTENT_TYPE, text))
    }

    /// What the runs of each app are given.
    fn injected(&self) -> Vec<Row> {
        let all = status::injected(self, None);
        let all: Vec<(&str, _)> = all.iter().map(|of| (of.app.as_str(), &of.backends)).collect();
        let by = |value: fn(&Cost) -> usize| {
            let of_backend = move |of: &OfBackend| ConstGauge::new(count(value(&of.cost)));
            each_by([APP, BACKEND], &all, |of| {
                of.iter().map(|of| (&*of.name, of_backend(of))).collect()
            })
        };
        let tokens = "The same in tokens, by estimate: one for every four bytes";
        vec![
            ("injected_bytes", "Bytes of tools in each run of the app", by(|cost| cost.bytes)),
            ("injected_tokens", tokens, by(|cost| cost.tokens)),
        ]
    }

    fn of_runtimes(&self) -> Vec<Row> {
        let all = self.facts.runtimes.all();
        let all: Vec<(&str, &Runtime)> = all.iter().map(|it| (it.name.as_str(), &**it)).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let ready = |it: &&Runtime| ConstGauge::new(f64::from(it.health().state == State::Ready));
        let connected = each(RUNTIME, &all, ready);
        let unanswered = "Calls that are made, or whose answers were not taken yet";
        let open = each(RUNTIME, &all, |it| ConstGauge::new(count(it.open_calls())));
        let refused = each(RUNTIME, &all, |it| it.refused.clone());
        vec![
            ("runtime_connected", "Whether the bridge hears the runtime", connected),
            ("runtime_open_calls", unanswered, open),
            ("runtime_answers_refused", "Answers that the runtime refused for good", refused),
        ]
    }
}

fn build_info() -> Vec<Row> {
    let version = each("version", &[(env!("CARGO_PKG_VERSION"), ())], |()| ConstGauge::new(1.0));
    vec![("build_info", "Always 1; the version is a label", version)]
}

/// The state of each backend.
fn backends(runs: &Runs) -> Vec<Row> {
    let registry = &runs.calls.backends.registry;
    let handles = runs.calls.backends.handles();
    let handles = handles.iter().map(|(name, backend)| (name.as_str(), backend));
    let known: Vec<(&str, (&BackendHandle, Snapshot))> = handles
        .filter_map(|(name, backend)| Some((name, (backend.as_ref(), registry.snapshot(name)?))))
        .collect();
    let refreshed: Vec<(&str, SystemTime)> =
        known.iter().filter_map(|(name, (_, known))| Some((*name, known.last_refresh?))).collect();
    let refreshed = each(BACKEND, &refreshed, |at| ConstGauge::new(timestamp(*at)));
    let phases = Phase::ALL.iter().map(|phase| phase.as_str()).collect::<Vec<_>>();
    let phase =
        each_by([BACKEND, STATE], &known, |(_, known)| one_of(&phases, known.phase.as_str()));
    let breaker = each_by([BACKEND, STATE], &known, |(backend, _)| {
        one_of(&Look::WORDS, backend.breaker.look().as_str())
    });
    let counts = |value: fn(&Snapshot) -> u64| {
        each(BACKEND, &known, |(_, known)| ConstCounter::new(value(known)))
    };
    let gauges = |value: fn(&Snapshot) -> usize| {
        each(BACKEND, &known, |(_, known)| ConstGauge::new(count(value(known))))
    };
    let tools = gauges(|known| known.catalog.as_ref().map_or(0, |catalog| catalog.tool_count()));
    let changes = counts(|known| known.changes);
    let withdrawn = gauges(|known| known.review.withdrawn());
    let reconnects = counts(|known| known.connections.saturating_sub(1));
    vec![
        ("backend_state", "1 for the backend's present state, 0 for the others", phase),
        ("backend_breaker", "1 for the present state of its circuit breaker", breaker),
        ("backend_tools", "Tools of the last good catalog", tools),
        ("backend_last_refresh_timestamp_seconds", "Time of the last complete refresh", refreshed),
        ("backend_failures", "Failed refreshes and connections", counts(|known| known.failures)),
        ("backend_reconnects", "Connections after the first", reconnects),
        ("backend_tool_changes", "Tools that differ from what was accepted", changes),
        ("backend_tools_withdrawn", "Tools that are withdrawn until they are accepted", withdrawn),
    ]
}

/// The calls of each backend.
fn calls(runs: &Runs) -> Vec<Row> {
    let handles = runs.calls.backends.handles();
    let backends: Vec<(&str, &BackendHandle)> =
        handles.iter().map(|(name, backend)| (name.as_str(), backend.as_ref())).collect();
    let ended = each_by([BACKEND, Ending::NAME], &backends, |it| it.metrics().ended.cloned());
    let duration = each(BACKEND, &backends, |backend| backend.metrics().duration.metric());
    let turn = each(BACKEND, &backends, |backend| backend.metrics().turn.metric());
    let in_flight = each(BACKEND, &backends, |it| ConstGauge::new(count(it.in_flight())));
    let redacted = each(BACKEND, &backends, |backend| backend.metrics().redacted.clone());
    let pending = gauge(count(runs.calls.history.pending()));
    let took = "Duration of calls, with the wait for a permit, without that for a person";
    vec![
        ("calls", "Calls that have ended, by outcome", ended),
        ("call_duration_seconds", took, duration),
        ("call_turn_seconds", "Time that calls waited for a permit", turn),
        ("redactions", "Texts that were replaced in results", redacted),
        ("calls_in_flight", "Calls that wait for a permit or run", in_flight),
        ("calls_pending", "Calls that go on after a first answer", pending),
    ]
}

/// Questions to people.
fn approvals(runs: &Runs) -> Vec<Row> {
    let approvals = &runs.calls.approvals;
    let waiting = gauge(count(approvals.waiting(None)));
    let ended = by_label(&approvals.ended);
    vec![
        ("approvals_waiting", "Calls that wait for a person", waiting),
        ("approvals", "Questions to people that have ended, by outcome", ended),
    ]
}

fn of_runs(runs: &Runs) -> Vec<Row> {
    let counted = &runs.metrics;
    let started = counter(counted.started.get());
    let ended = by_label(&counted.ended);
    let reconnects = counter(counted.reconnects.get());
    // Read in this order: a stream that closes meanwhile was opened before, so the difference is
    // never negative.
    let closed = counted.app_streams_closed.get();
    let opened = counted.app_streams.get();
    let open = gauge(as_f64(opened.saturating_sub(closed)));
    let slow = counter(counted.app_streams_slow.get());
    let tokens = counted.tokens.lock();
    let tokens: Vec<(&str, _)> = tokens.iter().map(|(app, of)| (app.as_str(), of)).collect();
    let tokens = each_by([APP, TokenKind::NAME], &tokens, |of| of.cloned());
    vec![
        ("runs_driven", "Runs that are driven now", gauge(count(runs.driven()))),
        ("runs_started", "Runs that the bridge began to drive", started),
        ("runs_ended", "Runs that are not driven any more, by outcome", ended),
        ("run_stream_reconnects", "Streams of runs that broke and were opened again", reconnects),
        ("tokens", "Tokens of ended runs, as MANTYX counts them", tokens),
        ("app_streams_open", "Streams that apps read now", open),
        ("app_streams_opened", "Streams that apps have read", counter(opened)),
        ("app_streams_slow", "Streams that were closed because the app reads too slowly", slow),
    ]
}

fn posts(runs: &Runs) -> Vec<Row> {
    let counted = &runs.upstream.posts;
    let answered = by_label(&counted.answered);
    let retries = counter(counted.retries.get());
    let undelivered = "Results that MANTYX refused, or that could not be delivered";
    let waits = Box::new(counted.held_back.metric());
    let mut rows: Vec<Row> = vec![
        ("result_posts", "Attempts to post a result, by the status of the answer", answered),
        ("result_post_retries", "Attempts after the first for a result", retries),
        ("results_undelivered", undelivered, counter(counted.failed.get())),
        ("result_post_wait_seconds", "Time that attempts waited for MANTYX's rate limit", waits),
    ];
    if let Some(reachable) = runs.upstream.health().reachable {
        let value = gauge(f64::from(reachable));
        rows.push(("upstream_reachable", "Whether MANTYX answered the last request", value));
    }
    rows
}

fn of_requests(requests: &Requests) -> Vec<Row> {
    let routes: Vec<_> = requests.by_route.iter().collect();
    let labels = [RouteKind::NAME, Answered::NAME];
    let answered = each_by(labels, &routes, |route| route.answered.cloned());
    let duration = each(RouteKind::NAME, &routes, |route| route.duration.metric());
    vec![
        ("requests", "Answered requests, by status", answered),
        ("request_duration_seconds", "Time until the head of the answer", duration),
        ("refused_requests", "Refused requests", by_label(&requests.refused)),
    ]
}

fn connections(counted: &Connections) -> Vec<Row> {
    let listeners: Vec<(_, &OfListener)> = counted.by_way.iter().collect();
    let opened = each(Way::NAME, &listeners, |of| of.opened.clone());
    let open = each(Way::NAME, &listeners, |of| {
        // Read in this order: a connection that closes meanwhile was opened before.
        let closed = of.closed.get();
        ConstGauge::new(as_f64(of.opened.get().saturating_sub(closed)))
    });
    let evicted = each(Way::NAME, &listeners, |of| of.evicted.clone());
    let handshakes = by_label(&counted.handshakes_failed);
    vec![
        ("connections", "Accepted connections", opened),
        ("connections_open", "Open connections", open),
        ("connections_evicted", "Unused connections that were closed for new ones", evicted),
        ("tls_handshakes_failed", "Failed TLS handshakes, by reason", handshakes),
    ]
}

/// The expiry of the listeners' certificate, if they have one.
fn certificate(tls: &Tls) -> Row {
    let until = gauge(timestamp(tls.health().settings.facts.not_after));
    ("tls_certificate_end_timestamp_seconds", "Expiry of the certificate", until)
}

fn journal(runs: &Runs) -> Vec<Row> {
    let health = runs.journal().health();
    let counted = runs.journal().metrics();
    let writable = gauge(f64::from(health.error.is_none()));
    let commits = Box::new(counted.commits.metric());
    let errors = counter(counted.errors.get());
    let taken_over = counter(counted.taken_over.get());
    let replicas = runs.journal().replica().map_or(0, |replica| replica.members().0.len());
    vec![
        ("replicas", "Replicas of the group; 0 without a group", gauge(count(replicas))),
        ("runs_taken_over", "Runs taken over from other replicas", taken_over),
        ("runs_lost", "Runs that another replica has taken over", counter(counted.lost.get())),
        ("journal_bytes", "Size of the journal's file", gauge(as_f64(health.bytes))),
        ("journal_writable", "0 while it cannot be written; no calls are made then", writable),
        ("journal_commit_duration_seconds", "Writes of the journal, fsync included", commits),
        ("journal_errors", "Failed writes, and failed attempts to open the file again", errors),
    ]
}

fn audit(audit: &Audit) -> Vec<Row> {
    let health = audit.health();
    let lost = counter(health.lost);
    let writable = gauge(f64::from(health.error.is_none()));
    vec![
        ("audit_lines", "Lines of the audit log on disk", counter(health.written)),
        ("audit_lines_lost", "Lines lost because the disk did not accept them in time", lost),
        ("audit_writable", "0 while the audit log cannot be written", writable),
    ]
}

fn spans(runs: &Runs) -> Vec<Row> {
    let Some(counted) = runs.traces.counted() else { return Vec::new() };
    vec![
        ("spans_exported", "Spans that the collector accepted", counter(counted.exported.get())),
        ("spans_dropped", "Spans that reached no collector", by_label(&counted.dropped)),
    ]
}

fn of_process(started: Option<SystemTime>) -> Vec<Row> {
    let values = [
        ("process_start_time_seconds", "Start of the process", started.map(timestamp)),
        ("process_resident_memory_bytes", "Resident memory", process::resident_bytes().map(as_f64)),
        ("process_open_fds", "Open file descriptors", process::open_fds().map(count)),
        ("process_threads", "Threads", process::threads().map(count)),
    ];
    let known =
        values.into_iter().filter_map(|(name, help, value)| Some((name, help, gauge(value?))));
    known.collect()
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
