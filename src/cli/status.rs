//! `mantyx-bridge status`: shows the running daemon and its backends, once or again every second.
//!
//! Must not: know how the daemon works.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::page::{BAD, DOUBTFUL, GOOD, HEADING, PLAIN, Page, Piece, away, counted};
use super::terminal::print_in_place;
use super::{Client, Failure, Outcome, Stop, complain, parse, print_json, print_page};
use crate::backend::Remark;
use crate::clock;
use crate::http::api::problems::Problem;
use crate::http::api::status::{Backend, Daemon, Runtime, Status, Upstream};

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The interval of requests.
const EVERY: Duration = Duration::from_secs(1);
/// The titles of what [`row`] has.
const COLUMNS: [&str; 9] =
    ["BACKEND", "STATE", "TOOLS", "IN FLIGHT", "CALLS/H", "ERRORS", "P95", "REFRESHED", "SPEAKS"];

/// `mantyx-bridge status`.
pub(super) async fn status(client: &Client, json: bool, watch: bool) -> Outcome {
    let first = asked(client, json).await?;
    match (watch, json) {
        (true, _) => repeat(client, first, json).await,
        (false, true) => print_json(&format!("{}\n", first[0])),
        (false, false) => print_page(&shown(&first)?),
    }
}

/// `mantyx-bridge status --check`: the problems, and the backends that are down.
pub(super) async fn check(client: &Client) -> Outcome {
    let status: Status = parse(&client.view("/v1/status").await?)?;
    let mut page = Page::default();
    tell(&status.daemon.problems, &mut page);
    let silent: Vec<&Backend> = without_a_problem(&status).collect();
    for backend in &silent {
        page.space();
        page.note(BAD, format!("{}: it is down", backend.name));
    }
    print_page(&page)?;
    if status.daemon.problems.is_empty() && silent.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(String::new()))
}

/// The backends that are down, and that no problem is about: a monitor must not take them for well.
fn without_a_problem(status: &Status) -> impl Iterator<Item = &Backend> {
    let problems = &status.daemon.problems;
    status.backends.iter().filter(|backend| {
        backend.state == "down" && !problems.iter().any(|problem| problem.subject == backend.name)
    })
}

/// The calls of a backend in the last hour, as far as the daemon remembers them.
#[derive(Debug, Default)]
struct Recent {
    /// How long each took, in milliseconds.
    times: Vec<u64>,
    errors: usize,
}

impl Recent {
    /// Those of each backend.
    fn read(calls: &str, now: SystemTime) -> BTreeMap<String, Self> {
        let calls: Value = serde_json::from_str(calls).unwrap_or_default();
        let mut all: BTreeMap<String, Self> = BTreeMap::new();
        for call in calls["calls"].as_array().into_iter().flatten() {
            let text = |key: &str| call[key].as_str().unwrap_or_default();
            let start = humantime::parse_rfc3339(text("startedAt")).unwrap_or(now);
            let recent = now.duration_since(start).is_ok_and(|past| past < HOUR);
            if !recent || text("state") != "answered" {
                continue;
            }
            if let Some(ms) = call["ms"].as_u64() {
                let backend = all.entry(text("backend").to_owned()).or_default();
                backend.times.push(ms);
                backend.errors += usize::from(text("outcome") == "error");
            }
        }
        all.values_mut().for_each(|recent| recent.times.sort_unstable());
        all
    }

    fn p95(&self) -> String {
        let at = (self.times.len() * 95 / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
    }
}

/// What the daemon has answered: its status, and its latest calls.
async fn asked(client: &Client, json: bool) -> Outcome<[String; 2]> {
    let status = client.view("/v1/status").await?;
    let calls =
        if json { String::new() } else { client.get("/v1/calls", client.operator()).await? };
    Ok([status, calls])
}

/// One answer of the daemon, for people.
fn shown([text, calls]: &[String; 2]) -> Outcome<Page> {
    let now = clock::now();
    Ok(page(&parse(text)?, &Recent::read(calls, now), now))
}

/// Prints the state again every second, with the time above it: in place on a terminal, else block
/// after block. As JSON, one line for each.
async fn repeat(client: &Client, first: [String; 2], json: bool) -> Outcome {
    let mut stop = Stop::new()?;
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    let mut answer = Ok(first);
    loop {
        let now = humantime::format_rfc3339_seconds(clock::now());
        match &answer {
            Ok([text, _]) if json => print_json(&format!("{text}\n"))?,
            Ok(answer) => {
                let mut page = Page::default();
                page.line(PLAIN, now.to_string());
                page.append(shown(answer)?);
                page.line(PLAIN, "");
                print_in_place(&page)?;
            }
            // The daemon may come back.
            Err(Failure::Failed(why)) => complain(why),
            Err(_) => return answer.map(drop),
        }
        let next = async {
            tick.tick().await;
            asked(client, json).await
        };
        answer = tokio::select! {
            () = stop.asked() => return Ok(()),
            answer = next => answer,
        };
    }
}

fn page(status: &Status, recent: &BTreeMap<String, Recent>, now: SystemTime) -> Page {
    let Status { version, daemon, backends, .. } = status;
    let Daemon { upstream, runs, approvals, runtimes, injected, problems, replicas, .. } = daemon;
    let mut page = Page::default();
    let up = humantime::format_duration(Duration::from_secs(status.uptime_seconds));
    page.line(HEADING, format!("mantyx-bridge {version}, up {up}"));
    let Upstream { base_url, workspace, reachable, last_error, .. } = upstream;
    let (style, reachable) = match reachable {
        Some(true) => (PLAIN, "reachable"),
        Some(false) => (BAD, "not reachable"),
        None => (PLAIN, "not asked yet"),
    };
    let workspace = match workspace {
        Some(name) => format!(", workspace {name}"),
        None => String::new(),
    };
    page.line(style, format!("upstream {base_url} ({reachable}){workspace}"));
    page.line(PLAIN, format!("{} driven", counted(runs.driven, "run")));
    if !replicas.is_empty() {
        let hosts: Vec<&str> = replicas.iter().map(|replica| replica.host.as_str()).collect();
        page.line(PLAIN, format!("{}: {}", counted(hosts.len(), "replica"), hosts.join(", ")));
    }
    let waiting = approvals.waiting;
    if waiting > 0 {
        let calls = if waiting == 1 { "call waits" } else { "calls wait" };
        page.line(DOUBTFUL, format!("{waiting} {calls} for a person: mantyx-bridge approvals"));
    }
    for Runtime { name, kind, state, open_calls, .. } in runtimes {
        let style = if state == "down" { BAD } else { PLAIN };
        page.line(style, format!("runtime {name} ({kind}): {state}, open calls: {open_calls}"));
    }
    if let Some(error) = last_error {
        page.note(PLAIN, format!("last upstream error: {error}"));
    }
    page.line(PLAIN, "");
    let rows =
        backends.iter().map(|backend| row(backend, recent.get(&backend.name), now)).collect();
    page.table(COLUMNS, rows);
    outputs(backends, &mut page);
    remark(backends, &mut page);
    if injected.iter().any(|one| one.cost.tools + one.cost.searched > 0) {
        page.line(PLAIN, "");
    }
    for one in injected.iter().filter(|one| one.cost.tools + one.cost.searched > 0) {
        page.note(PLAIN, format!("each run of {}: {}", one.app, one.cost));
    }
    tell(problems, &mut page);
    page
}

/// What is odd about backends that work.
fn remark(backends: &[Backend], page: &mut Page) {
    for Backend { name, remark, .. } in backends {
        if let Some(Remark { message, cure, .. }) = remark {
            page.line(PLAIN, "");
            page.note(DOUBTFUL, format!("{name}: {message}"));
            page.note(PLAIN, cure);
        }
    }
}

/// What programs that start have printed last.
fn outputs(backends: &[Backend], page: &mut Page) {
    for Backend { name, last_output, .. } in backends {
        if let Some(line) = last_output {
            page.line(PLAIN, "");
            page.note(PLAIN, format!("{name} starts; it has printed last: {line}"));
        }
    }
}

fn tell(problems: &[Problem], page: &mut Page) {
    for Problem { subject, message, cure } in problems {
        page.space();
        page.note(BAD, format!("{subject}: {message}"));
        page.note(PLAIN, format!("cure: {cure}"));
    }
}

fn row(backend: &Backend, recent: Option<&Recent>, now: SystemTime) -> [Piece; 9] {
    let none = Recent::default();
    let recent = recent.unwrap_or(&none);
    let style = match backend.state.as_str() {
        "ready" | "idle" => GOOD,
        "down" => BAD,
        _ => DOUBTFUL,
    };
    let stale = if backend.stale { " (stale)" } else { "" };
    let queued = if backend.queued { ", waits for its turn" } else { "" };
    // One that works has no need to say for how long.
    let lasting = match &backend.since {
        Some(since) if backend.state != "ready" => format!(" for {}", away(since, now)),
        _ => String::new(),
    };
    let ago = match &backend.last_refresh {
        Some(at) => format!("{} ago", away(at, now)),
        None => "never".to_owned(),
    };
    let speaks = match &backend.protocol_version {
        Some(version) => format!("{} {version}, {}", backend.kind, backend.transport),
        None if backend.kind == backend.transport => backend.kind.clone(),
        None => format!("{}, {}", backend.kind, backend.transport),
    };
    let plain = |text: String| (PLAIN, text);
    [
        plain(backend.name.clone()),
        (style, format!("{}{lasting}{queued}{stale}", backend.state)),
        plain(match backend.pin.withdrawn {
            0 => backend.tools.to_string(),
            withdrawn => {
                format!("{} of {}", backend.tools.saturating_sub(withdrawn), backend.tools)
            }
        }),
        plain(backend.calls_in_flight.to_string()),
        plain(recent.times.len().to_string()),
        (if recent.errors > 0 { BAD } else { PLAIN }, recent.errors.to_string()),
        plain(recent.p95()),
        plain(ago),
        plain(speaks),
    ]
}

#[cfg(test)]
mod tests;
