//! Backends with a TLS of their own: an authority that the machine does not know, and a server that
//! lets in only who shows a certificate.

use crate::{
    certs::{Authority, Pair},
    frames::Script,
    gate::{CLIENT, Gate, Rules},
    harness::Harness,
    mantyx::Mantyx,
    peers::{self, Peer},
    tls_front::Front,
    wait,
};

const CARD: &str = r#"{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"/rpc","preferredTransport":"JSONRPC","capabilities":{},"skills":[]}"#;
const REPLY: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"hello"}]}}"#;
const OK: [&str; 2] = ["HTTP/1.1 200 OK", "Content-Type: application/json"];

/// The `tls` that the server of [`peers::tls_before`] wants.
fn tls() -> String {
    let file = |name: &str| peers::repository("tests/peers").join(name).display().to_string();
    let (ca, own) = (file("tls.pem"), file("client.pem"));
    format!("tls: {{ca: {ca}, cert: {own}, key: {own}}}")
}

fn https(peer: &Peer) -> String {
    peer.url().replace("http://", "https://")
}

/// C3, C5: what is shown to a server is that server's alone.
#[tokio::test]
async fn every_kind_of_backend_shows_its_certificate_and_knows_its_authority() {
    let (everything, plain) = (peers::everything_http().await, Mantyx::start().await);
    plain.canned("GET", "/.well-known/agent-card.json", &OK, CARD);
    plain.canned("POST", "/rpc", &OK, REPLY);
    plain.canned("POST", "/page", &OK, "paged");
    let (mcp, rest) =
        (peers::tls_before(everything.url()).await, peers::tls_before(&plain.url()).await);
    let (mcp, rest, tls) = (https(&mcp), https(&rest), tls());
    let tool = "description: d, parameters: {type: object}";
    let config = format!(
        "mcp:\n  ev: {{url: '{mcp}/mcp', {tls}}}\n  bare: {{url: '{mcp}/mcp'}}\n\
         a2a:\n  hr: {{url: '{rest}', {tls}}}\n\
         local:\n  page: {{{tool}, http: {{url: '{rest}/page', {tls}}}}}\n  \
         shy: {{{tool}, http: {{url: '{rest}/page'}}}}\n"
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("ev", "ready").await;
    rig.bridge.wait_backend("hr", "ready").await;
    let script = Script::new()
        .mcp("tu_mcp", "ev", "ev_echo", r#"{"message":"hi"}"#)
        .a2a("tu_a2a", "hr", "hi")
        .local("tu_page", "page", "{}")
        .local("tu_shy", "shy", "{}");
    rig.run(script.answered("tu_mcp").answered("tu_a2a").answered("tu_page").done()).await;
    assert_eq!(rig.mantyx.answer("tu_mcp").await["result"], "Echo: hi");
    assert_eq!(rig.mantyx.answer("tu_a2a").await["result"], "hello");
    assert_eq!(rig.mantyx.answer("tu_page").await["result"], "paged");
    let error = rig.mantyx.answer("tu_shy").await["error"].to_string();
    assert!(error.contains("not made"), "nobody vouches for the server: {error}");
    let bare = rig.bridge.backend("bare").await;
    assert!(bare["lastError"].as_str().is_some_and(|e| e.contains("certificate")), "{bare}");
}

#[tokio::test]
async fn a_reload_takes_other_files() {
    let everything = peers::everything_http().await;
    let front = peers::tls_before(everything.url()).await;
    let mut rig = Harness::bare("").await;
    let text = |tls: &str| {
        format!("{}mcp:\n  ev: {{url: '{}/mcp', {tls}}}\n", rig.mantyx.upstream(), https(&front))
    };
    let (right, wrong) = (text(&tls()), text(&tls().replacen("tls.pem", "client.pem", 1)));
    rig.bridge.set_config(&wrong);
    wait::soon("the wrong authority should be told", async || {
        let status = rig.bridge.status().await;
        let error = status["backends"][0]["lastError"].as_str()?.to_owned();
        error.contains("certificate").then_some(())
    })
    .await;
    rig.bridge.set_config(&right);
    rig.bridge.wait_backend("ev", "ready").await;
}

/// Whoever issues tokens on the backend's own origin is that backend.
#[tokio::test]
async fn tokens_of_the_same_origin_are_fetched_by_the_same_tls() {
    let (gate, everything) = (Gate::start(Rules::default()).await, peers::everything_http().await);
    gate.leads_to(everything.url());
    let front = peers::tls_before(&gate.url()).await;
    let (url, (id, secret)) = (https(&front), CLIENT);
    let oauth = format!("client_id: {id}, client_secret: {secret}, token_url: '{url}/token'");
    let config =
        format!("mcp:\n  ev: {{url: '{url}/mcp', {}, auth: {{oauth: {{{oauth}}}}}}}\n", tls());
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("ev", "ready").await;
    assert_eq!(gate.issued(), 1);
}

/// What `openssl req -x509` makes is named in `tls.ca`, as `curl --cacert` takes it.
#[tokio::test]
async fn a_certificate_that_a_server_has_signed_itself_can_be_named() {
    let peer = peers::everything_http().await;
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let file = |name: &str, pair: &Pair| {
        let path = dir.path().join(name);
        std::fs::write(&path, &pair.cert).expect("the directory is writable");
        path.display().to_string()
    };
    let own = Authority::self_signed(&["127.0.0.1"], 10);
    let [old, others, foreign] = [(-1, "127.0.0.1"), (10, "hr.acme"), (10, "127.0.0.1")]
        .map(|(days, name)| Authority::self_signed(&[name], days));
    let before = async |pair: &Pair| Front::showing(pair, peer.url(), None, "http/1.1").await;
    let fronts = [before(&own).await, before(&old).await, before(&others).await];
    let entry = |name: &str, front: &Front, ca: &Pair| {
        format!("  {name}: {{url: '{}/mcp', tls: {{ca: {}}}}}\n", front.url(), file(name, ca))
    };
    let config = format!(
        "mcp:\n{}{}{}{}",
        entry("good", &fronts[0], &own),
        entry("old", &fronts[1], &old),
        entry("others", &fronts[2], &others),
        entry("foreign", &fronts[0], &foreign)
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("good", "ready").await;
    for (name, why) in [("old", "expired"), ("others", "another name"), ("foreign", "authority")] {
        rig.bridge.wait_backend(name, "down").await;
        let error = rig.bridge.backend(name).await["lastError"].to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    let status = rig.bridge.status().await;
    let problems = status["problems"].as_array().expect("a list");
    let of = |name: &str| problems.iter().find(|problem| problem["subject"] == name);
    let cure = of("foreign").expect("a problem")["cure"].to_string();
    assert!(cure.contains("tls: {ca: …}") && cure.contains("doctor foreign"), "{cure}");
}
