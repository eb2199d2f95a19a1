//! TLS on the bridge's own listeners: loads the certificate and its key from files, loads them
//! again when they change, and authenticates clients by their own certificates.
//!
//! New files take effect whole or not at all. If they cannot be used, the old certificate stays,
//! and the status says why.
//!
//! Must not: open a socket, or know an app.

pub mod certificate;
#[cfg(test)]
pub(crate) mod fake;
pub mod files;
pub mod handshake;
pub mod pin;
pub mod verifier;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use tokio::sync::watch;
use tracing::{error, info};

use self::certificate::{Facts, Validity};
use self::files::{Contents, FileError, Files, TlsSettings};
use crate::model::San;

/// The function that reads a file.
pub type Read = fn(&Path) -> io::Result<String>;

/// The TLS of all listeners.
#[derive(Debug)]
pub struct Tls {
    /// The files that it loads.
    pub files: Files,
    read: Read,
    state: watch::Sender<Health>,
}

/// The state of the certificate.
#[derive(Debug, Clone)]
pub struct Health {
    pub settings: Arc<TlsSettings>,
    /// The last content of the files, usable or not.
    contents: Contents,
    /// Why the bridge does not use newer files.
    pub flaw: Option<Arc<FileError>>,
}

impl Tls {
    /// Loads the TLS settings of `files` with `read`.
    pub fn new(files: Files, read: Read) -> Result<Self, FileError> {
        // Hashed before they are loaded: if they change in between, the next look finds a
        // difference.
        let contents = files.contents(read);
        let settings = Arc::new(files.load(read)?);
        log_certificate("the listeners have this certificate", &settings.facts);
        let health = Health { settings, contents, flaw: None };
        Ok(Self { files, read, state: watch::Sender::new(health) })
    }

    /// Loads new files, if there are any; true if it did. Blocks.
    pub fn look(&self) -> bool {
        let contents = self.files.contents(self.read);
        if contents == self.state.borrow().contents {
            return false;
        }
        let loaded = self.files.load(self.read).and_then(|settings| self.unless_ended(settings));
        match loaded {
            Ok(settings) => {
                log_certificate("the listeners have a new certificate", &settings.facts);
                let settings = Arc::new(settings);
                self.state.send_replace(Health { settings, contents, flaw: None });
                true
            }
            Err(flaw) => {
                let key = flaw.which.as_str();
                let cure = flaw.cure;
                error!(key, mistake = %flaw, cure, "the new certificate was not taken");
                self.state.send_modify(|state| {
                    state.contents = contents;
                    state.flaw = Some(Arc::new(flaw));
                });
                false
            }
        }
    }

    pub fn health(&self) -> Health {
        self.state.borrow().clone()
    }

    /// A valid certificate is not replaced by an expired one.
    fn unless_ended(&self, settings: TlsSettings) -> Result<TlsSettings, FileError> {
        let now = crate::clock::now();
        let present = Arc::clone(&self.state.borrow().settings);
        if settings.facts.validity(now) == Validity::Ended
            && present.facts.validity(now) != Validity::Ended
        {
            return Err(FileError {
                which: files::Which::Cert,
                what: format!("the certificate in {} has ended", self.files.cert.display()),
                cure: "put a renewed one in its place, with its key",
            });
        }
        Ok(settings)
    }
}

fn log_certificate(what: &str, facts: &Facts) {
    let addresses = facts.addresses.iter().map(IpAddr::to_string);
    let names: Vec<String> = facts.names.iter().map(San::to_string).chain(addresses).collect();
    let until = humantime::format_rfc3339_seconds(facts.not_after);
    info!(names = names.join(", "), %until, "{what}");
}

/// The HTTP clients use the same provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
mod tests;
