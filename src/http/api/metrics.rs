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

/// The same with its help text.
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
        let seen = handles.iter().filter(|(name, _)| self.sees_backend(name));
        seen.map(|(name, backend)| (name.clone(), Arc::clone(backend))).collect()
    }
}

impl Api {
    pub(super) fn metrics(&self, asked: &ApiRequest) -> response::Answered {
        let runs = &self.runs;
        let reader = Reader::new(self, &asked.caller);
        let handles = reader.handles(runs);
        let own = [
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
        let own = own.into_iter().flatten().map(row);
        let started = clock::now().checked_sub(self.facts.since.elapsed());
        let of_process = of_process(started).map(row);
        let text = page::write(own.collect(), of_process.collect());
        Ok(response::text(page::CONTENT_TYPE, text))
    }

    /// What the runs of each app are given.
    fn injected(&self, reader: Reader<'_>) -> Vec<Named> {
        let mut all = status::injected(self, None);
        all.retain(|of| reader.sees_app(&of.app.as_str().into()));
        let all: Vec<(&str, _)> = all.iter().map(|of| (of.app.as_str(), &of.backends)).collect();
        let by = |value: fn(&Cost) -> usize| {
            let of_backend = move |of: &OfBackend| ConstGauge::new(count(value(&of.cost)));
            each_by([APP, BACKEND], &all, |of| {
                of.iter().map(|of| (&*of.name, of_backend(of))).collect()
            })
        };
        vec![("injected_bytes", by(|cost| cost.bytes)), ("injected_tokens", by(|cost| cost.tokens))]
    }

    fn of_runtimes(&self, reader: Reader<'_>) -> Vec<Named> {
        let mut seen = self.facts.runtimes.all();
        seen.retain(|runtime| reader.sees_app(&runtime.name));
        let all: Vec<(&str, &Runtime)> = seen.iter().map(|it| (it.name.as_str(), &**it)).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let ready = |it: &&Runtime| ConstGauge::new(f64::from(it.health().state == State::Ready));
        let open = |it: &&Runtime| ConstGauge::new(count(it.open_calls()));
        vec![
            ("runtime_connected", each(RUNTIME, &all, ready)),
            ("runtime_open_calls", each(RUNTIME, &all, open)),
            ("runtime_answers_refused", each(RUNTIME, &all, |it| it.refused.clone())),
        ]
    }
}

fn build_info() -> Vec<Named> {
    let version = (env!("CARGO_PKG_VERSION"), ());
    vec![("build_info", each("version", &[version], |()| ConstGauge::new(1.0)))]
}

/// The state of each backend.
fn backends(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Named> {
    let registry = &runs.calls.backends.registry;
    let handles = handles.iter().map(|(name, backend)| (name.as_str(), backend));
    let known: Vec<(&str, (&BackendHandle, Snapshot))> = handles
        .filter_map(|(name, backend)| Some((name, (backend.as_ref(), registry.snapshot(name)?))))
        .collect();
    let refreshed: Vec<(&str, SystemTime)> =
        known.iter().filter_map(|(name, (_, known))| Some((*name, known.last_refresh?))).collect();
    let refreshed = each(BACKEND, &refreshed, |at| ConstGauge::new(timestamp(*at)));
    let phase = each_by([BACKEND, STATE], &known, |(_, known)| one_of(known.phase));
    let breaker =
        each_by([BACKEND, STATE], &known, |(backend, _)| one_of(backend.breaker.look().0));
    let counts = |value: fn(&Snapshot) -> u64| {
        each(BACKEND, &known, |(_, known)| ConstCounter::new(value(known)))
    };
    let gauges = |value: fn(&Snapshot) -> usize| {
        each(BACKEND, &known, |(_, known)| ConstGauge::new(count(value(known))))
    };
    let tools = gauges(|known| known.catalog.as_ref().map_or(0, |catalog| catalog.tool_count()));
    vec![
        ("backend_state", phase),
        ("backend_breaker", breaker),
        ("backend_tools", tools),
        ("backend_last_refresh_timestamp_seconds", refreshed),
        ("backend_failures", counts(|known| known.failures)),
        ("backend_reconnects", counts(|known| known.connections.saturating_sub(1))),
        ("backend_tool_changes", counts(|known| known.changes)),
        ("backend_tools_withdrawn", gauges(|known| known.review.withdrawn())),
    ]
}

/// The calls of each backend.
fn calls(runs: &RunStore, handles: &[(BackendName, Arc<BackendHandle>)]) -> Vec<Named> {
    let all: Vec<(&str, &BackendHandle)> =
        handles.iter().map(|(name, backend)| (name.as_str(), backend.as_ref())).collect();
    let ended = each_by([BACKEND, Ending::NAME], &all, |it| it.metrics().ended.cloned());
    let in_flight = each(BACKEND, &all, |it| ConstGauge::new(count(it.in_flight(None))));
    vec![
        ("calls", ended),
        ("call_duration_seconds", each(BACKEND, &all, |it| it.metrics().duration.metric())),
        ("call_turn_seconds", each(BACKEND, &all, |it| it.metrics().turn.metric())),
        ("redactions", each(BACKEND, &all, |it| it.metrics().redacted.clone())),
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
    let counted = &runs.context.metrics;
    // Read in this order: a stream that closes meanwhile was opened before, so the difference is
    // never negative.
    let closed = counted.app_streams_closed.get();
    let opened = counted.app_streams.get();
    let tokens = counted.tokens.lock();
    let tokens = tokens.iter().filter(|(app, _)| reader.sees_app(app));
    let tokens: Vec<(&str, _)> = tokens.map(|(app, of)| (app.as_str(), of)).collect();
    vec![
        ("runs_driven", gauge(count(runs.driven(None)))),
        ("runs_started", counter(counted.started.get())),
        ("runs_ended", by_label(&counted.ended)),
        ("run_stream_reconnects", counter(counted.reconnects.get())),
        ("tokens", each_by([APP, TokenKind::NAME], &tokens, |of| of.cloned())),
        ("app_streams_open", gauge(as_f64(opened.saturating_sub(closed)))),
        ("app_streams_opened", counter(opened)),
        ("app_streams_slow", counter(counted.app_streams_slow.get())),
    ]
}

fn posts(runs: &RunStore) -> Vec<Named> {
    let counted = &runs.upstream.posts;
    let mut rows: Vec<Named> = vec![
        ("result_posts", by_label(&counted.answered)),
        ("result_post_retries", counter(counted.retries.get())),
        ("results_undelivered", counter(counted.failed.get())),
        ("result_post_wait_seconds", Box::new(counted.held_back.metric())),
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

fn connections(counted: &Connections) -> Vec<Named> {
    let listeners: Vec<(_, &OfListener)> = counted.by_way.iter().collect();
    let open = each(Way::NAME, &listeners, |of| {
        // Read in this order: a connection that closes meanwhile was opened before.
        let closed = of.closed.get();
        ConstGauge::new(as_f64(of.opened.get().saturating_sub(closed)))
    });
    vec![
        ("connections", each(Way::NAME, &listeners, |of| of.opened.clone())),
        ("connections_open", open),
        ("connections_evicted", each(Way::NAME, &listeners, |of| of.evicted.clone())),
        ("tls_handshakes_failed", by_label(&counted.handshakes_failed)),
    ]
}

/// The expiry of the listeners' certificate, if they have one.
fn certificate(tls: &Tls) -> Named {
    let until = tls.health().settings.facts.not_after;
    ("tls_certificate_end_timestamp_seconds", gauge(timestamp(until)))
}

fn journal(runs: &RunStore) -> Vec<Named> {
    let health = runs.storage_health();
    let counted = runs.storage_metrics();
    vec![
        ("replicas", gauge(count(runs.group().len()))),
        ("runs_taken_over", counter(counted.taken_over.get())),
        ("runs_lost", counter(counted.lost.get())),
        ("journal_bytes", gauge(as_f64(health.bytes))),
        ("journal_writable", gauge(f64::from(health.error.is_none()))),
        ("journal_commit_duration_seconds", Box::new(counted.commits.metric())),
        ("journal_errors", counter(counted.errors.get())),
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
    let Some(counted) = runs.context.traces.counted() else { return Vec::new() };
    vec![
        ("spans_exported", counter(counted.exported.get())),
        ("spans_dropped", by_label(&counted.dropped)),
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
