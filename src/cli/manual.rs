//! `mantyx-bridge completions` and `man`: completion scripts and manual pages for the command line.
//!
//! Must not: know a subcommand by name; clap knows them.

use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;

use super::{Outcome, command_line, complete, failures, print};

pub(super) fn completions(shell: Shell) -> Outcome {
    let shells = Shells::builtins();
    let name = command_line().get_name().to_owned();
    let registers = shells.completer(&shell.to_string()).expect("each shell is built in");
    let mut script = Vec::new();
    // The script asks the binary itself, which knows the tools of the running daemon.
    registers.write_registration(complete::VARIABLE, &name, &name, &name, &mut script)?;
    print(&String::from_utf8_lossy(&script))
}

/// The page of the whole command, or of the subcommand `of`.
pub(super) fn man(of: Option<&str>) -> Outcome {
    let mut command = command_line();
    command.build();
    let command = match of {
        None => command,
        Some(name) => page_of(&command, name)?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    print(&format!("{}{SECTIONS}", String::from_utf8_lossy(&page)))
}

/// The sections that all pages have.
const SECTIONS: &str = include_str!("manual.roff");

fn page_of(command: &Command, name: &str) -> Outcome<Command> {
    let pages = || command.get_subcommands().filter(|found| !found.is_hide_set());
    let Some(found) = pages().find(|found| found.get_name() == name) else {
        let names: Vec<&str> = pages().map(Command::get_name).collect();
        let names = names.join(", ");
        return Err(failures::no_page(name, names));
    };
    Ok(found.clone().version(env!("CARGO_PKG_VERSION")))
}
