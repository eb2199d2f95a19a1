//! Writes an error with its causes as one line of text, and explains TLS errors in plain words.
//!
//! Must not: know which operation failed.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// The layers of reqwest and hyper that add nothing to their cause.
const SAYS_NOTHING: [&str; 4] = [
    "error sending request",
    "client error (Connect)",
    "client error (SendRequest)",
    "tcp connect error",
];

/// An error and its causes, down to the root, in one line.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let layers = std::iter::successors(Some(error), |&error| error.source());
    let mut text = String::new();
    for layer in layers {
        let is_root = layer.source().is_none();
        let flaw = if is_root { tls_error(layer).and_then(tls_flaw) } else { None };
        let next = flaw.map_or_else(|| layer.to_string(), str::to_owned);
        if text.ends_with(&next) || SAYS_NOTHING.contains(&next.as_str()) && !is_root {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&next);
    }
    text
}

/// Those of the errors in a chain that are of the type `E`. Not by `source` alone: an `io::Error`
/// hides the error that it was made from.
pub(crate) fn causes<'e, E: Error + 'static>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e E> {
    let chain = std::iter::successors(Some(error), |&error| {
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    });
    chain.filter_map(|error| error.downcast_ref())
}

/// The TLS error in a chain.
pub(crate) fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    causes(error).next()
}

/// A server's TLS error in plain words; `None` if rustls' own words are as clear.
pub(crate) fn tls_flaw(error: &rustls::Error) -> Option<&'static str> {
    Some(match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => {
                "the certificate is signed by an authority that is not trusted here"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another name"
            }
            _ => return None,
        },
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port",
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA,
        ) => "the server wants a certificate of the bridge, and one that it knows",
        _ => return None,
    })
}
