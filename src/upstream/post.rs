//! Posts the result of a call: the same bytes again and again, until MANTYX has accepted or refused
//! them, or the call's deadline has come (wire-protocol §5).
//!
//! Must not: know the content of a result, or the owner of its run.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, error, warn};

use super::rate_limit::AnnouncedBudget;
use super::{SendError, Upstream, UpstreamCredential, retry_after};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::metrics::AnswerClass;
use crate::model::Trace;
use crate::{clock, http_client};

/// How long one attempt may take before the next one: at most, and at least; in between, half of
/// the time that is left, so that there is a second one.
const POST_ATTEMPT: Duration = Duration::from_secs(30);
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);
/// The longest attempt on the connection that small results share; longer than `http_client` takes
/// to notice that it is dead.
const SHARED_ATTEMPT: Duration = Duration::from_secs(10);
/// The waits between attempts: the first, the longest, and the longest while MANTYX refuses the
/// credential. A refusal ends when a person replaces a key, and not by itself.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_REFUSED: Duration = Duration::from_secs(10);

/// A result to be posted.
#[derive(Debug, Clone)]
pub struct ResultPost<'a> {
    pub path: &'a str,
    pub body: Bytes,
    /// The trace that it belongs to.
    pub trace: Option<Arc<Trace>>,
    /// The time after which the result is of no use.
    pub deadline: Instant,
}

/// The credential of posts. Each attempt reads it again, as it may have been replaced.
pub trait PostCredential: Sync {
    fn now(&self) -> UpstreamCredential;

    /// MANTYX has refused the credential `shown`.
    fn refused(&self, shown: &UpstreamCredential);

    /// MANTYX has answered a post with the credential `shown`, and has not refused the credential.
    fn taken(&self, shown: &UpstreamCredential);

    /// Resolves when there is another credential than `shown`.
    fn wait_for_replacement(&self, shown: &UpstreamCredential) -> impl Future<Output = ()> + Send;
}

/// The outcome of posting a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    Accepted,
    /// MANTYX no longer wants the result: the call is answered or timed out, or the run has ended.
    Unwanted(StatusCode),
    /// MANTYX does not take these bytes from anyone: they are too many, or it cannot read them.
    Refused(StatusCode),
    /// It could not be delivered; the reason is in the log.
    Failed,
}

impl Posted {
    /// The outcome in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unwanted(_) => "unwanted",
            Self::Refused(_) => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What a status means for further attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ends(Posted),
    Again,
    /// Try again with another credential, or with the same one later, as MANTYX may accept it
    /// again.
    Unauthorized,
}

impl Upstream {
    /// Posts a tool's result until MANTYX has accepted or refused it, or its deadline has come.
    ///
    /// Every attempt has the same bytes. MANTYX takes the first post of a call, and after a lost
    /// answer the bridge cannot know whether that was this one: with other bytes, the model and the
    /// bridge's records could differ.
    pub async fn post_result(
        &self,
        post: ResultPost<'_>,
        credential: &impl PostCredential,
    ) -> Posted {
        // Counts the bytes even without room: the result must not be lost. Other bodies wait for
        // room meanwhile.
        let mut held = Budget::of_process().hold();
        held.insist(post.body.len());
        let outcome = self.post_until(&post, credential).await;
        if matches!(outcome, Posted::Failed | Posted::Refused(_)) {
            self.posts.failed.inc();
        }
        outcome
    }

    /// Attempts it again and again until an attempt ends it, or the deadline has come.
    ///
    /// Failures and refusals of the credential have waits of their own: a refusal ends when a
    /// person replaces a key, and must not make the first attempt after a network failure late. If
    /// another credential comes meanwhile, it is tried at once, as the deadline is near.
    async fn post_until(&self, post: &ResultPost<'_>, credential: &impl PostCredential) -> Posted {
        let ResultPost { path, deadline, .. } = *post;
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut refusals = Backoff::new(FIRST_WAIT, LONGEST_REFUSED);
        for attempt in 0_u64.. {
            let shown = credential.now();
            let verdict = self.attempt(post, attempt, &shown).await;
            let wait = match verdict {
                Verdict::Ends(posted) => {
                    if posted != Posted::Failed {
                        credential.taken(&shown);
                    }
                    return posted;
                }
                Verdict::Again => backoff.next_wait(),
                Verdict::Unauthorized => {
                    credential.refused(&shown);
                    refusals.next_wait()
                }
            };
            let next = Instant::now() + wait;
            tokio::select! {
                () = sleep_until(next.min(deadline)) => (),
                () = credential.wait_for_replacement(&shown), if verdict == Verdict::Unauthorized => (),
            }
            if Instant::now() >= deadline {
                error!(path, "a result could not be delivered before its call timed out");
                return Posted::Failed;
            }
        }
        Posted::Failed
    }

    /// One attempt, after a permit of the credential's rate limit.
    ///
    /// An attempt takes at most half of the remaining time, so that a second one is possible: a
    /// connection can be dead without a sign. A small result shares a connection with others on its
    /// first attempt only. If that connection has failed, the next posts have their own.
    async fn attempt(
        &self,
        post: &ResultPost<'_>,
        attempt: u64,
        shown: &UpstreamCredential,
    ) -> Verdict {
        let ResultPost { path, deadline, .. } = *post;
        let asked_at = Instant::now();
        let rate_limit = self.rate_limits.limiter(shown.id);
        let permit = rate_limit.acquire(deadline).await;
        self.posts.held_back.observe(asked_at.elapsed());
        if attempt > 0 {
            self.posts.retries.inc();
        }
        let mut headers = HeaderMap::new();
        if let Some(trace) = &post.trace {
            http_client::add_trace(&mut headers, trace);
        }
        let (client, is_shared) = self.client_of_posts(post.body.len(), attempt);
        let most = if is_shared { SHARED_ATTEMPT } else { POST_ATTEMPT };
        let half = deadline.saturating_duration_since(Instant::now()) / 2;
        let within = half.clamp(SHORTEST_ATTEMPT, most);
        let exchange = self.send_by(&client, (Method::POST, path), shown, |request| {
            Ok(request
                .header(header::CONTENT_TYPE, "application/json")
                .headers(headers.clone())
                .timeout(within)
                .body(post.body.clone()))
        });
        let outcome = timeout_at(deadline, exchange).await;
        let label = match &outcome {
            Ok(Ok(response)) => AnswerClass::from_status(response.status()),
            Ok(Err(_)) | Err(_) => AnswerClass::Nothing,
        };
        self.posts.answered.of(label).inc();
        if is_shared && outcome.as_ref().is_ok_and(Result::is_err) {
            self.shares_again_later();
        }
        match outcome {
            Ok(Ok(response)) => {
                let status = response.status();
                let now = clock::now();
                permit.note(AnnouncedBudget::read(response.headers(), now));
                let verdict = verdict(status);
                tell(path, status, verdict);
                if verdict == Verdict::Again {
                    rate_limit.refused(retry_after(response.headers(), now));
                }
                return verdict;
            }
            Ok(Err(odd @ SendError::OddPath)) => {
                error!(path, "a result cannot be posted: {odd}");
                return Verdict::Ends(Posted::Failed);
            }
            // The next exchange for a token may succeed before the deadline.
            Ok(Err(error)) => warn!(path, %error, "a result did not reach MANTYX; trying again"),
            Err(_elapsed) => {}
        }
        Verdict::Again
    }
}

/// What `status` means for the post. A status that says nothing of the result is tried again: if it
/// ended the post, a proxy that is restarted would cost the answer, and the run would wait until it
/// times out.
fn verdict(status: StatusCode) -> Verdict {
    match status {
        // 200 in agent-runs-protocol §8, 204 in wire-protocol §5.
        _ if status.is_success() => Verdict::Ends(Posted::Accepted),
        StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE => {
            Verdict::Ends(Posted::Unwanted(status))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Verdict::Unauthorized,
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Verdict::Ends(Posted::Refused(status)),
        _ => Verdict::Again,
    }
}

/// Logs what MANTYX has said. A refusal is an error, as an answer is lost; what MANTYX no longer
/// wants is none, as runs end while calls are made.
fn tell(path: &str, status: StatusCode, verdict: Verdict) {
    match verdict {
        Verdict::Ends(Posted::Accepted) => debug!(path, %status, "a result was taken"),
        Verdict::Ends(Posted::Unwanted(_)) => {
            debug!(path, %status, "a result was not wanted any more");
        }
        Verdict::Ends(Posted::Refused(_) | Posted::Failed) => {
            error!(path, %status, "MANTYX refused a result");
        }
        Verdict::Again => warn!(path, %status, "a result was not taken; trying again"),
        Verdict::Unauthorized => {
            warn!(path, %status, "MANTYX refused the credential of a result; trying again");
        }
    }
}

#[cfg(test)]
mod tests {
    //! What each status means, and which credential an attempt carries, against a server that
    //! answers as a test says.

    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use url::Url;

    use super::*;
    use crate::config::Credential;
    use crate::fake_http::{Agent, Reply, Seen};
    use crate::state_dir::StateDir;

    #[test]
    fn every_status_has_a_meaning() {
        for code in 200..600 {
            let status = StatusCode::from_u16(code).unwrap();
            let expected = match code {
                200..300 => Verdict::Ends(Posted::Accepted),
                404 | 409 | 410 => Verdict::Ends(Posted::Unwanted(status)),
                401 | 403 => Verdict::Unauthorized,
                400 | 413 | 415 | 422 => Verdict::Ends(Posted::Refused(status)),
                _ => Verdict::Again,
            };
            assert_eq!(verdict(status), expected, "{code}");
        }
    }

    /// The credential of a run, which a test replaces.
    struct Key {
        now: watch::Sender<String>,
        refused: Mutex<Vec<String>>,
    }

    impl Key {
        fn new(name: &str) -> Self {
            Self { now: watch::Sender::new(name.to_owned()), refused: Mutex::default() }
        }
    }

    impl PostCredential for Key {
        fn now(&self) -> UpstreamCredential {
            UpstreamCredential::bearer(&self.now.borrow()).unwrap()
        }

        fn refused(&self, _: &UpstreamCredential) {
            self.refused.lock().unwrap().push(self.now.borrow().clone());
        }

        fn taken(&self, _: &UpstreamCredential) {}

        async fn wait_for_replacement(&self, shown: &UpstreamCredential) {
            let other = |now: &String| !UpstreamCredential::bearer(now).unwrap().is_same(shown);
            self.now.subscribe().wait_for(other).await.unwrap();
        }
    }

    async fn posted(agent: &Agent, key: &Key, within: Duration) -> Posted {
        let state = StateDir::new("/nowhere".into());
        let base = Url::parse(agent.url.as_str()).unwrap();
        let upstream = Upstream::new(base, None, &Credential::Passthrough, state);
        let deadline = Instant::now() + within;
        let post = ResultPost { path: "/results", body: "{}".into(), trace: None, deadline };
        upstream.post_result(post, key).await
    }

    /// Takes what comes with the credential `good`; others get this status.
    async fn only(good: &'static str, status: u16) -> Agent {
        Agent::start(move |seen: &Seen| {
            let is_good = seen.header("authorization") == format!("Bearer {good}");
            Reply::status(if is_good { 200 } else { status })
        })
        .await
    }

    #[tokio::test]
    async fn a_refused_credential_is_replaced_by_the_next_one() {
        for status in [401, 403] {
            let agent = only("new", status).await;
            let key = Key::new("old");
            let (posted, ()) = tokio::join!(posted(&agent, &key, Duration::from_secs(60)), async {
                // So often that the next attempt would be far away.
                while key.refused.lock().unwrap().len() < 4 {
                    tokio::task::yield_now().await;
                }
                key.now.send_replace("new".to_owned());
            });
            assert_eq!(posted, Posted::Accepted);
            assert_eq!(*key.refused.lock().unwrap(), ["old"; 4]);
            let seen = agent.seen();
            assert!(seen.iter().all(|seen| seen.body == "{}"), "the same bytes: {seen:?}");
        }
    }

    #[tokio::test]
    async fn a_credential_that_is_good_again_is_enough() {
        let tries = Mutex::new(0);
        let agent = Agent::start(move |_: &Seen| {
            *tries.lock().unwrap() += 1;
            Reply::status(if *tries.lock().unwrap() < 4 { 401 } else { 200 })
        })
        .await;
        let posted = posted(&agent, &Key::new("rotated"), Duration::from_secs(60)).await;
        assert_eq!(posted, Posted::Accepted);
        assert_eq!(agent.seen().len(), 4);
    }

    #[tokio::test]
    async fn post_is_tried_to_the_deadline_and_no_longer() {
        let agent = only("none", 401).await;
        let begun = Instant::now();
        let posted = posted(&agent, &Key::new("old"), Duration::from_secs(2)).await;
        assert_eq!(posted, Posted::Failed);
        assert!(begun.elapsed() >= Duration::from_secs(2));
        assert!((3..8).contains(&agent.seen().len()), "{}", agent.seen().len());
    }

    #[tokio::test]
    async fn refused_result_is_told_at_once() {
        for status in [400, 413, 415, 422] {
            let agent = only("none", status).await;
            let posted = posted(&agent, &Key::new("a"), Duration::from_secs(60)).await;
            assert_eq!(posted, Posted::Refused(StatusCode::from_u16(status).unwrap()));
            assert_eq!(agent.seen().len(), 1);
        }
    }

    /// A redirection, or a connection that is not for MANTYX, says nothing of the result.
    #[tokio::test]
    async fn failure_that_is_not_of_the_result_is_tried_again() {
        for status in [307, 405, 421, 431] {
            let tries = Mutex::new(0);
            let agent = Agent::start(move |_: &Seen| {
                *tries.lock().unwrap() += 1;
                Reply::status(if *tries.lock().unwrap() < 2 { status } else { 200 })
            })
            .await;
            let posted = posted(&agent, &Key::new("a"), Duration::from_secs(60)).await;
            assert_eq!((posted, agent.seen().len()), (Posted::Accepted, 2), "{status}");
        }
    }

    /// A post without an answer takes no more than half of the time that is left.
    #[tokio::test]
    async fn a_silent_attempt_leaves_time_for_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let serving = async move {
            let (_silent, _) = listener.accept().await.unwrap();
            let (mut second, _) = listener.accept().await.unwrap();
            assert!(second.read(&mut [0; 1024]).await.unwrap() > 0);
            second.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            std::future::pending().await
        };
        let deadline = Instant::now() + Duration::from_secs(6);
        let post = ResultPost { path: "/results", body: "{}".into(), trace: None, deadline };
        let state = StateDir::new("/nowhere".into());
        let upstream = Upstream::new(base, None, &Credential::Passthrough, state);
        let posted = tokio::select! {
            posted = async { upstream.post_result(post, &Key::new("a")).await } => posted,
            never = serving => never,
        };
        assert_eq!(posted, Posted::Accepted);
    }
}
