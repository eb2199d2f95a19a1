//! Programs out of Python packages, each in an environment of its own below `target`, fetched once.
//!
//! Must not: name a registry (pip's own configuration decides).

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::{process::Process, run::Outcome};

/// The official SDK. Pinned, as the others are: a figure is of a version.
pub(crate) const SDK: Packages =
    Packages { name: "python", packages: &["mantyx-sdk==2026.10.2", "mcp==2.3.0"] };

/// What stands in one environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packages {
    pub(crate) name: &'static str,
    pub(crate) packages: &'static [&'static str],
}

/// The interpreter that has `packages`; the error says why there is none.
pub(crate) async fn prepare(dir: &Path, Packages { name, packages }: Packages) -> Outcome<PathBuf> {
    let venv = dir.join(name);
    let (python, stamp) = (venv.join("bin/python"), venv.join("stamp"));
    let wanted = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    println!("fetching {}", packages.join(" and "));
    fs::remove_dir_all(&venv).ok();
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv"]).arg(&venv)).await?;
    let mut install = Command::new(&python);
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(install.args(pip).args(packages)).await?;
    fs::write(stamp, wanted)?;
    Ok(python)
}

async fn run(command: &mut Command) -> Outcome<()> {
    let output = command.output().await?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(text.lines().last().unwrap_or("it fails without a word").into())
}

/// Starts what makes runs with the SDK.
pub(crate) fn sdk(python: &Path) -> Outcome<Process> {
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/bridge/sdk.py"));
    Process::start(command)
}
