//! `mantyx-bridge call`: one tool of the running daemon, called by hand.
//!
//! Must not: make a call a second time.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::Value;
use serde_json::value::RawValue;

use super::terminal::inset;
use super::{
    Client, Failure, Outcome, Stop, complete, failures, or_stdin, parse, print, print_json, tools,
    waiting,
};
use crate::http::api::openapi::ToolResult;
use crate::http::api::status::Status;
use crate::model::answer::codes::TOOL_INPUT_INVALID;
use crate::model::{AppName, pending, question, string_member};
use crate::random;

/// How long each request for the result of a long call waits, in seconds.
const WAIT: u64 = 240;

/// The arguments of `call`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The name that the model sees; `mantyx-bridge tools` lists them
    #[arg(add = ArgValueCandidates::new(complete::tools))]
    tool: String,
    /// The arguments, each KEY=VALUE, or all of them as a JSON object; `-` reads that from stdin
    #[arg(value_name = "KEY=VALUE|JSON")]
    arguments: Vec<String>,
    /// The app of bridge.yaml as which the call is made, in place of one that may use the tool
    #[arg(long, value_name = "NAME")]
    pub(super) app: Option<String>,
    /// Prints the whole answer as JSON
    #[arg(long)]
    json: bool,
}

/// How far a call has come when its person gives it up.
#[derive(Debug, Default)]
struct Progress {
    /// The id of a long call, which continues.
    pending: Option<String>,
    /// The id of the approval that the call waits for.
    approval: Option<String>,
}

/// `mantyx-bridge call TOOL [KEY=VALUE… | JSON]`.
pub(super) async fn call(client: &Client, settings: &Settings, program: &str) -> Outcome {
    let Settings { tool, arguments, json, .. } = settings;
    let arguments = read(client, tool, arguments).await?;
    let request = Request {
        client,
        id: format!("cli_{}", random::uuid()),
        tool,
        app: app_for(client, tool).await?,
    };
    let mut stop = Stop::new()?;
    let Progress { mut pending, mut approval } = Progress::default();
    let text = tokio::select! {
        text = request.answer(&arguments, &mut pending) => text?,
        never = waiting::announce(
            client,
            program,
            |one| one.tool_use_id == request.id,
            &mut approval,
        ) => never,
        // The daemon cancels a call whose caller hangs up, unless it has got a first answer.
        () = stop.asked() => {
            return Err(request.given_up(program, &Progress { pending, approval }));
        }
    };
    let answer: ToolResult = parse(&text)?;
    if *json {
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

/// The app as which the call is made; `None`: the token or the user says so.
///
/// The app that may use most need not be one that may use this tool. The operator's call is made as
/// the first app that may.
async fn app_for(client: &Client, tool: &str) -> Outcome<Option<AppName>> {
    let Some(usual) = client.usual_app() else { return Ok(None) };
    if client.named_app().is_some() {
        return Ok(Some(usual.clone()));
    }
    let status: Status = parse(&client.as_operator("/v1/status").await?)?;
    let names = status.daemon.injected.into_iter().map(|injected| AppName::from(injected.app));
    let others: Vec<AppName> = names.filter(|name| name != usual).collect();
    if others.is_empty() || tools::app_has(client, usual, tool).await? {
        return Ok(Some(usual.clone()));
    }
    for app in others {
        if tools::app_has(client, &app, tool).await? {
            return Ok(Some(app));
        }
    }
    // The daemon says what is wrong with the name.
    Ok(Some(usual.clone()))
}

/// A call of this command.
struct Request<'a> {
    client: &'a Client,
    id: String,
    tool: &'a str,
    app: Option<AppName>,
}

impl Request<'_> {
    /// The final answer: waits for the result of a long call, as a person would. `pending` becomes
    /// the id of such a call.
    async fn answer(&self, arguments: &RawValue, pending: &mut Option<String>) -> Outcome<String> {
        let mut text = self.send(&self.id, self.tool, arguments.get()).await?;
        // A person who calls this tool by hand wants to see the present state.
        while self.tool != pending::TOOL
            && let Some(call) = pending_call(&text)
        {
            let question = serde_json::json!({ "callId": &call, "wait": WAIT });
            *pending = Some(call);
            let id = format!("cli_{}", random::uuid());
            text = self.send(&id, pending::TOOL, &question.to_string()).await?;
        }
        Ok(text)
    }

    async fn send(&self, id: &str, tool: &str, arguments: &str) -> Outcome<String> {
        let name = Value::from(tool);
        let body = format!("{{\"toolUseId\":\"{id}\",\"name\":{name},\"args\":{arguments}}}");
        self.client.call(body, self.app.as_ref()).await
    }

    /// What has become of a call whose person has waited long enough.
    fn given_up(&self, program: &str, progress: &Progress) -> Failure {
        match (&progress.pending, &progress.approval) {
            (Some(call), _) => {
                let app = match &self.app {
                    Some(app) => format!(" --app {app}"),
                    None => String::new(),
                };
                Failure::Failed(format!(
                    "given up; the call continues in the bridge, which keeps its result for a \
                     day:\n  {program} call {} callId={call}{app}",
                    pending::TOOL
                ))
            }
            (None, Some(id)) => failures::not_made(id),
            (None, None) => {
                let why = "given up: the call is cancelled; it may have taken effect";
                Failure::Failed(why.to_owned())
            }
        }
    }
}

/// The id of the call, if `text` says that it is a long call.
fn pending_call(text: &str) -> Option<String> {
    let answer: ToolResult = serde_json::from_str(text).ok()?;
    let result = answer.result.filter(|result| pending::is_first_answer(result))?;
    string_member(&result, "callId")
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
