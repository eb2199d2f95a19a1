//! The HTTP service: `auth` checks every request, which then goes to the bridge's own API, to the
//! proxy in front of MANTYX, or to the status page, whose sessions begin and end here.
//!
//! A request that changes something is handled in a task of the daemon (`detached`), so that an app
//! which hangs up leaves nothing half done.
//!
//! Must not: touch a backend or a run itself; `api` and `proxy` do.

mod detached;
mod head;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::{debug, error, info};

pub use self::detached::DetachedRequests;
use self::head::pay_for_head;
use crate::http::api::Api;
use crate::http::api::openapi::SignInLink;
use crate::http::api::routes::{AfterHangUp, ApiRequest, Handler, RouteRules};
use crate::http::auth::sessions::NewSession;
use crate::http::auth::{AuthRefusal, Authenticator, SignIn};
use crate::http::response::ReadError;
use crate::http::router::Route;
use crate::http::{
    Access, Body, Caller, ClientInfo, ClientKey, Code, login_page, proxy, response, status_page,
};
use crate::limits::slots::{Slot, Slots};
use crate::limits::token_bucket;
use crate::logins::{FailureKind, START};
use crate::metrics::AnswerClass;
use crate::model::AppName;
use crate::traces::Span;
use crate::{budget, http_client};

/// The most open requests over all apps and listeners, from their admission until their answers are
/// sent. A request on which its app has hung up is open until its task ends.
///
/// A listener limits its connections, and one app's share of them. On HTTP/2, a hundred requests
/// are open on one connection, so that an app within its share could still have fifty thousand
/// streams and calls open, with the tasks and heads that belong to them.
const MAX_OPEN: usize = 4096;

/// Everything behind the listeners.
#[derive(Debug)]
pub struct Service {
    pub auth: Authenticator,
    pub api: Api,
    /// The requests that may continue after their app has hung up.
    pub detached: DetachedRequests,
    open_requests: Slots,
}

/// A request that was let in.
struct Admitted {
    route: Route,
    rules: RouteRules,
    caller: Option<Caller>,
    request: Request<Incoming>,
    client: ClientInfo,
    /// Its place among the open requests; none for a route that is open to anyone.
    slot: Option<Arc<Slot>>,
}

impl Service {
    pub fn new(auth: Authenticator, api: Api, detached: DetachedRequests) -> Self {
        Self { auth, api, detached, open_requests: Slots::new(MAX_OPEN) }
    }

    /// Answers one request; `let_in` is called if it is authenticated, with its app where there are
    /// others, and says whether the connection may be used for it. Without `let_in`, its connection
    /// has no regular slot: the request is refused, unless its route is open to anyone, so that
    /// health checks still get their answer.
    pub async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: ClientInfo,
        let_in: Option<impl FnOnce(Option<&AppName>) -> bool>,
    ) -> Response<Body> {
        let route = Route::find(request.method(), request.uri().path());
        let rules = route.rules(request.method());
        let is_proxied = route.is_proxied();
        let caller = if let_in.is_none() && !rules.access.is_open() {
            Err(AuthRefusal::TooManyConnections)
        } else {
            self.auth.admit(rules.access, &request, &client)
        };
        let admission = caller.and_then(|caller| {
            let slot = self.slot(caller.as_ref(), rules.access, let_in)?;
            Ok((caller, slot.map(Arc::new)))
        });
        let (mut response, slot) = match admission {
            Ok((caller, slot)) => {
                let admitted =
                    Admitted { route, rules, caller, request, client, slot: slot.clone() };
                (self.handle_admitted(admitted).await, slot)
            }
            Err(refusal) => (self.refuse(request.uri().path(), &client, &refusal), None),
        };
        if is_proxied {
            response = response::as_mantyx_does(response);
        }
        keep_from_browsers(&mut response);
        match slot {
            Some(slot) => response.map(|body| response::holding(body, slot)),
            None => response,
        }
    }

    /// Lets a request of `caller` in, which is open as long as the slot exists. A route that is
    /// open to anyone is for health checks, which no app may keep from being answered.
    fn slot(
        &self,
        caller: Option<&Caller>,
        access: Access,
        let_in: Option<impl FnOnce(Option<&AppName>) -> bool>,
    ) -> Result<Option<Slot>, AuthRefusal> {
        let Some(Caller { app, .. }) = caller else { return Ok(None) };
        let app_count = self.api.runs.calls.settings().apps.len();
        let one_of_several = if app_count > 1 { Some(&app.name) } else { None };
        let may_use_connection = let_in.is_none_or(|let_in| let_in(one_of_several));
        if access.is_open() {
            return Ok(None);
        }
        if !may_use_connection {
            return Err(AuthRefusal::TooManyOfApp);
        }
        self.open_requests.take(&app.name).map(Some).ok_or(AuthRefusal::TooManyOfApp)
    }

    /// Answers an authenticated request; if it changes something, in a task of the daemon.
    async fn handle_admitted(self: &Arc<Self>, admitted: Admitted) -> Response<Body> {
        let after_hang_up = admitted.rules.after_hang_up;
        let slot = admitted.slot.clone();
        let app = admitted.caller.as_ref().map(|caller| caller.app.name.clone());
        let this = Arc::clone(self);
        let Some(app) = app else { return this.count(admitted).await };
        let Ok(head) = pay_for_head(&app, &admitted.request).await else {
            return ReadError::NoRoom.into();
        };
        let work = budget::for_app(app.clone(), async move {
            let _head = head;
            this.count(admitted).await
        });
        match after_hang_up {
            AfterHangUp::Dropped => work.await,
            after => self.detached.answer(&app, after, slot, work).await,
        }
    }

    /// Begins a session if the form has the token of an app, or the operator's secret.
    async fn sign_in(&self, request: Request<Incoming>, client: &ClientInfo) -> Response<Body> {
        if let Err(refusal) = self.auth.check_failures(client) {
            return self.refuse(request.uri().path(), client, &refusal);
        }
        let (parts, body) = request.into_parts();
        let form = match self.auth.sessions.forms.read(ClientKey::new(client), body).await {
            Ok(form) => form,
            Err(error) => return error.into(),
        };
        let field = url::form_urlencoded::parse(&form).find(|(key, _)| key == "token");
        let token = field.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
        let sign_in = match self.auth.sign_in(&token, client) {
            Ok(sign_in) => sign_in,
            Err(refusal @ AuthRefusal::TooManyFailures(_)) => {
                return self.refuse(parts.uri.path(), client, &refusal);
            }
            // Floods no log: beyond a few failures, the lockout refuses earlier.
            Err(_) => {
                info!(peer = %client, "a sign-in at the status page was refused: wrong token");
                return status_page::sign_in(Some("Invalid token."));
            }
        };
        self.let_in(&sign_in, &parts.headers, client)
    }

    /// Begins a session.
    fn let_in(
        &self,
        SignIn { token, app }: &SignIn,
        headers: &HeaderMap,
        client: &ClientInfo,
    ) -> Response<Body> {
        // Behind a proxy, only the form's origin shows whether the browser's connection is
        // encrypted.
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let secure = matches!(client, ClientInfo::Tls { .. })
            || origin.is_some_and(|origin| origin.starts_with(b"https://"));
        // A second sign-in, perhaps as another app, replaces the first session of this browser.
        self.auth.sessions.end(headers);
        match self.auth.sessions.begin(*token, headers, secure) {
            Ok(NewSession { cookie, key }) => {
                info!(app = %app.name, "a browser signed in at the status page");
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

    /// Makes a link that lets a browser in as the one who asks for it.
    fn link(&self, caller: &Caller) -> Response<Body> {
        let Some(token) = self.auth.token_of(caller) else {
            return response::error(
                Code::InvalidRequest,
                "Only the operator and apps with a token sign in at the page; this app has none.",
            );
        };
        match self.auth.sessions.link(token) {
            Ok(ticket) => {
                let link = SignInLink { path: format!("/sign-in?ticket={ticket}"), seconds: 60 };
                response::json(&link)
            }
            Err(error) => response::error(Code::Internal, &error.to_string()),
        }
    }

    /// Begins a session if the link in the request was made a moment ago, and not followed yet.
    fn follow_link(&self, request: &Request<Incoming>, client: &ClientInfo) -> Response<Body> {
        // A browser may look ahead, and a mail program at every link.
        if request.method() != Method::GET || request.headers().contains_key("sec-purpose") {
            return status_page::sign_in(None);
        }
        let query = request.uri().query().unwrap_or_default();
        let ticket = url::form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "ticket");
        let token = ticket.and_then(|(_, ticket)| self.auth.sessions.follow(&ticket));
        let sign_in =
            token.and_then(|token| Some(SignIn { token, app: self.auth.app_of(token, client)? }));
        match sign_in {
            Some(sign_in) => self.let_in(&sign_in, request.headers(), client),
            None => status_page::sign_in(Some(
                "This link was followed before, or is older than a minute. `mantyx-bridge open` \
                 makes another one.",
            )),
        }
    }

    /// Sends the browser to the issuer, with a cookie by which it is known when it is back.
    fn start_login(&self, request: &Request<Incoming>, ticket: &str) -> Response<Body> {
        // A browser may look ahead, and a mail program at every link.
        if request.method() != Method::GET || request.headers().contains_key("sec-purpose") {
            return login_page::not_opened();
        }
        match self.api.facts.logins.start(ticket) {
            Some((address, cookie)) => {
                let is_secure = self.api.facts.logins.redirect_uri().scheme() == "https";
                login_page::to_issuer(&address, &cookie, is_secure)
            }
            None => login_page::ended(),
        }
    }

    async fn login_return(&self, request: &Request<Incoming>) -> Response<Body> {
        if request.method() != Method::GET {
            return login_page::not_opened();
        }
        let query = request.uri().query().unwrap_or_default();
        let cookies = login_page::cookies(request.headers());
        let cookies: Vec<&str> = cookies.iter().map(String::as_str).collect();
        match self.api.facts.logins.returned(query, &cookies).await {
            Ok(backend) => {
                let unwritten = self.api.facts.logins.why_unwritten(backend.as_str());
                login_page::done(backend.as_str(), unwritten.as_deref())
            }
            Err(failure) if failure.kind == FailureKind::Ended => login_page::ended(),
            Err(failure) => login_page::failed(&failure.to_string()),
        }
    }

    /// [`Self::dispatch`], with metrics and a span.
    async fn count(&self, mut admitted: Admitted) -> Response<Body> {
        let start = Instant::now();
        let kind = admitted.rules.kind;
        let mut span = self.span(&mut admitted);
        let Admitted { caller, request, .. } = &admitted;
        // The operator without an app cannot be removed by a reload.
        let app =
            caller.as_ref().map(|caller| Arc::clone(&caller.app)).filter(|app| !app.is_operator());
        let session = caller.as_ref().and_then(|_| self.auth.sessions.over(request.headers()));
        let mut response = self.dispatch(admitted).await;
        // An open stream gives no lasting right, just as an open connection does not.
        if let Some(app) = app {
            response = response.map(|body| response::until(body, self.auth.until_removed(app)));
        }
        if let Some(over) = session {
            response = response.map(|body| response::until(body, over));
        }
        span.set("http.response.status_code", response.status().as_u16());
        span.set_failed(response.status().is_server_error());
        drop(span);
        let metrics = self.api.requests.by_route.of(kind);
        metrics.answered.of(AnswerClass::from_status(response.status())).inc();
        metrics.duration.observe(start.elapsed());
        response
    }

    /// The span of a request, for routes that have one. It replaces the trace in the request's
    /// headers, so that all work for this request, at MANTYX too, belongs to the span.
    fn span(&self, Admitted { rules, caller, request, .. }: &mut Admitted) -> Span {
        let Some(pattern) = rules.traced else { return Span::default() };
        let method = request.method().clone();
        let caller_trace = proxy::trace(request.headers());
        let mut span =
            self.api.runs.context.traces.request(caller_trace, format_args!("{method} {pattern}"));
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

    async fn dispatch(&self, admitted: Admitted) -> Response<Body> {
        let Admitted { route, caller, request, client, .. } = admitted;
        let sessions = &self.auth.sessions;
        match (route, caller) {
            (Route::Own(own, segment), caller) => match (own.handler, caller) {
                (Handler::Api(_) | Handler::Now(_) | Handler::Link, Some(_))
                    if let Err(refusal) = own.check_query(request.uri().query()) =>
                {
                    refusal
                }
                (Handler::Open(handler), caller) => {
                    handler(&self.api, caller.as_ref().map(|caller| caller.app.as_ref()))
                }
                (Handler::Api(handler), Some(caller)) => {
                    self.api.handle(handler, ApiRequest { caller, request, segment }).await
                }
                (Handler::Now(handler), Some(caller)) => {
                    self.api.view(handler, ApiRequest { caller, request, segment }).await
                }
                (Handler::Api(_) | Handler::Now(_), None) => response::not_let_in(),
                (Handler::Page, Some(_)) => {
                    status_page::page(sessions.token(request.headers()).is_some())
                }
                (Handler::Page, None) => status_page::sign_in(None),
                (Handler::SignIn, _) => self.sign_in(request, &client).await,
                (Handler::Link, Some(caller)) => self.link(&caller),
                (Handler::Link, None) => response::not_let_in(),
                (Handler::FollowLink, _) => self.follow_link(&request, &client),
                (Handler::StartLogin, _) => self.start_login(&request, &segment),
                (Handler::LoginReturn, _) => self.login_return(&request).await,
                (Handler::SignOut, _) => {
                    status_page::see_page(sessions.end(request.headers()), None)
                }
            },
            (Route::Proxied(proxied, resource), Some(caller)) => {
                // Boxed, since the future is large.
                let route = (proxied, resource);
                let handled = Box::pin(proxy::handle(
                    (&self.api.runs, &self.api.views),
                    route,
                    caller,
                    request,
                ));
                handled.await.unwrap_or_else(|refusal| refusal)
            }
            (Route::WrongMethod(allow), _) => response::wrong_method(allow),
            (Route::Ambiguous, _) => response::error(
                Code::InvalidRequest,
                "The path could be read as two: it has `.` or `..`, or names a workspace, a run or a \
                 session with other characters than A-Z a-z 0-9 - _ . ~ and the colon. Send it in \
                 its normal form.",
            ),
            (Route::TooLong, _) => {
                response::error(Code::InvalidRequest, "The path is longer than 8 KiB.")
            }
            (Route::Unknown | Route::Proxied(..), _) => response::error(
                Code::NotFound,
                "The bridge has no such route. MANTYX's own are below /api/, the bridge's below \
                 /v1/; docs/api.md lists them.",
            ),
        }
    }

    /// Answers a refused request.
    fn refuse(&self, path: &str, client: &ClientInfo, refusal: &AuthRefusal) -> Response<Body> {
        // What follows is a ticket, which no log may have.
        let path = if path.starts_with(START) { START } else { path };
        let (kind, code) = refusal.kinds();
        self.api.requests.refused.of(kind).inc();
        let response = response::error(code, &refusal.to_string());
        if code == Code::Unauthorized {
            // Floods no log: beyond a few failures, the refusal is `TooManyFailures`.
            info!(peer = %client, path, %refusal, "refused");
            return response::challenged(response);
        }
        debug!(peer = %client, path, %refusal, "refused");
        match refusal {
            AuthRefusal::TooManyFailures(wait) | AuthRefusal::TooManyRequests(wait) => {
                response::retry_after(response, token_bucket::seconds(*wait))
            }
            AuthRefusal::TooManyConnections | AuthRefusal::TooManyOfApp => {
                response::retry_after(response, 1)
            }
            _ => response,
        }
    }
}

/// Sets headers that keep a browser from using an answer that it should not have got.
fn keep_from_browsers(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    let unframed = HeaderValue::from_static("frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(unframed);
}
