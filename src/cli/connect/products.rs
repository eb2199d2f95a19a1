//! The programs that `connect` knows: where each keeps its list of MCP servers, and its own command
//! for changing it.
//!
//! Must not: start a program, or change a file.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::entry::{Entry, NAME};
use crate::cli::commands::which;
use crate::cli::edit::file::OwnFile;
use crate::cli::edit::json::on_one_line;
use crate::cli::import::formats;
use crate::config::Environment;

/// A program with a list of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Product {
    /// Claude Desktop; Claude Code where only that is on this machine
    Claude,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
}

impl Product {
    /// The program that is meant here: a person with Claude Code alone calls it Claude.
    pub(super) fn on_this_machine(self, env: &Environment) -> Self {
        match self {
            Self::Claude if !self.has_directory(env) && which("claude", env).is_some() => {
                Self::ClaudeCode
            }
            product => product,
        }
    }

    /// Whether the directory of its file is there.
    fn has_directory(self, env: &Environment) -> bool {
        self.file(env).is_some_and(|file| file.parent().is_some_and(Path::is_dir))
    }

    /// The word for it on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// The name of its own program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude-desktop",
            Self::ClaudeCode => "claude",
            Self::Cursor => "cursor",
            Self::Vscode => "code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// Its file of the user's servers.
    pub(super) fn file(self, env: &Environment) -> Option<PathBuf> {
        let home = env.directory("HOME");
        let in_home = |path: &str| Some(home.as_ref()?.join(path));
        let config = env.users_directory("XDG_CONFIG_HOME", ".config");
        match self {
            Self::Claude => Some(config?.join("Claude/claude_desktop_config.json")),
            Self::ClaudeCode => match env.directory("CLAUDE_CONFIG_DIR") {
                Some(directory) => Some(directory.join(".claude.json")),
                None => in_home(".claude.json"),
            },
            Self::Cursor => in_home(".cursor/mcp.json"),
            Self::Vscode => Some(config?.join("Code/User/mcp.json")),
            Self::Codex => match env.directory("CODEX_HOME") {
                Some(directory) => Some(directory.join("config.toml")),
                None => in_home(".codex/config.toml"),
            },
            Self::Gemini => in_home(".gemini/settings.json"),
        }
    }

    /// The key of the servers in the file; `None` if that is not JSON.
    pub(super) fn json_key(self) -> Option<&'static str> {
        match self {
            Self::Codex => None,
            Self::Vscode => Some("servers"),
            _ => Some("mcpServers"),
        }
    }

    /// The file that can be changed, and its key, if the program is on this machine: it makes the
    /// directory, and Claude Code the file.
    pub(super) fn json_file(self, env: &Environment) -> Option<(PathBuf, &'static str)> {
        let key = self.json_key()?;
        let file = self.file(env)?;
        match self {
            Self::ClaudeCode if file.symlink_metadata().is_err() => None,
            _ if !self.has_directory(env) => None,
            _ => Some((file, key)),
        }
    }

    /// Its file, if that is no JSON: only the program itself changes it.
    pub(super) fn foreign_file(self, env: &Environment) -> Option<PathBuf> {
        if self.json_key().is_none() { self.file(env) } else { None }
    }

    /// Where the program was looked for.
    pub(super) fn places(self, env: &Environment) -> String {
        let program = format!("the command `{}`", self.program());
        match (self.json_key(), self.file(env)) {
            (Some(_), Some(file)) => format!("{program} nor {}", file.display()),
            _ => program.replacen("the command", "a command", 1) + " on the PATH",
        }
    }

    pub(super) fn writes_type(self) -> bool {
        matches!(self, Self::Vscode | Self::ClaudeCode)
    }

    /// Its command that adds the entry.
    pub(super) fn add_command(self, entry: &Entry) -> Option<Vec<String>> {
        let mut words: Vec<&str> = match self {
            Self::ClaudeCode => vec!["claude", "mcp", "add-json", "--scope", "user", NAME],
            Self::Codex => vec!["codex", "mcp", "add", NAME, "--"],
            Self::Gemini => vec!["gemini", "mcp", "add", "--scope", "user", NAME],
            Self::Vscode => vec!["code", "--add-mcp"],
            Self::Claude | Self::Cursor => return None,
        };
        let mut server = entry.json(self);
        if self == Self::Vscode {
            server["name"] = NAME.into();
        }
        let json = on_one_line(&server);
        match self {
            Self::ClaudeCode | Self::Vscode => words.push(&json),
            _ => {
                words.push(&entry.command);
                words.extend(entry.args.iter().map(String::as_str));
            }
        }
        Some(words.into_iter().map(str::to_owned).collect())
    }

    /// What a person needs to know before the program starts the bridge.
    pub(super) fn condition(self) -> Option<&'static str> {
        match self {
            Self::Gemini => Some(
                "Gemini CLI starts MCP servers only in folders that you trust; it asks when you \
                 start `gemini` in one. In any other folder, `gemini mcp list` shows the bridge as \
                 Disabled",
            ),
            _ => None,
        }
    }

    /// Its command that removes the entry.
    pub(super) fn remove_command(self) -> Option<Vec<String>> {
        let words = match self {
            Self::ClaudeCode => vec!["claude", "mcp", "remove", "--scope", "user", NAME],
            Self::Codex => vec!["codex", "mcp", "remove", NAME],
            Self::Gemini => vec!["gemini", "mcp", "remove", "--scope", "user", NAME],
            Self::Claude | Self::Cursor | Self::Vscode => return None,
        };
        Some(words.into_iter().map(str::to_owned).collect())
    }

    /// How a person removes a server there.
    pub(super) fn removal_hint(self, env: &Environment) -> String {
        match (self.remove_command(), self.file(env)) {
            (Some(mut words), _) => {
                words.pop();
                format!(": {} NAME", words.join(" "))
            }
            (None, Some(file)) => format!(", in {}", file.display()),
            (None, None) => String::new(),
        }
    }

    /// The user's servers in its file; none if it cannot be read.
    pub(super) fn servers(self, env: &Environment) -> Map<String, Value> {
        let Some(path) = self.file(env) else { return Map::new() };
        let text = OwnFile::read(&path, "").map(|file| file.text).unwrap_or_default();
        let mut members = formats::parse(&path, &text).unwrap_or_default();
        match members.remove(self.json_key().unwrap_or("mcp_servers")) {
            Some(Value::Object(servers)) => servers,
            _ => Map::new(),
        }
    }
}
