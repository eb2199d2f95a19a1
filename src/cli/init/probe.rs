//! Probes an address, through the daemon's own dialers.
//!
//! Must not: call a tool, or send a message to an agent.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::time::timeout;
use url::{Host, Url};

use crate::{
    backend::{
        a2a::{A2aDialer, Conversations},
        mcp,
        peer::{Dial, PeerError},
    },
    cli::{Failure, terminal::plain},
    config::{Config, Environment, Target},
    error_chain::error_chain,
    http_client,
    model::{card::Card, catalog::Content, json},
};

/// How long the server or the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The kind of peer at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mcp,
    A2a,
}

/// The peer at an address.
#[derive(Debug)]
pub(super) struct ProbedPeer {
    /// Its own name.
    pub(super) name: String,
    /// A description for people.
    pub(super) what: String,
}

impl Kind {
    pub(super) fn question(self) -> &'static str {
        match self {
            Self::Mcp => "The URL of an MCP server (nothing: no more): ",
            Self::A2a => "The URL of an A2A agent (nothing: no more): ",
        }
    }

    /// A name for a peer that does not give one: the first part of its host.
    pub(super) fn name_of_host(self, url: &str) -> String {
        match Url::parse(url).ok().as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name.split('.').next().unwrap_or_default().to_owned(),
            _ => match self {
                Self::Mcp => "server".to_owned(),
                Self::A2a => "agent".to_owned(),
            },
        }
    }
}

/// Probes `url`: the peer there, or why none answers. The failure is an invalid URL.
pub(super) async fn probe(
    kind: Kind,
    url: &str,
    env: &Environment,
) -> Result<Result<ProbedPeer, String>, Failure> {
    let section = match kind {
        Kind::Mcp => "mcp",
        Kind::A2a => "a2a",
    };
    let quoted = serde_json::Value::from(url);
    let text = format!("upstream: {{sandbox: true}}\n{section}: {{probe: {{url: {quoted}}}}}\n");
    let config = judged(&text, env);
    let config = config.map_err(|why| Failure::Usage(format!("this is no address: {why}")))?;
    let Some(backend) = config.backends.values().next() else {
        return Err(Failure::Usage("this is no address".to_owned()));
    };
    let client = http_client::new();
    let dialer: Arc<dyn Dial> = match &backend.target {
        Target::Mcp(server) => Arc::new(mcp::dialer(&backend.name, server, None, client)),
        Target::A2a(agent) => {
            Arc::new(A2aDialer::new(backend.name.clone(), agent, client, Conversations::default()))
        }
        Target::Local(_) => return Err(Failure::Usage("this is no address".to_owned())),
    };
    let asked = timeout(PATIENCE, found(dialer.as_ref())).await;
    Ok(match asked {
        Ok(Ok(found)) => {
            let name = if found.name.is_empty() { kind.name_of_host(url) } else { found.name };
            Ok(ProbedPeer { name, what: plain(&found.what) })
        }
        Ok(Err(error)) => Err(plain(&error_chain(&error))),
        Err(_elapsed) => Err(format!("nothing within {} s", PATIENCE.as_secs())),
    })
}

/// Has the configuration's own checks judge an address or a workspace, so that `init` writes no
/// invalid file.
fn judged(text: &str, env: &Environment) -> Result<Config, String> {
    let text = format!("state_dir: /nonexistent\n{text}");
    Config::parse(&text, Path::new("(what was said)"), env).map_err(|errors| {
        let first = errors.problems.into_iter().next();
        first
            .map(|first| [first.message, first.cure.unwrap_or_default()].join("; "))
            .unwrap_or_default()
    })
}

/// Checks whether a workspace can have this name; the error says why not.
pub(super) fn check_workspace(name: &str) -> Result<(), String> {
    let quoted = serde_json::Value::from(name);
    let text = format!("upstream: {{sandbox: true, workspace: {quoted}}}\n");
    judged(&text, &Environment::bare()).map(drop)
}

async fn found(dialer: &dyn Dial) -> Result<ProbedPeer, PeerError> {
    let peer = dialer.dial().await?;
    let catalog = peer.resolve().await?;
    let about = peer.about();
    let version = about.protocol_version.unwrap_or_default();
    let (name, what) = match catalog.content() {
        Content::A2a { card } => {
            let name = Card::read(card.get()).map(|card| card.name).unwrap_or_default();
            let what = format!("the agent {name:?}, A2A {version}");
            (name, what)
        }
        Content::Mcp { .. } | Content::Local { .. } => {
            let info = about.server_info;
            let name = info.and_then(|info| json::string_member(info.get(), "name"));
            let name = name.unwrap_or_default();
            let what = format!("{name:?}, MCP {version}, {} tools", catalog.tool_count());
            (name, what)
        }
    };
    peer.close().await;
    Ok(ProbedPeer { name, what })
}
