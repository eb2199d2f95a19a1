//! `mantyx-bridge run`: runs one agent run through the daemon, and prints its answer as it comes.
//!
//! Must not: answer a call; the daemon does.

mod transcript;

use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use tokio::time::{sleep, timeout};

use self::transcript::{Event, Piece, RunEnd, Transcript};
use super::client::Events;
use super::terminal::{inset, tell};
use super::{Client, Failure, Outcome, Place, Stop, or_stdin, parse, print, print_json, waiting};
use crate::http::api::approvals::Shown;
use crate::http::api::openapi::Submitted;

/// MANTYX requires a system prompt for a run that names no agent (agent-runs-protocol §4).
const SYSTEM: &str = "You are a helpful assistant.";
/// How many streams in a row may bring no event before the command gives up, and the first wait
/// between them.
const TRIES: u32 = 6;
const WAIT: Duration = Duration::from_millis(250);
/// How long MANTYX may take to confirm a cancellation, and the daemon to name a new run.
const PATIENCE: Duration = Duration::from_secs(10);

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The prompt for the model; `-` reads it from stdin
    prompt: String,
    /// The system prompt [default: a helpful assistant]
    #[arg(long, value_name = "TEXT", conflicts_with = "agent")]
    system: Option<String>,
    /// The model, by its id in MANTYX [default: that of the workspace]
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// An agent of the workspace, which has a prompt and a model of its own
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The backends whose tools the run gets, separated by commas, or `none` [default: all]
    #[arg(long, value_name = "BACKENDS")]
    backends: Option<String>,
    /// The app of bridge.yaml whose run it is, in place of the one that may use most
    #[arg(long, value_name = "NAME")]
    pub(super) app: Option<String>,
    /// Prints the run's events as they come, one JSON object a line
    #[arg(long)]
    json: bool,
}

/// `mantyx-bridge run PROMPT`.
pub(super) async fn run(place: &Place, settings: Settings, program: &str) -> Outcome {
    let headers = settings.headers()?;
    let spec = settings.spec()?;
    let client = Client::new(place)?;
    let mut stop = Stop::new()?;
    let mut submitting = Box::pin(submit(&client, headers, spec));
    let run = tokio::select! {
        run = &mut submitting => run?,
        () = stop.asked() => {
            // The run may exist by now, and would continue without a reader: waits for its id, to
            // cancel it.
            let Ok(run) = timeout(PATIENCE, submitting).await else {
                return Err(Failure::Failed("stopped waiting; the run may have begun".to_owned()));
            };
            cancel(&client, &run?).await?;
            return Err(cancelled());
        }
    };
    let mut following = Box::pin(follow(&client, &run, settings.json));
    let mut approval = None;
    let belongs = |one: &Shown| one.run_id.as_deref() == Some(&*run.run_id);
    let outcome = tokio::select! {
        outcome = &mut following => outcome,
        never = waiting::announce(&client, program, belongs, &mut approval) => never,
        () = stop.asked() => {
            let giving_up = async {
                let (cancellation, end) =
                    tokio::join!(cancel(&client, &run), timeout(PATIENCE, &mut following));
                cancellation.and(end.unwrap_or_else(|_late| Err(cancelled())))
            };
            tokio::select! {
                outcome = giving_up => outcome,
                () = stop.asked() => {
                    let why = "stopped waiting before MANTYX confirmed the cancellation of the run";
                    Err(Failure::Failed(why.to_owned()))
                }
            }
        }
    };
    if matches!(outcome, Err(Failure::Gone)) {
        // The reader of stdout is gone: cancels the run, as on Ctrl-C.
        cancel(&client, &run).await?;
    }
    outcome
}

fn cancelled() -> Failure {
    Failure::Failed("the run is cancelled".to_owned())
}

impl Settings {
    fn headers(&self) -> Outcome<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(backends) = &self.backends {
            let value = HeaderValue::try_from(backends.as_str()).map_err(|_odd| {
                Failure::Usage("--backends takes names with commas between them".to_owned())
            })?;
            headers.insert("x-bridge-backends", value);
        }
        Ok(headers)
    }

    fn spec(&self) -> Outcome<String> {
        let prompt = or_stdin(&self.prompt)?;
        if prompt.trim().is_empty() {
            return Err(Failure::Usage("the prompt is empty".to_owned()));
        }
        let system = match self.agent {
            None => Some(self.system.as_deref().unwrap_or(SYSTEM)),
            Some(_) => None,
        };
        let members = [
            ("agentId", self.agent.as_deref()),
            ("modelId", self.model.as_deref()),
            ("systemPrompt", system),
        ];
        let mut spec = json!({ "prompt": prompt });
        for (key, value) in members.into_iter().filter(|(_, value)| value.is_some()) {
            spec[key] = value.into();
        }
        Ok(spec.to_string())
    }
}

async fn submit(client: &Client, headers: HeaderMap, spec: String) -> Outcome<Submitted> {
    parse(&client.post("/v1/runs", headers, Some(spec)).await?.success()?)
}

/// Cancels the run at MANTYX. A run that has already ended counts as cancelled.
async fn cancel(client: &Client, run: &Submitted) -> Outcome {
    let Some(run) = run.stream_url.strip_suffix("/stream") else { return Ok(()) };
    let path = format!("{run}/cancel");
    let request = client.post(&path, HeaderMap::new(), None);
    match timeout(PATIENCE, request).await {
        Ok(Ok(reply)) if reply.status.is_client_error() => Ok(()),
        Ok(reply) => reply?.success().map(drop),
        Err(_elapsed) => {
            Err(Failure::Failed("MANTYX does not say whether the run is cancelled".to_owned()))
        }
    }
}

/// Prints the run until its last event; opens broken streams again.
async fn follow(client: &Client, run: &Submitted, json: bool) -> Outcome {
    let mut reader = Reader { json, last: None, transcript: Transcript::default() };
    let mut tries = 0;
    loop {
        let last = reader.last.clone();
        let why = match client.open(&run.stream_url, last.as_deref()).await {
            Ok(events) => match reader.read(events).await? {
                Some(RunEnd::Well) => return Ok(()),
                Some(RunEnd::Badly(why)) => return Err(Failure::Failed(inset(&why))),
                None => Failure::Failed("the run's stream keeps breaking".to_owned()),
            },
            Err(why) => why,
        };
        tries = if reader.last == last { tries + 1 } else { 1 };
        if tries == TRIES {
            return Err(why);
        }
        sleep(WAIT * 2_u32.pow(tries - 1)).await;
    }
}

/// Reads the run's events.
struct Reader {
    json: bool,
    /// The id of the last event.
    last: Option<String>,
    transcript: Transcript,
}

impl Reader {
    /// Reads until the run ends; `None` if the stream ended first.
    async fn read(&mut self, mut events: Events) -> Outcome<Option<RunEnd>> {
        while let Some(fields) = events.next().await? {
            let Some(data) = fields.data else { continue };
            if fields.id.is_some() {
                self.last = fields.id;
            }
            if let Some(end) = self.take(&data)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn take(&mut self, data: &str) -> Outcome<Option<RunEnd>> {
        if self.json {
            print_json(&format!("{}\n", data.replace('\n', " ")))?;
        }
        // Ignores frames that are no events of a run.
        let Some(event) = Event::read(data) else { return Ok(None) };
        let (shown, end) = self.transcript.take(&event);
        for piece in shown.into_iter().filter(|_| !self.json) {
            match piece {
                Piece::Text(text) => print(&text)?,
                Piece::Line(line) => tell(&line),
            }
        }
        Ok(end)
    }
}
