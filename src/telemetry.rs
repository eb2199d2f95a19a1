//! Logs to stderr, one line each, for people or as JSON. Text of a peer in a line cannot break the
//! line, or send commands to a terminal. docs/logs.md has the fields.
//!
//! Must not: be set up anywhere but in the binary.

mod plain;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io;
use std::io::IsTerminal as _;
use std::panic::PanicHookInfo;

use tracing::error;
use tracing::field::display;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::{FormatFields, format};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

pub use self::plain::{is_plain, json as plain_json};

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line, with stable fields.
    Json,
}

/// Never logged, whatever `RUST_LOG` says: each change of a file next to bridge.yaml. The log may
/// be such a file, and each line would cause the next one.
const WITHOUT: &str = "notify=info";

/// Starts logging. `verbosity` counts `-v`; `look` knows the variables of the environment that are
/// set and not empty.
///
/// The error says why `RUST_LOG` is invalid.
pub fn start<'e>(
    format: LogFormat,
    verbosity: u8,
    look: impl Fn(&str) -> Option<&'e str>,
) -> Result<(), String> {
    // rmcp would repeat the bridge's own errors, and log whole notifications.
    let level = match verbosity {
        0 => "warn,rmcp=off,mantyx_bridge=info",
        1 => "info,rmcp=off,mantyx_bridge=debug",
        _ => "debug,mantyx_bridge=trace",
    };
    let directives = look("RUST_LOG").unwrap_or(level);
    let filter = EnvFilter::try_new(directives)
        .map_err(|error| format!("RUST_LOG={directives}: {error}"))?
        .add_directive(WITHOUT.parse().expect("the constant is a directive"));
    let layer = match format {
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(|| JsonLines).boxed()
        }
        LogFormat::Pretty => {
            let colours = io::stderr().is_terminal() && look("NO_COLOR").is_none();
            let layer = fmt::layer()
                .with_target(false)
                .with_ansi(colours)
                .fmt_fields(plain_fields())
                .with_writer(io::stderr);
            // The journal adds the time itself.
            match look("JOURNAL_STREAM") {
                Some(_) => layer.without_time().boxed(),
                None => layer.boxed(),
            }
        }
    };
    let registry = tracing_subscriber::registry().with(filter).with(layer);
    registry.try_init().map_err(|error| error.to_string())?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Formats the fields of a line for people.
fn plain_fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    format::debug_fn(write_field).delimited(" ")
}

/// Writes one field. The text may be that of a peer, and must not break the line or send commands
/// to the terminal.
fn write_field(
    writer: &mut format::Writer<'_>,
    field: &tracing::field::Field,
    value: &dyn std::fmt::Debug,
) -> std::fmt::Result {
    match field.name() {
        "message" => write!(plain::Escaping(writer), "{value:?}"),
        // The line already has what these fields of the `log` crate say.
        name if name.starts_with("log.") => Ok(()),
        name => write!(plain::Escaping(writer), "{name}={value:?}"),
    }
}

/// Writes lines of JSON, each with plain text only.
struct JsonLines;

impl io::Write for JsonLines {
    /// Gets a complete line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Most lines are ASCII; checking that is far cheaper than decoding characters.
        let ascii = line.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
        if ascii || str::from_utf8(line).is_ok_and(is_plain_text) {
            io::stderr().write_all(line)?;
        } else {
            let text = String::from_utf8_lossy(line);
            io::stderr().write_all(plain_json(&text).as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn is_plain_text(text: &str) -> bool {
    text.chars().all(|c| is_plain(c) || c == '\n')
}

/// Logs a panic like any other event.
fn log_panic(info: &PanicHookInfo<'_>) {
    let said = info.payload_as_str().unwrap_or("no message");
    let at = info.location().map(ToString::to_string).unwrap_or_default();
    let capture = Backtrace::capture();
    let backtrace = match capture.status() {
        BacktraceStatus::Captured => Some(display(capture)),
        _ => None,
    };
    error!(at, backtrace, "panicked: {said}");
}
