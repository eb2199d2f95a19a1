//! `mantyx-bridge trust`: shows how backends differ from what the operator has accepted, and
//! accepts that.
//!
//! Must not: accept anything that it does not show, or that differs from what was looked at before.

use clap::{Args, Subcommand};
use serde_json::json;

use super::page::{BAD, DOUBTFUL, GOOD, HEADING, PLAIN, Page, counted};
use super::{Client, Outcome, Place, failures, parse, print, print_json, print_page};
use crate::http::api::trust::{Found, Pinned, Trust};
use crate::model::pin::INSTRUCTIONS;
use crate::model::visible;

/// How many digits of a digest are shown.
const SHORT: usize = 16;

/// The arguments of `trust`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Settings {
    /// Only this backend
    backend: Option<String>,
    /// Prints JSON, as GET /v1/trust gives it
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Accepts what a backend shows now; needs to read the daemon's state directory
    #[command(after_help = "Example: mantyx-bridge trust accept demo demo_add --digest 3f8a1c20")]
    Accept(Acceptance),
}

#[derive(Debug, Args)]
struct Acceptance {
    /// The backend that shows it
    backend: String,
    /// The tools, by the server's own names, as `mantyx-bridge trust` shows them
    #[arg(required_unless_present_any = ["all", "instructions"], conflicts_with = "all")]
    tools: Vec<String>,
    /// The instructions of an MCP server
    #[arg(long, conflicts_with = "all")]
    instructions: bool,
    /// All that `mantyx-bridge trust BACKEND` shows
    #[arg(long)]
    all: bool,
    /// Only if it still is what was looked at: the digest that `mantyx-bridge trust` showed, or 8
    /// digits of it
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    digest: Option<String>,
    /// Prints JSON, as POST /v1/trust/BACKEND gives it
    #[arg(long)]
    json: bool,
}

fn digest(text: &str) -> Result<String, String> {
    if text.len() < 8 || !text.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err("8 or more hex digits".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

/// `mantyx-bridge trust`.
pub(super) async fn trust(place: &Place, settings: Settings) -> Outcome {
    let client = Client::new(place)?;
    match settings.action {
        Some(Action::Accept(acceptance)) => accept(&client, acceptance).await,
        None => show(&client, settings.backend.as_deref(), settings.json).await,
    }
}

async fn show(client: &Client, backend: Option<&str>, json: bool) -> Outcome {
    let text = client.get("/v1/trust", client.operator()).await?;
    if json && backend.is_none() {
        return print_json(&format!("{text}\n"));
    }
    let Trust { backends } = parse(&text)?;
    let selection = match backend {
        Some(name) => vec![find(backends, name)?],
        None => backends,
    };
    if json {
        return print_json(&format!("{}\n", json!({ "backends": selection })));
    }
    let mut page = Page::default();
    if selection.is_empty() {
        page.line(PLAIN, "There is no MCP server and no A2A agent.");
    }
    for (at, one) in selection.iter().enumerate() {
        if at > 0 {
            page.line(PLAIN, "");
        }
        write(one, &mut page);
        write_cure(one, &mut page);
    }
    print_page(&page)
}

fn find(backends: Vec<Pinned>, name: &str) -> Outcome<Pinned> {
    let names: Vec<String> = backends.iter().map(|one| one.name.clone()).collect();
    backends
        .into_iter()
        .find(|one| one.name == name)
        .ok_or_else(|| failures::no_pinned(name, names.join(", ")))
}

async fn accept(client: &Client, mut wanted: Acceptance) -> Outcome {
    if wanted.instructions {
        wanted.tools.push(INSTRUCTIONS.to_owned());
    }
    let operator = client.operator();
    let Trust { backends } = parse(&client.get("/v1/trust", operator.clone()).await?)?;
    let pinned = find(backends, &wanted.backend)?;
    if wanted.digest.as_ref().is_some_and(|digest| !pinned.digest.starts_with(digest)) {
        return Err(failures::has_changed(&pinned.name));
    }
    if pinned.findings.is_empty() && wanted.all && !wanted.json {
        return print(&format!("{}: there is nothing to accept\n", pinned.name));
    }
    let (accepted, open): (Vec<Found>, Vec<Found>) =
        pinned.findings.into_iter().partition(|finding| match &finding.tool {
            _ if wanted.all => true,
            tool => wanted.tools.contains(tool.as_ref().unwrap_or(&INSTRUCTIONS.to_owned())),
        });
    let accept = if wanted.all { json!("all") } else { json!(wanted.tools) };
    let body = json!({ "accept": accept, "digest": pinned.digest }).to_string();
    let path = format!("/v1/trust/{}", pinned.name);
    let text = client.post(&path, operator, Some(body)).await?.success()?;
    let now: Pinned = parse(&text)?;
    if wanted.json {
        print_json(&format!("{text}\n"))?;
    } else {
        let mut page = Page::default();
        for one in &accepted {
            write_found(one, &mut page);
        }
        let rest = if open.is_empty() { String::new() } else { format!(", {} left", open.len()) };
        let is_of_tools = accepted.iter().all(|one| one.subject != "instructions");
        let count = counted(accepted.len(), if is_of_tools { "tool" } else { "difference" });
        page.note(GOOD, format!("{}: accepted {count}{rest}", now.name));
        print_page(&page)?;
    }
    match now.unkept {
        None => Ok(()),
        Some(why) => Err(failures::not_kept(why)),
    }
}

fn write(pinned: &Pinned, page: &mut Page) {
    let Pinned { name, mode, accepted, findings, damaged, unkept, .. } = pinned;
    if mode == "off" {
        page.note(HEADING, format!("{name} (pin: off): changes are not checked"));
        return;
    }
    let open = findings.iter().filter(|found| found.change != "gone").count();
    let state = match (open, damaged) {
        (0, None) if *accepted == 0 => "nothing of it was seen yet".to_owned(),
        (0, None) => format!("{accepted} as accepted"),
        _ => format!("{accepted} as accepted, {open} not"),
    };
    page.note(HEADING, format!("{name} (pin: {mode}): {state}"));
    if let Some(why) = damaged {
        page.note(BAD, format!("the accepted tools cannot be read: {why}"));
    }
    if let Some(why) = unkept {
        page.note(BAD, format!("the accepted tools are not on disk: {why}"));
    }
    for found in findings {
        page.line(PLAIN, "");
        write_found(found, page);
    }
}

fn write_cure(pinned: &Pinned, page: &mut Page) {
    if pinned.findings.is_empty() {
        return;
    }
    let short = pinned.digest.get(..SHORT).unwrap_or(&pinned.digest);
    let name = &pinned.name;
    page.line(PLAIN, "");
    page.note(
        PLAIN,
        format!("accept it: mantyx-bridge trust accept {name} --all --digest {short}"),
    );
}

fn write_found(found: &Found, page: &mut Page) {
    let Found { subject, tool, change, withdrawn, hidden, diff } = found;
    let tool = match tool {
        Some(tool) => visible::shown(tool),
        None => format!("the {subject}"),
    };
    let offered = match (change.as_str(), withdrawn) {
        ("gone", _) => "",
        (_, true) => ", withdrawn",
        (_, false) => ", offered all the same",
    };
    let hidden = match hidden.as_slice() {
        [] => String::new(),
        some => format!("; with invisible characters: {}", some.join(" ")),
    };
    let style = if *withdrawn { BAD } else { DOUBTFUL };
    page.note(style, format!("{tool}: {change}{offered}{hidden}"));
    for line in diff {
        let style = match line.chars().next() {
            Some('+') => GOOD,
            Some('-') => BAD,
            _ => PLAIN,
        };
        page.verbatim(style, line);
    }
}
