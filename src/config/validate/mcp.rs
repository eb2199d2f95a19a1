//! One entry of `mcp`.
//!
//! Must not: start the program or look for it.

use std::collections::BTreeMap;

use super::auth::AuthPlace;
use super::program::{ProgramDefaults, ProgramKeys, StartKeys};
use super::web::is_socket;
use super::{Defaults, Inherited, Validator, everybody_reads, mistakes};
use crate::config::{
    At, Backend, Dialect, HttpTransport, Mcp, McpTransport, Named, Naming, NodeId, Pin, Secret,
    Target, file_format,
};
use crate::model::{BackendName, OfferMode};

/// The longest model-facing name.
const MAX_TOOL_NAME: usize = 64;

impl Validator<'_> {
    pub(super) fn mcp(
        &self,
        name: &BackendName,
        at: &At<file_format::Mcp>,
        inherited: Inherited<'_>,
    ) -> Backend {
        let At { value: entry, node } = at;
        let naming = self.naming(name, entry);
        let target = self.target(*node, entry, inherited.programs);
        let defaults = Defaults {
            pending_after: None,
            // Fewer for programs: one on pipes rarely works on more than a few calls at once.
            concurrency: if entry.command.is_some() { 4 } else { 16 },
            pin: Pin::Warn,
        };
        let target = target.map_or(Target::unresolved("mcp"), Target::Mcp);
        let backend = self.backend(name, target, &entry.common_keys(), &defaults, inherited);
        let trust_annotations = entry.trust_annotations.as_ref().is_some_and(|at| at.value);
        let approve = self.approve(entry.approve.as_ref());
        let keys = StartKeys {
            start: entry.start.as_ref(),
            idle_stop: entry.idle_stop.as_ref(),
            start_timeout: entry.start_timeout.as_ref(),
        };
        let start = self.start(&keys, inherited.programs.start);
        Backend { naming, trust_annotations, approve, start, ..backend }
    }

    fn target(
        &self,
        node: NodeId,
        entry: &file_format::Mcp,
        programs: &ProgramDefaults,
    ) -> Option<Mcp> {
        match (&entry.command, &entry.url) {
            (Some(_), Some(url)) => self.refuse(url.node.key(), mistakes::command_or_url()),
            (None, None) => self.missing(node, mistakes::no_server()),
            (Some(command), None) => {
                self.check_transport(entry, true);
                self.check_foreign_keys(
                    node,
                    &["headers", "auth", "tls", "listen", "sessions"],
                    "command",
                );
                self.stdio(command, entry, programs)
            }
            (None, Some(url)) => {
                self.check_transport(entry, false);
                let keys = [
                    "args",
                    "env",
                    "envFile",
                    "cwd",
                    "sandbox",
                    "start",
                    "idle_stop",
                    "start_timeout",
                ];
                self.check_foreign_keys(node, &keys, "url");
                self.http(url, entry)
            }
        }
    }

    fn http(&self, at: &At<String>, entry: &file_format::Mcp) -> Option<Mcp> {
        let section = entry.headers.as_ref();
        let (url, socket, own_headers) = if is_socket(at) {
            let headers = self.headers(section, Dialect::Foreign, None)?;
            let (url, socket) = self.socket_url(at, &headers)?;
            (Some(url), Some(socket), Some(headers))
        } else {
            let url = self.url(at, Dialect::Foreign);
            let headers = self.headers(section, Dialect::Foreign, url.as_deref());
            (url, None, headers)
        };
        let headers_valid = own_headers.is_some();
        let mut headers = own_headers.unwrap_or_default();
        let transport = match &entry.transport {
            None => HttpTransport::Either,
            Some(At { value: McpTransport::Sse, .. }) => HttpTransport::Sse,
            Some(_) => HttpTransport::Streamable,
        };
        let auth = entry.auth.as_ref();
        let place = if socket.is_some() { AuthPlace::Socket } else { AuthPlace::Server };
        let oauth = self.backend_auth(auth, &mut headers, url.as_deref(), place);
        let tls = self.server_tls(entry.tls.as_ref(), Dialect::Foreign, url.as_deref());
        let (url, oauth, tls) = (url.filter(|_| headers_valid)?, oauth?, tls?);
        let listen = entry.listen.as_ref().is_none_or(|at| at.value);
        let sessions = entry.sessions.as_ref().is_some_and(|at| at.value);
        Some(Mcp::Http { url, headers, socket, transport, oauth, tls, listen, sessions })
    }

    fn check_transport(&self, entry: &file_format::Mcp, is_stdio: bool) {
        let Some(at) = &entry.transport else { return };
        match (at.value, is_stdio) {
            (McpTransport::Stdio, false) => {
                self.error(at.node, mistakes::url_on_stdio());
            }
            (McpTransport::StreamableHttp | McpTransport::Http | McpTransport::Sse, true) => {
                self.error(at.node, mistakes::command_on_stdio());
            }
            _ => (),
        }
    }

    fn stdio(
        &self,
        command: &At<String>,
        entry: &file_format::Mcp,
        programs: &ProgramDefaults,
    ) -> Option<Mcp> {
        let keys = ProgramKeys {
            command,
            args: entry.args.as_ref().map(|at| at.value.as_slice()).unwrap_or_default(),
            env_file: entry.env_file.as_ref(),
            env: entry.env.as_ref(),
            cwd: entry.cwd.as_ref(),
            sandbox: entry.sandbox.as_ref(),
        };
        self.program(&keys, Dialect::Foreign, programs).map(Mcp::Stdio)
    }

    /// NAME=value lines, as VS Code and Cursor read them: blank lines and # comments are skipped.
    pub(super) fn env_file(&self, at: &At<String>) -> Option<BTreeMap<String, Secret>> {
        let path = self.path_in(at, Dialect::Foreign)?;
        let cure = "write NAME=value lines into it, or leave it out";
        let file = self.file(at.node, &path, cure)?;
        if file.mode & 0o004 != 0 {
            self.warn(at.node, everybody_reads(&path));
        }
        let mut env = BTreeMap::new();
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let assignment = line.strip_prefix("export ").unwrap_or(line);
            let Some((name, value)) = assignment.split_once('=') else {
                return self.outside(None, || {
                    self.refuse(at.node, mistakes::no_assignment(path.display(), number + 1))
                });
            };
            let value = value.trim();
            let quoted = ['"', '\''].iter().find_map(|&quote| {
                value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
            });
            env.insert(name.trim().to_owned(), quoted.unwrap_or(value).to_owned().into());
        }
        Some(env)
    }

    fn naming(&self, name: &BackendName, entry: &file_format::Mcp) -> Naming {
        let tools = entry.tools.as_ref();
        let filter = tools.map(|tools| self.tool_filter(tools.allow.as_ref(), tools.deny.as_ref()));
        Naming {
            prefix: self.prefix(name, entry.prefix.as_ref()),
            tools: filter.unwrap_or_default(),
            rename: self.rename(tools.and_then(|tools| tools.rename.as_ref())),
            offer: entry.offer.as_ref().map_or(OfferMode::All, |at| at.value),
            always: entry.always.as_ref().map(|at| self.plain_globs(at)).unwrap_or_default(),
        }
    }

    fn prefix(&self, name: &BackendName, at: Option<&At<String>>) -> String {
        let Some(At { value: prefix, node }) = at else { return format!("{name}_") };
        if !prefix.chars().all(is_tool_char) || prefix.len() > BackendName::MAX_LEN + 1 {
            self.error(*node, mistakes::bad_prefix(prefix));
        }
        prefix.clone()
    }

    fn rename(&self, section: Option<&Named<String>>) -> BTreeMap<String, String> {
        let mut rename: BTreeMap<String, String> = BTreeMap::new();
        for (old, At { value: new, node }) in section.iter().flat_map(|at| &at.value) {
            if new.is_empty() || new.len() > MAX_TOOL_NAME || !new.chars().all(is_tool_char) {
                self.error(*node, mistakes::tool_name(new, MAX_TOOL_NAME));
            }
            if let Some((first, _)) = rename.iter().find(|(_, other)| *other == new) {
                self.error(*node, mistakes::renamed_already(first, new));
            }
            rename.insert(old.clone(), new.clone());
        }
        rename
    }
}

fn is_tool_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
