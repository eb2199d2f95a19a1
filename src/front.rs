//! The front door: every request passes the guard, then goes to the bridge's own API, to the proxy
//! in front of MANTYX, or to the status page, whose sessions begin and end here.
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
    api::Api,
    budget,
    door::{
        Arrival, LetIn,
        code::Code,
        failures::Peer,
        guard::{App, Caller, Guard, OPERATOR, Refusal, TokenHash},
        rate,
        reply::{self, Body},
        route::{AfterHangUp, Own, Route},
        sessions::Begun,
    },
    http_client,
    metrics::Answered,
    page,
    proxy::{self, Proxy},
    traces::{Span, Traces},
};

/// Everything behind the listeners.
#[derive(Debug)]
pub struct Front {
    pub guard: Guard,
    pub api: Api,
    pub proxy: Proxy,
    pub traces: Traces,
    /// The requests that go on when their app has hung up.
    pub detached: DetachedRequests,
    /// What the operator shows, for what no app may do.
    pub operator: TokenHash,
}

impl Front {
    /// Answers one request.
    pub async fn handle(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        arrival: Arrival,
    ) -> Response<Body> {
        let route = Route::of(request.method(), request.uri().path());
        let is_proxied = route.is_proxied();
        let mut response = match self.admit(&route, &request, &arrival) {
            Ok(caller) => {
                if caller.is_some()
                    && let Some(let_in) = request.extensions_mut().remove::<LetIn>()
                {
                    let_in.tell();
                }
                self.handle_admitted(route, caller, request, arrival).await
            }
            Err(refusal) => self.refuse(request.uri().path(), &arrival, &refusal),
        };
        if is_proxied {
            response = reply::as_mantyx_does(response);
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
        arrival: Arrival,
    ) -> Response<Body> {
        let after = route.after_hang_up(request.method());
        match caller {
            Some(caller) if after != AfterHangUp::Dropped => {
                let (this, app) = (Arc::clone(self), caller.app.name.clone());
                let work = async move { this.count(route, Some(caller), request, &arrival).await };
                let work = budget::for_app(app.clone(), work);
                self.detached.answer(&app, after, work).await
            }
            Some(caller) => {
                let app = caller.app.name.clone();
                budget::for_app(app, self.count(route, Some(caller), request, &arrival)).await
            }
            None => self.count(route, None, request, &arrival).await,
        }
    }

    /// Answers a request that came on a connection for which there is no room. Whoever watches over
    /// the bridge is told what it asks all the same.
    pub async fn turn_away(
        self: Arc<Self>,
        request: Request<Incoming>,
        arrival: Arrival,
    ) -> Response<Body> {
        let path = request.uri().path();
        let route = Route::of(request.method(), path);
        if route.is_open() {
            return self.handle(request, arrival).await;
        }
        let mut response = self.refuse(path, &arrival, &Refusal::TooManyConnections);
        if route.is_proxied() {
            response = reply::as_mantyx_does(response);
        }
        keep_from_browsers(&mut response);
        response
    }

    /// Decides who may go where, before any handler runs.
    fn admit(
        &self,
        route: &Route,
        request: &Request<Incoming>,
        arrival: &Arrival,
    ) -> Result<Option<Caller>, Refusal> {
        self.guard.check_browser(request.uri(), request.headers(), arrival)?;
        if route.is_open() {
            // Whoever watches over the bridge may be told more, and is never turned away.
            let wants_more = *route == Route::Own(Own::Ready);
            let caller = wants_more.then(|| self.guard.recognize(request.headers(), arrival));
            return Ok(caller.flatten());
        }
        self.guard.check_failures(arrival)?;
        let caller = self
            .identify(route, request, arrival)
            .map_err(|refusal| self.guard.turned_away(refusal, arrival))?;
        if let Some(caller) = &caller {
            self.guard.check_rate(&caller.app)?;
        }
        Ok(caller)
    }

    /// Finds out who the caller of a route is that not everybody may see.
    fn identify(
        &self,
        route: &Route,
        request: &Request<Incoming>,
        arrival: &Arrival,
    ) -> Result<Option<Caller>, Refusal> {
        let in_session = || {
            let caller = self.in_session(request, arrival).filter(|_| route.takes_sessions());
            caller.filter(|_| !route.wants_key() || self.api.sessions.has_key(request.headers()))
        };
        match self.guard.identify(request.headers(), arrival) {
            Ok(mut caller) => {
                caller.is_operator = self.shows_operator(request);
                // Where nobody has to show a token, the operator is told apart all the same.
                let is_free = caller.token_in.is_none() && !caller.is_operator;
                let operator = is_free.then(in_session).flatten().filter(|it| it.is_operator);
                Ok(Some(operator.unwrap_or(caller)))
            }
            Err(Refusal::NoToken) if route.takes_sessions() => {
                let caller = in_session();
                match route {
                    Route::Page => Ok(caller),
                    _ => Ok(Some(caller.ok_or(Refusal::NoToken)?)),
                }
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The caller whose session the request's cookie stands for.
    fn in_session(&self, request: &Request<Incoming>, arrival: &Arrival) -> Option<Caller> {
        // The page's own requests say so; the guard has seen that it is no other page.
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        if !looks && !request.headers().contains_key(header::ORIGIN) {
            return None;
        }
        let token = self.api.sessions.token(request.headers())?;
        if token == self.operator {
            let app = Arc::new(App::operator());
            return Some(Caller { app, token_in: None, is_operator: true, in_session: true });
        }
        let app = self.guard.app_of(token, arrival)?;
        let is_operator = self.shows_operator(request);
        Some(Caller { app, token_in: None, is_operator, in_session: true })
    }

    fn shows_operator(&self, request: &Request<Incoming>) -> bool {
        let shown = request.headers().get(OPERATOR).map(|value| TokenHash::of(value.as_bytes()));
        shown == Some(self.operator)
    }

    /// Begins a session, if the form has the token of an app or the operator's secret.
    async fn sign_in(&self, request: Request<Incoming>, arrival: &Arrival) -> Response<Body> {
        if let Err(refusal) = self.guard.check_failures(arrival) {
            return self.refuse(request.uri().path(), arrival, &refusal);
        }
        let (parts, body) = request.into_parts();
        let form = match self.api.sessions.forms.read(Peer::of(arrival), body).await {
            Ok(form) => form,
            Err(error) => return error.reply(),
        };
        let token = url::form_urlencoded::parse(&form).find(|(key, _)| key == "token");
        let token = token.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
        let token = TokenHash::of(token.as_bytes());
        let app = match token == self.operator {
            true => Some(Arc::new(App::operator())),
            false => self.guard.app_of(token, arrival),
        };
        let Some(app) = app else {
            let refusal = self.guard.turned_away(Refusal::WrongToken, arrival);
            if matches!(refusal, Refusal::TooManyFailures(_)) {
                return self.refuse(parts.uri.path(), arrival, &refusal);
            }
            // Not often, as the other way is taken then.
            info!(peer = %arrival, "a sign-in at the status page was refused: wrong token");
            return page::sign_in(Some("That is no token of this bridge."));
        };
        // Behind a proxy, only the origin of the form tells what the browser speaks.
        let origin = parts.headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let secure = matches!(arrival, Arrival::Tls { .. })
            || origin.is_some_and(|origin| origin.starts_with(b"https://"));
        // Who signs in anew, as somebody else perhaps, has one session.
        self.api.sessions.end(&parts.headers);
        match self.api.sessions.begin(token, &parts.headers, secure) {
            Ok(Begun { cookie, key }) => {
                info!(app = %app.name, "a browser signed in at the status page");
                page::see_page(cookie, Some(&key))
            }
            Err(error) => {
                error!(%error, "no session can be begun");
                page::sign_in(Some("The bridge cannot make a session now; its log says why."))
            }
        }
    }

    /// [`Self::dispatch`], counted and traced.
    async fn count(
        &self,
        route: Route,
        caller: Option<Caller>,
        mut request: Request<Incoming>,
        arrival: &Arrival,
    ) -> Response<Body> {
        let (kind, begun) = (route.kind(), Instant::now());
        let mut span = self.span(&route, caller.as_ref(), &mut request);
        // The operator alone is no app, and cannot be removed.
        let app = caller.as_ref().map(|caller| Arc::clone(&caller.app));
        let app = app.filter(|app| !app.is_operator());
        let session = caller.as_ref().and_then(|_| self.api.sessions.over(request.headers()));
        let response = self.dispatch(route, caller, request, arrival).await;
        let mut response = self.while_let_in(app, response);
        if let Some(over) = session {
            response = response.map(|body| reply::until(body, over));
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
        let mut apps = self.guard.apps();
        let turned_away = async move { Guard::turns_away(&mut apps, &app).await };
        response.map(|body| reply::until(body, turned_away))
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
        arrival: &Arrival,
    ) -> Response<Body> {
        match (route, caller) {
            (Route::Own(own), caller) => self.api.handle(own, caller, request).await,
            (Route::Proxied(proxied, resource), Some(caller)) => {
                self.proxy.handle((proxied, resource), caller, request).await
            }
            (Route::Page, Some(_)) => {
                page::page(self.api.sessions.token(request.headers()).is_some())
            }
            (Route::Page, None) => page::sign_in(None),
            (Route::SignIn, _) => self.sign_in(request, arrival).await,
            (Route::SignOut, _) => page::see_page(self.api.sessions.end(request.headers()), None),
            (Route::WrongMethod(allow), _) => reply::wrong_method(allow),
            (Route::Ambiguous, _) => reply::error(
                StatusCode::BAD_REQUEST,
                Code::InvalidRequest,
                "The path could be read as two: it has `.` or `..`, or names a workspace, a run or a \
                 session with other characters than A-Z a-z 0-9 - _ . ~ and the colon. Send it in \
                 its normal form.",
            ),
            (Route::Unknown | Route::Proxied(..), _) => reply::error(
                StatusCode::NOT_FOUND,
                Code::NotFound,
                "The bridge has no such route. MANTYX's own are below /api/, the bridge's below \
                 /v1/; the README lists them.",
            ),
        }
    }

    /// Answers a request that is turned away.
    fn refuse(&self, path: &str, arrival: &Arrival, refusal: &Refusal) -> Response<Body> {
        self.api.requests.refused.of(refusal.kind()).inc();
        let mut response = reply::error(refusal.status(), refusal.code(), &refusal.to_string());
        match refusal {
            // Not often: more of them are `TooManyFailures`.
            Refusal::NoToken
            | Refusal::WrongToken
            | Refusal::OtherApp
            | Refusal::OtherCertificate => {
                info!(peer = %arrival, path, %refusal, "refused");
                response = reply::challenged(response);
            }
            Refusal::TooManyFailures(wait) | Refusal::TooManyRequests(wait) => {
                debug!(peer = %arrival, path, %refusal, "refused");
                let seconds = HeaderValue::from(rate::seconds(*wait));
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            Refusal::TooManyConnections => {
                debug!(peer = %arrival, path, %refusal, "refused");
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Refusal::NoHost | Refusal::ForeignHost | Refusal::CrossOrigin => {
                debug!(peer = %arrival, path, %refusal, "refused");
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
