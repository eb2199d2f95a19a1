//! The bridge as an entry of another program's list of MCP servers.
//!
//! Must not: have a token in it. `mantyx-bridge mcp` finds that through bridge.yaml.

use std::path::{Path, PathBuf, absolute};

use clap::Args;
use serde_json::{Value, json};

use super::Product;
use crate::cli::edit::json::on_lines;
use crate::cli::{Outcome, complain, print as print_text, print_json};
use crate::config::{Environment, find};

/// The bridge's name in those lists.
pub(in crate::cli) const NAME: &str = "bridge";

/// What starts the bridge as an MCP server, from any directory.
pub(super) struct Entry {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// The bridge.yaml that it names.
    pub(super) config: PathBuf,
}

/// Whose rights the client gets, and which part of them.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct Options {
    /// The app of bridge.yaml whose rights the client gets, in place of the one that may use most
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) app: Option<String>,
    /// The backends that the client sees, of those that the app may use: `fs,hr`
    #[arg(long, value_name = "NAMES")]
    pub(in crate::cli) backends: Option<String>,
}

impl Entry {
    pub(super) fn new(
        config: Option<&Path>,
        options: &Options,
        env: &Environment,
    ) -> Outcome<Self> {
        // `./bridge.yaml` becomes a path with a dot in it, which `components` leaves out.
        let path: PathBuf = absolute(find(config, env)?)?.components().collect();
        let mut args = vec!["mcp".to_owned(), "-c".to_owned(), path.display().to_string()];
        for (option, value) in [("--app", &options.app), ("--backends", &options.backends)] {
            if let Some(value) = value {
                args.extend([option.to_owned(), value.clone()]);
            }
        }
        // The program's PATH may be another one than that of this shell.
        let own = env.own_program.as_ref().map(|path| path.display().to_string());
        let command = own.unwrap_or_else(|| "mantyx-bridge".to_owned());
        Ok(Self { command, args, config: path })
    }

    /// The entry as Codex writes it. A JSON text is a TOML text in double quotes.
    pub(super) fn toml(&self) -> String {
        let [command, args] = [json!(self.command), json!(self.args)];
        format!("[mcp_servers.{NAME}]\ncommand = {command}\nargs = {args}\n")
    }

    /// The entry as this program writes it.
    pub(super) fn json(&self, product: Product) -> Value {
        let mut entry = json!({ "command": self.command, "args": self.args });
        if product.writes_type() {
            entry["type"] = "stdio".into();
        }
        entry
    }
}

/// `--print`: the entry on stdout, and on stderr where it goes.
pub(in crate::cli) fn print(
    product: Product,
    config: Option<&Path>,
    options: &Options,
    env: &Environment,
) -> Outcome {
    let entry = Entry::new(config, options, env)?;
    match product.json_key() {
        Some(key) => {
            let list = json!({ key: { NAME: entry.json(product) } });
            print_json(&format!("{}\n", on_lines(&list)))?;
        }
        None => print_text(&entry.toml())?,
    }
    let title = product.title();
    if let Some(file) = product.file(env) {
        complain(&format!(
            "This goes into {}. `mantyx-bridge connect {}` puts it there.",
            file.display(),
            product.word()
        ));
    } else {
        complain(&format!("This goes into the list of MCP servers of {title}."));
    }
    Ok(())
}
