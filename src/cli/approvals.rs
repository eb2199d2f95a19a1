//! `mantyx-bridge approvals`: lists the calls that wait for a person, decides them, and answers the
//! questions of their servers.
//!
//! Must not: decide a call that was not named.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::page::{BAD, DOUBTFUL, HEADING, PLAIN, Page, away};
use super::{Client, Failure, Outcome, Place, parse, print_json, print_page};
use crate::clock;
use crate::http::api::approvals::{ApprovalList, Shown};
use crate::model::loom::CONFIRMATION;
use crate::model::{question, string_member};

#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    decision: Option<Decision>,
    /// Prints JSON, as GET /v1/approvals gives it; of a decision, what became of the call's
    /// question
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Decision {
    /// Lets the bridge make the call, with the arguments that the list shows
    #[command(after_help = "Example: mantyx-bridge approvals approve apr_6f1d0b7a52c94e83a1b0c2d4")]
    Approve {
        /// The id in the list
        id: String,
        /// Why, for the log and the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Answers the question of the call's server
    #[command(after_help = include_str!("examples/answer.txt"))]
    Answer {
        /// The id in the list
        id: String,
        /// A field that the list shows, and its value; several values of a list one by one. Or all
        /// fields as JSON. For a question with a URL: none, once you have opened it
        #[arg(value_name = "KEY=VALUE")]
        fields: Vec<String>,
    },
    /// Refuses the call: the model gets an error. Declines the question of a call's server
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

/// `mantyx-bridge approvals [approve ID | answer ID | deny ID]`.
pub(super) async fn approvals(place: &Place, settings: Settings) -> Outcome {
    let client = Client::new(place)?;
    let mut content = None;
    let (decision, id, reason) = match settings.decision {
        None => {
            let text = client.get("/v1/approvals", client.operator()).await?;
            if settings.json {
                return print_json(&format!("{text}\n"));
            }
            let list: ApprovalList = parse(&text)?;
            return print_page(&shown(&list.approvals, clock::now()));
        }
        Some(Decision::Approve { id, reason }) => ("approve", id, reason),
        Some(Decision::Deny { id, reason }) => ("deny", id, reason),
        Some(Decision::Answer { id, fields }) => {
            let text = client.get("/v1/approvals", client.operator()).await?;
            let list: ApprovalList = parse(&text)?;
            let question = list.approvals.iter().find(|one| one.id == id).and_then(question_of);
            // If it is no such question, the daemon says what it is.
            if let Some(schema) =
                question.as_ref().and_then(|question| question.get("requestedSchema"))
            {
                content = Some(question::typed(schema, &fields).map_err(Failure::Usage)?);
            }
            ("answer", id, None)
        }
    };
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    let reason = json!(reason);
    // As it was typed: a `Value` would lose digits.
    let content = content.as_deref().unwrap_or("null");
    let body = format!(r#"{{"decision":"{decision}","reason":{reason},"content":{content}}}"#);
    let path = format!("/v1/approvals/{id}");
    let text = client.post(&path, client.operator(), Some(body)).await?.success()?;
    if settings.json {
        return print_json(&format!("{text}\n"));
    }
    let Shown { kind, state, name, .. } = parse(&text)?;
    let mut page = Page::default();
    page.note(PLAIN, format!("the {kind} of {name} is {state}"));
    print_page(&page)
}

fn shown(all: &[Shown], now: SystemTime) -> Page {
    let mut page = Page::default();
    let waiting: Vec<&Shown> = all.iter().filter(|one| one.state == "waiting").collect();
    for one in &waiting {
        whole(one, now, &mut page);
    }
    page.note(
        PLAIN,
        match waiting.is_empty() {
            true => "No call waits for a person.",
            false => "mantyx-bridge approvals approve ID, or approvals deny ID --reason TEXT",
        },
    );
    page
}

/// One waiting question with everything that the decision covers, however long it is.
fn whole(one: &Shown, now: SystemTime, page: &mut Page) {
    let run = one.run_id.as_ref().map_or_else(|| "by hand".into(), |run| format!("run {run}"));
    let since = away(&one.since, now);
    let remaining = away(&one.deadline, now);
    page.note(DOUBTFUL, &one.id);
    let Shown { name, backend, app, .. } = one;
    let what = if backend == CONFIRMATION {
        format!("confirmation of {name}")
    } else {
        format!("{name} of {backend}")
    };
    page.note(HEADING, format!("{what}, app {app}, {run}"));
    page.note(PLAIN, format!("asked {since} ago, expires in {remaining}"));
    if let Some(why) = &one.asked_again {
        page.note(BAD, why);
    }
    // The daemon has already written out what a terminal does not show. Every space counts.
    page.verbatim(PLAIN, one.arguments_text.as_deref().unwrap_or_default());
    if let Some(asked) = question_of(one) {
        asked_by_server(one, &asked, page);
    }
    page.line(PLAIN, "");
}

/// What the server asks, if it does.
fn question_of(one: &Shown) -> Option<Value> {
    let question = one.question.as_ref()?.get();
    // One that is nested too deep to be parsed has a `flaw`, and a message all the same.
    let params = serde_json::from_str(question);
    Some(params.unwrap_or_else(|_| json!({"message": string_member(question, "message")})))
}

/// The question of the call's server, with its fields and how to answer it.
fn asked_by_server(one: &Shown, asked: &Value, page: &mut Page) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    page.note(HEADING, format!("its server asks: {}", text(&asked["message"])));
    if asked["mode"] == "url" {
        let url = text(&asked["url"]);
        page.note(PLAIN, format!("open {url}"));
        // As a browser reads it: the text may look like another host's.
        if let Some(host) = url::Url::parse(&url).ok().as_ref().and_then(url::Url::host_str) {
            page.note(DOUBTFUL, format!("its host is {host}"));
        }
    }
    let schema = &asked["requestedSchema"];
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let mark = if required { "required " } else { "" };
        page.verbatim(PLAIN, &format!("  {name}: {mark}{field}"));
    }
    match &one.flaw {
        Some(flaw) => page.note(BAD, format!("It can only be denied: {flaw}.")),
        None => {
            let fields = if asked["mode"] == "url" { "" } else { " KEY=VALUE …" };
            page.note(PLAIN, format!("mantyx-bridge approvals answer {}{fields}", one.id));
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a person reads before deciding.

    use super::*;
    use crate::cli::page::Paper;

    #[test]
    fn whole_arguments_of_calls_that_wait() {
        let now = humantime::parse_rfc3339("2026-01-01T00:01:15Z").unwrap();
        let text = r#"{"mayDecide":true,"approvals":[
            {"id":"apr_1","state":"waiting","kind":"call","app":"a","runId":"run_1","toolUseId":"u","tool":"","argumentsSha256":"","name":"fs_rm","backend":"fs",
             "argumentsText":"{\"path\":  \"/srv\"}","since":"2026-01-01T00:01:05.300Z",
             "deadline":"2026-01-01T00:05:20.000Z","decidedAt":null,"reason":null},
            {"id":"apr_2","state":"waiting","kind":"call","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
             "argumentsText":"{}","askedAgain":"Its tool has changed.","since":"2026-01-01T00:01:15.000Z",
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_3","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
             "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z",
             "question":{"message":"Who\n\u202e?","requestedSchema":{"type":"object","required":["who"],"properties":{
               "tags":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b"}]},"default":["a"]},
               "who":{"type":"string","enum":["Ada","Bob"],"description":"A name"}}}},
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_4","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
             "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z","flaw":"its `url` is odd",
             "question":{"message":"Go","mode":"url","url":"javascript:x"},
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_5","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
             "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z",
             "question":{"message":"Go","mode":"url","url":"https://a.example@B.example\\@c"},
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_6","state":"waiting","kind":"question","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"ask","backend":"ask",
             "argumentsText":"{}","since":"2026-01-01T00:01:15.000Z","flaw":"it is nested too deep",
             "question":{"message":"Deep?","requestedSchema":DEEP},
             "deadline":"2026-01-01T00:01:16.900Z","decidedAt":null,"reason":null},
            {"id":"apr_0","state":"denied","kind":"call","app":"b","runId":null,"toolUseId":"u","tool":"","argumentsSha256":"","name":"hr","backend":"hr",
             "since":"2026-01-01T00:00:00.000Z","deadline":"2026-01-01T00:04:00.000Z",
             "decidedAt":"2026-01-01T00:01:00.000Z","reason":"Not\ntoday."}]}"#;
        let text = text.replace("DEEP", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
        let list: ApprovalList = parse(&text).unwrap_or_else(|error| panic!("{error:?}"));
        let paper = Paper { colours: false, columns: Some(40) };
        let expected = r#"apr_1
fs_rm of fs, app a, run run_1
asked 9s ago, expires in 4m 5s
{"path":  "/srv"}

apr_2
hr of hr, app b, by hand
asked 0s ago, expires in 1s
Its tool has changed.
{}

apr_3
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Who �?
  tags: {"default":["a"],"items":{"anyOf":[{"const":"a","title":"A"},{"const":"b"}]},"type":"array"}
  who: required {"description":"A name","enum":["Ada","Bob"],"type":"string"}
mantyx-bridge approvals answer apr_3 KEY=VALUE …

apr_4
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Go
open javascript:x
It can only be denied: its `url` is odd.

apr_5
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Go
open https://a.example@B.example\@c
its host is b.example
mantyx-bridge approvals answer apr_5

apr_6
ask of ask, app b, by hand
asked 0s ago, expires in 1s
{}
its server asks: Deep?
It can only be denied: it is nested too deep.

mantyx-bridge approvals approve ID, or approvals deny ID --reason TEXT
"#;
        assert_eq!(shown(&list.approvals, now).text(paper), expected);
        assert_eq!(shown(&[], now).text(paper), "No call waits for a person.\n");
    }
}
