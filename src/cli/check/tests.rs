//! The report: what a good file would run, and what a bad one is told.

use std::path::Path;

use super::{CatalogFindings, CheckReport, report};
use crate::config::Environment;

const FILE: &str = "/srv/bridge.yaml";
/// The public key of nobody.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAjoyaf1pwn2Nvq8lZtgTnahaRUOhwsKiOJaCdlXT3FSU=
-----END PUBLIC KEY-----
";

fn check(path: Option<&Path>, env: &Environment) -> CheckReport {
    report(path, env, |_config| CatalogFindings::default())
}

fn environment(yaml: &str) -> Environment {
    Environment::bare()
        .with_var("HOME", "/home/ann")
        .with_var("TOKEN", "0123456789abcdef")
        .with_file(FILE, yaml, 0o644)
        .with_file("/srv/key.pem", KEY, 0o644)
        .with_own_program("/usr/bin/mantyx-bridge")
        .with_file("/srv/ca.pem", include_str!("../../../tests/peers/tls.pem"), 0o644)
        .with_file("/srv/me.pem", include_str!("../../../tests/peers/client.pem"), 0o600)
}

/// A bit of everything.
const GOOD: &str = "
upstream: {workspace: acme, credential: '${env:TOKEN}', tls: {cert: me.pem, key: me.pem}}
listen: {tcp: 127.0.0.1:7717, unix: /run/bridge.sock}
apps:
  a: {token: hunter22, backends: [fs, hr], tools: {fs: {deny: [rm]}}}
  b: {token: '${env:TOKEN}'}
mcp:
  fs:
    command: npx
    args: [-y, '${env:TOKEN}', two words, '', --key=hunter33]
    env: {LEVEL: warn, KEY: '${env:TOKEN}'}
    cwd: docs
  jira:
    url: https://jira.acme/mcp?key=${env:TOKEN}
    headers: {Authorization: 'Bearer ${env:TOKEN}'}
    tls: {ca: ca.pem}
    prefix: ''
    required: true
    trust_annotations: true
    pin: enforce
  off: {command: x, disabled: true}
  own: {command: mantyx-bridge, args: [demo-mcp-server]}
a2a:
  card: {card_file: card.json, signature: {keys: key.pem}}
  desk: {bundled: true}
  hr: {url: https://hr.acme, tls: {ca: ca.pem, cert: me.pem, key: me.pem}, on_unavailable: omit, refresh: 90s, pin: off}
";

/// The same for people.
const GOOD_SHOWN: &str = r#"/srv/bridge.yaml is good: 6 backends

listen     127.0.0.1:7717 unix:/run/bridge.sock
upstream   https://app.mantyx.io/
workspace  acme
credential own
tls        showsCertificate true
state      /home/ann/.local/state/mantyx-bridge
auth       token
apps       a (fs, hr; not all tools of fs)
           b (all backends)

a2a card
  card_file         /srv/card.json
  signature         keys 1; required true

a2a desk
  reached           bundled

mcp fs
  command           npx -y ${env:TOKEN} "two words" "" --key=***
  env               KEY LEVEL
  cwd               /srv/docs

a2a hr
  url               https://hr.acme/
  tls               authorities 1; showsCertificate true
  pin               off
  on_unavailable    omit
  refresh           90s

mcp jira
  url               https://jira.acme/mcp?key=${env:TOKEN}
  headers           authorization
  tls               authorities 1
  prefix            ""
  trust_annotations true
  pin               enforce
  required          true

mcp own
  command           /usr/bin/mantyx-bridge demo-mcp-server

disabled   off

warning: /srv/bridge.yaml:5: apps.a.token: token is a secret in plain text; write ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}
warning: /srv/bridge.yaml:5: apps.a.token: the token is short enough to be guessed; take 32 random bytes
warning: /srv/bridge.yaml:10: mcp.fs.args[4]: an argument is a secret in plain text; write ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}
"#;

#[test]
fn a_good_file() {
    let report = check(Some(Path::new(FILE)), &environment(GOOD));
    assert_eq!(report.to_string(), GOOD_SHOWN);
    assert!(report.ok);

    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("hunter") && !json.contains("0123456789abcdef"), "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["plan"]["backends"][2]["argv"][1], "-y");
    assert_eq!(json["plan"]["backends"][2]["reached"], "stdio");
    assert_eq!(json["plan"]["credential"], "own");
    let tls = serde_json::json!({"authorities": null, "showsCertificate": true});
    assert_eq!(json["plan"]["tls"], tls);
    assert_eq!(json["plan"]["backends"][4]["tls"]["authorities"], 1);
}

#[test]
fn check_shows_rules_and_limits_in_the_files_own_keys() {
    let yaml = "
upstream: {sandbox: true}
mcp:
  fs:
    command: npx
    tools: {allow: [read*], deny: [rm], rename: {read_file: cat}}
    offer: search
    always: [read*]
    approve: ['write*', destructive]
    redact: [{pattern: 'canary[0-9]+'}]
    max_result: 16KiB
    quota: {calls: 10, per: 1h, identical: 3}
    start: lazy
    start_timeout: 50s
    idle_stop: 10m
";
    let report = check(Some(Path::new(FILE)), &environment(yaml)).to_string();
    let expected = "
mcp fs
  command           npx
  tools.allow       read*
  tools.deny        rm
  tools.rename      read_file cat
  offer             search
  always            read*
  approve           write* destructive
  redact            1 pattern
  max_result        16384
  quota             calls 10 per 1h; identical 3
  start             lazy
  start_timeout     50s
  idle_stop         10m
";
    assert!(report.contains(expected), "{report}");
    assert!(!report.contains("canary"), "{report}");
}

#[test]
fn check_shows_how_a_server_is_spoken_to_where_the_file_says_so() {
    let yaml = "
upstream: {sandbox: true}
mcp:
  forms: {url: 'https://forms.acme/mcp', sessions: true, listen: false, transport: streamable-http}
  usual: {url: 'https://usual.acme/mcp', sessions: false, listen: true}
";
    let report = check(Some(Path::new(FILE)), &environment(yaml));
    let expected = "
mcp forms
  url               https://forms.acme/mcp
  transport         streamable-http
  listen            false
  sessions          true

mcp usual
  url               https://usual.acme/mcp
";
    assert!(report.to_string().contains(expected), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["plan"]["backends"][0]["sessions"], true);
    let program = "mcp: {x: {command: cat, sessions: true}}\nupstream: {sandbox: true}\n";
    let refused = check(Some(Path::new(FILE)), &environment(program));
    assert!(!refused.ok && refused.to_string().contains("sessions"), "{refused}");
}

#[test]
fn local_tools() {
    let yaml = "
upstream: {sandbox: true}
local:
  disk: {command: [df, -h, two words], env: {LEVEL: warn}, cwd: /srv, timeout: 5s}
  page:
    http: {url: 'http://127.0.0.1:9000/page?key=${env:TOKEN}', headers: {X-A: '${env:TOKEN}'}}
    required: true
";
    let report = check(Some(Path::new(FILE)), &environment(yaml));
    let expected = r#"
local disk
  command           df -h "two words"
  env               LEVEL
  cwd               /srv
  timeout           5s

local page
  method            POST
  url               http://127.0.0.1:9000/page?key=${env:TOKEN}
  headers           x-a
  required          true
"#;
    assert!(report.to_string().ends_with(expected), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["plan"]["backends"][0]["reached"], "command");
    assert_eq!(json["plan"]["backends"][0]["argv"][2], "two words");
    assert_eq!(json["plan"]["backends"][1]["method"], "POST");
}

#[test]
fn a_bad_file() {
    let report = check(Some(Path::new(FILE)), &environment("upstream: {sandbox: 1}\n"));
    assert!(!report.ok);
    let expected = "\
error: expected true or false, found a number
 --> /srv/bridge.yaml:1:21 (upstream.sandbox)
  |
1 | upstream: {sandbox: ***}
  |                     ^^^
";
    assert_eq!(report.to_string(), expected);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["errors"],
        serde_json::json!([{
            "path": "upstream.sandbox",
            "line": 1,
            "column": 21,
            "message": "expected true or false, found a number",
            "cure": null,
        }])
    );
}

#[test]
fn no_file() {
    let report = check(Some(Path::new("/gone.yaml")), &environment(""));
    assert_eq!(
        report.to_string(),
        "error: the configuration cannot be read: there is no such file\n\
         --> /gone.yaml\n = name an existing file with `-c FILE`; `mantyx-bridge demo` \
         needs none\n"
    );
}

#[test]
fn a_file_that_is_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bridge.yaml");
    std::fs::write(&path, b"listen: \xff\n").unwrap();
    let report = check(Some(&path), &Environment::of_process()).to_string();
    assert!(report.contains("not UTF-8") && report.contains("save the file as UTF-8"), "{report}");
}
