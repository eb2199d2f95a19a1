//! A reverse proxy of hyper and nothing more: requests go to one address as they are, bodies are
//! streamed both ways, connections are kept. It can speak TLS, and HTTP/2 there.
//!
//! Must not: look at what it passes on.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use http_body_util::combinators::BoxBody;
use hyper::{
    Request, Response, Uri, Version,
    body::{Bytes, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header::{HOST, HeaderName, HeaderValue},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::run::Outcome;

/// The certificate that it shows, and what it speaks.
pub(super) struct Tls(TlsAcceptor);

impl Tls {
    /// `pem` is the file of the certificate and its key, `alpn` the protocols' names.
    pub(super) fn read(pem: &str, alpn: &str) -> Outcome<Self> {
        let pem = std::fs::read(pem)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let chain = vec![CertificateDer::from_pem_slice(&pem)?];
        let mut config = config.with_single_cert(chain, PrivateKeyDer::from_pem_slice(&pem)?)?;
        config.alpn_protocols = alpn.split(',').map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

struct Pool {
    target: SocketAddr,
    idle: Mutex<Vec<SendRequest<Incoming>>>,
    connections: Mutex<JoinSet<()>>,
}

/// Passes everything on to `target`.
pub(super) async fn play(target: SocketAddr, tls: Option<Tls>) -> Outcome<()> {
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
            async move { pool.pass(request).await.map_err(io::Error::other) }
        });
        let tls = tls.as_ref().map(|Tls(acceptor)| acceptor.clone());
        clients.spawn(async move {
            let Some(tls) = tls else {
                return http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            };
            // A client that gives up its handshake is its own business.
            let Ok(stream) = tls.accept(stream).await else { return Ok(()) };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let server = http2::Builder::new(TokioExecutor::new());
                return server.serve_connection(TokioIo::new(stream), service).await;
            }
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
        });
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
        if let Some(authority) = request.uri().authority() {
            // Of HTTP/2, which has no header for it.
            let host = HeaderValue::try_from(authority.as_str())?;
            request.headers_mut().insert(HOST, host);
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
            *request.version_mut() = Version::HTTP_11;
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
