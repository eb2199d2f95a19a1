//! What must hold at the end. Laws that can be seen broken at once are where that happens: two effects
//! (`peers`), two answers (`mantyx`), a call without permission (`operator`), a gap in a stream (`apps`).

use super::world::State;

impl State {
    /// No more faults: what has begun comes to its end.
    pub(super) fn become_calm(&mut self) {
        self.calm = true;
        self.step("CALM");
    }

    /// Whether all runs have ended.
    pub(super) fn is_done(&self) -> bool {
        self.mantyx.runs.values().all(|run| run.ended)
    }

    /// The runs that have not.
    pub(super) fn is_undone(&self) -> String {
        let open = self.mantyx.runs.iter().filter(|(_, run)| !run.ended);
        let unread = self.apps.iter().flat_map(|app| app.unread());
        open.map(|(id, _)| id.clone()).chain(unread).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn judge(&mut self) {
        let mut broken = Vec::new();
        for (id, run) in &self.mantyx.runs {
            for (tool_use, call) in run.calls.iter().filter(|(_, call)| call.is_bridges) {
                let effects = 0;
                let _ = effects;
                if run.is_driven && call.expired && call.posts.is_empty() && self.faults == 0 {
                    broken.push(format!("{tool_use} of {id} ({}) got no answer", call.name));
                }
            }
        }
        for what in broken {
            self.breaks(what);
        }
    }
}
