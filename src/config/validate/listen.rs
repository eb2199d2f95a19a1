//! `listen` and `auth`.
//!
//! Must not: open a socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use url::Url;

use super::{Validator, everybody_reads, mistakes, optional};
use crate::clock;
use crate::config::environment::SmallFile;
use crate::config::{At, Auth, Dialect, Files, Listen, ListenValue, NodeId, file_format};
use crate::tls::certificate::Validity;
use crate::tls::files::Which;

const DEFAULT_PORT: u16 = 7717;

/// `::1`, as the kernel lists it.
const IPV6_LOOPBACK: &str = "00000000000000000000000000000001";

/// Whether `address` exists on every machine with IPv6, and on no other.
pub fn only_with_ipv6(address: SocketAddr) -> bool {
    address.is_ipv6() && (address.ip().is_loopback() || address.ip().is_unspecified())
}

impl Validator<'_> {
    pub(super) fn listen(&self, section: Option<&At<ListenValue>>) -> Option<Listen> {
        let Some(At { value, node }) = section else {
            let tcp = vec![(Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()];
            return Some(Listen { by_default: true, ..on(tcp) });
        };
        match value {
            ListenValue::Short(addresses) => Some(on(self.addresses(*node, addresses, false)?)),
            ListenValue::Map(map) => {
                let tcp = match &map.tcp {
                    Some(at) => self.addresses(at.node, &at.value.0, map.tls.is_some()),
                    None => Some(Vec::new()),
                };
                let tls = optional(&map.tls, |at| self.tls(at, map.tcp.is_some()));
                let names = map.hosts.iter().flat_map(|at| &at.value);
                let hosts = names.filter_map(|at| self.host_name(at)).collect();
                let unix = optional(&map.unix, |at| self.unix(at))?;
                if map.tcp.is_none() && map.unix.is_none() {
                    self.missing::<()>(*node, mistakes::listens_nowhere());
                }
                let public_url = optional(&map.public_url, |at| self.public_url(at))?;
                Some(Listen { unix, tls: tls?, hosts, public_url, ..on(tcp?) })
            }
        }
    }

    fn tls(&self, at: &At<file_format::Tls>, has_tcp: bool) -> Option<Files> {
        let file_format::Tls { cert, key, client_ca } = &at.value;
        let cert = self.listener_file(at.node, cert, "cert");
        let key = self.listener_file(at.node, key, "key");
        let client_ca = optional(client_ca, |at| self.path(at))?;
        if !has_tcp {
            self.error(at.node.key(), mistakes::no_tcp());
        }
        Some(Files { cert: cert?, key: key?, client_ca })
    }

    /// The path below `key` in the map `tls`, which must have it.
    fn listener_file(&self, tls: NodeId, at: &Option<At<String>>, key: &str) -> Option<PathBuf> {
        self.path(self.needed(tls, at, mistakes::no_listener_file(key))?)
    }

    /// Checks that the files of `tls` can be used.
    pub(super) fn check_tls(&self, section: Option<&At<ListenValue>>, listen: Option<&Listen>) {
        let Some(At { value: ListenValue::Map(map), .. }) = section else { return };
        let Some((At { value: section, node }, listen)) = map.tls.as_ref().zip(listen) else {
            return;
        };
        let Some(files) = &listen.tls else { return };
        let place = |which| {
            let file = match which {
                Which::Cert => &section.cert,
                Which::Key => &section.key,
                Which::ClientCa => &section.client_ca,
            };
            file.as_ref().map_or(*node, |at| at.node)
        };
        if let Ok(SmallFile { mode, .. }) = self.env.read(&files.key)
            && mode & 0o007 != 0
        {
            self.warn(place(Which::Key), everybody_reads(&files.key));
        }
        let facts = match files.load(|path| Ok(self.env.read(path)?.text)) {
            Ok(settings) => settings.facts,
            Err(error) => {
                return self.error(place(error.which), mistakes::as_said(&error, error.cure));
            }
        };
        let until = humantime::format_rfc3339_seconds(facts.not_after);
        let warning = match facts.validity(clock::now()) {
            Validity::Good => return,
            Validity::Ending => format!("the certificate ends on {until}"),
            Validity::Ended => format!("the certificate ended on {until}; clients refuse it"),
        };
        self.warn(place(Which::Cert), warning);
    }

    /// A name of the bridge, in lower case.
    fn host_name(&self, at: &At<String>) -> Option<String> {
        let text = self.open_text(at.node, &at.value, Dialect::Own)?.to_ascii_lowercase();
        let url = Url::parse(&format!("https://{text}/")).ok().filter(|url| {
            let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            bare && url.username().is_empty() && url.password().is_none()
        });
        let host = url.as_ref().and_then(Url::host_str);
        // As it is written, since `Host` is compared with this text.
        if host.is_none_or(|host| !text.starts_with(host) || host.contains('*')) {
            return self.refuse(at.node, mistakes::host_name(&at.value));
        }
        Some(text)
    }

    /// The address of the bridge for browsers: an origin, as the bridge serves no path below
    /// another one.
    fn public_url(&self, at: &At<String>) -> Option<Url> {
        let text = self.open_text(at.node, &at.value, Dialect::Own)?;
        let url = self.checked_url(at.node, &text, &text)?;
        if url.path() != "/" || url.query().is_some() {
            return self.refuse(at.node, mistakes::public_url(&text));
        }
        Some(url)
    }

    pub(super) fn auth(&self, section: Option<&At<Auth>>, listen: Option<&Listen>) -> Auth {
        let Some(At { value: Auth::Off, node }) = section else { return Auth::Token };
        let addresses = listen.map(|listen| listen.tcp.as_slice()).unwrap_or_default();
        if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
            self.error(*node, mistakes::is_open(open));
        }
        Auth::Off
    }

    fn addresses(
        &self,
        node: NodeId,
        items: &[At<String>],
        has_tls: bool,
    ) -> Option<Vec<SocketAddr>> {
        if items.is_empty() {
            self.missing::<()>(node, mistakes::no_address());
        }
        let mut addresses = Vec::new();
        let mut complete = true;
        for at in items {
            match self.address(at, has_tls) {
                Some(address) if address.port() != 0 && addresses.contains(&address) => {
                    self.error(at.node, mistakes::address_twice(address));
                }
                Some(address) => addresses.push(address),
                None => complete = false,
            }
        }
        if complete { Some(addresses) } else { None }
    }

    fn address(&self, At { value: text, node }: &At<String>, has_tls: bool) -> Option<SocketAddr> {
        let resolved = self.open_text(*node, text, Dialect::Own)?;
        let address = match resolved.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into()),
            None => resolved.parse::<SocketAddr>().ok(),
        };
        let Some(address) = address else {
            let port = resolved.rsplit(':').next().and_then(|port| port.parse::<u64>().ok());
            if let Some(port) = port.filter(|port| *port > 65_535) {
                return self.refuse(*node, mistakes::no_port(port));
            }
            return self.refuse(*node, mistakes::bad_address(text));
        };
        if only_with_ipv6(address) && !self.has_ipv6() {
            let message = "this machine has no IPv6, so that nothing can listen there; the bridge \
                           serves the other addresses";
            self.warn(*node, message);
        }
        if !has_tls && !address.ip().is_loopback() {
            self.error(*node, mistakes::needs_tls(address, address.port()));
        }
        Some(address)
    }

    /// Whether the machine has the loopback address of IPv6.
    fn has_ipv6(&self) -> bool {
        match self.env.read(Path::new("/proc/net/if_inet6")) {
            Ok(file) => file.text.lines().any(|line| line.starts_with(IPV6_LOOPBACK)),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }

    fn unix(&self, at: &At<String>) -> Option<PathBuf> {
        let path = self.path(at)?;
        self.check_socket_path(at.node, &path);
        Some(path)
    }
}

/// A listener on these addresses only.
fn on(tcp: Vec<SocketAddr>) -> Listen {
    Listen { tcp, unix: None, tls: None, hosts: Vec::new(), public_url: None, by_default: false }
}
