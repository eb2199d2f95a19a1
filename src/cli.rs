//! The command line: its arguments, and the subcommand that handles each.
//!
//! Exit codes: 0 it worked, 1 it failed, 2 the command line or the configuration is wrong.
//!
//! Must not: hold code that another part of the daemon needs.

mod add;
mod approvals;
mod call;
mod check;
mod client;
mod commands;
mod complete;
mod connect;
mod demo;
mod doctor;
mod edit;
mod failures;
mod import;
mod init;
mod listener;
mod login;
mod manual;
mod mcp;
mod notify;
mod open;
mod page;
mod place;
mod run;
mod secret;
mod serve;
mod service;
mod signals;
mod status;
mod terminal;
mod tools;
mod trust;
mod waiting;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::{ArgValueCandidates, Shell};
use serde::Serialize;
use tracing::error;

use self::client::{Client, Place, parse};
pub use self::complete::complete;
use self::place::{place_of, program};
use self::signals::Stop;
pub use self::signals::survive_hangup;
use self::terminal::{complain, print, print_json, print_page};
use crate::config::{ConfigErrors, Environment, find};
use crate::http::server::socket_activation;
use crate::telemetry;
use crate::telemetry::LogFormat;

/// Gives MANTYX agent runs the MCP servers and A2A agents of your network.
///
/// The bridge is a local daemon between your apps and MANTYX: an app changes its base URL to the
/// bridge and nothing else. The bridge puts the tools of its backends into run specs, and answers
/// every call of them.
#[derive(Debug, Parser)]
#[command(name = "mantyx-bridge", version, arg_required_else_help = true)]
#[command(after_help = include_str!("cli/examples/all.txt"))]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
struct Global {
    /// The configuration [default: $MANTYX_BRIDGE_CONFIG, ./bridge.yaml, then
    /// mantyx-bridge/bridge.yaml in ~/.config or /etc]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Asks the daemon at this address, and needs no configuration for that; its token is in
    /// --token-file or in $MANTYX_BRIDGE_TOKEN
    #[arg(long, global = true, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// The file with the token for --url
    #[arg(long, global = true, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// The form of log lines, which go to stderr
    #[arg(long, global = true, value_name = "FORMAT", default_value = "pretty")]
    log_format: LogFormat,
    /// Logs more: once debug, twice trace
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// Whose backends and tools are shown.
#[derive(Debug, Args)]
struct View {
    /// Shows what this app of bridge.yaml may use, in place of all that the operator sees
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
}

impl View {
    /// The client for this view. The operator needs no token of the app; anyone else does.
    fn client(&self, global: &Global, env: &Environment, changes: bool) -> Outcome<Client> {
        let Some(app) = &self.app else {
            return Client::new(&place_of(global, env, None, changes)?);
        };
        match Client::new(&place_of(global, env, None, changes)?) {
            Ok(client) if client.is_operators() => Ok(client.with_view(app)),
            Ok(_) | Err(_) => Client::new(&place_of(global, env, Some(app), changes)?),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the daemon
    ///
    /// SIGHUP reads bridge.yaml and its secrets again. SIGTERM or SIGINT (Ctrl-C) stops the daemon:
    /// it lets running calls finish for up to 30 s. A second one drops them.
    #[command(after_help = "Example: mantyx-bridge serve -c /etc/mantyx-bridge/bridge.yaml")]
    Serve,
    /// Reads the configuration, and shows what would run, or each mistake and its place
    #[command(after_help = include_str!("cli/examples/check.txt"))]
    Check {
        /// Prints JSON
        #[arg(long)]
        json: bool,
        /// Shows only what the rules decide on a call: whether the bridge makes it, and which rule
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
        #[arg(value_name = "BACKEND", add = ArgValueCandidates::new(complete::backends))]
        backends: Vec<String>,
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows the main job on this machine, with nothing configured
    ///
    /// Starts the sandbox runtime, a bundled MCP server, a bundled A2A agent and the bridge; runs
    /// an agent run through the proxy that calls both; prints its events as they happen, and ends.
    #[command(after_help = "Examples:\n  mantyx-bridge demo\n  mantyx-bridge demo --stay")]
    Demo {
        /// Keeps the bridge running until Ctrl-C, with a link to its status page
        #[arg(long, conflicts_with = "runtime")]
        stay: bool,
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
        /// Ends with exit code 1 if there are problems, and prints them alone
        #[arg(long, conflicts_with_all = ["watch", "json"])]
        check: bool,
        /// Prints JSON, as GET /v1/status gives it, on one line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        view: View,
    },
    /// Lists the tools that runs are given, under the names that the model sees, or shows one of
    /// them
    #[command(after_help = "Examples:\n  mantyx-bridge tools demo\n  mantyx-bridge tools demo_add")]
    Tools {
        /// Only those of this backend, or this tool with its arguments
        #[arg(value_name = "BACKEND|TOOL")]
        #[arg(add = ArgValueCandidates::new(complete::tools_and_backends))]
        backend: Option<String>,
        /// Prints JSON, as GET /v1/tool-refs gives it, with what the tools cost each app's runs
        #[arg(long)]
        json: bool,
        /// Prints the block for the configuration of an agent of another runtime
        #[arg(long = "as", value_name = "RUNTIME", conflicts_with = "json")]
        #[arg(value_parser = ["hsafa", "claude"])]
        form: Option<String>,
        /// The runtime, by its name in bridge.yaml, where there are several
        #[arg(long, value_name = "NAME", requires = "form")]
        runtime: Option<String>,
        #[command(flatten)]
        view: View,
    },
    /// Calls a tool of the running daemon, as a run would
    ///
    /// If a call takes longer than its backend's `pending_after`, the command waits for its result.
    /// Ctrl-C cancels the call, unless it continues in the bridge; then the command prints its id.
    #[command(after_help = "Examples:\n  mantyx-bridge call demo_add a=2 b=3\n  \
           mantyx-bridge call demo_add '{\"a\": 2, \"b\": 3}'")]
    Call(call::Settings),
    /// Serves the tools of the running daemon as an MCP server, on stdin and stdout
    ///
    /// For clients that start their MCP servers themselves. All of them share the daemon's
    /// connections, pins and approvals. It comes back when the daemon is restarted.
    #[command(after_help = "Example: mantyx-bridge mcp --print claude")]
    Mcp {
        /// Prints the entry for this program's list of MCP servers, names the file that it goes
        /// into, and ends
        #[arg(long, value_name = "PROGRAM")]
        print: Option<connect::Product>,
        #[command(flatten)]
        options: connect::entry::Options,
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
    #[command(flatten)]
    Decide(approvals::Decision),
    /// Refreshes catalogs now, and shows the result
    #[command(after_help = "Example: mantyx-bridge refresh demo")]
    Refresh {
        /// Only that of this backend
        #[arg(add = ArgValueCandidates::new(complete::backends))]
        backend: Option<String>,
        /// Prints JSON: a list of backends as GET /v1/status has them
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        view: View,
    },
    /// Shows the tools and descriptions that backends have changed, and accepts them
    ///
    /// The bridge accepts what an MCP server or an A2A agent says first. `pin` in its entry says
    /// what the bridge does with later changes.
    #[command(after_help = "Examples:\n  mantyx-bridge trust demo\n  mantyx-bridge trust accept \
           demo --all")]
    Trust(trust::Settings),
    /// Logs in for the bridge at the issuer of an MCP server's tokens
    ///
    /// Prints an address to open in a browser, and waits. The bridge keeps the login and renews it.
    /// On a terminal, it also takes the address at which a browser on another machine has ended.
    #[command(after_help = "Example: mantyx-bridge login notion")]
    Login(login::LoginArguments),
    /// Removes the bridge's login at a backend, here and at its issuer
    #[command(after_help = "Example: mantyx-bridge logout notion")]
    Logout(login::LogoutArguments),
    /// Lists the logins that the bridge keeps at backends
    #[command(after_help = "Example: mantyx-bridge logins --json")]
    Logins(login::ListArguments),
    /// Tries a receiver of notices (`notify` in bridge.yaml)
    #[command(after_help = "Example: mantyx-bridge notify test ops")]
    Notify(notify::Settings),
    /// Opens the status page in a browser, signed in, or prints the link
    ///
    /// The link can be followed once, and within a minute.
    #[command(after_help = "Example: mantyx-bridge open --print")]
    Open {
        /// Only prints the link
        #[arg(long)]
        print: bool,
    },
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
    /// Prints the MCP servers of another product's file as the `mcp:` part of a bridge.yaml
    ///
    /// Reads the files of Claude, Cursor, VS Code, Windsurf, Cline, Gemini, Copilot, Zed, opencode,
    /// Codex, goose, Continue, LibreChat and others. It makes names legal, replaces secrets by
    /// references to environment variables, and reports on stderr what it leaves out. Exits with 1
    /// if a part of the file is not taken over.
    #[command(after_help = "Example: mantyx-bridge import .vscode/mcp.json >> bridge.yaml")]
    Import {
        /// The file: JSON with or without comments, YAML, or TOML
        file: PathBuf,
    },
    /// Adds an MCP server to bridge.yaml: a program, or a URL
    ///
    /// Only the new entry's bytes change. The change is shown and checked, and you are asked. A
    /// daemon that runs takes it by itself.
    #[command(after_help = include_str!("cli/examples/add.txt"))]
    Add(add::Settings),
    /// Removes an MCP server, an A2A agent or a local tool from bridge.yaml
    ///
    /// Only the entry's bytes change. The change is shown and checked, and you are asked; so you
    /// are about each secret that only this entry had.
    #[command(after_help = "Example: mantyx-bridge remove fs")]
    Remove(add::Removal),
    /// Puts the bridge into another program's list of MCP servers
    ///
    /// Runs the program's own command if it has one, and changes its file otherwise. What is run or
    /// changed is shown, and you are asked. No token is written there.
    #[command(after_help = "Examples:\n  mantyx-bridge connect claude-code\n  mantyx-bridge \
           connect cursor --app cursor")]
    Connect(connect::Settings),
    /// Takes the bridge out of another program's list of MCP servers
    #[command(after_help = "Example: mantyx-bridge disconnect claude-code")]
    Disconnect(connect::Disconnection),
    /// Keeps secrets for `${secret:NAME}` in bridge.yaml
    #[command(after_help = "Example: mantyx-bridge secret set MANTYX_API_KEY")]
    Secret(secret::Settings),
    /// Has systemd run the daemon, for you or for the machine
    #[command(after_help = "Example: mantyx-bridge service install")]
    Service(service::Settings),
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
    /// Whether it has a daemon do something that cannot be taken back.
    fn changes(&self) -> bool {
        matches!(
            self,
            Self::Call(_)
                | Self::Run(_)
                | Self::Approvals(_)
                | Self::Decide(_)
                | Self::Trust(_)
                | Self::Login(_)
                | Self::Notify(_)
                | Self::Logout { .. }
        )
    }

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

/// A value that a command needs, or why the command fails.
type Outcome<T = ()> = Result<T, Failure>;

/// The subcommands that ask no daemon, and those that need no configuration either.
const WITHOUT: [(&str, &[&str]); 2] = [
    ("serve check doctor token add remove connect secret service", &["url", "token_file"]),
    (
        "demo init import disconnect completions man demo-mcp-server",
        &["config", "url", "token_file"],
    ),
];

/// The command line. The help of a subcommand has only the options that it takes.
fn command_line() -> clap::Command {
    let mut line = Cli::command();
    for (names, options) in WITHOUT {
        let hidden: Vec<_> = line
            .get_arguments()
            .filter(|arg| options.contains(&arg.get_id().as_str()))
            .map(|arg| arg.clone().hide(true))
            .collect();
        for name in names.split(' ') {
            // A subcommand that has an option of this name is not given the global one.
            line = line.mut_subcommand(name, |subcommand| subcommand.args(&hidden));
        }
    }
    line
}

/// Refuses an option that the subcommand `name` does not take.
fn check_options(name: &str, global: &Global) -> Outcome {
    for (_, options) in WITHOUT.iter().filter(|(names, _)| names.split(' ').any(|it| it == name)) {
        if options.contains(&"config") && global.config.is_some() {
            return Err(Failure::Usage(format!("`{name}` takes no --config")));
        }
        if global.url.is_some() {
            return Err(Failure::Usage(format!("`{name}` takes no --url")));
        }
    }
    Ok(())
}

/// Runs the subcommand of the command line.
pub fn run() -> ExitCode {
    let matches = command_line().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let name = matches.subcommand_name().unwrap_or_default();
    // A reader of JSON lines needs the last line as JSON, too.
    let in_log = cli.global.log_format == LogFormat::Json && cli.command.logs();
    let outcome = check_options(name, &cli.global).and_then(|()| carry_out(cli));
    let (text, code) = match outcome {
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

fn carry_out(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    let env = Environment::of_process();
    if command.logs() || global.verbose > 0 {
        start_log(&global, &env)?;
    }
    let config = global.config.as_deref();
    let changes = command.changes();
    let place_for = |app: Option<&str>| place_of(&global, &env, app, changes);
    let place = || place_for(None);
    let client = |view: &View| view.client(&global, &env, changes);
    let program = program(&global, &env);
    match command {
        Command::Serve => {
            // Before any other thread starts, since it changes environment variables.
            let handed = socket_activation::take().map_err(|error| serve::cannot_start(&error))?;
            block_on(serve::serve(find(config, &env)?, env.clone(), handed))
        }
        Command::Check { explain: Some(call), app, .. } => explain(config, &call, app.as_deref()),
        Command::Check { json, .. } => check::run(config, json),
        Command::Doctor { backends, json } => {
            block_on(doctor::doctor(config, &env, &backends, json))
        }
        Command::Demo { runtime, stay } => block_on(demo::demo(&env, runtime, stay)),
        Command::Status { check: true, view, .. } => {
            block_on(async { status::check(&client(&view)?).await })
        }
        Command::Status { watch, json, view, .. } => {
            block_on(async { status::status(&client(&view)?, json, watch).await })
        }
        Command::Tools { backend, form: Some(form), runtime, view, .. } => {
            let names = [("backends", backend.as_deref()), ("runtime", runtime.as_deref())];
            block_on(async { tools::block(&client(&view)?, &form, names).await })
        }
        Command::Tools { backend, json, view, .. } => {
            block_on(async { tools::tools(&client(&view)?, backend.as_deref(), json).await })
        }
        Command::Call(settings) => {
            let view = View { app: settings.app.clone() };
            block_on(async { call::call(&client(&view)?, &settings, &program).await })
        }
        Command::Mcp { print: Some(product), options } => {
            connect::entry::print(product, config, &options, &env)
        }
        Command::Mcp { print: None, options } => {
            block_on(mcp::mcp(place_for(options.app.as_deref())?, options.backends.as_deref()))
        }
        Command::Approvals(settings) => {
            block_on(approvals::approvals(&place()?, settings, &program))
        }
        Command::Decide(decision) => {
            block_on(approvals::decide(&place()?, decision, false, &program))
        }
        Command::Run(settings) => {
            block_on(run::run(&place_for(settings.app.as_deref())?, settings, &program))
        }
        Command::Refresh { backend, json, view } => {
            block_on(async { tools::refresh(&client(&view)?, backend.as_deref(), json).await })
        }
        Command::Trust(settings) => block_on(trust::trust(&place()?, settings)),
        Command::Login(arguments) => block_on(login::login(&place()?, arguments)),
        Command::Logout(arguments) => block_on(login::logout(&place()?, &arguments)),
        Command::Logins(arguments) => block_on(login::logins(&place()?, arguments)),
        Command::Notify(settings) => block_on(notify::notify(&place()?, settings)),
        Command::Open { print } => block_on(open::open(&place()?, print)),
        Command::Token { operator } => tools::token(config, &env, operator),
        Command::Init(settings) => init::init(&settings, &env),
        Command::Import { file } => import::import(&file, &env),
        Command::Add(settings) => add::add(&settings, config, &env),
        Command::Remove(removal) => add::remove(&removal, config, &env),
        Command::Connect(settings) => connect::connect(&settings, config, &env),
        Command::Disconnect(settings) => connect::disconnect(&settings, &env),
        Command::Secret(settings) => secret::secret(settings, config, &env),
        Command::Service(settings) => service::service(&settings, config, &env),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(command.as_deref()),
        Command::DemoMcpServer => block_on(demo_mcp_server()),
    }
}

async fn demo_mcp_server() -> Outcome {
    crate::demo::mcp_server::serve_stdio().await.map_err(Failure::Failed)
}

fn explain(config: Option<&Path>, call: &[String], app: Option<&str>) -> Outcome {
    let call = [0, 1].map(|at| call.get(at).map_or("", String::as_str));
    check::explain(config, call, app)
}

fn start_log(global: &Global, env: &Environment) -> Outcome {
    telemetry::start(global.log_format, global.verbose, |name| env.filled_var(name))
        .map_err(Failure::Usage)
}

fn block_on(future: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(future);
    // A thread that reads a file may wait for a network without end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
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
