//! `mantyx-bridge secret`: keeps a secret in the state directory, for `${secret:NAME}` in
//! bridge.yaml.
//!
//! Must not: take a secret from the command line, which every user can see, or show one.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use clap::{Args, Subcommand};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;

use super::{Failure, Outcome, failures, print, terminal};
use crate::config::{Environment, find, state_directory};
use crate::error_chain::error_chain;
use crate::state_dir::stored_secrets::is_name;
use crate::state_dir::{StateDir, StateError};

/// The most bytes of a secret: a private key has some KiB.
const MAX_BYTES: u64 = 64 << 10;

/// The arguments of `secret`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Keeps a secret under this name, in place of an earlier one; asks for it without showing it,
    /// or reads it from stdin
    #[command(after_help = "Examples:\n  mantyx-bridge secret set MANTYX_API_KEY\n  \
           mantyx-bridge secret set jira < jira.token")]
    Set {
        /// Letters, digits, `_` and `-`
        name: String,
    },
    /// Lists the names
    #[command(after_help = "Example: mantyx-bridge secret list")]
    List,
    /// Removes the secret of this name
    #[command(after_help = "Example: mantyx-bridge secret remove jira")]
    Remove {
        /// Its name
        name: String,
    },
}

/// `mantyx-bridge secret`.
pub(super) fn secret(settings: Settings, config: Option<&Path>, env: &Environment) -> Outcome {
    let state = StateDir::new(state_directory(&find(config, env)?, env)?);
    match settings.action {
        Action::Set { name } => set(&state, &name),
        Action::List => {
            let names = state.secret_names().into_iter().map(|name| name + "\n");
            print(&names.collect::<String>())
        }
        Action::Remove { name } => remove(&state, &name),
    }
}

/// Removes the secret of this name.
pub(super) fn remove(state: &StateDir, name: &str) -> Outcome {
    if state.remove_secret(name).map_err(|error| failed(&error))? {
        return print(&format!("`{name}` is removed.\n"));
    }
    Err(failures::no_such_secret(name, state.path().join("secrets").display()))
}

fn failed(error: &StateError) -> Failure {
    Failure::Failed(error_chain(error))
}

fn set(state: &StateDir, name: &str) -> Outcome {
    if !is_name(name) {
        return Err(failures::bad_secret_name(name));
    }
    let value = if io::stdin().is_terminal() { typed(name)? } else { piped()? };
    if value.trim().is_empty() {
        return Err(failures::no_secret_given());
    }
    let is_new = state.stored_secret(name).is_none();
    keep(state, name, &value)?;
    let hint = if is_new {
        ""
    } else {
        "A daemon that runs uses it after `systemctl --user reload mantyx-bridge`, `kill -HUP`, or a \
         restart.\n"
    };
    print(&format!("Kept; bridge.yaml has it as ${{secret:{name}}}.\n{hint}"))
}

/// Keeps `value` without the end of its last line.
pub(super) fn keep(state: &StateDir, name: &str, value: &str) -> Outcome {
    let value = value.trim_end_matches(['\n', '\r']);
    state.write_secret(name, &SecretString::from(value)).map_err(|error| failed(&error))
}

fn piped() -> Outcome<String> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES { Err(failures::secret_too_long(MAX_BYTES)) } else { Ok(text) }
}

/// The line that a person types, which the terminal does not show; empty if there is none.
pub(super) fn typed(name: &str) -> Outcome<String> {
    terminal::ask(&format!("{name} (it is not shown; nothing: later): "))?;
    let hidden = Hidden::new();
    let mut line = String::new();
    let outcome = io::stdin().read_line(&mut line);
    drop(hidden);
    terminal::ask("\n")?;
    outcome?;
    Ok(line)
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden {
    before: Option<Termios>,
}

impl Hidden {
    fn new() -> Self {
        let stdin = io::stdin();
        let Ok(before) = tcgetattr(stdin.as_fd()) else { return Self { before: None } };
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // A terminal that shows the secret all the same belongs to the person who types it.
        tcsetattr(stdin.as_fd(), OptionalActions::Flush, &silent).ok();
        Self { before: Some(before) }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            tcsetattr(io::stdin().as_fd(), OptionalActions::Now, before).ok();
        }
    }
}
