//! hsafa's gateway, in its revisions v3 and v7.
//!
//! v3 sends each call to every listener, and replays none. v7 sends a call to one listener, which
//! has registered the tools of a skill.
//!
//! Must not: know how a call is made.

use std::{convert::Infallible, sync::Arc};

use http::{Method, header};
use serde_json::value::RawValue;
use tracing::debug;

use super::{Asked, LinkError, Runtime};
use crate::model::{
    event::Call,
    json::{member, string_member},
    runtime_call::{HSAFA_V3, HSAFA_V7},
    tool_format::Format,
};

/// The path of v3's stream.
pub(super) const STREAM: [&str; 3] = ["api", "tools", "stream"];

pub(super) async fn listen_v3(runtime: &Arc<Runtime>) -> Result<Infallible, LinkError> {
    let link = &runtime.link();
    let mut events = link.open(link.url(STREAM), &link.headers).await?;
    runtime.is_ready();
    loop {
        let event = events.next().await?;
        let Some(call) = read(runtime, HSAFA_V3.read(&event)) else { continue };
        let Some(run) = string_member(&event, "runId") else {
            runtime.unreadable("its `runId` is no text");
            continue;
        };
        // Every listener gets every call; the others answer those with other names.
        let Some(route) = runtime.offer().route(&call.name).cloned() else {
            debug!(runtime = %runtime.name, tool = call.name, "a call of a tool of others");
            continue;
        };
        let post_to = link.url(["api", "runs", &run, "tool-results"]).path().to_owned();
        let turn = runtime.turn().await;
        runtime.take(Asked { call, run, post_to, headers: None }, Some(route), turn);
    }
}

pub(super) async fn listen_v7(
    runtime: &Arc<Runtime>,
    base: &[String],
    skill: &str,
) -> Result<Infallible, LinkError> {
    let link = &runtime.link();
    let url = |rest: &[&str]| link.url(base.iter().map(String::as_str).chain(rest.iter().copied()));
    let mut offers = runtime.runs.calls.backends.registry.version();
    let mut settings = runtime.runs.calls.watch_settings();
    let mut registered = String::new();
    let stream = url(&["skills", skill, "actions", "stream"]);
    // Before its tools are registered, so that no call of them goes to no listener.
    let mut events = link.open(stream, &link.headers).await?;
    loop {
        let tools = tools(runtime);
        if tools != registered {
            let request =
                link.request(Method::PUT, url(&["skills", skill, "tools"]), &link.headers);
            let request = request.header(header::CONTENT_TYPE, "application/json");
            link.ask(request.body(format!("{{\"tools\":{tools}}}"))).await?;
            registered = tools;
            runtime.is_ready();
        }
        let event = tokio::select! {
            event = events.next() => event?,
            _changed = offers.changed() => continue,
            _changed = settings.changed() => continue,
        };
        let Some(call) = read(runtime, HSAFA_V7.read(&event)) else { continue };
        let id = call.tool_use.as_str();
        let post_to = url(&["actions", id, "result"]).path().to_owned();
        let route = runtime.offer().route(&call.name).cloned();
        let haseef = member(&event, "haseef").map_or("", RawValue::get);
        let run = string_member(haseef, "id").unwrap_or_default();
        let turn = runtime.turn().await;
        runtime.take(Asked { call, run, post_to, headers: None }, route, turn);
    }
}

/// The tools of the runtime, in the form that v7 registers.
fn tools(runtime: &Runtime) -> String {
    Format::Hsafa.tools(runtime.offer().definitions(), "").0
}

/// The call of an event, if it has one and can be read.
pub(super) fn read(runtime: &Runtime, event: Result<Option<Call>, String>) -> Option<Call> {
    event.unwrap_or_else(|why| {
        runtime.unreadable(&why);
        None
    })
}
