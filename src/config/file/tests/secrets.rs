//! Mistakes of secrets: references, and what a message may show.

use std::path::Path;

use super::{check, parse};
use crate::config::{Config, Environment};

#[test]
fn missing_ones_are_named_and_never_shown() {
    check(
        r"upstream: {credential: '${env:GONE}'}
apps:
  a: {token: '${file:/gone}'}
  b: {token: '${cred:gone}'}
  c: {token: '${vault:x}'}
  d: {token: '${TOKEN}'}
mcp:
  e: {command: a, env: {A: '${GONE}', B: '${input:b}'}, args: ['${env:GONE}']}
  f: {url: 'https://a', headers: {A: 'Bearer ${env:GONE'}}",
        r"error: ${env:GONE}: the environment variable is not set
 --> /srv/bridge.yaml:1:24 (upstream.credential)
  |
1 | upstream: {credential: '${env:GONE}'}
  |                        ^^^^^^^^^^^^^
  = set GONE where the bridge is started

error: ${file:/gone}: there is no such file
 --> /srv/bridge.yaml:3:14 (apps.a.token)
  |
3 |   a: {token: '${file:/gone}'}
  |              ^^^^^^^^^^^^^^^
  = create it, readable by the bridge's user alone

error: ${cred:gone}: there is no such file
 --> /srv/bridge.yaml:4:14 (apps.b.token)
  |
4 |   b: {token: '${cred:gone}'}
  |              ^^^^^^^^^^^^^^
  = add LoadCredential=gone:/path/of/the/secret to the unit

error: `${vault:x}` is no reference
 --> /srv/bridge.yaml:5:14 (apps.c.token)
  |
5 |   c: {token: '${vault:x}'}
  |              ^^^^^^^^^^^^
  = a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`

error: `${TOKEN}` is no reference
 --> /srv/bridge.yaml:6:14 (apps.d.token)
  |
6 |   d: {token: '${TOKEN}'}
  |              ^^^^^^^^^^
  = for the environment variable write `${env:TOKEN}`

error: ${env:GONE}: the environment variable is not set
 --> /srv/bridge.yaml:8:28 (mcp.e.env.A)
  |
8 |   e: {command: a, env: {A: '${GONE}', B: '${input:b}'}, args: ['${env:GONE}']}
  |                            ^^^^^^^^^
  = set GONE where the bridge is started

error: `${input:b}` is no reference
 --> /srv/bridge.yaml:8:42 (mcp.e.env.B)
  |
8 |   e: {command: a, env: {A: '${GONE}', B: '${input:b}'}, args: ['${env:GONE}']}
  |                                          ^^^^^^^^^^^^
  = a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`

error: ${env:GONE}: the environment variable is not set
 --> /srv/bridge.yaml:8:64 (mcp.e.args[0])
  |
8 |   e: {command: a, env: {A: '${GONE}', B: '${input:b}'}, args: ['${env:GONE}']}
  |                                                                ^^^^^^^^^^^^^
  = set GONE where the bridge is started

error: a reference that begins with `${` has no `}`
 --> /srv/bridge.yaml:9:38 (mcp.f.headers.A)
  |
9 |   f: {url: 'https://a', headers: {A: 'Bearer ${env:GONE'}}
  |                                      ^^^^^^^^^^^^^^^^^^^
  = a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`

9 errors in /srv/bridge.yaml",
    );
}

#[test]
fn empty_and_unfit_ones() {
    check(
        r"upstream: {credential: '${env:EMPTY}'}
apps: {a: {token: '${env:TWO_WORDS}'}, b: {token: ''}}",
        r"error: ${env:EMPTY} is empty
 --> /srv/bridge.yaml:1:24 (upstream.credential)
  |
1 | upstream: {credential: '${env:EMPTY}'}
  |                        ^^^^^^^^^^^^^^
  = give it a value

error: token holds a space or a line break that an HTTP header cannot have
 --> /srv/bridge.yaml:2:19 (apps.a.token)
  |
2 | apps: {a: {token: '${env:TWO_WORDS}'}, b: {token: ''}}
  |                   ^^^^^^^^^^^^^^^^^^
  = it is one word of printable ASCII

error: token is empty
 --> /srv/bridge.yaml:2:51 (apps.b.token)
  |
2 | apps: {a: {token: '${env:TWO_WORDS}'}, b: {token: ''}}
  |                                                   ^^
  = give it a value

3 errors in /srv/bridge.yaml",
    );
}

#[test]
fn two_apps_with_one_token() {
    check(
        r"upstream: {sandbox: true}
apps: {a: {token: '${env:TOKEN}'}, b: {token: '${env:TOKEN}'}}",
        r"error: the app `a` has the same token
 --> /srv/bridge.yaml:2:47 (apps.b.token)
  |
2 | apps: {a: {token: '${env:TOKEN}'}, b: {token: '${env:TOKEN}'}}
  |                                               ^^^^^^^^^^^^^^
  = every app needs its own, by which it is known",
    );
}

#[test]
fn a_secret_in_the_line_of_a_mistake_is_hidden() {
    check(
        r#"upstream: {credential: sk-live-123456, base_url: 'ftp://x'}
apps: {a: {token: 12345678, backends: [x]}, b: {token: [hunter22]}}
mcp:
  a: {url: 'https://a?api_key=hunter22&x=1', headers: {X-Any: hunter33}, env: {}}
  b: {command: a, args: [--token, hunter44, --api-key=hunter55, []], env: {MY_SECRET: "hunter\x3666"}}"#,
        r#"error: `ftp://` is not spoken here
 --> /srv/bridge.yaml:1:50 (upstream.base_url)
  |
1 | upstream: {credential: ***, base_url: 'ftp://x'}
  |                                       ^^^^^^^^^
  = write https:// or http:// before the host

error: there is no backend `x`
 --> /srv/bridge.yaml:2:40 (apps.a.backends[0])
  |
2 | apps: {a: {token: ***, backends: [x]}, b: {token: [***]}}
  |                                   ^
  = there are: a, b

error: expected a string, found a list
 --> /srv/bridge.yaml:2:56 (apps.b.token)
  |
2 | apps: {a: {token: ***, backends: [x]}, b: {token: [***]}}
  |                                                   ^

error: `env` means nothing beside `url`
 --> /srv/bridge.yaml:4:74 (mcp.a.env)
  |
4 |   a: {url: 'https://a?api_key=***&x=1', headers: {X-Any: ***}, env: {}}
  |                                                                ^^^
  = remove it

error: expected a string, found a list
 --> /srv/bridge.yaml:5:65 (mcp.b.args[3])
  |
5 |   b: {command: a, args: [--token, ***, --api-key=***, []], env: {MY_SECRET: "***"}}
  |                                                       ^

5 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn a_secret_in_a_file_that_is_no_yaml() {
    check(
        r"apps:
  a: {token: hunter22, x
   y: ]",
        r"error: mismatched bracket '{' closed by ']'
 --> /srv/bridge.yaml:2:6
  |
2 |   a: ***
  |      ^^^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn a_secret_beside_a_tab() {
    check(
        r"upstream:
  credential: hunter22
	x: 'password: hunter33'",
        r"error: while scanning a plain scalar, found a tab
 --> /srv/bridge.yaml:2:15
  |
2 |   credential: ***
  |               ^^^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn a_secret_is_no_program() {
    check(
        r"upstream: {sandbox: true}
mcp: {a: {command: '${cred:name}'}}",
        r"error: this is no place for a secret
 --> /srv/bridge.yaml:2:20 (mcp.a.command)
  |
2 | mcp: {a: {command: '${cred:name}'}}
  |                    ^^^^^^^^^^^^^^
  = write it out, or use ${env:NAME}",
    );
}

#[test]
fn secret_behind_a_reference_is_no_part_of_a_message() {
    let yaml = "upstream: {credential: passthrough, workspace: '${env:TWO_WORDS}', base_url: '${env:TWO_WORDS}'}\n\
                listen: '${env:TWO_WORDS}'\n\
                mcp: {a: {url: '${env:TWO_WORDS}'}, b: {command: '${env:TWO_WORDS}'}}\n\
                a2a: {c: {url: 'x://${env:TOKEN}'}}\n";
    let errors = parse(yaml).unwrap_err();
    assert!(errors.problems.len() >= 4, "{errors}");
    let text = errors.to_string();
    assert!(!text.contains("hunter") && !text.contains("0123456789abcdef"), "{text}");
}

#[test]
fn token_that_is_found_by_trying_is_refused() {
    let file =
        |token: &str| format!("upstream: {{sandbox: true}}\napps: {{a: {{token: {token}}}}}\n");
    let why = parse(&file("x")).unwrap_err().to_string();
    assert!(why.contains("found by trying") && why.contains("openssl rand"), "{why}");
    assert!(parse(&file("0123456789abcdef")).is_ok());
}

#[test]
fn secret_of_the_state_directory_is_used_and_cannot_say_where_that_is() {
    let file =
        "state_dir: /state\nupstream: {base_url: 'https://m.test', credential: '${secret:KEY}'}\n";
    let env = Environment::bare().with_file("/state/secrets/KEY", "mx-0123456789\n", 0o600);
    let config = Config::parse(file, Path::new("/srv/bridge.yaml"), &env);
    assert!(config.is_ok_and(|config| config.warnings.is_empty()));
    let missing = parse(file).unwrap_err().to_string();
    assert!(missing.contains("mantyx-bridge secret set KEY"), "{missing}");
    let circle = parse("state_dir: '${secret:KEY}'\nupstream: {sandbox: true}\n");
    assert!(circle.unwrap_err().to_string().contains("no place for a secret"));
}
