//! `mantyx-bridge mcp`: the running daemon as an MCP server over stdio, for clients that start
//! their servers themselves.
//!
//! It is thin: each line of the client goes to the daemon's `/mcp`, and the answers are printed. It
//! outlives a restart of the daemon: it begins the client's session again, unseen by the client.
//!
//! Must not: send a call twice, or print anything but messages on stdout.

use std::io::BufRead as _;
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::Events;
use super::terminal::print_message;
use super::{Client, Failure, Outcome, Place, Stop, complain};
use crate::http::api::MAX_CALL;
use crate::http::api::mcp::message::RpcError;
use crate::http::api::mcp::{STDIO, message, names_stateless};
use crate::http::proxy::SELECT;
use crate::http_client::media_type;
use crate::model::answer::codes::OUTCOME_UNKNOWN;
use crate::model::maps::HashMap;
use crate::model::mcp::header::SESSION;
use crate::model::mcp::{error_code, method, notification};
use crate::model::{member, string_member};

const PATH: &str = "/mcp";
/// How long a request waits for a daemon that is being restarted.
const PATIENCE: Duration = Duration::from_secs(15);
/// The wait between two attempts.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest wait between two attempts to open the stream of notifications.
const LONGEST: Duration = Duration::from_secs(30);
/// How long requests are still answered after the end of stdin.
const GRACE: Duration = Duration::from_secs(2);
/// How many lines wait to be read, and to be written.
const WAITING: usize = 16;
/// The largest event of the daemon, in bytes.
const MAX_EVENT: usize = 64 << 20;

/// The session, held by one task.
type OwnedSession = OwnedMutexGuard<Session>;

/// The client that started this process, and the daemon.
struct Link {
    place: Place,
    /// The backends that the client is to see, as a list; `None`: all that its app may use.
    backends: Option<HeaderValue>,
    /// Made at the first request, and again when the token is not right any more.
    daemon: Mutex<Option<Arc<Client>>>,
    out: mpsc::Sender<String>,
    session: Arc<AsyncMutex<Session>>,
    /// The requests without an answer, by their id, and whether they belong to no session. Over
    /// HTTP, closing the connection cancels such a request.
    open: Mutex<HashMap<String, (CancellationToken, bool)>>,
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
#[derive(Default)]
struct Message {
    line: String,
    /// The JSON text of the id; `None` for a notification.
    id: Option<String>,
    /// Empty if it is no request.
    method: String,
    /// The JSON text of the id of the request that it is about, if it cancels one.
    cancels: Option<String>,
    /// It carries its revision with it, and belongs to no session.
    is_stateless: bool,
}

/// `mantyx-bridge mcp`, until stdin ends or a signal asks it to stop.
pub(super) async fn mcp(place: Place, backends: Option<&str>) -> Outcome {
    let backends = backends.map(HeaderValue::from_str).transpose().map_err(|_not_visible| {
        Failure::Usage("--backends: a name has characters that no backend's name has".to_owned())
    })?;
    let (out, mut written) = mpsc::channel::<String>(WAITING);
    let link = Arc::new(Link {
        place,
        backends,
        daemon: Mutex::default(),
        out,
        session: Arc::default(),
        open: Mutex::default(),
        tasks: TaskTracker::new(),
        over: CancellationToken::new(),
        listening: CancellationToken::new(),
    });
    let (done, mut printed) = oneshot::channel::<()>();
    // A client that does not read holds up this thread alone.
    std::thread::spawn(move || {
        while written.blocking_recv().is_some_and(|text| print_message(&text).is_ok()) {}
        drop(done);
    });
    let (lines, mut read) = mpsc::channel(WAITING);
    // A blocked read of stdin cannot be cancelled, so it has a thread that the process leaves
    // behind.
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut stop = Stop::new()?;
    loop {
        tokio::select! {
            _ = &mut printed => break,
            line = read.recv() => match line {
                Some(line) => link.take(line),
                None => break,
            },
            () = stop.asked() => break,
        }
    }
    // The client is gone: what takes longer than a moment has no reader.
    link.listening.cancel();
    link.tasks.close();
    timeout(GRACE, link.tasks.wait()).await.ok();
    link.over.cancel();
    // A daemon that hangs ends the session by itself, in time.
    timeout(GRACE, link.end()).await.ok();
    drop(link);
    timeout(GRACE, printed).await.ok();
    Ok(())
}

impl Message {
    fn read(line: String) -> Result<Self, RpcError> {
        let mut this = Self::default();
        match message::Message::read(&line)? {
            message::Message::Request(request) => {
                this.id = Some(request.id.to_owned());
                this.is_stateless = names_stateless(&request);
                this.method = request.method;
            }
            message::Message::Notification(request)
                if request.method == notification::CANCELLED =>
            {
                this.cancels = request.get("requestId").map(|id| id.get().to_owned());
            }
            message::Message::Notification(_) | message::Message::Response(..) => (),
        }
        this.line = line;
        Ok(this)
    }
}

impl Link {
    /// Handles a line of the client, beside those before it.
    fn take(self: &Arc<Self>, line: Vec<u8>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let this = Arc::clone(self);
        let not_text = |_| {
            RpcError::new(StatusCode::BAD_REQUEST, error_code::PARSE_ERROR, "the line is not UTF-8")
        };
        let message = match String::from_utf8(line).map_err(not_text).and_then(Message::read) {
            Ok(message) => message,
            Err(error) => {
                self.tasks.spawn(async move { this.write(&error.text("null")).await });
                return;
            }
        };
        let cancelled = message.cancels.as_ref().and_then(|id| self.open.lock().remove(id));
        if let Some((stop, is_stateless)) = cancelled {
            // It gets no answer.
            stop.cancel();
            if is_stateless {
                return;
            }
        }
        let stop = self.over.child_token();
        if let Some(id) = &message.id {
            self.open.lock().insert(id.clone(), (stop.clone(), message.is_stateless));
        }
        // What comes after `initialize` waits for its answer, as it needs the session.
        let session = if message.method == method::INITIALIZE {
            Arc::clone(&self.session).try_lock_owned().ok()
        } else {
            None
        };
        self.tasks.spawn(async move {
            stop.run_until_cancelled(this.forward(&message, session)).await;
            if let Some(id) = message.id {
                this.open.lock().remove(&id);
            }
        });
    }

    /// Sends a message to the daemon, and prints the answer. `beginning` is the session that the
    /// message begins.
    async fn forward(self: &Arc<Self>, message: &Message, beginning: Option<OwnedSession>) {
        if message.line.len() > MAX_CALL {
            return self.fail(message, "the message is larger than 8 MiB", false).await;
        }
        let by = Instant::now() + PATIENCE;
        let mut beginning = beginning;
        let mut reported = false;
        loop {
            let session = if message.is_stateless || message.method == method::INITIALIZE {
                None
            } else {
                self.session.lock().await.id.clone()
            };
            let problem = match self.send(Method::POST, Some(&message.line), session.as_ref()).await
            {
                Ok(response) if is_over(&response, session.as_ref()) => {
                    match self.begin_again(session).await {
                        Ok(()) => continue,
                        Err(why) => Problem { why, may_be_made: false },
                    }
                }
                Ok(response) => {
                    if let Some(session) = beginning.take_if(|_| response.status().is_success()) {
                        self.begun(
                            session,
                            message.line.clone(),
                            response.headers().get(SESSION).cloned(),
                        );
                    }
                    match self.print(message, response).await {
                        Ok(()) => return,
                        Err(problem) => problem,
                    }
                }
                Err(problem) => problem,
            };
            if !reported {
                complain(&problem.why);
                reported = true;
            }
            // Other requests only read, or are told again.
            let unrepeatable = problem.may_be_made && message.method == method::CALL_TOOL;
            if unrepeatable || Instant::now() >= by && message.method != method::LISTEN {
                return self.fail(message, &problem.why, unrepeatable).await;
            }
            sleep(AGAIN).await;
        }
    }

    /// The daemon, as bridge.yaml and its token say at the moment.
    fn daemon(&self) -> Result<Arc<Client>, Problem> {
        let mut daemon = self.daemon.lock();
        if let Some(client) = &*daemon {
            return Ok(Arc::clone(client));
        }
        let client =
            Client::new(&self.place).map_err(|failure| Problem::from_failure(failure, false))?;
        Ok(Arc::clone(daemon.insert(Arc::new(client))))
    }

    /// Sends a request to the daemon. An answer that says to try again is a problem.
    async fn send(
        &self,
        method: Method,
        line: Option<&str>,
        session: Option<&HeaderValue>,
    ) -> Result<reqwest::Response, Problem> {
        let daemon = self.daemon()?;
        let response = daemon
            .send(method, PATH, self.headers(session), line.map(str::to_owned))
            .await
            .map_err(|(failure, may_be_sent)| Problem::from_failure(failure, may_be_sent))?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            // The token may be another by now.
            *self.daemon.lock() = None;
        }
        if matches!(status.as_u16(), 401 | 429 | 503) {
            let text = response.text().await.unwrap_or_default();
            let why = string_member(&text, "message").unwrap_or(text);
            return Err(Problem { why: format!("{status}: {why}"), may_be_made: false });
        }
        Ok(response)
    }

    /// The client has begun a session: notes it, and listens for the notifications of it. If it had
    /// one before, that one ends, and its listener goes over to the new one: two listeners of one
    /// session would end each other's streams for ever.
    fn begun(self: &Arc<Self>, mut session: OwnedSession, hello: String, id: Option<HeaderValue>) {
        let had_session = session.hello.replace(hello).is_some();
        let before = mem::replace(&mut session.id, id);
        drop(session);
        let this = Arc::clone(self);
        if had_session {
            self.tasks.spawn(async move {
                // The daemon may not know it any more.
                this.send(Method::DELETE, None, before.as_ref()).await.ok();
            });
            return;
        }
        let over = self.listening.clone();
        self.tasks.spawn(async move { over.run_until_cancelled(this.listen()).await });
    }

    /// Begins the client's session again in a daemon that does not know the session `old`.
    async fn begin_again(&self, old: Option<HeaderValue>) -> Result<(), String> {
        let mut session = self.session.lock().await;
        // Another request has done it meanwhile.
        if session.id != old {
            return Ok(());
        }
        let Some(hello) = session.hello.clone() else { return Ok(()) };
        let response =
            self.send(Method::POST, Some(&hello), None).await.map_err(|problem| problem.why)?;
        let Some(id) = response.headers().get(SESSION).cloned() else {
            let status = response.status();
            let text = response.text().await.unwrap_or_default();
            let why = refusal(&text).unwrap_or(text);
            return Err(format!("the daemon began no session: {status}: {why}"));
        };
        let initialized = json!({ "jsonrpc": "2.0", "method": notification::INITIALIZED });
        let _answer = self.send(Method::POST, Some(&initialized.to_string()), Some(&id)).await;
        session.id = Some(id);
        drop(session);
        // The daemon may have come back with other tools.
        self.tools_changed().await;
        Ok(())
    }

    /// Prints the notifications of the session, and begins it again when the daemon has lost it.
    async fn listen(&self) {
        let mut wait = AGAIN;
        loop {
            let session = self.session.lock().await.id.clone();
            wait = match self.send(Method::GET, None, session.as_ref()).await {
                Ok(response) if is_over(&response, session.as_ref()) => {
                    match self.begin_again(session).await {
                        Ok(()) => AGAIN,
                        Err(_) => wait * 2,
                    }
                }
                Ok(response) if response.status().is_success() => {
                    self.events(response, None).await;
                    AGAIN
                }
                _ => wait * 2,
            };
            wait = wait.min(LONGEST);
            sleep(wait).await;
        }
    }

    async fn tools_changed(&self) {
        let changed = json!({ "jsonrpc": "2.0", "method": notification::TOOLS_CHANGED });
        self.write(&changed.to_string()).await;
    }

    /// Prints the answer to `message`. The error says why there is none.
    async fn print(&self, message: &Message, response: reqwest::Response) -> Result<(), Problem> {
        if media_type(response.headers()).starts_with("text/event-stream") {
            if self.events(response, message.id.as_deref()).await {
                return Ok(());
            }
            if message.method == method::LISTEN {
                self.tools_changed().await;
            }
            let why = "the daemon ended the answer before it was whole".to_owned();
            return Err(Problem { why, may_be_made: true });
        }
        let status = response.status();
        let text = response
            .text()
            .await
            .map_err(|error| Problem { why: error.to_string(), may_be_made: true })?;
        // A notification has no answer, and a cancelled request neither.
        if message.id.is_none() || text.is_empty() {
            return Ok(());
        }
        if string_member(&text, "jsonrpc").is_some() {
            if message.method == method::INITIALIZE
                && let Some(why) = refusal(&text)
            {
                complain(&why);
            }
            self.write(&text).await;
        } else {
            let why = string_member(&text, "message").unwrap_or(text);
            self.fail(message, &format!("{status}: {why}"), false).await;
        }
        Ok(())
    }

    /// Prints the messages of a stream; returns whether the response to the request `id` was among
    /// them.
    async fn events(&self, response: reqwest::Response, id: Option<&str>) -> bool {
        let mut events = Events::new(response, MAX_EVENT);
        let mut ends_request = false;
        while let Ok(Some(fields)) = events.next().await {
            if let Some(data) = fields.data {
                ends_request |= id.is_some_and(|id| {
                    member(&data, "method").is_none()
                        && member(&data, "id").is_some_and(|own| own.get() == id)
                });
                self.write(&data).await;
            }
        }
        ends_request
    }

    /// Answers a request that the daemon has not answered. A call that may have been sent has an
    /// unknown outcome.
    async fn fail(&self, message: &Message, why: &str, may_be_made: bool) {
        let Some(id) = &message.id else { return };
        let code = if may_be_made { format!("{OUTCOME_UNKNOWN}: ") } else { String::new() };
        let error =
            RpcError::new(StatusCode::OK, error_code::INTERNAL_ERROR, format!("{code}{why}"));
        self.write(&error.text(id)).await;
    }

    /// Prints one message, on one line.
    async fn write(&self, text: &str) {
        let line = text.replace(['\r', '\n'], " ") + "\n";
        // stdout is closed: the client is gone.
        self.out.send(line).await.ok();
    }

    /// Ends the session.
    async fn end(&self) {
        let id = self.session.lock().await.id.clone();
        if id.is_some() {
            self.send(Method::DELETE, None, id.as_ref()).await.ok();
        }
    }
}

/// The message of the error in a response, if it is one.
fn refusal(response: &str) -> Option<String> {
    string_member(member(response, "error")?.get(), "message")
}

/// Why a request has no answer.
struct Problem {
    why: String,
    /// The daemon may have got the request.
    may_be_made: bool,
}

impl Problem {
    fn from_failure(failure: Failure, may_be_made: bool) -> Self {
        let why = match failure {
            Failure::Failed(why) | Failure::Usage(why) => why,
            Failure::Gone => "the connection was closed".to_owned(),
        };
        Self { why, may_be_made }
    }
}

/// Whether the daemon does not know `session`.
fn is_over(response: &reqwest::Response, session: Option<&HeaderValue>) -> bool {
    session.is_some() && response.status() == StatusCode::NOT_FOUND
}

impl Link {
    fn headers(&self, session: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, accept);
        headers.insert(STDIO, HeaderValue::from_static("1"));
        if let Some(session) = session {
            headers.insert(SESSION, session.clone());
        }
        if let Some(backends) = &self.backends {
            headers.insert(SELECT, backends.clone());
        }
        headers
    }
}
