//! `tools`, `refresh` and `token`: the tools that the running daemon offers, and the secrets for
//! using it.
//!
//! Must not: know how the daemon works.

use std::io::{self, Write as _};

use http::HeaderMap;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::Value;

use super::page::{PLAIN, Page, Paper};
use super::terminal::plain;
use super::{Client, Failure, Outcome, parse, print};
use crate::config::Contact;
use crate::error_chain::error_chain;
use crate::http::api::openapi::ToolRefs;
use crate::http::api::status::{Backend, Status};
use crate::model::Own;
use crate::model::offer::STUB;
use crate::state_dir::StateDir;

/// `mantyx-bridge tools [BACKEND]`.
pub(super) async fn tools(contact: &Contact, backend: Option<&str>, json: bool) -> Outcome {
    let path = with_query("/v1/tool-refs", [("backends", backend)]);
    let client = Client::new(contact)?;
    let text = client.get(&path, HeaderMap::new()).await?;
    if json {
        return print(&format!("{text}\n"));
    }
    let refs: ToolRefs = parse(&text)?;
    let words = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let row = |name: String, backend: String, description: &str| {
        // A table has room for the first line only.
        let first = description.trim().lines().next().unwrap_or_default().to_owned();
        [name, backend, first].map(|text| (PLAIN, text))
    };
    let mut rows = Vec::new();
    for one in refs.tools.into_iter().map(Value::Object) {
        let name = words(&one, "name");
        let Some(tools) = one["tools"].as_array() else {
            let own = words(&one, "description");
            let card = words(&one["agentCard"], "description");
            let text = if own.is_empty() { card } else { own };
            let of = match name.strip_suffix(STUB) {
                _ if Own::named(&name).is_some() => "(the bridge)",
                Some(backend) if one["kind"] == "local" => backend,
                _ => &name,
            };
            rows.push(row(name.clone(), of.to_owned(), &text));
            continue;
        };
        // A server of more than 64 tools has several refs: `fs`, `fs__2`, and so on.
        let part = name.rsplit_once("__").filter(|(_, part)| part.parse::<u32>().is_ok());
        let backend = part.map_or(name.as_str(), |(backend, _)| backend);
        for tool in tools {
            rows.push(row(words(tool, "name"), backend.to_owned(), &words(tool, "description")));
        }
    }
    let mut page = Page::default();
    page.table(["TOOL", "BACKEND", "DESCRIPTION"], rows);
    let status: Status = parse(&client.get("/v1/status", HeaderMap::new()).await?)?;
    for one in status.daemon.injected {
        let of = one.backends.iter().find(|of| backend == Some(&of.name));
        page.line(PLAIN, "");
        page.note(PLAIN, format!("Each run: {}.", of.map_or(one.cost, |of| of.cost)));
        let largest = one.largest(backend);
        if !largest.is_empty() {
            page.note(PLAIN, format!("The largest, in tokens: {largest}."));
        }
    }
    print(&page.text(Paper::stdout()))
}

/// `path` with those parameters that have a value.
fn with_query<const N: usize>(path: &str, parameters: [(&str, Option<&str>); N]) -> String {
    let given = parameters.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("{path}?{}", query.extend_pairs(given).finish())
}

/// `mantyx-bridge tools --as RUNTIME`: the tools on stdout, and notes on stderr.
pub(super) async fn block(
    contact: &Contact,
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
    let text = Client::new(contact)?.get(&path, HeaderMap::new()).await?;
    let Tools { tools, notes } = parse(&text)?;
    for note in notes {
        let _closed = writeln!(io::stderr(), "note: {}", plain(&note));
    }
    print(&format!("{tools:#}\n"))
}

/// `mantyx-bridge refresh [BACKEND]`.
pub(super) async fn refresh(contact: &Contact, backend: Option<&str>, json: bool) -> Outcome {
    let client = Client::new(contact)?;
    let names = match backend {
        Some(name) => vec![name.to_owned()],
        None => {
            let status: Status = parse(&client.get("/v1/status", HeaderMap::new()).await?)?;
            status.backends.into_iter().map(|backend| backend.name).collect()
        }
    };
    let mut states = Vec::new();
    for name in names {
        let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let path = format!("/v1/backends/{name}/refresh");
        states.push(client.post(&path, HeaderMap::new(), None).await?.success()?);
    }
    let backends: Vec<Backend> =
        states.iter().map(|state| parse(state)).collect::<Result<_, _>>()?;
    if json {
        print(&format!("[{}]\n", states.join(",")))?;
    } else {
        let mut page = Page::default();
        for Backend { name, state, tools, .. } in &backends {
            page.note(PLAIN, format!("{name}: {state}, {tools} tools"));
        }
        print(&page.text(Paper::stdout()))?;
    }
    let away = backends.iter().filter(|backend| backend.state != "ready").map(|backend| {
        let why = backend.last_error.as_deref().unwrap_or("no reason given");
        format!("{} was not refreshed: {}", backend.name, plain(why))
    });
    let away: Vec<String> = away.collect();
    if away.is_empty() { Ok(()) } else { Err(Failure::Failed(away.join("\n"))) }
}

/// `mantyx-bridge token [--operator]`.
pub(super) fn token(contact: &Contact, is_operators: bool) -> Outcome {
    if let Some((app, _)) = contact.app.as_ref().filter(|_| !is_operators) {
        return Err(Failure::failed("listed_apps", &[("app", app)]));
    }
    let state = StateDir::new(contact.state_dir.clone());
    let secret = || if is_operators { state.operator() } else { state.token() };
    let made = state.create().and_then(|()| secret());
    let token = made.map_err(|error| Failure::Failed(error_chain(&error)))?;
    print(&format!("{}\n", token.expose_secret()))
}
