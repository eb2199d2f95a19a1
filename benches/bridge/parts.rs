//! The parts of the benchmark: a file each, with one entry.
//!
//! A part sets up what it compares, measures in rounds that alternate between the compared ones, and
//! gives tables and JSON back. It fails if something breaks, is lost or is answered wrongly. Must
//! not: share a process with another part.

mod calls;
mod events;
mod inject;
mod memory;
mod runs;

use std::{fs, path::PathBuf};

use futures_util::future::LocalBoxFuture;

use crate::{arguments::Arguments, report::Findings, run::Outcome};

pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: for<'a> fn(&'a Setting) -> LocalBoxFuture<'a, Outcome<Findings>>,
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
        run: |setting| Box::pin(calls::run(setting)),
    },
    Part {
        name: "inject",
        what: "POST agent-runs, and what injection adds to it",
        run: |setting| Box::pin(inject::run(setting)),
    },
    Part {
        name: "events",
        what: "events a second through one driver",
        run: |setting| Box::pin(events::run(setting)),
    },
    Part {
        name: "runs",
        what: "many runs at once, with calls in each",
        run: |setting| Box::pin(runs::run(setting)),
    },
    Part {
        name: "memory",
        what: "memory, start and size",
        run: |setting| Box::pin(memory::run(setting)),
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

    /// The bridges that are compared, with what they are called.
    pub(crate) fn daemons(&self) -> Vec<(&'static str, PathBuf)> {
        let mut daemons = vec![("bridge", self.arguments.daemon.clone())];
        daemons.extend(self.arguments.against.clone().map(|path| ("bridge, the other", path)));
        daemons
    }
}
