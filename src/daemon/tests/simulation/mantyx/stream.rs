//! The streams of runs: they begin where they are asked to, or a little before, and break anywhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Event, Run};
use crate::daemon::tests::simulation::world::World;

struct Reading {
    world: Arc<World>,
    run: String,
    agent_run: Option<String>,
    /// The next event.
    at: usize,
    /// The event before that one, if they have changed places.
    late: Option<String>,
    /// Bytes that are still to be sent.
    rest: Bytes,
    /// How many bytes are sent before the stream breaks.
    breaks_after: Option<usize>,
    broken: bool,
}

/// The events of `run` behind the number `after`.
pub(super) fn events(
    world: Arc<World>,
    run: String,
    agent_run: Option<String>,
    after: usize,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (at, breaks_after) = {
        let mut state = world.state();
        let back = if state.fault(100) { state.below(4) } else { 0 };
        let breaks = state.fault(250);
        state.mantyx.runs.get_mut(&run).expect("it is there").streams += 1;
        let breaks_after = state.wait(Duration::from_micros(4_000)).as_micros() as usize;
        // An eval's events have no number, so that its stream begins from the start.
        (after.saturating_sub(back), breaks.then_some(breaks_after))
    };
    let reading = Reading {
        world,
        run,
        agent_run,
        at,
        late: None,
        rest: Bytes::new(),
        breaks_after,
        broken: false,
    };
    stream::unfold(reading, |mut reading| async move {
        let next = reading.next().await?;
        Some((next, reading))
    })
}

/// The stream is not open any more.
impl Drop for Reading {
    fn drop(&mut self) {
        if !self.broken {
            self.world.state().mantyx.runs.get_mut(&self.run).expect("it is there").streams -= 1;
        }
    }
}

impl Reading {
    /// Whether MANTYX does not show the run for a while, on any replica.
    fn is_hidden(&self) -> bool {
        let state = self.world.state();
        state.now() < state.mantyx.runs[&self.run].hidden_until || state.is_cut_from_mantyx()
    }

    /// The stream breaks, or just `ends`.
    fn breaks(&mut self, ends: bool) -> Option<io::Result<Bytes>> {
        self.broken = true;
        let mut state = self.world.state();
        state.mantyx.runs.get_mut(&self.run).expect("it is there").streams -= 1;
        state.step(format!("mantyx: the stream of {} breaks", self.run));
        (!ends).then(|| Err(io::Error::other("the stream broke")))
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.broken {
            return None;
        }
        if self.is_hidden() {
            return self.breaks(false);
        }
        while self.rest.is_empty() {
            self.world.if_alive().await;
            let world = Arc::clone(&self.world);
            let news = world.news.notified();
            let next = {
                let mut state = self.world.state();
                let swaps = state.fault(5);
                let agent_run = self.agent_run.as_deref();
                let run = state.mantyx.runs.get_mut(&self.run).expect("it is there");
                if self.late.is_some() {
                    self.late.take()
                } else if swaps && run.may_swap(agent_run, self.at) {
                    self.late = run.frame(agent_run, self.at);
                    self.at += 2;
                    run.frame(agent_run, self.at - 1)
                } else {
                    let next = run.frame(agent_run, self.at);
                    if next.is_none() && run.ended {
                        return None;
                    }
                    self.at += usize::from(next.is_some());
                    next
                }
            };
            match next {
                Some(frame) => {
                    self.rest = Bytes::from(frame);
                    let stalls = self.world.state().fault(15);
                    let most = if stalls { 120_000 } else { 20 };
                    self.world.pause(Duration::from_millis(most)).await;
                }
                None => {
                    let has_news = timeout(Duration::from_secs(15), news).await.is_ok();
                    if self.is_hidden() {
                        return self.breaks(false);
                    }
                    if !has_news {
                        self.rest = Bytes::from_static(b": ping\n\n");
                    }
                }
            }
        }
        let (size, ends) = {
            let mut state = self.world.state();
            let size =
                if state.chance(300) { 1 + state.below(self.rest.len()) } else { self.rest.len() };
            (size.min(self.breaks_after.unwrap_or(usize::MAX)), state.chance(500))
        };
        if let Some(left) = &mut self.breaks_after {
            *left -= size;
            if size == 0 {
                return self.breaks(ends);
            }
        }
        Some(Ok(self.rest.split_to(size)))
    }
}

impl Run {
    /// Whether the frame `at` comes behind the next one, which is not the last.
    fn may_swap(&mut self, agent_run: Option<&str>, at: usize) -> bool {
        if self.is_eval || agent_run.is_some() || at + 2 >= self.log.len() {
            return false;
        }
        self.is_reordered = true;
        if let Some(call) = self.log[at].tool_use.as_ref().and_then(|id| self.calls.get_mut(id)) {
            call.is_excused = true;
        }
        true
    }

    /// The frame number `at`, from 0, of its stream or of that of one of its agent runs.
    fn frame(&self, agent_run: Option<&str>, at: usize) -> Option<String> {
        let of = |event: &&Event| {
            agent_run
                .is_none_or(|id| event.data["agentRunId"] == id || event.kind.starts_with("run_"))
        };
        let event = self.log.iter().filter(of).nth(at)?;
        Some(match self.is_eval && agent_run.is_none() {
            true => event.flat(),
            false => event.numbered(at + 1),
        })
    }
}

impl Event {
    fn numbered(&self, seq: usize) -> String {
        let kind = self.kind.strip_prefix("run_").map_or(self.kind, |kind| match kind {
            "completed" => "result",
            "failed" => "error",
            kind => kind,
        });
        let data = json!({"seq": seq, "type": kind, "data": self.data});
        format!("id: {seq}\nevent: {kind}\ndata: {data}\n\n")
    }

    fn flat(&self) -> String {
        let mut data = json!({ "type": self.kind });
        if let (Value::Object(to), Value::Object(from)) = (&mut data, &self.data) {
            to.extend(from.clone());
        }
        format!("event: {}\ndata: {data}\n\n", self.kind)
    }
}
