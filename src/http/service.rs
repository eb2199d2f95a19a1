//! The HTTP service: has `auth` check every request, then hands it to the bridge's own API, to the
//! proxy in front of MANTYX, or to the status page, whose sessions begin and end here.
//!
//! A request that changes something is handled in a task of the daemon's own (`detached`), so that an
//! app which hangs up leaves nothing half done.
//!
//! Must not: touch a backend or a run itself; `api` and `proxy` do.

mod detached;

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::{debug, error, info};

pub use self::detached::DetachedRequests;
use crate::{
    budget,
    http::{
        api::{
            Api,
            routes::{Access, AfterHangUp, ApiRequest, Handler, OwnRoute},
        },
        auth::{
            App, Authenticator, Caller, OPERATOR, Refusal, TokenHash, rate_limit, sessions::Begun,
        },
        client_info::{ClientInfo, ClientKey, OnAuthenticated},
        error_code::Code,
        proxy::{self, Proxy},
        response::{self, Body},
        router::Route,
        status_page,
    },
    http_client,
    metrics::Answered,
    traces::{Span, Traces},
};

/// Everything behind the listeners.
#[derive(Debug)]
pub struct Service {
    pub auth: Authenticator,
    pub api: Api,
    pub proxy: Proxy,
    pub traces: Traces,
    /// The requests that go on when their app has hung up.
    pub detached: DetachedRequests,
    /// What the operator shows, for what no app may do.
    pub operator: TokenHash,
}

impl Service {
    /// Answers one request.
    pub async fn handle(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        client: ClientInfo,
    ) -> Response<Body> {
        let route = Route::of(request.method(), request.uri().path());
        let is_proxied = route.is_proxied();
        let mut response = match self.admit(&route, &request, &client) {
            Ok(caller) => {
                if caller.is_some()
                    && let Some(let_in) = request.extensions_mut().remove::<OnAuthenticated>()
                {
                    let_in.tell();
                }
                self.handle_admitted(route, caller, request, client).await
            }
            Err(refusal) => self.refuse(request.uri().path(), &client, &refusal),
        };
        if is_proxied {
            response = response::as_mantyx_does(response);
        }
        keep_from_browsers(&mut response);
        response
    }

    /// Answers a request that was let in: in a task of the daemon's own, where it changes something.
    async fn handle_admitted(
        self: &Arc<Self>,
        route: Route,
        caller: Option<Caller>,
        request: Request<Incoming>,
        client: ClientInfo,
    ) -> Response<Body> {
        let after = route.after_hang_up(request.method());
        match caller {
            Some(caller) if after != AfterHangUp::Dropped => {
                let (this, app) = (Arc::clone(self), caller.app.name.clone());
                let work = async move { this.count(route, Some(caller), request, &client).await };
                let work = budget::for_app(app.clone(), work);
                self.detached.answer(&app, after, work).await
            }
            Some(caller) => {
                let app = caller.app.name.clone();
                budget::for_app(app, self.count(route, Some(caller), request, &client)).await
            }
            None => self.count(route, None, request, &client).await,
        }
    }

    /// Answers a request that came on a connection for which there is no room. Whoever watches over
    /// the bridge is told what it asks all the same.
    pub async fn turn_away(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: ClientInfo,
    ) -> Response<Body> {
        let path = request.uri().path();
        let route = Route::of(request.method(), path);
        if route.access().is_open() {
            return self.handle(request, client).await;
        }
        let mut response = self.refuse(path, &client, &Refusal::TooManyConnections);
        if route.is_proxied() {
            response = response::as_mantyx_does(response);
        }
        keep_from_browsers(&mut response);
        response
    }

    /// Decides who may go where, before any handler runs.
    fn admit(
        &self,
        route: &Route,
        request: &Request<Incoming>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, Refusal> {
        self.auth.check_browser(request.uri(), request.headers(), client)?;
        let access = route.access();
        if access.is_open() {
            // A program that watches over the bridge may be told more, and is never turned away.
            let wants_more = access == Access::AnyoneAppsMore;
            let caller = wants_more.then(|| self.auth.recognize(request.headers(), client));
            return Ok(caller.flatten());
        }
        self.auth.check_failures(client)?;
        let caller = self
            .identify(access, request, client)
            .map_err(|refusal| self.auth.turned_away(refusal, client))?;
        if let Some(caller) = &caller {
            self.auth.check_rate(&caller.app)?;
        }
        Ok(caller)
    }

    /// Finds out who the caller of a route is that not everybody may see.
    fn identify(
        &self,
        access: Access,
        request: &Request<Incoming>,
        client: &ClientInfo,
    ) -> Result<Option<Caller>, Refusal> {
        let in_session = || {
            let caller = self.in_session(request, client).filter(|_| access.takes_sessions());
            let wants_key = access == Access::AppOrSessionWithKey;
            caller.filter(|_| !wants_key || self.api.sessions.has_key(request.headers()))
        };
        match self.auth.identify(request.headers(), client) {
            Ok(mut caller) => {
                caller.is_operator = self.shows_operator(request);
                // Where nobody has to show a token, the operator is told apart all the same.
                let is_free = caller.token_in.is_none() && !caller.is_operator;
                let operator = is_free.then(in_session).flatten().filter(|it| it.is_operator);
                Ok(Some(operator.unwrap_or(caller)))
            }
            Err(Refusal::NoToken) if access == Access::AppOrForm => Ok(in_session()),
            Err(Refusal::NoToken) => Ok(Some(in_session().ok_or(Refusal::NoToken)?)),
            Err(refusal) => Err(refusal),
        }
    }

    /// The caller whose session the request's cookie stands for.
    fn in_session(&self, request: &Request<Incoming>, client: &ClientInfo) -> Option<Caller> {
        // The page's own requests say so; `auth` has checked that it is no other page.
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        if !looks && !request.headers().contains_key(header::ORIGIN) {
            return None;
        }
        let token = self.api.sessions.token(request.headers())?;
        if token == self.operator {
            let app = Arc::new(App::operator());
            return Some(Caller { app, token_in: None, is_operator: true, in_session: true });
        }
        let app = self.auth.app_of(token, client)?;
        let is_operator = self.shows_operator(request);
        Some(Caller { app, token_in: None, is_operator, in_session: true })
    }

    fn shows_operator(&self, request: &Request<Incoming>) -> bool {
        let shown = request.headers().get(OPERATOR).map(|value| TokenHash::of(value.as_bytes()));
        shown == Some(self.operator)
    }

    /// Begins a session, if the form has the token of an app or the operator's secret.
    async fn sign_in(&self, request: Request<Incoming>, client: &ClientInfo) -> Response<Body> {
        if let Err(refusal) = self.auth.check_failures(client) {
            return self.refuse(request.uri().path(), client, &refusal);
        }
        let (parts, body) = request.into_parts();
        let form = match self.api.sessions.forms.read(ClientKey::of(client), body).await {
            Ok(form) => form,
            Err(error) => return error.response(),
        };
        let token = url::form_urlencoded::parse(&form).find(|(key, _)| key == "token");
        let token = token.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
        let token = TokenHash::of(token.as_bytes());
        let app = match token == self.operator {
            true => Some(Arc::new(App::operator())),
            false => self.auth.app_of(token, client),
        };
        let Some(app) = app else {
            let refusal = self.auth.turned_away(Refusal::WrongToken, client);
            if matches!(refusal, Refusal::TooManyFailures(_)) {
                return self.refuse(parts.uri.path(), client, &refusal);
            }
            // Not often, as the other way is taken then.
            info!(peer = %client, "somebody tried to sign in at the status page with a wrong token");
            return status_page::sign_in(Some("That is no token of this bridge."));
        };
        // Behind a proxy, only the origin of the form tells what the browser speaks.
        let origin = parts.headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let secure = matches!(client, ClientInfo::Tls { .. })
            || origin.is_some_and(|origin| origin.starts_with(b"https://"));
        // Who signs in anew, as somebody else perhaps, has one session.
        self.api.sessions.end(&parts.headers);
        match self.api.sessions.begin(token, &parts.headers, secure) {
            Ok(Begun { cookie, key }) => {
                info!(app = %app.name, "somebody signed in at the status page");
                status_page::see_page(cookie, Some(&key))
            }
            Err(error) => {
                error!(%error, "no session can be begun");
                status_page::sign_in(Some(
                    "The bridge cannot make a session now; its log says why.",
                ))
            }
        }
    }

    /// [`Self::dispatch`], counted and traced.
    async fn count(
        &self,
        route: Route,
        caller: Option<Caller>,
        mut request: Request<Incoming>,
        client: &ClientInfo,
    ) -> Response<Body> {
        let (kind, begun) = (route.kind(), Instant::now());
        let mut span = self.span(&route, caller.as_ref(), &mut request);
        // The operator alone is no app, and cannot be removed.
        let app = caller.as_ref().map(|caller| Arc::clone(&caller.app));
        let app = app.filter(|app| !app.is_operator());
        let session = caller.as_ref().and_then(|_| self.api.sessions.over(request.headers()));
        let response = self.dispatch(route, caller, request, client).await;
        let mut response = self.while_let_in(app, response);
        if let Some(over) = session {
            response = response.map(|body| response::until(body, over));
        }
        span.set("http.response.status_code", response.status().as_u16());
        span.set_failed(response.status().is_server_error());
        drop(span);
        let counted = self.api.requests.by_route.of(kind);
        counted.answered.of(Answered::of(response.status())).inc();
        counted.duration.observe(begun.elapsed());
        response
    }

    /// An answer that ends when its app is not let in any more. An open stream gives no rights, just
    /// as an open connection does not. An app that was removed before the answer began gets no stream.
    fn while_let_in(&self, app: Option<Arc<App>>, response: Response<Body>) -> Response<Body> {
        let Some(app) = app else { return response };
        let mut apps = self.auth.apps();
        let turned_away = async move { Authenticator::turns_away(&mut apps, &app).await };
        response.map(|body| response::until(body, turned_away))
    }

    /// The span of a request that others follow from. The request's headers then tell of the span,
    /// so that all that comes of it, at MANTYX too, belongs there.
    fn span(
        &self,
        route: &Route,
        caller: Option<&Caller>,
        request: &mut Request<Incoming>,
    ) -> Span {
        let Some(pattern) = route.traced() else { return Span::default() };
        let method = request.method().clone();
        let mut span = self
            .traces
            .request(proxy::trace(request.headers()), format_args!("{method} {pattern}"));
        if let Some(trace) = span.told() {
            http_client::set_trace(request.headers_mut(), trace);
        }
        span.set("http.request.method", method.as_str());
        span.set("http.route", pattern);
        if let Some(caller) = caller {
            span.set("bridge.app", caller.app.name.as_str());
        }
        span
    }

    async fn dispatch(
        &self,
        route: Route,
        caller: Option<Caller>,
        request: Request<Incoming>,
        client: &ClientInfo,
    ) -> Response<Body> {
        match (route, caller) {
            (Route::Own(own, segment), caller) => {
                self.answer(own, segment, caller, request, client).await
            }
            (Route::Proxied(proxied, resource), Some(caller)) => {
                self.proxy.handle((proxied, resource), caller, request).await
            }
            (Route::WrongMethod(allow), _) => response::wrong_method(allow),
            (Route::Ambiguous, _) => response::error(
                StatusCode::BAD_REQUEST,
                Code::InvalidRequest,
                "The path could be read as two: it has `.` or `..`, or names a workspace, a run or a \
                 session with other characters than A-Z a-z 0-9 - _ . ~ and the colon. Send it in \
                 its normal form.",
            ),
            (Route::Unknown | Route::Proxied(..), _) => response::error(
                StatusCode::NOT_FOUND,
                Code::NotFound,
                "The bridge has no such route. MANTYX's own are below /api/, the bridge's below \
                 /v1/; the README lists them.",
            ),
        }
    }

    /// Answers a request of a route of the bridge's own.
    async fn answer(
        &self,
        own: &OwnRoute,
        segment: String,
        caller: Option<Caller>,
        request: Request<Incoming>,
        client: &ClientInfo,
    ) -> Response<Body> {
        let sessions = &self.api.sessions;
        match (own.handler, caller) {
            (Handler::Open(handler), caller) => {
                handler(&self.api, caller.as_ref().map(|caller| caller.app.as_ref()))
            }
            (Handler::Api(handler), Some(caller)) => {
                self.api.handle(handler, ApiRequest { caller, request, segment }).await
            }
            (Handler::Api(_), None) => response::not_let_in(),
            (Handler::Page, Some(_)) => {
                status_page::page(sessions.token(request.headers()).is_some())
            }
            (Handler::Page, None) => status_page::sign_in(None),
            (Handler::SignIn, _) => self.sign_in(request, client).await,
            (Handler::SignOut, _) => status_page::see_page(sessions.end(request.headers()), None),
        }
    }

    /// Answers a request that is turned away.
    fn refuse(&self, path: &str, client: &ClientInfo, refusal: &Refusal) -> Response<Body> {
        self.api.requests.refused.of(refusal.kind()).inc();
        let mut response = response::error(refusal.status(), refusal.code(), &refusal.to_string());
        match refusal {
            // Not often: more of them are `TooManyFailures`.
            Refusal::NoToken
            | Refusal::WrongToken
            | Refusal::OtherApp
            | Refusal::OtherCertificate => {
                info!(peer = %client, path, %refusal, "refused");
                response = response::challenged(response);
            }
            Refusal::TooManyFailures(wait) | Refusal::TooManyRequests(wait) => {
                debug!(peer = %client, path, %refusal, "refused");
                let seconds = HeaderValue::from(rate_limit::seconds(*wait));
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            Refusal::TooManyConnections => {
                debug!(peer = %client, path, %refusal, "refused");
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Refusal::NoHost | Refusal::ForeignHost | Refusal::CrossOrigin => {
                debug!(peer = %client, path, %refusal, "refused");
            }
        }
        response
    }
}

/// What a browser might do with an answer that it should never have got.
fn keep_from_browsers(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    let unframed = HeaderValue::from_static("frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(unframed);
}
