//! `tls` of backends and of MANTYX: what is made of it, and what is wrong with it.

use std::path::Path;

use super::environment;
use crate::config::{
    A2a, Action, Config, ConfigErrors, Environment, Mantyx, Mcp, Target, Upstream,
};

/// A certificate and its key, in one file.
const SERVER: &str = include_str!("../../../../tests/peers/tls.pem");
const CLIENT: &str = include_str!("../../../../tests/peers/client.pem");

fn files() -> Environment {
    environment()
        .with_file("/srv/ca.pem", SERVER, 0o644)
        .with_file("/srv/me.pem", CLIENT, 0o600)
        .with_file("/srv/open.pem", CLIENT, 0o644)
        .with_file("/srv/text", "hunter22", 0o600)
}

fn parse(env: &Environment, entry: &str) -> Result<Config, ConfigErrors> {
    let yaml = format!("upstream: {{sandbox: true}}\n{entry}");
    Config::parse(&yaml, Path::new("/srv/bridge.yaml"), env)
}

#[test]
fn each_kind_of_backend_has_its_own() {
    let config = parse(
        &files(),
        "mcp:\n  a: {url: 'https://a/mcp', tls: {ca: ca.pem, cert: me.pem, key: me.pem}}\n\
         a2a:\n  b: {url: 'https://b', tls: {ca: /srv/ca.pem}}\n  c: {url: 'https://c'}\n\
         local:\n  d: {description: d, parameters: {type: object}, \
         http: {url: 'https://d', tls: {cert: me.pem, key: me.pem}}}\n",
    )
    .unwrap();
    assert_eq!(config.warnings, [] as [String; 0]);
    let tls = |name: &str| match &config.backends[name].target {
        Target::Mcp(Mcp::Http { tls, .. }) | Target::A2a(A2a { tls, .. }) => tls.clone(),
        Target::Local(local) => match &local.action {
            Action::Http { tls, .. } => tls.clone(),
            Action::Command(_) | Action::Internal => None,
        },
        Target::Mcp(Mcp::Stdio(_)) | Target::Unresolved(_) => None,
    };
    let shown = |name: &str| tls(name).map(|tls| format!("{tls:?}"));
    assert_eq!(shown("a").unwrap(), "Tls { authorities: Some(1), identity: true }");
    assert_eq!(shown("b").unwrap(), "Tls { authorities: Some(1), identity: false }");
    assert_eq!(shown("c"), None);
    assert_eq!(shown("d").unwrap(), "Tls { authorities: None, identity: true }");
}

fn upstream(keys: &str) -> Result<Config, ConfigErrors> {
    let yaml = format!("upstream: {{{keys}}}\n");
    Config::parse(&yaml, Path::new("/srv/bridge.yaml"), &files())
}

#[test]
fn mantyx_has_one_as_backends_have() {
    let config = upstream("credential: passthrough, tls: {ca: ca.pem, cert: me.pem, key: me.pem}");
    let Upstream::Mantyx(Mantyx { tls: Some(tls), .. }) = config.unwrap().upstream else {
        panic!("tls")
    };
    assert_eq!(format!("{tls:?}"), "Tls { authorities: Some(1), identity: true }");
    for (keys, expected) in [
        ("sandbox: true, tls: {ca: ca.pem}", "`tls` clashes with `sandbox: true`"),
        ("credential: passthrough, tls: {}", "`tls` says nothing"),
        ("credential: passthrough, tls: {cert: me.pem}", "stand together"),
        (
            "credential: passthrough, base_url: 'http://127.0.0.1:1', tls: {ca: ca.pem}",
            "not https://",
        ),
    ] {
        let text = upstream(keys).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("upstream.tls"), "{text}");
    }
}

/// A reload goes by it, so that a certificate that was renewed in its place is taken.
#[test]
fn other_files_under_the_same_names_are_another_backend() {
    let entry = "mcp:\n  a: {url: 'https://a/mcp', tls: {ca: ca.pem}}\n";
    let target = |env: &Environment| {
        let mut config = parse(env, entry).unwrap();
        config.backends.remove("a").unwrap().target
    };
    assert_eq!(target(&files()), target(&files()));
    assert_ne!(target(&files()), target(&files().with_file("/srv/ca.pem", CLIENT, 0o644)));
}

#[test]
fn unusable_tls_file_is_told_with_its_place() {
    let url = "url: 'https://a/mcp'";
    struct Case {
        entry: String,
        place: &'static str,
        expected: &'static str,
    }
    for Case { entry, place, expected } in [
        Case {
            entry: format!("{{{url}, tls: {{}}}}"),
            place: "mcp.a.tls",
            expected: "`tls` says nothing",
        },
        Case {
            entry: format!("{{{url}, tls: {{cert: me.pem}}}}"),
            place: "mcp.a.tls.cert",
            expected: "stand together",
        },
        Case {
            entry: format!("{{{url}, tls: {{key: me.pem}}}}"),
            place: "mcp.a.tls.key",
            expected: "stand together",
        },
        Case {
            entry: format!("{{{url}, tls: {{ca: none.pem}}}}"),
            place: "mcp.a.tls.ca",
            expected: "no such file",
        },
        Case {
            entry: format!("{{{url}, tls: {{ca: text}}}}"),
            place: "mcp.a.tls.ca",
            expected: "no certificate",
        },
        Case {
            entry: format!("{{{url}, tls: {{cert: text, key: me.pem}}}}"),
            place: "mcp.a.tls.cert",
            expected: "no certificate",
        },
        Case {
            entry: format!("{{{url}, tls: {{cert: me.pem, key: text}}}}"),
            place: "mcp.a.tls.key",
            expected: "no private key",
        },
        Case {
            entry: format!("{{{url}, tls: {{cert: ca.pem, key: me.pem}}}}"),
            place: "mcp.a.tls.key",
            expected: "another certificate",
        },
        Case {
            entry: "{url: 'http://a/mcp', tls: {ca: ca.pem}}".into(),
            place: "mcp.a.tls",
            expected: "not https://",
        },
        Case {
            entry: "{url: 'unix:/run/x', tls: {ca: ca.pem}}".into(),
            place: "mcp.a.tls",
            expected: "not https://",
        },
        Case {
            entry: "{command: x, tls: {ca: ca.pem}}".into(),
            place: "mcp.a.tls",
            expected: "nothing beside `command`",
        },
    ] {
        let errors = parse(&files(), &format!("mcp:\n  a: {entry}\n")).unwrap_err();
        let [problem] = &errors.problems[..] else { panic!("{entry}: {errors}") };
        assert_eq!(problem.path, place, "{entry}: {errors}");
        assert!(problem.message.contains(expected), "{entry}: {errors}");
        let text = errors.to_string();
        assert!(!text.contains("hunter22") && !text.contains("***"), "names of files: {text}");
    }
}

#[test]
fn a_key_that_stands_in_place_of_its_file_is_not_shown() {
    let key = "-----BEGIN PRIVATE KEY-----\\nhunter22hunter22\\n-----END PRIVATE KEY-----";
    let entry =
        format!("mcp:\n  a: {{url: 'https://a/mcp', tls: {{cert: me.pem, key: \"{key}\"}}}}\n");
    let text = parse(&files(), &entry).unwrap_err().to_string();
    assert!(text.contains("mcp.a.tls.key") && !text.contains("hunter22"), "{text}");
}

#[test]
fn a_key_that_everybody_can_read_is_told() {
    let entry = "mcp:\n  a: {url: 'https://a/mcp', tls: {cert: open.pem, key: open.pem}}\n";
    let warnings = parse(&files(), entry).unwrap().warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("mcp.a.tls.key") && warning.contains("/srv/open.pem"), "{warning}");
}
