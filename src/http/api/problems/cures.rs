//! What to do about each problem.
//!
//! Must not: say what is wrong. `why` is what to do about the last failure of a backend.

pub(super) const UNKEPT: &str = "After a restart, the bridge would trust whatever the server says \
                                 then. Free space on the disk of the state directory, and check \
                                 its permissions.";
pub(super) const SHADOWED: &str = "Where both are needed, give one server other URIs; the order of \
                                   the names of backends decides.";
pub(super) const SIGNATURE: &str = "Ask the agent's operator which key it signs its card with, and \
                                    compare it with `signature: {keys: …}`.";
pub(super) const JOURNAL: &str = "No calls of runs are made, and no runs that get tools are \
                                  accepted, until it can be written: free space on the disk of the \
                                  state directory, and look at its permissions.";
pub(super) const DATABASE: &str = "No calls are made until PostgreSQL answers. `mantyx-bridge \
                                   doctor` tries each step of `state.postgres`, and says what to \
                                   do.";
pub(super) const DURABILITY: &str = "Set `synchronous_commit = on` and, if another server may be \
                                     promoted, `synchronous_standby_names` (docs/scaling.md).";
pub(super) const REPLICAS: &str = "Have all replicas read the same bridge.yaml, but for entries \
                                   with `only_on` (docs/scaling.md). The replica that takes a run \
                                   over uses its own backend of that name.";
pub(super) const FULL: &str = "No calls are made until it is smaller. It shrinks as MANTYX takes \
                               answers and runs end: see whether MANTYX can be reached, and cancel \
                               runs that are not needed any more. Free space does not help; a \
                               larger disk does, if it has less than 192 MiB.";
pub(super) const REWRITTEN: &str = "See which program removes or changes files in the state \
                                    directory, and keep it from there. If a file was set aside, \
                                    you can delete it. This is shown until the next start.";
pub(super) const LOST: &str = "Attach runs that are not known any more (`POST \
                               /v1/runs/{id}/attach`); none of their calls is made twice. Requests \
                               with an Idempotency-Key from before the loss may not be known: \
                               before you repeat one, check what it did. If a file was set aside, \
                               check the disk of the state directory; you can delete the file. \
                               This is shown for 24 h.";
pub(super) const STATE: &str = "The bridge tries again. Free space on the disk of the state \
                                directory, and look at its permissions.";
pub(super) const MEMORY: &str = "Clients get Retry-After, and room as other requests end. If this \
                                 persists, see that the app reads its answers, and sends its large \
                                 specs one after the other. This is shown for 5 min.";
pub(super) const RUNTIME: &str = "The bridge tries again. See that its `url` can be reached, and \
                                  that its `credential` is one that it takes.";
pub(super) const GAP: &str = "hsafa sends a call once, to those that listen. Its model was told of \
                              the time-out; ask the agent again. This is shown for 1 h.";
pub(super) const AUDIT: &str = "Calls are made all the same, and their lines wait, 16 MiB at most: \
                                free space on the disk of audit.file, and look at its permissions.";
pub(super) const AUDIT_SYSLOG: &str = "Calls are made, and their lines wait, 16 MiB at most: see \
                                       that the receiver of audit.syslog runs and can be reached.";
pub(super) const NOTIFY: &str = "Up to 256 notices wait, and are sent again: see that the receiver \
                                 runs and can be reached, then `mantyx-bridge notify test NAME`.";
pub(super) const QUOTA: &str = "The bridge tells the model when it may call again. See what it \
                                calls (`mantyx-bridge status`, the audit log); raise `quota` if \
                                that is as it should be.";
pub(super) const UPSTREAM: &str = "Look at upstream.base_url, upstream.tls, the network and \
                                   upstream.credential; `mantyx-bridge doctor` tries each step.";
pub(super) const REFUSED: &str = "The bridge tries again for an hour. For 401 or 403, check \
                                  upstream.credential, or what the app shows in its place; for \
                                  429, drive fewer runs at once. A run that MANTYX does not know \
                                  any more is given up once its calls are answered; `POST \
                                  /v1/runs/{id}/attach` takes it up again.";
pub(super) const TOKEN: &str = "The bridge asks for one again. See that the token endpoint can be \
                                reached, and that upstream.oauth has the token_url, client_id and \
                                client_secret of the application.";
pub(super) const CONFIG: &str = "The daemon keeps its earlier configuration. Correct the file; the \
                                 daemon reads it again as soon as it changes, and `mantyx-bridge \
                                 check` shows the place.";
pub(super) const KEPT: &str = "These backends keep their earlier connections; their other settings \
                               apply. The bridge looks for a file every 30 s and at a reload. It \
                               reads environment variables only when it starts.";
pub(super) const RESTART: &str = "Restart the daemon to apply these keys; until then, the earlier \
                                  values stay in effect.";
pub(super) const RENEW: &str = "Put a renewed certificate into the files of listen.tls; the daemon \
                                loads it as soon as they change. Clients refuse an expired one.";
pub(super) const BREAKER: &str = "The circuit breaker rejects calls to it, and tries one at a \
                                  time. Look into the server's own log, and at call_timeout if its \
                                  work takes longer.";

pub(super) fn pin(name: &str) -> String {
    format!("`mantyx-bridge trust {name}` shows what changed, and how to accept it.")
}

pub(super) fn login(name: &str) -> String {
    format!("Log in: `mantyx-bridge login {name}`")
}

pub(super) fn degraded(why: &str) -> String {
    format!("{why}. The bridge still offers its last good tools, and asks again.")
}

pub(super) fn endpoint(why: &str) -> String {
    format!(
        "{why}. Calls are sent nevertheless; the bridge asks the agent once an hour, after a call \
         that fails, and at `mantyx-bridge refresh`."
    )
}

pub(super) fn down(name: &str, why: &str) -> String {
    format!("{why}. The bridge keeps trying; `mantyx-bridge doctor {name}` tries each step.")
}

pub(super) fn unresolved(why: &str) -> String {
    format!(
        "{why}. The bridge looks for a file every 30 s and at a reload. It reads environment \
         variables only when it starts."
    )
}
