//! Where a server is, and one HTTP request to it. Redirects are followed only where that is safe:
//! to the same origin, with the same method and body.
//!
//! Must not: send a header or a body to an origin that the configuration does not name.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, LOCATION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::ResponseBuilderExt as _;
use url::Url;

use super::pause::Pause;
use super::{HttpFailure, SESSION, refusal, says_no_session};
use crate::backend::auth::Tokens;
use crate::backend::diagnosis::redirect::redirected;
use crate::backend::{RequestedPause, address};
use crate::oauth::challenge::Challenge;
use crate::{error_chain, http_client};

/// What to do about a server that redirects without end.
const SERVERS_LOG: &str =
    "see how the server, or the proxy before it, is set to redirect this `url`";

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

/// The `Host` for a server behind a unix socket. Servers that check it want a loopback name: some
/// require a port, some ignore it. With the default port, this is the same as `localhost` alone.
const SOCKET_HOST: HeaderValue = HeaderValue::from_static("localhost:80");

/// Where a server is, and what every request to it carries.
#[derive(derive_more::Debug)]
#[debug("Endpoint({})", self.place())]
pub(in crate::backend::mcp) struct Endpoint {
    client: http_client::Client,
    pub(in crate::backend::mcp) url: Url,
    /// The configured headers; their values are secrets.
    pub(in crate::backend::mcp) headers: HeaderMap,
    tokens: Option<Arc<Tokens>>,
    /// The pause that the server has asked for. It outlives connections.
    pause: Pause,
    /// The unix socket that `client` connects to, whatever host `url` names.
    socket: Option<PathBuf>,
}

/// The variable parts of a request.
#[derive(Default)]
pub(in crate::backend::mcp) struct Body {
    pub(in crate::backend::mcp) bytes: Bytes,
    /// Whether the request may be sent twice.
    pub(in crate::backend::mcp) only_reads: bool,
}

impl Endpoint {
    /// A server on the network, reached by `client`, or one behind the unix socket `socket`.
    pub(in crate::backend::mcp) fn new(
        client: http_client::Client,
        url: Url,
        mut headers: HeaderMap,
        socket: Option<&Path>,
        tokens: Option<Arc<Tokens>>,
    ) -> Self {
        if socket.is_some() {
            headers.entry(HOST).or_insert(SOCKET_HOST);
        }
        let client = socket.map_or(client, http_client::over_unix);
        let pause = Pause::default();
        Self { client, url, headers, tokens, pause, socket: socket.map(Path::to_owned) }
    }

    /// The pause that the server has asked for, if it is not over.
    pub(in crate::backend::mcp) fn pause(&self) -> Option<RequestedPause> {
        self.pause.open()
    }

    /// Sends one request to `url`, which has the server's own origin; with a token, if the server
    /// needs one. Nothing is sent while the server wants a pause.
    pub(in crate::backend::mcp) async fn request(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Body,
    ) -> Result<reqwest::Response, HttpFailure> {
        Tokens::authorize(self.tokens.as_ref(), headers, |headers| {
            self.send(method.clone(), url, headers, &body)
        })
        .await
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: &Body,
    ) -> Result<reqwest::Response, HttpFailure> {
        let mut url = url.clone();
        for _hop in 0..=MAX_REDIRECTS {
            if let Some(pause) = self.pause.open() {
                return Err(HttpFailure::Paused(pause));
            }
            let request = self.client.request(method.clone(), url.clone());
            let request = request.headers(headers.clone()).body(body.bytes.clone());
            let sent = self.client.send_as(request, body.only_reads).await;
            let response = sent.map_err(|error| {
                let cure = error_chain::cure(&error).map(Cow::Borrowed);
                let (is_unsent, error) = http_client::why_no_answer(error);
                let failure = if is_unsent { HttpFailure::NotSent } else { HttpFailure::Lost };
                failure(format!("{}: {error}", self.place()), cure)
            })?;
            // A server that redirects has not run the request. Only 307 and 308 keep the method;
            // other redirects turn a POST into a GET.
            let status = response.status();
            let repeats =
                matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if let Some(pause) = self.pause.take(status, response.headers()) {
                return Err(HttpFailure::Paused(pause));
            }
            if status == StatusCode::UNAUTHORIZED && headers.contains_key(SESSION) {
                return without_session(response).await;
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let Some(target) = target.and_then(|target| url.join(target).ok()) else {
                let why = format!("the server redirects nowhere (HTTP {status})");
                return Err(HttpFailure::NotSent(why, Some(SERVERS_LOG.into())));
            };
            if !repeats || !address::is_own(&url, &target) {
                let (why, cure) = redirected(&url, &target, status);
                return Err(HttpFailure::NotSent(why, Some(cure.into())));
            }
            url = target;
        }
        let why = format!("the server redirects more than {MAX_REDIRECTS} times");
        Err(HttpFailure::NotSent(why, Some(SERVERS_LOG.into())))
    }

    /// Where the server is, without what may be a secret.
    fn place(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => origin(&self.url),
        }
    }
}

/// A 401 in a session, as a failure if it is about the session. This is found out before the token
/// is replaced: another token does not bring the session back.
async fn without_session(response: reqwest::Response) -> Result<reqwest::Response, HttpFailure> {
    if Challenge::read(&response).error.as_deref() == Some("invalid_token") {
        return Ok(response);
    }
    let (status, url) = (response.status(), response.url().clone());
    let mut head = http::Response::builder().status(status).url(url);
    if let Some(headers) = head.headers_mut() {
        headers.clone_from(response.headers());
        // The body is whole now.
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    let body = refusal(response).await;
    if says_no_session(status, &body) {
        return Err(HttpFailure::NoSession(status));
    }
    let rebuilt = head.body(body).expect("the parts come from a response");
    Ok(reqwest::Response::from(rebuilt))
}

/// The part of `url` that is no secret.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
