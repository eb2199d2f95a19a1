//! The TLS settings for one server: the authorities that may sign its certificate, and the bridge's
//! own certificate.
//!
//! Must not: read files, or show a key.

use std::sync::Arc;

use reqwest::ClientBuilder;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier as _};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, Error, InconsistentKeys, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::error_chain::is_of_authority;
use crate::tls::certificate::read_pem;
use crate::tls::verifier;

/// The settings that differ from the defaults. Two values are equal if their files had the same
/// certificates and the same key.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("Tls {{ authorities: {:?}, identity: {} }}", self.authority_count(), self.shows_certificate())]
pub struct Tls {
    /// The only trusted authorities; `None` means the machine's.
    trusted: Option<Vec<CertificateDer<'static>>>,
    /// The bridge's certificate and key for the server.
    identity: Option<Arc<Identity>>,
}

/// A certificate with those that lead to its authority, and its key. They are read once: what was
/// checked is what is used.
#[derive(PartialEq, Eq)]
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
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
        let trusted = authorities.map(read_authorities).transpose()?;
        let identity = match identity {
            Some((certificate, key)) => Some(Arc::new(Identity::read(certificate, key)?)),
            None => None,
        };
        Ok(Self { trusted, identity })
    }

    /// The number of authorities that replace the machine's; `None` if the machine's are trusted.
    pub fn authority_count(&self) -> Option<usize> {
        self.trusted.as_ref().map(Vec::len)
    }

    /// Whether the server gets a client certificate.
    pub fn shows_certificate(&self) -> bool {
        self.identity.is_some()
    }

    /// The settings for a client that speaks `protocols`, as ALPN names them: the first that the
    /// server speaks.
    pub(super) fn apply(&self, builder: ClientBuilder, protocols: &[&str]) -> ClientBuilder {
        if self.trusted.is_none() && self.identity.is_none() {
            return builder;
        }
        let settings = tls_settings(Some(self));
        let mut config = settings.expect("the machine has authorities, or no client can be built");
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_owned()).collect();
        builder.tls_backend_preconfigured(config)
    }
}

/// The settings of a TLS client that speaks another protocol than HTTP.
///
/// # Errors
///
/// The authorities of this machine cannot be read.
pub fn tls_settings(tls: Option<&Tls>) -> Result<ClientConfig, Error> {
    let trust = match tls.and_then(|tls| tls.trusted.as_ref()) {
        Some(authorities) => trusting(authorities),
        None => ClientConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?,
    };
    match tls.and_then(|tls| tls.identity.as_deref()) {
        Some(Identity { chain, key }) => {
            trust.with_client_auth_cert(chain.clone(), key.clone_key())
        }
        None => Ok(trust.with_no_client_auth()),
    }
}

/// The settings of a client that trusts what a file names: authorities, and a server's own
/// certificate that says it is one, as `openssl req -x509` makes them.
fn trusting(
    certificates: &[CertificateDer<'static>],
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.iter().cloned());
    let authorities =
        WebPkiServerVerifier::builder_with_provider(store.into(), crate::tls::provider())
            .build()
            .expect("each was taken as one when it was read");
    let certificates = certificates.to_owned();
    verifier::config(Box::new(move |end_entity, intermediates, name, now| {
        let verdict = authorities.verify_server_cert(end_entity, intermediates, name, &[], now);
        match verdict {
            // webpki looks at the certificate's time before it looks for its authority. It does not
            // get to the purposes (EKU) of such a certificate, which the operator has named.
            Err(error) if is_of_authority(&error) && certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }))
}

fn read_authorities(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsFlaw> {
    let mut store = RootCertStore::empty();
    let certificates = read_pem(pem).map_err(TlsFlaw::Authority)?;
    for certificate in &certificates {
        if let Err(error) = store.add(certificate.clone()) {
            return Err(TlsFlaw::Authority(format!("a certificate in it is bad: {error}")));
        }
    }
    Ok(certificates)
}

impl Identity {
    /// Reads the certificate with its chain, and the first key of `key`, which has to be its own.
    fn read(certificate: &str, key: &str) -> Result<Self, TlsFlaw> {
        let chain = read_pem(certificate).map_err(TlsFlaw::Certificate)?;
        if key.contains("ENCRYPTED") {
            return Err(TlsFlaw::Key("it has a passphrase; use a key without one".to_owned()));
        }
        // The original error may quote a piece of the key.
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_may_tell| TlsFlaw::Key("there is no private key in it".to_owned()))?;
        let checked =
            CertifiedKey::from_der(chain.clone(), key.clone_key(), &ring::default_provider());
        match checked {
            // `Unknown`: with this kind of key, the library cannot compare them.
            Ok(_) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self { chain, key })
            }
            Err(Error::InconsistentKeys(_)) => {
                Err(TlsFlaw::Key("it is the key of another certificate".to_owned()))
            }
            Err(Error::InvalidCertificate(why)) => {
                Err(TlsFlaw::Certificate(format!("the certificate is bad: {why:?}")))
            }
            Err(_may_tell) => Err(TlsFlaw::Key("it is no key that can be used".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
