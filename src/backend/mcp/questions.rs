//! Questions for the user that a server of 2026-07-28 asks by the result of a call: it then wants the
//! same call again, with the answers (Multi Round-Trip Requests).
//!
//! Must not: answer anything but a question for the user.

use serde_json::value::RawValue;

use crate::{
    backend::peer::{CallError, ErrorReply, MAX_QUESTION, Progress},
    model::json::{Elements, Members, member, string_member},
};

/// How often a server may ask during one call.
pub(super) const ROUNDS: usize = 10;

/// The most links that an answer names.
const MOST_LINKS: usize = 5;
const REFUSED: &str = "the server wants input from the user before it runs the tool, and there is \
                       none: no client that could ask has made the call, or it is not permitted any \
                       more";

/// What the next request of a call has beside its arguments.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The `inputResponses`.
    pub responses: Box<RawValue>,
    /// The `requestState`, if the server gave one.
    pub state: Option<Box<RawValue>>,
}

/// Gets the answers to the questions of `result`; `None` if it asks none.
pub(super) async fn answer(
    result: &RawValue,
    progress: &Progress,
) -> Option<Result<Inputs, CallError>> {
    let asks = string_member(result.get(), "resultType").as_deref() == Some("input_required");
    if !asks {
        return None;
    }
    if result.get().len() > MAX_QUESTION {
        return Some(Err(CallError::Refused("the server's question is too large".to_owned())));
    }
    let refused = || Some(Err(CallError::Refused(REFUSED.to_owned())));
    let requests = member(result.get(), "inputRequests");
    let state = member(result.get(), "requestState").map(RawValue::to_owned);
    let members = Members::read(requests.map_or("{}", RawValue::get));
    let Some(members) = members.ok().filter(|_| requests.is_some() || state.is_some()) else {
        return refused();
    };
    let mut responses = Vec::new();
    for (key, request) in members.0 {
        let is_for_user =
            string_member(request.get(), "method").as_deref() == Some("elicitation/create");
        let answer = match member(request.get(), "params").filter(|_| is_for_user) {
            Some(params) => progress.ask(Some(key.to_string()), params.to_owned()).await,
            None => None,
        };
        let Some(answer) = answer else {
            return refused();
        };
        responses.push(format!("{}:{answer}", serde_json::Value::from(key)));
    }
    let responses = RawValue::from_string(format!("{{{}}}", responses.join(",")));
    Some(Ok(Inputs { responses: responses.expect("its parts are JSON"), state }))
}

/// The links that a server wants opened, in a sentence for the model, or nothing.
pub(super) fn links(error: &ErrorReply) -> String {
    let listed = error.data.as_ref().and_then(|data| member(data.get(), "elicitations"));
    let listed = listed.and_then(|listed| Elements::read(listed.get()).ok());
    let elements = listed.iter().flat_map(|listed| &listed.0);
    let links: Vec<String> =
        elements.filter_map(|one| string_member(one.get(), "url")).take(MOST_LINKS).collect();
    match links.join(" and ") {
        none if none.is_empty() => none,
        links => format!(" The user has to open {links} first; then call it again."),
    }
}
