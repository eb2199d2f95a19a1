//! The content of `/metrics`. docs/metrics.md describes each name, and a test compares the two.
//!
//! The operator, and an app that may use no backend, get the numbers of the whole bridge: a monitoring
//! system needs no right to a backend. Another app reads no name of another app, or of a backend that it
//! may not use.
//!
//! Must not: give a label a value that comes from elsewhere than an enum or the configuration. Free
//! values would make the number of time series unbounded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Metric;

use super::sight::sees_app;
use super::{Api, ApiRequest, Caller, RunStore, Runtime, Tls, response, status};
use crate::audit::Audit;
use crate::backend::calls::BackendHandle;
use crate::backend::registry::Snapshot;
use crate::clock;
use crate::metrics::page::{Row, by_label, counter, each, each_by, gauge, one_of};
use crate::metrics::{
    Answered, Connections, Label as _, OfListener, Requests, RouteKind, TokenKind, Way, page,
    process,
};
use crate::model::offer::cost::{Cost, OfBackend};
use crate::model::sentences::named;
use crate::model::{AppName, BackendName, Ending};
use crate::runtimes::State;

const APP: &str = "app";
const BACKEND: &str = "backend";
const STATE: &str = "state";
const RUNTIME: &str = "runtime";

/// The help texts: the name of each metric, and its text.
const HELP: &str = include_str!("metrics/help.txt");

/// A metric's name, and its value or values.
type Named = (&'static str, Box<dyn Metric>);

/// A row of the page: a metric with its help text.
fn row((name, metric): Named) -> Row {
    (name, named(HELP, name), metric)
}

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
    pub(super) fn metrics(&self, incoming: &ApiRequest) -> response::Answered {
        let runs = &self.runs;
        let reader = Reader::new(self, &incoming.caller);
        let handles = reader.handles(runs);
        let groups = [
            backends(runs, &handles),
            calls(runs, &handles),
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
            spans(runs),
            build_info(),
        ];
        let own_rows = groups.into_iter().flatten().map(row);
        let started = clock::now().checked_sub(self.facts.since.elapsed());
        let process_rows = of_process(started).map(row);
        let text = page::write(own_rows.collect(), process_rows.collect());
        Ok(response::text(page::CONTENT_TYPE, text))
    }

    /// What the runs of each app are given.
    fn injected(&self, reader: Reader<'_>) -> Vec<Named> {
        let mut injected = status::injected(self, None);
        injected.retain(|tools| reader.sees_app(&tools.app.as_str().into()));
        let apps: Vec<(&str, &[OfBackend])> =
            injected.iter().map(|tools| (tools.app.as_str(), &*tools.backends)).collect();
        vec![
            ("injected_bytes", costs(&apps, |cost| cost.bytes)),
            ("injected_tokens", costs(&apps, |cost| cost.tokens)),
        ]
    }

    fn of_runtimes(&self, reader: Reader<'_>) -> Vec<Named> {
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
            ("runtime_connected", connected),
            ("runtime_open_calls", open_calls),
            (
                "runtime_answers_refused",
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

fn build_info() -> Vec<Named> {
    let version = (env!("CARGO_PKG_VERSION"), ());
    vec![("build_info", each("version", &[version], |()| ConstGauge::new(1.0)))]
}

/// A backend, and what the registry knew of it at one moment.
struct BackendState<'a> {
    handle: &'a BackendHandle,
    snapshot: Snapshot,
}

/// The state of each backend.
fn backends(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Named> {
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
        each_by([BACKEND, STATE], &states, |state| one_of(state.handle.breaker.look().0));
    let tools = gauges(&states, |snapshot| {
        snapshot.catalog.as_ref().map_or(0, |catalog| catalog.tool_count())
    });
    vec![
        ("backend_state", phases),
        ("backend_breaker", breakers),
        ("backend_tools", tools),
        (
            "backend_last_refresh_timestamp_seconds",
            each(BACKEND, &refreshes, |at| ConstGauge::new(timestamp(*at))),
        ),
        ("backend_failures", counters(&states, |snapshot| snapshot.failures)),
        (
            "backend_reconnects",
            counters(&states, |snapshot| snapshot.connections.saturating_sub(1)),
        ),
        ("backend_tool_changes", counters(&states, |snapshot| snapshot.changes)),
        ("backend_tools_withdrawn", gauges(&states, |snapshot| snapshot.review.withdrawn())),
    ]
}

fn counters(states: &[(&str, BackendState<'_>)], value: fn(&Snapshot) -> u64) -> Box<dyn Metric> {
    each(BACKEND, states, |state| ConstCounter::new(value(&state.snapshot)))
}

fn gauges(states: &[(&str, BackendState<'_>)], value: fn(&Snapshot) -> usize) -> Box<dyn Metric> {
    each(BACKEND, states, |state| ConstGauge::new(count(value(&state.snapshot))))
}

/// The calls of each backend.
fn calls(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Named> {
    let all: Vec<(&str, &BackendHandle)> =
        handles.iter().map(|(name, backend)| (name.as_str(), backend.as_ref())).collect();
    let endings =
        each_by([BACKEND, Ending::NAME], &all, |backend| backend.metrics().ended.cloned());
    let durations = each(BACKEND, &all, |backend| backend.metrics().duration.metric());
    let in_flight = each(BACKEND, &all, |backend| ConstGauge::new(count(backend.in_flight(None))));
    vec![
        ("calls", endings),
        ("call_duration_seconds", durations),
        ("call_turn_seconds", each(BACKEND, &all, |backend| backend.metrics().turn.metric())),
        ("redactions", each(BACKEND, &all, |backend| backend.metrics().redacted.clone())),
        ("calls_in_flight", in_flight),
        ("calls_pending", gauge(count(runs.calls.history.pending()))),
    ]
}

/// Questions to people.
fn approvals(runs: &RunStore) -> Vec<Named> {
    let approvals = &runs.calls.approvals;
    vec![
        ("approvals_waiting", gauge(count(approvals.waiting(None)))),
        ("approvals", by_label(&approvals.ended)),
    ]
}

fn of_runs(runs: &RunStore, reader: Reader<'_>) -> Vec<Named> {
    let metrics = &runs.context.metrics;
    // Read in this order: a stream that closes meanwhile was opened before, so the difference is
    // never negative.
    let closed = metrics.app_streams_closed.get();
    let opened = metrics.app_streams.get();
    let tokens_by_app = metrics.tokens.lock();
    let visible = tokens_by_app.iter().filter(|(app, _)| reader.sees_app(app));
    let tokens: Vec<(&str, _)> = visible.map(|(app, tokens)| (app.as_str(), tokens)).collect();
    vec![
        ("runs_driven", gauge(count(runs.driven(None)))),
        ("runs_started", counter(metrics.started.get())),
        ("runs_ended", by_label(&metrics.ended)),
        ("run_stream_reconnects", counter(metrics.reconnects.get())),
        ("tokens", each_by([APP, TokenKind::NAME], &tokens, |tokens| tokens.cloned())),
        ("app_streams_open", gauge(as_f64(opened.saturating_sub(closed)))),
        ("app_streams_opened", counter(opened)),
        ("app_streams_slow", counter(metrics.app_streams_slow.get())),
    ]
}

fn posts(runs: &RunStore) -> Vec<Named> {
    let metrics = &runs.upstream.posts;
    let mut rows: Vec<Named> = vec![
        ("result_posts", by_label(&metrics.answered)),
        ("result_post_retries", counter(metrics.retries.get())),
        ("results_undelivered", counter(metrics.failed.get())),
        ("result_post_wait_seconds", Box::new(metrics.held_back.metric())),
    ];
    if let Some(reachable) = runs.upstream.health().reachable {
        rows.push(("upstream_reachable", gauge(f64::from(reachable))));
    }
    rows
}

fn of_requests(requests: &Requests) -> Vec<Named> {
    let routes: Vec<_> = requests.by_route.iter().collect();
    let labels = [RouteKind::NAME, Answered::NAME];
    let duration = each(RouteKind::NAME, &routes, |route| route.duration.metric());
    vec![
        ("requests", each_by(labels, &routes, |route| route.answered.cloned())),
        ("request_duration_seconds", duration),
        ("refused_requests", by_label(&requests.refused)),
    ]
}

fn connections(metrics: &Connections) -> Vec<Named> {
    let listeners: Vec<(_, &OfListener)> = metrics.by_way.iter().collect();
    let open = each(Way::NAME, &listeners, |listener| {
        // Read in this order: a connection that closes meanwhile was opened before.
        let closed = listener.closed.get();
        ConstGauge::new(as_f64(listener.opened.get().saturating_sub(closed)))
    });
    vec![
        ("connections", each(Way::NAME, &listeners, |listener| listener.opened.clone())),
        ("connections_open", open),
        ("connections_evicted", each(Way::NAME, &listeners, |listener| listener.evicted.clone())),
        ("tls_handshakes_failed", by_label(&metrics.handshakes_failed)),
    ]
}

/// The expiry of the listeners' certificate, if they have one.
fn certificate(tls: &Tls) -> Named {
    let until = tls.health().settings.facts.not_after;
    ("tls_certificate_end_timestamp_seconds", gauge(timestamp(until)))
}

fn journal(runs: &RunStore) -> Vec<Named> {
    let health = runs.storage_health();
    let metrics = runs.storage_metrics();
    vec![
        ("replicas", gauge(count(runs.group().len()))),
        ("runs_taken_over", counter(metrics.taken_over.get())),
        ("runs_lost", counter(metrics.lost.get())),
        ("journal_bytes", gauge(as_f64(health.bytes))),
        ("journal_writable", gauge(f64::from(health.error.is_none()))),
        ("journal_commit_duration_seconds", Box::new(metrics.commits.metric())),
        ("journal_errors", counter(metrics.errors.get())),
    ]
}

fn audit(audit: &Audit) -> Vec<Named> {
    let health = audit.health();
    vec![
        ("audit_lines", counter(health.written)),
        ("audit_lines_lost", counter(health.lost)),
        ("audit_writable", gauge(f64::from(health.error.is_none()))),
    ]
}

fn spans(runs: &RunStore) -> Vec<Named> {
    let Some(metrics) = runs.context.traces.counted() else { return Vec::new() };
    vec![
        ("spans_exported", counter(metrics.exported.get())),
        ("spans_dropped", by_label(&metrics.dropped)),
    ]
}

/// The common metrics of a process, as far as they are known.
fn of_process(started: Option<SystemTime>) -> impl Iterator<Item = Named> {
    let values = [
        ("process_start_time_seconds", started.map(timestamp)),
        ("process_resident_memory_bytes", process::resident_bytes().map(as_f64)),
        ("process_open_fds", process::open_fds().map(count)),
        ("process_threads", process::threads().map(count)),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name, gauge(value?))))
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

#[cfg(test)]
mod tests {
    //! The list of help texts is whole.

    use regex::Regex;

    use super::HELP;

    #[test]
    fn the_list_has_the_help_of_each_metric_and_no_other() {
        let rows = Regex::new(r#"[\[\s(]\("(\w+)", "#).unwrap();
        let mut named: Vec<&str> = rows
            .captures_iter(include_str!("metrics.rs"))
            .map(|row| row.extract::<1>().1[0])
            .collect();
        let helped = |line: &'static str| line.split_once(": ").expect("NAME: HELP").0;
        let mut known: Vec<&str> = HELP.lines().map(helped).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
