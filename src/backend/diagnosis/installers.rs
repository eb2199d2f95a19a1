//! What npm, uv, pip and Docker say when they cannot install or start a package.
//!
//! Their words are certain: they tell why the program was not started at all. Servers' own words are
//! looked at later (`signs`).
//!
//! Must not: look at the file system.

use std::path::PathBuf;

use super::cause::Network;
use super::paths::{cache_in, npx_cache, path_in};
use super::signs::{file, has};
use super::telling_line::npm_error;
use super::{Cause, Evidence};

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

/// The codes of failed connections. They are compared as they stand, since `ModuleNotFoundError` has
/// one of them in it.
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

/// The cause in the words of an installer, in one of the lines on stderr.
pub(super) fn cause(evidence: &Evidence<'_>, lines: &[String]) -> Option<Cause> {
    npm(evidence, lines).or_else(|| {
        let asks_registry = |line: &String| {
            ["/simple/", "failed to fetch", "registry", "pypi.org"]
                .iter()
                .any(|it| has(line, &[it]))
        };
        // The network first: without it, pip says that there is no matching distribution.
        let network = lines.iter().find_map(|line| unreached(evidence, line, true));
        network
            .filter(|_| lines.iter().any(asks_registry))
            .or_else(|| lines.iter().find_map(|line| resolver(evidence, line)))
    })
}

/// The cause of a failed connection, if `line` tells of one.
pub(super) fn unreached(evidence: &Evidence<'_>, line: &str, installs: bool) -> Option<Cause> {
    if UNTRUSTED.iter().any(|words| has(line, &[words])) {
        return Some(Cause::Untrusted);
    }
    let is_unreached = CODES.iter().any(|code| line.contains(code))
        || UNREACHED.iter().any(|words| has(line, &[words]));
    if !is_unreached {
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
    let no_program = |text: &str| has(text, &["could not determine executable"]);
    if errors.clone().any(no_program) {
        return Some(Cause::NothingToRun);
    }
    let code = errors.find_map(|text| text.strip_prefix("code "))?.trim();
    Some(match code {
        "E404" | "ETARGET" | "ENOVERSIONS" | "EINVALIDTAGNAME" | "EINVALIDPACKAGENAME" => {
            Cause::UnknownPackage
        }
        "E401" | "E403" | "ENEEDAUTH" => Cause::RegistryRefuses,
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
    let computed = || npx_cache(evidence.program, &evidence.variables);
    Cause::DamagedCache(cache_in(lines.iter()).or_else(computed))
}

/// What uv, pip and Docker say of packages.
fn resolver(evidence: &Evidence<'_>, line: &str) -> Option<Cause> {
    const CAUSES: [(&[&str], Cause); 24] = [
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
    let (_, cause) = CAUSES.iter().find(|(parts, _)| has(line, parts))?;
    match cause {
        Cause::DamagedCache(None) => {
            let directory: Option<PathBuf> = cache_in(evidence.stderr.iter());
            Some(Cause::DamagedCache(directory))
        }
        cause => Some(cause.clone()),
    }
}
