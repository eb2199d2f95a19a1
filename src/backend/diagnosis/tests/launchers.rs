//! What npx, uvx, Docker, Deno, Bun, Java and command lines say in the place of a server.

#![expect(clippy::too_many_lines, reason = "each is a table of samples")]

use super::*;

#[test]
fn signal_from_outside_has_no_line_as_its_reason() {
    let unrelated = "Error: could not read the theme, using the default one";
    check(&[
        Case {
            end: End::Signal(9),
            stderr: unrelated,
            cause: Cause::OutOfMemory,
            cure: "journalctl -k",
            ..BARE
        },
        Case {
            command: "docker run -i x",
            end: End::Exit(137),
            stderr: unrelated,
            cause: Cause::OutOfMemory,
            cure: "memory",
            ..BARE
        },
        Case {
            end: End::Signal(15),
            stderr: unrelated,
            cause: Cause::Terminated,
            cure: "ended it",
            ..BARE
        },
        Case {
            end: End::Signal(11),
            stderr: unrelated,
            cause: Cause::Faulted,
            cure: "processor",
            ..BARE
        },
        Case {
            end: End::Signal(11),
            stderr: "Error: no theme\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1:",
            cause: Cause::Faulted,
            line: "Fatal Python error: Segmentation fault",
            cure: "processor",
            ..BARE
        },
        // It has ended itself, and has said why before.
        Case {
            end: End::Signal(6),
            stderr: "thread 'main' panicked at src/main.rs:7:5:\nno model is loaded\nnote: run with `RUST_BACKTRACE=1`",
            cause: Cause::Faulted,
            line: "no model is loaded",
            cure: "processor",
            ..BARE
        },
    ]);
}

#[test]
fn program_of_another_name_is_written_as_args() {
    let other = |package: &str, executables: &[&str]| Cause::OtherExecutables {
        package: package.to_owned(),
        executables: executables.iter().map(|name| (*name).to_owned()).collect(),
    };
    check(&[
        Case {
            command: "uvx time-tools@1.2 --local",
            stderr: "\
Installed 21 packages in 46ms
An executable named `time-tools` is not provided by package `time-tools`.
The following executables are available:
- time-mcp

Use `uvx --from time-tools time-mcp` instead.",
            cause: other("time-tools", &["time-mcp"]),
            line: "An executable named `time-tools` is not provided by package `time-tools`.",
            cure: r#"write `args: ["--from","time-tools@1.2","time-mcp","--local"]`"#,
            ..BARE
        },
        Case {
            command: "uv tool run time-tools",
            stderr: "\
An executable named `time-tools` is not provided by package `time-tools`.
The following executables are available:
- time-cli
- time-mcp

Use `uv tool run --from time-tools <EXECUTABLE-NAME>` instead.",
            cause: other("time-tools", &["time-cli", "time-mcp"]),
            line: "An executable named `time-tools` is not provided by package `time-tools`.",
            cure: r#"`args: ["tool","run","--from","time-tools","time-mcp"]`; its other programs are time-cli"#,
            ..BARE
        },
        // An earlier version writes the hint to stdout.
        Case {
            command: "uvx time_tools",
            stderr: "warning: An executable named `time-tools` is not provided by package `time-tools`.",
            stdout: "\
The executable `time-tools` was not found.
The following executables are provided by `time-tools`:
- time
Consider using `uvx --from time-tools <EXECUTABLE_NAME>` instead.",
            cause: other("time-tools", &["time"]),
            line: "warning: An executable named `time-tools` is not provided by package `time-tools`.",
            cure: r#"`args: ["--from","time_tools","time"]`"#,
            ..BARE
        },
    ]);
}

#[test]
fn refused_arguments_are_told_by_the_message_beside_the_usage() {
    let refused = |stderr: &'static str, line| Case {
        end: End::Exit(2),
        stderr,
        cause: Cause::Arguments,
        line,
        cure: "arguments of its stdio server",
        ..BARE
    };
    check(&[
        refused(
            "Usage: mcp-server-duckdb [OPTIONS]\nTry 'mcp-server-duckdb --help' for help.\n\nError: Missing option '--db-path'.",
            "Error: Missing option '--db-path'.",
        ),
        // Words for it that are not known.
        refused(
            "Usage: server [OPTIONS] PATH\n\nError: PATH comes first.",
            "Error: PATH comes first.",
        ),
        refused(
            "\
 Usage: server [OPTIONS]
 Try 'server --help' for help.
╭─ Error ──────────────────────────────────╮
│ Missing option '--db-path'.              │
╰──────────────────────────────────────────╯",
            "Missing option '--db-path'.",
        ),
        refused(
            "\
flag provided but not defined: -stdio
Usage of server:
  -token string
    \tthe token, which is required",
            "flag provided but not defined: -stdio",
        ),
        refused(
            "\
error: the following required arguments were not provided:
  --db <DB>

Usage: server --db <DB>

For more information, try '--help'.",
            "error: the following required arguments were not provided: --db <DB>",
        ),
        refused(
            "server [options]\n\nOptions:\n  --db  a path  [string] [required]\n\nMissing required argument: db",
            "Missing required argument: db",
        ),
        refused(
            "error: required option '--db <path>' not specified",
            "error: required option '--db <path>' not specified",
        ),
    ]);
}

#[test]
fn programs_that_say_nothing_are_not_told_by_an_installers_progress() {
    check(&[
        Case {
            command: "npx -y x",
            stderr: "\
npm warn deprecated inflight@1.0.6: This module is not supported
npm error A complete log of this run can be found in: /home/me/.npm/_logs/2026-01-01-debug-0.log",
            cause: Cause::InLog("/home/me/.npm/_logs/2026-01-01-debug-0.log".into()),
            cure: "read the end of /home/me/.npm/_logs/2026-01-01-debug-0.log",
            ..BARE
        },
        // The script of an installation has failed.
        Case {
            command: "npx -y x",
            stderr: "\
npm error code 1
npm error path /home/me/.npm/_npx/0a1b2c/node_modules/sqlite
npm error command failed
npm error command sh -c node-gyp rebuild
npm error gyp info it worked if it ends with ok
npm error gyp ERR! find Python Python is not set
npm error A complete log of this run can be found in: /home/me/.npm/_logs/a.log",
            line: "npm error gyp ERR! find Python Python is not set",
            cure: "by hand",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "npm warn deprecated inflight@1.0.6: This module is not supported",
            cause: Cause::Silent,
            cure: "by hand",
            ..BARE
        },
        Case {
            stderr: "Downloading the model failed\nInstalled 3 themes in 4ms",
            line: "Downloading the model failed",
            cure: "by hand",
            ..BARE
        },
        Case {
            command: "uvx x",
            end: End::Exit(0),
            stderr: "Downloading numpy (16.1MiB)\nInstalled 30 packages in 15ms",
            cause: Cause::EndedAtOnce,
            cure: "MCP server",
            ..BARE
        },
        Case {
            command: "docker run -i --rm mcp/time",
            stderr: "\
Unable to find image 'mcp/time:latest' locally
latest: Pulling from mcp/time
0a1b2c3d4e5f: Pull complete
Digest: sha256:0a1b
Status: Downloaded newer image for mcp/time:latest",
            cause: Cause::Silent,
            cure: "by hand",
            ..BARE
        },
    ]);
}

#[test]
fn docker_is_understood() {
    check(&[
        Case {
            command: "docker run --rm mcp/time",
            end: End::Exit(0),
            stderr: "Time server runs on stdio",
            cause: Cause::NoStdin,
            cure: "add `-i`",
            ..BARE
        },
        Case {
            command: "docker run -it --rm mcp/time",
            stderr: "the input device is not a TTY",
            cause: Cause::WantsTerminal,
            line: "the input device is not a TTY",
            cure: "leave `-t` out",
            ..BARE
        },
        Case {
            command: "docker run -i --name time mcp/time",
            end: End::Exit(125),
            stderr: "docker: Error response from daemon: Conflict. The container name \"/time\" is already in use by container \"0a1b2c\". You have to remove (or rename) that container to be able to reuse that name.\n\nRun 'docker run --help' for more information",
            cause: Cause::NameInUse,
            line: "docker: Error response from daemon: Conflict. The container name \"/time\" is already in use by container \"0a1b2c\". You have to remove (or rename) that container to be able to reuse that name.",
            cure: "--rm",
            ..BARE
        },
        Case {
            command: "docker run -i --mount type=bind,src=/srv/nothere,dst=/d mcp/files",
            end: End::Exit(125),
            stderr: "docker: Error response from daemon: invalid mount config for type \"bind\": bind source path does not exist: /srv/nothere.",
            cause: Cause::NoFile("/srv/nothere".into()),
            line: "docker: Error response from daemon: invalid mount config for type \"bind\": bind source path does not exist: /srv/nothere.",
            cure: "make /srv/nothere",
            ..BARE
        },
        Case {
            command: "docker run -i mcp/time serve",
            end: End::Exit(127),
            stderr: "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"serve\": executable file not found in $PATH: unknown",
            cause: Cause::NothingToRun,
            line: "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"serve\": executable file not found in $PATH: unknown",
            cure: "own page",
            ..BARE
        },
        Case {
            command: "docker run -i mcp/time",
            end: End::Exit(125),
            stderr: "docker: Error response from daemon: toomanyrequests: You have reached your unauthenticated pull rate limit.",
            cause: Cause::RegistryBusy,
            line: "docker: Error response from daemon: toomanyrequests: You have reached your unauthenticated pull rate limit.",
            cure: "log in",
            ..BARE
        },
        Case {
            command: "docker run -i mcp/time",
            end: End::Exit(125),
            stderr: "docker: Error response from daemon: Get \"https://images.example/v2/\": dial tcp: lookup images.example: no such host",
            cause: Cause::NoNetwork(Network::Registry),
            line: "docker: Error response from daemon: Get \"https://images.example/v2/\": dial tcp: lookup images.example: no such host",
            cure: "HTTPS_PROXY",
            ..BARE
        },
        Case {
            command: "docker run -i mcp/time",
            stderr: "exec /usr/local/bin/node: exec format error",
            cause: Cause::WrongFormat,
            line: "exec /usr/local/bin/node: exec format error",
            cure: "processor",
            ..BARE
        },
    ]);
}

#[test]
fn registry_that_is_not_reached_is_known_without_its_host() {
    check(&[
        Case {
            command: "uvx x",
            end: End::Exit(1),
            stderr: "\
  × Failed to download `numpy==2.1.0`
  ├─▶ Request failed after 3 retries
  ├─▶ error sending request for url (https://files.example/packages/ab/numpy-2.1.0.tar.gz)
  ╰─▶ Connection refused (os error 111)",
            cause: Cause::NoNetwork(Network::Registry),
            line: "Connection refused (os error 111)",
            cure: "HTTPS_PROXY",
            ..BARE
        },
        Case {
            command: "pipx run x",
            stderr: "\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')': /simple/x/
ERROR: No matching distribution found for x",
            cause: Cause::NoNetwork(Network::Registry),
            line: "ERROR: No matching distribution found for x",
            cure: "HTTPS_PROXY",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "npm error code E429\nnpm error 429 Too Many Requests - GET https://registry.example/x",
            cause: Cause::RegistryBusy,
            line: "npm error 429 Too Many Requests - GET https://registry.example/x",
            cure: "wait",
            ..BARE
        },
    ]);
}

#[test]
fn other_runtimes_are_understood() {
    check(&[
        Case {
            command: "npx x",
            stderr: "npm error npx canceled due to missing packages and no YES option: [\"x@1.0.0\"]",
            cause: Cause::WantsYes,
            line: "npm error npx canceled due to missing packages and no YES option: [\"x@1.0.0\"]",
            cure: "`-y`",
            ..BARE
        },
        // npx itself is a script of Node.js: its cache is not damaged.
        Case {
            command: "npx -y x",
            end: End::Exit(127),
            stderr: "/usr/bin/env: 'node': No such file or directory",
            cause: Cause::NoInnerProgram,
            line: "/usr/bin/env: 'node': No such file or directory",
            cure: "PATH",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
internal/modules/cjs/loader.js:818
  throw err;
  ^

Error: Cannot find module 'node:fs'
Require stack:
- /home/me/.npm/_npx/0a1b2c/node_modules/x/index.js
    at Function.Module._resolveFilename (internal/modules/cjs/loader.js:815:15)",
            cause: Cause::OldRuntime,
            line: "Error: Cannot find module 'node:fs'",
            cure: "version",
            ..BARE
        },
        Case {
            command: "node server.js",
            stderr: "node: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by node)",
            cause: Cause::WrongFormat,
            line: "node: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by node)",
            cure: "this system",
            ..BARE
        },
        Case {
            end: End::Exit(127),
            stderr: "chrome: error while loading shared libraries: libnss3.so: cannot open shared object file: No such file or directory",
            cause: Cause::NoLibrary,
            line: "chrome: error while loading shared libraries: libnss3.so: cannot open shared object file: No such file or directory",
            cure: "package manager",
            ..BARE
        },
        Case {
            command: "uv run --directory /srv/time server",
            end: End::Exit(2),
            stderr: "error: Failed to spawn: `server`\n  Caused by: No such file or directory (os error 2)",
            cause: Cause::NothingToRun,
            line: "Failed to spawn: `server`: No such file or directory (os error 2)",
            cure: "correct: uv run",
            ..BARE
        },
        Case {
            command: "python3 -m mcp_time",
            stderr: "/usr/bin/python3: No module named mcp_time.__main__; 'mcp_time' is a package and cannot be directly executed",
            cause: Cause::NothingToRun,
            line: "/usr/bin/python3: No module named mcp_time.__main__; 'mcp_time' is a package and cannot be directly executed",
            cure: "own page",
            ..BARE
        },
        Case {
            command: "deno run server.ts",
            stderr: "\
error: Uncaught (in promise) NotCapable: Requires net access to \"api.test:443\", run again with the --allow-net flag
    at opFetchSend (ext:deno_fetch/26_fetch.js:150:3)",
            cause: Cause::NotPermitted,
            line: "error: Uncaught (in promise) NotCapable: Requires net access to \"api.test:443\", run again with the --allow-net flag",
            cure: "before the script",
            ..BARE
        },
        Case {
            command: "deno run server.ts",
            stderr: "error: Module not found \"file:///srv/server.ts\".",
            cause: Cause::NoScript("/srv/server.ts".into()),
            line: "error: Module not found \"file:///srv/server.ts\".",
            cure: "correct the path in `args`",
            ..BARE
        },
        // A module of its own is missing, and not what its arguments name.
        Case {
            command: "deno run main.ts",
            stderr: "error: Module not found \"file:///srv/inner.ts\".\n    at file:///srv/main.ts:1:8",
            cause: Cause::NoModule,
            line: "error: Module not found \"file:///srv/inner.ts\".",
            cure: "install what it depends on",
            ..BARE
        },
        Case {
            command: "bun run server.ts",
            stderr: "error: Module not found \"server.ts\"",
            cause: Cause::NoScript("server.ts".into()),
            line: "error: Module not found \"server.ts\"",
            cure: "correct the path in `args`",
            ..BARE
        },
        Case {
            command: "deno run npm:nope",
            stderr: "error: npm package 'nope' does not exist.",
            cause: Cause::UnknownPackage,
            line: "error: npm package 'nope' does not exist.",
            cure: "npm:nope",
            ..BARE
        },
        Case {
            command: "bunx nope",
            stderr: "Resolving dependencies\nerror: GET https://registry.example/nope - 404",
            cause: Cause::UnknownPackage,
            line: "error: GET https://registry.example/nope - 404",
            cure: "bunx nope",
            ..BARE
        },
        Case {
            command: "bun run start",
            stderr: "error: Script not found \"start\"",
            cause: Cause::NoScript("start".into()),
            line: "error: Script not found \"start\"",
            cure: "`cwd`",
            ..BARE
        },
        Case {
            command: "java -jar /srv/x.jar",
            stderr: "Error: Unable to access jarfile /srv/x.jar",
            cause: Cause::NoScript("/srv/x.jar".into()),
            line: "Error: Unable to access jarfile /srv/x.jar",
            cure: "correct the path in `args`",
            ..BARE
        },
        Case {
            command: "java x.Main",
            stderr: "Error: Could not find or load main class x.Main\nCaused by: java.lang.ClassNotFoundException: x.Main",
            cause: Cause::NothingToRun,
            line: "Error: Could not find or load main class x.Main",
            cure: "java x.Main",
            ..BARE
        },
        Case {
            command: "java -jar x.jar",
            stderr: "\
Error: LinkageError occurred while loading main class x.Main
\tjava.lang.UnsupportedClassVersionError: x/Main has been compiled by a more recent version of the Java Runtime (class file version 65.0), this version of the Java Runtime only recognizes class file versions up to 61.0",
            cause: Cause::OldRuntime,
            line: "java.lang.UnsupportedClassVersionError: x/Main has been compiled by a more recent version of the Java Runtime (class file version 65.0), this version of the Java Runtime only recognizes class file versions up to 61.0",
            cure: "version",
            ..BARE
        },
        // The last cause is the first thing that went wrong.
        Case {
            command: "java -jar x.jar",
            stderr: "\
Exception in thread \"main\" java.lang.RuntimeException: the server did not start
\tat x.Main.main(Main.java:9)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind(Net.java:1)
\t... 2 more",
            cause: Cause::PortInUse,
            line: "java.net.BindException: Address already in use",
            cure: "port",
            ..BARE
        },
    ]);
}
