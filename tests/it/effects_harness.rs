//! What tests of crashes, stops and bad disks have in common: a bridge with one server whose
//! effects stand in a ledger, and a MANTYX that takes each result once.

use crate::{bridge::Bridge, effects::Effects, mantyx::Mantyx, peers};

pub(crate) struct EffectsHarness {
    pub(crate) bridge: Bridge,
    pub(crate) mantyx: Mantyx,
    pub(crate) plain: Effects,
}

impl EffectsHarness {
    /// `keys` stand in the server's entry.
    pub(crate) async fn start(keys: Option<&str>) -> Self {
        let (mantyx, plain) = (Mantyx::start().await, Effects::new());
        let server = plain.server();
        let server = keys.map_or_else(|| server.clone(), |keys| peers::with(&server, keys));
        let config = format!("{}mcp:\n  plain: {server}\n", mantyx.upstream());
        let bridge = Bridge::ready(&config).await;
        bridge.wait_backend("plain", "ready").await;
        Self { bridge, mantyx, plain }
    }
}
