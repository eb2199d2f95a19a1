//! `tls` of a backend and of MANTYX: the files, read and checked.
//!
//! Must not: connect, or show what a file holds.

use std::path::PathBuf;

use url::Url;

use super::{Validator, everybody_reads, optional};
use crate::config::{At, Dialect, NodeId, file_format};
use crate::http_client::{Tls, TlsFlaw};

/// How to name the right file, for the message about a wrong one.
const CERTIFICATES: &str = "name a file with certificates in PEM (-----BEGIN CERTIFICATE-----)";
const KEY: &str = "name the file with the key of `cert`, in PEM and without a passphrase";

/// A named file and its text.
struct Pem {
    node: NodeId,
    path: PathBuf,
    text: String,
}

impl Validator<'_> {
    /// The TLS settings of the server at `url`. `None` outside: a mistake was reported.
    pub(super) fn server_tls(
        &self,
        section: Option<&At<file_format::ServerTls>>,
        dialect: Dialect,
        url: Option<&Url>,
    ) -> Option<Option<Tls>> {
        let Some(At { value: tls, node }) = section else { return Some(None) };
        if url.is_some_and(|url| url.scheme() != "https") {
            let message = "`tls` means nothing where the address is not https://";
            let cure = "write https:// in the address, or remove this";
            return self.refuse(node.key(), message, cure);
        }
        match (&tls.ca, &tls.cert, &tls.key) {
            (None, None, None) => {
                let cure = "write `ca: /path`, or `cert: /path` and `key: /path`";
                return self.missing(*node, "`tls` says nothing", cure);
            }
            (_, Some(lone), None) | (_, None, Some(lone)) => {
                let message = "`cert` and `key` stand together: a certificate and its private key";
                return self.refuse(lone.node.key(), message, "write both, or neither");
            }
            _ => (),
        }
        let read = |at: &Option<At<String>>, is_secret, cure| {
            optional(at, |at| self.pem(at, dialect, is_secret, cure))
        };
        let ca = read(&tls.ca, false, CERTIFICATES);
        let cert = read(&tls.cert, false, CERTIFICATES);
        let key = read(&tls.key, true, KEY);
        let (ca, cert, key) = (ca?, cert?, key?);
        let pair = cert.as_ref().zip(key.as_ref());
        let pair = pair.map(|(cert, key)| (cert.text.as_str(), key.text.as_str()));
        let flaw = match Tls::read(ca.as_ref().map(|ca| ca.text.as_str()), pair) {
            Ok(tls) => return Some(Some(tls)),
            Err(flaw) => flaw,
        };
        let (file, why, cure) = match flaw {
            TlsFlaw::Authority(why) => (ca, why, CERTIFICATES),
            TlsFlaw::Certificate(why) => (cert, why, CERTIFICATES),
            TlsFlaw::Key(why) => (key, why, KEY),
        };
        let Pem { node, path, .. } = file?;
        self.refuse(node, format!("{} cannot be used: {why}", path.display()), cure)
    }

    fn pem(
        &self,
        at: &At<String>,
        dialect: Dialect,
        is_secret: bool,
        cure: &'static str,
    ) -> Option<Pem> {
        let path = self.path_in(at, dialect)?;
        let file = self.file(at.node, &path, cure)?;
        if is_secret && file.mode & 0o004 != 0 {
            self.warn(at.node, everybody_reads(&path));
        }
        if is_secret {
            self.findings.borrow_mut().secret_files.push(path.clone());
        }
        Some(Pem { node: at.node, path, text: file.text })
    }
}
