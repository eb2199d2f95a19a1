//! MANTYX, seen from the bridge: its address, the credential that it gets, and the requests that
//! the bridge makes itself (a run's stream, a tool's result).
//!
//! Must not: know backends, or let a credential out of [`UpstreamCredential`].

mod credential;
mod post;
mod rate_limit;
mod refresh_token;
mod stored_token;
mod target;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::OptionFuture;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use url::Url;

pub use self::credential::UpstreamCredential;
pub use self::post::{PostCredential, Posted, ResultPost};
use self::rate_limit::{AnnouncedBudget, RateLimits};
use self::stored_token::StoredToken;
use crate::config::{App, Credential};
use crate::error_chain::{causes, error_chain};
use crate::http_client::{BodyError, Client, Clients, NotRead, Tls};
use crate::oauth::{IssueError, TokenError};
use crate::state_dir::StateDir;
use crate::{clock, http_client, metrics};

/// MANTYX's second header for a credential (agent-runs-protocol §2).
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The cure when the grant behind the tokens has ended.
pub const LOG_IN_AGAIN: &str = "Access was revoked, or the application is gone: log in again, and put \
                               the refresh token that you are given where \
                               upstream.oauth.refresh_token refers to.";

/// How long MANTYX may take to answer a short request.
const ASK_WITHIN: Duration = Duration::from_secs(15);
/// The largest answer to one, in bytes; the snapshot of an eval has all its results.
const MAX_REPLY: usize = 64 << 20;
/// The largest refusal that the bridge passes on, in bytes, and the time for reading it.
const MAX_REFUSAL: usize = 64 << 10;
const REFUSAL_WITHIN: Duration = Duration::from_secs(5);
/// How long a stop waits for an exchange with the token endpoint.
const FINISH_WITHIN: Duration = Duration::from_secs(10);
/// The longest `Retry-After` that the bridge obeys; MANTYX's limits are per minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The largest result that shares a connection, in bytes: HTTP/2's first window.
const MAX_SHARED: usize = 64 << 10;

/// For how long results do not share a connection after it has failed.
const UNSHARED: Duration = Duration::from_secs(60);

/// What stands in the journal for the address of the sandbox.
pub const SANDBOX: &str = "sandbox";

/// MANTYX, as all parts of the bridge reach it.
#[derive(Debug)]
pub struct Upstream {
    pub base: Url,
    /// Whether the sandbox stands in for MANTYX.
    is_sandbox: bool,
    way: Mutex<Way>,
    /// The bridge's own credential; `None` if each app brings one.
    own: watch::Sender<Option<UpstreamCredential>>,
    /// The refresh token that replaced the configured one.
    stored_token: Arc<StoredToken>,
    health: Mutex<Health>,
    rate_limits: RateLimits,
    /// Counters of posted results.
    pub posts: metrics::Posts,
}

/// The HTTP clients for MANTYX, and the TLS settings that they were built with.
#[derive(Debug, Clone)]
struct Way {
    clients: Clients,
    /// For small results; `None`: without TLS, there is no HTTP/2.
    shared: Option<Client>,
    /// Until when these have connections of their own, as the shared one has failed.
    unshared_until: Option<Instant>,
    tls: Option<Tls>,
}

impl Way {
    fn to(base: &Url, tls: Option<Tls>) -> Self {
        let clients = Clients::new(Some(base), tls.as_ref(), http_client::new());
        let shared = match base.scheme() {
            "https" => Some(http_client::sharing(tls.as_ref())),
            _ => None,
        };
        Self { clients, shared, unshared_until: None, tls }
    }
}

/// The result of the last exchange with MANTYX.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// `None` before the first exchange.
    pub reachable: Option<bool>,
    pub last_error: Option<String>,
}

/// A request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the path would not reach MANTYX as it was written; send it in its normal form")]
    OddPath,
    /// There is no token of `upstream.oauth`. The text is for operators.
    #[error("MANTYX cannot be shown a token: {0}")]
    Token(#[from] TokenError),
    /// MANTYX refused the token, so the request had no effect, and a new token is there now. The
    /// body was streamed, so the bridge cannot send it again.
    #[error("the token was renewed, and the request's body is gone")]
    NotTwice,
    #[error("MANTYX cannot be reached: {}", error_chain(.0))]
    Broken(reqwest::Error),
}

/// Data of MANTYX could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("MANTYX cannot be reached: {0}")]
    Unreachable(String),
    #[error("MANTYX answered the stream's request with {}", .0.status)]
    Refused(Box<StreamRefusal>),
    #[error("MANTYX's answer is no event stream but {0:?}")]
    NotAStream(String),
    #[error("MANTYX's answer is not read: {0}")]
    NotRead(NotRead),
    #[error(transparent)]
    Unsent(#[from] SendError),
}

/// MANTYX's answer, whose body is still to be read.
type Opened = Result<reqwest::Response, OpenError>;

/// MANTYX's refusal of a request for a stream.
#[derive(Debug)]
pub struct StreamRefusal {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `None` if it is too large to be passed on, there is no room for it, or it broke off.
    pub body: Option<Bytes>,
}

impl StreamRefusal {
    async fn read(response: reqwest::Response) -> Self {
        let status = response.status();
        let headers = response.headers().clone();
        let whole = http_client::body(response, MAX_REFUSAL);
        let body = timeout(REFUSAL_WITHIN, whole).await.ok().and_then(Result::ok);
        Self { status, headers, body }
    }

    /// The pause that MANTYX asks for, up to [`LONGEST_PAUSE`].
    pub fn retry_after(&self) -> Duration {
        retry_after(&self.headers, clock::now())
    }
}

impl OpenError {
    /// The status, if MANTYX sent one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// Whether a further attempt is useless until more than the network has changed: MANTYX has
    /// answered, or the bridge cannot send the request.
    pub fn is_answer(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable(_) | Self::Unsent(SendError::Broken(_) | SendError::NotTwice)
        )
    }

    /// Whether another credential may succeed.
    pub fn is_of_the_credential(&self) -> bool {
        matches!(self.status(), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}

impl Upstream {
    /// `credential` must fit into a header; the configuration checks this.
    pub fn new(base: Url, tls: Option<Tls>, credential: &Credential, state: StateDir) -> Self {
        let way = Way::to(&base, tls);
        let stored_token = StoredToken::new(state);
        let own = UpstreamCredential::configured(credential, &way.clients, &stored_token);
        Self {
            base,
            is_sandbox: false,
            way: Mutex::new(way),
            own: watch::Sender::new(own),
            stored_token,
            health: Mutex::default(),
            rate_limits: RateLimits::default(),
            posts: metrics::Posts::default(),
        }
    }

    /// Sets the TLS and the credential of all requests from now on.
    pub fn set(&self, tls: Option<Tls>, credential: &Credential) {
        let same_way = self.way.lock().tls == tls;
        if !same_way {
            *self.way.lock() = Way::to(&self.base, tls);
        }
        // An issued token stays in use if the grant and the TLS settings are the same.
        if !same_way || !self.own().is_some_and(|own| own.is_of(credential)) {
            let own =
                UpstreamCredential::configured(credential, &self.clients(), &self.stored_token);
            self.own.send_replace(own);
        }
    }

    fn clients(&self) -> Clients {
        self.way.lock().clients.clone()
    }

    /// The client for a result, and whether it shares its connection. A large result would delay
    /// the others there, as HTTP/2's window is one for all. What failed once has a connection of
    /// its own, too.
    fn client_of_posts(&self, bytes: usize, attempt: u64) -> (Client, bool) {
        let way = self.way.lock();
        let works = way.unshared_until.is_none_or(|until| until <= Instant::now());
        match &way.shared {
            Some(shared) if bytes <= MAX_SHARED && attempt == 0 && works => (shared.clone(), true),
            _ => (way.clients.own.clone(), false),
        }
    }

    /// Notes that the shared connection has failed, or has brought no answer for too long.
    fn shares_again_later(&self) {
        self.way.lock().unshared_until = Some(Instant::now() + UNSHARED);
    }

    /// Keeps a token of `upstream.oauth` ready. Never ends.
    pub async fn keep_authorized(&self) {
        let mut own = self.own.subscribe();
        loop {
            let now = own.borrow_and_update().clone();
            let tokens = now.as_ref().and_then(UpstreamCredential::tokens);
            let fresh = OptionFuture::from(tokens.map(|tokens| tokens.keep_fresh()));
            tokio::select! {
                Some(()) = fresh => (),
                changed = own.changed() => changed.expect("the sender is in `self`"),
            }
        }
    }

    /// Waits until every exchange with the token endpoint has ended, and its refresh token is on
    /// disk. A process that stops earlier may lose the only valid refresh token.
    pub async fn finish(&self) {
        self.stored_token.finish(FINISH_WITHIN).await;
    }

    /// Why there is no token of `upstream.oauth`, or why its renewal failed.
    pub fn token_failure(&self) -> Option<IssueError> {
        self.own.borrow().as_ref()?.tokens()?.failure()
    }

    /// The bridge's own credential; `None` if callers bring theirs.
    pub fn own(&self) -> Option<UpstreamCredential> {
        self.own.borrow().clone()
    }

    /// The credential for `app`; `None` if the app brings its own.
    pub fn credential_of(&self, app: &App) -> Option<UpstreamCredential> {
        match &app.credential {
            Some(credential) => {
                UpstreamCredential::configured(credential, &self.clients(), &self.stored_token)
            }
            None => self.own(),
        }
    }

    /// Marks that the sandbox stands in for MANTYX. The journal then forgets the runs of the last
    /// process: each sandbox ends with its own.
    pub fn in_sandbox(self) -> Self {
        Self { is_sandbox: true, ..self }
    }

    pub fn is_sandbox(&self) -> bool {
        self.is_sandbox
    }

    /// The name by which the journal tells one MANTYX from another. The sandbox has another address
    /// at each start.
    pub fn journal_name(&self) -> String {
        if self.is_sandbox { SANDBOX.to_owned() } else { self.base.to_string() }
    }

    pub fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Records whether MANTYX answered at all.
    pub fn note(&self, outcome: Result<(), &str>) {
        let last_error = outcome.err().map(str::to_owned);
        *self.health.lock() = Health { reachable: Some(outcome.is_ok()), last_error };
    }

    /// Sends a request to `path`, unchanged or not at all. `fill` adds everything but the
    /// credential. If MANTYX refuses a token that can be renewed, `fill` runs a second time.
    pub async fn send(
        &self,
        request: (Method, &str),
        credential: &UpstreamCredential,
        fill: impl Fn(reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, SendError>,
    ) -> Result<reqwest::Response, SendError> {
        self.send_by(&self.clients().own, request, credential, fill).await
    }

    /// [`Self::send`] by this client. The outcome counts for MANTYX's health only if it says
    /// something about MANTYX: an app whose body breaks off must not make MANTYX look unreachable.
    async fn send_by(
        &self,
        client: &Client,
        (method, path): (Method, &str),
        credential: &UpstreamCredential,
        fill: impl Fn(reqwest::RequestBuilder) -> Result<reqwest::RequestBuilder, SendError>,
    ) -> Result<reqwest::Response, SendError> {
        let url = target::below(&self.base, path).ok_or(SendError::OddPath)?;
        let exchange = credential.send(async |headers| {
            let request = fill(client.request(method.clone(), url.clone()).headers(headers))?;
            let response = client.send_as(request, method.is_safe()).await;
            response.map_err(|error| SendError::Broken(error.without_url()))
        });
        let outcome = exchange.await;
        match &outcome {
            Ok(_) => self.note(Ok(())),
            // The app's own body broke off, which says nothing about MANTYX.
            Err(SendError::Broken(error)) if is_of_the_body(error) => {}
            Err(SendError::Broken(error)) => self.note(Err(&error_chain(error))),
            Err(SendError::OddPath | SendError::Token(_) | SendError::NotTwice) => {}
        }
        outcome
    }

    /// Opens the event stream at `path`, behind `last_seq`.
    pub async fn open_stream(
        &self,
        path: &str,
        last_seq: u64,
        credential: &UpstreamCredential,
    ) -> Opened {
        let resumed = format!("{path}?lastSeq={last_seq}");
        let path = if last_seq > 0 { &resumed } else { path };
        let exchange = self.send((Method::GET, path), credential, |request| {
            let request = request
                .header(header::ACCEPT, "text/event-stream")
                .header(header::CACHE_CONTROL, "no-store");
            Ok(if last_seq > 0 { request.header("last-event-id", last_seq) } else { request })
        });
        let response = exchange.await?;
        if response.status() != StatusCode::OK {
            return Err(OpenError::Refused(Box::new(StreamRefusal::read(response).await)));
        }
        let content_type = match response.headers().get(header::CONTENT_TYPE) {
            Some(value) => value.to_str().unwrap_or_default(),
            None => "",
        };
        if !content_type.starts_with("text/event-stream") {
            return Err(OpenError::NotAStream(content_type.to_owned()));
        }
        Ok(response)
    }

    /// Requests the JSON at `path`; [`Self::text`] reads the answer.
    pub async fn ask(&self, path: &str, credential: &UpstreamCredential) -> Opened {
        let response = self.send((Method::GET, path), credential, |request| {
            Ok(request.header(header::ACCEPT, "application/json").timeout(ASK_WITHIN))
        });
        Ok(response.await?)
    }

    /// The whole body of an answer to [`Self::ask`].
    pub async fn text(&self, response: reqwest::Response) -> Result<Bytes, OpenError> {
        http_client::body(response, MAX_REPLY).await.map_err(|error| match error {
            BodyError::NotRead(why) => OpenError::NotRead(why),
            BodyError::Broken(error) => {
                let error = error_chain(&error.without_url());
                self.note(Err(&error));
                OpenError::Unreachable(error)
            }
        })
    }

    /// Records the rate limit for posts that an answer to an app shows. `credential` is that app's
    /// credential.
    pub fn overheard(&self, credential: &UpstreamCredential, headers: &HeaderMap) {
        if headers.contains_key(rate_limit::BUCKET)
            && let Some(budget) = AnnouncedBudget::read(headers, clock::now())
        {
            self.rate_limits.limiter(credential.id).note_of_app(budget);
        }
    }
}

/// Whether the request failed because its body broke off.
fn is_of_the_body(error: &reqwest::Error) -> bool {
    causes(error).any(hyper::Error::is_user)
}

/// `Retry-After`, up to [`LONGEST_PAUSE`]; zero without the header.
fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Duration {
    http_client::retry_after(headers, wall).unwrap_or_default().min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
