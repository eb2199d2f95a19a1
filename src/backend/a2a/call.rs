//! One call to an agent: send the message, follow the task that it becomes, cancel what nobody
//! waits for any more.
//!
//! Must not: time out (the caller drops the future), retry a message, or know how a request looks
//! on the wire. Streams and resubscription would take the place of the polling in [`follow`].

use std::{sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    interface::{Endpoint, Generation},
    wire::{self, Failure, Operation},
};
use crate::{
    backend::peer::{CallError, Origin},
    config::A2aBinding,
    http_client::{self, BodyError},
    model::{
        answer::{
            Answer,
            a2a::{self as reply, Outcome, Reply, Wire},
        },
        ids::BackendName,
    },
};

/// The largest reply, in bytes: all the files of an answer fit, in base64 and that in base64 again.
pub(super) const MAX_REPLY: usize = 16 * 1024 * 1024;

/// The first wait before an unfinished task is looked at, the growth of the wait, and its end.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const WAIT_GROWTH: f64 = 1.5;
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How many looks at a task may fail in a row: at the longest wait, a restart of the agent.
const MAX_MISSES: u32 = 5;
/// How long the cancellation of a task may take.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that a request to one agent needs.
#[derive(Debug)]
pub(super) struct Link {
    pub name: BackendName,
    pub client: reqwest::Client,
    /// The configured headers. An [`Endpoint`] is a place that they may go to.
    pub headers: HeaderMap,
    pub endpoint: Endpoint,
}

/// Sends `text` to the agent and waits for its answer.
pub(super) async fn call(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    text: &str,
    origin: Option<&Origin>,
) -> Result<Answer, CallError> {
    let message_id = message_id(origin).to_string();
    let send = Operation::Send { text, message_id: &message_id };
    let result = link.exchange(send).await?;
    let reply = link.read(&result)?;
    match reply.outcome {
        Outcome::Final(answer) | Outcome::Waiting(answer) => Ok(answer),
        Outcome::Unfinished => {
            let task = reply.task_id.expect("a reply without a task id is not unfinished");
            follow(link, tracker, task).await
        }
    }
}

/// Looks at the task until it ends or waits for somebody.
async fn follow(
    link: &Arc<Link>,
    tracker: &TaskTracker,
    task: String,
) -> Result<Answer, CallError> {
    let mut unfinished =
        CancelOnDrop { link: link.clone(), tracker: tracker.clone(), task: Some(task.clone()) };
    let mut wait = FIRST_WAIT;
    let mut misses = 0;
    loop {
        sleep(wait).await;
        wait = wait.mul_f64(WAIT_GROWTH).min(LONGEST_WAIT);
        match link.exchange(Operation::GetTask(&task)).await {
            Ok(result) => {
                misses = 0;
                match link.read(&result)?.outcome {
                    Outcome::Unfinished => {}
                    Outcome::Final(answer) | Outcome::Waiting(answer) => {
                        unfinished.task = None;
                        return Ok(answer);
                    }
                }
            }
            Err(failure) if failure.is_transient() && misses < MAX_MISSES => {
                misses += 1;
                tracing::debug!(backend = %link.name, task, ?failure, "no news of the task");
            }
            Err(failure) => {
                if failure.is_unknown_task() {
                    unfinished.task = None;
                }
                return Err(failure.after_sending());
            }
        }
    }
}

/// The same id for every repetition of a call, so that an agent that looks at ids can tell.
fn message_id(origin: Option<&Origin>) -> Uuid {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6d57_4c0e_8f0b_4c55_9d3a_2f9f_51a2_7be4);
    origin.map_or_else(Uuid::new_v4, |Origin { run, tool_use }| {
        let run = run.as_str();
        // The length keeps ("a/b", "c") and ("a", "b/c") apart.
        let name = format!("{}/{run}/{}", run.len(), tool_use.as_str());
        Uuid::new_v5(&NAMESPACE, name.as_bytes())
    })
}

impl Link {
    /// Makes one request and reads its result.
    async fn exchange(&self, operation: Operation<'_>) -> Result<Box<RawValue>, Failure> {
        let Endpoint { binding, generation, .. } = self.endpoint;
        let request = wire::encode(&self.endpoint, operation, &Uuid::new_v4().to_string());
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if generation == Generation::V10 {
            // An agent takes a request without this header for one of 0.3.
            let name = HeaderName::from_static("a2a-version");
            headers.insert(name, HeaderValue::from_static(a2a::VERSION));
        }
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut builder = self.client.request(request.method, request.url).headers(headers);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let response = builder.send().await.map_err(|error| {
            let not_sent = error.is_connect() || error.is_builder();
            let text = http_client::chain(&error.without_url());
            if not_sent { Failure::NotSent(text) } else { Failure::Lost(text) }
        })?;
        let status = response.status();
        let body = http_client::body(response, MAX_REPLY).await.map_err(|error| match error {
            BodyError::TooLarge { limit } => {
                Failure::Unreadable(format!("the reply is larger than {limit} bytes"))
            }
            BodyError::Broken(cause) => Failure::Lost(http_client::chain(&cause.without_url())),
        })?;
        wire::decode(binding, status, &body)
    }

    fn read(&self, result: &RawValue) -> Result<Reply, CallError> {
        let wire = match (self.endpoint.generation, self.endpoint.binding) {
            (Generation::V03, A2aBinding::HttpJson) => Wire::Nested,
            _ => Wire::Plain,
        };
        let reply = reply::read(result.get(), wire)
            .map_err(|error| CallError::Unreadable(error.to_string()))?;
        for left_out in &reply.left_out {
            tracing::debug!(backend = %self.name, task = reply.task_id, "left out: {left_out}");
        }
        Ok(reply)
    }

    async fn cancel(&self, task: &str) {
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

/// Cancels the task in the background when the call is dropped before the task has ended.
struct CancelOnDrop {
    link: Arc<Link>,
    tracker: TaskTracker,
    /// `None` once there is nothing to cancel.
    task: Option<String>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // Outside of a runtime, nothing can be sent: the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let link = self.link.clone();
        // The handle is not needed: the tracker knows the task.
        drop(self.tracker.spawn_on(async move { link.cancel(&task).await }, &runtime));
    }
}
