//! What a certificate says: whose it is, and until when it is good.
//!
//! Must not: decide whether it is trusted; rustls does.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::{self, Decode as _},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::model::san::San;

/// So long before its end, a certificate should have been replaced.
const NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The part of a certificate that the bridge goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The names in it. Those of other kinds, which nobody is known by, are left out.
    pub names: Vec<San>,
    pub addresses: Vec<IpAddr>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

/// How much longer a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Nothing has to be done.
    Good,
    /// It should be replaced soon.
    Ending,
    Ended,
}

impl Facts {
    /// Reads a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, der::Error> {
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

    /// How it stands at `now`. Of a certificate with a short life, the last third is its end.
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
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|ip| Ipv4Addr::from(ip).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|ip| Ipv6Addr::from(ip).into()),
        _ => None,
    }
}
