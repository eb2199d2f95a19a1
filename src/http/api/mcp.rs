//! `/mcp`: the bridge as one MCP server over Streamable HTTP, for every client on its network. A
//! client sees the tools of all backends that its app may use, under the names that models are
//! given, and its calls take the way of all others: rights, approvals, pins, breaker, audit.
//!
//! The transport is the bridge's own: rmcp's keeps a task and several channels for each session,
//! and writes every result anew from its types, which drops and rewrites what a server sent.
//!
//! docs/design/mcp.md says what it is not, and how it came about.
//!
//! Must not: know how a call is made, or change what a server says of a tool, but where the
//! client's revision has no such thing.

mod asking;
mod calls;
mod changes;
mod features;
pub mod message;
mod results;
mod revision;
mod selection;
mod sessions;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use self::changes::List;
use self::message::{Message, Replied, Request, RpcError};
pub use self::revision::{STDIO, names_stateless};
use self::selection::{Names, Selection};
pub use self::sessions::McpSessions;
use self::sessions::Session;
use super::{
    Api, ApiRequest, App, Body, Caller, HandlerResult, MAX_CALL, names, proxy, query, response,
};
use crate::backend::Modes;
use crate::model::form::without_lone_surrogates;
use crate::model::mcp::header::SESSION;
use crate::model::mcp::{error_code, meta, method, notification};
use crate::model::{BackendName, Feature, instructions, member};
use crate::tasks::LARGE;
use crate::traces::Context;

/// What stands around the data of an event.
const EVENT_START: &[u8] = b"event: message\ndata: ";
const EVENT_END: &[u8] = b"\n\n";
/// What 2026-07-28 requires of lists and resources: a server may change them at any moment, and
/// what an app sees is for that app alone.
const UNCACHED: &str = r#""ttlMs":0,"cacheScope":"private""#;
/// A comment in an event stream.
const PING: &[u8] = b": ping\n\n";

/// One client, for the time of one request.
struct Client<'a> {
    api: &'a Api,
    caller: Caller,
    headers: &'a HeaderMap,
    trace: Context,
    era: Era,
    /// The backends that it has chosen.
    selection: Selection,
}

/// Who sends a message, and how.
struct Arrival<'a> {
    caller: Caller,
    headers: &'a HeaderMap,
    /// The backends that it names.
    names: Option<Names>,
}

/// How the client keeps its state.
#[derive(Debug, Clone)]
enum Era {
    /// 2026-07-28: each request says all.
    Stateless,
    /// The revisions before it.
    Session(Arc<Session>),
}

impl Era {
    fn is_stateless(&self) -> bool {
        matches!(self, Self::Stateless)
    }
}

impl Api {
    /// Answers `/mcp`: a message that is POSTed, GET and DELETE of a session.
    pub(super) async fn mcp(&self, mut incoming: ApiRequest) -> HandlerResult {
        if incoming.request.method() != Method::POST {
            return self.mcp_session(incoming).map_err(|error| error.response("null"));
        }
        let trace = self.runs.context.traces.context(proxy::trace(incoming.request.headers()));
        let body = self.read_json(&mut incoming, MAX_CALL).await?;
        if body.len() < LARGE {
            let message =
                utf8(&body).and_then(Message::read).map_err(|error| error.response("null"))?;
            return self.mcp_message(incoming, trace, message).await;
        }
        let text = body.clone();
        let message = self
            .views
            .work_if_large(&incoming.caller.app.name, body.len(), move || {
                Message::read(utf8(&text)?).map(|message| message.to_owned())
            })
            .await?
            .map_err(|error| error.response("null"))?;
        self.mcp_message(incoming, trace, message.message()).await
    }

    /// Answers a message: errors name the request that they are for, or `null`.
    async fn mcp_message(
        &self,
        incoming: ApiRequest,
        trace: Context,
        message: Message<'_>,
    ) -> HandlerResult {
        let ApiRequest { caller, request: http_request, .. } = incoming;
        let headers = http_request.headers();
        let names = selection::requested(headers, http_request.uri())
            .map_err(|error| error.response(message.id()))?;
        let arrival = Arrival { caller, headers, names };
        match message {
            Message::Request(request) => {
                let reply = self.mcp_request(arrival, trace, &request).await;
                reply.map_err(|error| error.response(request.id))
            }
            Message::Notification(notification) => self
                .mcp_notification(&arrival, &notification)
                .map(|()| accepted())
                .map_err(|error| error.response(notification.id)),
            Message::Response(id, result) => {
                let session = self.session(&arrival);
                session.map_err(|error| error.response("null"))?.answer(id, result);
                Ok(accepted())
            }
        }
    }

    /// Answers a request: `initialize` begins a session, a request of 2026-07-28 says all itself,
    /// and any other belongs to the session that its headers name.
    async fn mcp_request(
        &self,
        arrival: Arrival<'_>,
        trace: Context,
        request: &Request<'_>,
    ) -> Replied {
        if revision::begins_session(request) {
            return self.initialize(arrival, request);
        }
        let headers = arrival.headers;
        let (era, selection) = if revision::is_stateless(request, headers)? {
            revision::check(request, headers)?;
            let offer = self.offer(&arrival.caller.app);
            (Era::Stateless, Selection::new(arrival.names, &offer)?)
        } else {
            let session = self.session(&arrival)?;
            let selection = session.selection.clone();
            (Era::Session(session), selection)
        };
        let caller = arrival.caller;
        Client { api: self, caller, headers, trace, era, selection }.answer(request).await
    }

    /// Takes a notification. Only a cancellation in a session has an effect: a client of 2026-07-28
    /// cancels a request by closing its stream.
    fn mcp_notification(&self, arrival: &Arrival<'_>, notification: &Request<'_>) -> Replied<()> {
        if revision::is_stateless(notification, arrival.headers)? {
            return Ok(());
        }
        let session = self.session(arrival)?;
        if notification.method == notification::CANCELLED
            && let Some(id) = notification.get("requestId")
            // The session remembers the id, and no request has another kind of id.
            && message::is_id(id.get())
        {
            session.cancel(id.get());
        }
        Ok(())
    }

    /// The session that the headers name. Its selection of backends is that of its begin.
    fn session(&self, arrival: &Arrival<'_>) -> Replied<Arc<Session>> {
        let Some(id) = arrival.headers.get(SESSION).and_then(|id| id.to_str().ok()) else {
            return Err(RpcError::invalid_request(
                "The header Mcp-Session-Id is missing: begin with `initialize`, or speak 2026-07-28.",
            ));
        };
        let session = self.mcp_sessions.get(id, &arrival.caller.app.name).ok_or_else(|| {
            let message = "There is no such session; begin another with `initialize`.";
            RpcError::new(StatusCode::NOT_FOUND, error_code::INVALID_REQUEST, message)
        })?;
        session.selection.admit(arrival.names.as_ref())?;
        Ok(session)
    }

    fn initialize(&self, arrival: Arrival<'_>, request: &Request<'_>) -> Replied {
        let app = &arrival.caller.app;
        let modes = Modes::from_capabilities(request.get("capabilities"));
        let selection = Selection::new(arrival.names, &self.offer(app))?;
        let instructions = self.instructions(app, &selection);
        let id = self.mcp_sessions.begin(&app.name, modes, selection).ok_or_else(|| {
            let message = "The app has as many sessions in use as it may; end one of them first.";
            RpcError::new(StatusCode::TOO_MANY_REQUESTS, error_code::INTERNAL_ERROR, message)
        })?;
        let mut result = json!({
            "protocolVersion": revision::negotiated(request.string("protocolVersion").as_deref()),
            "capabilities": capabilities(),
            "serverInfo": server_info(),
        });
        add_instructions(&mut result, instructions);
        let text = message::response(request.id, &result.to_string());
        let id = HeaderValue::try_from(id).expect("an id has hexadecimal digits only");
        Ok(response::with_header(response::json_text(text), SESSION, id))
    }

    /// What the servers that `app` may use within `selection` tell models, as one text.
    fn instructions(&self, app: &App, selection: &Selection) -> Option<String> {
        let offer = self.offer_within(app, selection);
        instructions::together(offer.instructions(&names(&offer)))
    }

    /// Answers GET, which opens the stream of a session, and DELETE, which ends the session.
    fn mcp_session(&self, ApiRequest { caller, request, .. }: ApiRequest) -> Replied {
        let (method, headers) = (request.method(), request.headers());
        let names = selection::requested(headers, request.uri())?;
        let arrival = Arrival { caller, headers, names };
        let session = self.session(&arrival)?;
        let caller = arrival.caller;
        if method == Method::DELETE {
            let id = headers.get(SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default();
            self.mcp_sessions.end(id, &caller.app.name);
            return Ok(response::json_text(""));
        }
        let era = Era::Session(Arc::clone(&session));
        let (trace, selection) = (Context::default(), session.selection.clone());
        let client = Client { api: self, caller, headers, trace, era, selection };
        if *method != Method::GET || !client.takes_events() {
            let message = "GET /mcp is an event stream: accept text/event-stream.";
            return Err(RpcError::new(
                StatusCode::NOT_ACCEPTABLE,
                error_code::INVALID_REQUEST,
                message,
            ));
        }
        Ok(client.session_stream(&session))
    }
}

impl Client<'_> {
    async fn answer(&self, request: &Request<'_>) -> Replied {
        let stateless = self.era.is_stateless();
        let result = match &*request.method {
            method::CALL_TOOL => return self.call_tool(request).await,
            "resources/read" => return self.read(request).await,
            "prompts/get" => return self.prompt(request).await,
            "completion/complete" => return self.complete(request).await,
            method::LIST_TOOLS => {
                let (app, selection) = (Arc::clone(&self.caller.app), self.selection.clone());
                let definitions = move |api: &Api| {
                    let offer = api.offer_within(&app, &selection);
                    if stateless { offer.definitions() } else { offer.definitions_for_sessions() }
                };
                return self.list(request, "tools", List::Tools, definitions).await;
            }
            "resources/list" => return self.list_features(request, Feature::RESOURCE).await,
            "resources/templates/list" => {
                return self.list_features(request, Feature::TEMPLATE).await;
            }
            "prompts/list" => return self.list_features(request, Feature::PROMPT).await,
            "ping" if !stateless => "{}".to_owned(),
            method::DISCOVER if stateless => self.discover(),
            method::LISTEN if stateless => return Ok(self.listen(request)),
            method => {
                let status = if stateless { StatusCode::NOT_FOUND } else { StatusCode::OK };
                let message = format!("The bridge has no method `{method}`.");
                return Err(RpcError::new(status, error_code::METHOD_NOT_FOUND, message));
            }
        };
        Ok(response::json_text(message::response(request.id, &result)))
    }

    fn discover(&self) -> String {
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": revision::SUPPORTED,
            "capabilities": capabilities(),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { (meta::SERVER_INFO): server_info() },
        });
        add_instructions(&mut result, self.api.instructions(&self.caller.app, &self.selection));
        result.to_string()
    }

    async fn list_features(&self, request: &Request<'_>, kind: Feature) -> Replied {
        let list = if kind == Feature::PROMPT { List::Prompts } else { List::Resources };
        let (app, selection) = (Arc::clone(&self.caller.app), self.selection.clone());
        let definitions = move |api: &Api| api.features_within(&app, &selection).definitions(kind);
        self.list(request, kind.list, list, definitions).await
    }

    /// Answers with a whole list on one page: some clients read only the first.
    async fn list(
        &self,
        request: &Request<'_>,
        name: &'static str,
        list: List,
        definitions: impl FnOnce(&Api) -> Vec<String> + Send + 'static,
    ) -> Replied {
        if request.get("cursor").is_some_and(|cursor| cursor.get() != "null") {
            return Err(RpcError::invalid_params("There is no such page: the bridge has one."));
        }
        let (app, selection) = (Arc::clone(&self.caller.app), self.selection.clone());
        let (api, era, id) = (self.api.clone(), self.era.clone(), request.id.to_owned());
        self.api
            .views
            .write(&self.caller.app.name, move || {
                if let Era::Session(session) = &era {
                    // Before the list is read: a change in between is announced then, and would be
                    // missed by the client otherwise.
                    session.lists.learn(list, &list.digest(&api, &app, &selection));
                }
                let text = format!("{{\"{name}\":[{}]}}", definitions(&api).join(","));
                let result = match era {
                    Era::Stateless => with_members(&complete(&text), UNCACHED),
                    Era::Session(_) => text,
                };
                response::json_text(message::response(&id, &result))
            })
            .await
            .map_err(|why| features::no_room(why.to_string()))
    }

    /// Notes that a client with a session uses `backend`: it may expect that the server keeps
    /// something between its requests.
    fn note_use(&self, backend: &BackendName) {
        if matches!(self.era, Era::Session(_))
            && let Some(handle) = self.api.backends().handles().get(backend)
        {
            handle.note_session_call();
        }
    }

    /// Whether the client takes an event stream as an answer.
    fn takes_events(&self) -> bool {
        self.headers.get_all(header::ACCEPT).iter().any(|accept| {
            let kinds = accept.to_str().unwrap_or_default().to_ascii_lowercase();
            ["text/event-stream", "text/*", "*/*"].iter().any(|kind| kinds.contains(kind))
        })
    }
}

/// Adds what the servers of a client tell models, if they tell something.
fn add_instructions(result: &mut Value, instructions: Option<String>) {
    if let Some(text) = instructions {
        result["instructions"] = text.into();
    }
}

fn utf8(body: &Bytes) -> Replied<&str> {
    std::str::from_utf8(body).map_err(|_not_utf8| {
        let message = "the body is not UTF-8";
        RpcError::new(StatusCode::BAD_REQUEST, error_code::PARSE_ERROR, message)
    })
}

fn capabilities() -> Value {
    let lists = json!({ "listChanged": true });
    json!({ "tools": lists, "resources": lists, "prompts": lists, "completions": {} })
}

fn server_info() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "name": "mantyx-bridge", "title": "MANTYX bridge", "version": version })
}

/// `result`, marked as a whole one for a client without a session, if it has no type itself.
fn typed(result: String, is_stateless: bool) -> String {
    if is_stateless && member(&result, "resultType").is_none() { complete(&result) } else { result }
}

/// A result, marked as a whole one (2026-07-28, basic: ResultType).
fn complete(result: &str) -> String {
    with_members(result, "\"resultType\":\"complete\"")
}

/// The JSON text of `object` with further members before its own, whose bytes stay.
fn with_members(object: &str, members: &str) -> String {
    let rest = object.trim_start().strip_prefix('{').unwrap_or_default();
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!("{{{members}{comma}{rest}")
}

fn notification(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}")
}

/// One event of a stream. Line ends in JSON stand between its tokens only, where a space says the
/// same.
fn event(text: &str) -> Bytes {
    let data = without_lone_surrogates(text).replace(['\r', '\n'], " ");
    [EVENT_START, data.as_bytes(), EVENT_END].concat().into()
}

/// 202 without a body: a notification, or a request that was cancelled, has no other answer.
fn accepted() -> Response<Body> {
    response::with_status(Response::new(response::full("")), StatusCode::ACCEPTED)
}
