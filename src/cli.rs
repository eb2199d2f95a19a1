//! The command line: its arguments, and the subcommand that handles each.
//!
//! Exit codes: 0 it worked, 1 it failed, 2 the command line or the configuration is wrong.
//!
//! Must not: hold code that another part of the daemon needs.

mod approvals;
mod call;
mod check;
mod client;
mod demo;
mod doctor;
mod import;
mod init;
mod manual;
mod mcp;
mod page;
mod run;
mod serve;
mod signals;
mod status;
mod terminal;
mod tools;
mod trust;

use std::fmt::Display;
use std::io;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;
use tracing::error;

use self::client::{Client, parse};
use self::signals::Stop;
use crate::config::{ConfigErrors, Contact, Environment, find};
use crate::http::server::socket_activation;
use crate::model::sentences::filled;
use crate::telemetry;
use crate::telemetry::LogFormat;

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
    #[command(after_help = "Example: mantyx-bridge serve -c /etc/mantyx-bridge/bridge.yaml")]
    Serve,
    /// Reads the configuration, and shows what would run, or each mistake and its place
    #[command(after_help = include_str!("cli/examples/check.txt"))]
    Check {
        /// Prints JSON
        #[arg(long)]
        json: bool,
        /// Shows in place of that what would become of a call: whether it is made, and which rule
        /// refuses it or asks a person. TOOL is its name for the model, or BACKEND/TOOL
        #[arg(long, num_args = 2, value_names = ["TOOL", "JSON"], conflicts_with = "json")]
        explain: Option<Vec<String>>,
        /// Explains for this app alone
        #[arg(long, value_name = "NAME", requires = "explain")]
        app: Option<String>,
    },
    /// Dials the upstream and every backend, and shows the result of each step and how to fix it
    ///
    /// Needs no daemon, and calls no tool. Exit code 0 if nothing failed, 1 if a step failed, 2 if
    /// the configuration cannot be used.
    #[command(after_help = "Example: mantyx-bridge doctor demo --json")]
    Doctor {
        /// Only these backends, and not the upstream
        #[arg(value_name = "BACKEND")]
        backends: Vec<String>,
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows the main job on this machine, with nothing configured
    ///
    /// Starts the sandbox runtime, a bundled MCP server, a bundled A2A agent and the bridge; runs an
    /// agent run through the proxy that calls both; prints its events as they happen, and ends.
    #[command(after_help = "Examples:\n  mantyx-bridge demo\n  mantyx-bridge demo --runtime hsafa")]
    Demo {
        /// Shows calls of another runtime in place of an agent run of MANTYX
        #[arg(long, value_name = "RUNTIME")]
        runtime: Option<demo::Runtime>,
    },
    /// Shows the state of the running daemon and its backends
    #[command(after_help = "Examples:\n  mantyx-bridge status\n  mantyx-bridge status --watch")]
    Status {
        /// Repeats every second until Ctrl-C: in place on a terminal, else block after block
        #[arg(long, short)]
        watch: bool,
        /// Prints JSON, as GET /v1/status gives it, on one line
        #[arg(long)]
        json: bool,
    },
    /// Lists the tools that runs are given, under the names that the model sees
    #[command(after_help = "Example: mantyx-bridge tools demo")]
    Tools {
        /// Only those of this backend
        backend: Option<String>,
        /// Prints JSON, as GET /v1/tool-refs gives it
        #[arg(long)]
        json: bool,
        /// Prints the block for the configuration of an agent of another runtime
        #[arg(long = "as", value_name = "RUNTIME", conflicts_with = "json")]
        #[arg(value_parser = ["hsafa", "claude"])]
        form: Option<String>,
        /// The runtime, by its name in bridge.yaml, where there are several
        #[arg(long, value_name = "NAME", requires = "form")]
        runtime: Option<String>,
    },
    /// Calls a tool of the running daemon, as a run would
    ///
    /// If a call takes longer than its backend's `pending_after`, the command waits for its result.
    /// Ctrl-C cancels the call, unless it continues in the bridge; then the command prints its id.
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
    /// Serves the tools of the running daemon as an MCP server, on stdin and stdout
    ///
    /// For clients that start their MCP servers themselves. All of them share the daemon's
    /// connections, pins and approvals. It comes back when the daemon is restarted.
    #[command(after_help = "Example: mantyx-bridge mcp --print claude")]
    Mcp {
        /// Prints the entry for this program's list of MCP servers, and ends
        #[arg(long, value_name = "PROGRAM", value_parser = ["claude", "cursor", "vscode"])]
        print: Option<String>,
        /// The app of bridge.yaml whose rights the client gets, in place of the one that may use most
        #[arg(long, value_name = "NAME")]
        app: Option<String>,
    },
    /// Submits an agent run to the workspace of the configuration, and shows its answer as it comes
    ///
    /// The answer goes to stdout, a line for each call to stderr. Exit code 0 if the run has a
    /// result, 1 if it failed or was cancelled, which is what Ctrl-C does.
    #[command(after_help = include_str!("cli/examples/run.txt"))]
    Run(run::Settings),
    /// Shows the calls that wait for a person, and decides them
    ///
    /// Calls wait where `approve` in bridge.yaml says so. Each id stands for one call with exactly
    /// the arguments that are shown.
    #[command(after_help = include_str!("cli/examples/approvals.txt"))]
    Approvals(approvals::Settings),
    /// Refreshes catalogs now, and shows the result
    #[command(after_help = "Example: mantyx-bridge refresh demo")]
    Refresh {
        /// Only that of this backend
        backend: Option<String>,
        /// Prints JSON: a list of backends as GET /v1/status has them
        #[arg(long)]
        json: bool,
    },
    /// Shows what backends tell the model that you have not accepted, and accepts it
    ///
    /// The bridge accepts what an MCP server or an A2A agent says first. `pin` in its entry says
    /// what the bridge does with later changes.
    #[command(after_help = "Examples:\n  mantyx-bridge trust demo\n  mantyx-bridge trust accept \
           demo --all")]
    Trust(trust::Settings),
    /// Prints the token that apps use with the bridge; makes it if there is none yet
    #[command(after_help = "Examples:\n  export BRIDGE_TOKEN=$(mantyx-bridge token)\n  \
           mantyx-bridge token --operator")]
    Token {
        /// Prints the operator's secret instead: a session of the status page that began with it
        /// may decide on waiting calls, and accept what servers show
        #[arg(long)]
        operator: bool,
    },
    /// Writes a first bridge.yaml: asks for what is missing, and looks for MCP servers of other
    /// programs
    ///
    /// On a terminal it asks, and offers the MCP servers of Claude, Cursor and VS Code. Elsewhere,
    /// and with --yes, it only uses its arguments. Secrets are written as references.
    #[command(after_help = include_str!("cli/examples/init.txt"))]
    Init(init::Settings),
    /// Prints the servers of an mcpServers file as the `mcp:` part of a bridge.yaml
    ///
    /// Reads the files of Claude, Cursor and VS Code. It makes names legal, replaces secrets by
    /// references to environment variables, and reports on stderr what it leaves out.
    #[command(after_help = "Example: mantyx-bridge import .vscode/mcp.json >> bridge.yaml")]
    Import {
        /// The file, JSON with or without comments
        file: PathBuf,
    },
    /// Prints the completion script for a shell
    #[command(after_help = "Example: mantyx-bridge completions bash \\
           > ~/.local/share/bash-completion/completions/mantyx-bridge")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page, in roff
    #[command(after_help = "Example: mantyx-bridge man serve | man -l -")]
    Man {
        /// The page of this subcommand
        command: Option<String>,
    },
    /// The bundled MCP server, on stdin and stdout; `demo` and the example configuration start it
    #[command(hide = true)]
    DemoMcpServer,
}

impl Command {
    /// Whether it reports in the log. The other subcommands print their own messages for people.
    fn logs(&self) -> bool {
        matches!(self, Self::Serve | Self::DemoMcpServer)
    }
}

/// Why a subcommand failed. The text is for stderr.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2.
    Usage(String),
    /// The reader of stdout has closed it (`| head`): exit code 0, and no message.
    Gone,
}

/// The failures that take many words: the name of each, and its text.
const FAILURES: &str = include_str!("cli/failures.txt");

impl Failure {
    /// The failure of this name in [`FAILURES`].
    fn failed(name: &str, values: &[(&str, &dyn Display)]) -> Self {
        Self::Failed(filled(FAILURES, name, values))
    }

    /// The same, where the command line or the configuration is at fault.
    fn usage(name: &str, values: &[(&str, &dyn Display)]) -> Self {
        Self::Usage(filled(FAILURES, name, values))
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Usage(errors.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Gone,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// A hint for a command that needs the daemon, while the file has mistakes.
const UNTIL_THEN: &str = "\nA running daemon keeps its earlier configuration.";

/// A value that a command needs, or why the command fails.
type Outcome<T = ()> = Result<T, Failure>;

/// Runs the subcommand of the command line.
pub fn run(cli: Cli) -> ExitCode {
    // A reader of JSON lines needs the last line as JSON, too.
    let in_log = cli.global.log_format == LogFormat::Json && cli.command.logs();
    let (text, code) = match carry_out(cli) {
        Ok(()) | Err(Failure::Gone) => return ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => (text, 1),
        Err(Failure::Usage(text)) => (text, 2),
    };
    if in_log && tracing::dispatcher::has_been_set() {
        error!("{}", text.trim_end());
    } else {
        complain(&text);
    }
    ExitCode::from(code)
}

/// Prints a message to stderr.
fn complain(text: &str) {
    let text = text.trim_end();
    if !text.is_empty() {
        // Without stderr, only the exit code can report the failure.
        let _closed = writeln!(io::stderr(), "{text}");
    }
}

fn carry_out(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    let env = Environment::of_process();
    if command.logs() || global.verbose > 0 {
        let level = global.verbose;
        telemetry::start(global.log_format, level, |name| env.filled_var(name))
            .map_err(Failure::Usage)?;
    }
    let contact_of = |app: Option<&str>| -> Outcome<Contact> {
        let contact = Contact::load(&find(global.config.as_deref())?, &env, app);
        contact.map_err(|errors| Failure::Usage(format!("{errors}{UNTIL_THEN}")))
    };
    let contact = || contact_of(None);
    match command {
        Command::Serve => {
            // Before any other thread starts, since it changes environment variables.
            let handed = socket_activation::take().map_err(|error| serve::cannot_start(&error))?;
            block_on(serve::serve(find(global.config.as_deref())?, env.clone(), handed))
        }
        Command::Check { explain: Some(call), app, .. } => {
            let call = [0, 1].map(|at| call.get(at).map_or("", String::as_str));
            check::explain(global.config.as_deref(), call, app.as_deref())
        }
        Command::Check { json, .. } => check::run(global.config.as_deref(), json),
        Command::Doctor { backends, json } => {
            block_on(doctor::doctor(global.config.as_deref(), &env, &backends, json))
        }
        Command::Demo { runtime } => block_on(demo::demo(&env, runtime)),
        Command::Status { watch, json } => block_on(status::status(&contact()?, json, watch)),
        Command::Tools { backend, form: Some(form), runtime, .. } => {
            let names = [("backends", backend.as_deref()), ("runtime", runtime.as_deref())];
            block_on(tools::block(&contact()?, &form, names))
        }
        Command::Tools { backend, json, .. } => {
            block_on(tools::tools(&contact()?, backend.as_deref(), json))
        }
        Command::Call { tool, arguments, json } => {
            block_on(call::call(&contact()?, &tool, &arguments, json))
        }
        Command::Mcp { print: Some(program), app } => {
            mcp::entry(&program, global.config.as_deref(), app.as_deref())
        }
        Command::Mcp { print: None, app } => block_on(mcp::mcp(contact_of(app.as_deref())?)),
        Command::Approvals(settings) => block_on(approvals::approvals(&contact()?, settings)),
        Command::Run(settings) => block_on(run::run(&contact()?, settings)),
        Command::Refresh { backend, json } => {
            block_on(tools::refresh(&contact()?, backend.as_deref(), json))
        }
        Command::Trust(settings) => block_on(trust::trust(&contact()?, settings)),
        Command::Token { operator } => tools::token(&contact()?, operator),
        Command::Init(settings) => init::init(&settings, &env),
        Command::Import { file } => import::import(&file, &env),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(command.as_deref()),
        Command::DemoMcpServer => block_on(async {
            crate::demo::mcp_server::serve_stdio().await.map_err(Failure::Failed)
        }),
    }
}

fn block_on(future: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}

/// Writes to stdout.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// A report as JSON, for programs and for people.
fn pretty(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("texts and numbers can be written") + "\n"
}

/// `given`, or the text on stdin in place of `-`.
fn or_stdin(given: &str) -> io::Result<String> {
    match given {
        "-" => io::read_to_string(io::stdin()),
        given => Ok(given.to_owned()),
    }
}

#[cfg(test)]
mod tests;
