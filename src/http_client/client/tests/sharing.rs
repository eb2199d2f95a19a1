//! A server with TLS that may speak HTTP/2, and requests that share a connection to it.

use futures_util::future::join_all;
use http::Version;
use http_body_util::Empty;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::http_client::Tls;

struct Secure {
    url: String,
    tls: Tls,
    connections: Arc<AtomicUsize>,
    /// The versions of the requests that came.
    versions: Arc<Mutex<Vec<Version>>>,
    _tasks: JoinSet<()>,
}

impl Secure {
    /// One that speaks `protocols`, as ALPN names them.
    async fn start(protocols: &[&str]) -> Self {
        let (certificate, key) = crate::tls::fake::pair(&["127.0.0.1"], 50);
        let tls = Tls::read(Some(&certificate), None).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(crate::tls::provider());
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let connections: Arc<AtomicUsize> = Arc::default();
        let versions = Arc::default();
        let counted = (Arc::clone(&connections), Arc::clone(&versions));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.0.fetch_add(1, Ordering::SeqCst);
                open.spawn(Self::serve(acceptor.clone(), stream, Arc::clone(&counted.1)));
            }
        });
        Self { url, tls, connections, versions, _tasks: tasks }
    }

    async fn serve(acceptor: TlsAcceptor, stream: TcpStream, versions: Arc<Mutex<Vec<Version>>>) {
        let stream = acceptor.accept(stream).await.unwrap();
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let service = service_fn(move |request| {
            let request: http::Request<hyper::body::Incoming> = request;
            versions.lock().push(request.version());
            async { Ok::<_, hyper::Error>(http::Response::new(Empty::<bytes::Bytes>::new())) }
        });
        let io = TokioIo::new(stream);
        if speaks_http2 {
            let server = http2::Builder::new(TokioExecutor::new());
            server.serve_connection(io, service).await.ok();
        } else {
            http1::Builder::new().serve_connection(io, service).await.ok();
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_shared_connection_is_used_again_for_a_minute() {
    let server = Secure::start(&["h2", "http/1.1"]).await;
    let client = http_client::sharing(Some(&server.tls));
    post(&client, &server.url).await.unwrap();
    let many = join_all((0..20).map(|_| post(&client, &server.url))).await;
    assert!(many.iter().all(Result::is_ok), "{many:?}");
    for _ in 0..3 {
        after(Duration::from_secs(50)).await;
        post(&client, &server.url).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    assert!(server.versions.lock().iter().all(|it| *it == Version::HTTP_2));
}

#[tokio::test]
async fn a_server_without_http2_gets_requests_as_any_other() {
    let server = Secure::start(&["http/1.1"]).await;
    let client = http_client::sharing(Some(&server.tls));
    // The first answer leads to another pool.
    post(&client, &server.url).await.unwrap();
    post(&client, &server.url).await.unwrap();
    post(&client, &server.url).await.unwrap();
    assert_eq!(server.connections(), 2);
    after(Duration::from_millis(1000)).await;
    post(&client, &server.url).await.unwrap();
    assert_eq!(server.connections(), 3, "it may be closing the earlier one");
    assert!(server.versions.lock().iter().all(|it| *it == Version::HTTP_11));
}

/// Without a promise of the server, streams keep connections of their own.
#[tokio::test]
async fn the_usual_client_offers_no_http2() {
    let server = Secure::start(&["h2", "http/1.1"]).await;
    let client = http_client::with_tls(&server.tls);
    post(&client, &server.url).await.unwrap();
    assert_eq!(*server.versions.lock(), [Version::HTTP_11]);
}
