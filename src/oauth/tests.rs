//! When tokens are fetched, in paused time, with an issuer that does what a test says.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::time::{advance, sleep};

use super::*;

const MARGIN: Duration = Duration::from_secs(60);

type Script = dyn Fn(usize) -> Result<Option<u64>, bool> + Send + Sync;

/// Numbers its tokens from 1, and takes a second for each.
struct Fake {
    issued: Arc<AtomicUsize>,
    /// The lifetime of the token with this number in seconds; or a failure, and whether it passes.
    script: Box<Script>,
    ready: bool,
    /// How long it wants to be left alone after a failure.
    after: Option<Duration>,
    seen: Arc<Mutex<Vec<Option<String>>>>,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Issue for Fake {
    /// Where the metadata is.
    type Hint = String;

    fn hint(response: &reqwest::Response) -> String {
        response.headers()["x-metadata"].to_str().unwrap().to_owned()
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    async fn issue(&self, hint: Option<&String>) -> IssueResult<Issued> {
        let number = self.issued.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.lock().push(hint.cloned());
        sleep(Duration::from_secs(1)).await;
        let lifetime = (self.script)(number).map_err(|passes| {
            let failure = IssueError::passing(format!("failure {number}"));
            IssueError { passes, after: self.after, ..failure }
        })?;
        let mut value = HeaderValue::from_str(&format!("Bearer t{number}")).unwrap();
        value.set_sensitive(true);
        Ok(Issued { value, lifetime: lifetime.map(Duration::from_secs) })
    }
}

/// Tokens, and how many were asked for.
fn tokens(
    script: impl Fn(usize) -> Result<Option<u64>, bool> + Send + Sync + 'static,
) -> (Arc<Tokens<Fake>>, Arc<AtomicUsize>) {
    let issued = Arc::new(AtomicUsize::new(0));
    let seen = Arc::default();
    let fake =
        Fake { issued: issued.clone(), script: Box::new(script), ready: true, after: None, seen };
    (Tokens::new(BackendName::parse("b").ok(), fake, MARGIN, TaskTracker::new()), issued)
}

fn response(status: u16) -> reqwest::Response {
    let response = http::Response::builder().status(status).header("x-metadata", "https://rs/meta");
    response.body("").unwrap().into()
}

/// Makes a request of a backend that answers a token with this status; gives the status, and the
/// tokens that it saw.
async fn request(
    tokens: &Arc<Tokens<Fake>>,
    status: impl Fn(&str) -> u16,
) -> (Result<u16, TokenError>, Vec<String>) {
    let seen = Mutex::new(Vec::new());
    let answer = Tokens::authorize(Some(tokens), HeaderMap::new(), async |headers: HeaderMap| {
        let token = headers.get(AUTHORIZATION).map_or("", |value| value.to_str().unwrap());
        seen.lock().push(token.to_owned());
        sleep(Duration::from_millis(10)).await;
        Ok::<_, TokenError>(response(status(token)))
    });
    let answer = answer.await.map(|response| response.status().as_u16());
    (answer, seen.into_inner())
}

async fn used(tokens: &Arc<Tokens<Fake>>) -> String {
    let (answer, seen) = request(tokens, |_| 200).await;
    assert_eq!(answer.unwrap(), 200);
    let [token] = seen.as_slice() else { panic!("{seen:?}") };
    token.clone()
}

fn count(issued: &AtomicUsize) -> usize {
    issued.load(Ordering::SeqCst)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn many_requests_fetch_one_token() {
    let (tokens, issued) = tokens(|_| Ok(None));
    for token in join_all((0..50).map(|_| used(&tokens))).await {
        assert_eq!(token, "Bearer t1");
    }
    advance(secs(10 * 365 * 24 * 3600)).await;
    assert_eq!(used(&tokens).await, "Bearer t1", "no end was named");
    assert_eq!(count(&issued), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires() {
    for (lifetime, renewed) in [(100, 80), (3600, 3540), (10, 8)] {
        let (tokens, issued) = tokens(move |_| Ok(Some(lifetime)));
        assert_eq!(used(&tokens).await, "Bearer t1");
        advance(secs(renewed) - Duration::from_millis(20)).await;
        assert_eq!(used(&tokens).await, "Bearer t1", "{lifetime}");
        advance(Duration::from_millis(20)).await;
        assert_eq!(used(&tokens).await, "Bearer t2", "{lifetime}");
        assert_eq!(count(&issued), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_renewed_is_used_to_its_end() {
    let (tokens, issued) = tokens(|number| if number == 1 { Ok(Some(1000)) } else { Err(true) });
    assert_eq!(used(&tokens).await, "Bearer t1");
    advance(secs(940)).await;
    let mut requests = 0;
    while tokens.state.lock().token.as_ref().unwrap().expires.unwrap() > Instant::now() + secs(2) {
        assert_eq!(used(&tokens).await, "Bearer t1");
        advance(Duration::from_millis(100)).await;
        requests += 1;
    }
    assert!(requests > 100 && count(&issued) < 40, "{requests} {}", count(&issued));
    advance(secs(2)).await;
    let (answer, seen) = request(&tokens, |_| 200).await;
    assert!(matches!(answer, Err(TokenError::NoToken(_))), "{answer:?}");
    assert!(seen.is_empty(), "nothing is sent without a token");
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_replaced_once_and_the_request_made_again() {
    let (tokens, issued) = tokens(|_| Ok(Some(3600)));
    let revoked = |token: &str| if token == "Bearer t1" { 401 } else { 200 };
    let (answer, seen) = request(&tokens, revoked).await;
    assert_eq!((answer.unwrap(), seen), (200, vec!["Bearer t1".into(), "Bearer t2".into()]));
    assert_eq!(used(&tokens).await, "Bearer t2");
    assert_eq!(count(&issued), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_together_share_the_new_token() {
    let (tokens, issued) = tokens(|_| Ok(Some(3600)));
    used(&tokens).await;
    let revoked = |token: &str| if token == "Bearer t1" { 401 } else { 200 };
    for (answer, seen) in join_all((0..20).map(|_| request(&tokens, revoked))).await {
        assert_eq!((answer.unwrap(), seen.len()), (200, 2));
    }
    assert_eq!(count(&issued), 2);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_refuses_every_token_makes_no_loop() {
    let (tokens, issued) = tokens(|_| Ok(Some(3600)));
    let mut sent = 0;
    for _ in 0..100 {
        let (answer, seen) = request(&tokens, |_| 401).await;
        assert!(matches!(answer, Err(TokenError::Refused)), "{answer:?}");
        sent += seen.len();
        advance(secs(3)).await;
    }
    // Five minutes: the first token, and one a minute.
    assert!(count(&issued) <= 1 + 6, "{}", count(&issued));
    assert!(sent <= 100 + 6, "{sent}");
    assert_eq!(
        used(&tokens).await,
        format!("Bearer t{}", count(&issued)),
        "it may change its mind"
    );
}

#[tokio::test(start_paused = true)]
async fn other_refusals_are_the_answer() {
    let (tokens, issued) = tokens(|_| Ok(None));
    for status in [200, 403, 404, 500] {
        let (answer, seen) = request(&tokens, |_| status).await;
        assert_eq!((answer.unwrap(), seen.len()), (status, 1));
    }
    assert_eq!(count(&issued), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_stands_for_a_while() {
    // One that a person has to see to is asked about once a minute, one that passes more often.
    struct Case {
        passes: bool,
        least: usize,
        most: usize,
    }
    for Case { passes, least, most } in
        [Case { passes: false, least: 9, most: 11 }, Case { passes: true, least: 15, most: 60 }]
    {
        let (tokens, issued) = tokens(move |_| Err(passes));
        let start = Instant::now();
        while start.elapsed() < secs(600) {
            let (answer, seen) = request(&tokens, |_| 200).await;
            assert!(matches!(&answer, Err(TokenError::NoToken(why)) if why.contains("failure")));
            assert!(seen.is_empty());
            advance(Duration::from_millis(100)).await;
        }
        let asked = count(&issued);
        assert!((least..=most).contains(&asked), "{passes}: {asked}");
    }
}

/// The issuer has answered, and may have replaced what it was asked with.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_loses_no_token() {
    let (tokens, issued) = tokens(|_| Ok(None));
    let dropped = tokio::time::timeout(Duration::from_millis(500), used(&tokens)).await;
    assert!(dropped.is_err());
    let begin = Instant::now();
    assert_eq!(used(&tokens).await, "Bearer t1");
    assert!(begin.elapsed() < Duration::from_millis(600), "what was asked for is waited for");
    // The same where the peer has refused a token.
    let revoked = |token: &str| if token == "Bearer t1" { 401 } else { 200 };
    let dropped = tokio::time::timeout(Duration::from_millis(500), request(&tokens, revoked)).await;
    assert!(dropped.is_err());
    sleep(secs(1)).await;
    assert_eq!(used(&tokens).await, "Bearer t2");
    assert_eq!(count(&issued), 2);
    // Whoever stops can wait for it.
    advance(REFUSAL_PAUSE).await;
    let dropped = tokio::time::timeout(Duration::from_millis(500), request(&tokens, |_| 401)).await;
    assert!(dropped.is_err());
    tokens.exchanges.close();
    tokens.exchanges.wait().await;
    assert_eq!(tokens.state.lock().token.as_ref().unwrap().value, "Bearer t3");
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_panics_is_asked_again() {
    let (tokens, issued) = tokens(|number| {
        assert!(number > 1, "the test's issuer panics");
        Ok(None)
    });
    let (answer, _) = request(&tokens, |_| 200).await;
    assert!(matches!(answer, Err(TokenError::NoToken(_))), "{answer:?}");
    assert_eq!((used(&tokens).await, count(&issued)), ("Bearer t2".into(), 2));
}

/// Those who say so mean many things: that it is over at once, that they do not know, or that it
/// has no end.
#[tokio::test(start_paused = true)]
async fn lifetimes_of_nothing_make_no_storm() {
    for lifetime in [0, 1, 2] {
        // To the peer, a token is good for a second at least.
        for (name, lives) in [("what it says", Some(secs(lifetime.max(1)))), ("for ever", None)] {
            let (tokens, issued) = tokens(move |_| Ok(Some(lifetime)));
            let tokens = Arc::new(tokens);
            let begun = Mutex::new(std::collections::HashMap::new());
            let is_good = |token: &str| {
                let now = Instant::now();
                let first = *begun.lock().entry(token.to_owned()).or_insert(now);
                if lives.is_none_or(|lives| now < first + lives) { 200 } else { 401 }
            };
            let start = Instant::now();
            let requests = async {
                let mut answered = 0;
                while start.elapsed() < secs(60) {
                    let several = join_all((0..5).map(|_| request(&tokens, is_good))).await;
                    assert!(several.iter().all(|(answer, _)| *answer.as_ref().unwrap() == 200));
                    answered += several.len();
                    sleep(Duration::from_millis(50)).await;
                }
                answered
            };
            let keeper = Arc::clone(&tokens);
            let answered = tokio::select! {
                answered = requests => answered,
                () = keeper.keep_fresh() => unreachable!("it never ends"),
            };
            assert!(answered > 50, "{lifetime} {name}: {answered}");
            assert!(count(&issued) <= 12, "{lifetime} {name}: {}", count(&issued));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backend_without_a_known_issuer_is_asked_without_a_token() {
    let issued = Arc::new(AtomicUsize::new(0));
    let seen = Arc::default();
    let fake = Fake {
        issued: issued.clone(),
        script: Box::new(|_| Ok(None)),
        ready: false,
        after: None,
        seen: Arc::clone(&seen),
    };
    let tokens = Tokens::new(BackendName::parse("b").ok(), fake, MARGIN, TaskTracker::new());
    let (answer, sent) = request(&tokens, |_| 200).await;
    assert_eq!((answer.unwrap(), sent), (200, vec![String::new()]), "one that wants none");
    let wants = |token: &str| if token.is_empty() { 401 } else { 200 };
    let (answer, sent) = request(&tokens, wants).await;
    assert_eq!((answer.unwrap(), sent), (200, vec![String::new(), "Bearer t1".into()]));
    assert_eq!(*seen.lock(), [Some("https://rs/meta".to_owned())]);
    // That was no refusal of a token: the next one is replaced at once.
    let (answer, _) = request(&tokens, |token| if token == "Bearer t2" { 200 } else { 401 }).await;
    assert_eq!((answer.unwrap(), count(&issued)), (200, 2));
}

/// Five minutes before their end, as agent-runs-protocol §2.2 wants it, and without a request.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_kept_fresh_is_renewed_before_anybody_asks() {
    let (mut tokens, issued) = tokens(|_| Ok(Some(3600)));
    Arc::get_mut(&mut tokens).unwrap().margin = secs(300);
    let tokens = Arc::new(tokens);
    let keeper = Arc::clone(&tokens);
    let keeping =
        async move { tokio::time::timeout(secs(3 * 3300 + 10), keeper.keep_fresh()).await };
    let looking = async {
        sleep(secs(2)).await;
        assert_eq!(count(&issued), 1, "before the first request");
        sleep(secs(3298)).await;
        assert_eq!(count(&issued), 1);
        // It is being renewed, which takes a second, and the old one is still good.
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(count(&issued), 2);
        let begin = Instant::now();
        assert_eq!(used(&tokens).await, "Bearer t1");
        assert!(begin.elapsed() < Duration::from_millis(100), "nobody waits for a renewal");
    };
    let (kept, ()) = tokio::join!(keeping, looking);
    assert!(kept.is_err(), "it never ends");
    assert_eq!(count(&issued), 4);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_wants_to_be_left_alone_is() {
    struct Case {
        after: Option<Duration>,
        least: usize,
        most: usize,
    }
    for Case { after, least, most } in [
        Case { after: None, least: 8, most: 60 },
        Case { after: Some(secs(100)), least: 3, most: 3 },
    ] {
        let (mut tokens, issued) = tokens(|_| Err(true));
        Arc::get_mut(&mut tokens).unwrap().issuer.after = after;
        let within = tokio::time::timeout(secs(250), tokens.keep_fresh()).await;
        assert!(within.is_err(), "it never ends");
        assert!((least..=most).contains(&count(&issued)), "{after:?}: {}", count(&issued));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_never_shown() {
    let (tokens, _) = tokens(|_| Ok(None));
    assert_eq!(used(&tokens).await, "Bearer t1");
    assert!(!format!("{tokens:?}").contains("t1"), "{tokens:?}");
}
