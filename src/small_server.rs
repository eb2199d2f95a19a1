//! A plain HTTP/1.1 server, for the sandbox and the demo's agent.
//!
//! Must not: know a route, or serve apps (`http::server` does).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::http_client::keep_alive;

/// How long connections may take to finish writing when the server stops.
const GRACE: Duration = Duration::from_secs(1);
/// The wait after `accept` has failed, as it does without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most connections at a time; further clients wait.
    pub connections: usize,
    /// How long a client may take to send the head of a request, and how long a connection may be
    /// idle. Every answer announces this.
    pub idle: Duration,
}

/// Serves until `stop`; all connections are closed when this returns.
pub async fn serve<F, B>(
    listener: &TcpListener,
    limits: Limits,
    stop: &CancellationToken,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<B>> + Send,
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(limits.connections));
    let open = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        // Each arm is safe to drop at its await: a permit is returned, and `accept` takes no
        // connection before it is ready.
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&slots, listener) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, permit)) => {
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answering = answer(request);
                    async move {
                        let mut response = answering.await;
                        response.headers_mut().insert("keep-alive", keep_alive(limits.idle));
                        Ok::<_, Infallible>(response)
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits.idle)
                    .serve_connection(TokioIo::new(stream), service);
                let watched = open.watch(connection);
                connections.spawn(async move {
                    if let Err(error) = watched.await {
                        // The client has left, mostly in the middle of a stream.
                        tracing::debug!(%error, "a connection of a server inside the bridge broke");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a server inside the bridge cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    timeout(GRACE, open.shutdown()).await.ok();
    connections.shutdown().await;
}

async fn accept(
    slots: &Arc<Semaphore>,
    listener: &TcpListener,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Turns Nagle's algorithm off: events are small, and must not wait for more data.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}
