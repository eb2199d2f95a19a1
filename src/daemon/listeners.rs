//! Opens the listeners: the sockets that systemd hands over, and those of the configuration.
//!
//! Must not: accept a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use tracing::warn;

use super::{StartError, cannot_listen};
use crate::config;
use crate::config::Listen;
use crate::http::server::Listener;
use crate::http::server::socket_activation::ActivatedSocket;
use crate::tls::Tls;

/// The sockets that systemd handed over, and those of the configuration that are not among them.
pub(super) async fn listeners(
    listen: &Listen,
    handed: Vec<ActivatedSocket>,
    tls: Option<&Arc<Tls>>,
) -> Result<Vec<Listener>, StartError> {
    fn failed(address: String) -> impl FnOnce(io::Error) -> StartError {
        |source| cannot_listen(address, source)
    }
    let mut listeners = handed
        .into_iter()
        .map(|socket| Listener::handed(socket, tls.cloned()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed("a socket of the socket unit".to_owned()))?;
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        listeners.push(Listener::Simulated(tokio::sync::Mutex::new(world.connections())));
    }
    if listen.by_default && !listeners.is_empty() {
        return Ok(listeners);
    }
    let mut without_ipv6 = None;
    for address in &listen.tcp {
        if listeners.iter().any(|one| one.address() == Some(*address)) {
            continue;
        }
        match Listener::tcp(*address, tls.cloned()).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if lacks_ipv6(*address, &error) => without_ipv6 = Some((*address, error)),
            Err(error) => return Err(failed(address.to_string())(error)),
        }
    }
    if let Some(path) = &listen.unix
        && !listeners.iter().any(|one| one.path().as_ref() == Some(path))
    {
        let bound = Listener::unix(path);
        listeners.push(bound.map_err(failed(path.display().to_string()))?);
    }
    match without_ipv6 {
        Some((address, error)) if listeners.is_empty() => Err(failed(address.to_string())(error)),
        Some((address, error)) => {
            warn!(%address, %error, "this machine has no IPv6; the other addresses are served");
            Ok(listeners)
        }
        None => Ok(listeners),
    }
}

/// Whether `address` cannot be bound as the machine has no IPv6: it was turned off, as in many
/// containers. A bridge that ended there would serve its other addresses no more.
fn lacks_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    let no_family = Some(Errno::AFNOSUPPORT.raw_os_error());
    let absent =
        error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == no_family;
    absent && config::only_with_ipv6(address)
}
