//! What the references in a file stand for, and where its relative paths start.
//!
//! Must not: read a variable's value, or a file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::looks::is_everyday;
use super::secrets::{Place, Vault, variable_name};
use super::sections::Product;
use crate::config::{Environment, is_variable};

/// The file that is imported.
#[derive(Clone)]
pub(super) struct Source<'a> {
    /// The directory of the project that the file belongs to: `${workspaceFolder}`.
    folder: Option<PathBuf>,
    /// The directory of the file itself.
    directory: Option<PathBuf>,
    /// `${userHome}`.
    home: Option<&'a str>,
    /// What VS Code would ask for: the ids and descriptions of its `inputs`.
    inputs: Vec<(&'a str, &'a str)>,
    product: Product,
}

/// Directories of a project in which products keep their files.
const OF_PROJECTS: [&str; 11] = [
    ".vscode",
    ".cursor",
    ".gemini",
    ".qwen",
    ".roo",
    ".kilocode",
    ".zed",
    ".codex",
    ".amazonq",
    ".continue",
    ".opencode",
];
/// Files that stand in a project's own directory.
const IN_PROJECTS: [&str; 4] = [".mcp.json", "opencode.json", "opencode.jsonc", "crush.json"];

impl<'a> Source<'a> {
    /// The file at `path`, which is absolute, with these members at its top.
    pub(super) fn new(path: &Path, members: &'a Map<String, Value>, env: &'a Environment) -> Self {
        let home = env.filled_var("HOME");
        let of_settings = members.get("mcp").and_then(|mcp| mcp.get("inputs"));
        let inputs = members.get("inputs").or(of_settings).and_then(Value::as_array);
        let described = inputs
            .into_iter()
            .flatten()
            .filter_map(|input| Some((input["id"].as_str()?, input["description"].as_str()?)));
        // In the home directory lie the files of a user, whose servers start in any directory.
        let folder = project(path).filter(|folder| home.map(Path::new) != Some(folder));
        Self {
            folder: folder.map(Path::to_owned),
            directory: path.parent().map(Path::to_owned),
            home,
            inputs: described.collect(),
            product: Product::Other,
        }
    }

    /// The same for a server of this product, which starts in `folder`.
    pub(super) fn within(&self, folder: Option<&str>, product: Product) -> Self {
        let own = folder.map(PathBuf::from);
        Self { folder: own.or_else(|| self.folder.clone()), product, ..self.clone() }
    }

    /// `text`, which stands at `at`, with references of bridge.yaml in place of the product's.
    pub(super) fn translated(
        &self,
        vault: &mut Vault,
        at: Place<'_>,
        text: &str,
        notes: &mut Vec<String>,
    ) -> String {
        let server = at.server;
        let mut text = text.to_owned();
        let folder = self.folder.as_deref().and_then(Path::to_str);
        for (name, value) in [
            ("workspaceFolder", folder.unwrap_or("${input:workspaceFolder}")),
            ("workspaceFolderBasename", "${input:workspaceFolderBasename}"),
            ("userHome", self.home.unwrap_or("${env:HOME}")),
            ("pathSeparator", "/"),
            ("/", "/"),
        ] {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        while let Some((_, rest)) = text.split_once("${input:")
            && let Some((id, _)) = rest.split_once('}')
        {
            let described = self.inputs.iter().find(|input| input.0 == id);
            let description = described.map_or(id, |input| input.1);
            // A description may have a secret in it, as an example.
            let purpose = if description.split_whitespace().all(is_everyday) {
                description.replace(char::is_control, " ")
            } else {
                "an input".to_owned()
            };
            let why = format!("{purpose}, of {server}");
            let reference = vault.refer(variable_name(id), why);
            text = text.replace(&format!("${{input:{id}}}"), &reference);
        }
        text = with_secrets(vault, server, &text);
        if self.product == Product::Opencode {
            text = self.of_opencode(vault, server, &text);
        }
        with_defaults(vault, at, &text, notes)
    }

    /// opencode's `{env:NAME}` and `{file:PATH}`.
    fn of_opencode(&self, vault: &mut Vault, server: &str, text: &str) -> String {
        let with_variables = replaced(text, "{env:", "}", |name| {
            vault.refer(name.to_owned(), format!("named in the file, of {server}"))
        });
        replaced(&with_variables, "{file:", "}", |path| {
            format!("${{file:{}}}", self.absolute(path, self.directory.as_deref()))
        })
    }

    /// A path of the file, absolute as far as that is known.
    pub(super) fn placed(&self, value: &Value) -> Value {
        match value.as_str() {
            Some(text) => self.absolute(text, self.folder.as_deref()).into(),
            None => value.clone(),
        }
    }

    /// The same of a program, which is a name if it has no `/`.
    pub(super) fn placed_program(&self, value: &Value) -> Value {
        match value.as_str() {
            Some(text) if text.contains('/') => self.placed(value),
            _ => value.clone(),
        }
    }

    fn absolute(&self, path: &str, directory: Option<&Path>) -> String {
        if let Some(rest) = path.strip_prefix("~/") {
            return format!("{}/{rest}", self.home.unwrap_or("${env:HOME}"));
        }
        match directory {
            Some(directory) if !path.starts_with(['/', '~', '$', '{']) => {
                let path = path.strip_prefix("./").unwrap_or(path);
                directory.join(path).to_str().map_or_else(|| path.to_owned(), str::to_owned)
            }
            _ => path.to_owned(),
        }
    }
}

/// Continue's `${{ secrets.NAME }}`.
fn with_secrets(vault: &mut Vault, server: &str, text: &str) -> String {
    replaced(text, "${{", "}}", |inside| {
        let inside = inside.trim();
        let name = variable_name(inside.rsplit('.').next().unwrap_or_default());
        let why = if is_everyday(inside) { inside } else { "a secret" };
        vault.refer(name, format!("{why}, of {server}"))
    })
}

/// `text` with `${NAME:-default}`, which entries of bridge.yaml know, also for
/// `${env:NAME:-default}`. A default that may be a secret is left out, so that the person has to
/// set the variable.
fn with_defaults(vault: &mut Vault, at: Place<'_>, text: &str, notes: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        out += before;
        let inside = behind.get(..closing_brace(behind)).filter(|_| !before.ends_with('$'));
        let reference = inside
            .and_then(|inside| inside.split_once(":-"))
            .map(|(name, default)| (name.strip_prefix("env:").unwrap_or(name), default));
        let Some((name, default)) = reference.filter(|(name, _)| is_variable(name)) else {
            out += "${";
            rest = behind;
            continue;
        };
        rest = behind.get(inside.unwrap_or_default().len() + 1..).unwrap_or_default();
        if is_plain_default(vault, at, name, default) {
            if !default.is_empty() {
                let note = format!("`{}`: without {name}, `{default}` is used", at.server);
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            out += &format!("${{{name}:-{default}}}");
        } else {
            let server = at.server;
            let words = "is left out: it may be a secret, or has a reference in it";
            notes.push(format!("`{server}`: the default of {name} {words}"));
            out += &vault.refer(name.to_owned(), format!("named in the file, of {server}"));
        }
    }
    out + rest
}

/// Whether nothing of a default would be hidden if it were the value itself.
fn is_plain_default(vault: &Vault, at: Place<'_>, name: &str, default: &str) -> bool {
    if !is_everyday(default) || default.contains(['{', '}', '`', '\n']) {
        return false;
    }
    let mut vault = vault.clone();
    [at.key, name].into_iter().all(|key| vault.hide(default, Place { key, ..at }) == default)
}

/// Where the `}` is that belongs to the `${` in front of `text`; its end if there is none.
fn closing_brace(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    usize::MAX
}

/// `text` with another text in place of each `open … close`. One behind a `$` is a reference of
/// bridge.yaml already.
fn replaced(text: &str, open: &str, close: &str, mut other: impl FnMut(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(open)
        && let Some((inside, after)) = behind.split_once(close)
    {
        out.push_str(before);
        if before.ends_with('$') {
            out.extend([open, inside, close]);
        } else {
            out.push_str(&other(inside));
        }
        rest = after;
    }
    out + rest
}

/// The directory of the project that the file belongs to.
fn project(file: &Path) -> Option<&Path> {
    let directory = file.parent()?;
    let file = file.file_name()?.to_str()?;
    if IN_PROJECTS.contains(&file) {
        return Some(directory);
    }
    let name = directory.file_name()?.to_str()?;
    if OF_PROJECTS.contains(&name) { directory.parent() } else { None }
}
