//! `auth` of a backend: a static token, or a client that fetches its own.
//!
//! Must not: show a token or a client's secret.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use secrecy::ExposeSecret as _;
use url::Url;

use super::Validator;
use super::web::is_in_the_open;
use crate::config::reference::Template;
use crate::config::{At, ClientCredentials, Dialect, NodeId, Scalar, Secret, file_format};
use crate::http_client::sensitive;
use crate::oauth::assertion::ClientKey;
use crate::oauth::endpoint::Shows;

impl Validator<'_> {
    /// Adds a static token to `headers`, or returns the client that fetches tokens. The address of a
    /// backend that `is_socket` leads to no token endpoint. `None` outside: a mistake was reported.
    pub(super) fn backend_auth(
        &self,
        section: Option<&At<file_format::BackendAuth>>,
        headers: &mut HeaderMap,
        url: Option<&Url>,
        is_socket: bool,
    ) -> Option<Option<Arc<ClientCredentials>>> {
        let Some(At { value: auth, node }) = section else { return Some(None) };
        if headers.contains_key(header::AUTHORIZATION) {
            let message = "`auth` and the header Authorization say the same thing twice";
            self.error(node.key(), message, "remove one of the two");
        }
        match (&auth.bearer, &auth.oauth) {
            (Some(_), Some(oauth)) => {
                let message = "`auth` has either `bearer` or `oauth`";
                self.refuse(oauth.node.key(), message, "remove one of the two")
            }
            (None, None) => {
                let cure = "write `bearer: ${file:/path}`, or `oauth: {client_id: …, \
                            client_secret: ${file:/path}}`";
                self.missing(*node, "`auth` says nothing", cure)
            }
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
            let message = "the word Bearer is put before it";
            let cure = "write the token alone";
            return self.outside(template.as_ref(), || self.refuse(at.node, message, cure));
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
        let shows = oauth.private_key.as_ref().map_or(Shows::default(), |_| Shows::Signed);
        let secret = match (&oauth.client_secret, &oauth.private_key) {
            (Some(_), Some(key)) => {
                let message = "`oauth` has either `client_secret` or `private_key`";
                self.refuse(key.node.key(), message, "remove one of the two")
            }
            (None, Some(key)) => self.private_key(key),
            (secret, None) => self.needed_secret(*node, secret, "client_secret"),
        };
        let token_url = match &oauth.token_url {
            Some(at) => {
                let warning = "the client's secret travels without TLS; write https://";
                self.private_url(at, warning).map(Some)
            }
            None if is_socket => {
                let message = "`token_url` is missing, and cannot be found out on a unix socket";
                self.missing(*node, message, "write `token_url: https://…`")
            }
            None => Some(None),
        };
        let scopes = oauth.scopes.iter().flat_map(|at| &at.value);
        let scopes = scopes.map(|at| at.value.clone()).collect();
        let (id, secret, token_url) = (id?, secret?, token_url?);
        let audience = oauth.audience.as_ref().map(|at| at.value.clone());
        if let Some(at) = &oauth.audience
            && (at.value.is_empty() || oauth.token_url.is_none())
        {
            let message = "`audience` is empty, or `token_url` is missing";
            self.error(at.node.key(), message, "write both, or leave `audience` out");
        }
        Some(ClientCredentials { id, secret, shows, token_url, audience, scopes })
    }

    fn private_key(&self, at: &At<Scalar>) -> Option<Secret> {
        let (pem, template) = self.resolve(at.node, &at.value.0, Dialect::Own)?;
        for line in pem.lines().filter(|line| line.len() > 16 && !line.starts_with('-')) {
            self.keep_secret(line);
        }
        if ClientKey::read(&pem).is_none() {
            let cure =
                "write `${file:/path}` of a key in PEM (PKCS #8): P-256, P-384, Ed25519 or RSA";
            let refuse = || self.refuse(at.node, "this is no private key", cure);
            return self.outside(Some(&template), refuse);
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
        let at = self.needed(node, at, "`client_id` is missing", cure)?;
        let id = self.open_text(at.node, &at.value.0, Dialect::Own)?;
        if id.is_empty() || id.chars().any(char::is_control) {
            let message = "this is no client id";
            return self.refuse(at.node, message, "write the id that was registered");
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
        let cure = format!("write `{key}: ${{file:/path}}`, or ${{env:NAME}} or ${{cred:NAME}}");
        let at = self.needed(node, at, format!("`{key}` is missing"), cure)?;
        self.secret(at.node, &at.value.0, key).map(Secret::from)
    }
}
