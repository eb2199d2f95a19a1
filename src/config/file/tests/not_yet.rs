//! What this version cannot do is refused with its place, never ignored.

use super::{check, parse};

#[test]
fn tls() {
    check(
        r#"listen: {tcp: 127.0.0.1:7717, tls: {cert: a, key: b}}
upstream: {sandbox: true}"#,
        r#"error: this version cannot do this yet: TLS on the bridge's listeners
 --> /srv/bridge.yaml:1:31 (listen.tls)
  |
1 | listen: {tcp: 127.0.0.1:7717, tls: {cert: a, key: b}}
  |                               ^^^
  = listen on 127.0.0.1 and put a TLS proxy in front"#,
    );
}

#[test]
fn switched_off_it_is_no_mistake() {
    let yaml = "upstream: {sandbox: true, oauth: null}\nlocal: {}\n\
                mcp: {a: {command: a, approve: [], pending_after: null},\n\
                b: {url: 'https://b', auth: {oauth: {}}, disabled: true}}\n";
    assert!(parse(yaml).is_ok());
}
