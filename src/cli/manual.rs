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
    let mut whole = command_line();
    whole.build();
    let command = match of {
        // The exit codes have a section that all pages have.
        None => whole.after_help(EXAMPLES),
        Some(name) => page_of(&whole, name)?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    // What follows the options is examples, which readers look for by name.
    print(&format!("{}{SECTIONS}", page.replace(".SH EXTRA", ".SH EXAMPLES")))
}

/// The first commands of a person who has just installed the program.
const EXAMPLES: &str = "\
mantyx-bridge demo                   shows the main job, without an account
mantyx-bridge init --user            writes a bridge.yaml, with the servers of other programs
mantyx-bridge service install        runs the daemon from now on
mantyx-bridge connect claude-code    gives Claude Code all servers
mantyx-bridge status                 shows how they are";

/// The sections that all pages have.
const SECTIONS: &str = include_str!("manual.roff");

fn page_of(command: &Command, name: &str) -> Outcome<Command> {
    let mut pages: Vec<&Command> = command.get_subcommands().collect();
    pages.retain(|page| !page.is_hide_set());
    let Some(page) = pages.iter().find(|page| page.get_name() == name) else {
        let names: Vec<&str> = pages.iter().map(|page| page.get_name()).collect();
        return Err(failures::no_page(name, names.join(", ")));
    };
    Ok(Command::clone(page).version(env!("CARGO_PKG_VERSION")))
}
