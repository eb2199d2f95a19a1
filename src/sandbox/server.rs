//! Accepts connections and speaks HTTP/1.1 on them.
//!
//! Must not: know a route.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Shared, routes};
use crate::http_client::keep_alive;

/// How long a client may take to send the head of a request, and how long a connection may be idle.
/// Every answer announces this.
const HEAD_TIMEOUT: Duration = Duration::from_mins(2);
/// How long connections may take to finish writing when the server stops.
const GRACE: Duration = Duration::from_secs(1);
/// The wait after `accept` has failed, as it does without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`; all connections are closed when this returns.
pub(super) async fn serve(shared: &Arc<Shared>, listener: &TcpListener, stop: &CancellationToken) {
    let slots = Arc::new(Semaphore::new(shared.config.limits.connections));
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
                let shared = Arc::clone(shared);
                let stop = stop.clone();
                connections.spawn(async move {
                    connection(&shared, stream, &stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the sandbox cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn accept(
    slots: &Arc<Semaphore>,
    listener: &TcpListener,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(slots).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Turns Nagle's algorithm off: events are small, and must not wait for more data.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

async fn connection(shared: &Arc<Shared>, stream: TcpStream, stop: &CancellationToken) {
    let service = service_fn(|request| async {
        let mut answer = routes::answer(shared, stop, request).await;
        answer.headers_mut().insert("keep-alive", keep_alive(HEAD_TIMEOUT));
        Ok::<_, Infallible>(answer)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // The client has left, mostly in the middle of a stream.
        tracing::debug!(%error, "a connection of the sandbox broke");
    }
}
