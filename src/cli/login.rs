//! `mantyx-bridge login`, `logout` and `logins`: what a person grants the bridge at the issuer of a
//! backend's tokens.
//!
//! Must not: exchange or show a token; the daemon does the one, and nothing the other.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use clap_complete::ArgValueCandidates;
use http::{Method, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::segment;
use super::open::open_browser;
use super::page::{BAD, DOUBTFUL, GOOD, PLAIN, Page, away, counted};
use super::terminal::plain;
use super::{Client, Outcome, Place, complete, failures, parse, print, print_json, print_page};
use crate::clock;
use crate::http::api::logins::{Login, LoginBegun, LoginEnd, LoginList};
use crate::http::api::status::{Backend, Status};

/// How often the daemon is asked whether the person is back.
const POLL: Duration = Duration::from_millis(500);
/// How long the backend may take to connect once the bridge has its login.
const CONNECT: Duration = Duration::from_secs(30);

/// What a person is told who has pasted something else.
const WRONG_ADDRESS: &str = "that is not the address at which this login ended; paste the whole \
     address from the browser, with `code=` and `state=` in it (Ctrl-C ends the login)";

/// The arguments of `login`.
#[derive(Debug, Args)]
pub(super) struct LoginArguments {
    /// The MCP server
    #[arg(add = ArgValueCandidates::new(complete::backends))]
    backend: String,
    /// Asks for these scopes as well
    #[arg(long, value_name = "SCOPE", num_args = 1..)]
    scopes: Vec<String>,
}

/// The arguments of `logout`.
#[derive(Debug, Args)]
pub(super) struct LogoutArguments {
    /// The MCP server
    #[arg(add = ArgValueCandidates::new(complete::backends))]
    backend: String,
}

/// The arguments of `logins`.
#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only that of this backend
    #[arg(add = ArgValueCandidates::new(complete::backends))]
    backend: Option<String>,
    /// Prints JSON, as GET /v1/logins gives it
    #[arg(long)]
    json: bool,
}

/// `mantyx-bridge login`.
pub(super) async fn login(place: &Place, arguments: LoginArguments) -> Outcome {
    let client = Client::new(place)?;
    let backend = arguments.backend;
    let body = json!({ "scopes": arguments.scopes }).to_string();
    let reply = client.post(&path(&backend), client.operator(), Some(body)).await?;
    let begun: LoginBegun = parse(&reply.success()?)?;
    let is_terminal = io::stdin().is_terminal();
    print(&invitation(&backend, &begun, is_terminal))?;
    if io::stderr().is_terminal() {
        open_browser(&begun.url);
    }
    let pasted = if is_terminal { Some(lines()) } else { None };
    wait(&client, &backend, &begun, pasted).await?;
    let tools = connected(&client, &backend).await?;
    let state = match tools {
        Ok(tools) => counted(tools, "tool"),
        Err(state) => format!("it is {state} still, see `mantyx-bridge status`"),
    };
    let list: LoginList = parse(&client.get("/v1/logins", client.operator()).await?)?;
    let login = list.logins.into_iter().find(|login| login.backend == backend);
    let unwritten = login.as_ref().and_then(|login| login.unwritten.clone());
    let mut rest = match login.and_then(|login| login.expires_at) {
        None => "The bridge renews the login.".to_owned(),
        Some(end) => {
            let left = away(&end, clock::now());
            format!("The issuer gave no refresh token: the login ends in {left}.")
        }
    };
    if let Some(why) = unwritten {
        rest += &format!(
            "\nIt is not on disk: {why}. The bridge tries again; if it is restarted before that, log \
             in again."
        );
    }
    print(&format!("{backend}: logged in; {state}. {rest}\n"))
}

fn path(backend: &str) -> String {
    format!("/v1/logins/{}", segment(backend))
}

/// What a person does next.
fn invitation(backend: &str, begun: &LoginBegun, is_terminal: bool) -> String {
    let LoginBegun { url, issuer_url, issuer, .. } = begun;
    let host = issuer.split("://").last().unwrap_or_default().trim_end_matches('/');
    let paste = if is_terminal { ", or paste the last address here" } else { "" };
    let mut text =
        format!("{backend} wants a login at {host}. Open {url} within 10 minutes{paste}:\n");
    if is_terminal {
        text += &format!(
            "(If your browser is on another machine, open this in its place, and paste the address \
             at which it ends: {issuer_url} )\n"
        );
    }
    plain(&text)
}

/// The lines of stdin. A blocked read cannot be cancelled, so it has a thread that the process
/// leaves behind.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits until the login is done; takes the addresses that a person pastes.
async fn wait(
    client: &Client,
    backend: &str,
    begun: &LoginBegun,
    mut pasted: Option<mpsc::Receiver<String>>,
) -> Outcome {
    loop {
        tokio::select! {
            () = sleep(POLL) => {}
            Some(line) = next_line(pasted.as_mut()) => {
                paste(client, backend, line.trim()).await?;
            }
        }
        let list: LoginList = parse(&client.get("/v1/logins", client.operator()).await?)?;
        let attempt = list.attempts.into_iter().find(|attempt| attempt.id == begun.id);
        let Some(attempt) = attempt else { return Err(failures::login_expired(backend)) };
        match (attempt.state.as_str(), attempt.error) {
            ("done", _) => return Ok(()),
            ("failed", why) => {
                return Err(failures::login_failed(backend, why.unwrap_or_default()));
            }
            _ => {}
        }
    }
}

/// Hands over the address that a person has pasted. A wrong one leaves the login open: the person
/// is told that, and may paste another one.
async fn paste(client: &Client, backend: &str, address: &str) -> Outcome {
    if address.is_empty() {
        return Ok(());
    }
    let parts = ["state=", "code=", "error="];
    if parts.iter().filter(|part| address.contains(**part)).count() < 2 {
        super::complain(WRONG_ADDRESS);
        return Ok(());
    }
    let body = json!({ "url": address }).to_string();
    let callback = format!("{}/callback", path(backend));
    let reply = client.post(&callback, client.operator(), Some(body)).await?;
    match reply.status {
        StatusCode::BAD_REQUEST => super::complain(WRONG_ADDRESS),
        // The login has come to nothing, and the list of logins says why.
        StatusCode::BAD_GATEWAY => {}
        _ => drop(reply.success()?),
    }
    Ok(())
}

/// The next line; never, where no person types.
async fn next_line(lines: Option<&mut mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => match lines.recv().await {
            Some(line) => Some(line),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Waits until the backend is connected: the number of its tools, or its state if it takes too
/// long.
async fn connected(client: &Client, backend: &str) -> Outcome<Result<usize, String>> {
    let end = Instant::now() + CONNECT;
    loop {
        let status: Status = parse(&client.get("/v1/status", client.operator()).await?)?;
        let mut backends = status.backends.into_iter();
        let Some(Backend { state, tools, .. }) = backends.find(|one| one.name == backend) else {
            return Ok(Err("not there".to_owned()));
        };
        if state == "ready" {
            return Ok(Ok(tools));
        }
        let list: LoginList = parse(&client.get("/v1/logins", client.operator()).await?)?;
        let login = list.logins.into_iter().find(|login| login.backend == backend);
        let is_ok = login.is_some_and(|login| login.state == "ok");
        if !is_ok || Instant::now() >= end {
            return Ok(Err(state));
        }
        sleep_until((Instant::now() + POLL).min(end)).await;
    }
}

/// `mantyx-bridge logout`.
pub(super) async fn logout(place: &Place, arguments: &LogoutArguments) -> Outcome {
    let backend = &arguments.backend;
    let client = Client::new(place)?;
    let sent = client.send(Method::DELETE, &path(backend), client.operator(), None).await;
    let reply = client.read(sent.map_err(|(failure, _)| failure)?).await?;
    let end: LoginEnd = parse(&reply.success()?)?;
    let more = match end.reason {
        Some(why) => format!("; {why}"),
        None => String::new(),
    };
    print(&plain(&format!("{backend}: logged out{more}\n")))
}

/// `mantyx-bridge logins`.
pub(super) async fn logins(place: &Place, arguments: ListArguments) -> Outcome {
    let client = Client::new(place)?;
    let text = client.get("/v1/logins", client.operator()).await?;
    let LoginList { mut logins, attempts } = parse(&text)?;
    if let Some(backend) = &arguments.backend {
        logins.retain(|login| login.backend == *backend);
    }
    if arguments.json {
        let list = LoginList { logins, attempts };
        return print_json(&format!("{}\n", json!(list)));
    }
    let mut page = Page::default();
    if logins.is_empty() {
        let place = arguments.backend.map(|backend| format!(" at {backend}")).unwrap_or_default();
        page.line(PLAIN, format!("There is no login{place}."));
        return print_page(&page);
    }
    let now = clock::now();
    let rows = logins.into_iter().map(|login| row(login, now)).collect();
    page.table(["BACKEND", "OF", "ISSUER", "STATE", "SINCE", "LAST USED", "SCOPES"], rows);
    print_page(&page)
}

fn row(login: Login, now: SystemTime) -> [super::page::Piece; 7] {
    let ago = |time: &str| format!("{} ago", away(time, now));
    let (style, state) = match (login.state.as_str(), login.expires_at) {
        ("ok", Some(end)) => (DOUBTFUL, format!("ok, ends in {}", away(&end, now))),
        ("ok", None) => (GOOD, "ok".to_owned()),
        ("needs_scopes", _) => (DOUBTFUL, "needs_scopes".to_owned()),
        (state, _) => (BAD, state.to_owned()),
    };
    [
        (PLAIN, login.backend),
        (PLAIN, "the bridge".to_owned()),
        (PLAIN, login.issuer),
        (style, state),
        (PLAIN, ago(&login.since)),
        (PLAIN, login.last_used.as_deref().map_or_else(|| "-".to_owned(), ago)),
        (PLAIN, login.scopes.join(" ")),
    ]
}
