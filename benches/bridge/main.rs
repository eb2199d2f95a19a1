//! `cargo bench --bench bridge`: what the bridge costs, beside what one would run instead.
//!
//!     cargo bench --bench bridge -- [--short] [--daemon PATH] [--against PATH] [--soak MINUTES] [PART…]
//!
//! docs/performance.md says what is measured, how, and how to read it. Each part is a file below
//! `parts` with one entry. Whatever takes part in a measurement is a process of its own: this
//! program again, with `--role`. Must not: judge a time. What breaks, is lost or is answered wrongly
//! makes it fail; how long something took never does.

// As in the tests: `cfg(test)` lets a program that prints and gives up print and give up.
#[cfg(test)]
mod arguments;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod nginx;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod process;
#[cfg(test)]
mod python;
#[cfg(test)]
mod report;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod stats;
#[cfg(test)]
mod wire;
#[cfg(test)]
mod world;

#[cfg(test)]
mod run;

fn main() -> std::process::ExitCode {
    // Cargo builds a benchmark without a harness with `cfg(test)`.
    #[cfg(test)]
    return run::main();
    #[cfg(not(test))]
    std::process::ExitCode::FAILURE
}
