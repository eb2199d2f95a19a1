//! Tokens for a client's own credentials (RFC 6749, 4.4), from where the operator, the backend's
//! card or its metadata says that they are issued.
//!
//! Must not: let a secret go where it may not ([`discovery::endpoint`] knows).

use std::sync::Arc;

use parking_lot::Mutex;
use url::Url;

use super::discovery;
use crate::config::ClientCredentials;
use crate::http_client;
use crate::http_client::address::{is_own, shown};
use crate::model::BackendName;
use crate::oauth::challenge::Challenge;
use crate::oauth::discovery::resource_name;
use crate::oauth::endpoint::{ClientAuthMethod, TokenRequest};
use crate::oauth::{Issue, IssueError, IssueResult, Issued};

/// Gets tokens for one client.
#[derive(Debug)]
pub(in crate::backend) struct Issuer {
    backend: BackendName,
    clients: http_client::Clients,
    credentials: Arc<ClientCredentials>,
    endpoint_state: Mutex<EndpointState>,
}

/// The token endpoint that is configured or found out so far, and how the client authenticates.
#[derive(Debug, Clone, Default)]
struct EndpointState {
    endpoint: Option<Endpoint>,
    auth_method: ClientAuthMethod,
}

/// The token endpoint, and the scope and resource of the tokens.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    /// For whom a key signs. A name that is not the operator's comes from the origin that it names,
    /// so that a backend cannot have an assertion made that another issuer takes.
    pub(super) audience: String,
    /// The backend's name for itself in requests for tokens.
    pub(super) resource: Option<String>,
    /// What the backend says that a token has to be good for.
    pub(super) scope: Option<String>,
    pub(super) source: EndpointSource,
    /// Whether the operator configured requests to this origin, so that the backend is not alone in
    /// naming it.
    pub(super) is_own: bool,
}

/// Who says where tokens are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointSource {
    Operator,
    Card,
    /// The discovery found it, and may be repeated.
    Metadata,
}

impl Issuer {
    pub(super) fn new(
        backend: BackendName,
        credentials: Arc<ClientCredentials>,
        resource: Option<&Url>,
        clients: http_client::Clients,
    ) -> Self {
        let endpoint = credentials.token_url.as_ref().map(|url| Endpoint {
            url: Url::clone(url),
            audience: credentials.audience.clone().unwrap_or_else(|| url.to_string()),
            resource: resource.map(resource_name),
            scope: None,
            source: EndpointSource::Operator,
            is_own: true,
        });
        let endpoint_state =
            Mutex::new(EndpointState { endpoint, auth_method: credentials.auth_method });
        Self { backend, clients, credentials, endpoint_state }
    }

    /// Where tokens are issued, found out if need be.
    async fn endpoint(
        &self,
        challenge: Option<&Challenge>,
    ) -> IssueResult<(Endpoint, ClientAuthMethod)> {
        let EndpointState { endpoint, auth_method } = self.endpoint_state.lock().clone();
        if let Some(endpoint) = endpoint {
            return Ok((endpoint, auth_method));
        }
        let challenge = challenge.ok_or_else(|| {
            let text = "it is not known where tokens are issued; set `auth.oauth.token_url`";
            IssueError::passing(text.to_owned())
        })?;
        let (endpoint, server_auth_method) = discovery::find(&self.clients, challenge).await?;
        let auth_method =
            if auth_method == ClientAuthMethod::Signed || self.credentials.method_is_configured {
                auth_method
            } else {
                server_auth_method
            };
        tracing::info!(
            backend = %self.backend,
            token_url = shown(&endpoint.url),
            "the server says where its tokens are issued"
        );
        let mut state = self.endpoint_state.lock();
        // The card may have named one meanwhile, which counts more.
        let endpoint = state.endpoint.get_or_insert(endpoint).clone();
        state.auth_method = auth_method;
        Ok((endpoint, auth_method))
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        auth_method: &mut ClientAuthMethod,
    ) -> IssueResult<Issued> {
        let place = shown(&endpoint.url);
        if http_client::names_link_local(&endpoint.url) {
            let text = format!("{place} is a link-local address, which is never called");
            return Err(IssueError::lasting(text));
        }
        let ClientCredentials { id, secret, method_is_configured, scopes, .. } = &*self.credentials;
        let scope = if scopes.is_empty() { endpoint.scope.clone() } else { Some(scopes.join(" ")) };
        let request = TokenRequest {
            url: &endpoint.url,
            place: &place,
            audience: &endpoint.audience,
            client_id: id,
            client_secret: secret,
            method_is_configured: *method_is_configured,
            grant: "client_credentials",
            fields: &[("scope", scope.as_deref()), ("resource", endpoint.resource.as_deref())],
        };
        let client = match endpoint.source {
            EndpointSource::Operator => self.clients.to(&endpoint.url).clone(),
            EndpointSource::Card | EndpointSource::Metadata => {
                self.clients.to_named(&endpoint.url, endpoint.is_own)
            }
        };
        Ok(request.send(&client, auth_method).await?.issued)
    }

    /// Notes the token endpoint that the backend at `base` has named. It is used only if the
    /// operator has configured none and the client's secret may go there.
    pub(in crate::backend) fn learn(&self, base: Option<&Url>, named: &str) {
        let mut state = self.endpoint_state.lock();
        let backend = &self.backend;
        if state
            .endpoint
            .as_ref()
            .is_some_and(|endpoint| endpoint.source == EndpointSource::Operator)
        {
            return;
        }
        match discovery::endpoint(base, named) {
            Ok(url) => {
                let token_url = shown(&url);
                tracing::info!(%backend, token_url, "the card says where its tokens are issued");
                // A card in a file is the operator's own word.
                state.endpoint = Some(Endpoint {
                    is_own: base.is_none_or(|base| is_own(base, &url)),
                    audience: url.to_string(),
                    url,
                    resource: None,
                    scope: None,
                    source: EndpointSource::Card,
                });
            }
            Err(why) => tracing::warn!(%backend, "the card's token endpoint is not used: {why}"),
        }
    }
}

impl Issue for Issuer {
    type Hint = Challenge;

    fn hint(response: &reqwest::Response) -> Challenge {
        Challenge::read(response)
    }

    fn is_ready(&self) -> bool {
        self.endpoint_state.lock().endpoint.is_some()
    }

    /// `Tokens` has one exchange at a time, so that no other changes the method meanwhile. The card
    /// may name another endpoint ([`Issuer::learn`]), which then stays.
    async fn issue(&self, challenge: Option<&Challenge>) -> IssueResult<Issued> {
        let (endpoint, mut auth_method) = self.endpoint(challenge).await?;
        let outcome = self.ask(&endpoint, &mut auth_method).await;
        let mut state = self.endpoint_state.lock();
        state.auth_method = auth_method;
        // The metadata may name another endpoint by now, and is read again.
        if outcome.is_err() && endpoint.source == EndpointSource::Metadata {
            state.endpoint.take_if(|known| known.source == EndpointSource::Metadata);
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
