//! The paths in a program's output, and what they say about its caches and about the files that it
//! may not use.
//!
//! Must not: look at the file system.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha512};

use super::{Evidence, Variables};
use crate::config::{Program, ProgramSandbox};

/// The absolute path that `line` is about: the first one, but for the name of the program that says
/// it (`/usr/bin/sh: 1: /srv/run: Permission denied`).
pub(super) fn path_in(line: &str) -> Option<PathBuf> {
    let quoted = line.split(['\'', '"', '`', '‘', '’']).skip(1).find(|part| part.starts_with('/'));
    let path = quoted.or_else(|| unquoted_path(line))?;
    if path.len() > 1 { Some(path.into()) } else { None }
}

/// The first word of `line` that is a path, or the second if the first one is that of the speaker.
fn unquoted_path(line: &str) -> Option<&str> {
    let mut paths =
        line.split([' ', '=', '(']).filter(|word| word.starts_with('/') && word.len() > 1);
    let first = paths.next()?;
    let path = if first.ends_with(':') && line.starts_with(first) {
        paths.next().unwrap_or(first)
    } else {
        first
    };
    Some(path.trim_end_matches([',', ':', ';', ')', '.']))
}

/// The directory of a cache that one of `lines` names: npx's of one package, or one archive of uv.
pub(super) fn cache_in<'a>(mut lines: impl Iterator<Item = &'a String>) -> Option<PathBuf> {
    lines.find_map(|line| {
        ["/_npx/", "/archive-v0/", "/uv/tools/"].iter().find_map(|cache| {
            let (before, after) = line.split_once(cache)?;
            let begin = before.find('/')?;
            let name: &str = after.split(['/', '\'', '"', ' ', ')', ':', '`']).next()?;
            let path = format!("{}{cache}{name}", before.get(begin..)?);
            if name.is_empty() {
                return None;
            }
            // A word before the path, as in `file:///…`.
            Some(PathBuf::from(path.replacen("///", "/", 1)))
        })
    })
}

/// The directory in which `npx` keeps the package of `program`, as npm names it: by the beginning
/// of the SHA-512 of the package as it stands in the arguments. `None` if that cannot be told from
/// them.
pub(super) fn npx_cache(program: &Program, variables: &Variables) -> Option<PathBuf> {
    if program.command.rsplit('/').next() != Some("npx") {
        return None;
    }
    let mut words = program.args.iter().map(|arg| arg.as_str());
    let package = loop {
        match words.next()? {
            "-p" | "--package" => break words.next()?,
            word if word.starts_with("--package=") => break word.split_once('=')?.1,
            "-y" | "--yes" | "-q" | "--quiet" | "--" => (),
            // An option that may have a value of its own.
            word if word.starts_with('-') => return None,
            word => break word,
        }
    };
    let digest = Sha512::digest(package.as_bytes());
    let hash = digest.iter().take(8).fold(String::new(), |mut hash, byte| {
        write!(hash, "{byte:02x}").ok();
        hash
    });
    Some(variables.npm_cache.as_ref()?.join("_npx").join(hash))
}

/// Whether `path` is hidden from `program`: a file of the bridge, or one below a directory that is
/// masked with them and so cannot be written (`read_only`).
pub(super) fn is_hidden(evidence: &Evidence<'_>, path: &Path, read_only: bool) -> bool {
    let Program { sandbox, hidden, .. } = evidence.program;
    if matches!(sandbox, ProgramSandbox::Off) {
        return false;
    }
    // `~/.local` is shared by a file of the bridge, and by what uv installs.
    let home = evidence.variables.home.as_deref().unwrap_or(Path::new("/"));
    hidden.iter().any(|hidden| {
        let shared = hidden.ancestors().find(|above| path.starts_with(above));
        path.starts_with(hidden)
            || read_only && shared.is_some_and(|path| path.starts_with(home) && path != home)
    })
}
