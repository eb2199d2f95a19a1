//! The addresses that the bridge never calls, whoever names them: link-local ones, where clouds
//! serve the machine's credentials. The check applies to the address that is dialled, so that a
//! name whose address changes between two look-ups (DNS rebinding) gains nothing.
//!
//! Must not: refuse private addresses. Intranets use them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Proxy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Amazon's metadata service; its IPv6 address is not link-local in form.
const EC2_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The suffix that marks a refused address: [`Names`] does not look such a name up.
const REFUSED: &str = ".refused.invalid";

/// Whether `address` is link-local, also where an IPv6 address embeds the IPv4 one.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address == EC2_METADATA
                || embedded(address).is_some_and(|address| address.is_link_local())
        }
    }
}

/// The IPv4 address that `address` embeds: mapped or compatible (RFC 4291, 2.5.5), with the
/// prefixes of NAT64 (RFC 6052, 2.1; RFC 8215), or by 6to4 (RFC 3056, 2).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _]
        | [0x64, 0xff9b, 1, _, _, _, _, _] => {
            let [.., a, b, c, d] = octets;
            Some(Ipv4Addr::new(a, b, c, d))
        }
        [0x2002, ..] => {
            let [_, _, a, b, c, d, ..] = octets;
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

/// Whether the host of `url` is a link-local address itself; a name shows its address only when it
/// is dialled.
pub fn names_link_local(url: &Url) -> bool {
    address(url).is_some_and(is_link_local)
}

/// Whether `url` itself names this machine: by a loopback or an unspecified address, or as
/// `localhost`. Its addresses in networks are not known here.
pub fn names_this_machine(url: &Url) -> bool {
    match url.domain().map(|name| name.trim_end_matches('.')) {
        Some(name) => name == "localhost" || name.ends_with(".localhost"),
        None => address(url).is_some_and(is_here),
    }
}

fn address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// The system's resolver, without the addresses that the bridge never calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Names {
    All,
    /// Also without the addresses of this machine.
    Elsewhere,
}

impl Names {
    /// The addresses of `name` that the bridge may call.
    fn allowed(self, name: &str, all: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let addresses = without(all, is_link_local).ok_or_else(|| refused(name))?;
        // A configured proxy may run on this machine under the name `localhost`. Addresses that a
        // peer names never use it.
        if matches!(self, Self::Elsewhere) && name != "localhost" {
            return without(addresses, is_here)
                .ok_or_else(|| io::Error::other(format!("{name} leads to this machine")));
        }
        Ok(addresses)
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let names = *self;
        Box::pin(async move {
            let name = name.as_str();
            if let Some(address) = name.strip_suffix(REFUSED) {
                return Err(refused(&address.replace('-', ":")).into());
            }
            let all: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            let allowed = names.allowed(name, all)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// The addresses that are not bad; `None` if there are some and all are bad. A name without an
/// address is no refusal: the client reports that it leads nowhere.
fn without(mut addresses: Vec<SocketAddr>, is_bad: fn(IpAddr) -> bool) -> Option<Vec<SocketAddr>> {
    let had_some = !addresses.is_empty();
    addresses.retain(|address| !is_bad(address.ip()));
    if had_some && addresses.is_empty() { None } else { Some(addresses) }
}

fn is_here(address: IpAddr) -> bool {
    let embedded_v4 = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
    };
    [Some(address), embedded_v4]
        .into_iter()
        .flatten()
        .any(|address| address.is_loopback() || address.is_unspecified())
}

fn refused(host: &str) -> io::Error {
    io::Error::other(format!("{host} is a link-local address, which is never called"))
}

/// Refuses addresses that stand in a URL. For these the client looks up no name, and so does not
/// ask [`Names`]. But it does look for a proxy: here it gets one whose name `Names` refuses.
pub(super) fn refuse_literals() -> Proxy {
    Proxy::custom(|url| {
        let address = address(url).filter(|address| is_link_local(*address))?;
        Some(format!("http://{}{REFUSED}/", address.to_string().replace(':', "-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_known_in_every_form() {
        for (text, expected) in [
            ("169.254.169.254", true),
            ("169.254.0.0", true),
            ("fe80::1", true),
            ("febf:ffff::1", true),
            ("::ffff:169.254.169.254", true),
            ("::169.254.169.254", true),
            ("64:ff9b::169.254.169.254", true),
            ("64:ff9b:1:7f00::169.254.169.254", true),
            ("2002:a9fe:a9fe::1", true),
            ("fd00:ec2::254", true),
            ("169.253.255.255", false),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("fd00:ec2::253", false),
            ("fec0::1", false),
            ("64:ff9b::10.0.0.1", false),
            ("2002:a00:1::1", false),
        ] {
            assert_eq!(is_link_local(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn urls_are_seen_through_however_the_address_is_written() {
        for text in [
            "http://169.254.169.254/latest/meta-data",
            "http://0xa9fea9fe/",
            "http://025177524776/",
            "http://2852039166/",
            "http://169.254.43518/",
            "http://169.254.169.254.:80/",
            "https://[::ffff:169.254.169.254]/",
            "https://[fe80::1]/",
            "http://%31%36%39.254.169.254/",
        ] {
            assert!(names_link_local(&Url::parse(text).unwrap()), "{text}");
        }
        for text in ["http://hr.acme/", "http://0x7f000001/", "http://[::1]/", "file:///etc/x"] {
            assert!(!names_link_local(&Url::parse(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_a_name_are_called_unless_link_local() {
        let found = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let mixed = Names::All.allowed("n", found(&["169.254.169.254:0", "10.0.0.1:0"])).unwrap();
        assert_eq!(mixed, found(&["10.0.0.1:0"]));
        assert_eq!(Names::All.allowed("n", Vec::new()).unwrap(), []);
        let error = Names::All.allowed("n", found(&["[fe80::1]:0"])).unwrap_err().to_string();
        assert_eq!(error, "n is a link-local address, which is never called");
    }

    #[test]
    fn addresses_of_a_name_that_a_peer_names_are_called_if_elsewhere() {
        let found = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let mixed = found(&["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.2]:0", "10.0.0.1:0"]);
        assert_eq!(Names::Elsewhere.allowed("n", mixed).unwrap(), found(&["10.0.0.1:0"]));
        for here in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[64:ff9b::127.0.0.1]:0"] {
            let error = Names::Elsewhere.allowed("n", found(&[here])).unwrap_err().to_string();
            assert_eq!(error, "n leads to this machine", "{here}");
        }
    }

    #[tokio::test]
    async fn a_client_refuses_an_address_in_a_url_and_connects_nowhere() {
        for url in ["http://169.254.169.254/x", "https://[::ffff:169.254.169.254]:8443/x"] {
            let error = super::super::new().get(url).send().await.unwrap_err();
            assert!(error.is_connect(), "nothing was sent: {error:?}");
            let text = crate::error_chain::error_chain(&error.without_url());
            assert!(text.contains("link-local"), "{text}");
        }
    }
}
