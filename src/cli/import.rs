//! `mantyx-bridge import FILE`: an mcpServers file of Claude Desktop, Cursor or VS Code as the
//! `mcp:` part of a bridge.yaml.
//!
//! Everything in the file is translated or reported. Reported are keys that the bridge does not
//! have, names that had to change, and secrets, which become references to environment variables.
//!
//! Must not: print a secret, or start a program of the file.

mod entry;
mod secrets;
pub(super) mod yaml;

use std::{fmt::Write as _, path::Path};

use self::{entry::Server, secrets::Vault};
use super::{Failure, Outcome, complain, print, write_new};
use crate::{
    config::Environment,
    model::{ids::BackendName, json::Members},
};

/// The contents of the files.
#[derive(Debug, Default)]
pub(super) struct Imported {
    servers: Vec<Server>,
    /// Further names that are taken.
    reserved: Vec<String>,
    /// Parts of the files that the output lacks, one sentence each.
    notes: Vec<String>,
    vault: Vault,
}

pub(super) fn import(file: &Path, output: Option<&Path>, env: &Environment) -> Outcome {
    let mut imported = Imported::default();
    imported.load(file, env)?;
    let text = format!("# Imported from {}\n{}", one_line(file), imported.yaml());
    match output {
        None => print(&text)?,
        Some(path) => {
            write_new(path, &text, false, "remove it, or name another file")?;
            complain(&format!("wrote {}", path.display()));
        }
    }
    complain(&imported.remarks(env));
    Ok(())
}

impl Imported {
    /// Adds the servers of the file at `path`.
    pub(super) fn load(&mut self, path: &Path, env: &Environment) -> Outcome {
        let failed = |why: String| Failure::Failed(format!("{}: {why}", path.display()));
        let file = env.read(path).map_err(|error| failed(error.to_string()))?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.add(&file.text, workspace(&absolute)).map_err(failed)
    }

    /// `workspace` is the value of `${workspaceFolder}`.
    fn add(&mut self, text: &str, workspace: Option<&Path>) -> Result<(), String> {
        let text = to_json(text)?;
        let root = Members::read(&text).map_err(|error| match error.is_data() {
            // The parser's own message would quote the value.
            true => "it is not JSON with an object at its top".to_owned(),
            false => format!("it is not JSON: {error}"),
        })?;
        let servers = section(&root).ok_or(
            "there is no `mcpServers` in it, nor `servers`; is it the file with the MCP servers?",
        )?;
        let servers = Members::read(servers.get())
            .map_err(|_other| "the servers are no JSON object".to_owned())?;
        let inputs = entry::inputs(&root);
        for (name, entry) in &servers.0 {
            let legal = self.legal_name(name);
            let reader = entry::Reader {
                vault: &mut self.vault,
                notes: &mut self.notes,
                workspace,
                inputs: &inputs,
            };
            let server = reader.read(name, legal, entry.get());
            self.servers.push(server);
        }
        Ok(())
    }

    /// `name` as a legal and unused name of a backend.
    pub(super) fn legal_name(&self, name: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut base: String = name.chars().map(legal).take(BackendName::MAX_LEN).collect();
        if base.is_empty() {
            base.push_str("server");
        }
        let servers = self.servers.iter().map(|server| &server.name);
        let names: Vec<&String> = servers.chain(&self.reserved).collect();
        let taken = |name: &str| names.iter().any(|taken| *taken == name);
        let mut found = base.clone();
        for count in 2.. {
            if !taken(&found) {
                break;
            }
            let end = format!("_{count}");
            base.truncate(BackendName::MAX_LEN - end.len());
            found = format!("{base}{end}");
        }
        found
    }

    /// The number of servers, including those that are only comments.
    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Marks `name` as taken.
    pub(super) fn reserve(&mut self, name: &str) {
        self.reserved.push(name.to_owned());
    }

    /// Adds the server at `url`.
    pub(super) fn push_url(&mut self, name: String, url: &str) {
        self.servers.push(Server::at(name, url));
    }

    /// The `url` of the backend `name`, with references in place of secrets.
    pub(super) fn hide_in(&mut self, name: &str, url: &str) -> String {
        self.vault.hide(url, secrets::Place { server: name, key: "url", is_variable: false })
    }

    /// `env`, with a placeholder for each variable that is not set yet.
    pub(super) fn with_variables(&self, env: &Environment) -> Environment {
        let wanted = self.vault.variables(env);
        wanted.iter().fold(env.clone(), |env, (name, _)| env.with_var(name, "to_be_set"))
    }

    /// The `mcp:` section.
    pub(super) fn yaml(&self) -> String {
        let all_out = self.servers.iter().all(|server| server.left_out.is_some());
        let mut text = String::from(if all_out { "mcp: {}\n" } else { "mcp:\n" });
        self.servers.iter().for_each(|server| server.write(&mut text));
        text
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

/// The servers in the file: of Claude Desktop and Cursor, of VS Code's mcp.json, or of VS Code's
/// settings.json.
fn section<'a>(root: &Members<'a>) -> Option<&'a serde_json::value::RawValue> {
    root.get("mcpServers")
        .or_else(|| root.get("servers"))
        .or_else(|| Members::read(root.get("mcp")?.get()).ok()?.get("servers"))
}

/// The folder of the project that the file belongs to.
fn workspace(file: &Path) -> Option<&Path> {
    let directory = file.parent()?;
    let name = directory.file_name()?;
    if name == ".vscode" || name == ".cursor" { directory.parent() } else { None }
}

fn one_line(path: &Path) -> String {
    path.display().to_string().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests;
