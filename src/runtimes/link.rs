//! Requests to a runtime, and its event stream.
//!
//! Must not: know what an event means, or show the credential to another origin.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::{RequestBuilder, Response};
use tokio::time::timeout;
use tracing::warn;
use url::Url;

use crate::budget::{Budget, Held};
use crate::config::{RuntimeLink, Wire};
use crate::error_chain::error_chain;
use crate::http_client::{BodyError, Client, Clients};
use crate::model::AppName;
use crate::sse::Framer;
use crate::{clock, http_client};

/// How long a request may take.
const WITHIN: Duration = Duration::from_secs(30);
/// A stream that was silent for this long counts as dead: hsafa sends a comment every 30 s.
const SILENCE: Duration = Duration::from_secs(75);
const MAX_EVENT: usize = 8 << 20;
const MAX_REPLY: usize = 32 << 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Why a runtime cannot be heard, or does not take an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it answers {status} at {path}")]
    Refused { status: StatusCode, path: String, wait: Duration },
    #[error("its answer is no event stream")]
    NotAStream,
    #[error("it closed the stream")]
    Closed,
    #[error("its stream was silent for {SILENCE:?}")]
    Silent,
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
}

impl LinkError {
    /// The error for the status, which all apps see: paths have the ids of runs.
    pub(super) fn without_path(&self) -> String {
        match self {
            Self::Refused { status, .. } => format!("it answers {status}"),
            other => other.to_string(),
        }
    }

    pub(super) fn status(&self) -> Option<StatusCode> {
        if let Self::Refused { status, .. } = self { Some(*status) } else { None }
    }

    pub(super) fn retry_after(&self) -> Duration {
        if let Self::Refused { wait, .. } = self { *wait } else { Duration::ZERO }
    }
}

impl From<reqwest::Error> for LinkError {
    fn from(error: reqwest::Error) -> Self {
        Self::Unreachable(error_chain(&error.without_url()))
    }
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Wire,
    /// The address of its API.
    base: Url,
    http: Client,
    /// Those that every request has, with the credential.
    pub(super) headers: HeaderMap,
    name: AppName,
}

impl Link {
    pub(super) fn new(link: &RuntimeLink, name: AppName) -> Self {
        let clients = Clients::new(Some(&link.url), link.tls.as_ref(), http_client::new());
        let mut base = Url::clone(&link.url);
        if let Wire::HsafaV7 { base: segments, .. } = &link.wire {
            base = below(base, segments.iter().map(String::as_str));
        }
        Self {
            wire: link.wire.clone(),
            base,
            http: clients.own,
            headers: match link.wire {
                Wire::Claude { .. } => super::claude::headers(&link.headers),
                _ => link.headers.clone(),
            },
            name,
        }
    }

    /// The URL of these segments below the runtime's address, each escaped.
    pub(super) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        below(self.base.clone(), segments)
    }

    /// The URL of a path that [`path`] has made.
    pub(super) fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        url
    }

    /// What the paths that take answers begin with.
    pub(super) fn takes_answers_at(&self) -> &'static str {
        match self.wire {
            Wire::HsafaV3 { .. } => "api/runs/",
            Wire::HsafaV7 { .. } => "actions/",
            Wire::Claude { .. } => "v1/sessions/",
        }
    }

    /// Whether a post that failed so is never taken: the call is unknown, has its result, or its
    /// result is not acceptable.
    pub(super) fn refuses_for_good(&self, error: &LinkError) -> bool {
        const PASSING: [StatusCode; 4] = [
            StatusCode::UNAUTHORIZED,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        let Some(status) = error.status() else { return false };
        // A session of Claude may want a token that comes with its next claim.
        let wants_token =
            matches!(self.wire, Wire::Claude { .. }) && status == StatusCode::FORBIDDEN;
        status.is_client_error() && !PASSING.contains(&status) && !wants_token
    }

    pub(super) fn request(&self, method: Method, url: Url, headers: &HeaderMap) -> RequestBuilder {
        self.http.request(method, url).headers(headers.clone())
    }

    /// Sends a request, and reads its answer whole.
    ///
    /// # Errors
    ///
    /// There is no answer, its status is no success, or it is too large.
    pub(super) async fn ask(&self, request: RequestBuilder) -> Result<Bytes, LinkError> {
        let response = accepted(self.http.send(request.timeout(WITHIN)).await?)?;
        http_client::body(response, MAX_REPLY).await.map_err(|error| match error {
            BodyError::Broken(error) => error.into(),
            BodyError::NotRead(why) => LinkError::Unreadable(why.to_string()),
        })
    }

    /// Opens an event stream.
    pub(super) async fn open(&self, url: Url, headers: &HeaderMap) -> Result<Events, LinkError> {
        let request =
            self.request(Method::GET, url, headers).header(header::ACCEPT, "text/event-stream");
        let response = match timeout(WITHIN, self.http.send_repeatable(request)).await {
            Ok(outcome) => accepted(outcome?)?,
            Err(_elapsed) => return Err(LinkError::Silent),
        };
        if !http_client::media_type(response.headers()).starts_with("text/event-stream") {
            return Err(LinkError::NotAStream);
        }
        let held = Budget::of_process().hold_for(Some(self.name.clone()));
        Ok(Events { response, framer: Framer::new(MAX_EVENT), held })
    }
}

fn accepted(response: Response) -> Result<Response, LinkError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = http_client::retry_after(response.headers(), clock::now());
    let wait = retry_after.unwrap_or_default().min(LONGEST_PAUSE);
    Err(LinkError::Refused { status, path: response.url().path().to_owned(), wait })
}

fn below<'s>(mut url: Url, segments: impl IntoIterator<Item = &'s str>) -> Url {
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

/// The path of these segments below a runtime's address, each escaped.
pub(super) fn path<'s>(segments: impl IntoIterator<Item = &'s str>) -> String {
    let anywhere = Url::parse("http://localhost").expect("the constant is a URL");
    below(anywhere, segments).path().trim_start_matches('/').to_owned()
}

/// An event stream.
pub(super) struct Events {
    response: Response,
    framer: Framer,
    /// Counts the event that is being read.
    held: Held,
}

impl Events {
    /// The data of the next event. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<String, LinkError> {
        loop {
            match self.framer.next_frame() {
                Ok(Some(frame)) => match frame.fields().data {
                    Some(data) => return Ok(data),
                    None => continue,
                },
                Ok(None) => (),
                Err(error) => {
                    warn!(%error, "an event of a runtime is skipped; its call is not made");
                    continue;
                }
            }
            let read = timeout(SILENCE, self.response.chunk());
            let chunk = read.await.map_err(|_elapsed| LinkError::Silent)??;
            self.framer.push(&chunk.ok_or(LinkError::Closed)?);
            self.held.follow(self.framer.unfinished().len());
        }
    }
}
