//! The way to an address: connection and TLS, by a request of the bridge's own client.
//!
//! Must not: send a credential, or ask for more than the server's root.

use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use tokio::net::UnixStream;
use tokio::time::timeout;
use url::Url;

use super::report::Check;
use crate::error_chain;
use crate::error_chain::{error_chain, io_kind, tls_error};
use crate::http_client::Client;

/// How long the request may take; a little longer than the client tries to connect.
const PATIENCE: Duration = Duration::from_secs(12);

/// What to do about an error that says nothing about that.
const UNCLEAR: &str = "see whether the address is right, and what answers there: a proxy or another \
     server may do so in its place";

/// Whether the server at `url` can be reached, directly or through a proxy. `key` is the place of
/// the address in the configuration.
pub(super) async fn reach(check: &mut Check, client: &Client, url: &Url, key: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    let at = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
    let mut root = url.join("/").expect("an address of a server has a root");
    // This step needs no user and no password, so it sends none.
    let _cannot_fail = root.set_username("").and_then(|()| root.set_password(None)).is_ok();
    check.begin("tcp");
    let response = client.request(Method::HEAD, root).timeout(PATIENCE).send().await;
    let error = response.as_ref().err();
    let kind = error.filter(|error| error.is_connect()).and_then(|error| io_kind(error));
    let hangs_up =
        matches!(kind, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset));
    let tls_failed = error.is_some_and(|error| tls_error(error).is_some());
    let Some(error) = response.err().filter(|error| error.is_connect() || tls_failed) else {
        // A request that fails later has had its connection.
        check.ok(format!("{at} accepts connections"));
        if url.scheme() == "https" {
            check.begin("tls").ok("the certificate is good");
        }
        return true;
    };
    let cure = error_chain::cure(&error).unwrap_or(UNCLEAR);
    let why = error_chain(&error.without_url());
    let finding = match kind {
        _ if tls_failed || hangs_up => {
            check.ok(format!("{at} accepts connections"));
            check.begin("tls");
            if tls_failed {
                why
            } else {
                "there is no TLS connection: the server hung up".to_owned()
            }
        }
        Some(io::ErrorKind::ConnectionRefused) => format!("{at} refuses connections"),
        _ => format!("there is no connection to {at}: {why}"),
    };
    check.fail(finding, format!("{cure} ({key})"));
    false
}

/// Whether something listens on a unix socket.
pub(super) async fn socket(check: &mut Check, path: &Path) -> bool {
    check.begin("socket");
    let name = path.display();
    let why = match timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Ok(_connection)) => {
            check.ok(format!("{name} accepts connections"));
            return true;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => "the server accepts no connection".to_owned(),
    };
    let cure = error_chain::cure(&io::Error::from(io::ErrorKind::NotFound));
    check.fail(format!("{name}: {why}"), cure.unwrap_or(UNCLEAR));
    false
}
