//! The credential of a request to MANTYX. This type is the only holder of such credentials.
//!
//! Must not: let a credential out but into the headers of a request.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::refresh_token::RefreshTokenGrant;
use super::stored_token::StoredToken;
use super::{SendError, X_API_KEY};
use crate::config::Credential;
use crate::http_client::{self, Clients};
use crate::model::catalog::hex;
use crate::oauth::Tokens;

/// The bridge renews a token this long before it expires (agent-runs-protocol §2.2).
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// The credential that goes to MANTYX on behalf of one app. Never shown, not even in `Debug`.
#[derive(Clone, derive_more::Debug)]
#[debug("UpstreamCredential(..)")]
pub struct UpstreamCredential {
    shows: Shows,
    /// A hash of the credential. Requests with the same one count against the same rate limit.
    pub(super) id: [u8; 32],
    callers: bool,
}

#[derive(Clone)]
enum Shows {
    /// A fixed credential.
    Headers(Arc<HeaderMap>),
    /// The current token of a grant.
    Tokens(Arc<Tokens<RefreshTokenGrant>>),
}

impl UpstreamCredential {
    /// The configured credential; `None` if the caller brings one. `clients` and `stored` are for
    /// tokens: `stored` holds the refresh token.
    pub(super) fn configured(
        credential: &Credential,
        clients: &Clients,
        stored: &Arc<StoredToken>,
    ) -> Option<Self> {
        match credential {
            Credential::Own(secret) => Self::bearer(secret.expose_secret()),
            Credential::Oauth(config) => {
                let http = clients.to(&config.token_url).clone();
                let grant = RefreshTokenGrant::new(Arc::clone(config), http, Arc::clone(stored));
                let id = grant.id();
                let tasks = stored.tasks.clone();
                let shows = Shows::Tokens(Tokens::new(None, grant, MARGIN, tasks));
                Some(Self { shows, id, callers: false })
            }
            Credential::Passthrough => None,
        }
    }

    /// The credential as MANTYX expects it.
    ///
    /// `None` if it has characters that no header can carry.
    pub fn bearer(credential: &str) -> Option<Self> {
        let value = http_client::sensitive(&format!("Bearer {credential}")).ok()?;
        Some(Self::fixed(HeaderMap::from_iter([(header::AUTHORIZATION, value)]), false))
    }

    /// The caller's own credential, as it stands in the request's headers.
    pub fn of_caller(headers: &HeaderMap) -> Self {
        let own = [header::AUTHORIZATION, X_API_KEY].into_iter().filter_map(|name| {
            let mut value = headers.get(&name)?.clone();
            value.set_sensitive(true);
            Some((name, value))
        });
        Self::fixed(own.collect(), true)
    }

    fn fixed(headers: HeaderMap, callers: bool) -> Self {
        let mut hash = Sha256::new();
        for (name, value) in &headers {
            hash.update(name.as_str());
            hash.update(value.as_bytes());
        }
        Self { shows: Shows::Headers(Arc::new(headers)), id: hash.finalize().into(), callers }
    }

    /// Whether `other` is the same credential.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// A digest that tells the credential from others, for records that outlive it. It is not the
    /// hash by which requests are counted, so that neither can be looked up by the other.
    pub fn fingerprint(&self) -> String {
        hex(&Sha256::digest([b"fingerprint\n".as_slice(), &self.id].concat()))
    }

    /// Whether the caller brought the credential.
    pub fn is_callers(&self) -> bool {
        self.callers
    }

    /// Whether the tokens belong to exactly this grant.
    pub(super) fn is_of(&self, credential: &Credential) -> bool {
        match (&self.shows, credential) {
            (Shows::Tokens(tokens), Credential::Oauth(config)) => tokens.issuer.is_of(config),
            _ => false,
        }
    }

    pub(super) fn tokens(&self) -> Option<&Arc<Tokens<RefreshTokenGrant>>> {
        match &self.shows {
            Shows::Tokens(tokens) => Some(tokens),
            Shows::Headers(_) => None,
        }
    }

    /// Makes a request by `send`, whose argument is the headers with the credential. If the peer
    /// refuses a token and there is another one, calls `send` a second time.
    pub(super) async fn send<F>(
        &self,
        send: impl Fn(HeaderMap) -> F,
    ) -> Result<reqwest::Response, SendError>
    where
        F: Future<Output = Result<reqwest::Response, SendError>>,
    {
        match &self.shows {
            Shows::Headers(headers) => send(headers.as_ref().clone()).await,
            Shows::Tokens(tokens) => Tokens::authorize(Some(tokens), HeaderMap::new(), send).await,
        }
    }
}
