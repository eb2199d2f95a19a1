//! Certificates for tests.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, SanType};

/// A certificate that is its own issuer, and its key, PEM both. It is good for `days` more, out of
/// 100.
pub(crate) fn pair(names: &[&str], days: i64) -> (String, String) {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names.iter().map(|name| san(name)).collect();
    let day = Duration::from_secs(24 * 60 * 60);
    let now = crate::clock::now();
    let at = |days: i64| match u32::try_from(days) {
        Ok(days) => now + day * days,
        Err(_past) => now - day * u32::try_from(-days).unwrap(),
    };
    params.not_before = at(days - 100).into();
    params.not_after = at(days).into();
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn san(name: &str) -> SanType {
    let text = || name.try_into().unwrap();
    match name.parse() {
        Ok(ip) => SanType::IpAddress(ip),
        Err(_) if name.contains("://") => SanType::URI(text()),
        Err(_) if name.contains('@') => SanType::Rfc822Name(text()),
        Err(_) => SanType::DnsName(text()),
    }
}
