//! Hides files from the process that is about to become a program: it gets a mount namespace of its
//! own, in a user namespace of its own, in which an empty file system lies on each of them. The
//! program has no right over that namespace, so it cannot take the mounts away.
//!
//! Must not: continue if a mask could not be made, or start threads.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use super::powers;

/// The hidden subcommand of the daemon's binary that calls [`write_maps`].
pub const SUBCOMMAND: &str = "__map";

/// What the program of root keeps of root's powers: those over files and users. Without them, it
/// could not use files of other users, as it could before; none of them undoes a mount.
const ROOTS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Hides `paths`, which must exist, from the calling process and all that it becomes and starts.
pub(super) fn enter(paths: &[PathBuf]) -> Result<(), String> {
    let here = std::env::current_dir()
        .map_err(|error| cannot("tell which its working directory is", &error))?;
    if paths.iter().any(|path| here.starts_with(path)) {
        return Err(format!(
            "its working directory {} is hidden from it: set `cwd` to another one",
            here.display()
        ));
    }
    let powers_before =
        capabilities(None).map_err(|error| cannot("read its capabilities", &error))?.permitted;
    own_namespaces(powers_before)?;
    // What is mounted elsewhere later, such as a disk, is to be seen; the masks stay here.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| cannot("keep its mounts to itself", &error))?;
    for path in paths {
        mask(path).map_err(|error| cannot(&format!("hide {}", path.display()), &error))?;
    }
    // Enter the working directory again: the old one was opened before the masks, and would lead
    // behind them.
    std::env::set_current_dir(&here)
        .map_err(|error| cannot("go back to its working directory", &error))?;
    powers::keep(if geteuid().is_root() { ROOTS & powers_before } else { CapabilitySet::empty() })
}

/// Makes a user namespace in which every id is what it was, and a mount namespace that belongs to
/// it. With other ids, the program would find its own files to be another user's.
fn own_namespaces(powers: CapabilitySet) -> Result<(), String> {
    let user = geteuid();
    let group = getegid();
    let may_map_all =
        user.is_root() && powers.contains(CapabilitySet::SETUID | CapabilitySet::SETGID);
    // From inside, only its own ids can be given to it.
    let mapper = if may_map_all { Some(Mapper::start()?) } else { None };
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS;
    #[expect(deprecated, reason = "deprecated for `UnshareFlags::FILES`, which is not used here")]
    let unshared = rustix::thread::unshare(flags);
    unshared.map_err(|error| cannot("get namespaces of its own", &error))?;
    if let Some(mapper) = mapper {
        return mapper.map();
    }
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{0} {0} 1", user.as_raw())),
        ("gid_map", format!("{0} {0} 1", group.as_raw())),
    ];
    for (file, text) in maps {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| cannot("keep its user in a namespace of its own", &error))?;
    }
    Ok(())
}

/// A process outside of the new user namespace, which may give it the ids of all users.
struct Mapper(std::process::Child);

impl Mapper {
    fn start() -> Result<Self, String> {
        std::env::current_exe()
            .and_then(|binary| {
                Command::new(binary)
                    .args([SUBCOMMAND.to_owned(), std::process::id().to_string()])
                    .env_clear()
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
            })
            .map(Self)
            .map_err(|error| cannot("start the process that maps users", &error))
    }

    /// Lets the mapper write the maps, now that there is a namespace.
    fn map(mut self) -> Result<(), String> {
        let go = self.0.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
        match (go, self.0.wait()) {
            (Some(Ok(())), Ok(status)) if status.success() => Ok(()),
            (Some(Err(error)), _) | (_, Err(error)) => Err(cannot("map users", &error)),
            (_, Ok(status)) => Err(format!("cannot map users: {status}")),
        }
    }
}

/// Gives the user namespace of the process that `args` name the ids of this one's, once stdin says
/// that there is a namespace.
pub fn write_maps(args: impl Iterator<Item = OsString>) -> ExitCode {
    if try_write_maps(args).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn try_write_maps(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let Some(pid) = args.next().and_then(|pid| pid.to_str()?.parse::<u32>().ok()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut go = [0];
    io::stdin().read_exact(&mut go)?;
    for file in ["uid_map", "gid_map"] {
        let own = fs::read_to_string(format!("/proc/self/{file}"))?;
        fs::write(format!("/proc/{pid}/{file}"), identity(&own))?;
    }
    Ok(())
}

/// A map of ids that leaves each as it is, for all ids that the namespace with the map `own` has.
fn identity(own: &str) -> String {
    let ranges = own.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let count = words.nth(1)?;
        Some(format!("{first} {first} {count}\n"))
    });
    ranges.collect()
}

/// Puts an empty directory, or a file that cannot be opened, over the one at `path`.
fn mask(path: &Path) -> io::Result<()> {
    let shut = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    if fs::metadata(path)?.is_dir() {
        return Ok(mount("tmpfs", path, "tmpfs", shut, c"mode=0000,size=4k,nr_inodes=1")?);
    }
    mount_bind("/dev/null", path)?;
    // The device of a mount without devices: it is there, and every attempt to open it is refused.
    Ok(mount_remount(path, MountFlags::BIND | shut, c"")?)
}

fn cannot(what: &str, why: &(impl std::fmt::Display + ?Sized)) -> String {
    format!("cannot {what}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_stays_what_it_is() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
        assert_eq!(identity("nonsense"), "");
    }
}
