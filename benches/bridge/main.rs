//! `cargo bench --bench bridge`: what the bridge costs, beside what one would run instead.
//!
//!     cargo bench --bench bridge -- [--short] [--daemon PATH] [--against PATH] [--postgres URL]
//!         [--soak MINUTES] [PART…]
//!
//! docs/performance.md says what is measured, how, and how to read it. Each part is a file below
//! `parts` with one entry. Whatever takes part in a measurement is a process of its own: this
//! program again, with `--role`. Must not: judge a time. What breaks, is lost or is answered
//! wrongly makes it fail; how long something took never does.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its tables are what this is for")]

mod arguments;
mod clock;
mod daemon;
mod direct;
mod nginx;
mod parts;
mod postgres;
mod process;
mod python;
mod report;
mod roles;
mod run;
mod stats;
mod wire;
mod world;

fn main() -> std::process::ExitCode {
    run::main()
}
