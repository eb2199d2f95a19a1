//! A MANTYX that makes calls as a plan says, and knows for each when its event went out and when
//! the result came in.
//!
//! The plan of a run is the name of the workspace that it is created in ([`plan`]), so that nothing
//! but a path has to be read. Beside MANTYX's routes there are some for the bench, below `/bench`.
//! Must not: do anything between the last byte of an event and the record of a result that could be
//! done at another time.

mod ledger;
mod plan;
mod streams;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, watch};

use self::{
    ledger::{Ledger, Taken},
    plan::Plan,
};
use crate::{
    run::Outcome,
    wire::{self, Request, Served, header},
};

/// A run and what has become of it.
struct Run {
    id: String,
    plan: Plan,
    ledger: Mutex<Ledger>,
    /// A result has come.
    answered: Notify,
    /// Whether its last event was sent.
    ended: watch::Sender<bool>,
}

impl Run {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Shared {
    runs: Mutex<HashMap<String, Arc<Run>>>,
    ids: AtomicU64,
    /// Whether the runs that wait for it may begin.
    gate: watch::Sender<bool>,
}

pub(super) async fn play() -> Outcome<()> {
    let shared = Arc::new(Shared {
        runs: Mutex::default(),
        ids: AtomicU64::new(0),
        gate: watch::Sender::new(false),
    });
    wire::listen(|client| serve(client, Arc::clone(&shared))).await?;
    Ok(())
}

async fn serve(mut client: Served, shared: Arc<Shared>) -> io::Result<()> {
    while let Some(request) = client.request().await? {
        let path = request.target.split('?').next().unwrap_or_default();
        let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), words.as_slice()) {
            ("POST", ["api", "v1", "workspaces", plan, "agent-runs"]) => {
                let answer = shared.create(plan);
                client.write(&answer).await?;
            }
            ("POST", [.., "agent-runs", run, "tool-results"]) => {
                shared.result(&mut client, run, &request).await?;
            }
            ("GET", [.., "agent-runs", run, "stream"]) => {
                let Some(run) = shared.run(run) else {
                    client.write(&wire::response(404, r#"{"error":"not_found"}"#)).await?;
                    continue;
                };
                streams::stream(&mut client, &run, resume_from(&request), &shared.gate).await?;
            }
            ("GET", ["bench", "ended", run]) => {
                let answer = shared.ended(run).await;
                client.write(&answer).await?;
            }
            ("POST", ["bench", "gate", state]) => {
                shared.gate.send_replace(*state == "open");
                client.write(&wire::response(200, "{}")).await?;
            }
            ("POST", ["bench", "forget"]) => {
                shared.runs().clear();
                client.write(&wire::response(200, "{}")).await?;
            }
            _ => client.write(&wire::response(200, r#"{"ok":true}"#)).await?,
        }
    }
    Ok(())
}

/// Where the reader of a stream says that it got to.
fn resume_from(request: &Request) -> u64 {
    let query = request.target.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('&').find_map(|pair| pair.strip_prefix("lastSeq="));
    let numbers = [query, header(&request.head, "last-event-id")];
    numbers.into_iter().flatten().filter_map(|text| text.parse().ok()).max().unwrap_or(0)
}

impl Shared {
    fn runs(&self) -> MutexGuard<'_, HashMap<String, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, id: &str) -> Option<Arc<Run>> {
        self.runs().get(id).cloned()
    }

    fn create(&self, plan: &str) -> Vec<u8> {
        let Some(read) = Plan::read(plan) else {
            return wire::response(400, r#"{"error":"invalid_request","message":"no plan"}"#);
        };
        let id = format!("run_{}", self.ids.fetch_add(1, Ordering::Relaxed));
        let url = format!("/api/v1/workspaces/{plan}/agent-runs/{id}/stream");
        let answer = format!(r#"{{"runId":"{id}","streamUrl":"{url}"}}"#);
        let run = Run {
            id: id.clone(),
            plan: read,
            ledger: Mutex::default(),
            answered: Notify::new(),
            ended: watch::Sender::new(false),
        };
        self.runs().insert(id, Arc::new(run));
        wire::response(202, &answer)
    }

    async fn result(&self, client: &mut Served, run: &str, request: &Request) -> io::Result<()> {
        let Some(run) = self.run(run) else {
            return client.write(&wire::response(404, r#"{"error":"not_found"}"#)).await;
        };
        let taken = run.ledger().take(&request.body, request.first);
        let answer = match taken {
            Taken::First => wire::response(200, r#"{"ok":true}"#),
            Taken::Again => wire::response(409, r#"{"error":"already_answered"}"#),
            Taken::Unknown => wire::response(404, r#"{"error":"unknown_tool_use"}"#),
        };
        client.write(&answer).await?;
        run.answered.notify_one();
        Ok(())
    }

    /// Waits for the end of a run and tells what has become of it.
    async fn ended(&self, run: &str) -> Vec<u8> {
        let Some(run) = self.run(run) else { return wire::response(404, "{}") };
        let mut ended = run.ended.subscribe();
        // The sender is the run's, which we hold.
        if ended.wait_for(|ended| *ended).await.is_err() {
            return wire::response(404, "{}");
        }
        let record = run.ledger().record();
        wire::response(200, &record)
    }
}
