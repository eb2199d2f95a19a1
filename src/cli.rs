//! The command line: what can be said, and which subcommand does it.
//!
//! Exit codes: 0 it worked, 1 it failed, 2 the command line or the configuration is wrong.
//!
//! Must not: hold what another part of the daemon needs.

pub mod check;
mod client;
mod demo;
mod serve;
mod tools;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{ArgAction, Args, Parser, Subcommand};
use tracing::error;

use crate::{
    config::{Config, ConfigErrors, Environment, find},
    telemetry::{self, LogEnvironment, LogFormat},
};

/// Gives MANTYX agent runs the MCP servers and A2A agents of your network.
///
/// The bridge is a local daemon between your apps and MANTYX: an app changes its base URL to the
/// bridge and nothing else. The bridge puts the tools of its backends into run specs, and answers
/// every call of them.
#[derive(Debug, Parser)]
#[command(name = "mantyx-bridge", version, arg_required_else_help = true)]
#[command(after_help = "Begin with `mantyx-bridge demo`: it needs no account and no network.")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// The configuration [default: ./bridge.yaml, then /etc/mantyx-bridge/bridge.yaml]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The form of log lines, which go to stderr
    #[arg(long, global = true, value_name = "FORMAT", default_value = "pretty")]
    log_format: LogFormat,
    /// Logs more: once debug, twice trace
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the daemon
    Serve,
    /// Reads the configuration and says what would run, or what is wrong and where
    Check {
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows the main job on this machine, with nothing configured
    ///
    /// Starts the sandbox runtime, a bundled MCP server, a bundled A2A agent and the bridge; runs an
    /// agent run through the proxy that calls both; prints its events as they happen, and ends.
    Demo,
    /// Shows the state of the running daemon and its backends
    Status {
        /// Prints JSON, as GET /v1/status gives it
        #[arg(long)]
        json: bool,
    },
    /// Lists the tools that runs are given, under the names that the model sees
    Tools {
        /// Only those of this backend
        backend: Option<String>,
        /// Prints JSON, as GET /v1/tool-refs gives it
        #[arg(long)]
        json: bool,
    },
    /// Calls a tool of the running daemon, as a run would
    #[command(after_help = "Example: mantyx-bridge call demo_add '{\"a\": 2, \"b\": 3}'")]
    Call {
        /// The name that the model sees; `mantyx-bridge tools` lists them
        tool: String,
        /// The arguments, a JSON object; `-` reads them from stdin
        #[arg(default_value = "{}")]
        arguments: String,
        /// Prints the whole answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Refreshes catalogs now, and shows what came of it
    Refresh {
        /// Only that of this backend
        backend: Option<String>,
        /// Prints JSON: a list of backends as GET /v1/status has them
        #[arg(long)]
        json: bool,
    },
    /// Prints the token that apps use with the bridge; makes it if there is none yet
    Token,
    /// The bundled MCP server, on stdin and stdout; `demo` and the example configuration start it
    #[command(hide = true)]
    DemoMcpServer,
}

impl Command {
    /// Whether it tells what it does in the log. The others talk to people, and say what they have
    /// to say themselves.
    fn logs(&self) -> bool {
        matches!(self, Self::Serve | Self::DemoMcpServer)
    }
}

/// How a subcommand failed. The text is for stderr.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2.
    Usage(String),
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Usage(errors.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What somebody should know who asks for the status and has a file with mistakes.
const UNTIL_THEN: &str = "\nA daemon that runs goes on with the configuration that it took before.";

type Outcome = Result<(), Failure>;

/// Does what the command line says.
pub fn run(cli: Cli) -> ExitCode {
    let complain = match cli.global.log_format {
        // Who reads JSON lines wants no other, the last one included.
        LogFormat::Json if cli.command.logs() => complain_in_log,
        LogFormat::Json | LogFormat::Pretty => complain,
    };
    match carry_out(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough closed the pipe.
        Err(Failure::Failed(text)) if text == broken_pipe() => ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => {
            complain(&text);
            ExitCode::from(1)
        }
        Err(Failure::Usage(text)) => {
            complain(&text);
            ExitCode::from(2)
        }
    }
}

fn complain(text: &str) {
    // With stderr closed there is nobody to tell; the exit code says it.
    let _closed = writeln!(io::stderr(), "{}", text.trim_end());
}

fn complain_in_log(text: &str) {
    if telemetry::has_started() {
        error!("{}", text.trim_end());
    } else {
        complain(text);
    }
}

fn broken_pipe() -> String {
    io::Error::from(io::ErrorKind::BrokenPipe).to_string()
}

fn carry_out(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    let env = Environment::of_process();
    let log = LogEnvironment {
        filter: env.filled_var("RUST_LOG").map(str::to_owned),
        in_journal: env.filled_var("JOURNAL_STREAM").is_some(),
        no_color: env.filled_var("NO_COLOR").is_some(),
    };
    if command.logs() || global.verbose > 0 {
        let level = global.verbose;
        telemetry::start(global.log_format, level, &log).map_err(Failure::Usage)?;
    }
    let load =
        || -> Result<Config, Failure> { Ok(Config::load(&find(global.config.as_deref())?, &env)?) };
    match command {
        Command::Serve => block_on(serve::serve(find(global.config.as_deref())?, env.clone())),
        Command::Check { json } => {
            let good = check::run(global.config.as_deref(), json, &mut io::stdout().lock())?;
            if good { Ok(()) } else { Err(Failure::Usage(String::new())) }
        }
        Command::Demo => block_on(demo::demo(&env)),
        Command::Status { json } => {
            let config = load().map_err(|failure| match failure {
                Failure::Usage(mistakes) => Failure::Usage(mistakes + UNTIL_THEN),
                failed @ Failure::Failed(_) => failed,
            })?;
            block_on(tools::status(&config, json))
        }
        Command::Tools { backend, json } => {
            block_on(tools::tools(&load()?, backend.as_deref(), json))
        }
        Command::Call { tool, arguments, json } => {
            block_on(tools::call(&load()?, &tool, &arguments, json))
        }
        Command::Refresh { backend, json } => {
            block_on(tools::refresh(&load()?, backend.as_deref(), json))
        }
        Command::Token => tools::token(&load()?),
        Command::DemoMcpServer => block_on(async {
            crate::demo::mcp_server::serve_stdio()
                .await
                .map_err(|error| Failure::Failed(error.to_string()))
        }),
    }
}

fn block_on(future: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}

/// Writes to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Whether stdout is a terminal that wants colours.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
