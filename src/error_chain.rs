//! Writes an error with its causes as one line of text, explains TLS errors in plain words, and knows
//! what to do about a connection that fails.
//!
//! Must not: know which operation failed.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::model::sentences::{filled, named};

/// TLS errors in plain words: the name of each, and its text.
const FLAWS: &str = include_str!("error_chain/flaws.txt");
/// What to do about them, and about other errors of a connection.
const CURES: &str = include_str!("error_chain/cures.txt");

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
        let flaw = if is_root { tls_error(layer).map(tls_words) } else { None };
        let next = flaw.unwrap_or_else(|| layer.to_string());
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

/// What is wrong with the TLS of a server: a name in [`FLAWS`] and in [`CURES`].
fn tls_flaw(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer => "authority",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "clock",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "name"
            }
            _ if is_of_authority(error) => "of_authority",
            _ => "certificate",
        },
        rustls::Error::InvalidMessage(_) => "no_tls",
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA,
        ) => "own_certificate",
        _ => "handshake",
    }
}

/// Whether a server has shown an authority's own certificate.
pub(crate) fn is_of_authority(error: &rustls::Error) -> bool {
    // webpki's error is behind a type that does not show it.
    error.to_string().contains("CaUsedAsEndEntity")
}

/// A server's TLS error in plain words.
fn tls_words(error: &rustls::Error) -> String {
    filled(FLAWS, tls_flaw(error), &[("error", error)])
}

/// The proxy has answered CONNECT with 407.
const PROXY_LOGIN: &str = "the proxy wants a login: write it into the address of the proxy, as \
                           HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, and restart the bridge";
/// The proxy has answered CONNECT with something else than 200.
const PROXY_REFUSES: &str = "the proxy does not connect to this host: have its operator allow that, or \
                             add the host to NO_PROXY if this machine has a way there without it";
/// Nothing came back in time, or no more.
const SILENT: &str = "see whether the host is up and the port is right, and whether a firewall or a \
                      proxy swallows the connection; if the server does not speak TLS on this port, \
                      write http://";

/// What to do about a failure that only the words of the HTTP library tell: its types are its own.
fn cure_of_words(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let layers = std::iter::successors(Some(error), |&error| error.source());
    layers.map(ToString::to_string).find_map(|text| match text.as_str() {
        "tunnel error: proxy authorization required" => Some(PROXY_LOGIN),
        "tunnel error: unsuccessful" | "tunnel error: unexpected end of file" => {
            Some(PROXY_REFUSES)
        }
        "operation timed out" => Some(SILENT),
        _ => None,
    })
}

/// What to do about an error of a connection; `None` if it says nothing about that.
pub(crate) fn cure(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(cure) = cure_of_words(error) {
        return Some(cure);
    }
    let name = match (tls_error(error), io_kind(error)?) {
        (Some(error), _) => tls_flaw(error),
        (None, io::ErrorKind::ConnectionRefused) => "refuses",
        (None, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => "socket",
        (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => "hangs_up",
        (None, io::ErrorKind::TimedOut) => return Some(SILENT),
        (None, _) => "no_way",
    };
    Some(named(CURES, name))
}

/// The kind of the innermost error of input and output in a chain.
pub(crate) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    causes(error).last().map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    //! Errors of connections in plain words, and what to do about them.

    use super::*;

    /// The error as a client reports it: wrapped in errors of input and output.
    #[track_caller]
    fn told(error: rustls::Error) -> String {
        let error = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        format!("{}; {}", error_chain(&error), cure(&error).expect("it has a cure"))
    }

    #[test]
    fn errors_of_connections_are_told_apart() {
        let certificate = |why| told(rustls::Error::InvalidCertificate(why));
        let unknown = certificate(CertificateError::UnknownIssuer);
        assert!(unknown.contains("authority") && unknown.contains("SSL_CERT_FILE"), "{unknown}");
        assert!(certificate(CertificateError::Expired).contains("has expired"));
        assert!(certificate(CertificateError::NotValidForName).contains("another name"));
        assert!(certificate(CertificateError::Revoked).contains("cannot be used"));
        let none = told(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(none.contains("http://"), "{none}");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(cure(&refused).is_some_and(|cure| cure.contains("start the server")));
        assert!(cure(&std::fmt::Error).is_none(), "nothing of a connection");
    }

    #[test]
    fn every_flaw_has_its_words_and_its_cure() {
        let names = |list: &'static str| list.lines().filter_map(|line| line.split_once(": "));
        for (name, _) in names(FLAWS) {
            assert!(names(CURES).any(|(cure, _)| cure == name), "{name} has no cure");
        }
        let code = include_str!("error_chain.rs").split("#[cfg(test)]").next().unwrap();
        for (name, _) in names(CURES) {
            assert!(code.contains(&format!("\"{name}\"")), "nothing names {name}");
        }
    }
}
