//! Addresses that a peer names, and names whose address changes: the bridge connects to what its
//! operator has configured, and writes down here who it connects to.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    frames::Script,
    gate::{Gate, Rules},
    mantyx::Mantyx,
    peers, wait,
};

/// What no peer may lead to, but for the bridge's own machine.
const EVIL: [&str; 18] = [
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:169.254.169.254]/x",
    "http://[fe80::1]/x",
    "http://[fd00:ec2::254]/x",
    "http://0xa9fea9fe/x",
    "http://0x7f000001:PORT/x",
    "http://017700000001:PORT/x",
    "http://[::1]:PORT/x",
    "http://127.1:PORT/x",
    "http://localhost:PORT/x",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/x",
    "http://HOST@127.0.0.1:PORT/x",
    "http://127.0.0.1:PORT#@HOST/x",
    "//127.0.0.1:PORT/x",
    "http://metadata.test/x",
    "https://127.0.0.1:PORT/x",
    "https://other.test:PORT/x",
];

const OK: [&str; 2] = ["HTTP/1.1 200 OK", "Content-Type: application/json"];

/// Whom a bridge connected to, and what the names below `.test` mean to it.
struct Watched {
    bridge: Bridge,
    dir: TempDir,
}

impl Watched {
    async fn start(config: &str) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let this = |name: &str| dir.path().join(name).display().to_string();
        let (names, connections) = (this("names"), this("connections"));
        fs::write(&names, "127.0.0.1").expect("a new file");
        let library = peers::names().display().to_string();
        let env = [
            ("LD_PRELOAD", library.as_str()),
            ("NAMES_FILE", &names),
            ("CONNECTIONS_FILE", &connections),
        ];
        let bridge = Bridge::start_with(config, &env).await;
        Self { bridge, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn means(&self, address: &str) {
        // In one piece: the bridge may be looking.
        fs::write(self.file("next"), address).expect("a new file");
        fs::rename(self.file("next"), self.file("names")).expect("a file of the test");
    }

    /// The addresses and ports that were connected to.
    fn connections(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("connections")).unwrap_or_default();
        let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    }
}

fn port(mantyx: &Mantyx) -> String {
    mantyx.url().rsplit(':').next().unwrap_or_default().to_owned()
}

fn card(rpc: &str, more: &str) -> String {
    format!(
        r#"{{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"{rpc}","preferredTransport":"JSONRPC","capabilities":{{}},"skills":[]{more}}}"#
    )
}

/// A15: `url`, `supportedInterfaces`, `iconUrl`, `jku`; `resource_metadata`, the metadata of an
/// authorization server; `$ref`.
#[tokio::test]
async fn address_that_a_peer_names_is_not_called() {
    let (mantyx, peer, victim) =
        (Mantyx::start().await, Mantyx::start().await, Mantyx::start().await);
    // By a name: what is on this machine is for servers that are on it by their own word.
    let host = format!("peer.test:{}", port(&peer));
    let own = format!("http://{host}");
    let (mut a2a, mut mcp, mut names) = (String::new(), String::new(), Vec::new());
    for (n, evil) in EVIL.iter().enumerate() {
        let evil = evil.replace("PORT", &port(&victim)).replace("HOST", &host);
        peer.canned("GET", &format!("/old_{n}"), &OK, &card(&evil, ""));
        let new = format!(
            r#"{{"name":"hr","description":"d","version":"1","supportedInterfaces":[{{"url":"{evil}","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}],"capabilities":{{}},"skills":[]}}"#
        );
        peer.canned("GET", &format!("/new_{n}"), &OK, &new);
        let oauth = "auth: {oauth: {client_id: b, client_secret: c-canary-secret}}";
        a2a.push_str(&format!(
            "  old_{n}: {{card_url: '{own}/old_{n}'}}\n  new_{n}: {{card_url: '{own}/new_{n}'}}\n"
        ));
        let challenge = format!("WWW-Authenticate: Bearer resource_metadata=\"{evil}\"");
        let refused = ["HTTP/1.1 401 Unauthorized", challenge.as_str()];
        peer.canned("POST", &format!("/named_{n}"), &refused, "");
        mcp.push_str(&format!("  named_{n}: {{url: '{own}/named_{n}', {oauth}}}\n"));
        // The metadata is where it may be, and leads to where nothing may.
        let metadata = format!("WWW-Authenticate: Bearer resource_metadata=\"{own}/meta_{n}\"");
        peer.canned("POST", &format!("/meant_{n}"), &["HTTP/1.1 401 Unauthorized", &metadata], "");
        let resource =
            format!(r#"{{"resource":"{own}/meant_{n}","authorization_servers":["{evil}"]}}"#);
        peer.canned("GET", &format!("/meta_{n}"), &OK, &resource);
        mcp.push_str(&format!("  meant_{n}: {{url: '{own}/meant_{n}', {oauth}}}\n"));
        let as_metadata = format!("WWW-Authenticate: Bearer resource_metadata=\"{own}/ok_{n}\"");
        peer.canned("POST", &format!("/led_{n}"), &["HTTP/1.1 401 Unauthorized", &as_metadata], "");
        let resource =
            format!(r#"{{"resource":"{own}/led_{n}","authorization_servers":["{own}/as_{n}"]}}"#);
        peer.canned("GET", &format!("/ok_{n}"), &OK, &resource);
        let issuer = format!(r#"{{"issuer":"{own}/as_{n}","token_endpoint":"{evil}"}}"#);
        let place = format!("/.well-known/oauth-authorization-server/as_{n}");
        peer.canned("GET", &place, &OK, &issuer);
        mcp.push_str(&format!("  led_{n}: {{url: '{own}/led_{n}', {oauth}}}\n"));
        names.extend(["old", "new", "named", "meant", "led"].map(|kind| format!("{kind}_{n}")));
    }
    // What is to be shown to people, or checked by keys elsewhere, is fetched by nobody.
    let seen = victim.url();
    let more = format!(
        r#","iconUrl":"{seen}/icon","documentationUrl":"{seen}/doc","signatures":[{{"protected":"e30","signature":"x","header":{{"jku":"{seen}/jku"}}}}]"#
    );
    peer.canned("GET", "/good", &OK, &card("/rpc", &more));
    peer.canned("POST", "/rpc", &OK, r#"{"jsonrpc":"2.0","id":1,"result":{"kind":"message","messageId":"m","role":"agent","parts":[]}}"#);
    a2a.push_str(&format!("  good: {{card_url: '{own}/good'}}\n"));
    let local = format!(
        "  refs: {{description: d, parameters: {{type: object, properties: {{a: {{$ref: '{seen}/schema'}}}}}}, command: [cat]}}\n"
    );
    let config = format!("{}mcp:\n{mcp}a2a:\n{a2a}local:\n{local}", mantyx.upstream());
    let watched = Watched::start(&config).await;
    for name in &names {
        wait::soon(&format!("{name} should be refused"), async || {
            watched.bridge.backend(name).await["lastError"].is_string().then_some(())
        })
        .await;
    }
    watched.bridge.wait_backend("good", "ready").await;
    for (name, args) in [("good", r#"{"message":"hi"}"#), ("refs", r#"{"a":1}"#)] {
        let call = format!(r#"{{"toolUseId":"tu_{name}","name":"{name}","args":{args}}}"#);
        watched.bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200);
    }
    assert!(victim.recorded().is_empty(), "{:?}", victim.recorded());
    let allowed = [format!("127.0.0.1 {}", port(&peer)), format!("127.0.0.1 {}", port(&mantyx))];
    let strange: Vec<_> =
        watched.connections().into_iter().filter(|one| !allowed.contains(one)).collect();
    assert!(strange.is_empty(), "nobody but these: {strange:?}");
    let log = watched.bridge.log();
    assert!(!log.contains("c-canary-secret") && !log.contains("panicked"));
}

/// A15: the address is looked at when it is dialled, and not before.
#[tokio::test]
async fn a_name_that_turns_link_local_is_not_dialled() {
    let mantyx = Mantyx::start().await;
    // It ends each connection after one answer, so that each request is dialled anew.
    let gate = Gate::start(Rules { open: "/", ..Rules::default() }).await;
    let public = gate.url().replace("127.0.0.1", "agent.test");
    let agent = peers::a2a_behind(&public, &[]).await;
    gate.leads_to(agent.url());
    let config =
        format!("{}a2a:\n  hr: {{url: '{public}', pending_after: off}}\n", mantyx.upstream());
    let watched = Watched::start(&config).await;
    watched.bridge.wait_backend("hr", "ready").await;
    let ask = async |id: &str| {
        mantyx.script(Script::new().a2a(id, "hr", "msg hello").answered(id).done());
        watched.bridge.post_run(r#"{"prompt":"x"}"#).await;
        mantyx.answer(id).await
    };
    assert_eq!(ask("tu_1").await["result"], "hello");
    for (n, address) in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"].iter().enumerate()
    {
        watched.means(address);
        let answer = ask(&format!("tu_bad_{n}")).await;
        let error = answer["error"].as_str().expect("it cannot be called").to_owned();
        assert!(error.contains("not made"), "{error}");
        assert!(!error.contains("169.254") && !error.contains("agent.test"), "no address: {error}");
    }
    let log = watched.bridge.log();
    assert!(log.contains("agent.test is a link-local"), "{log}");
    watched.means("127.0.0.1");
    assert_eq!(ask("tu_2").await["result"], "hello", "the name is good again");
    let connections = watched.connections();
    assert!(connections.iter().all(|one| one.starts_with("127.0.0.1 ")), "{connections:?}");
}

#[tokio::test]
async fn the_network_is_reached_by_the_proxies_of_the_environment() {
    let (mantyx, proxy) = (Mantyx::start().await, Mantyx::start().await);
    let target = "http://tools.test:8080/page";
    proxy.canned("POST", target, &OK, "by the proxy");
    let tool = "description: d, parameters: {type: object}";
    let config =
        format!("{}local:\n  far: {{{tool}, http: {{url: '{target}'}}}}\n", mantyx.upstream());
    let bridge = Bridge::start_with(&config, &[("HTTP_PROXY", &proxy.url())]).await;
    bridge.wait_backend("far", "ready").await;
    let call = r#"{"toolUseId":"tu_1","name":"far","args":{}}"#;
    let answer = bridge.api("POST", "/v1/tool-calls", Some(call)).await.expect(200);
    assert_eq!(answer["result"], "by the proxy", "{answer}");
    assert_eq!(proxy.recorded().len(), 1, "MANTYX is on this machine, and is reached without it");
}
