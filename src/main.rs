//! The `mantyx-bridge` binary: arguments in, exit code out.

fn main() {}
