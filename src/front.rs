//! The front door: every request passes the guard, then goes to the bridge's own API or to the
//! proxy in front of MANTYX.
//!
//! Must not: touch a backend or a run itself; `api` and `proxy` do.

use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::debug;

use crate::{
    api::Api,
    door::{
        Arrival,
        guard::{Caller, Guard, Refusal},
        reply::{self, Body},
        route::Route,
    },
    metrics::Answered,
    proxy::Proxy,
};

/// Everything behind the listeners.
#[derive(Debug)]
pub struct Front {
    pub guard: Guard,
    pub api: Api,
    pub proxy: Proxy,
}

impl Front {
    /// Answers one request.
    pub async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        arrival: Arrival,
    ) -> Response<Body> {
        let mut response = match self.admit(&request, arrival) {
            Ok((route, caller)) => self.count(route, caller, request).await,
            Err(refusal) => {
                self.api.requests.refused.of(refusal.kind()).inc();
                refused(&request, arrival, &refusal)
            }
        };
        // What a browser might do with an answer that it should never have got.
        let headers = response.headers_mut();
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    }

    /// Decides who may go where, before any handler runs.
    fn admit(
        &self,
        request: &Request<Incoming>,
        arrival: Arrival,
    ) -> Result<(Route, Option<Caller>), Refusal> {
        self.guard.check_browser(request.uri(), request.headers(), arrival)?;
        let route = Route::of(request.method(), request.uri().path());
        if route.is_open() {
            return Ok((route, None));
        }
        let caller = self.guard.identify(request.headers())?;
        Ok((route, Some(caller)))
    }

    /// [`Self::dispatch`], counted.
    async fn count(
        &self,
        route: Route,
        caller: Option<Caller>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (kind, begun) = (route.kind(), Instant::now());
        let response = self.dispatch(route, caller, request).await;
        let counted = self.api.requests.by_route.of(kind);
        counted.answered.of(Answered::of(response.status())).inc();
        counted.duration.observe(begun.elapsed());
        response
    }

    async fn dispatch(
        &self,
        route: Route,
        caller: Option<Caller>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        match (route, caller) {
            (Route::Own(own), caller) => self.api.handle(own, caller, request).await,
            (Route::Proxied(proxied), Some(caller)) => {
                self.proxy.handle(proxied, caller, request).await
            }
            (Route::WrongMethod(allow), _) => reply::wrong_method(allow),
            (Route::Unknown | Route::Proxied(_), _) => reply::error(
                StatusCode::NOT_FOUND,
                "not_found",
                "The bridge has no such route. MANTYX's own are below /api/, the bridge's below \
                 /v1/; the README lists them.",
            ),
        }
    }
}

fn refused(request: &Request<Incoming>, arrival: Arrival, refusal: &Refusal) -> Response<Body> {
    debug!(?arrival, path = request.uri().path(), %refusal, "refused");
    let mut response = reply::error(refusal.status(), refusal.code(), &refusal.to_string());
    if refusal.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"mantyx-bridge\"");
        response.headers_mut().insert(http::header::WWW_AUTHENTICATE, challenge);
    }
    response
}
