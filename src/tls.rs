//! TLS on the bridge's own listeners: the certificate and its key, read from files and read again
//! when they change, and who clients are by certificates of their own.
//!
//! New files are taken as they are or not at all: where they are of no use, the certificate that
//! there was stays, and the status tells.
//!
//! Must not: open a socket, or know an app.

pub mod certificate;
#[cfg(test)]
pub(crate) mod fake;
pub mod files;
pub mod handshake;
pub mod pin;

use std::{io, net::IpAddr, path::Path, sync::Arc, time::SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use tokio::{net::TcpStream, sync::watch};
use tracing::{error, info, warn};

use self::{
    certificate::{Facts, Validity},
    files::{Contents, FileError, Files, Settings},
    handshake::{Failed, Secured},
};
use crate::model::san::San;

/// How a file is read.
pub type Read = fn(&Path) -> io::Result<String>;

/// The TLS of all listeners.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    read: Read,
    state: watch::Sender<State>,
}

#[derive(Debug)]
struct State {
    settings: Arc<Settings>,
    /// What was found in the files last, be it of use or not.
    seen: Contents,
    flaw: Option<Arc<FileError>>,
    /// That the certificate should be replaced has been said.
    noted: Validity,
}

/// How the certificate is doing.
#[derive(Debug)]
pub struct Health {
    pub settings: Arc<Settings>,
    pub validity: Validity,
    /// Why newer files are not used.
    pub flaw: Option<Arc<FileError>>,
}

impl Tls {
    /// The TLS that `files` describe, which `read` reads.
    pub fn new(files: Files, read: Read) -> Result<Self, FileError> {
        // Before they are read: a change in between is looked at again.
        let seen = files.contents(read);
        let settings = Arc::new(files.load(read)?);
        told("the listeners have this certificate", &settings.facts);
        let noted = Validity::Good;
        let tls = Self {
            files,
            read,
            state: watch::Sender::new(State { settings, seen, flaw: None, noted }),
        };
        tls.note_end();
        Ok(tls)
    }

    /// The files that it lives from.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Takes new files, if there are any; whether it did. Blocks.
    pub fn look(&self) -> bool {
        self.note_end();
        let seen = self.files.contents(self.read);
        if seen == self.state.borrow().seen {
            return false;
        }
        let loaded = self.files.load(self.read).and_then(|settings| self.unless_ended(settings));
        match loaded {
            Ok(settings) => {
                told("the listeners have a new certificate", &settings.facts);
                let (settings, noted) = (Arc::new(settings), Validity::Good);
                self.state.send_replace(State { settings, seen, flaw: None, noted });
                self.note_end();
                true
            }
            Err(flaw) => {
                let (key, cure) = (flaw.which, flaw.cure);
                error!(%key, mistake = %flaw, cure, "the new certificate was not taken");
                self.state.send_modify(|state| {
                    state.seen = seen;
                    state.flaw = Some(Arc::new(flaw));
                });
                false
            }
        }
    }

    pub fn health(&self) -> Health {
        let state = self.state.borrow();
        Health {
            settings: Arc::clone(&state.settings),
            validity: state.settings.facts.validity(SystemTime::now()),
            flaw: state.flaw.clone(),
        }
    }

    /// Agrees with a client on a connection.
    pub async fn shake_hands(&self, stream: TcpStream) -> Result<Secured, Failed> {
        let server = Arc::clone(&self.state.borrow().settings.server);
        handshake::shake_hands(server, stream).await
    }

    /// A certificate that has ended does not take the place of one that has not.
    fn unless_ended(&self, settings: Settings) -> Result<Settings, FileError> {
        let now = SystemTime::now();
        let ended = |facts: &Facts| facts.validity(now) == Validity::Ended;
        if ended(&settings.facts) && !ended(&self.state.borrow().settings.facts) {
            return Err(FileError {
                which: files::Which::Cert,
                what: format!("the certificate in {} has ended", self.files.cert.display()),
                cure: "put a renewed one in its place, with its key",
            });
        }
        Ok(settings)
    }

    /// Says once that the certificate ends soon, and once that it has.
    fn note_end(&self) {
        let now = self.health().validity;
        let changed = self.state.send_if_modified(|state| {
            std::mem::replace(&mut state.noted, now) != now && now != Validity::Good
        });
        if changed {
            let until = humantime::format_rfc3339_seconds(self.health().settings.facts.not_after);
            let cert = self.files.cert.display();
            match now {
                Validity::Ended => error!(%cert, %until, "the certificate has ended"),
                Validity::Ending | Validity::Good => {
                    warn!(%cert, %until, "the certificate ends soon");
                }
            }
        }
    }
}

fn told(what: &str, facts: &Facts) {
    let names = facts.names.iter().map(San::to_string);
    let names: Vec<String> = names.chain(facts.addresses.iter().map(IpAddr::to_string)).collect();
    let until = humantime::format_rfc3339_seconds(facts.not_after);
    info!(names = names.join(", "), %until, "{what}");
}

/// The one that the HTTP clients have, too.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
mod tests;
