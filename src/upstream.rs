//! MANTYX as the bridge sees it: where it is, whose credential goes there, and the requests that
//! the bridge makes itself (a run's stream, a tool's result).
//!
//! Must not: know backends, or let a credential out of [`Authority`].

mod authority;
mod grant;
mod line;
mod pacing;

use std::{
    collections::HashMap,
    error::Error as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{debug, error, warn};
use url::Url;

pub use self::authority::Authority;
use self::{line::Line, pacing::Told};
use crate::{
    backoff::Backoff,
    budget::{Budget, NoRoom},
    config::{App, Credential},
    http_client::{self, BodyError, Clients, Tls},
    metrics::{self, Answered},
    model::trace::Trace,
    oauth::{IssueError, TokenError},
    state::StateDir,
};

/// MANTYX's second header for a credential (agent-runs-protocol §2).
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What to do when what tokens are issued for has ended.
pub const LOG_IN_ANEW: &str = "Access was revoked, or the application is gone: log in anew, and put \
                               the refresh token that you are given where \
                               upstream.oauth.refresh_token refers to.";

/// The time over which posts that waited for the same moment are spread.
const PAUSE_JITTER: Duration = Duration::from_millis(500);
/// How long a short question to MANTYX may take.
const ASK_WITHIN: Duration = Duration::from_secs(15);
/// The largest answer to one; the snapshot of an eval has all its results.
const MAX_REPLY: usize = 64 << 20;
/// How long one attempt to post a result may take before it is made again.
const POST_ATTEMPT: Duration = Duration::from_secs(30);
/// Posts are held back for MANTYX's rate limit until so long before their deadline.
const LAST_CHANCE: Duration = Duration::from_secs(5);
/// The longest pause that is believed; MANTYX's limits are per minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// MANTYX.
#[derive(Debug)]
pub struct Upstream {
    base: Url,
    way: watch::Sender<Way>,
    /// `None`: each app's own goes through.
    own: watch::Sender<Option<Authority>>,
    /// Where a refresh token that replaces the configured one is kept.
    state: StateDir,
    health: watch::Sender<Health>,
    /// Until when MANTYX wants no more posts of a credential.
    pauses: Mutex<HashMap<[u8; 32], Instant>>,
    /// Where the posts of a credential wait.
    lines: Mutex<HashMap<[u8; 32], Arc<Line>>>,
    posts: metrics::Posts,
}

/// The clients of MANTYX's requests, and the TLS that they were made of.
#[derive(Debug, Clone)]
struct Way {
    clients: Clients,
    tls: Option<Tls>,
}

impl Way {
    fn to(base: &Url, tls: Option<Tls>) -> Self {
        let clients = Clients::of(Some(base), tls.as_ref(), http_client::new());
        Self { clients, tls }
    }
}

/// How the last exchange with MANTYX went.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// `None` before the first exchange.
    pub reachable: Option<bool>,
    pub last_error: Option<String>,
}

/// A path that cannot be asked for as it was written.
#[derive(Debug, thiserror::Error)]
#[error("the path would not reach MANTYX as it was written; send it in its normal form")]
pub struct OddPath;

/// A request brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    OddPath(#[from] OddPath),
    /// Of `upstream.oauth`. The text is for operators.
    #[error("MANTYX cannot be shown a token: {0}")]
    Token(#[from] TokenError),
    /// The token was refused, so that nothing was done, and there is another one now. The body was
    /// passed on as it came, and cannot be sent again.
    #[error("the token was renewed, and the request's body is gone")]
    NotTwice,
    #[error("MANTYX cannot be reached: {}", http_client::chain(.0))]
    Broken(reqwest::Error),
}

/// Something of MANTYX could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("MANTYX cannot be reached: {0}")]
    Unreachable(String),
    #[error("MANTYX answered the stream's request with {0}")]
    Status(StatusCode),
    #[error("MANTYX's answer is no event stream but {0:?}")]
    NotAStream(String),
    #[error("MANTYX's answer is larger than the bridge reads")]
    TooLarge,
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    OddPath(#[from] OddPath),
    #[error("MANTYX cannot be shown a token: {0}")]
    Token(TokenError),
}

/// How the posting of a result ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    Accepted,
    /// MANTYX does not want it any more: answered before, timed out, or the run has ended.
    Unwanted(StatusCode),
    /// It could not be delivered; the reason is in the log.
    Failed,
}

impl Posted {
    /// How it ended, in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unwanted(_) => "unwanted",
            Self::Failed => "failed",
        }
    }
}

impl Upstream {
    /// `credential` must be one that a header can carry; the configuration checks it.
    pub fn new(base: Url, tls: Option<Tls>, credential: &Credential, state: StateDir) -> Self {
        let way = Way::to(&base, tls);
        let own = Authority::of(credential, &way.clients, &state);
        Self {
            base,
            way: watch::Sender::new(way),
            own: watch::Sender::new(own),
            state,
            health: watch::Sender::default(),
            pauses: Mutex::default(),
            lines: Mutex::default(),
            posts: metrics::Posts::default(),
        }
    }

    /// What is counted of the posts of results.
    pub fn posts(&self) -> &metrics::Posts {
        &self.posts
    }

    /// Requests that are made from now on go this way, and carry this credential.
    pub fn set(&self, tls: Option<Tls>, credential: &Credential) {
        let same_way = !self.way.send_if_modified(|way| {
            let news = way.tls != tls;
            if news {
                *way = Way::to(&self.base, tls);
            }
            news
        });
        let clients = self.clients();
        self.own.send_if_modified(|own| {
            // A token that was issued goes on where the grant, and the way to it, are the same.
            let same = same_way && own.as_ref().is_some_and(|own| own.is_of(credential));
            if !same {
                *own = Authority::of(credential, &clients, &self.state);
            }
            !same
        });
    }

    fn clients(&self) -> Clients {
        self.way.borrow().clients.clone()
    }

    /// Keeps a token of `upstream.oauth` at hand. Never ends.
    pub async fn keep_authorized(&self) {
        let mut own = self.own.subscribe();
        loop {
            let now = own.borrow_and_update().clone();
            let fresh = async {
                match now.as_ref().and_then(Authority::tokens) {
                    Some(tokens) => tokens.keep_fresh().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = fresh => (),
                changed = own.changed() => changed.expect("the sender is in `self`"),
            }
        }
    }

    /// Why there is no token of `upstream.oauth`, or none that could be renewed.
    pub fn token_failure(&self) -> Option<IssueError> {
        self.own.borrow().as_ref()?.tokens()?.failure()
    }

    /// The bridge's own credential; `None` where callers bring theirs.
    pub fn own(&self) -> Option<Authority> {
        self.own.borrow().clone()
    }

    pub fn base(&self) -> &Url {
        &self.base
    }

    /// The credential for `app`; `None` where it brings its own.
    pub fn authority_of(&self, app: &App) -> Option<Authority> {
        match &app.credential {
            Some(credential) => Authority::of(credential, &self.clients(), &self.state),
            None => self.own(),
        }
    }

    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Notes whether MANTYX answered at all.
    pub fn note(&self, outcome: Result<(), &str>) {
        self.health.send_if_modified(|health| {
            let before = health.reachable;
            health.reachable = Some(outcome.is_ok());
            health.last_error = outcome.err().map(str::to_owned);
            before != health.reachable
        });
    }

    /// Sends a request to `path`, which is sent as it is or not at all. `fill` gives it what it has
    /// beside the credential: once more, where a token was refused that can be renewed.
    pub async fn send(
        &self,
        (method, path): (Method, &str),
        authority: &Authority,
        fill: impl Fn(reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, SendError>,
    ) -> Result<reqwest::Response, SendError> {
        let base = self.base.as_str().trim_end_matches('/');
        let whole = format!("{base}{path}");
        let url = Url::parse(&whole).map_err(|_unreadable| OddPath)?;
        if url.as_str() != whole {
            return Err(OddPath.into());
        }
        let client = self.way.borrow().clients.own().clone();
        let sent = authority.send(async |headers| {
            let request = client.request(method.clone(), url.clone()).headers(headers);
            let request = fill(request)?;
            let sent = if method.is_safe() {
                client.send_repeatable(request).await
            } else {
                client.send(request).await
            };
            sent.map_err(|error| SendError::Broken(error.without_url()))
        });
        let sent = sent.await;
        match &sent {
            Ok(_) => self.note(Ok(())),
            // What broke is the body that an app sends.
            Err(SendError::Broken(error)) if is_of_the_body(error) => {}
            Err(SendError::Broken(error)) => self.note(Err(&http_client::chain(error))),
            Err(SendError::OddPath(_) | SendError::Token(_) | SendError::NotTwice) => {}
        }
        sent
    }

    /// Opens the event stream at `path`, behind `last_seq`.
    pub async fn open_stream(
        &self,
        path: &str,
        last_seq: u64,
        authority: &Authority,
    ) -> Result<reqwest::Response, OpenError> {
        let resumed = format!("{path}?lastSeq={last_seq}");
        let path = if last_seq > 0 { &resumed } else { path };
        let response = self.send((Method::GET, path), authority, |request| {
            let request = request
                .header(header::ACCEPT, "text/event-stream")
                .header(header::CACHE_CONTROL, "no-store");
            Ok(if last_seq > 0 { request.header("last-event-id", last_seq) } else { request })
        });
        let response = response.await?;
        if response.status() != StatusCode::OK {
            return Err(OpenError::Status(response.status()));
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(OpenError::NotAStream(kind.to_owned()));
        }
        Ok(response)
    }

    /// Asks for the JSON at `path`; [`Self::text`] reads what comes.
    pub async fn ask(
        &self,
        path: &str,
        authority: &Authority,
    ) -> Result<reqwest::Response, OpenError> {
        let response = self.send((Method::GET, path), authority, |request| {
            Ok(request.header(header::ACCEPT, "application/json").timeout(ASK_WITHIN))
        });
        Ok(response.await?)
    }

    /// The whole of an answer that [`Self::ask`] gave.
    pub async fn text(&self, response: reqwest::Response) -> Result<Bytes, OpenError> {
        http_client::body(response, MAX_REPLY).await.map_err(|error| match error {
            BodyError::TooLarge { .. } => OpenError::TooLarge,
            BodyError::NoRoom(no_room) => OpenError::NoRoom(no_room),
            BodyError::Broken(error) => self.broken(error),
        })
    }

    fn broken(&self, error: reqwest::Error) -> OpenError {
        let error = http_client::chain(&error.without_url());
        self.note(Err(&error));
        OpenError::Unreachable(error)
    }

    /// Posts a tool's result, the same bytes again and again, until MANTYX has taken a stand or
    /// `deadline` has come (wire-protocol §5). `trace` goes along.
    pub async fn post_result(
        &self,
        path: &str,
        body: Bytes,
        (authority, trace): (&Authority, Option<Arc<Trace>>),
        deadline: Instant,
    ) -> Posted {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(trace) = trace {
            http_client::set_trace(&mut headers, &trace);
        }
        // It is held until MANTYX has it; meanwhile others wait for room.
        let mut held = Budget::of_process().hold();
        held.insist(body.len());
        let posted = self.post_until(path, (headers, body), authority, deadline).await;
        if posted == Posted::Failed {
            self.posts.failed.inc();
        }
        posted
    }

    async fn post_until(
        &self,
        path: &str,
        (headers, body): (HeaderMap, Bytes),
        authority: &Authority,
        deadline: Instant,
    ) -> Posted {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let line = self.line(authority);
        for attempt in 0_u64.. {
            let begun = Instant::now();
            let going = line.turn(deadline.checked_sub(LAST_CHANCE).unwrap_or(deadline)).await;
            if !self.pause_over(authority, deadline).await {
                error!(path, "a result could not be delivered: MANTYX wants no posts for too long");
                return Posted::Failed;
            }
            self.posts.held_back.observe(begun.elapsed());
            if attempt > 0 {
                self.posts.retries.inc();
            }
            let sent = self.send((Method::POST, path), authority, |request| {
                Ok(request.headers(headers.clone()).timeout(POST_ATTEMPT).body(body.clone()))
            });
            let sent = timeout_at(deadline, sent).await;
            let answered = match &sent {
                Ok(Ok(response)) => Answered::of(response.status()),
                Ok(Err(_)) | Err(_) => Answered::Nothing,
            };
            self.posts.answered.of(answered).inc();
            match sent {
                Ok(Ok(response)) => {
                    going.heard(Told::read(response.headers(), SystemTime::now()));
                    if let Some(posted) = verdict(response.status()) {
                        return told(path, response.status(), posted);
                    }
                    warn!(path, status = %response.status(), "a result was not taken; again");
                    let time = retry_after(response.headers(), SystemTime::now());
                    self.pause(authority, time);
                }
                Ok(Err(SendError::OddPath(odd))) => {
                    error!(path, "a result cannot be posted: {odd}");
                    return Posted::Failed;
                }
                // A token may be had again before the deadline.
                Ok(Err(error)) => {
                    drop(going);
                    warn!(path, %error, "a result did not get through; again");
                }
                Err(_elapsed) => drop(going),
            }
            let wait = backoff.next_wait();
            if Instant::now() + wait >= deadline {
                error!(path, "a result could not be delivered before its call timed out");
                return Posted::Failed;
            }
            sleep(wait).await;
        }
        Posted::Failed
    }
}

impl Upstream {
    /// Takes note of what MANTYX's answer to an app, whose credential `authority` is, tells of the
    /// rate limit for posts.
    pub fn overheard(&self, authority: &Authority, headers: &HeaderMap) {
        if headers.contains_key(pacing::BUCKET)
            && let Some(told) = Told::read(headers, SystemTime::now())
        {
            self.line(authority).overheard(told);
        }
    }

    /// Where posts of this credential wait.
    fn line(&self, authority: &Authority) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&authority.id) {
            return Arc::clone(line);
        }
        lines.retain(|_, line| Arc::strong_count(line) > 1 || !line.is_forgotten());
        Arc::clone(lines.entry(authority.id).or_insert_with(|| Arc::new(Line::new())))
    }

    /// Notes that MANTYX wants no more posts of this credential for `time`, whichever run they
    /// belong to: its limits are per credential (agent-runs-protocol §10).
    fn pause(&self, authority: &Authority, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.line(authority).refused(time);
        let now = Instant::now();
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.retain(|_, until| *until > now);
        let until = pauses.entry(authority.id).or_insert(now);
        *until = (*until).max(now + time);
    }

    fn paused_until(&self, authority: &Authority) -> Option<Instant> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).get(&authority.id).copied()
    }

    /// Waits out a pause, with a little jitter so that not all posts come at its end; `false` where
    /// it goes beyond `deadline`.
    async fn pause_over(&self, authority: &Authority, deadline: Instant) -> bool {
        loop {
            let until = self.paused_until(authority).filter(|until| *until > Instant::now());
            let Some(until) = until else { return true };
            if until >= deadline {
                return false;
            }
            sleep_until(until + PAUSE_JITTER.mul_f64(rand::random::<f64>())).await;
        }
    }
}

impl From<SendError> for OpenError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::OddPath(odd) => Self::OddPath(odd),
            SendError::Token(error) => Self::Token(error),
            SendError::Broken(error) => Self::Unreachable(http_client::chain(&error)),
            SendError::NotTwice => Self::Unreachable(error.to_string()),
        }
    }
}

/// Whether the request could not be sent because its body did not come.
fn is_of_the_body(error: &reqwest::Error) -> bool {
    let causes = std::iter::successors(error.source(), |error| (**error).source());
    causes.filter_map(|error| error.downcast_ref::<hyper::Error>()).any(hyper::Error::is_user)
}

/// What a status means for the posting; `None`: try again.
fn verdict(status: StatusCode) -> Option<Posted> {
    match status {
        // 200 in agent-runs-protocol §8, 204 in wire-protocol §5.
        _ if status.is_success() => Some(Posted::Accepted),
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => Some(Posted::Unwanted(status)),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => None,
        _ if status.is_server_error() => None,
        _ => Some(Posted::Failed),
    }
}

fn told(path: &str, status: StatusCode, posted: Posted) -> Posted {
    match posted {
        Posted::Accepted => debug!(path, %status, "a result was taken"),
        Posted::Unwanted(_) => debug!(path, %status, "a result was not wanted any more"),
        Posted::Failed => error!(path, %status, "MANTYX refused a result"),
    }
    posted
}

/// `Retry-After`, as far as it is believed; nothing where there is none.
fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Duration {
    http_client::retry_after(headers, wall).unwrap_or_default().min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
