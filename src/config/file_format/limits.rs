//! How much and how often: quotas, rates, refreshes and the limits of calls.
//!
//! Must not: check anything.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::deserialize::At;
use crate::config::scalars::{Count, DurationText};

/// How many calls may be made. The counts begin anew with a restart.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with calls and per, or identical")]
pub struct Quota {
    /// So many calls in any time of the length `per`, at most 100,000.
    pub calls: Option<At<Count>>,
    /// The time, at most `168h`.
    pub per: Option<At<DurationText>>,
    /// How often a run may make the same call with the same arguments.
    pub identical: Option<At<Count>>,
}

/// How many requests an app may send.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with per_second and burst")]
pub struct Rate {
    /// Requests per second, in the long run.
    pub per_second: Option<At<Count>>,
    /// Requests at once, after a pause. Default: twice `per_second`.
    pub burst: Option<At<Count>>,
}

/// How catalogs are kept fresh, unless a backend has its own setting.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with interval, jitter, timeout")]
pub struct Refresh {
    /// Time from one refresh to the next, at least `1s`. Default: `5m`.
    pub interval: Option<At<DurationText>>,
    /// The share of `interval` by which each wait varies, 0 to 1. Default: 0.1.
    #[schemars(range(min = 0, max = 1))]
    pub jitter: Option<At<f64>>,
    /// How long one connect or one refresh may take. Default: `30s`.
    pub timeout: Option<At<DurationText>>,
}

/// The limits of all tool calls together.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with timeout, pending_timeout, max_concurrent")]
pub struct Calls {
    /// How long one call may take, at most `290s`: MANTYX gives up at 300 s. Default: `285s`.
    pub timeout: Option<At<DurationText>>,
    /// The same for calls to backends with `pending_after`, at most `24h`. Default: `1h`.
    pub pending_timeout: Option<At<DurationText>>,
    /// Calls that may run at once. Default: 256.
    pub max_concurrent: Option<At<Count>>,
}
