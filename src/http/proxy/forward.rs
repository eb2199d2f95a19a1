//! Forwards a request to MANTYX and its answer back, as a stream. Unchanged, except for headers of
//! a single connection, headers for the bridge, and credentials.
//!
//! Must not: read a body into memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use reqwest::RequestBuilder;
use tracing::{error, warn};

use super::redirect::{self, Redirect};
use super::route::Opened;
use super::{
    Body, Caller, Code, HandlerResult, Resource, RunKey, RunKind, RunStore, Workspace, response,
};
use crate::error_chain::{causes, error_chain};
use crate::http::auth::App;
use crate::http::response::{BoxError, Paced, ReadError};
use crate::http::views::Views;
use crate::oauth::TokenError;
use crate::run_store::OwnedKind;
use crate::runs::DrivenRun;
use crate::upstream::{OpenError, SendError, UpstreamCredential};

/// Headers of a single connection, which are not forwarded (RFC 9110 §7.6.1); `Connection` can name
/// more.
const HOP_BY_HOP: &str = "connection keep-alive proxy-connection proxy-authenticate \
                          proxy-authorization te trailer transfer-encoding upgrade";

/// Headers that do not go to MANTYX: the caller's credential for the bridge, headers that the
/// client library writes itself, and those that the bridge has acted on. Also cookies: browsers
/// send them to every port of a host, so that they belong to the status page or to another program
/// on this machine.
const NOT_UPSTREAM: &str = "host authorization x-api-key content-length expect cookie cookie2";

/// How long MANTYX may take to say whether a credential opens a run.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(15);

/// The prefix of headers from apps to the bridge alone.
const OWN_PREFIX: &str = "x-bridge-";

/// Headers by which a server speaks of its own address and of what browsers and clients keep for
/// that: they would store MANTYX's for the bridge's, or take their tokens for the bridge elsewhere.
const OF_ORIGIN: &str = "set-cookie alt-svc strict-transport-security clear-site-data refresh nel \
                         report-to reporting-endpoints";

/// The prefix of headers by which a server allows pages of other origins.
const CORS_PREFIX: &str = "access-control-";

/// A request on its way to MANTYX.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub runs: &'a Arc<RunStore>,
    /// Where large specs are read.
    pub views: &'a Views,
    pub caller: Caller,
    pub credential: UpstreamCredential,
    /// The target of the app's path.
    resource: Resource,
}

impl<'a> Outgoing<'a> {
    /// A request of `caller`, who sent these headers, for `resource`.
    pub fn new(
        (runs, views): (&'a Arc<RunStore>, &'a Views),
        caller: &Caller,
        headers: &HeaderMap,
        resource: Resource,
    ) -> Self {
        Self {
            runs,
            views,
            caller: caller.clone(),
            credential: credential(runs, caller, headers),
            resource,
        }
    }

    /// Checks again what the request may do, once its body is there. A body can take an hour to
    /// arrive. Meanwhile the app may be removed or get another token or credential, and the path's
    /// target may turn out to be another app's. The error is the refusal, for the app.
    pub fn renew(&mut self, headers: &HeaderMap) -> HandlerResult<()> {
        self.caller.app = may_still(self.runs, &self.caller.app, &self.resource)?;
        self.credential = credential(self.runs, &self.caller, headers);
        Ok(())
    }

    /// Looks up what other replicas know of the path's target, and refuses another app's. The
    /// bridge must not ask MANTYX for that, since the bridge's own credential would open it.
    pub(super) async fn learn(&self) -> HandlerResult<()> {
        let Resource { workspace, ids, .. } = &self.resource;
        self.learn_of(workspace, ids).await?;
        // The answer does not reveal that the thing exists.
        let message = match others(self.runs, &self.caller.app, &self.resource) {
            None => return Ok(()),
            Some(OwnedKind::Run) => "There is no such run.",
            Some(OwnedKind::Session | OwnedKind::Task | OwnedKind::Context) => {
                "There is no such session."
            }
        };
        Err(response::error(Code::NotFound, message))
    }

    /// Looks up what other replicas know of the runs or sessions `ids`.
    pub async fn learn_of(&self, workspace: &Workspace, ids: &[String]) -> HandlerResult<()> {
        let Err(error) = self.runs.learn(workspace, ids, &self.credential).await else {
            return Ok(());
        };
        warn!(error = error_chain(&error), "cannot tell yet whose run or session a request is for");
        if self.runs.wait_for_database().await
            && self.runs.learn(workspace, ids, &self.credential).await.is_ok()
        {
            return Ok(());
        }
        Err(away(self.runs))
    }

    /// Forwards the request as it is. If the app loses its right before the body has ended, the
    /// body breaks off, so that the request has no effect at MANTYX.
    pub async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let length = parts.headers.get(header::CONTENT_LENGTH).cloned();
        if http_body::Body::is_end_stream(&body) {
            return self.send(&parts, Ok).await;
        }
        let runs = Arc::clone(self.runs);
        let app = Arc::clone(&self.caller.app);
        let resource = self.resource.clone();
        let paced = Paced::with_check(body, move || may_still(&runs, &app, &resource).map(drop));
        let upload = Mutex::new(Some(reqwest::Body::wrap(paced)));
        let answer = self.send(&parts, |request| {
            let upload = upload.lock().take();
            let request = request.body(upload.ok_or(SendError::NotTwice)?);
            Ok(match &length {
                Some(length) => request.header(header::CONTENT_LENGTH, length),
                None => request,
            })
        });
        answer.await
    }

    /// Forwards the request with another body.
    pub async fn forward_bytes(&self, parts: &Parts, body: Vec<Bytes>) -> Response<Body> {
        let length: usize = body.iter().map(Bytes::len).sum();
        let answer = self.send(parts, |request| {
            let pieces = stream::iter(body.clone().into_iter().map(Ok::<_, Infallible>));
            let upload = reqwest::Body::wrap_stream(pieces);
            Ok(request.header(header::CONTENT_LENGTH, length).body(upload))
        });
        answer.await
    }

    /// Sends the request with the body that `fill` adds.
    async fn send(
        &self,
        parts: &Parts,
        fill: impl Fn(RequestBuilder) -> Result<RequestBuilder, SendError>,
    ) -> Response<Body> {
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let upstream = &self.runs.upstream;
        let mut headers = end_to_end(&parts.headers);
        for name in NOT_UPSTREAM.split(' ') {
            headers.remove(name);
        }
        remove_prefixed(&mut headers, OWN_PREFIX);
        let answer = upstream.send((parts.method.clone(), path), &self.credential, |request| {
            fill(request.headers(headers.clone()))
        });
        match answer.await {
            Ok(response) => {
                upstream.overheard(&self.credential, response.headers());
                match response.status() {
                    status if status.is_success() => self.accepted(&parts.method),
                    StatusCode::UNAUTHORIZED => {
                        if let Some(run) = self.opened_run() {
                            self.runs.context.refused(&run, &self.credential);
                        }
                    }
                    _ => {}
                }
                self.back(response)
            }
            Err(error) => unsent(&error),
        }
    }

    /// The run that the bridge drives for this caller, if there is one. Where callers bring their
    /// own credential, the bridge asks MANTYX whether it opens the run, unless MANTYX has recently
    /// said so. The error is MANTYX's refusal, for the app.
    pub async fn own_run(&self, key: &RunKey) -> HandlerResult<Option<Arc<DrivenRun>>> {
        if let Some(run) = self.vouched_run(key).await? {
            return Ok(Some(run));
        }
        // Since the request was read, another replica may have taken the run over.
        self.learn().await?;
        self.vouched_run(key).await
    }

    /// The run, among those that this replica drives or can take over now, once MANTYX has said
    /// that the caller's credential opens it. Without that question, one person could read
    /// another's run in an app whose people bring their own credentials.
    async fn vouched_run(&self, key: &RunKey) -> HandlerResult<Option<Arc<DrivenRun>>> {
        let app = &self.caller.app.name;
        // Read in this order: a run that is resumed in between is then found among the driven ones.
        let awaits_credential = self.runs.awaits_credential(key, app);
        let run = self.runs.get(key).filter(|run| run.app == *app);
        if run.is_none() && !awaits_credential {
            return Ok(None);
        }
        self.vouch(run.as_ref(), key).await?;
        if self.credential.is_callers() && run.is_none_or(|run| run.is_guest()) {
            self.runs.take_waiting_run(key, app, &self.credential).await.map_err(|error| {
                warn!(error = error_chain(&error), run = %key.run, "cannot take over a run");
                away(self.runs)
            })?;
        }
        Ok(self.runs.get_or_resume(key, app, &self.credential).filter(|run| run.app == *app))
    }

    /// Like [`Self::own_run`]; for an agent run of an eval, the eval.
    pub async fn own_run_or_eval(&self, key: &RunKey) -> HandlerResult<Option<Arc<DrivenRun>>> {
        if let Some(run) = self.own_run(key).await? {
            return Ok(Some(run));
        }
        if key.kind != RunKind::Agent {
            return Ok(None);
        }
        let Some(eval) = self.runs.eval_of(key).filter(|eval| eval.app == self.caller.app.name)
        else {
            return Ok(None);
        };
        self.vouch(Some(&eval), &eval.key).await?;
        Ok(Some(eval))
    }

    /// Asks MANTYX whether the caller's credential opens `run`, whose key is `key`, unless that is
    /// known.
    async fn vouch(&self, run: Option<&Arc<DrivenRun>>, key: &RunKey) -> HandlerResult<()> {
        let credential = &self.credential;
        let vouched_for = match run {
            Some(run) => self.runs.context.may_read(run, credential),
            None => !credential.is_callers(),
        };
        if vouched_for {
            return Ok(());
        }
        let path = key.path();
        let answer = self.runs.upstream.send((Method::GET, &path), credential, |request| {
            Ok(request.header(header::ACCEPT, "application/json").timeout(ASK_WITHIN))
        });
        match answer.await {
            Ok(response) if response.status().is_success() => {
                if let Some(run) = run {
                    self.runs.context.accepted(run, credential);
                }
                Ok(())
            }
            Ok(response) => {
                if let (StatusCode::UNAUTHORIZED, Some(run)) = (response.status(), run) {
                    self.runs.context.refused(run, credential);
                }
                Err(self.back(response))
            }
            Err(error) => Err(unsent(&error)),
        }
    }

    /// Records that MANTYX has accepted the caller's credential for this target.
    fn accepted(&self, method: &Method) {
        // Other methods prove nothing: they may need no credential, as a browser's OPTIONS does
        // not.
        if !matches!(*method, Method::GET | Method::POST) {
            return;
        }
        let workspace = &self.resource.workspace;
        if let Some(run) = self.opened_run() {
            self.runs.context.accepted(&run, &self.credential);
        }
        if let Some(Opened::Session(session)) = &self.resource.opened {
            let runs = self.runs.of_session(workspace, session);
            for run in runs.iter().filter(|run| run.app == self.caller.app.name) {
                self.runs.context.accepted(run, &self.credential);
            }
        }
    }

    /// The caller's driven run that the path leads to, or into.
    fn opened_run(&self) -> Option<Arc<DrivenRun>> {
        let Some(Opened::Run(key)) = &self.resource.opened else { return None };
        self.runs.get(key).filter(|run| run.app == self.caller.app.name)
    }

    /// MANTYX's answer, for the app.
    fn back(&self, response: reqwest::Response) -> Response<Body> {
        if let Some(refused) = self.not_the_apps(response.status()) {
            return refused;
        }
        let base = &self.runs.upstream.base;
        let lead = redirect::redirect(base, response.url(), response.status(), response.headers());
        if lead == Redirect::Elsewhere {
            return redirect::refused(response.status());
        }
        let response: Response<reqwest::Body> = response.into();
        let (mut parts, body) = response.into_parts();
        parts.headers = from_upstream(&parts.headers);
        if let Redirect::Within(path) = lead {
            parts.headers.insert(header::LOCATION, path);
        }
        let body = body.map_err(|error| {
            warn!(error = %error_chain(&error), "MANTYX's answer broke off");
            BoxError::from(error.without_url())
        });
        Response::from_parts(parts, body.boxed_unsync())
    }

    /// The answer where MANTYX opens no stream: MANTYX's own refusal, if there is one.
    pub(super) fn refused(&self, error: &OpenError) -> Response<Body> {
        let refusal = match error {
            OpenError::Refused(refusal) => refusal,
            OpenError::Unsent(SendError::Token(why)) => return no_token(why),
            _ => return unreachable(&error.to_string()),
        };
        if let Some(refused) = self.not_the_apps(refusal.status) {
            return refused;
        }
        if refusal.status.is_redirection() {
            return redirect::refused(refusal.status);
        }
        let mut headers = from_upstream(&refusal.headers);
        headers.remove(header::CONTENT_LENGTH);
        let mut response = match &refusal.body {
            Some(body) => Response::new(response::full(body.clone())),
            None => {
                headers.remove(header::CONTENT_TYPE);
                headers.remove(header::CONTENT_ENCODING);
                response::error(Code::StreamRefused, "MANTYX does not give the run's events.")
            }
        };
        *response.status_mut() = refusal.status;
        response.headers_mut().extend(headers);
        response
    }

    /// The replacement for an answer of MANTYX that is about the bridge's credential.
    fn not_the_apps(&self, status: StatusCode) -> Option<Response<Body>> {
        if self.credential.is_callers() || status != StatusCode::UNAUTHORIZED {
            return None;
        }
        // Forwarded, this 401 would look to the app as if its own token for the bridge were wrong.
        error!("MANTYX refuses the bridge's credential (401); check upstream.credential");
        Some(response::error(
            Code::UpstreamUnauthorized,
            "MANTYX refuses the credential of the bridge (401). It is `upstream.credential` \
             in bridge.yaml that has to be mended; your token for the bridge is right.",
        ))
    }
}

/// The refusal while a run or session cannot be kept, or another replica's not be looked up.
pub fn away(runs: &RunStore) -> Response<Body> {
    response::retry_after(response::error(Code::NotReady, runs.reason_unkept()), 5)
}

/// The part of `resource` that another app than `app` began.
fn others(runs: &RunStore, app: &App, resource: &Resource) -> Option<OwnedKind> {
    resource.ids.iter().find_map(|id| runs.others(&resource.workspace, id, &app.name))
}

/// The present state of `app`, if it may still send a request for `resource`.
fn may_still(runs: &RunStore, app: &App, resource: &Resource) -> Result<Arc<App>, ReadError> {
    let app = runs.calls.still(app).ok_or(ReadError::NotLetIn)?;
    others(runs, &app, resource).map_or(Ok(app), |_| Err(ReadError::NotFound))
}

/// The headers of MANTYX's answer that apps get.
fn from_upstream(headers: &HeaderMap) -> HeaderMap {
    let mut headers = end_to_end(headers);
    for name in OF_ORIGIN.split(' ') {
        headers.remove(name);
    }
    // MANTYX's permissions for pages of other origins do not hold for the bridge.
    remove_prefixed(&mut headers, CORS_PREFIX);
    headers
}

fn remove_prefixed(headers: &mut HeaderMap, prefix: &str) {
    let names = headers.keys().filter(|name| name.as_str().starts_with(prefix));
    for name in names.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// The credential that MANTYX gets for requests of `caller`.
pub fn credential(runs: &RunStore, caller: &Caller, headers: &HeaderMap) -> UpstreamCredential {
    runs.upstream.credential_of(&caller.app).unwrap_or_else(|| {
        let mut own = headers.clone();
        if let Some(name) = &caller.token_in {
            own.remove(name);
        }
        UpstreamCredential::of_caller(&own)
    })
}

/// The headers that travel further than one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut remaining = headers.clone();
    let connection_values =
        headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = connection_values.flat_map(|value| value.split(',')).map(str::trim);
    for name in HOP_BY_HOP.split(' ').chain(names) {
        remaining.remove(name);
    }
    remaining
}

/// The answer to a request that did not reach MANTYX, or that MANTYX did not take.
fn unsent(error: &SendError) -> Response<Body> {
    match error {
        SendError::OddPath => response::error(Code::InvalidRequest, &error.to_string()),
        SendError::Token(why) => no_token(why),
        SendError::NotTwice => {
            let message = "MANTYX refused the bridge's token, which has been renewed since. \
                           Nothing was done: send the request again.";
            let unauthorized = response::error(Code::UpstreamUnauthorized, message);
            let unavailable = response::with_status(unauthorized, StatusCode::SERVICE_UNAVAILABLE);
            response::retry_after(unavailable, 1)
        }
        // If the app's body did not arrive, the app gets that error, as MANTYX is not the cause.
        // The request's body may be why sending failed.
        SendError::Broken(error) => match causes::<ReadError>(error).next() {
            Some(error) => error.clone().into(),
            None => unreachable(&error_chain(error)),
        },
    }
}

/// The answer where the bridge has no token for MANTYX.
fn no_token(why: &TokenError) -> Response<Body> {
    error!(error = %why, "MANTYX cannot be shown a token; check upstream.oauth");
    response::error(
        Code::UpstreamUnauthorized,
        "The bridge has no token that MANTYX takes. It is `upstream.oauth` in bridge.yaml \
         that has to be mended, or what it refers to; your token for the bridge is right.",
    )
}

/// The answer where MANTYX gave none.
pub fn unreachable(error: &str) -> Response<Body> {
    warn!(error, "MANTYX cannot be reached");
    response::error(
        Code::UpstreamUnreachable,
        "The bridge cannot reach MANTYX at the moment; its log says why.",
    )
}

#[cfg(test)]
mod tests {
    //! What travels on and what does not.

    use http::HeaderName;

    use super::*;

    #[test]
    fn headers_of_mantyxs_own_address_do_not_reach_apps() {
        let mut headers = HeaderMap::new();
        let all = OF_ORIGIN.split_whitespace().chain(["access-control-allow-origin", "etag"]);
        for name in all {
            headers.insert(name.parse::<HeaderName>().unwrap(), "x".parse().unwrap());
        }
        let kept = from_upstream(&headers);
        assert_eq!(kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["etag"]);
    }

    #[test]
    fn connection_headers_go_no_further() {
        let pairs = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("accept", "application/json"),
            ("content-length", "5"),
        ];
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let kept = end_to_end(&headers);
        let mut kept: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["accept", "content-length"]);
    }
}
