//! The listening sockets of the daemon: its own, and those that systemd handed over.
//!
//! Must not: accept a connection.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tracing::debug;

use super::socket_activation::ActivatedSocket;
use crate::tls::Tls;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// With TLS, if there is a certificate.
    Tcp(TcpListener, Option<Arc<Tls>>),
    Unix {
        listener: UnixListener,
        /// The socket's file, if the daemon created it; removed on drop.
        own: Option<PathBuf>,
    },
    /// The connections that a simulation makes.
    #[cfg(test)]
    Simulated(tokio::sync::Mutex<tokio::sync::mpsc::Receiver<tokio::io::DuplexStream>>),
}

impl Listener {
    pub async fn tcp(address: SocketAddr, tls: Option<Arc<Tls>>) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?, tls))
    }

    /// Binds `path`. Replaces the file of a daemon that has died.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(path).is_err() {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self::Unix { listener, own: Some(path.to_owned()) })
    }

    /// A socket that was handed over. Must be called in a runtime.
    pub fn handed(socket: ActivatedSocket, tls: Option<Arc<Tls>>) -> io::Result<Self> {
        Ok(match socket {
            ActivatedSocket::Tcp(listener, _) => Self::Tcp(TcpListener::from_std(listener)?, tls),
            ActivatedSocket::Unix(listener) => {
                Self::Unix { listener: UnixListener::from_std(listener)?, own: None }
            }
        })
    }

    /// Its TCP address.
    pub fn address(&self) -> Option<SocketAddr> {
        let Self::Tcp(listener, _) = self else { return None };
        listener.local_addr().ok()
    }

    /// Its file; a socket in the abstract namespace has none.
    pub fn path(&self) -> Option<PathBuf> {
        let Self::Unix { listener, .. } = self else { return None };
        listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
    }

    /// The address in the form that clients use.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                match listener.local_addr() {
                    Ok(address) => format!("{scheme}://{address}"),
                    Err(error) => format!("{scheme}://? ({error})"),
                }
            }
            Self::Unix { .. } => match self.path() {
                Some(path) => format!("unix:{}", path.display()),
                None => "unix:?".to_owned(),
            },
            #[cfg(test)]
            Self::Simulated(_) => "simulated".to_owned(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { own: Some(path), .. } = self
            && let Err(error) = std::fs::remove_file(&*path)
        {
            debug!(%error, path = %path.display(), "the socket's file is gone already");
        }
    }
}
