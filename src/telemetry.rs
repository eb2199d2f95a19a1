//! Logs: to stderr, one line each, for people or as JSON.
//!
//! Must not: be set up anywhere but in the binary.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line, with stable fields.
    Json,
}

/// What the environment says about the log.
#[derive(Debug, Default)]
pub struct LogEnvironment {
    /// `RUST_LOG`, which replaces the level.
    pub filter: Option<String>,
    /// `JOURNAL_STREAM` is set: the journal adds the time itself.
    pub in_journal: bool,
    /// `NO_COLOR` is set.
    pub no_color: bool,
}

/// Starts logging. `verbosity` counts `-v`.
///
/// The error says what is wrong with `RUST_LOG`.
pub fn start(format: LogFormat, verbosity: u8, env: &LogEnvironment) -> Result<(), String> {
    // rmcp repeats our own errors, and whole notifications.
    let level = match verbosity {
        0 => "warn,rmcp=off,mantyx_bridge=info",
        1 => "info,rmcp=off,mantyx_bridge=debug",
        _ => "debug,mantyx_bridge=trace",
    };
    let filter = env.filter.as_deref().unwrap_or(level);
    let filter =
        EnvFilter::try_new(filter).map_err(|error| format!("RUST_LOG={filter}: {error}"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_writer(io::stderr);
            registry.with(layer).try_init()
        }
        LogFormat::Pretty => {
            let colours = io::stderr().is_terminal() && !env.no_color;
            let layer = fmt::layer().with_target(false).with_ansi(colours).with_writer(io::stderr);
            if env.in_journal {
                registry.with(layer.without_time()).try_init()
            } else {
                registry.with(layer).try_init()
            }
        }
    };
    started.map_err(|error| error.to_string())
}
