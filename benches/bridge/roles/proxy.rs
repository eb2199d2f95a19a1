//! A reverse proxy of hyper and nothing more: requests go to one address as they are, bodies are
//! streamed both ways, connections are kept.
//!
//! Must not: look at what it passes on.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use http_body_util::combinators::BoxBody;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header::HeaderName,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::run::Outcome;

struct Pool {
    target: SocketAddr,
    idle: Mutex<Vec<SendRequest<Incoming>>>,
    connections: Mutex<JoinSet<()>>,
}

/// Passes everything on to `target`.
pub(super) async fn play(target: SocketAddr) -> Outcome<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    super::listening(listener.local_addr()?).await?;
    let (idle, connections) = (Mutex::default(), Mutex::default());
    let pool = Arc::new(Pool { target, idle, connections });
    let mut clients = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = Arc::clone(&pool);
        let service = service_fn(move |request| {
            let pool = Arc::clone(&pool);
            async move { pool.pass(request).await }
        });
        clients.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        while clients.try_join_next().is_some() {}
    }
}

impl Pool {
    async fn pass(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Outcome<Response<BoxBody<Bytes, hyper::Error>>> {
        for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
            request.headers_mut().remove(HeaderName::from_static(name));
        }
        let mut connection = match self.take() {
            Some(idle) => idle,
            None => self.open().await?,
        };
        let response = connection.send_request(request).await?;
        // It is ready again once the answer has been read; until then nobody takes it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(response.map(http_body_util::BodyExt::boxed))
    }

    fn take(&self) -> Option<SendRequest<Incoming>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.is_closed());
        let ready = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    async fn open(&self) -> Outcome<SendRequest<Incoming>> {
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.spawn(async move {
            // A connection that breaks is told to whoever waits for its answer.
            connection.await.ok();
        });
        while connections.try_join_next().is_some() {}
        Ok(sender)
    }
}
