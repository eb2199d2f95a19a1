//! The content of `/metrics`. docs/metrics.md describes each name, and a test compares the two.
//!
//! Every app gets the numbers of the whole bridge, so that a monitoring system needs no right to a
//! backend.
//!
//! Must not: give a label a value that comes from elsewhere than an enum or the configuration. Free
//! values would make the number of time series unbounded.

use std::{fmt, sync::Arc, time::SystemTime};

use http::{HeaderValue, Response, header};
use tracing::error;

use super::Api;
use crate::{
    audit::Audit,
    backend::{
        calls::BackendHandle,
        circuit_breaker::Look,
        registry::{Phase, Snapshot},
    },
    http::{
        error_code::Code,
        response::{self, Body},
    },
    metrics::{
        self, Connections, Counter, Label as _, Requests,
        page::{self, Page, Part},
        process,
    },
    model::ids::BackendName,
    runs::Runs,
    tls::Tls,
};

impl Api {
    pub(super) fn metrics(&self) -> Response<Body> {
        let runs = Arc::clone(&self.runs);
        let requests = Arc::clone(&self.requests);
        let tls = self.facts.tls.clone();
        let own: Part = Box::new(move |page| {
            backends(page, &runs)?;
            calls(page, &runs)?;
            approvals(page, &runs)?;
            of_runs(page, &runs)?;
            posts(page, &runs)?;
            of_requests(page, &requests)?;
            certificate(page, tls.as_deref())?;
            journal(page, &runs)?;
            audit(page, &runs)?;
            spans(page, &runs)?;
            let version = env!("CARGO_PKG_VERSION");
            page.gauges("build_info", "Always 1; the version is a label")?
                .set(&[("version", version)], 1.0)
        });
        let started = SystemTime::now().checked_sub(self.facts.since.elapsed());
        let common: Part = Box::new(move |page| of_process(page, started));
        let Ok(text) = page::write(own, common) else {
            error!("the metrics cannot be written");
            return response::error(Code::Internal, "The metrics cannot be written.");
        };
        let mut response = Response::new(response::full(text));
        let kind = HeaderValue::from_static(page::CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// The state of each backend.
fn backends(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let registry = &runs.calls.backends.registry;
    let handles = runs.calls.backends.handles();
    let known: Vec<(&BackendName, &Arc<BackendHandle>, Snapshot)> = handles
        .iter()
        .filter_map(|(name, backend)| Some((name, backend, registry.snapshot(name.as_str())?)))
        .collect();
    let each = || {
        known.iter().map(|(name, backend, known)| ([("backend", name.as_str())], *backend, known))
    };

    let mut metric =
        page.gauges("backend_state", "1 for the backend's present state, 0 for the others")?;
    let phases = Phase::ALL.map(Phase::as_str);
    for (labels, _, known) in each() {
        metric.one_of(&labels, &phases, known.phase.as_str())?;
    }
    let mut metric =
        page.gauges("backend_breaker", "1 for the present state of its circuit breaker")?;
    for (labels, backend, _) in each() {
        metric.one_of(&labels, &Look::WORDS, backend.breaker().as_str())?;
    }
    let mut metric = page.gauges("backend_tools", "Tools of the last good catalog")?;
    for (labels, _, known) in each() {
        let tools = known.catalog.as_ref().map_or(0, |catalog| catalog.tool_count());
        metric.set(&labels, count(tools))?;
    }
    let mut metric =
        page.gauges("backend_last_refresh_timestamp_seconds", "Time of the last complete refresh")?;
    for (labels, _, known) in each() {
        if let Some(at) = known.last_refresh {
            metric.set(&labels, timestamp(at))?;
        }
    }
    let mut metric = page.counters("backend_failures", "Failed refreshes and connections")?;
    for (labels, _, known) in each() {
        metric.count(&labels, known.failures)?;
    }
    let mut metric = page.counters("backend_reconnects", "Connections after the first")?;
    for (labels, _, known) in each() {
        metric.count(&labels, known.connections.saturating_sub(1))?;
    }
    let mut metric =
        page.counters("backend_tool_changes", "Tools that differ from what was accepted")?;
    for (labels, _, known) in each() {
        metric.count(&labels, known.changes)?;
    }
    let mut metric =
        page.gauges("backend_tools_withdrawn", "Tools that are withdrawn until they are accepted")?;
    for (labels, _, known) in each() {
        metric.set(&labels, count(known.review.withdrawn()))?;
    }
    Ok(())
}

/// The calls of each backend.
fn calls(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let handles = runs.calls.backends.handles();
    let handles: Vec<(&str, &BackendHandle)> =
        handles.iter().map(|(name, backend)| (name.as_str(), backend.as_ref())).collect();
    let mut metric = page.counters("calls", "Calls that have ended, by outcome")?;
    for (name, backend) in &handles {
        by_backend(&mut metric, name, &backend.metrics().ended)?;
    }
    let mut metric = page.histograms(
        "call_duration_seconds",
        "Duration of calls, with the wait for a permit, without that for a person",
    )?;
    for (name, backend) in &handles {
        metric.times(&[("backend", name)], &backend.metrics().duration)?;
    }
    let mut metric = page.histograms("call_turn_seconds", "Time that calls waited for a permit")?;
    for (name, backend) in &handles {
        metric.times(&[("backend", name)], &backend.metrics().turn)?;
    }
    let mut metric = page.gauges("calls_in_flight", "Calls that wait for a permit or run")?;
    for (name, backend) in &handles {
        metric.set(&[("backend", name)], count(backend.in_flight()))?;
    }
    let pending = count(runs.calls.history.pending());
    page.gauge("calls_pending", "Calls that go on after a first answer", pending)
}

/// Questions to people.
fn approvals(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let approvals = &runs.calls.approvals;
    let waiting = count(approvals.waiting(None));
    page.gauge("approvals_waiting", "Calls that wait for a person", waiting)?;
    page.by_label("approvals", "Questions to people that have ended, by outcome", &approvals.ended)
}

fn by_backend<L: metrics::Label>(
    metric: &mut page::Metric<'_>,
    name: &str,
    counters: &metrics::ByLabel<L, Counter>,
) -> fmt::Result {
    for (label, counter) in counters.iter() {
        metric.count(&[("backend", name), (L::NAME, label.as_str())], counter.get())?;
    }
    Ok(())
}

fn of_runs(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let counted = runs.metrics();
    page.gauge("runs_driven", "Runs that are driven now", count(runs.driven()))?;
    page.counter("runs_started", "Runs that the bridge began to drive", counted.started.get())?;
    page.by_label("runs_ended", "Runs that are not driven any more, by outcome", &counted.ended)?;
    page.counter(
        "run_stream_reconnects",
        "Streams of runs that broke and were opened again",
        counted.reconnects.get(),
    )?;
    // Read in this order: a stream that closes meanwhile was opened before, so the difference is
    // never negative.
    let closed = counted.app_streams_closed.get();
    let opened = counted.app_streams.get();
    let open = opened.saturating_sub(closed);
    page.gauge("app_streams_open", "Streams that apps read now", as_f64(open))?;
    page.counter("app_streams_opened", "Streams that apps have read", opened)?;
    page.counter(
        "app_streams_slow",
        "Streams that were closed because the app reads too slowly",
        counted.app_streams_slow.get(),
    )
}

fn posts(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let counted = runs.upstream().posts();
    page.by_label(
        "result_posts",
        "Attempts to post a result, by the status of the answer",
        &counted.answered,
    )?;
    page.counter(
        "result_post_retries",
        "Attempts after the first for a result",
        counted.retries.get(),
    )?;
    page.counter(
        "results_undelivered",
        "Results that MANTYX refused, or that could not be delivered",
        counted.failed.get(),
    )?;
    page.histogram(
        "result_post_wait_seconds",
        "Time that attempts waited for MANTYX's rate limit",
        &counted.held_back,
    )?;
    let Some(reachable) = runs.upstream().health().reachable else { return Ok(()) };
    let value = if reachable { 1.0 } else { 0.0 };
    page.gauge("upstream_reachable", "Whether MANTYX answered the last request", value)
}

fn of_requests(page: &mut Page<'_>, requests: &Requests) -> fmt::Result {
    let route = metrics::RouteKind::NAME;
    let mut metric = page.counters("requests", "Answered requests, by status")?;
    for (kind, counted) in requests.by_route.iter() {
        for (status, counter) in counted.answered.iter() {
            let labels = [(route, kind.as_str()), (metrics::Answered::NAME, status.as_str())];
            metric.count(&labels, counter.get())?;
        }
    }
    let mut metric =
        page.histograms("request_duration_seconds", "Time until the head of the answer")?;
    for (kind, counted) in requests.by_route.iter() {
        metric.times(&[(route, kind.as_str())], &counted.duration)?;
    }
    page.by_label("refused_requests", "Refused requests", &requests.refused)?;
    connections(page, &requests.connections)
}

fn connections(page: &mut Page<'_>, counted: &Connections) -> fmt::Result {
    let way = metrics::Way::NAME;
    let mut metric = page.counters("connections", "Accepted connections")?;
    for (kind, counted) in counted.by_way.iter() {
        metric.count(&[(way, kind.as_str())], counted.opened.get())?;
    }
    let mut metric = page.gauges("connections_open", "Open connections")?;
    for (kind, counted) in counted.by_way.iter() {
        // Read in this order: a connection that closes meanwhile was opened before.
        let closed = counted.closed.get();
        let open = counted.opened.get().saturating_sub(closed);
        metric.set(&[(way, kind.as_str())], as_f64(open))?;
    }
    let mut metric =
        page.counters("connections_evicted", "Unused connections that were closed for new ones")?;
    for (kind, counted) in counted.by_way.iter() {
        metric.count(&[(way, kind.as_str())], counted.evicted.get())?;
    }
    page.by_label(
        "tls_handshakes_failed",
        "Failed TLS handshakes, by reason",
        &counted.handshakes_failed,
    )
}

/// The expiry of the listeners' certificate, if they have one.
fn certificate(page: &mut Page<'_>, tls: Option<&Tls>) -> fmt::Result {
    let Some(tls) = tls else { return Ok(()) };
    let until = timestamp(tls.health().settings.facts.not_after);
    page.gauge("tls_certificate_end_timestamp_seconds", "Expiry of the certificate", until)
}

fn journal(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let health = runs.journal().health();
    let counted = runs.journal().metrics();
    page.gauge("journal_bytes", "Size of the journal's file", as_f64(health.bytes))?;
    let writable = if health.error.is_none() { 1.0 } else { 0.0 };
    page.gauge(
        "journal_writable",
        "0 while it cannot be written; no calls are made then",
        writable,
    )?;
    page.histogram(
        "journal_commit_duration_seconds",
        "Writes of the journal, fsync included",
        &counted.commits,
    )?;
    page.counter(
        "journal_errors",
        "Failed writes, and failed attempts to open the file again",
        counted.errors.get(),
    )
}

fn audit(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let Some(health) = runs.calls.audit.as_deref().map(Audit::health) else { return Ok(()) };
    page.counter("audit_lines", "Lines of the audit log on disk", health.written)?;
    page.counter(
        "audit_lines_lost",
        "Lines lost because the disk did not accept them in time",
        health.lost,
    )?;
    let writable = if health.error.is_none() { 1.0 } else { 0.0 };
    page.gauge("audit_writable", "0 while the audit log cannot be written", writable)
}

fn spans(page: &mut Page<'_>, runs: &Runs) -> fmt::Result {
    let Some(counted) = runs.traces().counted() else { return Ok(()) };
    page.counter("spans_exported", "Spans that the collector accepted", counted.exported.get())?;
    page.by_label("spans_dropped", "Spans that reached no collector", &counted.dropped)
}

fn of_process(page: &mut Page<'_>, started: Option<SystemTime>) -> fmt::Result {
    let started = started.map(timestamp);
    let resident = process::resident_bytes().map(as_f64);
    let fds = process::open_fds().map(count);
    let threads = process::threads().map(count);
    for (name, help, value) in [
        ("process_start_time_seconds", "Start of the process", started),
        ("process_resident_memory_bytes", "Resident memory", resident),
        ("process_open_fds", "Open file descriptors", fds),
        ("process_threads", "Threads", threads),
    ] {
        if let Some(value) = value {
            page.gauge(name, help, value)?;
        }
    }
    Ok(())
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
