//! `mantyx-bridge approvals`, `approve`, `answer` and `deny`: lists the calls that wait for a
//! person, decides them, and answers the questions of their servers.
//!
//! Must not: decide a call that a person has neither named by its whole id nor been shown.

mod choice;
mod watch;

use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::choice::{Choice, whole_id};
use super::client::segment;
use super::init::ask::Asker;
use super::page::{BAD, DOUBTFUL, HEADING, PLAIN, Page, away};
use super::waiting::{self, list, question_of, text_of};
use super::{
    Client, Failure, Outcome, Place, commands, failures, parse, print_json, print_page, terminal,
};
use crate::clock;
use crate::http::api::approvals::Shown;
use crate::model::loom::CONFIRMATION;
use crate::model::question;

#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    decision: Option<Decision>,
    /// Prints JSON, as GET /v1/approvals gives it; with --watch, one object a line
    #[arg(long)]
    json: bool,
    /// Shows each call as it begins to wait, and what becomes of it, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// The decisions, which are commands of their own and of `approvals`.
#[derive(Debug, Subcommand)]
pub(super) enum Decision {
    /// Lets the bridge make a call that waits, with the arguments that `approvals` shows
    #[command(after_help = include_str!("examples/approve.txt"))]
    Approve(Approve),
    /// Answers the question of a call's server
    #[command(after_help = include_str!("examples/answer.txt"))]
    Answer(Answer),
    /// Refuses a call that waits: the model gets an error. Declines the question of a call's server
    #[command(after_help = include_str!("examples/deny.txt"))]
    Deny(Deny),
}

#[derive(Debug, Args)]
pub(super) struct Approve {
    /// The id in the list; the call is made at once. Cut to its first characters, or left out where
    /// only one call waits, the call is shown first, and you are asked
    id: Option<String>,
    /// Why, for the log and the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Prints JSON: what became of the call's question
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Answer {
    /// The id in the list. Cut to its first characters, or left out where only one question waits,
    /// the question is shown first, and you are asked. Behind it, a field that the list shows, and
    /// its value; several values of a list one by one. Or all fields as JSON. For a question with a
    /// URL: none, once you have opened it
    #[arg(value_name = "ID|KEY=VALUE")]
    words: Vec<String>,
    /// Prints JSON: what became of the question
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Deny {
    /// The id in the list. Cut to its first characters, or left out where only one call waits, the
    /// call is shown first, and you are asked
    id: Option<String>,
    /// Why, for the model
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Prints JSON: what became of the call's question
    #[arg(long)]
    json: bool,
}

/// A decision as the command line gives it.
struct Request {
    choice: Choice,
    id: Option<String>,
    fields: Vec<String>,
    reason: Option<String>,
    json: bool,
}

impl Request {
    fn new(decision: Decision) -> Self {
        match decision {
            Decision::Approve(Approve { id, reason, json }) => {
                Self { choice: Choice::Approve, id, fields: Vec::new(), reason, json }
            }
            Decision::Deny(Deny { id, reason, json }) => {
                Self { choice: Choice::Deny, id, fields: Vec::new(), reason, json }
            }
            Decision::Answer(Answer { mut words, json }) => {
                // No id has these characters.
                let has_id = words.first().is_some_and(|word| !word.contains(['=', '{']));
                let id = if has_id { Some(words.remove(0)) } else { None };
                Self { choice: Choice::Answer, id, fields: words, reason: None, json }
            }
        }
    }
}

/// `mantyx-bridge approvals`. `program` is the command line of this daemon.
pub(super) async fn approvals(place: &Place, settings: Settings, program: &str) -> Outcome {
    let Settings { decision, json, watch } = settings;
    match decision {
        Some(_) if watch => {
            Err(Failure::Usage("--watch shows what waits, and decides nothing".to_owned()))
        }
        Some(decision) => decide(place, decision, json, program).await,
        None if watch => watch::watch(place, json, program).await,
        None => {
            let client = Client::new(place)?;
            if json {
                let text = client.get("/v1/approvals", client.operator()).await?;
                return print_json(&format!("{text}\n"));
            }
            print_page(&shown(&list(&client).await?.approvals, clock::now(), program))
        }
    }
}

/// `mantyx-bridge approve`, `answer` and `deny`.
///
/// The approvals are read to find out which one is meant; what becomes of it is decided by the
/// daemon, for the whole id and nothing else. A call that begins to wait in between is not touched.
/// An id that is cut or left out may be that of a call which the person has never seen: it is
/// shown, and decided once the person agrees.
pub(super) async fn decide(
    place: &Place,
    decision: Decision,
    json: bool,
    program: &str,
) -> Outcome {
    let client = Client::new(place)?;
    let Request { choice, id, fields, reason, json: own_json } = Request::new(decision);
    let approvals = list(&client).await?.approvals;
    let full_id = whole_id(&approvals, choice, id.as_deref(), program)?;
    let approval = approvals.iter().find(|approval| approval.id == full_id);
    // If it is no such question, the daemon says what it is.
    let question = approval.and_then(question_of).filter(|_| choice == Choice::Answer);
    let schema = question.as_ref().and_then(|question| question.get("requestedSchema"));
    // As it was typed: a `Value` would lose digits.
    let content = match schema {
        Some(schema) => question::typed(schema, &fields).map_err(Failure::Usage)?,
        None => "null".to_owned(),
    };
    if id.is_none_or(|id| id != full_id)
        && let Some(approval) = approval.filter(|approval| approval.state == "waiting")
    {
        agree_to(approval, choice, &fields, program)?;
    }
    let (verb, reason) = (choice.verb(), json!(reason));
    let body = format!(r#"{{"decision":"{verb}","reason":{reason},"content":{content}}}"#);
    let path = format!("/v1/approvals/{}", segment(&full_id));
    let text = client.post(&path, client.operator(), Some(body)).await?.success()?;
    if json || own_json {
        return print_json(&format!("{text}\n"));
    }
    let Shown { kind, state, name, .. } = parse(&text)?;
    let mut page = Page::default();
    page.note(PLAIN, format!("the {kind} of {name} is {state}"));
    print_page(&page)
}

/// Shows all that the decision covers, and asks the person for it. It goes to stderr, as the
/// question does: a program may read what stdout gets.
///
/// # Errors
///
/// The person does not agree, or there is no terminal to ask one.
fn agree_to(approval: &Shown, choice: Choice, fields: &[String], program: &str) -> Outcome {
    let mut page = Page::default();
    whole(approval, clock::now(), program, &mut page);
    terminal::complain_page(&page);
    if !terminal::has_person() {
        let words = [&[choice.verb().to_owned(), approval.id.clone()], fields].concat();
        return Err(failures::not_seen(format!("{program} {}", commands::line(&words))));
    }
    if Asker::at_terminal().agrees(choice.question())? {
        Ok(())
    } else {
        Err(failures::not_decided(&approval.id))
    }
}

fn shown(all: &[Shown], now: SystemTime, program: &str) -> Page {
    let mut page = Page::default();
    let waiting: Vec<&Shown> = all.iter().filter(|one| one.state == "waiting").collect();
    for one in &waiting {
        whole(one, now, program, &mut page);
        page.line(PLAIN, "");
    }
    if waiting.is_empty() {
        page.note(PLAIN, "No call waits for a person.");
    } else {
        page.note(PLAIN, format!("{program} approve ID, or deny ID --reason TEXT"));
    }
    page
}

/// What is asked about: a tool of a backend, or what another runtime asks to be confirmed.
fn subject(name: &str, backend: &str) -> String {
    if backend == CONFIRMATION {
        format!("confirmation of {name}")
    } else {
        format!("{name} of {backend}")
    }
}

/// One waiting question with everything that the decision covers, however long it is.
fn whole(one: &Shown, now: SystemTime, program: &str, page: &mut Page) {
    let run = one.run_id.as_ref().map_or_else(|| "by hand".into(), |run| format!("run {run}"));
    let since = away(&one.since, now);
    let remaining = away(&one.deadline, now);
    page.note(DOUBTFUL, &one.id);
    let Shown { name, backend, app, .. } = one;
    page.note(HEADING, format!("{}, app {app}, {run}", subject(name, backend)));
    page.note(PLAIN, format!("asked {since} ago, expires in {remaining}"));
    if let Some(why) = &one.asked_again {
        page.note(BAD, why);
    }
    // The daemon has already written out what a terminal does not show. Every space counts.
    page.verbatim(PLAIN, one.arguments_text.as_deref().unwrap_or_default());
    if let Some(asked) = question_of(one) {
        asked_by_server(one, &asked, program, page);
    }
}

/// The question of the call's server, with its fields and how to answer it.
fn asked_by_server(one: &Shown, asked: &Value, program: &str, page: &mut Page) {
    page.note(HEADING, format!("its server asks: {}", text_of(&asked["message"])));
    if asked["mode"] == "url" {
        let url = text_of(&asked["url"]);
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
    if let Some(flaw) = &one.flaw {
        page.note(BAD, format!("It can only be denied: {flaw}."));
    } else {
        page.note(PLAIN, waiting::command(program, one));
    }
}

#[cfg(test)]
mod tests;
