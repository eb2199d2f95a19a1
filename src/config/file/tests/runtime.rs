//! Other runtimes.

use std::time::Duration;

use super::{check, parse};
use crate::config::Wire;
use crate::model::ids::BackendName;

#[test]
fn each_wire_has_its_own_keys() {
    let yaml = "\
upstream: {sandbox: true}
mcp: {fs: {command: a}}
runtimes:
  a: {kind: hsafa, api: v3, url: 'http://h:3001', credential: '${env:TOKEN}', backends: [fs], max_concurrent_calls: 3}
  b: {kind: hsafa, api: v7, url: 'https://h/x', credential: '${env:TOKEN}', skill: s/1, api_base: /api/v7, tools: {fs: {deny: [rm]}}}
  c: {kind: claude-environment, credential: '${env:TOKEN}', environment: env_1}
  d: {kind: hsafa, api: v3, url: 'http://127.0.0.1', credential: '${env:TOKEN}', timeout: 5m}
";
    let config = parse(yaml).unwrap();
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("without TLS"), "{:?}", config.warnings);
    let wires: Vec<_> = config.runtimes.iter().map(|it| it.link.wire.clone()).collect();
    let v7 = Wire::HsafaV7 { base: vec!["api".into(), "v7".into()], skill: "s/1".into() };
    assert_eq!(
        wires,
        [
            Wire::HsafaV3 { timeout: Duration::from_secs(30) },
            v7,
            Wire::Claude { environment: "env_1".into() },
            Wire::HsafaV3 { timeout: Duration::from_secs(300) },
        ]
    );
    let header = |at: usize| {
        let headers = &config.runtimes[at].link.headers;
        let (name, value) = headers.iter().next().unwrap();
        assert!(value.is_sensitive());
        format!("{name}: {}", value.to_str().unwrap())
    };
    assert_eq!(header(0), "x-secret-key: 0123456789abcdef");
    assert_eq!(header(1), "x-api-key: 0123456789abcdef");
    assert_eq!(header(2), "authorization: Bearer 0123456789abcdef");
    assert_eq!(config.runtimes[2].link.url.as_str(), "https://api.anthropic.com/");
    let app = &config.runtimes[0].app;
    assert_eq!((app.name.as_str(), app.max_concurrent_calls), ("a", Some(3)));
    assert!(app.token.is_none() && app.rights.include(&BackendName::parse("fs").unwrap()));
}

#[test]
fn mistakes_are_told_with_their_places() {
    check(
        "\
upstream: {sandbox: true}
apps: {web: {token: a-token-that-is-long-enough-for-all-1}}
runtimes:
  a: {kind: hsafa, url: 'http://127.0.0.1', credential: '${env:TOKEN}'}
  b: {kind: hsafa, api: v3, url: 'http://127.0.0.1', credential: '${env:TOKEN}', skill: s}
  web: {kind: claude-environment, credential: '${env:TOKEN}', environment: '..'}
  d: {kind: other, credential: '${env:TOKEN}'}
  e: {kind: hsafa, api: v7, url: 'http://127.0.0.1', credential: '${env:TOKEN}', backends: [fs]}
",
        r#"error: `api` is missing
 --> /srv/bridge.yaml:4:3 (runtimes.a)
  |
4 |   a: {kind: hsafa, url: 'http://127.0.0.1', credential: '${env:TOKEN}'}
  |   ^
  = write `api: v3` or `api: v7`, as the gateway has it

error: `skill` means nothing beside `api: v3`
 --> /srv/bridge.yaml:5:82 (runtimes.b.skill)
  |
5 |   b: {kind: hsafa, api: v3, url: 'http://127.0.0.1', credential: '${env:TOKEN}', skill: s}
  |                                                                                  ^^^^^
  = remove it

error: `web` is the name of an app already
 --> /srv/bridge.yaml:6:3 (runtimes.web)
  |
6 |   web: {kind: claude-environment, credential: '${env:TOKEN}', environment: '..'}
  |   ^^^
  = give the runtime another name

error: `..` is no environment
 --> /srv/bridge.yaml:6:76 (runtimes.web.environment)
  |
6 |   web: {kind: claude-environment, credential: '${env:TOKEN}', environment: '..'}
  |                                                                            ^^^^
  = write it as the runtime has it

error: expected `hsafa` or `claude-environment`, found another text
 --> /srv/bridge.yaml:7:13 (runtimes.d.kind)
  |
7 |   d: {kind: ***, credential: '${env:TOKEN}'}
  |             ^^^

error: `skill` is missing
 --> /srv/bridge.yaml:8:3 (runtimes.e)
  |
8 |   e: {kind: hsafa, api: v7, url: 'http://127.0.0.1', credential: '${env:TOKEN}', backends: [fs]}
  |   ^
  = write `skill: …`, as the runtime has it

error: there is no backend `fs`
 --> /srv/bridge.yaml:8:93 (runtimes.e.backends[0])
  |
8 |   e: {kind: hsafa, api: v7, url: 'http://127.0.0.1', credential: '${env:TOKEN}', backends: [fs]}
  |                                                                                             ^^
  = name one below `mcp`, `a2a` or `local` first

7 errors in /srv/bridge.yaml"#,
    );
}
