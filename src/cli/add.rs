//! `mantyx-bridge add` and `remove`: one server of bridge.yaml, and no other byte of it.
//!
//! The change is shown, checked as `check` does, and agreed to by a person before it is written.
//! Secrets of the command line go to the state directory, and bridge.yaml gets references.
//!
//! Must not: write a secret into bridge.yaml, or make a file worse than it was.

use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::check::places;
use super::edit::file::OwnFile;
use super::edit::{Edit, agree, difference, yaml};
use super::import::{Imported, is_refusal};
use super::{Client, Failure, Outcome, Place, block_on, complain, failures, parse, print, secret};
use crate::config::{
    Config, ConfigErrors, Contact, Environment, find, state_directory, without_secrets,
};
use crate::http::api::status::Status;
use crate::state_dir::StateDir;
use crate::state_dir::stored_secrets::DIRECTORY;

/// How long the running daemon may take until it has read a changed file.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

/// The arguments of `add`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The server's name in bridge.yaml, which stands in front of its tools' names
    name: String,
    /// The URL of a server on the network
    #[arg(value_name = "URL", required_unless_present = "command", conflicts_with = "command")]
    address: Option<String>,
    /// A header of each request, as `Name: value`; may be repeated. A secret in it goes to a file
    /// of its own
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// A variable of the program, as KEY=VALUE; may be repeated. A secret in it goes to a file of
    /// its own
    #[arg(long, short, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// The directory in which the program starts
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

/// The arguments of `remove`.
#[derive(Debug, Args)]
pub(super) struct Removal {
    /// The MCP server, A2A agent or local tool, by its name in bridge.yaml
    name: String,
    /// Asks nothing, and removes the secrets that nothing else in bridge.yaml has
    #[arg(long, short)]
    yes: bool,
}

/// A bridge.yaml that is changed.
struct Target<'e> {
    path: PathBuf,
    file: OwnFile,
    env: &'e Environment,
}

impl<'e> Target<'e> {
    fn open(config: Option<&Path>, env: &'e Environment) -> Outcome<Self> {
        let path = find(config, env)?;
        if !path.exists() {
            // The words of `check`, with its cure.
            Config::load(&path, env)?;
        }
        let file = OwnFile::read(&path, "")?;
        Ok(Self { path, file, env })
    }

    fn shown_path(&self) -> String {
        self.path.display().to_string()
    }

    /// Refuses a change after which the file has a mistake that it did not have before. What is
    /// missing on this machine alone, such as a variable, is told, but for the secrets that will be
    /// kept with the change.
    fn check(&self, edit: &Edit, secrets: &[(&str, &str)]) -> Outcome {
        let problems = |text: &str| match Config::parse(text, &self.path, self.env) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.problems,
        };
        let mut new_problems = problems(&edit.text);
        for old in problems(&self.file.text) {
            new_problems.retain(|new| (&new.path, &new.message) != (&old.path, &old.message));
        }
        let (mistakes, absences): (Vec<_>, Vec<_>) = new_problems.into_iter().partition(is_refusal);
        if !mistakes.is_empty() {
            let errors = ConfigErrors { file: self.shown_path(), problems: mistakes };
            return Err(failures::would_not_be_good(self.path.display(), errors));
        }
        for problem in absences {
            if names_one_of(&problem.message, secrets) {
                continue;
            }
            let cure = problem.cure.unwrap_or_default();
            complain(&format!("note: {}: {}; {cure}", problem.path, problem.message));
        }
        Ok(())
    }

    /// Shows the change, asks, and makes it. Its secrets are kept first: a daemon reads the file as
    /// soon as it is written.
    fn change(&self, edit: &Edit, yes: bool, imported: &Imported) -> Outcome {
        self.check(edit, &imported.secrets())?;
        let before = &self.file.text;
        let change = difference(&self.shown_path(), before, &edit.splice, |lines| {
            without_secrets(before, lines)
        });
        print(&change)?;
        agree("Write this? ", yes)?;
        keep(imported, state_dir(&self.path, self.env).as_ref())?;
        self.file.replace(&edit.text, false).map(drop)
    }

    /// Says whether the daemon that runs with this file has taken the change: whether it `has` the
    /// backend `name`.
    fn report(&self, name: &str, has: bool) -> Outcome {
        let Ok(contact) = Contact::load(&self.path, self.env, None) else { return no_daemon() };
        let Ok(client) = Client::new(&Place::Configured(Box::new(contact))) else {
            return no_daemon();
        };
        block_on(async {
            let until = Instant::now() + PATIENCE;
            loop {
                let Ok(text) = client.view("/v1/status").await else {
                    return no_daemon();
                };
                let status: Status = parse(&text)?;
                if status.backends.iter().any(|backend| backend.name == name) == has {
                    return print("The running daemon has taken the change.\n");
                }
                if Instant::now() >= until {
                    let why = "The running daemon has not taken the change yet: `mantyx-bridge \
                               status` says why, or it was started with another file.\n";
                    return print(why);
                }
                sleep(AGAIN).await;
            }
        })
    }
}

/// Whether the message is about a secret that will be kept.
fn names_one_of(message: &str, secrets: &[(&str, &str)]) -> bool {
    secrets.iter().any(|(name, _)| message.contains(&format!("${{secret:{name}}}")))
}

fn no_daemon() -> Outcome {
    print("No daemon runs with this file: `mantyx-bridge serve` starts one.\n")
}

/// `mantyx-bridge add`.
pub(super) fn add(settings: &Settings, config: Option<&Path>, env: &Environment) -> Outcome {
    let name = settings.name.as_str();
    let server = command_line_entry(settings)?;
    let target = Target::open(config, env)?;
    let file = target.path.display();
    if yaml::has_backend(&target.file.text, name) {
        return Err(failures::server_there(name, file));
    }
    let state = state_dir(&target.path, env);
    let mut imported = Imported::with_secrets_in(state.as_ref());
    let servers = json!({ "mcpServers": { name: server } }).to_string();
    let here = absolute("command-line.json")?;
    imported.add(&here, &servers, env).map_err(Failure::Failed)?;
    let Some(entry) = imported.mcp.get(name).and_then(Value::as_object) else {
        return Err(match imported.mcp.keys().next() {
            Some(legal_name) => failures::bad_server_name(name, legal_name),
            None => Failure::Usage(imported.remarks(env)),
        });
    };
    let edit = yaml::with_server(&target.file.text, name, entry)
        .map_err(|why| failures::by_hand(file, why, yaml::section(name, entry)))?;
    target.change(&edit, settings.yes, &imported)?;
    complain(&imported.remarks(env));
    warn_of_places(&target.path, name, env);
    target.report(name, true)
}

/// Warns of what the program of this server lacks on this machine.
fn warn_of_places(path: &Path, name: &str, env: &Environment) {
    let Ok(config) = Config::load_what_resolves(path, env) else { return };
    let subject = format!("{name}: ");
    for warning in places::missing(&config) {
        if warning.starts_with(&subject) {
            complain(&format!("warning: {warning}"));
        }
    }
}

/// Keeps the secrets of the entries that are written.
pub(super) fn keep(imported: &Imported, state: Option<&StateDir>) -> Outcome {
    let Some(state) = state else { return Ok(()) };
    for (name, value) in imported.secrets() {
        secret::keep(state, name, value)?;
        complain(&format!(
            "note: a secret is kept in {}/secrets/{name}, as ${{secret:{name}}}",
            state.path().display()
        ));
    }
    Ok(())
}

/// The state directory of the daemon with this configuration; `None` if a mistake hides it.
pub(super) fn state_dir(config: &Path, env: &Environment) -> Option<StateDir> {
    state_directory(config, env).ok().map(StateDir::new)
}

/// The entry as another program would have it, with the command line's secrets.
fn command_line_entry(settings: &Settings) -> Outcome<Value> {
    let mut entry = Map::new();
    if let Some(url) = &settings.address {
        if !url.contains("://") && !url.starts_with("unix:") {
            return Err(failures::not_a_url(url));
        }
        if !settings.env.is_empty() || settings.cwd.is_some() {
            return Err(failures::only_with("env and --cwd", "a program, behind `--`"));
        }
        entry.insert("url".to_owned(), url.as_str().into());
    }
    if let Some((program, args)) = settings.command.split_first() {
        if !settings.header.is_empty() {
            return Err(failures::only_with("header", "a server at a URL"));
        }
        entry.insert("command".to_owned(), command_path(program).into());
        entry.insert("args".to_owned(), args.into());
    }
    if let Some(directory) = &settings.cwd {
        entry.insert("cwd".to_owned(), absolute(directory)?.display().to_string().into());
    }
    let headers = pairs(&settings.header, ':')
        .ok_or_else(|| failures::not_a_pair("header", "`Name: value`"))?;
    let variables =
        pairs(&settings.env, '=').ok_or_else(|| failures::not_a_pair("env", "KEY=VALUE"))?;
    for (key, map) in [("headers", headers), ("env", variables)] {
        if !map.is_empty() {
            entry.insert(key.to_owned(), map.into());
        }
    }
    Ok(entry.into())
}

/// The program as bridge.yaml names it: a path there starts at the directory of that file, and one
/// of the command line here.
fn command_path(program: &str) -> String {
    if !program.contains('/') || program.starts_with(['~', '$']) {
        return program.to_owned();
    }
    absolute(program).map_or_else(|_| program.to_owned(), |path| path.display().to_string())
}

/// The names and the values of options; `None` if one of them has no name.
fn pairs(options: &[String], separator: char) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    for option in options {
        let (name, value) = option.split_once(separator)?;
        if name.trim().is_empty() {
            return None;
        }
        map.insert(name.trim().to_owned(), value.trim().into());
    }
    Some(map)
}

/// `mantyx-bridge remove`.
pub(super) fn remove(removal: &Removal, config: Option<&Path>, env: &Environment) -> Outcome {
    let name = removal.name.as_str();
    let target = Target::open(config, env)?;
    let file = target.path.display();
    let change = yaml::without_backend(&target.file.text, name)
        .map_err(|why| failures::by_hand(file, why, name))?;
    let Some(edit) = change else {
        let names = yaml::backends(&target.file.text).join(", ");
        return Err(failures::no_backend(name, names));
    };
    target.change(&edit, removal.yes, &Imported::default())?;
    remove_secrets(&target, &edit.text, removal.yes)?;
    target.report(name, false)
}

/// Offers to remove the secrets that the removed entry had and nothing else in the file has.
fn remove_secrets(target: &Target<'_>, after: &str, yes: bool) -> Outcome {
    let Some(state) = state_dir(&target.path, target.env) else { return Ok(()) };
    let directory = state.path().join(DIRECTORY);
    for name in state.secret_names() {
        let file = directory.join(&name);
        if !refers_to(&target.file.text, &name, &file) || refers_to(after, &name, &file) {
            continue;
        }
        let place = file.display();
        print(&format!("Nothing in the file has the secret `{name}` any longer: {place}\n"))?;
        match agree("Remove it, too? ", yes) {
            Ok(()) => secret::remove(&state, &name)?,
            Err(Failure::Gone) => return Err(Failure::Gone),
            Err(_) => complain(&format!(
                "note: the secret stays; `mantyx-bridge secret remove {name}` removes it"
            )),
        }
    }
    Ok(())
}

/// Whether the text has a reference to the secret: by its name, or by its file.
fn refers_to(text: &str, name: &str, file: &Path) -> bool {
    let by_file = format!("${{file:{}}}", file.display());
    text.contains(&format!("${{secret:{name}}}")) || text.contains(&by_file)
}

#[cfg(test)]
mod tests;
