//! One server of an mcpServers file, key by key.
//!
//! Must not: omit a key without reporting it.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, path::Path};

use serde_json::{Value, value::RawValue};

use super::{
    secrets::{Place, Vault, variable_name},
    yaml,
};
use crate::model::json::{Elements, Members};

/// One server as it will be written.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Its name in the file, if that was changed.
    was: Option<String>,
    /// Why it is written as a comment.
    pub(super) left_out: Option<String>,
    /// Its keys, and their values as lines of YAML, with their secrets replaced.
    keys: Vec<(&'static str, String)>,
}

/// Reads an entry. It keeps the first reason why the entry cannot be used, and reads on, so that
/// all other problems are reported, too.
pub(super) struct Reader<'a> {
    pub(super) vault: &'a mut Vault,
    pub(super) notes: &'a mut Vec<String>,
    pub(super) workspace: Option<&'a Path>,
    /// The inputs that VS Code would ask for, by id.
    pub(super) inputs: &'a BTreeMap<String, String>,
}

/// The `inputs` of a VS Code file: ids and descriptions.
pub(super) fn inputs(root: &Members<'_>) -> BTreeMap<String, String> {
    let list = root.get("inputs").and_then(|list| Elements::read(list.get()).ok());
    let read = |input: &RawValue| {
        let input: Value = serde_json::from_str(input.get()).ok()?;
        let id = input["id"].as_str()?.to_owned();
        let words = input["description"].as_str().unwrap_or(&id);
        let words = words.replace(char::is_control, " ");
        Some((id, words))
    };
    list.map(|list| list.0.into_iter().filter_map(read).collect()).unwrap_or_default()
}

impl Reader<'_> {
    pub(super) fn read(mut self, was: &str, name: String, entry: &str) -> Server {
        let renamed = (was != name).then(|| was.to_owned());
        let mut server = Server { name, was: renamed, left_out: None, keys: Vec::new() };
        match Members::read(entry) {
            Ok(members) => {
                for (key, value) in &members.0 {
                    self.key(&mut server, key, value.get());
                }
                let has = |key| server.keys.iter().any(|(found, _)| *found == key);
                if has("command") == has("url") && server.left_out.is_none() {
                    let why = "it has neither a `command` nor a `url`, or both";
                    server.left_out = Some(why.to_owned());
                }
            }
            Err(_) => server.left_out = Some("it is no JSON object".to_owned()),
        }
        if let Some(why) = &server.left_out {
            self.notes.push(format!("`{}` is only a comment: {why}", server.name));
        }
        server
    }

    fn key(&mut self, server: &mut Server, key: &str, value: &str) {
        let value: Value = serde_json::from_str(value).unwrap_or_default();
        let known = match key {
            "command" => "command",
            "args" => "args",
            "env" => "env",
            "envFile" => "envFile",
            "cwd" => "cwd",
            "url" | "serverUrl" | "httpUrl" => "url",
            "headers" => "headers",
            "type" | "transport" => return self.transport(server, key, &value),
            "disabled" if value == Value::Bool(false) => return,
            "enabled" if value == Value::Bool(true) => return,
            "disabled" | "enabled" => {
                server.left_out = Some("it is turned off in the file".to_owned());
                return;
            }
            other => return self.foreign(server, other, &value),
        };
        let written = match (known, &value) {
            ("args", Value::Array(items)) => self.list(server, items),
            ("env" | "headers", Value::Object(map)) => {
                let is_variable = known == "env";
                let pairs = map.iter().filter_map(|(key, value)| {
                    let text = self.text(server, &text(value)?, key, is_variable);
                    Some(format!("\n  {}: {}", yaml::scalar(key), yaml::scalar(&text)))
                });
                let pairs: Vec<String> = pairs.collect();
                let lines = if map.is_empty() { " {}".to_owned() } else { pairs.concat() };
                (pairs.len() == map.len()).then_some(lines)
            }
            ("args" | "env" | "headers", _) => None,
            (_, Value::String(value)) => {
                // The name of a command itself is no secret.
                Some(format!(" {}", yaml::scalar(&self.text(server, value, known, false))))
            }
            _ => None,
        };
        match written {
            Some(_) if server.keys.iter().any(|(found, _)| *found == known) => {
                self.notes.push(format!("`{}`: a second `{known}` is left out", server.name));
            }
            Some(written) => server.keys.push((known, written)),
            None => {
                server.left_out.get_or_insert(format!("its `{key}` is of another type"));
            }
        }
    }

    fn list(&mut self, server: &mut Server, items: &[Value]) -> Option<String> {
        let mut list = Vec::new();
        let mut option = String::new();
        for item in items {
            let item = text(item)?;
            list.push(self.text(server, &item, &option, false));
            // `--token` alone: the next argument is its value.
            let is_option = item.starts_with('-') && !item.contains('=');
            option =
                if is_option { item.trim_start_matches('-').to_owned() } else { String::new() };
        }
        Some(format!(" {}", yaml::list(&list)))
    }

    fn transport(&mut self, server: &mut Server, key: &str, value: &Value) {
        let known = match value.as_str().unwrap_or_default() {
            // `command` or `url` shows the kind already; http includes both.
            "stdio" | "http" => return,
            "sse" => "sse",
            "streamable-http" | "streamableHttp" | "streamable_http" => "streamable-http",
            _ => return self.foreign(server, key, value),
        };
        server.keys.push(("transport", format!(" {known}")));
    }

    /// Reports a key that the bridge does not have.
    fn foreign(&mut self, server: &Server, key: &str, value: &Value) {
        let hint = match key {
            "autoApprove" | "alwaysAllow" | "trust" => {
                "; the bridge asks only where `approve` says so"
            }
            "disabledTools" | "excludeTools" => "; write `tools: {deny: […]}`",
            "includeTools" | "enabledTools" => "; write `tools: {allow: […]}`",
            "timeout" => "; write `call_timeout: 60s`",
            _ if value.is_null() => return,
            _ => "",
        };
        let key = key.replace(char::is_control, "?");
        self.notes.push(format!("`{}`: the key `{key}` is left out{hint}", server.name));
    }

    /// `text`, with its references translated and its secrets replaced.
    fn text(&mut self, server: &mut Server, text: &str, key: &str, is_variable: bool) -> String {
        let translated = match self.references(&server.name, text) {
            Ok(translated) => translated,
            Err(why) => {
                server.left_out.get_or_insert(why);
                Cow::Borrowed(text)
            }
        };
        let at = Place { server: &server.name, key, is_variable };
        self.vault.hide(&translated, at)
    }

    fn references<'t>(&mut self, server: &str, text: &'t str) -> Result<Cow<'t, str>, String> {
        if !text.contains("${") {
            return Ok(Cow::Borrowed(text));
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (inside, after) = after.split_once('}').ok_or("a `${` in it has no `}`")?;
            rest = after;
            let legal = |name: &str| !name.is_empty() && variable_name(name) == name.to_uppercase();
            match inside.split_once(':') {
                Some(("input", id)) => {
                    let why = self.inputs.get(id).map_or(id, String::as_str);
                    out.push_str(
                        &self.vault.refer(&variable_name(id), format!("{why}, of {server}")),
                    );
                }
                Some(("env", name)) if legal(name) => {
                    out.push_str(&self.vault.refer(name, format!("of {server}")));
                }
                None if inside == "userHome" => out.push_str("${env:HOME}"),
                None if matches!(inside, "/" | "pathSeparator") => out.push('/'),
                None if inside.starts_with("workspaceFolder") => {
                    let base = inside == "workspaceFolderBasename";
                    let folder = self.workspace.and_then(|folder| match base {
                        true => folder.file_name()?.to_str(),
                        false => folder.to_str(),
                    });
                    let why =
                        || format!("`${{{inside}}}` has no meaning here; write the path itself");
                    out.push_str(folder.ok_or_else(why)?);
                }
                None if legal(inside) => {
                    out.push_str(&self.vault.refer(inside, format!("of {server}")));
                }
                // ${NAME:-default} has the same meaning in the bridge.
                Some((name, default)) if legal(name) && default.starts_with('-') => {
                    write!(out, "${{{inside}}}").expect("writing to a String cannot fail");
                }
                _ => return Err("it has a reference that the bridge does not know".to_owned()),
            }
        }
        out.push_str(rest);
        Ok(Cow::Owned(out))
    }
}

/// A scalar in the form that the bridge would read.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Server {
    /// The server at an address.
    pub(super) fn at(name: String, url: &str) -> Self {
        Self {
            name,
            was: None,
            left_out: None,
            keys: vec![("url", format!(" {}", yaml::scalar(url)))],
        }
    }

    /// Writes the entry below `mcp:`.
    pub(super) fn write(&self, out: &mut String) {
        let mut lines = Vec::new();
        if let Some(was) = &self.was {
            lines.push(format!("# {} in the file", Value::from(was.as_str())));
        }
        if let Some(why) = &self.left_out {
            lines.push(format!("# Left out: {why}."));
        }
        let off = if self.left_out.is_some() { "# " } else { "" };
        lines.push(format!("{off}{}:", yaml::scalar(&self.name)));
        for (key, value) in &self.keys {
            lines.extend(format!("{key}:{value}").lines().map(|line| format!("{off}  {line}")));
        }
        for line in lines {
            writeln!(out, "  {line}").expect("writing to a String cannot fail");
        }
    }
}
