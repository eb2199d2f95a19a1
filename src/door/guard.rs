//! Who may come in: checks that run before any handler.
//!
//! A web page can make a browser send requests to loopback, by name (DNS rebinding) or blindly
//! (cross-site requests); `Host`, `Origin` and their kin give it away. A program shows a token.
//!
//! Must not: look at a body, or say in a refusal which part of a token was wrong.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::Arrival;
use crate::{
    config::{App, Auth},
    metrics::{Label as _, Refused},
    upstream::X_API_KEY,
};

/// The checks of one bridge.
#[derive(Debug)]
pub struct Guard {
    auth: Auth,
    apps: watch::Sender<Arc<[KnownApp]>>,
    /// What `Host` may say, in lower case, with the port.
    hosts: BTreeSet<String>,
}

#[derive(Debug)]
struct KnownApp {
    app: Arc<App>,
    token: TokenHash,
}

/// Compared in place of a token, so that the time tells nothing about it.
#[derive(Debug, Clone, Copy, Eq)]
pub struct TokenHash([u8; 32]);

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TokenHash {
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// A caller that has been let in.
#[derive(Debug, Clone)]
pub struct Caller {
    pub app: Arc<App>,
    /// The header that the bridge's own token came in; it goes no further.
    pub token_in: Option<HeaderName>,
}

/// Why a request was turned away. The text is for its sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The request has no single Host header.")]
    NoHost,
    #[error(
        "The Host header names none of the bridge's addresses; use the address that the bridge \
         listens on."
    )]
    ForeignHost,
    #[error("The request comes from a web page of another origin; the bridge serves none.")]
    CrossOrigin,
    #[error(
        "The bridge wants its own token, as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`; \
         `mantyx-bridge token` prints it. MANTYX was not asked."
    )]
    NoToken,
    #[error(
        "The token is not one of this bridge's; `mantyx-bridge token` prints the right one. \
         MANTYX was not asked."
    )]
    WrongToken,
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::ForeignHost | Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
        }
    }

    /// What it is counted as.
    pub fn kind(&self) -> Refused {
        match self {
            Self::NoHost => Refused::NoHost,
            Self::ForeignHost => Refused::ForeignHost,
            Self::CrossOrigin => Refused::CrossOrigin,
            Self::NoToken | Self::WrongToken => Refused::Unauthorized,
        }
    }

    /// For programs.
    pub fn code(&self) -> &'static str {
        self.kind().as_str()
    }
}

impl Guard {
    /// A guard of `apps` behind listeners on `addresses`.
    pub fn new(auth: Auth, apps: &[App], addresses: &[SocketAddr]) -> Self {
        let hosts = addresses.iter().flat_map(|address| names_of(*address)).collect();
        Self { auth, apps: watch::Sender::new(known(apps)), hosts }
    }

    /// Lets these apps in from now on, and no others.
    pub fn set_apps(&self, apps: &[App]) {
        self.apps.send_replace(known(apps));
    }

    /// Refuses what only a browser sends on behalf of a foreign page, and requests by a name that
    /// is not ours.
    pub fn check_browser(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        arrival: Arrival,
    ) -> Result<(), Refusal> {
        if matches!(arrival, Arrival::Tcp { .. }) {
            let mut hosts = headers.get_all(header::HOST).iter();
            let (Some(host), None) = (hosts.next(), hosts.next()) else {
                return Err(Refusal::NoHost);
            };
            let host = host.to_str().unwrap_or_default();
            let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
            if !self.is_ours(host) || !self.is_ours(authority) {
                return Err(Refusal::ForeignHost);
            }
        }
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let own_page = |page: &str| {
            let host = page.strip_prefix("http://").map(|rest| rest.split('/').next());
            host.flatten().is_some_and(|host| self.is_ours(host))
        };
        let foreign = text(header::ORIGIN).is_some_and(|origin| !own_page(origin))
            || text(header::REFERER).is_some_and(|referer| !own_page(referer))
            || text(HeaderName::from_static("sec-fetch-site"))
                .is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if foreign { Err(Refusal::CrossOrigin) } else { Ok(()) }
    }

    /// Finds the app that the token belongs to.
    pub fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let key = headers.get(X_API_KEY).map(http::HeaderValue::as_bytes);
        let shown = [(header::AUTHORIZATION, bearer), (X_API_KEY, key)];
        for (name, token) in shown.iter().filter_map(|(name, token)| Some((name, (*token)?))) {
            if let Some(app) = self.app_of(TokenHash::of(token)) {
                return Ok(Caller { app, token_in: Some(name.clone()) });
            }
        }
        let first = self.apps.borrow().first().map(|known| Arc::clone(&known.app));
        match (self.auth, first) {
            (Auth::Off, Some(app)) => Ok(Caller { app, token_in: None }),
            _ if shown.iter().any(|(_, token)| token.is_some()) => Err(Refusal::WrongToken),
            _ => Err(Refusal::NoToken),
        }
    }

    /// The app that has this token.
    pub fn app_of(&self, token: TokenHash) -> Option<Arc<App>> {
        // All are compared, whichever matches.
        let mut found = None;
        for known in self.apps.borrow().iter() {
            if known.token == token {
                found = Some(Arc::clone(&known.app));
            }
        }
        found
    }

    fn is_ours(&self, host: &str) -> bool {
        self.hosts.contains(&host.to_ascii_lowercase())
    }
}

fn known(apps: &[App]) -> Arc<[KnownApp]> {
    let known = |app: &App| {
        let token = TokenHash::of(app.token.expose_secret().as_bytes());
        KnownApp { app: Arc::new(app.clone()), token }
    };
    apps.iter().map(known).collect()
}

/// The token of an `Authorization` header with the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The names by which a listener is reached.
fn names_of(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut names = vec![address.to_string()];
    let everywhere = address.ip().is_unspecified();
    if address.ip().is_loopback() || everywhere {
        names.push(format!("localhost:{port}"));
        if everywhere || address.is_ipv4() {
            names.push(format!("127.0.0.1:{port}"));
        }
        if everywhere || address.is_ipv6() {
            names.push(format!("[::1]:{port}"));
        }
    }
    if port == 80 {
        let bare: Vec<String> =
            names.iter().filter_map(|name| Some(name.strip_suffix(":80")?.to_owned())).collect();
        names.extend(bare);
    }
    names
}

#[cfg(test)]
mod tests;
