//! The files of a listener's TLS, and the settings that they yield.
//!
//! Must not: keep them; `tls` does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};

use super::certificate::{Facts, read_pem};
use super::provider;
use crate::model::words::words;

/// The files of a listener's TLS, all of them PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, then the intermediate ones, in the order up to the root.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Authorities: every client must show a certificate that one of them has signed.
    pub client_ca: Option<PathBuf>,
}

words! {
    /// One of [`Files`], by its key in bridge.yaml.
    pub enum Which {
        Cert = "cert",
        Key = "key",
        ClientCa = "client_ca",
    }
}

/// A hash of the files' contents.
pub(super) type Contents = [u8; 32];

/// The settings of a listener, and the fields of its certificate.
#[derive(Debug)]
pub struct TlsSettings {
    pub(super) server: Arc<ServerConfig>,
    pub facts: Facts,
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    pub which: Which,
    pub what: String,
    pub cure: &'static str,
}

impl Files {
    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all().map(|(_, path)| path)
    }

    fn all(&self) -> impl Iterator<Item = (Which, &Path)> {
        let ca = self.client_ca.as_deref().map(|path| (Which::ClientCa, path));
        [(Which::Cert, &*self.cert), (Which::Key, &*self.key)].into_iter().chain(ca)
    }

    /// A hash of the files' contents, or of the errors from reading them.
    pub(super) fn contents(&self, read: impl Fn(&Path) -> io::Result<String>) -> Contents {
        let mut hash = Sha256::new();
        for (_, path) in self.all() {
            let part = read(path).unwrap_or_else(|error| error.kind().to_string());
            hash.update(Sha256::digest(part));
        }
        hash.finalize().into()
    }

    /// Reads the files with `read`, and makes the settings of a listener from them.
    ///
    /// # Errors
    ///
    /// A file cannot be read or holds something else, or the key is another certificate's.
    pub fn load(
        &self,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<TlsSettings, FileError> {
        let chain = certificates(Which::Cert, &self.cert, &text(&read, Which::Cert, &self.cert)?)?;
        let key = private_key(&self.key, &text(&read, Which::Key, &self.key)?)?;
        let first = chain.first().ok_or_else(|| unreadable(Which::Cert, &self.cert))?;
        let facts = Facts::read(first).map_err(|error| FileError {
            which: Which::Cert,
            what: format!("the certificate in {} cannot be read: {error}", self.cert.display()),
            cure: "the first certificate in the file is the listeners' own",
        })?;
        let versions = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions");
        let client_auth = match &self.client_ca {
            Some(path) => {
                let pem = text(&read, Which::ClientCa, path)?;
                let roots = roots(path, certificates(Which::ClientCa, path, &pem)?)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                        .build()
                        .expect("there are roots, and no revocation lists");
                versions.with_client_cert_verifier(verifier)
            }
            None => versions.with_no_client_auth(),
        };
        let mut server =
            client_auth.with_single_cert(chain, key).map_err(|error| self.not_a_pair(&error))?;
        server.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        if self.client_ca.is_some() {
            // A resumed session would skip the check of the client's certificate.
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(TlsSettings { server: Arc::new(server), facts })
    }

    fn not_a_pair(&self, error: &rustls::Error) -> FileError {
        let cert = self.cert.display();
        let key = self.key.display();
        let (what, cure) = match error {
            rustls::Error::InconsistentKeys(_) => (
                format!("the key in {key} is not that of the certificate in {cert}"),
                "name the key that the certificate was made for",
            ),
            other => (
                format!("the key in {key} cannot be used: {other}"),
                "make one with `openssl ecparam -genkey -name prime256v1 -noout`",
            ),
        };
        FileError { which: Which::Key, what, cure }
    }
}

/// The text of a file, or the mistake for the operator.
fn text(
    read: impl Fn(&Path) -> io::Result<String>,
    which: Which,
    path: &Path,
) -> Result<String, FileError> {
    read(path).map_err(|error| {
        let what = format!("{} cannot be read: {error}", path.display());
        FileError { which, what, cure: "name a file that the bridge may read" }
    })
}

/// The ALPN name of HTTP/2.
pub const H2: &[u8] = b"h2";

/// The first certificate in a file.
pub fn first_certificate(path: &Path, text: &str) -> Result<CertificateDer<'static>, FileError> {
    let chain = certificates(Which::Cert, path, text)?;
    chain.into_iter().next().ok_or_else(|| unreadable(Which::Cert, path))
}

/// All certificates in the text of a file, at least one.
fn certificates(
    which: Which,
    path: &Path,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    read_pem(text).map_err(|_why| unreadable(which, path))
}

fn unreadable(which: Which, path: &Path) -> FileError {
    FileError {
        which,
        what: format!("there is no certificate in {}", path.display()),
        cure: "the file is PEM: it has `-----BEGIN CERTIFICATE-----` in it",
    }
}

fn private_key(path: &Path, text: &str) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_no_key| FileError {
        which: Which::Key,
        what: format!("there is no private key in {}", path.display()),
        cure: "the file is PEM without a password: `-----BEGIN PRIVATE KEY-----` is in it",
    })
}

fn roots(path: &Path, authorities: Vec<CertificateDer<'_>>) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| FileError {
            which: Which::ClientCa,
            what: format!("a certificate in {} is no authority: {error}", path.display()),
            cure: "name a file with certificates of authorities",
        })?;
    }
    Ok(roots)
}
