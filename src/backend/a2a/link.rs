//! The link to one agent: sends a request, and reads the result that comes back.
//!
//! Must not: decide what a reply means for the call, or ask twice, cancellations aside.

use std::sync::Arc;
use std::time::Duration;

use a2a::error_code::{TASK_NOT_CANCELABLE, TASK_NOT_FOUND};
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::failure::{A2aFailure, Exchanged};
use super::grpc;
use super::interface::{Endpoint, Generation};
use super::result::{PartEncoding, Reply};
use super::wire::{Message, Operation};
use super::{AgentSettings, result, wire};
use crate::backend::CallError;
use crate::backend::auth::Tokens;
use crate::config::A2aBinding;
use crate::{clock, http_client, random};

/// The largest reply, in bytes.
pub(super) const MAX_REPLY: usize = 16 * 1024 * 1024;
/// How long one cancellation of a task may take.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The waits before a cancellation is tried again, in seconds. Together, they last as long as a
/// restart of the agent.
const CANCEL_WAITS: [u64; 4] = [1, 2, 4, 8];

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
        let request = wire::encode(&self.endpoint, operation, &random::uuid().to_string());
        let AgentSettings { config, tokens, .. } = &*self.settings;
        let mut headers = config.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if self.endpoint.generation == Generation::V10 {
            // Without this header, an agent treats the request as one of 0.3.
            headers.insert("a2a-version", HeaderValue::from_static(a2a::VERSION));
        }
        if let Operation::Send(Message { trace: Some(trace), .. }, _) = operation {
            http_client::add_trace(&mut headers, trace);
        }
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if self.endpoint.binding == A2aBinding::Grpc {
            grpc::mark(&mut headers);
        }
        Tokens::authorize(tokens.as_ref(), headers, async |headers| {
            let mut builder = self.client.request(request.method.clone(), request.url.clone());
            builder = builder.headers(headers);
            if let Some(body) = &request.body {
                builder = builder.body(body.clone());
            }
            let sent = self.client.send_as(builder, operation.only_reads()).await;
            let response = sent.map_err(CallError::from)?;
            // The token code knows HTTP's statuses alone.
            let judged = tokens.is_some() && self.is_grpc(&response);
            Ok(if judged { grpc::with_status_of_tokens(response) } else { response })
        })
        .await
    }

    fn is_grpc(&self, response: &reqwest::Response) -> bool {
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
