//! Who the bridge is at the issuers of its backends' tokens, and what seals what they give it.
//!
//! Must not: show a secret or a key.

use std::sync::Arc;

use url::Url;

use super::{Secret, Tls, Written};
use crate::oauth::endpoint::ClientAuthMethod;

/// Who the bridge is at the issuer of a backend's tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum OauthClient {
    Credentials(Arc<ClientCredentials>),
    Login(Arc<LoginClient>),
}

/// How a person logs in for the bridge at a backend's issuer. All of it may be left out: the
/// backend then says where its issuer is, and the bridge registers itself there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoginClient {
    /// The id that the operator has registered, or the https address of a client's metadata.
    pub id: Option<String>,
    /// A private key as PEM where the client signs; `None`: a public client.
    pub secret: Option<Secret>,
    pub auth_method: ClientAuthMethod,
    /// Whether the operator has chosen `auth_method`, so that no other way is tried.
    pub method_is_configured: bool,
    /// The issuer, in the operator's own words.
    pub issuer: Option<Written<Url>>,
    /// The scopes; empty means those that the backend names.
    pub scopes: Vec<String>,
    /// The parameter `audience`, which some issuers want in place of `resource`.
    pub audience: Option<String>,
    pub resource: ResourceParameter,
    /// The token endpoint, in place of the one in the issuer's metadata.
    pub token_url: Option<Written<Url>>,
    /// The TLS settings of the issuer.
    pub tls: Option<Tls>,
}

/// What a request for a token names as its `resource` (RFC 8707).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResourceParameter {
    /// What the backend calls itself.
    #[default]
    ByBackend,
    Text(String),
    /// Nothing: the issuer refuses requests that have it.
    Off,
}

/// An OAuth client that fetches the tokens for a backend itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCredentials {
    pub id: String,
    /// A private key as PEM where the client signs.
    pub secret: Secret,
    pub auth_method: ClientAuthMethod,
    /// Whether the operator has chosen `auth_method`, so that no other way is tried.
    pub method_is_configured: bool,
    /// The token endpoint; `None`: the one that the backend names.
    pub token_url: Option<Written<Url>>,
    /// For whom a key signs where `token_url` is set; `None`: for `token_url`.
    pub audience: Option<String>,
    /// The scopes; empty means those that the backend names.
    pub scopes: Vec<String>,
}

/// A key of `seal_key`. It is not shown.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("SealKey(..)")]
pub struct SealKey(pub [u8; 32]);
