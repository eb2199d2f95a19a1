//! One grant of OAuth 2.0: a token for the client's own credentials (RFC 6749, 4.4).
//!
//! Must not: ask twice on its own account, but for the other way to show the secret; or let a
//! secret, a token or what an endpoint wrote freely into a message.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::{
    Challenge, Issue, IssueError, Issued,
    discovery::{self, Found},
};
use crate::{
    backend::address::shown,
    config::ClientCredentials,
    http_client::{self, Clients},
    model::{ids::BackendName, json::Members},
};

/// How long one exchange with whoever issues tokens may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer.
const MAX_ANSWER: usize = 64 * 1024;
/// Longer than any token is kept in use.
const LONGEST_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The errors that endpoints may name (RFC 6749, 5.2; RFC 8707): what else they write may repeat
/// the request.
const ERRORS: [&str; 10] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "slow_down",
    "temporarily_unavailable",
];

/// Gets tokens for one client.
pub(super) struct Issuer {
    backend: BackendName,
    clients: Clients,
    credentials: Arc<ClientCredentials>,
    known: Mutex<Known>,
}

/// What has been told or found out so far.
#[derive(Debug, Clone, Default)]
struct Known {
    endpoint: Option<Endpoint>,
    shows: Shows,
}

/// Where tokens are issued, and for what.
#[derive(Debug, Clone)]
struct Endpoint {
    url: Url,
    resource: Option<String>,
    /// What the backend says that a token has to be good for.
    scope: Option<String>,
    told: Told,
}

/// Who says where tokens are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Operator,
    Card,
    /// It was found out, and may be found out anew.
    Metadata,
}

/// How the client shows its secret (RFC 6749, 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Shows {
    #[default]
    InHeader,
    InBody,
}

impl Issuer {
    pub(super) fn new(
        backend: BackendName,
        credentials: Arc<ClientCredentials>,
        resource: Option<&Url>,
        clients: Clients,
    ) -> Self {
        let endpoint = credentials.token_url.as_ref().map(|url| Endpoint {
            url: Url::clone(url),
            resource: resource.map(canonical),
            scope: None,
            told: Told::Operator,
        });
        let known = Mutex::new(Known { endpoint, shows: Shows::default() });
        Self { backend, clients, credentials, known }
    }

    /// Where tokens are issued, found out if need be.
    async fn endpoint(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<(Endpoint, Shows), IssueError> {
        let Known { endpoint, shows } = self.known().clone();
        if let Some(endpoint) = endpoint {
            return Ok((endpoint, shows));
        }
        let challenge = challenge.ok_or_else(|| IssueError {
            text: "it is not known where tokens are issued; set `auth.oauth.token_url`".to_owned(),
            passes: true,
        })?;
        let Found { token_endpoint, resource, shows } =
            discovery::find(&self.clients, challenge).await?;
        tracing::info!(
            backend = %self.backend,
            token_url = shown(&token_endpoint),
            "the server says where its tokens are issued"
        );
        let scope = challenge.scope.clone();
        let endpoint = Endpoint { url: token_endpoint, resource, scope, told: Told::Metadata };
        *self.known() = Known { endpoint: Some(endpoint.clone()), shows };
        Ok((endpoint, shows))
    }

    async fn fetch(&self, challenge: Option<&Challenge>) -> Result<Issued, IssueError> {
        let (endpoint, shows) = self.endpoint(challenge).await?;
        let mut outcome = self.ask(&endpoint, shows).await;
        if matches!(outcome, Err(Refusal { is_about_client: true, .. })) {
            let other = shows.other();
            let second = self.ask(&endpoint, other).await;
            // Where neither will do, the first answer is the one to show.
            if second.is_ok() {
                self.known().shows = other;
                outcome = second;
            }
        }
        if outcome.is_err() && endpoint.told == Told::Metadata {
            self.known().endpoint = None;
        }
        outcome.map_err(|refusal| refusal.error)
    }

    async fn ask(&self, endpoint: &Endpoint, shows: Shows) -> Result<Issued, Refusal> {
        let place = shown(&endpoint.url);
        if http_client::names_link_local(&endpoint.url) {
            let text = format!("{place} is a link-local address, which is never called");
            return Err(IssueError { text, passes: false }.into());
        }
        let exchange = async {
            let response = self.request(endpoint, shows).send().await?;
            let status = response.status();
            let retry = http_client::body(response, MAX_ANSWER).await;
            Ok::<_, reqwest::Error>((status, retry))
        };
        let unanswered = |why: String| {
            let text = format!("the token endpoint {place} gave no answer: {why}");
            Refusal::from(IssueError { text, passes: true })
        };
        let (status, body) = match timeout(PATIENCE, exchange).await {
            Err(_late) => return Err(unanswered(format!("none in {} s", PATIENCE.as_secs()))),
            Ok(Err(error)) => return Err(unanswered(http_client::chain(&error.without_url()))),
            Ok(Ok((_, Err(error)))) => return Err(unanswered(error.to_string())),
            Ok(Ok((status, Ok(body)))) => (status, body),
        };
        let body = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(refused(&place, status, &body));
        }
        read(&body).ok_or_else(|| {
            let text = format!("the token endpoint {place} answered without a bearer token");
            IssueError { text, passes: false }.into()
        })
    }

    fn request(&self, endpoint: &Endpoint, shows: Shows) -> reqwest::RequestBuilder {
        let ClientCredentials { id, secret, scopes, .. } = &*self.credentials;
        let secret = secret.expose_secret();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        let scope = match scopes.is_empty() {
            true => endpoint.scope.clone(),
            false => Some(scopes.join(" ")),
        };
        for (name, value) in [("scope", &scope), ("resource", &endpoint.resource)] {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        let client = self.clients.to(&endpoint.url);
        let request = client.post(endpoint.url.clone()).header(ACCEPT, "application/json");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match shows {
            Shows::InHeader => request.header(AUTHORIZATION, basic(id, secret)).body(form.finish()),
            Shows::InBody => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
                request.body(form.finish())
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl Issue for Issuer {
    fn is_ready(&self) -> bool {
        self.known().endpoint.is_some()
    }

    fn issue<'a>(
        &'a self,
        challenge: Option<&'a Challenge>,
    ) -> BoxFuture<'a, Result<Issued, IssueError>> {
        Box::pin(self.fetch(challenge))
    }

    fn learn(&self, base: Option<&Url>, named: &str) {
        let mut known = self.known();
        let backend = &self.backend;
        if known.endpoint.as_ref().is_some_and(|endpoint| endpoint.told == Told::Operator) {
            return;
        }
        match discovery::endpoint(base, named) {
            Ok(url) => {
                let token_url = shown(&url);
                tracing::info!(%backend, token_url, "the card says where its tokens are issued");
                let told = Told::Card;
                known.endpoint = Some(Endpoint { url, resource: None, scope: None, told });
            }
            Err(why) => tracing::warn!(%backend, "the card's token endpoint is not used: {why}"),
        }
    }
}

/// An endpoint gave no token.
struct Refusal {
    error: IssueError,
    /// It did not like who asked, or the way in which that was shown.
    is_about_client: bool,
}

impl From<IssueError> for Refusal {
    fn from(error: IssueError) -> Self {
        Self { error, is_about_client: false }
    }
}

impl Shows {
    fn other(self) -> Self {
        match self {
            Self::InHeader => Self::InBody,
            Self::InBody => Self::InHeader,
        }
    }
}

fn basic(id: &str, secret: &str) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
    let value = HeaderValue::try_from(format!("Basic {pair}"));
    let mut value = value.expect("base64 is graphic ASCII");
    value.set_sensitive(true);
    value
}

/// The name of the server in a request for a token: its address without query and fragment.
fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text = url.as_str();
    // RFC 8707 and MCP: without a slash where the path is nothing else.
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

fn refused(place: &str, status: StatusCode, body: &str) -> Refusal {
    let named = Members::read(body)
        .ok()
        .and_then(|body| serde_json::from_str::<String>(body.get("error")?.get()).ok());
    let known = ERRORS.iter().find(|error| named.as_deref() == Some(**error)).copied();
    let code = status.as_u16();
    let text = match known {
        Some(error) => format!("the token endpoint {place} answered {code} {error}"),
        None => format!("the token endpoint {place} answered HTTP {code}"),
    };
    let unnamed = status == StatusCode::UNAUTHORIZED && known.is_none();
    let is_client = known == Some("invalid_client")
        && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST);
    let passes = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    let error = IssueError { text, passes };
    Refusal { error, is_about_client: unnamed || is_client }
}

/// The token in an answer, if it is one of the kind that goes behind `Bearer`.
fn read(body: &str) -> Option<Issued> {
    let body = Members::read(body).ok()?;
    let text = |key: &str| serde_json::from_str::<String>(body.get(key)?.get()).ok();
    if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let token = text("access_token").filter(|token| !token.is_empty())?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    // Some write the number as a text.
    let seconds = body.get("expires_in").map(|raw| raw.get().trim_matches('"'));
    let seconds = seconds.and_then(|seconds| seconds.parse::<f64>().ok());
    let seconds = seconds.map(|seconds| seconds.min(LONGEST_LIFE.as_secs_f64()));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Some(Issued { value, lifetime })
}

#[cfg(test)]
mod tests;
