//! Programs that the machine lacks, out of Debian's packages: unpacked into `target/test-peers`,
//! and not installed. A script starts each with the libraries that came along.
//!
//! Must not: need root, or change what apt knows of the machine.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::fetch::{fetched, part, run};

/// The C library and what belongs to its loader are the machine's: two of them do not go together.
const OF_THE_LOADER: [&str; 4] = ["libc6_", "libc-bin_", "libgcc-s1_", "libstdc++6_"];

/// The machine's program of this name, or that of Debian's `package`.
#[track_caller]
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    let paths = env::var_os("PATH").unwrap_or_default();
    // Debian puts some where only root looks.
    let dirs = env::split_paths(&paths).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let own = dirs.map(|dir| dir.join(name)).find(|path| path.exists());
    own.unwrap_or_else(|| of(package).join("bin").join(name))
}

/// The files of a package below `path`.
#[track_caller]
pub(crate) fn files(package: &str, path: &str) -> PathBuf {
    of(package).join("root").join(path)
}

#[track_caller]
fn of(package: &str) -> PathBuf {
    fetched(&part(&format!("debian-{package}"), &[package], unpacked))
}

/// Adds the directories of these programs, each with its package, to `path`.
pub(crate) fn with(mut path: Vec<PathBuf>, programs: &[(&str, &str)]) -> Vec<PathBuf> {
    let dirs = programs.iter().map(|(name, package)| program(name, package).with_file_name(""));
    path.extend(dirs);
    path
}

/// Fetches packages with what they need and the machine lacks, and unpacks them below `root`.
fn unpacked(dir: &Path, packages: &[&str]) -> Result<(), String> {
    let [lists, archives, root, bin] =
        ["lists", "archives", "root", "bin"].map(|name| dir.join(name));
    for made in [lists.join("partial"), archives.join("partial"), root.clone(), bin.clone()] {
        fs::create_dir_all(&made).map_err(|error| format!("{}: {error}", made.display()))?;
    }
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.arg("-qq").arg("-o").arg(format!("Dir::State::lists={}", lists.display()));
        apt.arg("-o").arg(format!("Dir::Cache={}", dir.display()));
        apt.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display()));
        // No lock of the machine's is taken, and no other user has to reach these directories.
        apt.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]);
        run(apt.args(args)).map_err(|why| {
            let packages = packages.join(" ");
            format!(
                "The tests need {packages}, which this machine lacks, and apt-get cannot fetch it \
                 ({why}). Install it, or see that apt-get reaches a mirror of Debian."
            )
        })
    };
    apt(&["update"])?;
    let install = ["install", "--download-only", "--no-install-recommends", "--yes"];
    apt(&[&install[..], packages].concat())?;
    let files = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    for archive in files(&archives).map(|entry| entry.path()) {
        let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".deb") && !OF_THE_LOADER.iter().any(|it| name.starts_with(it)) {
            run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
        }
    }
    let mut libraries = Vec::new();
    for above in ["lib", "usr/lib"].map(|lib| root.join(lib)) {
        let of_machine = files(&above).map(|entry| entry.path());
        let dirs = of_machine.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        libraries.extend(dirs.flat_map(|dir| [dir.join("systemd"), dir]));
    }
    libraries.extend(["systemd", "syslog-ng"].map(|name| root.join("usr/lib").join(name)));
    let libraries = env::join_paths(libraries).map_err(|error| error.to_string())?;
    let units = ["usr/lib", "lib"].map(|lib| root.join(lib).join("systemd/system"));
    for program in ["bin", "sbin", "usr/bin", "usr/sbin"].map(|dir| root.join(dir)) {
        for program in files(&program).map(|entry| entry.path()) {
            // An empty place at the end of the path of units means the usual ones.
            let script = format!(
                "#!/bin/sh\nSYSTEMD_UNIT_PATH=\"{}:{}:\" LD_LIBRARY_PATH=\"{}\" exec \"{}\" \"$@\"\n",
                units[0].display(),
                units[1].display(),
                libraries.display(),
                program.display()
            );
            let path = bin.join(program.file_name().unwrap_or_default());
            fs::write(&path, script).map_err(|error| error.to_string())?;
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&path, executable).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
