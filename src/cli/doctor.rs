//! `mantyx-bridge doctor`: checks the file, dials the upstream and every backend, and prints a
//! verdict and a cure for each step.
//!
//! It needs no daemon, and dials as the daemon does: a handshake and a catalog, never a call.
//!
//! Must not: call a tool, or show a secret.

mod checks;
mod cures;
mod network;
mod report;
mod sessions;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::timeout;

use self::checks::Context;
use self::report::{Check, Examined, Report};
use super::{Failure, Outcome, check, failures, pretty, print, print_json, print_page};
use crate::backend::program::orphans;
use crate::config::{Backend, Config, Environment, find};
use crate::model::Redaction;
use crate::state_dir::StateDir;

/// How long one check may take: longer than the default of `refresh.timeout`, after which a server
/// that hangs is told with what it has written meanwhile.
const LIMIT: Duration = Duration::from_secs(45);
/// How many checks run at once: each may start a program.
const AT_ONCE: usize = 8;

pub(super) async fn doctor(
    path: Option<&Path>,
    env: &Environment,
    only: &[String],
    json: bool,
) -> Outcome {
    let mut check = Check::default();
    check.begin("file");
    let loaded =
        find(path, env).and_then(|path| Ok((Config::load_what_resolves(&path, env)?, path)));
    let (config, path) = match loaded {
        Ok(loaded) => loaded,
        Err(errors) if json => {
            print_json(&pretty(&check::CheckReport::from(errors)))?;
            return Err(Failure::Usage(String::new()));
        }
        Err(errors) => return Err(errors.into()),
    };
    let chosen = chosen(&config, only)?;
    check.ok("it can be read, and makes a configuration");
    warn_of_files(&mut check, &config);
    let file = check.into_examined("file", &path.display().to_string());

    let sessions = if chosen.iter().any(|backend| backend.start.idle_stop.is_some()) {
        sessions::recent(&path, env).await
    } else {
        BTreeMap::new()
    };
    orphans::adopt();
    let context = Context::new(&config, sessions);
    let mut checks: Vec<LocalBoxFuture<'_, Examined>> = vec![Box::pin(std::future::ready(file))];
    let context = &context;
    if only.is_empty() {
        checks.push(Box::pin(bounded("upstream", "upstream", async |check: &mut Check| {
            checks::upstream(check, context).await;
        })));
    }
    if let Some(postgres) = config.state.as_ref().filter(|_| only.is_empty()) {
        checks.push(Box::pin(bounded("state", "postgres", async move |check: &mut Check| {
            checks::state(check, postgres).await;
        })));
    }
    for backend in chosen {
        let limit = if backend.program().is_some() { LIMIT + backend.start.timeout } else { LIMIT };
        let (kind, name) = (backend.target.section(), backend.name.as_str());
        let examination = bounded_by(limit, kind, name, async move |check: &mut Check| {
            checks::backend(check, context, backend).await;
        });
        let turn = context.in_turn(backend, examination);
        let secrets = &config.secrets;
        checks.push(Box::pin(async move { turn.await.without(secrets, &backend.redact) }));
    }
    for runtime in config.runtimes.iter().filter(|_| only.is_empty()) {
        let name = runtime.app.name.as_str();
        checks.push(Box::pin(bounded("runtime", name, async move |check: &mut Check| {
            checks::runtime(check, context, runtime).await;
        })));
    }
    let numbered =
        checks.into_iter().enumerate().map(|(number, check)| async move { (number, check.await) });
    // Each result is printed as it comes.
    let results = stream::iter(numbered).buffer_unordered(AT_ONCE).map(|(number, examined)| {
        let examined = examined.without(&config.secrets, &Redaction::default());
        if !json {
            print_page(&examined.page())?;
        }
        Ok((number, examined))
    });
    let outcome: Outcome<Vec<_>> = results.try_collect().await;
    // Also if printing has failed.
    context.finish().await;
    let mut examined = outcome?;
    // Programs get them in a fixed order.
    examined.sort_by_key(|(number, _)| *number);
    let report = Report::new(examined.into_iter().map(|(_, examined)| examined).collect());
    if json {
        print_json(&pretty(&report))?;
    } else {
        print(&(report.summary() + "\n"))?;
    }
    // The report has already named the failures.
    if report.ok { Ok(()) } else { Err(Failure::Failed(String::new())) }
}

/// Warns of what works in the file and in the state directory, and should be changed.
fn warn_of_files(check: &mut Check, config: &Config) {
    for warning in &config.warnings {
        check.begin("file").warn(warning, cures::REFERENCE);
    }
    let state = StateDir::new(config.state_dir.clone());
    if let Some(exposed) = state.exposed() {
        check.begin("state").warn(exposed.message.trim_end_matches('.'), exposed.cure);
    }
    for damaged in state.damaged_journals() {
        let finding = format!("a damaged journal was set aside as {}", damaged.display());
        check.begin("journal").warn(finding, cures::DAMAGED);
    }
}

/// Runs one check within [`LIMIT`], and keeps the steps that ended in time.
async fn bounded(
    kind: &'static str,
    name: &str,
    examine: impl AsyncFnOnce(&mut Check),
) -> Examined {
    bounded_by(LIMIT, kind, name, examine).await
}

/// Runs one check within `limit`, and keeps the steps that ended in time.
async fn bounded_by(
    limit: Duration,
    kind: &'static str,
    name: &str,
    examine: impl AsyncFnOnce(&mut Check),
) -> Examined {
    let mut check = Check::default();
    if timeout(limit, examine(&mut check)).await.is_err() {
        let finding = format!("there was no answer within {} s", limit.as_secs());
        check.fail(finding, cures::HANGS);
    }
    check.into_examined(kind, name)
}

fn chosen<'c>(config: &'c Config, only: &[String]) -> Outcome<Vec<&'c Backend>> {
    for name in only {
        if !config.backends.contains_key(name.as_str()) {
            let names: Vec<_> = config.backends.keys().map(ToString::to_string).collect();
            return Err(failures::no_backend(name, names.join(", ")));
        }
    }
    if only.is_empty() {
        return Ok(config.backends.values().collect());
    }
    let backends = config.backends.values();
    Ok(backends.filter(|backend| only.iter().any(|name| name == backend.name.as_str())).collect())
}

#[cfg(test)]
mod tests;
