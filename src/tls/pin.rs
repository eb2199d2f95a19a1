//! A client's trust in exactly one certificate: the daemon's own, which the command line finds
//! through bridge.yaml. This needs neither a known authority nor a matching name.
//!
//! Must not: accept another certificate, whoever has signed it.

use rustls::client::danger::ServerCertVerified;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig};

use super::verifier;

/// A client that only talks to the holder of `certificate`'s key.
pub fn client(certificate: CertificateDer<'static>) -> ClientConfig {
    let config = verifier::config(Box::new(move |end_entity, _, _, _| {
        if *end_entity == certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }));
    config.with_no_client_auth()
}
