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
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::listener::Listener;
use self::{
    connection::{Connection, Desk, Socket},
    places::{Place, Places},
};
use crate::{door::failures::Peer, front::Front, metrics::Way};

/// Connections at once on one listener, so that those of one do not take the places of another's.
const MAX_CONNECTIONS: usize = 1024;
/// Those of them on which no request has been let in, so that apps always find a place.
const MAX_UNKNOWN: usize = MAX_CONNECTIONS / 2;
/// Connections beyond these, on which one request is told so, at once on one listener.
const SPARE: usize = 16;
/// How long open requests may take to finish at shutdown: as long as the calls of runs.
const DRAIN: Duration = Duration::from_secs(30);
/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the log is told of that.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Serves `front` on `listener` until `stop`, then lets open requests finish for a moment.
pub async fn serve(listener: Listener, front: Arc<Front>, stop: CancellationToken) {
    let way = match &listener {
        Listener::Tcp(_, None) => Way::Tcp,
        Listener::Tcp(_, Some(_)) => Way::Tls,
        Listener::Unix { .. } => Way::Unix,
    };
    let rooms = Rooms::new();
    let counted = front.api.requests.connections.by_way.of(way);
    let (mut connections, mut told) = (JoinSet::new(), None);
    loop {
        while connections.try_join_next().is_some() {}
        let next = async {
            let socket = accept(&listener, &rooms, &mut told).await;
            let peer = socket.peer();
            (socket, rooms.place(peer).await)
        };
        let (socket, place) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        counted.evicted.inc_by(rooms.evicted());
        let stop = stop.child_token();
        let (place, desk) = match place {
            Room::Place(place) => {
                let let_in = place.let_in();
                (place, Desk::Front(Arc::clone(&front), let_in))
            }
            Room::Spare(place) => (place, Desk::Spare(Arc::clone(&front), stop.clone())),
            Room::None => continue,
        };
        counted.opened.inc();
        let connection = Connection { socket, place, desk, stop };
        let front = Arc::clone(&front);
        connections.spawn(async move {
            connection.run().await;
            front.api.requests.connections.by_way.of(way).closed.inc();
        });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, ended).await.is_err() {
        warn!(open = connections.len(), "connections were cut after {DRAIN:?}");
    }
}

/// The places of one listener.
struct Rooms {
    places: Arc<Places>,
    spare: Arc<Places>,
}

/// What there is for a connection.
enum Room {
    Place(Place),
    /// Only to be told that there is no other.
    Spare(Place),
    None,
}

impl Rooms {
    fn new() -> Self {
        let places = Arc::new(Places::new(MAX_CONNECTIONS, MAX_UNKNOWN));
        Self { places, spare: Arc::new(Places::new(SPARE, SPARE)) }
    }

    async fn place(&self, peer: Peer) -> Room {
        match self.places.place(peer).await {
            Some(place) => Room::Place(place),
            None => self.spare.place(peer).await.map_or(Room::None, Room::Spare),
        }
    }

    /// How many have been cut since this was asked.
    fn evicted(&self) -> u64 {
        self.places.evicted() + self.spare.evicted()
    }
}

/// The next connection, as soon as one can be accepted; `told` is when the log was last told that
/// none can.
async fn accept(listener: &Listener, rooms: &Rooms, told: &mut Option<Instant>) -> Socket {
    loop {
        match accept_now(listener).await {
            Ok(socket) => return socket,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= TELL_AGAIN) {
                    warn!(%error, "connections cannot be accepted at the moment");
                    *told = Some(Instant::now());
                }
                // There may be no descriptor left, and some are held for nothing: but not by whoever
                // has only just come.
                sleep(ACCEPT_PAUSE).await;
                rooms.places.evict();
            }
        }
    }
}

async fn accept_now(listener: &Listener) -> io::Result<Socket> {
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
