//! What a shell completes: subcommands, options, and the tools and backends of the running daemon.
//!
//! Must not: take longer than a person waits for a key, or say why there is nothing to complete.

use std::time::Duration;

use clap_complete::{CompleteEnv, CompletionCandidate};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::terminal::one_line;
use super::{Client, Place, command_line, parse, tools};
use crate::config::{Contact, Environment, find};
use crate::http::api::status::Status;

/// The variable by which the script of a shell asks for candidates.
pub(super) const VARIABLE: &str = "COMPLETE";
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers the script of a shell, and ends the process, if that has started it.
pub fn complete() {
    CompleteEnv::with_factory(command_line).var(VARIABLE).complete();
}

/// The tools, each with the first line about it.
pub(super) fn tools() -> Vec<CompletionCandidate> {
    let refs = answer("/v1/tool-refs").map(tools::tools_of).unwrap_or_default();
    let mut candidates = Vec::new();
    for tool in refs {
        let about = one_line(tool.description.lines().next().unwrap_or_default());
        candidates.push(CompletionCandidate::new(tool.name).help(Some(about.into())));
    }
    candidates
}

pub(super) fn backends() -> Vec<CompletionCandidate> {
    let status: Option<Status> = answer("/v1/status");
    let backends = status.into_iter().flat_map(|status| status.backends);
    backends.map(|backend| CompletionCandidate::new(backend.name)).collect()
}

pub(super) fn tools_and_backends() -> Vec<CompletionCandidate> {
    backends().into_iter().chain(tools()).collect()
}

/// What the daemon answers, if there is one.
fn answer<T: DeserializeOwned>(path: &str) -> Option<T> {
    let env = Environment::of_process();
    let configured = find(None, &env).and_then(|file| Contact::load(&file, &env, None));
    let place = configured
        .map(|contact| Place::Configured(Box::new(contact)))
        .ok()
        .or_else(|| Place::noted(&env).ok()?)?;
    let client = Client::new(&place).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let text = runtime.block_on(async { timeout(PATIENCE, client.view(path)).await.ok()?.ok() });
    parse(&text?).ok()
}
