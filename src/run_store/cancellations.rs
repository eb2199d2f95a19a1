//! Cancellations among replicas: any of them takes one, and the replica that drives the run ends
//! its calls.
//!
//! Must not: decide who may cancel a run; MANTYX has, before anything is told here.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::{DrivenRun, RunStore};
use crate::error_chain::error_chain;
use crate::journal::{DatabaseError, Replica};
use crate::model::catalog::hex;
use crate::model::{AppName, RunKey, SessionId, Workspace};

/// How often a replica looks at what was cancelled at others.
const LOOK: Duration = Duration::from_secs(1);
/// For how long a cancellation is told to a database that does not answer. MANTYX has ended the run
/// by then, and its stream says so.
const TELL_WITHIN: Duration = Duration::from_secs(30);

/// What was cancelled, as the group is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Cancellation {
    Run { key: RunKey, app: AppName },
    Session { workspace: Workspace, session: SessionId },
}

impl RunStore {
    /// Cancels the calls of `run`, which MANTYX has cancelled for the run's app, at whichever
    /// replica makes them. In an eval, `key` may be one of its agent runs.
    ///
    /// Without the word to the group, the replica that drives the run would make its calls to their
    /// ends, and MANTYX would wait for them.
    pub fn cancel(self: &Arc<Self>, run: &DrivenRun, key: &RunKey) {
        self.cancel_calls(run, key);
        // What this replica drives itself, no other does.
        if run.is_guest() || run.has_ended() {
            self.announce(Cancellation::Run { key: key.clone(), app: run.app.clone() });
        }
    }

    /// The run whose driver at this replica makes the calls of `key` for `app`: that run, or its
    /// eval. A run of another app with the same id is not touched.
    fn driven_here(&self, key: &RunKey, app: &AppName) -> Option<Arc<DrivenRun>> {
        [self.get(key), self.eval_of(key)]
            .into_iter()
            .flatten()
            .find(|run| run.app == *app && !run.is_guest())
    }

    /// Cancels the calls of a refused run, at this replica and at one that may have taken the run
    /// over.
    pub(super) fn cancel_everywhere(self: &Arc<Self>, run: &DrivenRun) {
        self.cancel_calls(run, &run.key);
        let cancellation = Cancellation::Run { key: run.key.clone(), app: run.app.clone() };
        // This replica may have lost the run, and got it back.
        self.take_cancellation(&cancellation);
        self.announce(cancellation);
    }

    /// Cancels the calls of all runs of a session that has ended, and forgets it, at all replicas.
    pub fn end_session(self: &Arc<Self>, workspace: &Workspace, session: &SessionId) {
        self.end_session_here(workspace, session);
        let (workspace, session) = (workspace.clone(), session.clone());
        self.announce(Cancellation::Session { workspace, session });
    }

    fn end_session_here(&self, workspace: &Workspace, session: &SessionId) {
        for run in self.of_session(workspace, session) {
            self.cancel_calls(&run, &run.key);
        }
        self.forget_session(workspace, session);
    }

    /// Tells the group, in a task of the daemon: the client that cancelled may hang up.
    fn announce(self: &Arc<Self>, cancellation: Cancellation) {
        if self.journal().replica().is_none() {
            return;
        }
        let runs = Arc::clone(self);
        self.calls.tracker.spawn(async move {
            let Some(replica) = runs.journal().replica() else { return };
            let text = serde_json::to_vec(&cancellation).expect("ids and names can be written");
            let id = hex(&Sha256::digest(&text));
            let until = Instant::now() + TELL_WITHIN;
            while let Err(error) = replica.cancel(&id, &text).await {
                let error = error_chain(&error);
                if Instant::now() > until || runs.calls.drain.is_cancelled() {
                    warn!(error, "the other replicas are not told of a cancellation");
                    return;
                }
                debug!(error, "a cancellation is not told now");
                sleep(LOOK).await;
            }
        });
    }

    /// Takes the cancellations of other replicas, for as long as it is polled.
    pub async fn share_cancellations(&self, replica: &Replica) {
        loop {
            // The keeper tells the operator that the database is away.
            if let Err(error) = self.take_cancellations(replica).await {
                debug!(error = error_chain(&error), "cancellations are not taken now");
            }
            sleep(LOOK).await;
        }
    }

    /// Takes each as often as it is shown: this replica may just have taken the run over.
    async fn take_cancellations(&self, replica: &Replica) -> Result<(), DatabaseError> {
        for text in replica.cancellations().await? {
            match serde_json::from_slice(&text) {
                Ok(cancellation) => self.take_cancellation(&cancellation),
                // A later version may write what this one does not know.
                Err(error) => debug!(%error, "a cancellation cannot be read"),
            }
        }
        Ok(())
    }

    /// Ends the calls that `cancellation` names, as far as they are made here. A long call can
    /// outlive its run, or be another replica's by its run and made here.
    fn take_cancellation(&self, cancellation: &Cancellation) {
        match cancellation {
            Cancellation::Run { key, app } => match self.driven_here(key, app) {
                Some(run) => self.cancel_calls(&run, key),
                // A long call may go on here that another replica's run has begun.
                None => self.calls.long.cancel_of(key),
            },
            Cancellation::Session { workspace, session } => {
                self.end_session_here(workspace, session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! What replicas of other versions have cancelled.

    use super::*;

    #[test]
    fn cancellation_of_another_version_is_taken_where_it_can_be_read() {
        struct Case {
            name: &'static str,
            text: &'static str,
            /// What this version writes; `None`: it cannot be read, and is left out.
            today: Option<&'static str>,
        }
        const RUN: &str =
            r#"{"run":{"key":{"workspace":"acme","kind":"agent-runs","run":"r"},"app":"a"}}"#;
        const SESSION: &str = r#"{"session":{"workspace":"acme","session":"s"}}"#;
        for Case { name, text, today } in [
            Case { name: "an earlier run", text: RUN, today: Some(RUN) },
            Case { name: "an earlier session", text: SESSION, today: Some(SESSION) },
            Case {
                name: "a run with members that are not known",
                text: r#"{"run":{"key":{"workspace":"acme","kind":"agent-runs","run":"r","later":1},"app":"a","by":"op"}}"#,
                today: Some(RUN),
            },
            Case { name: "a kind that is not known", text: r#"{"call":{"id":"c"}}"#, today: None },
        ] {
            let cancellation = serde_json::from_str::<Cancellation>(text).ok();
            let written = cancellation.map(|one| serde_json::to_string(&one).expect(name));
            assert_eq!(written.as_deref(), today, "{name}");
        }
    }
}
