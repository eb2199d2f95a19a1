//! Every place for a secret holds a value of its own, everything goes wrong that can, and then each
//! value is looked for wherever the bridge writes or answers: as it is, and in disguise.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;

use crate::{
    bridge::{self, API, Bridge},
    certs::{Authority, Client, Pair},
    frames::Script,
    http::{Answer, Request},
    mantyx::{CREDENTIAL, Mantyx},
    peers,
    tls_front::{Front, client_files},
    wait,
};

/// Where each secret stands, and its value. None is a part of another.
const SECRETS: [(&str, &str); 13] = [
    ("upstream.credential", CREDENTIAL),
    ("apps.one.token", "cnr-app-one-0123456789abcdef+/=="),
    ("apps.two.token", "cnr-app-two-0123456789abcdef+/=="),
    ("apps.two.credential", "cnr-app-credential-71f3"),
    ("a header of an MCP server", "cnr-mcp-header/+ 9c"),
    ("a query of an MCP server", "cnr-mcp-query-8a12"),
    ("a static token", "cnr-static-bearer-55aa"),
    ("a client's secret", "cnr-client-secret/+41"),
    ("an issued token", "cnr-issued-token-90ee"),
    ("a header of an agent", "cnr-agent-header-3c\"d"),
    ("a child's environment", "cnr-child-env-6b6b"),
    ("a child's argument", "cnr-child-arg-7d7d"),
    ("a header of a local tool", "cnr-local-header-2f2f"),
];

fn secret(name: &str) -> &'static str {
    let found = SECRETS.iter().find(|(place, _)| *place == name);
    found.unwrap_or_else(|| panic!("no secret is {name}")).1
}

/// How a value may look to whom it was not meant for.
fn disguises(value: &str) -> Vec<String> {
    let percent = |safe: fn(u8) -> bool| {
        let escape = |byte: u8| match safe(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        value.bytes().map(escape).collect::<String>()
    };
    let json = serde_json::to_string(value).expect("a string is JSON");
    let json = json.trim_matches('"').to_owned();
    let mut forms = vec![
        value.to_owned(),
        json.replace('\\', "\\\\"),
        json,
        percent(|byte| byte.is_ascii_alphanumeric()),
        percent(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)),
    ];
    // Wherever it begins in what is encoded, less its first and last characters.
    for lead in 0..3 {
        let encoded = BASE64_STANDARD.encode(format!("{}{value}", "x".repeat(lead)));
        let inner = encoded.trim_end_matches('=');
        forms.push(inner.get(4..inner.len().saturating_sub(4)).unwrap_or_default().to_owned());
    }
    forms.push(value.bytes().map(|byte| format!("{byte:02x}")).collect());
    forms.sort();
    forms.dedup();
    forms
}

/// The private part of a key, which is all that is secret in its file, and how it may look.
fn key_forms(pem: &str) -> Vec<Vec<u8>> {
    let body: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(body.concat()).expect("PEM is Base64");
    // PKCS #8 of a P-256 key: the number of 32 bytes, and then the point, which is public.
    assert_eq!(der.len(), 138, "another kind of key");
    let number = der.get(36..68).expect("it is long enough");
    let hex: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![number.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
    forms.push(format!("{number:?}").into_bytes());
    forms.extend(body.iter().take(2).map(|line| line.as_bytes().to_vec()));
    for lead in 0..3 {
        let encoded = BASE64_STANDARD.encode([&vec![0; lead], number].concat());
        forms.push(encoded.as_bytes().get(4..40).expect("it is long enough").to_vec());
    }
    forms
}

/// What was written or answered, and by whom.
#[derive(Default)]
struct Found {
    seen: Vec<(String, Vec<u8>)>,
    /// What each of these keys is, and its PEM.
    keys: Vec<(&'static str, String)>,
}

impl Found {
    fn add(&mut self, what: &str, bytes: impl Into<Vec<u8>>) {
        self.seen.push((what.to_owned(), bytes.into()));
    }

    fn answer(&mut self, what: &str, answer: &Answer) {
        self.add(what, format!("{answer:?}"));
        self.add(what, answer.body.clone());
    }

    fn command(&mut self, what: &str, output: &Output) {
        self.add(what, [output.stdout.clone(), output.stderr.clone()].concat());
    }

    /// All that is below `dir`.
    fn files(&mut self, dir: &Path, except: &[PathBuf]) {
        for entry in fs::read_dir(dir).expect("a directory of the test") {
            let path = entry.expect("an entry of a directory of the test").path();
            if path.is_dir() {
                self.files(&path, except);
            } else if let Ok(bytes) = fs::read(&path)
                && !except.contains(&path)
            {
                self.add(&path.display().to_string(), bytes);
            }
        }
    }

    /// Where a secret stands, in any form.
    fn hits(&self) -> Vec<String> {
        let holds = |bytes: &[u8], form: &[u8]| {
            !form.is_empty() && bytes.windows(form.len()).any(|part| part == form)
        };
        let of_text = |(place, value): (&'static str, &str)| {
            (place, disguises(value).into_iter().map(String::into_bytes).collect::<Vec<_>>())
        };
        let of_keys = self.keys.iter().map(|(place, pem)| (*place, key_forms(pem)));
        let mut hits = Vec::new();
        for (place, forms) in SECRETS.into_iter().map(of_text).chain(of_keys) {
            for form in forms {
                for (what, bytes) in self.seen.iter().filter(|(_, bytes)| holds(bytes, &form)) {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    let form = String::from_utf8_lossy(&form).into_owned();
                    let line = text.lines().find(|line| line.contains(&form)).unwrap_or_default();
                    let line: String = line.chars().take(600).collect();
                    hits.push(format!("{place} as {form:?} in {what}: {line}"));
                }
            }
        }
        hits
    }
}

async fn cli(bridge: &Bridge, args: &[&str]) -> Output {
    let config = bridge.config_path().display().to_string();
    let mut command = tokio::process::Command::from(bridge::command());
    command.args(args).args(["-c", &config]).env("RUST_LOG", "trace").kill_on_drop(true);
    command.output().await.expect("the binary should start")
}

/// A server that repeats in its refusals what it was asked with, as careless ones do.
fn careless(server: &Mantyx) {
    let echoed = |name: &str| {
        format!(
            "{{\"message\":\"no: {}\",\"detail\":{:?},\"error\":{{\"code\":-1,\"message\":{:?}}}}}",
            secret(name).replace('"', "'"),
            secret(name),
            secret(name)
        )
    };
    let line = "HTTP/1.1 401 Unauthorized";
    let json = "Content-Type: application/json";
    struct Case {
        method: &'static str,
        path: &'static str,
        name: &'static str,
    }
    for Case { method, path, name } in [
        Case { method: "POST", path: "/mcp", name: "a header of an MCP server" },
        Case { method: "POST", path: "/sse", name: "a header of an MCP server" },
        Case { method: "POST", path: "/bearer", name: "a static token" },
        Case { method: "POST", path: "/behind", name: "an issued token" },
        Case { method: "GET", path: "/card", name: "a header of an agent" },
        Case { method: "POST", path: "/rpc", name: "a header of an agent" },
        Case { method: "POST", path: "/page", name: "a header of a local tool" },
        Case { method: "POST", path: "/bad-token", name: "a client's secret" },
    ] {
        let echo = format!("X-Echo: {}", secret(name));
        server.canned(method, path, &[line, json, &echo], &echoed(name));
    }
    let token =
        format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, secret("an issued token"));
    server.canned("POST", "/token", &["HTTP/1.1 200 OK", json], &token);
    let card = r#"{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"/rpc","preferredTransport":"JSONRPC","capabilities":{},"skills":[]}"#;
    server.canned("GET", "/good-card", &["HTTP/1.1 200 OK", json], card);
    let elsewhere =
        format!("Location: http://127.0.0.1:9/?x={}", secret("a header of an MCP server"));
    server.canned("POST", "/moved", &["HTTP/1.1 307 Moved", &elsewhere], "");
}

/// TLS before MANTYX and before the server, and the bridge's own certificate for both.
struct Fronts {
    mantyx: Front,
    server: Front,
    own: Pair,
    /// `tls`, as bridge.yaml has it.
    tls: String,
    /// The same for someone who does not trust them.
    wary: String,
}

impl Fronts {
    async fn start(mantyx: &Mantyx, server: &Mantyx, dir: &Path) -> Self {
        let authority = Authority::new();
        let own = authority.sign(&["bridge.acme"]);
        let before = async |to: &Mantyx| {
            Front::before(&to.url(), &authority, Some(&authority), "http/1.1").await
        };
        let tls = client_files(dir, &authority, &own);
        let wary = tls.replacen(&format!("ca: {}, ", dir.join("ca.pem").display()), "", 1);
        Self { mantyx: before(mantyx).await, server: before(server).await, own, tls, wary }
    }
}

/// The configuration, whose secrets come from files and variables as they should.
fn config(fronts: &Fronts, server: &Mantyx, tls: &str, dir: &Path) -> String {
    for (n, (_, value)) in SECRETS.iter().enumerate() {
        fs::write(dir.join(n.to_string()), value).expect("a new file");
    }
    let at = |name: &str| {
        let n = SECRETS.iter().position(|(place, _)| *place == name).expect("a secret");
        format!("\"${{file:{}}}\"", dir.join(n.to_string()).display())
    };
    let within = |name: &str| at(name).trim_matches('"').to_owned();
    let url = server.url();
    let headers = format!("headers: {{X-Key: {}}}", at("a header of an MCP server"));
    let oauth = |endpoint: &str| {
        let secret = at("a client's secret");
        format!(
            "auth: {{oauth: {{client_id: b, client_secret: {secret}, token_url: '{url}/{endpoint}'}}}}"
        )
    };
    let tool = "description: d, parameters: {type: object}";
    let env = format!("env: {{KEY: {}}}", at("a child's environment"));
    let (front, own_tls, wary_tls) = (fronts.server.url(), &fronts.tls, &fronts.wary);
    format!(
        "upstream: {{base_url: '{}', workspace: acme, credential: {}, {}}}\n\
         apps:\n  one: {{token: {}}}\n  two: {{token: {}, credential: {}}}\n\
         audit: {{file: '{}', arguments: true}}\n\
         mcp:\n  \
         refused: {{url: \"{url}/mcp?api_key={}\", {headers}}}\n  \
         old: {{url: '{url}/sse', transport: sse, {headers}}}\n  \
         moved: {{url: '{url}/moved', {headers}}}\n  \
         gone: {{url: 'http://127.0.0.1:9/mcp', {headers}}}\n  \
         wary: {{url: '{tls}/mcp', {headers}}}\n  \
         shown: {{url: '{front}/mcp', {headers}, {own_tls}}}\n  \
         doubted: {{url: '{front}/mcp', {headers}, {wary_tls}}}\n  \
         plain: {{url: '{}/mcp', {headers}}}\n  \
         bearer: {{url: '{url}/bearer', auth: {{bearer: {}}}}}\n  \
         issued: {{url: '{url}/behind', {}}}\n  \
         unissued: {{url: '{url}/behind', {}}}\n  \
         dying: {{command: sh, args: [-c, 'exit 3', {}], {env}}}\n  \
         ledger: {}\n\
         a2a:\n  \
         card: {{card_url: '{url}/card', headers: {{X-Key: {}}}}}\n  \
         call: {{card_url: '{url}/good-card', headers: {{X-Key: {}}}}}\n\
         local:\n  \
         page: {{{tool}, http: {{url: '{url}/page', headers: {{X-Key: {}}}}}}}\n  \
         run: {{{tool}, command: [sh, -c, 'kill -9 $$', {}], {env}}}\n",
        fronts.mantyx.url(),
        at("upstream.credential"),
        own_tls,
        at("apps.one.token"),
        at("apps.two.token"),
        at("apps.two.credential"),
        dir.join("audit.jsonl").display(),
        within("a query of an MCP server"),
        server.url().replace("http", "https"),
        at("a static token"),
        oauth("token"),
        oauth("bad-token"),
        at("a child's argument"),
        peers::with(&peers::ledger(&dir.join("ledger"), &[]), &env),
        at("a header of an agent"),
        at("a header of an agent"),
        at("a header of a local tool"),
        at("a child's argument"),
    )
}

fn ask(app: &str, method: &str, target: &str) -> Request {
    Request::new(method, target).bearer(secret(&format!("apps.{app}.token")))
}

/// Waits until all that can be refused is.
async fn wait_refused(bridge: &Bridge) {
    for name in [
        "refused", "old", "moved", "gone", "wary", "shown", "doubted", "plain", "bearer", "issued",
        "unissued", "dying", "card",
    ] {
        wait::soon(&format!("{name} should be refused"), async || {
            let status = ask("one", "GET", "/v1/status").answer(bridge.addr()).await.value();
            let all = status["backends"].as_array().cloned().unwrap_or_default();
            all.iter().find(|one| one["name"] == name)?["lastError"].is_string().then_some(())
        })
        .await;
    }
}

/// A run of `app`, whose calls go well and wrong.
async fn run(found: &mut Found, bridge: &Bridge, mantyx: &Mantyx, app: &str) {
    let id = |id: &str| format!("{id}_{app}");
    let script = Script::new()
        .mcp(&id("tu_note"), "ledger", "ledger_note", r#"{"text":"x"}"#)
        .local(&id("tu_page"), "page", "{}")
        .local(&id("tu_run"), "run", "{}")
        .a2a(&id("tu_call"), "call", "hi")
        .local(&id("tu_card"), "card_unavailable", "{}");
    let ids = ["tu_note", "tu_page", "tu_run", "tu_call", "tu_card"];
    let script = ids.iter().fold(script, |script, one| script.answered(&id(one)));
    mantyx.script(script.done());
    let request = ask(app, "POST", &format!("{API}/agent-runs")).json(r#"{"prompt":"x"}"#);
    let created = request.answer(bridge.addr()).await;
    found.answer("the answer to a run", &created);
    let stream = created.value()["streamUrl"].as_str().expect("a stream").to_owned();
    found.answer("a stream", &ask(app, "GET", &stream).answer(bridge.addr()).await);
    assert_eq!(mantyx.answer(&id("tu_note")).await["result"], "noted: x");
    for one in ["tu_page", "tu_run", "tu_call"] {
        let answer = mantyx.answer(&id(one)).await;
        assert!(answer["error"].is_string(), "{one}: {answer}");
    }
}

/// Every answer of the bridge's own, refusals among them.
async fn ask_all(found: &mut Found, bridge: &Bridge) {
    struct Case<'a> {
        method: &'static str,
        target: &'a str,
        body: Option<&'static str>,
    }
    for Case { method, target, body } in [
        Case { method: "GET", target: &format!("{API}/models"), body: None },
        Case { method: "GET", target: "/v1/status", body: None },
        Case { method: "GET", target: "/v1/tool-refs", body: None },
        Case { method: "GET", target: "/v1/runs", body: None },
        Case { method: "GET", target: "/v1/calls", body: None },
        Case { method: "GET", target: "/metrics", body: None },
        Case { method: "GET", target: "/openapi.json", body: None },
        Case { method: "GET", target: "/readyz", body: None },
        Case { method: "GET", target: "/", body: None },
        Case { method: "GET", target: "/nothing", body: None },
        Case { method: "POST", target: "/v1/backends/refused/refresh", body: Some("{}") },
        Case { method: "POST", target: "/v1/specs/inject", body: Some(r#"{"prompt":"x"}"#) },
        Case {
            method: "POST",
            target: "/v1/tool-calls",
            body: Some(r#"{"toolUseId":"t","name":"page","args":{}}"#),
        },
        Case { method: "POST", target: "/v1/tool-calls", body: Some("{") },
    ] {
        let mut request = ask("one", method, target);
        if let Some(body) = body {
            request = request.json(body);
        }
        found.answer(&format!("{method} {target}"), &request.answer(bridge.addr()).await);
    }
    let wrong = Request::new("GET", "/v1/status").bearer("wrong").answer(bridge.addr()).await;
    found.answer("a refusal", &wrong);
}

/// What the command line prints, of a file with a mistake beside every secret, too.
async fn print_all(found: &mut Found, bridge: &mut Bridge) {
    for args in [
        &["check"][..],
        &["check", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["status"],
        &["status", "--json"],
        &["tools"],
        &["call", "page", "{}"],
    ] {
        found.command(&format!("{args:?}"), &cli(bridge, args).await);
    }
    let good = fs::read_to_string(bridge.config_path()).expect("the configuration");
    let mistaken = good.replace(": \"${file:", ": \"${file:/x").replace("  page:", "  pa ge:");
    for text in [mistaken, good] {
        fs::write(bridge.config_path(), text).expect("the test's directory is writable");
        found.command("check of another file", &cli(bridge, &["check"]).await);
    }
}

/// What others were sent, but for each one's own secret in its own place.
fn sent(found: &mut Found, mantyx: &Mantyx, server: &Mantyx) {
    for request in mantyx.recorded() {
        let shown = request.headers.iter().filter(|(name, _)| name != "authorization");
        found.add(&request.target, format!("{:?}", shown.collect::<Vec<_>>()));
        found.add(&format!("the body of {}", request.target), request.body);
    }
    for request in server.recorded() {
        let seen = format!("{:?}{}", request.headers, request.text());
        for (place, value) in SECRETS {
            let is_upstreams = place.starts_with("upstream") || place.starts_with("apps");
            assert!(!is_upstreams || !seen.contains(value), "{place} at {}", request.target);
        }
        let own = |name: &str| matches!(name, "authorization" | "x-key");
        let shown = request.headers.iter().filter(|(name, _)| !own(name));
        found.add(&request.target, format!("{:?}", shown.collect::<Vec<_>>()));
    }
}

/// A12: at the most talkative that the log can be.
#[tokio::test]
async fn no_secret_is_anywhere_but_where_it_belongs() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let (mantyx, server, tls) = (Mantyx::start().await, Mantyx::start().await, peers::tls().await);
    careless(&server);
    let fronts = Fronts::start(&mantyx, &server, dir.path()).await;
    let text = config(&fronts, &server, &tls.url().replace("http", "https"), dir.path());
    let env = [("RUST_LOG", "trace"), ("RUST_BACKTRACE", "1")];
    let mut bridge = Bridge::start_with(&text, &env).await;
    wait_refused(&bridge).await;
    let keys = vec![("the key of `tls`", fronts.own.key.clone())];
    let mut found = Found { keys, ..Found::default() };
    for app in ["one", "two"] {
        run(&mut found, &bridge, &mantyx, app).await;
    }
    mantyx.canned("GET", &format!("{API}/models"), &["HTTP/1.1 401 Unauthorized"], CREDENTIAL);
    ask_all(&mut found, &bridge).await;
    print_all(&mut found, &mut bridge).await;
    sent(&mut found, &mantyx, &server);
    bridge.kill9();
    assert!(bridge.log().lines().count() > 100, "the log is talkative");
    found.add("the log", bridge.log());
    let state = bridge.state("");
    found.files(&state, &[state.join("token")]);
    found.add("the audit", fs::read(dir.path().join("audit.jsonl")).expect("calls were made"));
    let hits = found.hits();
    assert!(hits.is_empty(), "{} hits:\n{}", hits.len(), hits.join("\n"));
}

/// A12: of the listeners, whose handshakes fail and whose files change for the worse.
#[tokio::test]
async fn no_key_of_the_listeners_is_shown() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let authority = Authority::new();
    let put = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).expect("the test's directory is writable");
    };
    let own = ["127.0.0.1", "localhost"];
    let (own, other) = (authority.sign(&own), authority.sign(&own));
    put("ca.pem", &authority.pem());
    put("cert.pem", &own.cert);
    put("key.pem", &own.key);
    let at = dir.path().display();
    let text = format!(
        "listen: {{tcp: '127.0.0.1:0', tls: {{cert: {at}/cert.pem, key: {at}/key.pem, \
         client_ca: {at}/ca.pem}}}}\nupstream: {{sandbox: true, workspace: acme}}\n\
         apps: {{hr: {{cert: [hr.acme]}}}}\n"
    );
    let env = [("RUST_LOG", "trace"), ("RUST_BACKTRACE", "1")];
    let mut bridge = Bridge::start_with(&text, &env).await;
    let shown = authority.sign(&["hr.acme"]);
    let keys = [("the listeners' key", &own), ("the next key", &other), ("an app's key", &shown)];
    let keys = keys.map(|(what, pair)| (what, pair.key.clone())).to_vec();
    let mut found = Found { keys, ..Found::default() };

    let stranger = Authority::new().sign(&["hr.acme"]);
    for shown in [None, Some(&stranger)] {
        let client = Client::new(&authority.pem(), shown);
        let mut stream = client.connect(bridge.addr()).await.expect("TLS 1.3 tells it later");
        stream.read(&mut [0]).await.expect_err("it is refused");
    }
    drop(stranger);
    // Half a pair.
    put("key.pem", &other.key);
    bridge.process().signal(Signal::HUP);
    let flaw = wait::soon("the other key should be refused", async || {
        let log = bridge.log();
        log.lines().find(|line| line.contains("listen.tls.key")).map(str::to_owned)
    });
    found.add("the flaw", flaw.await);
    for args in [&["check"][..], &["check", "--json"], &["doctor"], &["doctor", "--json"]] {
        found.command(&format!("{args:?}"), &cli(&bridge, args).await);
    }
    bridge.kill9();
    assert!(bridge.log().lines().count() > 20, "the log is talkative");
    found.add("the log", bridge.log());
    found.files(&bridge.state(""), &[]);
    let hits = found.hits();
    assert!(hits.is_empty(), "{} hits:\n{}", hits.len(), hits.join("\n"));
}

#[test]
fn a_disguise_is_seen_through() {
    let seen = |text: String| {
        let mut found = Found::default();
        found.add("a text", text);
        !found.hits().is_empty()
    };
    assert!(!seen("nothing of note".to_owned()));
    for (_, secret) in SECRETS {
        for form in disguises(secret) {
            assert!(seen(format!("before {form} after")), "{form}");
        }
        for lead in ["", "a", "ab", "abc"] {
            assert!(seen(BASE64_STANDARD.encode(format!("{lead}{secret}{lead}"))), "{secret}");
        }
    }
    let pair = Authority::new().sign(&["bridge.acme"]);
    let (cert, key) = (pair.cert.clone(), pair.key);
    let shows = |bytes: Vec<u8>| {
        let mut found = Found { keys: vec![("a key", key.clone())], ..Found::default() };
        found.add("a text", bytes);
        !found.hits().is_empty()
    };
    assert!(!shows(cert.into_bytes()), "what is public is no secret");
    assert!(shows(key.replace('\n', "\\n").into_bytes()));
    let body: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(body).expect("PEM is Base64");
    assert!(shows(der.clone()));
    for lead in ["", "a", "ab"] {
        let whole = [lead.as_bytes(), &der].concat();
        assert!(shows(BASE64_STANDARD.encode(whole).into_bytes()), "{lead}");
    }
}
