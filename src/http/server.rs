//! Accepts connections, and serves HTTP/1.1 on them, and HTTP/2 on those with TLS, within limits.
//!
//! The bridge drives hyper itself, because frameworks have no time limit for headers: a connection
//! that never finishes them would stay for ever.
//!
//! Must not: know a route.

mod activity;
mod answer;
mod connection;
mod connection_limit;
mod framing;
mod listener;
pub mod socket_activation;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::connection::{Connection, Socket, process};
use self::connection_limit::ConnectionLimit;
pub use self::listener::Listener;
use crate::http::service::Service;
use crate::http::{ClientInfo, ClientKey};
use crate::metrics::Way;

/// The most connections of one listener. Each listener has its own, so that one does not take the
/// slots of another.
const MAX_CONNECTIONS: usize = 1024;
/// The most connections without an authenticated request yet. The other slots stay free for apps
/// that have shown who they are.
const MAX_UNKNOWN: usize = MAX_CONNECTIONS / 2;
/// Further connections of one listener; each gets an error for its one request.
const OVERFLOW: usize = 16;
/// How long open requests may take to finish at shutdown: as long as the calls of runs.
const DRAIN: Duration = Duration::from_secs(30);
/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The least interval between log lines about that.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Serves `service` on `listener` until `stop`, then lets open requests finish for up to [`DRAIN`].
pub async fn serve(listener: Listener, service: Arc<Service>, stop: CancellationToken) {
    let way = match &listener {
        Listener::Tcp(_, None) => Way::Tcp,
        Listener::Tcp(_, Some(_)) => Way::Tls,
        Listener::Unix { .. } => Way::Unix,
        #[cfg(test)]
        Listener::Simulated(_) => Way::Unix,
    };
    let regular = Arc::new(ConnectionLimit::new(MAX_CONNECTIONS, MAX_UNKNOWN));
    let overflow = Arc::new(ConnectionLimit::new(OVERFLOW, OVERFLOW));
    let metrics = service.api.requests.connections.by_way.of(way);
    let mut connections = JoinSet::new();
    let mut last_log = None;
    loop {
        while connections.try_join_next().is_some() {}
        let next = async {
            let accepted = accept(&listener, &regular, &mut last_log).await;
            let peer = ClientKey::new(&accepted.1);
            match regular.slot(peer).await {
                Some(slot) => (accepted, Some(slot), false),
                None => (accepted, overflow.slot(peer).await, true),
            }
        };
        let ((socket, client), slot, is_overflow) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        metrics.evicted.inc_by(regular.evicted() + overflow.evicted());
        let stop = stop.child_token();
        let Some(slot) = slot else { continue };
        metrics.opened.inc();
        let service = Arc::clone(&service);
        let connection =
            Arc::new(Connection { slot, service: Arc::clone(&service), stop, is_overflow });
        connections.spawn(async move {
            connection.run(socket, client).await;
            service.api.requests.connections.by_way.of(way).closed.inc();
        });
    }
    drop(listener);
    let all_ends = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, all_ends).await.is_err() {
        warn!(open = connections.len(), "connections were cut after {DRAIN:?}");
    }
}

/// Waits for the next connection. `last_log` is the time of the last log line about a failure to
/// accept.
async fn accept(
    listener: &Listener,
    slots: &ConnectionLimit,
    last_log: &mut Option<Instant>,
) -> (Socket, ClientInfo) {
    loop {
        match accept_now(listener).await {
            Ok(accepted) => return accepted,
            Err(error) => {
                if last_log.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
                    warn!(%error, "connections cannot be accepted at the moment");
                    *last_log = Some(Instant::now());
                }
                // The process may be out of descriptors: an unused connection makes room. The pause
                // comes first, so that a connection which has only just arrived can send its
                // request.
                sleep(ACCEPT_PAUSE).await;
                slots.evict();
            }
        }
    }
}

async fn accept_now(listener: &Listener) -> io::Result<(Socket, ClientInfo)> {
    Ok(match listener {
        Listener::Tcp(listener, tls) => {
            let (stream, peer) = listener.accept().await?;
            let client = match tls {
                Some(_) => ClientInfo::Tls { peer, names: None },
                None => ClientInfo::Tcp { peer },
            };
            (Socket::Tcp(stream, tls.clone()), client)
        }
        Listener::Unix { listener, .. } => {
            let (stream, _) = listener.accept().await?;
            let client = ClientInfo::Unix { peer: process(&stream) };
            (Socket::Unix(stream), client)
        }
        #[cfg(test)]
        Listener::Simulated(connections) => {
            let Some(stream) = connections.lock().await.recv().await else {
                return std::future::pending().await;
            };
            (Socket::Simulated(stream), ClientInfo::Unix { peer: None })
        }
    })
}
