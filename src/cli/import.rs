//! `mantyx-bridge import FILE`: an mcpServers file of Claude Desktop, Cursor or VS Code as the
//! `mcp:` part of a bridge.yaml.
//!
//! bridge.yaml takes the entries of these files as they are. So only the rest is changed: names that
//! are no names of backends, the editor's own references, and secrets, which become references to
//! environment variables. Reported are keys that the bridge does not have, and entries that
//! bridge.yaml would refuse.
//!
//! Must not: print a secret, or start a program of the file.

mod secrets;

use std::fmt::Write as _;
use std::iter::once;
use std::path::Path;

use serde_json::{Map, Value, json};

use self::secrets::{Place, Vault, variable_name};
use super::{Failure, Outcome, complain, print};
use crate::config::Environment;
use crate::model::BackendName;
use crate::model::naming::legal;

/// The keys of an entry that bridge.yaml has, too.
const KEYS: &str = "args command cwd disabled env envFile headers serverUrl transport type url";

/// The backends of a new bridge.yaml.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) mcp: Map<String, Value>,
    pub(super) a2a: Map<String, Value>,
    /// What differs from the files, one sentence each.
    notes: Vec<String>,
    vault: Vault,
}

/// What the references in a file stand for.
struct Source<'a> {
    /// `${workspaceFolder}`.
    folder: Option<&'a str>,
    /// `${userHome}`.
    home: Option<&'a str>,
    /// What VS Code would ask for: the ids and descriptions of its `inputs`.
    inputs: Vec<(&'a str, &'a str)>,
}

pub(super) fn import(file: &Path, env: &Environment) -> Outcome {
    let mut imported = Imported::default();
    imported.load(file, env)?;
    let here = env.read(Path::new("bridge.yaml"));
    if here.is_ok_and(|file| file.text.lines().any(|line| line.starts_with("mcp:"))) {
        let twice = "bridge.yaml has `mcp:` already: put the entries below that, without this key";
        imported.notes.push(twice.to_owned());
    }
    let name = file.display().to_string().replace(char::is_control, "?");
    print(&format!("# Imported from {name}\n{}", yaml("mcp", &imported.mcp)))?;
    complain(&imported.remarks(env));
    Ok(())
}

/// A section of bridge.yaml.
pub(super) fn yaml(section: &str, backends: &Map<String, Value>) -> String {
    serde_saphyr::to_string(&json!({ section: backends })).expect("JSON can be written as YAML")
}

impl Imported {
    /// Adds the servers of the file at `path`.
    pub(super) fn load(&mut self, path: &Path, env: &Environment) -> Outcome {
        let failed = |why: String| Failure::Failed(format!("{}: {why}", path.display()));
        let file = env.read(path).map_err(|error| failed(error.to_string()))?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.add(&file.text, workspace(&absolute), env).map_err(failed)
    }

    fn add(&mut self, text: &str, dir: Option<&Path>, env: &Environment) -> Result<(), String> {
        let root: Map<String, Value> =
            serde_json::from_str(&to_json(text)?).map_err(|error| match error.is_data() {
                // The parser's own message would quote the value.
                true => "it is not JSON with an object at its top".to_owned(),
                false => format!("it is not JSON: {error}"),
            })?;
        // Of Claude Desktop and Cursor, of VS Code's mcp.json, or of VS Code's settings.json.
        let servers = root.get("mcpServers").or_else(|| root.get("servers"));
        let servers = servers.or_else(|| root.get("mcp")?.get("servers"));
        let servers = servers.and_then(Value::as_object).ok_or(
            "there is no `mcpServers` in it, nor `servers`; is it the file with the MCP servers?",
        )?;
        let inputs = root.get("inputs").and_then(Value::as_array).into_iter().flatten();
        let described = inputs
            .filter_map(|input| Some((input["id"].as_str()?, input["description"].as_str()?)));
        let (folder, home) = (dir.and_then(Path::to_str), env.filled_var("HOME"));
        let source = Source { folder, home, inputs: described.collect() };
        self.vault.refer_to_all(&json!(servers).to_string());
        for (was, entry) in servers {
            let name = self.legal_name(was);
            if name != *was {
                self.notes.push(format!("{} is called `{name}` here", Value::from(was.as_str())));
            }
            let (vault, notes) = (self.vault.clone(), self.notes.len());
            let entry = self.entry(&source, &name, entry);
            if let Some(why) = refusal(&name, entry.clone(), env) {
                // Nothing is left to say of its keys and variables.
                self.vault = vault;
                self.notes.truncate(notes);
                self.notes.push(format!("`{name}` is left out: {why}"));
            } else {
                self.mcp.insert(name, entry.into());
            }
        }
        Ok(())
    }

    /// One entry as bridge.yaml has it.
    fn entry(&mut self, source: &Source<'_>, name: &str, entry: &Value) -> Map<String, Value> {
        let mut server = Map::new();
        for (key, value) in entry.as_object().into_iter().flatten() {
            if KEYS.split(' ').any(|known| known == key) {
                let at = Place { server: name, key, is_variable: key == "env" };
                server.insert(key.clone(), self.hidden(source, at, value));
            } else if key == "enabled" {
                // A server that is turned off stays so.
                server.insert("disabled".to_owned(), json!(*value == false));
            } else {
                let key = key.replace(char::is_control, "?");
                self.notes.push(format!("`{name}`: the key `{key}` is left out"));
            }
        }
        server
    }

    /// `value` with references in place of its secrets.
    fn hidden(&mut self, source: &Source<'_>, at: Place<'_>, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let text = self.translated(source, at.server, text);
                self.vault.hide(&text, at).into()
            }
            Value::Number(number) => self.vault.hide(&number.to_string(), at).into(),
            Value::Array(items) => {
                let mut list = Vec::new();
                let mut option = "";
                for item in items {
                    list.push(self.hidden(source, Place { key: option, ..at }, item));
                    // `--token` alone: the next argument is its value.
                    let text = item.as_str().unwrap_or_default();
                    let is_option = text.starts_with('-') && !text.contains('=');
                    option = if is_option { text.trim_start_matches('-') } else { "" };
                }
                Value::Array(list)
            }
            Value::Object(members) => {
                let hide = |(key, value): (&String, &Value)| {
                    (key.clone(), self.hidden(source, Place { key, ..at }, value))
                };
                Value::Object(members.iter().map(hide).collect())
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    /// `text` with references of bridge.yaml in place of the editor's.
    fn translated(&mut self, source: &Source<'_>, server: &str, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in [
            ("workspaceFolder", source.folder.unwrap_or("${input:workspaceFolder}")),
            ("workspaceFolderBasename", "${input:workspaceFolderBasename}"),
            ("userHome", source.home.unwrap_or("${env:HOME}")),
            ("pathSeparator", "/"),
            ("/", "/"),
        ] {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        while let Some((_, rest)) = text.split_once("${input:")
            && let Some((id, _)) = rest.split_once('}')
        {
            let why = source.inputs.iter().find(|input| input.0 == id).map_or(id, |input| input.1);
            let why = format!("{}, of {server}", why.replace(char::is_control, " "));
            let reference = self.vault.refer(variable_name(id), why);
            text = text.replace(&format!("${{input:{id}}}"), &reference);
        }
        text
    }

    /// `name` as a legal and unused name of a backend.
    pub(super) fn legal_name(&self, name: &str) -> String {
        let base = if name.is_empty() { "server" } else { name };
        let base: String = legal(base).chars().take(BackendName::MAX_LEN).collect();
        let numbered = (2..).map(|count| {
            let end = format!("_{count}");
            let room = BackendName::MAX_LEN - end.len();
            format!("{base:.room$}{end}")
        });
        let is_free = |name: &String| !self.mcp.contains_key(name) && !self.a2a.contains_key(name);
        once(base.clone()).chain(numbered).find(is_free).unwrap_or_default()
    }

    /// The `url` of the backend `name`, with references in place of secrets.
    pub(super) fn hide_in(&mut self, name: &str, url: &str) -> String {
        self.vault.hide(url, Place { server: name, key: "url", is_variable: false })
    }

    /// The steps that remain for the user, and the omitted parts.
    pub(super) fn remarks(&self, env: &Environment) -> String {
        let mut text = String::new();
        for note in &self.notes {
            writeln!(text, "note: {note}").expect("writing to a String cannot fail");
        }
        let wanted = self.vault.variables(env);
        if !wanted.is_empty() {
            text.push_str("Set these where the bridge is started, before `check`:\n");
        }
        for (name, why) in wanted {
            writeln!(text, "  export {name}=…   # {why}").expect("writing to a String cannot fail");
        }
        text
    }
}

/// Where and why bridge.yaml refuses `entry`, apart from variables and files that are missing here.
fn refusal(name: &str, mut entry: Map<String, Value>, env: &Environment) -> Option<String> {
    // Of an entry that is turned off, the bridge would check less.
    entry.remove("disabled");
    let file = json!({"upstream": {"sandbox": true}, "state_dir": "/", "mcp": {name: entry}});
    let errors =
        crate::config::Config::parse(&file.to_string(), Path::new("/bridge.yaml"), env).err()?;
    let found = errors.problems.iter().find(|found| match found.path.ends_with(".envFile") {
        true => found.message.contains(" reference"),
        false => !found.message.ends_with(" is not set"),
    })?;
    // A found value may be a secret.
    Some(format!("{}: {}", found.path, found.message.split(", found").next()?))
}

/// `text` without comments and trailing commas. All else keeps its place, so that an error names the
/// right line and column.
fn to_json(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut bytes = text.as_bytes().to_vec();
    json_strip_comments::strip_slice(&mut bytes)
        .map_err(|_slash| "it is not JSON: a `/` in it begins no comment".to_owned())?;
    // The crate makes spaces of the line ends in block comments, too.
    for (byte, was) in bytes.iter_mut().zip(text.bytes()) {
        if was == b'\n' {
            *byte = was;
        }
    }
    Ok(String::from_utf8(bytes).expect("only whole comments and commas became spaces"))
}

/// The folder of the project that the file belongs to.
fn workspace(file: &Path) -> Option<&Path> {
    let directory = file.parent()?;
    let name = directory.file_name()?;
    if name == ".vscode" || name == ".cursor" { directory.parent() } else { None }
}

#[cfg(test)]
mod tests;
