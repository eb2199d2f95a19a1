//! The names of the bridge: names and addresses that `Host` may contain, and the origins of the
//! bridge's own page.
//!
//! Must not: look a name up. A name that is not configured here belongs to another host.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use url::Url;

use crate::model::San;
use crate::tls::certificate::Facts;

/// The names of one bridge, in lower case, each with its port.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: BTreeSet<String>,
    /// `scheme://name`.
    origins: BTreeSet<String>,
}

impl Hosts {
    /// The names of listeners on `addresses`, the configured names `others`, and those of the
    /// certificate, if the listeners speak TLS.
    pub fn new(addresses: &[SocketAddr], others: &[String], certificate: Option<&Facts>) -> Self {
        let (scheme, usual) = if certificate.is_some() { ("https", 443) } else { ("http", 80) };
        let mut hosts = Self::default();
        for address in addresses {
            let ports = ports(address.port(), usual);
            for name in names_of(address.ip()).into_iter().chain(certificate.iter().flat_map(named))
            {
                for port in &ports {
                    hosts.add(scheme, format!("{name}{port}"));
                }
            }
            // A proxy in front can be asked for by its own port, while an app behind it uses the
            // bridge's.
            for name in others.iter().filter(|name| !has_port(name)) {
                hosts.add("https", format!("{name}:{}", address.port()));
            }
        }
        for name in others {
            hosts.add("https", name.clone());
        }
        hosts
    }

    /// These names and that of the operator's `public_url`.
    pub fn and_public(mut self, url: Option<&Url>) -> Self {
        if let Some(url) = url
            && let Some(host) = url.host_str()
        {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            self.add(url.scheme(), format!("{}{port}", host.to_ascii_lowercase()));
        }
        self
    }

    fn add(&mut self, scheme: &str, name: String) {
        self.origins.insert(format!("{scheme}://{name}"));
        self.names.insert(name);
    }

    /// Whether `host`, the value of a `Host` header, is a name of the bridge.
    pub fn has(&self, host: &str) -> bool {
        self.names.contains(&host.to_ascii_lowercase())
    }

    /// Whether `page`, an origin or a page's address, has the bridge's own origin.
    pub fn is_own_page(&self, page: &str) -> bool {
        let page = page.to_ascii_lowercase();
        let Some((scheme, rest)) = page.split_once("://") else { return false };
        let host = rest.split('/').next().unwrap_or_default();
        self.origins.contains(&format!("{scheme}://{host}"))
    }
}

/// The ways to write a port behind a name. A scheme's default port may also be left out.
fn ports(port: u16, usual: u16) -> Vec<String> {
    let suffix = format!(":{port}");
    if port == usual { vec![suffix, String::new()] } else { vec![suffix] }
}

fn has_port(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The names by which a listener at `ip` is reached from this machine.
fn names_of(ip: IpAddr) -> Vec<String> {
    let mut names = vec![written(ip)];
    let everywhere = ip.is_unspecified();
    if ip.is_loopback() || everywhere {
        names.push("localhost".to_owned());
        if everywhere || ip.is_ipv4() {
            names.push("127.0.0.1".to_owned());
        }
        if everywhere || ip.is_ipv6() {
            names.push("[::1]".to_owned());
        }
    }
    names
}

/// The names in a certificate. One with a star matches no host: `listen.hosts` names those that it
/// covers.
fn named(facts: &&Facts) -> Vec<String> {
    let dns = facts.names.iter().filter_map(|name| match name {
        San::Dns(name) => Some(name.to_ascii_lowercase()),
        San::Uri(_) | San::Email(_) => None,
    });
    dns.chain(facts.addresses.iter().map(|ip| written(*ip))).collect()
}

fn written(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    //! Which names are ours, behind which listeners.

    use std::time::SystemTime;

    use super::*;

    fn hosts(address: &str, others: &[&str], certificate: Option<&[&str]>) -> Hosts {
        let others: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
        let facts = certificate.map(|names| Facts {
            names: names.iter().map(|name| San::Dns((*name).to_owned())).collect(),
            addresses: vec!["10.0.0.5".parse().unwrap()],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
        });
        Hosts::new(&[address.parse().unwrap()], &others, facts.as_ref())
    }

    #[track_caller]
    fn check(hosts: &Hosts, ours: &[&str], foreign: &[&str]) {
        for host in ours {
            assert!(hosts.has(host), "{host} is ours");
        }
        for host in foreign {
            assert!(!hosts.has(host), "{host} is not ours");
        }
    }

    #[test]
    fn the_names_in_the_certificate_are_ours() {
        let hosts = hosts("0.0.0.0:7717", &[], Some(&["Bridge.acme", "*.b.acme"]));
        let ours = ["bridge.acme:7717", "10.0.0.5:7717", "localhost:7717"];
        let foreign = [
            "bridge.acme",
            "bridge.acme:443",
            "evil.com:7717",
            "b.acme:7717",
            "x.b.acme:7717",
            "*.b.acme.evil.com:7717",
        ];
        check(&hosts, &ours, &foreign);
        assert!(hosts.is_own_page("https://bridge.acme:7717/page"));
        for page in ["http://bridge.acme:7717", "https://bridge.acme", "null", "https://", ""] {
            assert!(!hosts.is_own_page(page), "{page}");
        }
    }

    #[test]
    fn the_usual_port_is_left_out() {
        check(&hosts("10.0.0.5:443", &[], Some(&["a.b"])), &["a.b", "a.b:443", "10.0.0.5"], &["b"]);
        check(
            &hosts("127.0.0.1:80", &[], None),
            &["localhost", "127.0.0.1:80"],
            &["localhost:443"],
        );
    }

    #[test]
    fn a_proxy_in_front_has_names_of_its_own() {
        let hosts = hosts("127.0.0.1:7717", &["bridge.acme", "other.acme:8443"], None);
        let ours = ["bridge.acme", "bridge.acme:7717", "other.acme:8443", "127.0.0.1:7717"];
        check(&hosts, &ours, &["other.acme", "bridge.acme:1", "acme"]);
        assert!(hosts.is_own_page("https://bridge.acme"));
        assert!(hosts.is_own_page("http://127.0.0.1:7717"));
        assert!(!hosts.is_own_page("http://bridge.acme"), "what is not encrypted may be anybody's");
        assert!(!hosts.is_own_page("https://127.0.0.1:7717"));
    }
}
