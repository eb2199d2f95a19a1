//! `upstream.oauth`: MANTYX behind a gate that lets nothing through without the token that it
//! issued last for a refresh token.

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    gate::{CLIENT, Gate, Rules},
    harness::ledger_in,
    mantyx::Mantyx,
    peers, wait,
};

const RULES: Rules = Rules {
    lifetime: std::time::Duration::from_secs(3600),
    open: "/nothing",
    wants_post: true,
    has_metadata: false,
    rotates: false,
};

struct Scene {
    bridge: Bridge,
    gate: Gate,
    mantyx: Mantyx,
    dir: TempDir,
}

impl Scene {
    async fn start(rules: Rules, refresh_token: &str) -> Self {
        let (mantyx, gate) = (Mantyx::start().await, Gate::start(rules).await);
        gate.leads_to(&mantyx.url());
        gate.grants(Some("refresh-canary-0"));
        let dir = TempDir::new().expect("the temporary directory is writable");
        let config = config(&gate, refresh_token, &dir);
        // So that whatever is ever logged is seen.
        let bridge = Bridge::start_with(&config, &[("RUST_LOG", "trace")]).await;
        bridge.wait_ready().await;
        bridge.wait_backend("plain", "ready").await;
        Self { bridge, gate, mantyx, dir }
    }

    /// A run whose one call is answered.
    async fn run(&self, id: &str) {
        self.mantyx.script(Script::one_call(id, "plain", "plain_note", r#"{"text":"a"}"#));
        self.bridge.post_run(r#"{"prompt":"hi"}"#).await;
        self.mantyx.answer(id).await;
    }

    /// An app asks for something when the token is good no more, and is gone when the issuer has
    /// issued another one, and has not answered yet.
    async fn hang_up_while_asked(&self) {
        let before = self.gate.asked().len();
        self.gate.revoke();
        self.gate.hold(true);
        let request = self.bridge.request("GET", &format!("{API}/models"));
        tokio::select! {
            answer = request.answer(self.bridge.addr()) => panic!("{}", answer.text()),
            () = wait::soon("the issuer should be asked", async || {
                (self.gate.asked().len() > before).then_some(())
            }) => (),
        }
    }

    /// No secret got anywhere but where it belongs.
    async fn nothing_leaked(&self) {
        let status = self.bridge.status().await.to_string();
        let metrics = self.bridge.api("GET", "/metrics", None).await.text();
        for text in [self.bridge.log(), status, metrics] {
            let found = text.lines().find(|line| line.contains("canary"));
            assert!(found.is_none(), "{found:?}");
        }
    }
}

fn oauth(gate: &Gate, refresh_token: &str) -> String {
    let ((id, secret), url) = (CLIENT, gate.url());
    format!(
        "upstream: {{base_url: \"{url}\", workspace: acme, oauth: {{token_url: \"{url}/token\", \
         client_id: {id}, client_secret: {secret}, refresh_token: {refresh_token}}}}}\n"
    )
}

fn config(gate: &Gate, refresh_token: &str, dir: &TempDir) -> String {
    let plain = peers::ledger(&ledger_in(dir), &[]);
    format!("{}mcp:\n  plain: {plain}\n", oauth(gate, refresh_token))
}

#[tokio::test]
async fn mantyx_is_shown_a_token_that_is_renewed() {
    let scene = Scene::start(RULES, "refresh-canary-0").await;
    let first = wait::soon("a token should be fetched before anybody asks", async || {
        scene.gate.asked().first().cloned()
    })
    .await;
    assert_eq!(
        first,
        "grant_type=refresh_token&refresh_token=refresh-canary-0&client_id=bridge&\
         client_secret=s3cret-canary"
    );
    scene.run("tu_1").await;
    scene.gate.revoke();
    scene.run("tu_2").await;
    assert_eq!(scene.gate.issued(), 2);
    for seen in scene.mantyx.recorded() {
        let shown = seen.header("authorization").unwrap_or_default();
        assert!(shown.starts_with("Bearer token-canary-"), "{seen:?}");
        assert!(!seen.text().contains("canary"), "{seen:?}");
    }
    scene.nothing_leaked().await;
}

#[tokio::test]
async fn many_requests_at_once_renew_one_token() {
    let scene = Scene::start(RULES, "refresh-canary-0").await;
    scene.run("tu_1").await;
    scene.gate.revoke();
    let ask = || scene.bridge.api("GET", "/api/v1/workspaces/acme/models", None);
    let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
    // Whatever MANTYX says to it, it is MANTYX that says it.
    assert!(answers.iter().all(|answer| answer.status != 502 && answer.status != 401));
    assert_eq!(scene.gate.issued(), 2);
}

#[tokio::test]
async fn a_refresh_token_that_replaces_another_outlives_a_restart() {
    let rules = Rules { rotates: true, ..RULES };
    let mut scene = Scene::start(rules, "refresh-canary-0").await;
    scene.run("tu_1").await;
    scene.gate.revoke();
    scene.run("tu_2").await;
    scene.bridge.stop().await;
    scene.bridge.restart().await;
    scene.run("tu_3").await;
    let shown = scene.gate.asked();
    for (number, form) in shown.iter().enumerate() {
        assert!(form.contains(&format!("refresh_token=refresh-canary-{number}&")), "{shown:?}");
    }
    assert_eq!(shown.len(), 3);
    // Somebody logs in anew, which the file says; what was kept is of the grant before.
    scene.gate.grants(Some("anew-canary"));
    let config = config(&scene.gate, "anew-canary", &scene.dir);
    scene.bridge.set_config(&config);
    scene.bridge.process().signal(Signal::HUP);
    wait::soon("the new one should be shown", async || {
        let last = scene.gate.asked().pop()?;
        last.contains("refresh_token=anew-canary&").then_some(())
    })
    .await;
    scene.run("tu_4").await;
    scene.nothing_leaked().await;
}

/// The new refresh token is in the answer that the issuer is about to give, and nowhere else.
#[tokio::test]
async fn an_app_that_hangs_up_loses_no_refresh_token() {
    let mut scene = Scene::start(Rules { rotates: true, ..RULES }, "refresh-canary-0").await;
    scene.run("tu_1").await;
    scene.hang_up_while_asked().await;
    scene.gate.hold(false);
    scene.bridge.api("GET", &format!("{API}/models"), None).await.expect(200);
    scene.bridge.stop().await;
    scene.bridge.restart().await;
    scene.run("tu_2").await;
    // This time, the bridge goes as well.
    scene.hang_up_while_asked().await;
    scene.bridge.process().signal(Signal::TERM);
    wait::soon("the bridge should be stopping", async || {
        scene.bridge.log().contains("stopping").then_some(())
    })
    .await;
    scene.gate.hold(false);
    scene.bridge.stop().await;
    scene.bridge.restart().await;
    scene.run("tu_3").await;
    let shown = scene.gate.asked();
    assert_eq!(shown.len(), 5, "{shown:?}");
    for (number, form) in shown.iter().enumerate() {
        assert!(form.contains(&format!("refresh_token=refresh-canary-{number}&")), "{shown:?}");
    }
    scene.nothing_leaked().await;
}

#[tokio::test]
async fn a_grant_that_has_ended_is_a_problem_with_its_cure() {
    let scene = Scene::start(RULES, "revoked-canary").await;
    let problem = wait::soon("the problem should be told", async || {
        let status = scene.bridge.status().await;
        let problem = status["problems"].as_array()?.first()?.clone();
        (problem["subject"] == "upstream").then_some(problem)
    })
    .await;
    let message = problem["message"].as_str().unwrap_or_default();
    assert!(message.contains("invalid_grant"), "{problem}");
    assert!(problem["cure"].as_str().unwrap_or_default().contains("refresh_token"), "{problem}");
    for _ in 0..10 {
        let answer = scene.bridge.api("POST", &format!("{API}/agent-runs"), Some("{}")).await;
        assert_eq!(answer.expect(502)["code"], "upstream_unauthorized");
    }
    assert_eq!(scene.gate.asked().len(), 1, "it is left alone");
    assert!(scene.mantyx.recorded().is_empty());
    scene.nothing_leaked().await;
}
