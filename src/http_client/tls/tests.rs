//! What is made of the files of a server's TLS, and what is wrong with them.

use super::*;
use crate::http_client::{build, builder};

/// A certificate and its key, in one file.
const SERVER: &str = include_str!("../../../tests/peers/tls.pem");
const CLIENT: &str = include_str!("../../../tests/peers/client.pem");

fn flaw(authorities: Option<&str>, identity: Option<(&str, &str)>) -> TlsFlaw {
    Tls::read(authorities, identity).unwrap_err()
}

/// Makes what a client makes for its first request.
fn make_client(tls: &Tls) {
    drop(build(tls.apply(builder(), &["http/1.1"])));
}

#[test]
fn file_without_certificate_or_key_is_told_by_its_name() {
    let no_pem = "hunter2";
    let broken = "-----BEGIN CERTIFICATE-----\naGk=\n-----END CERTIFICATE-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGk=\n-----END ENCRYPTED PRIVATE KEY-----";
    let broken_key = "-----BEGIN PRIVATE KEY-----\naGk=\n-----END PRIVATE KEY-----\n";
    struct Case {
        flaw: TlsFlaw,
        variant: &'static str,
        fact: &'static str,
    }
    for Case { flaw, variant, fact } in [
        Case { flaw: flaw(Some(no_pem), None), variant: "Authority(", fact: "no certificate" },
        Case { flaw: flaw(Some(broken), None), variant: "Authority(", fact: "bad" },
        Case {
            flaw: flaw(None, Some((no_pem, SERVER))),
            variant: "Certificate(",
            fact: "no certificate",
        },
        Case { flaw: flaw(None, Some((broken, SERVER))), variant: "Certificate(", fact: "bad" },
        Case { flaw: flaw(None, Some((SERVER, no_pem))), variant: "Key(", fact: "no private key" },
        Case { flaw: flaw(None, Some((SERVER, encrypted))), variant: "Key(", fact: "passphrase" },
        Case { flaw: flaw(None, Some((SERVER, broken_key))), variant: "Key(", fact: "no key" },
        Case {
            flaw: flaw(None, Some((SERVER, CLIENT))),
            variant: "Key(",
            fact: "another certificate",
        },
    ] {
        let text = format!("{flaw:?}");
        assert!(text.starts_with(variant) && text.contains(fact), "{variant} {fact}: {text}");
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
    make_client(&both());
}

/// A bundle may hold what is neither a certificate nor the key, such as an earlier key. What was
/// checked is what is used, so that no client panics over the rest.
#[test]
fn bundle_with_other_sections_makes_a_client() {
    let public = "-----BEGIN PUBLIC KEY-----\naGk=\n-----END PUBLIC KEY-----\n";
    let other_key = SERVER.split_at(SERVER.find("-----BEGIN PRIVATE KEY").unwrap()).1;
    for bundle in [format!("{public}{CLIENT}"), format!("{other_key}{CLIENT}")] {
        for authorities in [None, Some(SERVER)] {
            make_client(&Tls::read(authorities, Some((&bundle, CLIENT))).unwrap());
        }
    }
}
