//! Authentication: checks that run before any handler.
//!
//! A web page can make a browser send requests to loopback: by a name of its own (DNS rebinding),
//! or without reading the answer (cross-site requests). `Host`, `Origin` and similar headers reveal
//! this. A program authenticates by a token, a client certificate or its Unix user. Every request
//! is checked again, so that an app loses its rights on open connections, too.
//!
//! Must not: look at a body, or say in a refusal which part of a token was wrong.

pub mod forms;
pub mod hosts;
pub mod lockout;
pub mod sessions;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, Request, header};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use self::hosts::Hosts;
use self::lockout::Lockout;
use self::sessions::Sessions;
use crate::config::Auth;
pub use crate::config::{App, TokenHash};
use crate::http::{ClientInfo, ClientKey, Code};
use crate::limits::token_bucket::Bucket;
use crate::metrics::Refused;
use crate::model::AppName;
use crate::model::maps::HashMap;
use crate::settings::Settings;
use crate::upstream::X_API_KEY;

/// The header with the operator's secret.
pub const OPERATOR: &str = "x-bridge-operator";

/// The checks of one bridge.
#[derive(Debug)]
pub struct Authenticator {
    auth: Auth,
    settings: watch::Receiver<Arc<Settings>>,
    lockout: Lockout,
    /// The rate limits of apps that have one.
    buckets: Mutex<HashMap<AppName, Bucket>>,
    hosts: watch::Sender<Arc<Hosts>>,
    /// The hash of the operator's secret, which gives rights that no app has.
    operator: TokenHash,
    /// The sessions of the status page.
    pub sessions: Arc<Sessions>,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Anyone,
    /// Anyone; a browser may come from a page of another origin, as it does from an issuer.
    Navigation,
    /// Anyone; an app that authenticates gets a fuller answer.
    AnyoneAppsMore,
    App,
    /// An app, or the operator.
    AppOrOperator,
    /// An app, the operator, or a session of the status page: the data and the buttons of the page.
    AppOrSession,
    /// An app, or a session that shows its key, which no cookie holds. For making calls, deciding
    /// on them, and accepting pins.
    AppOrSessionWithKey,
    /// An app or a session; anyone else gets the sign-in form. A browser may come from a page of
    /// another origin.
    AppOrForm,
}

/// Who signs in at the status page: the token, and the app that has it.
#[derive(Debug, Clone)]
pub struct SignIn {
    pub token: TokenHash,
    pub app: Arc<App>,
}

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Caller {
    pub app: Arc<App>,
    /// The header with the bridge's own token, which must not be forwarded.
    pub token_in: Option<HeaderName>,
    /// Whether the caller is the operator: by the secret in [`OPERATOR`], or by a session that
    /// began with it.
    pub is_operator: bool,
    /// Whether a session of the status page let the caller in. The right then ends with the
    /// session.
    pub in_session: bool,
}

impl Caller {
    fn app(app: Arc<App>, token_in: Option<HeaderName>) -> Self {
        Self { app, token_in, is_operator: false, in_session: false }
    }

    /// The operator, who names no app.
    pub fn operator() -> Self {
        Self { is_operator: true, ..Self::app(App::operator(), None) }
    }

    /// The app whose runs, calls and questions the caller may see; `None` for those of all apps.
    pub fn sees(&self) -> Option<&AppName> {
        if self.is_operator { None } else { Some(&self.app.name) }
    }

    /// Whether the caller may decide on the calls that it sees waiting.
    ///
    /// Most apps may not: an app that asks for calls could otherwise approve its own, and no person
    /// would be asked.
    pub fn may_decide(&self) -> bool {
        self.is_operator || self.app.approves
    }
}

impl Access {
    /// Whether the route needs no token.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Anyone | Self::Navigation | Self::AnyoneAppsMore)
    }

    fn takes_sessions(self) -> bool {
        matches!(self, Self::AppOrSession | Self::AppOrSessionWithKey | Self::AppOrForm)
    }

    /// Whether the operator, who is no app, may use the route.
    fn takes_operator(self) -> bool {
        self.takes_sessions() || self == Self::AppOrOperator
    }
}

/// Why a request was refused. Its sender gets the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthRefusal {
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
    #[error("The bridge has no free connection slot; close connections, or try again later.")]
    TooManyConnections,
    #[error(
        "The app has as many open requests as it may, as others need some, too; end some of its streams \
         or calls."
    )]
    TooManyOfApp,
    #[error("Too many requests from there came without a right token; wait before the next one.")]
    TooManyFailures(Duration),
    #[error("The app sends more requests than it may (`rate` in bridge.yaml); wait a moment.")]
    TooManyRequests(Duration),
    #[error(
        "The token is that of another app than the certificate; show the app's own token, or none. \
         MANTYX was not asked."
    )]
    OtherApp,
    #[error(
        "This app is known by its certificate, and the connection was made with another one. \
         MANTYX was not asked."
    )]
    OtherCertificate,
}

impl AuthRefusal {
    /// The label for the metrics, and the error code for programs.
    pub fn kinds(&self) -> (Refused, Code) {
        match self {
            Self::NoHost => (Refused::NoHost, Code::InvalidRequest),
            Self::ForeignHost => (Refused::ForeignHost, Code::HostRefused),
            Self::CrossOrigin => (Refused::CrossOrigin, Code::OriginRefused),
            Self::NoToken | Self::WrongToken | Self::OtherApp | Self::OtherCertificate => {
                (Refused::Unauthorized, Code::Unauthorized)
            }
            Self::TooManyConnections | Self::TooManyOfApp => {
                (Refused::TooManyConnections, Code::TooManyConnections)
            }
            Self::TooManyFailures(_) => (Refused::TooManyFailures, Code::TooManyFailures),
            Self::TooManyRequests(_) => (Refused::TooManyRequests, Code::TooManyRequests),
        }
    }
}

impl Authenticator {
    /// An authenticator of the apps in `settings`, on a bridge with the names `hosts`.
    pub fn new(
        auth: Auth,
        operator: TokenHash,
        settings: watch::Receiver<Arc<Settings>>,
        hosts: Hosts,
    ) -> Self {
        Self {
            auth,
            settings,
            lockout: Lockout::default(),
            buckets: Mutex::default(),
            hosts: watch::Sender::new(Arc::new(hosts)),
            operator,
            sessions: Arc::default(),
        }
    }

    /// Decides before any handler runs whether a request may continue, and who its caller is.
    pub fn admit<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, AuthRefusal> {
        self.check_browser(access, request, client)?;
        if access.is_open() {
            // A health check that shows a token may get a fuller answer. A wrong token never turns
            // it away, or monitoring would report a working bridge as down.
            return Ok(match access {
                Access::AnyoneAppsMore => self.recognize(request.headers(), client),
                _ => None,
            });
        }
        self.check_failures(client)?;
        let caller = self
            .caller(access, request, client)
            .map_err(|refusal| self.turned_away(refusal, client))?;
        if let Some(caller) = &caller {
            self.check_rate(&caller.app)?;
        }
        Ok(caller)
    }

    /// Finds the caller of a route that is not open to anyone.
    fn caller<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, AuthRefusal> {
        match self.identify(request.headers(), client) {
            Ok(mut caller) => {
                caller.is_operator = self.shows_operator(request.headers());
                // Where no token is needed, a session of the operator still counts as the
                // operator's.
                if caller.token_in.is_none()
                    && !caller.is_operator
                    && let Some(operator) = self.session_caller(access, request, client)
                    && operator.is_operator
                {
                    return Ok(Some(operator));
                }
                Ok(Some(caller))
            }
            Err(AuthRefusal::NoToken)
                if access.takes_operator() && self.shows_operator(request.headers()) =>
            {
                Ok(Some(Caller::operator()))
            }
            Err(AuthRefusal::NoToken) => match self.session_caller(access, request, client) {
                None if access != Access::AppOrForm => Err(AuthRefusal::NoToken),
                caller => Ok(caller),
            },
            Err(refusal) => Err(refusal),
        }
    }

    /// The caller of the request's session, if a session opens a route with this `access`. To make
    /// calls or decide on them, the session's key is needed as well: the browser sends a cookie
    /// with each request to the host, also with one that another program's page has begun.
    fn session_caller<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Option<Caller> {
        if !access.takes_sessions() {
            return None;
        }
        let caller = self.in_session(request, client)?;
        if access == Access::AppOrSessionWithKey && !self.sessions.has_key(request.headers()) {
            return None;
        }
        Some(caller)
    }

    /// The caller whose session the request's cookie stands for.
    fn in_session<B>(&self, request: &Request<B>, client: &ClientInfo) -> Option<Caller> {
        // The page's own requests carry `Origin`, and an earlier check refused other pages. Without
        // `Origin`, a request that changes something may come from another program of the same
        // host.
        let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD);
        if !changes_nothing && !request.headers().contains_key(header::ORIGIN) {
            return None;
        }
        let token = self.sessions.token(request.headers())?;
        let app = self.app_of(token, client)?;
        let is_operator = app.is_operator() || self.shows_operator(request.headers());
        Some(Caller { app, token_in: None, is_operator, in_session: true })
    }

    fn shows_operator(&self, headers: &HeaderMap) -> bool {
        headers.get(OPERATOR).map(|value| TokenHash::new(value.as_bytes())) == Some(self.operator)
    }

    /// The app of a token that a person typed, or the operator.
    pub fn sign_in(&self, token: &str, client: &ClientInfo) -> Result<SignIn, AuthRefusal> {
        let token = TokenHash::new(token.as_bytes());
        match self.app_of(token, client) {
            Some(app) => Ok(SignIn { token, app }),
            None => Err(self.turned_away(AuthRefusal::WrongToken, client)),
        }
    }

    /// The token by which a session of `caller` is known; `None` for an app without one.
    pub fn token_of(&self, caller: &Caller) -> Option<TokenHash> {
        if caller.is_operator { Some(self.operator) } else { caller.app.token }
    }

    /// Replaces the names of the bridge.
    pub fn set_hosts(&self, hosts: Hosts) {
        self.hosts.send_replace(Arc::new(hosts));
    }

    /// Refuses requests that only a browser sends on behalf of a foreign page, and requests by a
    /// name that is not the bridge's.
    fn check_browser<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Result<(), AuthRefusal> {
        let headers = request.headers();
        let ours = Arc::clone(&self.hosts.borrow());
        if !matches!(client, ClientInfo::Unix { .. }) {
            let mut hosts = headers.get_all(header::HOST).iter();
            let (Some(host), None) = (hosts.next(), hosts.next()) else {
                return Err(AuthRefusal::NoHost);
            };
            let host = host.to_str().unwrap_or_default();
            let authority = request.uri().authority().map_or(host, http::uri::Authority::as_str);
            if !ours.has(host) || !ours.has(authority) {
                return Err(AuthRefusal::ForeignHost);
            }
        }
        // The page may be opened by the link of a notice in a chat. Its session's cookie does not
        // come with such a request.
        if matches!(access, Access::Navigation | Access::AppOrForm) && is_navigation(request) {
            return Ok(());
        }
        let foreign = text_of(headers, header::ORIGIN)
            .is_some_and(|origin| !ours.is_own_page(origin))
            || text_of(headers, header::REFERER).is_some_and(|referer| !ours.is_own_page(referer))
            || text_of(headers, HeaderName::from_static("sec-fetch-site"))
                .is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if foreign { Err(AuthRefusal::CrossOrigin) } else { Ok(()) }
    }

    /// Refuses a client that has shown too many wrong tokens, even if its present one is right.
    pub fn check_failures(&self, client: &ClientInfo) -> Result<(), AuthRefusal> {
        let wait = self.lockout.brake(ClientKey::new(client), Instant::now());
        wait.map_or(Ok(()), |wait| Err(AuthRefusal::TooManyFailures(wait)))
    }

    /// Counts a request against the rate limit of its app, if that has one.
    fn check_rate(&self, app: &App) -> Result<(), AuthRefusal> {
        let Some(rate) = app.rate else { return Ok(()) };
        let now = Instant::now();
        let mut buckets = self.buckets.lock();
        if !buckets.contains_key(&app.name) {
            // A reload may have removed apps since the last one came.
            let settings = self.settings();
            buckets.retain(|name, _| settings.app(name).is_some());
        }
        let bucket = buckets.entry(app.name.clone()).or_insert_with(|| Bucket::full(rate, now));
        bucket.take(rate, now).map_err(AuthRefusal::TooManyRequests)
    }

    /// The caller's app, for a route that is open to everyone. A wrong token counts as a failure
    /// here, too, so that such a route is no place to guess tokens.
    fn recognize(&self, headers: &HeaderMap, client: &ClientInfo) -> Option<Caller> {
        self.check_failures(client).ok()?;
        match self.identify(headers, client) {
            Ok(caller) => Some(caller),
            Err(AuthRefusal::NoToken) => None,
            Err(refusal) => {
                self.turned_away(refusal, client);
                None
            }
        }
    }

    /// Records that a caller was refused; returns the refusal to send.
    fn turned_away(&self, refusal: AuthRefusal, client: &ClientInfo) -> AuthRefusal {
        if refusal.kinds().1 != Code::Unauthorized {
            return refusal;
        }
        let wait = self.lockout.note(ClientKey::new(client), Instant::now());
        wait.map_or(refusal, AuthRefusal::TooManyFailures)
    }

    /// Authenticates the caller: by its certificate, its token, or its user.
    fn identify(&self, headers: &HeaderMap, client: &ClientInfo) -> Result<Caller, AuthRefusal> {
        let settings = self.settings();
        let own = app_of_connection(&settings, client);
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let key = headers.get(X_API_KEY).map(http::HeaderValue::as_bytes);
        let credentials = [(header::AUTHORIZATION, bearer), (X_API_KEY, key)];
        for (name, token) in &credentials {
            let Some(token) = token else { continue };
            let Some(app) = holder(&settings, TokenHash::new(token)) else { continue };
            return match &own {
                Some(own) if matches!(client, ClientInfo::Tls { .. }) && own.name != app.name => {
                    Err(AuthRefusal::OtherApp)
                }
                None if needs_certificate(&app, client) => Err(AuthRefusal::OtherCertificate),
                _ => Ok(Caller::app(app, Some(name.clone()))),
            };
        }
        if let Some(app) = own {
            return Ok(Caller::app(app, None));
        }
        match (self.auth, settings.apps.first()) {
            (Auth::Off, Some(first)) => Ok(Caller::app(Arc::clone(&first.app), None)),
            _ if credentials.iter().any(|(_, token)| token.is_some()) => {
                Err(AuthRefusal::WrongToken)
            }
            _ => Err(AuthRefusal::NoToken),
        }
    }

    /// Resolves when `app` is not let in any more as it was: a reload has removed it, or has
    /// changed its token, user or certificate.
    pub fn until_removed(&self, app: Arc<App>) -> impl Future<Output = ()> + use<> {
        let mut settings = self.settings.clone();
        async move {
            let removal = settings.wait_for(|settings| {
                settings.app(&app.name).is_none_or(|entry| !entry.app.is_known_like(&app))
            });
            // An error means that no reload can follow, as the daemon is ending.
            removal.await.ok();
        }
    }

    /// The app that has this token and may show it on this connection. For the operator's secret:
    /// the operator.
    pub fn app_of(&self, token: TokenHash, client: &ClientInfo) -> Option<Arc<App>> {
        if token == self.operator {
            return Some(App::operator());
        }
        holder(&self.settings(), token).filter(|app| !needs_certificate(app, client))
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }
}

/// The app with this token.
fn holder(settings: &Settings, token: TokenHash) -> Option<Arc<App>> {
    // Compares all tokens even after a match, so that the time does not reveal which one matched.
    let mut holder = None;
    for entry in &settings.apps {
        if entry.app.token == Some(token) {
            holder = Some(Arc::clone(&entry.app));
        }
    }
    holder
}

/// The app of the connection's certificate, or of the user who has opened it. If the names in a
/// certificate are those of several apps, it is the first one's.
fn app_of_connection(settings: &Settings, client: &ClientInfo) -> Option<Arc<App>> {
    let entry = settings.apps.iter().find(|entry| match client {
        ClientInfo::Tls { names: Some(names), .. } => {
            entry.app.certificate.iter().flatten().any(|name| names.contains(name))
        }
        ClientInfo::Unix { peer: Some(peer) } => entry.app.users.contains(&peer.uid),
        _ => false,
    })?;
    Some(Arc::clone(&entry.app))
}

/// The text of a header; empty for one that is no text, so that such an `Origin` is a foreign one.
fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or(""))
}

/// Whether a browser opens the address as a page, by a link or an address that it was sent to. A
/// page of another origin cannot read the answer, and can send nothing along.
fn is_navigation<B>(request: &Request<B>) -> bool {
    let says = |name: &'static str, value: &str| {
        text_of(request.headers(), HeaderName::from_static(name)) == Some(value)
    };
    *request.method() == Method::GET
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document")
}

/// Whether the app has to show a certificate as well on this connection, so that a stolen token
/// alone is useless.
fn needs_certificate(app: &App, client: &ClientInfo) -> bool {
    app.certificate.is_some() && matches!(client, ClientInfo::Tls { .. })
}

/// The token of an `Authorization` header with the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    if scheme.eq_ignore_ascii_case(b"bearer ") { Some(token.trim_ascii()) } else { None }
}

#[cfg(test)]
mod tests;
