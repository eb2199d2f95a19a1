//! The listening sockets that systemd opened and hands over with `LISTEN_FDS` and `LISTEN_PID`.
//!
//! They outlive a restart of the daemon: meanwhile apps wait, and are not refused. The files of
//! unix sockets belong to systemd, and stay.
//!
//! Must not: bind anything, or run beside another thread, since it removes environment variables.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

/// A socket that was handed over.
#[derive(Debug)]
pub enum ActivatedSocket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener),
}

/// A socket that was handed over cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    #[error(
        "descriptor {0} of LISTEN_FDS is no listening TCP or unix socket; a socket unit wants \
         ListenStream= and Accept=no"
    )]
    NoListener(usize),
    #[error(
        "the socket unit listens on {0}, which other machines reach; write `listen: {{tls: {{cert, \
         key}}}}` with `tcp: {0}` into bridge.yaml and leave out `auth: off`, or \
         ListenStream=127.0.0.1:{port} into the unit", port = .0.port()
    )]
    Open(SocketAddr),
    #[error("descriptor {0} of LISTEN_FDS cannot be used")]
    Unusable(usize, #[source] io::Error),
}

/// The first descriptor that is handed over (sd_listen_fds(3)).
const FIRST: usize = 3;

/// Takes all sockets that were handed to this process; a second call returns none. It removes the
/// variables, so that no child process inherits the sockets.
///
/// # Errors
///
/// The bridge cannot serve one of the sockets, or must not.
pub fn take() -> Result<Vec<ActivatedSocket>, ActivationError> {
    let mut sockets = ListenFd::from_env();
    (0..sockets.len()).map(|at| one(&mut sockets, at)).collect()
}

fn one(sockets: &mut ListenFd, at: usize) -> Result<ActivatedSocket, ActivationError> {
    let fd = FIRST + at;
    let failed = |error| ActivationError::Unusable(fd, error);
    if let Ok(Some(listener)) = sockets.take_tcp_listener(at) {
        must_listen(&listener, fd)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        return Ok(ActivatedSocket::Tcp(listener, address));
    }
    if let Ok(Some(listener)) = sockets.take_unix_listener(at) {
        must_listen(&listener, fd)?;
        listener.set_nonblocking(true).map_err(failed)?;
        return Ok(ActivatedSocket::Unix(listener));
    }
    Err(ActivationError::NoListener(fd))
}

/// Refuses sockets that other machines can reach, for a bridge without TLS or without
/// authentication.
pub fn refuse_open(handed: &[ActivatedSocket]) -> Result<(), ActivationError> {
    let open = handed.iter().find_map(|socket| match socket {
        ActivatedSocket::Tcp(_, address) if !address.ip().is_loopback() => Some(*address),
        ActivatedSocket::Tcp(..) | ActivatedSocket::Unix(_) => None,
    });
    open.map_or(Ok(()), |address| Err(ActivationError::Open(address)))
}

/// Refuses a socket that does not listen: with `Accept=yes`, systemd hands over a single
/// connection.
fn must_listen(socket: &impl AsFd, fd: usize) -> Result<(), ActivationError> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ActivationError::NoListener(fd)),
        Err(error) => Err(ActivationError::Unusable(fd, error.into())),
    }
}
