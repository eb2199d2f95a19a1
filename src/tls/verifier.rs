//! A client's own verdict on a server's certificate, beside rustls' check that the server has its
//! key.
//!
//! Must not: leave out that check.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};

/// The verdict on a certificate, by those between it and an authority, the server's name, and the
/// time.
pub type Verify = dyn Fn(
        &CertificateDer<'_>,
        &[CertificateDer<'_>],
        &ServerName<'_>,
        UnixTime,
    ) -> Result<ServerCertVerified, Error>
    + Send
    + Sync;

/// The settings of a client that takes a server's certificate if `verify` does.
pub fn config(verify: Box<Verify>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = super::provider();
    let algorithms = provider.signature_verification_algorithms;
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { algorithms, verify }))
}

#[derive(derive_more::Debug)]
#[debug("Verifier")]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    verify: Box<Verify>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.verify)(end_entity, intermediates, name, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
