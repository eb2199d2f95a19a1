//! The OAuth tokens of one backend: fetched when they are needed, by one request at a time, renewed
//! before they expire, and once more when the backend refuses one.
//!
//! Must not: know how a token is asked for ([`Issue`] does), send a token anywhere, or show one.

mod discovery;
mod grant;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AUTHORIZATION, WWW_AUTHENTICATE},
};
use tokio::{sync::Semaphore, time::Instant};
use url::Url;

use super::peer::PeerError;
use crate::{
    backoff::Backoff, config::ClientCredentials, http_client::Clients, model::ids::BackendName,
};

/// A token is renewed when this much of its life is left, or a fifth of it if that is less.
const MARGIN: Duration = Duration::from_secs(60);
/// After a refused token was replaced, the next refusal within this time is the answer: a backend
/// that refuses every token is not helped by more of them.
const REFUSAL_PAUSE: Duration = Duration::from_secs(60);
/// The waits after a failure that may pass, and the wait after one that a person has to see to.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const REJECTED_PAUSE: Duration = Duration::from_secs(60);

/// Gets tokens from wherever they are issued.
trait Issue: Send + Sync + fmt::Debug {
    /// Whether it is known where tokens are issued.
    fn is_ready(&self) -> bool;

    /// Gets a fresh token. `challenge` is what the backend said when it wanted one; it may tell
    /// where.
    fn issue<'a>(
        &'a self,
        challenge: Option<&'a Challenge>,
    ) -> BoxFuture<'a, Result<Issued, IssueError>>;

    /// The backend, at `base`, has named where tokens are issued. It is heeded where the operator
    /// does not say, and if the client's secret may go there.
    fn learn(&self, base: Option<&Url>, named: &str);
}

/// A token that was just issued.
#[derive(Debug)]
struct Issued {
    /// The whole value of `Authorization`, marked sensitive.
    value: HeaderValue,
    /// How long it is good for, if that was said.
    lifetime: Option<Duration>,
}

/// Why there is no token. The text is for operators, and holds no secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
struct IssueError {
    text: String,
    /// Whether the same request may do better soon.
    passes: bool,
}

/// What a backend said with a 401.
#[derive(Debug)]
struct Challenge {
    /// What was asked for.
    url: Url,
    /// Where it says who issues tokens (RFC 9728).
    metadata: Option<String>,
    /// What the token has to be good for.
    scope: Option<String>,
}

/// A request could not be authorized; it has not been made, or was refused unseen. The text is for
/// operators.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum AuthError {
    #[error("there is no token: {0}")]
    NoToken(String),
    #[error("the backend refuses the token (HTTP 401)")]
    Refused,
}

impl From<AuthError> for PeerError {
    fn from(error: AuthError) -> Self {
        let refused = matches!(error, AuthError::Refused);
        Self { refused, ..Self::new(error.to_string()) }
    }
}

/// The tokens of one backend.
#[derive(Debug)]
pub(super) struct Tokens {
    backend: BackendName,
    issuer: Box<dyn Issue>,
    state: Mutex<State>,
    /// Whoever has it fetches; the others wait for what comes of it.
    turn: Semaphore,
}

#[derive(Debug)]
struct State {
    token: Option<Arc<Token>>,
    /// When a refused token was last replaced.
    replaced: Option<Instant>,
    /// The last failure, and until when it stands for further requests.
    failure: Option<(IssueError, Instant)>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Token {
    value: HeaderValue,
    /// `None`: until it is refused.
    renew: Option<Instant>,
    expires: Option<Instant>,
}

impl Tokens {
    /// The tokens of a client at an MCP server or an A2A agent. `resource` is the server's own name
    /// for itself in requests for tokens (RFC 8707). `clients` are those of the backend.
    pub(super) fn new(
        backend: BackendName,
        credentials: Arc<ClientCredentials>,
        resource: Option<&Url>,
        clients: Clients,
    ) -> Self {
        let issuer = grant::Issuer::new(backend.clone(), credentials, resource, clients);
        Self::from(backend, Box::new(issuer))
    }

    fn from(backend: BackendName, issuer: Box<dyn Issue>) -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let state = State { token: None, replaced: None, failure: None, backoff };
        Self { backend, issuer, state: Mutex::new(state), turn: Semaphore::new(1) }
    }

    /// See [`Issue::learn`].
    pub(super) fn learn(&self, base: Option<&Url>, named: &str) {
        self.issuer.learn(base, named);
    }

    /// Makes a request by `send`, whose argument is `headers` with a token. A request that was
    /// refused with 401, and so has not run, is made once more with a fresh one.
    async fn authorize<F, E>(
        &self,
        mut headers: HeaderMap,
        send: impl Fn(HeaderMap) -> F,
    ) -> Result<reqwest::Response, E>
    where
        F: Future<Output = Result<reqwest::Response, E>>,
        E: From<AuthError>,
    {
        let token = self.token().await?;
        if let Some(token) = &token {
            headers.insert(AUTHORIZATION, token.value.clone());
        }
        let response = send(headers.clone()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = Challenge::of(&response);
        let fresh = self.replace(token.as_ref(), &challenge).await?;
        headers.insert(AUTHORIZATION, fresh.value.clone());
        let response = send(headers).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(AuthError::Refused.into()),
            _ => Ok(response),
        }
    }

    /// The token for the next request. `None`: only the backend's refusal can tell where there is
    /// one.
    async fn token(&self) -> Result<Option<Arc<Token>>, AuthError> {
        if let Some(token) = self.state().usable(Instant::now()) {
            return Ok(Some(token));
        }
        if !self.issuer.is_ready() {
            return Ok(None);
        }
        let _turn = self.turn.acquire().await;
        // Somebody else may have had the turn meanwhile.
        if let Some(token) = self.state().usable(Instant::now()) {
            return Ok(Some(token));
        }
        self.fetch(None).await.map(Some)
    }

    /// The token to use in place of `refused`, which the backend has answered with 401.
    async fn replace(
        &self,
        refused: Option<&Arc<Token>>,
        challenge: &Challenge,
    ) -> Result<Arc<Token>, AuthError> {
        let _turn = self.turn.acquire().await;
        let now = Instant::now();
        {
            let mut state = self.state();
            let same = |token: &Arc<Token>| refused.is_some_and(|old| Arc::ptr_eq(old, token));
            if let Some(token) = state.usable(now).filter(|token| !same(token)) {
                return Ok(token);
            }
            if refused.is_some() {
                let since = |at: Instant| now.saturating_duration_since(at);
                if state.replaced.is_some_and(|at| since(at) < REFUSAL_PAUSE) {
                    return Err(AuthError::Refused);
                }
                state.replaced = Some(now);
                state.token = None;
                tracing::info!(backend = %self.backend, "the token was refused and is replaced");
            }
        }
        self.fetch(Some(challenge)).await
    }

    /// Fetches a token, unless that has just failed. Only for who has the turn.
    async fn fetch(&self, challenge: Option<&Challenge>) -> Result<Arc<Token>, AuthError> {
        if let Some((failure, until)) = &self.state().failure
            && Instant::now() < *until
        {
            return Err(AuthError::NoToken(failure.text.clone()));
        }
        let outcome = self.issuer.issue(challenge).await;
        let now = Instant::now();
        let mut state = self.state();
        match outcome {
            Ok(issued) => {
                let token = Arc::new(Token::new(issued, now));
                state.token = Some(token.clone());
                state.failure = None;
                state.backoff.reset();
                tracing::debug!(backend = %self.backend, "got a token");
                Ok(token)
            }
            Err(failure) => {
                let pause = match failure.passes {
                    true => state.backoff.next_wait(),
                    false => REJECTED_PAUSE,
                };
                let text = failure.text.clone();
                tracing::warn!(backend = %self.backend, "cannot get a token: {text}");
                state.failure = Some((failure, now + pause));
                // The old one may still do.
                state.usable(now).ok_or(AuthError::NoToken(text))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a request by `send`, whose argument is `headers` with what `tokens` add to them.
pub(super) async fn send<F, E>(
    tokens: Option<&Tokens>,
    headers: HeaderMap,
    send: impl Fn(HeaderMap) -> F,
) -> Result<reqwest::Response, E>
where
    F: Future<Output = Result<reqwest::Response, E>>,
    E: From<AuthError>,
{
    match tokens {
        Some(tokens) => tokens.authorize(headers, send).await,
        None => send(headers).await,
    }
}

impl State {
    /// The token, if it is good for a request now. One that is about to expire is so only while it
    /// cannot be renewed.
    fn usable(&self, now: Instant) -> Option<Arc<Token>> {
        let token = self.token.as_ref()?;
        let is_before = |end: Option<Instant>| end.is_none_or(|end| now < end);
        let cannot_renew = self.failure.as_ref().is_some_and(|(_, until)| now < *until);
        (is_before(token.renew) || cannot_renew && is_before(token.expires)).then(|| token.clone())
    }
}

impl Token {
    fn new(Issued { value, lifetime }: Issued, now: Instant) -> Self {
        let renew = lifetime.map(|lifetime| now + lifetime - MARGIN.min(lifetime / 5));
        Self { value, renew, expires: lifetime.map(|lifetime| now + lifetime) }
    }
}

impl Challenge {
    fn of(response: &reqwest::Response) -> Self {
        let url = response.url().clone();
        let values = response.headers().get_all(WWW_AUTHENTICATE);
        let values: Vec<&str> = values.iter().filter_map(|value| value.to_str().ok()).collect();
        let parameter = |name| values.iter().find_map(|value| parameter(value, name));
        Self { url, metadata: parameter("resource_metadata"), scope: parameter("scope") }
    }
}

/// The parameter `name` of a challenge, quoted or not.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let lower = challenge.to_ascii_lowercase();
    let starts = lower.match_indices(name).map(|(at, _)| at);
    starts.into_iter().find_map(|at| {
        let (before, rest) = challenge.split_at_checked(at)?;
        if !before.ends_with([' ', ',', '\t']) {
            return None;
        }
        let value = rest.get(name.len()..)?.trim_start().strip_prefix('=')?.trim_start();
        match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(value, _)| value.to_owned()),
            None => value.split([',', ' ']).next().map(str::to_owned),
        }
    })
}

#[cfg(test)]
mod tests;
