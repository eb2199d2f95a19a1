//! What this version cannot do is refused with its place, never ignored.

use super::{check, parse};

#[test]
fn calls_that_this_version_cannot_make() {
    check(
        r#"upstream: {sandbox: true}
mcp:
  a: {command: a, approve: ['*']}
a2a:
  b: {url: 'https://a', approve: ['*']}"#,
        r#"error: this version cannot do this yet: calls that a person approves
 --> /srv/bridge.yaml:3:19 (mcp.a.approve)
  |
3 |   a: {command: a, approve: ['*']}
  |                   ^^^^^^^
  = keep such tools from the model: `tools: {deny: […]}`

error: this version cannot do this yet: calls that a person approves
 --> /srv/bridge.yaml:5:25 (a2a.b.approve)
  |
5 |   b: {url: 'https://a', approve: ['*']}
  |                         ^^^^^^^
  = leave it out

2 errors in /srv/bridge.yaml"#,
    );
}

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
