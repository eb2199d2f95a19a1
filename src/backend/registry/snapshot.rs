//! What is known of one backend.
//!
//! Must not: decide what becomes of an offer.

use std::sync::Arc;
use std::time::SystemTime;

use super::Connection;
use crate::backend::{About, PeerError};
use crate::model::words::words;
use crate::model::{Catalog, Features, Identity, Review};

words! {
    /// The state of a backend's connection; the `state` of `/v1/status`.
    #[derive(Default)]
    pub enum Phase {
        /// The first attempt has not ended yet.
        #[default]
        Connecting = "connecting",
        /// The program starts, or waits for its turn to start. One whose last start has failed is
        /// [`Phase::Down`] until a start succeeds.
        Starting = "starting",
        /// Connected, and the last refresh succeeded.
        Ready = "ready",
        /// Connected, but the last refresh failed; the last good catalog is in use.
        Degraded = "degraded",
        /// The program does not run, as nothing uses it. A call starts it; its tools are on offer.
        Idle = "idle",
        /// No connection: the last attempt failed, or the connection broke.
        Down = "down",
        /// No connection, as the operator wants none until the bridge restarts.
        Disabled = "disabled",
    }
}

/// How far the start of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// It waits for its turn.
    Queued,
    /// It runs, and has not answered the handshake yet.
    Running,
}

/// The known state of one backend.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub phase: Phase,
    /// The live connection, if there is one.
    pub connection: Option<Connection>,
    /// How far the program's start is, if there is one; calls wait for it. This is so for each
    /// attempt, whatever the phase is.
    pub start: Option<StartStage>,
    /// The program was idle, and a call starts it: its tools are on offer as if it ran. A failed
    /// start ends this.
    pub on_demand: bool,
    /// What the peer said in the last handshake; stays when the connection is gone.
    pub about: About,
    /// The last good catalog.
    pub catalog: Option<Arc<Catalog>>,
    /// The peer that the catalog belongs to; `None` where the catalog is not kept on disk.
    pub identity: Option<Identity>,
    pub last_refresh: Option<SystemTime>,
    pub next_refresh: Option<SystemTime>,
    /// The last failure, for operators; the next success clears it.
    pub last_error: Option<String>,
    pub last_failure: Option<PeerError>,
    /// How many connections were made and gave a catalog.
    pub connections: u64,
    /// How many refreshes and attempts to connect failed.
    pub failures: u64,
    /// What an MCP server offers beside its tools, as it last said.
    pub features: Arc<Features>,
    /// The comparison of the catalog with what the operator accepted.
    pub review: Arc<Review>,
    /// How often a tool was found to differ from what the operator accepted.
    pub changes: u64,
    /// Why the accepted pins could not be written to disk, if they could not.
    pub pins_error: Option<String>,
}

impl Snapshot {
    /// Whether the catalog may be outdated: there is one, but the backend is neither
    /// [`Phase::Ready`] nor idle.
    pub fn is_stale(&self) -> bool {
        self.catalog.is_some() && self.phase != Phase::Ready && !self.on_demand
    }

    /// The state of a program that does not run until a call comes.
    pub fn becomes_idle(&mut self) {
        self.disconnects_as(Phase::Idle);
        self.on_demand = true;
    }

    /// The state of a backend that has no connection, though nothing has failed.
    pub fn disconnects_as(&mut self, phase: Phase) {
        self.phase = phase;
        self.connection = None;
        self.start = None;
        self.on_demand = false;
        self.next_refresh = None;
        self.last_error = None;
        self.last_failure = None;
    }

    /// Whether tools of the catalog can be called now: the backend is connected, or a call starts
    /// it.
    pub(super) fn is_available(&self) -> bool {
        self.connection.is_some() || self.on_demand
    }
}
