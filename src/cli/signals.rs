//! The signals that end a command early.
//!
//! Must not: end it; the code that waits for them does, and cleans up first.

use std::ffi::OsString;
use std::io;

use futures_util::future::select_all;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Outcome;

/// Keeps SIGHUP from ending a `serve` that has only just begun: who changes the file may send it at
/// any time, and the file is read later anyway. `args` are those of the command line. Call this
/// first of all, as a signal that comes earlier ends the process.
pub fn survive_hangup(args: impl Iterator<Item = OsString>) {
    if !is_serve(args) {
        return;
    }
    // If this fails, `serve` cannot listen to the signal later either, and says so.
    let _registered = register_hangup().is_ok();
}

fn register_hangup() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    // What was registered once stays for as long as the process lives.
    signal(SignalKind::hangup()).map(drop)
}

/// Whether the subcommand is `serve`.
fn is_serve(mut args: impl Iterator<Item = OsString>) -> bool {
    const WITH_VALUE: [&str; 5] = ["-c", "--config", "--url", "--token-file", "--log-format"];
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some(option) if WITH_VALUE.contains(&option) => drop(args.next()),
            Some(option) if option.starts_with('-') => (),
            subcommand => return subcommand == Some("serve"),
        }
    }
    false
}

/// Receives signals from the moment when it is made.
#[derive(Debug)]
pub(super) struct Stop(Vec<Signal>);

impl Stop {
    /// SIGINT, SIGTERM and SIGHUP.
    pub(super) fn new() -> Outcome<Self> {
        Self::on(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    pub(super) fn on(kinds: &[SignalKind]) -> Outcome<Self> {
        Ok(Self(kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>()?))
    }

    /// Waits for the next of these signals.
    pub(super) async fn asked(&mut self) {
        select_all(self.0.iter_mut().map(|one| Box::pin(one.recv()))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_is_found_behind_its_options() {
        let is_serve = |line: &str| is_serve(line.split(' ').map(OsString::from));
        for line in
            ["serve", "-v serve", "-c x serve", "--config=x serve", "--log-format json serve"]
        {
            assert!(is_serve(line), "{line}");
        }
        for line in ["", "status", "-c serve", "-c serve status", "tools serve", "call serve"] {
            assert!(!is_serve(line), "{line}");
        }
    }
}
