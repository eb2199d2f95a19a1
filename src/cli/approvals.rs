//! `mantyx-bridge approvals`: lists the calls that wait for a person, and decides them.
//!
//! Must not: decide a call that was not named.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    Outcome,
    client::{Client, parse},
    page::{Page, Paper, Style, away},
    print,
};
use crate::{
    config::Contact,
    http::api::approvals::{ApprovalList, Shown},
};

#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    decision: Option<Decision>,
    /// Prints JSON, as GET /v1/approvals gives it; of a decision, what became of the call's question
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Decision {
    /// Has the call made, with the arguments that are listed
    #[command(after_help = "Example: mantyx-bridge approvals approve apr_6f1d0b7a52c94e83a1b0c2d4")]
    Approve {
        /// The id in the list
        id: String,
        /// Why, for the log and the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Has the call answered with an error
    #[command(after_help = "Example: mantyx-bridge approvals deny apr_6f1d0b7a52c94e83a1b0c2d4 \
                            --reason 'Use the test server.'")]
    Deny {
        /// The id in the list
        id: String,
        /// Why, for the model
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// `mantyx-bridge approvals [approve ID | deny ID]`.
pub(super) async fn approvals(contact: &Contact, settings: Settings) -> Outcome {
    let client = Client::new(contact)?;
    let (decision, id, reason) = match settings.decision {
        None => {
            let text = client.get("/v1/approvals", client.operator()).await?;
            if settings.json {
                return print(&format!("{text}\n"));
            }
            let list: ApprovalList = parse(&text)?;
            return print(&shown(&list.approvals, SystemTime::now(), Paper::stdout()));
        }
        Some(Decision::Approve { id, reason }) => ("approve", id, reason),
        Some(Decision::Deny { id, reason }) => ("deny", id, reason),
    };
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    let body = json!({ "decision": decision, "reason": reason }).to_string();
    let path = format!("/v1/approvals/{id}");
    let text = client.post(&path, client.operator(), Some(body)).await?.success()?;
    if settings.json {
        return print(&format!("{text}\n"));
    }
    let Shown { state, name, .. } = parse(&text)?;
    let mut page = Page::default();
    page.note(Style::Plain, format!("the call of {name} is {state}"));
    print(&page.text(Paper::stdout()))
}

fn shown(all: &[Shown], now: SystemTime, paper: Paper) -> String {
    let waiting = all.iter().filter(|one| one.state == "waiting");
    let mut text: String = waiting.map(|one| whole(one, now, paper)).collect();
    text.push_str(match text.is_empty() {
        true => "No call waits for a person.\n",
        false => "mantyx-bridge approvals approve ID, or approvals deny ID --reason TEXT\n",
    });
    text
}

/// One waiting question with everything that the decision covers, however long it is.
fn whole(one: &Shown, now: SystemTime, paper: Paper) -> String {
    let run = one.run_id.as_ref().map_or_else(|| "by hand".into(), |run| format!("run {run}"));
    let since = away(&one.since, now);
    let left = away(&one.deadline, now);
    let mut page = Page::default();
    page.note(Style::Doubtful, &one.id);
    let Shown { name, backend, app, .. } = one;
    page.note(Style::Heading, format!("{name} of {backend}, app {app}, {run}"));
    page.note(Style::Plain, format!("asked {since} ago, denied by itself in {left}"));
    // The daemon has already escaped characters that are unsafe on a terminal. Every space
    // counts.
    let arguments = one.arguments_text.as_deref().unwrap_or_default();
    format!("{}{arguments}\n\n", page.text(paper))
}

#[cfg(test)]
mod tests {
    //! What a person reads before deciding.

    use super::*;

    #[test]
    fn whole_arguments_of_calls_that_wait() {
        let now = humantime::parse_rfc3339("2026-01-01T00:01:15Z").unwrap();
        let text = r#"{"mayDecide":true,"approvals":[
            {"id":"apr_1","state":"waiting","app":"a","runId":"run_1","toolUseId":"u","tool":"","argumentsSha256":"","name":"fs_rm","backend":"fs",
             "argumentsText":"{\"path\":  \"/srv\"}","since":"2026-01-01T00:01:05.300Z",
             "deadline":"2026-01-01T00:05:20.000Z","decidedAt":null,"reason":null},
            {"id":"apr_2","state":"waiting","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
             "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z",
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_0","state":"denied","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
             "since":"2026-01-01T00:00:00.000Z","deadline":"2026-01-01T00:04:00.000Z",
             "decidedAt":"2026-01-01T00:01:00.000Z","reason":"Not\ntoday."}]}"#;
        let list: ApprovalList = parse(text).unwrap_or_else(|error| panic!("{error:?}"));
        let paper = Paper { colours: false, columns: Some(40) };
        let expected = r#"apr_1
fs_rm of fs, app a, run run_1
asked 9s ago, denied by itself in 4m 5s
{"path":  "/srv"}

apr_2
hr of hr, app b, by hand
asked 0s ago, denied by itself in 1s
{}

mantyx-bridge approvals approve ID, or approvals deny ID --reason TEXT
"#;
        assert_eq!(shown(&list.approvals, now, paper), expected);
        assert_eq!(shown(&[], now, paper), "No call waits for a person.\n");
    }
}
