//! What this version cannot do is refused with its place, never ignored.

use super::{check, parse};

#[test]
fn tls_and_oauth() {
    check(
        r#"listen: {tcp: 127.0.0.1:7717, tls: {cert: a, key: b}}
upstream: {oauth: {token_url: 'https://a'}}"#,
        r#"error: this version cannot do this yet: TLS on the bridge's listeners
 --> /srv/bridge.yaml:1:31 (listen.tls)
  |
1 | listen: {tcp: 127.0.0.1:7717, tls: {cert: a, key: b}}
  |                               ^^^
  = listen on 127.0.0.1 and put a TLS proxy in front

error: this version cannot do this yet: renewing an upstream OAuth token
 --> /srv/bridge.yaml:2:12 (upstream.oauth)
  |
2 | upstream: {oauth: {token_url: 'https://a'}}
  |            ^^^^^
  = write `credential` with an API key or an access token

2 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn switched_off_it_is_no_mistake() {
    let yaml = "upstream: {sandbox: true, oauth: null}\nlocal: {}\n\
                mcp: {a: {command: a, approve: [], pending_after: null},\n\
                b: {url: 'https://b', auth: {oauth: {}}, disabled: true}}\n";
    assert!(parse(yaml).is_ok());
}
