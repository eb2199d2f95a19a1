//! The link to one agent: sends a request, and reads the result that comes back.
//!
//! Must not: decide what a reply means for the call, or ask twice, cancellations aside.

use std::sync::Arc;
use std::time::Duration;

use a2a::error_code::{TASK_NOT_CANCELABLE, TASK_NOT_FOUND};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::failure::{A2aFailure, Exchanged};
use super::grpc;
use super::interface::{Endpoint, Generation};
use super::result::{PartEncoding, Reply};
use super::wire::{Message, Operation, Request};
use super::{AgentSettings, redirect, result, wire};
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
    /// one text may be in several parts. The bridge does not read its streams.
    pub streams: bool,
}

impl Link {
    /// Makes one request and reads its result.
    pub(super) async fn exchange(&self, operation: Operation<'_>) -> Exchanged {
        let response = self.send(operation).await?;
        if self.is_grpc(&response) {
            return grpc::result(response, operation).await;
        }
        let status = response.status();
        let asked = http_client::retry_after(response.headers(), clock::now());
        let body = http_client::body(response, MAX_REPLY).await.map_err(CallError::from)?;
        let mut decoded = wire::decode(self.endpoint.binding, status, &body);
        if let Err(A2aFailure::Refused { pause, .. }) = &mut decoded {
            *pause = asked;
        }
        decoded
    }

    async fn send(&self, operation: Operation<'_>) -> Exchanged<reqwest::Response> {
        Ok(self.transmit(&self.endpoint, operation).await?)
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
        if let Operation::Send(Message { trace: Some(trace), .. }, _) = operation {
            http_client::add_trace(&mut headers, trace);
        }
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if self.endpoint.binding == A2aBinding::Grpc {
            grpc::mark(&mut headers);
        }
        self.follow(request, headers, operation.only_reads()).await
    }

    /// The headers of each request to the agent in this version.
    pub(super) fn headers(&self, generation: Generation) -> HeaderMap {
        let AgentSettings { config, extensions, .. } = &*self.settings;
        let mut headers = config.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
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

    /// Sends `request`, and follows 307 and 308 within its origin, as servers answer where a slash
    /// is missing: the server that has redirected a request has not processed it. The credentials
    /// go to no other origin, so any other redirect is given back as it is.
    pub(super) async fn follow(
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

    /// Reads a message, or a task as it stands.
    pub(super) fn read(&self, result: &RawValue) -> Exchanged<Reply> {
        let encoding = match (self.endpoint.generation, self.endpoint.binding) {
            (Generation::V03, A2aBinding::HttpJson) => PartEncoding::Nested,
            _ => PartEncoding::Plain,
        };
        result::read(result.get(), encoding, self.streams)
            .map_err(|error| A2aFailure::unreadable(error.to_string()))
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
            let Some(wait) = waits.next().filter(|_| failure.may_pass()) else {
                break tracing::warn!(backend = %name, task, ?failure, "cannot cancel the task");
            };
            sleep(Duration::from_secs(wait)).await;
        }
    }
}
