//! TLS on the listeners: who has a connection, who is let in on it, and what happens when files
//! change.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustls::version::TLS12;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    bridge::{self, Bridge},
    certs::{Authority, Client, Pair},
    http::{Answer, Connection, PATIENCE, Request, Response},
    metrics::WITH_TLS,
    wait,
};

const TOKEN: &str = "a-token-that-nobody-can-guess";
/// The names of the bridge's own certificate.
const NAMES: &[&str] = &["127.0.0.1", "localhost"];

/// What the certificates of apps are called, one a line of `apps`.
const APPS: &str = "  hr: {cert: ['spiffe://acme/hr', hr.acme], backends: [one]}\n";

/// A bridge that speaks TLS, and the authority of its certificate and its apps.
struct Gateway {
    bridge: Bridge,
    authority: Authority,
    dir: TempDir,
}

impl Gateway {
    /// One that asks for a certificate.
    async fn start() -> Self {
        Self::with(true, APPS).await
    }

    async fn with(asks: bool, apps: &str) -> Self {
        let (authority, dir) = (Authority::new(), TempDir::new().expect("it is writable"));
        let ca = dir.path().join("ca.pem");
        fs::write(&ca, authority.pem()).expect("a new file");
        let asked = if asks { format!(", client_ca: {}", ca.display()) } else { String::new() };
        put(&dir, &authority.sign(NAMES));
        let at = dir.path().display();
        let config = format!(
            "listen: {{tcp: '127.0.0.1:0', unix: {at}/sock, tls: {{cert: {at}/cert.pem, key: \
             {at}/key.pem{asked}}}}}\nupstream: {{sandbox: true, workspace: acme}}\nlocal:\n  one: \
             {{description: d, parameters: {{type: object}}, command: [echo, one]}}\n  two: \
             {{description: d, parameters: {{type: object}}, command: [echo, two]}}\napps:\n  web: {{token: {TOKEN}, backends: \
             [two]}}\n{apps}"
        );
        Self { bridge: Bridge::start(&config).await, authority, dir }
    }

    fn addr(&self) -> SocketAddr {
        self.bridge.addr()
    }

    fn client(&self, shown: Option<&Pair>) -> Client {
        Client::new(&self.authority.pem(), shown)
    }

    /// A client whose certificate has these names.
    fn named(&self, names: &[&str]) -> Client {
        self.client(Some(&self.authority.sign(names)))
    }

    /// Replaces the configuration and waits until the bridge has taken it.
    async fn reload(&mut self, change: impl FnOnce(String) -> String) {
        let path = self.bridge.config_path();
        let text = fs::read_to_string(&path).expect("the configuration");
        let before = self.bridge.log().matches(TAKEN).count();
        fs::write(path, change(text)).expect("the test's directory is writable");
        self.bridge.process().signal(Signal::HUP);
        wait::soon("the configuration should be taken", async || {
            (self.bridge.log().matches(TAKEN).count() > before).then_some(())
        })
        .await;
    }

    /// What is wrong now.
    async fn problems(&self, client: &Client) -> Value {
        let status = status(client, self.addr(), Some(TOKEN)).await.expect(200);
        status["problems"].clone()
    }
}

/// A field of the log line that tells what a reload has changed.
const TAKEN: &str = r#""added":""#;

/// Puts a certificate where the bridge has it.
fn put(dir: &TempDir, pair: &Pair) {
    put_cert(dir, pair);
    put_key(dir, pair);
}

fn put_cert(dir: &TempDir, pair: &Pair) {
    replace(dir.path().join("cert.pem"), &pair.cert);
}

fn put_key(dir: &TempDir, pair: &Pair) {
    replace(dir.path().join("key.pem"), &pair.key);
}

/// Whole at any moment, as a tool that renews certificates does it.
fn replace(path: PathBuf, text: &str) {
    let draft = path.with_extension("new");
    fs::write(&draft, text).expect("the test's directory is writable");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(draft, path).expect("both are in one directory");
}

fn status_request(token: Option<&str>) -> Request {
    let request = Request::new("GET", "/v1/status");
    token.into_iter().fold(request, |request, token| request.bearer(token))
}

/// `GET /v1/status` on a connection of its own.
async fn status(client: &Client, to: SocketAddr, token: Option<&str>) -> Answer {
    let stream = client.connect(to).await.expect("a handshake");
    let connection = Connection::over(stream);
    status_request(token).send_on(connection, &to.to_string()).await.answer().await
}

/// The backends that a status shows.
fn backends(status: &Answer) -> Vec<String> {
    let status = status.expect(200);
    let all = status["backends"].as_array().expect("the backends").iter();
    all.map(|backend| backend["name"].as_str().expect("a name").to_owned()).collect()
}

/// Whether the client is given a connection on which it is answered.
async fn is_answered(client: &Client, to: SocketAddr) -> bool {
    let Ok(mut stream) = client.connect(to).await else { return false };
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    // With TLS 1.3, a client learns that it was refused when it reads.
    let mut answer = Vec::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200")
}

/// A35: only who shows a certificate of a known authority, and a good one, has a connection.
#[tokio::test]
async fn client_without_a_good_certificate_gets_no_connection() {
    let gateway = Gateway::start().await;
    let (to, ours) = (gateway.addr(), &gateway.authority);
    let bad = [
        ("no_certificate", gateway.client(None)),
        ("bad_certificate", gateway.client(Some(&Authority::new().sign(&["hr.acme"])))),
        ("expired_certificate", gateway.client(Some(&ours.sign_expired(&["hr.acme"])))),
    ];
    for (reason, client) in &bad {
        assert!(!is_answered(client, to).await, "{reason}");
    }
    let foreign = Client::new(&Authority::new().pem(), None);
    assert!(foreign.connect(to).await.is_err(), "a client that does not trust the bridge");
    let pair = ours.sign(&["hr.acme"]);
    assert!(is_answered(&gateway.client(Some(&pair)), to).await);
    let old = Client::with(&ours.pem(), Some(&pair), &[&TLS12]);
    assert!(is_answered(&old, to).await, "TLS 1.2 is good enough");

    let counted = wait::soon("all should be counted", async || {
        let stream = gateway.named(&["hr.acme"]).connect(to).await.expect("a handshake");
        let request = Request::new("GET", "/metrics");
        let text = request.send_on(Connection::over(stream), &to.to_string()).await.answer().await;
        let text = text.text();
        text.contains("failed_total{reason=\"distrusted\"} 1").then_some(text)
    })
    .await;
    for (reason, _) in bad {
        let line = format!("mantyx_bridge_tls_handshakes_failed_total{{reason=\"{reason}\"}} 1");
        assert!(counted.contains(&line), "{line} is in\n{counted}");
    }
    assert!(counted.contains(&format!("\n{WITH_TLS} ")), "{counted}");
}

/// A35: identity is a name in subjectAltName, compared as it is; the common name is none.
#[tokio::test]
async fn a_caller_is_who_its_certificate_says() {
    let gateway = Gateway::start().await;
    let to = gateway.addr();
    for names in [&["spiffe://acme/hr"][..], &["x.acme", "hr.acme"]] {
        assert_eq!(backends(&status(&gateway.named(names), to, None).await), ["one"]);
    }
    // The common name of all of them is hr.acme.
    for names in [&["spiffe://acme/hr/x"][..], &["HR.acme.evil"], &["a@hr.acme"], &["10.0.0.1"]] {
        let other = gateway.named(names);
        status(&other, to, None).await.expect_error(401);
        // It is nobody's certificate, so a token says who it is.
        assert_eq!(backends(&status(&other, to, Some(TOKEN)).await), ["two"], "{names:?}");
    }
    let hr = gateway.named(&["hr.acme"]);
    let refused = status(&hr, to, Some(TOKEN)).await.expect_error(401);
    assert!(refused["message"].to_string().contains("another app"), "{refused}");
    assert_eq!(backends(&status(&hr, to, Some("a-key-of-mantyx")).await), ["one"]);
}

/// A35: what is removed from the list is cut off, on a connection that is open as well.
#[tokio::test]
async fn a_name_that_is_removed_is_cut_off_at_once() {
    let mut gateway = Gateway::start().await;
    let (to, hr) = (gateway.addr(), gateway.named(&["hr.acme"]));
    let stream = hr.connect(to).await.expect("a handshake");
    let ask = async |connection| -> (Answer, Connection) {
        let sent: Response = status_request(None).send_on(connection, &to.to_string()).await;
        sent.answer_and_connection().await
    };
    let (answer, connection) = ask(Connection::over(stream)).await;
    answer.expect(200);
    gateway.reload(|text| text.replace(", hr.acme]", "]")).await;
    let (answer, _) = ask(connection).await;
    answer.expect_error(401);
    status(&hr, to, None).await.expect_error(401);
    let still = gateway.named(&["spiffe://acme/hr"]);
    status(&still, to, None).await.expect(200);
}

/// A35: TLS before 1.2 is refused, and plain HTTP is told what to do.
#[tokio::test]
async fn other_protocols_are_refused() {
    let gateway = Gateway::with(false, "").await;
    let to = gateway.addr();
    // A ClientHello of TLS 1.1 with ECDSA and SHA-256, which TLS 1.2 has an extension for.
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).expect("it is short");
    let mut record = vec![22, 0x03, 0x01, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let mut stream = TcpStream::connect(to).await.expect("it listens");
    stream.write_all(&record).await.expect("it reads");
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).await.expect("it says why");
    assert_eq!((alert.first(), alert.get(5..7)), (Some(&21), Some(&[2, 70][..])), "{alert:?}");

    let plain = Request::new("GET", "/healthz").answer(to).await;
    let told = plain.expect_error(400);
    assert!(told["message"].to_string().contains("https://"), "{told}");
}

/// A35: an address that other machines reach needs TLS and tokens.
#[tokio::test]
async fn an_open_address_without_tls_is_refused() {
    let dir = TempDir::new().expect("it is writable");
    let config = dir.path().join("bridge.yaml");
    for (listen, told) in [
        ("0.0.0.0:7717", "needs TLS"),
        ("{tcp: ['127.0.0.1:0', '0.0.0.0:7717']}", "needs TLS"),
        ("0.0.0.0:7717\nauth: off", "(auth)"),
    ] {
        let state = dir.path().join("state");
        let rest = format!("upstream: {{sandbox: true}}\nstate_dir: {}", state.display());
        fs::write(&config, format!("listen: {listen}\n{rest}\n")).expect("it is writable");
        for command in ["check", "serve"] {
            let output = bridge::command().args([command, "-c"]).arg(&config).output();
            let output = output.expect("the binary starts");
            let said =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command}: {said}");
            assert!(said.contains(told), "{command}: {said}");
        }
    }
}

/// A35: whoever connects and says nothing keeps nobody out, and is closed.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let limit = getrlimit(Resource::Nofile);
    // Each of them is a descriptor here and one in the bridge.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("it may grow");
    let gateway = Gateway::with(false, "").await;
    let (to, client) = (gateway.addr(), gateway.client(None));
    let mut silent = Vec::new();
    // More than there are places.
    for at in 0..1100 {
        silent.push(TcpStream::connect(to).await.expect("it listens"));
        if at % 100 == 0 {
            assert!(is_answered(&client, to).await, "behind {at} silent ones");
        }
    }
    assert!(is_answered(&client, to).await);
    for mut stream in silent {
        let closed = timeout(PATIENCE, stream.read(&mut [0])).await;
        let closed = closed.expect("it should be closed");
        assert!(matches!(closed, Ok(0) | Err(_)), "it says nothing, and closes");
    }
    let stream = client.connect(to).await.expect("a handshake");
    let request = Request::new("GET", "/metrics").bearer(TOKEN);
    let counted = request.send_on(Connection::over(stream), &to.to_string()).await.answer().await;
    let slow = counted.text();
    let slow = slow.lines().find(|line| line.contains("reason=\"timeout\""));
    assert!(slow.is_some_and(|line| !line.ends_with(" 0")), "{slow:?}");
}

/// A35: a new certificate is taken with no failed request, and one that is of no use is not taken.
#[tokio::test]
async fn a_new_certificate_is_taken_without_a_failed_request() {
    let gateway = Gateway::with(false, "").await;
    let (to, client) = (gateway.addr(), gateway.client(None));
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let steady = async {
        let stream = client.connect(to).await.expect("a handshake");
        let mut kept = Some(Connection::over(stream));
        while !done.load(Ordering::Relaxed) {
            status(&client, to, Some(TOKEN)).await.expect(200);
            let connection = kept.take().expect("one is kept");
            let sent = status_request(Some(TOKEN)).send_on(connection, &to.to_string()).await;
            let (answer, connection) = sent.answer_and_connection().await;
            answer.expect(200);
            kept = Some(connection);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let shown = async || {
        let stream = client.connect(to).await.expect("a handshake");
        let certificates = stream.get_ref().1.peer_certificates().expect("it has one");
        certificates[0].to_vec()
    };
    let rotate = async {
        for _ in 0..3 {
            let (before, count) = (shown().await, answered.load(Ordering::Relaxed));
            let pair = gateway.authority.sign(NAMES);
            put_cert(&gateway.dir, &pair);
            let problem = wait::soon("half of a pair should be told", async || {
                let problems = gateway.problems(&client).await;
                let found = problems.as_array()?.iter().find(|one| one["subject"] == "tls")?;
                Some(found.clone())
            })
            .await;
            assert!(problem["cure"].is_string(), "{problem}");
            assert_eq!(shown().await, before, "the old one stays");
            put_key(&gateway.dir, &pair);
            wait::soon("the new one should be shown", async || {
                (shown().await != before).then_some(())
            })
            .await;
            wait::soon("requests should go on", async || {
                (answered.load(Ordering::Relaxed) > count + 1).then_some(())
            })
            .await;
            assert_eq!(gateway.problems(&client).await, serde_json::json!([]));
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(steady, rotate);
}

#[tokio::test]
async fn names_in_a_new_certificate_are_the_bridges_own_from_then_on() {
    let gateway = Gateway::with(false, "").await;
    let (to, client) = (gateway.addr(), gateway.client(None));
    let by_name = async || {
        let stream = client.connect(to).await.expect("a handshake");
        let host = format!("bridge.acme:{}", to.port());
        let sent = status_request(Some(TOKEN)).send_on(Connection::over(stream), &host).await;
        sent.answer().await
    };
    by_name().await.expect_error(403);
    put(&gateway.dir, &gateway.authority.sign(&["127.0.0.1", "bridge.acme"]));
    wait::soon("the name should be taken", async || (by_name().await.status == 200).then_some(()))
        .await;
}

#[tokio::test]
async fn the_page_has_a_secure_cookie() {
    let gateway = Gateway::with(false, "").await;
    let (to, client) = (gateway.addr(), gateway.client(None));
    let sign_in = async |origin: String| {
        let form = format!("token={TOKEN}");
        let request = Request::new("POST", "/sign-in").header("Origin", &origin);
        let request = request.body("application/x-www-form-urlencoded", form);
        let stream = client.connect(to).await.expect("a handshake");
        request.send_on(Connection::over(stream), &to.to_string()).await.answer().await
    };
    let answer = sign_in(format!("https://{to}")).await;
    let cookie = answer.header("set-cookie").expect("a session");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    sign_in(format!("http://{to}")).await.expect_error(403);
}

#[tokio::test]
async fn a_proxy_in_front_hands_on_a_name_that_is_listed() {
    let listen = "listen: {tcp: '127.0.0.1:0', hosts: [bridge.acme]}";
    let config = format!("{listen}\nupstream: {{sandbox: true}}\n");
    let mut bridge = Bridge::start(&config).await;
    let form = format!("token={}", bridge.token());
    let sign_in = async |bridge: &Bridge, origin: &str| {
        let request = Request::new("POST", "/sign-in").header("Host", "bridge.acme");
        let request = request.header("Origin", origin);
        let request = request.body("application/x-www-form-urlencoded", form.clone());
        request.answer(bridge.addr()).await
    };
    let answer = sign_in(&bridge, "https://bridge.acme").await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").expect("a session");
    assert!(cookie.ends_with("; Secure"), "the browser speaks TLS with the proxy: {cookie}");
    sign_in(&bridge, "http://bridge.acme").await.expect_error(403);

    bridge.set_config(&config.replace("bridge.acme", "other.acme"));
    wait::soon("the names should be taken", async || {
        (sign_in(&bridge, "https://bridge.acme").await.status == 403).then_some(())
    })
    .await;
    let status = bridge.status().await;
    assert_eq!(status["config"]["lastError"], Value::Null, "they need no restart: {status}");
}

/// Runs the command line beside the bridge.
async fn command(config: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::from(bridge::command());
    let output = command.args(args).args(["-c", config]).kill_on_drop(true).output();
    let output = output.await.expect("the binary starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), said)
}

#[tokio::test]
async fn the_command_line_finds_a_bridge_that_speaks_tls() {
    let gateway = Gateway::with(false, "").await;
    let text = fs::read_to_string(gateway.bridge.config_path()).expect("the configuration");
    let over = |listen: &str, text: &str| {
        let path = gateway.dir.path().join("client.yaml");
        let rest = text.split_once("\nupstream:").expect("the rest").1;
        fs::write(&path, format!("listen: {listen}\nupstream:{rest}")).expect("it is writable");
        path.display().to_string()
    };
    let at = gateway.dir.path().display().to_string();
    let tls = format!("tls: {{cert: {at}/cert.pem, key: {at}/gone.pem}}");
    // It needs the certificate, and no key.
    let config = over(&format!("{{tcp: '{}', {tls}}}", gateway.addr()), &text);
    let (code, said) = command(&config, &["call", "two"]).await;
    assert_eq!((code, said.trim()), (Some(0), "two"));
    let (code, said) = command(&config, &["status"]).await;
    assert_eq!(code, Some(0), "{said}");
    let unix = over(&format!("{{tcp: '127.0.0.1:1', unix: {at}/sock, {tls}}}"), &text);
    let (code, said) = command(&unix, &["status"]).await;
    assert_eq!(code, Some(0), "the unix socket comes first: {said}");

    let other = gateway.dir.path().join("other.pem");
    fs::write(&other, gateway.authority.sign(NAMES).cert).expect("a new file");
    let config = over(
        &format!("{{tcp: '{}', tls: {{cert: {}, key: x}}}}", gateway.addr(), other.display()),
        &text,
    );
    let (code, said) = command(&config, &["status"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("listen.tls.cert"), "{said}");
    let asked = tls.replace("}", &format!(", client_ca: {at}/ca.pem}}"));
    let config = over(&format!("{{tcp: '{}', {asked}}}", gateway.addr()), &text);
    let (code, said) = command(&config, &["status"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unix socket"), "{said}");
}
