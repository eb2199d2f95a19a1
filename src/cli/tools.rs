//! `status`, `tools`, `call` and `token`: looking at the running daemon, and using it by hand.
//!
//! Must not: know how the daemon does what it shows.

use std::{fmt::Write as _, io::Read as _};

use http::Method;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    Failure, Outcome,
    client::{Client, parse},
    colours, print,
};
use crate::{config::Config, state::StateDir};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    version: String,
    uptime_seconds: u64,
    upstream: Upstream,
    backends: Vec<Backend>,
    runs: Runs,
    journal: Journal,
    config: Loaded,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upstream {
    base_url: String,
    reachable: Option<bool>,
    last_error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Journal {
    last_error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Loaded {
    last_error: Option<String>,
}

#[derive(Deserialize)]
struct Runs {
    driven: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Backend {
    name: String,
    kind: String,
    state: String,
    transport: String,
    protocol_version: Option<String>,
    tools: usize,
    last_refresh: Option<String>,
    last_error: Option<String>,
    calls_in_flight: usize,
    breaker: Option<Breaker>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Breaker {
    state: String,
    retry_at: Option<String>,
}

/// `mantyx-bridge status`.
pub(super) async fn status(config: &Config, json: bool) -> Outcome {
    let text = Client::new(config)?.get("/v1/status").await?;
    if json {
        return print(&format!("{text}\n"));
    }
    let status: Status = parse(&text)?;
    let reachable = match status.upstream.reachable {
        Some(true) => "reachable",
        Some(false) => "not reachable",
        None => "not asked yet",
    };
    let up = humantime::format_duration(std::time::Duration::from_secs(status.uptime_seconds));
    let mut out = format!(
        "mantyx-bridge {}, up {up}\nupstream {} ({reachable}), {} runs driven\n\n",
        status.version, status.upstream.base_url, status.runs.driven
    );
    if let Some(error) = &status.upstream.last_error {
        line(&mut out, format_args!("  last upstream error: {error}"));
    }
    if let Some(error) = &status.journal.last_error {
        line(&mut out, format_args!("  no calls are made: {}\n", plain(error)));
    }
    if let Some(error) = &status.config.last_error {
        line(&mut out, format_args!("  configuration: {}\n", plain(error)));
    }
    let mut rows = vec![
        ["BACKEND", "KIND", "STATE", "TRANSPORT", "PROTOCOL", "TOOLS", "CALLS", "LAST REFRESH"]
            .map(str::to_owned),
    ];
    let dash = || "-".to_owned();
    for backend in &status.backends {
        rows.push([
            backend.name.clone(),
            backend.kind.clone(),
            backend.state.clone(),
            backend.transport.clone(),
            backend.protocol_version.clone().unwrap_or_else(dash),
            backend.tools.to_string(),
            backend.calls_in_flight.to_string(),
            backend.last_refresh.clone().unwrap_or_else(dash),
        ]);
    }
    table(&mut out, &rows);
    for backend in &status.backends {
        if let Some(error) = &backend.last_error {
            line(&mut out, format_args!("\n{}: {}", backend.name, plain(error)));
        }
        match &backend.breaker {
            Some(Breaker { state, retry_at: Some(at) }) if state == "open" => {
                let name = &backend.name;
                line(&mut out, format_args!("\n{name}: keeps failing; no call is made until {at}"));
            }
            Some(Breaker { state, .. }) if state == "half-open" => {
                let name = &backend.name;
                line(&mut out, format_args!("\n{name}: keeps failing; the next call is a try"));
            }
            _ => (),
        }
    }
    print(&out)
}

#[derive(Deserialize)]
struct Refs {
    tools: Vec<Value>,
}

/// `mantyx-bridge tools [BACKEND]`.
pub(super) async fn tools(config: &Config, backend: Option<&str>, json: bool) -> Outcome {
    let query: String = match backend {
        Some(backend) => {
            let mut query = url::form_urlencoded::Serializer::new(String::from("?"));
            query.append_pair("backends", backend).finish()
        }
        None => String::new(),
    };
    let text = Client::new(config)?.get(&format!("/v1/tool-refs{query}")).await?;
    if json {
        return print(&format!("{text}\n"));
    }
    let refs: Refs = parse(&text)?;
    let mut rows = vec![["TOOL", "BACKEND", "DESCRIPTION"].map(str::to_owned)];
    let words = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    for one in &refs.tools {
        let name = words(one, "name");
        match one["tools"].as_array() {
            Some(tools) => rows.extend(tools.iter().map(|tool| {
                [words(tool, "name"), name.clone(), summary(&words(tool, "description"))]
            })),
            None => {
                let own = words(one, "description");
                let card = words(&one["agentCard"], "description");
                let text = if own.is_empty() { card } else { own };
                rows.push([name.clone(), name, summary(&text)]);
            }
        }
    }
    let mut out = String::new();
    table(&mut out, &rows);
    print(&out)
}

/// `mantyx-bridge call TOOL [JSON]`.
pub(super) async fn call(config: &Config, tool: &str, arguments: &str, json: bool) -> Outcome {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<String>,
        error: Option<String>,
    }
    let arguments = match arguments {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        given => given.to_owned(),
    };
    let arguments = RawValue::from_string(arguments.trim().to_owned())
        .map_err(|error| Failure::Usage(format!("the arguments are not JSON: {error}")))?;
    if !arguments.get().starts_with('{') {
        return Err(Failure::Usage(
            "the arguments are a JSON object, such as '{\"a\": 2}'".to_owned(),
        ));
    }
    let id = format!("cli_{}", uuid::Uuid::new_v4());
    let name = Value::from(tool);
    let body = format!("{{\"toolUseId\":\"{id}\",\"name\":{name},\"args\":{}}}", arguments.get());
    let client = Client::new(config)?;
    let text = client.send(Method::POST, "/v1/tool-calls", Some(body)).await?.success()?;
    let answer: Answer = parse(&text)?;
    if json {
        print(&format!("{text}\n"))?;
        return match answer.error {
            None => Ok(()),
            Some(_) => Err(Failure::Failed(String::new())),
        };
    }
    match (answer.result, answer.error) {
        (_, Some(error)) => Err(Failure::Failed(plain(&error))),
        (result, None) => print(&format!("{}\n", plain(&result.unwrap_or_default()))),
    }
}

/// `mantyx-bridge refresh [BACKEND]`.
pub(super) async fn refresh(config: &Config, backend: Option<&str>, json: bool) -> Outcome {
    let client = Client::new(config)?;
    let names = match backend {
        Some(name) => vec![name.to_owned()],
        None => {
            let status: Status = parse(&client.get("/v1/status").await?)?;
            status.backends.into_iter().map(|backend| backend.name).collect()
        }
    };
    let mut states = Vec::new();
    for name in names {
        let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let path = format!("/v1/backends/{name}/refresh");
        states.push(client.send(Method::POST, &path, None).await?.success()?);
    }
    if json {
        return print(&format!("[{}]\n", states.join(",")));
    }
    let mut away = Vec::new();
    let mut out = String::new();
    for state in &states {
        let Backend { name, state, tools, last_error, .. } = parse(state)?;
        line(&mut out, format_args!("{name}: {state}, {tools} tools"));
        if state != "ready" {
            let why = last_error.unwrap_or_else(|| "no reason given".to_owned());
            away.push(format!("{name} was not refreshed: {}", plain(&why)));
        }
    }
    print(&out)?;
    if away.is_empty() { Ok(()) } else { Err(Failure::Failed(away.join("\n"))) }
}

/// `mantyx-bridge token`.
pub(super) fn token(config: &Config) -> Outcome {
    if let Some(app) = config.apps.first() {
        return Err(Failure::Failed(format!(
            "this configuration lists its apps, and their tokens come from there (`apps.{}.token` \
             and so on)",
            app.name
        )));
    }
    let state = StateDir::new(config.state_dir.clone());
    let made = state.create().and_then(|()| state.token());
    let token = made.map_err(|error| Failure::Failed(crate::http_client::chain(&error)))?;
    print(&format!("{}\n", token.expose_secret()))
}

/// Rows in columns as wide as they need to be; the first row is a heading.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (at, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", plain(cell)));
        let text = cells.collect::<Vec<_>>().join("  ");
        let text = text.trim_end();
        if at == 0 && colours() {
            line(out, format_args!("\x1b[1m{text}\x1b[0m"));
        } else {
            line(out, format_args!("{text}"));
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

/// The first line, short enough for a table.
fn summary(text: &str) -> String {
    const WIDTH: usize = 72;
    let first = text.trim().lines().next().unwrap_or_default();
    if first.chars().count() <= WIDTH {
        return first.to_owned();
    }
    first.chars().take(WIDTH - 1).chain(['…']).collect()
}

/// What a peer says, without characters that would steer the terminal.
fn plain(text: &str) -> String {
    let safe = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(safe).collect()
}
