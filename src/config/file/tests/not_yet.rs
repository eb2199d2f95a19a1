//! What this version cannot do is refused with its place, never ignored.

use super::{check, parse};

#[test]
fn oauth() {
    check(
        r#"upstream: {oauth: {token_url: 'https://a'}}"#,
        r#"error: this version cannot do this yet: renewing an upstream OAuth token
 --> /srv/bridge.yaml:1:12 (upstream.oauth)
  |
1 | upstream: {oauth: {token_url: 'https://a'}}
  |            ^^^^^
  = write `credential` with an API key or an access token"#,
    );
}

#[test]
fn switched_off_it_is_no_mistake() {
    let yaml = "upstream: {sandbox: true, oauth: null}\nlocal: {}\n\
                mcp: {a: {command: a, approve: [], pending_after: null},\n\
                b: {url: 'https://b', auth: {oauth: {}}, disabled: true}}\n";
    assert!(parse(yaml).is_ok());
}
