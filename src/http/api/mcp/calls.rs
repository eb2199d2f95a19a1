//! `tools/call`: makes a call, and answers with its result, or with a stream of its progress that
//! ends with the result.
//!
//! The call runs in a task of the daemon. A client of 2026-07-28 cancels it by closing the stream;
//! before that revision, a lost connection is no cancellation (2025-11-25, Transports), and only
//! `notifications/cancelled` or the end of the session is one.
//!
//! Must not: change a byte of a server's result, other than to add the `resultType` that 2026-07-28
//! requires.

use std::{collections::VecDeque, sync::Arc, time::Duration};

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
    message::{self, Request, RpcError, codes},
    revision,
};
use crate::{
    backend::peer::McpClient,
    budget::{Budget, Held},
    http::response::{self, Body},
    model::{
        answer::{Answer, files::File},
        event::Call,
        json::{each_member, member},
        offer::{Offer, Route, Target},
    },
};

/// How often an event stream without events shows that it lives, and how long a call is waited for
/// before its answer becomes a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many progress notifications wait for a client that reads slowly.
const PROGRESS: usize = 16;

/// A call to be made, with what it keeps.
struct Making {
    route: Route,
    call: Call,
    /// Counts the arguments for the client's app.
    arguments: Held,
    client: Arc<McpClient>,
}

/// The answer to a call, as it comes.
struct Answering {
    /// The rest of the last event.
    rest: VecDeque<Bytes>,
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
        let app = &self.caller.app.name;
        // The call keeps its arguments when the client has gone, and the counted body with it.
        let mut arguments = Budget::of_process().hold_for(Some(app.clone()));
        arguments.resize(call.args.get().len()).await.map_err(|no_room| {
            let why = format!("{no_room}; the call was not made, try again soon.");
            RpcError::new(StatusCode::SERVICE_UNAVAILABLE, codes::INTERNAL_ERROR, why)
        })?;
        let stop = match &self.era {
            Era::Stateless => CancellationToken::new(),
            Era::Session(session) => session.begin_call(request.id).ok_or_else(|| {
                RpcError::invalid_request("Another request with this id has no answer yet.")
            })?,
        };
        let token = request.progress_token();
        let (sender, receiver) = mpsc::channel(PROGRESS);
        let client = Arc::new(McpClient::new(app, token.as_ref().map(|_| sender)));
        let (finish, done) = oneshot::channel();
        self.spawn(request.id, Making { route, call, arguments, client }, stop.clone(), finish);
        let answering = Answering {
            progress: token.is_some().then_some(receiver),
            token: token.unwrap_or_default(),
            done,
            rest: VecDeque::new(),
            is_over: false,
            _cancels: matches!(self.era, Era::Stateless).then(|| stop.drop_guard()),
        };
        Ok(answering.respond(self.takes_events()).await)
    }

    /// The tool that a `tools/call` names, and the call of it.
    fn read_call(&self, request: &Request<'_>, offer: &Offer) -> Result<(Route, Call), RpcError> {
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
        {
            revision::check_params(input.definition(), &args, self.headers)?;
        }
        let tool_use = format!("mcp_{}", uuid::Uuid::new_v4().simple()).into();
        let call = Call { tool_use, agent_run: None, name, kind: None, args, mcp_server: None };
        Ok((route.clone(), call))
    }

    /// Makes the call in a task of the daemon; `finish` gets the text of the response.
    fn spawn(
        &self,
        id: &str,
        making: Making,
        stop: CancellationToken,
        finish: oneshot::Sender<Bytes>,
    ) {
        let (calls, app) = (Arc::clone(&self.api.runs.calls), self.caller.app.name.clone());
        let (era, trace, id) = (self.era.clone(), self.trace.clone(), id.to_owned());
        self.api.runs.calls.spawn(&self.caller.app.name, async move {
            let Making { route, call, arguments, client } = making;
            let made = calls.call_by_hand(&app, &route, call, &trace, Some(Arc::clone(&client)));
            let made = stop.run_until_cancelled(made).await;
            drop(arguments);
            if let Era::Session(session) = &era {
                session.end_call(&id);
            }
            if let Some(made) = made {
                let (result, mut held) =
                    result(&made.answer, &client, matches!(era, Era::Stateless));
                let mut text = message::response(&id, &result).into_bytes();
                drop(result);
                // In JSON, line ends stand between tokens only; they would end an event.
                for byte in text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
                    *byte = b' ';
                }
                // Counted for the app until its client has read it, however slowly it does.
                held.follow(text.len());
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
        response::events(futures_util::StreamExt::chain(start, rest))
    }

    /// The next piece of the stream; `None` after the response, or when the call was cancelled.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.rest.pop_front() {
            return Some(piece);
        }
        if self.is_over {
            return None;
        }
        Some(tokio::select! {
            biased;
            progress = next(&mut self.progress) => self.progressed(&progress),
            done = &mut self.done => {
                self.is_over = true;
                self.rest = [done.ok()?, Bytes::from_static(super::EVENT_END)].into();
                Bytes::from_static(super::EVENT_START)
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

/// The `CallToolResult`, and what counts it: the server's own, or one that is made of the bridge's
/// answer.
fn result(answer: &Answer, client: &McpClient, is_stateless: bool) -> (String, Held) {
    let failed = matches!(answer, Answer::Error(_));
    let (own, held) = client.take_result();
    let text = match own {
        // Where the two disagree, the bridge has an error to tell that the server's result has not:
        // an MCP task has failed with a result that claims success.
        Some(Ok(own)) if failed == is_error(&own) => Box::<str>::from(own).into_string(),
        Some(Err(no_room)) => {
            let why = format!("The tool has run, but {no_room}, so its result is lost.");
            of_answer(&Answer::Error(why))
        }
        _ => of_answer(answer),
    };
    let text = match is_stateless && member(&text, "resultType").is_none() {
        true => super::complete(&text),
        false => text,
    };
    (text, held)
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
