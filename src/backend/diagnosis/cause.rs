//! The causes: what each is called, and what an operator does about it.
//!
//! Must not: find one in anything.

use std::fmt;
use std::path::PathBuf;

use crate::config::Program;

/// Why a program did not start, is no MCP server, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend) enum Cause {
    /// The configured working directory.
    NoDirectory(PathBuf),
    /// What `cwd` names is no directory.
    CwdIsFile(PathBuf),
    /// The directory that `command` names.
    IsDirectory(PathBuf),
    /// The first line of this script ends as lines of Windows do; `None` for a script that the
    /// program has started itself.
    WindowsLineEnd(Option<PathBuf>),
    /// A shell may not run this file.
    NotRunnable(PathBuf),
    /// A path as `command`, with no file there.
    NoProgram,
    /// A bare name as `command`.
    NotInPath,
    /// A program of Windows, such as `cmd`; the line that does the same here.
    OfWindows(String),
    NotExecutable(PathBuf),
    /// The first line of this script names a program that is missing.
    NoInterpreter(PathBuf),
    /// A binary for another machine, or a script without a first line for it.
    WrongFormat,
    /// The launcher's words, and its cure.
    NotConfined(String, String),
    /// It needs another program that its PATH does not have.
    NoInnerProgram,
    /// The script that its arguments name.
    NoScript(PathBuf),
    UnknownPackage,
    RegistryRefuses,
    /// The registry is overloaded, or has had too many requests from here.
    RegistryBusy,
    NothingToRun,
    /// The package has only these programs.
    OtherExecutables {
        package: String,
        executables: Vec<String>,
    },
    /// npx asks whether it may install, and gets no answer.
    WantsYes,
    /// What an interrupted installation has left, in this directory of the cache.
    DamagedCache(Option<PathBuf>),
    NoModule,
    /// A library of the system.
    NoLibrary,
    /// It was written for the first generation of MCP's Python SDK, and has got the second.
    OtherSdk,
    OldRuntime,
    OutOfMemory,
    HeapLimit,
    Terminated,
    Faulted,
    /// One of the bridge's own files, or a directory that is masked with them.
    Hidden(PathBuf),
    /// Its `sandbox` lists others.
    NotListed(PathBuf),
    NoAccess(PathBuf),
    NoFile(PathBuf),
    NoNetwork(Network),
    Untrusted,
    Credential,
    Arguments,
    Usage,
    PortInUse,
    DiskFull,
    NoDocker,
    /// Deno has no permission for what the script does.
    NotPermitted,
    /// A container of the same name is there.
    NameInUse,
    /// It was started with the option for a terminal.
    WantsTerminal,
    /// A container that was started without the option for a stdin.
    NoStdin,
    SpeaksHttp,
    Framed,
    /// Each response has this id.
    ConstantId(i64),
    WaitsForPerson,
    /// It printed something else than messages.
    NotServer,
    /// It ended with status 0, and said nothing.
    EndedAtOnce,
    /// npm has written the reason to this file, and nowhere else.
    InLog(PathBuf),
    /// It ended with a failure, and said nothing.
    Silent,
    /// It said something that has no other cause here.
    Failed,
}

/// What could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend) enum Network {
    /// A registry, and the program has no proxy.
    Registry,
    /// A registry, though the program has a proxy.
    RegistryByProxy,
    /// A server of the program's own choice.
    Server,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoDirectory(cwd) => {
                return write!(f, "its working directory {} does not exist", cwd.display());
            }
            Self::CwdIsFile(cwd) => {
                return write!(f, "its working directory {} is no directory", cwd.display());
            }
            Self::IsDirectory(_) => "it is a directory",
            Self::WindowsLineEnd(_) => {
                "the first line of its script ends with a carriage return, as lines of Windows do"
            }
            Self::NotRunnable(path) => return write!(f, "it may not run {}", path.display()),
            Self::NoProgram => "there is no such program",
            Self::NotInPath => "there is no such program in the PATH of the bridge",
            Self::OfWindows(_) => "it is a program of Windows, and there is none here",
            Self::NotExecutable(_) => "it is not executable",
            Self::NoInterpreter(_) => "it is a script for an interpreter that is not there",
            Self::WrongFormat => "it is not made for this system",
            Self::NotConfined(why, _) => why,
            Self::NoInnerProgram => "it needs a program that is not in its PATH",
            Self::NoScript(path) => {
                return write!(f, "there is no file {}, which its arguments name", path.display());
            }
            Self::UnknownPackage => "the registry has no such package or version",
            Self::RegistryRefuses => "the registry refuses to give out the package",
            Self::RegistryBusy => "the registry takes no requests at the moment",
            Self::NothingToRun | Self::OtherExecutables { .. } => {
                "the package has no program of that name"
            }
            Self::WantsYes => "npx asks whether it may install the package",
            Self::DamagedCache(_) => "its installed copy is damaged",
            Self::NoModule => "a module that it needs is not installed",
            Self::NoLibrary => "a library of the system that it needs is not installed",
            Self::OtherSdk => "it was written for an earlier version of its `mcp` library",
            Self::OldRuntime => "it needs another version of Node.js, Python or Java",
            Self::OutOfMemory => "it was killed, as the system does when memory runs out",
            Self::HeapLimit => "it has used up its memory",
            Self::Terminated => "something outside of the bridge has ended it",
            Self::Faulted => "it crashed",
            Self::Hidden(path) => {
                return write!(f, "it needs {}, which is hidden from it", path.display());
            }
            Self::NotListed(path) => {
                return write!(f, "it needs {}, which its `sandbox` does not list", path.display());
            }
            Self::NoAccess(path) => return write!(f, "it may not use {}", path.display()),
            Self::NoFile(path) => {
                return write!(f, "it needs {}, which does not exist", path.display());
            }
            Self::NoNetwork(Network::Server) => "it cannot reach a server that it needs",
            Self::NoNetwork(_) => "it cannot reach the registry to install the package",
            Self::Untrusted => "it does not trust the certificate of a server",
            Self::Credential => "it does not have a setting or a credential that it needs",
            Self::Arguments => "it does not take its arguments",
            Self::Usage => "it printed how it is used, and is no MCP server with these arguments",
            Self::PortInUse => "another process has the port that it wants",
            Self::DiskFull => "the disk is full",
            Self::NoDocker => "Docker cannot be reached",
            Self::NotPermitted => "Deno has no permission for what it does",
            Self::NameInUse => "another container has its name",
            Self::WantsTerminal => "it is started with a terminal, and has none",
            Self::NoStdin => "its container has no stdin, so it ended at once",
            Self::SpeaksHttp => "it serves HTTP instead of stdin and stdout",
            Self::Framed => "it frames messages with Content-Length, as language servers do",
            Self::ConstantId(id) => {
                return write!(f, "its responses have the id {id}, whatever the request's id is");
            }
            Self::WaitsForPerson => "it waits for a person to log in",
            Self::NotServer => "it sends no MCP messages; it printed",
            Self::EndedAtOnce => "it ended by itself and said nothing, unlike an MCP server",
            Self::InLog(_) => "it did not say why; npm's log has the reason",
            Self::Silent => "it did not say why",
            Self::Failed => "it said",
        };
        f.write_str(text)
    }
}

impl Cause {
    /// The cause for readers who are shown no path and none of the program's output.
    pub(in crate::backend) fn plain(&self) -> String {
        let text = match self {
            Self::NoDirectory(_) => "its working directory does not exist",
            Self::CwdIsFile(_) => "its working directory is a file",
            Self::NotRunnable(_) => "a file that it starts may not be run",
            Self::NotConfined(..) => "it could not be confined",
            Self::NoScript(_) => "there is no file that its arguments name",
            Self::Hidden(_) | Self::NotListed(_) => "it needs a file that is hidden from it",
            Self::NoAccess(_) => "it may not use a file that it needs",
            Self::NoFile(_) => "it needs a file that does not exist",
            Self::NotServer => "it sends no MCP messages",
            Self::Failed => "it ended with an error",
            _ => return self.to_string(),
        };
        text.to_owned()
    }

    /// What an operator does about it.
    pub(in crate::backend) fn cure(&self, program: &Program) -> String {
        let (command, line) = (&program.command, program.command_line());
        match self {
            Self::NoDirectory(cwd) => format!("make {}, or correct `cwd`", cwd.display()),
            Self::CwdIsFile(cwd) => {
                format!("{} is a file: give a directory as `cwd`", cwd.display())
            }
            Self::IsDirectory(path) => {
                format!("give a program as `command`, such as one in {}", path.display())
            }
            Self::WindowsLineEnd(Some(file)) => {
                format!("write its lines with LF alone: `sed -i 's/\\r$//' {}`", file.display())
            }
            Self::NotRunnable(path) => format!(
                "run `chmod +x {}`, and let the user of the daemon enter its directory",
                path.display()
            ),
            Self::NoProgram => "correct `command`, or install the program there".to_owned(),
            Self::OfWindows(line) => format!("write {line} in its place"),
            Self::NotInPath => format!(
                "install it, give its full path as `command` (`command -v {command}` in your shell \
                 shows it), or set PATH for the daemon"
            ),
            Self::NotExecutable(file) => format!("run `chmod +x {}`", file.display()),
            Self::NoInterpreter(file) => format!(
                "install the interpreter that the first line of {} names, or correct that line",
                file.display()
            ),
            Self::NotConfined(_, cure) => cure.clone(),
            Self::NoScript(_) => {
                format!(
                    "correct the path in `args` (a relative one is meant from `cwd`), or build the program: {line}"
                )
            }
            Self::DamagedCache(Some(directory)) => format!(
                "remove the directory {}: the next start installs it again; if that brings the \
                 same error, try another version of the package",
                directory.display()
            ),
            Self::Hidden(path) => format!(
                "{} belongs to the bridge: let the program use another place, or set \
                 `sandbox: off` for it",
                path.display()
            ),
            Self::NotListed(path) => {
                format!("add {} to `read` or `write` of its `sandbox`", path.display())
            }
            Self::NoAccess(path) => format!(
                "let the user of the daemon use {}, or let the program use another place",
                path.display()
            ),
            Self::NoFile(path) => {
                format!("make {}, or correct the path in `args` or `env`", path.display())
            }
            Self::UnknownPackage => {
                format!("correct the name or the version of the package: {line}")
            }
            Self::OtherExecutables { package, executables } => {
                other_args(program, package, executables)
            }
            Self::InLog(path) => format!("read the end of {}", path.display()),
            Self::NothingToRun => {
                format!("see the package's own page for how it is started, and correct: {line}")
            }
            Self::Arguments | Self::Usage => {
                format!(
                    "see its own page for the arguments of its stdio server, and correct: {line}"
                )
            }
            Self::NotServer | Self::EndedAtOnce => format!(
                "see whether this is an MCP server over stdio, and whether it needs an argument \
                 for that: {line}"
            ),
            Self::Silent | Self::Failed => format!("run it by hand, and see what it says: {line}"),
            _ => self.fixed_cure().to_owned(),
        }
    }

    /// The cures that do not depend on the program.
    #[expect(clippy::too_many_lines, reason = "a table: one text for each cause")]
    fn fixed_cure(&self) -> &'static str {
        match self {
            Self::WrongFormat => {
                "get it for this system and processor; a script needs a first line such as \
                 `#!/bin/sh`"
            }
            Self::NoInnerProgram => {
                "install that program, or give a PATH that has it in `env`: the one of your shell \
                 does not reach it"
            }
            Self::WindowsLineEnd(None) => {
                "write the lines of the script with LF alone: `sed -i 's/\\r$//' FILE`"
            }
            Self::RegistryRefuses => {
                "give it the registry's credential: in `~/.npmrc` for npm, in `env` for uv and \
                 pip, by `docker login` for Docker"
            }
            Self::RegistryBusy => {
                "wait: the bridge starts it again later; if it lasts, see the registry's limits, or \
                 log in to it"
            }
            Self::WantsYes => "write `-y` as the first of its `args`",
            Self::NoLibrary => {
                "install the library that it names by the system's package manager, or run the \
                 program in a container"
            }
            Self::NotPermitted => "add the flag that it names to `args`, before the script",
            Self::NameInUse => {
                "remove that container, and leave `--name` out of `args`, or add `--rm`"
            }
            Self::WantsTerminal => "leave `-t` out of `args`: a server on stdio has `-i` alone",
            Self::NoStdin => "add `-i` to `args`, behind `run`",
            Self::DamagedCache(_) => {
                "clean the cache of the tool that installs it: `npm cache clean --force`, or \
                 `uv cache clean`"
            }
            Self::NoModule => {
                "install what it depends on (`npm install`, `pip install`), for the interpreter \
                 that `command` names"
            }
            Self::OtherSdk => {
                "take a later version of the package, or give it the earlier library: with uvx, \
                 `--with` and `mcp<2` come first in `args`"
            }
            Self::OldRuntime => {
                "install a version that it supports, and give its full path as `command`; uvx has \
                 `--python 3.12`"
            }
            Self::OutOfMemory => {
                "see `journalctl -k` for \"Out of memory\": give the machine or the container more \
                 memory, or run fewer programs"
            }
            Self::HeapLimit => {
                "give it more: `env: {NODE_OPTIONS: --max-old-space-size=4096}` for Node.js"
            }
            Self::Terminated => "see what has ended it; the bridge starts it again",
            Self::Faulted => {
                "update it or install it again; signal 4 means that it wants a newer processor"
            }
            Self::NoNetwork(Network::Registry) => {
                "see whether this machine reaches the registry; behind a proxy, set HTTPS_PROXY in \
                 its `env`"
            }
            Self::NoNetwork(Network::RegistryByProxy) => {
                "see whether the proxy in its HTTPS_PROXY is right, and lets it reach the registry"
            }
            Self::NoNetwork(Network::Server) => {
                "start what it connects to, or correct the address in `args` or `env`"
            }
            Self::Untrusted => {
                "give it your authority's certificate in `env`: NODE_EXTRA_CA_CERTS for Node.js, \
                 SSL_CERT_FILE for Python and uv"
            }
            Self::Credential => {
                "give it what it names in `env` or `args`: the variables of your shell do not \
                 reach it"
            }
            Self::PortInUse => {
                "end the process that has the port, or give this one another; over stdio it needs \
                 none"
            }
            Self::DiskFull => "free space on the disk that it writes to",
            Self::NoDocker => {
                "start Docker, and let the user of the daemon use it (the group `docker`)"
            }
            Self::SpeaksHttp => {
                "give it the argument for stdio (often `--stdio` or `--transport stdio`), or run \
                 it yourself and write its address as `url`"
            }
            Self::Framed => {
                "see whether it is an MCP server: MCP has one message a line; its newest version, \
                 or another mode, may do that"
            }
            Self::ConstantId(_) => {
                "update the server, or tell its author: a response has to have the id of its request"
            }
            Self::WaitsForPerson => {
                "do what it asks for, in a terminal as the daemon's user; then `mantyx-bridge \
                 refresh`"
            }
            _ => "run it by hand, and see what it says",
        }
    }
}

/// The `args` that start one of `executables` of `package` in the place of the one that it does not
/// have: uvx takes the name of the package for that of the program.
fn other_args(program: &Program, package: &str, executables: &[String]) -> String {
    let speaking = executables.iter().find(|name| name.contains("mcp"));
    let Some(chosen) = speaking.or(executables.first()) else {
        return format!("correct: {}", program.command_line());
    };
    let mut args = program.argv().split_off(1);
    let Some(at) = args.iter().position(|word| is_package(word, package)) else {
        return format!("write `--from {package} {chosen}` in the place of the package in `args`");
    };
    args.insert(at, "--from".to_owned());
    args.insert(at + 2, chosen.clone());
    let cure = format!("write `args: {}`", serde_json::json!(args));
    let others: Vec<&str> =
        executables.iter().filter(|name| *name != chosen).map(String::as_str).collect();
    if others.is_empty() {
        cure
    } else {
        format!("{cure}; its other programs are {}", others.join(", "))
    }
}

/// Whether `word` names `package`, maybe with a version or extras.
fn is_package(word: &str, package: &str) -> bool {
    let name = word.split(['@', '[', '=', '<', '>']).next().unwrap_or_default();
    // Python takes these letters for one another.
    let [name, package] = [name, package].map(|name| name.to_lowercase().replace(['_', '.'], "-"));
    name == package
}
