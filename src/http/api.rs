//! The bridge's own API: apps and operators look at backends here, and apps use their tools without
//! the proxy.
//!
//! Must not: do what a run driver does. Apps that use these routes talk to MANTYX themselves.

mod a2a;
pub(crate) mod approvals;
pub mod backends;
mod calls;
mod events;
pub(crate) mod logins;
mod loom;
pub mod mcp;
mod metrics;
pub(crate) mod notify;
pub(crate) mod openapi;
pub(crate) mod problems;
mod query;
mod ready;
pub mod routes;
mod runs;
mod sight;
pub(crate) mod status;
pub(crate) mod trust;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::backends::Doctor;
use self::events::Looks;
use self::mcp::McpSessions;
use self::routes::{ApiHandler, ApiRequest, NowHandler};
use crate::backend::calls::Backends;
use crate::config::{App, Wire};
use crate::http::auth::Authenticator;
use crate::http::auth::sessions::Sessions;
use crate::http::proxy::MAX_SPEC;
use crate::http::views::{self, Views};
use crate::http::{Body, Caller, Code, HandlerResult, proxy, response};
use crate::http_client;
use crate::limits::queue::STANDSTILL;
use crate::limits::token_bucket;
use crate::logins::Logins;
use crate::metrics::Requests;
use crate::model::catalog::hex;
use crate::model::instructions;
use crate::model::offer::Ref;
use crate::model::spec::InjectError;
use crate::model::tool_format::Format;
use crate::model::{AppName, BackendName, Offer, RunKind, Spec};
use crate::notify::Notifier;
use crate::run_store::RunStore;
use crate::runtimes::{Runtime, Runtimes};
use crate::state_dir::StateDir;
use crate::tls::Tls;

/// The largest accepted `local_tool_call` event, in bytes.
pub const MAX_CALL: usize = 8 << 20;

/// The parameter by which the operator, who is no app, names one.
const APP: &str = "app";
const FOR_THE_OPERATOR: &str = "`app` is for the operator; a token is an app's own.";

/// The bridge's own API.
#[derive(Debug, Clone)]
pub struct Api {
    pub runs: Arc<RunStore>,
    /// The sessions of the status page.
    pub sessions: Arc<Sessions>,
    pub facts: Facts,
    /// Counters of the incoming requests.
    pub requests: Arc<Requests>,
    /// The sessions of MCP clients.
    mcp_sessions: Arc<McpSessions>,
    pub views: Arc<Views>,
    looks: Arc<Looks>,
}

/// Facts about the daemon that the status shows.
#[derive(Debug, Clone)]
pub struct Facts {
    pub base_url: String,
    pub since: Instant,
    pub loaded: watch::Receiver<Loaded>,
    /// The certificate of the listeners; `None` where they speak plain HTTP.
    pub tls: Option<Arc<Tls>>,
    pub logins: Arc<Logins>,
    pub state: StateDir,
    pub runtimes: Arc<Runtimes>,
    pub notifier: Arc<Notifier>,
    /// `None` if the daemon was started without a file.
    pub doctor: Option<Doctor>,
    /// Cancelled when a replica is about to stop.
    pub leaving: CancellationToken,
}

/// The result of the last reload of bridge.yaml.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub at: SystemTime,
    /// The workspace for runs that come by `POST /v1/runs`.
    pub workspace: Option<String>,
    pub flaw: Option<Flaw>,
}

/// What a reload did not take over from the file, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The whole file: it has a mistake, or the bridge cannot carry it out.
    #[error("not taken, the earlier one stays: {0}")]
    NotTaken(String),
    /// The entries of some backends, as what they refer to is missing.
    #[error("taken, but {0}")]
    ReachedAsBefore(String),
    /// Some keys, which only a restart takes over.
    #[error("taken, but {0}")]
    NeedsRestart(String),
}

impl Flaw {
    /// What apps are told: the text for the operator may name other apps, and files.
    fn for_apps(&self) -> &'static str {
        match self {
            Self::NotTaken(_) => {
                "The configuration on disk has a mistake, and was not taken; the earlier one stays."
            }
            Self::ReachedAsBefore(_) => {
                "The configuration was taken, but some backends are reached as before: what their \
                 entries refer to is missing."
            }
            Self::NeedsRestart(_) => {
                "The configuration was taken, but for changes that need a restart of the bridge."
            }
        }
    }
}

impl Api {
    pub fn new(runs: Arc<RunStore>, auth: &Authenticator, facts: Facts) -> Self {
        Self {
            runs,
            sessions: Arc::clone(&auth.sessions),
            facts,
            requests: Arc::default(),
            mcp_sessions: Arc::default(),
            views: Arc::default(),
            looks: Arc::default(),
        }
    }

    fn loaded(&self) -> Loaded {
        self.facts.loaded.borrow().clone()
    }

    fn backends(&self) -> &Arc<Backends> {
        &self.runs.calls.backends
    }

    /// Answers a request by `handler`, unless a form of a page may have sent it.
    pub async fn handle(&self, handler: ApiHandler, incoming: ApiRequest) -> Response<Body> {
        let request = &incoming.request;
        // A request that changes something has to declare JSON: a form on a foreign page cannot do
        // that, so such a page cannot make a browser send the request.
        let says_nothing =
            !request.headers().contains_key(header::CONTENT_TYPE) && request.body().is_end_stream();
        let is_any_json = is_json(request.headers()) || is_a2a_json(request.headers());
        if request.method() == Method::POST && !says_nothing && !is_any_json {
            return not_json();
        }
        let app = incoming.caller.app.name.clone();
        let answer = handler(self, incoming).await.unwrap_or_else(|refusal| refusal);
        views::paid_for(&app, answer).await.unwrap_or_else(Into::into)
    }

    /// Answers a request from what the bridge holds.
    pub async fn view(&self, handler: NowHandler, mut incoming: ApiRequest) -> Response<Body> {
        let app = incoming.caller.app.name.clone();
        let answer = self.write(&app, move |api| {
            api.renew(&mut incoming)?;
            handler(api, &incoming)
        });
        answer.await
    }

    /// Has an answer for `app` written in a turn of that app: a large one takes milliseconds, in
    /// which no other request would be served.
    async fn write(
        &self,
        app: &AppName,
        write: impl FnOnce(&Self) -> HandlerResult + Send + 'static,
    ) -> Response<Body> {
        let api = self.clone();
        let answer = self.views.write(app, move || write(&api).unwrap_or_else(|refusal| refusal));
        answer.await.unwrap_or_else(Into::into)
    }

    fn status(&self, incoming: &ApiRequest) -> HandlerResult {
        let viewer = self.viewer(incoming)?;
        let mut status = status::status(self, &viewer);
        if parameter(&incoming.request, APP).is_some() {
            status.daemon.injected.retain(|injected| injected.app == viewer.app.name.as_str());
        }
        Ok(response::json(&status))
    }

    /// The caller with the app whose backends and tools the answer shows.
    ///
    /// The operator who names no app sees all backends. A connection may be an app's without a
    /// token: by its Unix user, or because none is needed. If that app's rights counted, the
    /// operator would read that all is well while a backend of another app is down.
    fn viewer(&self, ApiRequest { caller, request, .. }: &ApiRequest) -> HandlerResult<Caller> {
        let shows_no_token = caller.token_in.is_none() && !caller.in_session;
        let app = match parameter(request, APP) {
            Some(_) if !caller.is_operator => return Err(bad_request(FOR_THE_OPERATOR)),
            Some(name) => {
                let app = self.runs.calls.app(&name.as_str().into());
                app.ok_or_else(|| self.no_app(&name))?
            }
            None if caller.is_operator && shows_no_token => App::operator(),
            None => Arc::clone(&caller.app),
        };
        Ok(Caller { app, ..caller.clone() })
    }

    /// The JSON body of a request. The error is the refusal, for the app.
    ///
    /// Once the body is there, the caller is authenticated again: a body can take an hour to
    /// arrive.
    async fn read_json(&self, incoming: &mut ApiRequest, limit: usize) -> HandlerResult<Bytes> {
        let body = json_body(&mut incoming.request, limit).await?;
        self.renew(incoming)?;
        Ok(body)
    }

    /// Authenticates the caller of a request again that had to wait. Meanwhile a reload may have
    /// removed the app, or given it another token or other rights, and the session may have ended.
    fn renew(&self, incoming: &mut ApiRequest) -> HandlerResult<()> {
        let ApiRequest { caller, request, .. } = incoming;
        if caller.in_session && self.sessions.token(request.headers()).is_none() {
            return Err(response::not_let_in());
        }
        if !caller.app.is_operator() {
            caller.app = self.runs.calls.still(&caller.app).ok_or_else(response::not_let_in)?;
        }
        Ok(())
    }

    /// The tools that `app` may use now.
    fn offer(&self, app: &App) -> Arc<Offer> {
        self.runs.calls.offer_for(app)
    }

    /// The answer to an operator who names an app that is not configured.
    fn no_app(&self, name: &str) -> Response<Body> {
        let settings = self.runs.calls.settings();
        let names: Vec<&str> = settings.apps.iter().map(|entry| entry.app.name.as_str()).collect();
        bad_request(&format!("There is no app `{name}`; there are: {}.", names.join(", ")))
    }

    fn tool_refs(&self, incoming: &ApiRequest) -> HandlerResult {
        let request = &incoming.request;
        let offer = self.offer(&self.viewer(incoming)?.app);
        let chosen = choose(&offer, backends(request))?;
        let refs: Vec<&[u8]> = offer.refs(&chosen).map(|tool_ref| tool_ref.json.as_ref()).collect();
        let list = refs.join(&b","[..]);
        let text = [b"{\"tools\":[", list.as_slice(), b"]"].concat();
        Ok(tagged(request, text, &offer.instructions(&chosen)))
    }

    fn tools(&self, incoming: &ApiRequest) -> HandlerResult {
        let request = &incoming.request;
        let format = format(request, "")?;
        let (offer, members) = self.offer_in(format, &self.viewer(incoming)?.app, request)?;
        let chosen = choose(&offer, backends(request))?;
        let definitions = offer.refs(&chosen).flat_map(Ref::definitions);
        let (tools, notes) = format.tools(definitions, &members);
        let text = format!("{{\"tools\":{tools},\"notes\":{}", json!(notes));
        Ok(tagged(request, text.into_bytes(), &offer.instructions(&chosen)))
    }

    /// The tools for `GET /v1/tools`, and members that each of them gets. Those for a runtime are
    /// limited to what the first runtime of that kind may use, or the one that the request names.
    fn offer_in(
        &self,
        format: Format,
        app: &App,
        request: &Request<Incoming>,
    ) -> HandlerResult<(Arc<Offer>, String)> {
        let offer = self.offer(app);
        if !matches!(format, Format::Hsafa | Format::Claude) {
            return Ok((offer, String::new()));
        }
        let name = parameter(request, "runtime");
        let runtime = self.facts.runtimes.all().into_iter().find(|runtime| {
            takes_format(runtime, format)
                && name.as_deref().is_none_or(|name| runtime.name.as_str() == name)
        });
        if let (Some(name), None) = (&name, &runtime) {
            return Err(bad_request(&format!("There is no runtime `{name}` of this kind.")));
        }
        let members = match runtime.as_ref().and_then(|runtime| runtime.wire()) {
            None if format == Format::Hsafa => external_members(Duration::from_secs(30)),
            Some(Wire::HsafaV3 { timeout }) => external_members(timeout),
            _ => String::new(),
        };
        match runtime.and_then(|runtime| self.runs.calls.app(&runtime.name)) {
            Some(app) => Ok((offer.seen_by(&app.rights), members)),
            None => Ok((offer, members)),
        }
    }

    async fn inject(&self, mut incoming: ApiRequest) -> HandlerResult {
        let body = self.read_json(&mut incoming, MAX_SPEC).await?;
        let selection = proxy::selection(incoming.request.headers());
        let app = incoming.caller.app;
        let name = app.name.clone();
        let text = body.clone();
        let spec = self
            .views
            .work_if_large(&name, body.len(), move || Spec::read(RunKind::Agent, text))
            .await?
            .map_err(|error| bad_request(&format!("The spec cannot be read: {error}.")))?;
        let answer = self.write(&name, move |api| {
            let app = api.runs.calls.still(&app).ok_or_else(response::not_let_in)?;
            let injected = spec.inject(&api.offer(&app), &selection)?;
            let counts = proxy::injected_header(&injected);
            let spec = response::json_text(injected.body.concat());
            Ok(response::with_header(spec, proxy::INJECTED, counts))
        });
        Ok(answer.await)
    }

    async fn refresh(&self, incoming: ApiRequest) -> HandlerResult {
        let viewer = self.viewer(&incoming)?;
        let name = self.find(&viewer.app, incoming.segment)?;
        self.backends().refresh(name.as_str()).await;
        Ok(response::json(&status::backend(self, &viewer, &name)))
    }

    /// The backend that a path names, if `app` may use it.
    fn find(&self, app: &App, name: String) -> HandlerResult<BackendName> {
        let mine = names(&self.offer(app));
        mine.get(name.as_str()).cloned().ok_or_else(|| no_backend(name, &mine))
    }
}

/// The backends in `offer`.
fn names(offer: &Offer) -> BTreeSet<BackendName> {
    offer.backends().map(|(name, _)| name.clone()).collect()
}

/// Whether the calls of `runtime` come in `format`.
fn takes_format(runtime: &Runtime, format: Format) -> bool {
    match format {
        Format::Claude => matches!(runtime.wire(), Some(Wire::Claude { .. })),
        _ => matches!(runtime.wire(), Some(Wire::HsafaV3 { .. } | Wire::HsafaV7 { .. })),
    }
}

/// The members by which a definition has hsafa wait up to `timeout` for the bridge's answer to a
/// call.
fn external_members(timeout: Duration) -> String {
    format!(",\"executionType\":\"external\",\"timeout\":{}", timeout.as_millis())
}

/// The backends that `selection` names; all in `offer` if it is `None`.
fn choose(offer: &Offer, selection: Option<Vec<String>>) -> HandlerResult<BTreeSet<BackendName>> {
    let all = names(offer);
    let Some(selection) = selection else { return Ok(all) };
    let backends = selection
        .into_iter()
        .map(|name| all.get(name.as_str()).cloned().ok_or_else(|| unknown_backend(name, &all)));
    backends.collect()
}

/// The value of the query's parameter `key`.
fn parameter(request: &Request<Incoming>, key: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(request.uri().query()?.as_bytes());
    Some(pairs.find(|(name, _)| name == key)?.1.into_owned())
}

fn backends(request: &Request<Incoming>) -> Option<Vec<String>> {
    parameter(request, "backends").map(|names| proxy::names(&names))
}

fn format(request: &Request<Incoming>, otherwise: &str) -> HandlerResult<Format> {
    let format = parameter(request, "format").unwrap_or_else(|| otherwise.to_owned());
    let names = "`format` must be mcp, openai-chat, openai-responses, anthropic, gemini, hsafa or \
                 claude.";
    serde_json::from_value(format.into()).map_err(|_unknown| bad_request(names))
}

fn unknown_backend(name: String, candidates: &BTreeSet<BackendName>) -> Response<Body> {
    let candidates = candidates.iter().map(ToString::to_string).collect();
    InjectError::UnknownBackend { name, candidates }.into()
}

/// The answer to a path that names none of `candidates`.
fn no_backend(name: String, candidates: &BTreeSet<BackendName>) -> Response<Body> {
    response::with_status(unknown_backend(name, candidates), StatusCode::NOT_FOUND)
}

async fn json_body(request: &mut Request<Incoming>, limit: usize) -> HandlerResult<Bytes> {
    if !is_json(request.headers()) {
        return Err(not_json());
    }
    Ok(response::read(request.body_mut(), limit).await?)
}

/// Whether the headers declare a JSON body. A page of another origin cannot send this header unless
/// the server allows it (CORS preflight).
fn is_json(headers: &HeaderMap) -> bool {
    http_client::media_type(headers).eq_ignore_ascii_case("application/json")
}

/// Whether they declare the JSON of A2A 1.0. A page cannot set this header either; the handlers of
/// other routes refuse it.
fn is_a2a_json(headers: &HeaderMap) -> bool {
    http_client::media_type(headers).eq_ignore_ascii_case("application/a2a+json")
}

fn not_json() -> Response<Body> {
    response::error(Code::UnsupportedMediaType, "Send JSON with `Content-Type: application/json`.")
}

/// Refuses a caller who has not shown the operator's secret.
fn operator_only(caller: &Caller, what: &str) -> HandlerResult<()> {
    if caller.is_operator {
        return Ok(());
    }
    let message = format!(
        "{what} is for the operator, who shows X-Bridge-Operator, or signs in to the page with it."
    );
    Err(response::error(Code::OperatorOnly, &message))
}

fn bad_request(message: &str) -> Response<Body> {
    response::error(Code::InvalidRequest, message)
}

/// The answer to a call that was rejected for lack of a permit; the client may soon try again.
fn busy(why: &str) -> Response<Body> {
    response::retry_after(response::error(Code::Busy, why), token_bucket::seconds(STANDSTILL))
}

fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let Some(value) = headers.get(header::IF_NONE_MATCH) else { return false };
    let mut tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// The answer of `text`, an object that lacks its digest and its end, and of the instructions of
/// servers, or 304 if the app has it. The digest is that of the tools alone: a run whose tools are
/// the same needs no others for the sake of instructions.
fn tagged(
    request: &Request<Incoming>,
    mut text: Vec<u8>,
    instructions: &[(&BackendName, &str)],
) -> Response<Body> {
    let digest = format!("\"{}\"", hex(&Sha256::digest(&text)));
    let texts = instructions::object(instructions.iter().copied());
    let etag = if instructions.is_empty() {
        digest.clone()
    } else {
        format!("\"{}\"", hex(&Sha256::digest([&digest, texts.as_str()].concat())))
    };
    let response = if matches_etag(request.headers(), &etag) {
        response::with_status(Response::new(response::full("")), StatusCode::NOT_MODIFIED)
    } else {
        let end = format!(",\"instructions\":{texts},\"digest\":{digest}}}");
        text.extend_from_slice(end.as_bytes());
        response::json_text(text)
    };
    let etag = HeaderValue::try_from(etag).expect("quotes and hexadecimal digits");
    response::with_header(response, header::ETAG, etag)
}
