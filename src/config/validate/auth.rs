//! `auth` of a backend: a static token, or a client that fetches its own.
//!
//! Must not: show a token or a client's secret.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use secrecy::ExposeSecret as _;
use url::Url;

use super::web::is_in_the_open;
use super::{Validator, mistakes};
use crate::config::reference::Template;
use crate::config::{
    At, ClientAuth, ClientCredentials, Dialect, NodeId, Scalar, Secret, file_format,
};
use crate::http_client::sensitive;
use crate::oauth::assertion::ClientKey;
use crate::oauth::endpoint::Shows;

impl Validator<'_> {
    /// Adds a static token to `headers`, or returns the client that fetches tokens. The address of
    /// a backend that `is_socket` leads to no token endpoint. `None` outside: a mistake was
    /// reported.
    pub(super) fn backend_auth(
        &self,
        section: Option<&At<file_format::BackendAuth>>,
        headers: &mut HeaderMap,
        url: Option<&Url>,
        is_socket: bool,
    ) -> Option<Option<Arc<ClientCredentials>>> {
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
            (None, Some(oauth)) => {
                self.client_credentials(oauth, is_socket).map(|oauth| Some(Arc::new(oauth)))
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
        let shows = match (&oauth.private_key, &oauth.client_auth) {
            (Some(_), _) => Shows::Signed,
            (None, Some(At { value: ClientAuth::Post, .. })) => Shows::InBody,
            (None, _) => Shows::InHeader,
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
            shows,
            is_chosen: oauth.client_auth.is_some(),
            token_url,
            audience,
            scopes: scopes.map(|at| at.value.clone()).collect(),
        })
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
        if id.is_empty() || id.chars().any(char::is_control) {
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
