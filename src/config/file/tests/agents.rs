//! `endpoint`, `extensions`, `extended_card` and `allow_plain` of agents: what is made of them, and
//! what is wrong with them.

use std::path::Path;

use super::environment;
use crate::config::{A2a, Config, ConfigErrors, Target};

fn parse(entry: &str) -> Result<Config, ConfigErrors> {
    let yaml = format!("upstream: {{sandbox: true}}\na2a:\n  a: {{{entry}}}\n");
    Config::parse(&yaml, Path::new("/srv/bridge.yaml"), &environment())
}

fn agent(config: &Config) -> &A2a {
    match &config.backends["a"].target {
        Target::A2a(agent) => agent,
        other => panic!("{other:?}"),
    }
}

#[test]
fn agent_has_its_own_address_extensions_and_extended_card() {
    let config = parse(
        "url: 'https://a', endpoint: 'https://b/rpc', extensions: ['urn:x', 'https://e/v1'], \
         extended_card: true",
    )
    .unwrap();
    let entry = agent(&config);
    assert_eq!(entry.endpoint.as_deref().map(url::Url::as_str), Some("https://b/rpc"));
    assert_eq!(entry.extensions, ["urn:x", "https://e/v1"]);
    assert!(entry.extended_card && !entry.allow_plain && config.warnings.is_empty());
    let bare = parse("url: 'https://a'").unwrap();
    let entry = agent(&bare);
    assert!(entry.endpoint.is_none() && entry.extensions.is_empty() && !entry.extended_card);
}

#[test]
fn plain_endpoint_for_credentials_is_refused_unless_it_is_allowed_and_then_told() {
    let entry = "url: 'https://a', headers: {X-Key: '${env:TOKEN}'}";
    let error = parse(&format!("{entry}, endpoint: 'http://b/rpc'")).unwrap_err().to_string();
    assert!(error.contains("without TLS") && error.contains("allow_plain: true"), "{error}");
    let allowed = parse(&format!("{entry}, endpoint: 'http://b/rpc', allow_plain: true")).unwrap();
    assert!(agent(&allowed).allow_plain);
    assert!(
        allowed.warnings.iter().any(|warning| warning.contains("without TLS")),
        "{:?}",
        allowed.warnings
    );
    for harmless in [
        "url: 'https://a', endpoint: 'http://b/rpc'".to_owned(),
        format!("{entry}, endpoint: 'http://127.0.0.1:9/rpc'"),
        format!("{entry}, endpoint: 'https://b/rpc'"),
    ] {
        let config = parse(&harmless).unwrap();
        assert_eq!(config.warnings, [] as [String; 0], "{harmless}");
    }
}

#[test]
fn wrong_values_of_agents_are_told_with_a_cure() {
    for (entry, expected) in [
        ("url: 'https://a', endpoint: hr.acme", "http"),
        ("url: 'https://a', endpoint: 'http://169.254.169.254/'", "link-local"),
        ("url: 'https://a', extensions: ['a, b']", "no URI of an extension"),
        ("url: 'https://a', extensions: ['weather']", "no URI of an extension"),
        ("url: 'https://a', transport: grpc, extended_card: true", "over gRPC"),
        ("bundled: true, endpoint: 'https://b'", "leave `endpoint` out"),
        ("bundled: true, extended_card: true", "leave `extended_card` out"),
        ("url: 'https://a', allow_plain: 'maybe'", "allow_plain"),
    ] {
        let error = parse(entry).unwrap_err().to_string();
        assert!(error.contains(expected), "{entry}: {error}");
    }
}
