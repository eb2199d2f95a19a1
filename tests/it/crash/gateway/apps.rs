//! The apps of a gateway: each submits a run and reads its stream to the end, and opens it again
//! where it left off when it breaks, as the SDK does.
//!
//! Must not: submit a run again whose first request broke, since MANTYX may have it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    bridge::API,
    haproxy::HOST,
    http::{Answer, Request},
    owners::token,
    sse::{self, Stream},
};

/// How long the SDK waits before it opens a stream again.
const AGAIN: Duration = Duration::from_millis(500);

/// What became of one submitted run.
#[derive(Debug)]
pub(super) enum Submitted {
    /// The app knows the run.
    Accepted(String),
    /// The connection broke before the answer: MANTYX may have the run.
    Cut,
    /// The gateway had no replica to ask, or the replica said no: no run.
    Refused(u16, String),
}

/// What an app saw of its run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) seqs: Vec<u64>,
    /// The types of events.
    pub(super) kinds: Vec<String>,
    /// Whether the last event came.
    pub(super) ended: bool,
    /// How often the stream was opened after it had broken.
    pub(super) reopened: usize,
    /// What was answered in place of the stream.
    pub(super) refused: Vec<(u16, String)>,
}

/// One app.
#[derive(Debug)]
pub(super) struct App {
    pub(super) at: Instant,
    pub(super) submitted: Submitted,
    pub(super) seen: Seen,
}

impl App {
    /// The answers that are of no use to the app. A connection that was cut is none, be it by the
    /// replica (haproxy says 502 then) or by haproxy.
    pub(super) fn failures(&self) -> Vec<String> {
        let submitted = match &self.submitted {
            Submitted::Accepted(_) | Submitted::Cut => None,
            Submitted::Refused(status, text) => Some(format!("POST: {status}: {text}")),
        };
        let refused = self.seen.refused.iter().filter(|(status, _)| !matches!(status, 502 | 504));
        let refused = refused.map(|(status, text)| format!("GET: {status}: {text}"));
        submitted.into_iter().chain(refused).collect()
    }
}

/// Apps at work.
#[derive(Debug)]
pub(super) struct Apps {
    log: Arc<Mutex<Vec<App>>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Apps {
    /// So many runs a second are submitted at `gateway`, whatever becomes of those before.
    pub(super) fn start(gateway: SocketAddr, runs_a_second: f64) -> Self {
        let (log, stop) = (Arc::new(Mutex::default()), watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(submit(gateway, runs_a_second, Arc::clone(&log), stop.subscribe()));
        Self { log, stop, tasks }
    }

    /// The runs that their apps know of.
    pub(super) fn accepted(&self) -> Vec<String> {
        let id = |app: &App| match &app.submitted {
            Submitted::Accepted(run) => Some(run.clone()),
            _ => None,
        };
        apps(&self.log).iter().filter_map(id).collect()
    }

    /// Submits nothing more, and waits until every app has seen its run's end.
    pub(super) async fn end(self, within: Duration) -> Vec<App> {
        self.stop.send_replace(true);
        let mut tasks = self.tasks;
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                ended.expect("an app does not panic");
            }
        };
        if timeout(within, all).await.is_err() {
            let log = apps(&self.log);
            let open = log.iter().filter(|app| !app.seen.ended).map(|app| &app.submitted);
            let open: Vec<_> = open.filter(|it| matches!(it, Submitted::Accepted(_))).collect();
            panic!("within {within:?}, these runs did not end for their apps: {open:?}");
        }
        std::mem::take(&mut *apps(&self.log))
    }
}

fn apps(log: &Mutex<Vec<App>>) -> MutexGuard<'_, Vec<App>> {
    log.lock().expect("no app panics while it holds the lock")
}

async fn submit(
    gateway: SocketAddr,
    runs_a_second: f64,
    log: Arc<Mutex<Vec<App>>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut running = JoinSet::new();
    let mut ticks = interval(Duration::from_secs_f64(1.0 / runs_a_second));
    // What could not be submitted in time is submitted at once, as the apps would.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                running.spawn(app(gateway, Arc::clone(&log)));
            }
            _ = stop.wait_for(|stop| *stop) => break,
        }
        while let Some(ended) = running.try_join_next() {
            ended.expect("an app does not panic");
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("an app does not panic");
    }
}

/// One app, which submits its run at the replica `at` and reads it at `gateway`.
pub(super) async fn one(replica: SocketAddr, gateway: SocketAddr) -> App {
    let at = Instant::now();
    let submitted = submit_run(replica).await;
    let seen = match &submitted {
        Submitted::Accepted(run) => follow(gateway, run).await,
        _ => Seen::default(),
    };
    App { at, submitted, seen }
}

async fn app(gateway: SocketAddr, log: Arc<Mutex<Vec<App>>>) {
    let at = Instant::now();
    let submitted = submit_run(gateway).await;
    let run = match &submitted {
        Submitted::Accepted(run) => Some(run.clone()),
        _ => None,
    };
    let place = {
        let mut log = apps(&log);
        log.push(App { at, submitted, seen: Seen::default() });
        log.len() - 1
    };
    let Some(run) = run else { return };
    let seen = follow(gateway, &run).await;
    if let Some(app) = apps(&log).get_mut(place) {
        app.seen = seen;
    }
}

fn request(method: &str, target: &str) -> Request {
    Request::new(method, target).header("Host", HOST).bearer(&token("a"))
}

/// Submits a run at `gateway`.
pub(super) async fn submit_run(gateway: SocketAddr) -> Submitted {
    let spec = r#"{"modelId":"m","prompt":"hi"}"#;
    let request = request("POST", &format!("{API}/agent-runs")).json(spec);
    let Ok(response) = request.try_send(gateway).await else { return Submitted::Cut };
    let Ok(answer) = response.try_answer().await else { return Submitted::Cut };
    let id = |answer: &Answer| answer.value()["runId"].as_str().map(str::to_owned);
    match answer.status {
        202 => Submitted::Accepted(id(&answer).expect("an accepted run has an id")),
        // haproxy's: the replica was asked, and did not answer.
        502 | 504 => Submitted::Cut,
        status => Submitted::Refused(status, answer.text()),
    }
}

/// Reads the stream of `run` to its end.
async fn follow(gateway: SocketAddr, run: &str) -> Seen {
    let mut seen = Seen::default();
    let mut last = 0;
    loop {
        let query = if last > 0 { format!("?lastSeq={last}") } else { String::new() };
        let request = request("GET", &format!("{API}/agent-runs/{run}/stream{query}"));
        let request = request.header("Accept", "text/event-stream");
        let request = match last {
            0 => request,
            last => request.header("Last-Event-ID", &last.to_string()),
        };
        match request.try_send(gateway).await {
            Ok(response) if response.status == 200 => {
                read(&mut Stream::over(response), &mut seen).await;
                last = seen.seqs.iter().copied().max().unwrap_or(0);
                if seen.ended {
                    return seen;
                }
            }
            Ok(response) => {
                let status = response.status;
                let text =
                    response.try_answer().await.map_or_else(|_| String::new(), |it| it.text());
                seen.refused.push((status, text));
                // What is not there does not come.
                if status < 500 {
                    return seen;
                }
            }
            Err(_) => {}
        }
        seen.reopened += 1;
        sleep(AGAIN).await;
    }
}

async fn read(stream: &mut Stream, seen: &mut Seen) {
    while let Some(frame) = stream.event().await {
        seen.seqs.extend(sse::seqs(std::slice::from_ref(&frame)));
        seen.kinds.push(sse::event_type(&frame));
        if sse::is_terminal(&frame) {
            seen.ended = true;
            return;
        }
    }
}
