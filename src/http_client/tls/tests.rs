//! What is made of the files of a server's TLS, and what is wrong with them.

use super::*;

/// A certificate and its key, in one file.
const SERVER: &str = include_str!("../../../tests/peers/tls.pem");
const CLIENT: &str = include_str!("../../../tests/peers/client.pem");

fn flaw(authorities: Option<&str>, identity: Option<(&str, &str)>) -> TlsFlaw {
    Tls::read(authorities, identity).unwrap_err()
}

#[test]
fn file_without_certificate_or_key_is_told_by_its_name() {
    let no_pem = "hunter2";
    let broken = "-----BEGIN CERTIFICATE-----\naGk=\n-----END CERTIFICATE-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGk=\n-----END ENCRYPTED PRIVATE KEY-----";
    let broken_key = "-----BEGIN PRIVATE KEY-----\naGk=\n-----END PRIVATE KEY-----\n";
    for (flaw, variant, fact) in [
        (flaw(Some(no_pem), None), "Authority(", "no certificate"),
        (flaw(Some(broken), None), "Authority(", "bad"),
        (flaw(None, Some((no_pem, SERVER))), "Certificate(", "no certificate"),
        (flaw(None, Some((broken, SERVER))), "Certificate(", "bad"),
        (flaw(None, Some((SERVER, no_pem))), "Key(", "no private key"),
        (flaw(None, Some((SERVER, encrypted))), "Key(", "passphrase"),
        (flaw(None, Some((SERVER, broken_key))), "Key(", "no key"),
        (flaw(None, Some((SERVER, CLIENT))), "Key(", "another certificate"),
    ] {
        let text = format!("{flaw:?}");
        assert!(text.starts_with(variant) && text.contains(fact), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn the_same_files_are_the_same_and_a_key_is_not_shown() {
    let read = |authorities, identity| Tls::read(authorities, identity).unwrap();
    let both = || read(Some(SERVER), Some((CLIENT, CLIENT)));
    assert_eq!(both(), both());
    assert_ne!(both(), read(Some(CLIENT), Some((CLIENT, CLIENT))));
    assert_ne!(both(), read(Some(SERVER), None));
    assert_eq!(format!("{:?}", both()), "Tls { authorities: Some(1), identity: true }");
    // It makes a client.
    drop(super::super::with_tls(&both()));
}
