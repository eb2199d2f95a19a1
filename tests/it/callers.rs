//! Who may come in: users of this machine on a unix socket, tokens, and those who guess at them.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    harness::{LEDGER_TOOLS, ledger_in, tool_names},
    http::{Answer, Request},
    mantyx::Mantyx,
    peers::{self, debian},
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
        let mut curl = Command::new(debian::program("curl", "curl"));
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
async fn client_that_guesses_tokens_has_to_wait() {
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

/// A11: what is one app's is not there for another, though both share MANTYX's credential.
#[tokio::test]
async fn runs_and_calls_of_an_app_are_not_there_for_another() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let mantyx = Mantyx::start().await;
    let apps = "apps:\n  one: {token: token-of-one-canary}\n  two: {token: token-of-two-canary}\n";
    let config = format!("{}mcp:\n  plain: {plain}\n{apps}", mantyx.upstream());
    let mut bridge = Bridge::ready(&config).await;
    let ask = async |bridge: &Bridge, app: &str, method: &str, target: &str| -> Answer {
        let request = Request::new(method, target).bearer(&format!("token-of-{app}-canary"));
        let request = if method == "POST" { request.json("{}") } else { request };
        request.answer(bridge.addr()).await
    };
    mantyx.script(Script::new().delta("a").until("later").done());
    let created = ask(&bridge, "one", "POST", &format!("{API}/agent-runs")).await.expect(202);
    let run = created["runId"].as_str().expect("an id").to_owned();
    let created = ask(&bridge, "one", "POST", &format!("{API}/agent-sessions")).await;
    assert!(matches!(created.status, 200..=299), "{}", created.text());
    let session = created.value()["sessionId"].as_str().expect("an id").to_owned();

    let encoded = run.replacen(char::is_alphabetic, "%72", 1);
    assert!(run.starts_with('r') && encoded != run);
    let theirs = [
        ("GET", format!("{API}/agent-runs/{run}/stream")),
        ("GET", format!("{API}/agent-runs/{run}")),
        ("GET", format!("{API}/agent-runs/{encoded}")),
        ("GET", format!("{API}//agent-runs/{run}/")),
        ("GET", format!("{API}/eval-runs/{run}/stream")),
        ("POST", format!("{API}/agent-runs/{run}/cancel")),
        ("POST", format!("{API}/agent-runs/{run}/tool-results")),
        ("POST", format!("{API}/agent-runs/{run}/feedback")),
        ("POST", format!("{API}/agent-sessions/{session}/messages")),
        ("GET", format!("{API}/agent-sessions/{session}")),
        ("GET", format!("{API}/agent-sessions/{session}/events")),
        ("DELETE", format!("{API}/agent-sessions/{session}")),
    ];
    for restarted in [false, true] {
        if restarted {
            bridge.kill9();
            bridge.restart().await;
            bridge.wait_ready().await;
        }
        mantyx.forget_requests();
        let before = mantyx.recorded().len();
        for (method, target) in &theirs {
            let body = ask(&bridge, "two", method, target).await.expect_error(404);
            assert_eq!(body["error"], "not_found", "{method} {target}");
        }
        // The run is driven meanwhile, by the app that it is.
        let asked = mantyx.recorded().split_off(before);
        let others = asked.iter().filter(|seen| !seen.target.contains("/stream"));
        assert_eq!(others.count(), 0, "MANTYX is not asked");
        // The bridge's own: not yours is the same as not there.
        let theirs = ask(&bridge, "two", "GET", &format!("/v1/runs/{run}")).await;
        let absent = ask(&bridge, "two", "GET", "/v1/runs/run_absent").await;
        assert_eq!((theirs.status, theirs.text()), (404, absent.text()));
        let attach = format!("/v1/runs/{run}/attach");
        ask(&bridge, "two", "POST", &attach).await.expect_error(404);
        for list in ["runs", "calls"] {
            let shown = ask(&bridge, "two", "GET", &format!("/v1/{list}")).await.expect(200);
            assert_eq!(shown[list], serde_json::json!([]), "{shown}");
        }
    }
    let mine = ask(&bridge, "one", "GET", &format!("/v1/runs/{run}")).await;
    assert_eq!(mine.status, 200, "{}", mine.text());
    mantyx.release("later");
    let ended = ask(&bridge, "one", "GET", &format!("{API}/agent-runs/{run}/stream")).await;
    assert!(ended.text().contains("event: result"), "{}", ended.text());
}

/// Of a server an app has the tools that it was given, by whatever door it comes in.
#[tokio::test]
async fn an_app_has_the_tools_that_it_was_given() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger_in(&dir), &[]);
    let mantyx = Mantyx::start().await;
    let apps = "apps:\n  one: {token: token-of-one-canary, \
                tools: {plain: {allow: ['n*'], deny: [nothing]}}}\n  \
                two: {token: token-of-two-canary}\n";
    let config = format!("{}mcp:\n  plain: {plain}\n{apps}", mantyx.upstream());
    let bridge = Bridge::ready(&config).await;
    let ask = async |app: &str, target: &str, body: &str| -> Answer {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let request = Request::new(method, target).bearer(&format!("token-of-{app}-canary"));
        let request = if body.is_empty() { request } else { request.json(body) };
        request.answer(bridge.addr()).await
    };
    let refs = ask("one", "/v1/tool-refs", "").await.expect(200);
    assert_eq!(tool_names(&refs), ["plain_note"]);
    let all = ask("two", "/v1/tool-refs", "").await.expect(200);
    assert_eq!(tool_names(&all), LEDGER_TOOLS);
    assert_ne!(refs["digest"], all["digest"]);

    // By hand.
    let call = |name: &str| {
        json!({"toolUseId": "tu_hand", "name": name, "kind": "mcp_local", "mcpServer": "plain",
            "args": {"text": "by hand"}})
        .to_string()
    };
    let denied = ask("one", "/v1/tool-calls", &call("plain_args")).await.expect(200);
    let error = denied["error"].as_str().expect("an error");
    assert!(error.contains("`plain_args`"), "{denied}");
    let made = ask("one", "/v1/tool-calls", &call("plain_note")).await.expect(200);
    assert_eq!(made["result"], "noted: by hand");

    // In a run, where MANTYX asks for more than was given.
    let script = Script::new()
        .mcp("tu_denied", "plain", "plain_args", "{}")
        .mcp("tu_given", "plain", "plain_note", r#"{"text":"given"}"#)
        .answered("tu_given");
    mantyx.script(script.done());
    let created = ask("one", &format!("{API}/agent-runs"), r#"{"prompt":"x"}"#).await;
    assert_eq!(created.header("x-bridge-injected"), Some("plain=1"));
    let run = created.expect(202)["runId"].as_str().expect("an id").to_owned();
    assert_eq!(mantyx.answer("tu_given").await["result"], "noted: given");
    let stream = ask("one", &format!("{API}/agent-runs/{run}/stream"), "").await;
    assert!(stream.text().contains("event: result"), "{}", stream.text());
    let asked = stream.text().matches("event: local_tool_call").count();
    assert_eq!(asked, 1, "what was not given is nobody's here: {}", stream.text());
    assert!(mantyx.posts("tu_denied").is_empty());
    assert_eq!(tool_names(&mantyx.only("POST", "/agent-runs").value()), ["plain_note"]);
}

/// A limit of one app's requests, and of no other's.
#[tokio::test]
async fn an_app_sends_no_more_requests_than_it_may() {
    let apps = "apps:\n  one: {token: token-of-one-canary, rate: {per_second: 1, burst: 5}}\n  \
                two: {token: token-of-two-canary}\n";
    let bridge = Bridge::ready(&format!("upstream: {{sandbox: true}}\n{apps}")).await;
    let ask = |app: &str| {
        let token = format!("token-of-{app}-canary");
        Request::new("GET", "/v1/calls").bearer(&token).answer(bridge.addr())
    };
    let answers = futures_util::future::join_all((0..50).map(|_| ask("one"))).await;
    let went = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((5..50).contains(&went), "{went}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.expect_error(429)["error"], "too_many_requests");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    for answer in futures_util::future::join_all((0..50).map(|_| ask("two"))).await {
        answer.expect(200);
    }
}
