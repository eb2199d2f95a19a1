//! The contents of the file.
//!
//! Must not: read or ask for anything.

use std::fmt::Write as _;

use crate::cli::import::{Imported, yaml};

/// The file's contents before they are written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) sandbox: bool,
    pub(super) workspace: Option<String>,
    /// The MCP servers, and all taken names.
    pub(super) imported: Imported,
    /// A2A agents: names and addresses.
    pub(super) agents: Vec<(String, String)>,
}

impl Draft {
    pub(super) fn yaml(&self) -> String {
        let mut text = String::from(
            "# Written by `mantyx-bridge init`. `mantyx-bridge check` says what it would start, or what\n\
             # is wrong with it and where; the bridge.yaml of the repository explains every setting.\n\n\
             # Where the bridge listens: the base URL of your apps, in place of MANTYX's.\n\
             listen: 127.0.0.1:7717\n\n",
        );
        let workspace = self.workspace.as_deref().map(yaml::scalar);
        if self.sandbox {
            text.push_str(
                "# A MANTYX inside the bridge, whose model is scripted: a prompt line `tool_name {json}`\n\
                 # is a tool call. For the real one, write workspace and credential:\n\
                 # upstream: {workspace: acme, credential: \"${env:MANTYX_API_KEY}\"}\n\
                 upstream:\n  sandbox: true\n",
            );
        } else {
            text.push_str(
                "# The MANTYX that the bridge stands in front of. The key is read where the bridge is\n\
                 # started; ${file:/path} and ${cred:NAME} are other ways to name it.\n\
                 upstream:\n  credential: ${env:MANTYX_API_KEY}\n",
            );
        }
        if let Some(workspace) = workspace {
            line(&mut text, format_args!("  workspace: {workspace}"));
        }
        let empty = self.imported.count() == 0 && self.agents.is_empty();
        text.push_str("\n# MCP servers by name: a `command` with `args`, or a `url`.\n");
        match empty {
            true => text.push_str(
                "mcp:\n  # The example server inside the bridge, until you have your own.\n  demo:\n    \
                 command: mantyx-bridge\n    args: [demo-mcp-server]\n",
            ),
            false => text.push_str(&self.imported.yaml()),
        }
        text.push_str("\n# A2A agents by name: a `url` below which their card is.\n");
        if self.agents.is_empty() {
            let example = if empty { "a2a:\n  desk: {bundled: true}\n" } else { "" };
            text.push_str(example);
            text.push_str("# a2a:\n#   hr: {url: \"https://hr.intranet.example\"}\n");
        } else {
            text.push_str("a2a:\n");
        }
        for (name, url) in &self.agents {
            line(
                &mut text,
                format_args!("  {}:\n    url: {}", yaml::scalar(name), yaml::scalar(url)),
            );
        }
        text
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
