//! TLS before a server that has none, and the files of a client that gets through it.
//!
//! Must not: look at what it passes on.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::certs::{Authority, Pair};

/// A front; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Front {
    addr: SocketAddr,
    let_in: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Front {
    /// A front with a certificate of `authority`, before the server at `to`, `host:port`. It speaks
    /// `alpn`, and wants certificates of `clients`, if there are any to want.
    pub(crate) async fn before(
        to: &str,
        authority: &Authority,
        clients: Option<&Authority>,
        alpn: &str,
    ) -> Self {
        let own = authority.sign(&["127.0.0.1", "localhost"]);
        Self::showing(&own, to, clients, alpn).await
    }

    /// One with this certificate.
    pub(crate) async fn showing(
        own: &Pair,
        to: &str,
        clients: Option<&Authority>,
        alpn: &str,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let acceptor = TlsAcceptor::from(Arc::new(settings(own, clients, alpn)));
        let let_in = Arc::new(AtomicUsize::new(0));
        let (count, to) = (Arc::clone(&let_in), to.trim_start_matches("http://").to_owned());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, count, to) = (acceptor.clone(), Arc::clone(&count), to.clone());
                connections.spawn(async move {
                    // Whom it does not let in, and who hangs up, are the clients' business.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    count.fetch_add(1, Ordering::Relaxed);
                    let mut server = TcpStream::connect(to).await.expect("the server is there");
                    copy_bidirectional(&mut client, &mut server).await.ok();
                });
            }
        });
        Self { addr, let_in, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// The connections whose handshakes are done.
    pub(crate) fn let_in(&self) -> usize {
        self.let_in.load(Ordering::Relaxed)
    }
}

fn settings(own: &Pair, clients: Option<&Authority>, alpn: &str) -> ServerConfig {
    let provider = || Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has them");
    let builder = match clients {
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.certificate()).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
            builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
        }
        None => builder.with_no_client_auth(),
    };
    let mut settings =
        builder.with_single_cert(vec![own.certificate()], own.private_key()).expect("a pair");
    settings.alpn_protocols = vec![alpn.into()];
    settings
}

/// Writes the files that a client needs into `dir`; its `tls`, as bridge.yaml has it.
pub(crate) fn client_files(dir: &Path, authority: &Authority, own: &Pair) -> String {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).expect("the test's directory is writable");
        path.display().to_string()
    };
    let (ca, cert) = (put("ca.pem", &authority.pem()), put("own.pem", &own.cert));
    let key = put("own.key", &own.key);
    format!("tls: {{ca: {ca}, cert: {cert}, key: {key}}}")
}
