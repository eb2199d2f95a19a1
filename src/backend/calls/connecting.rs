//! How a call gets its connection: it makes the supervisor connect, waits as long as that may be of
//! use, and is checked against what the new connection brings.
//!
//! Must not: send a call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::{debug, info};

use super::failure::CallFailure;
use super::{Backends, CallContext};
use crate::backend::CallError;
use crate::backend::registry::{InUse, Phase};
use crate::model::{BackendName, RefKind, Target, Verdict};

/// How long a call waits for a backend that is not connected, before the model gets an error.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// [`CONNECT_PATIENCE`] while the first attempt to connect has not ended: after a restart, calls
/// arrive before the connections are up.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// A call waits for a program that starts until so long before its deadline: then there is time
/// left to say that it was not made.
const START_MARGIN: Duration = Duration::from_secs(10);

/// How long a call waits for a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    Until(Instant),
    /// As long as it may be of use, before this deadline of the call: a program that starts is
    /// waited for, another peer for seconds.
    OfCall(Instant),
}

/// What a call waits for.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// The start of a program, which takes as long as it takes.
    Start,
    For(Duration),
}

/// A connection that a call may use.
pub(super) struct Connected {
    pub(super) connection: InUse,
    /// It was not there at once.
    pub(super) has_waited: bool,
}

impl Backends {
    /// The live connection, other than `broken`. If there is none, makes the supervisor connect and
    /// waits for that.
    pub(super) async fn connected(
        &self,
        name: &BackendName,
        broken: Option<&InUse>,
        patience: Patience,
    ) -> Result<Connected, CallFailure> {
        if let Some(connection) = self.live(name, broken)? {
            return Ok(Connected { connection, has_waited: false });
        }
        let snapshot = self.registry.snapshot(name.as_str());
        let pause = snapshot.and_then(|snapshot| snapshot.last_failure?.open_pause());
        if let (Some(pause), Patience::OfCall(_)) = (pause, patience) {
            return Err(CallFailure::Call(CallError::paused(pause)));
        }
        debug!(backend = %name, "a call waits for the connection");
        let handle = self.all().handles.get(name).cloned();
        let _waiting = handle.map(|handle| handle.demand.wait());
        let mut version = self.registry.version();
        let mut since = Instant::now();
        loop {
            version.mark_unchanged();
            if let Some(connection) = self.live(name, broken)? {
                return Ok(Connected { connection, has_waited: true });
            }
            let until = match patience {
                Patience::Until(time) => time,
                Patience::OfCall(deadline) => match self.wait_of(name) {
                    Wait::Start => {
                        // If the start fails, the wait for the next attempt begins then.
                        since = Instant::now();
                        deadline.checked_sub(START_MARGIN).unwrap_or(deadline)
                    }
                    Wait::For(time) => since + time,
                },
            };
            if timeout_at(until, version.changed()).await.is_err() {
                return Err(CallFailure::NotConnected);
            }
        }
    }

    /// The connection to `name`, if there is one other than `broken`.
    fn live(
        &self,
        name: &BackendName,
        broken: Option<&InUse>,
    ) -> Result<Option<InUse>, CallFailure> {
        let Some(connection) = self.registry.connection(name) else {
            return match self.registry.snapshot(name.as_str()).map(|known| known.phase) {
                Some(Phase::Disabled) => Err(CallFailure::Disabled),
                Some(_) => Ok(None),
                None => Err(CallFailure::Removed),
            };
        };
        match broken {
            Some(broken) if Arc::ptr_eq(&broken.peer, &connection.peer) => Ok(None),
            _ => Ok(Some(connection)),
        }
    }

    /// How long a call waits for the connection to `name`, as things are.
    fn wait_of(&self, name: &BackendName) -> Wait {
        match self.registry.snapshot(name.as_str()) {
            Some(known) if known.start.is_some() || known.phase == Phase::Idle => Wait::Start,
            Some(known) if known.phase == Phase::Connecting => Wait::For(START_PATIENCE),
            _ => Wait::For(CONNECT_PATIENCE),
        }
    }

    /// Checks the call against the definition that its tool has now: while the call waited, its
    /// program was started, and may define its tools otherwise than it did before.
    pub(super) fn check_definition(&self, call: &CallContext) -> Result<(), CallFailure> {
        let request = &call.request;
        let Target::Tool { name: tool, .. } = &request.route.target else { return Ok(()) };
        if request.route.kind != RefKind::McpLocal {
            return Ok(());
        }
        let Some(now) = self.registry.definition(&request.route) else {
            return Err(CallFailure::NotListed);
        };
        match now.input.check(request.arguments.get()) {
            Verdict::Invalid(mistakes) => {
                let backend = &request.route.backend;
                info!(%backend, tool = &**tool, "a call was refused: its arguments are invalid");
                Err(CallFailure::Invalid(mistakes))
            }
            Verdict::Valid | Verdict::Unchecked { .. } => Ok(()),
        }
    }
}
