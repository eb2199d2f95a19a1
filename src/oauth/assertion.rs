//! A client that shows its private key instead of a secret: it signs an assertion for each request
//! (`private_key_jwt`; RFC 7523, 2.2 and 3).
//!
//! Must not: let a key out.

use std::time::{Duration, SystemTime};

use crate::random;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

/// How long an assertion is good for.
const LIFETIME: Duration = Duration::from_secs(300);

/// The private key of a client.
#[derive(Debug)]
pub struct ClientKey {
    algorithm: &'static str,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Ec(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl ClientKey {
    /// Reads a key in PEM (PKCS #8): P-256, P-384, Ed25519 or RSA of at least 2048 bits.
    pub fn read(pem: &str) -> Option<Self> {
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
        let der = pkcs8.secret_pkcs8_der();
        if let Some(pair) = ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, der) {
            return Some(Self { algorithm: "ES256", pair });
        }
        if let Some(pair) = ec_pair(&ECDSA_P384_SHA384_FIXED_SIGNING, der) {
            return Some(Self { algorithm: "ES384", pair });
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Some(Self { algorithm: "EdDSA", pair: Pair::Ed25519(pair) });
        }
        let pair = Pair::Rsa(RsaKeyPair::from_pkcs8(der).ok()?);
        Some(Self { algorithm: "RS256", pair })
    }

    /// The assertion of `client` for `audience`, an issuer or its token endpoint; `None` if the
    /// operating system gives no random numbers.
    pub fn assertion(&self, client: &str, audience: &str, now: SystemTime) -> Option<String> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let header = json!({ "alg": self.algorithm, "typ": "JWT" }).to_string();
        let claims = json!({
            "iss": client,
            "sub": client,
            "aud": audience,
            "jti": random::uuid().to_string(),
            "iat": now.as_secs(),
            "exp": (now + LIFETIME).as_secs(),
        });
        let text = [header, claims.to_string()].map(|part| BASE64URL.encode(part)).join(".");
        let (random, bytes) = (SystemRandom::new(), text.as_bytes());
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, bytes).ok()?.as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(bytes).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).ok()?;
                signature
            }
        };
        Some(format!("{text}.{}", BASE64URL.encode(signature)))
    }
}

fn ec_pair(algorithm: &'static EcdsaSigningAlgorithm, der: &[u8]) -> Option<Pair> {
    EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new()).ok().map(Pair::Ec)
}

#[cfg(test)]
mod tests {
    //! Assertions, checked with the public keys.

    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData as _,
        SignatureAlgorithm,
    };
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, UnparsedPublicKey,
        VerificationAlgorithm,
    };
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_assertion_is_signed_for_its_audience() {
        struct Check {
            kind: &'static SignatureAlgorithm,
            algorithm: &'static dyn VerificationAlgorithm,
            name: &'static str,
        }
        let checks = [
            Check {
                kind: &PKCS_ECDSA_P256_SHA256,
                algorithm: &ECDSA_P256_SHA256_FIXED,
                name: "ES256",
            },
            Check {
                kind: &PKCS_ECDSA_P384_SHA384,
                algorithm: &ECDSA_P384_SHA384_FIXED,
                name: "ES384",
            },
            Check { kind: &PKCS_ED25519, algorithm: &ED25519, name: "EdDSA" },
        ];
        for Check { kind, algorithm, name } in checks {
            let pair = KeyPair::generate_for(kind).unwrap();
            let key = ClientKey::read(&pair.serialize_pem()).unwrap();
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
            let assertion = key.assertion("me", "https://idp/token", now).unwrap();
            let (text, signature) = assertion.rsplit_once('.').unwrap();
            let signature = BASE64URL.decode(signature).unwrap();
            let public = UnparsedPublicKey::new(algorithm, pair.der_bytes());
            public.verify(text.as_bytes(), &signature).unwrap();
            let (header, claims) = text.split_once('.').unwrap();
            let read = |part| -> Value {
                serde_json::from_slice(&BASE64URL.decode(part).unwrap()).unwrap()
            };
            assert_eq!(read(header), json!({ "alg": name, "typ": "JWT" }), "{name}");
            let claims = read(claims);
            assert_eq!([&claims["iss"], &claims["sub"]], ["me", "me"]);
            assert_eq!(
                (&claims["aud"], &claims["exp"]),
                (&json!("https://idp/token"), &json!(1300))
            );
        }
        assert!(ClientKey::read("hunter2").is_none());
    }
}
