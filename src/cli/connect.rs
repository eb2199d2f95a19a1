//! `mantyx-bridge connect` and `disconnect`: the bridge in another program's list of MCP servers.
//!
//! Where the program has a command for that, the command is run: a running program writes its file
//! back, and would take an entry away again. Else its file is changed, after the change was shown.
//!
//! Must not: write a token into another program's file, or change a file that cannot be read.

pub(super) mod entry;
mod products;

use std::path::Path;

use clap::Args;
use serde_json::{Map, Value};

use self::entry::{Entry, NAME};
pub(super) use self::products::Product;
use super::commands::{self, which};
use super::edit::file::OwnFile;
use super::edit::{Edit, agree, difference, json};
use super::import::formats;
use super::{Client, Failure, Outcome, Place, block_on, complain, failures, print};
use crate::config::{Contact, Environment};

/// The arguments of `connect`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The program
    #[arg(value_name = "PROGRAM")]
    product: Product,
    #[command(flatten)]
    options: entry::Options,
    /// Prints the entry, names the file that it goes into, and changes nothing
    #[arg(long)]
    print: bool,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
}

/// The arguments of `disconnect`.
#[derive(Debug, Args)]
pub(super) struct Disconnection {
    /// The program
    #[arg(value_name = "PROGRAM")]
    product: Product,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
}

/// `mantyx-bridge connect`.
pub(super) fn connect(settings: &Settings, config: Option<&Path>, env: &Environment) -> Outcome {
    let product = settings.product.on_this_machine(env);
    if settings.print {
        return entry::print(product, config, &settings.options, env);
    }
    let entry = Entry::new(config, &settings.options, env)?;
    let contact = checked_contact(&entry, settings.options.app.as_deref(), env)?;
    match product.add_command(&entry) {
        Some(command) if which(product.program(), env).is_some() => {
            add_by_command(product, &command, settings.yes)?;
        }
        _ => add_to_file(product, &entry, settings.yes, env)?,
    }
    print(&format!("{} has the bridge as `{NAME}`; start it again to see it.\n", product.title()))?;
    if let Some(condition) = product.condition() {
        complain(&format!("note: {condition}"));
    }
    tell_of_own_servers(product, &entry, env);
    tell_of_daemon(&Place::Configured(Box::new(contact)));
    Ok(())
}

/// The daemon's address and the client's token, both of which `mantyx-bridge mcp` will need.
fn checked_contact(entry: &Entry, app: Option<&str>, env: &Environment) -> Outcome<Contact> {
    let contact = Contact::load(&entry.config, env, app)?;
    match &contact.app {
        Some((_, None)) => Err(failures::no_app_token("")),
        _ => Ok(contact),
    }
}

fn add_by_command(product: Product, command: &[String], yes: bool) -> Outcome {
    agree_to_run(command, yes)?;
    match commands::run(command) {
        Err(Failure::Failed(why)) if why.contains("already exists") => {
            if let Some(removal) = product.remove_command() {
                commands::run(&removal)?;
            }
            commands::run(command).map(drop)
        }
        outcome => outcome.map(drop),
    }
}

fn agree_to_run(command: &[String], yes: bool) -> Outcome {
    print(&format!("{}\n", commands::line(command)))?;
    agree("Run this? ", yes)
}

fn add_to_file(product: Product, entry: &Entry, yes: bool, env: &Environment) -> Outcome {
    let Some((path, key)) = product.json_file(env) else {
        return Err(match product.foreign_file(env) {
            Some(path) => {
                let text = format!("put this into {}:\n{}", path.display(), entry.toml());
                failures::client_without_command(product.title(), product.program(), text)
            }
            None => failures::client_absent(product.title(), product.places(env)),
        });
    };
    let file = OwnFile::read(&path, json::EMPTY)?;
    let value = entry.json(product);
    let edit = json::with_server(&file.text, key, NAME, &value).map_err(|why| {
        let whole = json::on_lines(&serde_json::json!({ key: { NAME: value } }));
        failures::by_hand(path.display(), why, whole)
    })?;
    write(&path, &file, &edit, yes)
}

/// Shows the change, asks, and makes it.
fn write(path: &Path, file: &OwnFile, edit: &Edit, yes: bool) -> Outcome {
    if edit.text == file.text {
        return Ok(());
    }
    // Only the bridge's own entry goes away, which has no secret; but other text may stand in its
    // lines.
    let change = difference(&path.display().to_string(), &file.text, &edit.splice, |lines| {
        let count = super::page::counted(lines.len(), "line");
        let is_in_line = file.text.trim().lines().count() == 1;
        let what = if is_in_line { String::new() } else { format!("{count} of ") };
        vec![format!("{what}the entry `{NAME}`")]
    });
    print(&change)?;
    agree("Write this? ", yes)?;
    if let Some(backup) = file.replace(&edit.text, true)? {
        complain(&format!("note: the earlier file is {}", backup.display()));
    }
    Ok(())
}

/// Takes the entry out of the file, with what `connect` has made for it: the list, if the file had
/// none before, and the file, if there was none.
fn remove_from_file(path: &Path, key: &str, yes: bool) -> Outcome {
    let file = OwnFile::read(path, json::EMPTY)?;
    let removal = json::without_server(&file.text, key, NAME)
        .map_err(|why| failures::by_hand(path.display(), why, NAME))?;
    let Some(edit) = removal else { return Ok(()) };
    let before = file.backup();
    if before.is_none() && json::is_empty_list(&edit.text, key) {
        print(&format!("{} has nothing but this entry, and is removed.\n", path.display()))?;
        agree("Remove this file? ", yes)?;
        return file.remove();
    }
    let whole = before.and_then(|before| json::without_list(&file.text, &edit, key, &before));
    write(path, &file, &whole.unwrap_or(edit), yes)
}

/// Names the servers that the program has itself: its model would have each of their tools twice.
fn tell_of_own_servers(product: Product, entry: &Entry, env: &Environment) {
    let text = env.read(&entry.config).map(|file| file.text).unwrap_or_default();
    let members = formats::parse(&entry.config, &text).unwrap_or_default();
    let bridge_servers: Map<String, Value> = ["mcp", "mcpServers"]
        .into_iter()
        .filter_map(|section| members.get(section)?.as_object().cloned())
        .flatten()
        .collect();
    let own_servers = product.servers(env).into_iter().filter(|(name, _)| name != NAME);
    let (twice, others): (Vec<_>, Vec<_>) = own_servers.partition(|(name, server)| {
        bridge_servers.contains_key(name)
            || bridge_servers.values().any(|other| reach_same_server(other, server))
    });
    let title = product.title();
    if !twice.is_empty() {
        complain(&format!(
            "note: {title} has these servers itself, and from the bridge, too: {}. Its model has \
             each of their tools twice; remove them there{}",
            names(&twice),
            product.removal_hint(env),
        ));
    }
    if !others.is_empty() {
        complain(&format!(
            "note: {title} has other servers itself: {}. `mantyx-bridge add` brings one into \
             bridge.yaml, where MANTYX and all other programs have it, too",
            names(&others),
        ));
    }
}

fn names(servers: &[(String, Value)]) -> String {
    let names: Vec<&str> = servers.iter().map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// Whether both entries have the same URL, or the same program with the same arguments.
fn reach_same_server(a: &Value, b: &Value) -> bool {
    if let (Some(program), Some(other)) = (a.get("command"), b.get("command")) {
        return program == other && a["args"] == b["args"];
    }
    url(a).is_some() && url(a) == url(b)
}

/// The URL of an entry, under the key of its program.
fn url(entry: &Value) -> Option<&Value> {
    ["url", "httpUrl", "serverUrl"].iter().find_map(|key| entry.get(*key))
}

/// Whether a daemon answers there.
fn answers(place: &Place) -> bool {
    let Ok(client) = Client::new(place) else { return false };
    block_on(async { client.view("/v1/status").await.map(drop) }).is_ok()
}

fn tell_of_daemon(place: &Place) {
    if !answers(place) {
        complain(
            "note: no daemon runs with this bridge.yaml: `mantyx-bridge service install` has it run \
             always, and `mantyx-bridge serve` as long as you like",
        );
    }
}

/// `mantyx-bridge disconnect`.
pub(super) fn disconnect(settings: &Disconnection, env: &Environment) -> Outcome {
    let product = settings.product.on_this_machine(env);
    let title = product.title();
    if !product.servers(env).contains_key(NAME) {
        return print(&format!("{title} has no server `{NAME}`: there is nothing to remove.\n"));
    }
    match product.remove_command() {
        Some(command) if which(product.program(), env).is_some() => {
            agree_to_run(&command, settings.yes)?;
            commands::run(&command)?;
        }
        _ => {
            let Some((path, key)) = product.json_file(env) else {
                return Err(match product.foreign_file(env) {
                    Some(path) => {
                        let text = format!("remove [mcp_servers.{NAME}] from {}", path.display());
                        failures::client_without_command(title, product.program(), text)
                    }
                    None => failures::client_absent(title, product.places(env)),
                });
            };
            remove_from_file(&path, key, settings.yes)?;
        }
    }
    print(&format!("{title} has the bridge no longer.\n"))
}
