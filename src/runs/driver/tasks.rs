//! The tasks that follow from what the run's state has decided about its calls.
//!
//! Must not: make a call, or write to the journal.

use std::sync::Arc;

use tracing::{info, warn};

use super::{Driver, Task};
use crate::backend::NotRecorded;
use crate::calls::record::CallRecorder;
use crate::journal::record::Change;
use crate::model::run::CallAction;
use crate::model::{Call, Ending};
use crate::runs::answer;

/// A call that is to be answered, and how.
pub(super) struct CallTask {
    pub(super) call: Call,
    pub(super) task: Task,
    pub(super) recorder: Arc<CallRecorder>,
}

impl Driver {
    /// The tasks for `calls`, with their recorders. Their changes for the journal go to `changes`,
    /// which the caller gives to the journal before it begins a task.
    ///
    /// For each call, in this order:
    ///
    /// 1. The state's decision says whether the bridge answers the call at all.
    /// 2. The driver claims the call. Another driver may read the same call in another stream, and
    ///    both would make it. A call that the other one has is marked as left to others for good,
    ///    so that this driver does not make it after the other one has ended and is forgotten.
    /// 3. A new call needs room in the app's share of the journal, and is refused without it. A
    ///    call whose earlier record is lost is made only if it is repeatable.
    pub(super) fn tasks(
        &self,
        calls: Vec<(Call, CallAction)>,
        changes: &mut Vec<Change>,
    ) -> Vec<CallTask> {
        let mut tasks = Vec::with_capacity(calls.len());
        for (call, action) in calls {
            let run = &self.run.key.run;
            let tool_use = &call.tool_use;
            match &action {
                CallAction::Make(_) => info!(
                    name: "call_taken",
                    %run, toolUseId = %tool_use, tool = call.name, "call"
                ),
                CallAction::Doubtful(_) => warn!(
                    %run, toolUseId = %tool_use, tool = call.name,
                    "call without an answer, from a time whose record is lost"
                ),
                CallAction::Refuse(error) => {
                    warn!(%run, toolUseId = %tool_use, error, "call refused");
                }
                CallAction::Nothing | CallAction::Hold => continue,
                CallAction::Altered | CallAction::Astray => {
                    let why = match action {
                        CallAction::Altered => {
                            "a tool use again with another content; not calling it again"
                        }
                        _ => "a call that names no agent run to answer; not making it",
                    };
                    warn!(%run, toolUseId = %tool_use, "MANTYX sent {why}");
                    continue;
                }
            }
            let claimed = self.ownership.claim(&self.run, &call);
            let recorder = self.run.recorder(&self.context.calls, &*self.ownership, &call);
            if !claimed {
                warn!(
                    %run, toolUseId = %tool_use,
                    "the call belongs to another driver; this one does not make it"
                );
                changes.extend(recorder.left_to_others());
                continue;
            }
            let task = match action {
                CallAction::Make(_) if !recorder.has_room() => {
                    warn!(
                        %run, toolUseId = %tool_use, app = %self.run.app,
                        "the app's open calls use its whole share of the journal; call refused"
                    );
                    let why = NotRecorded::NoShare.for_model(&call.name);
                    Task::Refuse(why, Ending::Busy)
                }
                CallAction::Make(route) => Task::Make(route),
                CallAction::Doubtful(route) => answer::doubtful(&recorder, route),
                CallAction::Refuse(error) => Task::Refuse(error, Ending::Denied),
                CallAction::Nothing
                | CallAction::Hold
                | CallAction::Altered
                | CallAction::Astray => continue,
            };
            changes.push(recorder.change());
            tasks.push(CallTask { call, task, recorder });
        }
        tasks
    }
}
