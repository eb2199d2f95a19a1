//! The OAuth tokens of one backend: by the client credentials grant, or of the login that the
//! bridge keeps for it.
//!
//! Must not: keep a token ([`crate::oauth`] does), send one anywhere, or show one.

mod client_credentials;
mod discovery;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{PeerError, PeerErrorKind};
use crate::config::ClientCredentials;
use crate::http_client::Clients;
use crate::logins::{self, Login};
use crate::model::BackendName;
use crate::oauth;
use crate::oauth::TokenError;

/// A token is renewed when this much of its life is left.
const MARGIN: Duration = Duration::from_secs(60);

impl From<TokenError> for PeerError {
    fn from(error: TokenError) -> Self {
        Self::new(PeerErrorKind::from(&error), error.to_string())
    }
}

impl From<&TokenError> for PeerErrorKind {
    fn from(error: &TokenError) -> Self {
        match error {
            TokenError::NoToken(_) => Self::NoToken,
            TokenError::Refused => Self::Unauthorized,
        }
    }
}

/// The tokens of one backend.
#[derive(Debug)]
pub(super) enum Tokens {
    Client(Arc<oauth::Tokens<client_credentials::Issuer>>),
    Login(Arc<logins::Tokens>),
}

impl Tokens {
    /// The tokens of a login.
    pub(super) fn of_login(login: &Login) -> Arc<Self> {
        Arc::new(Self::Login(Arc::clone(&login.tokens)))
    }

    /// Makes a request by `send` with one of `tokens` ([`oauth::Tokens::authorize`]).
    pub(super) async fn authorize<F, E>(
        tokens: Option<&Arc<Self>>,
        headers: HeaderMap,
        send: impl Fn(HeaderMap) -> F,
    ) -> Result<reqwest::Response, E>
    where
        F: Future<Output = Result<reqwest::Response, E>>,
        E: From<TokenError>,
    {
        match tokens.map(Arc::as_ref) {
            None => send(headers).await,
            Some(Self::Client(tokens)) => {
                oauth::Tokens::authorize(Some(tokens), headers, send).await
            }
            Some(Self::Login(tokens)) => {
                oauth::Tokens::authorize(Some(tokens), headers, send).await
            }
        }
    }

    /// Notes the token endpoint that the backend at `base` has named.
    pub(super) fn learn(&self, base: Option<&Url>, named: &str) {
        match self {
            Self::Client(tokens) => tokens.issuer.learn(base, named),
            // A login has found its endpoint out.
            Self::Login(_) => {}
        }
    }
}

/// The tokens of a client at an MCP server or an A2A agent, if it wants some. `resource` is the
/// server's own name for itself in requests for tokens (RFC 8707). `clients` are those of the
/// backend.
pub(super) fn tokens(
    backend: &BackendName,
    credentials: Option<&Arc<ClientCredentials>>,
    resource: Option<&Url>,
    clients: Clients,
) -> Option<Arc<Tokens>> {
    let credentials = Arc::clone(credentials?);
    let issuer = client_credentials::Issuer::new(backend.clone(), credentials, resource, clients);
    // A stop need not wait for these exchanges: the client credentials grant replaces no earlier
    // token, so none can be lost.
    let tokens = oauth::Tokens::new(Some(backend.clone()), issuer, MARGIN, TaskTracker::new());
    Some(Arc::new(Tokens::Client(tokens)))
}
