//! Dials a program: starts it, performs the handshake on its pipes, and starts it again where
//! another message must come first.
//!
//! Must not: start a process while the one before it lives.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::child::Child;
use super::connection::Connection;
use super::handshake::{Opening, PipeHandshake, Proposal, Proposals, Waits};
use super::observed::Observed;
use super::rpc::{Link, Rpc};
use super::stdio::{Pipe, Stdout};
use super::transport::Transport;
use super::{Era, McpDialer};
use crate::backend::PeerError;
use crate::config::Program;

/// How long a failed handshake waits for the end of the process: its exit status and stderr say
/// more than the broken pipe.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);

/// How the handshake with one process failed.
struct ProcessFailure {
    error: PeerError,
    /// What another process may accept.
    next: Option<Proposal>,
    /// Whether the process has read any of the handshake.
    is_read: bool,
}

impl McpDialer {
    /// Starts `program` and performs the handshake. Another process for `initialize` is started
    /// when the one before has ended, so that no two of them work on the same files.
    pub(super) async fn dial_program(
        &self,
        program: &Program,
        launcher: Option<&Path>,
    ) -> Result<Connection, PeerError> {
        let mut opening = match self.memory.era() {
            Some(Era::Legacy) => Opening::Initialize(self.memory.proposal()),
            Some(Era::Modern | Era::Oldest) | None => Opening::Discover,
        };
        let mut proposals = Proposals::default();
        loop {
            let failure = match self.dial_process(program, launcher, opening, &mut proposals).await
            {
                Ok(connection) => return Ok(connection),
                Err(failure) => failure,
            };
            // A program that has spoken 2026-07-28 did not fail because of `server/discover`.
            let was_modern = self.memory.era() == Some(Era::Modern);
            let Some(next) = failure.next.filter(|_| !was_modern) else {
                if failure.is_read {
                    self.memory.forget();
                }
                return Err(proposals.add_summary(failure.error));
            };
            tracing::debug!(
                backend = %self.backend,
                "another process gets initialize with {next}: {}", failure.error
            );
            opening = Opening::Initialize(next);
        }
    }

    /// Starts one process and performs the handshake with it.
    async fn dial_process(
        &self,
        program: &Program,
        launcher: Option<&Path>,
        opening: Opening,
        proposals: &mut Proposals,
    ) -> Result<Connection, ProcessFailure> {
        let starts = &self.starts;
        let started = Child::start(&self.backend, program, launcher, &self.redact, starts).await;
        let (mut child, stdin, stdout, coverage) =
            started.map_err(|error| ProcessFailure { error, next: None, is_read: false })?;
        *self.coverage.lock() = coverage;
        let oddities = Arc::default();
        let observed = Observed {
            program: program.clone(),
            stderr: Arc::clone(&child.last_lines),
            oddities: Arc::clone(&oddities),
        };
        *self.observed.lock() = Some(observed.clone());
        let transport = Transport::Pipe(Pipe::new(stdin));
        let rpc = Rpc::new(self.backend.clone(), transport, &self.redact, true, oddities);
        let (stdout, rest) = Stdout::new(Arc::clone(&rpc), stdout, child.is_quiet());
        child.drain_stdout(rest);
        let mut link = Link { rpc: Arc::clone(&rpc), tasks: JoinSet::new() };
        link.tasks.spawn(stdout.run());
        let mut handshake = PipeHandshake::new(&link, opening, proposals, self.waits_for_program());
        let failure = match handshake.run(|| rpc.is_read()).await {
            Ok(agreement) => {
                drop(handshake);
                self.memory.keep(agreement.era(), agreement.proposal);
                child.handshake_done();
                let memory = Some(self.memory.clone());
                let connection = Connection::new(link, agreement.info, Some(child), memory);
                return Ok(connection.observed(observed));
            }
            Err(failure) => failure,
        };
        let end = child.end(EXIT_PATIENCE).await;
        let is_read = rpc.is_read();
        let last_line = observed.stderr.lock().last().map(str::to_owned);
        let next = handshake.after_end(&failure, is_read, last_line.as_deref());
        let error = match end {
            Some(end) => observed.ended(&end),
            None => observed.failed(&failure.error(&rpc)),
        };
        drop(handshake);
        if next.is_some() {
            rpc.close().await;
            child.stop().await;
        }
        Err(ProcessFailure { error, next, is_read })
    }

    /// The waits for the program. Of one that has spoken 2026-07-28 last time, silence says only
    /// that the machine is busy.
    fn waits_for_program(&self) -> Waits {
        match self.memory.era() {
            Some(Era::Modern) => Waits { silence: Duration::MAX, ..self.waits },
            _ => self.waits,
        }
    }
}
