//! `mantyx-bridge mcp`: the running daemon as an MCP server over stdio, for clients that start their
//! servers themselves.
//!
//! It is thin: each line of the client goes to the daemon's `/mcp`, and the answers are printed. It
//! outlives a restart of the daemon: it begins the client's session again, unseen by the client.
//!
//! Must not: send a call twice, or print anything but messages on stdout.

use std::{
    collections::HashMap,
    io::{self, BufRead as _},
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Failure, Outcome,
    client::{Client, Events},
    complain, print,
};
use crate::{
    config::Contact,
    http::api::mcp::{SESSION, STDIO},
    model::json::{Members, string_member},
};

const PATH: &str = "/mcp";
/// How long a request waits for a daemon that is being restarted.
const PATIENCE: Duration = Duration::from_secs(15);
/// The wait between two attempts.
const AGAIN: Duration = Duration::from_millis(250);
/// JSON-RPC's code for an error inside the server.
const INTERNAL_ERROR: i32 = -32603;
/// How long requests are still answered after the end of stdin.
const GRACE: Duration = Duration::from_secs(2);
/// How many lines wait to be read, and to be written.
const WAITING: usize = 16;
/// The largest event of the daemon, in bytes.
const MAX_EVENT: usize = 64 << 20;

/// A program whose list of MCP servers can name the bridge.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum For {
    Claude,
    Cursor,
    Vscode,
}

/// The client that started this process, and the daemon.
struct Link {
    daemon: Client,
    out: mpsc::Sender<String>,
    session: AsyncMutex<Session>,
    /// The requests without an answer of clients of 2026-07-28, by their id. Over HTTP, closing the
    /// connection cancels one.
    open: Mutex<HashMap<String, CancellationToken>>,
    tasks: TaskTracker,
    /// Cancelled when nothing is to be answered any more.
    over: CancellationToken,
    /// Cancelled when notifications have no reader any more.
    listening: CancellationToken,
}

/// The session of a client that speaks a revision before 2026-07-28.
#[derive(Default)]
struct Session {
    /// The client's `initialize`.
    hello: Option<String>,
    id: Option<HeaderValue>,
}

/// A message of the client.
struct Message {
    line: String,
    /// The JSON text of the id; `None` for a notification.
    id: Option<String>,
    method: String,
    /// It carries its revision with it, and belongs to no session.
    is_stateless: bool,
}

/// Prints the entry of the bridge in the list of MCP servers of `program`.
pub(super) fn entry(program: For) -> Outcome {
    let mut server = json!({ "command": "mantyx-bridge", "args": ["mcp"] });
    let mut key = "mcpServers";
    if matches!(program, For::Vscode) {
        key = "servers";
        server["type"] = "stdio".into();
    }
    print(&format!("{:#}\n", json!({ key: { "bridge": server } })))
}

/// `mantyx-bridge mcp`, until stdin ends.
pub(super) async fn mcp(contact: &Contact) -> Outcome {
    let (out, mut written) = mpsc::channel::<String>(WAITING);
    let link = Arc::new(Link {
        daemon: Client::new(contact)?,
        out,
        session: AsyncMutex::default(),
        open: Mutex::default(),
        tasks: TaskTracker::new(),
        over: CancellationToken::new(),
        listening: CancellationToken::new(),
    });
    let (lines, mut read) = mpsc::channel(WAITING);
    // A blocked read of stdin cannot be cancelled, so it has a thread that the process leaves behind.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    loop {
        tokio::select! {
            Some(text) = written.recv() => print(&text)?,
            line = read.recv() => match line {
                Some(line) if line.trim().is_empty() => (),
                Some(line) => link.take(Message::read(line)),
                None => break,
            },
        }
    }
    // The client is gone: what takes longer than a moment has no reader.
    link.listening.cancel();
    link.tasks.close();
    let by = Instant::now() + GRACE;
    while let Ok(Some(text)) = timeout_at(by, next(&link, &mut written)).await {
        print(&text)?;
    }
    link.over.cancel();
    link.end().await;
    Ok(())
}

/// The next line for the client; `None` when no request waits for an answer any more.
async fn next(link: &Link, written: &mut mpsc::Receiver<String>) -> Option<String> {
    tokio::select! {
        text = written.recv() => text,
        () = link.tasks.wait() => written.try_recv().ok(),
    }
}

impl Message {
    fn read(line: String) -> Self {
        let members = Members::read_at_most(&line, 64).ok();
        let member = |key| members.as_ref().and_then(|members| members.get(key));
        let id = member("id").map(|id| id.get().to_owned());
        let method = string_member(&line, "method").unwrap_or_default();
        let meta =
            member("params").and_then(|params| Members::read(params.get()).ok()?.get("_meta"));
        let is_stateless =
            meta.is_some_and(|meta| meta.get().contains("io.modelcontextprotocol/protocolVersion"));
        Self { id, method, is_stateless, line }
    }
}

impl Link {
    /// Handles a message of the client, beside those before it.
    fn take(self: &Arc<Self>, message: Message) {
        let this = Arc::clone(self);
        if message.method == "notifications/cancelled" && self.cancels(&message) {
            return;
        }
        let stop = self.over.child_token();
        if message.is_stateless
            && let Some(id) = &message.id
        {
            self.open.lock().insert(id.clone(), stop.clone());
        }
        self.tasks.spawn(async move {
            stop.run_until_cancelled(this.forward(&message)).await;
            if let Some(id) = message.id.filter(|_| message.is_stateless) {
                this.open.lock().remove(&id);
            }
        });
    }

    /// Cancels a request of 2026-07-28, if `message` names one.
    fn cancels(&self, message: &Message) -> bool {
        let params = Members::read(&message.line).ok().and_then(|members| members.get("params"));
        let id = params.and_then(|params| Members::read(params.get()).ok()?.get("requestId"));
        let stop = id.and_then(|id| self.open.lock().remove(id.get()));
        stop.inspect(CancellationToken::cancel).is_some()
    }

    /// Sends a message to the daemon, and prints the answer.
    async fn forward(self: &Arc<Self>, message: &Message) {
        let by = Instant::now() + PATIENCE;
        let mut is_told = false;
        loop {
            let session = match message.is_stateless || message.method == "initialize" {
                true => None,
                false => self.session.lock().await.id.clone(),
            };
            let (failure, is_final) = match self.post(&message.line, session.as_ref()).await {
                Ok(response) if is_over(&response, session.as_ref()) => {
                    match self.begin_again(session).await {
                        Ok(()) => continue,
                        Err(failure) => (failure, false),
                    }
                }
                Ok(response) => {
                    if message.method == "initialize" {
                        self.begun(message, response.headers().get(SESSION).cloned()).await;
                    }
                    return self.print(message, response).await;
                }
                Err((failure, may_be_sent)) => {
                    (failure, may_be_sent && message.method == "tools/call")
                }
            };
            let Failure::Failed(why) = failure else { return };
            if !is_told {
                complain(&why);
                is_told = true;
            }
            if is_final || Instant::now() >= by {
                return self.fail(message, &why, is_final).await;
            }
            sleep(AGAIN).await;
        }
    }

    async fn post(
        &self,
        line: &str,
        session: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, (Failure, bool)> {
        self.daemon.send(Method::POST, PATH, headers(session), Some(line.to_owned())).await
    }

    /// The client has begun a session: notes it, and listens for the notifications of it.
    async fn begun(self: &Arc<Self>, hello: &Message, id: Option<HeaderValue>) {
        let mut session = self.session.lock().await;
        session.hello = Some(hello.line.clone());
        session.id = id;
        drop(session);
        let (this, over) = (Arc::clone(self), self.listening.clone());
        self.tasks.spawn(async move { over.run_until_cancelled(this.listen()).await });
    }

    /// Begins the client's session again in a daemon that does not know the session `old`.
    async fn begin_again(&self, old: Option<HeaderValue>) -> Result<(), Failure> {
        let mut session = self.session.lock().await;
        // Another request has done it meanwhile.
        if session.id != old {
            return Ok(());
        }
        let Some(hello) = session.hello.clone() else { return Ok(()) };
        let response = self.post(&hello, None).await.map_err(|(failure, _)| failure)?;
        session.id = response.headers().get(SESSION).cloned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let _answer = self.post(&initialized.to_string(), session.id.as_ref()).await;
        // The daemon may have come back with other tools.
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        self.write(&changed.to_string()).await;
        Ok(())
    }

    /// Prints the notifications of the session, and begins it again when the daemon has lost it.
    async fn listen(&self) {
        loop {
            let session = self.session.lock().await.id.clone();
            let opened = self.daemon.send(Method::GET, PATH, headers(session.as_ref()), None).await;
            match opened {
                Ok(response) if is_over(&response, session.as_ref()) => {
                    self.begin_again(session).await.ok();
                }
                Ok(response) if response.status().is_success() => self.events(response).await,
                _ => (),
            }
            sleep(AGAIN).await;
        }
    }

    /// Prints the answer to `message`.
    async fn print(&self, message: &Message, response: reqwest::Response) {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        if kind.starts_with("text/event-stream") {
            return self.events(response).await;
        }
        let status = response.status();
        match response.text().await {
            Ok(text) if text.is_empty() => (),
            Ok(text) if string_member(&text, "jsonrpc").is_some() => self.write(&text).await,
            Ok(text) => self.fail(message, &format!("{status}: {text}"), false).await,
            Err(error) => self.fail(message, &error.to_string(), true).await,
        }
    }

    async fn events(&self, response: reqwest::Response) {
        let mut events = Events::new(response, MAX_EVENT);
        while let Ok(Some(fields)) = events.next().await {
            if let Some(data) = fields.data {
                self.write(&data).await;
            }
        }
    }

    /// Answers a request that the daemon has not answered. A call that may have been sent has an
    /// unknown outcome.
    async fn fail(&self, message: &Message, why: &str, may_be_made: bool) {
        let Some(id) = &message.id else { return };
        let code = if may_be_made { "OUTCOME_UNKNOWN: " } else { "" };
        let error = json!({ "code": INTERNAL_ERROR, "message": format!("{code}{why}") });
        self.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")).await;
    }

    /// Prints one message, on one line.
    async fn write(&self, text: &str) {
        let line = text.replace(['\r', '\n'], " ") + "\n";
        // stdout is closed: the client is gone.
        self.out.send(line).await.ok();
    }

    /// Ends the session.
    async fn end(&self) {
        let session = self.session.lock().await;
        if session.id.is_some() {
            let headers = headers(session.id.as_ref());
            self.daemon.send(Method::DELETE, PATH, headers, None).await.ok();
        }
    }
}

/// Whether the daemon does not know `session`.
fn is_over(response: &reqwest::Response, session: Option<&HeaderValue>) -> bool {
    session.is_some() && response.status() == StatusCode::NOT_FOUND
}

fn headers(session: Option<&HeaderValue>) -> HeaderMap {
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    let mut headers = HeaderMap::from_iter([
        (header::ACCEPT, accept),
        (HeaderName::from_static(STDIO), HeaderValue::from_static("1")),
    ]);
    if let Some(session) = session {
        headers.insert(SESSION, session.clone());
    }
    headers
}
