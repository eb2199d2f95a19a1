//! OAuth 2.0 on the client's side: the tokens of one peer. A token is fetched when it is needed, by
//! one exchange at a time. It is renewed before it expires, and once more when the peer refuses it.
//!
//! An exchange with an issuer runs in a task of its own, and requests wait for its outcome. A
//! request that is dropped while it waits does not end the exchange: the issuer may have replaced a
//! refresh token already, and only the answer has the new one.
//!
//! Must not: know the owner or the grant of the tokens ([`Issue`] does), send a token anywhere, or
//! show one.

mod answer;
pub mod assertion;
pub mod challenge;
pub mod discovery;
pub mod endpoint;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::model::BackendName;

/// Within this time after a refused token was replaced, the next refusal is final: more tokens do
/// not help against a peer that refuses every one.
const REFUSAL_PAUSE: Duration = Duration::from_secs(60);
/// The shortest time between two tokens that are fetched because of a lifetime. Without it, an
/// issuer with `expires_in: 0`, or 1, would be asked by every request.
const FLOOR: Duration = Duration::from_secs(5);
/// A token that is refused so shortly before its end counts as expired: issuers count whole
/// seconds, and their answers take a while.
const GRACE: Duration = Duration::from_secs(2);
/// How many tokens a request is given in place of one that the peer has refused, while each expires
/// before the peer sees it.
const MAX_REPLACEMENTS: usize = 3;
/// The waits after a failure that may pass by itself, and the wait after one that a person has to
/// resolve.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const REJECTED_PAUSE: Duration = Duration::from_secs(60);

/// Gets tokens from their issuer.
pub trait Issue: Send + Sync + fmt::Debug + 'static {
    /// The part of a peer's 401 that says how to get a token.
    type Hint: Send + Sync + 'static;

    /// Reads the hint.
    fn hint(response: &reqwest::Response) -> Self::Hint;

    /// Whether the issuer is known.
    fn is_ready(&self) -> bool;

    /// Whether a refusal of a request without a token leads to one. If it does not, the refusal is
    /// the peer's answer, of which the issuer is told.
    fn answers_refusal(&self, _hint: &Self::Hint) -> bool {
        true
    }

    /// Notes an answer to a request with a token.
    fn note(&self, _response: &reqwest::Response) {}

    /// Gets a fresh token. `hint` comes from the peer's refusal.
    fn issue(&self, hint: Option<&Self::Hint>) -> impl Future<Output = IssueResult<Issued>> + Send;
}

/// A token that was just issued.
#[derive(Debug)]
pub struct Issued {
    /// The whole value of `Authorization`, marked sensitive.
    pub value: HeaderValue,
    /// How long the token is valid, if the issuer says so.
    pub lifetime: Option<Duration>,
}

/// A token, or a value on the way to it.
pub type IssueResult<T> = Result<T, IssueError>;

/// Why there is no token. The text is for operators, and holds no secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct IssueError {
    pub text: String,
    /// Whether the same request may succeed soon.
    pub passes: bool,
    /// The pause that the endpoint asks for, if any.
    pub after: Option<Duration>,
    /// The grant has ended: a person has to renew it.
    pub grant_ended: bool,
    /// The issuer rejects the client itself.
    pub client_refused: bool,
}

impl IssueError {
    /// A failure that may pass by itself.
    pub fn passing(text: String) -> Self {
        Self { text, passes: true, after: None, grant_ended: false, client_refused: false }
    }

    /// A failure that stays until a person resolves it.
    pub fn lasting(text: String) -> Self {
        Self { passes: false, ..Self::passing(text) }
    }
}

/// A request could not be authorized: it was not sent, or was refused before it had an effect. The
/// text is for operators.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TokenError {
    #[error("there is no token: {0}")]
    NoToken(String),
    #[error("the token is refused (HTTP 401)")]
    Refused,
}

/// The tokens of one peer.
#[derive(Debug)]
pub struct Tokens<I> {
    /// The backend that they are for; `None` for MANTYX.
    backend: Option<BackendName>,
    pub issuer: I,
    /// A token is renewed when this much of its life is left, or a fifth of its life if that is
    /// less.
    margin: Duration,
    state: Mutex<State>,
    /// The tasks of the exchanges with the issuer.
    exchanges: TaskTracker,
}

#[derive(Debug)]
struct State {
    token: Option<Arc<Token>>,
    /// When a refused token was last replaced.
    replaced: Option<Instant>,
    /// The last failure, and the time until which further requests get it as their answer.
    failure: Option<(IssueError, Instant)>,
    backoff: Backoff,
    /// The exchange that is under way.
    exchange: Option<Exchange>,
}

type Outcome = Result<Arc<Token>, TokenError>;

/// An exchange with the issuer, as requests wait for it.
type Exchange = Shared<BoxFuture<'static, Outcome>>;

#[derive(Debug)]
struct Token {
    value: HeaderValue,
    issued: Instant,
    /// `None`: not before it is refused.
    renew: Option<Instant>,
    expires: Option<Instant>,
}

/// The next step of a request whose token was refused.
enum Next {
    Use(Arc<Token>),
    Wait(Exchange),
    Until(Instant),
}

impl<I: Issue> Tokens<I> {
    /// `exchanges` tracks the tasks of requests to the issuer, so that its owner can wait for them.
    pub fn new(
        backend: Option<BackendName>,
        issuer: I,
        margin: Duration,
        exchanges: TaskTracker,
    ) -> Arc<Self> {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let state = State { token: None, replaced: None, failure: None, backoff, exchange: None };
        Arc::new(Self { backend, issuer, margin, state: Mutex::new(state), exchanges })
    }

    /// The last failure to get a token, if no later attempt has succeeded.
    pub fn failure(&self) -> Option<IssueError> {
        self.state.lock().failure.as_ref().map(|(failure, _)| failure.clone())
    }

    /// Keeps a fresh token ready, so that requests need not wait for one. Never ends.
    pub async fn keep_fresh(self: &Arc<Self>) {
        loop {
            // The exchange itself has logged a failure.
            drop(self.token().await);
            let next = self.state.lock().next();
            match next {
                Some(next) => sleep_until(next).await,
                None => return std::future::pending().await,
            }
        }
    }

    /// Makes a request by `send`, whose argument is `headers` with one of `tokens`, if the peer
    /// wants any. If the peer refuses it with 401, it has had no effect, and is made once more with
    /// a fresh token.
    pub async fn authorize<F, E>(
        tokens: Option<&Arc<Self>>,
        mut headers: HeaderMap,
        send: impl Fn(HeaderMap) -> F,
    ) -> Result<reqwest::Response, E>
    where
        F: Future<Output = Result<reqwest::Response, E>>,
        E: From<TokenError>,
    {
        let Some(tokens) = tokens else { return send(headers).await };
        let token = tokens.token().await?;
        if let Some(token) = &token {
            headers.insert(AUTHORIZATION, token.value.clone());
        }
        let response = send(headers.clone()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            tokens.issuer.note(&response);
            return Ok(response);
        }
        let hint = I::hint(&response);
        if token.is_none() && !tokens.issuer.answers_refusal(&hint) {
            return Ok(response);
        }
        let mut refused = (token, hint);
        for _ in 0..MAX_REPLACEMENTS {
            let (token, hint) = refused;
            let fresh = tokens.replace(token.as_ref(), hint).await?;
            headers.insert(AUTHORIZATION, fresh.value.clone());
            let response = send(headers.clone()).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                tokens.issuer.note(&response);
                return Ok(response);
            }
            // A token of two seconds may have expired on its way to a busy peer.
            if !fresh.has_expired(Instant::now() + GRACE) {
                break;
            }
            refused = (Some(fresh), I::hint(&response));
        }
        Err(TokenError::Refused.into())
    }

    /// Takes a token that the issuer has given in another way, such as for a person's consent.
    /// Earlier failures say nothing about it.
    pub fn seed(&self, issued: Issued) {
        let mut state = self.state.lock();
        state.token = Some(Arc::new(Token::new(issued, self.margin, Instant::now())));
        state.failure = None;
        state.replaced = None;
        state.backoff.reset();
    }

    /// Whether there is a token, expired or not.
    pub fn has_token(&self) -> bool {
        self.state.lock().token.is_some()
    }

    /// Drops the token.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.token = None;
        state.failure = None;
    }

    /// The token for the next request. `None`: only a refusal of the peer can tell where tokens are
    /// issued.
    async fn token(self: &Arc<Self>) -> Result<Option<Arc<Token>>, TokenError> {
        let exchange = {
            let now = Instant::now();
            let mut state = self.state.lock();
            if let Some(token) = state.usable(now) {
                return Ok(Some(token));
            }
            if !self.issuer.is_ready() {
                return Ok(None);
            }
            match state.under_way() {
                // During a renewal, the old token is still valid.
                Some(_) if let Some(token) = state.unexpired(now) => return Ok(Some(token)),
                Some(exchange) => exchange,
                None => self.begin(&mut state, None)?,
            }
        };
        exchange.await.map(Some)
    }

    /// The token to use in place of `refused`, which the peer has answered with 401.
    async fn replace(self: &Arc<Self>, refused: Option<&Arc<Token>>, hint: I::Hint) -> Outcome {
        let mut hint = Some(hint);
        loop {
            let next = self.next(refused, &mut hint)?;
            match next {
                Next::Use(token) => return Ok(token),
                Next::Wait(exchange) => {
                    let token = exchange.await?;
                    // After a failed renewal, this is the refused token again.
                    if !is_same(refused, &token) {
                        return Ok(token);
                    }
                }
                Next::Until(at) => sleep_until(at).await,
            }
        }
    }

    fn next(
        self: &Arc<Self>,
        refused: Option<&Arc<Token>>,
        hint: &mut Option<I::Hint>,
    ) -> Result<Next, TokenError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(exchange) = state.under_way() {
            return Ok(Next::Wait(exchange));
        }
        if let Some(token) = state.usable(now).filter(|token| !is_same(refused, token)) {
            return Ok(Next::Use(token));
        }
        if let Some(token) = state.token.clone().filter(|token| is_same(refused, token)) {
            if token.has_expired(now + GRACE) {
                // The token had expired, so the peer's refusal says nothing against fresh tokens.
                let at = token.issued + FLOOR;
                if now < at {
                    return Ok(Next::Until(at));
                }
            } else {
                if state
                    .replaced
                    .is_some_and(|at| now.saturating_duration_since(at) < REFUSAL_PAUSE)
                {
                    return Err(TokenError::Refused);
                }
                state.replaced = Some(now);
                state.token = None;
                tracing::info!(backend = self.named(), "the token was refused and is replaced");
            }
        }
        self.begin(&mut state, hint.take()).map(Next::Wait)
    }

    /// Begins to fetch a token, unless an attempt has just failed.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        hint: Option<I::Hint>,
    ) -> Result<Exchange, TokenError> {
        if let Some((failure, until)) = &state.failure
            && Instant::now() < *until
        {
            return Err(TokenError::NoToken(failure.text.clone()));
        }
        let this = Arc::clone(self);
        let issuing = self.exchanges.spawn(async move {
            let outcome = this.issuer.issue(hint.as_ref()).await;
            this.take(outcome)
        });
        let outcome = issuing.map(|outcome| {
            outcome.unwrap_or_else(|_panic| {
                Err(TokenError::NoToken("asking for one has failed".to_owned()))
            })
        });
        let exchange = outcome.boxed().shared();
        state.exchange = Some(exchange.clone());
        Ok(exchange)
    }

    /// Records the outcome of an exchange.
    fn take(&self, outcome: IssueResult<Issued>) -> Outcome {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.exchange = None;
        match outcome {
            Ok(issued) => {
                let token = Arc::new(Token::new(issued, self.margin, now));
                state.token = Some(token.clone());
                state.failure = None;
                state.backoff.reset();
                tracing::debug!(backend = self.named(), "got a token");
                Ok(token)
            }
            Err(failure) => {
                let own_pause =
                    if failure.passes { state.backoff.next_wait() } else { REJECTED_PAUSE };
                let pause = own_pause.max(failure.after.unwrap_or_default());
                let text = failure.text.clone();
                tracing::warn!(backend = self.named(), "cannot get a token: {text}");
                state.failure = Some((failure, now + pause));
                // The old token may still be valid.
                state.usable(now).ok_or(TokenError::NoToken(text))
            }
        }
    }

    fn named(&self) -> Option<tracing::field::DisplayValue<&BackendName>> {
        self.backend.as_ref().map(tracing::field::display)
    }
}

/// Whether `token` is the one that the peer has refused.
fn is_same(refused: Option<&Arc<Token>>, token: &Arc<Token>) -> bool {
    refused.is_some_and(|old| Arc::ptr_eq(old, token))
}

impl State {
    /// The exchange that is under way, if there is one.
    fn under_way(&self) -> Option<Exchange> {
        self.exchange.clone().filter(|exchange| exchange.peek().is_none())
    }

    /// The token, if it is valid for a request now. A token that is about to expire counts only
    /// while it cannot be renewed.
    fn usable(&self, now: Instant) -> Option<Arc<Token>> {
        let token = self.token.as_ref()?;
        let cannot_renew = self.failure.as_ref().is_some_and(|(_, until)| now < *until);
        if token.renew.is_none_or(|renew| now < renew) {
            return Some(token.clone());
        }
        self.unexpired(now).filter(|_| cannot_renew)
    }

    /// The token, if it has not expired.
    fn unexpired(&self, now: Instant) -> Option<Arc<Token>> {
        self.token.as_ref().filter(|token| !token.has_expired(now)).cloned()
    }

    /// The time of the next fetch; `None` if the present token does not expire.
    fn next(&self) -> Option<Instant> {
        match (&self.failure, &self.token) {
            (Some((_, until)), _) => Some(*until),
            (None, Some(token)) => token.renew,
            // The token was refused and removed, and is being replaced.
            (None, None) => Some(Instant::now() + FIRST_PAUSE),
        }
    }
}

impl Token {
    /// The token is used for at least [`FLOOR`], whatever its lifetime: the peer will refuse it if
    /// it has expired.
    fn new(Issued { value, lifetime }: Issued, margin: Duration, now: Instant) -> Self {
        let renew = lifetime.map(|lifetime| now + (lifetime - margin.min(lifetime / 5)).max(FLOOR));
        Self { value, issued: now, renew, expires: lifetime.map(|lifetime| now + lifetime) }
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

#[cfg(test)]
mod tests;
