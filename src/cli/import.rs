//! `mantyx-bridge import FILE`: the MCP servers of other products' files as the `mcp:` part of a
//! bridge.yaml.
//!
//! `sections` finds the servers, `entry` translates one, `references`, `hiding` and `secrets` its
//! texts. Everything is carried over, or named with the path of its key. What may restrict a server
//! and is not understood turns the server off, as otherwise a model would get tools that were
//! denied: a key of the entry (`entry`) or one at the top of the file (`beside`).
//!
//! Must not: print a secret, or start a program of the file.

mod beside;
mod entry;
pub(super) mod formats;
mod hiding;
mod looks;
mod messages;
mod names;
mod permissions;
mod references;
mod secrets;
mod sections;
mod values;
mod yaml;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};

use self::entry::Entry;
use self::hiding::Context;
use self::messages::without_values;
use self::names::{names_for, shown};
use self::references::Source;
use self::secrets::{Place, Vault};
use self::sections::{Product, Root, Server};
pub(super) use self::yaml::{place_of_key, quoted, yaml};
use super::page::counted;
use super::{Failure, Outcome, complain, print};
use crate::config::{Environment, Problem, is_variable};
use crate::model::BackendName;
use crate::model::naming::legal;
use crate::model::visible;
use crate::state_dir::StateDir;

/// The backends of a new bridge.yaml.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) mcp: Map<String, Value>,
    pub(super) a2a: Map<String, Value>,
    /// What differs from the files, one sentence each.
    notes: Vec<String>,
    /// What of the files is not in bridge.yaml though it may matter, one sentence each.
    unread: Vec<String>,
    vault: Vault,
    /// The servers of files that were read before the last one.
    earlier: BTreeSet<String>,
}

pub(super) fn import(file: &Path, env: &Environment) -> Outcome {
    let mut imported = Imported::default();
    imported.load(file, env)?;
    let here = env.read(Path::new("bridge.yaml"));
    if here.is_ok_and(|file| file.text.lines().any(|line| line.starts_with("mcp:"))) {
        let twice = "bridge.yaml has `mcp:` already: put the entries below that, without this key";
        imported.notes.push(twice.to_owned());
    }
    let name = visible::shown(&file.display().to_string()).replace('\n', "?");
    print(&format!("# Imported from {name}\n{}", yaml("mcp", &imported.mcp)))?;
    complain(&imported.remarks(env));
    complain(&imported.next_steps(&name));
    match imported.unread.len() {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 part of the file is not taken over, as said above".to_owned())),
        count => {
            let why = format!("{count} parts of the file are not taken over, as said above");
            Err(Failure::Failed(why))
        }
    }
}

impl Imported {
    /// Nothing yet; secrets will be kept in `state`, or be variables if there is no such directory.
    pub(super) fn with_secrets_in(state: Option<&StateDir>) -> Self {
        let Some(state) = state else { return Self::default() };
        let stored = state.secret_names().into_iter().filter_map(|name| {
            let secret = state.stored_secret(&name)?.expose_secret().to_owned();
            Some((name, secret))
        });
        Self { vault: Vault::beside_stored(stored.collect()), ..Self::default() }
    }

    /// The secrets that the state directory has to keep, by name.
    pub(super) fn secrets(&self) -> Vec<(&str, &str)> {
        self.vault.secrets()
    }

    /// Adds the servers of the file at `path`.
    pub(super) fn load(&mut self, path: &Path, env: &Environment) -> Outcome {
        let failed = |why: String| Failure::Failed(format!("{}: {why}", path.display()));
        let file = env.read(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => failed(format!("{error}; save the file as UTF-8")),
            _ => failed(error.to_string()),
        })?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.add(&absolute, &file.text, env).map_err(failed)
    }

    /// Adds the servers of the file at `path` with this text. The variables that the file refers to
    /// are noted first: otherwise one of them could come to stand for a secret of an earlier
    /// server.
    pub(super) fn add(&mut self, path: &Path, text: &str, env: &Environment) -> Result<(), String> {
        self.earlier = self.mcp.keys().cloned().collect();
        let members = formats::parse(path, text)?;
        let root = Root { members: &members, is_yaml: formats::is_yaml(path) };
        let mut servers = sections::servers(root).ok_or(
            "there are no MCP servers in it: no `mcpServers`, `servers`, `mcp`, `mcp_servers`, \
             `context_servers` nor `extensions`; is it the file with the MCP servers?",
        )?;
        let off_by = beside::restrictions(&members, &servers);
        for server in &mut servers {
            server.is_off = !off_by.is_empty();
        }
        for server in servers.extract_if(.., |server| is_bridge(&server.entry)) {
            self.notes.push(format!("`{}` is this bridge, and is left out", server.name));
        }
        let source = Source::new(path, &members, env);
        for server in &servers {
            self.vault.refer_to_all(&server.entry.to_string());
        }
        for server in &servers {
            self.add_server(&source, &members, server, env);
        }
        for key in off_by {
            self.unread.push(format!(
                "all servers of the file are off (`disabled: true`), as `{key}` is not known here, \
                 and may restrict them"
            ));
        }
        Ok(())
    }

    fn add_server(
        &mut self,
        source: &Source<'_>,
        members: &Map<String, Value>,
        server: &Server,
        env: &Environment,
    ) {
        let name = self.free_name(&server.name);
        let (vault, notes) = (self.vault.clone(), self.notes.len());
        let unread = self.unread.len();
        let rules = permissions::rules(members, server.product, &server.name);
        let source = source.within(server.folder.as_deref(), server.product);
        let mut entry = Entry::translate(self, &source, &name, (server, rules));
        self.leave_refused_times_out(&name, &mut entry, env);
        let why = match placeholder(server.product, &entry) {
            Some(placeholder) => {
                Some(format!("{placeholder} stands for something of each user there"))
            }
            None => refusal(&name, entry.clone(), env),
        };
        let Some(why) = why else {
            if self.is_there(&server.name, &entry) {
                self.notes.truncate(notes);
                return;
            }
            if let Some(same) = self.same_server(&entry) {
                let note = format!("`{}` is the server `{same}`, and is written once", server.name);
                self.vault = vault;
                self.notes.truncate(notes);
                self.notes.push(note);
                return;
            }
            if server.has_name && name != server.name {
                let was = Value::from(shown(&server.name));
                let place = match server.folder {
                    Some(_) => format!(" (`{}`)", server.path),
                    None => String::new(),
                };
                self.notes.push(format!("{was}{place} is called `{name}` here"));
            }
            self.mcp.insert(name, entry.into());
            return;
        };
        // Nothing is left to say of its keys and variables.
        self.vault = vault;
        self.notes.truncate(notes);
        self.unread.truncate(unread);
        let at = if server.path.is_empty() { "the file" } else { &server.path };
        self.unread.push(format!("`{name}` is left out (`{at}`): {why}"));
    }

    /// What a person does with the servers of `file`.
    fn next_steps(&self, file: &str) -> String {
        let names: Vec<&str> = self.mcp.keys().map(String::as_str).collect();
        if names.is_empty() {
            return String::new();
        }
        format!(
            "These are {}: {}. Once bridge.yaml has them, `mantyx-bridge connect PROGRAM` gives them \
             to a program, and `mantyx-bridge open` shows them. Remove them from {file} then: with \
             both, the program's model has each tool twice.",
            counted(names.len(), "server"),
            names.join(", "),
        )
    }

    /// Whether another part of the file has the same server under the same name, as projects of
    /// Claude Code often do.
    fn is_there(&self, name: &str, entry: &Map<String, Value>) -> bool {
        let own = names_for(name).into_iter().next().map(|name| legal(&name)).unwrap_or_default();
        self.mcp.get(&own).and_then(Value::as_object) == Some(entry)
    }

    /// The server of an earlier file that `entry` is: two programs often have the same one. What a
    /// program calls its transport does not matter where there is a program to start.
    fn same_server(&self, entry: &Map<String, Value>) -> Option<String> {
        let plain = |entry: &Map<String, Value>| {
            let mut entry = entry.clone();
            if entry.contains_key("command") {
                entry.remove("transport");
            }
            self.vault.revealed(&json!(entry).to_string())
        };
        let wanted = plain(entry);
        let same = self.earlier.iter().find(|name| {
            self.mcp.get(*name).and_then(Value::as_object).is_some_and(|it| plain(it) == wanted)
        });
        same.cloned()
    }

    /// Leaves a time out that bridge.yaml does not take, since it restricts nothing.
    fn leave_refused_times_out(
        &mut self,
        name: &str,
        entry: &mut Map<String, Value>,
        env: &Environment,
    ) {
        for key in ["call_timeout", "start_timeout"] {
            let Some(time) = entry.get(key) else { continue };
            let time = time.as_str().unwrap_or_default().to_owned();
            let path = format!("mcp.{name}.{key}: ");
            if let Some(why) =
                refusal(name, entry.clone(), env).filter(|why| why.starts_with(&path))
            {
                entry.remove(key);
                self.notes.push(format!("`{name}`: `{key}: {time}` is left out: {why}"));
            }
        }
    }

    /// `value` with references in place of its secrets.
    fn hidden(&mut self, source: &Source<'_>, at: Place<'_>, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let text = source.translated(&mut self.vault, at, text, &mut self.notes);
                self.vault.hide(&text, at).into()
            }
            Value::Number(number) => self.vault.hide(&number.to_string(), at).into(),
            Value::Array(items) => {
                let mut list = Vec::new();
                let mut context = Context::default();
                for item in items {
                    list.push(self.hidden(source, context.place(item, at), item));
                    context.pass(item);
                }
                Value::Array(list)
            }
            Value::Object(members) => {
                let mut map = Map::new();
                for (key, value) in members {
                    map.insert(key.clone(), self.hidden(source, Place { key, ..at }, value));
                }
                Value::Object(map)
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    /// A legal and unused name for a server called `name` in its file.
    pub(super) fn free_name(&self, name: &str) -> String {
        let candidates: Vec<String> = names_for(name)
            .iter()
            .map(|name| legal(name).chars().take(BackendName::MAX_LEN).collect())
            .collect();
        let base = candidates.first().cloned().unwrap_or_default();
        let numbered = (2..).map(|count| {
            let end = format!("_{count}");
            let room = BackendName::MAX_LEN - end.len();
            format!("{base:.room$}{end}")
        });
        candidates
            .into_iter()
            .chain(numbered)
            .find(|name| !self.mcp.contains_key(name) && !self.a2a.contains_key(name))
            .unwrap_or_default()
    }

    /// The `url` of the backend `name`, with references in place of secrets.
    pub(super) fn hide_in(&mut self, name: &str, url: &str) -> String {
        self.vault.hide(url, Place { server: name, key: "url", ..Place::default() })
    }

    /// The steps that remain for the user, and the omitted parts.
    pub(super) fn remarks(&self, env: &Environment) -> String {
        let mut text = String::new();
        for note in &self.notes {
            writeln!(text, "note: {note}").expect("writing to a String cannot fail");
        }
        for unread in &self.unread {
            writeln!(text, "not taken over: {unread}").expect("writing to a String cannot fail");
        }
        let variables = self.vault.variables(env);
        if !variables.is_empty() {
            text.push_str("Set these where the bridge is started, before `check`:\n");
        }
        for (name, why) in variables {
            writeln!(text, "  export {name}=…   # {why}").expect("writing to a String cannot fail");
        }
        text
    }
}

/// Whether the entry is that of `connect`: as one of its own servers, the bridge would have all its
/// tools again, and again.
fn is_bridge(entry: &Value) -> bool {
    let program = entry["command"].as_str().unwrap_or_default().rsplit('/').next();
    program == Some("mantyx-bridge") && entry["args"][0] == "mcp"
}

/// Where and why bridge.yaml refuses `entry`, apart from variables and files that are missing here.
fn refusal(name: &str, mut entry: Map<String, Value>, env: &Environment) -> Option<String> {
    // Of an entry that is turned off, the bridge would check less.
    entry.remove("disabled");
    let file = json!({"upstream": {"sandbox": true}, "state_dir": "/", "mcp": {name: &entry}});
    let errors =
        crate::config::Config::parse(&file.to_string(), Path::new("/bridge.yaml"), env).err()?;
    let problem = errors.problems.iter().find(|problem| is_refusal(problem))?;
    let words = problem.message.split(", found").next()?;
    Some(format!("{}: {}", problem.path, without_values(words, &entry)))
}

/// Whether the entry itself is wrong, and not this machine, where a variable or a file may be
/// missing.
pub(super) fn is_refusal(problem: &Problem) -> bool {
    if problem.path.ends_with(".envFile") {
        return problem.message.contains(" reference");
    }
    let message = &problem.message;
    !message.ends_with(" is not set") && !message.ends_with("there is no such file")
}

/// What LibreChat would fill in for each of its users.
fn placeholder(product: Product, entry: &Map<String, Value>) -> Option<String> {
    if product != Product::LibreChat {
        return None;
    }
    let text = json!(entry).to_string();
    let (_, behind) = text.split_once("{{")?;
    let (name, _) = behind.split_once("}}")?;
    if looks::is_everyday_name(name) && is_variable(name) {
        return Some(format!("`{{{{{name}}}}}`"));
    }
    Some("a text in `{{}}`".to_owned())
}

#[cfg(test)]
mod tests;
