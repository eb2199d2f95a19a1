//! Commands that go on for a while: on a terminal where somebody types, or with their output in
//! files.
//!
//! Must not: know what a command does.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Ran;
use crate::{bridge, peers, wait};

/// How long a command may take to do what is waited for.
const SOON: Duration = Duration::from_secs(20);

/// A command that runs.
#[derive(Debug)]
pub(super) struct Desk {
    child: Child,
    keyboard: Option<ChildStdin>,
    dir: TempDir,
}

impl Desk {
    /// Starts the binary under test with its output in files.
    pub(super) fn start(args: &[&str]) -> Self {
        let mut command = bridge::command();
        command.args(args).stdin(Stdio::null());
        Self::spawn(command, None)
    }

    /// Starts it on a terminal of this size; all that it says is in `out`.
    pub(super) fn on_terminal(columns: u16, rows: u16, args: &[&str]) -> Self {
        Self::on_terminal_at(None, columns, rows, args)
    }

    /// [`Self::on_terminal`], in the directory `home`.
    pub(super) fn on_terminal_at(
        home: Option<&Path>,
        columns: u16,
        rows: u16,
        args: &[&str],
    ) -> Self {
        let binary = bridge::command();
        let mut command = bridge::command_of("python3");
        command.arg(peers::repository("tests/peers/on_terminal.py"));
        command.args([columns.to_string(), rows.to_string()]).arg(binary.get_program()).args(args);
        command.env("TERM", "xterm").stdin(Stdio::piped());
        Self::spawn(command, home)
    }

    fn spawn(mut command: Command, home: Option<&Path>) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let file = |name| File::create(dir.path().join(name)).expect("a new directory is writable");
        let home = home.unwrap_or(dir.path());
        command.stdout(file("out")).stderr(file("err")).current_dir(home).env("HOME", home);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { keyboard: child.stdin.take(), child, dir }
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.path().join(name)).expect("the file was made at the start");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What it has written to stdout, or to its terminal.
    pub(super) fn out(&self) -> String {
        self.read("out")
    }

    /// What it has written to stderr.
    pub(super) fn err(&self) -> String {
        self.read("err")
    }

    /// Waits until what was written holds `text`.
    pub(super) async fn says(&self, text: &str) {
        self.becomes(&format!("{text:?} should be written"), |out| out.contains(text)).await;
    }

    /// Waits until what was written is as it should be.
    pub(super) async fn becomes(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let end = tokio::time::Instant::now() + SOON;
        wait::until(what, SOON * 2, async || {
            let (out, err) = (self.out(), self.read("err"));
            assert!(tokio::time::Instant::now() < end, "{what}: {out:?} {err}");
            holds(&out).then_some(())
        })
        .await;
    }

    /// Types at the terminal.
    pub(super) fn type_in(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().expect("it is on a terminal");
        keyboard.write_all(text.as_bytes()).expect("the terminal is there");
    }

    /// Sends `signal` to the command.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.child.try_wait().expect("the child is ours").is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("it is not reaped");
        }
    }

    /// Waits for its end.
    pub(super) async fn ended(mut self) -> Ran {
        let status = wait::until("the command should end", SOON, async || {
            self.child.try_wait().expect("the child is ours")
        })
        .await;
        Ran { code: status.code(), out: self.out(), err: self.read("err") }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // A terminal that goes away takes what runs on it along.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
