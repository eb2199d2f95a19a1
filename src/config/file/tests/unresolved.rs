//! Entries that refer to what is missing: they alone cannot be reached.

use std::path::Path;

use super::environment;
use crate::config::{Config, ConfigErrors, Target, Unresolved};

/// What is not reached of `yaml`, and why.
fn read(yaml: &str) -> Result<Vec<Unresolved>, ConfigErrors> {
    let yaml = format!("upstream: {{sandbox: true}}\n{yaml}");
    let read = Config::read(&yaml, Path::new("/srv/bridge.yaml"), &environment());
    let (config, errors) = read?;
    let unresolved = config.backends.values().filter_map(|backend| match &backend.target {
        Target::Unresolved(unresolved) => Some(unresolved.clone()),
        _ => None,
    });
    let unresolved: Vec<_> = unresolved.collect();
    assert_eq!(unresolved.is_empty(), errors.is_none());
    Ok(unresolved)
}

#[test]
fn missing_secret_keeps_one_backend_off_and_says_how_to_mend_it() {
    let unresolved = read(
        "mcp:\n  jira: {url: 'https://jira', headers: {Authorization: 'Bearer ${env:NONE}'}}\n  \
         fs: {command: cat}\n\
         apps: {a: {token: '${env:TOKEN}', backends: [jira]}}\n",
    );
    let [jira] = &unresolved.unwrap()[..] else { panic!("one of the two is missing") };
    assert_eq!(jira.section, "mcp");
    assert_eq!(
        jira.why,
        "/srv/bridge.yaml:3:56: mcp.jira.headers.Authorization: ${env:NONE}: the environment \
         variable is not set"
    );
    assert_eq!(jira.cure, "set NONE where the bridge is started");
}

#[test]
fn every_kind_of_entry_and_of_reference() {
    for entry in [
        "mcp: {a: {command: cat, env: {A: '${env:NONE}'}}}",
        "mcp: {a: {command: cat, envFile: none.env}}",
        "mcp: {a: {command: cat, env: {A: '${cred:none}'}}}",
        "mcp: {a: {url: 'https://a', tls: {ca: none.pem}}}",
        "mcp: {a: {url: 'https://a', tls: {ca: /etc/closed}}}",
        "mcp: {a: {url: '${env:TWO_WORDS}'}}",
        "mcp: {a: {url: 'https://a', auth: {bearer: '${env:EMPTY}'}}}",
        "mcp: {a: {url: 'https://a', auth: {bearer: '${file:/none}'}}}",
        "a2a: {a: {url: 'https://a', headers: {X: '${env:NONE}'}}}",
        "a2a: {a: {url: 'https://a', signature: {keys: none.pem}}}",
        "local: {a: {description: d, http: {url: 'https://a', headers: {X: '${env:NONE}'}}}}",
    ] {
        let unresolved = read(entry).unwrap_or_else(|errors| panic!("{entry}: {errors}"));
        assert_eq!(unresolved.len(), 1, "{entry}");
        assert!(!unresolved[0].cure.is_empty(), "{entry}");
    }
}

#[test]
fn mistake_in_the_file_itself_stays_a_mistake() {
    for yaml in [
        "mcp: {a: {command: cat, env: {A: '${env:'}}}",
        "mcp: {a: {command: cat, env: {A: '${env:NONE}'}, cwdd: x}}",
        "mcp: {a: {url: 'https://a', args: [x], headers: {X: '${env:NONE}'}}}",
        "apps: {a: {token: '${env:NONE}'}}",
        "listen: {tcp: '0.0.0.0:1', tls: {cert: none.pem, key: none.pem}}",
    ] {
        assert!(read(yaml).is_err(), "{yaml}");
    }
    // What a person checks before a start has to be whole.
    let yaml = "upstream: {sandbox: true}\nmcp: {a: {command: '${env:NONE}'}}";
    let errors = super::parse(yaml).unwrap_err();
    assert!(errors.to_string().contains("variable is not set"), "{errors}");
}
