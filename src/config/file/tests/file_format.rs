//! Mistakes of form: keys, types, YAML itself.

use super::check;

#[test]
fn an_empty_file() {
    check(
        r"",
        r"error: the file is empty
--> /srv/bridge.yaml
 = the least is `upstream: {sandbox: true}`; docs/configuration.md shows more",
    );
}

#[test]
fn unknown_keys_get_a_suggestion_and_the_known_ones() {
    check(
        r"upstrem: {}
upstream: {sandbox: true, crednetial: x}
foo: bar",
        r"error: unknown key `upstrem`
 --> /srv/bridge.yaml:1:1 (upstrem)
  |
1 | upstrem: {}
  | ^^^^^^^
  = did you mean `upstream`? Known keys here: a2a, apps, audit, auth, calls, listen, local, mcp, mcpServers, notify, programs, redact, refresh, runtimes, seal_key, state, state_dir, upstream

error: unknown key `crednetial`
 --> /srv/bridge.yaml:2:27 (upstream.crednetial)
  |
2 | upstream: {sandbox: true, crednetial: ***}
  |                           ^^^^^^^^^^
  = did you mean `credential`? Known keys here: base_url, credential, oauth, sandbox, tls, workspace

error: unknown key `foo`
 --> /srv/bridge.yaml:3:1 (foo)
  |
3 | foo: ***
  | ^^^
  = Known keys here: a2a, apps, audit, auth, calls, listen, local, mcp, mcpServers, notify, programs, redact, refresh, runtimes, seal_key, state, state_dir, upstream

3 errors in /srv/bridge.yaml",
    );
}

#[test]
fn wrong_types_say_what_was_found() {
    check(
        r"upstream: [sandbox]
listen: 5
auth: onn
refresh: 5m
mcp: [fs]",
        r"error: expected a map with credential, or with sandbox: true, found a list
 --> /srv/bridge.yaml:1:11 (upstream)
  |
1 | upstream: [***]
  |           ^

error: expected an address, a list of addresses, or a map with tcp, unix and tls, found a number
 --> /srv/bridge.yaml:2:9 (listen)
  |
2 | listen: ***
  |         ^^^

error: expected `token` or `off`, found another text
 --> /srv/bridge.yaml:3:7 (auth)
  |
3 | auth: ***
  |       ^^^

error: expected a map with interval, jitter, timeout, found a text
 --> /srv/bridge.yaml:4:10 (refresh)
  |
4 | refresh: ***
  |          ^^^

error: expected a map, found a list
 --> /srv/bridge.yaml:5:6 (mcp)
  |
5 | mcp: [***]
  |      ^

5 errors in /srv/bridge.yaml",
    );
}

/// The rights of an app are by server.
#[test]
fn tools_without_the_name_of_a_server() {
    check(
        r"upstream: {sandbox: true}
runtimes: {r: {kind: claude-environment, environment: env_1, credential: x, tools: {allow: [x]}}}",
        r"error: expected a map with allow, deny below the name of a server, found a list
 --> /srv/bridge.yaml:2:92 (runtimes.r.tools.allow)
  |
2 | runtimes: {r: {kind: claude-environment, environment: env_1, credential: ***, tools: {allow: [***]}}}
  |                                                                                              ^",
    );
}

#[test]
fn numbers_and_booleans() {
    check(
        r"upstream: {sandbox: yes}
refresh: {interval: 5, jitter: 1.5, timeout: 1 minute}
calls: {max_concurrent: 0}
state_dir: 7",
        r"error: expected true or false, found the text `yes`
 --> /srv/bridge.yaml:1:21 (upstream.sandbox)
  |
1 | upstream: {sandbox: yes}
  |                     ^^^

error: expected a duration such as 250ms, 30s, 5m or 2h, found a number
 --> /srv/bridge.yaml:2:21 (refresh.interval)
  |
2 | refresh: {interval: ***, jitter: 1.5, timeout: 1 minute}
  |                     ^^^

error: this is no share of the interval
 --> /srv/bridge.yaml:2:32 (refresh.jitter)
  |
2 | refresh: {interval: ***, jitter: 1.5, timeout: 1 minute}
  |                                  ^^^
  = write a number from 0 to 1

error: expected a duration such as 250ms, 30s, 5m or 2h, found the text `1 minute`
 --> /srv/bridge.yaml:2:46 (refresh.timeout)
  |
2 | refresh: {interval: ***, jitter: 1.5, timeout: 1 minute}
  |                                                ^^^^^^^^

error: expected a whole number of at least 1, found the number 0
 --> /srv/bridge.yaml:3:25 (calls.max_concurrent)
  |
3 | calls: {max_concurrent: 0}
  |                         ^

error: expected a string, found a number
 --> /srv/bridge.yaml:4:12 (state_dir)
  |
4 | state_dir: ***
  |            ^^^
  = put it in quotes

6 errors in /srv/bridge.yaml",
    );
}

#[test]
fn a_list_where_one_word_stands() {
    check(
        r"upstream: {sandbox: true}
mcp:
  fs:
    command: npx
    args: -y",
        r"error: expected a list, found a text
 --> /srv/bridge.yaml:5:11 (mcp.fs.args)
  |
5 |     args: ***
  |           ^^^
  = write a list: […]",
    );
}

#[test]
fn an_entry_with_nothing_in_it() {
    check(
        r"upstream: {sandbox: true}
mcp:
  fs:",
        r"error: expected a map with command or url, found nothing
 --> /srv/bridge.yaml:3:3 (mcp.fs)
  |
3 |   fs:
  |   ^^",
    );
}

#[test]
fn a_list_is_no_file() {
    check(
        r"- upstream",
        r"error: expected a map with the sections of bridge.yaml, found a list
 --> /srv/bridge.yaml:1:1
  |
1 | - ***
  | ^",
    );
}

#[test]
fn a_duplicate_key() {
    check(
        r"upstream: {sandbox: true}
mcp:
  fs: {command: a}
  fs: {command: b}",
        r"error: `fs` is here twice
 --> /srv/bridge.yaml:4:3
  |
4 |   fs: ***
  |   ^^
  = a key may stand once in a map: remove one of the two",
    );
}

#[test]
fn a_tab() {
    check(
        r"upstream:
	sandbox: true",
        r"error: tabs disallowed within this context (block indentation)
 --> /srv/bridge.yaml:2:2
  |
2 |  sandbox: true
  |  ^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn a_bracket_that_stays_open() {
    check(
        r"mcp: {fs: {command: npx
upstream: {}",
        r"error: while parsing a flow mapping, did not find expected ',' or '}'
 --> /srv/bridge.yaml:2:9
  |
2 | upstream: {}
  |         ^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn a_colon_in_a_text() {
    check(
        r"upstream: {sandbox: true}
state_dir: a: b",
        r"error: mapping values are not allowed in this context
 --> /srv/bridge.yaml:2:13
  |
2 | state_dir: ***
  |            ^^^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn two_documents() {
    check(
        r"upstream: {sandbox: true}
---
upstream: {sandbox: true}",
        r"error: the file holds more than one YAML document
 --> /srv/bridge.yaml:3:1
  |
3 | upstream: ***
  | ^
  = remove the `---` line",
    );
}

#[test]
fn an_alias_without_an_anchor() {
    check(
        r"state_dir: *.x",
        r"error: reference to unknown value
 --> /srv/bridge.yaml:1:12
  |
1 | state_dir: ***
  |            ^^^
  = this is not YAML; the mistake may stand before this place. Indent with spaces; a text with `: ` in it, or that begins with `*`, stands in quotes",
    );
}

#[test]
fn keys_of_other_products() {
    check(
        r"upstream: {sandbox: true}
servers: {}
mcp:
  a: {httpUrl: 'http://a'}
  b: {command: b, timeout: 5, autoApprove: []}",
        r"error: unknown key `servers`
 --> /srv/bridge.yaml:2:1 (servers)
  |
2 | servers: {}
  | ^^^^^^^
  = `mantyx-bridge import FILE` makes the section `mcp` of such a file

error: unknown key `httpUrl`
 --> /srv/bridge.yaml:4:7 (mcp.a.httpUrl)
  |
4 |   a: {httpUrl: '***'}
  |       ^^^^^^^
  = write `url`, and `transport: streamable-http`; `mantyx-bridge import FILE` does that for a whole file

error: unknown key `timeout`
 --> /srv/bridge.yaml:5:19 (mcp.b.timeout)
  |
5 |   b: {command: b, timeout: ***, autoApprove: []}
  |                   ^^^^^^^
  = write `call_timeout: 60s`, a time with its unit; `mantyx-bridge import FILE` does that for a whole file

error: unknown key `autoApprove`
 --> /srv/bridge.yaml:5:31 (mcp.b.autoApprove)
  |
5 |   b: {command: b, timeout: ***, autoApprove: []}
  |                                 ^^^^^^^^^^^
  = leave it out: the bridge asks a person for the tools that `approve` names, and for no others; `mantyx-bridge import FILE` does that for a whole file

4 errors in /srv/bridge.yaml",
    );
}

#[test]
fn an_enum_word() {
    check(
        r"upstream: {sandbox: true}
mcp: {a: {command: a, on_unavailable: stael}}",
        r"error: `stael` is not known here, expected `stub`, `stale`, `omit` or `fail`
 --> /srv/bridge.yaml:2:39 (mcp.a.on_unavailable)
  |
2 | mcp: {a: {command: a, on_unavailable: stael}}
  |                                       ^^^^^
  = did you mean `stale`?",
    );
}

#[test]
fn a_mistake_in_an_alias_is_shown_where_it_is_written() {
    check(
        r"upstream: {sandbox: true}
mcp:
  a: &a {command: a, args: [[]]}
  b: *a",
        r"error: expected a string, found a list
 --> /srv/bridge.yaml:3:29 (mcp.a.args[0])
  |
3 |   a: &a {command: a, args: [[]]}
  |                             ^",
    );
}

#[test]
fn a_long_line_is_cut() {
    check(
        r"upstream: {sandbox: true}
mcp: {a: {command: x, args: [aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa], comand: y, env: {A0: bbbbbbbbbbbb, A1: bbbbbbbbbbbb, A2: bbbbbbbbbbbb, A3: bbbbbbbbbbbb, A4: bbbbbbbbbbbb, A5: bbbbbbbbbbbb, A6: bbbbbbbbbbbb, A7: bbbbbbbbbbbb, A8: bbbbbbbbbbbb, A9: bbbbbbbbbbbb, A10: bbbbbbbbbbbb, A11: bbbbbbbbbbbb, A12: bbbbbbbbbbbb, A13: bbbbbbbbbbbb}}}",
        r"error: unknown key `comand`
 --> /srv/bridge.yaml:2:185 (mcp.a.comand)
  |
2 | a, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa, aaaaaaaaa], comand: ***, env: {A0: bbbbbbbbbbbb, A1: bbbbbbbbbbbb, A2: bbbbbbbbbbb
  |                                                                       ^^^^^^
  = did you mean `command`? Known keys here: always, approve, args, auth, call_timeout, command, concurrency, cwd, disabled, env, envFile, headers, idle_stop, listen, max_result, offer, on_unavailable, only_on, pending_after, pin, prefix, quota, redact, refresh, required, sandbox, serverUrl, sessions, start, start_timeout, tls, tools, transport, trust_annotations, type, url",
    );
}
