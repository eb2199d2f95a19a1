//! Files without mistakes: what they mean, and what is warned of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::{environment, parse};
use crate::config::{
    A2aBinding, Auth, Backend, CardSource, Config, Confinement, Credential, Environment,
    HttpTransport, Mantyx, Mcp, OnUnavailable, Program, ProgramSandbox, Target, TokenHash,
    Upstream,
};
use crate::model::ids::BackendName;

#[track_caller]
fn good(yaml: &str) -> Config {
    parse(yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

#[track_caller]
fn warnings(yaml: &str, expected: &[&str]) {
    assert_eq!(good(yaml).warnings, expected);
}

fn backend<'c>(config: &'c Config, name: &str) -> &'c Backend {
    &config.backends[name]
}

/// A program is kept from what is the bridge's own, and from no other's file.
#[test]
fn files_of_the_bridge_are_hidden_from_programs() {
    let env = environment()
        .with_var("CREDENTIALS_DIRECTORY", "/run/credentials")
        .with_file("/run/credentials/key", "0123456789abcdef", 0o600)
        .with_file("/srv/token", "0123456789abcdef", 0o600)
        .with_file("/srv/state/inside", "0123456789abcdef", 0o600)
        .with_file("/srv/.env", "A=b", 0o600);
    let yaml = "upstream: {workspace: acme, credential: '${cred:key}'}\nstate_dir: state\n\
        mcp:\n  \
        web: {url: 'https://a', headers: {X-Key: '${file:token}', X-Other: '${file:state/inside}'}}\n  \
        a: {command: a, envFile: .env}\n  b: {command: b, sandbox: secrets}\n  \
        c: {command: c, sandbox: off}\n\
        local: {d: {command: [d], description: d, parameters: {type: object}}}\n";
    let config = Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env);
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let sandboxes = [
        ("a", ProgramSandbox::Masked),
        ("b", ProgramSandbox::Secrets),
        ("c", ProgramSandbox::Off),
        ("d", ProgramSandbox::Masked),
    ];
    for (name, sandbox) in sandboxes {
        let program = backend(&config, name).program().expect("a program");
        assert_eq!(program.sandbox, sandbox, "{name}");
        let own = ["/run/credentials", "/srv/bridge.yaml", "/srv/state", "/srv/token"];
        assert_eq!(*program.hidden, own.map(PathBuf::from), "{name}");
    }
}

#[test]
fn the_least() {
    let config = good("upstream: {sandbox: true}");
    assert_eq!(config.listen.tcp, ["127.0.0.1:7717".parse().unwrap()]);
    assert_eq!(config.listen.unix, None);
    assert!(matches!(&config.upstream, Upstream::Sandbox { workspace } if workspace == "sandbox"));
    assert_eq!(config.state_dir, Path::new("/home/ann/.local/state/mantyx-bridge"));
    assert_eq!(config.auth, Auth::Token);
    assert!(config.apps.is_empty() && config.backends.is_empty() && config.warnings.is_empty());
    assert_eq!(config.refresh.interval, Duration::from_secs(300));
    assert_eq!(config.refresh.jitter, 0.1);
    assert_eq!(config.refresh.timeout, Duration::from_secs(30));
    assert_eq!(config.calls.timeout, Duration::from_secs(285));
    assert_eq!(config.calls.max_concurrent, 256);
}

#[test]
fn a_byte_order_mark_and_a_json_file() {
    good("\u{feff}upstream: {sandbox: true}");
    good("{\"upstream\": {\"sandbox\": true}, \"mcpServers\": {\"a\": {\"command\": \"a\"}}}");
}

#[test]
fn state_dirs() {
    struct Case {
        name: &'static str,
        value: &'static str,
        expected: &'static str,
    }
    for Case { name, value, expected } in [
        Case { name: "STATE_DIRECTORY", value: "/var/lib/a:/var/lib/b", expected: "/var/lib/a" },
        Case { name: "XDG_STATE_HOME", value: "/xdg", expected: "/xdg/mantyx-bridge" },
        Case {
            name: "STATE_DIRECTORY",
            value: "",
            expected: "/home/ann/.local/state/mantyx-bridge",
        },
    ] {
        let env = environment().with_var(name, value);
        let config = Config::parse("upstream: {sandbox: true}", Path::new("/srv/b.yaml"), &env);
        assert_eq!(config.unwrap().state_dir, Path::new(expected), "{name}={value}");
    }
    let relative = good("upstream: {sandbox: true}\nstate_dir: state");
    assert_eq!(relative.state_dir, Path::new("/srv/state"));
    let errors =
        Config::parse("upstream: {sandbox: true}", Path::new("/b.yaml"), &Environment::bare());
    assert!(errors.unwrap_err().to_string().contains("STATE_DIRECTORY, XDG_STATE_HOME, HOME"));
}

#[test]
fn listeners_and_auth() {
    let config = good(
        "upstream: {credential: passthrough}\nauth: off\n\
         listen: {tcp: ['localhost:80', '[::1]:0', '127.9.9.9:81'], unix: b.sock}",
    );
    let tcp: Vec<String> = config.listen.tcp.iter().map(ToString::to_string).collect();
    assert_eq!(tcp, ["127.0.0.1:80", "[::1]:0", "127.9.9.9:81"]);
    assert_eq!(config.listen.unix.as_deref(), Some(Path::new("/srv/b.sock")));
    assert_eq!(config.auth, Auth::Off);
    assert!(good("upstream: {sandbox: true}\nlisten: {unix: /b.sock}").listen.tcp.is_empty());
}

#[test]
fn backends_of_other_hosts_are_left_out() {
    let system = rustix::system::uname();
    let own = system.nodename().to_str().unwrap().to_uppercase();
    let config = good(&format!(
        "upstream: {{sandbox: true}}\n\
         mcp: {{a: {{command: x, only_on: [{own:?}, b]}}, b: {{command: x, only_on: [not-this-host]}}}}\n\
         local: {{c: {{command: [x], only_on: []}}, d: {{command: [x]}}}}\n"
    ));
    let names: Vec<&str> = config.backends.keys().map(BackendName::as_str).collect();
    assert_eq!(names, ["a", "d"]);
    let disabled: Vec<&str> = config.disabled.iter().map(BackendName::as_str).collect();
    assert_eq!(disabled, ["b", "c"]);
}

#[test]
fn upstreams_and_apps() {
    let config = good(
        "upstream: {credential: '${env:TOKEN}', workspace: acme, base_url: 'http://localhost:1/x/'}\n\
         mcp: {fs: {command: a}, off: {command: a, disabled: true}}\n\
         apps:\n  \
           a: {token: '${file:/etc/closed}', backends: [fs],\n      tools: {fs: {allow: ['read_*'], deny: ['*secret*']}}, max_concurrent_calls: 3}\n  \
           b: {token: '${env:TOKEN}', backends: [off], credential: passthrough}\n  \
           c: {token: '${env:TOKEN2}'}\n",
    );
    let Upstream::Mantyx(Mantyx {
        base_url,
        workspace,
        credential: Credential::Own(own),
        tls: None,
    }) = &config.upstream
    else {
        panic!("{:?}", config.upstream)
    };
    assert_eq!((base_url.as_str(), workspace.as_deref()), ("http://localhost:1/x/", Some("acme")));
    assert_eq!(own.expose_secret(), "0123456789abcdef");
    let [a, b, c] = &config.apps[..] else { panic!("three apps") };
    assert_eq!(a.token, Some(TokenHash::new(b"hunter22-closed-secret")));
    let fs = BackendName::parse("fs").unwrap();
    assert_eq!(a.rights.backends, Some([fs.clone()].into()));
    let may_use = |tool: &str| a.rights.include_tool(&fs, tool);
    assert!(may_use("read_file") && !may_use("read_secret") && !may_use("write_file"));
    assert_eq!(a.max_concurrent_calls, Some(3));
    // A backend that is turned off may be named, so that one line turns it off.
    assert_eq!(b.rights.backends, Some([].into()));
    assert!(matches!(b.credential, Some(Credential::Passthrough)));
    assert!(c.rights.are_all() && c.credential.is_none());
    assert_eq!(config.disabled.len(), 1);
}

#[test]
fn stdio_servers() {
    let config = good(
        "upstream: {sandbox: true}\n\
         refresh: {interval: 1m}\n\
         mcp:\n  \
           fs:\n    \
             command: npx\n    \
             args: [-y, 8080, 1.10, true, '${env:TOKEN}', 'x${userHome}']\n    \
             env: {PORT: 0080, ON: yes, BIG: 1e999, KEY: '${TOKEN}', DEF: '${GONE:-d}'}\n    \
             cwd: docs\n    \
             sandbox: {read: [docs, /srv/more], write: [out]}\n    \
             on_unavailable: fail\n    \
             required: true\n    \
             trust_annotations: true\n    \
             tools: {allow: ['get_*'], deny: ['*_x'], rename: {get_a: got}}\n",
    );
    let fs = backend(&config, "fs");
    let Target::Mcp(Mcp::Stdio(Program { command, args, env, cwd, sandbox, .. })) = &fs.target
    else {
        panic!("stdio")
    };
    assert_eq!(command, "npx");
    let exact: Vec<&str> = args.iter().map(|arg| arg.as_str()).collect();
    assert_eq!(exact, ["-y", "8080", "1.10", "true", "0123456789abcdef", "x/home/ann"]);
    let shown: Vec<String> = args.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["-y", "8080", "1.10", "true", "${env:TOKEN}", "x${env:HOME}"]);
    let env: Vec<(&str, &str)> =
        env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(
        env,
        [
            ("BIG", "1e999"),
            ("DEF", "d"),
            ("KEY", "0123456789abcdef"),
            ("ON", "yes"),
            ("PORT", "0080")
        ]
    );
    assert_eq!(cwd.as_deref(), Some(Path::new("/srv/docs")));
    let read = vec!["/srv/docs".into(), "/srv/more".into()];
    let lists = Confinement { read, write: vec!["/srv/out".into()] };
    assert_eq!(*sandbox, ProgramSandbox::Listed(lists));
    assert_eq!((fs.concurrency, fs.required, fs.on_unavailable), (4, true, OnUnavailable::Fail));
    assert!(fs.trust_annotations);
    assert_eq!((fs.refresh, fs.call_timeout), (Duration::from_secs(60), Duration::from_secs(285)));
    assert_eq!(fs.naming.prefix, "fs_");
    assert!(fs.naming.tools.allow.as_ref().unwrap().is_match("get_a"));
    assert!(!fs.naming.tools.allow.as_ref().unwrap().is_match("set_a"));
    assert!(fs.naming.tools.deny.is_match("get_x"));
    assert_eq!(fs.naming.rename["get_a"], "got");
}

#[test]
fn programs() {
    let config = good(
        "upstream: {sandbox: true}\n\
         mcp:\n  \
           own: {command: mantyx-bridge, args: null, env: {}, cwd: null, prefix: ''}\n  \
           rel: {command: ./bin/server}\n",
    );
    let own = backend(&config, "own");
    assert!(!own.trust_annotations, "nobody is believed who was not named");
    assert_eq!(own.naming.prefix, "");
    for (name, expected) in [("own", "/usr/bin/mantyx-bridge"), ("rel", "/srv/./bin/server")] {
        let Target::Mcp(Mcp::Stdio(Program { command, .. })) = &backend(&config, name).target
        else {
            panic!("stdio")
        };
        assert_eq!(command, expected);
    }
}

#[test]
fn servers_on_the_network() {
    let config = good(
        "upstream: {sandbox: true}\n\
         mcp:\n  \
           a: {type: http, serverUrl: 'https://a/mcp', headers: {Authorization: 'Bearer ${env:TOKEN}'}}\n  \
           b: {transport: streamable-http, url: 'https://b/${env:TOKEN}/mcp', call_timeout: 1m}\n",
    );
    let Target::Mcp(Mcp::Http { url, headers, .. }) = &backend(&config, "a").target else {
        panic!("http")
    };
    assert_eq!(url.as_str(), "https://a/mcp");
    assert_eq!(headers["authorization"], "Bearer 0123456789abcdef");
    assert!(headers["authorization"].is_sensitive());
    let Target::Mcp(Mcp::Http { url, .. }) = &backend(&config, "b").target else { panic!("http") };
    assert_eq!(url.as_str(), "https://b/0123456789abcdef/mcp");
    assert_eq!(url.to_string(), "https://b/${env:TOKEN}/mcp");
    assert_eq!(backend(&config, "b").concurrency, 16);
}

#[test]
fn servers_on_unix_sockets_and_of_the_older_transport() {
    let config = good(
        "upstream: {sandbox: true}\n\
         mcp:\n  \
           a: {url: 'unix:/run/a.sock'}\n  \
           b: {url: 'unix:b.sock:/x/y?z', headers: {Host: 'localhost:80'}, transport: http}\n  \
           c: {url: 'unix:///run/${env:TOKEN}.sock', type: sse}\n  \
           d: {url: 'https://d/sse', type: sse}\n",
    );
    let seen = ["a", "b", "c", "d"].map(|name| {
        let Target::Mcp(Mcp::Http { url, socket, transport, .. }) = &backend(&config, name).target
        else {
            panic!("http")
        };
        let socket = socket.as_ref().map_or(String::new(), |path| path.display().to_string());
        (url.as_str().to_owned(), url.to_string(), socket, *transport)
    });
    let expected = [
        ("http://localhost/mcp", "unix:/run/a.sock", "/run/a.sock", HttpTransport::Either),
        ("http://localhost/x/y?z", "unix:b.sock:/x/y?z", "/srv/b.sock", HttpTransport::Streamable),
        (
            "http://localhost/mcp",
            "unix:///run/${env:TOKEN}.sock",
            "/run/0123456789abcdef.sock",
            HttpTransport::Sse,
        ),
        ("https://d/sse", "https://d/sse", "", HttpTransport::Sse),
    ]
    .map(|(url, shown, socket, transport)| {
        (url.to_owned(), shown.to_owned(), socket.to_owned(), transport)
    });
    assert_eq!(seen, expected);
}

#[test]
fn grpc_is_a_transport_of_agents() {
    let config = good("upstream: {sandbox: true}\na2a: {c: {url: 'https://c', transport: grpc}}");
    let Target::A2a(agent) = &backend(&config, "c").target else { panic!("a2a") };
    assert_eq!(agent.binding, Some(A2aBinding::Grpc));
}

#[test]
fn agents() {
    let config = good(
        "upstream: {sandbox: true}\n\
         a2a:\n  \
           c: {url: 'https://c', transport: http-json, description: C, allow_hosts: ['d', 'e:8443']}\n  \
           d: {card_url: 'https://d/card.json', concurrency: 2}\n  \
           e: {card_file: e.json}\n  \
           f: {bundled: true}\n",
    );
    let card = |name: &str| match &backend(&config, name).target {
        Target::A2a(a2a) => a2a,
        other => panic!("{other:?}"),
    };
    assert!(matches!(&card("c").card, CardSource::Base(url) if url.as_str() == "https://c/"));
    assert_eq!(card("c").binding, Some(A2aBinding::HttpJson));
    assert_eq!(card("c").allow_hosts, ["d", "e:8443"]);
    assert_eq!(card("c").description.as_deref(), Some("C"));
    assert!(matches!(&card("d").card, CardSource::Url(_)));
    assert!(matches!(&card("e").card, CardSource::File(path) if path == Path::new("/srv/e.json")));
    assert!(matches!(&card("f").card, CardSource::Bundled));
    assert_eq!(backend(&config, "d").concurrency, 2);
}

#[test]
fn an_env_file() {
    let env = environment().with_file(
        "/srv/.env",
        "# secrets\n\nexport A=1\nB = 'two words'\nC=\"x\"\nD=a=b\nE=\n",
        0o644,
    );
    let yaml = "upstream: {sandbox: true}\nmcp: {a: {command: a, envFile: .env, env: {A: mine}}}";
    let config = Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env).unwrap();
    let Target::Mcp(Mcp::Stdio(Program { env, .. })) = &backend(&config, "a").target else {
        panic!("stdio")
    };
    let env: Vec<(&str, &str)> =
        env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(env, [("A", "mine"), ("B", "two words"), ("C", "x"), ("D", "a=b"), ("E", "")]);
    assert_eq!(
        config.warnings,
        ["/srv/bridge.yaml:2: mcp.a.envFile: every user can read /srv/.env; run chmod o-rwx on it"]
    );
}

#[test]
fn plain_secrets_are_warned_of() {
    const HOW: &str = "is a secret in plain text; write ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}";
    warnings(
        "upstream: {credential: sk-123}\n\
         apps: {a: {token: short}}\n\
         mcp:\n  \
           a: {command: a, args: [--token, hunter, --api-key=hunter2], env: {API_KEY: x, LEVEL: x, KEY_FILE: /x}}\n  \
           b: {url: 'https://b/?key=hunter', headers: {X-API-Key: x, X-Other: x}}\n  \
           c: {url: 'http://c/', headers: {Authorization: 'Bearer ${env:TOKEN}'}}\n  \
           d: {url: 'http://127.0.0.1/', headers: {Authorization: 'Bearer ${file:/etc/open}'}}\n  \
           e: {command: a, args: ['${file:/etc/closed}'], call_timeout: 290s}\n",
        &[
            &format!("/srv/bridge.yaml:1: upstream.credential: credential {HOW}"),
            &format!("/srv/bridge.yaml:2: apps.a.token: token {HOW}"),
            "/srv/bridge.yaml:2: apps.a.token: the token is short enough to be guessed; take 32 \
             random bytes",
            &format!("/srv/bridge.yaml:4: mcp.a.args[1]: an argument {HOW}"),
            &format!("/srv/bridge.yaml:4: mcp.a.args[2]: an argument {HOW}"),
            &format!("/srv/bridge.yaml:4: mcp.a.env.API_KEY: API_KEY {HOW}"),
            &format!("/srv/bridge.yaml:5: mcp.b.url: a query parameter {HOW}"),
            &format!("/srv/bridge.yaml:5: mcp.b.headers.X-API-Key: the header X-API-Key {HOW}"),
            "/srv/bridge.yaml:6: mcp.c.headers.Authorization: `authorization` travels without \
             TLS; write https:// in the URL",
            "/srv/bridge.yaml:7: mcp.d.headers.Authorization: every user can read /etc/open; run \
             chmod o-rwx on it",
            "/srv/bridge.yaml:8: mcp.e.args[0]: arguments show in every list of processes; pass \
             it in `env`",
            "/srv/bridge.yaml:8: mcp.e.call_timeout: this is longer than calls.timeout, which \
             ends the call first",
        ],
    );
    warnings(
        "upstream: {sandbox: true}\nauth: off\napps: {a: {token: '${env:TOKEN}'}}\n",
        &["/srv/bridge.yaml:3: apps: with `auth: off` no app is told from another, so `apps` has \
           no effect"],
    );
}

#[test]
fn debug_output_holds_no_secret() {
    let config = good(
        "upstream: {credential: hunter22}\n\
         apps: {a: {token: hunter33, credential: hunter44}}\n\
         mcp:\n  \
           a: {command: a, args: [--token, hunter55, '${env:TWO_WORDS}'], env: {A: hunter66}}\n  \
           b: {url: 'https://b/?key=hunter77', headers: {X: hunter88}}\n\
         a2a: {c: {url: 'https://c/${file:/etc/closed}', headers: {X: hunter99}}}\n",
    );
    let debug = format!("{config:#?} {:?}", environment());
    assert!(!debug.contains("hunter"), "{debug}");
}

#[test]
fn the_example_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(root.join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    assert!(files.len() >= 4);
    files.push(root.join("bridge.yaml"));
    let env = [("billing", 'a'), ("helpdesk", 'b'), ("notebook", 'c')].into_iter().fold(
        environment()
            .with_var("MANTYX_API_KEY", "key")
            .with_var("GITHUB_TOKEN", "token")
            .with_file("/run/credentials/bridge/mantyx", "key", 0o400)
            .with_file("/run/credentials/bridge/jira", "token", 0o400)
            .with_file("/etc/mantyx-bridge/mantyx.key", "key", 0o600),
        |env, (app, letter)| {
            let path = format!("/etc/mantyx-bridge/{app}.token");
            env.with_file(&path, &letter.to_string().repeat(64), 0o600)
        },
    );
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let config = Config::parse(&text, &path, &env).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        assert!(!config.backends.is_empty(), "{}", path.display());
    }
}

/// As it is installed, and with all that it only suggests.
#[test]
fn the_file_of_the_debian_package() {
    let path = Path::new("/etc/mantyx-bridge/bridge.yaml");
    let text = include_str!("../../../../debian/bridge.yaml");
    let config = Config::parse(text, path, &Environment::bare()).unwrap();
    assert!(config.warnings.is_empty() && config.backends.is_empty() && config.listen.by_default);

    let (head, sections) = text.split_once("# mcp:").unwrap();
    let head = head.replace("  #   workspace", "  workspace");
    let head = head.replace("  credential: passthrough", "  credential: ${cred:mantyx_api_key}");
    let sections = sections.replace("\n#   ", "\n  ").replace("\n# a2a:", "\na2a:");
    let text = format!("{head}mcp:{sections}");
    let env = environment()
        .with_file("/run/credentials/bridge/mantyx_api_key", "key", 0o400)
        .with_file("/etc/mantyx-bridge/jira.token", "token", 0o640);
    let config = Config::parse(&text, path, &env).unwrap_or_else(|errors| panic!("{errors}"));
    let backends: Vec<_> = config.backends.keys().map(ToString::to_string).collect();
    assert_eq!(backends, ["fs", "hr", "jira"]);
    assert!(matches!(config.upstream, Upstream::Mantyx(Mantyx { workspace: Some(_), .. })));
}

#[test]
fn the_root_example_needs_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bridge.yaml");
    let env = Environment::bare().with_var("HOME", "/home/ann");
    let config = Config::load(&path, &env).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.backends.len(), 2);
}

#[test]
fn an_audit_log() {
    let sandbox = "upstream: {sandbox: true}\n";
    assert_eq!(good(sandbox).audit, None);
    let audit = good(&format!("{sandbox}audit: {{file: logs/audit.jsonl}}")).audit.unwrap();
    assert_eq!(
        (audit.file.as_deref(), audit.arguments),
        (Some(Path::new("/srv/logs/audit.jsonl")), false)
    );
    let audit = good(&format!("{sandbox}audit: {{file: /a, arguments: true}}")).audit.unwrap();
    assert!(audit.arguments);
}
