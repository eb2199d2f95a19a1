//! What npm, uv, pip and Docker say when they cannot install or start a package.
//!
//! Their words are certain: they tell why the program was not started at all. Servers' own words
//! are looked at later (`signs`).
//!
//! Must not: look at the file system.

use super::cause::Network;
use super::paths::{cache_in, npx_cache, path_in};
use super::signs::{file, has};
use super::telling_line::{npm_error, plain, telling_line};
use super::{Cause, Diagnosis, Evidence};
use crate::config::Program;

/// Errors of TLS, in the words of Node.js, Python and rustls.
const UNTRUSTED: [&str; 9] = [
    "self_signed_cert_in_chain",
    "depth_zero_self_signed_cert",
    "unable_to_get_issuer_cert",
    "unable_to_verify_leaf_signature",
    "self-signed certificate",
    "self signed certificate",
    "unable to get local issuer certificate",
    "certificate_verify_failed",
    "invalid peer certificate",
];

/// The codes of failed connections. They are compared as they stand, since `ModuleNotFoundError`
/// has one of them in it.
const CODES: [&str; 8] = [
    "ECONNREFUSED",
    "ENOTFOUND",
    "ETIMEDOUT",
    "ERR_SOCKET_TIMEOUT",
    "ECONNRESET",
    "EAI_AGAIN",
    "ENETUNREACH",
    "EHOSTUNREACH",
];

/// The same in words.
const UNREACHED: [&str; 11] = [
    "connection refused",
    "connection timed out",
    "connection error",
    "connecterror",
    "name or service not known",
    "temporary failure in name resolution",
    "no such host",
    "network is unreachable",
    "max retries exceeded",
    "newconnectionerror",
    "error sending request",
];

/// What is wrong in the words of an installer, in one of the lines on stderr.
pub(super) fn installer(evidence: &Evidence<'_>, lines: &[String]) -> Option<Diagnosis> {
    let telling = telling_line(lines);
    if let Some(cause) = failed_request(evidence, lines) {
        let line =
            if cause == Cause::Untrusted { certificate_line(telling, lines) } else { telling };
        return Some(Diagnosis { cause, line });
    }
    let (line, (parts, cause)) = lines.iter().find_map(|line| Some((line, resolver(line)?)))?;
    // A wrapped line is whole in the telling one.
    let whole = telling.filter(|telling| has(telling, parts));
    let line = whole.unwrap_or_else(|| line.trim().to_owned());
    Some(Diagnosis { cause: completed(evidence, cause), line: Some(line) })
}

/// The cause in npm's words, or a network that fails.
///
/// uv first says that it cannot send its request, and lines later that it does not trust the
/// certificate: a person who read only the first would look for a proxy.
fn failed_request(evidence: &Evidence<'_>, lines: &[String]) -> Option<Cause> {
    npm(evidence, lines).or_else(|| {
        let starts_installer = is_installer(evidence.program);
        if !lines.iter().any(|line| asks_registry(line, starts_installer)) {
            return None;
        }
        if lines.iter().any(|line| is_untrusted(line)) {
            return Some(Cause::Untrusted);
        }
        // The network first: without it, pip says that there is no matching distribution.
        lines.iter().find_map(|line| unreached(evidence, line, true))
    })
}

/// Whether the command is one that installs what it starts.
fn is_installer(program: &Program) -> bool {
    const INSTALLERS: [&str; 14] = [
        "npx", "npm", "pnpm", "yarn", "bun", "bunx", "deno", "uvx", "uv", "pipx", "pip", "docker",
        "podman", "nerdctl",
    ];
    program.command.rsplit('/').next().is_some_and(|name| INSTALLERS.contains(&name))
}

/// Whether `line` says that a certificate is not trusted.
fn is_untrusted(line: &str) -> bool {
    UNTRUSTED.iter().any(|words| has(line, &[words]))
}

/// The line that speaks of the certificate: the `telling` one, if it does.
fn certificate_line(telling: Option<String>, lines: &[String]) -> Option<String> {
    if telling.as_deref().is_some_and(is_untrusted) {
        return telling;
    }
    let line = lines.iter().find(|line| is_untrusted(line))?.trim();
    Some(line.strip_prefix("cause: ").unwrap_or(line).to_owned())
}

/// Whether `line` tells of a request to a registry. Its host is no sign, as each installation may
/// have another.
fn asks_registry(line: &str, starts_installer: bool) -> bool {
    const WORDS: [&str; 6] = [
        // The index of Python's registries, and the files behind it.
        "/simple/",
        ".whl",
        "failed to fetch",
        "failed to download",
        "could not fetch url",
        "error response from daemon",
    ];
    // In the words of another program, a registry may be one of schemas, and `/v2/` any API.
    const OF_INSTALLERS: [&str; 2] = ["registry", "/v2/"];
    WORDS.iter().any(|words| has(line, &[words]))
        || starts_installer && OF_INSTALLERS.iter().any(|words| has(line, &[words]))
}

/// The cause of a failed connection, if `line` tells of one.
pub(super) fn unreached(evidence: &Evidence<'_>, line: &str, installs: bool) -> Option<Cause> {
    if is_untrusted(line) {
        return Some(Cause::Untrusted);
    }
    if !CODES.iter().any(|code| line.contains(code))
        && !UNREACHED.iter().any(|words| has(line, &[words]))
    {
        return None;
    }
    Some(Cause::NoNetwork(match (installs, evidence.variables.has_proxy) {
        (false, _) => Network::Server,
        (true, false) => Network::Registry,
        (true, true) => Network::RegistryByProxy,
    }))
}

/// npm has a code for each error.
fn npm(evidence: &Evidence<'_>, lines: &[String]) -> Option<Cause> {
    let mut errors = lines.iter().filter_map(|line| npm_error(line));
    if errors.clone().any(|text| has(text, &["could not determine executable"])) {
        return Some(Cause::NothingToRun);
    }
    if errors.clone().any(|text| has(text, &["npx canceled due to missing packages"])) {
        return Some(Cause::WantsYes);
    }
    let code = errors.find_map(|text| text.strip_prefix("code "))?.trim();
    Some(match code {
        "E404" | "ETARGET" | "ENOVERSIONS" | "EINVALIDTAGNAME" | "EINVALIDPACKAGENAME" => {
            Cause::UnknownPackage
        }
        "E401" | "E403" | "ENEEDAUTH" => Cause::RegistryRefuses,
        "E429" | "E500" | "E502" | "E503" | "E504" => Cause::RegistryBusy,
        "EBADENGINE" => Cause::OldRuntime,
        "EBADPLATFORM" => Cause::WrongFormat,
        "ENOSPC" => Cause::DiskFull,
        "ENOTEMPTY" | "EJSONPARSE" | "EEXIST" | "EINTEGRITY" => damaged(evidence, lines),
        "ENOENT" if cache_in(lines.iter()).is_some() => damaged(evidence, lines),
        "EACCES" | "EPERM" | "EROFS" | "ENOENT" => {
            let path = lines.iter().find_map(|line| path_in(npm_error(line)?));
            return file(evidence, &path?, code);
        }
        code => return unreached(evidence, code, true),
    })
}

/// An installation that was interrupted, or that two have done at the same time.
pub(super) fn damaged(evidence: &Evidence<'_>, lines: &[String]) -> Cause {
    let cache = cache_in(lines.iter());
    Cause::DamagedCache(cache.or_else(|| npx_cache(evidence.program, &evidence.variables)))
}

/// The programs of a package that has none of the wanted name, as uv lists them.
fn other_executables(evidence: &Evidence<'_>) -> Option<Cause> {
    const INSTEAD: [&str; 2] = ["`uvx --from ", "`uv tool run --from "];
    // Earlier versions of uv tell it on stdout.
    let lines: Vec<String> =
        evidence.stderr.iter().chain(evidence.stdout).map(|line| plain(line)).collect();
    let hint = lines.iter().find_map(|line| {
        let (_, hint) = INSTEAD.iter().find_map(|start| line.split_once(start))?;
        hint.split('`').next()
    })?;
    let (package, executable) = hint.split_once(' ')?;
    let mut executables = vec![executable.to_owned()];
    if executable.starts_with('<') {
        let listed = lines.iter().filter_map(|line| line.strip_prefix("- "));
        executables = listed.map(str::to_owned).collect();
    }
    let package = package.to_owned();
    if executables.is_empty() {
        None
    } else {
        Some(Cause::OtherExecutables { package, executables })
    }
}

/// Parts of a line, in lower case, and the cause that it tells.
type Sign = (&'static [&'static str], Cause);

/// What uv, pip, Docker, Deno, Bun and Java say of what they are to start.
fn resolver(line: &str) -> Option<Sign> {
    const CAUSES: [Sign; 45] = [
        (&["unsupportedclassversionerror"], Cause::OldRuntime),
        (&["no matching manifest for"], Cause::WrongFormat),
        (&["exec format error"], Cause::WrongFormat),
        (&["version `glibc", "not found"], Cause::WrongFormat),
        (&["error while loading shared libraries"], Cause::NoLibrary),
        (&["invalid reference format"], Cause::UnknownPackage),
        (&["jsr package", "not found"], Cause::UnknownPackage),
        (&["npm package", "does not exist"], Cause::UnknownPackage),
        (&["error: get ", " - 404"], Cause::UnknownPackage),
        (&["daemon", "executable file not found in $path"], Cause::NothingToRun),
        (&["failed to spawn: `"], Cause::NothingToRun),
        (&["no main manifest attribute"], Cause::NothingToRun),
        (&["could not find or load main class"], Cause::NothingToRun),
        (&["cannot be directly executed"], Cause::NothingToRun),
        (&["toomanyrequests"], Cause::RegistryBusy),
        (&["failed to fetch", "429 too many requests"], Cause::RegistryBusy),
        (&["failed to fetch", "503 service unavailable"], Cause::RegistryBusy),
        (&["the input device is not a tty"], Cause::WantsTerminal),
        (&["the container name", "is already in use"], Cause::NameInUse),
        (&["port is already allocated"], Cause::PortInUse),
        (&["requires ", " access", "--allow-"], Cause::NotPermitted),
        (&["no interpreter found"], Cause::OldRuntime),
        (&["requires a different python"], Cause::OldRuntime),
        (&["does not satisfy python"], Cause::OldRuntime),
        (&["requires-python"], Cause::OldRuntime),
        (&["was not found in the package registry"], Cause::UnknownPackage),
        (&["was not found in the provided package locations"], Cause::UnknownPackage),
        (&["because there is no version of"], Cause::UnknownPackage),
        (&["because there are no versions of"], Cause::UnknownPackage),
        (&["because only ", " is available"], Cause::UnknownPackage),
        (&["no matching distribution found"], Cause::UnknownPackage),
        (&["pull access denied"], Cause::UnknownPackage),
        (&["manifest unknown"], Cause::UnknownPackage),
        (&["repository does not exist"], Cause::UnknownPackage),
        (&["does not provide any executables"], Cause::NothingToRun),
        (&["an executable named", "is not provided by"], Cause::NothingToRun),
        (&["cannot connect to the docker daemon"], Cause::NoDocker),
        (&["failed to connect to the docker api"], Cause::NoDocker),
        (&["permission denied while trying to connect to the docker"], Cause::NoDocker),
        (&["failed to fetch", "401 unauthorized"], Cause::RegistryRefuses),
        (&["failed to fetch", "403 forbidden"], Cause::RegistryRefuses),
        (&["failed to deserialize cache entry"], Cause::DamagedCache(None)),
        (&["failed to read", "archive-v0"], Cause::DamagedCache(None)),
        (&["failed to install", "archive-v0"], Cause::DamagedCache(None)),
        (&["the wheel is invalid"], Cause::DamagedCache(None)),
    ];
    CAUSES.into_iter().find(|(parts, _)| has(line, parts))
}

/// `cause` with what the rest of the output says of it.
fn completed(evidence: &Evidence<'_>, cause: Cause) -> Cause {
    match cause {
        Cause::NothingToRun => other_executables(evidence).unwrap_or(Cause::NothingToRun),
        Cause::DamagedCache(None) => Cause::DamagedCache(cache_in(evidence.stderr.iter())),
        cause => cause,
    }
}
