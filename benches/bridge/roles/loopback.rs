//! What an exchange over loopback costs with the libraries that the bridge is made of: a server
//! that reads a body and answers with a few bytes.
//!
//! Must not: do anything else.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use crate::run::Outcome;

pub(super) async fn play() -> Outcome<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    super::listening(listener.local_addr()?).await?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let served =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        connections.spawn(served);
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // A body that breaks off is the client's affair.
    drop(request.into_body().collect().await);
    Ok(Response::new(Full::new(Bytes::from_static(b"{\"ok\":true}"))))
}
