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
use super::results::reply;
use super::{
    Body, Client, Context, Era, Modes, Replied, Request, RpcError, codes, features, message,
    response, revision,
};
use crate::backend::{McpClient, Question};
use crate::budget::{Budget, Held};
use crate::calls::CalledBy;
use crate::http::api::calls::suggestion;
use crate::model::json::{each_member, one_line};
use crate::model::{AppName, Call, Offer, Route, Target, Trace, form, trace};
use crate::random;
use crate::tasks::in_background_if_large;

/// How often an event stream without events shows that it lives, and how long a call is waited for
/// before its answer becomes a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many progress notifications wait for a client that reads slowly.
const PROGRESS: usize = 16;

/// The answer to a call, as it comes.
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
    done: oneshot::Receiver<Reply>,
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
        if matches!(self.era, Era::Stateless) && state.is_some() {
            let state = request.string("requestState").unwrap_or_default();
            return self.resume(request, &state).await;
        }
        let offer = self.api.offer(&self.caller.app);
        let (route, call) = self.read_call(request, &offer).await?;
        let app = &self.caller.app.name;
        // The call keeps its arguments when the client has gone, and the counted body with it.
        let mut arguments = Budget::of_process().hold_for(Some(app.clone()));
        arguments.resize(call.args.get().len()).await.map_err(|no_room| {
            let why = format!("{no_room}; the call was not made, try again soon.");
            RpcError::new(StatusCode::SERVICE_UNAVAILABLE, codes::INTERNAL_ERROR, why)
        })?;
        self.note_use(&route.backend);
        let stop = match &self.era {
            Era::Stateless => CancellationToken::new(),
            Era::Session(session) => session.begin_call(request.id).ok_or_else(|| {
                RpcError::invalid_request("Another request with this id has no answer yet.")
            })?,
        };
        let token = request.progress_token();
        let (reports, progress) = mpsc::channel(PROGRESS);
        let (asks, questions) = mpsc::channel(1);
        let reports = token.is_some().then_some(reports);
        let draining = self.api.runs.draining().clone();
        let client = Arc::new(McpClient::new(app, reports, asks, self.modes(request), draining));
        let (finish, done) = oneshot::channel();
        let calls = Arc::clone(&self.api.runs.calls);
        let (of, id, era) = (app.clone(), request.id.to_owned(), self.era.clone());
        let (trace, stopped) = (self.trace(request), stop.clone());
        self.api.runs.calls.spawn(app, async move {
            let by = CalledBy { run: None, client: Some(client) };
            let made = calls.call_by_hand(&of, &route, call, &trace, by);
            // The end first, so that a call does not begin with the permit of one that ends with
            // it.
            let stopped = stopped.cancelled();
            let made = tokio::select! { biased; () = stopped => None, made = made => Some(made) };
            drop(arguments);
            if let Era::Session(session) = &era {
                session.end_call(&id);
            }
            if let Some(made) = made {
                let size = made.json_len();
                let is_stateless = matches!(era, Era::Stateless);
                let write = move || reply(made, &of, is_stateless);
                // The client may have gone; then nothing can take the reply.
                finish.send(in_background_if_large(size, write).await).ok();
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
            done,
            _cancels: matches!(self.era, Era::Stateless).then(|| stop.drop_guard()),
        };
        Ok(answering.respond(self.takes_events()).await)
    }

    /// Goes on with a call whose question the request answers.
    async fn resume(&self, request: &Request<'_>, state: &str) -> Replied {
        let responses = request.get("inputResponses").map_or("{}", RawValue::get);
        let responses = if responses == "null" { "{}" } else { responses };
        let asking = &self.api.mcp_sessions.asking;
        let (AskingCall { mut answering, question, .. }, answer) = asking
            .take(state, &self.caller.app.name, responses)
            .map_err(RpcError::invalid_params)?;
        question.send(answer).ok();
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
        let read = text(trace::PARENT).and_then(|parent| Trace::read(&[&parent], &states));
        let in_meta = read.map(|read| self.api.runs.context.traces.context(Some(Arc::new(read))));
        in_meta.unwrap_or_else(|| self.trace.clone())
    }

    /// The questions that the client can put to its user.
    fn modes(&self, request: &Request<'_>) -> Modes {
        match &self.era {
            Era::Stateless => Modes::from_capabilities(request.meta(revision::CAPABILITIES)),
            Era::Session(session) => session.modes,
        }
    }

    /// The tool that a `tools/call` names, and the call of it.
    async fn read_call(&self, request: &Request<'_>, offer: &Arc<Offer>) -> Replied<(Route, Call)> {
        let name = request.string("name");
        let name = name.ok_or_else(|| RpcError::invalid_params("`name` must be a string."))?;
        // All names here are the bridge's, so a tool that was found may be called by its own.
        let Some(route) = offer.searched_route(&name) else {
            // The words below are those of MCP, Tools: Error Handling.
            let (offer, wrong) = (Arc::clone(offer), name);
            // To compare thousands of names takes milliseconds.
            let near = move || (suggestion(&offer, &wrong), wrong);
            let near = self.api.views.work(&self.caller.app.name, near).await;
            let (suggestion, name) = near.map_err(|why| features::no_room(why.to_string()))?;
            let mut why = format!("Unknown tool: {name}");
            if !suggestion.is_empty() {
                why = format!("{why}.{suggestion}");
            }
            return Err(RpcError::invalid_params(why));
        };
        let args = request.get("arguments").filter(|args| args.get() != "null");
        if args.is_some_and(|args| !args.get().starts_with('{')) {
            return Err(RpcError::invalid_params("`arguments` must be an object."));
        }
        let call = Call::by_hand(&format!("mcp_{}", random::uuid().simple()), name, args);
        if matches!(self.era, Era::Stateless)
            && let Target::Tool { input: Some(input), .. } = &route.target
        {
            let (input, args, headers) =
                (Arc::clone(input), call.args.clone(), self.headers.clone());
            let size = args.get().len() + input.definition().get().len();
            let check = move || revision::check_params(input.param_headers(), &args, &headers);
            let checked = self.api.views.work_if_large(&self.caller.app.name, size, check).await;
            checked.map_err(|why| features::no_room(why.to_string()))??;
        }
        Ok((route.clone(), call))
    }
}

impl Answering {
    /// Answers with the response alone if it comes before anything else, else with a stream.
    async fn respond(mut self, takes_events: bool) -> Response<Body> {
        loop {
            let first = match self.event().await {
                Next::Done(Some(done)) => {
                    let status = done.0.as_ref().err().map_or(StatusCode::OK, |error| error.status);
                    let answer = response::counted(response::json_text(self.response(done, false)));
                    return response::with_status(answer, status);
                }
                Next::Done(None) => return super::accepted(),
                Next::Question(question) if matches!(self.era, Era::Stateless) => {
                    return response::json_text(self.suspend(question));
                }
                // Without a stream, there is nowhere to ask or to report.
                _ if !takes_events => continue,
                next => self.piece(next),
            };
            let later = stream::unfold(Some(self), |answering| async {
                let mut answering = answering?;
                match answering.event().await {
                    Next::Done(done) => Some((answering.response(done?, true), None)),
                    Next::Question(question) if matches!(answering.era, Era::Stateless) => {
                        Some((super::event(&answering.suspend(question)), None))
                    }
                    next => Some((answering.piece(next), Some(answering))),
                }
            });
            return response::events(stream::iter([first]).chain(later));
        }
    }

    /// What comes next of the call, or nothing for a while.
    async fn event(&mut self) -> Next {
        tokio::select! {
            biased;
            Some(progress) = self.progress.recv() => Next::Progress(progress),
            Some(question) = self.questions.recv() => Next::Question(question),
            done = &mut self.done => Next::Done(done.ok()),
            () = sleep(HEARTBEAT) => Next::Nothing,
        }
    }

    /// The response, on one line, or as an event.
    fn response(&self, (result, mut held): Reply, as_event: bool) -> Bytes {
        // A line end would end an event.
        let mut text = one_line(match result {
            Ok(result) => message::response(&self.id, &result),
            Err(error) => error.text(&self.id),
        });
        if as_event {
            text = [super::EVENT_START, &text, super::EVENT_END].concat();
        }
        held.follow(text.len());
        held.pay_for(text)
    }

    /// An event that ends no call.
    fn piece(&self, next: Next) -> Bytes {
        match (next, &self.era) {
            (Next::Progress(params), _) if !self.token.is_empty() => self.progressed(&params),
            (Next::Question(Question { params, answer, .. }), Era::Session(session)) => {
                let id = session.ask(&self.id, answer);
                let params = form::trimmed(params.get(), &form::QUESTION);
                let method = "elicitation/create";
                super::event(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}"
                ))
            }
            _ => Bytes::from_static(super::PING),
        }
    }

    /// Lets the call wait for the request that brings the answer; returns the response that asks.
    fn suspend(mut self, Question { key, params, answer: question, .. }: Question) -> String {
        let id = std::mem::take(&mut self.id);
        let (asking, app) = (Arc::clone(&self.asking), self.app.clone());
        let since = Instant::now();
        let key = key.unwrap_or_else(|| "question".to_owned());
        let named = json!(key);
        let params = form::trimmed(params.get(), &form::QUESTION);
        let state = asking.insert(AskingCall { answering: self, question, key, app, since });
        let requests =
            format!("{{{named}:{{\"method\":\"elicitation/create\",\"params\":{params}}}}}");
        message::response(
            &id,
            &format!(
                "{{\"resultType\":\"input_required\",\"inputRequests\":{requests},\"requestState\":\"{state}\"}}"
            ),
        )
    }

    /// A notification with the server's progress under the client's own token.
    fn progressed(&self, params: &RawValue) -> Bytes {
        let mut written = format!("{{\"progressToken\":{}", self.token);
        let _read = each_member(&form::trimmed(params.get(), &form::PROGRESS), |name, value| {
            if name != "progressToken" {
                written.push_str(&format!(",{}:{}", json!(name), value.get()));
            }
        })
        .is_ok();
        super::event(&super::notification("notifications/progress", &format!("{written}}}")))
    }
}
