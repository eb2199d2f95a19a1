//! The way to an address, one step at a time: name, connection, TLS.
//!
//! Must not: send a credential, or ask for more than the server's root.

use std::{error::Error, io, net::SocketAddr, path::Path, time::Duration};

use rustls::CertificateError;
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    time::timeout,
};
use url::{Host, Url};

use super::report::{Check, seconds};
use crate::{
    error_chain::{error_chain, tls_error, tls_flaw},
    http_client::{Client, is_link_local},
};

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// The variables by which requests go through a proxy.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Whether the server at `url` can be reached. `key` is the place of the address in the
/// configuration.
pub(super) async fn reach(check: &mut Check, client: &Client, url: &Url, key: &str) -> bool {
    let set = |name: &&str| !is_here(url) && std::env::var_os(name).is_some();
    let proxy = PROXIES.into_iter().find(set);
    let Some(addresses) = dns(check, url, key, proxy).await else { return false };
    if !addresses.is_empty() && !tcp(check, &addresses, key, proxy).await {
        return false;
    }
    url.scheme() != "https" || tls(check, client, url, key).await
}

/// Whether `url` is on this machine, which is reached without a proxy.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Reports a failed step. With a proxy it may not matter, so the check continues.
fn failed(check: &mut Check, proxy: Option<&str>, finding: String, cure: String) -> bool {
    match proxy {
        Some(name) => {
            let cure = format!("nothing, if the proxy of {name} can do it; else: {cure}");
            check.warn(finding, cure);
            true
        }
        None => {
            check.fail(finding, cure);
            false
        }
    }
}

/// The addresses of the host; none if only the proxy can resolve it.
async fn dns(
    check: &mut Check,
    url: &Url,
    key: &str,
    proxy: Option<&str>,
) -> Option<Vec<SocketAddr>> {
    let port = url.port_or_known_default().unwrap_or(80);
    let name = match url.host()? {
        Host::Ipv4(address) => return Some(vec![(address, port).into()]),
        Host::Ipv6(address) => return Some(vec![(address, port).into()]),
        Host::Domain(name) => name,
    };
    check.begin("dns");
    let cure = || format!("correct the host in {key}, or this machine's DNS settings");
    let finding = match timeout(PATIENCE, lookup_host((name, port))).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.iter().any(|found| is_link_local(found.ip())) {
                let cure = format!("give the server another address ({key})");
                check.fail(format!("{name} is a link-local address, which is never called"), cure);
                return None;
            }
            if !found.is_empty() {
                let shown: Vec<String> = found.iter().map(|one| one.ip().to_string()).collect();
                check.ok(format!("{name} is {}", shown.join(", ")));
                return Some(found);
            }
            format!("{name} has no address")
        }
        Ok(Err(error)) => format!("{name} is not known: {error}"),
        Err(_elapsed) => format!("no answer within {} for the name {name}", seconds(PATIENCE)),
    };
    failed(check, proxy, finding, cure()).then(Vec::new)
}

async fn tcp(check: &mut Check, addresses: &[SocketAddr], key: &str, proxy: Option<&str>) -> bool {
    check.begin("tcp");
    let mut last = None;
    let mut share = PATIENCE;
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(_connection)) => {
                check.ok(format!("{address} accepts connections"));
                return true;
            }
            Ok(Err(error)) => last = Some((*address, Some(error))),
            Err(_elapsed) => last = Some((*address, None)),
        }
        // The first address may be of a family that this machine cannot reach, so it gets only a
        // share of the time.
        share = PATIENCE / 4;
    }
    let Some((address, error)) = last else { return false };
    let (why, cure) = match error {
        None => (
            format!("does not answer within {}", seconds(PATIENCE)),
            "see whether a firewall is between, and whether the host is up",
        ),
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            ("refuses connections".to_owned(), "start the server there, or correct the port")
        }
        Some(error) => (
            format!("cannot be reached: {error}"),
            "see whether this machine has a route there (a VPN that is off?)",
        ),
    };
    failed(check, proxy, format!("{address} {why}"), format!("{cure} ({key})"))
}

/// Whether something listens on a unix socket.
pub(super) async fn socket(check: &mut Check, path: &Path) -> bool {
    check.begin("socket");
    let shown = path.display();
    let (why, cure) = match timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Ok(_connection)) => {
            check.ok(format!("{shown} accepts connections"));
            return true;
        }
        Err(_elapsed) => {
            ("does not accept a connection".to_owned(), "see whether the server hangs")
        }
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::NotFound => {
                ("is not there".to_owned(), "start the server, or correct the path in `url`")
            }
            io::ErrorKind::ConnectionRefused => {
                ("has no server behind it".to_owned(), "start the server again")
            }
            io::ErrorKind::PermissionDenied => (
                "may not be opened".to_owned(),
                "give the bridge's user write permission on the socket and its directories",
            ),
            _ => (format!("cannot be used: {error}"), "see whether it is a socket"),
        },
    };
    check.fail(format!("{shown} {why}"), cure);
    false
}

async fn tls(check: &mut Check, client: &Client, url: &Url, key: &str) -> bool {
    check.begin("tls");
    let mut root = url.clone();
    root.set_path("/");
    root.set_query(None);
    root.set_fragment(None);
    // This step needs no user and no password, so it sends none.
    let _cannot_fail = root.set_username("").and_then(|()| root.set_password(None)).is_ok();
    match client.head(root).timeout(PATIENCE).send().await {
        Ok(_any_answer) => check.ok("the certificate is good"),
        Err(error) => match flaw(&error) {
            Some((finding, cure)) => {
                check.fail(finding, format!("{cure} ({key})"));
                return false;
            }
            // The request failed later, so the handshake succeeded.
            None if !error.is_connect() && !error.is_timeout() => {
                check.ok("the certificate is good");
            }
            None => {
                let why = error_chain(&error.without_url());
                check.fail(
                    format!("there is no TLS connection: {why}"),
                    format!("if the server does not speak TLS on this port, write http:// ({key})"),
                );
                return false;
            }
        },
    }
    true
}

/// The finding and the cure for a TLS error.
pub(super) fn flaw(error: &(dyn Error + 'static)) -> Option<(String, &'static str)> {
    let error = tls_error(error)?;
    let cure = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => {
                "name the authority's file in `tls: {ca: …}` beside the address, or add it to the \
                 machine's trust store (Debian: copy it to /usr/local/share/ca-certificates and run \
                 update-ca-certificates), or name it in SSL_CERT_FILE"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew it at the server; see whether this machine's clock is right"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "see whether this machine's clock is right"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "write the name that the certificate has, or get one for this name"
            }
            other => {
                let finding = format!("the certificate cannot be used: {other}");
                return Some((finding, "get another certificate for the server"));
            }
        },
        rustls::Error::InvalidMessage(_) => "write http:// if that is meant, or correct the port",
        _ if tls_flaw(error).is_some() => "name it in `tls: {cert: …, key: …}` beside the address",
        other => {
            let finding = format!("the TLS handshake failed: {other}");
            return Some((finding, "see the server's log for the reason"));
        }
    };
    let finding = tls_flaw(error).map_or_else(|| error.to_string(), str::to_owned);
    Some((finding, cure))
}
