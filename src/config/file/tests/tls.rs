//! `listen.tls`, and apps that are known by their certificates.

use std::path::Path;

use super::environment;
use crate::config::{Config, San};
use crate::tls::fake::pair;

const REST: &str = "upstream: {sandbox: true}\n";

/// What is made of `yaml` where `cert`, `key` and `ca` lie beside it.
fn parse(yaml: &str, (cert, key): &(String, String), mode: u32) -> Result<Config, String> {
    let env = environment()
        .with_file("/srv/cert", cert, 0o644)
        .with_file("/srv/key", key, mode)
        .with_file("/srv/ca", cert, 0o644);
    let config = Config::parse(&format!("{yaml}\n{REST}"), Path::new("/srv/bridge.yaml"), &env);
    config.map_err(|errors| errors.to_string())
}

#[track_caller]
fn refused(yaml: &str, expected: &[&str]) {
    let error = parse(yaml, &pair(&["bridge.acme"], 50), 0o600).expect_err("it has a mistake");
    for part in expected {
        assert!(error.contains(part), "`{part}` should be in\n{error}");
    }
}

#[test]
fn a_gateway() {
    let yaml = "listen: {tcp: '0.0.0.0:7717', unix: b.sock, tls: {cert: cert, key: key, client_ca: \
                ca}, hosts: [Bridge.acme, 'b:8443']}\napps:\n  hr: {cert: ['spiffe://acme/hr', \
                ops@acme, hr.acme]}\n  web: {token: '${env:TOKEN}'}";
    let config = parse(yaml, &pair(&["bridge.acme"], 50), 0o600).unwrap();
    assert_eq!(config.warnings, [] as [&str; 0]);
    let tls = config.listen.tls.unwrap();
    assert_eq!(
        (tls.cert.as_path(), tls.key.as_path()),
        (Path::new("/srv/cert"), Path::new("/srv/key"))
    );
    assert_eq!(tls.client_ca.as_deref(), Some(Path::new("/srv/ca")));
    assert_eq!(config.listen.hosts, ["bridge.acme", "b:8443"]);
    let [hr, web] = &config.apps[..] else { panic!("two apps") };
    let names = ["spiffe://acme/hr", "ops@acme", "hr.acme"].map(|name| San::parse(name).unwrap());
    assert_eq!(hr.certificate.as_deref(), Some(&names[..]));
    assert!(hr.token.is_none() && web.token.is_some() && web.certificate.is_none());
}

#[test]
fn readable_key_and_ending_certificate_are_warned_of() {
    let yaml = "listen: {tcp: '0.0.0.0:7717', tls: {cert: cert, key: key, client_ca: ca}}";
    let warnings = parse(yaml, &pair(&[], 3), 0o644).unwrap().warnings.join("\n");
    for part in ["listen.tls.key: ", "chmod o-rwx", "listen.tls.cert: the certificate ends"] {
        assert!(warnings.contains(part), "`{part}` should be in\n{warnings}");
    }
}

#[test]
fn files_that_are_of_no_use() {
    let tls = |text: &str| format!("listen: {{tcp: '0.0.0.0:7717', tls: {{{text}}}}}");
    refused(&tls("cert: cert"), &["(listen.tls)", "`key` is missing"]);
    refused(&tls("cert: gone, key: key"), &["(listen.tls.cert)", "/srv/gone"]);
    refused(&tls("cert: cert, key: cert"), &["(listen.tls.key)", "there is no private key"]);
    refused(&tls("cert: cert, key: key, client_ca: key"), &["(listen.tls.client_ca)"]);
    refused(
        "listen: {unix: b.sock, tls: {cert: cert, key: key}}",
        &["(listen.tls)", "unix socket"],
    );
    refused("listen: {tcp: '0.0.0.0:7717'}", &["needs TLS", "tls: {cert: bridge.pem"]);
    let open = format!("{}\nauth: off", tls("cert: cert, key: key"));
    refused(&open, &["(auth)", "0.0.0.0:7717"]);
}

#[test]
fn names_that_are_none() {
    for host in ["https://b.acme", "b.acme/x", "'*.acme'", "b acme", "u@b.acme", "''"] {
        refused(
            &format!("listen: {{tcp: '127.0.0.1:1', hosts: [{host}]}}"),
            &["(listen.hosts[0])"],
        );
    }
}

#[test]
fn certificates_of_apps() {
    let asked = "listen: {tcp: '127.0.0.1:1', tls: {cert: cert, key: key, client_ca: ca}}";
    refused("apps: {a: {cert: [a.acme]}}", &["(apps.a.cert)", "client_ca"]);
    refused(
        &format!("{asked}\napps: {{a: {{cert: ['*.acme']}}}}"),
        &["(apps.a.cert[0])", "pattern"],
    );
    let twice = format!("{asked}\napps: {{a: {{cert: [x]}}, b: {{cert: [x]}}}}");
    refused(&twice, &["(apps.b.cert[0])", "`a`"]);
}
