//! The tasks that follow from what the run's state has decided about its calls.
//!
//! Must not: make a call, or write to the journal.

use std::sync::Arc;

use tracing::{info, warn};

use super::{Driver, Task};
use crate::backend::NotRecorded;
use crate::calls::record::CallRecorder;
use crate::journal::record::Change;
use crate::model::run::Work;
use crate::model::{Call, Ending};
use crate::runs::answer;

impl Driver {
    /// The tasks for `calls`, with their recorders. Their changes for the journal go to `changes`.
    pub(super) fn tasks(
        &self,
        calls: Vec<(Call, Work)>,
        changes: &mut Vec<Change>,
    ) -> Vec<(Call, Task, Arc<CallRecorder>)> {
        let mut tasks = Vec::with_capacity(calls.len());
        for (call, work) in calls {
            let run = &self.run.key.run;
            let tool_use = &call.tool_use;
            match &work {
                Work::Make(_) => info!(
                    name: "call_taken",
                    %run, toolUseId = %tool_use, tool = call.name, "call"
                ),
                Work::Doubtful(_) => warn!(
                    %run, toolUseId = %tool_use, tool = call.name,
                    "call without an answer, from a time whose record is lost"
                ),
                Work::Refuse(error) => warn!(%run, toolUseId = %tool_use, error, "call refused"),
                Work::Nothing | Work::Hold => continue,
                Work::Altered | Work::Astray => {
                    let why = match work {
                        Work::Altered => {
                            "a tool use again with another content; not calling it again"
                        }
                        _ => "a call that names no agent run to answer; not making it",
                    };
                    warn!(%run, toolUseId = %tool_use, "MANTYX sent {why}");
                    continue;
                }
            }
            let is_claimed = self.ownership.claim(&self.run, &call);
            let recorder = self.run.recorder(&self.context.calls, &*self.ownership, &call);
            if !is_claimed {
                warn!(
                    %run, toolUseId = %tool_use,
                    "the call belongs to another driver; this one does not make it"
                );
                changes.extend(recorder.left_to_others());
                continue;
            }
            let task = match work {
                Work::Make(_) if !recorder.has_room() => {
                    warn!(
                        %run, toolUseId = %tool_use, app = %self.run.app,
                        "the app's open calls use its whole share of the journal; call refused"
                    );
                    let why = NotRecorded::NoShare.for_model(&call.name);
                    Task::Refuse(why, Ending::Busy)
                }
                Work::Make(route) => Task::Make(route),
                Work::Doubtful(route) => answer::doubtful(&recorder, route),
                Work::Refuse(error) => Task::Refuse(error, Ending::Denied),
                Work::Nothing | Work::Hold | Work::Altered | Work::Astray => continue,
            };
            changes.push(recorder.change());
            tasks.push((call, task, recorder));
        }
        tasks
    }
}
