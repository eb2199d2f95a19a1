//! `listen` and `auth`.
//!
//! Must not: open a socket.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::Lower;
use crate::config::{
    Auth, Listen,
    document::NodeId,
    read::At,
    reference::Dialect,
    words::{AuthWord, ListenValue, OneOrMany},
};

const DEFAULT_PORT: u16 = 7717;
const FORMS: &str = "write 127.0.0.1:7717, [::1]:7717 or localhost:7717";

impl Lower<'_> {
    pub(super) fn listen(&self, section: Option<&At<ListenValue>>) -> Option<Listen> {
        let Some(At { value, node }) = section else {
            let tcp = vec![(Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()];
            return Some(Listen { tcp, unix: None, by_default: true });
        };
        match value {
            ListenValue::Short(addresses) => {
                let tcp = self.addresses(*node, addresses)?;
                Some(Listen { tcp, unix: None, by_default: false })
            }
            ListenValue::Map(map) => {
                let tcp = match &map.tcp {
                    Some(at) => self.addresses(at.node, &at.value),
                    None => Some(Vec::new()),
                };
                let unix = match &map.unix {
                    Some(at) => Some(self.unix(at)?),
                    None => None,
                };
                if map.tcp.is_none() && map.unix.is_none() {
                    self.missing(
                        *node,
                        "there is nothing to listen on",
                        "write `tcp: 127.0.0.1:7717` or `unix: /run/mantyx-bridge/bridge.sock`",
                    );
                }
                Some(Listen { tcp: tcp?, unix, by_default: false })
            }
        }
    }

    pub(super) fn auth(&self, section: Option<&At<AuthWord>>, listen: Option<&Listen>) -> Auth {
        let Some(At { value: AuthWord::Off, node }) = section else { return Auth::Token };
        let open = |listen: &Listen| listen.tcp.iter().find(|tcp| !tcp.ip().is_loopback()).copied();
        if let Some(open) = listen.and_then(open) {
            self.error(
                *node,
                format!("whoever reaches {open} could use the bridge"),
                "write `auth: token`, or listen on 127.0.0.1 or a unix socket only",
            );
        }
        Auth::Off
    }

    fn addresses(&self, node: NodeId, written: &OneOrMany) -> Option<Vec<SocketAddr>> {
        let items: Vec<(NodeId, &str)> = match written {
            OneOrMany::One(text) => vec![(node, text)],
            OneOrMany::Many(items) => items.iter().map(|at| (at.node, at.value.as_str())).collect(),
        };
        if items.is_empty() {
            self.missing(node, "there is nothing to listen on", FORMS);
        }
        let mut addresses = Vec::new();
        let mut complete = true;
        for (node, text) in items {
            match self.address(node, text) {
                Some(address) if address.port() != 0 && addresses.contains(&address) => {
                    self.error(node, format!("{address} is here twice"), "remove one of the two");
                }
                Some(address) => addresses.push(address),
                None => complete = false,
            }
        }
        complete.then_some(addresses)
    }

    fn address(&self, node: NodeId, text: &str) -> Option<SocketAddr> {
        let resolved = self.open_text(node, text, Dialect::Own)?;
        let address = match resolved.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into()),
            None => resolved.parse::<SocketAddr>().ok(),
        };
        let Some(address) = address else {
            let (message, cure) = explain(text);
            self.error(node, message, cure);
            return None;
        };
        if !address.ip().is_loopback() {
            self.error(
                node,
                format!("{address} can be reached from other machines, which needs TLS"),
                "this version has no TLS: listen on 127.0.0.1:7717 and put a TLS proxy in front",
            );
        }
        Some(address)
    }

    fn unix(&self, at: &At<String>) -> Option<PathBuf> {
        let path = self.path(at)?;
        self.check_socket_path(at.node, &path);
        Some(path)
    }
}

/// Why `text` is no address, and what would be one.
fn explain(text: &str) -> (String, String) {
    let message = format!("`{text}` is no address to listen on");
    if let Ok(ip) = text.parse::<IpAddr>() {
        return (
            message,
            format!("the port is missing: write {}", SocketAddr::new(ip, DEFAULT_PORT)),
        );
    }
    if text == "localhost" {
        return (message, format!("the port is missing: write localhost:{DEFAULT_PORT}"));
    }
    if text.parse::<u16>().is_ok() || text.starts_with(':') {
        let port = text.trim_start_matches(':');
        return (message, format!("the address is missing: write 127.0.0.1:{port}"));
    }
    if text.starts_with('/') || text.starts_with("unix:") {
        let path = text.trim_start_matches("unix:").trim_start_matches("//");
        return (message, format!("for a unix socket write `listen: {{unix: {path}}}`"));
    }
    (message, FORMS.to_owned())
}
