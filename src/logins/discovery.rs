//! Finds the issuer of a server's tokens, and its metadata, by the order of MCP's revisions.
//!
//! Must not: send a secret; or believe what `metadata` refuses.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;
use url::Url;

use super::failure::{self, LoginResult};
use super::metadata::{IssuerMetadata, Namers, ResourceMetadata, is_same_issuer, names_loopback};
use crate::config::{LoginClient, Mcp, OauthClient, Target};
use crate::http_client::address::shown;
use crate::http_client::{self, Client, Clients, Tls};
use crate::oauth::challenge::Challenge;
use crate::oauth::discovery::{
    fetch, issuer_places, may_name, own_metadata, resource_name, resource_places, root,
};

/// How long a server may take to say what it wants.
const PROBE: Duration = Duration::from_secs(10);

/// How a login at one backend is made.
#[derive(Debug, Clone, PartialEq)]
pub struct LoginSettings {
    pub(super) server: Url,
    /// The configured headers of the server's requests.
    headers: HeaderMap,
    server_tls: Option<Tls>,
    pub(super) client: Arc<LoginClient>,
    /// The operator's file says that there is to be a login.
    pub(super) is_explicit: bool,
}

impl LoginSettings {
    /// The settings for a backend that takes a login: an MCP server on the network without another
    /// credential. Tokens would travel in the open to another machine without TLS.
    pub fn for_target(target: &Target) -> Option<Self> {
        let Target::Mcp(Mcp::Http { url, headers, socket: None, oauth, tls, .. }) = target else {
            return None;
        };
        let (client, is_explicit) = match oauth {
            Some(OauthClient::Login(client)) => (Arc::clone(client), true),
            Some(OauthClient::Credentials(_)) => return None,
            None => (Arc::default(), false),
        };
        let is_private = url.scheme() == "https" || names_loopback(url);
        if !is_private || headers.contains_key(AUTHORIZATION) {
            return None;
        }
        Some(Self {
            server: Url::clone(url),
            headers: headers.clone(),
            server_tls: tls.clone(),
            client,
            is_explicit,
        })
    }

    /// What a refusal says that leads nowhere by itself.
    pub(super) fn silent(&self) -> Challenge {
        Challenge::silent(self.server.clone())
    }
}

/// The clients for the server and for what it names.
#[derive(Debug)]
pub(super) struct Network<'a> {
    settings: &'a LoginSettings,
    server: Clients,
    /// For the addresses of the operator's own words.
    operators: Client,
    issuer: Option<Client>,
}

/// What a login needs to know of its issuer.
#[derive(Debug)]
pub(super) struct Discovery {
    /// The server's name for itself, for requests for tokens.
    pub(super) resource: String,
    pub(super) resource_scopes: Vec<String>,
    pub(super) issuer: IssuerMetadata,
}

impl<'a> Network<'a> {
    pub(super) fn new(settings: &'a LoginSettings, client: &Client) -> Self {
        let LoginClient { issuer, tls, .. } = &*settings.client;
        Self {
            server: Clients::new(
                Some(&settings.server),
                settings.server_tls.as_ref(),
                client.clone(),
            ),
            operators: client.clone(),
            issuer: issuer
                .as_deref()
                .map(|url| Clients::new(Some(url), tls.as_ref(), client.clone()).own),
            settings,
        }
    }

    /// The client for `url`. Addresses that only a server or an issuer has named are reached by a
    /// client that refuses names of this machine.
    pub(super) fn client(&self, url: &Url) -> Client {
        let LoginClient { issuer, token_url, .. } = &*self.settings.client;
        let is_at = |named: &Url| named.origin() == url.origin();
        match (&self.issuer, issuer) {
            _ if is_at(&self.settings.server) => self.server.own.clone(),
            (Some(client), Some(issuer)) if is_at(issuer) => client.clone(),
            _ if token_url.as_deref().is_some_and(is_at) => self.operators.clone(),
            _ => http_client::elsewhere(),
        }
    }

    /// What the server says to a request without a token.
    ///
    /// Some servers have no GET, and say so before they look for a token; so a POST follows, which
    /// does nothing. Without it, a login that is asked for before the bridge itself has met the
    /// refusal would leave out the scopes that the refusal names.
    pub(super) async fn probe(&self) -> Challenge {
        const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let LoginSettings { server, headers, .. } = self.settings;
        let http = &self.server.own;
        let get = http.get(server.clone());
        let post = http.post(server.clone()).header(CONTENT_TYPE, "application/json").body(PING);
        for request in [get, post] {
            let request = request.headers(headers.clone());
            let request = request.header(ACCEPT, "application/json, text/event-stream");
            let answer = timeout(PROBE, http.send_repeatable(request)).await;
            if let Ok(Ok(response)) = answer
                && response.status() == StatusCode::UNAUTHORIZED
            {
                return Challenge::read(&response);
            }
        }
        self.settings.silent()
    }

    /// The server's metadata about itself: where its refusal says, then at its path, then at its
    /// root. `None` if it has none.
    pub(super) async fn resource(
        &self,
        challenge: &Challenge,
    ) -> LoginResult<Option<ResourceMetadata>> {
        let server = &self.settings.server;
        let named = match &challenge.metadata {
            None => None,
            Some(named) => Some(own_metadata(server, named).ok_or_else(|| {
                failure::refused(
                    "the server's `resource_metadata` cannot be used: it is not on the server's \
                     own origin",
                )
            })?),
        };
        for url in named.into_iter().chain(resource_places(server)) {
            let text = fetch(&self.client(&url), &url).await;
            let text = text.map_err(|error| failure::refused(error.at(&url).text))?;
            let Some(text) = text else { continue };
            let metadata = ResourceMetadata::read(&text, server);
            return metadata.map(Some).map_err(|why| failure::unusable(shown(&url), why));
        }
        Ok(None)
    }

    /// Whether the server's refusal leads to an issuer, so that a login may help.
    pub(super) async fn leads_to_issuer(&self, challenge: &Challenge) -> bool {
        match self.resource(challenge).await {
            Ok(Some(metadata)) => metadata.issuers.iter().any(|issuer| self.may_use(issuer)),
            // Servers of MCP's 2025-03-26 issue tokens themselves.
            Ok(None) => self.issuer_at(root(&self.settings.server).as_str()).await.is_ok(),
            // A person who tries to log in is told what is wrong.
            Err(_) => challenge.metadata.is_some(),
        }
    }

    fn may_use(&self, issuer: &str) -> bool {
        Url::parse(issuer).is_ok_and(|url| {
            may_name(Some(&self.settings.server), &url)
                || self.settings.client.issuer.as_deref().is_some_and(|own| *own == url)
        })
    }

    /// Finds the issuer that `challenge` leads to.
    pub(super) async fn discover(&self, challenge: &Challenge) -> LoginResult<Discovery> {
        let server = &self.settings.server;
        let resource = self.resource(challenge).await?;
        let issuers = resource.as_ref().map(|resource| resource.issuers.as_slice());
        let issuer = match (&self.settings.client.issuer, issuers) {
            (Some(own), Some(named)) => {
                let is_it = |name: &&String| is_same_issuer(name, own.as_str());
                let named = named.iter().find(is_it);
                named.ok_or_else(|| failure::other_issuer(shown(server), shown(own)))?.clone()
            }
            (Some(own), None) => own.to_string(),
            (None, Some(named)) => {
                let first = named.first().ok_or_else(|| failure::no_issuer(shown(server)))?;
                if !self.may_use(first) {
                    let name = Url::parse(first)
                        .map_or_else(|_bad| "no URL".to_owned(), |url| shown(&url));
                    return Err(failure::refused(format!(
                        "{} names {name} as the issuer of its tokens, which is not https and not \
                         its own; if it is right, set `auth.oauth.issuer`",
                        shown(server)
                    )));
                }
                first.clone()
            }
            (None, None) => root(server).to_string(),
        };
        let has_metadata = resource.is_some();
        let metadata = self.issuer_at(&issuer).await.map_err(|failure| match failure {
            // Nothing at all says that there is an issuer.
            None if !has_metadata => failure::no_issuer(shown(server)),
            None => failure::refused(format!(
                "the issuer {} has no metadata; see that it can be reached",
                shown(&Url::parse(&issuer).unwrap_or_else(|_bad| server.clone()))
            )),
            Some(failure) => failure,
        })?;
        let own_name = resource.as_ref().and_then(|resource| resource.resource.clone());
        Ok(Discovery {
            resource: own_name.unwrap_or_else(|| resource_name(server)),
            resource_scopes: resource.map(|resource| resource.scopes).unwrap_or_default(),
            issuer: metadata,
        })
    }

    /// The metadata of the issuer `name`; the error is `None` where there is none.
    async fn issuer_at(&self, name: &str) -> Result<IssuerMetadata, Option<failure::LoginFailure>> {
        let issuer = Url::parse(name)
            .map_err(|_bad| failure::refused("the server names an issuer that is no URL"))?;
        let LoginClient { issuer: own, token_url, .. } = &*self.settings.client;
        let namers =
            Namers { server: &self.settings.server, issuer: &issuer, is_configured: own.is_some() };
        for url in issuer_places(&issuer) {
            let text = fetch(&self.client(&url), &url).await;
            let text = text.map_err(|error| failure::refused(error.at(&url).text))?;
            let Some(text) = text else { continue };
            let metadata = IssuerMetadata::read(&text, name, namers, token_url.as_deref());
            return metadata.map_err(|why| Some(failure::unusable(shown(&url), why)));
        }
        Err(None)
    }
}
