//! Relays the requests of A2A clients to an agent, in their own wire: parameters go out as the
//! client wrote them, results come back as the agent did.
//!
//! Nothing here cancels a task: a client that has gone asks for its task later.
//!
//! Must not: know whose a task is, or put a result into another wire.

use std::sync::Arc;

use a2a::{error_code, methods};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::ACCEPT;
use http::{Method, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;

use super::events::{self, Events, Piece};
use super::failure::{A2aFailure, A2aResult};
use super::interface::{Endpoint, Generation};
use super::link::{EVENTS, Link, MAX_REPLY};
use super::links::Links;
use super::result::{Stage, is_failed};
use super::update::{Event, Update};
use super::wire::{self, Request};
use super::{progress_text, update};
use crate::backend::seat::Seat;
use crate::backend::{
    A2aClient, A2aWire, AgentError, AgentEvent, AgentResult, CallError, CallOutcome, Called,
    NotRead, RelayOperation, RelayReply, RelayRequest, ToolCall,
};
use crate::config::A2aBinding;
use crate::http_client;
use crate::model::json::quoted;
use crate::model::{Answer, Ending, Members, Trace, string_member};
use crate::random;

/// What an agent has replied.
enum Opened {
    One(AgentEvent),
    Events(Box<AgentEvents>),
}

/// The events of a stream that is relayed.
struct AgentEvents {
    events: Events,
    binding: A2aBinding,
}

/// What a stream brings next.
enum Next {
    AgentEvent(AgentEvent),
    /// The agent lives, and says nothing.
    Comment,
}

/// The wires of the interfaces that may be called. gRPC is none of them: its messages are not JSON.
pub(super) fn wires(links: &Links) -> Vec<A2aWire> {
    let endpoints = links.iter().map(|link| &link.endpoint);
    let json = endpoints.filter(|endpoint| endpoint.binding != A2aBinding::Grpc);
    json.map(|Endpoint { binding, generation, .. }| A2aWire {
        binding: *binding,
        generation: *generation,
    })
    .collect()
}

/// Sends the message of `client`, and hands over what the agent says of it. The outcome is for the
/// history and the audit log.
pub(super) async fn call(
    links: &Links,
    client: &A2aClient,
    call: &ToolCall,
) -> Called<CallOutcome> {
    let (link, opened) = open_first(links, &client.request, call.trace.as_deref()).await?;
    let relay = CallRelay { link, client, call };
    match opened {
        Opened::One(reply) => relay.hand_over(reply).await,
        Opened::Events(events) => relay.stream(*events).await,
    }
}

/// Sends the request of a client about a task.
pub(super) async fn ask(links: &Links, request: &RelayRequest) -> Called<RelayReply> {
    let (_, opened) = open_first(links, request, None).await?;
    Ok(match opened {
        Opened::One(reply) => RelayReply::One(reply),
        Opened::Events(events) => {
            let reply = stream::unfold(Some(events), |events| async {
                let mut open_events = events?;
                match open_events.next().await {
                    Ok(Some(Next::AgentEvent(reply))) => Some((Some(Ok(reply)), Some(open_events))),
                    Ok(Some(Next::Comment)) => Some((None, Some(open_events))),
                    Ok(None) => None,
                    Err(failure) => Some((Some(Err(failure.into_error_after_delivery())), None)),
                }
            });
            RelayReply::Events(reply.filter_map(async |next| next).boxed())
        }
    })
}

/// Sends a request to the first interface of its wire that can be reached. Another one is tried
/// only if no byte of the request was sent.
async fn open_first<'a>(
    links: &'a Links,
    request: &RelayRequest,
    trace: Option<&Trace>,
) -> Called<(&'a Arc<Link>, Opened)> {
    let mut failure = CallError::NotSent("there is no interface of the client's wire".to_owned());
    for link in links.by_preference() {
        let Endpoint { binding, generation, .. } = link.endpoint;
        if request.wire != (A2aWire { binding, generation }) {
            continue;
        }
        match open(link, &request.operation, trace).await.map_err(CallError::from) {
            Ok(opened) => return Ok((link, opened)),
            Err(not_sent @ CallError::NotSent(_)) => failure = not_sent,
            Err(other) => return Err(other),
        }
    }
    Err(failure)
}

async fn open(link: &Link, operation: &RelayOperation, trace: Option<&Trace>) -> A2aResult<Opened> {
    let endpoint = &link.endpoint;
    let request = encode(endpoint, operation, &random::uuid().to_string());
    let mut headers = link.headers(endpoint.generation);
    if matches!(operation, RelayOperation::Stream(_) | RelayOperation::Subscribe { .. }) {
        headers.insert(ACCEPT, EVENTS);
    }
    if let Some(trace) = trace {
        http_client::add_trace(&mut headers, trace);
    }
    let only_reads =
        matches!(operation, RelayOperation::GetTask { .. } | RelayOperation::Subscribe { .. });
    let response = link.send(request, headers, only_reads).await?;
    let status = response.status();
    if let Some(encoding) = http_client::encoding(response.headers()) {
        return Err(link.encoded(status, &encoding));
    }
    let binding = endpoint.binding;
    if events::is_event_stream(&response) {
        let events = Events::new(binding, response);
        return Ok(Opened::Events(Box::new(AgentEvents { events, binding })));
    }
    let media_type = http_client::media_type(response.headers()).to_owned();
    let body = http_client::body(response, MAX_REPLY).await.map_err(CallError::from)?;
    match own_error(binding, status, &body) {
        Some(error) => Ok(Opened::One(AgentEvent::Error(error))),
        None => {
            let result = wire::decode(binding, status, &body);
            let json = result.map_err(|failure| failure.of_media_type(&media_type))?;
            Ok(Opened::One(agent_event(json)))
        }
    }
}

/// The agent's own error in a response, if it is one. That of a server before the agent is none:
/// the client would take the bridge's credential, which that server refuses, for its own.
fn own_error(binding: A2aBinding, status: StatusCode, body: &[u8]) -> Option<AgentError> {
    if matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
    ) {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let members = Members::read(text).ok()?;
    if binding == A2aBinding::JsonRpc {
        return json_rpc_error(&members, status);
    }
    if status.is_success() || status.is_redirection() {
        return None;
    }
    // A busy server may take the same message later; a failure may be one of the executor.
    let is_refusal = status.is_client_error()
        || matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::SERVICE_UNAVAILABLE);
    let json = RawValue::from_string(text.to_owned()).ok()?;
    Some(AgentError { status, json, is_refusal })
}

fn json_rpc_error(members: &Members<'_>, status: StatusCode) -> Option<AgentError> {
    let json = members.get("error").filter(|error| error.get() != "null")?;
    let code = Members::read(json.get())
        .ok()
        .and_then(|error| serde_json::from_str::<i64>(error.get("code")?.get()).ok());
    let internal = i64::from(error_code::INTERNAL_ERROR);
    let is_refusal = matches!(code, Some(-32768..=-32001)) && code != Some(internal);
    Some(AgentError { status, json: json.to_owned(), is_refusal })
}

/// A result, and what the bridge reads of it.
fn agent_event(json: Box<RawValue>) -> AgentEvent {
    let Ok(event) = update::read(&json) else {
        return AgentEvent::Result(AgentResult {
            json,
            task: None,
            context: None,
            is_settled: false,
            state: None,
        });
    };
    let state = status(&event).and_then(|status| string_member(status.get(), "state"));
    let is_settled = event.stage() != Stage::Unfinished;
    let Event { task_id: task, context_id: context, .. } = event;
    AgentEvent::Result(AgentResult { json, task, context, is_settled, state })
}

/// The `TaskStatus` that the event has.
fn status<'a>(event: &Event<'a>) -> Option<&'a RawValue> {
    match &event.update {
        Update::Task(task) => task.get("status"),
        Update::Status(status) => Some(status),
        Update::Message(_) | Update::Artifact(_) => None,
    }
}

impl AgentEvents {
    /// The next event, or a sign of life; `None` at the end of the stream.
    ///
    /// A stream has a bound as any other reply has. Nothing here collects it, but an agent that
    /// never stops would take its connection, its client and the processor for as long as it likes.
    async fn next(&mut self) -> A2aResult<Option<Next>> {
        let piece = self.events.next_piece().await?;
        if self.events.given_out() > MAX_REPLY {
            return Err(
                CallError::NotRead(NotRead::TooLarge { limit: MAX_REPLY, size: None }).into()
            );
        }
        let data = match piece {
            None => return Ok(None),
            Some(Piece::Comment) => return Ok(Some(Next::Comment)),
            Some(Piece::Data(data)) => data,
        };
        let members = Members::read(&data).ok();
        let has_error = members.as_ref().and_then(|event| event.get("error"));
        let next = match (self.binding, members.as_ref(), has_error) {
            (A2aBinding::JsonRpc, Some(event), _) => {
                json_rpc_error(event, StatusCode::OK).map(AgentEvent::Error)
            }
            (_, Some(_), Some(_)) => RawValue::from_string(data.clone()).ok().map(|json| {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                AgentEvent::Error(AgentError { status, json, is_refusal: false })
            }),
            _ => None,
        };
        match next {
            Some(error) => Ok(Some(Next::AgentEvent(error))),
            None => {
                let json = wire::decode_event(self.binding, &data)?;
                Ok(Some(Next::AgentEvent(agent_event(json))))
            }
        }
    }
}

/// The relay of one message.
struct CallRelay<'a> {
    link: &'a Link,
    client: &'a A2aClient,
    call: &'a ToolCall,
}

impl CallRelay<'_> {
    /// Hands the one reply over.
    async fn hand_over(&self, reply: AgentEvent) -> Called<CallOutcome> {
        let outcome = self.outcome(&reply);
        self.give(reply).await;
        outcome
    }

    /// Hands over what a stream brings, until its end. If the stream breaks, the client is told,
    /// and asks for its task.
    ///
    /// A client that hangs up may leave a stream of hours behind, and another one with each
    /// message. So the call then gives its permits back: those of its app would soon be used up
    /// otherwise. The stream is read on, as some agents stop their work when its reader goes.
    async fn stream(&self, mut events: AgentEvents) -> Called<CallOutcome> {
        let mut last =
            Err(A2aFailure::unclear("its event stream has no event").into_error_after_delivery());
        let mut vacant_seat = None;
        loop {
            let next = tokio::select! {
                biased;
                () = self.client.hung_up.cancelled(), if vacant_seat.is_none() => {
                    vacant_seat = Some(self.call.progress.seat.as_ref().map(Seat::vacate));
                    continue;
                }
                next = events.next() => next,
            };
            match next {
                Ok(Some(Next::Comment)) => self.call.progress.touch(),
                Ok(Some(Next::AgentEvent(reply))) => {
                    last = self.outcome(&reply);
                    self.give(reply).await;
                }
                Ok(None) => return last,
                Err(failure) => return Err(failure.into_error_after_delivery()),
            }
        }
    }

    async fn give(&self, reply: AgentEvent) {
        let reply = reply.without_secrets(&self.call.progress.redactor);
        // The receiver may have gone with its call; then the answer has no reader either.
        self.client.events.send(reply).await.ok();
    }

    /// What a result says of the call, in a few words.
    fn outcome(&self, reply: &AgentEvent) -> Called<CallOutcome> {
        let ToolCall { progress, recorder, .. } = self.call;
        let result = match reply {
            AgentEvent::Result(result) => result,
            AgentEvent::Error(AgentError { json, .. }) => {
                progress.touch();
                return Err(CallError::Refused(wire::cut(json.get())));
            }
        };
        let Ok(event) = update::read(&result.json) else {
            progress.touch();
            return Ok(Answer::text(
                "the agent's reply is of a kind that the bridge does not know",
            )
            .into());
        };
        let words = progress_text::of_event(&event, self.link.encoding());
        let text = match words {
            Some(text) => {
                let shown = progress.tell(text);
                recorder.progressed(&shown);
                shown
            }
            None => {
                progress.touch();
                result.state.clone().unwrap_or_else(|| "the agent has taken the message".to_owned())
            }
        };
        let answer = match status(&event) {
            Some(status) if is_failed(status) => Answer::Error(text),
            _ => Answer::text(text),
        };
        Ok(CallOutcome { ending: Ending::from_answer(&answer), answer, source: None })
    }
}

/// The HTTP request for `operation` to the agent at `endpoint`; `id` is JSON-RPC's.
fn encode(endpoint: &Endpoint, operation: &RelayOperation, id: &str) -> Request {
    match endpoint.binding {
        A2aBinding::JsonRpc => {
            let method = method(operation, endpoint.generation);
            let params = with_tenant(&params(operation), endpoint);
            let [id, method] = [id, method].map(quoted);
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
            Request { method: Method::POST, url: endpoint.url.clone(), body: Some(body.into()) }
        }
        A2aBinding::HttpJson | A2aBinding::Grpc => http_json(endpoint, operation),
    }
}

/// The method of JSON-RPC.
fn method(operation: &RelayOperation, generation: Generation) -> &'static str {
    let (v03, v10) = match operation {
        RelayOperation::Send(_) => ("message/send", methods::SEND_MESSAGE),
        RelayOperation::Stream(_) => ("message/stream", methods::SEND_STREAMING_MESSAGE),
        RelayOperation::GetTask { .. } => ("tasks/get", methods::GET_TASK),
        RelayOperation::CancelTask { .. } => ("tasks/cancel", methods::CANCEL_TASK),
        RelayOperation::Subscribe { .. } => ("tasks/resubscribe", methods::SUBSCRIBE_TO_TASK),
    };
    match generation {
        Generation::V03 => v03,
        Generation::V10 => v10,
    }
}

/// The parameters of JSON-RPC, without a tenant.
fn params(operation: &RelayOperation) -> String {
    match operation {
        RelayOperation::Send(params) | RelayOperation::Stream(params) => params.get().to_owned(),
        RelayOperation::GetTask { task, history_length: None }
        | RelayOperation::CancelTask { task, metadata: None }
        | RelayOperation::Subscribe { task } => json!({ "id": task }).to_string(),
        RelayOperation::GetTask { task, history_length: Some(length) } => {
            json!({ "id": task, "historyLength": length }).to_string()
        }
        RelayOperation::CancelTask { task, metadata: Some(metadata) } => {
            format!(r#"{{"id":{},"metadata":{metadata}}}"#, quoted(task))
        }
    }
}

/// The JSON object `params` with the tenant of the endpoint, which 0.3 does not know.
fn with_tenant(params: &str, endpoint: &Endpoint) -> String {
    let (Generation::V10, Some(tenant)) = (endpoint.generation, &endpoint.tenant) else {
        return params.to_owned();
    };
    let rest = params.trim_start().strip_prefix('{').unwrap_or_default();
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!("{{\"tenant\":{}{comma}{rest}", quoted(tenant))
}

fn http_json(endpoint: &Endpoint, operation: &RelayOperation) -> Request {
    let (method, path) = match operation {
        RelayOperation::Send(_) => (Method::POST, vec!["message:send".to_owned()]),
        RelayOperation::Stream(_) => (Method::POST, vec!["message:stream".to_owned()]),
        RelayOperation::GetTask { task, .. } => {
            (Method::GET, vec!["tasks".to_owned(), task.clone()])
        }
        RelayOperation::CancelTask { task, .. } => {
            (Method::POST, vec!["tasks".to_owned(), format!("{task}:cancel")])
        }
        // Servers of both versions take GET, and those of 0.3 nothing else.
        RelayOperation::Subscribe { task } => {
            (Method::GET, vec!["tasks".to_owned(), format!("{task}:subscribe")])
        }
    };
    let body = match operation {
        RelayOperation::Send(params) | RelayOperation::Stream(params) => {
            Some(with_tenant(params.get(), endpoint))
        }
        RelayOperation::CancelTask { metadata: Some(metadata), .. } => {
            Some(format!(r#"{{"metadata":{metadata}}}"#))
        }
        RelayOperation::CancelTask { metadata: None, .. } => Some("{}".to_owned()),
        RelayOperation::GetTask { .. } | RelayOperation::Subscribe { .. } => None,
    };
    let mut url = endpoint.url.clone();
    {
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty();
        match endpoint.generation {
            Generation::V03 => _ = segments.push("v1"),
            Generation::V10 => _ = segments.extend(endpoint.tenant.as_deref()),
        }
        segments.extend(path);
    }
    if let RelayOperation::GetTask { history_length: Some(length), .. } = operation {
        url.query_pairs_mut().append_pair("historyLength", &length.to_string());
    }
    Request { method, url, body: body.map(Into::into) }
}

#[cfg(test)]
mod tests;
