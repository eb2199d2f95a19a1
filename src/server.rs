//! Accepts connections and speaks HTTP/1.1 on them, and HTTP/2 on those with TLS, within limits.
//!
//! hyper's own loop, because a framework's has no time limit for headers: a connection that never
//! finishes them would stay for ever.
//!
//! Must not: know a route.

mod activity;
mod answer;
mod connection;
mod framing;
pub mod handed;
mod listener;
mod places;
mod stream;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, UnixStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::listener::Listener;
use self::{
    connection::{Connection, Socket},
    places::Places,
};
use crate::{front::Front, metrics::Way};

/// Connections at once on one listener, so that those of one do not take the places of another's.
const MAX_CONNECTIONS: usize = 1024;
/// How long open requests may take to finish at shutdown: as long as the calls of runs.
const DRAIN: Duration = Duration::from_secs(30);
/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `front` on `listener` until `stop`, then lets open requests finish for a moment.
pub async fn serve(listener: Listener, front: Arc<Front>, stop: CancellationToken) {
    let way = match &listener {
        Listener::Tcp(_, None) => Way::Tcp,
        Listener::Tcp(_, Some(_)) => Way::Tls,
        Listener::Unix { .. } => Way::Unix,
    };
    let places = Arc::new(Places::new(MAX_CONNECTIONS));
    let counted = front.api.requests.connections.by_way.of(way);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // There may be no descriptor left, and some are held for nothing.
                places.evict();
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = places.place() => place,
        };
        counted.opened.inc();
        let connection =
            Connection { socket, place, front: Arc::clone(&front), stop: stop.clone() };
        let front = Arc::clone(&front);
        connections.spawn(async move {
            connection.run().await;
            front.api.requests.connections.by_way.of(way).closed.inc();
        });
        counted.evicted.inc_by(places.evicted());
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, ended).await.is_err() {
        warn!(open = connections.len(), "connections were cut after {DRAIN:?}");
    }
}

async fn accept(listener: &Listener) -> io::Result<Socket> {
    Ok(match listener {
        Listener::Tcp(listener, tls) => {
            let (stream, peer): (TcpStream, SocketAddr) = listener.accept().await?;
            match tls {
                Some(tls) => Socket::Tls(stream, peer, Arc::clone(tls)),
                None => Socket::Tcp(stream, peer),
            }
        }
        Listener::Unix { listener, .. } => {
            let (stream, _): (UnixStream, _) = listener.accept().await?;
            Socket::Unix(stream)
        }
    })
}
