//! hsafa's gateway, in its revisions v3 and v7.
//!
//! v3 sends each call to every listener, and replays none. v7 sends a call to one listener, which
//! has registered the tools of a skill.
//!
//! Must not: know how a call is made.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use http::{Method, header};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::link::{Link, path};
use super::{LinkError, Runtime, RuntimeCall};
use crate::model::runtime_call::{HSAFA_V3, HSAFA_V7, is_id};
use crate::model::tool_format::Format;
use crate::model::{Call, member, string_member};

/// The pause after a registration of tools that failed.
const AGAIN: Duration = Duration::from_secs(10);

/// The path of v3's stream.
pub(super) const STREAM: [&str; 3] = ["api", "tools", "stream"];

/// Reads v3's stream. A call of a tool that the bridge does not have is left to the other
/// listeners.
pub(super) async fn listen_v3(
    runtime: &Arc<Runtime>,
    link: &Link,
) -> Result<Infallible, LinkError> {
    let mut events = link.open(link.url(STREAM), &link.headers).await?;
    runtime.note_ready(link);
    loop {
        let event = events.next().await?;
        let Some(call) = read(runtime, HSAFA_V3.read(&event)) else { continue };
        let Some(run) = string_member(&event, "runId").filter(|run| is_id(run)) else {
            runtime.unreadable("its `runId` is no id");
            continue;
        };
        // Every listener gets every call; the others answer those with other names.
        let Some(route) = runtime.offer().route(&call.name).cloned() else {
            debug!(runtime = %runtime.name, tool = call.name, "a call of a tool of others");
            continue;
        };
        let post_to = path(["api", "runs", &run, "tool-results"]);
        runtime.take(&link.wire, RuntimeCall { call, run, post_to }, Some(route)).await;
    }
}

/// Reads v7's stream, and registers the tools of the runtime when they change. The stream is opened
/// before the registration: a call that came between the two would go to no listener.
pub(super) async fn listen_v7(
    runtime: &Arc<Runtime>,
    link: &Link,
    skill: &str,
) -> Result<Infallible, LinkError> {
    let mut offers = runtime.runs.calls.backends.registry.version();
    let mut settings = runtime.runs.calls.settings.clone();
    let mut registered = String::new();
    let mut again = Some(Instant::now());
    let stream = link.url(["skills", skill, "actions", "stream"]);
    // Before its tools are registered, so that no call of them goes to no listener.
    let mut events = link.open(stream, &link.headers).await?;
    loop {
        let event = tokio::select! {
            event = events.next(), if !registered.is_empty() => Some(event?),
            _changed = offers.changed() => None,
            _changed = settings.changed() => None,
            Some(()) = OptionFuture::from(again.map(sleep_until)) => {
                again = register(runtime, link, skill, &mut registered).await?;
                continue;
            }
        };
        let Some(event) = event else {
            again.get_or_insert_with(Instant::now);
            continue;
        };
        let Some(call) = read(runtime, HSAFA_V7.read(&event)) else { continue };
        let post_to = path(["actions", call.tool_use.as_str(), "result"]);
        let route = runtime.offer().route(&call.name).cloned();
        let haseef = member(&event, "haseef").map_or("", RawValue::get);
        let run = string_member(haseef, "id").filter(|id| is_id(id)).unwrap_or_default();
        runtime.take(&link.wire, RuntimeCall { call, run, post_to }, route).await;
    }
}

/// Registers the tools of the runtime, if they are others than those `registered`. Returns when to
/// try again; without a registration yet, a failure is an error.
async fn register(
    runtime: &Runtime,
    link: &Link,
    skill: &str,
    registered: &mut String,
) -> Result<Option<Instant>, LinkError> {
    let (tools, _) = Format::Hsafa.tools(runtime.offer().definitions().into_iter(), "");
    if tools == *registered {
        return Ok(None);
    }
    let request = link
        .request(Method::PUT, link.url(["skills", skill, "tools"]), &link.headers)
        .header(header::CONTENT_TYPE, "application/json");
    match link.ask(request.body(format!("{{\"tools\":{tools}}}"))).await {
        Ok(_) => {
            *registered = tools;
            runtime.note_ready(link);
            Ok(None)
        }
        Err(error) if registered.is_empty() => Err(error),
        // Its actions come nevertheless.
        Err(error) => {
            warn!(runtime = %runtime.name, %error, "the tools are registered again later");
            Ok(Some(Instant::now() + AGAIN.max(error.retry_after())))
        }
    }
}

/// The call of an event, if it has one and can be read.
pub(super) fn read(runtime: &Runtime, event: Result<Option<Call>, String>) -> Option<Call> {
    event.unwrap_or_else(|why| {
        runtime.unreadable(&why);
        None
    })
}
