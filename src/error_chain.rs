//! Writes an error with its causes as one line of text, explains TLS errors in plain words, and
//! knows what to do about a connection that fails.
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
        let flaw =
            if is_root { tls_error(layer).map(|error| tls_flaw(error).message) } else { None };
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

/// What is wrong with the TLS of a server, and what to do about it.
struct TlsFlaw {
    message: String,
    cure: &'static str,
}

impl TlsFlaw {
    fn new(message: &'static str, cure: &'static str) -> Self {
        Self { message: message.to_owned(), cure }
    }
}

fn tls_flaw(error: &rustls::Error) -> TlsFlaw {
    match error {
        rustls::Error::InvalidCertificate(certificate) => certificate_flaw(error, certificate),
        rustls::Error::InvalidMessage(_) => TlsFlaw::new(
            "the server does not speak TLS on this port",
            "write http:// if that is meant, or correct the port",
        ),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA,
        ) => TlsFlaw::new(
            "the server wants a certificate of the bridge, and one that it knows",
            "name it in `tls: {cert: …, key: …}` beside the address",
        ),
        _ => TlsFlaw {
            message: format!("the TLS handshake failed: {error}"),
            cure: "see the server's log for the reason",
        },
    }
}

/// What is wrong with the certificate that a server has shown.
fn certificate_flaw(error: &rustls::Error, certificate: &CertificateError) -> TlsFlaw {
    match certificate {
        CertificateError::UnknownIssuer => TlsFlaw::new(
            "the certificate is signed by an authority that is not trusted here",
            "name the authority's file in `tls: {ca: …}` beside the address, or add it to the \
             machine's trust store (Debian: copy it to /usr/local/share/ca-certificates and run \
             update-ca-certificates), or name it in SSL_CERT_FILE",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFlaw::new(
            "the certificate has expired",
            "renew it at the server; see whether this machine's clock is right",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFlaw::new(
                "the certificate is not valid yet",
                "see whether this machine's clock is right",
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsFlaw::new(
                "the certificate is for another name",
                "write the name that the certificate has, or get one for this name",
            )
        }
        _ if is_of_authority(error) => TlsFlaw::new(
            "the certificate is an authority's own, and not one for a server",
            "name this very certificate in `tls: {ca: …}` beside the address, or have the server \
             show one that the authority has signed",
        ),
        _ => TlsFlaw {
            message: format!("the certificate cannot be used: {error}"),
            cure: "get another certificate for the server",
        },
    }
}

/// Whether a server has shown an authority's own certificate.
pub(crate) fn is_of_authority(error: &rustls::Error) -> bool {
    // webpki's error is behind a type that does not show it.
    error.to_string().contains("CaUsedAsEndEntity")
}

/// The proxy has answered CONNECT with 407.
const PROXY_LOGIN: &str = "the proxy wants a login: write it into the address of the proxy, as \
                           HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, and restart the bridge";
/// The proxy has answered CONNECT with something else than 200.
const PROXY_REFUSES: &str = "the proxy does not connect to this host: have its operator allow that, or \
                             add the host to NO_PROXY if this machine has a way there without it";
/// Nothing listens there.
const REFUSED: &str = "start the server there, or correct the port";
/// There is no such unix socket, or the bridge may not write to it.
const NO_SOCKET: &str = "start the server, or correct the path in `url`; the bridge's user needs \
                         write permission on the socket";
/// The server ended the connection.
const HUNG_UP: &str =
    "if the server does not speak TLS on this port, write http://; otherwise read the server's log";
/// Nothing came back in time, or no more.
const SILENT: &str = "see whether the host is up and the port is right, and whether a firewall or a \
                      proxy swallows the connection; if the server does not speak TLS on this port, \
                      write http://";
/// There is no way to the host, or an error that tells no more.
const NO_WAY: &str = "correct the address; see whether the host is up, and whether this machine \
                      has a way there (DNS, a proxy, a firewall, a VPN that is off?)";

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
    let kind = io_kind(error)?;
    if let Some(error) = tls_error(error) {
        return Some(tls_flaw(error).cure);
    }
    Some(match kind {
        io::ErrorKind::ConnectionRefused => REFUSED,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => NO_SOCKET,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => HUNG_UP,
        io::ErrorKind::TimedOut => SILENT,
        _ => NO_WAY,
    })
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
}
