//! What a reload leaves alone, and what it does not.

use std::path::Path;

use crate::config::{Config, Environment, Target};

/// How the only backend of a file with `section` is reached.
#[track_caller]
fn target(section: &str, env: &Environment) -> Target {
    let yaml = format!("upstream: {{sandbox: true}}\n{section}\n");
    let config = Config::parse(&yaml, Path::new("/srv/bridge.yaml"), env).expect("a good file");
    let mut backends = config.backends.into_values();
    backends.next().expect("a backend").target
}

fn env() -> Environment {
    Environment::bare().with_var("HOME", "/home/ann").with_var("STATE_DIRECTORY", "/var/lib/bridge")
}

#[track_caller]
fn check(one: &str, other: &str, same: bool) {
    assert_eq!(target(one, &env()) == target(other, &env()), same, "{one}\n{other}");
}

#[test]
fn everything_that_reaches_a_backend_counts() {
    let groups: &[&[&str]] = &[
        &[
            "mcp: {fs: {command: /bin/fs}}",
            "mcp: {fs: {command: /bin/other}}",
            "mcp: {fs: {command: /bin/fs, args: [a]}}",
            "mcp: {fs: {command: /bin/fs, args: [a, b]}}",
            "mcp: {fs: {command: /bin/fs, env: {A: one-secret}}}",
            "mcp: {fs: {command: /bin/fs, env: {A: two-secret}}}",
            "mcp: {fs: {command: /bin/fs, env: {B: one-secret}}}",
            "mcp: {fs: {command: /bin/fs, cwd: /tmp}}",
            "mcp: {fs: {command: /bin/fs, sandbox: {}}}",
            "mcp: {fs: {command: /bin/fs, sandbox: {read: [/srv]}}}",
            "mcp: {fs: {command: /bin/fs, sandbox: {write: [/srv]}}}",
            "mcp: {fs: {command: /bin/fs, sandbox: off}}",
            "mcp: {fs: {command: /bin/fs, sandbox: secrets}}",
            // It is to be kept from another directory.
            "state_dir: /srv/state\nmcp: {fs: {command: /bin/fs}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp}}",
            "mcp: {fs: {url: http://127.0.0.1:2/mcp}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, transport: sse}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, headers: {X-Key: one-secret}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, headers: {X-Key: two-secret}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {bearer: one-secret}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {bearer: two-secret}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {oauth: {client_id: a, client_secret: one-secret}}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {oauth: {client_id: a, client_secret: two-secret}}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {oauth: {client_id: b, client_secret: one-secret}}}}",
            "mcp: {fs: {url: http://127.0.0.1:1/mcp, auth: {oauth: {client_id: a, client_secret: one-secret, scopes: [s]}}}}",
            "mcp: {fs: {url: \"unix:/run/fs.sock\"}}",
        ],
        &[
            "a2a: {hr: {url: http://127.0.0.1:1}}",
            "a2a: {hr: {url: http://127.0.0.1:2}}",
            "a2a: {hr: {card_url: http://127.0.0.1:1}}",
            "a2a: {hr: {url: http://127.0.0.1:1, headers: {X-Key: one-secret}}}",
            "a2a: {hr: {url: http://127.0.0.1:1, headers: {X-Key: two-secret}}}",
            "a2a: {hr: {url: http://127.0.0.1:1, transport: jsonrpc}}",
            "a2a: {hr: {url: http://127.0.0.1:1, allow_hosts: [other.acme]}}",
        ],
        &[
            "local: {t: {description: d, parameters: {type: object}, command: [echo]}}",
            "local: {t: {description: e, parameters: {type: object}, command: [echo]}}",
            "local: {t: {description: d, parameters: {type: object, a: 1}, command: [echo]}}",
            "local: {t: {description: d, parameters: {type: object}, command: [echo, a]}}",
            "local: {t: {description: d, parameters: {type: object}, http: {url: http://127.0.0.1:1/}}}",
            "local: {t: {description: d, parameters: {type: object}, http: {url: http://127.0.0.1:1/, method: PUT}}}",
        ],
    ];
    for group in groups {
        for (at, one) in group.iter().enumerate() {
            for (other_at, other) in group.iter().enumerate() {
                check(one, other, at == other_at);
            }
        }
    }
}

#[test]
fn key_that_does_not_reach_a_backend_does_not_count() {
    let plain = "mcp: {fs: {command: /bin/fs, env: {A: a-secret, B: b-secret}}}";
    for other in [
        "mcpServers: {fs: {command: /bin/fs, env: {B: b-secret, A: a-secret}}}",
        "mcp:\n  # a comment\n  fs:\n    env: {A: a-secret, B: b-secret}\n    command: /bin/fs",
        "mcp: {fs: {command: /bin/fs, env: {A: a-secret, B: b-secret}, prefix: x_, required: true}}",
        "mcp: {fs: {command: /bin/fs, env: {A: a-secret, B: b-secret}, call_timeout: 1s, concurrency: 1}}",
        "mcp: {fs: {command: /bin/fs, env: {A: a-secret, B: b-secret}, tools: {deny: ['*']}, refresh: 1m}}",
        "calls: {timeout: 9s}\nmcp: {fs: {command: /bin/fs, env: {A: a-secret, B: b-secret}}}",
    ] {
        check(plain, other, true);
    }
}

#[test]
fn a_reference_counts_by_what_it_leads_to() {
    let at = |secret: &str| {
        let env = env().with_file("/etc/secret", secret, 0o600);
        target("mcp: {fs: {command: /bin/fs, env: {A: \"${file:/etc/secret}\"}}}", &env)
    };
    assert!(at("hunter22\n") == at("hunter22"));
    assert!(at("hunter22\n") != at("hunter33\n"));
}
