//! The subcommands of `mantyx-bridge`, one module each.
//!
//! Must not: hold what another part of the daemon needs.

pub mod check;
