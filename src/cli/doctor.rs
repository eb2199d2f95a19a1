//! `mantyx-bridge doctor`: the file, then the upstream and every backend dialled, each step with its
//! verdict and its cure.
//!
//! It needs no daemon, and dials as the daemon does: a handshake and a catalog, never a call.
//!
//! Must not: call a tool, or show a secret.

mod network;
mod patient;
mod report;

use std::{path::Path, pin::pin, time::Duration};

use futures_util::{Stream, StreamExt as _, future::LocalBoxFuture, stream};
use tokio::time::timeout;

use self::{
    patient::Ward,
    report::{Examined, Mask, Report, Visit},
};
use super::{Failure, Outcome, check, print};
use crate::{
    config::{Backend, Config, Environment, Target, find},
    state_dir::{EXPOSED, StateDir},
};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How many are examined at once: every one may be a program that starts.
const AT_ONCE: usize = 8;

pub(super) async fn doctor(
    path: Option<&Path>,
    env: &Environment,
    only: &[String],
    json: bool,
) -> Outcome {
    let mut visit = Visit::default();
    visit.begin("file");
    let loaded = find(path).and_then(|path| Ok((Config::load(&path, env)?, path)));
    let (config, path) = match loaded {
        Ok(loaded) => loaded,
        Err(_) if json => {
            check::run(path, true, &mut std::io::stdout().lock())?;
            return Err(Failure::Usage(String::new()));
        }
        Err(errors) => return Err(errors.into()),
    };
    let chosen = chosen(&config, only)?;
    visit.ok("it can be read, and all its references lead to something");
    for warning in &config.warnings {
        visit.begin("file");
        visit.warn(warning, "see the line that it names");
    }
    let state = StateDir::new(config.state_dir.clone());
    if let Some(what) = state.exposed() {
        visit.begin("state");
        visit.warn(what.trim_end_matches('.'), EXPOSED);
    }
    for damaged in state.damaged_journals() {
        visit.begin("journal");
        visit.warn(
            format!("a damaged journal was set aside as {}", damaged.display()),
            "look after the disk; `mantyx-bridge status` says what was lost of late. Delete the file \
             when nobody wants to look at it any more",
        );
    }
    let file = visit.into_examined("file", &path.display().to_string());

    let ward = Ward::new(&config);
    let mut visits: Vec<LocalBoxFuture<'_, Examined>> = vec![Box::pin(std::future::ready(file))];
    let (ward, config) = (&ward, &config);
    if only.is_empty() {
        let examine = async |visit: &mut Visit| patient::upstream(visit, ward, config).await;
        visits.push(Box::pin(bounded("upstream", "upstream", examine)));
    }
    for backend in chosen {
        let examine = async move |visit: &mut Visit| patient::backend(visit, ward, backend).await;
        visits.push(Box::pin(bounded(kind(backend), backend.name.as_str(), examine)));
    }
    let mask = Mask::new(config);
    let done = stream::iter(visits).buffered(AT_ONCE).map(|examined| examined.masked(&mask));
    let report = tell(done, json).await;
    // Also where nobody reads the report any more.
    ward.finish().await;
    let report = report?;
    if json {
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        print(&format!("{text}\n"))?;
    } else {
        print(&format!("{}\n", report.summary()))?;
    }
    // What failed has been told.
    if report.ok { Ok(()) } else { Err(Failure::Failed(String::new())) }
}

/// Tells each result as it comes, and gives them all.
async fn tell(done: impl Stream<Item = Examined>, json: bool) -> Result<Report, Failure> {
    let (mut done, mut report) = (pin!(done), Report::default());
    while let Some(examined) = done.next().await {
        if !json {
            print(&examined.to_string())?;
        }
        report.take(examined);
    }
    Ok(report)
}

/// Examines one within [`LIMIT`]; what was found until then is kept.
async fn bounded(
    kind: &'static str,
    name: &str,
    examine: impl AsyncFnOnce(&mut Visit),
) -> Examined {
    let mut visit = Visit::default();
    if timeout(LIMIT, examine(&mut visit)).await.is_err() {
        visit.fail(
            format!("there was no answer within {} s", LIMIT.as_secs()),
            "see whether it hangs: its own log tells what it was doing",
        );
    }
    visit.into_examined(kind, name)
}

fn chosen<'c>(config: &'c Config, only: &[String]) -> Result<Vec<&'c Backend>, Failure> {
    let names = || config.backends.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for name in only {
        if !config.backends.contains_key(name.as_str()) {
            return Err(Failure::Usage(format!(
                "there is no backend `{name}`; there are: {}",
                names()
            )));
        }
    }
    let wanted = |backend: &&Backend| {
        only.is_empty() || only.iter().any(|name| name == backend.name.as_str())
    };
    Ok(config.backends.values().filter(wanted).collect())
}

fn kind(backend: &Backend) -> &'static str {
    match backend.target {
        Target::Mcp(_) => "mcp",
        Target::A2a(_) => "a2a",
        Target::Local(_) => "local",
    }
}

#[cfg(test)]
mod tests;
