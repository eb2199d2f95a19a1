//! `mantyx-bridge init`: writes a first bridge.yaml from its arguments, from the user's answers,
//! and from the files that it finds.
//!
//! Must not: overwrite a file unasked, write a secret into bridge.yaml, or dial an address.

pub(super) mod ask;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use serde_json::{Value, json};
use url::{Host, Url};

use self::ask::Asker;
use super::add::keep;
use super::import::{Imported, yaml};
use super::page::counted;
use super::{Failure, Outcome, complain, print, secret};
use crate::config::{Config, Environment, find};
use crate::state_dir::StateDir;

/// The name of MANTYX's key.
const KEY: &str = "MANTYX_API_KEY";

/// The arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "bridge.yaml")]
    output: PathBuf,
    /// Writes mantyx-bridge/bridge.yaml in ~/.config, which every command finds from any directory
    #[arg(long, conflicts_with = "output")]
    user: bool,
    /// The MANTYX workspace that the bridge's own commands use
    #[arg(long)]
    workspace: Option<String>,
    /// The sandbox inside the bridge in place of MANTYX: no account, no network
    #[arg(long, conflicts_with = "workspace")]
    sandbox: bool,
    /// Imports the servers of this mcpServers file; may be repeated
    #[arg(long, value_name = "FILE")]
    import: Vec<PathBuf>,
    /// Adds the A2A agent at this address; may be repeated
    #[arg(long, value_name = "URL")]
    a2a: Vec<String>,
    /// Adds the MCP server at this address; may be repeated
    #[arg(long, value_name = "URL")]
    mcp: Vec<String>,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
    /// Overwrites an existing file
    #[arg(long)]
    force: bool,
}

/// The file's contents before they are written.
#[derive(Debug, Default)]
struct Draft {
    /// `None`: the sandbox.
    workspace: Option<String>,
    backends: Imported,
    /// Whether the state directory will have MANTYX's key; otherwise a variable has it.
    has_key: bool,
    /// The files of other programs that have the same servers now.
    imported_files: Vec<PathBuf>,
}

pub(super) fn init(settings: &Settings, env: &Environment) -> Outcome {
    let output = &place(settings, env)?;
    if output.exists() && !settings.force {
        return Err(exists(output));
    }
    let on = !settings.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut asker = Asker { input: Box::new(io::stdin().lock()), on };
    let state = future_state_dir(output, env);
    let mut draft = collect(settings, &mut asker, env, state.as_ref())?;
    let key = if on && draft.workspace.is_some() { secret::typed(KEY)? } else { String::new() };
    draft.has_key = !key.trim().is_empty() && state.is_some();
    let Imported { mcp, a2a, .. } = &draft.backends;
    let how = Writing { force: settings.force, is_private: !mcp.is_empty() || !a2a.is_empty() };
    write(output, &draft.yaml(), how)?;
    if let Some(state) = state.as_ref().filter(|_| draft.has_key) {
        secret::keep(state, KEY, &key)?;
    }
    keep(&draft.backends, state.as_ref())?;
    complain(&draft.backends.remarks(env));
    print(&next_steps(output, &draft.imported_files, is_found(output, env)))
}

/// Whether other commands find the file by themselves. With `--user`, a bridge.yaml in the working
/// directory comes before it.
fn is_found(output: &Path, env: &Environment) -> bool {
    let Ok(found) = find(None, env) else { return false };
    fs::canonicalize(found)
        .is_ok_and(|found| fs::canonicalize(output).is_ok_and(|own| own == found))
}

/// Where the file is written. The user's directory is made.
fn place(settings: &Settings, env: &Environment) -> Outcome<PathBuf> {
    if !settings.user {
        return Ok(settings.output.clone());
    }
    let home = Failure::Usage("--user needs the variable HOME".to_owned());
    let directory = env.users_directory("XDG_CONFIG_HOME", ".config").ok_or(home)?;
    let directory = directory.join("mantyx-bridge");
    fs::create_dir_all(&directory)?;
    Ok(directory.join("bridge.yaml"))
}

/// The state directory of the daemon that will run with the new file, which names none.
fn future_state_dir(output: &Path, env: &Environment) -> Option<StateDir> {
    const LEAST: &str = "upstream: {sandbox: true}\n";
    Some(StateDir::new(Config::parse(LEAST, output, env).ok()?.state_dir))
}

/// What a person does next.
fn next_steps(output: &Path, imported_files: &[PathBuf], is_found: bool) -> String {
    let file = if is_found { String::new() } else { format!(" -c {}", output.display()) };
    let mut text = format!("{} is written. What comes next:\n", output.display());
    for (command, purpose) in [
        ("check", "shows what would run"),
        ("doctor", "starts each server once, and says how to fix what fails"),
        ("serve", "runs the bridge; `mantyx-bridge service install` has it run always"),
        (
            "connect claude-code",
            "gives it to Claude Code; or claude, cursor, vscode, codex, gemini",
        ),
        ("open", "opens its page"),
    ] {
        text += &format!("  {:<36} # {purpose}\n", format!("mantyx-bridge {command}{file}"));
    }
    for path in imported_files {
        text += &format!(
            "{} still has its servers. A program that reads it and the bridge shows each tool \
             twice: remove them there once it is connected to the bridge.\n",
            path.display()
        );
    }
    text
}

/// How a file is written.
#[derive(Clone, Copy)]
struct Writing {
    /// Whether an existing file is overwritten.
    force: bool,
    /// Whether only its owner may read it: a value of another product's file may be a secret though
    /// it looks like a word.
    is_private: bool,
}

fn write(path: &Path, text: &str, how: Writing) -> Outcome {
    let Writing { force, is_private } = how;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(force).truncate(force).create_new(!force);
    if is_private {
        options.mode(0o600);
    }
    let outcome = options.open(path).and_then(|mut file| {
        // A file that was there has the mode that it had.
        if is_private {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        file.write_all(text.as_bytes())
    });
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::Failed(format!("cannot write {}: {error}", path.display())),
    })
}

fn exists(path: &Path) -> Failure {
    let path = path.display();
    Failure::Failed(format!("{path} exists; --force overwrites it, --output names another file"))
}

/// Collects the contents of the file, whose secrets will be kept in `state`.
fn collect(
    settings: &Settings,
    asker: &mut Asker,
    env: &Environment,
    state: Option<&StateDir>,
) -> Outcome<Draft> {
    let mut draft = Draft { backends: Imported::with_secrets_in(state), ..Draft::default() };
    if let Some(workspace) = &settings.workspace {
        judge_workspace(workspace).map_err(Failure::Usage)?;
        draft.workspace = Some(workspace.clone());
    } else if !settings.sandbox {
        draft.workspace = ask_workspace(asker)?;
    }
    for path in &settings.import {
        draft.import(path, env)?;
    }
    for path in usual_places(env) {
        if settings.import.iter().any(|file| same_file(file, &path)) {
            continue;
        }
        let mut imported = Imported::default();
        // `init` does not report problems in other programs' files that the user has not named.
        if imported.load(&path, env).is_err() || imported.mcp.is_empty() {
            continue;
        }
        let names: Vec<&str> = imported.mcp.keys().map(String::as_str).collect();
        let servers = format!("{} ({})", counted(names.len(), "MCP server"), names.join(", "));
        let place = path.display();
        if !asker.on {
            complain(&format!("found {servers} in {place}: --import {place} adds them"));
        } else if asker.yes(&format!("Take over {servers} from {place}? "))? {
            draft.import(&path, env)?;
        }
    }
    let mcp = ("mcp", "The URL of an MCP server (nothing: no more): ", &settings.mcp);
    let a2a = ("a2a", "The URL of an A2A agent (nothing: no more): ", &settings.a2a);
    for (section, question, urls) in [mcp, a2a] {
        for url in urls {
            draft.add(section, url, env).map_err(Failure::Usage)?;
        }
        while let Some(url) = asker.text(question)? {
            if let Err(why) = draft.add(section, &url, env) {
                complain(&why);
            }
        }
    }
    Ok(draft)
}

fn ask_workspace(asker: &mut Asker) -> Outcome<Option<String>> {
    let question = "Your MANTYX workspace (nothing: the sandbox, which needs no account): ";
    while let Some(workspace) = asker.text(question)? {
        match judge_workspace(&workspace) {
            Ok(()) => return Ok(Some(workspace)),
            Err(why) => complain(&why),
        }
    }
    Ok(None)
}

impl Draft {
    fn import(&mut self, path: &Path, env: &Environment) -> Outcome {
        self.backends.load(path, env)?;
        self.imported_files.push(path.to_owned());
        Ok(())
    }

    /// Adds the backend of `section` at `url`, under a name that its address tells.
    fn add(&mut self, section: &str, url: &str, env: &Environment) -> Result<(), String> {
        judge_url(section, url, env)?;
        let address = Url::parse(url).ok();
        let wish = match address.as_ref().and_then(Url::host) {
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None if section == "a2a" => "agent",
            _ => url,
        };
        let name = self.backends.free_name(wish);
        let backend = json!({ "url": self.backends.hide_in(&name, url) });
        let Imported { mcp, a2a, .. } = &mut self.backends;
        let backends = if section == "mcp" { mcp } else { a2a };
        backends.insert(name, backend);
        Ok(())
    }

    fn yaml(&self) -> String {
        let mut text = include_str!("init/head.yaml").to_owned();
        match &self.workspace {
            None => text.push_str(include_str!("init/sandbox.yaml")),
            Some(workspace) => {
                let upstream = include_str!("init/upstream.yaml");
                if self.has_key {
                    let kept =
                        upstream.replace("${env:MANTYX_API_KEY}", "${secret:MANTYX_API_KEY}");
                    text.push_str(&kept);
                } else {
                    text.push_str(upstream);
                }
                text.push_str(&format!("  workspace: {}\n", Value::from(workspace.as_str())));
            }
        }
        let Imported { mcp, a2a, .. } = &self.backends;
        text.push_str("\n# MCP servers by name: a `command` with `args`, or a `url`.\n");
        let empty = mcp.is_empty() && a2a.is_empty();
        if empty {
            text.push_str(include_str!("init/demo.yaml"));
        } else {
            text.push_str(&yaml("mcp", mcp));
        }
        text.push_str("\n# A2A agents by name: a `url` below which their card is.\n");
        if empty {
            text.push_str("a2a:\n  desk: {bundled: true}\n");
        } else {
            text.push_str(&yaml("a2a", a2a));
        }
        text
    }
}

/// The files where other programs keep their MCP servers on Linux.
fn usual_places(env: &Environment) -> Vec<PathBuf> {
    const OF_A_USER: &str = ".claude.json .config/Claude/claude_desktop_config.json \
                             .cursor/mcp.json .config/Code/User/mcp.json .codex/config.toml \
                             .gemini/settings.json";
    const OF_A_PROJECT: [&str; 3] = [".cursor/mcp.json", ".vscode/mcp.json", ".mcp.json"];
    let home = env.filled_var("HOME").map(Path::new);
    let users =
        home.into_iter().flat_map(|home| OF_A_USER.split(' ').map(|place| home.join(place)));
    let places = users.chain(OF_A_PROJECT.map(PathBuf::from)).filter(|path| path.is_file());
    // In the home directory, a user's file and a project's file can be the same.
    let mut distinct: Vec<PathBuf> = Vec::new();
    for place in places {
        if !distinct.iter().any(|other| same_file(other, &place)) {
            distinct.push(place);
        }
    }
    distinct
}

fn same_file(a: &Path, b: &Path) -> bool {
    fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

/// Whether a workspace can have this name; the error says why not.
fn judge_workspace(name: &str) -> Result<(), String> {
    let name = Value::from(name);
    judged(&format!("upstream: {{sandbox: true, workspace: {name}}}\n"), &Environment::bare())
}

/// Whether a backend of `section` can be at `url`; the error says why not.
fn judge_url(section: &str, url: &str, env: &Environment) -> Result<(), String> {
    let url = Value::from(url);
    judged(&format!("upstream: {{sandbox: true}}\n{section}: {{probe: {{url: {url}}}}}\n"), env)
        .map_err(|why| format!("this is no address: {why}"))
}

fn judged(text: &str, env: &Environment) -> Result<(), String> {
    let text = format!("state_dir: /nonexistent\n{text}");
    let judged = Config::parse(&text, Path::new("(what was said)"), env);
    judged.map(drop).map_err(|errors| {
        let first = errors.problems.into_iter().next();
        first
            .map(|first| [first.message, first.cure.unwrap_or_default()].join("; "))
            .unwrap_or_default()
    })
}

#[cfg(test)]
mod tests;
