//! The command line as a client of the running daemon.
//!
//! Must not: start a daemon, or show its token.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustls::CertificateError;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::terminal::one_line;
use super::{Failure, Outcome, failures, listener};
use crate::config::{Contact, Environment, Files, Listen};
use crate::error_chain::{error_chain, io_kind, tls_error};
use crate::http::auth::OPERATOR;
use crate::model::AppName;
use crate::sse::{Fields, Framer};
use crate::state_dir::StateDir;
use crate::state_dir::running::{Running, running};
use crate::tls::files::first_certificate;
use crate::tls::pin;
use crate::{http_client, state_dir};

/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The largest event of a stream, in bytes.
const MAX_EVENT: usize = 16 << 20;
/// How long the daemon may take to answer a read request.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the daemon that a configuration describes.
#[derive(Debug)]
pub(super) struct Client {
    http: http_client::Client,
    base: String,
    /// The daemon's address, for people.
    place: String,
    /// `None`: it shows the operator's secret, if there is one.
    token: Option<SecretString>,
    /// The app as which calls are made, if the client is the operator.
    app: Option<AppName>,
    /// The app whose view the operator wants, in place of that of all backends.
    view: Option<AppName>,
    state: StateDir,
}

/// An answer of the daemon.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// Where a command finds the daemon.
#[derive(Debug)]
pub(super) enum Place {
    /// As a configuration says.
    Configured(Box<Contact>),
    /// Where the command line says.
    Given { url: String, token: Option<SecretString> },
    /// Where a daemon has left its address; its token is in its state directory.
    Noted { url: String, state: PathBuf },
}

/// Where the daemons of the system's services leave their notes.
const SERVICES: &str = "/run/mantyx-bridge/daemon";

impl Place {
    /// A daemon whose address is on disk: one that runs, or the last one in the usual state
    /// directory of this user or the machine.
    ///
    /// # Errors
    ///
    /// Several run, and none of them has a usual state directory.
    pub(super) fn noted(env: &Environment) -> Outcome<Option<Self>> {
        let users = env.users_directory("XDG_STATE_HOME", ".local/state");
        let dirs = users.into_iter().chain([PathBuf::from("/var/lib")]);
        let usual: Vec<PathBuf> = dirs.map(|dir| dir.join("mantyx-bridge")).collect();
        for notes in env.users_notes().into_iter().chain([PathBuf::from(SERVICES)]) {
            let all = running(&notes);
            let in_usual = all.iter().find(|daemon| usual.contains(&daemon.state_dir));
            let place = match (in_usual, &*all) {
                (Some(daemon), _) | (None, [daemon]) => Self::of_running(daemon),
                (None, []) => None,
                (None, several) => {
                    let urls: Vec<&str> = several
                        .iter()
                        .filter_map(|daemon| daemon.urls.first().map(String::as_str))
                        .collect();
                    return Err(failures::several_daemons(urls.join(", ")));
                }
            };
            if place.is_some() {
                return Ok(place);
            }
        }
        Ok(usual.into_iter().find_map(|state| {
            let urls = StateDir::new(state.clone()).listen().ok()?;
            Self::of_running(&Running { urls, state_dir: state })
        }))
    }

    fn of_running(daemon: &Running) -> Option<Self> {
        // Over TLS, the configuration names the certificate that is to be expected.
        let url = daemon.urls.iter().find(|url| !url.starts_with("https:"))?;
        Some(Self::Noted { url: url.clone(), state: daemon.state_dir.clone() })
    }
}

impl Client {
    pub(super) fn new(place: &Place) -> Outcome<Self> {
        match place {
            Place::Configured(contact) => Self::configured(contact),
            Place::Given { url, token } => {
                let base = url.trim_end_matches('/').to_owned();
                Ok(Self::at(base, token.clone(), StateDir::new(PathBuf::new())))
            }
            Place::Noted { url, state } => {
                let state = StateDir::new(state.clone());
                let token = state.existing(state_dir::TOKEN).ok().flatten();
                Self::at(url.clone(), token, state).known()
            }
        }
    }

    /// The client that shows the operator what the app of this name sees.
    pub(super) fn with_view(self, app: &str) -> Self {
        Self { view: Some(app.into()), ..self }
    }

    /// Whether this user can read the operator's secret.
    pub(super) fn is_operators(&self) -> bool {
        !self.operator().is_empty()
    }

    /// The daemon that runs with the configuration.
    fn configured(contact: &Contact) -> Outcome<Self> {
        let state = StateDir::new(contact.state_dir.clone());
        let (app, token) = match &contact.app {
            Some((app, token)) => (Some(app.clone()), token.clone()),
            None => match (state.existing(state_dir::TOKEN), other_owner(state.path())) {
                (Err(_), Some(user)) => {
                    return Err(failures::other_users_daemon(state.path().display(), user));
                }
                (token, _) => (None, token.map_err(|error| Failure::Failed(error.to_string()))?),
            },
        };
        let Listen { tcp, unix, tls, .. } = &contact.listen;
        // TLS may require a client certificate; on the unix socket, a token always suffices, and a
        // user may need none.
        let needs_socket = tcp.is_empty() || tls.is_some() || token.is_none();
        let socket = unix.as_ref().filter(|_| needs_socket);
        let (http, base, place) = match (socket, address(tcp)) {
            (Some(path), _) => {
                let place = path.display().to_string();
                (http_client::over_unix(path), "http://localhost".to_owned(), place)
            }
            (None, Some(address)) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                let base = match address.port() {
                    // The configured port is 0; the daemon has written down which port it got.
                    0 => {
                        let urls =
                            state.listen().map_err(|error| Failure::Failed(error.to_string()))?;
                        let prefix = format!("{scheme}://");
                        let url = urls.into_iter().find(|url| url.starts_with(&prefix));
                        url.ok_or_else(|| Failure::Failed("its port is not known".to_owned()))?
                    }
                    _ => format!("{scheme}://{}", reachable(address)),
                };
                let http = match tls {
                    None => http_client::new(),
                    Some(files) => trusting(files)?,
                };
                (http, base.clone(), base)
            }
            (None, None) => return Err(Failure::Usage("the daemon listens nowhere".to_owned())),
        };
        Self { http, base, place, token, app, view: None, state }.known()
    }

    /// The client, if it has something to show, or is known by its user.
    fn known(self) -> Outcome<Self> {
        if self.token.is_some() || !self.operator().is_empty() || self.is_on_socket() {
            return Ok(self);
        }
        if let Some(user) = other_owner(self.state.path()) {
            return Err(failures::other_users_daemon(self.state.path().display(), user));
        }
        Err(match self.app {
            Some(_) => failures::no_app_token(self.known_in()),
            None => failures::no_token(self.state.path().display()),
        })
    }

    /// The state directory, for a sentence; it is not known of a daemon that was named by its
    /// address.
    fn known_in(&self) -> String {
        let dir = self.state.path();
        if dir.as_os_str().is_empty() { String::new() } else { format!(" in {}", dir.display()) }
    }

    fn is_on_socket(&self) -> bool {
        self.base == "http://localhost"
    }

    /// The daemon at `place`, a URL or `unix:PATH`, without a configuration.
    pub(super) fn at(place: String, token: Option<SecretString>, state: StateDir) -> Self {
        let (http, base) = match place.strip_prefix("unix:") {
            None => (http_client::new(), place.clone()),
            Some(path) => (http_client::over_unix(Path::new(path)), "http://localhost".to_owned()),
        };
        Self { http, base, place, token, app: None, view: None, state }
    }

    /// The address of the daemon for a browser.
    pub(super) fn for_browsers(&self) -> Outcome<String> {
        if !self.is_on_socket() {
            return Ok(self.base.clone());
        }
        let urls = self.state.listen().unwrap_or_default();
        let url = urls.into_iter().find(|url| url.starts_with("http"));
        url.ok_or_else(|| failures::no_tcp(&self.place))
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request.headers(self.operator()),
        }
    }

    /// A request for what the operator sees: all backends, or those of the app that was named.
    /// Without the operator's secret, the app of the token sees its own.
    ///
    /// With a token, the daemon would take the operator for an app, and a backend that only another
    /// app may use would be missing.
    fn view_request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let operator = self.operator();
        if operator.is_empty() {
            return self.request(method, path);
        }
        let path = match &self.view {
            Some(app) => with_app(path, app),
            None => path.to_owned(),
        };
        self.http.request(method, format!("{}{path}", self.base)).headers(operator)
    }

    /// What the operator reads at `path`, for any app that the path names.
    pub(super) async fn as_operator(&self, path: &str) -> Outcome<String> {
        let url = format!("{}{path}", self.base);
        let request = self.http.request(Method::GET, url).headers(self.operator());
        self.answer(request.timeout(PATIENCE)).await?.success()
    }

    /// What the operator sees at `path`, or the app of the token.
    pub(super) async fn view(&self, path: &str) -> Outcome<String> {
        let request = self.view_request(Method::GET, path).timeout(PATIENCE);
        self.answer(request).await?.success()
    }

    /// Has something done at `path`, with the rights of [`Self::view`], and waits without a limit.
    pub(super) async fn act(&self, path: &str) -> Outcome<String> {
        self.answer(self.view_request(Method::POST, path)).await?.success()
    }

    /// The app as which the operator has calls made, unless another one is named; `None` if the
    /// token or the user says which app the client is.
    pub(super) fn usual_app(&self) -> Option<&AppName> {
        if self.is_operators() { self.view.as_ref().or(self.app.as_ref()) } else { None }
    }

    /// The app that was named for the operator's view.
    pub(super) fn named_app(&self) -> Option<&AppName> {
        self.view.as_ref()
    }

    /// Has a call made: by the operator as `app`, or else as the app of the token or the user.
    pub(super) async fn call(&self, event: String, app: Option<&AppName>) -> Outcome<String> {
        let request = match app {
            Some(app) => {
                let url = format!("{}{}", self.base, with_app("/v1/tool-calls", app));
                self.http.request(Method::POST, url).headers(self.operator())
            }
            None => self.request(Method::POST, "/v1/tool-calls"),
        };
        let request = request.header(header::CONTENT_TYPE, "application/json").body(event);
        self.answer(request).await?.success()
    }

    /// Sends the JSON `body`, and waits for the answer without a limit.
    pub(super) async fn post(
        &self,
        path: &str,
        headers: HeaderMap,
        body: Option<String>,
    ) -> Outcome<Reply> {
        let response =
            self.send(Method::POST, path, headers, body).await.map_err(|(failure, _)| failure)?;
        self.read(response).await
    }

    /// Requests `path`.
    pub(super) async fn ask(&self, path: &str, headers: HeaderMap) -> Outcome<Reply> {
        self.answer(self.request(Method::GET, path).headers(headers).timeout(PATIENCE)).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Outcome<Reply> {
        let response = self.dispatch(request).await.map_err(|(failure, _)| failure)?;
        self.read(response).await
    }

    /// Sends a request, unless a program of another user than the daemon's would get it. The error
    /// says whether the daemon may have got it.
    async fn dispatch(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, (Failure, bool)> {
        let state = self.state.path();
        let checked = if state.as_os_str().is_empty() {
            Ok(())
        } else if self.is_on_socket() {
            let path = self.place.strip_prefix("unix:").unwrap_or(&self.place);
            listener::check_socket(Path::new(path), state)
        } else {
            listener::check_tcp(&self.base, state)
        };
        checked.map_err(|failure| (failure, false))?;
        request.send().await.map_err(|error| {
            let may_be_sent = !error.is_connect();
            (self.away(error), may_be_sent)
        })
    }

    /// Requests `path`; any answer but a success is a failure in the daemon's words.
    pub(super) async fn get(&self, path: &str, headers: HeaderMap) -> Outcome<String> {
        self.ask(path, headers).await?.success()
    }

    /// The header that authenticates the operator; empty if this user cannot read the operator's
    /// secret in the state directory.
    pub(super) fn operator(&self) -> HeaderMap {
        // Of a daemon that was named by its address, no state directory is known. A file of this
        // name in the working directory is not the operator's secret.
        if self.state.path().as_os_str().is_empty() {
            return HeaderMap::new();
        }
        let secret = self.state.existing(state_dir::OPERATOR).ok().flatten();
        let value = secret.and_then(|secret| HeaderValue::try_from(secret.expose_secret()).ok());
        value.into_iter().map(|value| (HeaderName::from_static(OPERATOR), value)).collect()
    }

    /// Opens the event stream at `path`, behind the event `after`.
    pub(super) async fn open(&self, path: &str, after: Option<&str>) -> Outcome<Events> {
        let mut request =
            self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream");
        if let Some(id) = after {
            request = request.header("Last-Event-ID", id);
        }
        let response = self.dispatch(request).await.map_err(|(failure, _)| failure)?;
        if response.status().is_success() {
            return Ok(Events::new(response, MAX_EVENT));
        }
        let outcome = self.read(response).await?.success().map(drop);
        Err(outcome.expect_err("its status is no success"))
    }

    /// Sends `body` to `path`; the answer has any status, and its body is still to be read. The
    /// error says whether the daemon may have got the request.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<String>,
    ) -> Result<reqwest::Response, (Failure, bool)> {
        let mut request = self.request(method, path).headers(headers);
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        self.dispatch(request).await
    }

    /// Reads an answer of [`Self::send`].
    pub(super) async fn read(&self, response: reqwest::Response) -> Outcome<Reply> {
        let status = response.status();
        let headers = response.headers().clone();
        let body = http_client::body(response, MAX_ANSWER)
            .await
            .map_err(|error| Failure::Failed(error_chain(&error)))?;
        if status == StatusCode::UNAUTHORIZED {
            let dir = self.known_in();
            return Err(match self.token {
                Some(_) if dir.is_empty() => failures::wrong_given_token(&self.place),
                Some(_) => failures::other_token(&self.place, dir),
                None => failures::no_app_token(dir),
            });
        }
        Ok(Reply { status, headers, text: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Explains why there is no answer.
    fn away(&self, error: reqwest::Error) -> Failure {
        let place = &self.place;
        let foreign = CertificateError::ApplicationVerificationFailure.into();
        match io_kind(&error) {
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                failures::nothing_listens(place)
            }
            _ if tls_error(&error) == Some(&foreign) => failures::other_certificate(place),
            _ => {
                let why = error_chain(&error.without_url());
                failures::no_answer(place, why)
            }
        }
    }
}

/// An open event stream.
pub(super) struct Events {
    response: reqwest::Response,
    framer: Framer,
}

impl Events {
    /// The events of `response`, of at most `limit` bytes each.
    pub(super) fn new(response: reqwest::Response, limit: usize) -> Self {
        Self { response, framer: Framer::new(limit) }
    }

    /// The next event. `None`: the stream has ended or is broken; it can be opened again.
    pub(super) async fn next(&mut self) -> Outcome<Option<Fields>> {
        loop {
            let frame = self.framer.next_frame();
            if let Some(frame) = frame.map_err(|error| Failure::Failed(error.to_string()))? {
                return Ok(Some(frame.fields()));
            }
            let Ok(Some(chunk)) = self.response.chunk().await else { return Ok(None) };
            self.framer.push(&chunk);
        }
    }
}

/// A name as one segment of a path, whatever characters it has.
pub(super) fn segment(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // Only in a query, a plus sign is a space.
    encoded.replace('+', "%20")
}

/// `path` with the parameter by which the operator names an app.
fn with_app(path: &str, app: &AppName) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let app: String = url::form_urlencoded::byte_serialize(app.as_str().as_bytes()).collect();
    format!("{path}{separator}app={app}")
}

/// The user whom the state directory belongs to, if this one may not enter it: the name, or the
/// number of one that has no name here.
fn other_owner(state: &Path) -> Option<String> {
    let may_enter = access(state, Access::READ_OK | Access::EXEC_OK).is_ok();
    // A directory above it may be closed, too.
    let visible = state.ancestors().find_map(|path| std::fs::metadata(path).ok())?;
    let owner = visible.uid();
    if may_enter || owner == geteuid().as_raw() || !is_refused(state) {
        return None;
    }
    Some(listener::user_name(owner))
}

/// Whether it is there and closed, and not absent.
fn is_refused(state: &Path) -> bool {
    match access(state, Access::READ_OK | Access::EXEC_OK) {
        Err(error) => error == Errno::ACCESS,
        Ok(()) => false,
    }
}

/// The daemon's address to use: a loopback one, if there is one.
fn address(tcp: &[SocketAddr]) -> Option<SocketAddr> {
    tcp.iter().find(|address| address.ip().is_loopback()).or_else(|| tcp.first()).copied()
}

/// A client that trusts the daemon's certificate and no other.
fn trusting(files: &Files) -> Outcome<http_client::Client> {
    if files.client_ca.is_some() {
        return Err(failures::wants_certificate());
    }
    let text = std::fs::read_to_string(&files.cert).map_err(|error| {
        let file = files.cert.display();
        failures::unreadable_certificate(file, error)
    })?;
    let certificate = first_certificate(&files.cert, &text)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(http_client::over_tls(pin::client(certificate)))
}

/// The address at which this machine reaches a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Reply {
    pub(super) fn success(self) -> Outcome<String> {
        #[derive(Deserialize)]
        struct Refusal {
            message: Option<String>,
            /// The error's code if there is a `message`, and its sentence if not.
            error: Option<String>,
            candidates: Option<Vec<String>>,
        }
        if self.status.is_success() {
            return Ok(self.text);
        }
        let refusal = serde_json::from_str::<Refusal>(&self.text).ok();
        let words = refusal.and_then(|refusal| {
            let candidates = refusal.candidates.filter(|all| !all.is_empty());
            let there = candidates.map(|all| format!("; there are: {}", all.join(", ")));
            Some(refusal.message.or(refusal.error)? + &there.unwrap_or_default())
        });
        let words = words.unwrap_or(self.text);
        Err(Failure::Failed(format!("the daemon answered {}: {}", self.status, one_line(&words))))
    }
}

/// Reads the daemon's JSON.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Outcome<T> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Failed(format!("the daemon's answer cannot be read: {error}")))
}
