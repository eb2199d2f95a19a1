//! `Retry-After`, and the rate limit of posts in paused time.

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};

use super::rate_limit::{LAST_CHANCE, RateLimiter};
use super::*;

#[test]
fn retry_after_in_seconds_or_as_a_date() {
    let wall = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    for (value, seconds) in [
        ("7", 7),
        (" 7 ", 7),
        ("Sun, 06 Nov 1994 08:49:44 GMT", 7),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0),
        ("soon", 0),
        ("-1", 0),
        ("86400", 60),
        ("Mon, 07 Nov 1994 08:49:37 GMT", 60),
    ] {
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
        assert_eq!(retry_after(&headers, wall), Duration::from_secs(seconds), "{value}");
    }
    assert_eq!(retry_after(&HeaderMap::new(), wall), Duration::ZERO);
}

#[tokio::test]
async fn a_body_that_breaks_off_says_nothing_of_mantyx() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let body = async { Err::<Bytes, _>(std::io::Error::other("the app is gone")) };
    let body = reqwest::Body::wrap_stream(futures_util::stream::once(body));
    let broken = http_client::new().post(&url).body(body).send().await.unwrap_err();
    assert!(is_of_the_body(&broken), "{broken:?}");
    drop(listener);
    let away = http_client::new().post(&url).body("{}").send().await.unwrap_err();
    assert!(!is_of_the_body(&away), "{away:?}");
}

/// What an answer tells: `left` of `limit`, for 10 s more.
fn told_of(limit: &str, left: &str) -> Option<AnnouncedBudget> {
    let pairs = [("limit", limit), ("remaining", left), ("reset", "10")];
    let headers = pairs.map(|(name, value)| {
        (format!("x-ratelimit-{name}").parse::<HeaderName>().unwrap(), value.parse().unwrap())
    });
    AnnouncedBudget::read(&HeaderMap::from_iter(headers), clock::now())
}

fn told(left: &str) -> Option<AnnouncedBudget> {
    told_of("20", left)
}

#[tokio::test(start_paused = true)]
async fn posts_wait_for_their_window_and_no_longer_than_they_can() {
    let limiter = RateLimiter::new();
    let begin = Instant::now();
    let far = begin + Duration::from_secs(280);
    limiter.acquire(far).await.note(told("3"));
    assert!(begin.elapsed().is_zero(), "the first goes at once");
    // Three in 11 s, and the rest when the window is over; one of them cannot wait so long.
    let urgent = async {
        drop(limiter.acquire(begin + Duration::from_secs(1) + LAST_CHANCE).await);
        begin.elapsed()
    };
    let wait = async || {
        drop(limiter.acquire(far).await);
        begin.elapsed()
    };
    let (waits, urgent) = tokio::join!(join_all((0..4).map(|_| wait())), urgent);
    assert_eq!(urgent, Duration::from_secs(1));
    assert!(waits.is_sorted() && waits[0] >= Duration::from_secs(2), "{waits:?}");
    assert!(waits[3] >= Duration::from_secs(11) && waits[3] < Duration::from_secs(12), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn post_that_waits_hears_of_a_new_rate_limit() {
    let limiter = RateLimiter::new();
    // Another limit, so that it is news what is left of it.
    let more = told_of("30", "29").unwrap();
    let begin = Instant::now();
    let far = begin + Duration::from_secs(280);
    limiter.acquire(far).await.note(told("0"));
    let (going, ()) = tokio::join!(limiter.acquire(far), async {
        sleep(Duration::from_secs(2)).await;
        limiter.note_of_app(more);
    });
    assert_eq!(begin.elapsed(), Duration::from_secs(2));
    drop(going);
    // A post that is dropped while it waits leaves its place.
    limiter.acquire(far).await.note(told("0"));
    assert!(
        timeout_at(Instant::now() + Duration::from_secs(1), limiter.acquire(far)).await.is_err()
    );
    limiter.note_of_app(more);
    drop(limiter.acquire(far).await);
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn no_post_goes_before_the_pause_that_mantyx_asked_for_is_over() {
    let limiter = RateLimiter::new();
    let begin = Instant::now();
    let far = begin + Duration::from_secs(280);
    let permit = limiter.acquire(far).await;
    limiter.refused(Duration::from_secs(30));
    // What others tell of the window does not shorten it.
    permit.note(told_of("30", "29"));
    // One that would be too late goes when its last chance comes: MANTYX may take it.
    drop(limiter.acquire(begin + Duration::from_secs(30)).await);
    assert_eq!(begin.elapsed(), Duration::from_secs(25));
    drop(limiter.acquire(begin + Duration::from_secs(36)).await);
    assert!(begin.elapsed() >= Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn each_credential_has_a_rate_limit_of_its_own() {
    let base = Url::parse("http://127.0.0.1:1").unwrap();
    let upstream =
        Upstream::new(base, None, &Credential::Passthrough, StateDir::new("/nowhere".into()));
    let [one, same, other] = ["a", "a", "b"].map(|key| UpstreamCredential::bearer(key).unwrap());
    assert!(Arc::ptr_eq(
        &upstream.rate_limits.limiter(one.id),
        &upstream.rate_limits.limiter(same.id)
    ));
    assert!(!Arc::ptr_eq(
        &upstream.rate_limits.limiter(one.id),
        &upstream.rate_limits.limiter(other.id)
    ));
}

#[tokio::test(start_paused = true)]
async fn results_share_a_connection_unless_they_are_large_or_it_has_just_failed() {
    let state = || StateDir::new("/nowhere".into());
    let at =
        |base| Upstream::new(Url::parse(base).unwrap(), None, &Credential::Passthrough, state());
    let upstream = at("https://127.0.0.1:1");
    let shares = |bytes, attempt| upstream.client_of_posts(bytes, attempt).1;
    assert!(shares(MAX_SHARED, 0));
    assert!(!shares(MAX_SHARED + 1, 0) && !shares(1, 1));
    upstream.shares_again_later();
    assert!(!shares(1, 0));
    tokio::time::advance(UNSHARED).await;
    assert!(shares(1, 0));
    assert!(!at("http://127.0.0.1:1").client_of_posts(1, 0).1, "it cannot speak HTTP/2");
}
