//! The link to one agent: sends a request, and reads the result or the events that come back.
//!
//! Must not: decide what a reply means for the call, or ask twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde_json::value::RawValue;
use tokio::time::timeout;
use uuid::Uuid;

use super::grpc;
use super::{
    failure::A2aFailure,
    interface::{Endpoint, Generation},
    result::{self, PartEncoding, Reply},
    wire::{self, Message, Operation},
};
use crate::{
    backend::{
        auth::{self, Tokens},
        peer::NotRead,
    },
    budget::{Budget, Held},
    config::A2aBinding,
    error_chain::error_chain,
    http_client,
    model::ids::BackendName,
    sse::{FrameTooLarge, Framer},
};

/// The largest reply, the largest event and the most that a stream may add up to, in bytes.
pub(super) const MAX_REPLY: usize = 16 * 1024 * 1024;
/// How long the cancellation of a task may take.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that a request to one agent needs.
#[derive(Debug)]
pub(super) struct Link {
    pub name: BackendName,
    pub client: http_client::Client,
    /// The configured headers. They may be sent to any [`Endpoint`].
    pub headers: HeaderMap,
    /// Tokens are sent wherever the headers are.
    pub tokens: Option<Arc<Tokens>>,
    pub endpoint: Endpoint,
    /// Whether messages are sent by streaming: as the card says, until the agent refuses to stream.
    pub streams: AtomicBool,
}

/// The response to a request for events.
pub(super) enum Opened {
    Events(Box<Events>),
    /// The agent answered with a result instead.
    Plain(Box<RawValue>),
}

/// The events of one response.
pub(super) enum Events {
    Sse(SseEvents),
    Grpc(grpc::Messages),
}

pub(super) struct SseEvents {
    response: reqwest::Response,
    framer: Framer,
    /// The budget of a partly received event.
    held: Held,
    binding: A2aBinding,
}

impl Link {
    pub(super) fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }

    /// Notes that the agent does not stream, whatever its card says.
    pub(super) fn stop_streaming(&self) {
        if self.streams.swap(false, Ordering::Relaxed) {
            tracing::warn!(backend = %self.name, "the card says that the agent streams: it does not");
        }
    }

    /// Makes one request and reads its result.
    pub(super) async fn exchange(
        &self,
        operation: Operation<'_>,
    ) -> Result<Box<RawValue>, A2aFailure> {
        let response = self.send(operation, "application/json").await?;
        if self.is_grpc(&response) {
            return grpc::result(response, operation).await;
        }
        self.result(response).await
    }

    /// Makes one request. If events follow, reads only the head of the response.
    pub(super) async fn open(&self, operation: Operation<'_>) -> Result<Opened, A2aFailure> {
        let response = self.send(operation, "text/event-stream, application/json").await?;
        if self.is_grpc(&response) {
            let events = Events::Grpc(grpc::Messages::new(response));
            return Ok(Opened::Events(Box::new(events)));
        }
        let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_stream = content_type.is_some_and(|value| {
            let expected = b"text/event-stream";
            value.get(..expected.len()).is_some_and(|head| head.eq_ignore_ascii_case(expected))
        });
        if !is_stream || !response.status().is_success() {
            return self.result(response).await.map(Opened::Plain);
        }
        let binding = self.endpoint.binding;
        let framer = Framer::new(MAX_REPLY);
        let held = Budget::of_process().hold();
        let events = Events::Sse(SseEvents { response, framer, held, binding });
        Ok(Opened::Events(Box::new(events)))
    }

    async fn send(
        &self,
        operation: Operation<'_>,
        accept: &'static str,
    ) -> Result<reqwest::Response, A2aFailure> {
        let request = wire::encode(&self.endpoint, operation, &Uuid::new_v4().to_string());
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if self.endpoint.generation == Generation::V10 {
            // Without this header, an agent treats the request as one of 0.3.
            let name = HeaderName::from_static("a2a-version");
            headers.insert(name, HeaderValue::from_static(a2a::VERSION));
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
        auth::send(self.tokens.as_deref(), headers, async |headers| {
            let mut builder = self.client.request(request.method.clone(), request.url.clone());
            builder = builder.headers(headers);
            if let Some(body) = &request.body {
                builder = builder.body(body.clone());
            }
            let sent = if operation.only_reads() {
                self.client.send_repeatable(builder).await
            } else {
                self.client.send(builder).await
            };
            let response = sent.map_err(|error| {
                let not_sent = error.is_connect() || error.is_builder();
                let text = error_chain(&error.without_url());
                if not_sent { A2aFailure::NotSent(text) } else { A2aFailure::Lost(text) }
            })?;
            let response = self.with_status_of_tokens(response);
            Ok(response)
        })
        .await
    }

    fn is_grpc(&self, response: &reqwest::Response) -> bool {
        self.endpoint.binding == A2aBinding::Grpc && grpc::is_reply(response)
    }

    /// Maps gRPC's refusal of a token to HTTP's status: the token code knows HTTP's alone.
    fn with_status_of_tokens(&self, response: reqwest::Response) -> reqwest::Response {
        let judged = self.tokens.is_some() && self.is_grpc(&response);
        if judged { grpc::with_status_of_tokens(response) } else { response }
    }

    async fn result(&self, response: reqwest::Response) -> Result<Box<RawValue>, A2aFailure> {
        let status = response.status();
        let body = http_client::body(response, MAX_REPLY).await?;
        wire::decode(self.endpoint.binding, status, &body)
    }

    /// Reads a message, or a task as it stands.
    pub(super) fn read(&self, result: &RawValue) -> Result<Reply, A2aFailure> {
        let reply = result::read(result.get(), self.part_encoding())
            .map_err(|error| A2aFailure::Unreadable(error.to_string()))?;
        self.log_left_out(&reply);
        Ok(reply)
    }

    pub(super) fn log_left_out(&self, reply: &Reply) {
        for left_out in &reply.left_out {
            tracing::debug!(backend = %self.name, task = reply.task_id, "left out: {left_out}");
        }
    }

    pub(super) fn part_encoding(&self) -> PartEncoding {
        match (self.endpoint.generation, self.endpoint.binding) {
            (Generation::V03, A2aBinding::HttpJson) => PartEncoding::Nested,
            _ => PartEncoding::Plain,
        }
    }

    pub(super) async fn cancel(&self, task: &str) {
        let exchange = self.exchange(Operation::CancelTask(task));
        match timeout(CANCEL_TIMEOUT, exchange).await {
            Ok(Ok(_)) => tracing::debug!(backend = %self.name, task, "task cancelled"),
            Ok(Err(failure)) if failure.is_not_cancelable() || failure.is_unknown_task() => {
                tracing::debug!(backend = %self.name, task, "the task had ended already");
            }
            Ok(Err(failure)) => {
                tracing::warn!(backend = %self.name, task, ?failure, "cannot cancel the task");
            }
            Err(_) => {
                let seconds = CANCEL_TIMEOUT.as_secs();
                tracing::warn!(
                    backend = %self.name,
                    task,
                    "cannot cancel the task: no answer in {seconds} s"
                );
            }
        }
    }
}

impl Events {
    /// The next event; `None` at the end of the response. A refusal is the agent's own last word
    /// in the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Box<RawValue>>, A2aFailure> {
        match self {
            Self::Sse(events) => events.next().await,
            Self::Grpc(messages) => messages.next_event().await,
        }
    }
}

impl SseEvents {
    async fn next(&mut self) -> Result<Option<Box<RawValue>>, A2aFailure> {
        loop {
            let frame = match self.framer.next_frame() {
                Ok(Some(frame)) if frame.raw.len() > MAX_REPLY => {
                    let size = Some(frame.raw.len() as u64);
                    return Err(A2aFailure::NotRead(NotRead::TooLarge { limit: MAX_REPLY, size }));
                }
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    // Adjust the budget before waiting: the event may be gone, and the next
                    // chunk may take long.
                    self.held.follow(self.framer.unfinished().len());
                    match self.response.chunk().await {
                        Ok(Some(chunk)) => {
                            self.framer.push(&chunk);
                            continue;
                        }
                        Ok(None) => match self.framer.end() {
                            Some(frame) => frame,
                            None => return Ok(None),
                        },
                        Err(error) => {
                            return Err(A2aFailure::Lost(error_chain(&error.without_url())));
                        }
                    }
                }
                Err(FrameTooLarge { limit }) => {
                    return Err(A2aFailure::NotRead(NotRead::TooLarge { limit, size: None }));
                }
            };
            // Comments keep the connection alive and carry no data.
            if let Some(data) = frame.fields().data.filter(|data| !data.is_empty()) {
                return wire::decode_event(self.binding, &data).map(Some);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a stream pays for.

    use futures_util::FutureExt as _;

    use super::*;
    use crate::budget::{CHUNKS, tests::quiet_after};

    #[tokio::test]
    async fn a_quiet_stream_does_not_pay_for_what_it_said() {
        let event = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"{}\"}}\n\n",
            "x".repeat(200 << 10)
        );
        let (first, second) = event.as_bytes().split_at(event.len() / 2);
        let mut events = SseEvents {
            response: quiet_after(vec![first.to_vec(), second.to_vec()]),
            framer: Framer::new(MAX_REPLY),
            held: Budget::of_process().hold(),
            binding: A2aBinding::JsonRpc,
        };
        assert!(events.next().await.unwrap().unwrap().get().len() > 200 << 10);
        assert!(events.held.bytes() > CHUNKS, "it came in parts");
        assert!(events.next().now_or_never().is_none());
        assert_eq!(events.held.bytes(), 0);
    }
}
