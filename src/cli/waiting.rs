//! What waits for a person, as the commands tell of it: what is asked, and the command that
//! decides.
//!
//! Must not: decide, or show a peer's text as a line of the bridge's.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::terminal::one_line;
use super::{Client, Outcome, complain, parse};
use crate::http::api::approvals::{ApprovalList, Shown};
use crate::model::maps::HashSet;
use crate::model::string_member;

/// How often a command that waits for an answer reads the approvals.
const LOOK: Duration = Duration::from_secs(1);

/// All approvals that this user may see.
pub(super) async fn list(client: &Client) -> Outcome<ApprovalList> {
    parse(&client.get("/v1/approvals", client.operator()).await?)
}

/// What the server of a call asks, if it does.
pub(super) fn question_of(approval: &Shown) -> Option<Value> {
    let question = approval.question.as_ref()?.get();
    // One that is nested too deep to be parsed has a `flaw`, and a message all the same.
    let params = serde_json::from_str(question);
    Some(params.unwrap_or_else(|_| json!({"message": string_member(question, "message")})))
}

/// A member of a question as text.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The command that decides, where it can only be denied, too. `program` is the command line of
/// this daemon.
pub(super) fn command(program: &str, approval: &Shown) -> String {
    let id = &approval.id;
    if approval.flaw.is_some() {
        return format!("{program} deny {id}");
    }
    match question_of(approval) {
        None => format!("{program} approve {id}"),
        Some(question) if question["mode"] == "url" => format!("{program} answer {id}"),
        Some(_) => format!("{program} answer {id} KEY=VALUE …"),
    }
}

/// Says that a call waits for a person, with the command that decides. A person who may not decide
/// here would only get a refusal from that command, so the text names who may.
fn announcement(program: &str, approval: &Shown, may_decide: bool) -> String {
    let name = &approval.name;
    let what = match question_of(approval) {
        None => format!("{name} waits for a person"),
        Some(question) => {
            let message = one_line(&text_of(&question["message"]));
            let wish = match &question["url"] {
                Value::Null => fields(&question["requestedSchema"]),
                url => format!("; open {}", one_line(&text_of(url))),
            };
            format!("{name} waits for a person: its server asks: {message}{wish}")
        }
    };
    let flaw = match &approval.flaw {
        Some(flaw) => format!("; it can only be denied: {}", one_line(flaw)),
        None => String::new(),
    };
    let decider = if may_decide {
        ""
    } else {
        "\n(for a user who can read the operator's secret in the state directory of the daemon)"
    };
    // The command decides at once, so what it decides stands before it.
    let arguments = match (&approval.question, &approval.arguments_text) {
        (None, Some(text)) => format!("\n  {}", one_line(text)),
        _ => String::new(),
    };
    format!("{what}{flaw}{arguments}\n  {}{decider}", command(program, approval))
}

/// The names of a question's fields.
fn fields(schema: &Value) -> String {
    let names: Vec<&str> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", one_line(&names.join(", "))) }
}

/// Says once of each approval of a call that `belongs` to this command that it waits; never ends.
/// `waits` is the id of the one that waits now.
pub(super) async fn announce<T>(
    client: &Client,
    program: &str,
    belongs: impl Fn(&Shown) -> bool,
    waits: &mut Option<String>,
) -> T {
    let mut ids = HashSet::default();
    loop {
        sleep(LOOK).await;
        // Whoever waits for the call hears of a daemon that is gone.
        let Ok(ApprovalList { approvals, may_decide }) = list(client).await else { continue };
        let own = approvals.iter().filter(|one| one.state == "waiting" && belongs(one));
        *waits = None;
        for approval in own {
            *waits = Some(approval.id.clone());
            if ids.insert(approval.id.clone()) {
                complain(&announcement(program, approval, may_decide));
            }
        }
    }
}

#[cfg(test)]
mod tests;
