//! `upstream.tls`: MANTYX behind an authority of its own, which lets in only who shows a
//! certificate.

use std::fs;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    bridge::{API, Bridge},
    certs::Authority,
    cli,
    frames::Script,
    gate::{CLIENT, Gate, Rules},
    http::Answer,
    mantyx::{CREDENTIAL, Mantyx},
    peers,
    tls_front::{Front, client_files},
    wait,
};

const OK_JSON: [&str; 2] = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
const MODELS: &str = r#"{"models":[]}"#;
const TOOL: &str =
    "local:\n  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n";

/// MANTYX, and what it takes to reach it.
struct Scene {
    mantyx: Mantyx,
    authority: Authority,
    dir: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let mantyx = Mantyx::start().await;
        mantyx.canned("GET", &format!("{API}/models"), &OK_JSON, MODELS);
        let dir = TempDir::new().expect("the temporary directory is writable");
        Self { mantyx, authority: Authority::new(), dir }
    }

    /// A front before `to` that knows the certificates of its own authority alone.
    async fn front(&self, to: &str) -> Front {
        Front::before(to, &self.authority, Some(&self.authority), "http/1.1").await
    }

    /// The files of the bridge, and `tls` of them.
    fn tls(&self) -> String {
        client_files(self.dir.path(), &self.authority, &self.authority.sign(&["bridge.acme"]))
    }
}

fn config(url: &str, credential: &str, tls: &str) -> String {
    format!("upstream: {{base_url: '{url}', workspace: acme, {credential}, {tls}}}\n{TOOL}")
}

fn own_credential() -> String {
    format!("credential: {CREDENTIAL}")
}

fn oauth(token_url: &str) -> String {
    let (id, secret) = CLIENT;
    format!(
        "oauth: {{token_url: '{token_url}', client_id: {id}, client_secret: {secret}, \
         refresh_token: refresh-canary}}"
    )
}

async fn models(bridge: &Bridge) -> Answer {
    bridge.api("GET", &format!("{API}/models"), None).await
}

/// Whether the log has these words in a line that is no less than a warning.
fn warns(bridge: &Bridge, words: &str) -> bool {
    bridge.log().lines().any(|line| line.contains(words) && !line.contains("\"level\":\"DEBUG\""))
}

/// Streams, results, what apps ask, tokens of the same origin, and `doctor`.
#[tokio::test]
async fn every_request_to_mantyx_shows_the_certificate_and_knows_the_authority() {
    let scene = Scene::new().await;
    let gate = Gate::start(Rules { wants_post: true, ..Rules::default() }).await;
    gate.leads_to(&scene.mantyx.url());
    gate.grants(Some("refresh-canary"));
    let front = scene.front(&gate.url()).await;
    let url = front.url();
    let bridge = Bridge::ready(&config(&url, &oauth(&format!("{url}/token")), &scene.tls())).await;
    assert_eq!(models(&bridge).await.text(), MODELS);
    scene.mantyx.script(Script::new().local("tu_1", "ok", "{}").answered("tu_1").done());
    bridge.post_run(r#"{"prompt":"hi"}"#).await;
    assert_eq!(scene.mantyx.answer("tu_1").await["result"], "hi");
    assert_eq!(gate.issued(), 1);
    let path = bridge.config_path();
    let ran = cli::run(&["doctor", "--json", "-c", path.to_str().expect("UTF-8")]).await;
    let steps = &ran.expect(cli::OK).json()["examined"][1]["steps"];
    let names = steps.as_array().expect("steps").iter().map(|step| step["step"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["tcp", "tls", "auth"], "{steps}");
}

#[tokio::test]
async fn a_wrong_authority_is_told_and_the_right_one_is_taken_by_a_reload() {
    let scene = Scene::new().await;
    let front = scene.front(&scene.mantyx.url()).await;
    let (tls, ca) = (scene.tls(), scene.dir.path().join("ca.pem"));
    let other = Authority::new();
    fs::write(&ca, other.pem()).expect("it is writable");
    let mut bridge = Bridge::ready(&config(&front.url(), &own_credential(), &tls)).await;
    assert_eq!(models(&bridge).await.status, 502);
    let told = "authority";
    let status = bridge.status().await;
    let error = status["upstream"]["lastError"].as_str().unwrap_or_default();
    assert!(error.contains(told), "{status}");
    let problem = &status["problems"][0];
    assert!(problem["cure"].as_str().is_some_and(|cure| cure.contains("upstream.tls")), "{status}");
    assert!(warns(&bridge, told), "{}", bridge.log());
    assert_eq!((front.let_in(), scene.mantyx.recorded().len()), (0, 0));

    fs::write(&ca, scene.authority.pem()).expect("it is writable");
    bridge.process().signal(Signal::HUP);
    wait::soon("the right authority should be taken", async || {
        (models(&bridge).await.status == 200).then_some(())
    })
    .await;
    let status = bridge.status().await;
    assert_eq!(status["upstream"]["reachable"], true, "{status}");
    assert_eq!(status["config"]["lastError"], serde_json::Value::Null, "{status}");
}

#[tokio::test]
async fn a_certificate_that_mantyx_does_not_know_is_told() {
    let scene = Scene::new().await;
    let front = scene.front(&scene.mantyx.url()).await;
    let strange = Authority::new().sign(&["bridge.acme"]);
    let tls = client_files(scene.dir.path(), &scene.authority, &strange);
    let bridge = Bridge::ready(&config(&front.url(), &own_credential(), &tls)).await;
    assert_eq!(models(&bridge).await.status, 502);
    let status = bridge.status().await;
    let error = status["upstream"]["lastError"].as_str().unwrap_or_default();
    assert!(error.contains("certificate"), "{status}");
    assert_eq!(scene.mantyx.recorded().len(), 0);
}

/// Whoever issues tokens elsewhere is not MANTYX.
#[tokio::test]
async fn another_origin_that_issues_tokens_is_reached_as_any_other() {
    let scene = Scene::new().await;
    let gate = Gate::start(Rules { wants_post: true, ..Rules::default() }).await;
    gate.grants(Some("refresh-canary"));
    let front = scene.front(&scene.mantyx.url()).await;
    let issuer = Front::before(&gate.url(), &scene.authority, None, "http/1.1").await;
    let oauth = oauth(&format!("{}/token", issuer.url()));
    let bridge = Bridge::ready(&config(&front.url(), &oauth, &scene.tls())).await;
    let error = wait::soon("the issuer should be told of", async || {
        bridge.status().await["upstream"]["tokenError"].as_str().map(str::to_owned)
    });
    let error = error.await;
    assert!(error.contains("authority"), "{error}");
    assert_eq!((issuer.let_in(), gate.asked().len()), (0, 0));
}

/// Streams stay open for as long as their runs, and a large result would delay small ones.
#[tokio::test]
async fn small_results_share_one_http2_connection() {
    let mantyx = Mantyx::start().await;
    let front = peers::http2_before(&mantyx.url()).await;
    let url = front.url().replace("http://", "https://");
    let ca = peers::repository("tests/peers/tls.pem");
    let tls = format!("tls: {{ca: {}}}", ca.display());
    let big = "  big:\n    description: d\n    parameters: {type: object}\n    command: [sh, -c, \"head -c \
               70000 /dev/zero | tr '\\\\0' x\"]\n";
    let bridge = Bridge::ready(&(config(&url, &own_credential(), &tls) + big)).await;
    for number in 0..3 {
        let (small, large) = (format!("tu_{number}"), format!("large_{number}"));
        let script = Script::new().local(&small, "ok", "{}").local(&large, "big", "{}");
        mantyx.script(script.answered(&small).answered(&large).done());
        bridge.post_run(r#"{"prompt":"hi"}"#).await;
        assert_eq!(mantyx.answer(&small).await["result"], "hi");
        let result = mantyx.answer(&large).await["result"].as_str().map(str::len);
        assert_eq!(result, Some(70_000));
    }
    let log = front.log();
    let of = |words: &str| log.lines().filter(|line| line.starts_with(words)).count();
    assert_eq!(of("session"), 1, "{log}");
    let posts =
        log.lines().filter(|line| line.contains(" POST ") && line.contains("/tool-results"));
    let versions: Vec<&str> = posts.filter_map(|line| line.split(' ').next()).collect();
    let count = |version| versions.iter().filter(|it| **it == version).count();
    assert_eq!((count("2.0"), count("1.1")), (3, 3), "{log}");
    assert_eq!(of("2.0 GET"), 0, "{log}");
    assert!(of("1.1 GET") >= 3, "{log}");
}
