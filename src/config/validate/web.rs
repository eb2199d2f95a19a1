//! URLs, headers and TLS files of backends, and unix sockets: the length of their paths, and the
//! address of an MCP server on one: `unix:/run/x.sock`, `unix:/run/x.sock:/path`, or
//! `unix:///run/x.sock#/path`.
//!
//! Must not: connect, resolve a host name, show a header's value or what a file holds, or check
//! that a socket exists; its server may start later.

use std::path::{Path, PathBuf};

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use super::{Validator, everybody_reads, mistakes, optional, plain_secret};
use crate::config::reference::looks_secret;
use crate::config::{At, Dialect, Named, NodeId, Scalar, Written, file_format};
use crate::http_client::{Tls, TlsFlaw, names_link_local, sensitive};

/// The addresses of MCP servers on unix sockets, as nginx writes them.
const SCHEME: &str = "unix:";

/// The host in the URL, if the file has none.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PATH: &str = "/mcp";

/// The longest path that fits a socket's address on Linux.
const MAX_PATH: usize = 107;

/// How to name the right file, for the message about a wrong one.
const CERTIFICATES: &str = "name a file with certificates in PEM (-----BEGIN CERTIFICATE-----)";
const KEY: &str = "name the file with the key of `cert`, in PEM and without a passphrase";

/// A named file and its text.
struct Pem {
    node: NodeId,
    path: PathBuf,
    text: String,
}

impl Validator<'_> {
    /// The address of a backend.
    pub(super) fn url(&self, at: &At<String>, dialect: Dialect) -> Option<Written<Url>> {
        let (text, template) = self.resolve(at.node, &at.value, dialect)?;
        let reference = template.to_string();
        let url = self.outside(Some(&template), || self.checked_url(at.node, &text, &reference))?;
        if !template.is_plain() {
            return Some(self.written(url, reference));
        }
        let display = without_secret_query(&url);
        if display != url.as_str() {
            self.warn(at.node, plain_secret("a query parameter"));
        }
        Some(self.written(url, display))
    }

    /// [`Self::url`] of what gets a secret: warns if others on the network path could read it.
    pub(super) fn private_url(&self, at: &At<String>, warning: &str) -> Option<Written<Url>> {
        let url = self.url(at, Dialect::Own)?;
        if is_in_the_open(&url) {
            self.warn(at.node, warning);
        }
        Some(url)
    }

    /// Checks a resolved URL; messages have `shown` in its place.
    pub(super) fn checked_url(&self, node: NodeId, text: &str, shown: &str) -> Option<Url> {
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                return self.refuse(node, mistakes::no_scheme(shown));
            }
            Err(error) => {
                return self.refuse(node, mistakes::no_url(shown, error));
            }
        };
        // First of all, since any other message would show the password.
        if !url.username().is_empty() || url.password().is_some() {
            return self.refuse(node, mistakes::user_in_url());
        }
        if !matches!(url.scheme(), "http" | "https") {
            return match url.host() {
                // Do not show the scheme of a resolved reference.
                Some(_) if !shown.contains("${") => {
                    self.refuse(node, mistakes::no_http(url.scheme()))
                }
                _ => self.refuse(node, mistakes::no_server_url(shown)),
            };
        }
        if names_link_local(&url) {
            self.error(node, mistakes::link_local(shown));
        }
        if url.fragment().is_some() {
            self.error(node, mistakes::fragment());
        }
        Some(url)
    }

    /// Reads the address of an MCP server on a unix socket: the URL to request, and the socket.
    /// `headers` are those of its requests.
    pub(super) fn socket_url(
        &self,
        at: &At<String>,
        headers: &HeaderMap,
    ) -> Option<(Written<Url>, PathBuf)> {
        let (text, template) = self.resolve(at.node, &at.value, Dialect::Foreign)?;
        let address = text.strip_prefix(SCHEME).unwrap_or_default();
        // `unix:///run/x.sock` is a URL for the same place.
        let place = address.strip_prefix("//").unwrap_or(address);
        let split = [":/", "#/"].iter().filter_map(|mark| place.split_once(mark));
        let (socket, path) = match split.min_by_key(|(socket, _)| socket.len()) {
            Some((socket, path)) => (socket, Some(format!("/{path}"))),
            None => (place, None),
        };
        if socket.is_empty() || socket.contains('\0') {
            return self.refuse(at.node, mistakes::no_socket());
        }
        self.check_shell(at.node, socket);
        let socket = self.directory.join(socket);
        self.check_socket_path(at.node, &socket);
        // The `Host` header, so that redirects to it stay with the server.
        let host = headers.get(HOST).map_or(DEFAULT_HOST, |host| host.to_str().unwrap_or_default());
        let path = path.as_deref().unwrap_or(DEFAULT_PATH);
        let Ok(url) = Url::parse(&format!("http://{host}{path}")) else {
            return self.refuse(at.node, mistakes::no_socket_url());
        };
        if url.fragment().is_some() {
            self.error(at.node, mistakes::fragment());
        }
        if !template.is_plain() {
            return Some((self.written(url, template.to_string()), socket));
        }
        if without_secret_query(&url) == url.as_str() {
            return Some((Written::new(url, text), socket));
        }
        self.warn(at.node, plain_secret("a query parameter"));
        Some((self.written(url, format!("unix:{}:…", socket.display())), socket))
    }

    pub(super) fn check_socket_path(&self, node: NodeId, path: &Path) {
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            self.error(node, mistakes::socket_path(length, MAX_PATH));
        }
    }

    /// The TLS settings of the server at `url`. `None` outside: a mistake was reported.
    pub(super) fn server_tls(
        &self,
        section: Option<&At<file_format::ServerTls>>,
        dialect: Dialect,
        url: Option<&Url>,
    ) -> Option<Option<Tls>> {
        let Some(At { value: tls, node }) = section else { return Some(None) };
        if url.is_some_and(|url| url.scheme() != "https") {
            return self.refuse(node.key(), mistakes::tls_without_https());
        }
        match (&tls.ca, &tls.cert, &tls.key) {
            (None, None, None) => {
                return self.missing(*node, mistakes::empty_tls());
            }
            (_, Some(lone), None) | (_, None, Some(lone)) => {
                return self.refuse(lone.node.key(), mistakes::cert_and_key());
            }
            _ => (),
        }
        let ca = optional(&tls.ca, |at| self.pem(at, dialect, false, CERTIFICATES));
        let cert = optional(&tls.cert, |at| self.pem(at, dialect, false, CERTIFICATES));
        let key = optional(&tls.key, |at| self.pem(at, dialect, true, KEY));
        let (ca, cert, key) = (ca?, cert?, key?);
        let identity = match (&cert, &key) {
            (Some(cert), Some(key)) => Some((cert.text.as_str(), key.text.as_str())),
            _ => None,
        };
        let flaw = match Tls::read(ca.as_ref().map(|ca| ca.text.as_str()), identity) {
            Ok(tls) => return Some(Some(tls)),
            Err(flaw) => flaw,
        };
        let (file, why, cure) = match flaw {
            TlsFlaw::Authority(why) => (ca, why, CERTIFICATES),
            TlsFlaw::Certificate(why) => (cert, why, CERTIFICATES),
            TlsFlaw::Key(why) => (key, why, KEY),
        };
        let Pem { node, path, .. } = file?;
        self.outside(None, || self.refuse(node, mistakes::unusable(path.display(), why, cure)))
    }

    fn pem(
        &self,
        at: &At<String>,
        dialect: Dialect,
        is_secret: bool,
        cure: &'static str,
    ) -> Option<Pem> {
        let path = self.path_in(at, dialect)?;
        let file = self.file(at.node, &path, cure)?;
        if is_secret && file.mode & 0o004 != 0 {
            self.warn(at.node, everybody_reads(&path));
        }
        if is_secret {
            self.findings.borrow_mut().secret_files.push(path.clone());
        }
        Some(Pem { node: at.node, path, text: file.text })
    }

    /// The headers of a backend at `url`, their values marked sensitive.
    pub(super) fn headers(
        &self,
        section: Option<&Named<Scalar>>,
        dialect: Dialect,
        url: Option<&Url>,
    ) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let Some(section) = section else { return Some(headers) };
        let mut complete = true;
        for (name, at) in &section.value {
            let Some((name, value)) = self.header(name, at, dialect) else {
                complete = false;
                continue;
            };
            if headers.contains_key(&name) {
                self.error(at.node.key(), mistakes::header_twice(&name));
            }
            if url.is_some_and(is_in_the_open) && looks_secret(name.as_str()) {
                let message = format!("`{name}` travels without TLS; write https:// in the URL");
                self.warn(at.node, message);
            }
            headers.insert(name, value);
        }
        if complete { Some(headers) } else { None }
    }

    fn header(
        &self,
        name: &str,
        at: &At<Scalar>,
        dialect: Dialect,
    ) -> Option<(HeaderName, HeaderValue)> {
        let Ok(parsed) = name.parse::<HeaderName>() else {
            return self.refuse(at.node.key(), mistakes::header_name(name));
        };
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE].contains(&parsed) {
            return self.refuse(at.node.key(), mistakes::header_of_connection(name));
        }
        let (value, template) = self.resolve(at.node, &at.value.0, dialect)?;
        let Ok(header) = sensitive(&value) else {
            return self
                .outside(Some(&template), || self.refuse(at.node, mistakes::header_value(name)));
        };
        self.keep_secret(&value);
        // Also without its scheme.
        self.keep_secret(value.rsplit(' ').next().unwrap_or_default());
        if template.is_plain() && !value.is_empty() && looks_secret(name) {
            self.warn(at.node, plain_secret(&format!("the header {name}")));
        }
        Some((parsed, header))
    }
}

pub(super) fn is_socket(url: &At<String>) -> bool {
    url.value.starts_with(SCHEME)
}

/// Whether others on the network path can read requests to `url`.
pub(super) fn is_in_the_open(url: &Url) -> bool {
    url.scheme() == "http" && !names_loopback(url)
}

fn names_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// The URL without the values of secret query parameters.
fn without_secret_query(url: &Url) -> String {
    let Some(query) = url.query() else { return url.to_string() };
    let pairs: Vec<String> = query.split('&').map(without_secret_value).collect();
    let mut display = url.clone();
    display.set_query(Some(&pairs.join("&")));
    display.into()
}

fn without_secret_value(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) if looks_secret(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    }
}
