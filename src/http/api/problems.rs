//! The current problems and their cures, in sentences for people.
//!
//! Must not: tell an app of another app's runs, of a backend that it may not use, or what a peer, a
//! path or an address says.

mod cures;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{self, Backend, Daemon, Runtime, Upstream};
use super::{Api, Caller, Flaw};
use crate::backend::program::hiding::Exposure;
use crate::backend::registry::Snapshot;
use crate::budget::{Budget, Shortage};
use crate::clock::{self, rfc3339};
use crate::config::Target;
use crate::model::catalog::DEFINITION_CURE;
use crate::model::pin::{Finding, Subject};
use crate::model::{Review, globs, visible};
use crate::notify::watcher::Trouble;
use crate::run_store::Obstacle;
use crate::tls::certificate::Validity;
use crate::upstream::{LOG_IN_AGAIN, OpenError};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// `upstream`, `journal`, `state`, `memory`, `quota`, `audit`, `notify`, `tls`, `config`,
    /// `programs`, or the name of a backend or a runtime.
    pub(crate) subject: String,
    pub(crate) message: String,
    pub(crate) cure: String,
}

/// What is wrong, as far as each reader may know.
enum Message {
    /// The bridge's own words, for all who see the subject.
    Open(String),
    /// The text may repeat a peer, or name a path, an address or what is another app's.
    Guarded { text: String, for_apps: &'static str },
    /// The text is as its reader may have it: the operator's may repeat a peer.
    Fitted { text: String, in_short: &'static str },
}

impl Message {
    fn read_by(self, caller: &Caller) -> String {
        match self {
            Self::Open(text) | Self::Fitted { text, .. } => text,
            Self::Guarded { text, .. } if caller.is_operator => text,
            Self::Guarded { for_apps, .. } => for_apps.to_owned(),
        }
    }

    /// The bridge's own words alone, which may leave the bridge.
    fn in_short(&self) -> &str {
        match self {
            Self::Open(text) => text,
            Self::Guarded { for_apps: words, .. } | Self::Fitted { in_short: words, .. } => words,
        }
    }
}

fn open(text: Option<String>) -> Option<Message> {
    text.map(Message::Open)
}

fn guarded(text: Option<String>, for_apps: &'static str) -> Option<Message> {
    text.map(|text| Message::Guarded { text, for_apps })
}

fn fitted(text: Option<String>, in_short: &'static str) -> Option<Message> {
    text.map(|text| Message::Fitted { text, in_short })
}

/// A problem that there may be.
struct Case<'a> {
    subject: &'a str,
    /// `None`: there is no such problem at the moment.
    message: Option<Message>,
    cure: Cow<'static, str>,
    /// The receiver of notices that has it.
    receiver: Option<String>,
}

fn case(subject: &str, message: Option<Message>, cure: impl Into<Cow<'static, str>>) -> Case<'_> {
    Case { subject, message, cure: cure.into(), receiver: None }
}

/// All current problems; those that concern everyone come first.
pub(super) fn all(
    api: &Api,
    caller: &Caller,
    daemon: &Daemon,
    backends: &[Backend],
) -> Vec<Problem> {
    let cases = general(api, caller, &daemon.upstream, &daemon.runtimes, backends);
    let of_backends = backends.iter().flat_map(|backend| of_backend(api, caller, backend));
    let problems = cases.into_iter().chain(of_backends).filter_map(|case| {
        let Case { subject, message, cure, receiver: _ } = case;
        let message = message?.read_by(caller);
        Some(Problem { subject: subject.to_owned(), message, cure: cure.into_owned() })
    });
    problems.collect()
}

impl Api {
    /// What is wrong, for notices. A backend that is not as it was accepted has notices of its own.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        let caller = &Caller::operator();
        let backends = status::backends(self, caller);
        let upstream = status::upstream(self, caller);
        let runtimes = status::runtimes(self, caller);
        let mut troubles = Vec::new();
        for case in general(self, caller, &upstream, &runtimes, &backends) {
            troubles.extend(trouble(case, caller, None));
        }
        for backend in &backends {
            for case in of_backend(self, caller, backend) {
                troubles.extend(trouble(case, caller, Some(&backend.name)));
            }
        }
        troubles
    }
}

fn trouble(case: Case<'_>, caller: &Caller, backend: Option<&str>) -> Option<Trouble> {
    let message = case.message?;
    let mut summary = message.in_short().to_owned();
    if summary == UNACCEPTED {
        return None;
    }
    if let Some(receiver) = &case.receiver {
        summary = format!("{summary} The receiver is `{receiver}`.");
    }
    let text = message.read_by(caller);
    Some(Trouble {
        subject: case.subject.to_owned(),
        backend: backend.map(str::to_owned),
        reason: if text == summary { None } else { Some(text) },
        summary,
        // Others may repeat what a peer has said.
        cure: match case.cure {
            Cow::Borrowed(cure) => cure.to_owned(),
            Cow::Owned(_) => "`mantyx-bridge status` shows more, and what to do.".to_owned(),
        },
        receiver: case.receiver,
    })
}

/// What is wrong with other things than single backends.
fn general<'a>(
    api: &Api,
    caller: &Caller,
    upstream: &Upstream,
    runtimes: &'a [Runtime],
    backends: &[Backend],
) -> Vec<Case<'a>> {
    let mut cases = of_daemon(api, caller, upstream);
    cases.extend(of_runtimes(runtimes));
    cases.extend(of_apps(api, caller));
    cases.extend(of_records(api));
    cases.extend(of_damaged(api));
    cases.extend(of_replaced(api, backends));
    cases
}

fn of_daemon<'a>(api: &Api, caller: &Caller, upstream: &Upstream) -> Vec<Case<'a>> {
    let mut cases = of_storage(api);
    cases.push(case("memory", open(shortage(caller)), cures::MEMORY));
    if upstream.reachable == Some(false) {
        let short = "MANTYX cannot be reached.";
        let error = upstream.last_error.as_deref().unwrap_or(short);
        cases.push(case("upstream", fitted(Some(error.to_owned()), short), cures::UPSTREAM));
    }
    for (error, runs) in refused_runs(api, caller) {
        let message = match runs.as_slice() {
            [run] => format!("{error}: the run {run} is not read."),
            [run, ..] => format!("{error}: {} runs are not read, {run} among them.", runs.len()),
            [] => continue,
        };
        let short = "MANTYX refuses the streams of some runs.";
        cases.push(case("upstream", fitted(Some(message), short), cures::REFUSED));
    }
    if let Some(failure) = api.runs.upstream.token_failure() {
        let text = format!("MANTYX cannot be shown a token: {}", failure.text);
        let cure = if failure.grant_ended { LOG_IN_AGAIN } else { cures::TOKEN };
        cases.push(case("upstream", guarded(Some(text), status::NO_TOKEN), cure));
    }
    if let Some(flaw) = api.loaded().flaw {
        let message = guarded(Some(flaw.to_string()), flaw.for_apps());
        cases.push(case("config", message, cure_of_flaw(&flaw)));
    }
    if let Some(tls) = &api.facts.tls {
        let health = tls.health();
        let until = rfc3339(health.settings.facts.not_after);
        let end = match health.settings.facts.validity(clock::now()) {
            Validity::Good => None,
            Validity::Ending => Some(format!("The certificate ends on {until}.")),
            Validity::Ended => Some(format!("The certificate ended on {until}.")),
        };
        let flaw = health.flaw.as_ref();
        let error = flaw.map(|flaw| format!("The new certificate was not taken: {flaw}."));
        cases.extend([
            case("tls", open(end), cures::RENEW),
            case(
                "tls",
                guarded(error, "The new certificate was not taken."),
                flaw.map_or("", |flaw| flaw.cure),
            ),
        ]);
    }
    cases
}

/// The apps that have made as many calls as they may.
fn of_apps<'a>(api: &Api, caller: &Caller) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for entry in &api.runs.calls.settings().apps {
        if caller.is_operator || entry.app.name == caller.app.name {
            let used_up = entry.quota.as_ref().and_then(|quota| quota.used_up());
            cases.push(case("quota", open(used_up), cures::QUOTA));
        }
    }
    cases
}

/// What is wrong with the audit log, and with the receivers of notices.
fn of_records<'a>(api: &Api) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    if let Some(audit) = api.runs.calls.audit.as_deref() {
        let file = audit.file_health().and_then(|health| health.error);
        let syslog = audit.syslog_health().and_then(|health| health.error);
        cases.extend([
            case("audit", guarded(file, "The audit log cannot be written."), cures::AUDIT),
            case("audit", guarded(syslog, "The audit log cannot be sent."), cures::AUDIT_SYSLOG),
        ]);
    }
    for health in api.facts.notifier.health() {
        let name = &health.name;
        let failed = health.error.map(|why| format!("`{name}` does not take notices: {why}."));
        let (unused, cure) = match health.flaw {
            Some(flaw) => {
                (Some(format!("The entry of `{name}` cannot be used: {}.", flaw.why)), flaw.cure)
            }
            None => (None, String::new()),
        };
        let own = |message, cure: Cow<'static, str>| Case {
            receiver: Some(name.clone()),
            ..case("notify", message, cure)
        };
        cases.extend([
            own(guarded(failed, "Notices cannot be delivered."), cures::NOTIFY.into()),
            own(
                guarded(unused, "An entry of `notify` cannot be used."),
                format!("{}.", capitalised(&cure)).into(),
            ),
        ]);
    }
    cases
}

/// What is wrong with the journal, with the other replicas, and with the state directory.
fn of_storage<'a>(api: &Api) -> Vec<Case<'a>> {
    let storage = api.runs.storage_health();
    let cure_of_error = match storage.obstacle {
        Obstacle::Database => cures::DATABASE,
        Obstacle::FullFile => cures::FULL,
        Obstacle::Disk => cures::JOURNAL,
    };
    let state = &api.facts.state;
    let doubt = storage.doubt.map(|doubt| format!("{doubt}."));
    let differ = "The replicas do not reach their backends in the same way.";
    let unwritten = state.unwritten().into_iter().next();
    let exposed = "Other users of the host can read or write files of the bridge.";
    let (exposure, cure_of_exposure) =
        state.exposed().map(|exposure| (Some(exposure.message), exposure.cure)).unwrap_or_default();
    vec![
        case("journal", guarded(storage.error, "The journal cannot be written."), cure_of_error),
        case(
            "journal",
            guarded(storage.rewritten, "The journal's file was removed or changed."),
            cures::REWRITTEN,
        ),
        case("journal", guarded(doubt, "The database may lose writes."), cures::DURABILITY),
        case("journal", guarded(storage.loss, "A part of the journal was lost."), cures::LOST),
        case("replicas", guarded(storage.disagreement, differ), cures::REPLICAS),
        case("state", guarded(unwritten, "The state directory cannot be written."), cures::STATE),
        case("state", guarded(exposure, exposed), cure_of_exposure),
    ]
}

/// Which other runtimes are not heard, or do not take answers.
fn of_runtimes(runtimes: &[Runtime]) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for runtime in runtimes {
        let down = match &runtime.last_error {
            Some(error) if runtime.state == "down" => {
                Some(format!("The runtime cannot be heard: {error}."))
            }
            _ => None,
        };
        let gap = runtime.gap.as_ref().map(|gap| {
            format!("It was not heard from {gap}; calls that it announced meanwhile may be lost.")
        });
        let untaken = runtime
            .untaken
            .as_ref()
            .map(|why| format!("It has not taken answers that wait: {why}."));
        let name = runtime.name.as_str();
        cases.extend([
            case(name, guarded(down, status::UNHEARD), cures::RUNTIME),
            case(name, open(gap), cures::GAP),
            case(name, guarded(untaken, "It has not taken answers that wait."), cures::RUNTIME),
        ]);
    }
    cases
}

/// The damaged files of the state directory, in whose place the bridge uses something else.
fn of_damaged<'a>(api: &Api) -> Vec<Case<'a>> {
    let for_apps = "A file of the state directory was damaged, and is not used.";
    let files = api.facts.state.replaced().into_iter();
    files.map(|file| case("state", guarded(Some(file.message), for_apps), file.cure)).collect()
}

/// The files that were replaced while programs run from which they were hidden. One case for all
/// programs: that an editor has saved bridge.yaml is no trouble of each of them.
fn of_replaced<'a>(api: &Api, backends: &[Backend]) -> Vec<Case<'a>> {
    let handles = api.backends().handles();
    let mut readers: BTreeMap<Exposure, Vec<String>> = BTreeMap::new();
    for backend in backends {
        let handle = handles.get(backend.name.as_str());
        if let Some(exposure @ Exposure::Replaced(_)) =
            handle.and_then(|handle| handle.dial.exposure())
        {
            readers.entry(exposure).or_default().push(format!("`{}`", backend.name));
        }
    }
    let cases = readers.into_iter().map(|(exposure, names)| {
        let message = format!("{exposure} Since then run: {}.", names.join(", "));
        let for_apps = "A file was replaced, and programs that had started before can read it.";
        case("programs", guarded(Some(message), for_apps), exposure.cure())
    });
    cases.collect()
}

/// What an app reads where the operator reads how a backend differs from what was accepted.
const UNACCEPTED: &str = "It is not as the operator has accepted it.";
/// What an app reads where the operator reads what MANTYX's answer is in place of a stream.
const NOT_A_STREAM: &str = "MANTYX's answer is no event stream";

/// The caller's runs whose streams MANTYX refuses, by the reason.
pub(super) fn refused_runs(api: &Api, caller: &Caller) -> BTreeMap<String, Vec<String>> {
    let mut runs_by_reason: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (key, failure) in api.runs.failing(caller.sees()) {
        if matches!(failure.error, OpenError::Refused(_) | OpenError::NotAStream(_)) {
            let why = match &failure.error {
                OpenError::NotAStream(_) if !caller.is_operator => NOT_A_STREAM.to_owned(),
                error => error.to_string(),
            };
            runs_by_reason.entry(why).or_default().push(key.run.to_string());
        }
    }
    runs_by_reason
}

/// Which room ran out within the last minutes, in a sentence. Only the operator sees the names of
/// other apps.
fn shortage(caller: &Caller) -> Option<String> {
    const TOLD_FOR: Duration = Duration::from_secs(5 * 60);
    let Shortage { used, most } = Budget::of_process().shortage(TOLD_FOR)?;
    let largest_share = most.map(|(app, bytes)| {
        let holder = if caller.is_operator || app == caller.app.name {
            format!("the app `{app}`")
        } else {
            "another app".to_owned()
        };
        format!(", {} MiB of them for {holder}", bytes >> 20)
    });
    Some(format!(
        "Requests or answers were refused, as the bridge held {} MiB of them{}.",
        used >> 20,
        largest_share.unwrap_or_default()
    ))
}

fn of_backend<'a>(api: &Api, caller: &Caller, backend: &'a Backend) -> Vec<Case<'a>> {
    let backends = api.backends();
    let name = backend.name.as_str();
    let handles = backends.handles();
    let (Some((own_name, handle)), Some(snapshot)) =
        (handles.get_key_value(name), backends.registry.snapshot(name))
    else {
        return Vec::new();
    };
    let error = backend.last_error.as_deref();
    let target = &handle.rules.target;
    let why = match &snapshot.last_failure {
        Some(_) if caller.is_operator && backend.needs.is_some() => cures::login(name),
        Some(failure) if caller.is_operator => capitalised(&failure.cure(target)),
        Some(_) => "The operator of the bridge sees what to do".to_owned(),
        None => String::new(),
    };
    let (otherwise, cure_of_failure) =
        match (backend.state.as_str(), backend.breaker.state.as_str()) {
            // What the operator wants is no problem, nor is what its last calls were.
            ("disabled", _) => (None, Cow::default()),
            ("down", _) if matches!(target, Target::Unresolved(_)) => {
                (Some("It cannot be reached."), cures::unresolved(&why).into())
            }
            ("down", _) => (Some("There is no connection."), cures::down(name, &why).into()),
            ("degraded", _) if snapshot.endpoint_in_doubt => {
                (Some("Its endpoint would not answer a call."), cures::endpoint(&why).into())
            }
            ("degraded", _) => (Some("The last refresh failed."), cures::degraded(&why).into()),
            (_, "open" | "half-open") => {
                (Some("Its last calls got no answer."), cures::BREAKER.into())
            }
            _ => (None, Cow::default()),
        };
    let failure = otherwise.map(|otherwise| error.unwrap_or(otherwise).to_owned());
    let unsigned = backend
        .signature
        .as_ref()
        .and_then(|signature| signature.error.as_ref())
        .map(|why| format!("Its card counts as not signed, and is taken all the same: {why}."));
    let exposure =
        handle.dial.exposure().filter(|exposure| !matches!(exposure, Exposure::Replaced(_)));
    let unkept = snapshot
        .pins_error
        .as_ref()
        .map(|error| format!("What was accepted of it is not on disk: {error}"));
    let settings = api.runs.calls.settings();
    let rights = settings
        .apps
        .iter()
        .filter(|entry| caller.is_operator || entry.app.name == caller.app.name)
        .map(|entry| &*entry.app.rights);
    let idle_globs = match &snapshot.catalog {
        Some(catalog) => globs::idle(own_name, catalog, handle.rules.rules(), rights),
        None => None,
    };
    let cases = [
        // The status has it in the words for its reader.
        (fitted(failure, otherwise.unwrap_or_default()), cure_of_failure),
        remark_on_agent(target, backend),
        (open(idle_globs), globs::CURE.into()),
        (open(handle.quota.as_ref().and_then(|quota| quota.used_up())), cures::QUOTA.into()),
        (
            guarded(unsigned, "Its card counts as not signed, and is taken nevertheless."),
            cures::SIGNATURE.into(),
        ),
        (
            guarded(
                exposure.as_ref().map(ToString::to_string),
                "Its program can read files of the bridge.",
            ),
            exposure.map_or("", |one| one.cure()).into(),
        ),
        (guarded(unaccepted(&snapshot.review), UNACCEPTED), cures::pin(name).into()),
        (guarded(unkept, "What was accepted of it is not on disk."), cures::UNKEPT.into()),
    ];
    let definitions = of_definitions(&snapshot, backends.registry.shadowed(own_name));
    let cases = cases.into_iter().chain(definitions);
    let cases = cases.map(|(message, cure)| case(name, message, cure));
    cases.chain(of_login(api, name)).collect()
}

/// What is wrong with the bridge's login at a backend.
fn of_login<'a>(api: &Api, name: &'a str) -> Vec<Case<'a>> {
    let for_apps = "There is something wrong with the bridge's login there.";
    let problems = api.facts.logins.problems(name).into_iter();
    problems
        .map(|problem| case(name, guarded(Some(problem.message), for_apps), problem.cure))
        .collect()
}

/// What is odd about an agent, as the status has it in the words for its reader. What is odd about
/// a program is no problem: the bridge skips lines that are no messages.
fn remark_on_agent(target: &Target, backend: &Backend) -> (Option<Message>, Cow<'static, str>) {
    match (target, &backend.remark) {
        (Target::A2a(_), Some(remark)) => {
            let short = "There is something odd about the agent.";
            (fitted(Some(remark.message.clone()), short), remark.cure.clone().into())
        }
        _ => (None, Cow::default()),
    }
}

/// What cannot be used of what a backend defines; `shadowed` is what another one defines as well.
fn of_definitions(
    snapshot: &Snapshot,
    shadowed: Option<String>,
) -> [(Option<Message>, Cow<'static, str>); 6] {
    let catalog = snapshot.catalog.as_ref();
    let (omission, cure_of_omission) = match catalog.and_then(|catalog| catalog.left_out()) {
        Some(omission) => (Some(omission.message.clone()), omission.cure.clone()),
        None => (None, String::new()),
    };
    let unusable = catalog.and_then(|catalog| catalog.instructions().unusable());
    let (instructions, cure_of_instructions) = unusable.unzip();
    let unreadable = catalog.and_then(|catalog| catalog.unreadable());
    let unchecked = catalog.and_then(|catalog| catalog.unchecked());
    let unlisted = "Some of its resources or prompts are left out.";
    let twice = "Some of its resources have the URIs of another backend's.";
    [
        (guarded(omission, "Some of its tools are left out."), cure_of_omission.into()),
        (
            guarded(instructions, "Its instructions are left out."),
            cure_of_instructions.unwrap_or_default().into(),
        ),
        (guarded(unreadable, "Some of its definitions cannot be read."), DEFINITION_CURE.into()),
        (guarded(snapshot.features.left_out(), unlisted), DEFINITION_CURE.into()),
        (guarded(unchecked, "Arguments of some tools are not checked."), DEFINITION_CURE.into()),
        (guarded(shadowed, twice), cures::SHADOWED.into()),
    ]
}

/// Says in a sentence or two where a backend differs from what the operator has accepted.
fn unaccepted(review: &Review) -> Option<String> {
    let damaged = review.damaged.as_ref().map(|why| {
        format!("What was accepted of it cannot be read, so nothing of it counts as known: {why}. ")
    });
    let findings: Vec<String> = review.open().map(description).collect();
    let becomes = match review.withdrawn() {
        0 => "offered all the same (pin: warn)",
        _ => "withdrawn until it is accepted (pin: enforce)",
    };
    let open = if findings.is_empty() {
        String::new()
    } else {
        format!("Not as it was accepted: {}; {becomes}.", visible::first(&findings))
    };
    let text = damaged.unwrap_or_default() + &open;
    if text.is_empty() { None } else { Some(text.trim_end().to_owned()) }
}

/// Names the tool of a finding, and says how it has changed.
fn description(finding: &Finding) -> String {
    let subject = match finding.subject {
        Subject::Card => "its card".to_owned(),
        Subject::Instructions => "its instructions".to_owned(),
        Subject::Tool => visible::shown(&finding.tool),
    };
    format!("{subject} ({})", finding.change.as_str())
}

/// A cure as the beginning of a sentence; elsewhere it follows what is wrong.
fn capitalised(cure: &str) -> String {
    let mut letters = cure.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

fn cure_of_flaw(flaw: &Flaw) -> Cow<'static, str> {
    match flaw {
        Flaw::NotTaken(_) => cures::CONFIG.into(),
        Flaw::ReachedAsBefore(_) => cures::KEPT.into(),
        Flaw::NeedsRestart(_) => cures::RESTART.into(),
    }
}
