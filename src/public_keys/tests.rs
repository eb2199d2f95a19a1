//! Keys in their files, and signatures by them.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair,
};

use super::*;

fn one(text: &str) -> PublicKey {
    let [key] = &PublicKey::read_all(text).unwrap()[..] else { panic!("one key: {text}") };
    key.clone()
}

fn jwk(more: &str, point: &[u8]) -> String {
    let (x, y) = point.split_at(point.len() / 2);
    let [x, y] = [x, y].map(|half| BASE64URL.encode(half));
    format!(r#"{{"kty":"EC","x":"{x}","y":"{y}",{more}}}"#)
}

fn ecdsa(pair: &KeyPair, how: &'static EcdsaSigningAlgorithm) -> Vec<u8> {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(how, pair.serialized_der(), &random).unwrap();
    pair.sign(&random, b"message").unwrap().as_ref().to_vec()
}

#[test]
fn signature_is_verified_by_its_own_key_alone() {
    let p256 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let ed = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let edwards = Ed25519KeyPair::from_pkcs8_maybe_unchecked(ed.serialized_der()).unwrap();
    struct Signed<'a> {
        pair: &'a KeyPair,
        algorithm: Algorithm,
        signature: Vec<u8>,
    }
    let signed = [
        Signed {
            pair: &p256,
            algorithm: Algorithm::Es256,
            signature: ecdsa(&p256, &ECDSA_P256_SHA256_FIXED_SIGNING),
        },
        Signed {
            pair: &p384,
            algorithm: Algorithm::Es384,
            signature: ecdsa(&p384, &ECDSA_P384_SHA384_FIXED_SIGNING),
        },
        Signed {
            pair: &ed,
            algorithm: Algorithm::EdDsa,
            signature: edwards.sign(b"message").as_ref().to_vec(),
        },
    ];
    for Signed { pair, algorithm, signature } in &signed {
        let key = one(&pair.public_key_pem());
        assert!(key.verifies(*algorithm, b"message", signature), "{algorithm:?}");
        assert!(!key.verifies(*algorithm, b"massage", signature), "{algorithm:?}");
        for Signed { pair: other, algorithm: wrong, .. } in &signed {
            if wrong != algorithm {
                assert!(!key.fits(*wrong) && !key.verifies(*wrong, b"message", signature));
                let other = one(&other.public_key_pem());
                assert!(!other.verifies(*algorithm, b"message", signature), "another key");
            }
        }
    }
    let [es256, es384, eddsa] = signed.each_ref().map(|one| &one.signature);
    let key = one(&jwk(
        r#""crv":"P-256","kid":"k1","alg":"ES256","use":"sig""#,
        &p256.public_key_raw()[1..],
    ));
    assert_eq!(key.id(), Some("k1"));
    assert!(key.verifies(Algorithm::Es256, b"message", es256));
    let key = one(&jwk(r#""crv":"P-384""#, &p384.public_key_raw()[1..]));
    assert!(key.verifies(Algorithm::Es384, b"message", es384) && key.id().is_none());
    let x = BASE64URL.encode(ed.public_key_raw());
    let key = one(&format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","key_ops":["verify"]}}"#));
    assert!(key.verifies(Algorithm::EdDsa, b"message", eddsa));
}

#[test]
fn a_file_may_hold_several_keys() {
    let (one, two) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let pem = format!("# ours\n{}{}", one.public_key_pem(), two.public_key_pem());
    assert_eq!(PublicKey::read_all(&pem).unwrap().len(), 2);
    let [one, two] = [(&one, "1"), (&two, "2")].map(|(pair, id)| {
        jwk(&format!(r#""crv":"P-256","kid":"{id}""#), &pair.public_key_raw()[1..])
    });
    // RFC 7517, section 5: what is not understood is passed over.
    let others = r#"{"kty":"oct"},{"kty":"EC","crv":"P-521","x":"AA","y":"AA"},{"kty":"RSA","use":"enc"},
        {"kty":"RSA","alg":"RS512"},{"kty":"OKP","key_ops":["sign"]}"#;
    let set = PublicKey::read_all(&format!(r#"{{"keys":[{one},{others},{two}]}}"#)).unwrap();
    assert_eq!(set.iter().map(Key::id).collect::<Vec<_>>(), [Some("1"), Some("2")]);
    assert_ne!(set[0].fingerprint(), set[1].fingerprint());
}

#[test]
fn file_without_a_public_key_is_told() {
    let pair = KeyPair::generate().unwrap();
    let private = pair.serialize_pem();
    let certificate = include_str!("../../tests/peers/tls.pem");
    let certificate = certificate.split_inclusive("-----END CERTIFICATE-----").next().unwrap();
    let point = &pair.public_key_raw()[1..];
    let short = BASE64URL.encode([0xff; 128]);
    let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    for (text, expected) in [
        ("", KeyFlaw::None),
        ("text", KeyFlaw::None),
        (certificate, KeyFlaw::None),
        (r#"{"keys":[]}"#, KeyFlaw::None),
        (r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, KeyFlaw::None),
        (&private, KeyFlaw::Private),
        (&jwk(r#""crv":"P-256","d":"AA""#, point), KeyFlaw::Private),
        (&jwk(r#""crv":"P-384""#, point), KeyFlaw::Bad(1)),
        (broken, KeyFlaw::Bad(1)),
        (&format!(r#"{{"kty":"RSA","n":"{short}","e":"AQAB"}}"#), KeyFlaw::RsaSize(1)),
    ] {
        assert_eq!(PublicKey::read_all(text).unwrap_err(), expected, "{text}");
    }
    let flaw = PublicKey::read_all(r#"{"name":"x"}"#).unwrap_err();
    assert!(matches!(flaw, KeyFlaw::NotJwks(_)), "{flaw}");
}
