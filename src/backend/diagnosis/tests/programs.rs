//! Programs that were started, and have failed by themselves.

#![expect(clippy::too_many_lines, reason = "each is a table of samples")]

use super::*;

#[test]
fn crash_is_told_by_its_message() {
    check(&[
        Case {
            command: "node server.js",
            stderr: "\
/srv/server.js:1
throw new Error(\"the index is broken\")
^

Error: the index is broken
    at Object.<anonymous> (/srv/server.js:1:7)
    at Module._compile (node:internal/modules/cjs/loader:1521:14)

Node.js v20.20.2",
            line: "Error: the index is broken",
            cure: "run it by hand, and see what it says: node server.js",
            ..BARE
        },
        Case {
            stderr: "\
  + Exception Group Traceback (most recent call last):
  |   File \"/x/server.py\", line 3, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File \"/x/server.py\", line 9, in run
    | ValueError: no index there
    +------------------------------------",
            line: "ValueError: no index there",
            ..BARE
        },
        Case {
            end: End::Exit(101),
            stderr: "\
thread 'main' panicked at src/main.rs:5:3:
the index is gone
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            line: "the index is gone",
            ..BARE
        },
        Case {
            end: End::Exit(2),
            stderr: "panic: the index is gone\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:5 +0x1d",
            line: "panic: the index is gone",
            ..BARE
        },
        Case {
            command: "java -jar x.jar",
            stderr: "\
Exception in thread \"main\" java.lang.IllegalStateException: the index is gone
\tat x.Main.main(Main.java:5)",
            line: "Exception in thread \"main\" java.lang.IllegalStateException: the index is gone",
            ..BARE
        },
        Case {
            stderr: "\\u{1b}[31mcannot read the index\\u{1b}[0m\n    at nothing\nbye",
            line: "cannot read the index",
            ..BARE
        },
        Case { cause: Cause::Silent, cure: "by hand", ..BARE },
    ]);
}

#[test]
fn killed_program_is_told_from_one_that_failed() {
    check(&[
        Case { end: End::Signal(9), cause: Cause::OutOfMemory, cure: "journalctl -k", ..BARE },
        Case {
            command: "docker run -i x",
            end: End::Exit(137),
            cause: Cause::OutOfMemory,
            cure: "memory",
            ..BARE
        },
        Case { end: End::Signal(15), cause: Cause::Terminated, cure: "ended it", ..BARE },
        Case { end: End::Signal(4), cause: Cause::Faulted, cure: "processor", ..BARE },
        Case {
            end: End::Signal(6),
            stderr: "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            cause: Cause::HeapLimit,
            line: "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            cure: "max-old-space-size",
            ..BARE
        },
    ]);
}

#[test]
fn missing_settings_are_told_by_the_line_that_names_them() {
    let credential = |stderr: &'static str, line| Case {
        stderr,
        cause: Cause::Credential,
        line,
        cure: "in `env` or `args`",
        ..BARE
    };
    check(&[
        credential(
            "Traceback (most recent call last):\n  File \"/x/p.py\", line 2, in <module>\n    os.environ[\"GITHUB_TOKEN\"]\n  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'GITHUB_TOKEN'",
            "KeyError: 'GITHUB_TOKEN'",
        ),
        credential(
            "Error: GITHUB_TOKEN environment variable is required",
            "Error: GITHUB_TOKEN environment variable is required",
        ),
        credential(
            "Error: BRAVE_API_KEY environment variable is required\nUsage notes follow",
            "Error: BRAVE_API_KEY environment variable is required",
        ),
        credential(
            "Please provide an API key: none is set, API key missing",
            "Please provide an API key: none is set, API key missing",
        ),
        credential(
            "Traceback (most recent call last):\n  File \"/x/s.py\", line 2, in <module>\npydantic_core._pydantic_core.ValidationError: 1 validation error for Settings\napi_key\n  Field required [type=missing, input_value={}, input_type=dict]",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings: api_key: Field required [type=missing, input_value={}, input_type=dict]",
        ),
        // A warning about a key is not why it ended.
        Case {
            stderr: "GITHUB_TOKEN is not set, anonymous access\n/x.js:1\nTypeError: x is no function\n    at /x.js:1:1",
            line: "TypeError: x is no function",
            ..BARE
        },
        Case {
            stderr: "SyntaxError: Unexpected token 'u', \"undefined\" is not valid JSON\n    at JSON.parse (<anonymous>)",
            line: "SyntaxError: Unexpected token 'u', \"undefined\" is not valid JSON",
            ..BARE
        },
    ]);
}

#[test]
fn missing_piece_of_a_program_is_told() {
    check(&[
        Case {
            command: "node /srv/nothere.js",
            stderr: "\
Error: Cannot find module '/srv/nothere.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15) {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}",
            cause: Cause::NoScript("/srv/nothere.js".into()),
            line: "Error: Cannot find module '/srv/nothere.js'",
            cure: "correct the path in `args`",
            ..BARE
        },
        Case {
            command: "python3 ../server.py",
            end: End::Exit(2),
            stderr: "python3: can't open file '/srv/../server.py': [Errno 2] No such file or directory",
            cause: Cause::NoScript("/srv/../server.py".into()),
            line: "python3: can't open file '/srv/../server.py': [Errno 2] No such file or directory",
            cure: "correct the path in `args`",
            ..BARE
        },
        Case {
            command: "python3 -m mcp_server_nope",
            stderr: "/usr/bin/python3: No module named mcp_server_nope",
            cause: Cause::NoModule,
            line: "/usr/bin/python3: No module named mcp_server_nope",
            cure: "pip install",
            ..BARE
        },
        Case {
            command: "node server.js",
            stderr: "\
Error: Cannot find module 'zod'
Require stack:
- /srv/server.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)",
            cause: Cause::NoModule,
            line: "Error: Cannot find module 'zod'",
            cure: "npm install",
            ..BARE
        },
        Case {
            command: "node server.js",
            stderr: "\
node:fs:573
  return binding.open(
                 ^

Error: ENOENT: no such file or directory, open '/srv/keys/secret.json'
    at Object.openSync (node:fs:573:18) {
  errno: -2,
  path: '/srv/keys/secret.json'
}",
            cause: Cause::NoFile("/srv/keys/secret.json".into()),
            line: "Error: ENOENT: no such file or directory, open '/srv/keys/secret.json'",
            cure: "make /srv/keys/secret.json",
            ..BARE
        },
        Case {
            stderr: "Error: EROFS: read-only file system, open '/home/me/.local/state/mantyx-bridge/token'",
            cause: Cause::Hidden("/home/me/.local/state/mantyx-bridge/token".into()),
            line: "Error: EROFS: read-only file system, open '/home/me/.local/state/mantyx-bridge/token'",
            cure: "belongs to the bridge",
            ..BARE
        },
        Case {
            stderr: "Error: connect ECONNREFUSED 127.0.0.1:5432",
            cause: Cause::NoNetwork(Network::Server),
            line: "Error: connect ECONNREFUSED 127.0.0.1:5432",
            cure: "start what it connects to",
            ..BARE
        },
        Case {
            stderr: "Error: listen EADDRINUSE: address already in use :::3000",
            cause: Cause::PortInUse,
            line: "Error: listen EADDRINUSE: address already in use :::3000",
            cure: "port",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
npm warn EBADENGINE Unsupported engine {
npm warn EBADENGINE   required: { node: '>=18' }
npm warn EBADENGINE }
/home/me/x.js:9
  const a = b?.c;
              ^
SyntaxError: Unexpected token '.'
    at wrapSafe (internal/modules/cjs/loader.js:915:16)",
            cause: Cause::OldRuntime,
            line: "SyntaxError: Unexpected token '.'",
            cure: "full path",
            ..BARE
        },
        Case {
            stderr: "ReferenceError: File is not defined\n    at Object.<anonymous> (/x/index.js:1:1)",
            cause: Cause::OldRuntime,
            line: "ReferenceError: File is not defined",
            cure: "version",
            ..BARE
        },
    ]);
}

#[test]
fn program_that_is_no_server_is_told_by_what_it_printed() {
    check(&[
        Case {
            command: "git",
            stdout: "usage: git [-v | --version] [-h | --help]\n           [-C <path>]",
            cause: Cause::Usage,
            line: "usage: git [-v | --version] [-h | --help]",
            cure: "arguments of its stdio server",
            ..BARE
        },
        Case {
            end: End::Exit(0),
            stdout: "Hello, world",
            cause: Cause::NotServer,
            line: "Hello, world",
            cure: "whether this is an MCP server",
            ..BARE
        },
        Case { end: End::Exit(0), cause: Cause::EndedAtOnce, cure: "MCP server", ..BARE },
        Case {
            stderr: "Usage: mcp-server-filesystem [allowed-directory] [additional-directories...]",
            cause: Cause::Usage,
            line: "Usage: mcp-server-filesystem [allowed-directory] [additional-directories...]",
            cure: "arguments",
            ..BARE
        },
        Case {
            end: End::Exit(2),
            stderr: "usage: x [-h] path\nx: error: the following arguments are required: path",
            cause: Cause::Arguments,
            line: "x: error: the following arguments are required: path",
            cure: "correct: server",
            ..BARE
        },
        Case {
            stdout: "Content-Length: 57\n{\"jsonrpc\":\"2.0\",\"id\":0}Content-Length: 9",
            cause: Cause::Framed,
            line: "Content-Length: 57",
            cure: "one message a line",
            ..BARE
        },
    ]);
}
