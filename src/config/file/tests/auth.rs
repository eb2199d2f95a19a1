//! `auth` of backends: what is made of it, and what is wrong with it.

use std::path::Path;

use secrecy::ExposeSecret as _;

use super::{check, environment, parse};
use crate::config::{
    A2a, ClientCredentials, Config, Credential, Mantyx, Mcp, OauthClient, Target, Upstream,
};
use crate::oauth::endpoint::ClientAuthMethod;

fn oauth<'c>(config: &'c Config, name: &str) -> &'c ClientCredentials {
    let backend = config.backends.values().find(|backend| backend.name.as_str() == name);
    match &backend.unwrap().target {
        Target::Mcp(Mcp::Http { oauth: Some(OauthClient::Credentials(oauth)), .. }) => oauth,
        Target::A2a(A2a { oauth: Some(oauth), .. }) => oauth,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_and_static_tokens() {
    let config = parse(
        r"upstream: {sandbox: true}
mcp:
  a: {url: 'https://a/mcp', auth: {bearer: '${env:TOKEN}'}}
  b: {url: 'https://b/mcp', auth: {oauth: {client_id: bridge, client_secret: '${env:TOKEN}', token_url: 'https://idp/token', scopes: [read, 'tools:call']}}}
a2a:
  c: {url: 'https://c', auth: {oauth: {client_id: 7, client_secret: '${file:/etc/closed}'}}}
  d: {card_file: d.json, auth: {bearer: '${env:TOKEN}'}}",
    )
    .unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    let Target::Mcp(Mcp::Http { headers, oauth: None, .. }) = &config.backends["a"].target else {
        panic!("a static token is a header");
    };
    assert_eq!(headers["authorization"], "Bearer 0123456789abcdef");
    assert!(headers["authorization"].is_sensitive());
    let Target::A2a(A2a { headers, .. }) = &config.backends["d"].target else { panic!("a2a") };
    assert_eq!(headers["authorization"], "Bearer 0123456789abcdef");

    let b = oauth(&config, "b");
    assert_eq!((b.id.as_str(), b.secret.expose_secret()), ("bridge", "0123456789abcdef"));
    assert_eq!(b.token_url.as_ref().unwrap().as_str(), "https://idp/token");
    assert_eq!(b.scopes, ["read", "tools:call"]);
    let c = oauth(&config, "c");
    assert_eq!((c.id.as_str(), c.secret.expose_secret()), ("7", "hunter22-closed-secret"));
    assert!(c.token_url.is_none() && c.scopes.is_empty());
    assert_eq!((c.auth_method, c.method_is_configured), (ClientAuthMethod::InHeader, false));
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
}

#[test]
fn way_to_show_the_secret_can_be_chosen() {
    for (written, auth_method) in
        [("basic", ClientAuthMethod::InHeader), ("post", ClientAuthMethod::InBody)]
    {
        let config = parse(&format!(
            "upstream: {{sandbox: true}}
mcp:
  a: {{url: 'https://a/mcp', auth: {{oauth: {{client_id: a, client_secret: '${{env:TOKEN}}', client_auth: {written}}}}}}}"
        ));
        let config = config.unwrap();
        let a = oauth(&config, "a");
        assert_eq!((a.auth_method, a.method_is_configured), (auth_method, true));
    }
}

#[test]
fn credential_that_travels_in_the_open_is_told() {
    let config = parse(
        r"upstream: {sandbox: true}
mcp:
  a: {url: 'http://a/mcp', auth: {bearer: '${env:TOKEN}'}}
  b: {url: 'http://b/mcp', auth: {oauth: {client_id: b, client_secret: secret, token_url: 'http://idp/t'}}}
  c: {url: 'http://127.0.0.1/mcp', auth: {oauth: {client_id: b, client_secret: '${env:TOKEN}', token_url: 'http://localhost/t'}}}",
    )
    .unwrap();
    let places: Vec<_> = config.warnings.iter().map(|w| w.split(": ").nth(1).unwrap()).collect();
    let oauth = ["mcp.b.auth.oauth.client_secret", "mcp.b.auth.oauth.token_url"];
    assert_eq!(places, ["mcp.a.auth.bearer", oauth[0], oauth[1]], "{:?}", config.warnings);
}

#[test]
fn mistakes_of_sections() {
    check(
        r"upstream: {sandbox: true}
mcp:
  a: {command: a, auth: {bearer: '${env:TOKEN}'}}
  b: {url: 'https://b', auth: {}}
  c: {url: 'https://c', auth: {bearer: '${env:TOKEN}', oauth: {}}}
  d: {url: 'https://d', auth: {bearer: '${env:TOKEN}'}, headers: {authorization: '${env:TOKEN}'}}
  e: {url: 'https://e', auth: {bearer: Bearer-plain-hunter22}}
  f: {url: 'unix:/run/f.sock', auth: {oauth: {client_id: f, client_secret: '${env:TOKEN}'}}}",
        r"error: `auth` means nothing beside `command`
 --> /srv/bridge.yaml:3:19 (mcp.a.auth)
  |
3 |   a: {command: a, auth: {bearer: '${env:TOKEN}'}}
  |                   ^^^^
  = remove it

error: `auth` says nothing
 --> /srv/bridge.yaml:4:25 (mcp.b.auth)
  |
4 |   b: {url: 'https://b', auth: {}}
  |                         ^^^^
  = write `bearer: ${file:/path}`, or `oauth: {client_id: …, client_secret: ${file:/path}}`

error: `auth` has either `bearer` or `oauth`
 --> /srv/bridge.yaml:5:56 (mcp.c.auth.oauth)
  |
5 |   c: {url: 'https://c', auth: {bearer: '${env:TOKEN}', oauth: {}}}
  |                                                        ^^^^^
  = remove one of the two

error: `auth` and the header Authorization say the same thing twice
 --> /srv/bridge.yaml:6:25 (mcp.d.auth)
  |
6 |   d: {url: 'https://d', auth: {bearer: '${env:TOKEN}'}, headers: {authorization: '${env:TOKEN}'}}
  |                         ^^^^
  = remove one of the two

error: the word Bearer is put before it
 --> /srv/bridge.yaml:7:40 (mcp.e.auth.bearer)
  |
7 |   e: {url: 'https://e', auth: {bearer: ***}}
  |                                        ^^^
  = write the token alone

error: `token_url` is missing, and cannot be found out on a unix socket
 --> /srv/bridge.yaml:8:39 (mcp.f.auth.oauth)
  |
8 |   f: {url: 'unix:/run/f.sock', auth: {oauth: {client_id: f, client_secret: '${env:TOKEN}'}}}
  |                                       ^^^^^
  = write `token_url: https://…`

6 errors in /srv/bridge.yaml",
    );
}

#[test]
fn a_private_key_stands_for_the_secret() {
    check(
        r"upstream: {sandbox: true}
mcp:
  b: {url: 'https://b', auth: {oauth: {client_id: b, client_secret: '${env:TOKEN}', private_key: '${env:TOKEN}'}}}
  c: {url: 'https://c', auth: {oauth: {client_id: c, private_key: hunter22}}}
  d: {url: 'https://d', auth: {oauth: {client_id: d, client_secret: '${env:TOKEN}', audience: me}}}",
        r"error: `oauth` has either `client_secret` or `private_key`
 --> /srv/bridge.yaml:3:85 (mcp.b.auth.oauth.private_key)
  |
3 |   b: {url: 'https://b', auth: {oauth: {client_id: b, client_secret: '${env:TOKEN}', private_key: '${env:TOKEN}'}}}
  |                                                                                     ^^^^^^^^^^^
  = remove one of the two

error: this is no private key
 --> /srv/bridge.yaml:4:67 (mcp.c.auth.oauth.private_key)
  |
4 |   c: {url: 'https://c', auth: {oauth: {client_id: c, private_key: ***}}}
  |                                                                   ^^^
  = write `${file:/path}` of a key in PEM (PKCS #8): P-256, P-384, Ed25519 or RSA

error: `audience` is empty, or `token_url` is missing
 --> /srv/bridge.yaml:5:85 (mcp.d.auth.oauth.audience)
  |
5 |   d: {url: 'https://d', auth: {oauth: {client_id: d, client_secret: '${env:TOKEN}', audience: me}}}
  |                                                                                     ^^^^^^^^
  = write both, or leave `audience` out

3 errors in /srv/bridge.yaml",
    );
}

#[test]
fn mistakes_of_clients() {
    check(
        r"upstream: {sandbox: true}
a2a:
  g: {url: 'https://g', auth: {oauth: {scopes: ['a b']}}}
  h: {url: 'https://h', auth: {oauth: {client_id: h, client_secret: hunter22 hunter33, token_url: 'idp/token'}}}
  i: {url: 'https://i', auth: {token: abcdefgh}}",
        r"error: `client_id` is missing
 --> /srv/bridge.yaml:3:32 (a2a.g.auth.oauth)
  |
3 |   g: {url: 'https://g', auth: {oauth: {scopes: ['a b']}}}
  |                                ^^^^^
  = write who the bridge is there

error: `client_secret` is missing
 --> /srv/bridge.yaml:3:32 (a2a.g.auth.oauth)
  |
3 |   g: {url: 'https://g', auth: {oauth: {scopes: ['a b']}}}
  |                                ^^^^^
  = write `client_secret: ${file:/path}`, or ${env:NAME}, ${secret:NAME} or ${cred:NAME}

error: client_secret holds a space or a line break that an HTTP header cannot have
 --> /srv/bridge.yaml:4:69 (a2a.h.auth.oauth.client_secret)
  |
4 |   h: {url: 'https://h', auth: {oauth: {client_id: h, client_secret: ***, token_url: 'idp/token'}}}
  |                                                                     ^^^
  = it is one word of printable ASCII

error: `idp/token` is no URL
 --> /srv/bridge.yaml:4:99 (a2a.h.auth.oauth.token_url)
  |
4 |   h: {url: 'https://h', auth: {oauth: {client_id: h, client_secret: ***, token_url: 'idp/token'}}}
  |                                                                                     ^^^^^^^^^^^
  = the scheme is missing: write https://idp/token

error: unknown key `token`
 --> /srv/bridge.yaml:5:32 (a2a.i.auth.token)
  |
5 |   i: {url: 'https://i', auth: {token: ***}}
  |                                ^^^^^
  = Known keys here: bearer, oauth

5 errors in /srv/bridge.yaml",
    );
}

#[test]
fn an_application_at_mantyx() {
    let grant = |more: &str| {
        let yaml = format!(
            "upstream: {{oauth: {{client_id: bridge, client_secret: '${{env:TOKEN}}', \
             refresh_token: '${{file:/etc/closed}}'{more}}}}}"
        );
        let config = parse(&yaml).unwrap();
        assert_eq!(config.warnings, Vec::<String>::new());
        assert!(!format!("{config:?}").contains("hunter22"));
        let Upstream::Mantyx(Mantyx { credential: Credential::Oauth(grant), .. }) = config.upstream
        else {
            panic!("a grant");
        };
        grant
    };
    let by_default = grant("");
    assert_eq!(by_default.token_url.as_str(), "https://app.mantyx.io/api/oauth/token");
    assert_eq!(by_default.client_id, "bridge");
    assert_eq!(by_default.client_secret.expose_secret(), "0123456789abcdef");
    assert_eq!(by_default.refresh_token.expose_secret(), "hunter22-closed-secret");
    let told = grant(", token_url: 'https://idp/t'");
    assert_eq!(told.token_url.as_str(), "https://idp/t");
}

#[test]
fn mistakes_of_an_application() {
    check(
        r"upstream: {credential: passthrough, oauth: {client_id: a}}",
        r"error: `upstream` has either `credential` or `oauth`
 --> /srv/bridge.yaml:1:37 (upstream.oauth)
  |
1 | upstream: {credential: passthrough, oauth: {client_id: a}}
  |                                     ^^^^^
  = remove one of the two",
    );
    check(
        r"upstream:
  oauth: {client_id: a, client_secret: '${env:TOKEN}', token_url: 'http://idp/t'}",
        r"error: `refresh_token` is missing
 --> /srv/bridge.yaml:2:3 (upstream.oauth)
  |
2 |   oauth: {client_id: a, client_secret: '${env:TOKEN}', token_url: 'http://idp/t'}
  |   ^^^^^
  = write `refresh_token: ${file:/path}`, or ${env:NAME}, ${secret:NAME} or ${cred:NAME}

error: without TLS everybody on the way could read the secrets
 --> /srv/bridge.yaml:2:67 (upstream.oauth.token_url)
  |
2 |   oauth: {client_id: a, client_secret: '${env:TOKEN}', token_url: 'http://idp/t'}
  |                                                                   ^^^^^^^^^^^^^^
  = write https://; http:// is for loopback addresses only

2 errors in /srv/bridge.yaml",
    );
}

#[test]
fn users_by_name_and_by_number() {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1007:100::/home/alice:/bin/sh\n";
    let env = environment().with_file("/etc/passwd", passwd, 0o644);
    let yaml = "upstream: {sandbox: true}\napps: {a: {users: [alice, 1001]}, b: {users: [root]}}";
    let config = Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env).unwrap();
    let [a, b] = &config.apps[..] else { panic!("two apps") };
    assert_eq!((&a.users[..], a.token, &b.users[..]), (&[1007, 1001][..], None, &[0][..]));
    let yaml = "upstream: {sandbox: true}\n\
                apps: {a: {users: [alice, 1007]}, b: {users: [1007, alicia]}}";
    let wrong = Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env).unwrap_err();
    let expected =
        [("apps.a.users[1]", "1007"), ("apps.b.users[0]", "`a`"), ("apps.b.users[1]", "`alicia`")];
    assert_eq!(wrong.problems.len(), expected.len(), "{wrong}");
    for (problem, (path, fact)) in wrong.problems.iter().zip(expected) {
        assert_eq!(problem.path, path, "{wrong}");
        assert!(problem.message.contains(fact), "{wrong}");
    }
}

#[test]
fn rates_of_apps() {
    let rate = |keys: &str| {
        let apps = format!("apps: {{a: {{token: '${{env:TOKEN}}', rate: {{{keys}}}}}}}");
        let config = parse(&format!("upstream: {{sandbox: true}}\n{apps}"));
        config.map(|config| config.apps[0].rate.map(|rate| (rate.per_second, rate.burst)))
    };
    assert_eq!(rate("per_second: 50").unwrap(), Some((50.0, 100.0)));
    assert_eq!(rate("per_second: 50, burst: 1").unwrap(), Some((50.0, 1.0)));
    for (wrong, why) in [("burst: 5", "`per_second` is missing"), ("per_second: 0", "at least 1")] {
        let error = rate(wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
