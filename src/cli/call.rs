//! `mantyx-bridge call`: one tool of the running daemon, called by hand.
//!
//! Must not: make a call a second time.

use http::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::terminal::{for_stdout, plain};
use super::{Client, Failure, Outcome, Stop, or_stdin, parse, print};
use crate::config::Contact;
use crate::http::api::openapi::ToolResult;
use crate::model::{pending, string_member};

/// How long each request for the result of a long call waits, in seconds.
const WAIT: u64 = 240;

/// `mantyx-bridge call TOOL [JSON]`.
pub(super) async fn call(contact: &Contact, tool: &str, arguments: &str, json: bool) -> Outcome {
    let arguments = read(arguments)?;
    let client = Client::new(contact)?;
    let mut stop = Stop::new()?;
    let mut goes_on = None;
    let text = tokio::select! {
        text = made(&client, tool, &arguments, &mut goes_on) => text?,
        // The daemon cancels a call whose caller hangs up, unless it has got a first answer.
        () = stop.asked() => return Err(Failure::Failed(left(goes_on.as_deref()))),
    };
    let answer: ToolResult = parse(&text)?;
    if json {
        print(&format!("{text}\n"))?;
    }
    match answer.error {
        // What was printed has it.
        Some(_) if json => Err(Failure::Failed(String::new())),
        Some(error) => Err(Failure::Failed(plain(&error))),
        None if json => Ok(()),
        None => print(&format!("{}\n", for_stdout(&answer.result.unwrap_or_default()))),
    }
}

fn read(arguments: &str) -> Outcome<Box<RawValue>> {
    let arguments = RawValue::from_string(or_stdin(arguments)?.trim().to_owned())
        .map_err(|error| Failure::Usage(format!("the arguments are not JSON: {error}")))?;
    if !arguments.get().starts_with('{') {
        let why = "the arguments are a JSON object, such as '{\"a\": 2}'";
        return Err(Failure::Usage(why.to_owned()));
    }
    Ok(arguments)
}

/// The final answer: waits for the result of a long call, as a person would. `goes_on` gets the id
/// of such a call.
async fn made(
    client: &Client,
    tool: &str,
    arguments: &RawValue,
    goes_on: &mut Option<String>,
) -> Outcome<String> {
    let mut text = ask(client, tool, arguments.get()).await?;
    // A person who calls this tool by hand wants to see the present state.
    while tool != pending::TOOL
        && let Some(call) = pending_call(&text)
    {
        let question = serde_json::json!({ "callId": &call, "wait": WAIT });
        *goes_on = Some(call);
        text = ask(client, pending::TOOL, &question.to_string()).await?;
    }
    Ok(text)
}

async fn ask(client: &Client, tool: &str, arguments: &str) -> Outcome<String> {
    let id = format!("cli_{}", uuid::Uuid::new_v4());
    let name = Value::from(tool);
    let body = format!("{{\"toolUseId\":\"{id}\",\"name\":{name},\"args\":{arguments}}}");
    client.post("/v1/tool-calls", HeaderMap::new(), Some(body)).await?.success()
}

/// The id of the call, if `text` says that it is a long call.
fn pending_call(text: &str) -> Option<String> {
    let answer: ToolResult = serde_json::from_str(text).ok()?;
    let result = answer.result.filter(|result| pending::is_first_answer(result))?;
    string_member(&result, "callId")
}

fn left(goes_on: Option<&str>) -> String {
    match goes_on {
        None => "given up: the call is cancelled; it may have taken effect".to_owned(),
        Some(call) => format!(
            "given up; the call continues in the bridge, which keeps its result for a day:\n  \
             mantyx-bridge call {} '{{\"callId\": \"{call}\"}}'",
            pending::TOOL
        ),
    }
}

#[cfg(test)]
mod tests {
    //! Which answers mean that a call goes on.

    use super::*;
    use crate::model::answer;
    use crate::model::ids::CallId;

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
