//! `mantyx-bridge demo`: the bridge's main work on this machine, without any configuration.
//!
//! Everything is real but the model: the daemon, a child process that speaks MCP, an agent that
//! speaks A2A, and a MANTYX with the real protocol and a script for a model. The demo is an app of
//! the bridge like any other: it knows a base URL and a token.
//!
//! With `--runtime`, another runtime has the calls made: [`runtime`].
//!
//! Must not: leave files or processes behind, or need a network.

mod runtime;

use std::path::Path;
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(super) use self::runtime::Runtime;
use super::page::{PLAIN, Page};
use super::serve::cannot_start;
use super::terminal::cut;
use super::{Client, Failure, Outcome, Stop, failures, open, parse, print, print_page};
use crate::backend::program::orphans;
use crate::config::{Config, Environment};
use crate::daemon::{Daemon, Options};
use crate::error_chain::error_chain;
use crate::http::api::openapi::Submitted;
use crate::state_dir::StateDir;

/// The configuration of the demo.
const BRIDGE_YAML: &str = include_str!("demo/bridge.yaml");

/// The prompt for the sandbox's model: a line that begins with a tool's name calls that tool.
const PROMPT: &str = include_str!("demo/prompt.txt");

/// How long the whole demo may take; it takes about a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The calls that were seen, and those that were answered with a result.
#[derive(Debug, Default)]
struct DemoRun {
    calls: usize,
    results: usize,
    text: Option<String>,
}

pub(super) async fn demo(env: &Environment, runtime: Option<Runtime>, stay: bool) -> Outcome {
    match runtime {
        None if stay => with_bridge(env, "", None, stays).await,
        None => with_bridge(env, "", Some(LIMIT), show).await,
        Some(runtime) => runtime.show(env).await,
    }
}

/// Runs the bridge for as long as `show` takes, which may be `limit`, or until a person ends it;
/// `more` are further keys of its configuration. `show` gets a client of the bridge, and its
/// address.
async fn with_bridge(
    env: &Environment,
    more: &str,
    limit: Option<Duration>,
    show: impl AsyncFnOnce(&Client, &str) -> Outcome,
) -> Outcome {
    let mut signals = Stop::new()?;
    let state = std::env::temp_dir().join(format!("mantyx-bridge-demo-{}", std::process::id()));
    let text =
        format!("{BRIDGE_YAML}{more}state_dir: {}\n", Value::from(state.display().to_string()));
    let config = Config::parse(&text, Path::new("demo"), env)?;
    let options = Options { launcher: std::env::current_exe().ok(), ..Options::default() };
    orphans::adopt();
    let outcome = async {
        let daemon = Daemon::build(config, options).await.map_err(|error| cannot_start(&error))?;
        let url = daemon.urls.first().cloned().unwrap_or_default();
        let app = Client::at(url.clone(), Some(daemon.token.clone()), StateDir::new(state.clone()));
        let stop = CancellationToken::new();
        let running = daemon.run(stop.cancelled(), std::future::pending());
        let showing = async {
            let _over = stop.clone().drop_guard();
            tokio::select! {
                outcome = show(&app, &url) => outcome,
                () = sleep(LIMIT), if limit.is_some() => {
                    Err(Failure::Failed(format!("it did not end within {LIMIT:?}")))
                }
                () = signals.asked() => match limit {
                    Some(_) => Err(Failure::Failed("interrupted".to_owned())),
                    None => Ok(()),
                },
            }
        };
        let (end, outcome) = tokio::join!(running, showing);
        end.map_err(|error| Failure::Failed(error_chain(&error)))?;
        outcome
    }
    .await;
    if let Err(error) = std::fs::remove_dir_all(&state) {
        super::complain(&format!("{} was left behind: {error}", state.display()));
    }
    outcome
}

async fn show(app: &Client, url: &str) -> Outcome {
    begin(url, "an agent run")?;
    wait_until_ready(app).await?;
    let run = submit(app).await?;
    let DemoRun { calls, results, text } = follow(app, &run).await?;
    let Some(text) = text.filter(|_| calls == 2 && results == 2) else {
        return Err(failures::demo_calls(calls, results));
    };
    print(&format!(
        "\nThe run's answer, with what the tools said in it:\n\n{}\n\n\
         To do this with your own servers:\n  mantyx-bridge init\n",
        indented(&text)
    ))
}

/// The same, and keeps running.
async fn stays(app: &Client, url: &str) -> Outcome {
    show(app, url).await?;
    let link = open::link(app).await?;
    print(&format!("The bridge runs until Ctrl-C. Its status page:\n  {link}\n"))?;
    std::future::pending().await
}

fn begin(url: &str, asked_for: &str) -> Outcome {
    print(&format!(
        "The bridge listens on {url} and is about to be asked for {asked_for}.\n\
         Its backends: `demo`, an MCP server on stdio, and `desk`, an A2A agent.\n\n",
    ))
}

async fn wait_until_ready(app: &Client) -> Outcome {
    while app.ask("/readyz", HeaderMap::new()).await?.status != StatusCode::OK {
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Submits a spec without any backends; the bridge injects their tools.
async fn submit(app: &Client) -> Outcome<String> {
    let spec = json!({ "systemPrompt": "You are helpful.", "prompt": PROMPT.trim_end() });
    let path = "/api/v1/workspaces/demo/agent-runs";
    print(&format!("> POST {path}\n{}\n\n", indented(PROMPT)))?;
    let reply = app.post(path, HeaderMap::new(), Some(spec.to_string())).await?;
    let header = reply.headers.get("x-bridge-injected").and_then(|value| value.to_str().ok());
    let injected = header.unwrap_or("-").to_owned();
    let status = reply.status;
    let created: Submitted = parse(&reply.success()?)?;
    print(&format!("< {status}, X-Bridge-Injected: {injected}\n\n"))?;
    Ok(created.stream_url)
}

/// Prints the events of the run as they come.
async fn follow(app: &Client, path: &str) -> Outcome<DemoRun> {
    print(&format!("> GET {path}\n"))?;
    let mut events = app.open(path, None).await?;
    let mut run = DemoRun::default();
    while let Some(fields) = events.next().await? {
        let Some(data) = fields.data else { continue };
        run.take(&parse(&data)?)?;
    }
    Ok(run)
}

impl DemoRun {
    fn take(&mut self, event: &Value) -> Outcome {
        let data = &event["data"];
        let kind = event["type"].as_str().unwrap_or("?");
        let what = match kind {
            "tool_call" => {
                self.calls += 1;
                format!("{} {}", data["name"].as_str().unwrap_or("?"), data["input"])
            }
            "local_tool_result_in" => {
                self.results += usize::from(data["error"].is_null());
                shortened(data["output"].as_str().or(data["error"].as_str()).unwrap_or(""))
            }
            "result" => {
                self.text = data["text"].as_str().map(str::to_owned);
                data["subtype"].as_str().unwrap_or("?").to_owned()
            }
            _ => shortened(data["text"].as_str().unwrap_or("")),
        };
        let seq = event["seq"].as_u64().unwrap_or(0);
        let on_terminal = AnsiColor::Cyan.on_default();
        let mut page = Page::default();
        let before = (PLAIN, format!("< {seq:>3} "));
        page.pieces([before, (on_terminal, format!("{kind:<21}")), (PLAIN, format!(" {what}"))]);
        print_page(&page)
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn shortened(text: &str) -> String {
    cut(&text.replace('\n', " "), 90)
}
