//! Shuts the process that is about to become a program in, by Landlock: of the file system it then
//! sees what the configuration lists and what programs need to run at all; it can look into no
//! other process, and signal none outside.
//!
//! Must not: go on where the kernel cannot do it. A sandbox that is only believed in is worse than
//! none.

use std::{ffi::OsString, path::Path};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::config::Confinement;

/// What a kernel must have: that of Linux 5.13.
const LEAST: ABI = ABI::V1;

/// What is taken from a kernel that has it: that of Linux 6.12.
const BEST: ABI = ABI::V6;

/// What any program may read and run. Of /etc, what the C library and TLS libraries read: there may
/// be secrets beside it. Of /proc, the kernel itself keeps what belongs to processes outside.
const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/sbin",
    "/usr",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];

/// The devices that are no hardware.
const DEVICES: &[&str] =
    &["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Shuts the calling thread in, for good, with all that it becomes and starts. `program` is the file
/// that it will run. An error says what to do about it.
pub(super) fn enter(sandbox: &Confinement, program: &OsString) -> Result<(), String> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .and_then(|ruleset| {
            let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort);
            ruleset.handle_access(AccessFs::from_all(BEST))?.scope(Scope::from_all(BEST))?.create()
        })
        .map_err(|error| no_landlock(&error))?;
    for path in sandbox.read.iter().chain(&sandbox.write) {
        // The rules leave out what cannot be opened, which is right for what only some systems have.
        PathFd::new(path).map_err(|error| missing(path, &error))?;
    }
    let entered = allow(ruleset, sandbox, program).and_then(RulesetCreated::restrict_self);
    match entered.map_err(|error| no_landlock(&error))?.ruleset {
        RulesetStatus::NotEnforced => Err(no_landlock("it is switched off")),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

fn allow(
    ruleset: RulesetCreated,
    sandbox: &Confinement,
    program: &OsString,
) -> Result<RulesetCreated, RulesetError> {
    let (read, all) = (AccessFs::from_read(BEST), AccessFs::from_all(BEST));
    ruleset
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules([program], read))?
        .add_rules(path_beneath_rules(&sandbox.read, read))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(BEST)))?
        .add_rules(path_beneath_rules(&sandbox.write, all))
}

fn missing(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!(
        "the program's `sandbox` lists {}, which cannot be opened ({error}): make it, or take it \
         off the list",
        path.display()
    )
}

fn no_landlock(why: &(impl std::fmt::Display + ?Sized)) -> String {
    format!(
        "this kernel cannot shut the program in as its `sandbox` asks ({why}): it needs Linux 5.13 \
         or newer with Landlock switched on; or leave `sandbox` out"
    )
}
