//! The link to one agent: sends a request, and reads the result that comes back.
//!
//! Must not: decide what a reply means for the call, or ask twice, cancellations aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use a2a::error_code::{TASK_NOT_CANCELABLE, TASK_NOT_FOUND};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::events::EventStream;
use super::failure::{A2aFailure, A2aResult};
use super::interface::{Endpoint, Generation};
use super::result::{PartEncoding, Reply};
use super::wire::{Answers, Message, Operation, Request};
use super::{AgentSettings, events, grpc, redirect, result, wire};
use crate::backend::auth::Tokens;
use crate::backend::{CallError, address};
use crate::config::A2aBinding;
use crate::oauth::TokenError;
use crate::{clock, http_client, random};

/// The largest reply, in bytes.
pub(super) const MAX_REPLY: usize = 16 * 1024 * 1024;
/// How long one cancellation of a task may take.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The waits before a cancellation is tried again, in seconds. Together, they last as long as a
/// restart of the agent.
const CANCEL_WAITS: [u64; 4] = [1, 2, 4, 8];

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The media type of the HTTP+JSON binding of 1.0, beside `application/json`.
const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");
/// What a reply may be. Strict servers refuse a request that takes none of their types.
const ONE_RESULT: HeaderValue = HeaderValue::from_static("application/json, application/a2a+json");
pub(super) const EVENTS: HeaderValue =
    HeaderValue::from_static("text/event-stream, application/json, application/a2a+json");

/// Why a request got no response.
#[derive(Debug, derive_more::From)]
pub(super) enum NoResponse {
    Token(TokenError),
    Http(reqwest::Error),
}

impl From<NoResponse> for A2aFailure {
    fn from(failure: NoResponse) -> Self {
        match failure {
            NoResponse::Token(error) => error.into(),
            NoResponse::Http(error) => CallError::from(error).into(),
        }
    }
}

/// Everything that a request to one agent needs.
#[derive(Debug)]
pub(super) struct Link {
    /// The configured headers may be sent to any [`Endpoint`], and tokens wherever the headers are.
    pub settings: Arc<AgentSettings>,
    pub client: http_client::Client,
    pub endpoint: Endpoint,
    /// Whether the card says that the agent streams. Its artifacts then grow piece by piece, and
    /// one text may be in several parts.
    pub streams: bool,
    /// The media types that the card names for replies.
    pub output_modes: Vec<String>,
    pub habits: Habits,
}

/// What the agent has shown, and its card does not say. Each costs one refusal, until the card
/// changes.
#[derive(Debug, Default)]
pub(super) struct Habits {
    /// It does not stream.
    pub no_stream: AtomicBool,
    /// It takes messages only if the reply waits for the end of the task.
    pub only_waits: AtomicBool,
    /// It takes bodies of [`A2A_JSON`] alone.
    pub wants_a2a_json: AtomicBool,
}

/// The reply to a request.
pub(super) enum Opened {
    Result(Box<RawValue>),
    Events(Box<EventStream>),
}

impl Link {
    /// Makes one request and reads its one result.
    pub(super) async fn exchange(&self, operation: Operation<'_>) -> A2aResult {
        match self.open(operation).await? {
            Opened::Result(result) => Ok(result),
            Opened::Events(mut events) => {
                let result = events.next().await?;
                result.ok_or_else(|| A2aFailure::unclear("its event stream has no event"))
            }
        }
    }

    /// Makes one request, and reads its result unless that is a stream. Any reply may be one: some
    /// agents stream whatever they are asked.
    pub(super) async fn open(&self, operation: Operation<'_>) -> A2aResult<Opened> {
        let response = self.transmit(&self.endpoint, operation).await?;
        if self.is_grpc(&response) {
            return match operation.answers() {
                Answers::One => grpc::result(response, operation).await.map(Opened::Result),
                Answers::Many => {
                    let messages = grpc::Messages::new(response);
                    Ok(Opened::Events(Box::new(EventStream::Grpc(messages))))
                }
            };
        }
        let status = response.status();
        if let Some(encoding) = http_client::encoding(response.headers()) {
            return Err(self.encoded(status, &encoding));
        }
        if events::is_event_stream(&response) {
            let events = EventStream::sse(self.endpoint.binding, response);
            return Ok(Opened::Events(Box::new(events)));
        }
        let asked = http_client::retry_after(response.headers(), clock::now());
        let media_type = http_client::media_type(response.headers()).to_owned();
        let body = http_client::body(response, MAX_REPLY).await.map_err(CallError::from)?;
        match wire::decode(self.endpoint.binding, status, &body) {
            Ok(result) => Ok(Opened::Result(result)),
            Err(A2aFailure::Refused { code, status, text, .. }) => {
                Err(A2aFailure::Refused { code, status, text, pause: asked })
            }
            Err(failure) => Err(failure.of_media_type(&media_type)),
        }
    }

    /// The failure of a response in an encoding that was not asked for.
    pub(super) fn encoded(&self, status: StatusCode, encoding: &str) -> A2aFailure {
        if status.is_success() {
            let why = format!(
                "its response is compressed ({encoding}), which the bridge has not asked for"
            );
            return A2aFailure::unclear(why);
        }
        match wire::decode(self.endpoint.binding, status, b"") {
            Err(failure) => failure,
            Ok(_) => unreachable!("an empty body is no result"),
        }
    }

    /// Sends the request for `operation` as `endpoint` wants it, and gives the response whatever it
    /// is. The endpoint is the link's own, or the same one in the other version.
    pub(super) async fn transmit(
        &self,
        endpoint: &Endpoint,
        operation: Operation<'_>,
    ) -> Result<reqwest::Response, NoResponse> {
        let request = wire::encode(endpoint, operation, &random::uuid().to_string());
        let mut headers = self.headers(endpoint.generation);
        if operation.answers() == Answers::Many {
            headers.insert(ACCEPT, EVENTS);
        }
        if let Some(Message { trace: Some(trace), .. }) = operation.message() {
            http_client::add_trace(&mut headers, trace);
        }
        self.send(request, headers, operation.only_reads()).await
    }

    /// The headers of each request to the agent in this version.
    pub(super) fn headers(&self, generation: Generation) -> HeaderMap {
        let AgentSettings { config, extensions, .. } = &*self.settings;
        let mut headers = config.headers.clone();
        headers.insert(ACCEPT, ONE_RESULT);
        let name = match generation {
            Generation::V03 => "x-a2a-extensions",
            Generation::V10 => {
                // Without this header, an agent treats the request as one of 0.3.
                headers.insert("a2a-version", HeaderValue::from_static(a2a::VERSION));
                "a2a-extensions"
            }
        };
        if let Some(extensions) = extensions {
            headers.insert(name, extensions.clone());
        }
        headers
    }

    /// Sends `request`, with its body as the media type that the agent takes. A server that refuses
    /// a type has not read the body, so that the request may be sent again in the other type.
    pub(super) async fn send(
        &self,
        request: Request,
        mut headers: HeaderMap,
        only_reads: bool,
    ) -> Result<reqwest::Response, NoResponse> {
        if self.endpoint.binding == A2aBinding::Grpc {
            grpc::mark(&mut headers);
            return self.follow(request, headers, only_reads).await;
        }
        if request.body.is_none() {
            return self.follow(request, headers, only_reads).await;
        }
        if !self.habits.wants_a2a_json.load(Ordering::Relaxed) {
            headers.insert(CONTENT_TYPE, JSON);
            let response = self.follow(request.clone(), headers.clone(), only_reads).await?;
            if response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
                return Ok(response);
            }
            self.habits.wants_a2a_json.store(true, Ordering::Relaxed);
        }
        headers.insert(CONTENT_TYPE, A2A_JSON);
        self.follow(request, headers, only_reads).await
    }

    /// Sends `request`, and follows 307 and 308 within its origin, as servers answer where a slash
    /// is missing: the server that has redirected a request has not processed it. The credentials
    /// go to no other origin, so any other redirect is given back as it is.
    async fn follow(
        &self,
        mut request: Request,
        headers: HeaderMap,
        only_reads: bool,
    ) -> Result<reqwest::Response, NoResponse> {
        let mut redirects = 0;
        loop {
            let response = self.once(&request, headers.clone(), only_reads).await?;
            match redirect::target(response.status(), &request.url, response.headers()) {
                Some(target)
                    if redirects < redirect::MAX
                        && redirect::keeps_request(response.status())
                        && address::is_own(&request.url, &target) =>
                {
                    request.url = target;
                    redirects += 1;
                }
                _ => return Ok(response),
            }
        }
    }

    async fn once(
        &self,
        request: &Request,
        headers: HeaderMap,
        only_reads: bool,
    ) -> Result<reqwest::Response, NoResponse> {
        let tokens = self.settings.tokens.as_ref();
        Tokens::authorize(tokens, headers, async |headers| {
            let mut builder = self.client.request(request.method.clone(), request.url.clone());
            builder = builder.headers(headers);
            if let Some(body) = &request.body {
                builder = builder.body(body.clone());
            }
            let response = self.client.send_as(builder, only_reads).await?;
            // The token code knows HTTP's statuses alone.
            let judged = tokens.is_some() && self.is_grpc(&response);
            Ok(if judged { grpc::with_status_of_tokens(response) } else { response })
        })
        .await
    }

    pub(super) fn is_grpc(&self, response: &reqwest::Response) -> bool {
        self.endpoint.binding == A2aBinding::Grpc && grpc::is_reply(response)
    }

    /// How the parts of replies are written.
    pub(super) fn encoding(&self) -> PartEncoding {
        match (self.endpoint.generation, self.endpoint.binding) {
            (Generation::V03, A2aBinding::HttpJson) => PartEncoding::Nested,
            _ => PartEncoding::Plain,
        }
    }

    /// Reads a message, or a task as it stands.
    pub(super) fn read(&self, result: &RawValue) -> A2aResult<Reply> {
        result::read(result.get(), self.encoding(), self.streams)
            .map_err(|error| A2aFailure::unclear(error.to_string()))
    }

    /// Cancels the task. To cancel it twice does no harm, so failures on the way are not the end.
    pub(super) async fn cancel(&self, task: &str) {
        let name = &self.settings.name;
        let mut waits = CANCEL_WAITS.into_iter();
        loop {
            let exchange = self.exchange(Operation::CancelTask(task));
            let no_answer = |_elapsed| Err(A2aFailure::lost("no answer in time"));
            let failure = match timeout(CANCEL_TIMEOUT, exchange).await.unwrap_or_else(no_answer) {
                Ok(_) => break tracing::debug!(backend = %name, task, "task cancelled"),
                Err(failure)
                    if failure.has_code(TASK_NOT_CANCELABLE)
                        || failure.has_code(TASK_NOT_FOUND) =>
                {
                    break tracing::debug!(backend = %name, task, "the task had ended already");
                }
                Err(failure) => failure,
            };
            let Some(wait) = waits.next().filter(|_| failure.is_transient()) else {
                break tracing::warn!(backend = %name, task, ?failure, "cannot cancel the task");
            };
            sleep(Duration::from_secs(wait)).await;
        }
    }
}
