//! Authorities and the certificates that they sign, and connections that are made with them.
//!
//! Must not: know the bridge.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM both.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::default();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        certificate(&self.pem())
    }

    /// A certificate with these names, which is good for the year around today.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        self.signed(names, 100)
    }

    /// One that ended yesterday.
    pub(crate) fn sign_expired(&self, names: &[&str]) -> Pair {
        self.signed(names, -1)
    }

    fn signed(&self, names: &[&str], days: i32) -> Pair {
        let (params, key) = Self::params(names, days);
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A server's certificate that it has signed itself, and that says it is an authority's, as
    /// `openssl req -x509` makes them; its end is so many days from now.
    pub(crate) fn self_signed(names: &[&str], days: i32) -> Pair {
        let (mut params, key) = Self::params(names, days);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).expect("a certificate");
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    fn params(names: &[&str], days: i32) -> (CertificateParams, KeyPair) {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let mut params = CertificateParams::default();
        // What a common name says counts nowhere.
        params.distinguished_name.push(DnType::CommonName, "hr.acme");
        params.subject_alt_names = names.iter().map(|name| san(name)).collect();
        #[expect(clippy::disallowed_methods, reason = "a test has the system's clock")]
        let now = SystemTime::now();
        params.not_before = (now - DAY * 100).into();
        let end = if days < 0 {
            now - DAY * days.unsigned_abs()
        } else {
            now + DAY * days.unsigned_abs()
        };
        params.not_after = end.into();
        (params, KeyPair::generate().expect("a key"))
    }
}

fn san(name: &str) -> SanType {
    let text = || name.try_into().expect("ASCII");
    match name.parse() {
        Ok(ip) => SanType::IpAddress(ip),
        Err(_) if name.contains("://") => SanType::URI(text()),
        Err(_) if name.contains('@') => SanType::Rfc822Name(text()),
        Err(_) => SanType::DnsName(text()),
    }
}

impl Pair {
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        certificate(&self.cert)
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }
}

/// A client of TLS.
#[derive(Clone)]
pub(crate) struct Client(ClientConfig);

impl Client {
    /// One that trusts `authority` and shows what it is given.
    pub(crate) fn new(authority: &str, shown: Option<&Pair>) -> Self {
        Self::with(authority, shown, &[&TLS13, &TLS12])
    }

    pub(crate) fn with(
        authority: &str,
        shown: Option<&Pair>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority)).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("known versions")
            .with_root_certificates(roots);
        Self(match shown {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let (chain, key) = (vec![pair.certificate()], pair.private_key());
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }

    /// It speaks HTTP/2 alone.
    pub(crate) fn h2(mut self) -> Self {
        self.0.alpn_protocols = vec![b"h2".to_vec()];
        self
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(self.0.clone()));
        connector.connect(ServerName::IpAddress(to.ip().into()), stream).await
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}
