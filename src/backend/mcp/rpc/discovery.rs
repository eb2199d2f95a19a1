//! The answer to `server/discover` that comes after the one to `initialize`. Until the first call,
//! it still makes the connection one of revision 2026-07-28: otherwise the revision of a program
//! would depend on how busy the machine was when it started.
//!
//! Must not: do IO, or send anything again.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rmcp::model::ProtocolVersion;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::{Rpc, ServerInfo};

/// The state of that answer.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// The id of the request, while the answer still counts.
    awaited: Mutex<Option<i64>>,
    /// What the server has answered.
    info: OnceLock<ServerInfo>,
    arrived: Notify,
}

impl Rpc {
    /// Lets the answer to the `server/discover` with this id count from now on.
    pub(in crate::backend::mcp) fn await_discovery(&self, id: i64) {
        *self.discovery.awaited.lock() = Some(id);
        self.forget(id);
    }

    /// Whether the revision may still change, or has changed.
    pub(in crate::backend::mcp) fn may_be_discovered(&self) -> bool {
        self.discovery.awaited.lock().is_some() || self.discovered().is_some()
    }

    /// Fixes the revision, since a call is about to be sent.
    pub(in crate::backend::mcp) fn end_discovery(&self) {
        *self.discovery.awaited.lock() = None;
    }

    /// What the server has answered late, if it has.
    pub(super) fn discovered(&self) -> Option<&ServerInfo> {
        self.discovery.info.get()
    }

    /// Waits for the late answer, for ever if there is none.
    pub(in crate::backend::mcp) async fn late_discovery(&self) -> &ServerInfo {
        loop {
            // Made first, so that an answer which comes now is noticed.
            let arrived = self.discovery.arrived.notified();
            if let Some(info) = self.discovered() {
                return info;
            }
            arrived.await;
        }
    }

    /// Takes `result` if it is the late answer. If it names 2026-07-28, the connection is of that
    /// revision.
    pub(super) fn take_late_discovery(&self, id: i64, result: Option<&RawValue>) -> bool {
        let mut awaited = self.discovery.awaited.lock();
        if *awaited != Some(id) {
            return false;
        }
        *awaited = None;
        let revision = ProtocolVersion::V_2026_07_28;
        let Some(result) = result.filter(|result| result.get().contains(revision.as_str())) else {
            return true;
        };
        let discovered = self.handshake.lock().discovered(result);
        if let Ok((_, capabilities)) = discovered {
            // The id was awaited once.
            let info = ServerInfo { protocol_version: revision, capabilities };
            let _first = self.discovery.info.set(info).is_ok();
            self.discovery.arrived.notify_waiters();
            // The definitions of its tools may be others in this revision.
            self.changed.notify_one();
        }
        true
    }
}
