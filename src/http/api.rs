//! The bridge's own API: apps and operators look at backends here, and apps use their tools without
//! the proxy.
//!
//! Must not: do what a run driver does. Apps that use these routes talk to MANTYX themselves.

pub(crate) mod approvals;
mod events;
pub mod mcp;
mod metrics;
pub(crate) mod openapi;
pub(crate) mod problems;
mod ready;
pub mod routes;
mod runs;
mod sight;
pub(crate) mod status;
pub(crate) mod trust;

use std::{collections::BTreeSet, fmt, sync::Arc, time::SystemTime};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use self::{
    mcp::McpSessions,
    routes::{ApiHandler, ApiRequest},
};
use crate::{
    backend::{calls::Backends, peer::NotRecorded, queue::STANDSTILL},
    budget::Budget,
    config::App,
    http::{
        auth::{Authenticator, Caller, rate_limit, sessions::Sessions},
        error_code::Code,
        proxy::{self, MAX_SPEC},
        response::{self, Answered, Body},
    },
    metrics::Requests,
    model::{
        answer::Answer,
        catalog::hex,
        ending::{Ending, Made},
        event::Call,
        ids::{BackendName, RunKind},
        offer::{Offer, Ref},
        pending,
        spec::InjectError,
        tool_format::Format,
    },
    runs::{Runs, idempotency::NotAnswered},
    state_dir::StateDir,
    tls::Tls,
    traces::Context,
};

/// The largest accepted `local_tool_call` event, in bytes.
pub const MAX_CALL: usize = 8 << 20;

/// How many calls of one request run at once: their results are not counted before they are whole.
const AT_ONCE: usize = 16;
/// The answer to a call for whose result there would be no room.
const FULL: &str = "The results of the request's other calls take all the room that the app has, \
                    so this call was not made. Send it again with fewer others.";

/// The calls of one request, and its body.
type Asked = (Format, Arc<[Call]>, Bytes);

/// The bridge's own API.
#[derive(Debug, Clone)]
pub struct Api {
    pub runs: Arc<Runs>,
    /// The sessions of the status page.
    pub sessions: Arc<Sessions>,
    pub facts: Facts,
    /// Counters of the incoming requests.
    pub requests: Arc<Requests>,
    /// The sessions of MCP clients.
    mcp_sessions: Arc<McpSessions>,
}

/// Facts about the daemon that the status shows.
#[derive(Debug, Clone)]
pub struct Facts {
    pub base_url: String,
    pub since: Instant,
    pub loaded: watch::Receiver<Loaded>,
    /// The certificate of the listeners; `None` where they speak plain HTTP.
    pub tls: Option<Arc<Tls>>,
    pub state: StateDir,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The whole file: it has a mistake, or the bridge cannot carry it out.
    NotTaken(String),
    /// Some keys, which only a restart takes over.
    NeedsRestart(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken(why) => write!(f, "not taken, the earlier one stays: {why}"),
            Self::NeedsRestart(what) => write!(f, "taken, but {what}"),
        }
    }
}

impl Api {
    pub fn new(runs: Arc<Runs>, auth: &Authenticator, facts: Facts) -> Self {
        Self {
            runs,
            sessions: Arc::clone(&auth.sessions),
            facts,
            requests: Arc::default(),
            mcp_sessions: Arc::default(),
        }
    }

    fn loaded(&self) -> Loaded {
        self.facts.loaded.borrow().clone()
    }

    fn backends(&self) -> &Arc<Backends> {
        &self.runs.calls.backends
    }

    /// Answers a request by `handler`, unless a form of a page may have sent it.
    pub async fn handle(&self, handler: ApiHandler, asked: ApiRequest) -> Response<Body> {
        let request = &asked.request;
        // A request that changes something has to declare JSON: a form on a foreign page cannot do
        // that, so such a page cannot make a browser send the request.
        let says_nothing =
            !request.headers().contains_key(header::CONTENT_TYPE) && request.body().is_end_stream();
        if request.method() == Method::POST && !says_nothing && !is_json(request.headers()) {
            return not_json();
        }
        handler(self, asked).await
    }

    fn status(&self, caller: &Caller) -> Response<Body> {
        response::json(StatusCode::OK, &status::status(self, caller))
    }

    /// The headers and the JSON body of a request. `caller` is brought up to date once the body is
    /// there. The error is the refusal, for the app.
    async fn read_json(
        &self,
        caller: &mut Caller,
        request: Request<Incoming>,
        limit: usize,
    ) -> Result<(HeaderMap, Bytes), Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = json_body(Request::from_parts(parts.clone(), body), limit).await?;
        self.renew(caller, &parts.headers)?;
        Ok((parts.headers, body))
    }

    /// Authenticates the caller again. A body can take an hour to arrive: meanwhile the app may
    /// have been removed or have got another token, and the session may have ended.
    fn renew(&self, caller: &mut Caller, headers: &HeaderMap) -> Result<(), Response<Body>> {
        if caller.in_session && self.sessions.token(headers).is_none() {
            return Err(response::not_let_in());
        }
        if !caller.app.is_operator() {
            caller.app = self.runs.calls.still(&caller.app).ok_or_else(response::not_let_in)?;
        }
        Ok(())
    }

    /// The tools that `app` may use now.
    fn offer(&self, app: &App) -> Arc<Offer> {
        self.backends().registry.offer().seen_by(&app.rights)
    }

    fn tool_refs(&self, app: &App, request: &Request<Incoming>) -> Answered {
        let offer = self.offer(app);
        let chosen = choose(&offer, backends(request))?;
        let refs = offer.refs(&chosen).map(|one| one.json.as_ref());
        let refs = refs.collect::<Vec<_>>().join(&b","[..]);
        Ok(tagged(request, [b"{\"tools\":[", refs.as_slice(), b"]"].concat()))
    }

    fn tools(&self, app: &App, request: &Request<Incoming>) -> Answered {
        let format = format(request, "")?;
        let offer = self.offer(app);
        let chosen = choose(&offer, backends(request))?;
        let (tools, notes) = format.tools(offer.refs(&chosen).flat_map(Ref::definitions));
        let text = format!("{{\"tools\":{tools},\"notes\":{}", json!(notes));
        Ok(tagged(request, text.into_bytes()))
    }

    async fn inject(&self, mut caller: Caller, request: Request<Incoming>) -> Answered {
        let (headers, body) = self.read_json(&mut caller, request, MAX_SPEC).await?;
        let spec = proxy::read_spec(RunKind::Agent, body)
            .await
            .map_err(|error| bad_request(&format!("The spec cannot be read: {error}.")))?;
        let injected = spec
            .inject(&self.offer(&caller.app), &proxy::selection(&headers))
            .map_err(|error| proxy::inject_error(&error))?;
        let counts = proxy::injected_header(&injected);
        let mut response = response::json_text(StatusCode::OK, injected.body.concat());
        response.headers_mut().insert("x-bridge-injected", counts);
        Ok(response)
    }

    async fn tool_call(&self, mut caller: Caller, request: Request<Incoming>) -> Answered {
        let format = format(&request, "event")?;
        let trace = self.runs.traces().context(proxy::trace(request.headers()));
        let (headers, body) = self.read_json(&mut caller, request, MAX_CALL).await?;
        let text = std::str::from_utf8(&body);
        let text = text.map_err(|_bad| bad_request("The body is not UTF-8."))?;
        let calls: Arc<[Call]> = format.read(text).map_err(|why| bad_request(&why))?.into();
        let digest = hex(&Sha256::digest(format!("{format:?}\n{text}")));
        let asked = (format, Arc::clone(&calls), body);
        let made = self.clone().make(Arc::clone(&caller.app), trace, asked);
        let answer = match headers.get("idempotency-key").map(HeaderValue::to_str) {
            None => made.await,
            Some(Ok(key)) if (1..=255).contains(&key.len()) => {
                self.runs.calls.once(&caller.app.name, key.to_owned(), digest, made).await
            }
            Some(_) => return Err(bad_request("An Idempotency-Key is 1 to 255 ASCII letters.")),
        };
        match answer {
            Ok(answer) | Err(NotAnswered::NoCall(answer)) => {
                Ok(response::json_text(StatusCode::OK, answer))
            }
            Err(NotAnswered::Busy(why)) => Err(busy(&why)),
            Err(NotAnswered::OtherRequest) => {
                Err(response::error(Code::IdempotencyKeyReused, "The key had another request."))
            }
            Err(why @ (NotAnswered::Lost | NotAnswered::Unwritable)) => {
                let answer = |call: &Call| match why {
                    NotAnswered::Lost => pending::lost(&call.name),
                    _ => Answer::Error(NotRecorded::Unwritable.for_model(&call.name)),
                };
                let result = |call| format.result(call, &answer(call));
                let results: Vec<_> = calls.iter().map(result).collect();
                Ok(response::json_text(StatusCode::OK, format.answer(&results)))
            }
        }
    }

    /// Makes the calls of one request, some of them side by side, and writes the answer to it. The
    /// body counts the calls' arguments for the app.
    async fn make(self, app: Arc<App>, trace: Context, asked: Asked) -> Result<Bytes, NotAnswered> {
        let (format, calls, _body) = asked;
        let offer = self.offer(&app);
        let hold = || Budget::of_process().hold_for(Some(app.name.clone()));
        // Closed once a result has found no room.
        let turns = Semaphore::new(AT_ONCE);
        let results = calls.iter().map(async |call| {
            let route = offer.route(&call.name);
            let route = route.filter(|route| call.kind.is_none_or(|kind| kind == route.kind));
            let not_made = |why| Ok((format.result(call, &Answer::Error(why)), hold(), true));
            let Some(route) = route else {
                return not_made(format!("The bridge has no tool `{}` of this kind.", call.name));
            };
            let Ok(_turn) = turns.acquire().await else {
                return not_made(FULL.to_owned());
            };
            let made = self.runs.calls.call_by_hand(&app.name, route, call.clone(), &trace, None);
            let Made { answer, ending } = made.await;
            if let (Format::Event, Ending::Busy, Answer::Error(why)) = (format, ending, &answer) {
                return Err(NotAnswered::Busy(why.clone()));
            }
            let mut held = hold();
            // Once for the result, and once for the answer that it becomes a part of.
            match held.resize(2 * answer.json_len()).await {
                Ok(()) => Ok((format.result(call, &answer), held, ending.is_of_no_call())),
                Err(no_room) => {
                    turns.close();
                    let why = format!("The tool has run; {no_room}, its result is lost.");
                    Ok((format.result(call, &Answer::Error(why)), held, false))
                }
            }
        });
        let (results, _counted, no_call): (Vec<_>, Vec<_>, Vec<_>) =
            try_join_all(results).await?.into_iter().collect();
        let answer = format.answer(&results).into_bytes();
        let mut held = hold();
        held.follow(answer.len());
        let answer = held.pay_for(answer);
        // A key is for calls that were made; what was refused may be asked for again.
        if no_call.contains(&false) { Ok(answer) } else { Err(NotAnswered::NoCall(answer)) }
    }

    async fn refresh(&self, app: &App, name: &str) -> Response<Body> {
        let mine = names(&self.offer(app));
        let Some(name) = mine.get(name) else {
            let unknown = unknown_backend(name.to_owned(), &mine);
            return response::with_status(unknown, StatusCode::NOT_FOUND);
        };
        self.backends().refresh(name.as_str()).await;
        response::json(StatusCode::OK, &status::backend(self, name))
    }
}

fn alive() -> Response<Body> {
    response::json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))
}

/// The backends in `offer`.
fn names(offer: &Offer) -> BTreeSet<BackendName> {
    offer.backends().map(|(name, _)| name.clone()).collect()
}

/// The backends that are `asked` for by name; all in `offer` if it is `None`.
fn choose(
    offer: &Offer,
    asked: Option<Vec<String>>,
) -> Result<BTreeSet<BackendName>, Response<Body>> {
    let all = names(offer);
    let Some(asked) = asked else { return Ok(all) };
    let known = |name: String| {
        let known = all.get(name.as_str()).cloned();
        known.ok_or_else(|| unknown_backend(name, &all))
    };
    asked.into_iter().map(known).collect()
}

/// The value of the query's parameter `key`.
fn parameter(request: &Request<Incoming>, key: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(request.uri().query()?.as_bytes());
    Some(pairs.find(|(name, _)| name == key)?.1.into_owned())
}

fn backends(request: &Request<Incoming>) -> Option<Vec<String>> {
    parameter(request, "backends").map(|names| proxy::names(&names))
}

fn format(request: &Request<Incoming>, otherwise: &str) -> Result<Format, Response<Body>> {
    let format = parameter(request, "format").unwrap_or_else(|| otherwise.to_owned());
    let names = "`format` must be mcp, openai-chat, openai-responses, anthropic or gemini.";
    serde_json::from_value(format.into()).map_err(|_unknown| bad_request(names))
}

fn unknown_backend(name: String, candidates: &BTreeSet<BackendName>) -> Response<Body> {
    let candidates = candidates.iter().map(ToString::to_string).collect();
    proxy::inject_error(&InjectError::UnknownBackend { name, candidates })
}

async fn json_body(request: Request<Incoming>, limit: usize) -> Result<Bytes, Response<Body>> {
    if !is_json(request.headers()) {
        return Err(not_json());
    }
    Ok(response::read(request.into_body(), limit).await?)
}

/// Whether the headers declare a JSON body. A page of another origin cannot send this header unless
/// the server allows it (CORS preflight).
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn not_json() -> Response<Body> {
    response::error(Code::UnsupportedMediaType, "Send JSON with `Content-Type: application/json`.")
}

fn bad_request(message: &str) -> Response<Body> {
    response::error(Code::InvalidRequest, message)
}

/// The answer to a call that was rejected for lack of a permit; the client may soon try again.
fn busy(why: &str) -> Response<Body> {
    response::retry_after(response::error(Code::Busy, why), rate_limit::seconds(STANDSTILL))
}

/// A time as all answers write it.
fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let value = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let same = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
    value.is_some_and(|value| value.split(',').map(str::trim).any(same))
}

/// The answer of `text`, an object that lacks its digest and its end, or 304 if the app has it.
fn tagged(request: &Request<Incoming>, mut text: Vec<u8>) -> Response<Body> {
    let etag = format!("\"{}\"", hex(&Sha256::digest(&text)));
    let mut response = if matches_etag(request.headers(), &etag) {
        response::with_status(Response::new(response::full("")), StatusCode::NOT_MODIFIED)
    } else {
        text.extend_from_slice(format!(",\"digest\":{etag}}}").as_bytes());
        response::json_text(StatusCode::OK, text)
    };
    if let Ok(value) = HeaderValue::try_from(etag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}
