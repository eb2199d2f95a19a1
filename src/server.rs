//! Accepts connections and speaks HTTP/1.1 on them, within limits.
//!
//! hyper's own loop, because a framework's has no time limit for headers: a connection that never
//! finishes them would stay for ever.
//!
//! Must not: know a route.

pub mod handed;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::handed::Handed;
use crate::{
    door::{Arrival, Process},
    front::Front,
};

/// Time for a request's headers, and for an idle connection to send the next request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The room for one request's line and headers.
const HEADER_BYTES: usize = 64 << 10;
/// Connections at once; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 1024;
/// How long open requests may take to finish at shutdown: as long as the calls of runs.
const DRAIN: Duration = Duration::from_secs(30);
/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Its file, where the daemon made it: removed with the listener.
        own: Option<PathBuf>,
    },
}

impl Listener {
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self::Tcp)
    }

    /// Binds `path`, over what a daemon that died has left there.
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

    /// One that was handed over. Must be called in a runtime.
    pub fn handed(socket: Handed) -> io::Result<Self> {
        Ok(match socket {
            Handed::Tcp(listener, _) => Self::Tcp(TcpListener::from_std(listener)?),
            Handed::Unix(listener) => {
                Self::Unix { listener: UnixListener::from_std(listener)?, own: None }
            }
        })
    }

    /// Its TCP address.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix { .. } => None,
        }
    }

    /// Its file. A socket in the abstract namespace has none.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix { listener, .. } => {
                listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
            }
        }
    }

    /// The address as one would ask for it.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(error) => format!("http://? ({error})"),
            },
            Self::Unix { .. } => match self.path() {
                Some(path) => format!("unix:{}", path.display()),
                None => "unix:?".to_owned(),
            },
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

/// Serves `front` on `listener` until `stop`, then lets open requests finish for a moment.
pub async fn serve(listener: Listener, front: Arc<Front>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((Stream::Tcp(stream, peer), place)) => {
                // Events are small and must not wait for more.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "TCP_NODELAY");
                }
                let arrival = Arrival::Tcp { peer };
                let connection = connection(stream, arrival, Arc::clone(&front), &graceful, place);
                connections.spawn(connection);
            }
            Ok((Stream::Unix(stream), place)) => {
                let arrival = Arrival::Unix { peer: process(&stream) };
                let connection = connection(stream, arrival, Arc::clone(&front), &graceful, place);
                connections.spawn(connection);
            }
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(DRAIN, graceful.shutdown()).await.is_err() {
        warn!(open = connections.len(), "connections were cut after {DRAIN:?}");
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

async fn accept(
    listener: &Listener,
    places: &Arc<Semaphore>,
) -> io::Result<(Stream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let stream = match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            Stream::Tcp(stream, peer)
        }
        Listener::Unix { listener, .. } => Stream::Unix(listener.accept().await?.0),
    };
    Ok((stream, place))
}

/// The process that opened the connection. The kernel notes it then, and it does not change when the
/// socket is handed to another.
fn process(stream: &tokio::net::UnixStream) -> Option<Process> {
    match stream.peer_cred() {
        Ok(peer) => Some(Process { uid: peer.uid(), pid: peer.pid() }),
        Err(error) => {
            warn!(%error, "the kernel does not say who has connected");
            None
        }
    }
}

/// One connection to its end. Not `async`, so that it is watched before it is spawned.
fn connection<S>(
    stream: S,
    arrival: Arrival,
    front: Arc<Front>,
    graceful: &GracefulShutdown,
    place: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send + 'static
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let from = arrival.clone();
    let service = service_fn(move |request| {
        let front = Arc::clone(&front);
        let arrival = arrival.clone();
        async move { Ok::<_, std::convert::Infallible>(front.handle(request, arrival).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    async move {
        if let Err(error) = connection.await {
            debug!(%from, error = %crate::http_client::chain(&error), "connection ended");
        }
        drop(place);
    }
}
