//! Exports spans over OTLP, as protobuf over HTTP: collects them into batches and posts these.
//!
//! Source: OpenTelemetry Protocol 1.x, "OTLP/HTTP". The environment variables are those of the
//! OpenTelemetry specification (`settings`).
//!
//! Must not: hold more than its queue and one batch, or make other parts wait for a collector.

pub(super) mod messages;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::OptionFuture;
use http::{StatusCode, header};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::settings::ExportSettings;
use super::{Look, Traces};
use crate::backoff::Backoff;
use crate::error_chain::error_chain;
use crate::metrics::Dropped;
use crate::{http_client, metrics};

/// How long one batch is tried, retries included; meanwhile the queue fills.
const DELIVER_WITHIN: Duration = Duration::from_secs(30);
/// How long exporting the remaining spans may take when the bridge stops.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// The least interval between log lines about lost spans.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Exports the spans that [`Traces`] have recorded.
#[derive(Debug)]
pub struct Exporter {
    settings: ExportSettings,
    resource: messages::Resource,
    http: http_client::Client,
    queue: mpsc::Receiver<messages::Span>,
    /// The present batch; at most `settings.batch` spans.
    batch: Vec<messages::Span>,
    counts: Arc<metrics::Spans>,
    /// The time of the last log line about lost spans.
    told: Option<Instant>,
}

/// Starts exporting spans, if the environment asks for it.
pub fn start(look: Look<'_>) -> Option<(Traces, Exporter)> {
    let (settings, flaws) = ExportSettings::read(look);
    for flaw in flaws {
        warn!("{flaw}");
    }
    let settings = settings?;
    info!(collector = settings.shown(), "spans are exported");
    let (sender, queue) = mpsc::channel(settings.queue);
    let counts = Arc::<metrics::Spans>::default();
    let traces = Traces::new(settings.sampler, sender, Arc::clone(&counts));
    Some((traces, Exporter::new(settings, queue, counts)))
}

impl Exporter {
    fn new(
        settings: ExportSettings,
        queue: mpsc::Receiver<messages::Span>,
        counts: Arc<metrics::Spans>,
    ) -> Self {
        Self {
            resource: messages::Resource::new(&settings.resource),
            settings,
            http: http_client::new(),
            queue,
            batch: Vec::new(),
            counts,
            told: None,
        }
    }

    /// Exports until `stop` is cancelled, and then the remaining spans.
    pub async fn run(mut self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            sleep(FLUSH_WITHIN).await;
        };
        tokio::select! {
            () = self.export(&stop) => return,
            () = late => (),
        }
        let remaining = self.batch.len() + self.queue.len();
        self.lost(Dropped::Undelivered, remaining);
        warn!(spans = remaining, "the collector took too long; the last spans are lost");
    }

    /// Exports batch after batch; ends when `stop` is cancelled and no span is left.
    async fn export(&mut self, stop: &CancellationToken) {
        loop {
            let goes_on = self.collect(stop).await;
            if !self.batch.is_empty() {
                let outcome = self.deliver(stop).await;
                self.note(outcome);
            } else if !goes_on {
                return;
            }
        }
    }

    /// Fills the batch until it is full, or its first span has waited long enough. `false`: no more
    /// spans will come.
    async fn collect(&mut self, stop: &CancellationToken) -> bool {
        let mut until = None;
        while self.batch.len() < self.settings.batch {
            let batch_end = OptionFuture::from(until.map(sleep_until));
            tokio::select! {
                biased;
                span = self.queue.recv() => match span {
                    Some(span) => self.batch.push(span),
                    None => return false,
                },
                () = stop.cancelled() => return false,
                Some(()) = batch_end => break,
            }
            until.get_or_insert_with(|| Instant::now() + self.settings.delay);
        }
        true
    }

    /// Posts the batch, with retries until [`DELIVER_WITHIN`]. When the bridge stops, there is only
    /// one attempt.
    async fn deliver(&self, stop: &CancellationToken) -> Result<(), (Dropped, String)> {
        let body = Bytes::from(messages::request(&self.resource, &self.batch));
        let deadline = Instant::now() + DELIVER_WITHIN;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        loop {
            let why = match timeout_at(deadline, self.post(body.clone())).await {
                Ok(Err((Dropped::Undelivered, why))) => why,
                Ok(outcome) => return outcome,
                Err(_elapsed) => "no answer in time".to_owned(),
            };
            let wait = backoff.next_wait();
            if stop.is_cancelled() || Instant::now() + wait >= deadline {
                return Err((Dropped::Undelivered, why));
            }
            debug!(why, "the collector did not take spans; trying again");
            stop.run_until_cancelled(sleep(wait)).await;
        }
    }

    /// Posts the batch once. If it is undelivered, a later attempt may succeed.
    async fn post(&self, body: Bytes) -> Result<(), (Dropped, String)> {
        let request = self
            .http
            .post(self.settings.endpoint.clone())
            .headers(self.settings.headers.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .timeout(self.settings.timeout)
            .body(body);
        // The error without its address, which may hold a password.
        let broken =
            |error: reqwest::Error| (Dropped::Undelivered, error_chain(&error.without_url()));
        let response = self.http.send(request).await.map_err(broken)?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let why = format!("it answered {status}");
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => (Dropped::Undelivered, why),
            _ => (Dropped::Refused, why),
        })
    }

    /// Counts the outcome of the batch, and logs lost spans.
    fn note(&mut self, outcome: Result<(), (Dropped, String)>) {
        let spans = self.batch.len();
        self.batch.clear();
        let Err((dropped, why)) = outcome else {
            self.counts.exported.inc_by(as_u64(spans));
            return;
        };
        self.lost(dropped, spans);
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            let lost: u64 = self.counts.dropped.iter().map(|(_, counter)| counter.get()).sum();
            let collector = self.settings.shown();
            warn!(collector, why, lost, "spans did not reach the collector");
        }
    }

    fn lost(&self, why: Dropped, spans: usize) {
        self.counts.dropped.of(why).inc_by(as_u64(spans));
    }
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
