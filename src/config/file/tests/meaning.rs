//! Mistakes of meaning in `listen`, `upstream` and `apps`: ranges, clashes, what is missing.

use super::{check, parse};

#[test]
fn no_upstream() {
    check(
        r"mcp: {}",
        r"error: `upstream` is missing
 --> /srv/bridge.yaml:1:1
  |
1 | mcp: {}
  | ^
  = write `upstream:` and below it `credential: ${env:MANTYX_API_KEY}`, or `credential: passthrough` to forward what each app sends, or `sandbox: true` to try it without an account",
    );
}

#[test]
fn no_credential() {
    check(
        r"upstream:
  workspace: acme",
        r"error: `credential` is missing
 --> /srv/bridge.yaml:1:1 (upstream)
  |
1 | upstream:
  | ^^^^^^^^
  = write `credential: ${env:MANTYX_API_KEY}`, or `credential: passthrough` to forward what each app sends, or `sandbox: true` to try it without an account",
    );
}

#[test]
fn the_sandbox_needs_nothing() {
    check(
        r"upstream: {sandbox: true, credential: passthrough, base_url: https://app.mantyx.io}",
        r"error: `credential` clashes with `sandbox: true`
 --> /srv/bridge.yaml:1:27 (upstream.credential)
  |
1 | upstream: {sandbox: true, credential: passthrough, base_url: https://app.mantyx.io}
  |                           ^^^^^^^^^^
  = the sandbox is inside the bridge: remove one of the two

error: `base_url` clashes with `sandbox: true`
 --> /srv/bridge.yaml:1:52 (upstream.base_url)
  |
1 | upstream: {sandbox: true, credential: passthrough, base_url: https://app.mantyx.io}
  |                                                    ^^^^^^^^
  = the sandbox is inside the bridge: remove one of the two

2 errors in /srv/bridge.yaml",
    );
}

#[test]
fn a_base_url() {
    check(
        r"upstream: {credential: passthrough, base_url: 'http://mantyx.example/api/v1?x=1', workspace: a/b}",
        r"error: a base URL has no query
 --> /srv/bridge.yaml:1:47 (upstream.base_url)
  |
1 | upstream: {credential: passthrough, base_url: 'http://mantyx.example/api/v1?x=1', workspace: a/b}
  |                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = leave out what follows the `?`

error: without TLS everybody on the way could read the credential
 --> /srv/bridge.yaml:1:47 (upstream.base_url)
  |
1 | upstream: {credential: passthrough, base_url: 'http://mantyx.example/api/v1?x=1', workspace: a/b}
  |                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = write https://; http:// is for loopback addresses only

error: the path ends in the API, which the bridge adds itself
 --> /srv/bridge.yaml:1:47 (upstream.base_url)
  |
1 | upstream: {credential: passthrough, base_url: 'http://mantyx.example/api/v1?x=1', workspace: a/b}
  |                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = leave it out, from /api on

error: `a/b` is no workspace
 --> /srv/bridge.yaml:1:94 (upstream.workspace)
  |
1 | upstream: {credential: passthrough, base_url: 'http://mantyx.example/api/v1?x=1', workspace: a/b}
  |                                                                                              ^^^
  = write its slug: the part after /workspaces/ in MANTYX's addresses

4 errors in /srv/bridge.yaml",
    );
}

#[test]
fn addresses() {
    check(
        r"upstream: {sandbox: true}
listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']",
        r"error: `7717` is no address to listen on
 --> /srv/bridge.yaml:2:10 (listen[0])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |          ^^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

error: `:80` is no address to listen on
 --> /srv/bridge.yaml:2:18 (listen[1])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |                  ^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

error: `localhost` is no address to listen on
 --> /srv/bridge.yaml:2:25 (listen[2])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |                         ^^^^^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

error: `127.0.0.1` is no address to listen on
 --> /srv/bridge.yaml:2:36 (listen[3])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |                                    ^^^^^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

error: `/run/x.sock` is no address to listen on
 --> /srv/bridge.yaml:2:47 (listen[4])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |                                               ^^^^^^^^^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

error: `example.com:80` is no address to listen on
 --> /srv/bridge.yaml:2:62 (listen[5])
  |
2 | listen: ['7717', ':80', localhost, 127.0.0.1, '/run/x.sock', 'example.com:80']
  |                                                              ^^^^^^^^^^^^^^^^
  = write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: {unix: /run/x.sock}`

6 errors in /srv/bridge.yaml",
    );
}

#[test]
fn an_address_twice() {
    check(
        r"upstream: {sandbox: true}
listen: [127.0.0.1:7717, localhost:7717]",
        r"error: 127.0.0.1:7717 is here twice
 --> /srv/bridge.yaml:2:26 (listen[1])
  |
2 | listen: [127.0.0.1:7717, localhost:7717]
  |                          ^^^^^^^^^^^^^^
  = remove one of the two",
    );
}

#[test]
fn nothing_to_listen_on() {
    check(
        r"upstream: {sandbox: true}
listen: {}",
        r"error: there is nothing to listen on
 --> /srv/bridge.yaml:2:1 (listen)
  |
2 | listen: {}
  | ^^^^^^
  = write `tcp: 127.0.0.1:7717` or `unix: /run/mantyx-bridge/bridge.sock`",
    );
}

#[test]
fn a_listener_beyond_this_machine() {
    check(
        r"listen: 0.0.0.0:7717
auth: off
upstream: {sandbox: true}",
        r"error: 0.0.0.0:7717 can be reached from other machines, which needs TLS
 --> /srv/bridge.yaml:1:9 (listen)
  |
1 | listen: 0.0.0.0:7717
  |         ^^^^^^^^^^^^
  = write `listen: {tcp: '0.0.0.0:7717', tls: {cert: bridge.pem, key: bridge.key}}`, or listen on 127.0.0.1:7717

error: whoever reaches 0.0.0.0:7717 could use the bridge
 --> /srv/bridge.yaml:2:7 (auth)
  |
2 | auth: off
  |       ^^^
  = write `auth: token`, or listen on 127.0.0.1 or a unix socket only

2 errors in /srv/bridge.yaml",
    );
}

#[test]
fn a_unix_path_that_is_too_long() {
    check(
        r"upstream: {sandbox: true}
listen: {unix: /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}",
        r"error: the path has 108 bytes
 --> /srv/bridge.yaml:2:16 (listen.unix)
  |
2 | listen: {unix: /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}
  |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = a unix socket's path has at most 107",
    );
}

#[test]
fn apps() {
    check(
        r"upstream: {sandbox: true}
mcp: {fs: {command: a}, hr: }
apps:
  'a b': {token: 0123456789abcdef}
  c: {backends: [fs, fs, sf, hr]}
  d: {token: 0123456789abcdef}",
        r"error: expected a map with command or url, found nothing
 --> /srv/bridge.yaml:2:25 (mcp.hr)
  |
2 | mcp: {fs: {command: a}, hr: }
  |                         ^^

error: `a b` is no name for an app
 --> /srv/bridge.yaml:4:3 (apps.a b)
  |
4 |   'a b': {token: ***}
  |   ^^^
  = it has 1 to 64 characters out of a-z, A-Z, 0-9, _, - and .

error: `token` is missing
 --> /srv/bridge.yaml:5:3 (apps.c)
  |
5 |   c: {backends: [fs, fs, sf, hr]}
  |   ^
  = write `token: ${file:/etc/mantyx-bridge/c.token}`

error: `fs` is here twice
 --> /srv/bridge.yaml:5:22 (apps.c.backends[1])
  |
5 |   c: {backends: [fs, fs, sf, hr]}
  |                      ^^
  = remove one

error: there is no backend `sf`
 --> /srv/bridge.yaml:5:26 (apps.c.backends[2])
  |
5 |   c: {backends: [fs, fs, sf, hr]}
  |                          ^^
  = did you mean `fs`?

error: the app `a b` has the same token
 --> /srv/bridge.yaml:6:14 (apps.d.token)
  |
6 |   d: {token: ***}
  |              ^^^
  = every app needs its own, by which it is known

6 errors in /srv/bridge.yaml",
    );
}

#[test]
fn apps_without_an_app() {
    check(
        r"upstream: {sandbox: true}
apps: {}",
        r"error: `apps` names no app
 --> /srv/bridge.yaml:2:1 (apps)
  |
2 | apps: {}
  | ^^^^
  = remove the section, or name an app in it",
    );
}

#[test]
fn tools_of_an_app_are_some_of_a_server_that_it_may_use() {
    check(
        r"upstream: {sandbox: true}
mcp: {fs: {command: a}, jira: {command: a}}
local: {page: {description: d, command: [a]}, mail: {description: d, command: [a]}}
a2a: {desk: {bundled: true}}
apps:
  a:
    token: '${env:TOKEN}'
    backends: [fs, page, mail, desk]
    tools:
      sf: {allow: [a]}
      page: {allow: [a]}
      mail: {deny: [mail]}
      desk: {deny: [{tool: '*', when: [{path: /message, glob: '*salary*'}]}]}
      jira: {deny: [a]}
      fs: {}",
        r"error: there is no backend `sf`
  --> /srv/bridge.yaml:10:7 (apps.a.tools.sf)
   |
10 |       sf: {allow: [a]}
   |       ^^
   = did you mean `fs`?

error: `page` is one tool, not a server with several
  --> /srv/bridge.yaml:11:7 (apps.a.tools.page)
   |
11 |       page: {allow: [a]}
   |       ^^^^
   = write it into `backends`, or leave it out there; rules on its arguments are `deny: [{tool: '*', when: […]}]`

error: `mail` is one tool, not a server with several
  --> /srv/bridge.yaml:12:7 (apps.a.tools.mail)
   |
12 |       mail: {deny: [mail]}
   |       ^^^^
   = write it into `backends`, or leave it out there; rules on its arguments are `deny: [{tool: '*', when: […]}]`

error: the app may not use `jira` at all
  --> /srv/bridge.yaml:14:7 (apps.a.tools.jira)
   |
14 |       jira: {deny: [a]}
   |       ^^^^
   = add it to `backends`, or remove this

error: this says nothing of the tools of `fs`
  --> /srv/bridge.yaml:15:7 (apps.a.tools.fs)
   |
15 |       fs: {}
   |       ^^
   = write `allow: [glob…]`, `deny: [glob…]`, or both

5 errors in /srv/bridge.yaml",
    );
}

#[test]
fn an_empty_list_of_backends_is_allowed_but_not_a_backend_that_is_none() {
    check(
        r"upstream: {sandbox: true}
apps: {a: {token: '${env:TOKEN}', backends: []}, b: {token: '${env:TOKEN2}', backends: [fs]}}",
        r"error: there is no backend `fs`
 --> /srv/bridge.yaml:2:89 (apps.b.backends[0])
  |
2 | apps: {a: {token: '${env:TOKEN}', backends: []}, b: {token: '${env:TOKEN2}', backends: [fs]}}
  |                                                                                         ^^
  = name one below `mcp`, `a2a` or `local` first",
    );
}

#[test]
fn an_audit_log_without_a_file() {
    check(
        "upstream: {sandbox: true}
audit: {arguments: true}",
        "error: `file` is missing: where is the audit log written?
 --> /srv/bridge.yaml:2:1 (audit)
  |
2 | audit: {arguments: true}
  | ^^^^^
  = write `audit: {file: /var/log/mantyx-bridge/audit.jsonl}`, or `syslog: {to: \"unix:/dev/log\"}`",
    );
}

#[test]
fn a_port_that_cannot_be() {
    check(
        r"upstream: {sandbox: true}
listen: 127.0.0.1:98717",
        r"error: 98717 is no port
 --> /srv/bridge.yaml:2:9 (listen)
  |
2 | listen: 127.0.0.1:98717
  |         ^^^^^^^^^^^^^^^
  = ports end at 65535",
    );
}

#[test]
fn schemas_that_postgresql_does_not_take_as_they_are() {
    let longest = "a".repeat(63);
    for (schema, is_good) in
        [(longest.as_str(), true), (&format!("{longest}a"), false), ("pg_x", false)]
    {
        let text = format!(
            "upstream: {{credential: 0123456789abcdef}}\n\
             state: {{postgres: 'postgres://a@127.0.0.1/b', schema: {schema}}}"
        );
        let told = parse(&text).err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(!told.contains("no name of a schema"), is_good, "{schema}: {told}");
    }
}
