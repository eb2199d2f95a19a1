//! `programs`: what all programs that the bridge starts have in common, and the lists of `sandbox`.
//!
//! Must not: check anything.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::deserialize::{At, List, Named};
use crate::config::scalars::{DurationOrOff, DurationText, Scalar, StartMode};

/// What all programs have in common: those of `mcp` entries, and the commands of `local` ones.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with env, start, idle_stop, start_timeout")]
pub struct Programs {
    /// Variables for the environment of every program. An entry's own `env` and `envFile` win.
    pub env: Option<Named<Scalar>>,
    /// `eager` (the default) starts a program with the bridge. `lazy` starts one whose tools are
    /// known already by its first call.
    pub start: Option<At<StartMode>>,
    /// A program that nothing has used for so long is ended; its next call starts it again. Only
    /// for servers that keep nothing between calls. Default: `off`.
    pub idle_stop: Option<At<DurationOrOff>>,
    /// How long a program may take from its turn to start to the end of its handshake; the first
    /// start of a package installs it. At most `1h`. Default: `5m`.
    pub start_timeout: Option<At<DurationText>>,
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
