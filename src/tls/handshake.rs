//! The handshake with one client: returns the client's names, or why it failed.
//!
//! Must not: wait longer than [`LIMIT`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError, Error, ServerConfig};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Tls;
use super::certificate::Facts;
use super::files::H2;
use crate::metrics::HandshakeFailure;
use crate::model::San;

/// How long a handshake may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The first byte of a handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// The answer to a client that does not speak TLS.
const PLAIN: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\
    Content-Length: 88\r\nConnection: close\r\n\r\n\
    {\"error\":\"invalid_request\",\"message\":\"This port speaks TLS: write https:// in the URL.\"}";

/// A connection on which TLS is spoken.
#[derive(Debug)]
pub struct Secured {
    pub stream: TlsStream<TcpStream>,
    /// The names in the client's certificate; `None` if the bridge asked for none.
    pub names: Option<Arc<[San]>>,
    pub h2: bool,
}

/// The handshake failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    pub kind: HandshakeFailure,
    pub error: io::Error,
}

impl Tls {
    /// Performs the handshake with a client.
    pub async fn shake_hands(&self, stream: TcpStream) -> Result<Secured, Failed> {
        let server = Arc::clone(&self.state.borrow().settings.server);
        let slow = Failed { kind: HandshakeFailure::Slow, error: io::ErrorKind::TimedOut.into() };
        timeout(LIMIT, agree(server, stream)).await.unwrap_or(Err(slow))
    }
}

async fn agree(server: Arc<ServerConfig>, mut stream: TcpStream) -> Result<Secured, Failed> {
    let mut first = [0];
    let length = stream.peek(&mut first).await.map_err(client_gone)?;
    if length == 1 && first != [HANDSHAKE] {
        stream.write_all(PLAIN.as_bytes()).await.map_err(client_gone)?;
        stream.shutdown().await.map_err(client_gone)?;
        let error = io::Error::other("the client does not speak TLS");
        return Err(Failed { kind: HandshakeFailure::NotTls, error });
    }
    let stream = TlsAcceptor::from(server)
        .accept(stream)
        .await
        .map_err(|error| Failed { kind: kind(&error), error })?;
    let (_, session) = stream.get_ref();
    let h2 = session.alpn_protocol() == Some(H2);
    let facts = session
        .peer_certificates()
        .and_then(<[_]>::first)
        .map(|certificate| Facts::read(certificate))
        .transpose()
        .map_err(|error| Failed {
            kind: HandshakeFailure::BadCertificate,
            error: io::Error::other(error),
        })?;
    Ok(Secured { stream, names: facts.map(|facts| facts.names.into()), h2 })
}

fn client_gone(error: io::Error) -> Failed {
    Failed { kind: HandshakeFailure::Gone, error }
}

/// The label of a failure in the metrics.
fn kind(error: &io::Error) -> HandshakeFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        None => HandshakeFailure::Gone,
        Some(Error::NoCertificatesPresented) => HandshakeFailure::NoCertificate,
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => HandshakeFailure::ExpiredCertificate,
        Some(Error::InvalidCertificate(_)) => HandshakeFailure::BadCertificate,
        Some(Error::AlertReceived(
            AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown,
        )) => HandshakeFailure::Distrusted,
        Some(_) => HandshakeFailure::Protocol,
    }
}

#[cfg(test)]
mod tests {
    //! What a client is told whose request is not encrypted.

    use super::PLAIN;

    #[test]
    fn the_answer_in_the_clear_has_its_length() {
        let (head, body) = PLAIN.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
