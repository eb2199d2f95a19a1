//! Who may come in: users of this machine on a unix socket, tokens, and those who guess at them.

use std::{fmt::Write as _, path::PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    bridge::{API, Bridge},
    http::Request,
    mantyx::Mantyx,
};

const TOKEN: &str = "a-token-of-one-app-canary";

/// A bridge that listens on a unix socket, too, with these `apps`.
struct Host {
    bridge: Bridge,
    socket: PathBuf,
    _dir: TempDir,
}

impl Host {
    async fn start(upstream: &str, apps: &str) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let socket = dir.path().join("bridge.sock");
        let listen = format!("listen: {{tcp: 127.0.0.1:0, unix: {}}}\n", socket.display());
        let bridge = Bridge::ready(&format!("{upstream}{listen}apps:\n{apps}")).await;
        Self { bridge, socket, _dir: dir }
    }

    /// The status and the body of an answer to this test's own user, over the unix socket.
    async fn over_unix(&self, target: &str, headers: &[&str]) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", "\n%{http_code}", "--unix-socket"]).arg(&self.socket);
        for header in headers {
            curl.args(["-H", header]);
        }
        let ran = curl.arg(format!("http://localhost{target}")).output().await.expect("curl runs");
        let text = String::from_utf8(ran.stdout).expect("the answers are text");
        let (body, status) = text.rsplit_once('\n').expect("the status comes last");
        (status.parse().expect("a status"), body.to_owned())
    }
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// A33: the kernel's word is a token for the users that are named, and nobody else comes in because
/// the socket's mode lets him connect.
#[tokio::test]
async fn a_user_of_an_app_needs_no_token_on_the_unix_socket() {
    let mantyx = Mantyx::start().await;
    let (uid, other) = (own_uid(), own_uid() + 1);
    let apps = format!("  mine: {{users: [{uid}]}}\n  tokens: {{token: {TOKEN}}}\n");
    let mut host = Host::start(&mantyx.upstream(), &apps).await;
    assert_eq!(host.over_unix("/v1/status", &[]).await.0, 200);
    let models = format!("{API}/models");
    // SDKs show something, whether or not it is wanted.
    assert_eq!(host.over_unix(&models, &["Authorization: Bearer unused"]).await.0, 200);
    let seen = mantyx.only("GET", "/models");
    assert!(!format!("{seen:?}").contains("unused"), "MANTYX is shown the bridge's credential");
    let over_tcp = Request::new("GET", "/v1/status").answer(host.bridge.addr()).await;
    assert_eq!(over_tcp.status, 401, "an address is no user");
    // A page in a browser cannot open the socket, but a program may be made to carry its requests.
    assert_eq!(host.over_unix("/v1/status", &["Origin: http://evil.example"]).await.0, 403);

    let config = std::fs::read_to_string(host.bridge.config_path()).expect("the configuration");
    let config = config.replace(&format!("users: [{uid}]"), &format!("users: [{other}]"));
    host.bridge.stop().await;
    host.bridge.set_config(&config);
    host.bridge.restart().await;
    let (status, body) = host.over_unix("/v1/status", &[]).await;
    assert_eq!(status, 401, "{body}");
    let log = host.bridge.log();
    assert!(log.contains(&format!("\"peer\":\"unix, uid {uid}, pid ")), "{log}");
    let shown = format!("X-API-Key: {TOKEN}");
    assert_eq!(host.over_unix("/v1/status", &[&shown]).await.0, 200, "a token is enough");
}

/// A9: failures are answered with 429 when there are too many of them, and counted. Who is right
/// comes in all the same where callers cannot be told apart, and waits where it is the same user.
#[tokio::test]
async fn who_guesses_has_to_wait() {
    let apps = format!("  one: {{token: {TOKEN}}}\n");
    let host = Host::start("upstream: {sandbox: true}\n", &apps).await;
    let guess = || Request::new("GET", "/v1/status").bearer("guess").answer(host.bridge.addr());
    let answers = futures_util::future::join_all((0..60).map(|_| guess())).await;
    let refused = answers.iter().filter(|answer| answer.status == 401).count();
    let waits: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused + waits.len(), 60);
    assert!(refused >= 10 && !waits.is_empty(), "{refused} of 60 are told that they are wrong");
    for answer in &waits {
        assert_eq!(answer.expect_error(429)["error"], "too_many_failures");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let right = Request::new("GET", "/metrics").bearer(TOKEN).answer(host.bridge.addr()).await;
    assert_eq!(right.status, 200);
    let counted = format!("{{code=\"too_many_failures\"}} {}", waits.len());
    assert!(right.text().contains(&counted), "{}", right.text());

    // One user is one peer.
    let mut statuses = String::new();
    for _ in 0..100 {
        let (status, _) = host.over_unix("/v1/status", &["X-API-Key: guess"]).await;
        write!(statuses, "{status} ").expect("a text");
        if status == 429 {
            break;
        }
    }
    assert!(statuses.starts_with("401 "), "{statuses}");
}
