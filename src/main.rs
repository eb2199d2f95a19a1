//! The `mantyx-bridge` binary: arguments in, exit code out.
//!
//! Must not: hold logic; the library does.

use std::process::ExitCode;

use mantyx_bridge::{guard, launcher, mask};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before clap and before any thread: these three are no commands of a user's.
    match args.next() {
        Some(first) if first == launcher::SUBCOMMAND => return launcher::exec(args),
        Some(first) if first == mask::SUBCOMMAND => return mask::write_maps(args),
        Some(first) if first == guard::SUBCOMMAND => return guard::stand(),
        _ => (),
    }
    mantyx_bridge::survive_hangup(std::env::args_os().skip(1));
    mantyx_bridge::complete();
    keep_to_ourselves();
    // Its thread gives memory back while nothing is allocated. Where there is none (musl), that
    // takes longer. Not in the three above: who has threads enters no namespace.
    let _started = tikv_jemalloc_ctl::background_thread::write(true).is_ok();
    mantyx_bridge::run()
}

/// Lets no other process of the same user, such as a program that the bridge starts, look into the
/// memory and the environment of this one, where secrets are. It leaves no core dump, either.
fn keep_to_ourselves() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // Linux refuses it to nobody.
        let _kept = set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    }
}
