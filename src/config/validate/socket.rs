//! Unix sockets: the length of their paths, and the address of an MCP server on one,
//! `unix:/run/x.sock` or `unix:/run/x.sock:/path`, as nginx writes it.
//!
//! Must not: check that the socket exists; its server may start later.

use std::path::{Path, PathBuf};

use http::HeaderMap;
use http::header::HOST;
use url::Url;

use super::Validator;
use super::web::without_secret_query;
use crate::config::{At, Dialect, NodeId, Written};

const SCHEME: &str = "unix:";
const FORM: &str = "write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp";

/// The host in the URL, if the file has none.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PATH: &str = "/mcp";

/// The longest path that fits a socket's address on Linux.
const MAX_PATH: usize = 107;

pub(super) fn is_socket(url: &At<String>) -> bool {
    url.value.starts_with(SCHEME)
}

impl Validator<'_> {
    /// Reads the address of an MCP server on a unix socket: the URL to request, and the socket.
    /// `headers` are those of its requests.
    pub(super) fn socket_url(
        &self,
        at: &At<String>,
        headers: &HeaderMap,
    ) -> Option<(Written<Url>, PathBuf)> {
        let (text, template) = self.resolve(at.node, &at.value, Dialect::Foreign)?;
        let place = text.strip_prefix(SCHEME).unwrap_or_default();
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
        // The `Host` header, so that redirects to it stay with the server.
        let host = headers.get(HOST).map_or(DEFAULT_HOST, |it| it.to_str().unwrap_or_default());
        let path = path.as_deref().unwrap_or(DEFAULT_PATH);
        let Ok(url) = Url::parse(&format!("http://{host}{path}")) else {
            let message = "what follows the socket is no path of a URL, or `Host` is no host";
            return self.refuse(at.node, message, FORM);
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

    pub(super) fn check_socket_path(&self, node: NodeId, path: &Path) {
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            let message = format!("the path has {length} bytes");
            self.error(node, message, format!("a unix socket's path has at most {MAX_PATH}"));
        }
    }
}
