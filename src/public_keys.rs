//! Public keys that the operator has named, as PEM or JWK, and whether one of them made a
//! signature.
//!
//! Must not: know what is signed, or get a key from anywhere but the text that it is given.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use x509_cert::der;
use x509_cert::der::asn1::UintRef;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode as _, Reader as _};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use crate::model::card::signature::{Algorithm, Key};
use crate::model::catalog::hex;
use crate::model::words::Words as _;

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const EDWARDS_25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The `kid` of a JWK.
    id: Option<String>,
    /// The `alg` of a JWK: the key is for no other.
    only: Option<Algorithm>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    /// Without leading zeros.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

/// Why a text holds no key to verify with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFlaw {
    #[error("there is no public key in it")]
    None,
    #[error("it holds a private key, which the bridge must not have")]
    Private,
    #[error("it is no JWK and no set of them ({0})")]
    NotJwks(String),
    #[error("key {0} in it is damaged, or of a kind that is not known")]
    Bad(usize),
    #[error("key {0} in it is too short: an RSA key has 2048 to 8192 bits")]
    RsaSize(usize),
}

/// A JWK, as far as it matters here (RFC 7517, 7518, 8037).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    d: Option<IgnoredAny>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

impl PublicKey {
    /// The keys in a PEM file (`PUBLIC KEY`, one or more), a JWK, or a set of them. Of a set, those
    /// that are not for verifying, or for algorithms that are not taken, are left out.
    pub fn read_all(text: &str) -> Result<Vec<Self>, KeyFlaw> {
        let keys = if text.trim_start().starts_with('{') {
            let not_jwks = |error: serde_json::Error| KeyFlaw::NotJwks(error.to_string());
            let set = match serde_json::from_str::<JwkSet>(text) {
                Ok(JwkSet { keys }) => keys,
                Err(error) if text.contains("\"keys\"") => return Err(not_jwks(error)),
                Err(_no_set) => vec![serde_json::from_str(text).map_err(not_jwks)?],
            };
            if set.iter().any(|jwk| jwk.d.is_some()) {
                return Err(KeyFlaw::Private);
            }
            let verifying = set.iter().enumerate().filter(|(_, jwk)| jwk.is_for_verifying());
            verifying.map(|(at, jwk)| Self::of_jwk(jwk, at + 1)).collect::<Result<Vec<_>, _>>()?
        } else {
            if text.contains("PRIVATE KEY-----") {
                return Err(KeyFlaw::Private);
            }
            let found = SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes()).enumerate();
            let read = |(at, der): (usize, Result<SubjectPublicKeyInfoDer<'_>, _>)| {
                let bad = KeyFlaw::Bad(at + 1);
                let material = of_spki(&der.map_err(|_pem| bad.clone())?).ok_or(bad)?;
                Self { id: None, only: None, material }.checked(at + 1)
            };
            found.map(read).collect::<Result<Vec<_>, _>>()?
        };
        if keys.is_empty() { Err(KeyFlaw::None) } else { Ok(keys) }
    }

    fn of_jwk(jwk: &Jwk, at: usize) -> Result<Self, KeyFlaw> {
        let material = jwk.material().ok_or(KeyFlaw::Bad(at))?;
        let only = jwk.alg.as_deref().and_then(Algorithm::parse);
        Self { id: jwk.kid.clone(), only, material }.checked(at)
    }

    fn checked(self, at: usize) -> Result<Self, KeyFlaw> {
        match &self.material {
            Material::Rsa { modulus, .. } if !(256..=1024).contains(&modulus.len()) => {
                Err(KeyFlaw::RsaSize(at))
            }
            _ => Ok(self),
        }
    }

    /// A hash of the key and what it is for.
    pub fn fingerprint(&self) -> String {
        hex(&Sha256::digest(format!("{self:?}")))
    }
}

impl Jwk {
    /// RFC 7517 wants keys that are not understood to be passed over.
    fn is_for_verifying(&self) -> bool {
        matches!(self.kty.as_str(), "EC" | "OKP" | "RSA")
            && self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"))
            && self.alg.as_deref().is_none_or(|name| Algorithm::parse(name).is_some())
            && self.crv.as_deref().is_none_or(|crv| ["P-256", "P-384", "Ed25519"].contains(&crv))
    }

    fn material(&self) -> Option<Material> {
        let bytes = |text: &Option<String>| BASE64URL.decode(text.as_deref()?).ok();
        let sized = |text, size: usize| bytes(text).filter(|bytes| bytes.len() == size);
        let point = |size| Some([vec![4], sized(&self.x, size)?, sized(&self.y, size)?].concat());
        Some(match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(sized(&self.x, 32)?),
            ("RSA", None) => rsa(&bytes(&self.n)?, &bytes(&self.e)?),
            _ => return None,
        })
    }
}

fn of_spki(der: &[u8]) -> Option<Material> {
    let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
    let key = info.subject_public_key.as_bytes()?;
    let curve = || info.algorithm.parameters?.decode_as::<ObjectIdentifier>().ok();
    let point =
        |size: usize| (key.len() == 1 + 2 * size && key.first() == Some(&4)).then(|| key.to_vec());
    Some(match info.algorithm.oid {
        EC => match curve()? {
            P256 => Material::P256(point(32)?),
            P384 => Material::P384(point(48)?),
            _ => return None,
        },
        EDWARDS_25519 => Material::Ed25519((key.len() == 32).then(|| key.to_vec())?),
        RSA => {
            let mut reader = der::SliceReader::new(key).ok()?;
            let numbers = reader.sequence(|inner: &mut der::SliceReader<'_>| {
                let modulus = UintRef::decode(inner)?.as_bytes().to_vec();
                Ok::<_, der::Error>((modulus, UintRef::decode(inner)?.as_bytes().to_vec()))
            });
            let (modulus, exponent) = numbers.ok()?;
            rsa(&modulus, &exponent)
        }
        _ => return None,
    })
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Material {
    let trimmed = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    Material::Rsa { modulus: trimmed(modulus), exponent: trimmed(exponent) }
}

impl Key for PublicKey {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let made_for = match self.material {
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
            Material::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
        };
        made_for && self.only.is_none_or(|only| only == algorithm)
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let by = |how: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            _ if !self.fits(algorithm) => false,
            (Material::P256(key), _) => by(&ECDSA_P256_SHA256_FIXED, key),
            (Material::P384(key), _) => by(&ECDSA_P384_SHA384_FIXED, key),
            (Material::Ed25519(key), _) => by(&ED25519, key),
            (Material::Rsa { modulus, exponent }, _) => {
                let how = match algorithm {
                    Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
                    _ => &RSA_PKCS1_2048_8192_SHA256,
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(how, message, signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests;
