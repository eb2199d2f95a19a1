//! Exports spans over OTLP, as protobuf over HTTP: collects them into batches and posts these.
//!
//! Source: OpenTelemetry Protocol 1.x, "OTLP/HTTP". The environment variables are those of the
//! OpenTelemetry specification (`settings`).
//!
//! Must not: hold more than its queue and one batch, or make other parts wait for a collector.

mod messages;
mod settings;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::future::OptionFuture;
use http::{StatusCode, header};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::settings::ExportSettings;
use super::{Finished, Look, Traces};
use crate::{
    backoff::Backoff,
    error_chain::error_chain,
    http_client,
    metrics::{self, Dropped},
};

/// How long one batch is tried, retries included; meanwhile the queue fills.
const DELIVER_WITHIN: Duration = Duration::from_secs(30);
/// How long exporting the remaining spans may take when the bridge stops.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// The least interval between log lines about lost spans.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// The most bytes that are read of a collector's answer.
const MAX_REPLY: usize = 64 << 10;

/// Exports the spans that [`Traces`] have recorded.
#[derive(Debug)]
pub struct Exporter {
    settings: ExportSettings,
    resource: messages::Resource,
    http: http_client::Client,
    queue: mpsc::Receiver<Finished>,
    /// The present batch; at most `settings.batch` spans.
    batch: Vec<Finished>,
    counted: Arc<metrics::Spans>,
    trouble: Trouble,
}

/// The last log line about lost spans.
#[derive(Debug, Default)]
struct Trouble {
    /// Its time.
    told: Option<Instant>,
    /// How many spans were lost by then.
    lost: u64,
}

/// Why a batch was not delivered.
#[derive(Debug)]
enum ExportError {
    /// A later attempt may succeed, after at least this time.
    Passing(String, Duration),
    Final(String),
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
    let counted = Arc::<metrics::Spans>::default();
    let traces = Traces::new(settings.sampler, sender, Arc::clone(&counted));
    Some((traces, Exporter::new(settings, queue, counted)))
}

impl Exporter {
    fn new(
        settings: ExportSettings,
        queue: mpsc::Receiver<Finished>,
        counted: Arc<metrics::Spans>,
    ) -> Self {
        Self {
            resource: messages::Resource::of(&settings.resource),
            settings,
            http: http_client::new(),
            queue,
            batch: Vec::new(),
            counted,
            trouble: Trouble::default(),
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
        let left = self.batch.len() + self.queue.len();
        self.lost(Dropped::Undelivered, left);
        warn!(spans = left, "the collector took too long; the last spans are lost");
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
            let waited = OptionFuture::from(until.map(sleep_until));
            tokio::select! {
                biased;
                span = self.queue.recv() => match span {
                    Some(span) => self.batch.push(span),
                    None => return false,
                },
                () = stop.cancelled() => return false,
                Some(()) = waited => break,
            }
            until.get_or_insert_with(|| Instant::now() + self.settings.delay);
        }
        true
    }

    /// Posts the batch, with retries until [`DELIVER_WITHIN`]. When the bridge stops, there is only
    /// one attempt.
    async fn deliver(&self, stop: &CancellationToken) -> Result<u64, (Dropped, String)> {
        let body = Bytes::from(messages::request(&self.resource, &self.batch));
        let deadline = Instant::now() + DELIVER_WITHIN;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        loop {
            let sent = timeout_at(deadline, self.post(body.clone())).await;
            let (why, pause) = match sent {
                Ok(Ok(rejected)) => return Ok(rejected),
                Ok(Err(ExportError::Final(why))) => return Err((Dropped::Refused, why)),
                Ok(Err(ExportError::Passing(why, pause))) => (why, pause),
                Err(_elapsed) => ("no answer in time".to_owned(), Duration::ZERO),
            };
            let wait = backoff.next_wait().max(pause);
            if stop.is_cancelled() || Instant::now() + wait >= deadline {
                return Err((Dropped::Undelivered, why));
            }
            debug!(why, "the collector did not take spans; trying again");
            stop.run_until_cancelled(sleep(wait)).await;
        }
    }

    /// Posts the batch once; returns how many of its spans the collector rejected.
    async fn post(&self, body: Bytes) -> Result<u64, ExportError> {
        let request = self
            .http
            .post(self.settings.endpoint.clone())
            .headers(self.settings.headers.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .timeout(self.settings.timeout)
            .body(body);
        // The error without its address, which may hold a password.
        let broken = |error: reqwest::Error| {
            ExportError::Passing(error_chain(&error.without_url()), Duration::ZERO)
        };
        let response = self.http.send(request).await.map_err(broken)?;
        let status = response.status();
        if status.is_success() {
            let reply = http_client::body_up_to(response, MAX_REPLY).await;
            let (reply, _) =
                reply.map_err(|error| ExportError::Passing(error_chain(&error), Duration::ZERO))?;
            return Ok(messages::rejected(&reply));
        }
        let why = format!("it answered {status}");
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => ExportError::Passing(why, retry_after(&response)),
            _ => ExportError::Final(why),
        })
    }

    /// Counts the outcome of the batch, and logs lost spans.
    fn note(&mut self, outcome: Result<u64, (Dropped, String)>) {
        let spans = self.batch.len();
        self.batch.clear();
        let why = match outcome {
            Ok(rejected) => {
                let rejected = usize::try_from(rejected).unwrap_or(spans).min(spans);
                self.lost(Dropped::Refused, rejected);
                self.counted.exported.inc_by(as_u64(spans - rejected));
                (rejected > 0).then(|| "it rejected some of them".to_owned())
            }
            Err((dropped, why)) => {
                self.lost(dropped, spans);
                Some(why)
            }
        };
        let why = why.unwrap_or_else(|| "the queue was full".to_owned());
        if let Some(lost) = self.trouble.news(&self.counted, Instant::now()) {
            let collector = self.settings.shown();
            warn!(collector, why, lost, "spans did not reach the collector");
        }
    }

    fn lost(&self, why: Dropped, spans: usize) {
        self.counted.dropped.of(why).inc_by(as_u64(spans));
    }
}

impl Trouble {
    /// How many spans were lost since the last log line, if the next one is due.
    fn news(&mut self, counted: &metrics::Spans, now: Instant) -> Option<u64> {
        let all: u64 = counted.dropped.iter().map(|(_, counter)| counter.get()).sum();
        let lost = all - self.lost;
        if lost == 0 || self.told.is_some_and(|told| now < told + TELL_EVERY) {
            return None;
        }
        *self = Self { told: Some(now), lost: all };
        Some(lost)
    }
}

/// The pause that the collector asks for, if any.
fn retry_after(response: &reqwest::Response) -> Duration {
    let after = http_client::retry_after(response.headers(), SystemTime::now());
    after.unwrap_or_default().min(DELIVER_WITHIN)
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
