//! Calls that an app asks for by a request: those of a model's API, and sets of loom-mcp.
//!
//! Must not: know how a call is made.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::HeaderValue;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc};

use super::{
    Answered, Api, ApiRequest, App, Code, Format, MAX_CALL, Offer, bad_request, busy, format, hex,
    parameter, proxy, response,
};
use crate::backend::{McpClient, Modes, NotRecorded};
use crate::budget::{Budget, Held};
use crate::calls::CalledBy;
use crate::calls::once::NotAnswered;
use crate::config::error::did_you_mean;
use crate::model::loom::Set;
use crate::model::offer::Ref;
use crate::model::{Answer, AppName, Call, CallingRun, Ending, Made, Own, member, pending};
use crate::tasks::in_background_if_large;
use crate::traces::Context;

/// How many calls of one request run at once: their results are not counted before they are whole.
const AT_ONCE: usize = 16;
/// The most bytes of an id or a name that an app itself gives a call: the history, questions and keys
/// remember thousands of them.
const MAX_ID: usize = 1 << 10;
/// The answer to the operator's call as no app.
const AS_WHICH: &str = "The operator is no app: `?app=NAME` says as which one the call is made.";
/// The answer to a call for whose result there would be no room.
const FULL: &str = "The results of the request's other calls take all the room that the app has, \
                    so this call was not made. Send it again with fewer others.";

/// The calls of one request, and its body.
pub(super) type Asked = (Form, Arc<[Call]>, Bytes);

/// A result, and whether the tool was not called.
type One = (Bytes, bool);

/// Whose request it is.
#[derive(Debug)]
pub(super) struct Origin {
    pub app: Arc<App>,
    pub trace: Context,
    /// Tells the app's callers apart, where they bring credentials of their own. It is a part of what
    /// a key stands for: the answer to one credential's request is for no other, and a request that is
    /// repeated with another credential is refused, as its calls may have been made.
    identity: Option<String>,
}

/// What the calls of one request share.
struct Of {
    offer: Arc<Offer>,
    origin: Arc<Origin>,
    form: Form,
    calls: Arc<[Call]>,
    /// Closed once a result has found no room.
    turns: Semaphore,
}

/// A question about the tool of `offer` that `name` probably stands for, after a space; empty without
/// one. An offer has only what its app may see, so that nothing else is named.
pub(super) fn suggestion(offer: &Offer, name: &str) -> String {
    let refs = offer.backends().flat_map(|(_, offered)| offered.refs().chain(offered.hidden()));
    let own = offer.own(|_| true).map(|(_, one)| one);
    let names = refs.chain(own).flat_map(Ref::names).map(|name| &**name);
    let near = did_you_mean(name, names.filter(|other| *other != name));
    near.map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default()
}

/// Refuses ids and names that are too long to be remembered.
pub(super) fn check_ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Answered<()> {
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
        "The bridge has no tool `{name}` of this kind.{suggestion} `mantyx-bridge status` shows \
         which backends are down and which tools are withdrawn."
    )
}

impl Origin {
    /// The digest of `text`, which says what is asked for, and of the one that asks for it.
    fn digest(&self, text: &str) -> String {
        let identity = self.identity.as_ref().map(|identity| format!("\n{identity}"));
        hex(&Sha256::digest([text, &identity.unwrap_or_default()].concat()))
    }
}

impl Of {
    fn not_made(&self, place: usize, why: String) -> One {
        let refused = Made::failed(Ending::Unavailable, why);
        (self.form.result(place, &self.calls[place], &refused, None).into(), true)
    }

    fn hold(&self) -> Held {
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
    /// The result of the call at `place`; `structured` is the server's `structuredContent`.
    fn result(
        &self,
        place: usize,
        call: &Call,
        made: &Made,
        structured: Option<&RawValue>,
    ) -> String {
        match self {
            Self::Api(format) => format.result(call, &made.answer),
            Self::Loom(set) => set.result(place, made, structured),
        }
    }

    /// The result of the call at `place`, if it is not known; `None` if the whole request is refused.
    fn instead(&self, place: usize, call: &Call, why: &NotAnswered) -> Option<String> {
        let made = match why {
            NotAnswered::Lost => Made::failed(Ending::Unknown, pending::lost(&call.name)),
            NotAnswered::Unwritable => {
                Made::failed(Ending::Storage, NotRecorded::Unwritable.for_model(&call.name))
            }
            _ => return None,
        };
        Some(self.result(place, call, &made, None))
    }

    fn answer(&self, results: &[Bytes]) -> String {
        let text = |result| std::str::from_utf8(result).expect("it was a text");
        let results: Vec<&str> = results.iter().map(|result| text(&**result)).collect();
        match self {
            Self::Api(format) => format.answer(&results),
            Self::Loom(set) => set.answer(&results),
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
    pub(super) async fn tool_call(&self, mut asked: ApiRequest) -> Answered {
        match parameter(&asked.request, "app") {
            // The operator is no app: the page has calls made as one of them.
            Some(app) if asked.caller.is_operator => {
                let app = self.runs.calls.app(&app.as_str().into());
                asked.caller.app = app.ok_or_else(|| bad_request(AS_WHICH))?;
            }
            Some(_) => {
                return Err(bad_request("`app` is for the operator; a token is an app's own."));
            }
            None if asked.caller.app.is_operator() => return Err(bad_request(AS_WHICH)),
            None => {}
        }
        let format = format(&asked.request, "event")?;
        let body = self.read_json(&mut asked, MAX_CALL).await?;
        let origin = Arc::new(self.origin(&asked));
        let has_key = asked.request.headers().contains_key("idempotency-key");
        let (text, digests) = (body.clone(), Arc::clone(&origin));
        let read = move || {
            let text = std::str::from_utf8(&text).map_err(|_bad| "The body is not UTF-8.")?;
            let calls: Arc<[Call]> = format.read(text)?.into();
            let digest = has_key.then(|| digests.digest(&format!("{format:?}\n{text}")));
            Ok::<_, String>((calls, digest.unwrap_or_default()))
        };
        let (calls, digest) = self
            .views
            .work_if_large(&origin.app.name, body.len(), read)
            .await?
            .map_err(|why| bad_request(&why))?;
        let mut keys = asked.request.headers().get_all("idempotency-key").iter();
        let once = match (keys.next().map(HeaderValue::to_str), keys.next()) {
            (None, _) => None,
            (Some(Ok(key)), None) if (1..=255).contains(&key.len()) => {
                Some((key.to_owned(), digest))
            }
            _ => {
                return Err(bad_request(
                    "One Idempotency-Key is taken, of 1 to 255 ASCII characters.",
                ));
            }
        };
        self.answer_calls(origin, (Form::Api(format), calls, body), once).await
    }

    pub(super) fn origin(&self, asked: &ApiRequest) -> Origin {
        let (caller, headers) = (&asked.caller, asked.request.headers());
        let credential = proxy::forward::credential(&self.runs, caller, headers);
        let identity = match (credential.is_callers(), caller.is_operator) {
            (false, _) => None,
            (true, true) => Some("operator".to_owned()),
            (true, false) => Some(credential.fingerprint()),
        };
        let trace = self.runs.context.traces.context(proxy::trace(headers));
        Origin { app: Arc::clone(&caller.app), trace, identity }
    }

    /// Has the calls of a request made, and answers it. With a key and a digest, they are made once
    /// for all requests with that key.
    pub(super) async fn answer_calls(
        &self,
        origin: Arc<Origin>,
        asked: Asked,
        once: Option<(String, String)>,
    ) -> Answered {
        let form = asked.0.clone();
        let calls = Arc::clone(&asked.1);
        check_ids(calls.iter().map(|call| call.tool_use.as_str()))?;
        if let Form::Loom(set) = &form {
            check_ids([set.id.as_str()].into_iter().chain(set.run.as_deref()))?;
        }
        let app = origin.app.name.clone();
        let made = self.clone().make(origin, asked);
        let answer = match once {
            None => made.await,
            Some((key, digest)) => self.runs.calls.once_for_app((app, key), digest, made).await,
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
                let result = |(place, call)| form.instead(place, call, &why).map(Bytes::from);
                let results: Vec<_> = calls.iter().enumerate().filter_map(result).collect();
                Ok(response::json_text(form.answer(&results)))
            }
        }
    }

    /// Makes the calls of one request, some of them side by side, and writes the answer to it. The
    /// body counts the calls' arguments for the app.
    async fn make(self, origin: Arc<Origin>, asked: Asked) -> Result<Bytes, NotAnswered> {
        let (form, calls, _body) = asked;
        let of = Arc::new(Of {
            offer: self.offer(&origin.app),
            turns: Semaphore::new(AT_ONCE),
            origin,
            form,
            calls,
        });
        let places = 0..of.calls.len();
        let results = places.map(async |place| {
            // A call that waits for its turn is not on disk yet: a crash leaves it to be made.
            let Ok(_turn) = of.turns.acquire().await else {
                return Ok(of.not_made(place, FULL.to_owned()));
            };
            match &of.form {
                Form::Api(_) => self.clone().make_one(Arc::clone(&of), place).await,
                Form::Loom(set) => self.make_one_once(&of, set, place).await,
            }
        });
        let (results, no_call): (Vec<_>, Vec<_>) =
            try_join_all(results).await?.into_iter().collect();
        let answer = of.form.answer(&results).into_bytes();
        let mut held = of.hold();
        held.follow(answer.len());
        let answer = held.pay_for(answer);
        // A key is for calls that were made; what was refused may be asked for again.
        if no_call.contains(&false) { Ok(answer) } else { Err(NotAnswered::NoCall(answer)) }
    }

    /// [`Self::make_one`], once for all sets with this id, also over a crash in which the set had no
    /// answer yet.
    async fn make_one_once(
        &self,
        of: &Arc<Of>,
        set: &Set,
        place: usize,
    ) -> Result<One, NotAnswered> {
        let call = &of.calls[place];
        let Call { tool_use, name, args, .. } = call;
        // No header has a line end, so that no Idempotency-Key is the same.
        let key = format!("loom\n{:?} {:?} {tool_use:?}", set.run, set.id);
        let digest = of.origin.digest(&format!("{name}\n{}", args.get()));
        let made = self.clone().make_one(Arc::clone(of), place);
        let work = async move {
            let (result, no_call) = made.await?;
            if no_call { Err(NotAnswered::NoCall(result)) } else { Ok(result) }
        };
        let key = (of.origin.app.name.clone(), key);
        match self.runs.calls.once_for_app(key, digest, work).await {
            Ok(result) => Ok((result, false)),
            Err(NotAnswered::NoCall(result)) => Ok((result, true)),
            Err(why) => {
                of.form.instead(place, call, &why).map(|text| (text.into(), false)).ok_or(why)
            }
        }
    }

    /// Makes the call at `place`. Returns its result, which is counted for the app, and whether the
    /// tool was not called.
    async fn make_one(self, of: Arc<Of>, place: usize) -> Result<One, NotAnswered> {
        let Of { offer, origin, form, calls, turns } = &*of;
        let Origin { app, trace, .. } = &**origin;
        let call = &calls[place];
        let name = &call.name;
        // The operator says what a mapped name means. Any other that no model was shown may be that of
        // a tool of the app's own.
        let is_mapped = matches!(form, Form::Loom(_)) && app.names.values().any(|own| own == name);
        let route = if is_mapped { offer.searched_route(name) } else { offer.route(name) };
        let route = route.filter(|route| call.kind.is_none_or(|kind| kind == route.kind));
        let Some(route) = route else {
            let (offer, name) = (Arc::clone(offer), call.name.clone());
            // To compare thousands of names takes milliseconds.
            let why = self.views.work(&app.name, move || no_such_tool(&offer, &name)).await;
            let why = why.unwrap_or_else(|late| late.to_string());
            return Ok(of.not_made(place, why));
        };
        let client = matches!(form, Form::Loom(_)).then(|| self.reader(app));
        let by = CalledBy { run: form.run(&app.name), client: client.clone() };
        let calls = &self.runs.calls;
        let made = calls.call_by_hand(&app.name, route, call.clone(), trace, by).await;
        if let (Form::Api(Format::Event), Ending::Busy, Answer::Error(why)) =
            (form, &made.ending, &made.answer)
        {
            return Err(NotAnswered::Busy(why.clone()));
        }
        let whole = client.and_then(|client| client.take_result().0?.ok());
        let no_call = made.ending.is_of_no_call();
        let mut held = of.hold();
        let size = made.answer.json_len();
        // Once for the result, and once for the answer that it becomes a part of.
        match held.resize(2 * size).await {
            Ok(()) => {
                let size = size + whole.as_ref().map_or(0, |whole| whole.get().len());
                let written = Arc::clone(&of);
                let write = move || {
                    let whole = whole.as_deref().map(RawValue::get);
                    let structured = whole.and_then(|whole| member(whole, "structuredContent"));
                    written.form.result(place, &written.calls[place], &made, structured)
                };
                let result = in_background_if_large(size, write).await;
                Ok((held.pay_for(result.into_bytes()), no_call))
            }
            Err(no_room) => {
                turns.close();
                let why = format!("The tool has run; {no_room}, its result is lost.");
                let lost = Made::failed(Ending::ToolError, why);
                Ok((form.result(place, call, &lost, None).into(), false))
            }
        }
    }

    /// Takes a server's whole result, and answers none of its questions.
    fn reader(&self, app: &App) -> Arc<McpClient> {
        let (questions, _) = mpsc::channel(1);
        let draining = self.runs.draining().clone();
        Arc::new(McpClient::new(&app.name, None, questions, Modes::default(), draining))
    }
}
