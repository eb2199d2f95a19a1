//! `tools/call`: makes a call, and answers with its result, or with a stream of its progress that
//! ends with the result.
//!
//! The call runs in a task of the daemon. A client of 2026-07-28 cancels it by closing the stream;
//! before that revision, a lost connection is no cancellation (2025-11-25, Transports), and only
//! `notifications/cancelled` or the end of the session is one.
//!
//! Must not: change a byte of a server's result, other than to add the `resultType` that 2026-07-28
//! requires.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use serde_json::{json, value::RawValue};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Client, Era,
    message::{self, Request, RpcError},
    revision,
};
use crate::{
    backend::{mcp::param_headers::ParamHeaders, peer::McpClient},
    budget::Budget,
    http::response::{self, Body},
    model::{
        answer::{Answer, files::File},
        ending::Made,
        event::Call,
        json::{each_member, member},
        offer::{Route, Target},
    },
};

/// How often an event stream without events shows that it lives, and how long a call is waited for
/// before its answer becomes a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many progress notifications wait for a client that reads slowly.
const PROGRESS: usize = 16;

/// The answer to a call, as it comes.
struct Answering {
    progress: Option<mpsc::Receiver<Box<RawValue>>>,
    /// The client's token for the progress.
    token: String,
    /// The text of the response; no text if the call was cancelled.
    done: oneshot::Receiver<Bytes>,
    is_over: bool,
    /// Cancels the call when the stream is dropped, for a client of 2026-07-28.
    _cancels: Option<DropGuard>,
}

impl Client<'_> {
    /// Answers `tools/call`.
    pub(super) async fn call_tool(
        &self,
        request: &Request<'_>,
    ) -> Result<Response<Body>, RpcError> {
        let offer = self.api.offer(&self.caller.app);
        let (route, call) = self.read_call(request, &offer)?;
        let stop = match &self.era {
            Era::Stateless => CancellationToken::new(),
            Era::Session(session) => session.begin_call(request.id).ok_or_else(|| {
                RpcError::invalid_request("Another request with this id has no answer yet.")
            })?,
        };
        let token = request.progress_token();
        let (sender, receiver) = mpsc::channel(PROGRESS);
        let client = McpClient { progress: token.as_ref().map(|_| sender), ..McpClient::default() };
        let (finish, done) = oneshot::channel();
        self.spawn(request.id, (route, call), stop.clone(), Arc::new(client), finish);
        let answering = Answering {
            progress: token.is_some().then_some(receiver),
            token: token.unwrap_or_default(),
            done,
            is_over: false,
            _cancels: matches!(self.era, Era::Stateless).then(|| stop.drop_guard()),
        };
        Ok(answering.respond(self.takes_events()).await)
    }

    /// The tool that a `tools/call` names, and the call of it.
    fn read_call(
        &self,
        request: &Request<'_>,
        offer: &crate::model::offer::Offer,
    ) -> Result<(Route, Call), RpcError> {
        let name = request.string("name");
        let name = name.ok_or_else(|| RpcError::invalid_params("`name` must be a string."))?;
        let route = offer.route(&name);
        // MCP, Tools: Error Handling.
        let route =
            route.ok_or_else(|| RpcError::invalid_params(format!("Unknown tool: {name}")))?;
        let args = match request.get("arguments") {
            Some(args) if args.get().starts_with('{') => args.to_owned(),
            None => RawValue::from_string("{}".to_owned()).expect("it is JSON"),
            Some(_) => return Err(RpcError::invalid_params("`arguments` must be an object.")),
        };
        if matches!(self.era, Era::Stateless)
            && let Target::Tool { input: Some(input), .. } = &route.target
            && let Ok(marked) = ParamHeaders::of(input.definition())
            && let Ok(wanted) = marked.headers(&args)
        {
            revision::check_params(&wanted, self.headers)?;
        }
        let tool_use = format!("mcp_{}", uuid::Uuid::new_v4().simple()).into();
        let call = Call { tool_use, agent_run: None, name, kind: None, args, mcp_server: None };
        Ok((route.clone(), call))
    }

    /// Makes the call in a task of the daemon; `finish` gets the text of the response.
    fn spawn(
        &self,
        id: &str,
        (route, call): (Route, Call),
        stop: CancellationToken,
        client: Arc<McpClient>,
        finish: oneshot::Sender<Bytes>,
    ) {
        let (calls, app) = (Arc::clone(&self.api.runs.calls), self.caller.app.name.clone());
        let (era, trace, id) = (self.era.clone(), self.trace.clone(), id.to_owned());
        self.api.runs.calls.spawn(&self.caller.app.name, async move {
            let made = tokio::select! {
                made = calls.call_by_hand(&app, &route, call, &trace, Some(Arc::clone(&client))) => {
                    Some(made)
                }
                () = stop.cancelled() => None,
            };
            if let Era::Session(session) = &era {
                session.end_call(&id);
            }
            if let Some(made) = made {
                let result = result(&made, &client, matches!(era, Era::Stateless));
                drop((made, client));
                // Counted for the app until its client has read it, however slowly it does.
                let text = message::response(&id, &result).into_bytes();
                let mut held = Budget::of_process().hold();
                held.insist(text.len());
                // The client may have gone; then nothing can take the result.
                finish.send(held.pay_for(text)).ok();
            }
        });
    }
}

impl Answering {
    /// Answers with the response alone if it comes before any progress, else with a stream.
    async fn respond(mut self, takes_events: bool) -> Response<Body> {
        if !takes_events {
            return match (&mut self.done).await {
                Ok(text) => response::json_text(StatusCode::OK, text),
                Err(_cancelled) => super::accepted(),
            };
        }
        let first = tokio::select! {
            biased;
            progress = next(&mut self.progress) => self.progressed(&progress),
            done = &mut self.done => return match done {
                Ok(text) => response::json_text(StatusCode::OK, text),
                Err(_cancelled) => super::accepted(),
            },
            () = sleep(HEARTBEAT) => Bytes::from_static(super::PING),
        };
        let start = stream::once(std::future::ready(first));
        let rest = stream::unfold(self, |mut this| async move { Some((this.next().await?, this)) });
        super::events(futures_util::StreamExt::chain(start, rest))
    }

    /// The next piece of the stream; `None` after the response, or when the call was cancelled.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        Some(tokio::select! {
            biased;
            progress = next(&mut self.progress) => self.progressed(&progress),
            done = &mut self.done => {
                self.is_over = true;
                let text = done.ok()?;
                super::event(str::from_utf8(&text).expect("a response is written from text"))
            }
            () = sleep(HEARTBEAT) => Bytes::from_static(super::PING),
        })
    }

    /// A notification with the server's progress under the client's own token.
    fn progressed(&self, params: &RawValue) -> Bytes {
        let mut written = format!("{{\"progressToken\":{}", self.token);
        let _read = each_member(params.get(), |name, value| {
            if name != "progressToken" {
                written.push_str(&format!(",{}:{}", json!(name), value.get()));
            }
            true
        })
        .is_ok();
        super::event(&super::notification("notifications/progress", &format!("{written}}}")))
    }
}

/// The next progress; pends for ever where there is none.
async fn next(progress: &mut Option<mpsc::Receiver<Box<RawValue>>>) -> Box<RawValue> {
    if let Some(receiver) = progress {
        if let Some(params) = receiver.recv().await {
            return params;
        }
        *progress = None;
    }
    std::future::pending().await
}

/// The `CallToolResult`: the server's own, or one that is made of the bridge's answer.
fn result(made: &Made, client: &McpClient, is_stateless: bool) -> String {
    let failed = matches!(made.answer, Answer::Error(_));
    // Where the two disagree, the bridge has an error to tell that the server's result has not: an
    // MCP task failed with a result that claims success, or the answer was cut.
    let own = client.result.get().filter(|own| failed == is_error(own));
    let text = own.map_or_else(|| of_answer(&made.answer), |own| own.get().to_owned());
    match is_stateless && member(&text, "resultType").is_none() {
        true => super::complete(&text),
        false => text,
    }
}

fn is_error(result: &RawValue) -> bool {
    member(result.get(), "isError").is_some_and(|value| value.get() == "true")
}

/// The result of a tool that is no MCP server's, or of a call that was not made.
fn of_answer(answer: &Answer) -> String {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let result = match answer {
        Answer::Error(why) => json!({ "content": [text(why)], "isError": true }),
        Answer::Result { text: words, files } => {
            let content: Vec<_> =
                std::iter::once(text(words)).chain(files.iter().map(content)).collect();
            json!({ "content": content, "isError": false })
        }
    };
    result.to_string()
}

/// The content block of a file.
fn content(file: &File) -> serde_json::Value {
    let (kind, data) = (file.mime_type(), file.data());
    match kind.split('/').next() {
        Some(block @ ("image" | "audio")) => {
            json!({ "type": block, "data": data, "mimeType": kind })
        }
        _ => {
            let uri = format!("file:///{}", file.filename());
            json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "blob": data } })
        }
    }
}
