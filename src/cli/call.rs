//! `mantyx-bridge call`: one tool of the running daemon, called by hand.
//!
//! Must not: make a call a second time.

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::terminal::inset;
use super::{
    Client, Failure, Outcome, Place, Stop, complain, failures, or_stdin, parse, print, print_json,
    tools,
};
use crate::http::api::approvals::ApprovalList;
use crate::http::api::openapi::ToolResult;
use crate::model::answer::codes::TOOL_INPUT_INVALID;
use crate::model::{pending, question, string_member};
use crate::random;

/// How long each request for the result of a long call waits, in seconds.
const WAIT: u64 = 240;

/// How often the approvals are read while there is no answer.
const LOOK: Duration = Duration::from_secs(1);

/// `mantyx-bridge call TOOL [KEY=VALUE… | JSON]`.
pub(super) async fn call(place: &Place, tool: &str, given: &[String], json: bool) -> Outcome {
    let client = Client::new(place)?;
    let arguments = read(&client, tool, given).await?;
    let id = format!("cli_{}", random::uuid());
    let mut stop = Stop::new()?;
    let mut goes_on = None;
    let mut waits = None;
    let text = tokio::select! {
        text = made(&client, (&id, tool), &arguments, &mut goes_on) => text?,
        never = told_of_approval(&client, &id, &mut waits) => never,
        // The daemon cancels a call whose caller hangs up, unless it has got a first answer.
        () = stop.asked() => return Err(given_up(goes_on.as_deref(), waits.as_deref())),
    };
    let answer: ToolResult = parse(&text)?;
    if json {
        print_json(&format!("{text}\n"))?;
        return match answer.error {
            None => Ok(()),
            Some(_) => Err(Failure::Failed(String::new())),
        };
    }
    match answer.error {
        Some(error) => Err(failure(tool, &error)),
        None => print(&format!("{}\n", answer.result.unwrap_or_default())),
    }
}

/// The failure of a call with this error. Arguments that do not fit are a mistake of the command
/// line, whether the command or the daemon has found it; the advice behind it is for a model.
fn failure(tool: &str, error: &str) -> Failure {
    let unfit = error.strip_prefix(TOOL_INPUT_INVALID).and_then(|rest| rest.strip_prefix(": "));
    let Some(unfit) = unfit else { return Failure::Failed(inset(error)) };
    let why = unfit.split(". The call was not made").next().unwrap_or(unfit);
    let why = why.strip_prefix("the arguments: ").unwrap_or(why);
    failures::unfit_arguments(tool, inset(why))
}

/// The arguments, which are JSON or typed by the tool's schema.
async fn read(client: &Client, tool: &str, given: &[String]) -> Outcome<Box<RawValue>> {
    let text = match given {
        [] => "{}".to_owned(),
        [whole] if whole == "-" || !whole.contains('=') || whole.starts_with('{') => {
            or_stdin(whole)?.trim().to_owned()
        }
        pairs => {
            let schema = tools::one(client, tool).await?.schema;
            let typed = question::typed(&schema, pairs);
            typed.map_err(|why| failures::unfit_arguments(tool, why))?
        }
    };
    let arguments = RawValue::from_string(text)
        .map_err(|error| Failure::Usage(format!("the arguments are not JSON: {error}")))?;
    if !arguments.get().starts_with('{') {
        return Err(Failure::Usage(
            "the arguments are KEY=VALUE, or a JSON object, such as '{\"a\": 2}'".to_owned(),
        ));
    }
    Ok(arguments)
}

/// Says so if the call waits for a person, and never ends. `waits` gets the id of its approval, as
/// long as it waits.
async fn told_of_approval<T>(client: &Client, id: &str, waits: &mut Option<String>) -> T {
    let mut reported = false;
    loop {
        sleep(LOOK).await;
        let answer = client.get("/v1/approvals", client.operator()).await;
        let list = answer.and_then(|text| parse::<ApprovalList>(&text));
        let Ok(ApprovalList { approvals, .. }) = list else { continue };
        let own = approvals.iter().find(|one| one.tool_use_id == id && one.state == "waiting");
        *waits = own.map(|one| one.id.clone());
        if let Some(approval) = waits.as_ref().filter(|_| !std::mem::replace(&mut reported, true)) {
            complain(&format!(
                "the call waits for a person: mantyx-bridge approvals approve {approval}"
            ));
        }
    }
}

/// The final answer: waits for the result of a long call, as a person would. `goes_on` gets the id
/// of such a call.
async fn made(
    client: &Client,
    (id, tool): (&str, &str),
    arguments: &RawValue,
    goes_on: &mut Option<String>,
) -> Outcome<String> {
    let mut text = ask(client, id, tool, arguments.get()).await?;
    // A person who calls this tool by hand wants to see the present state.
    while tool != pending::TOOL
        && let Some(call) = pending_call(&text)
    {
        let question = serde_json::json!({ "callId": &call, "wait": WAIT });
        *goes_on = Some(call);
        let id = format!("cli_{}", random::uuid());
        text = ask(client, &id, pending::TOOL, &question.to_string()).await?;
    }
    Ok(text)
}

async fn ask(client: &Client, id: &str, tool: &str, arguments: &str) -> Outcome<String> {
    let name = Value::from(tool);
    let body = format!("{{\"toolUseId\":\"{id}\",\"name\":{name},\"args\":{arguments}}}");
    client.call(body).await
}

/// The id of the call, if `text` says that it is a long call.
fn pending_call(text: &str) -> Option<String> {
    let answer: ToolResult = serde_json::from_str(text).ok()?;
    let result = answer.result.filter(|result| pending::is_first_answer(result))?;
    string_member(&result, "callId")
}

/// What has become of a call whose person has waited long enough.
fn given_up(pending: Option<&str>, waits: Option<&str>) -> Failure {
    match (pending, waits) {
        (Some(call), _) => Failure::Failed(format!(
            "given up; the call continues in the bridge, which keeps its result for a day:\n  \
             mantyx-bridge call {} callId={call}",
            pending::TOOL
        )),
        (None, Some(id)) => failures::not_made(id),
        (None, None) => {
            let why = "given up: the call is cancelled; it may have taken effect";
            Failure::Failed(why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which answers mean that a call goes on.

    use super::*;
    use crate::model::answer;
    use crate::model::ids::CallId;

    #[test]
    fn unfit_arguments_have_one_voice_and_exit_code() {
        let error =
            "tool_input_invalid: the arguments: \"b\" is required. The call was not made; x";
        let Failure::Usage(text) = failure("add", error) else { panic!("exit code 2") };
        assert_eq!(text, "the arguments do not fit `add`: \"b\" is required");
        assert!(
            matches!(failure("add", "disk full"), Failure::Failed(text) if text == "disk full")
        );
    }

    #[test]
    fn an_answer_for_the_time_being_is_known() {
        let id: CallId = "call_1".to_owned().into();
        let answer::Answer::Result { text, .. } = pending::goes_on(&id, "t", pending::TOOL) else {
            panic!("no error");
        };
        let answered =
            |text: &str| serde_json::json!({ "toolUseId": "u", "result": text }).to_string();
        assert_eq!(pending_call(&answered(&text)).as_deref(), Some("call_1"));
        assert_eq!(pending_call(&answered("{\"status\":\"done\",\"callId\":\"call_1\"}")), None);
        assert_eq!(pending_call(&answered("pending")), None);
        assert_eq!(pending_call("{\"error\":\"pending\"}"), None);
    }
}
