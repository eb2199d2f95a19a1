//! A wire between two programs, which a test can cut. A cut wire tells nobody: what is under way
//! waits in it, and comes out when the wire is whole again.
//!
//! Must not: look at what it passes on.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

#[derive(Debug, Clone, Copy)]
struct State {
    to: SocketAddr,
    /// Raised with each new end; connections to the old one are dropped.
    generation: u64,
    is_cut: bool,
}

/// A relay; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    addr: SocketAddr,
    state: Arc<watch::Sender<State>>,
    _accepting: JoinSet<()>,
}

impl Relay {
    /// A relay to `to`.
    pub(crate) async fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(watch::Sender::new(State { to, generation: 0, is_cut: false }));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&state)));
        Self { addr, state, _accepting: accepting }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on, nothing passes.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.is_cut = true);
    }

    /// All passes again, and what has waited first.
    pub(crate) fn restore(&self) {
        self.state.send_modify(|state| state.is_cut = false);
    }

    /// From now on leads to `to`; connections to where it led before break.
    pub(crate) fn lead_to(&self, to: SocketAddr) {
        self.state.send_modify(|state| {
            state.to = to;
            state.generation += 1;
        });
    }
}

async fn accept(listener: TcpListener, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let state = state.subscribe();
        connections.spawn(connection(client, state));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, mut state: watch::Receiver<State>) {
    let Ok(State { to, generation, .. }) = whole(&mut state).await else { return };
    let Ok(server) = TcpStream::connect(to).await else { return };
    for end in [&client, &server] {
        end.set_nodelay(true).ok();
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let mut moved = state.clone();
    tokio::select! {
        () = both(
            pump(from_client, to_server, state.clone()),
            pump(from_server, to_client, state),
        ) => {}
        _ = moved.wait_for(|state| state.generation != generation) => {}
    }
}

async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::join!(one, other);
}

/// Waits while the wire is cut.
async fn whole(state: &mut watch::Receiver<State>) -> Result<State, watch::error::RecvError> {
    state.wait_for(|state| !state.is_cut).await.map(|state| *state)
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
    let mut piece = vec![0; 64 << 10];
    loop {
        // An error is an end as well.
        let length = from.read(&mut piece).await.unwrap_or(0);
        if whole(&mut state).await.is_err() {
            return;
        }
        let piece = piece.get(..length).unwrap_or_default();
        if length == 0 || to.write_all(piece).await.is_err() {
            to.shutdown().await.ok();
            return;
        }
    }
}
