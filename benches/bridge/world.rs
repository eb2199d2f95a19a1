//! What stands around the compared ones: the MANTYX, the tools, and what the bench asks of them.
//!
//! Must not: stand in the way of a measurement.

use std::{net::SocketAddr, time::Duration};

use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    process::Process,
    run::Outcome,
    wire::{Answer, Client},
};

/// The processes live as long as this.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) mantyx: SocketAddr,
    pub(crate) tools: SocketAddr,
    /// Asks the MANTYX for what only the bench wants to know.
    control: Client,
    _processes: [Process; 2],
}

/// What has become of a run.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) made: usize,
    pub(crate) answered: usize,
    /// Results for calls that had one.
    pub(crate) again: usize,
    /// Results for calls that there were not.
    pub(crate) unknown: usize,
    /// How often its stream was opened.
    pub(crate) opened: usize,
    /// Calls that were answered otherwise than the tool answers.
    pub(crate) failed: usize,
    pub(crate) error: Option<String>,
    pub(crate) samples: Vec<[u64; 4]>,
}

impl Record {
    /// An error unless each call was answered once, with what the tool said.
    pub(crate) fn check(&self, whose: &str) -> Outcome<()> {
        let well = self.made > 0
            && self.answered == self.made
            && self.again + self.unknown + self.failed == 0
            && self.opened == 1;
        if well {
            return Ok(());
        }
        Err(format!(
            "{whose}: of {} calls {} were answered, {} of them otherwise than the tool did, {} \
             results came again, {} were for no call, and the stream was opened {} times; the first \
             error: {:?}",
            self.made,
            self.answered,
            self.failed,
            self.again,
            self.unknown,
            self.opened,
            self.error
        )
        .into())
    }

    /// The time that was added to each call, but for the first `skip`.
    pub(crate) fn added(&self, skip: usize) -> Vec<u64> {
        let own = |[_, asked, answered, _]: &[u64; 4]| answered.saturating_sub(*asked);
        let all = self.samples.iter().skip(skip);
        all.map(|sample| (sample[3] - sample[0]).saturating_sub(own(sample))).collect()
    }
}

impl World {
    pub(crate) async fn start() -> Outcome<Self> {
        let (mantyx_process, mantyx) = Process::listening("mantyx", &[]).await?;
        let (tools_process, tools) = Process::listening("tools", &[]).await?;
        let control = Client::new(mantyx);
        Ok(Self { mantyx, tools, control, _processes: [mantyx_process, tools_process] })
    }

    /// Waits for the end of a run for as long as `patience`, and takes its record.
    pub(crate) async fn ended(&mut self, run: &str, patience: Duration) -> Outcome<Record> {
        let target = format!("/bench/ended/{run}");
        let Ok(answer) = timeout(patience, self.control.get(&target)).await else {
            // The connection waits for an answer for ever.
            self.control = Client::new(self.mantyx);
            return Err(format!("{run} does not end: some of its calls were not answered").into());
        };
        Ok(serde_json::from_slice(&answer.and_then(Answer::good)?)?)
    }

    /// Lets the runs that wait for it begin, or has later ones wait.
    pub(crate) async fn gate(&mut self, open: bool) -> Outcome<()> {
        let target = if open { "/bench/gate/open" } else { "/bench/gate/shut" };
        self.control.post(target, b"").await.and_then(Answer::good).map(drop)
    }

    /// Gives the memory of all runs back.
    pub(crate) async fn forget(&mut self) -> Outcome<()> {
        self.control.post("/bench/forget", b"").await.and_then(Answer::good).map(drop)
    }

    /// The entries of a bridge's configuration that lead to the three fast tools. The limits of
    /// calls at a time are higher than the load, so that no policy is measured; but a server on
    /// stdio has one pipe, for which 256 messages of ours may wait, and no more.
    pub(crate) fn fast_tools(&self) -> Outcome<String> {
        let program = std::env::current_exe()?;
        Ok(format!(
            "calls: {{max_concurrent: 2000}}\nmcp:\n  stdio: {{command: {program:?}, args: [--role, \
             stdio-tool], concurrency: 200}}\n  http: {{url: \"http://{tools}/mcp\", concurrency: \
             1000}}\na2a:\n  agent: {{card_url: \"{card}\", concurrency: 1000}}\n",
            tools = self.tools,
            card = self.card_url(),
        ))
    }

    pub(crate) fn card_url(&self) -> String {
        self.card_url_of("agent")
    }

    /// The address of the card of one of the agents.
    pub(crate) fn card_url_of(&self, agent: &str) -> String {
        format!("http://{}/{agent}/.well-known/agent-card.json", self.tools)
    }
}

/// Where runs are created that do as `plan` says.
pub(crate) fn runs_path(plan: &str) -> String {
    format!("/api/v1/workspaces/{plan}/agent-runs")
}

/// What an app sends to have a run.
pub(crate) const SPEC: &[u8] =
    br#"{"modelId":"m","systemPrompt":"You are a benchmark.","prompt":"Go."}"#;

/// Creates a run; gives its id and the path of its stream.
pub(crate) async fn create(client: &mut Client, plan: &str) -> Outcome<(String, String)> {
    let answer = client.post(&runs_path(plan), SPEC).await?.json()?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    Ok((text("runId"), text("streamUrl")))
}
