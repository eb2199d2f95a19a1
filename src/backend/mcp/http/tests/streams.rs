//! The streams that are opened by GET.

use super::super::streams::{StreamKind, Streams};
use super::*;

/// The wait after a stream that lived this many milliseconds.
fn wait_after(streams: &mut Streams, kind: StreamKind, lived: u64) -> u128 {
    streams.opened(kind);
    streams.ended(kind);
    streams.next_wait(kind, Instant::now() + Duration::from_millis(lived)).as_millis()
}

#[tokio::test(start_paused = true)]
async fn stream_that_ends_soon_is_asked_for_less_and_less() {
    let mut streams = Streams::default();
    let kind = StreamKind::Standing;
    assert_eq!(streams.next_wait(kind, Instant::now()), Duration::ZERO, "the first one");
    let waits: Vec<_> = (0..3).map(|_| wait_after(&mut streams, kind, 0)).collect();
    assert!(waits[0] <= 250 && waits[1] <= 500 && (450..=1000).contains(&waits[2]), "{waits:?}");
    assert!(wait_after(&mut streams, kind, 6000) <= 250);
    let waits: Vec<_> = (0..100).map(|_| wait_after(&mut streams, kind, 0)).collect();
    assert!(waits.iter().skip(20).all(|wait| (120_000..=300_000).contains(wait)), "{waits:?}");
    let resumed: Vec<_> =
        (0..100).map(|_| wait_after(&mut streams, StreamKind::Resumed, 0)).collect();
    assert!(resumed[0] <= 250, "an answer does not wait as the standing stream does: {resumed:?}");
    assert!(resumed.iter().all(|wait| *wait <= 5000), "{resumed:?}");
}

#[tokio::test(start_paused = true)]
async fn server_counts_as_gone_only_if_it_was_there() {
    let mut streams = Streams::default();
    let kind = StreamKind::Standing;
    assert!((0..20).all(|_| !streams.failed(kind)));
    streams.opened(kind);
    assert!((0..3).all(|_| !streams.failed(kind)));
    assert!(streams.failed(kind));
}

/// In ten seconds without a wait of the bridge's, there would be fifty.
#[tokio::test]
async fn standing_stream_that_ends_at_once_is_not_asked_for_five_times_a_second() {
    let server = server(|seen| {
        if seen.line.starts_with("GET") {
            return events(": nothing\n\n", 11);
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    let peer = dial(&server).await;
    let gets = || {
        let seen = server.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.line.starts_with("GET")).count()
    };
    let begun = Instant::now();
    let sixth = async {
        while gets() < 6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, hurried(|| gets() > 0, sixth)).await.expect("it is asked for again");
    // Five waits of 200 ms, and at least 0.45 of 0.25, 0.5, 1, 2 and 4 s.
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(call(&peer).await.unwrap(), text("hello"));
}

#[tokio::test]
async fn entry_that_does_not_listen_opens_no_stream() {
    let server = server(|seen| {
        if seen.line.starts_with("GET") {
            return endless("text/event-stream", ": hello\n\n");
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    let is_get = |seen: &Seen| seen.line.starts_with("GET");
    for listens in [false, true] {
        let peer = dialer_for(&server.url, listens).dial().await.unwrap();
        assert_eq!(call(&peer).await.unwrap(), text("hello"));
        let opened = async {
            while !server.seen.lock().unwrap().iter().any(is_get) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if listens {
            timeout(PATIENCE, opened).await.expect("a stream");
        }
        timeout(PATIENCE, peer.close()).await.expect("in time");
        assert_eq!(server.seen.lock().unwrap().iter().any(is_get), listens);
    }
}
