//! The TLS settings for one server: the authorities that may sign its certificate, and the bridge's
//! own certificate.
//!
//! Must not: read files, or show a key.

use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};

/// The settings that differ from the defaults. Two values are equal if their files had the same
/// bytes.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("Tls {{ authorities: {:?}, identity: {} }}", self.authorities(), self.shows_certificate())]
pub struct Tls {
    /// The only trusted authorities, as DER; `None` means the machine's.
    authorities: Option<Vec<Vec<u8>>>,
    /// The bridge's certificates and key for the server, as PEM.
    identity: Option<String>,
}

/// Why the files of a server's TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsFlaw {
    Authority(String),
    Certificate(String),
    Key(String),
}

impl Tls {
    /// Takes the text of PEM files: the authorities, and the certificate with its key.
    pub fn read(
        authorities: Option<&str>,
        identity: Option<(&str, &str)>,
    ) -> Result<Self, TlsFlaw> {
        let authorities = authorities.map(self::authorities).transpose()?;
        if let Some((certificate, key)) = identity {
            check_pair(certificate, key)?;
        }
        let identity = identity.map(|(certificate, key)| format!("{certificate}\n{key}"));
        Ok(Self { authorities, identity })
    }

    /// The number of authorities that replace the machine's; `None` if the machine's are trusted.
    pub fn authorities(&self) -> Option<usize> {
        self.authorities.as_ref().map(Vec::len)
    }

    /// Whether the server gets a client certificate.
    pub fn shows_certificate(&self) -> bool {
        self.identity.is_some()
    }

    pub(super) fn apply(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if let Some(authorities) = &self.authorities {
            let authorities = authorities.iter().map(|der| {
                Certificate::from_der(der).expect("it was taken as an authority when it was read")
            });
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(pem) = &self.identity {
            let identity = Identity::from_pem(pem.as_bytes());
            builder = builder.identity(identity.expect("the pair was checked when it was read"));
        }
        builder
    }
}

// Hides the key, which is a secret.
fn authorities(pem: &str) -> Result<Vec<Vec<u8>>, TlsFlaw> {
    let mut store = RootCertStore::empty();
    let certificates = certificates(pem).map_err(TlsFlaw::Authority)?;
    let checked = certificates.into_iter().map(|certificate| {
        let der = certificate.to_vec();
        let bad = |error| TlsFlaw::Authority(format!("a certificate in it is bad: {error}"));
        store.add(certificate).map_err(bad).map(|()| der)
    });
    checked.collect()
}

/// The certificates in the text of a file, at least one. The error says why there is none.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("it is not PEM: {error}")),
    }
}

fn check_pair(certificate: &str, key: &str) -> Result<(), TlsFlaw> {
    let chain = certificates(certificate).map_err(TlsFlaw::Certificate)?;
    if key.contains("ENCRYPTED") {
        return Err(TlsFlaw::Key("it has a passphrase; use a key without one".to_owned()));
    }
    // The original error may quote a piece of the key.
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_may_tell| TlsFlaw::Key("there is no private key in it".to_owned()))?;
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        // `Unknown`: with this kind of key, the library cannot compare them.
        Ok(_) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(Error::InconsistentKeys(_)) => {
            Err(TlsFlaw::Key("it is the key of another certificate".to_owned()))
        }
        Err(Error::InvalidCertificate(why)) => {
            Err(TlsFlaw::Certificate(format!("the certificate is bad: {why:?}")))
        }
        Err(_may_tell) => Err(TlsFlaw::Key("it is no key that can be used".to_owned())),
    }
}

#[cfg(test)]
mod tests;
