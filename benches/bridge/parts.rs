//! The parts of the benchmark: a file each, with one entry.
//!
//! A part sets up what it compares, measures in rounds that alternate between the compared ones,
//! and gives tables and JSON back. It fails if something breaks, is lost or is answered wrongly.
//! Must not: share a process with another part.

mod agents;
mod calls;
mod catalogs;
mod events;
mod gateways;
mod inject;
mod mcp;
mod memory;
mod pauses;
mod replicas;
mod runs;

use std::{fs, path::PathBuf};

use futures_util::future::LocalBoxFuture;
use tempfile::TempDir;

use crate::{arguments::Arguments, daemon::Daemon, report::Findings, run::Outcome, world::World};

/// What the bridge of `--against` is called.
const OTHER: &str = "bridge, the other";
/// What [`Setting::bridge_in_memory`] is called.
pub(crate) const IN_MEMORY: &str = "bridge, state in memory";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// What it finds is there even if it breaks later.
    pub(crate) run: for<'a> fn(&'a Setting, &'a mut Findings) -> LocalBoxFuture<'a, Outcome<()>>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// In the order in which they run.
pub(crate) const ALL: &[Part] = &[
    Part {
        name: "calls",
        what: "the time that is added to a call",
        run: |setting, findings| Box::pin(calls::run(setting, findings)),
    },
    Part {
        name: "agents",
        what: "an agent of A2A, directly and through the bridge",
        run: |setting, findings| Box::pin(agents::run(setting, findings)),
    },
    Part {
        name: "inject",
        what: "POST agent-runs, and what injection adds to it",
        run: |setting, findings| Box::pin(inject::run(setting, findings)),
    },
    Part {
        name: "events",
        what: "events a second through one driver",
        run: |setting, findings| Box::pin(events::run(setting, findings)),
    },
    Part {
        name: "runs",
        what: "many runs at once, with calls in each",
        run: |setting, findings| Box::pin(runs::run(setting, findings)),
    },
    Part {
        name: "pauses",
        what: "a call after a pause, to a MANTYX behind TLS",
        run: |setting, findings| Box::pin(pauses::run(setting, findings)),
    },
    Part {
        name: "replicas",
        what: "one and three replicas on PostgreSQL beside a journal in a file (--postgres)",
        run: |setting, findings| Box::pin(replicas::run(setting, findings)),
    },
    Part {
        name: "gateways",
        what: "a call through what stands before an MCP server",
        run: |setting, findings| Box::pin(gateways::run(setting, findings)),
    },
    Part {
        name: "mcp",
        what: "the bridge as an MCP server: calls, sessions, programs",
        run: |setting, findings| Box::pin(mcp::run(setting, findings)),
    },
    Part {
        name: "catalogs",
        what: "a search in 10,000 tools",
        run: |setting, findings| Box::pin(catalogs::run(setting, findings)),
    },
    Part {
        name: "memory",
        what: "memory, start and size",
        run: |setting, findings| Box::pin(memory::run(setting, findings)),
    },
];

/// The parts with these names; all, if there are none.
pub(crate) fn chosen(names: &[String]) -> impl Iterator<Item = &'static Part> {
    let all = names.is_empty();
    ALL.iter().filter(move |part| all || names.iter().any(|name| name == part.name))
}

/// What all parts are given.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) arguments: Arguments,
    /// `target/bench`: on the disk that the repository is on.
    pub(crate) dir: PathBuf,
}

impl Setting {
    pub(crate) fn prepare(arguments: Arguments) -> Outcome<Self> {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
        fs::create_dir_all(&dir)?;
        Ok(Self { arguments, dir: dir.canonicalize()? })
    }

    /// One of two sizes.
    pub(crate) fn size<T>(&self, whole: T, short: T) -> T {
        if self.arguments.short { short } else { whole }
    }

    /// Starts the bridges that `part` compares, in front of `world`: the one that is measured,
    /// first, and the other one, if there is one. `rest` is their configuration.
    pub(crate) async fn bridges(
        &self,
        part: &str,
        world: &World,
        rest: &str,
    ) -> Outcome<Vec<(&'static str, Daemon)>> {
        let (one, other) = (&self.arguments.daemon, self.arguments.against.as_ref());
        let mut bridges = Vec::new();
        for (name, program) in [("bridge", Some(one)), (OTHER, other)]
            .into_iter()
            .filter_map(|(name, program)| Some((name, program?)))
        {
            let dir = self.dir.join(format!("{part}-{}", bridges.len()));
            bridges.push((name, Daemon::start(program, dir, world.mantyx, rest).await?));
        }
        Ok(bridges)
    }

    /// The same bridge with its state in memory, where a sync costs nothing: what is between the
    /// two is the disk's.
    pub(crate) async fn bridge_in_memory(
        &self,
        world: &World,
        rest: &str,
    ) -> Outcome<Option<(Daemon, TempDir)>> {
        let Ok(dir) = TempDir::new_in(MEMORY) else { return Ok(None) };
        let program = &self.arguments.daemon;
        let daemon = Daemon::start(program, dir.path().into(), world.mantyx, rest).await?;
        Ok(Some((daemon, dir)))
    }
}
