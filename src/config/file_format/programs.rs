//! `programs`: what all programs that the bridge starts have in common, and the lists of `sandbox`.
//!
//! Must not: check anything.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::deserialize::{List, Named};
use crate::config::scalars::Scalar;

/// What all programs have in common: those of `mcp` entries, and the commands of `local` ones.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with env")]
pub struct Programs {
    /// Variables for the environment of every program. An entry's own `env` and `envFile` win.
    pub env: Option<Named<Scalar>>,
}

/// The files that a program may see. Relative paths start at the directory of this file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with read, write")]
pub struct Sandbox {
    /// Files and directories, with all below them, to read and to run.
    pub read: Option<List<String>>,
    /// The same, to change as well.
    pub write: Option<List<String>>,
}
