//! Logins of the bridge: a person logs in with the real command at a real issuer, and the bridge
//! keeps the login.

mod issuers;
mod kills;
mod told;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Output, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::{
    bridge::{self, Bridge},
    http::{Answer, Request},
    peers::{self, Peer, fetch, repository},
    wait,
};

/// A bridge whose one backend wants a login.
struct Scene {
    bridge: Bridge,
    issuer: Peer,
}

/// A command that waits for a person.
struct Waiting {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The bridge's address for a browser.
    url: String,
}

impl Scene {
    /// A bridge and an issuer whose access tokens live for so many seconds.
    async fn start(seconds: u64) -> Self {
        Self::start_with(seconds, "", "").await
    }

    /// `keys` stand in the backend's entry, and `more` before the sections.
    async fn start_with(seconds: u64, keys: &str, more: &str) -> Self {
        let issuer = peers::issuer(seconds).await;
        let url = issuer.url();
        let config = format!(
            "upstream: {{sandbox: true, workspace: acme}}\n{more}mcp:\n  notion: {{url: \
             \"{url}/mcp\"{keys}}}\n"
        );
        let bridge = Bridge::start_with(&config, &[("RUST_LOG", "trace")]).await;
        Self { bridge, issuer }
    }

    /// What the issuer has seen; `change` is made first.
    async fn world(&self, change: Value) -> Value {
        let addr = self.issuer.url().trim_start_matches("http://").parse().expect("an address");
        let request = Request::new("POST", "/admin").json(change.to_string());
        request.answer(addr).await.expect(200)
    }

    async fn run(&self, args: &[&str]) -> Output {
        command(&self.bridge, args).output().await.expect("it runs")
    }

    async fn begin(&self) -> Waiting {
        Waiting::begin(&self.bridge).await
    }
    /// A person logs in; what the command says then.
    async fn log_in(&self) -> String {
        let waiting = self.begin().await;
        let page = person(&[&waiting.url]).await;
        assert!(page.contains("200 ") && page.contains("Logged in: notion"), "{page}");
        waiting.end().await
    }

    async fn logins(&self) -> Value {
        self.as_operator("GET", "/v1/logins", None).await.expect(200)["logins"].clone()
    }

    async fn as_operator(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let request = self.bridge.request(method, path);
        let request = request.header("X-Bridge-Operator", &self.bridge.operator());
        let request = match body {
            Some(body) => request.json(body.to_string()),
            None => request,
        };
        request.answer(self.bridge.addr()).await
    }

    /// One call of the server's tool.
    async fn call(&self) -> Value {
        let event = json!({ "toolUseId": "tu_1", "name": "notion_whoami", "args": {} });
        self.bridge.api("POST", "/v1/tool-calls", Some(&event.to_string())).await.value()
    }

    /// The present problem of the backend whose message has `part`.
    async fn problem(&self, part: &str) -> Value {
        wait::soon("the problem should be told", async || {
            let status = self.bridge.status().await;
            let mut problems = status["problems"].as_array()?.iter();
            let is_it = |problem: &&Value| {
                problem["subject"] == "notion"
                    && problem["message"].as_str().is_some_and(|text| text.contains(part))
            };
            problems.find(is_it).cloned()
        })
        .await
    }
}

/// A command for the daemon.
fn command(bridge: &Bridge, args: &[&str]) -> Command {
    let mut command = Command::from(bridge::command());
    command.args(args).arg("-c").arg(bridge.config_path()).stdin(Stdio::null());
    command.env("HOME", bridge.state(".."));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Waiting {
    /// Begins `mantyx-bridge login`, up to the address that it prints.
    async fn begin(bridge: &Bridge) -> Self {
        let mut child = command(bridge, &["login", "notion"]).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await.expect("text").unwrap_or_default();
        let url = line.split_whitespace().find(|word| word.contains("/oauth/start/"));
        let Some(url) = url.map(str::to_owned) else {
            let mut errors = String::new();
            let mut stderr = child.stderr.take().expect("piped");
            stderr.read_to_string(&mut errors).await.expect("text");
            panic!("no address in {line:?}: {errors}");
        };
        Self { child, lines, url }
    }

    /// What the command says at its end.
    async fn end(mut self) -> String {
        let mut text = String::new();
        while let Some(line) = self.lines.next_line().await.expect("text") {
            text += &line;
        }
        let output = self.child.wait_with_output().await.expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { text } else { format!("failed: {errors}") }
    }
}

/// What a person's browser shows at the end of the way.
async fn person(args: &[&str]) -> String {
    let mut command = Command::new(fetch::python());
    command.arg(repository("tests/peers/person.py")).args(args);
    let output = command.kill_on_drop(true).output().await.expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test]
async fn person_logs_in_once_and_the_bridge_keeps_the_login_over_a_restart() {
    let mut scene = Scene::start(3600).await;
    let needy = wait::soon("the backend should need a login", async || {
        Some(scene.bridge.backend("notion").await).filter(|one| one["needs"] == "login")
    })
    .await;
    assert_eq!(needy["state"], "down", "{needy}");
    let problem = scene.problem("401").await;
    let cure = problem["cure"].as_str().unwrap_or_default();
    assert!(cure.contains("`mantyx-bridge login notion`"), "{problem}");

    let said = scene.log_in().await;
    assert_eq!(said, "notion: logged in; 1 tool. The bridge renews the login.");
    assert_eq!(scene.bridge.backend("notion").await.get("needs"), None);
    assert!(scene.call().await.to_string().contains("called by anna"));

    scene.bridge.stop().await;
    scene.bridge.restart().await;
    scene.bridge.wait_backend("notion", "ready").await;
    assert!(scene.call().await.to_string().contains("called by anna"));
    let world = scene.world(json!({})).await;
    assert_eq!(world["registrations"], 1);
    assert_eq!(world["refreshes"], 0, "the access token is kept as well: {world}");

    let list = String::from_utf8(scene.run(&["logins"]).await.stdout).expect("text");
    assert!(list.contains("notion") && list.contains("ok"), "{list}");
    let out = String::from_utf8(scene.run(&["logout", "notion"]).await.stdout).expect("text");
    assert_eq!(out, "notion: logged out\n");
    assert_eq!(scene.world(json!({})).await["revocations"], 1);
    assert!(!scene.bridge.state("logins/notion/bridge.json").exists());
    assert_eq!(scene.bridge.backend("notion").await["needs"], "login", "at once");
    let unknown = scene.run(&["login", "a/b"]).await;
    let said = String::from_utf8(unknown.stderr).expect("text");
    assert!(said.contains("a/b") && said.contains("there are: notion"), "{said}");
    let nothing = scene.as_operator("DELETE", "/v1/logins/notion", None).await;
    assert_eq!(nothing.expect(404)["error"], "not_found");
}

/// The issuer ends a login whose refresh token it sees twice.
#[tokio::test]
async fn tokens_of_two_seconds_under_64_calls_at_once_are_renewed_without_a_reuse() {
    let scene = Scene::start_with(2, ", concurrency: 64", "").await;
    scene.log_in().await;
    // Each token is refused two seconds after it was issued, and calls wait for the next one.
    while scene.world(json!({})).await["refreshes"].as_u64() < Some(4) {
        let calls = join_all((0..64).map(|_| scene.call())).await;
        let failed: Vec<_> =
            calls.iter().filter(|call| !call.to_string().contains("called by anna")).collect();
        assert!(failed.is_empty(), "{} of 64: {:?}", failed.len(), failed.first());
    }
    let world = scene.world(json!({})).await;
    assert_eq!(world["reuses"], 0, "{world}");
    assert_eq!(scene.logins().await[0]["state"], "ok");
}

#[tokio::test]
async fn registration_that_the_issuer_has_purged_is_made_again() {
    let scene = Scene::start(3600).await;
    scene.log_in().await;
    scene.world(json!({ "purge": true, "expire": true })).await;
    scene.call().await;
    let problem = scene.problem("invalid_client").await;
    assert!(problem["cure"].as_str().unwrap_or_default().contains("login notion"), "{problem}");
    assert!(scene.log_in().await.contains("logged in"));
    assert_eq!(scene.world(json!({})).await["registrations"], 2);

    // Nothing tells the bridge, and the browser ends at an error page of the issuer.
    scene.world(json!({ "purge": true })).await;
    let waiting = scene.begin().await;
    let page = person(&[&waiting.url]).await;
    assert!(page.contains("400") && !page.contains("/oauth/callback"), "{page}");
    drop(waiting);
    assert!(scene.log_in().await.contains("logged in"));
    assert_eq!(scene.world(json!({})).await["registrations"], 3);
}

#[tokio::test]
async fn grant_that_the_issuer_has_ended_is_told_and_not_tried_again() {
    let scene = Scene::start(3600).await;
    scene.log_in().await;
    scene.world(json!({ "end": true, "expire": true })).await;
    scene.call().await;
    let problem = scene.problem("invalid_grant").await;
    assert!(problem["cure"].as_str().unwrap_or_default().contains("login notion"), "{problem}");
    for _ in 0..5 {
        scene.call().await;
    }
    assert_eq!(scene.logins().await[0]["state"], "ended");
    let stored = read(&scene.bridge.state("logins/notion/bridge.json"));
    assert!(!stored.contains("\"refresh\""), "{stored}");
    assert!(scene.log_in().await.contains("logged in"));
    assert_eq!(scene.logins().await[0]["state"], "ok");
}

#[tokio::test]
async fn server_that_names_another_issuer_ends_its_login() {
    let scene = Scene::start(3600).await;
    scene.log_in().await;
    scene.world(json!({ "names": "https://elsewhere.test", "expire": true })).await;
    scene.call().await;
    scene.problem("another issuer").await;
    assert_eq!(scene.world(json!({})).await["refreshes"], 0, "no token went anywhere");
}

#[tokio::test]
async fn changed_public_url_registers_another_client() {
    let mut scene = Scene::start(3600).await;
    scene.log_in().await;
    let port = scene.bridge.addr().port();
    scene.bridge.stop().await;
    let listen = format!(
        "listen: {{tcp: \"127.0.0.1:{port}\", public_url: \"http://localhost:{port}\"}}\nupstream:"
    );
    scene.bridge.change_config("upstream:", &listen);
    scene.bridge.restart().await;
    scene.bridge.wait_backend("notion", "ready").await;
    let waiting = scene.begin().await;
    assert!(waiting.url.starts_with(&format!("http://localhost:{port}/oauth/start/")));
    let page = person(&[&waiting.url]).await;
    assert!(page.contains("Logged in: notion"), "{page}");
    waiting.end().await;
    assert_eq!(scene.world(json!({})).await["registrations"], 2);
}

#[tokio::test]
async fn call_that_lacks_a_scope_asks_for_a_login_with_it() {
    let scene = Scene::start(3600).await;
    scene.log_in().await;
    scene.world(json!({ "needs": "write" })).await;
    let refused = scene.call().await.to_string();
    assert!(!refused.contains("called by"), "{refused}");
    scene.problem("write").await;
    assert_eq!(scene.logins().await[0]["state"], "needs_scopes");
    scene.log_in().await;
    assert!(scene.call().await.to_string().contains("called by anna"));
    assert_eq!(scene.logins().await[0]["state"], "ok");
}

#[tokio::test]
async fn declined_login_and_a_foreign_browser_get_no_login() {
    let scene = Scene::start(3600).await;
    let waiting = scene.begin().await;
    let page = person(&[&waiting.url, "--decline"]).await;
    assert!(page.contains("400") && page.contains("the login was declined"), "{page}");
    assert!(waiting.end().await.contains("the login was declined"));

    // Another browser has the address that the issuer sends back, and not the cookie.
    let waiting = scene.begin().await;
    let back =
        person(&[&waiting.url, "--stop-at", &format!("{}/oauth/callback", scene.bridge.url())])
            .await;
    let page = person(&[back.trim()]).await;
    assert!(page.contains("400") && page.contains("This login has ended"), "{page}");
    let again = person(&[&waiting.url]).await;
    assert!(again.contains("This login has ended"), "an address begins once: {again}");
    assert_eq!(scene.logins().await, json!([]));

    // The operator who began may paste it, once.
    let body = json!({ "url": back.trim() });
    let path = "/v1/logins/notion/callback";
    let app = scene.bridge.api("POST", path, Some(&body.to_string())).await;
    assert_eq!(app.expect(403)["error"], "operator_only");
    scene.as_operator("POST", path, Some(body.clone())).await.expect(200);
    let twice = scene.as_operator("POST", path, Some(body)).await;
    assert_eq!(twice.expect(400)["error"], "login_ended");
    assert!(waiting.end().await.contains("logged in"));
}

#[tokio::test]
async fn terminal_takes_the_pasted_address() {
    let scene = Scene::start(3600).await;
    let mut command = Command::new(fetch::python());
    command
        .arg(repository("tests/peers/on_terminal.py"))
        .args(["500", "40", bridge::BINARY, "login", "notion", "-c"])
        .arg(scene.bridge.config_path())
        .env_remove("DISPLAY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let issuer = format!("{}/auth?", scene.issuer.url());
    let address = loop {
        let line = lines.next_line().await.expect("text").expect("an address");
        if let Some(address) = line.split_whitespace().find(|word| word.starts_with(&issuer)) {
            break address.to_owned();
        }
    };
    let back = format!("{}/oauth/callback", scene.bridge.url());
    let back = person(&[&address, "--stop-at", &back]).await;
    let mut stdin = child.stdin.take().expect("piped");
    let other = "http://127.0.0.1/oauth/callback?code=x&state=y";
    for wrong in ["", "nonsense", other] {
        stdin.write_all(format!("{wrong}\n").as_bytes()).await.expect("it reads");
    }
    stdin.write_all(format!("{}\n", back.trim()).as_bytes()).await.expect("it reads");
    let mut text = String::new();
    while let Some(line) = lines.next_line().await.expect("text") {
        text += &line;
        if line.contains("logged in") {
            break;
        }
    }
    assert!(text.contains("notion: logged in; 1 tool"), "{text}");
    assert_eq!(text.matches("not the address at which this login ended").count(), 2, "{text}");
}

#[tokio::test]
async fn sealed_login_is_not_read_without_its_key_and_not_taken_for_none() {
    let key = BASE64_STANDARD.encode([7; 32]);
    let mut scene = Scene::start_with(3600, "", &format!("seal_key: \"{key}\"\n")).await;
    scene.log_in().await;
    let path = scene.bridge.state("logins/notion/bridge.json");
    assert!(read(&path).contains("\"sealed\""), "{}", read(&path));
    for (path, mode) in [(path.as_path(), 0o600), (path.parent().expect("a directory"), 0o700)] {
        let permissions = fs::metadata(path).expect("it is there").permissions();
        assert_eq!(permissions.mode() & 0o777, mode, "{}", path.display());
    }
    scene.bridge.stop().await;
    scene.bridge.restart().await;
    scene.bridge.wait_backend("notion", "ready").await;
    scene.bridge.stop().await;
    scene.bridge.change_config(&format!("seal_key: \"{key}\"\n"), "");
    scene.bridge.restart().await;
    let problem = scene.problem("seal_key").await;
    assert!(problem["cure"].as_str().unwrap_or_default().contains("login notion"), "{problem}");
    assert!(read(&path).contains("\"sealed\""), "the file is left alone");
}

#[tokio::test]
async fn damaged_login_is_a_problem_that_another_login_cures() {
    let mut scene = Scene::start(3600).await;
    scene.log_in().await;
    scene.bridge.stop().await;
    fs::write(scene.bridge.state("logins/notion/bridge.json"), "{").expect("ours");
    scene.bridge.restart().await;
    let problem = scene.problem("damaged").await;
    assert!(problem["cure"].as_str().unwrap_or_default().contains("login notion"), "{problem}");
    assert!(scene.log_in().await.contains("logged in"));
}

#[tokio::test]
async fn login_without_a_refresh_token_is_told_with_its_end() {
    let scene = Scene::start(3600).await;
    scene.world(json!({ "refresh": false })).await;
    scene.log_in().await;
    scene.problem("no refresh token").await;
    assert!(scene.logins().await[0]["expiresAt"].is_string());
    assert!(scene.call().await.to_string().contains("called by anna"));
    scene.world(json!({ "expire": true })).await;
    scene.call().await;
    scene.problem("has expired").await;
}

#[tokio::test]
async fn no_secret_of_a_login_is_anywhere_but_in_its_file() {
    let scene = Scene::start(3600).await;
    let waiting = scene.begin().await;
    let back = format!("{}/oauth/callback", scene.bridge.url());
    let back = person(&[&waiting.url, "--stop-at", &back]).await;
    let body = json!({ "url": back.trim() });
    scene.as_operator("POST", "/v1/logins/notion/callback", Some(body)).await.expect(200);
    waiting.end().await;
    scene.call().await;
    let first = read(&scene.bridge.state("logins/notion/bridge.json"));
    scene.world(json!({ "expire": true })).await;
    scene.call().await;
    let second = read(&scene.bridge.state("logins/notion/bridge.json"));
    let mut secrets: Vec<String> = Vec::new();
    for record in [&first, &second] {
        let record: Value = serde_json::from_str(record).expect("JSON");
        secrets.extend(
            ["refresh", "access"]
                .iter()
                .filter_map(|field| record[field].as_str().map(str::to_owned)),
        );
    }
    assert_eq!(secrets.len(), 4, "{second}");
    let query = back.trim().split_once('?').expect("a query").1;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').expect("a pair");
        if matches!(name, "code" | "state") {
            secrets.push(value.to_owned());
        }
    }
    let ticket = waiting_ticket(&scene).await;
    secrets.push(ticket);
    let shown = scene.run(&["status", "--json"]).await;
    let listed = scene.run(&["logins", "--json"]).await;
    let metrics = scene.bridge.api("GET", "/metrics", None).await.text();
    let texts = [
        ("the log", scene.bridge.log()),
        ("the status", String::from_utf8_lossy(&shown.stdout).into_owned()),
        ("the list", String::from_utf8_lossy(&listed.stdout).into_owned()),
        ("the metrics", metrics),
    ];
    for secret in &secrets {
        for (name, text) in &texts {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            assert!(line.is_none(), "{name}: {line:?}");
        }
    }
    for (path, text) in files(&scene.bridge.state("")) {
        if !path.contains("logins/notion/bridge.json") {
            assert!(!secrets.iter().any(|secret| text.contains(secret)), "{path}");
        }
    }
}

/// The ticket of a login that begins and is opened in a browser which the bridge turns away.
async fn waiting_ticket(scene: &Scene) -> String {
    let waiting = scene.begin().await;
    let target = waiting.url.trim_start_matches(&scene.bridge.url()).to_owned();
    let refused = Request::new("GET", &target).header("Sec-Fetch-Site", "cross-site");
    refused.answer(scene.bridge.addr()).await.expect_error(403);
    target.rsplit('/').next().expect("a ticket").to_owned()
}

/// All files below `dir`, as text.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory of the test") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            found.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found
}

#[tokio::test]
async fn pages_of_other_sites_reach_only_the_page_and_the_routes_of_a_login_as_navigations() {
    let scene = Scene::start(3600).await;
    let get = |path: &'static str, fetch: [&'static str; 3]| {
        let addr = scene.bridge.addr();
        async move {
            let names = ["Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"];
            let mut request = Request::new("GET", path).header("Referer", "https://issuer.test/");
            for (name, value) in names.into_iter().zip(fetch) {
                request = request.header(name, value);
            }
            request.answer(addr).await
        }
    };
    let navigation = ["cross-site", "navigate", "document"];
    for path in ["/oauth/callback?state=x&code=y", "/oauth/start/x"] {
        let answer = get(path, navigation).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("This login has ended"));
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        for other in [
            ["cross-site", "no-cors", "image"],
            ["cross-site", "navigate", "iframe"],
            ["same-site", "cors", "empty"],
        ] {
            get(path, other).await.expect_error(403);
        }
    }
    // The link of a notice may be on any page.
    assert_eq!(get("/", navigation).await.status, 401, "the sign-in form");
    get("/", ["cross-site", "navigate", "iframe"]).await.expect_error(403);
    get("/v1/logins", navigation).await.expect_error(403);
}

#[tokio::test]
async fn login_that_begins_again_takes_the_place_of_the_first() {
    let scene = Scene::start(3600).await;
    let begin = || scene.as_operator("POST", "/v1/logins/notion", None);
    // More than may be open at once.
    for _ in 0..70 {
        begin().await.expect(200);
    }
    assert!(scene.world(json!({})).await["registrations"].as_u64() <= Some(1));
    let unknown = scene.as_operator("POST", "/v1/logins/nothing", None).await;
    assert_eq!(unknown.expect(404)["error"], "unknown_backend");
}
