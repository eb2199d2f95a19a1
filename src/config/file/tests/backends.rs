//! Mistakes of meaning in `mcp` and `a2a`.

use super::{check, parse};
use crate::config::Start;
use crate::model::ids::BackendName;

#[test]
fn times() {
    check(
        r"upstream: {sandbox: true}
refresh: {interval: 500ms, timeout: 0s}
calls: {timeout: 5m}
mcp: {a: {command: a, refresh: 200h, call_timeout: 300s}}",
        r"error: a refresh this often is a flood
 --> /srv/bridge.yaml:2:21 (refresh.interval)
  |
2 | refresh: {interval: 500ms, timeout: 0s}
  |                     ^^^^^
  = write at least 1s

error: a time of 0 leaves no time
 --> /srv/bridge.yaml:2:37 (refresh.timeout)
  |
2 | refresh: {interval: 500ms, timeout: 0s}
  |                                     ^^
  = write 1ms to 1h

error: this is too long
 --> /srv/bridge.yaml:3:18 (calls.timeout)
  |
3 | calls: {timeout: 5m}
  |                  ^^
  = write at most 290s: MANTYX gives up on a call after 300s, and the answer has to travel

error: this is too long
 --> /srv/bridge.yaml:4:32 (mcp.a.refresh)
  |
4 | mcp: {a: {command: a, refresh: 200h, call_timeout: 300s}}
  |                                ^^^^
  = write at most 168h

error: this is too long
 --> /srv/bridge.yaml:4:52 (mcp.a.call_timeout)
  |
4 | mcp: {a: {command: a, refresh: 200h, call_timeout: 300s}}
  |                                                    ^^^^
  = write at most 290s: MANTYX gives up on a call after 300s, and the answer has to travel

5 errors in /srv/bridge.yaml",
    );
}

#[test]
fn an_mcp_server_is_one_thing() {
    check(
        r"upstream: {sandbox: true}
mcp:
  none: {}
  both: {command: a, url: 'http://a'}
  args: {url: 'http://a', args: [x]}
  headers: {command: a, headers: {X: y}}
  kind: {command: a, type: http}
  stdio: {url: 'http://a', transport: stdio}
  twice: {url: 'http://a', serverUrl: 'http://a'}",
        r"error: neither `command` nor `url` says what this MCP server is
 --> /srv/bridge.yaml:3:3 (mcp.none)
  |
3 |   none: {}
  |   ^^^^
  = write `command: PROGRAM` with `args: […]`, or `url: https://…`

error: an MCP server has either a `command` or a `url`
 --> /srv/bridge.yaml:4:22 (mcp.both.url)
  |
4 |   both: {command: a, url: 'http://a'}
  |                      ^^^
  = remove one of the two, or make two entries of it

error: `args` means nothing beside `url`
 --> /srv/bridge.yaml:5:27 (mcp.args.args)
  |
5 |   args: {url: 'http://a', args: [x]}
  |                           ^^^^
  = remove it

error: `headers` means nothing beside `command`
 --> /srv/bridge.yaml:6:25 (mcp.headers.headers)
  |
6 |   headers: {command: a, headers: {X: ***}}
  |                         ^^^^^^^
  = remove it

error: a server with a `command` is on stdio
 --> /srv/bridge.yaml:7:28 (mcp.kind.type)
  |
7 |   kind: {command: a, type: http}
  |                            ^^^^
  = leave this out, or write a `url` in place of the `command`

error: a server with a `url` is not on stdio
 --> /srv/bridge.yaml:8:39 (mcp.stdio.transport)
  |
8 |   stdio: {url: 'http://a', transport: stdio}
  |                                       ^^^^^
  = leave this out

error: `url` is here twice, under two names
 --> /srv/bridge.yaml:9:10 (mcp.twice)
  |
9 |   twice: {url: 'http://a', serverUrl: 'http://a'}
  |          ^
  = remove one of the two names of `url`

7 errors in /srv/bridge.yaml",
    );
}

#[test]
fn a_command_line_is_no_command() {
    check(
        r#"upstream: {sandbox: true}
mcp: {fs: {command: npx -y "a b"}}"#,
        r#"error: this is one program's name with spaces in it: there is no shell
 --> /srv/bridge.yaml:2:21 (mcp.fs.command)
  |
2 | mcp: {fs: {command: npx -y "a b"}}
  |                     ^^^^^^^^^^^^
  = write its arguments into `args: [ARGUMENT, …]`; those of a local tool into `command: [PROGRAM, ARGUMENT, …]`"#,
    );
}

#[test]
fn urls() {
    check(
        r"upstream: {sandbox: true}
mcp:
  a: {url: example.com/mcp}
  b: {url: 'ftp://a'}
  c: {url: 'https://ann:s3cret@a/mcp'}
  d: {url: 'https://a/#x'}
  e: {url: 'localhost:8080'}
  f: {url: 'https://'}",
        r#"error: `example.com/mcp` is no URL
 --> /srv/bridge.yaml:3:12 (mcp.a.url)
  |
3 |   a: {url: example.com/mcp}
  |            ^^^^^^^^^^^^^^^
  = the scheme is missing: write https://example.com/mcp

error: `ftp://` is not spoken here
 --> /srv/bridge.yaml:4:12 (mcp.b.url)
  |
4 |   b: {url: 'ftp://a'}
  |            ^^^^^^^^^
  = write https:// or http:// before the host

error: a URL must not hold a user or a password
 --> /srv/bridge.yaml:5:12 (mcp.c.url)
  |
5 |   c: {url: 'https://***@a/mcp'}
  |            ^^^^^^^^^^^^^^^^^^^
  = write `headers: {Authorization: "Basic ${file:/path}"}` beside it

error: a fragment is never sent
 --> /srv/bridge.yaml:6:12 (mcp.d.url)
  |
6 |   d: {url: 'https://a/#x'}
  |            ^^^^^^^^^^^^^^
  = leave out what follows the `#`

error: `localhost:8080` is no URL of a server
 --> /srv/bridge.yaml:7:12 (mcp.e.url)
  |
7 |   e: {url: 'localhost:8080'}
  |            ^^^^^^^^^^^^^^^^
  = write https:// or http:// before the host

error: `https://` is no URL: empty host
 --> /srv/bridge.yaml:8:12 (mcp.f.url)
  |
8 |   f: {url: 'https://'}
  |            ^^^^^^^^^^
  = write it like https://host.example/mcp

6 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn header_names_and_values() {
    check(
        r#"upstream: {sandbox: true}
mcp:
  a:
    url: https://a
    headers: {X-A: b, x-a: c, 'a b': c, Content-Length: 5, X-L: "a\nb"}"#,
        r#"error: the header `x-a` is here twice
 --> /srv/bridge.yaml:5:23 (mcp.a.headers.x-a)
  |
5 |     headers: {X-A: ***, x-a: ***, 'a b': ***, Content-Length: ***, X-L: "***"}
  |                         ^^^
  = case does not matter: remove one

error: `a b` is no name of a header
 --> /srv/bridge.yaml:5:31 (mcp.a.headers.a b)
  |
5 |     headers: {X-A: ***, x-a: ***, 'a b': ***, Content-Length: ***, X-L: "***"}
  |                                   ^^^
  = letters, digits and hyphens, such as X-API-Key

error: `Content-Length` is set by the connection itself
 --> /srv/bridge.yaml:5:41 (mcp.a.headers.Content-Length)
  |
5 |     headers: {X-A: ***, x-a: ***, 'a b': ***, Content-Length: ***, X-L: "***"}
  |                                               ^^^^^^^^^^^^^^
  = remove the line

error: the value of `X-L` is not allowed in a header
 --> /srv/bridge.yaml:5:65 (mcp.a.headers.X-L)
  |
5 |     headers: {X-A: ***, x-a: ***, 'a b': ***, Content-Length: ***, X-L: "***"}
  |                                                                         ^^^^^
  = it is one line of printable ASCII

4 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn tools() {
    check(
        r"upstream: {sandbox: true}
mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}",
        r#"error: `a-` is no prefix
 --> /srv/bridge.yaml:2:31 (mcp.a.prefix)
  |
2 | mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}
  |                               ^^
  = up to 41 characters out of a-z, A-Z, 0-9 and _; "" for none

error: `a[` is no glob: unclosed character class; missing ']'
 --> /srv/bridge.yaml:2:51 (mcp.a.tools.allow[0])
  |
2 | mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}
  |                                                   ^^^^
  = write a tool's name, with * for any characters and ? for one

error: `{b` is no glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
 --> /srv/bridge.yaml:2:57 (mcp.a.tools.allow[1])
  |
2 | mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}
  |                                                         ^^^^
  = write a tool's name, with * for any characters and ? for one

error: `a` is renamed to `c` already
 --> /srv/bridge.yaml:2:82 (mcp.a.tools.rename.b)
  |
2 | mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}
  |                                                                                  ^
  = give every tool its own name

error: `e f` is no name for a tool
 --> /srv/bridge.yaml:2:88 (mcp.a.tools.rename.d)
  |
2 | mcp: {a: {command: a, prefix: a-, tools: {allow: ['a[', '{b'], rename: {a: c, b: c, d: 'e f'}}}}
  |                                                                                        ^^^^^
  = 1 to 64 characters out of a-z, A-Z, 0-9 and _

5 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn an_a2a_agent_is_one_thing() {
    check(
        r"upstream: {sandbox: true}
a2a:
  none: {}
  not: {bundled: false}
  both: {url: 'http://a', bundled: true}
  card: {url: 'http://a/.well-known/agent-card.json'}
  hosts: {url: 'http://a', allow_hosts: ['http://b', 'b:8080', 'b/c']}",
        r"error: nothing says where this A2A agent is
 --> /srv/bridge.yaml:3:3 (a2a.none)
  |
3 |   none: {}
  |   ^^^^
  = write `url: https://…`, or `card_url`, or `card_file`, or `bundled: true`

error: nothing says where this A2A agent is
 --> /srv/bridge.yaml:4:3 (a2a.not)
  |
4 |   not: {bundled: false}
  |   ^^^
  = write `url: https://…`, or `card_url`, or `card_file`, or `bundled: true`

error: an A2A agent has one of `url`, `card_url`, `card_file` and `bundled`
 --> /srv/bridge.yaml:5:27 (a2a.both.bundled)
  |
5 |   both: {url: 'http://a', bundled: true}
  |                           ^^^^^^^
  = remove all but one

error: this is the card's address, not the agent's base
 --> /srv/bridge.yaml:6:15 (a2a.card.url)
  |
6 |   card: {url: 'http://a/.well-known/agent-card.json'}
  |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = write it as `card_url`, or leave out the path

error: `http://b` is no host
 --> /srv/bridge.yaml:7:42 (a2a.hosts.allow_hosts[0])
  |
7 |   hosts: {url: 'http://a', allow_hosts: ['http://b', 'b:8080', 'b/c']}
  |                                          ^^^^^^^^^^
  = write a host or host:port, such as hr.intranet.acme:8443

error: `b/c` is no host
 --> /srv/bridge.yaml:7:64 (a2a.hosts.allow_hosts[2])
  |
7 |   hosts: {url: 'http://a', allow_hosts: ['http://b', 'b:8080', 'b/c']}
  |                                                                ^^^^^
  = write a host or host:port, such as hr.intranet.acme:8443

6 errors in /srv/bridge.yaml",
    );
}

#[test]
fn names_of_backends() {
    check(
        r"upstream: {sandbox: true}
mcp:
  my-server: {command: a}
  fs: {command: a}
a2a:
  fs: {bundled: true}",
        r"error: `my-server` is no backend name
 --> /srv/bridge.yaml:3:3 (mcp.my-server)
  |
3 |   my-server: {command: a}
  |   ^^^^^^^^^
  = a backend name has 1 to 40 characters out of a-z, A-Z, 0-9 and _: write `my_server`

error: there is a backend `fs` already, in line 4
 --> /srv/bridge.yaml:6:3 (a2a.fs)
  |
6 |   fs: {bundled: true}
  |   ^^
  = names are unique over mcp, a2a and local: rename one of the two

2 errors in /srv/bridge.yaml",
    );
}

#[test]
fn both_names_of_the_section() {
    let yaml = "upstream: {sandbox: true}\nmcp: {a: {command: a}}\nmcpServers: {b: {command: b}}";
    let config = parse(yaml).unwrap();
    assert_eq!(config.backends.keys().map(BackendName::as_str).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn addresses_that_are_no_unix_sockets() {
    let (long, marks) = ("x".repeat(108), "^".repeat(116));
    check(
        &format!(
            "upstream: {{sandbox: true}}
mcp:
  a: {{url: 'unix:'}}
  b: {{url: 'http+unix://%2Frun%2Fx.sock/mcp'}}
  c: {{url: 'unix:/{long}'}}
  d: {{url: 'unix:/run/d', headers: {{Host: 'a b'}}}}
  e: {{url: 'https://e', type: http, transport: sse}}"
        ),
        &format!(
            r#"error: this names no unix socket
 --> /srv/bridge.yaml:3:12 (mcp.a.url)
  |
3 |   a: {{url: 'unix:'}}
  |            ^^^^^^^
  = write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp

error: `http+unix://` is not spoken here
 --> /srv/bridge.yaml:4:12 (mcp.b.url)
  |
4 |   b: {{url: 'http+unix://%2Frun%2Fx.sock/mcp'}}
  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = write https:// or http:// before the host

error: the path has 109 bytes
 --> /srv/bridge.yaml:5:12 (mcp.c.url)
  |
5 |   c: {{url: 'unix:/{long}'}}
  |            {marks}
  = a unix socket's path has at most 107

error: what follows the socket is no path of a URL, or `Host` is no host
 --> /srv/bridge.yaml:6:12 (mcp.d.url)
  |
6 |   d: {{url: 'unix:/run/d', headers: {{Host: '***'}}}}
  |            ^^^^^^^^^^^^^
  = write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp

error: `transport` is here twice, under two names
 --> /srv/bridge.yaml:7:6 (mcp.e)
  |
7 |   e: {{url: 'https://e', type: http, transport: sse}}
  |      ^
  = remove one of the two names of `transport`

5 errors in /srv/bridge.yaml"#
        ),
    );
}

#[test]
fn start_of_a_program_is_inherited_and_replaced() {
    let config = parse(
        r"upstream: {sandbox: true}
programs: {start: lazy, idle_stop: 15m, start_timeout: 10m}
mcp:
  all: {command: a}
  own: {command: a, start: eager, idle_stop: off, start_timeout: 1m}
",
    );
    let config = config.expect("a configuration");
    let start = |name: &str| config.backends[name].start;
    let minute = std::time::Duration::from_secs(60);
    let all = Start { timeout: 10 * minute, is_lazy: true, idle_stop: Some(15 * minute) };
    assert_eq!(start("all"), all);
    assert_eq!(start("own"), Start { timeout: minute, is_lazy: false, idle_stop: None });
}

#[test]
fn start_keys_have_limits_and_are_for_programs() {
    check(
        r"upstream: {sandbox: true}
mcp:
  short: {command: a, idle_stop: 10ms}
  long: {command: a, start_timeout: 2h}
  url: {url: 'http://a', start: lazy}",
        r"error: an idle_stop is at least 1s and at most 24h
 --> /srv/bridge.yaml:3:34 (mcp.short.idle_stop)
  |
3 |   short: {command: a, idle_stop: 10ms}
  |                                  ^^^^
  = write such a time, or `off`

error: this is too long
 --> /srv/bridge.yaml:4:37 (mcp.long.start_timeout)
  |
4 |   long: {command: a, start_timeout: 2h}
  |                                     ^^
  = write at most 1h

error: `start` means nothing beside `url`
 --> /srv/bridge.yaml:5:26 (mcp.url.start)
  |
5 |   url: {url: 'http://a', start: lazy}
  |                          ^^^^^
  = remove it

3 errors in /srv/bridge.yaml",
    );
}
