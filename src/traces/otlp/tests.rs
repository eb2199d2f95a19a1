//! When a batch is full, and what a stop leaves. What collectors do is in tests/it/otlp.rs.

use super::*;
use crate::traces::{Kind, Sampler};

const DELAY: Duration = Duration::from_secs(5);

/// An exporter with batches of 3, whose collector is nowhere.
fn exporter() -> (Traces, Exporter) {
    exporter_to("http://127.0.0.1:1")
}

fn exporter_to(collector: &str) -> (Traces, Exporter) {
    let look = |name: &str| {
        let value = match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => collector,
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" => "3",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let (settings, flaws) = ExportSettings::read(&look);
    assert!(flaws.is_empty());
    let (sender, queue) = mpsc::channel(16);
    let counted = Arc::<metrics::Spans>::default();
    let traces = Traces::new(Sampler::default(), sender, Arc::clone(&counted));
    (traces, Exporter::new(settings.unwrap(), queue, counted))
}

fn spans(traces: &Traces, count: usize) {
    let request = traces.request(None, "r");
    for _ in 1..count {
        drop(request.context.begin(Kind::Internal, "c"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_full_or_has_waited() {
    let (traces, mut exporter) = exporter();
    let stop = CancellationToken::new();
    let begun = Instant::now();
    spans(&traces, 4);
    assert!(exporter.collect(&stop).await);
    assert_eq!((exporter.batch.len(), begun.elapsed()), (3, Duration::ZERO), "full");
    exporter.batch.clear();
    assert!(exporter.collect(&stop).await);
    assert_eq!((exporter.batch.len(), begun.elapsed()), (1, DELAY), "it has waited");
    exporter.batch.clear();
    spans(&traces, 2);
    stop.cancel();
    assert!(!exporter.collect(&stop).await);
    assert_eq!((exporter.batch.len(), begun.elapsed()), (2, DELAY), "what is there at the stop");
    exporter.batch.clear();
    assert!(!exporter.collect(&stop).await);
    assert!(exporter.batch.is_empty());
}

#[tokio::test]
async fn a_stop_makes_one_attempt_and_ends() {
    let (traces, exporter) = exporter();
    let counted = Arc::clone(&exporter.counts);
    spans(&traces, 7);
    let stop = CancellationToken::new();
    stop.cancel();
    exporter.run(stop).await;
    assert_eq!(counted.dropped.of(Dropped::Undelivered).get(), 7, "none is forgotten");
    assert_eq!(counted.exported.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_two_seconds_for_a_collector_that_hangs() {
    // Connections are made, and nobody takes them.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (traces, exporter) = exporter_to(&format!("http://{}", listener.local_addr().unwrap()));
    let counted = Arc::clone(&exporter.counts);
    spans(&traces, 7);
    let (stop, begun) = (CancellationToken::new(), Instant::now());
    stop.cancel();
    exporter.run(stop).await;
    assert_eq!(begun.elapsed(), FLUSH_WITHIN);
    assert_eq!(counted.dropped.of(Dropped::Undelivered).get(), 7, "sent or not, none is forgotten");
}
