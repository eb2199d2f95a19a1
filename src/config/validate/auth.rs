//! `auth` of a backend: a static token, or a client that fetches its own.
//!
//! Must not: show a token or a client's secret.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderValue, header};
use secrecy::ExposeSecret as _;
use url::Url;

use super::web::is_in_the_open;
use super::{Validator, mistakes, optional};
use crate::config::reference::Template;
use crate::config::scalars::OneOrMany;
use crate::config::{
    At, ClientAuth, ClientCredentials, Dialect, LoginClient, NodeId, OauthClient,
    ResourceParameter, Scalar, SealKey, Secret, file_format,
};
use crate::http_client::sensitive;
use crate::oauth::assertion::ClientKey;
use crate::oauth::endpoint::ClientAuthMethod;

/// What a section `auth` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthPlace {
    /// An MCP server on the network.
    Server,
    /// One behind a unix socket, whose address leads to no issuer.
    Socket,
    /// An A2A agent.
    Agent,
}

/// Whether a person logs in for the client. An agent without a secret lacks it: no person can log
/// in for one.
fn is_login(oauth: &file_format::BackendOauth, place: AuthPlace) -> bool {
    match oauth.login {
        Some(_) => true,
        None => {
            place == AuthPlace::Server
                && oauth.client_secret.is_none()
                && oauth.private_key.is_none()
        }
    }
}

fn is_no_id(id: &str) -> bool {
    id.is_empty() || id.chars().any(char::is_control)
}

impl Validator<'_> {
    /// Adds a static token to `headers`, or returns the client that fetches tokens. The address of
    /// a backend that `is_socket` leads to no token endpoint. `None` outside: a mistake was
    /// reported.
    pub(super) fn backend_auth(
        &self,
        section: Option<&At<file_format::BackendAuth>>,
        headers: &mut HeaderMap,
        url: Option<&Url>,
        place: AuthPlace,
    ) -> Option<Option<OauthClient>> {
        let Some(At { value: auth, node }) = section else { return Some(None) };
        if headers.contains_key(header::AUTHORIZATION) {
            self.error(node.key(), mistakes::auth_twice());
        }
        match (&auth.bearer, &auth.oauth) {
            (Some(_), Some(oauth)) => self.refuse(oauth.node.key(), mistakes::bearer_or_oauth()),
            (None, None) => self.missing(*node, mistakes::empty_auth()),
            (Some(bearer), None) => {
                headers.insert(header::AUTHORIZATION, self.bearer(bearer)?);
                if url.is_some_and(is_in_the_open) {
                    let message = "`bearer` travels without TLS; write https:// in the URL";
                    self.warn(bearer.node, message);
                }
                Some(None)
            }
            (None, Some(oauth)) if is_login(&oauth.value, place) => {
                self.check_place_of_login(oauth.node, url, place);
                let client = self.login_client(oauth)?;
                Some(Some(OauthClient::Login(Arc::new(client))))
            }
            (None, Some(oauth)) => {
                for (key, node) in self.present_keys(oauth.node, &["issuer", "resource", "tls"]) {
                    self.error(node.key(), mistakes::only_with_login(key));
                }
                let client = self.client_credentials(oauth, place == AuthPlace::Socket)?;
                Some(Some(OauthClient::Credentials(Arc::new(client))))
            }
        }
    }

    fn bearer(&self, at: &At<Scalar>) -> Option<HeaderValue> {
        let token = self.secret(at.node, &at.value.0, "bearer")?;
        if token.expose_secret().to_ascii_lowercase().starts_with("bearer") {
            let template = Template::parse(&at.value.0, Dialect::Own).ok();
            return self
                .outside(template.as_ref(), || self.refuse(at.node, mistakes::bearer_word()));
        }
        let value = sensitive(&format!("Bearer {}", token.expose_secret()));
        Some(value.expect("`secret` lets only graphic ASCII in"))
    }

    fn client_credentials(
        &self,
        At { value: oauth, node }: &At<file_format::BackendOauth>,
        is_socket: bool,
    ) -> Option<ClientCredentials> {
        let id = self.client_id(*node, &oauth.client_id, "write who the bridge is there");
        if let (Some(at), Some(_)) = (&oauth.client_auth, &oauth.private_key) {
            self.error(at.node.key(), mistakes::client_auth_of_key());
        }
        let auth_method = match (&oauth.private_key, &oauth.client_auth) {
            (Some(_), _) => ClientAuthMethod::Signed,
            (None, Some(At { value: ClientAuth::Post, .. })) => ClientAuthMethod::InBody,
            (None, _) => ClientAuthMethod::InHeader,
        };
        let secret = match (&oauth.client_secret, &oauth.private_key) {
            (Some(_), Some(key)) => self.refuse(key.node.key(), mistakes::secret_or_key()),
            (None, Some(key)) => self.private_key(key),
            (secret, None) => self.needed_secret(*node, secret, "client_secret"),
        };
        let token_url = match &oauth.token_url {
            Some(at) => {
                let warning = "the client's secret travels without TLS; write https://";
                self.private_url(at, warning).map(Some)
            }
            None if is_socket => self.missing(*node, mistakes::no_token_url()),
            None => Some(None),
        };
        let scopes = oauth.scopes.iter().flat_map(|list| &list.value);
        let (id, secret, token_url) = (id?, secret?, token_url?);
        let audience = oauth.audience.as_ref().map(|at| at.value.clone());
        if let Some(at) = &oauth.audience
            && (at.value.is_empty() || oauth.token_url.is_none())
        {
            self.error(at.node.key(), mistakes::audience());
        }
        Some(ClientCredentials {
            id,
            secret,
            auth_method,
            method_is_configured: oauth.client_auth.is_some(),
            token_url,
            audience,
            scopes: scopes.map(|at| at.value.clone()).collect(),
        })
    }

    /// Checks that a person can log in at the server, and that the tokens stay between it and the
    /// bridge.
    fn check_place_of_login(&self, node: NodeId, url: Option<&Url>, place: AuthPlace) {
        match place {
            AuthPlace::Agent => self.error(node.key(), mistakes::login_on_agent()),
            AuthPlace::Socket => self.error(node.key(), mistakes::login_on_socket()),
            AuthPlace::Server if url.is_some_and(is_in_the_open) => {
                self.error(node.key(), mistakes::login_in_the_open());
            }
            AuthPlace::Server => {}
        }
    }

    fn login_client(
        &self,
        At { value: oauth, node: _ }: &At<file_format::BackendOauth>,
    ) -> Option<LoginClient> {
        let id =
            optional(&oauth.client_id, |at| self.open_text(at.node, &at.value.0, Dialect::Own))?;
        if let (Some(at), true) = (&oauth.client_id, id.as_deref().is_some_and(is_no_id)) {
            return self.refuse(at.node, mistakes::bad_client_id());
        }
        let secret = match (&oauth.client_secret, &oauth.private_key) {
            (Some(_), Some(key)) => {
                return self.refuse(key.node.key(), mistakes::secret_or_key());
            }
            (Some(secret), None) => {
                Some(self.secret(secret.node, &secret.value.0, "client_secret")?.into())
            }
            (None, Some(key)) => Some(self.private_key(key)?),
            (None, None) => None,
        };
        let auth_method = match (&oauth.private_key, &oauth.client_secret, &oauth.client_auth) {
            (Some(_), _, _) => ClientAuthMethod::Signed,
            (None, None, _) => ClientAuthMethod::Nothing,
            (None, Some(_), Some(At { value: ClientAuth::Post, .. })) => ClientAuthMethod::InBody,
            (None, Some(_), _) => ClientAuthMethod::InHeader,
        };
        let warning = "the login travels without TLS; write https://";
        let issuer = optional(&oauth.issuer, |at| self.private_url(at, warning))?;
        let token_url = optional(&oauth.token_url, |at| self.private_url(at, warning))?;
        let resource = match oauth.resource.as_ref().map(|at| at.value.as_str()) {
            None => ResourceParameter::ByBackend,
            Some("off") => ResourceParameter::Off,
            Some(text) => ResourceParameter::Text(text.to_owned()),
        };
        let tls = self.server_tls(oauth.tls.as_ref(), Dialect::Own, issuer.as_deref())?;
        let scopes = oauth.scopes.iter().flat_map(|list| &list.value);
        Some(LoginClient {
            id,
            secret,
            auth_method,
            method_is_configured: oauth.client_auth.is_some()
                || auth_method != ClientAuthMethod::InHeader,
            issuer,
            scopes: scopes.map(|at| at.value.clone()).collect(),
            audience: oauth.audience.as_ref().map(|at| at.value.clone()),
            resource,
            token_url,
            tls,
        })
    }

    /// The keys of `seal_key`.
    pub(super) fn seal_keys(&self, section: Option<&At<OneOrMany>>) -> Option<Vec<SealKey>> {
        let Some(At { value: OneOrMany(list), .. }) = section else { return Some(Vec::new()) };
        list.iter().map(|at| self.seal_key(at)).collect()
    }

    fn seal_key(&self, at: &At<String>) -> Option<SealKey> {
        let text = self.secret(at.node, &at.value, "seal_key")?;
        let bytes = BASE64_STANDARD.decode(text.expose_secret()).ok();
        match bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) {
            Some(key) => Some(SealKey(key)),
            None => {
                let template = Template::parse(&at.value, Dialect::Own).ok();
                self.outside(template.as_ref(), || self.refuse(at.node, mistakes::seal_key()))
            }
        }
    }

    fn private_key(&self, at: &At<Scalar>) -> Option<Secret> {
        let (pem, template) = self.resolve(at.node, &at.value.0, Dialect::Own)?;
        for line in pem.lines().filter(|line| line.len() > 16 && !line.starts_with('-')) {
            self.keep_secret(line);
        }
        if ClientKey::read(&pem).is_none() {
            return self
                .outside(Some(&template), || self.refuse(at.node, mistakes::no_private_key()));
        }
        Some(pem.into())
    }

    /// The `client_id` in the map `node`.
    pub(super) fn client_id(
        &self,
        node: NodeId,
        at: &Option<At<Scalar>>,
        cure: &str,
    ) -> Option<String> {
        let at = self.needed(node, at, mistakes::no_client_id(cure))?;
        let id = self.open_text(at.node, &at.value.0, Dialect::Own)?;
        if is_no_id(&id) {
            return self.refuse(at.node, mistakes::bad_client_id());
        }
        Some(id)
    }

    /// The secret below `key` in the map `node`.
    pub(super) fn needed_secret(
        &self,
        node: NodeId,
        at: &Option<At<Scalar>>,
        key: &str,
    ) -> Option<Secret> {
        let at = self.needed(node, at, mistakes::no_secret(key))?;
        self.secret(at.node, &at.value.0, key).map(Secret::from)
    }
}
