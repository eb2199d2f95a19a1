//! `state` and `audit`: what the bridge keeps beside its state directory.
//!
//! Must not: check anything.

use schemars::JsonSchema;
use serde::Deserialize;

use super::ServerTls;
use crate::config::deserialize::At;
use crate::config::scalars::{DurationText, Scalar};

/// The journal in a database.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with postgres")]
pub struct State {
    /// The URL, `postgres://user:password@host/database`, as a reference. `?sslmode=require`
    /// demands TLS.
    pub postgres: Option<At<Scalar>>,
    /// A PEM file with the authorities that may sign its certificate. Default: the machine's.
    pub ca: Option<At<String>>,
    /// The schema of the tables, which the bridge makes. Default: `mantyx_bridge`.
    pub schema: Option<At<String>>,
    /// Replicas of one group share their runs. Default: `default`.
    pub group: Option<At<String>>,
    /// How long a statement may take. Default: `5s`.
    pub statement_timeout: Option<At<DurationText>>,
}

/// The audit log: `file`, or `syslog`, or both.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with file or syslog")]
pub struct Audit {
    /// The path of the file. The bridge appends to it, and creates it with mode 0600, again after
    /// it was renamed.
    pub file: Option<At<String>>,
    /// `true`: the log has the arguments of calls, too, and not only their SHA-256. They may
    /// contain personal or secret data. Default: `false`.
    pub arguments: Option<At<bool>>,
    /// The receiver that gets each line, too.
    pub syslog: Option<At<Syslog>>,
}

/// A syslog receiver.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with to")]
pub struct Syslog {
    /// `unix:/dev/log`: the socket of this host. `tcp://host:601`, `tls://host:6514`: RFC 5424 with
    /// octet counting.
    pub to: Option<At<String>>,
    /// How its certificate is checked, and what the bridge shows to it; for `tls://`.
    pub tls: Option<At<ServerTls>>,
}
