//! The contents of a certificate: its names, and its validity.
//!
//! Must not: decide whether it is trusted; rustls does.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::{Certificate, der};

use crate::model::San;

/// A certificate should be replaced this long before its end.
const NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The certificates in the text of a file, at least one. The error says why there is none.
pub fn read_pem(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err("there is no certificate in it".to_owned())
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("it is not PEM: {error}")),
    }
}

/// The fields of a certificate that the bridge uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its names. Kinds of names that identify no app are left out.
    pub names: Vec<San>,
    pub addresses: Vec<IpAddr>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

/// The state of a certificate's validity.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// It need not be replaced yet.
    #[default]
    Good,
    /// It should be replaced soon.
    Ending,
    Ended,
}

impl Facts {
    /// Reads a certificate.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, der::Error> {
        let certificate = Certificate::from_der(certificate)?;
        let body = certificate.tbs_certificate();
        let mut facts = Self {
            names: Vec::new(),
            addresses: Vec::new(),
            not_before: body.validity().not_before.to_system_time(),
            not_after: body.validity().not_after.to_system_time(),
        };
        let Some((_, SubjectAltName(names))) = body.get_extension()? else { return Ok(facts) };
        for name in names {
            match name {
                GeneralName::DnsName(text) => facts.names.push(San::Dns(text.to_string())),
                GeneralName::Rfc822Name(text) => facts.names.push(San::Email(text.to_string())),
                GeneralName::UniformResourceIdentifier(text) => {
                    facts.names.push(San::Uri(text.to_string()));
                }
                GeneralName::IpAddress(bytes) => facts.addresses.extend(address(bytes.as_bytes())),
                _ => (),
            }
        }
        Ok(facts)
    }

    /// The validity at `now`. For a certificate with a short life, the last third counts as its
    /// end.
    pub fn validity(&self, now: SystemTime) -> Validity {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        match self.not_after.duration_since(now) {
            Err(_past) => Validity::Ended,
            Ok(left) if left < NOTICE.min(life / 3) => Validity::Ending,
            Ok(_) => Validity::Good,
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_not_four| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
