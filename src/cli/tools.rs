//! `tools`, `refresh` and `token`: the tools that the running daemon offers, and the secrets for
//! using it.
//!
//! Must not: know how the daemon works.

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;

use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::segment;
use super::page::{HEADING, PLAIN, Page, counted};
use super::terminal::one_line;
use super::{Client, Failure, Outcome, complain, failures, parse, print, print_json, print_page};
use crate::config::error::did_you_mean;
use crate::config::{Contact, Environment, find, state_directory};
use crate::error_chain::error_chain;
use crate::http::api::openapi::ToolRefs;
use crate::http::api::status::{Backend, Status};
use crate::model::form::without_lone_surrogates;
use crate::model::offer::STUB;
use crate::model::offer::cost::Injected;
use crate::model::{AppName, InputSchema, Own, visible};
use crate::state_dir::StateDir;

/// One tool, under the name that the model sees.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    backend: String,
    pub(super) description: String,
    /// The schema of its arguments.
    pub(super) schema: Value,
}

fn text_of(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The tools of these refs.
pub(super) fn tools_of(refs: ToolRefs) -> Vec<Tool> {
    let mut all = Vec::new();
    for one in refs.tools.into_iter().map(Value::Object) {
        let name = text_of(&one, "name");
        let Some(tools) = one["tools"].as_array() else {
            let own = text_of(&one, "description");
            let card = text_of(&one["agentCard"], "description");
            let description = if own.is_empty() { card } else { own };
            let backend = match name.strip_suffix(STUB) {
                _ if Own::named(&name).is_some() => "(the bridge)",
                Some(backend) if one["kind"] == "local" => backend,
                _ => &name,
            };
            // An agent takes a message.
            let schema = one.get("parameters").cloned().unwrap_or_else(
                || json!({"properties": {"message": {"type": "string"}}, "required": ["message"]}),
            );
            let backend = backend.to_owned();
            all.push(Tool { name, backend, description, schema });
            continue;
        };
        // A server of more than 64 tools has several refs: `fs`, `fs__2`, and so on.
        let part = name.rsplit_once("__").filter(|(_, part)| part.parse::<u32>().is_ok());
        let backend = part.map_or(name.as_str(), |(backend, _)| backend);
        all.extend(tools.iter().map(|tool| Tool {
            name: text_of(tool, "name"),
            backend: backend.to_owned(),
            description: text_of(tool, "description"),
            schema: tool["inputSchema"].clone(),
        }));
    }
    all
}

/// The tool of this name.
pub(super) async fn one(client: &Client, name: &str) -> Outcome<Tool> {
    let refs = client.view("/v1/tool-refs").await?;
    let all = tools_of(parse(&without_lone_surrogates(&refs))?);
    let backends = all.iter().map(|tool| tool.backend.as_str()).collect::<BTreeSet<_>>();
    let names = all
        .iter()
        .map(|tool| tool.name.as_str())
        .chain(backends.iter().copied())
        .filter(|other| *other != name);
    let meant = match did_you_mean(name, names) {
        Some(meant) => format!(", did you mean `{meant}`?"),
        None => ".".to_owned(),
    };
    let backends = backends.into_iter().collect::<Vec<_>>().join(", ");
    let unknown = failures::no_such_tool(name, meant, backends);
    all.into_iter().find(|tool| tool.name == name).ok_or(unknown)
}

/// Whether `app` is given the tool of this name.
pub(super) async fn app_has(client: &Client, app: &AppName, name: &str) -> Outcome<bool> {
    let path = with_query("/v1/tool-refs", [("app", Some(app.as_str()))]);
    let refs = client.as_operator(&path).await?;
    let tools = tools_of(parse(&without_lone_surrogates(&refs))?);
    Ok(tools.iter().any(|tool| tool.name == name))
}

/// `mantyx-bridge tools [BACKEND|TOOL]`.
pub(super) async fn tools(client: &Client, of: Option<&str>, json: bool) -> Outcome {
    let status: Status = parse(&client.view("/v1/status").await?)?;
    if let Some(name) = of
        && !json
        && !status.backends.iter().any(|backend| backend.name == name)
    {
        return shown(&one(client, name).await?);
    }
    let path = with_query("/v1/tool-refs", [("backends", of)]);
    let text = client.view(&path).await?;
    if json {
        return print_json(&format!("{}\n", with_costs(&text, status.daemon.injected, of)?));
    }
    let mut page = Page::default();
    let mut rows = Vec::new();
    let mut refs: ToolRefs = parse(&without_lone_surrogates(&text))?;
    let instructions = mem::take(&mut refs.instructions);
    for tool in tools_of(refs) {
        // A table has room for the first line only.
        let first = tool.description.trim().lines().next().unwrap_or_default().to_owned();
        rows.push([tool.name, tool.backend, first].map(|text| (PLAIN, text)));
    }
    page.table(["TOOL", "BACKEND", "DESCRIPTION"], rows);
    for (backend, text) in instructions.into_iter().filter(|_| of.is_some()) {
        page.line(PLAIN, "");
        page.note(HEADING, format!("The instructions of {backend}:"));
        for line in text.lines() {
            page.verbatim(PLAIN, &visible::shown(line));
        }
    }
    for one in status.daemon.injected {
        let backend = one.backends.iter().find(|backend| of == Some(&backend.name));
        page.line(PLAIN, "");
        page.note(
            PLAIN,
            format!("Each run: {}.", backend.map_or(one.cost, |backend| backend.cost)),
        );
        let largest = one.largest(of);
        if !largest.is_empty() {
            page.note(PLAIN, format!("The largest, in tokens: {largest}."));
        }
    }
    print_page(&page)
}

/// The daemon's refs with the member `injected` of its status, cut down to the backend `of`. The
/// refs stay byte for byte what a spec gets.
fn with_costs(refs: &str, mut injected: Vec<Injected>, of: Option<&str>) -> Outcome<String> {
    if let Some(name) = of {
        for app in &mut injected {
            app.backends.retain(|backend| backend.name == name);
            app.largest.retain(|tool| tool.backend == name);
        }
    }
    let Some(members) = refs.trim_end().strip_suffix('}') else {
        return Err(Failure::Failed("the daemon sent no object".to_owned()));
    };
    Ok(format!("{members},\"injected\":{}}}", json!(injected)))
}

/// One tool: what it is for, and its arguments.
fn shown(tool: &Tool) -> Outcome {
    let Tool { name, backend, description, schema } = tool;
    let mut page = Page::default();
    page.line(HEADING, format!("{name}, of {backend}"));
    for line in description.trim().lines() {
        page.note(PLAIN, line);
    }
    let mut rows = Vec::new();
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let kind = match &field["type"] {
            Value::Null => String::new(),
            Value::String(word) => word.clone(),
            several => several.to_string(),
        };
        let mut required = schema["required"].as_array().into_iter().flatten();
        let mark = if required.any(|one| one == key) { "required" } else { "" };
        let mut text = text_of(field, "description");
        if let Some(choices) = field.get("enum") {
            text += &format!(" One of {choices}.");
        }
        rows.push([key.clone(), kind, mark.to_owned(), text].map(|text| (PLAIN, text)));
    }
    page.line(PLAIN, "");
    if rows.is_empty() {
        page.line(PLAIN, "It takes no arguments.");
    } else {
        page.table(["ARGUMENT", "TYPE", "", "DESCRIPTION"], rows);
    }
    for part in unchecked(schema) {
        page.note(PLAIN, format!("Not checked, as the schema cannot be used here: {part}."));
    }
    print_page(&page)
}

/// The parts of a tool's schema that arguments are not checked against.
fn unchecked(schema: &Value) -> Vec<String> {
    let schema = RawValue::from_string(schema.to_string()).expect("a value is written as JSON");
    InputSchema::alone(&schema).unchecked().to_vec()
}

/// `path` with those parameters that have a value.
fn with_query<const N: usize>(path: &str, parameters: [(&str, Option<&str>); N]) -> String {
    let pairs = parameters.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("{path}?{}", query.extend_pairs(pairs).finish())
}

/// `mantyx-bridge tools --as RUNTIME`: the tools on stdout, and notes on stderr.
pub(super) async fn block(
    client: &Client,
    format: &str,
    names: [(&str, Option<&str>); 2],
) -> Outcome {
    #[derive(Deserialize)]
    struct Tools {
        tools: Value,
        notes: Vec<String>,
    }
    let [backends, runtime] = names;
    let path = with_query("/v1/tools", [("format", Some(format)), backends, runtime]);
    let text = client.view(&path).await?;
    let Tools { tools, notes } = parse(&without_lone_surrogates(&text))?;
    for note in notes {
        complain(&format!("note: {}", one_line(&note)));
    }
    print_json(&format!("{tools:#}\n"))
}

/// `mantyx-bridge refresh [BACKEND]`.
pub(super) async fn refresh(client: &Client, backend: Option<&str>, json: bool) -> Outcome {
    let names = match backend {
        Some(name) => vec![name.to_owned()],
        None => {
            let status: Status = parse(&client.view("/v1/status").await?)?;
            status.backends.into_iter().map(|backend| backend.name).collect()
        }
    };
    let mut states = Vec::new();
    for name in names {
        let path = format!("/v1/backends/{}/refresh", segment(&name));
        states.push(client.act(&path).await?);
    }
    let backends: Vec<Backend> =
        states.iter().map(|state| parse(state)).collect::<Result<_, _>>()?;
    if json {
        print_json(&format!("[{}]\n", states.join(",")))?;
    } else {
        let mut page = Page::default();
        for Backend { name, state, tools, last_error, .. } in &backends {
            page.note(PLAIN, format!("{name}: {state}, {}", counted(*tools, "tool")));
            if let Some(why) = last_error
                && state == "degraded"
            {
                page.note(PLAIN, format!("{name}: {}", one_line(why)));
            }
        }
        print_page(&page)?;
    }
    let mut away = Vec::new();
    for backend in &backends {
        // The card of an agent can be read while its endpoint would not answer a call.
        let is_refreshed = match &*backend.state {
            "ready" | "idle" => true,
            "degraded" => !backend.stale,
            _ => false,
        };
        if !is_refreshed {
            let unknown = match backend.state.as_str() {
                "disabled" => "the operator has disabled it until the bridge restarts",
                _ => "no reason given",
            };
            let why = backend.last_error.as_deref().unwrap_or(unknown);
            away.push(format!("{} was not refreshed: {}", one_line(&backend.name), one_line(why)));
        }
    }
    if away.is_empty() { Ok(()) } else { Err(Failure::Failed(away.join("\n"))) }
}

/// `mantyx-bridge token [--operator]`.
pub(super) fn token(config: Option<&Path>, env: &Environment, is_operators: bool) -> Outcome {
    let file = find(config, env)?;
    let state_dir = if is_operators {
        // It is there while the token of an app is missing still.
        state_directory(&file, env)?
    } else {
        match Contact::load(&file, env, None)? {
            Contact { app: Some((app, _)), .. } => return Err(failures::listed_apps(app)),
            Contact { state_dir, .. } => state_dir,
        }
    };
    let state = StateDir::new(state_dir);
    let token = state
        .create()
        .and_then(|()| if is_operators { state.operator() } else { state.token() })
        .map_err(|error| Failure::Failed(error_chain(&error)))?;
    for replaced in state.replaced() {
        complain(&format!("note: {}", replaced.message));
    }
    print(&format!("{}\n", token.expose_secret()))
}
