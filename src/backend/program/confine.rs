//! Shuts the process that is about to become a program in, by Landlock. Either it then sees of the
//! file system what the configuration lists and what programs need to run at all, and can signal no
//! process outside; or it sees everything but the bridge's own files. It can look into no process
//! outside in any case.
//!
//! Must not: continue if the kernel cannot do it. A sandbox that does not work is worse than none,
//! since the operator relies on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::config::Confinement;

/// What a kernel must have: that of Linux 5.13.
const LEAST: ABI = ABI::V1;

/// What is taken from a kernel that has it: that of Linux 6.12.
const BEST: ABI = ABI::V6;

/// What any program may read and run. Of /etc, what the C library and TLS libraries read: there may
/// be secrets beside it. Of /proc, the kernel itself keeps what belongs to processes outside.
const SYSTEM: &str = include_str!("confine/system.txt");

/// The devices without hardware behind them.
const DEVICES: &[&str] =
    &["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Keeps the calling thread, for good, with all that it becomes and starts, from `forbidden`. In
/// the directories on the way there, it has what is there now, and neither what is put there later
/// nor the right to put anything there: Landlock grants a directory with all below it or not at
/// all.
pub(super) fn forbid(forbidden: &[PathBuf]) -> Result<(), String> {
    // Names may be listed: programs look into their home, which is often on the way.
    let access = |abi| AccessFs::from_all(abi) & !AccessFs::ReadDir;
    let ruleset = ruleset(access).and_then(Ruleset::create).map_err(|error| no_landlock(&error))?;
    let mut beside = Vec::new();
    collect_beside(Path::new("/"), forbidden, &mut beside)
        .map_err(|error| format!("cannot tell what lies beside the bridge's files: {error}"))?;
    let rules = path_beneath_rules(beside, access(BEST));
    enforce(ruleset.add_rules(rules))
}

/// A ruleset that handles `access`: all of it that [`LEAST`] has, and of [`BEST`] what the kernel
/// has.
fn ruleset(access: impl Fn(ABI) -> BitFlags<AccessFs>) -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(access(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(access(BEST))
}

/// Adds to `beside` what is in `directory` and in the directories below it that lead to one of
/// `forbidden`, without what is on the way.
fn collect_beside(
    directory: &Path,
    forbidden: &[PathBuf],
    beside: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // The program cannot list it either; what it could name there stays shut.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if forbidden.contains(&path) {
            continue;
        }
        if forbidden.iter().any(|forbidden| forbidden.starts_with(&path)) {
            collect_beside(&path, forbidden, beside)?;
        } else if !path.is_symlink() {
            // A rule for a link would allow its target, which may be on the way.
            beside.push(path);
        }
    }
    Ok(())
}

/// Shuts the calling thread in, for good, with all that it becomes and starts. `program` is the
/// file that it will run. An error says what to do about it.
pub(super) fn enter(sandbox: &Confinement, program: &OsStr) -> Result<(), String> {
    let ruleset = ruleset(AccessFs::from_all)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(BEST))?.create())
        .map_err(|error| no_landlock(&error))?;
    for path in sandbox.read.iter().chain(&sandbox.write) {
        // The rules leave out what cannot be opened, which is right for what only some systems
        // have.
        PathFd::new(path).map_err(|error| {
            format!(
                "the program's `sandbox` lists {}, which cannot be opened ({error}): make it, or \
                 take it off the list",
                path.display()
            )
        })?;
    }
    enforce(allow(ruleset, sandbox, program))
}

fn enforce(ruleset: Result<RulesetCreated, RulesetError>) -> Result<(), String> {
    let entered = ruleset.and_then(RulesetCreated::restrict_self);
    match entered.map_err(|error| no_landlock(&error))?.ruleset {
        RulesetStatus::NotEnforced => Err(no_landlock(&"it is switched off")),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

fn allow(
    ruleset: RulesetCreated,
    sandbox: &Confinement,
    program: &OsStr,
) -> Result<RulesetCreated, RulesetError> {
    let read_access = AccessFs::from_read(BEST);
    let all_access = AccessFs::from_all(BEST);
    ruleset
        .add_rules(path_beneath_rules(SYSTEM.lines(), read_access))?
        .add_rules(path_beneath_rules([program], read_access))?
        .add_rules(path_beneath_rules(&sandbox.read, read_access))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(BEST)))?
        .add_rules(path_beneath_rules(&sandbox.write, all_access))
}

fn no_landlock(why: &dyn std::fmt::Display) -> String {
    format!(
        "this kernel cannot shut the program in as its `sandbox` asks ({why}): it needs Linux 5.13 \
         or newer with Landlock switched on; or leave `sandbox` out"
    )
}
