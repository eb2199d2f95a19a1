//! `tools/call`: makes a call, and answers with its result, or with a stream of its progress that
//! ends with the result.
//!
//! The call runs in a task of the daemon. A client of 2026-07-28 cancels it by closing the stream;
//! before that revision, a lost connection is no cancellation (2025-11-25, Transports), and only
//! `notifications/cancelled` or the end of the session is one.
//!
//! A question of the server for the user becomes a request on the stream of a session. A client of
//! 2026-07-28 gets it as the result, and the call waits for the request that brings the answer.
//!
//! Must not: decide what a result looks like; results.rs does.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Response, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::asking::{AskingCall, AskingCalls};
use super::results::call_reply;
use super::{
    Body, Client, Context, Era, Modes, Replied, Request, RpcError, features, message, response,
    revision,
};
use crate::backend::{McpClient, Question};
use crate::budget::{Budget, Held};
use crate::calls::{CalledBy, CallerView};
use crate::http::api::calls::suggestion;
use crate::model::json::{each_member, one_line};
use crate::model::mcp::{error_code, meta, method, notification};
use crate::model::{AppName, Call, Offer, Route, Target, Trace, form, trace};
use crate::random;
use crate::tasks::in_background_if_large;

/// How often an event stream without events shows that it lives, and how long a call is waited for
/// before its answer becomes a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many progress notifications wait for a client that reads slowly.
const PROGRESS: usize = 16;

/// What a client gets of a call while it waits: progress, questions, and at the end the reply.
#[derive(Debug)]
pub(super) struct Answering {
    /// The id of the request that is answered.
    id: String,
    era: Era,
    asking: Arc<AskingCalls>,
    app: AppName,
    progress: mpsc::Receiver<Box<RawValue>>,
    questions: mpsc::Receiver<Question>,
    /// The client's token for the progress.
    token: String,
    /// Nothing if the call was cancelled.
    reply: oneshot::Receiver<Reply>,
    /// Cancels the call when this is dropped, for a client of 2026-07-28.
    _cancels: Option<DropGuard>,
}

/// How a call has ended: the `CallToolResult`, or an error of the server that clients with sessions
/// know; and what counts it.
pub(super) type Reply = (Replied<String>, Held);

/// What comes next of a call.
enum Next {
    Progress(Box<RawValue>),
    Question(Question),
    Done(Option<Reply>),
    Nothing,
}

impl Client<'_> {
    /// Answers `tools/call`.
    pub(super) async fn call_tool(&self, request: &Request<'_>) -> Replied {
        let state = request.get("requestState").filter(|state| state.get() != "null");
        if self.era.is_stateless() && state.is_some() {
            let state = request.string("requestState").unwrap_or_default();
            return self.resume(request, &state).await;
        }
        let offer = self.api.offer_within(&self.caller.app, &self.selection);
        let (route, call) = self.read_call(request, &offer).await?;
        let app = &self.caller.app.name;
        // The call keeps its arguments when the client has gone, and the counted body with it.
        let mut arguments_room = Budget::of_process().hold_for(Some(app.clone()));
        arguments_room.resize(call.args.get().len()).await.map_err(|no_room| {
            let why = format!("{no_room}; the call was not made, try again soon.");
            RpcError::new(StatusCode::SERVICE_UNAVAILABLE, error_code::INTERNAL_ERROR, why)
        })?;
        self.note_use(&route.backend);
        let stop = match &self.era {
            Era::Stateless => CancellationToken::new(),
            Era::Session(session) => session.begin_call(request.id).ok_or_else(|| {
                RpcError::invalid_request("Another request with this id has no answer yet.")
            })?,
        };
        let token = request.progress_token();
        let (progress_sender, progress) = mpsc::channel(PROGRESS);
        let (question_sender, questions) = mpsc::channel(1);
        let progress_sender = Some(progress_sender).filter(|_| token.is_some());
        let draining = self.api.runs.draining().clone();
        let modes = self.modes(request);
        let client = McpClient::new(app, progress_sender, question_sender, modes, draining);
        let by =
            CalledBy { client: Some(Arc::new(client)), view: self.view(), ..CalledBy::default() };
        let (reply_sender, reply) = oneshot::channel();
        let calls = Arc::clone(&self.api.runs.calls);
        let (id, era) = (request.id.to_owned(), self.era.clone());
        let (trace, task_app, task_stop) = (self.trace(request), app.clone(), stop.clone());
        self.api.runs.calls.spawn(app, async move {
            let outcome = tokio::select! {
                // The end first, so that a call does not begin with the permit of one that ends
                // with it.
                biased;
                () = task_stop.cancelled() => None,
                outcome = calls.call_by_hand(&task_app, &route, call, &trace, by) => Some(outcome),
            };
            drop(arguments_room);
            if let Era::Session(session) = &era {
                session.end_call(&id);
            }
            if let Some(outcome) = outcome {
                let size = outcome.json_len();
                let reply = in_background_if_large(size, move || {
                    call_reply(outcome, &task_app, era.is_stateless())
                });
                // The client may have gone; then nothing can take the reply.
                reply_sender.send(reply.await).ok();
            }
        });
        let answering = Answering {
            id: request.id.to_owned(),
            era: self.era.clone(),
            asking: Arc::clone(&self.api.mcp_sessions.asking),
            app: app.clone(),
            progress,
            questions,
            token: token.unwrap_or_default(),
            reply,
            _cancels: if self.era.is_stateless() { Some(stop.drop_guard()) } else { None },
        };
        Ok(answering.respond(self.takes_events()).await)
    }

    /// What the client's searches are limited to, and what they have brought.
    fn view(&self) -> CallerView {
        CallerView {
            rights: self.api.search_rights(&self.caller.app, &self.selection),
            informed: match &self.era {
                Era::Session(session) => Some(Arc::clone(&session.informed)),
                Era::Stateless => None,
            },
        }
    }

    /// Hands the user's answer to the call that waits for it, and answers with what the call does
    /// next.
    async fn resume(&self, request: &Request<'_>, state: &str) -> Replied {
        let responses = match request.get("inputResponses").map(RawValue::get) {
            None | Some("null") => "{}",
            Some(responses) => responses,
        };
        let asking = &self.api.mcp_sessions.asking;
        let (AskingCall { mut answering, answer: sender, .. }, answer) = asking
            .take(state, &self.caller.app.name, responses)
            .map_err(RpcError::invalid_params)?;
        sender.send(answer).ok();
        answering.id = request.id.to_owned();
        answering.token = request.progress_token().unwrap_or_default();
        Ok(answering.respond(self.takes_events()).await)
    }

    /// The trace that `_meta` names, as in requests of the bridge to servers; else that of the HTTP
    /// request.
    fn trace(&self, request: &Request<'_>) -> Context {
        let text = |key| serde_json::from_str::<String>(request.meta(key)?.get()).ok();
        let state = text(trace::STATE);
        let states: Vec<&str> = state.iter().map(String::as_str).collect();
        match text(trace::PARENT).and_then(|parent| Trace::read(&[&parent], &states)) {
            Some(trace) => self.api.runs.context.traces.context(Some(Arc::new(trace))),
            None => self.trace.clone(),
        }
    }

    /// The questions that the client can put to its user.
    fn modes(&self, request: &Request<'_>) -> Modes {
        match &self.era {
            Era::Stateless => Modes::from_capabilities(request.meta(meta::CLIENT_CAPABILITIES)),
            Era::Session(session) => session.modes,
        }
    }

    /// The tool that a `tools/call` names, and the call of it.
    async fn read_call(&self, request: &Request<'_>, offer: &Arc<Offer>) -> Replied<(Route, Call)> {
        let Some(name) = request.string("name") else {
            return Err(RpcError::invalid_params("`name` must be a string."));
        };
        // All names here are the bridge's, so a tool that was found may be called by its own.
        let Some(route) = offer.searched_route(&name) else {
            return Err(self.unknown_tool(Arc::clone(offer), name).await);
        };
        let args = request.get("arguments").filter(|args| args.get() != "null");
        if args.is_some_and(|args| !args.get().starts_with('{')) {
            return Err(RpcError::invalid_params("`arguments` must be an object."));
        }
        let call = Call::by_hand(&format!("mcp_{}", random::uuid().simple()), name, args);
        if self.era.is_stateless()
            && let Target::Tool { input: Some(input), .. } = &route.target
        {
            let size = call.args.get().len() + input.definition().get().len();
            let (input, args, headers) =
                (Arc::clone(input), call.args.clone(), self.headers.clone());
            self.api
                .views
                .work_if_large(&self.caller.app.name, size, move || {
                    revision::check_params(input.param_headers(), &args, &headers)
                })
                .await
                .map_err(|why| features::no_room(why.to_string()))??;
        }
        Ok((route.clone(), call))
    }

    /// Says that there is no such tool, in the words of MCP (Tools: Error Handling), and which one
    /// the client may mean. To compare thousands of names takes milliseconds.
    async fn unknown_tool(&self, offer: Arc<Offer>, name: String) -> RpcError {
        let why = self.api.views.work(&self.caller.app.name, move || {
            let suggestion = suggestion(&offer, &name);
            if suggestion.is_empty() {
                format!("Unknown tool: {name}")
            } else {
                format!("Unknown tool: {name}.{suggestion}")
            }
        });
        match why.await {
            Ok(why) => RpcError::invalid_params(why),
            Err(not_written) => features::no_room(not_written.to_string()),
        }
    }
}

impl Answering {
    /// Answers with the response alone if it comes before anything else, else with a stream.
    async fn respond(mut self, takes_events: bool) -> Response<Body> {
        loop {
            let first = match self.event().await {
                Next::Done(Some(reply)) => {
                    let status = match &reply.0 {
                        Ok(_) => StatusCode::OK,
                        Err(error) => error.status,
                    };
                    let text = response::json_text(self.response(reply));
                    return response::with_status(response::counted(text), status);
                }
                Next::Done(None) => return super::accepted(),
                Next::Question(question) if self.era.is_stateless() => {
                    return response::json_text(self.suspend(question));
                }
                // Without a stream, there is nowhere to ask or to report.
                _ if !takes_events => continue,
                next => self.piece(next),
            };
            let rest = stream::unfold(Some(self), |answering| async {
                let mut answering = answering?;
                match answering.event().await {
                    Next::Done(reply) => Some((answering.last_event(reply?), None)),
                    Next::Question(question) if answering.era.is_stateless() => {
                        Some((super::event(&answering.suspend(question)), None))
                    }
                    next => Some((answering.piece(next), Some(answering))),
                }
            });
            return response::events(stream::iter([first]).chain(rest));
        }
    }

    /// What comes next of the call, or nothing for a while.
    async fn event(&mut self) -> Next {
        tokio::select! {
            biased;
            Some(progress) = self.progress.recv() => Next::Progress(progress),
            Some(question) = self.questions.recv() => Next::Question(question),
            reply = &mut self.reply => Next::Done(reply.ok()),
            () = sleep(HEARTBEAT) => Next::Nothing,
        }
    }

    /// The response on one line, counted for the app until its client has read it.
    fn response(&self, (result, mut room): Reply) -> Bytes {
        let text = self.response_line(result);
        room.follow(text.len());
        room.pay_for(text)
    }

    /// [`Self::response`] as the event that ends the stream.
    fn last_event(&self, (result, mut room): Reply) -> Bytes {
        let text = self.response_line(result);
        let event = [super::EVENT_START, &text, super::EVENT_END].concat();
        room.follow(event.len());
        room.pay_for(event)
    }

    /// On one line: a line end would end an event, and the client would read half a response.
    fn response_line(&self, result: Replied<String>) -> Vec<u8> {
        one_line(match result {
            Ok(result) => message::response(&self.id, &result),
            Err(error) => error.text(&self.id),
        })
    }

    /// An event that ends no call.
    fn piece(&self, next: Next) -> Bytes {
        match (next, &self.era) {
            (Next::Progress(params), _) if !self.token.is_empty() => self.progress_event(&params),
            (Next::Question(Question { params, answer, .. }), Era::Session(session)) => {
                let Some(id) = session.ask(&self.id, answer) else {
                    return Bytes::from_static(super::PING);
                };
                let params = form::trimmed(params.get(), &form::QUESTION);
                let method = method::ELICIT;
                super::event(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}"
                ))
            }
            _ => Bytes::from_static(super::PING),
        }
    }

    /// Lets the call wait for the request that brings the answer; returns the response that asks.
    fn suspend(mut self, Question { key, params, answer, .. }: Question) -> String {
        let id = std::mem::take(&mut self.id);
        let (asking, app) = (Arc::clone(&self.asking), self.app.clone());
        let since = Instant::now();
        let key = key.unwrap_or_else(|| "question".to_owned());
        let json_key = json!(key);
        let params = form::trimmed(params.get(), &form::QUESTION);
        let state = asking.insert(AskingCall { answering: self, answer, key, app, since });
        let requests =
            format!("{{{json_key}:{{\"method\":\"{}\",\"params\":{params}}}}}", method::ELICIT);
        message::response(
            &id,
            &format!(
                "{{\"resultType\":\"input_required\",\"inputRequests\":{requests},\"requestState\":\"{state}\"}}"
            ),
        )
    }

    /// A notification with the server's progress under the client's own token.
    fn progress_event(&self, params: &RawValue) -> Bytes {
        let mut client_params = format!("{{\"progressToken\":{}", self.token);
        each_member(&form::trimmed(params.get(), &form::PROGRESS), |name, value| {
            if name != "progressToken" {
                client_params.push_str(&format!(",{}:{}", json!(name), value.get()));
            }
        })
        .ok();
        client_params.push('}');
        super::event(&super::notification(notification::PROGRESS, &client_params))
    }
}
