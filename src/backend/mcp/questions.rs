//! Questions for the user that a server of 2026-07-28 asks by the result of a call: it then wants
//! the same call again, with the answers (Multi Round-Trip Requests).
//!
//! Must not: answer anything but a question for the user.

use serde_json::value::RawValue;

use super::result::result_type;
use crate::backend::{CallError, Called, ErrorReply, Handle, MAX_QUESTION, NotRecorded, ToolCall};
use crate::model::mcp::method;
use crate::model::{Members, elements, member, string_member};

/// How often a server may ask during one call.
pub(super) const ROUNDS: usize = 10;

/// The members of a [`Handle`] that have the result with the questions, and how often the server
/// had asked before.
const KEPT: &str = "mcpQuestions";
const ROUND: &str = "round";
/// The most links that an answer names.
const MAX_LINKS: usize = 5;
const REFUSED: &str = "the server wants input from the user before it runs the tool, and there is \
                       none: the client that has made the call cannot ask, or it is not permitted any \
                       more";

/// What the next request of a call has beside its arguments.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The `inputResponses`.
    pub responses: Box<RawValue>,
    /// The `requestState`, if the server gave one.
    pub state: Option<Box<RawValue>>,
}

/// Whether `result` asks for input before the tool is run.
pub(super) fn asks(result: &RawValue) -> bool {
    result_type(result).as_deref() == Some("input_required")
}

/// The result with the questions that `handle` has for after a restart, with the round, if that is
/// what it has.
pub(super) fn kept(handle: &Handle) -> Option<(usize, Box<RawValue>)> {
    let round = member(&handle.0, ROUND).and_then(|round| round.get().parse().ok());
    Some((round.unwrap_or_default(), member(&handle.0, KEPT)?.to_owned()))
}

/// Gets the answers to the questions of `result`, before which the server has asked `round` times.
/// The record of the call has them until then, and has its next dispatch before this returns: if
/// the bridge crashed after it, the call could be made twice otherwise.
pub(super) async fn answer(round: usize, result: &RawValue, call: &ToolCall) -> Called<Inputs> {
    if result.get().len() > MAX_QUESTION {
        let most = MAX_QUESTION >> 10;
        let why = format!("the server's question is too large: it has over {most} KiB");
        return Err(CallError::Refused(why));
    }
    let refused = || CallError::Refused(REFUSED.to_owned());
    let requests = member(result.get(), "inputRequests");
    let state = member(result.get(), "requestState").map(RawValue::to_owned);
    let members = Members::read(requests.map_or("{}", RawValue::get));
    let members = members.ok().filter(|_| requests.is_some() || state.is_some());
    let mut questions = Vec::new();
    for (key, request) in members.ok_or_else(refused)?.0 {
        let is_for_user = string_member(request.get(), "method").as_deref() == Some(method::ELICIT);
        // With the round, as an answer that is sent twice must not answer the same question again.
        let mark = format!("{round} {key} {}", state.as_ref().map_or("", |state| state.get()));
        let params = member(request.get(), "params").filter(|_| is_for_user).ok_or_else(refused)?;
        questions.push((key, mark, params));
    }
    // No person is asked before all of them can be answered.
    call.recorder.named(&Handle(format!("{{\"{ROUND}\":{round},\"{KEPT}\":{result}}}")));
    let mut responses = Vec::new();
    for (key, mark, params) in questions {
        let answer = call.progress.ask(Some(key.to_string()), mark, params.to_owned()).await;
        responses.push(format!("{}:{}", serde_json::Value::from(key), answer.ok_or_else(refused)?));
    }
    let not_recorded = |why: NotRecorded| CallError::Refused(why.for_model(call.request.tool()));
    call.recorder.dispatching(None).await.map_err(not_recorded)?;
    let responses = RawValue::from_string(format!("{{{}}}", responses.join(",")));
    Ok(Inputs { responses: responses.expect("its parts are JSON"), state })
}

/// The links that a server wants opened, in a sentence for the model, or nothing.
pub(super) fn links(error: &ErrorReply) -> String {
    let listed = error.data.as_ref().and_then(|data| member(data.get(), "elicitations"));
    let listed = listed.and_then(|listed| elements(listed.get()).ok()).into_iter().flatten();
    let links: Vec<String> =
        listed.filter_map(|one| string_member(one.get(), "url")).take(MAX_LINKS).collect();
    match links.join(" and ") {
        none if none.is_empty() => none,
        links => format!(" The user has to open {links} first; then call it again."),
    }
}
