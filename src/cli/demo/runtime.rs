//! `mantyx-bridge demo --runtime`: the same two calls, made for another runtime.
//!
//! A stand-in speaks the wire of hsafa and of Claude. loom-mcp has none: its app's process posts
//! the calls, and here the demo is that process.
//!
//! Must not: show a wire that the runtime does not have.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{LIMIT, begin, indented, wait_until_ready, with_bridge};
use crate::cli::{Client, Failure, Outcome, parse, print};
use crate::config::Environment;
use crate::random;
use crate::sandbox::wires::{ENVIRONMENT, Meaning, Post, StandIn, Wire};

/// More than all POSTs of one demo.
const POSTS: usize = 16;

/// The runtime that has the calls made.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::cli) enum Runtime {
    /// hsafa's gateway, v3
    Hsafa,
    /// A process with loom-mcp's runtime
    Loom,
    /// A self-hosted environment of Claude Managed Agents
    Claude,
}

/// The tool and the arguments of each call.
fn calls() -> [(&'static str, Value); 2] {
    [
        ("demo_add", json!({ "a": 19, "b": 23 })),
        ("desk", json!({ "message": "Where do I get a badge?" })),
    ]
}

impl Runtime {
    pub(super) async fn show(self, env: &Environment) -> Outcome {
        match self {
            Self::Hsafa => {
                answer(env, Wire::HsafaV3, "hsafa's gateway", "kind: hsafa, api: v3").await
            }
            Self::Loom => with_bridge(env, "", Some(LIMIT), answer_sets).await,
            Self::Claude => {
                let keys = format!("kind: claude-environment, environment: {ENVIRONMENT}");
                answer(env, Wire::Claude, "Claude's service", &keys).await
            }
        }
    }
}

/// Has the bridge answer a stand-in of the service `name`; `keys` describe it in the configuration.
async fn answer(env: &Environment, wire: Wire, name: &str, keys: &str) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let credential = random::unguessable().to_string();
    let entry = format!("{{{keys}, url: 'http://{address}', credential: '{credential}'}}");
    let (posts, mut posted) = mpsc::channel(POSTS);
    let stand_in = Arc::new(StandIn::new(wire, credential, posts));
    let stop = CancellationToken::new();
    let serving = Arc::clone(&stand_in).serve(listener, stop.clone());
    let showing = async {
        // The stand-in ends after the bridge, which would connect again.
        let _end = stop.drop_guard();
        with_bridge(
            env,
            &format!("runtimes:\n  other: {entry}\n"),
            Some(LIMIT),
            async |app, url| {
                begin(url, &format!("calls by a stand-in of {name} on http://{address}"))?;
                wait_until_heard(app).await?;
                converse(&stand_in, wire, &mut posted).await
            },
        )
        .await
    };
    tokio::join!(serving, showing).1
}

/// Waits until the bridge listens to the runtime, with all tools.
async fn wait_until_heard(app: &Client) -> Outcome {
    wait_until_ready(app).await?;
    loop {
        let status: Value = parse(&app.get("/v1/status", HeaderMap::new()).await?)?;
        if status["runtimes"][0]["state"] == "ready" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn converse(stand_in: &StandIn, wire: Wire, posted: &mut mpsc::Receiver<Post>) -> Outcome {
    if wire == Wire::Claude {
        await_post(posted, Meaning::Claim).await?;
    }
    for (place, (tool, args)) in calls().iter().enumerate() {
        let event = stand_in.ask(&format!("call_{place}"), tool, args);
        print(&format!("> data: {event}\n"))?;
        await_post(posted, Meaning::Result).await?;
    }
    if wire == Wire::HsafaV3 {
        return print(
            "Shown: hsafa v3 asked for two calls, and the bridge posted their results; see \
             docs/hsafa.md.\n",
        );
    }
    let end = json!({ "type": "session.status_terminated" });
    print(&format!("> data: {end}\n"))?;
    stand_in.tell(end);
    await_post(posted, Meaning::Stop).await?;
    print(
        "Shown: the bridge claimed a session of Claude, answered its two calls and left it; see \
         docs/claude.md.\n",
    )
}

/// Prints the bridge's next POST, which must have this meaning.
async fn await_post(posted: &mut mpsc::Receiver<Post>, meaning: Meaning) -> Outcome {
    let post = posted.recv().await.expect("the stand-in lives on");
    print(&format!("< POST {}\n{}\n\n", post.path, indented(&post.body)))?;
    if post.meaning == meaning {
        return Ok(());
    }
    let why = format!("the bridge should have posted a {meaning:?}, not a {:?}", post.meaning);
    Err(Failure::Failed(why))
}

/// Posts sets of loom-mcp's external tools to the bridge: one of both calls, and one with a
/// mistake.
async fn answer_sets(app: &Client, url: &str) -> Outcome {
    begin(url, "calls by a process with loom-mcp's runtime")?;
    wait_until_ready(app).await?;
    let good = post_set(app, "await_1", &calls()).await?;
    let bad = post_set(app, "await_2", &[("demo_add", json!({ "a": 19 }))]).await?;
    if [&good[0], &good[1]].iter().any(|result| !result["Result"].is_string())
        || bad[0]["RetryHint"]["Reason"] != "invalid_arguments"
    {
        let why = "the first set should have got two results, and the second a retry hint";
        return Err(Failure::Failed(why.to_owned()));
    }
    print(
        "Shown: the bridge answered one set of loom-mcp with two results, and one with a retry \
         hint; see docs/loom.md.\n",
    )
}

/// Posts a set as `await_external_tools` has it; returns its results.
async fn post_set(app: &Client, id: &str, calls: &[(&str, Value)]) -> Outcome<Value> {
    let mut items = Vec::new();
    for (place, (tool, args)) in calls.iter().enumerate() {
        let id = format!("call_{place}");
        items.push(json!({ "tool_name": tool, "tool_call_id": id, "payload": args }));
    }
    let set = json!({ "runId": "run_demo", "id": id, "items": items }).to_string();
    let path = "/v1/external-tools";
    print(&format!("> POST {path}\n{}\n", indented(&set)))?;
    let reply = app.post(path, HeaderMap::new(), Some(set)).await?;
    let status = reply.status;
    let text = reply.success()?;
    print(&format!("< {status}\n{}\n\n", indented(&text)))?;
    parse::<Value>(&text).map(|answer| answer["Results"].clone())
}
