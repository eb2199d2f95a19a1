//! Unix sockets: the length of their paths, and the address of an MCP server on one,
//! `unix:/run/x.sock` or `unix:/run/x.sock:/path`, as nginx writes it.
//!
//! Must not: check that the socket exists; its server may start later.

use std::path::{Path, PathBuf};

use http::{HeaderMap, header::HOST};
use url::Url;

use super::{Validator, web::without_secret_query};
use crate::config::{Written, deserialize::At, document::NodeId, file_format, reference::Dialect};

const SCHEME: &str = "unix:";
/// The scheme of other programs for such an address, with the socket's path percent-encoded.
const OTHER_SCHEME: &str = "http+unix:";
const FORM: &str = "write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp";

/// The host in the URL, if the file has none.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PATH: &str = "/mcp";

/// The longest path that fits a socket's address on Linux.
const MAX_PATH: usize = 107;

pub(super) fn is_socket(url: &At<String>) -> bool {
    url.value.starts_with(SCHEME) || url.value.starts_with(OTHER_SCHEME)
}

impl Validator<'_> {
    /// Reads the address of an MCP server on a unix socket: the URL to request, and the socket.
    /// `headers` are those of its requests.
    pub(super) fn socket_url(
        &self,
        at: &At<String>,
        entry: &file_format::Mcp,
        headers: &HeaderMap,
    ) -> Option<(Written<Url>, PathBuf)> {
        let (text, template) = self.resolve(at.node, &at.value, Dialect::Foreign)?;
        let Some(place) = text.strip_prefix(SCHEME) else {
            return self.refuse(at.node, "the address of a unix socket is written otherwise", FORM);
        };
        // `unix:///run/x.sock` is a URL for the same place.
        let place = place.strip_prefix("//").unwrap_or(place);
        let (socket, path) = match place.split_once(":/") {
            Some((socket, path)) => (socket, Some(format!("/{path}"))),
            None => (place, None),
        };
        if socket.is_empty() || socket.contains('\0') {
            return self.refuse(at.node, "this names no unix socket", FORM);
        }
        let socket = self.directory.join(socket);
        self.check_socket_path(at.node, &socket);
        let host = self.host(entry, headers)?;
        let path = path.as_deref().unwrap_or(DEFAULT_PATH);
        let Ok(url) = Url::parse(&format!("http://{host}{path}")) else {
            return self.refuse(at.node, "what follows the socket is no path of a URL", FORM);
        };
        if url.fragment().is_some() {
            self.error(at.node, "a fragment is never sent", "leave out what follows the `#`");
        }
        if !template.is_plain() {
            return Some((self.written(url, template.to_string()), socket));
        }
        let (_, hidden) = without_secret_query(&url);
        if !hidden {
            return Some((Written::new(url, text), socket));
        }
        self.warn(at.node, super::plain_secret("a query parameter"));
        let shown = format!("unix:{}:…", socket.display());
        Some((self.written(url, shown), socket))
    }

    /// The host of the requests: the `Host` header, so that redirects to it stay with the server.
    fn host(&self, entry: &file_format::Mcp, headers: &HeaderMap) -> Option<String> {
        let Some(host) = headers.get(HOST) else { return Some(DEFAULT_HOST.to_owned()) };
        let host = host.to_str().unwrap_or_default();
        let is_host = Url::parse(&format!("http://{host}/")).is_ok_and(|url| {
            url.path() == "/" && url.query().is_none() && url.username().is_empty()
        });
        if !is_host || host.contains(['/', '?', '#', '@']) {
            let written = entry.headers.iter().flat_map(|section| &section.value);
            for (_, at) in written.filter(|(name, _)| name.eq_ignore_ascii_case(HOST.as_str())) {
                self.error(at.node, "this is no host", "write NAME or NAME:PORT: localhost:80");
            }
            return None;
        }
        Some(host.to_owned())
    }

    pub(super) fn check_socket_path(&self, node: NodeId, path: &Path) {
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            self.error(
                node,
                format!("the path has {length} bytes"),
                format!("a unix socket's path has at most {MAX_PATH}"),
            );
        }
    }
}
