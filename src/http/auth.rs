//! Who may come in: checks that run before any handler.
//!
//! A web page can make a browser send requests to loopback, by name (DNS rebinding) or blindly
//! (cross-site requests); `Host`, `Origin` and their kin give it away. A program shows a token, or its
//! certificate or the kernel says who it is. Each request is looked at anew: what has been taken from
//! an app does not help it on a connection that it has open.
//!
//! Must not: look at a body, or say in a refusal which part of a token was wrong.

pub mod forms;
pub mod hosts;
pub mod lockout;
pub mod rate_limit;
pub mod sessions;

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri, header};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use self::{hosts::Hosts, lockout::Lockout, rate_limit::Bucket, sessions::Sessions};
pub use crate::config::{App, TokenHash};
use crate::{
    config::Auth,
    http::{
        client_info::{ClientInfo, ClientKey},
        error_code::Code,
    },
    metrics::Refused,
    model::ids::AppName,
    upstream::X_API_KEY,
};

/// The header in which the operator shows who it is.
pub const OPERATOR: &str = "x-bridge-operator";

/// The checks of one bridge.
#[derive(Debug)]
pub struct Authenticator {
    auth: Auth,
    apps: watch::Sender<Arc<[Arc<App>]>>,
    lockout: Lockout,
    /// What is left to apps whose requests are limited.
    left: Mutex<HashMap<AppName, Bucket>>,
    hosts: watch::Sender<Arc<Hosts>>,
    /// The operator's secret, for what no app may do.
    operator: TokenHash,
    /// Those of the status page.
    pub sessions: Arc<Sessions>,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Anyone,
    /// Anyone, and an app that shows itself is told more.
    AnyoneAppsMore,
    App,
    /// Also a session of the status page: what the page shows, and what it has buttons for.
    AppOrSession,
    /// A session opens it only with its key, which no cookie is: what a call is made with, whether it
    /// is, and what is accepted of a backend.
    AppOrSessionWithKey,
    /// Others get the form to sign in.
    AppOrForm,
}

/// A caller that has been let in.
#[derive(Debug, Clone)]
pub struct Caller {
    pub app: Arc<App>,
    /// The header that the bridge's own token came in; it goes no further.
    pub token_in: Option<HeaderName>,
    /// It has shown that it is the operator: by the secret in [`OPERATOR`], or by a session that
    /// began with it.
    pub is_operator: bool,
    /// A session of the status page lets it in, for as long as that lasts.
    pub in_session: bool,
}

impl Caller {
    fn app(app: Arc<App>, token_in: Option<HeaderName>) -> Self {
        Self { app, token_in, is_operator: false, in_session: false }
    }

    /// Whose runs, calls and questions the caller may see: `None` for those of all apps.
    pub fn sees(&self) -> Option<&AppName> {
        (!self.is_operator).then_some(&self.app.name)
    }

    /// Whether the caller may decide on the calls that it sees waiting.
    ///
    /// An app does not: what asks for calls would otherwise approve them, and no person is asked.
    pub fn may_decide(&self) -> bool {
        self.is_operator || self.app.approves
    }
}

impl Access {
    /// Whether no token is needed.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Anyone | Self::AnyoneAppsMore)
    }

    fn takes_sessions(self) -> bool {
        matches!(self, Self::AppOrSession | Self::AppOrSessionWithKey | Self::AppOrForm)
    }
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
    #[error("The bridge has as many connections open as it takes; close some, or come back later.")]
    TooManyConnections,
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

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::ForeignHost | Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken | Self::OtherApp | Self::OtherCertificate => {
                StatusCode::UNAUTHORIZED
            }
            Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyFailures(_) | Self::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// What it is counted as.
    pub fn kind(&self) -> Refused {
        match self {
            Self::NoHost => Refused::NoHost,
            Self::ForeignHost => Refused::ForeignHost,
            Self::CrossOrigin => Refused::CrossOrigin,
            Self::NoToken | Self::WrongToken | Self::OtherApp | Self::OtherCertificate => {
                Refused::Unauthorized
            }
            Self::TooManyConnections => Refused::TooManyConnections,
            Self::TooManyFailures(_) => Refused::TooManyFailures,
            Self::TooManyRequests(_) => Refused::TooManyRequests,
        }
    }

    /// For programs.
    pub fn code(&self) -> Code {
        match self {
            Self::NoHost => Code::InvalidRequest,
            Self::ForeignHost => Code::HostRefused,
            Self::CrossOrigin => Code::OriginRefused,
            Self::NoToken | Self::WrongToken | Self::OtherApp | Self::OtherCertificate => {
                Code::Unauthorized
            }
            Self::TooManyConnections => Code::TooManyConnections,
            Self::TooManyFailures(_) => Code::TooManyFailures,
            Self::TooManyRequests(_) => Code::TooManyRequests,
        }
    }
}

impl Authenticator {
    /// An authenticator of `apps` on a bridge that is called `hosts`.
    pub fn new(auth: Auth, operator: TokenHash, apps: &[App], hosts: Hosts) -> Self {
        Self {
            auth,
            apps: watch::Sender::new(known(apps)),
            lockout: Lockout::default(),
            left: Mutex::default(),
            hosts: watch::Sender::new(Arc::new(hosts)),
            operator,
            sessions: Arc::default(),
        }
    }

    /// Decides whether a request may go on, before any handler runs, and as whose.
    pub fn admit<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, Refusal> {
        self.check_browser(request.uri(), request.headers(), client)?;
        if access.is_open() {
            // A program that watches over the bridge may be told more, and is never turned away.
            let wants_more = access == Access::AnyoneAppsMore;
            return Ok(wants_more.then(|| self.recognize(request.headers(), client)).flatten());
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

    /// Finds out who the caller of a route is that is not open to anyone.
    fn caller<B>(
        &self,
        access: Access,
        request: &Request<B>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, Refusal> {
        let in_session = || {
            let caller = self.in_session(request, client).filter(|_| access.takes_sessions());
            let wants_key = access == Access::AppOrSessionWithKey;
            caller.filter(|_| !wants_key || self.sessions.has_key(request.headers()))
        };
        match self.identify(request.headers(), client) {
            Ok(mut caller) => {
                caller.is_operator = self.shows_operator(request.headers());
                // Where nobody has to show a token, the operator is told apart all the same.
                let is_free = caller.token_in.is_none() && !caller.is_operator;
                let operator = is_free.then(in_session).flatten().filter(|it| it.is_operator);
                Ok(Some(operator.unwrap_or(caller)))
            }
            Err(Refusal::NoToken) if access == Access::AppOrForm => Ok(in_session()),
            Err(Refusal::NoToken) => in_session().ok_or(Refusal::NoToken).map(Some),
            Err(refusal) => Err(refusal),
        }
    }

    /// The caller whose session the request's cookie stands for.
    fn in_session<B>(&self, request: &Request<B>, client: &ClientInfo) -> Option<Caller> {
        // The page's own requests say so; it was checked that the page is no other.
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        if !looks && !request.headers().contains_key(header::ORIGIN) {
            return None;
        }
        let token = self.sessions.token(request.headers())?;
        let app = self.app_of(token, client)?;
        let is_operator = app.is_operator() || self.shows_operator(request.headers());
        Some(Caller { app, token_in: None, is_operator, in_session: true })
    }

    fn shows_operator(&self, headers: &HeaderMap) -> bool {
        headers.get(OPERATOR).map(|value| TokenHash::of(value.as_bytes())) == Some(self.operator)
    }

    /// The app that a token typed by a person is of, or the operator.
    pub fn app_by_token(
        &self,
        token: &str,
        client: &ClientInfo,
    ) -> Result<(TokenHash, Arc<App>), Refusal> {
        let token = TokenHash::of(token.as_bytes());
        let app = self.app_of(token, client);
        app.map(|app| (token, app)).ok_or_else(|| self.turned_away(Refusal::WrongToken, client))
    }

    /// Lets these apps in from now on, and no others.
    pub fn set_apps(&self, apps: &[App]) {
        self.apps.send_replace(known(apps));
        let mut left = self.left.lock();
        left.retain(|name, _| apps.iter().any(|app| app.name == *name));
    }

    /// The bridge is called `hosts` from now on.
    pub fn set_hosts(&self, hosts: Hosts) {
        self.hosts.send_replace(Arc::new(hosts));
    }

    /// Refuses what only a browser sends on behalf of a foreign page, and requests by a name that
    /// is not ours.
    fn check_browser(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        client: &ClientInfo,
    ) -> Result<(), Refusal> {
        let ours = Arc::clone(&self.hosts.borrow());
        if !matches!(client, ClientInfo::Unix { .. }) {
            let mut hosts = headers.get_all(header::HOST).iter();
            let (Some(host), None) = (hosts.next(), hosts.next()) else {
                return Err(Refusal::NoHost);
            };
            let host = host.to_str().unwrap_or_default();
            let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
            if !ours.has(host) || !ours.has(authority) {
                return Err(Refusal::ForeignHost);
            }
        }
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let foreign = text(header::ORIGIN).is_some_and(|origin| !ours.is_own_page(origin))
            || text(header::REFERER).is_some_and(|referer| !ours.is_own_page(referer))
            || text(HeaderName::from_static("sec-fetch-site"))
                .is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if foreign { Err(Refusal::CrossOrigin) } else { Ok(()) }
    }

    /// Turns away who has shown no right token too often, whatever it shows now.
    pub fn check_failures(&self, client: &ClientInfo) -> Result<(), Refusal> {
        let wait = self.lockout.brake(ClientKey::of(client), Instant::now());
        wait.map_or(Ok(()), |wait| Err(Refusal::TooManyFailures(wait)))
    }

    /// Counts a request of an app whose requests are limited.
    fn check_rate(&self, app: &App) -> Result<(), Refusal> {
        let Some(rate) = app.rate else { return Ok(()) };
        let now = Instant::now();
        let mut left = self.left.lock();
        let bucket = left.entry(app.name.clone()).or_insert_with(|| Bucket::full(rate, now));
        bucket.take(rate, now).map_err(Refusal::TooManyRequests)
    }

    /// The app that the caller is, for a route that is everybody's. A guess is a guess here, too.
    fn recognize(&self, headers: &HeaderMap, client: &ClientInfo) -> Option<Caller> {
        self.check_failures(client).ok()?;
        match self.identify(headers, client) {
            Ok(caller) => Some(caller),
            Err(Refusal::NoToken) => None,
            Err(refusal) => {
                self.turned_away(refusal, client);
                None
            }
        }
    }

    /// Notes that a caller is turned away; what it is told.
    fn turned_away(&self, refusal: Refusal, client: &ClientInfo) -> Refusal {
        if refusal.status() != StatusCode::UNAUTHORIZED {
            return refusal;
        }
        let wait = self.lockout.note(ClientKey::of(client), Instant::now());
        wait.map_or(refusal, Refusal::TooManyFailures)
    }

    /// Finds the app that the caller is: by its certificate, by the token that it shows, or by its
    /// user.
    fn identify(&self, headers: &HeaderMap, client: &ClientInfo) -> Result<Caller, Refusal> {
        let certified = self.certified(client);
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let key = headers.get(X_API_KEY).map(http::HeaderValue::as_bytes);
        let shown = [(header::AUTHORIZATION, bearer), (X_API_KEY, key)];
        for (name, token) in shown.iter().filter_map(|(name, token)| Some((name, (*token)?))) {
            let Some(app) = self.holder(TokenHash::of(token)) else { continue };
            return match &certified {
                Some(own) if own.name != app.name => Err(Refusal::OtherApp),
                None if needs_certificate(&app, client) => Err(Refusal::OtherCertificate),
                _ => Ok(Caller::app(app, Some(name.clone()))),
            };
        }
        if let Some(app) = certified {
            return Ok(Caller::app(app, None));
        }
        if let Some(app) = self.app_of_user(client) {
            return Ok(Caller::app(app, None));
        }
        let first = self.apps.borrow().first().cloned();
        match (self.auth, first) {
            (Auth::Off, Some(app)) => Ok(Caller::app(app, None)),
            _ if shown.iter().any(|(_, token)| token.is_some()) => Err(Refusal::WrongToken),
            _ => Err(Refusal::NoToken),
        }
    }

    /// Ends when `app` is not let in any more as it was: it has been removed, or is known by another
    /// token, user or certificate.
    pub fn until_removed(&self, app: Arc<App>) -> impl Future<Output = ()> + use<> {
        let mut apps = self.apps.subscribe();
        async move {
            let same = |now: &App| now.name == app.name && now.is_known_like(&app);
            // An error says that the authenticator is gone, and with it the daemon.
            apps.wait_for(|apps| !apps.iter().any(|now| same(now))).await.ok();
        }
    }

    /// The app that has this token and may show it on this connection; the operator for the
    /// operator's secret.
    fn app_of(&self, token: TokenHash, client: &ClientInfo) -> Option<Arc<App>> {
        if token == self.operator {
            return Some(Arc::new(App::operator()));
        }
        self.holder(token).filter(|app| !needs_certificate(app, client))
    }

    fn holder(&self, token: TokenHash) -> Option<Arc<App>> {
        // All are compared, whichever matches.
        let mut found = None;
        for known in self.apps.borrow().iter() {
            if known.token == Some(token) {
                found = Some(Arc::clone(known));
            }
        }
        found
    }

    /// The app whose user has opened the connection.
    fn app_of_user(&self, client: &ClientInfo) -> Option<Arc<App>> {
        let ClientInfo::Unix { peer: Some(peer) } = client else { return None };
        let apps = self.apps.borrow();
        apps.iter().find(|app| app.users.contains(&peer.uid)).cloned()
    }

    /// The app whose certificate the connection was made with. A certificate with the names of
    /// several apps is that of the first.
    fn certified(&self, client: &ClientInfo) -> Option<Arc<App>> {
        let ClientInfo::Tls { names: Some(names), .. } = client else { return None };
        let apps = self.apps.borrow();
        let is_it = |app: &App| app.certificate.iter().flatten().any(|name| names.contains(name));
        apps.iter().find(|app| is_it(app)).cloned()
    }
}

/// Whether the app's token is not enough on this connection: a stolen one is of no use then.
fn needs_certificate(app: &App, client: &ClientInfo) -> bool {
    app.certificate.is_some() && matches!(client, ClientInfo::Tls { .. })
}

fn known(apps: &[App]) -> Arc<[Arc<App>]> {
    apps.iter().cloned().map(Arc::new).collect()
}

/// The token of an `Authorization` header with the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests;
