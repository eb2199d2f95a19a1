//! The command line's own rules: every subcommand has an example, and every example can be typed.

use super::*;

/// The words of a shell line, up to where its output goes elsewhere.
fn words(line: &str) -> Vec<String> {
    let line = line.split([')', '|', '>']).next().unwrap_or_default();
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.trim().chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            '\\' => (),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_subcommand_has_an_example_that_can_be_typed() {
    let cli = Cli::command();
    cli.clone().debug_assert();
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let start = format!("mantyx-bridge {name}");
        assert!(help.contains(&start), "{name} has an example: {help}");
        for line in help.lines().filter_map(|line| line.get(line.find(&start)?..)) {
            let typed = Cli::try_parse_from(words(line));
            assert!(typed.is_ok(), "{line}: {}", typed.unwrap_err());
        }
    }
}
