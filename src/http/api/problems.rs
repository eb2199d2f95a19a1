//! The current problems and their cures, in sentences for people, derived from the status.
//!
//! Must not: know more than the status.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{Backend, Daemon};
use crate::{
    model::{
        pin::{CARD, Finding, Review},
        visible,
    },
    state_dir::EXPOSED,
    tls::certificate::Validity,
    upstream::LOG_IN_ANEW,
};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// `upstream`, `journal`, `state`, `memory`, `audit`, `tls`, `config`, or the name of a backend
    /// or a runtime.
    pub(crate) subject: String,
    pub(crate) message: String,
    pub(crate) cure: String,
}

/// The subject, the message if there is such a problem, and the cure.
type Case<'a> = (&'a str, Option<String>, &'static str);

/// All current problems; those that concern everyone come first.
pub(super) fn all(daemon: &Daemon, backends: &[Backend]) -> Vec<Problem> {
    let problem = |(subject, message, cure): Case<'_>| {
        Some(Problem { subject: subject.to_owned(), message: message?, cure: cure.to_owned() })
    };
    let cases = of_daemon(daemon).into_iter().chain(backends.iter().flat_map(of_backend));
    cases.filter_map(problem).collect()
}

fn of_daemon(daemon: &Daemon) -> Vec<Case<'_>> {
    let Daemon { upstream, journal, state, config, .. } = daemon;
    let unreachable = (upstream.reachable == Some(false))
        .then(|| upstream.last_error.as_deref().unwrap_or("MANTYX cannot be reached.").to_owned());
    let mut cases = vec![
        ("journal", journal.last_error.clone(), if journal.full { FULL } else { JOURNAL }),
        ("journal", journal.lost.clone(), LOST),
        ("state", state.last_error.clone(), STATE),
        ("state", state.exposed.clone(), EXPOSED),
        ("memory", daemon.shortage.clone(), MEMORY),
        ("upstream", unreachable, UPSTREAM),
    ];
    for failing in daemon.failing.iter().filter(|failing| failing.is_refusal) {
        let runs = match failing.count {
            1 => format!("the run {} is not read", failing.run),
            more => format!("{more} runs are not read, {} among them", failing.run),
        };
        let message = format!("{}: {runs}.", failing.error);
        cases.push(("upstream", Some(message), refused(failing.status)));
    }
    let token = upstream.token_error.as_ref();
    let token = token.map(|error| format!("MANTYX cannot be shown a token: {error}"));
    cases.extend([
        ("upstream", token, if upstream.grant_ended { LOG_IN_ANEW } else { TOKEN }),
        ("config", config.last_error.clone(), if config.needs_restart { RESTART } else { CONFIG }),
    ]);
    if let Some(tls) = &daemon.tls {
        let until = &tls.not_after;
        let end = match tls.validity {
            Validity::Good => None,
            Validity::Ending => Some(format!("The certificate ends on {until}.")),
            Validity::Ended => Some(format!("The certificate ended on {until}.")),
        };
        let error = tls.last_error.as_ref();
        let error = error.map(|error| format!("The new certificate was not taken: {error}."));
        cases.extend([("tls", end, RENEW), ("tls", error, tls.cure)]);
    }
    for runtime in &daemon.runtimes {
        let down = runtime.last_error.as_ref().filter(|_| runtime.state == "down");
        let down = down.map(|error| format!("The runtime cannot be heard: {error}."));
        let gap = runtime.gap.as_ref().map(|gap| {
            format!("It was not heard from {gap}; calls that it announced meanwhile are lost.")
        });
        cases.extend([(runtime.name.as_str(), down, RUNTIME), (&runtime.name, gap, GAP)]);
    }
    let audit = daemon.audit.as_ref().and_then(|audit| audit.last_error.clone());
    cases.push(("audit", audit, AUDIT));
    cases
}

fn of_backend(backend: &Backend) -> Vec<Case<'_>> {
    let error = backend.last_error.as_deref();
    let (otherwise, cure) = match (backend.state.as_str(), backend.breaker.state.as_str()) {
        ("down", _) => (Some("There is no connection."), down(backend)),
        ("degraded", _) => (Some("The last refresh failed."), DEGRADED),
        (_, "open" | "half-open") => (Some("Its last calls got no answer."), BREAKER),
        _ => (None, ""),
    };
    let failure = otherwise.map(|otherwise| error.unwrap_or(otherwise).to_owned());
    let unsigned = backend
        .signature
        .as_ref()
        .and_then(|found| found.error.as_ref())
        .map(|why| format!("Its card counts as not signed, and is taken all the same: {why}."));
    let exposure = backend.exposure.as_ref();
    let unkept = backend.pin.unkept.as_ref();
    let unkept = unkept.map(|error| format!("What was accepted of it is not on disk: {error}"));
    let cases = [
        (failure, cure),
        (unsigned, SIGNATURE),
        (backend.left_out.clone(), LEFT_OUT),
        (backend.shadowed.clone(), SHADOWED),
        (exposure.map(ToString::to_string), exposure.map_or("", |exposure| exposure.cure())),
        (unaccepted(&backend.pin.review), PIN),
        (unkept, UNKEPT),
    ];
    cases.map(|(message, cure)| (backend.name.as_str(), message, cure)).into()
}

/// Says in a sentence or two where a backend differs from what the operator has accepted.
fn unaccepted(review: &Review) -> Option<String> {
    let damaged = review.damaged.as_ref().map(|why| {
        format!("What was accepted of it cannot be read, so nothing of it counts as known: {why}. ")
    });
    let name = |found: &Finding| match found.tool.as_str() {
        CARD => "its card".to_owned(),
        tool => visible::shown(tool),
    };
    let named: Vec<String> = review
        .open()
        .take(MOST_NAMED)
        .map(|found| format!("{} ({})", name(found), found.change.as_str()))
        .collect();
    let more = match review.open().count() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let becomes = match review.withdrawn() {
        0 => "offered all the same (pin: warn)",
        _ => "withdrawn until it is accepted (pin: enforce)",
    };
    let open = (!named.is_empty())
        .then(|| format!("Not as it was accepted: {}{more}; {becomes}.", named.join(", ")));
    let text = [damaged, open].into_iter().flatten().collect::<String>();
    (!text.is_empty()).then(|| text.trim_end().to_owned())
}

/// The most tools that a message names.
const MOST_NAMED: usize = 5;
const PIN: &str = "`mantyx-bridge trust BACKEND` shows what changed, and how to accept it.";
const UNKEPT: &str = "After a restart, the bridge would trust whatever the server says then. Free \
                      space on the disk of the state directory, and check its permissions.";

const LEFT_OUT: &str = "Ask for fewer or smaller tools where the server can be told which to list; \
                        docs/trust.md has the limits.";
const SHADOWED: &str = "Where both are needed, give one server other URIs; the order of the names of \
                        backends decides.";
const SIGNATURE: &str = "Ask the agent's operator which key it signs its card with, and compare it \
                         with `signature: {keys: …}`.";

const JOURNAL: &str = "No calls are made until it can be written: free space on the disk of the \
                       state directory, and look at its permissions.";
const FULL: &str = "No calls are made until it is smaller. It shrinks by itself as MANTYX takes answers \
                    and runs end: see whether MANTYX can be reached, and cancel runs that are not \
                    needed any more. Space on the disk does not help.";
const LOST: &str = "Attach runs that are not known any more (`POST /v1/runs/{id}/attach`); none of \
                    their calls is made twice. If a file was set aside, check the disk of the state \
                    directory; you can delete the file. This is shown for 24 h.";
const STATE: &str = "It is tried again by itself: free space on the disk of the state directory, and \
                     look at its permissions.";
const MEMORY: &str = "Clients get Retry-After, and room as other requests end. If this persists, \
                      see that the app reads its answers, and sends its large specs one after the other. \
                      This is shown for 5 min.";
const RUNTIME: &str = "It is tried again by itself. See that its `url` can be reached, and that its \
                       `credential` is one that it takes.";
const GAP: &str = "hsafa v3 sends a call once, to those that listen. Its model was told of the \
                   time-out; ask the agent again. This is shown for 1 h.";
const AUDIT: &str = "Calls are made all the same, and their lines wait, 16 MiB at most: free space \
                     on the disk of audit.file, and look at its permissions.";
const UPSTREAM: &str = "Look at upstream.base_url, upstream.tls, the network and \
                        upstream.credential; `mantyx-bridge doctor` tries each step.";
const FORBIDDEN: &str = "It is tried again by itself, for an hour. See that upstream.credential, or \
                         what the app shows in its place, is one that MANTYX takes, of the run's \
                         workspace.";
const LIMITED: &str = "It is tried again when MANTYX's Retry-After allows it. If it stays so, drive \
                       fewer runs at once with one credential.";
const NO_STREAM: &str = "It is tried again by itself, for an hour. If it stays so, see what MANTYX's \
                         status page or its operator says, and that nothing between answers in its \
                         place.";
const NO_RUN: &str = "After five such answers, and when its calls have been answered, the run is given \
                      up. `POST /v1/runs/{id}/attach`, or reading its stream, takes it up again.";
const TOKEN: &str = "It is asked for again by itself. See that the token endpoint can be reached, and \
                     that upstream.oauth has the token_url, client_id and client_secret of the \
                     application.";
const CONFIG: &str = "The daemon goes on with the configuration that it had. Mend the file; it is \
                      read again as soon as it changes, and `mantyx-bridge check` shows the place.";
const RESTART: &str = "Restart the daemon to apply these keys; until then, the earlier values stay in \
                       effect.";
const RENEW: &str = "Put a renewed certificate into the files of listen.tls; the daemon loads it as \
                     soon as they change. Clients refuse an expired one.";
const DEGRADED: &str = "Its last good tools are still offered, and it is asked again by itself. If \
                        it stays so, look into the server's own log.";
const BREAKER: &str = "The circuit breaker rejects calls to it, and tries one at a time. Look into the \
                       server's own log, and at call_timeout if its work takes longer.";

/// The cure where MANTYX refuses the streams of runs.
fn refused(status: Option<StatusCode>) -> &'static str {
    match status {
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => FORBIDDEN,
        Some(StatusCode::TOO_MANY_REQUESTS) => LIMITED,
        Some(StatusCode::NOT_FOUND | StatusCode::GONE) => NO_RUN,
        _ => NO_STREAM,
    }
}

fn down(backend: &Backend) -> &'static str {
    match (backend.kind.as_str(), backend.transport.as_str()) {
        (_, "stdio") => {
            "The bridge restarts the program by itself. Run its command by hand; its stderr is in \
             the daemon's log."
        }
        ("a2a", _) => {
            "The bridge keeps trying to connect. See that the agent runs and serves its card; \
             `mantyx-bridge doctor` tries each step."
        }
        _ => {
            "The bridge keeps trying to connect. See that the server runs, and that url and \
             credentials are right; `mantyx-bridge doctor` tries each step."
        }
    }
}
