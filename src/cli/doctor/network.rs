//! The way to an address: connection and TLS, by a request of the bridge's own client.
//!
//! Must not: send a credential, or ask for more than the server's root.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustls::CertificateError;
use tokio::net::UnixStream;
use tokio::time::timeout;
use url::Url;

use super::cure;
use super::report::Check;
use crate::cli::client::io_kind;
use crate::error_chain::{error_chain, tls_error, tls_flaw};
use crate::http_client::Client;

/// How long the request may take; a little longer than the client tries to connect.
const PATIENCE: Duration = Duration::from_secs(12);

/// Whether the server at `url` can be reached, directly or through a proxy. `key` is the place of
/// the address in the configuration.
pub(super) async fn reach(check: &mut Check, client: &Client, url: &Url, key: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    let at = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
    let mut root = url.join("/").expect("an address of a server has a root");
    // This step needs no user and no password, so it sends none.
    let _cannot_fail = root.set_username("").and_then(|()| root.set_password(None)).is_ok();
    check.begin("tcp");
    let asked = client.head(root).timeout(PATIENCE).send().await;
    let error = asked.as_ref().err();
    let kind = error.filter(|error| error.is_connect()).and_then(|error| io_kind(error));
    let flaw = match kind {
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            Some(("there is no TLS connection: the server hung up".to_owned(), cure("plain")))
        }
        _ => error.and_then(|error| flaw(error)),
    };
    let (finding, cure) = match (asked, flaw) {
        (_, Some(flaw)) => {
            check.ok(format!("{at} accepts connections"));
            check.begin("tls");
            flaw
        }
        (Err(_), None) if kind == Some(io::ErrorKind::ConnectionRefused) => {
            (format!("{at} refuses connections"), cure("refuses"))
        }
        (Err(error), None) if error.is_connect() => (
            format!("there is no connection to {at}: {}", error_chain(&error.without_url())),
            cure("no_way"),
        ),
        // A request that fails later has had its connection.
        (_, None) => {
            check.ok(format!("{at} accepts connections"));
            if url.scheme() == "https" {
                check.begin("tls").ok("the certificate is good");
            }
            return true;
        }
    };
    check.fail(finding, format!("{cure} ({key})"));
    false
}

/// Whether something listens on a unix socket.
pub(super) async fn socket(check: &mut Check, path: &Path) -> bool {
    check.begin("socket");
    let shown = path.display();
    let why = match timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Ok(_connection)) => {
            check.ok(format!("{shown} accepts connections"));
            return true;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => "the server accepts no connection".to_owned(),
    };
    check.fail(format!("{shown}: {why}"), cure("socket"));
    false
}

/// The finding and the cure for a TLS error.
pub(super) fn flaw(error: &(dyn Error + 'static)) -> Option<(String, &'static str)> {
    let error = tls_error(error)?;
    let cure = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => cure("authority"),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => cure("expired"),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                cure("clock")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                cure("name")
            }
            other => {
                let finding = format!("the certificate cannot be used: {other}");
                return Some((finding, cure("certificate")));
            }
        },
        rustls::Error::InvalidMessage(_) => cure("no_tls"),
        _ if tls_flaw(error).is_some() => cure("own_certificate"),
        other => {
            let finding = format!("the TLS handshake failed: {other}");
            return Some((finding, cure("handshake")));
        }
    };
    let finding = tls_flaw(error).map_or_else(|| error.to_string(), str::to_owned);
    Some((finding, cure))
}
