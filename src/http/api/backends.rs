//! What a person looks at where a backend has trouble: its states over time, what its program
//! wrote, and a run of the doctor.
//!
//! Must not: show an app what a program wrote, or dial a backend itself.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{
    Api, ApiRequest, Code, HandlerResult, Ref, busy, names, operator_only, response, status,
};
use crate::backend::program::orphans;
use crate::clock::rfc3339;
use crate::model::BackendName;

/// How long a run of the doctor may take beside the start of a program: its own limit, and the end
/// of the program.
const DOCTOR: Duration = Duration::from_secs(60);
/// One at a time, as each may start the backend's program.
static DOCTORS: Semaphore = Semaphore::const_new(1);

/// How the daemon runs `mantyx-bridge doctor`.
#[derive(Debug, Clone)]
pub struct Doctor {
    /// The bridge's own executable.
    pub program: PathBuf,
    /// The file that the daemon was started with.
    pub file: PathBuf,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BackendList {
    backends: Vec<BackendDetails>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BackendDetails {
    name: String,
    /// The states that it went through, the earliest first; at most the last 100.
    states: Vec<StateSince>,
    /// The tools of which a person must approve some calls, or all.
    approve: Vec<String>,
    /// The last lines that its program wrote to stderr; for the operator alone.
    stderr: Vec<String>,
    /// When an MCP client with a session last called it, of whatever app; for the operator alone.
    #[serde(rename = "lastSessionCall")]
    last_session_call: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StateSince {
    since: String,
    state: &'static str,
}

impl Api {
    pub(super) fn list_backends(&self, incoming: &ApiRequest) -> HandlerResult {
        let caller = self.viewer(incoming)?;
        let offer = self.offer(&caller.app);
        let handles = self.backends().handles();
        let backends = names(&offer).into_iter().filter_map(|name| {
            let handle = handles.get(&name)?;
            let states = self.backends().registry.states(&name).into_iter();
            let refs = offer.backend(name.as_str()).into_iter().flat_map(|backend| backend.refs());
            Some(BackendDetails {
                states: states
                    .map(|(since, phase)| StateSince {
                        since: rfc3339(since),
                        state: phase.as_str(),
                    })
                    .collect(),
                approve: refs
                    .flat_map(Ref::names)
                    .map(AsRef::as_ref)
                    .filter(|tool: &&str| {
                        offer.route(tool).is_some_and(|route| handle.rules.approve.may_ask(route))
                    })
                    .map(str::to_owned)
                    .collect(),
                stderr: if caller.is_operator { handle.dial.stderr() } else { Vec::new() },
                last_session_call: handle
                    .last_session_call()
                    .filter(|_| caller.is_operator)
                    .map(rfc3339),
                name: name.to_string(),
            })
        });
        Ok(response::json(&BackendList { backends: backends.collect() }))
    }

    /// Ends the connection of a backend until the operator enables it, or the bridge restarts.
    pub(super) async fn disable(&self, incoming: ApiRequest) -> HandlerResult {
        let name = self.find_for_operator(&incoming)?;
        self.backends().disable(&name).await;
        Ok(response::json(&status::backend(self, &incoming.caller, &name)))
    }

    pub(super) async fn enable(&self, incoming: ApiRequest) -> HandlerResult {
        let name = self.find_for_operator(&incoming)?;
        self.backends().enable(&name).await;
        Ok(response::json(&status::backend(self, &incoming.caller, &name)))
    }

    /// Ends the connection of a backend, with the calls in flight on it, and makes another one.
    pub(super) async fn restart(&self, incoming: ApiRequest) -> HandlerResult {
        let name = self.find_for_operator(&incoming)?;
        self.backends().restart(&name).await;
        Ok(response::json(&status::backend(self, &incoming.caller, &name)))
    }

    fn find_for_operator(&self, incoming: &ApiRequest) -> HandlerResult<BackendName> {
        operator_only(&incoming.caller, "Disabling and restarting a backend")?;
        self.find(&incoming.caller.app, incoming.segment.clone())
    }

    /// Runs the doctor for one backend. It reads the file as it is now, and makes a connection of
    /// its own, so that one which hangs does not hide what is wrong.
    pub(super) async fn examine(
        &self,
        ApiRequest { caller, segment, .. }: ApiRequest,
    ) -> HandlerResult {
        operator_only(&caller, "The doctor")?;
        let name = self.find(&caller.app, segment)?;
        let Some(Doctor { program, file }) = &self.facts.doctor else {
            return Err(response::error(Code::NotFound, "This bridge was started without a file."));
        };
        let Ok(_turn) = DOCTORS.try_acquire() else {
            return Err(busy("The doctor looks at a backend already; ask again when it is done."));
        };
        let mut doctor = Command::new(program);
        doctor.args(["doctor", "--json", "--config"]).arg(file).arg(name.as_str());
        doctor.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let rules = self.backends().rules(&name);
        let start_timeout = match rules {
            Some(rules) if rules.program().is_some() => rules.start.timeout,
            _ => Duration::ZERO,
        };
        let limit = DOCTOR + start_timeout;
        let started = orphans::start_own(&mut doctor);
        let report = async { started?.wait_with_output().await };
        let output = tokio::select! {
            output = timeout(limit, report) => output,
            // Its end is not waited for, as it changes nothing.
            () = self.runs.draining().cancelled() => return Err(busy("The bridge is stopping.")),
        };
        let why = match output {
            Ok(Ok(output)) if output.stdout.starts_with(b"{") => {
                return Ok(response::json_text(output.stdout));
            }
            Ok(Ok(output)) => format!("it ended with {} and no report", output.status),
            Ok(Err(error)) => format!("it cannot be started: {error}"),
            Err(_elapsed) => format!("it did not end within {} s", limit.as_secs()),
        };
        let cure = format!("run `mantyx-bridge doctor {name}` on the host");
        Err(response::error(Code::Internal, &format!("The doctor gave no report: {why}; {cure}.")))
    }
}
