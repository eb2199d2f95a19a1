//! Calls that an app asks for by a request: those of a model's API, and sets of loom-mcp.
//!
//! Must not: know how a call is made.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc};

use super::{
    APP, Api, ApiRequest, App, Code, FOR_THE_OPERATOR, Format, HandlerResult, MAX_CALL, Offer,
    bad_request, busy, format, hex, parameter, proxy, response,
};
use crate::backend::{CallOutcome, McpClient, Modes, NotRecorded, Source};
use crate::budget::{Budget, Held};
use crate::calls::CalledBy;
use crate::calls::once::{NotAnswered, RequestStart};
use crate::config::error::did_you_mean;
use crate::model::loom::Set;
use crate::model::offer::Ref;
use crate::model::{Answer, AppName, Call, CallingRun, Ending, Own, pending};
use crate::tasks::in_background_if_large;
use crate::traces::Context;

/// How many calls of one request run at once: their results are not counted before they are whole.
const AT_ONCE: usize = 16;
/// The most bytes of an id or a name that an app itself gives a call: the history, questions and
/// keys remember thousands of them.
const MAX_ID: usize = 1 << 10;
/// The answer to the operator's call as no app.
const AS_WHICH: &str = "The operator is no app: `?app=NAME` says as which one the call is made.";
/// The answer to a call for whose result there would be no room.
const FULL: &str = "The results of the request's other calls take all the room that the app has, \
                    so this call was not made. Send it again with fewer others.";

/// The calls of one request.
pub(super) struct Batch {
    pub form: Form,
    pub calls: Arc<[Call]>,
    /// The request's body, which counts the calls' arguments for the app until all have ended.
    pub body: Bytes,
}

/// What makes the calls of a request once: its `Idempotency-Key`, and the digest of what it asks
/// for.
pub(super) struct KeyedRequest {
    key: String,
    digest: String,
}

/// The result of one call, as the app gets it.
struct CallResult {
    text: Bytes,
    /// `false`: the app may ask for the call again.
    tool_called: bool,
}

/// Whose request it is.
#[derive(Debug)]
pub(super) struct Origin {
    pub app: Arc<App>,
    pub trace: Context,
    /// Tells the app's callers apart, where they bring credentials of their own. It is a part of
    /// what a key stands for: the answer to one credential's request is for no other, and a request
    /// that is repeated with another credential is refused, as its calls may have been made.
    identity: Option<String>,
}

/// What the calls of one request share.
struct BatchContext {
    offer: Arc<Offer>,
    origin: Arc<Origin>,
    form: Form,
    calls: Arc<[Call]>,
    /// The request with its `Idempotency-Key`.
    start: Option<Arc<RequestStart>>,
    /// Closed once a result has found no room.
    turns: Semaphore,
}

/// A question about the tool of `offer` that `name` probably stands for, after a space; empty
/// without one. An offer has only what its app may see, so that nothing else is named.
pub(super) fn suggestion(offer: &Offer, name: &str) -> String {
    let refs = offer.backends().flat_map(|(_, offered)| offered.refs().chain(offered.hidden()));
    let own = offer.own(|_| true).map(|(_, one)| one);
    let names = refs.chain(own).flat_map(Ref::names).map(|name| &**name);
    match did_you_mean(name, names.filter(|other| *other != name)) {
        Some(near) => format!(" Did you mean `{near}`?"),
        None => String::new(),
    }
}

/// Refuses ids and names that are too long to be remembered.
pub(super) fn check_ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> HandlerResult<()> {
    if ids.into_iter().any(|id| id.len() > MAX_ID) {
        return Err(bad_request(&format!("The id of a call or a run has at most {MAX_ID} bytes.")));
    }
    Ok(())
}

/// The answer to a call of a tool that is not on offer.
fn no_such_tool(offer: &Offer, name: &str) -> String {
    if offer.searched_route(name).is_some() && offer.route(name).is_none() {
        let call = Own::Call.name();
        return format!(
            "The tool `{name}` is found by a search and is no tool of its own here: call \
             `{call}` with {{\"name\": \"{name}\", \"arguments\": …}}."
        );
    }
    let suggestion = suggestion(offer, name);
    format!(
        "There is no tool `{name}`.{suggestion} `mantyx-bridge status` shows which backends are down \
         and which tools are withdrawn."
    )
}

/// Reads the calls of a body and, if `origin` is given, the digest of what it asks for.
fn read_calls(
    format: Format,
    body: &Bytes,
    origin: Option<&Origin>,
) -> Result<(Arc<[Call]>, String), String> {
    let text = std::str::from_utf8(body).map_err(|_bad| "The body is not UTF-8.")?;
    let calls = format.read(text)?.into();
    let digest = origin.map(|origin| origin.digest(&format!("{format:?}\n{text}")));
    Ok((calls, digest.unwrap_or_default()))
}

fn idempotency_key(headers: &HeaderMap) -> HandlerResult<Option<String>> {
    let mut values = headers.get_all("idempotency-key").iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(key)), None) if (1..=255).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(bad_request("One Idempotency-Key is taken, of 1 to 255 ASCII characters.")),
    }
}

impl Origin {
    /// The digest of `text`, which says what is asked for, and of the one that asks for it.
    fn digest(&self, text: &str) -> String {
        let identity = self.identity.as_ref().map(|identity| format!("\n{identity}"));
        hex(&Sha256::digest([text, &identity.unwrap_or_default()].concat()))
    }
}

impl BatchContext {
    fn not_made(&self, place: usize, why: String) -> CallResult {
        let refusal = CallOutcome::failed(Ending::Unavailable, why);
        let text = self.form.result(place, &self.calls[place], &refusal).into();
        CallResult { text, tool_called: false }
    }

    /// Room of the app for a result. Without it, an app that asks for many large results would take
    /// the memory of all others.
    fn room(&self) -> Held {
        Budget::of_process().hold_for(Some(self.origin.app.name.clone()))
    }
}

/// What the answer to a request looks like.
#[derive(Debug, Clone)]
pub(super) enum Form {
    Api(Format),
    Loom(Arc<Set>),
}

impl Form {
    /// The result of the call at `place`.
    fn result(&self, place: usize, call: &Call, outcome: &CallOutcome) -> String {
        match self {
            Self::Api(format) => format.result(call, &outcome.answer),
            Self::Loom(set) => {
                set.result(place, &outcome.answer, outcome.ending, outcome.structured())
            }
        }
    }

    /// The result of the call at `place`, whose outcome is not known; `None` if the whole request
    /// is refused.
    fn unanswered(&self, place: usize, call: &Call, why: &NotAnswered) -> Option<String> {
        let outcome = match why {
            NotAnswered::Lost => CallOutcome::failed(Ending::Unknown, pending::lost(&call.name)),
            NotAnswered::Unwritable => {
                CallOutcome::failed(Ending::Storage, NotRecorded::Unwritable.for_model(&call.name))
            }
            _ => return None,
        };
        Some(self.result(place, call, &outcome))
    }

    fn answer(&self, results: &[Bytes]) -> String {
        let texts: Vec<&str> = results
            .iter()
            .map(|result| std::str::from_utf8(result).expect("it was a text"))
            .collect();
        match self {
            Self::Api(format) => format.answer(&texts),
            Self::Loom(set) => set.answer(&texts),
        }
    }

    /// The run of the runtime that asks.
    fn run(&self, app: &AppName) -> Option<CallingRun> {
        let Self::Loom(set) = self else { return None };
        let run = set.run.as_deref()?.into();
        Some(CallingRun { workspace: app.as_str().into(), run, session: None })
    }
}

impl Api {
    pub(super) async fn tool_call(&self, mut incoming: ApiRequest) -> HandlerResult {
        match parameter(&incoming.request, APP) {
            // The operator is no app: the page has calls made as one of them.
            Some(app) if incoming.caller.is_operator => {
                let named = self.runs.calls.app(&app.as_str().into());
                incoming.caller.app = named.ok_or_else(|| self.no_app(&app))?;
            }
            Some(_) => {
                return Err(bad_request(FOR_THE_OPERATOR));
            }
            None if incoming.caller.app.is_operator() => return Err(bad_request(AS_WHICH)),
            None => {}
        }
        let format = format(&incoming.request, "event")?;
        let body = self.read_json(&mut incoming, MAX_CALL).await?;
        let origin = Arc::new(self.origin(&incoming));
        let text = body.clone();
        let key_origin = if incoming.request.headers().contains_key("idempotency-key") {
            Some(Arc::clone(&origin))
        } else {
            None
        };
        let (calls, digest) = self
            .views
            .work_if_large(&origin.app.name, body.len(), move || {
                read_calls(format, &text, key_origin.as_deref())
            })
            .await?
            .map_err(|why| bad_request(&why))?;
        let key = idempotency_key(incoming.request.headers())?;
        let once = key.map(|key| KeyedRequest { key, digest });
        self.answer_calls(origin, Batch { form: Form::Api(format), calls, body }, once).await
    }

    pub(super) fn origin(&self, incoming: &ApiRequest) -> Origin {
        let (caller, headers) = (&incoming.caller, incoming.request.headers());
        let credential = proxy::forward::credential(&self.runs, caller, headers);
        let identity = if !credential.is_callers() {
            None
        } else if caller.is_operator {
            Some("operator".to_owned())
        } else {
            Some(credential.fingerprint())
        };
        let trace = self.runs.context.traces.context(proxy::trace(headers));
        Origin { app: Arc::clone(&caller.app), trace, identity }
    }

    /// Has the calls of a request made, and answers it. With a key and a digest, they are made once
    /// for all requests with that key.
    pub(super) async fn answer_calls(
        &self,
        origin: Arc<Origin>,
        batch: Batch,
        once: Option<KeyedRequest>,
    ) -> HandlerResult {
        let form = batch.form.clone();
        let calls = Arc::clone(&batch.calls);
        check_ids(calls.iter().map(|call| call.tool_use.as_str()))?;
        if let Form::Loom(set) = &form {
            check_ids([set.id.as_str()].into_iter().chain(set.run.as_deref()))?;
        }
        let app = origin.app.name.clone();
        let api = self.clone();
        let answer = match once {
            None => api.make_calls(origin, batch, None).await,
            Some(KeyedRequest { key, digest }) => {
                let work = |start| api.make_calls(origin, batch, Some(start));
                self.runs.calls.once_for_app((app, key), digest, work).await
            }
        };
        match answer {
            Ok(answer) | Err(NotAnswered::NoCall(answer)) => {
                Ok(response::counted(response::json_text(answer)))
            }
            Err(NotAnswered::Busy(why)) => Err(busy(&why)),
            Err(NotAnswered::Elsewhere) => Err(busy(
                "Another replica of the bridge may make these calls; ask again for the answer.",
            )),
            Err(NotAnswered::OtherRequest) => {
                let why = "The key had another request, or another credential.";
                Err(response::error(Code::IdempotencyKeyReused, why))
            }
            Err(why @ (NotAnswered::Lost | NotAnswered::Unwritable)) => {
                let mut results = Vec::new();
                for (place, call) in calls.iter().enumerate() {
                    results.extend(form.unanswered(place, call, &why).map(Bytes::from));
                }
                Ok(response::json_text(form.answer(&results)))
            }
        }
    }

    /// Makes the calls of one request, some of them side by side, and writes the answer to it.
    async fn make_calls(
        self,
        origin: Arc<Origin>,
        batch: Batch,
        start: Option<Arc<RequestStart>>,
    ) -> Result<Bytes, NotAnswered> {
        let Batch { form, calls, body: _body } = batch;
        let context = Arc::new(BatchContext {
            offer: self.offer(&origin.app),
            turns: Semaphore::new(AT_ONCE),
            origin,
            form,
            calls,
            start,
        });
        let places = 0..context.calls.len();
        let pending_results = places.map(async |place| {
            // A call that waits for its turn is not on disk yet: a crash leaves it to be made.
            let Ok(_turn) = context.turns.acquire().await else {
                return Ok(context.not_made(place, FULL.to_owned()));
            };
            match &context.form {
                Form::Api(_) => self.clone().make_call(Arc::clone(&context), place, None).await,
                Form::Loom(set) => self.make_call_once(&context, set, place).await,
            }
        });
        let results = try_join_all(pending_results).await?;
        let any_called = results.iter().any(|result| result.tool_called);
        let texts: Vec<Bytes> = results.into_iter().map(|result| result.text).collect();
        let text = context.form.answer(&texts).into_bytes();
        let mut room = context.room();
        room.follow(text.len());
        let answer = room.pay_for(text);
        // A key is for calls that were made; what was refused may be asked for again.
        if any_called { Ok(answer) } else { Err(NotAnswered::NoCall(answer)) }
    }

    /// [`Self::make_call`], once for all sets with this id, also over a crash in which the set had
    /// no answer yet.
    async fn make_call_once(
        &self,
        context: &Arc<BatchContext>,
        set: &Set,
        place: usize,
    ) -> Result<CallResult, NotAnswered> {
        let call = &context.calls[place];
        let Call { tool_use, name, args, .. } = call;
        // No header has a line end, so that no Idempotency-Key is the same.
        let key = format!("loom\n{:?} {:?} {tool_use:?}", set.run, set.id);
        let digest = context.origin.digest(&format!("{name}\n{}", args.get()));
        let (api, call_context) = (self.clone(), Arc::clone(context));
        let work = async move |start| {
            let call_result = api.make_call(call_context, place, Some(start));
            let CallResult { text, tool_called } = call_result.await?;
            if tool_called { Ok(text) } else { Err(NotAnswered::NoCall(text)) }
        };
        let app = context.origin.app.name.clone();
        match self.runs.calls.once_for_app((app, key), digest, work).await {
            Ok(text) => Ok(CallResult { text, tool_called: true }),
            Err(NotAnswered::NoCall(text)) => Ok(CallResult { text, tool_called: false }),
            Err(why) => match context.form.unanswered(place, call, &why) {
                Some(text) => Ok(CallResult { text: text.into(), tool_called: true }),
                None => Err(why),
            },
        }
    }

    /// Makes the call at `place`, which `own_start` makes once. Its result is counted for the app.
    async fn make_call(
        self,
        context: Arc<BatchContext>,
        place: usize,
        own_start: Option<Arc<RequestStart>>,
    ) -> Result<CallResult, NotAnswered> {
        let BatchContext { offer, origin, form, calls, start, turns } = &*context;
        let Origin { app, trace, .. } = &**origin;
        let call = &calls[place];
        let name = &call.name;
        // The operator says what a mapped name means. Any other that no model was shown may be that
        // of a tool of the app's own.
        let is_mapped = matches!(form, Form::Loom(_)) && app.names.values().any(|own| own == name);
        let route = if is_mapped { offer.searched_route(name) } else { offer.route(name) };
        let Some(route) = route.filter(|route| call.kind.is_none_or(|kind| kind == route.kind))
        else {
            let (offer, name) = (Arc::clone(offer), call.name.clone());
            // To compare thousands of names takes milliseconds.
            let why = self.views.work(&app.name, move || no_such_tool(&offer, &name)).await;
            return Ok(context.not_made(place, why.unwrap_or_else(|late| late.to_string())));
        };
        let client = match form {
            Form::Loom(_) => Some(self.client_for_result(app)),
            Form::Api(_) => None,
        };
        let requests = start.iter().cloned().chain(own_start).collect();
        let by = CalledBy { run: form.run(&app.name), client, requests, ..CalledBy::default() };
        let mut outcome =
            self.runs.calls.call_by_hand(&app.name, route, call.clone(), trace, by).await;
        if let (Form::Api(Format::Event), Ending::Busy, Answer::Error(why)) =
            (form, &outcome.ending, &outcome.answer)
        {
            return Err(NotAnswered::Busy(why.clone()));
        }
        let tool_called = !outcome.ending.is_of_no_call();
        // The room of the server's result becomes that of the answer. With both, a large result
        // would be lost for lack of room although it fits.
        let mut room = match &mut outcome.source {
            Some(Source::Result { held, .. }) => held.take(),
            _ => context.room(),
        };
        // Once for the result, and once for the answer that it becomes a part of.
        if let Err(no_room) = room.resize(2 * outcome.answer.json_len()).await {
            turns.close();
            let why = format!("The tool has run; {no_room}, its result is lost.");
            let failure = CallOutcome::failed(Ending::ToolError, why);
            let text = form.result(place, call, &failure).into();
            return Ok(CallResult { text, tool_called: true });
        }
        let writer = Arc::clone(&context);
        let text = in_background_if_large(outcome.json_len(), move || {
            writer.form.result(place, &writer.calls[place], &outcome)
        });
        let text = text.await.into_bytes();
        Ok(CallResult { text: room.pay_for(text), tool_called })
    }

    /// A client that takes a server's whole result, and answers none of its questions.
    fn client_for_result(&self, app: &App) -> Arc<McpClient> {
        let (questions, _) = mpsc::channel(1);
        let draining = self.runs.draining().clone();
        Arc::new(McpClient::new(&app.name, None, questions, Modes::default(), draining))
    }
}
