//! `local`: what is made of good entries, and what is told of wrong ones.

use secrecy::ExposeSecret as _;

use super::{check, parse};
use crate::config::{Action, Backend, Config, Local, Program, Target};

#[track_caller]
fn good(yaml: &str) -> Config {
    parse(yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

fn tool<'c>(config: &'c Config, name: &str) -> (&'c Backend, &'c Local) {
    let backend = &config.backends[name];
    let Target::Local(tool) = &backend.target else { panic!("a local tool") };
    (backend, tool)
}

#[test]
fn a_request_and_a_program() {
    let config = good(
        "upstream: {sandbox: true}
local:
  page:
    http: {url: 'http://127.0.0.1:9000/page?key=${env:TOKEN}', headers: {X-Key: '${env:TOKEN}'}}
    timeout: 20s
    concurrency: 3
    required: true
  find: {http: {method: GET, url: 'https://a'}}
  disk:
    command: [bin/disk, -h, '${env:TOKEN}', 1.0]
    env: {KEY: '${env:TOKEN}'}
    cwd: data
    sandbox: {}
  own: {command: [mantyx-bridge]}
",
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let (page, local) = tool(&config, "page");
    assert_eq!((page.call_timeout.as_secs(), page.concurrency, page.required), (20, 3, true));
    let Action::Http { method, url, headers, .. } = &local.action else { panic!("http") };
    assert_eq!(
        (method.as_str(), url.to_string().as_str()),
        ("POST", "http://127.0.0.1:9000/page?key=${env:TOKEN}")
    );
    assert!(url.query().unwrap().ends_with("0123456789abcdef"));
    assert!(headers["x-key"].is_sensitive());
    assert_eq!(local.input.definition().get(), "{}", "nothing that the file does not say");
    let (find, local) = tool(&config, "find");
    assert_eq!((find.call_timeout.as_secs(), find.concurrency, find.required), (285, 16, false));
    assert!(matches!(&local.action, Action::Http { method, .. } if method == "GET"));
    let (disk, local) = tool(&config, "disk");
    assert_eq!(disk.concurrency, 4);
    let Action::Command(Program { command, args, env, cwd, sandbox, .. }) = &local.action else {
        panic!("a program")
    };
    let args: Vec<&str> = args.iter().map(|arg| arg.as_str()).collect();
    assert_eq!(
        (command.as_str(), args.as_slice()),
        ("/srv/bin/disk", ["-h", "0123456789abcdef", "1.0"].as_slice())
    );
    assert_eq!(env["KEY"].expose_secret(), "0123456789abcdef");
    assert_eq!(cwd.as_deref(), Some(std::path::Path::new("/srv/data")));
    assert_eq!(
        *sandbox,
        crate::config::ProgramSandbox::Listed(crate::config::Confinement::default()),
        "it sees what it needs to run"
    );
    let (_, local) = tool(&config, "own");
    assert!(
        matches!(&local.action, Action::Command(own) if own.command == "/usr/bin/mantyx-bridge")
    );
}

#[test]
fn schemas_keep_their_keys_in_order_and_their_numbers() {
    let config = good(
        r#"upstream: {sandbox: true}
local:
  t:
    retain: false
    readOnly: true
    outputSchema: {type: object, properties: {}}
    parameters:
      type: object
      required: [z, a]
      properties:
        z: {type: number, minimum: -0.50, maximum: 1e3, default: null}
        a: {type: string, pattern: "^\\d\"$", enum: [é, "1", 0x10, true, "${env:NONE}"]}
      additionalProperties: false
    longRunning: true
    description: |
      Two
      lines.
    command: [a]
"#,
    );
    let (_, local) = tool(&config, "t");
    let expected = concat!(
        r#"{"description":"Two\nlines.\n","#,
        r#""parameters":{"type":"object","required":["z","a"],"properties":{"#,
        r#""z":{"type":"number","minimum":-0.50,"maximum":1e3,"default":null},"#,
        r#""a":{"type":"string","pattern":"^\\d\"$","enum":["é","1",16,true,"${env:NONE}"]}},"#,
        r#""additionalProperties":false},"#,
        r#""outputSchema":{"type":"object","properties":{}},"#,
        r#""longRunning":true,"readOnly":true,"retain":false}"#,
    );
    assert_eq!(local.input.definition().get(), expected);
}

#[test]
fn a_tool_does_one_thing() {
    check(
        r"upstream: {sandbox: true}
local:
  none: {description: x}
  both: {command: [a], http: {url: 'http://a'}}
  empty: {command: []}
  line: {command: [curl -s]}
  nowhere: {http: {method: GET}}
  ftp: {http: {url: 'ftp://a'}}
  env: {http: {url: 'http://a'}, env: {A: b}, cwd: x}
  post: {http: {url: 'http://a', method: post}}
  list: {command: a}",
        r#"error: none of `http`, `command` and `internal` says what this tool does
 --> /srv/bridge.yaml:3:3 (local.none)
  |
3 |   none: {description: x}
  |   ^^^^
  = write `http: {url: https://…}`, or `command: [PROGRAM, …]`

error: a local tool has either `http` or a `command`
 --> /srv/bridge.yaml:4:24 (local.both.http)
  |
4 |   both: {command: [a], http: {url: 'http://a'}}
  |                        ^^^^
  = remove one of the two, or make two entries of it

error: nothing says what program this is
 --> /srv/bridge.yaml:5:20 (local.empty.command)
  |
5 |   empty: {command: []}
  |                    ^
  = write `command: [PROGRAM, ARGUMENT, …]`

error: this is one program's name with spaces in it: there is no shell
 --> /srv/bridge.yaml:6:20 (local.line.command[0])
  |
6 |   line: {command: [curl -s]}
  |                    ^^^^^^^
  = write its arguments into `args: [ARGUMENT, …]`; those of a local tool into `command: [PROGRAM, ARGUMENT, …]`

error: nothing says where this request is sent
 --> /srv/bridge.yaml:7:13 (local.nowhere.http)
  |
7 |   nowhere: {http: {method: GET}}
  |             ^^^^
  = write `url: https://…` into it

error: `ftp://` is not spoken here
 --> /srv/bridge.yaml:8:21 (local.ftp.http.url)
  |
8 |   ftp: {http: {url: 'ftp://a'}}
  |                     ^^^^^^^^^
  = write https:// or http:// before the host

error: `env` means nothing beside `http`
 --> /srv/bridge.yaml:9:34 (local.env.env)
  |
9 |   env: {http: {url: 'http://a'}, env: {A: b}, cwd: x}
  |                                  ^^^
  = remove it

error: `cwd` means nothing beside `http`
 --> /srv/bridge.yaml:9:47 (local.env.cwd)
  |
9 |   env: {http: {url: 'http://a'}, env: {A: b}, cwd: x}
  |                                               ^^^
  = remove it

error: `post` is not known here, expected `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`
  --> /srv/bridge.yaml:10:42 (local.post.http.method)
   |
10 |   post: {http: {url: 'http://a', method: post}}
   |                                          ^^^^
   = did you mean `POST`?

error: expected a list, found a text
  --> /srv/bridge.yaml:11:19 (local.list.command)
   |
11 |   list: {command: ***}
   |                   ^^^
   = write a list: […]

10 errors in /srv/bridge.yaml"#,
    );
}

#[test]
fn a_schema_is_one_of_an_object() {
    check(
        r"upstream: {sandbox: true}
local:
  a: {command: [a], parameters: {type: array}}
  b: {command: [a], parameters: {properties: {}}}
  c: {command: [a], parameters: [x], outputSchema: {type: object, maximum: .inf}}
  d: {command: [a], timeout: 300s, call_timeout: 1s}
  e: {command: [a], args: [x]}
  f: {url: 'http://a'}",
        r#"error: MANTYX takes the schema of an object only
 --> /srv/bridge.yaml:3:40 (local.a.parameters.type)
  |
3 |   a: {command: [a], parameters: {type: array}}
  |                                        ^^^^^
  = write `type: object`, and what there is below `properties`

error: the schema does not say that it is one of an object
 --> /srv/bridge.yaml:4:21 (local.b.parameters)
  |
4 |   b: {command: [a], parameters: {properties: {}}}
  |                     ^^^^^^^^^^
  = write `type: object` into it

error: expected a map, which is a JSON Schema, found a list
 --> /srv/bridge.yaml:5:33 (local.c.parameters)
  |
5 |   c: {command: [a], parameters: [***], outputSchema: {type: object, maximum: .inf}}
  |                                 ^

error: JSON has no such number
 --> /srv/bridge.yaml:5:76 (local.c.outputSchema.maximum)
  |
5 |   c: {command: [a], parameters: [***], outputSchema: {type: object, maximum: .inf}}
  |                                                                              ^^^^
  = write a finite number, or a text in quotes

error: this is too long
 --> /srv/bridge.yaml:6:30 (local.d.timeout)
  |
6 |   d: {command: [a], timeout: 300s, call_timeout: ***}
  |                              ^^^^
  = write at most 290s: MANTYX gives up on a call after 300s, and the answer has to travel

error: unknown key `call_timeout`
 --> /srv/bridge.yaml:6:36 (local.d.call_timeout)
  |
6 |   d: {command: [a], timeout: 300s, call_timeout: ***}
  |                                    ^^^^^^^^^^^^
  = Known keys here: command, concurrency, cwd, description, env, http, internal, longRunning, max_result, only_on, outputSchema, parameters, pending_after, quota, readOnly, redact, required, retain, sandbox, timeout

error: unknown key `args`
 --> /srv/bridge.yaml:7:21 (local.e.args)
  |
7 |   e: {command: [a], args: [***]}
  |                     ^^^^
  = Known keys here: command, concurrency, cwd, description, env, http, internal, longRunning, max_result, only_on, outputSchema, parameters, pending_after, quota, readOnly, redact, required, retain, sandbox, timeout

error: unknown key `url`
 --> /srv/bridge.yaml:8:7 (local.f.url)
  |
8 |   f: {url: '***'}
  |       ^^^
  = Known keys here: command, concurrency, cwd, description, env, http, internal, longRunning, max_result, only_on, outputSchema, parameters, pending_after, quota, readOnly, redact, required, retain, sandbox, timeout

8 errors in /srv/bridge.yaml"#,
    );
}
