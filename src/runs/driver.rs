//! Drives one run: reads its stream to the end, whatever breaks in between, has its calls
//! answered, and posts the answers. One task per run, one more per call.
//!
//! Must not: wait for an app, or stop reading because a call is slow.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, error, info, warn};

use super::{DrivenRun, Runs, mask::masked};
use crate::{
    backend::peer::Origin,
    backoff::Backoff,
    http_client,
    model::{
        answer::Answer,
        event::{Call, Event},
        ids::ToolUseId,
        offer::Route,
        run::{Step, Work},
    },
    upstream::OpenError,
    wire::sse::{Frame, Framer},
};

/// The largest event that is read.
pub(super) const MAX_EVENT: usize = 8 << 20;
/// A stream that is silent for so long is opened anew: the connection may be dead without a sign,
/// and MANTYX documents no heartbeat.
const SILENCE: Duration = Duration::from_secs(60);
/// MANTYX waits so long for a result (`localToolTimeoutMs`, wire-protocol §5); later, nobody does.
const POST_WITHIN: Duration = Duration::from_secs(300);
/// A stream that was open for so long was no failed attempt, even if it brought nothing.
const LIVED: Duration = Duration::from_secs(5);
/// So many answers "no such run" in a row end the driver; one alone may be a replica that lags.
const UNKNOWN_RUN_LIMIT: u32 = 5;
/// A run whose stream could not be opened for so long is given up.
const GIVE_UP: Duration = Duration::from_secs(60 * 60);

/// Why a stream ended.
enum End {
    /// The run has ended.
    Terminal,
    Drain,
    Broken(String),
    Refused(OpenError),
}

/// The driver of one run.
struct Driver {
    runs: Arc<Runs>,
    run: Arc<DrivenRun>,
    calls: JoinSet<()>,
    backoff: Backoff,
}

/// The body of a tool-result POST (agent-runs-protocol §8).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    tool_use_id: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Drives `run` until it ends or the daemon goes down.
pub(super) async fn drive(runs: Arc<Runs>, run: Arc<DrivenRun>) {
    let backoff = Backoff::for_connections();
    let mut driver = Driver { runs, run, calls: JoinSet::new(), backoff };
    let why = driver.read_to_the_end().await;
    let Driver { runs, run, mut calls, .. } = driver;
    run.set_ended();
    if why == Why::Ended {
        // Nobody waits for these answers any more.
        run.cancel_calls();
    }
    if why == Why::GivenUp {
        // Its apps then hear from MANTYX itself what is wrong.
        runs.forget(&run.key);
    }
    run.log.end();
    while calls.join_next().await.is_some() {}
    info!(run = %run.key.run, "{}", why.words());
}

/// Why a driver stopped.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Ended,
    ShuttingDown,
    GivenUp,
}

impl Why {
    fn words(&self) -> &'static str {
        match self {
            Self::Ended => "the run has ended",
            Self::ShuttingDown => "the run is left as it is, for the bridge is going down",
            Self::GivenUp => "the run is not driven any more",
        }
    }
}

impl Driver {
    async fn read_to_the_end(&mut self) -> Why {
        let mut unknown = 0;
        let mut opened = Instant::now();
        loop {
            let begun = Instant::now();
            let wait = match self.read_stream().await {
                End::Terminal => return Why::Ended,
                End::Drain => return Why::ShuttingDown,
                End::Broken(why) => {
                    unknown = 0;
                    opened = Instant::now();
                    if opened > begun + LIVED {
                        self.backoff.reset();
                    }
                    debug!(run = %self.run.key.run, why, "the stream broke; resuming");
                    self.backoff.next_wait()
                }
                End::Refused(error) => {
                    warn!(run = %self.run.key.run, %error, "the run's stream cannot be read");
                    if matches!(error, OpenError::Status(StatusCode::NOT_FOUND)) {
                        unknown += 1;
                    }
                    if unknown >= UNKNOWN_RUN_LIMIT || begun > opened + GIVE_UP {
                        error!(run = %self.run.key.run, "giving the run up");
                        return Why::GivenUp;
                    }
                    self.backoff.next_wait()
                }
            };
            tokio::select! {
                () = sleep(wait) => (),
                () = self.runs.draining().cancelled() => return Why::ShuttingDown,
            }
        }
    }

    /// Opens the stream where the last one broke, and reads it.
    async fn read_stream(&mut self) -> End {
        let path = format!("{}/stream", self.run.path());
        let last_seq = self.run.state().last_seq();
        let draining = self.runs.draining().clone();
        let open = self.runs.upstream().open_stream(&path, last_seq, &self.run.authority);
        let opened = tokio::select! {
            opened = timeout(SILENCE, open) => opened,
            () = draining.cancelled() => return End::Drain,
        };
        let mut response = match opened {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return End::Refused(error),
            Err(_elapsed) => {
                let error = format!("no answer within {SILENCE:?}");
                return End::Refused(OpenError::Unreachable(error));
            }
        };
        let mut framer = Framer::new(MAX_EVENT);
        loop {
            let chunk = tokio::select! {
                chunk = timeout(SILENCE, response.chunk()) => chunk,
                () = draining.cancelled() => return End::Drain,
            };
            // Finished calls give their memory back.
            while self.calls.try_join_next().is_some() {}
            match chunk {
                Ok(Ok(Some(chunk))) => framer.push(&chunk),
                Ok(Ok(None)) => return End::Broken("MANTYX closed it".to_owned()),
                Ok(Err(error)) => return End::Broken(http_client::chain(&error.without_url())),
                Err(_elapsed) => return End::Broken(format!("silent for {SILENCE:?}")),
            }
            let ended = loop {
                match framer.next_frame() {
                    Ok(Some(frame)) => {
                        if self.take(&frame) {
                            break Some(End::Terminal);
                        }
                    }
                    Ok(None) => break None,
                    // To resume would bring the same event again.
                    Err(error) => {
                        error!(run = %self.run.key.run, %error, "the stream cannot be read on");
                        break Some(End::Broken(error.to_string()));
                    }
                }
            };
            self.run.log.flush();
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Takes in one frame; `true` when the run has ended with it.
    fn take(&mut self, frame: &Frame) -> bool {
        let Some(event) = read(&self.run, frame) else { return false };
        let seq = event.seq;
        let step = self.run.state().on_event(event);
        match step {
            Step::Skip => return false,
            Step::Relay => self.run.log.push(seq, frame.raw.clone()),
            Step::Mask(call, work) => {
                self.run.log.push(seq, masked(seq, &call).raw);
                self.work(call, work);
            }
            Step::Finish => {
                self.run.log.push(seq, frame.raw.clone());
                return true;
            }
        }
        // Proof of life: the next break is met at once.
        self.backoff.reset();
        false
    }

    fn work(&mut self, call: Call, work: Work) {
        let tool_use = &call.tool_use;
        match work {
            Work::Make(route) => {
                info!(run = %self.run.key.run, %tool_use, tool = call.name, "call");
                let making = make(Arc::clone(&self.runs), Arc::clone(&self.run), call, route);
                self.calls.spawn(making);
            }
            Work::Refuse(error) => {
                warn!(run = %self.run.key.run, %tool_use, error, "call refused");
                let (runs, run) = (Arc::clone(&self.runs), Arc::clone(&self.run));
                let deadline = Instant::now() + POST_WITHIN;
                self.calls.spawn(async move {
                    post(&runs, &run, &call.tool_use, Answer::Error(error), deadline).await;
                });
            }
            Work::Nothing => {}
            Work::Altered => {
                warn!(
                    run = %self.run.key.run, %tool_use,
                    "MANTYX sent a tool use again with another content; it is not run again"
                );
            }
        }
    }
}

/// The event in `frame`; `None` for a comment, and for a call that cannot be read, which is told.
pub(super) fn read(run: &DrivenRun, frame: &Frame) -> Option<Event> {
    let fields = frame.fields();
    let data = fields.data?;
    match Event::read(fields.id.as_deref(), fields.event.as_deref(), &data) {
        Ok(event) => Some(event),
        Err(error) => {
            warn!(run = %run.key.run, %error, "an event of MANTYX cannot be read; left out");
            None
        }
    }
}

/// Makes one call and posts its answer.
async fn make(runs: Arc<Runs>, run: Arc<DrivenRun>, call: Call, route: Route) {
    let begun = Instant::now();
    let deadline = begun + POST_WITHIN;
    let Call { tool_use, name, args, .. } = call;
    let origin = Origin { run: run.key.run.clone(), tool_use: tool_use.clone() };
    let answer = tokio::select! {
        answer = runs.call(&run.app, &route, args, Some(origin)) => answer,
        () = run.cancel.cancelled() => {
            Answer::Error("The call was cancelled because its run was.".to_owned())
        }
    };
    let ok = matches!(answer, Answer::Result { .. });
    info!(
        run = %run.key.run, %tool_use, tool = name, backend = %route.backend, ok,
        ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    if !run.has_ended() || runs.draining().is_cancelled() {
        post(&runs, &run, &tool_use, answer, deadline).await;
    }
}

async fn post(
    runs: &Runs,
    run: &DrivenRun,
    tool_use: &ToolUseId,
    answer: Answer,
    deadline: Instant,
) {
    let answer = answer.within_limits();
    let result = ToolResult { tool_use_id: tool_use.as_str(), answer: &answer };
    let body = serde_json::to_vec(&result).expect("strings can be written");
    let path = format!("{}/tool-results", run.path());
    runs.upstream.post_result(&path, Bytes::from(body), &run.authority, deadline).await;
}
