//! `signature` of agents: what is made of it, and what is wrong with it.

use std::path::Path;

use super::environment;
use crate::config::{Config, ConfigErrors, Environment, Signers, Target};
use crate::model::card::signature::{Algorithm, Key as _};

const ONE: &str = "-----BEGIN PUBLIC KEY-----\n\
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3F31H4ujkjX1czs4VvCSN9Q2/K9P\n\
    Q0DmKAx5ILEPGUolSdy9+lGLKtlLfngsjhj4oBgwl8AEXObLKC0J4u+E5w==\n\
    -----END PUBLIC KEY-----\n";
const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"ed",
    "x":"jYyaf1pwn2Nvq8lZtgTnahaRUOhwsKiOJaCdlXT3FSU"}]}"#;
const PRIVATE: &str = include_str!("../../../../tests/peers/client.pem");

fn files() -> Environment {
    environment()
        .with_file("/srv/one.pem", ONE, 0o644)
        .with_file("/srv/set.json", SET, 0o666)
        .with_file("/srv/private.pem", PRIVATE, 0o600)
        .with_file("/srv/text", "hunter22", 0o600)
}

fn parse(env: &Environment, entry: &str) -> Result<Config, ConfigErrors> {
    let yaml = format!("upstream: {{sandbox: true}}\na2a:\n  a: {{{entry}}}\n");
    Config::parse(&yaml, Path::new("/srv/bridge.yaml"), env)
}

fn signers(config: &Config) -> Option<Signers> {
    match &config.backends["a"].target {
        Target::A2a(agent) => agent.signers.clone(),
        _ => None,
    }
}

#[test]
fn keys_come_from_one_file_or_several() {
    let one = parse(&files(), "url: 'https://a', signature: {keys: one.pem}").unwrap();
    let Signers { keys, required } = signers(&one).unwrap();
    assert!(keys.len() == 1 && keys[0].fits(Algorithm::Es256) && keys[0].id().is_none());
    assert!(required && one.warnings.is_empty(), "{:?}", one.warnings);
    let entry = "card_file: c, signature: {keys: [one.pem, /srv/set.json], required: false}";
    let both = parse(&files(), entry).unwrap();
    let Signers { keys, required } = signers(&both).unwrap();
    assert_eq!(keys.iter().map(|key| key.id()).collect::<Vec<_>>(), [None, Some("ed")]);
    assert!(!required);
    let [warning] = &both.warnings[..] else { panic!("{:?}", both.warnings) };
    assert!(warning.contains("/srv/set.json") && warning.contains("chmod o-w"), "{warning}");
    assert!(signers(&parse(&files(), "url: 'https://a'").unwrap()).is_none());
}

/// A reload goes by it.
#[test]
fn another_key_in_the_same_file_is_another_agent() {
    let target = |env: &Environment| {
        let mut config = parse(env, "url: 'https://a', signature: {keys: one.pem}").unwrap();
        config.backends.remove("a").unwrap().target
    };
    assert_eq!(target(&files()), target(&files()));
    assert_ne!(target(&files()), target(&files().with_file("/srv/one.pem", SET, 0o644)));
}

#[test]
fn unusable_key_is_told_with_its_place() {
    struct Case {
        entry: &'static str,
        place: &'static str,
        expected: &'static str,
    }
    for Case { entry, place, expected } in [
        Case {
            entry: "url: 'https://a', signature: {}",
            place: "a2a.a.signature",
            expected: "names no key",
        },
        Case {
            entry: "url: 'https://a', signature: {required: true}",
            place: "a2a.a.signature",
            expected: "names no key",
        },
        Case {
            entry: "url: 'https://a', signature: {keys: []}",
            place: "a2a.a.signature.keys",
            expected: "names no key",
        },
        Case {
            entry: "url: 'https://a', signature: {keys: none}",
            place: "a2a.a.signature.keys",
            expected: "no such file",
        },
        Case {
            entry: "url: 'https://a', signature: {keys: [text]}",
            place: "a2a.a.signature.keys[0]",
            expected: "no public key",
        },
        Case {
            entry: "url: 'https://a', signature: {keys: [one.pem, private.pem]}",
            place: "a2a.a.signature.keys[1]",
            expected: "a private key",
        },
        Case {
            entry: "bundled: true, signature: {keys: one.pem}",
            place: "a2a.a.signature",
            expected: "the bridge's own",
        },
    ] {
        let errors = parse(&files(), entry).unwrap_err();
        let [problem] = &errors.problems[..] else { panic!("{entry}: {errors}") };
        assert_eq!(problem.path, place, "{entry}: {errors}");
        assert!(problem.message.contains(expected), "{entry}: {errors}");
        assert!(!errors.to_string().contains("hunter22"), "{errors}");
    }
}
