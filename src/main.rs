//! The `mantyx-bridge` binary: arguments in, exit code out.
//!
//! Must not: hold logic; the library does.

use std::process::ExitCode;

use clap::Parser as _;
use mantyx_bridge::{
    backend::program::launcher,
    cli::{self, Cli},
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before clap and before any thread: this process is about to become another program.
    if args.next().is_some_and(|first| first == launcher::SUBCOMMAND) {
        return launcher::exec(args);
    }
    cli::run(Cli::parse())
}
