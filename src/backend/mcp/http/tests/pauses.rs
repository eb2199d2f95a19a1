//! Servers that ask for a pause.

use super::*;

/// A server that answers calls with `status`, and asks for half an hour.
async fn pausing(status: u16) -> Server {
    server(move |seen| {
        let refusal = || response(status, &[("retry-after", "1800")], "slow down");
        usual(seen, "s").unwrap_or_else(refusal)
    })
    .await
}

#[tokio::test]
async fn pause_that_a_server_asks_for_is_told_and_kept() {
    for (status, words, cure) in [
        (429, "HTTP 429", "lower the entry's `concurrency`"),
        (503, "HTTP 503", "the gateway before it"),
    ] {
        let server = pausing(status).await;
        let dialer = dialer_for(&server.url, false);
        let peer = dialer.dial().await.unwrap();
        for _ in 0..3 {
            let refused = call(&peer).await.unwrap_err();
            let CallError::Refused(why) = &refused else { panic!("{refused:?}") };
            assert!(why.contains(words) && why.contains("in 1800 s"), "{why}");
            assert!(why.contains("was not made"), "{why}");
        }
        timeout(PATIENCE, peer.changed()).await.expect("a refresh tells operators");
        let count = server.seen.lock().unwrap().len();
        assert_eq!(server.count("tools/call"), 1, "the others are answered without a request");

        let error = peer.resolve().await.unwrap_err();
        assert!(error.pause() > Duration::from_secs(1790), "{:?}", error.pause());
        assert!(error_chain(&error).contains("takes no requests until 20"), "{error}");
        assert!(error.own_cure().is_some_and(|text| text.contains(cure)), "{error:?}");
        let error = dialer.dial().await.unwrap_err();
        assert!(error.pause() > Duration::from_secs(1790), "{:?}", error.pause());
        assert!(error_chain(&error).contains(words), "{error}");
        assert_eq!(server.seen.lock().unwrap().len(), count, "nothing is sent in the pause");
    }
}

#[tokio::test]
async fn refusal_without_a_time_begins_no_pause() {
    let server =
        server(|seen| usual(seen, "s").unwrap_or_else(|| response(429, &[], "slow down"))).await;
    let peer = dial(&server).await;
    for _ in 0..2 {
        let refused = call(&peer).await.unwrap_err();
        let expected = CallError::Refused("HTTP 429 Too Many Requests".to_owned());
        assert_eq!(refused, expected);
    }
    assert_eq!(server.count("tools/call"), 2);
}
