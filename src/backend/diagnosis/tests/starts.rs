//! Programs that an installer or a loader could not start.

#![expect(clippy::too_many_lines, reason = "each is a table of samples")]

use super::*;

#[test]
fn npm_is_understood() {
    check(&[
        Case {
            command: "npx -y nope",
            stderr: "\
npm error code E404
npm error 404 Not Found - GET https://registry.example.org/nope
npm error 404
npm error 404  The requested resource 'nope@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/me/.npm/_logs/debug-0.log",
            cause: Cause::UnknownPackage,
            line: "npm error 404 Not Found - GET https://registry.example.org/nope",
            cure: "npx -y nope",
            ..BARE
        },
        Case {
            command: "npx -y is-number@99.0.0",
            stderr: "\
npm ERR! code ETARGET
npm ERR! notarget No matching version found for is-number@99.0.0.
npm ERR! notarget In most cases you or one of your dependencies are requesting
npm ERR! notarget a package version that doesn't exist.",
            cause: Cause::UnknownPackage,
            line: "npm error notarget No matching version found for is-number@99.0.0.",
            cure: "version of the package",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
npm error code ECONNREFUSED
npm error syscall connect
npm error errno ECONNREFUSED
npm error FetchError: request to http://127.0.0.1:9/x failed, reason: connect ECONNREFUSED 127.0.0.1:9
npm error     at ClientRequest.<anonymous> (/usr/lib/node_modules/npm/node_modules/minipass-fetch/lib/index.js:130:14)
npm error If you are behind a proxy, please make sure that the 'proxy' config is set properly.  See: 'npm help config'",
            cause: Cause::NoNetwork(Network::Registry),
            line: "npm error FetchError: request to http://127.0.0.1:9/x failed, reason: connect ECONNREFUSED 127.0.0.1:9",
            cure: "set HTTPS_PROXY in its `env`",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
npm error code SELF_SIGNED_CERT_IN_CHAIN
npm error errno SELF_SIGNED_CERT_IN_CHAIN
npm error request to https://registry.example.org/x failed, reason: self-signed certificate in certificate chain",
            cause: Cause::Untrusted,
            line: "npm error request to https://registry.example.org/x failed, reason: self-signed certificate in certificate chain",
            cure: "NODE_EXTRA_CA_CERTS",
            ..BARE
        },
        Case {
            command: "npx -y is-number",
            stderr: "npm error could not determine executable to run\nnpm error A complete log of this run can be found in: /x",
            cause: Cause::NothingToRun,
            line: "npm error could not determine executable to run",
            cure: "npx -y is-number",
            ..BARE
        },
        Case {
            command: "npx -y @acme/private",
            stderr: "npm error code E401\nnpm error Unable to authenticate, your authentication token seems to be invalid.",
            cause: Cause::RegistryRefuses,
            line: "npm error Unable to authenticate, your authentication token seems to be invalid.",
            cure: ".npmrc",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
npm error code EACCES
npm error syscall mkdir
npm error path /home/me/.npm/_cacache
npm error errno -13
npm error Error: EACCES: permission denied, mkdir '/home/me/.npm/_cacache'",
            cause: Cause::NoAccess("/home/me/.npm/_cacache".into()),
            line: "npm error Error: EACCES: permission denied, mkdir '/home/me/.npm/_cacache'",
            cure: "the user of the daemon",
            ..BARE
        },
    ]);
}

#[test]
fn damaged_caches_are_named_with_the_directory_to_remove() {
    let npx = |hash: &str| Cause::DamagedCache(Some(format!("/home/me/.npm/_npx/{hash}").into()));
    check(&[
        // The message stands 20 lines before the end.
        Case {
            command: "npx -y semver@7.6.0",
            stderr: "\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module 'lru-cache'
Require stack:
- /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/classes/range.js
- /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/index.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27)
    at Object.<anonymous> (/home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/classes/range.js:201:13)
    at Module.require (node:internal/modules/cjs/loader:1289:19) {
  code: 'MODULE_NOT_FOUND',
  requireStack: [
    '/home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/classes/range.js',
    '/home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/index.js'
  ]
}

Node.js v20.20.2",
            cause: npx("9dfaefb6dc6ac94c"),
            line: "Error: Cannot find module 'lru-cache'",
            cure: "remove the directory /home/me/.npm/_npx/9dfaefb6dc6ac94c:",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
node:internal/modules/esm/resolve:873
  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);
        ^

Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/0a1b2c/node_modules/x/index.mjs
    at packageResolve (node:internal/modules/esm/resolve:873:9)
    at moduleResolve (node:internal/modules/esm/resolve:946:18) {
  code: 'ERR_MODULE_NOT_FOUND'
}

Node.js v20.20.2",
            cause: npx("0a1b2c"),
            line: "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /home/me/.npm/_npx/0a1b2c/node_modules/x/index.mjs",
            cure: "/home/me/.npm/_npx/0a1b2c",
            ..BARE
        },
        Case {
            command: "npx -y x",
            stderr: "\
npm ERR! code ENOTEMPTY
npm ERR! syscall rename
npm ERR! path /home/me/.npm/_npx/0a1b2c/node_modules/zod
npm ERR! dest /home/me/.npm/_npx/0a1b2c/node_modules/.zod-kDIu
npm ERR! errno -39
npm ERR! ENOTEMPTY: directory not empty, rename '/home/me/.npm/_npx/0a1b2c/node_modules/zod' -> '/x'",
            cause: npx("0a1b2c"),
            line: "npm error ENOTEMPTY: directory not empty, rename '/home/me/.npm/_npx/0a1b2c/node_modules/zod' -> '/x'",
            cure: "remove the directory /home/me/.npm/_npx/0a1b2c",
            ..BARE
        },
        // Without a path in the output, it is computed as npm does.
        Case {
            command: "npx -y semver@7.6.0 1.2.3",
            end: End::Exit(127),
            stderr: "sh: 1: semver: not found",
            cause: npx("9dfaefb6dc6ac94c"),
            line: "sh: 1: semver: not found",
            cure: "_npx/9dfaefb6dc6ac94c",
            ..BARE
        },
        Case {
            command: "npx -y semver@7.6.0",
            stderr: "\
npm error code EJSONPARSE
npm error JSON.parse Invalid package.json: JSONParseError: Expected property name or '}' in JSON at position 2
npm error JSON.parse Failed to parse JSON data.",
            cause: npx("9dfaefb6dc6ac94c"),
            line: "npm error JSON.parse Invalid package.json: JSONParseError: Expected property name or '}' in JSON at position 2",
            cure: "_npx/9dfaefb6dc6ac94c",
            ..BARE
        },
        Case {
            command: "npx -y semver@7.6.0",
            stderr: "\
node:internal/modules/package_json_reader:93
        throw error;
        ^

SyntaxError: Error parsing /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/package.json: Unexpected end of JSON input
    at parse (<anonymous>)
    at read (node:internal/modules/package_json_reader:80:16)

Node.js v20.20.2",
            cause: npx("9dfaefb6dc6ac94c"),
            line: "SyntaxError: Error parsing /home/me/.npm/_npx/9dfaefb6dc6ac94c/node_modules/semver/package.json: Unexpected end of JSON input",
            cure: "remove the directory",
            ..BARE
        },
        Case {
            command: "uvx mcp-server-time",
            stderr: "\
Traceback (most recent call last):
  File \"/home/me/.cache/uv/archive-v0/z5BdHa3jFf/bin/mcp-server-time\", line 6, in <module>
    from mcp_server_time import main
ModuleNotFoundError: No module named 'mcp_server_time'",
            cause: Cause::DamagedCache(Some("/home/me/.cache/uv/archive-v0/z5BdHa3jFf".into())),
            line: "ModuleNotFoundError: No module named 'mcp_server_time'",
            cure: "/home/me/.cache/uv/archive-v0/z5BdHa3jFf",
            ..BARE
        },
    ]);
}

/// Seen with two servers that run with any version of the SDK, if their own word is taken.
#[test]
fn servers_for_an_earlier_sdk_are_not_taken_for_damaged() {
    check(&[
        Case {
            command: "uvx --from office-powerpoint-mcp-server==2.0.7 ppt_mcp_server",
            stderr: "\
Traceback (most recent call last):
  File \"/home/me/.cache/uv/archive-v0/iZVySNhb_M0lRbtr/lib/python3.11/site-packages/ppt_mcp_server.py\", line 8, in <module>
    from mcp.server.fastmcp import FastMCP
ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
            cause: Cause::OtherSdk,
            line: "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
            cure: "`mcp<2`",
            ..BARE
        },
        Case {
            command: "uvx mcp-server-sqlite --db-path /srv/a.db",
            stderr: "\
Traceback (most recent call last):
  File \"/home/me/.cache/uv/archive-v0/5SsuAV0sTvGb7RIM/lib/python3.11/site-packages/mcp_server_sqlite/server.py\", line 173, in main
    @server.list_resources()
AttributeError: 'Server' object has no attribute 'list_resources'",
            cause: Cause::OtherSdk,
            line: "AttributeError: 'Server' object has no attribute 'list_resources'",
            cure: "`--with`",
            ..BARE
        },
    ]);
}

#[test]
fn uv_pip_and_docker_are_understood() {
    check(&[
        Case {
            command: "uvx nope",
            stderr: "\
error: No solution found when resolving tool dependencies
  cause: Because nope was not found in the package registry and you require nope, we can conclude that your requirements are unsatisfiable.",
            cause: Cause::UnknownPackage,
            line: "Because nope was not found in the package registry and you require nope, we can conclude that your requirements are unsatisfiable.",
            cure: "uvx nope",
            ..BARE
        },
        Case {
            command: "uvx nope",
            stderr: "  × No solution found when resolving tool dependencies:
  ╰─▶ Because nope was not found in the package registry and you require nope, we
      can conclude that your requirements are unsatisfiable.",
            cause: Cause::UnknownPackage,
            line: "Because nope was not found in the package registry and you require nope, we can conclude that your requirements are unsatisfiable.",
            cure: "uvx nope",
            ..BARE
        },
        Case {
            command: "uvx six",
            stderr: "Installed 1 package in 8ms\nPackage `six` does not provide any executables.",
            cause: Cause::NothingToRun,
            line: "Package `six` does not provide any executables.",
            cure: "uvx six",
            ..BARE
        },
        Case {
            command: "uvx mcp-server-time",
            end: End::Exit(2),
            stderr: "\
error: Request failed after 3 retries in 5.8s
  cause: Failed to fetch: http://127.0.0.1:9/simple/mcp-server-time/
  cause: error sending request for url (http://127.0.0.1:9/simple/mcp-server-time/)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)",
            cause: Cause::NoNetwork(Network::Registry),
            line: "Failed to fetch: http://127.0.0.1:9/simple/mcp-server-time/",
            cure: "HTTPS_PROXY",
            ..BARE
        },
        Case {
            command: "uvx mcp-server-time",
            stderr: "\
error: Failed to fetch: `https://index.example.org/simple/mcp-server-time/`
  Caused by: invalid peer certificate: UnknownIssuer",
            cause: Cause::Untrusted,
            line: "invalid peer certificate: UnknownIssuer",
            cure: "SSL_CERT_FILE",
            ..BARE
        },
        Case {
            command: "uvx mcp-server-time",
            end: End::Exit(2),
            stderr: "\
error: Failed to fetch: https://index.example.org/simple/mcp-server-time/
  cause: error sending request for url (https://index.example.org/simple/mcp-server-time/)
  cause: client error (Connect)
  cause: invalid peer certificate: UnknownIssuer

hint: Consider enabling use of system TLS certificates with the `--system-certs` command-line flag",
            cause: Cause::Untrusted,
            line: "invalid peer certificate: UnknownIssuer",
            cure: "SSL_CERT_FILE",
            ..BARE
        },
        Case {
            command: "uvx x",
            stderr: "\
error: No solution found when resolving tool dependencies
  cause: Because the current Python version (3.9.1) does not satisfy Python>=3.10 and x==1 depends on Python>=3.10, we can conclude that x==1 cannot be used.",
            cause: Cause::OldRuntime,
            line: "Because the current Python version (3.9.1) does not satisfy Python>=3.10 and x==1 depends on Python>=3.10, we can conclude that x==1 cannot be used.",
            cure: "--python",
            ..BARE
        },
        // Under the mask, on an account that is new.
        Case {
            command: "uvx x",
            end: End::Exit(2),
            stderr: "error: failed to create directory `/home/me/.local/share/uv/tools`: Read-only file system (os error 30)",
            cause: Cause::Hidden("/home/me/.local/share/uv/tools".into()),
            line: "error: failed to create directory `/home/me/.local/share/uv/tools`: Read-only file system (os error 30)",
            cure: "sandbox: off",
            ..BARE
        },
        // Without its network, pip says in the end that there is no such package.
        Case {
            command: "pip run x",
            stderr: "\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to establish a new connection: [Errno 111] Connection refused')': /simple/x/
ERROR: Could not find a version that satisfies the requirement x (from versions: none)
ERROR: No matching distribution found for x",
            cause: Cause::NoNetwork(Network::Registry),
            line: "ERROR: No matching distribution found for x",
            cure: "HTTPS_PROXY",
            ..BARE
        },
        Case {
            command: "pipx run x",
            stderr: "\
ERROR: Could not find a version that satisfies the requirement x (from versions: none)
ERROR: No matching distribution found for x",
            cause: Cause::UnknownPackage,
            line: "ERROR: No matching distribution found for x",
            cure: "name or the version",
            ..BARE
        },
        // The first line is no error: Docker writes it before each download.
        Case {
            command: "docker run -i --rm mcp/nope",
            end: End::Exit(125),
            stderr: "\
Unable to find image 'mcp/nope:latest' locally
docker: Error response from daemon: pull access denied for mcp/nope, repository does not exist or may require 'docker login'",
            cause: Cause::UnknownPackage,
            line: "docker: Error response from daemon: pull access denied for mcp/nope, repository does not exist or may require 'docker login'",
            cure: "docker run",
            ..BARE
        },
        Case {
            command: "docker run -i --rm mcp/time",
            end: End::Exit(125),
            stderr: "\
docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?
Run 'docker run --help' for more information",
            cause: Cause::NoDocker,
            line: "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            cure: "start Docker",
            ..BARE
        },
    ]);
}

#[test]
fn launcher_says_why_the_program_could_not_be_started() {
    let sandbox = "the program's `sandbox` lists /nowhere, which cannot be opened (os error 2)";
    check(&[
        Case {
            command: "./server.py",
            end: End::Exit(127),
            stderr: "mantyx-bridge: cannot start /srv/server.py: No such file or directory (os error 2)",
            cause: Cause::NoInterpreter("/srv/server.py".into()),
            line: "cannot start /srv/server.py: No such file or directory (os error 2)"
                .split_once("start ")
                .expect("a path")
                .1,
            cure: "first line of /srv/server.py",
            ..BARE
        },
        Case {
            end: End::Exit(127),
            stderr: "mantyx-bridge: cannot start /srv/server: Exec format error (os error 8)",
            cause: Cause::WrongFormat,
            line: "/srv/server: Exec format error (os error 8)",
            cure: "#!/bin/sh",
            ..BARE
        },
        Case {
            end: End::Exit(127),
            stderr: "mantyx-bridge: the program's `sandbox` lists /nowhere, which cannot be opened (os error 2): make it, or take it off the list",
            cause: Cause::NotConfined(sandbox.into(), "make it, or take it off the list".into()),
            cure: "take it off the list",
            ..BARE
        },
        Case {
            command: "./server",
            end: End::Exit(127),
            stderr: "/usr/bin/env: 'node': No such file or directory",
            cause: Cause::NoInnerProgram,
            line: "/usr/bin/env: 'node': No such file or directory",
            cure: "PATH",
            ..BARE
        },
    ]);
}

#[test]
fn shell_that_may_not_run_a_file_names_that_file() {
    check(&[
        Case {
            command: "sh -c /srv/noexec",
            end: End::Exit(126),
            stderr: "/usr/bin/sh: 1: /srv/noexec: Permission denied",
            cause: Cause::NotRunnable("/srv/noexec".into()),
            line: "/usr/bin/sh: 1: /srv/noexec: Permission denied",
            cure: "chmod +x /srv/noexec",
            ..BARE
        },
        Case {
            command: "bash -c /srv/noexec",
            end: End::Exit(126),
            stderr: "bash: line 1: /srv/noexec: Permission denied",
            cause: Cause::NotRunnable("/srv/noexec".into()),
            line: "bash: line 1: /srv/noexec: Permission denied",
            cure: "chmod +x /srv/noexec",
            ..BARE
        },
        Case {
            command: "/srv/run.sh",
            stderr: "/srv/run.sh: 3: cannot create /data/x: Permission denied",
            cause: Cause::NoAccess("/data/x".into()),
            line: "/srv/run.sh: 3: cannot create /data/x: Permission denied",
            cure: "use /data/x",
            ..BARE
        },
        Case {
            stderr: "/data/x: Permission denied",
            cause: Cause::NoAccess("/data/x".into()),
            line: "/data/x: Permission denied",
            cure: "use /data/x",
            ..BARE
        },
    ]);
}

#[test]
fn line_end_of_windows_in_a_script_is_named() {
    let lines = [
        r"/usr/bin/env: ‘node\r’: No such file or directory",
        r"env: 'python3\r': No such file or directory",
        r"/srv/run.sh: line 2: $'\r': command not found",
        "sh: /srv/run.sh: /bin/sh^M: bad interpreter: No such file or directory",
    ];
    for line in lines {
        check(&[Case {
            command: "npx -y x",
            end: End::Exit(127),
            stderr: line,
            cause: Cause::WindowsLineEnd(None),
            line,
            cure: r"sed -i 's/\r$//'",
            ..BARE
        }]);
    }
}
