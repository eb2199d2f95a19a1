//! The signs by which causes show themselves, from the certain ones to the vague: the launcher's
//! words, the signal, an installer's words, a loader's, what stands on stdout, and the server's
//! own.
//!
//! Only the line that tells of the failure is searched for vague signs: a program may warn of a
//! missing key, and then end for another reason.
//!
//! Must not: look at the file system.

use std::path::{Path, PathBuf};

use super::installers::{damaged, unreached};
use super::paths::{cache_in, is_hidden, npx_cache, path_in};
use super::telling_line::{beside_usage, is_usage, npm_log, plain, telling_line};
use super::{Cause, Diagnosis, End, Evidence, installers};
use crate::backend::program::launcher;
use crate::config::ProgramSandbox;

/// The exit status of a shell for a signal: 128 and its number.
const BY_SIGNAL: i32 = 128;
const ILL: i32 = 4;
const ABRT: i32 = 6;
const BUS: i32 = 7;
const KILL: i32 = 9;
const SEGV: i32 = 11;
const TERM: i32 = 15;
/// The exit status of a shell for a program that is not there.
const NOT_THERE: i32 = 127;
/// The exit status of a shell for a program that it may not run.
const NOT_RUNNABLE: i32 = 126;

/// Whether `line` has all `parts`, which are in lower case.
pub(super) fn has(line: &str, parts: &[&str]) -> bool {
    let lower_case = line.to_lowercase();
    parts.iter().all(|part| lower_case.contains(part))
}

fn has_any(line: &str, parts: &[&str]) -> bool {
    let lower_case = line.to_lowercase();
    parts.iter().any(|part| lower_case.contains(part))
}

fn clean(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| plain(line)).collect()
}

fn with_line(cause: Cause, line: &str) -> Diagnosis {
    let text = line.trim();
    let line = if text.is_empty() { None } else { Some(text.to_owned()) };
    Diagnosis { cause, line }
}

/// The launcher could not become the program.
pub(super) fn launcher(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    let first_line = evidence.stderr.first().filter(|_| evidence.end == End::Exit(NOT_THERE))?;
    let why = launcher::apology_in(first_line)?;
    let Some(failure) = why.strip_prefix("cannot start ") else {
        let (why, cure) = why.rsplit_once(": ").unwrap_or((why, "restart the bridge"));
        let cause = Cause::NotConfined(why.to_owned(), cure.to_owned());
        return Some(Diagnosis { cause, line: None });
    };
    let (file, error) = failure.rsplit_once(": ")?;
    let cause = match error {
        error if has(error, &["no such file"]) => Cause::NoInterpreter(file.into()),
        error if has(error, &["exec format"]) => Cause::WrongFormat,
        error if has(error, &["permission denied"]) => match &evidence.program.sandbox {
            ProgramSandbox::Listed(_) => Cause::NotListed(file.into()),
            _ => Cause::NoAccess(file.into()),
        },
        _ => Cause::Failed,
    };
    Some(with_line(cause, failure))
}

/// Words of a line that tells of a crash.
const CRASHES: [&str; 10] = [
    "abort",
    "assert",
    "bus error",
    "core dumped",
    "corrupt",
    "fatal",
    "free()",
    "illegal instruction",
    "segmentation",
    "stack overflow",
];

/// A signal has ended the program, or one that it had started itself. Only where the program has
/// ended itself by it, a line says why: another one is from before, and would be taken for the
/// reason.
pub(super) fn killed(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    let lines = clean(evidence.stderr);
    let heap = ["heap out of memory", "memoryerror", "std::bad_alloc", "cannot allocate memory"];
    if let Some(line) = lines.iter().find(|line| has_any(line, &heap)) {
        return Some(with_line(Cause::HeapLimit, line));
    }
    let signal = match evidence.end {
        End::Signal(signal) => signal,
        End::Exit(status) if status > BY_SIGNAL => status - BY_SIGNAL,
        _ => return None,
    };
    let cause = match signal {
        KILL => Cause::OutOfMemory,
        TERM => Cause::Terminated,
        ILL | ABRT | BUS | SEGV => Cause::Faulted,
        _ => return None,
    };
    let line = match signal {
        ABRT => telling_line(evidence.stderr),
        KILL | TERM => None,
        _ => lines.iter().rev().find(|line| has_any(line, &CRASHES)).cloned(),
    };
    Some(Diagnosis { cause, line })
}

/// npm, uv, pip or Docker have not come as far as to start the program.
pub(super) fn installer(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    installers::installer(evidence, &clean(evidence.stderr))
}

/// Node.js, Python or a shell could not load the program.
pub(super) fn loader(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    const INNER: [&str; 5] =
        ["command not found", ": not found", "env: ", "executable file not found", "exec: "];
    const MODULE: [&str; 9] = [
        "unable to access jarfile",
        "script not found",
        "modulenotfound resolving",
        "cannot find module",
        "cannot find package",
        "no module named",
        "error parsing /",
        "can't open file",
        "module not found",
    ];
    let lines = clean(evidence.stderr);
    let telling = telling_line(&lines)?;
    if names_carriage_return(&telling) {
        return Some(with_line(Cause::WindowsLineEnd(None), &telling));
    }
    if evidence.end == End::Exit(NOT_THERE) && has_any(&telling, &INNER) {
        // npx starts what it has installed by a shell, which says no more than this.
        let cause = match npx_cache(evidence.program, &evidence.variables) {
            // npx itself has not been started, as its own interpreter is missing.
            _ if has(&telling, &["env: "]) => Cause::NoInnerProgram,
            None => Cause::NoInnerProgram,
            directory => Cause::DamagedCache(directory),
        };
        return Some(with_line(cause, &telling));
    }
    if wants_other_sdk(&telling) {
        return Some(with_line(Cause::OtherSdk, &telling));
    }
    // One of Node.js itself, which an earlier version does not have.
    if has(&telling, &["cannot find module 'node:"]) {
        return Some(with_line(Cause::OldRuntime, &telling));
    }
    if has_any(&telling, &MODULE) {
        // What a module imports is named with the module. In a trace, the missing file is one that
        // a module imports.
        let imported = lines.iter().any(|line| line.trim_start().starts_with("at file://"));
        let cause = match script(&telling) {
            _ if cache_in(lines.iter()).is_some() => damaged(evidence, &lines),
            Some(path) if !imported => Cause::NoScript(path),
            _ => Cause::NoModule,
        };
        return Some(with_line(cause, &telling));
    }
    if wants_other_runtime(&lines, &telling) {
        return Some(with_line(Cause::OldRuntime, &telling));
    }
    None
}

/// Whether `line` names an interpreter, or a command, with a carriage return at its end.
fn names_carriage_return(line: &str) -> bool {
    const ENDS: [&str; 4] = [
        r"\r’: no such file",
        r"\r': no such file",
        "^m: bad interpreter",
        r"\r': command not found",
    ];
    has_any(line, &ENDS)
}

/// The file that was to be run, if `line` says that it is missing. What a module imports is named
/// with the module.
fn script(line: &str) -> Option<PathBuf> {
    const MISSING: [&str; 6] = [
        "cannot find module '/",
        "can't open file",
        "unable to access jarfile",
        "script not found",
        // Deno and Bun.
        "module not found \"",
        "modulenotfound resolving",
    ];
    if !has_any(line, &MISSING) || has(line, &["imported from"]) {
        return None;
    }
    path_in(line).or_else(|| relative_path(line))
}

/// The path that Deno, Bun or Java names, which need not be absolute.
fn relative_path(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once("jarfile ").or_else(|| line.split_once('"'))?;
    let path = path.trim_start_matches("file://").split('"').next()?;
    if path.is_empty() { None } else { Some(path.into()) }
}

/// Whether a Python server is written for another generation of MCP's SDK. Many servers name no
/// upper bound for it; the copy that uvx has installed is then whole, and a new one brings the same
/// error.
fn wants_other_sdk(telling: &str) -> bool {
    const DECORATORS: [&str; 5] =
        ["'list_", "'call_tool", "'read_resource", "'get_prompt", "'request_"];
    let failed_import = has_any(telling, &["no module named 'mcp.", "cannot import name"])
        && has_any(telling, &["'mcp'", "'mcp."]);
    let missing_decorator =
        has(telling, &["'server' object has no attribute"]) && has_any(telling, &DECORATORS);
    failed_import || missing_decorator
}

/// Whether the program is written for another version of its language.
fn wants_other_runtime(lines: &[String], telling: &str) -> bool {
    const CERTAIN: [&str; 8] = [
        "err_unknown_builtin_module",
        "no such built-in module",
        "err_require_esm",
        "node: bad option",
        "referenceerror: file is not defined",
        "referenceerror: fetch is not defined",
        "referenceerror: websocket is not defined",
        "referenceerror: crypto is not defined",
    ];
    const OF_PACKAGES: [&str; 3] = ["unsupported engine", "/node_modules/", "/site-packages/"];
    if has_any(telling, &CERTAIN) {
        return true;
    }
    // A syntax error is the runtime's fault only in code that others have run already.
    telling.starts_with("SyntaxError: ")
        && !telling.contains("JSON")
        && lines.iter().any(|line| has_any(line, &OF_PACKAGES))
}

/// What stands on stdout in the place of messages, and the ids of messages.
pub(super) fn stdout(evidence: &Evidence<'_>) -> Option<Diagnosis> {
    let stdout = clean(evidence.stdout);
    // One that has worked may change to frames; a single line is not why it has ended.
    let may_frame = !evidence.worked || evidence.end == End::Running;
    if let Some(line) = stdout.iter().find(|line| is_frame(line)).filter(|_| may_frame) {
        return Some(with_line(Cause::Framed, line));
    }
    if let Some(id) = evidence.stray_id.filter(|_| evidence.end == End::Running) {
        return Some(Diagnosis { cause: Cause::ConstantId(id), line: None });
    }
    if evidence.worked {
        return None;
    }
    let both: Vec<String> = stdout.iter().cloned().chain(clean(evidence.stderr)).collect();
    if evidence.end == End::Running {
        if let Some(line) = both.iter().find(|line| asks_person(line)) {
            return Some(with_line(Cause::WaitsForPerson, line));
        }
        if let Some(line) = both.iter().find(|line| serves_http(line)) {
            return Some(with_line(Cause::SpeaksHttp, line));
        }
    }
    if let Some(line) = stdout.iter().find(|line| is_usage(line)) {
        return Some(with_line(Cause::Usage, line));
    }
    let only_stdout = evidence.stderr.is_empty() || evidence.end == End::Exit(0);
    stdout.first().filter(|_| only_stdout).map(|line| with_line(Cause::NotServer, line))
}

/// Whether a line is the head of a message with a length before it.
fn is_frame(line: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    name.eq_ignore_ascii_case("content-length") && value.trim().parse::<u64>().is_ok()
}

fn asks_person(line: &str) -> bool {
    const ASKS: [&str; 9] = [
        "authorize this client by visiting",
        "open this url",
        "open the following",
        "visit the following",
        "go to the following",
        "visit this url",
        "enter the code",
        "waiting for authorization",
        "to log in, ",
    ];
    has_any(line, &ASKS)
}

fn serves_http(line: &str) -> bool {
    let own_address = has_any(line, &["http://", "https://"])
        && has_any(line, &["localhost", "127.0.0.1", "0.0.0.0", "[::"]);
    has_any(line, &["listening", "running on", "running at", "serving", "started", "available at"])
        && (own_address || has(line, &[" port "]))
}

/// What the server itself says, in the line that tells of its failure.
pub(super) fn own_words(evidence: &Evidence<'_>, telling: Option<&str>) -> Option<Diagnosis> {
    let line = telling?;
    // What a program warns of does not keep it from going on.
    if evidence.end == End::Running && has(line, &["warn"]) {
        return None;
    }
    let words =
        ["erofs", "read-only file system", "eacces", "permission denied", "eperm", "enoent"];
    let missing =
        ["no such file", "filenotfounderror", "can't open", "bind source path does not exist"];
    let words = [&words[..], &missing].concat();
    let error = words.into_iter().find(|words| has(line, &[words]));
    let file_cause = match error.and_then(|error| file(evidence, &path_in(line)?, error)) {
        Some(Cause::NoAccess(path)) if evidence.end == End::Exit(NOT_RUNNABLE) => {
            Some(Cause::NotRunnable(path))
        }
        cause => cause,
    };
    let cause = file_cause.or_else(|| unreached(evidence, line, false)).or_else(|| match line {
        _ if has_any(line, &["eaddrinuse", "address already in use"]) => Some(Cause::PortInUse),
        _ if has_any(line, &["enospc", "no space left on device"]) => Some(Cause::DiskFull),
        _ if wants_credential(line) => Some(Cause::Credential),
        _ if refuses_arguments(line) => Some(Cause::Arguments),
        _ => None,
    });
    cause.map(|cause| with_line(cause, line))
}

/// The cause of an error with the file `path`: `error` is its code, or the words for it.
pub(super) fn file(evidence: &Evidence<'_>, path: &Path, error: &str) -> Option<Cause> {
    let read_only = has_any(error, &["erofs", "read-only"]);
    let missing = has_any(error, &["enoent", "no such file", "filenotfound", "not exist"]);
    let path = path.to_owned();
    Some(match &evidence.program.sandbox {
        _ if is_hidden(evidence, &path, read_only) => Cause::Hidden(path),
        ProgramSandbox::Listed(_) if !missing => Cause::NotListed(path),
        _ if missing => Cause::NoFile(path),
        _ => Cause::NoAccess(path),
    })
}

/// Whether a server misses a setting or a secret, or was refused with the one that it has.
fn wants_credential(line: &str) -> bool {
    const THINGS: [&str; 15] = [
        "environment variable",
        "env var",
        "api key",
        "api_key",
        "api-key",
        "apikey",
        "access token",
        "api token",
        "auth token",
        "token",
        "secret",
        "credential",
        "password",
        "connection string",
        "client id",
    ];
    const LACKS: [&str; 18] = [
        "required",
        "missing",
        "not set",
        "must be set",
        "must set",
        "must provide",
        "must be provided",
        "not provided",
        "not found",
        "not defined",
        "undefined",
        "invalid",
        "please set",
        "please provide",
        "unset",
        "is empty",
        "expired",
        "no ",
    ];
    const REFUSALS: [&str; 4] =
        ["unauthorized", "status code 401", "authentication failed", "bad credentials"];
    let variable = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(is_variable);
    if has_any(line, &["syntaxerror", "unexpected token", "json"]) {
        return false;
    }
    has(line, &["keyerror: '"]) && variable
        || has(line, &["validation error", "field required"])
        || (variable || has_any(line, &THINGS)) && has_any(line, &LACKS)
        || has_any(line, &REFUSALS)
}

/// Whether `word` is written as the names of variables are: `GITHUB_TOKEN`.
fn is_variable(word: &str) -> bool {
    word.len() > 3
        && word.contains('_')
        && !word.starts_with("ERR_")
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn refuses_arguments(line: &str) -> bool {
    const REFUSALS: [&str; 22] = [
        "missing option",
        "missing parameter",
        "missing command",
        "unexpected extra argument",
        "invalid value for",
        "too many arguments",
        "required option",
        "required arguments were not provided",
        "unrecognized argument",
        "unrecognized option",
        "unexpected argument",
        "unknown option",
        "unknown argument",
        "unknown flag",
        "flag provided but not defined",
        "unknown command",
        "no such option",
        "no such command",
        "missing argument",
        "missing required argument",
        "arguments are required",
        "invalid choice",
    ];
    has_any(line, &REFUSALS)
}

/// A program that has ended, and has shown no cause.
pub(super) fn otherwise(evidence: &Evidence<'_>, telling: Option<String>) -> Diagnosis {
    let lines = clean(evidence.stderr);
    let log = npm_log(&lines).filter(|_| telling.is_none());
    if let Some(log) = log {
        return Diagnosis { cause: Cause::InLog(log), line: None };
    }
    let usage = lines.iter().find(|line| is_usage(line)).filter(|_| !evidence.worked);
    if lacks_stdin(evidence) {
        return Diagnosis { cause: Cause::NoStdin, line: None };
    }
    match (telling, usage, evidence.stdout.first()) {
        (_, Some(usage), _) => match beside_usage(&lines) {
            Some(message) => with_line(Cause::Arguments, &message),
            None => with_line(Cause::Usage, usage),
        },
        (Some(line), None, _) => with_line(Cause::Failed, &line),
        (None, None, Some(printed)) if !evidence.worked => {
            with_line(Cause::NotServer, &plain(printed))
        }
        (None, None, _) if evidence.end == End::Exit(0) && !evidence.worked => {
            Diagnosis { cause: Cause::EndedAtOnce, line: None }
        }
        (None, None, _) => Diagnosis { cause: Cause::Silent, line: None },
    }
}

/// Whether the program is a container without a stdin: a server in it sees the end of its input at
/// once, and ends as if all were well.
fn lacks_stdin(evidence: &Evidence<'_>) -> bool {
    let argv = evidence.program.argv();
    let command = argv.first().and_then(|command| command.rsplit('/').next());
    let mut args = argv.iter().skip(1);
    let runs_container =
        matches!(command, Some("docker" | "podman" | "nerdctl")) && args.any(|word| word == "run");
    evidence.end == End::Exit(0)
        && !evidence.worked
        && runs_container
        && !args.any(|word| is_interactive(word))
}

/// Whether an argument gives a container a stdin: alone, or in the letters of short options that
/// have no value.
fn is_interactive(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    word.starts_with("--interactive")
        || letters.contains('i') && letters.chars().all(|letter| "ditP".contains(letter))
}
