//! What servers and issuers say of themselves (RFC 9728, RFC 8414), and whether it may be believed.
//! Pure.
//!
//! Must not: do IO; or take an address that its namer may not name (`oauth::discovery::may_name`).

use url::{Host, Url};

use crate::http_client::address::{names_user, shown};
use crate::http_client::names_link_local;
use crate::model::Members;
use crate::oauth::discovery::{may_name, texts};

/// A server as a protected resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResourceMetadata {
    /// Its own name for itself, which requests for tokens repeat to the letter.
    pub(super) resource: Option<String>,
    pub(super) issuers: Vec<String>,
    pub(super) scopes: Vec<String>,
}

impl ResourceMetadata {
    /// Reads the metadata of the server at `server`; the error completes "it …".
    pub(super) fn read(text: &str, server: &Url) -> Result<Self, String> {
        let members = Members::read(text).map_err(|_bad| "is no JSON object".to_owned())?;
        let resource = members.string("resource");
        if let Some(name) = &resource
            && !is_parent(name, server)
        {
            return Err("is that of another server".to_owned());
        }
        let list = |name| members.get(name).map(texts).unwrap_or_default();
        Ok(Self {
            resource,
            issuers: list("authorization_servers"),
            scopes: list("scopes_supported"),
        })
    }
}

/// Whether `name` is the address of the server, or a parent of its path. Otherwise a server could
/// have tokens issued for another one, and use them there.
fn is_parent(name: &str, server: &Url) -> bool {
    let Ok(url) = Url::parse(name) else { return false };
    if url.origin() != server.origin() || names_user(&url) {
        return false;
    }
    let parent = url.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What the metadata says about PKCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pkce {
    S256,
    /// Only methods that protect nothing.
    WithoutS256,
    Unsaid,
}

/// An issuer of tokens.
#[derive(Debug, Clone)]
pub(super) struct IssuerMetadata {
    /// Its name, as it writes it.
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    pub(super) revocation_endpoint: Option<Url>,
    pub(super) scopes: Vec<String>,
    pub(super) pkce: Pkce,
    /// How clients authenticate at the token endpoint, if it says so.
    pub(super) auth_methods: Option<Vec<String>>,
    /// It sends its name along with each answer to a browser (RFC 9207).
    pub(super) returns_issuer: bool,
}

/// On whose word the metadata is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Namers<'a> {
    /// The server, at the operator's address.
    pub(super) server: &'a Url,
    pub(super) issuer: &'a Url,
    /// The operator has named the issuer, too.
    pub(super) is_configured: bool,
}

impl IssuerMetadata {
    /// Reads the metadata of the issuer that was asked for as `asked`. `token_endpoint` is the
    /// operator's, in place of the one in the metadata. The error completes "it …".
    pub(super) fn read(
        text: &str,
        asked: &str,
        namers: Namers<'_>,
        token_endpoint: Option<&Url>,
    ) -> Result<Self, String> {
        let members = Members::read(text).map_err(|_bad| "is no JSON object".to_owned())?;
        let issuer = members.string("issuer").unwrap_or_default();
        if !is_same_issuer(&issuer, asked) {
            return Err("is that of another issuer".to_owned());
        }
        let endpoint = |name: &str| -> Result<Option<Url>, String> {
            let Some(text) = members.string(name) else { return Ok(None) };
            let url = namers.issuer.join(&text);
            let url = url.map_err(|error| format!("names a `{name}` that is no URL ({error})"))?;
            if may_name(Some(namers.issuer), &url) {
                return Ok(Some(url));
            }
            Err(format!("names {} as `{name}`, which is not https and not its own", shown(&url)))
        };
        let authorization = members.string("authorization_endpoint");
        let authorization = authorization.ok_or("names no authorization endpoint")?;
        let named_endpoint = match token_endpoint {
            Some(url) => Some(url.clone()),
            None => endpoint("token_endpoint")?,
        };
        let list = |name| members.get(name).map(texts);
        let methods = list("code_challenge_methods_supported");
        let flag = |name| members.get(name).is_some_and(|raw| raw.get() == "true");
        Ok(Self {
            authorization_endpoint: browser_address(&authorization, namers)?,
            token_endpoint: named_endpoint.ok_or("names no token endpoint")?,
            registration_endpoint: endpoint("registration_endpoint")?,
            revocation_endpoint: endpoint("revocation_endpoint")?,
            scopes: list("scopes_supported").unwrap_or_default(),
            pkce: match methods {
                None => Pkce::Unsaid,
                Some(methods) if methods.iter().any(|method| method == "S256") => Pkce::S256,
                Some(_) => Pkce::WithoutS256,
            },
            auth_methods: list("token_endpoint_auth_methods_supported"),
            returns_issuer: flag("authorization_response_iss_parameter_supported"),
            issuer,
        })
    }

    /// Why the bridge asks it for no code, if so; the reason completes "it …". Without S256, a code
    /// that another program of the browser's machine reads is enough for a token.
    pub(super) fn unsafe_because(&self, client_is_configured: bool) -> Option<&'static str> {
        match self.pkce {
            Pkce::S256 => None,
            // Entra and Cognito support it, and do not say so.
            Pkce::Unsaid if client_is_configured => None,
            Pkce::Unsaid => Some(
                "does not say that the issuer supports PKCE with S256; if it does, register a \
                 client there and set `auth.oauth.client_id`",
            ),
            Pkce::WithoutS256 => Some("lists PKCE methods without S256, which protect nothing"),
        }
    }
}

/// Whether these are the names of one issuer: equal to the letter, but for a slash after the host.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    without_host_slash(one) == without_host_slash(other)
}

fn without_host_slash(issuer: &str) -> &str {
    match issuer.strip_suffix('/') {
        Some(rest) if Url::parse(issuer).is_ok_and(|url| url.path() == "/") => rest,
        _ => issuer,
    }
}

/// An address that a browser will open: https, or a loopback address on the operator's word. Any
/// other scheme could run a program or a script on the operator's machine.
fn browser_address(text: &str, namers: Namers<'_>) -> Result<Url, String> {
    let url = namers.issuer.join(text);
    let url =
        url.map_err(|error| format!("names an authorization endpoint that is no URL ({error})"))?;
    let is_operators = namers.is_configured || url.origin() == namers.server.origin();
    let is_good = match url.scheme() {
        "https" => true,
        "http" => is_operators && names_loopback(&url),
        _ => false,
    };
    if is_good && !names_user(&url) && !names_link_local(&url) {
        return Ok(url);
    }
    Err(format!("names {} as its authorization endpoint, which is not https", shown(&url)))
}

pub(super) fn names_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests;
