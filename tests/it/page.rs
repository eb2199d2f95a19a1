//! The status page: who sees it, and what it is in a real browser.

use std::{fs, path::Path, process::Stdio, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    approvals,
    bridge::Bridge,
    frames::Script,
    harness::{Harness, ledger_in},
    http::{Answer, Request},
    owners::{Apps, token},
    peers,
    sse::Stream,
    wait::{soon, until},
};

const FORM: &str = "application/x-www-form-urlencoded";

/// Signs in with `token`, as the form does.
async fn sign_in(bridge: &Bridge, token: &str) -> Answer {
    let form = format!("token={token}");
    let request = Request::new("POST", "/sign-in").header("Origin", &bridge.url());
    request.body(FORM, form).answer(bridge.addr()).await
}

/// The cookie of somebody who has signed in.
pub(crate) async fn session(bridge: &Bridge) -> String {
    session_and_key(bridge, bridge.token()).await.0
}

/// The cookie, and the key that the page's script is given beside it.
pub(crate) async fn session_and_key(bridge: &Bridge, token: &str) -> (String, String) {
    let answer = sign_in(bridge, token).await;
    assert_eq!(answer.status, 303);
    let key = answer.header("location").and_then(|to| to.strip_prefix("/#key=")).expect("a key");
    let cookie = answer.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(token), "the token is not kept");
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    assert!(key.len() == 64 && !cookie.contains(key), "the key is not the cookie");
    (cookie, key.to_owned())
}

#[tokio::test]
async fn the_page_is_for_those_who_signed_in() {
    let rig = Harness::start().await;
    let page = |cookie: &str| Request::new("GET", "/").header("Cookie", cookie);
    let form = page("a=b").answer(rig.bridge.addr()).await;
    assert_eq!(form.status, 401);
    assert!(form.text().contains("<form") && !form.text().contains("EventSource"));
    assert!(
        form.header("content-security-policy").is_some_and(|it| it.contains("default-src 'none'"))
    );
    assert_eq!(sign_in(&rig.bridge, "wrong").await.status, 401);

    let cookie = session(&rig.bridge).await;
    let shown = page(&cookie).answer(rig.bridge.addr()).await;
    assert_eq!(shown.status, 200);
    assert!(shown.text().contains("EventSource"));
    let by_token = rig.bridge.api("GET", "/", None).await;
    assert_eq!(by_token.status, 200, "a program's token opens it, too");

    let looking = |cookie: &str| Request::new("GET", "/v1/events").header("Cookie", cookie);
    let (operators, _) = session_and_key(&rig.bridge, &rig.bridge.operator()).await;
    let mut events = Stream::request(&rig.bridge, looking(&cookie)).await;
    let mut all = Stream::request(&rig.bridge, looking(&operators)).await;
    for (stream, cookie) in [(&mut events, &cookie), (&mut all, &operators)] {
        assert!(stream.event().await.is_some());
        let out = Request::new("POST", "/sign-out").header("Cookie", cookie);
        assert_eq!(out.answer(rig.bridge.addr()).await.status, 303);
        while stream.next().await.is_some() {}
    }
    assert_eq!(page(&cookie).answer(rig.bridge.addr()).await.status, 401, "the session has ended");
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let rig = Harness::start().await;
    let bridge = &rig.bridge;
    let link = async |shown: &[(&str, &str)]| {
        let mut request = Request::new("POST", "/v1/sign-in-links");
        for (name, value) in shown {
            request = request.header(name, value);
        }
        request.answer(bridge.addr()).await
    };
    assert_eq!(link(&[]).await.status, 401, "nobody");
    let cookie = session(bridge).await;
    let of_session = link(&[("Cookie", &cookie), ("Origin", &bridge.url())]).await;
    assert_eq!(of_session.status, 401, "a session makes no other sessions");
    let token = format!("Bearer {}", bridge.token());
    let operator = bridge.operator();
    for (shown, is_operator) in [
        (vec![("Authorization", token.as_str())], false),
        (vec![("Authorization", token.as_str()), ("X-Bridge-Operator", operator.as_str())], true),
    ] {
        let path = link(&shown).await.expect(200)["path"].as_str().expect("a path").to_owned();
        // A browser that looks ahead, and a program that follows every link, use it up for nobody.
        let ahead = Request::new("GET", &path).header("Sec-Purpose", "prefetch");
        for only_looks in [ahead, Request::new("HEAD", &path)] {
            let looked = only_looks.send(bridge.addr()).await;
            assert_eq!((looked.status, looked.head.header("set-cookie")), (401, None));
        }
        let follow = async || Request::new("GET", &path).answer(bridge.addr()).await;
        let followed = follow().await;
        assert_eq!(followed.status, 303);
        let location = followed.header("location").expect("it leads to the page");
        assert!(location.starts_with("/#key="), "{location}");
        let cookie = followed.header("set-cookie").expect("a cookie");
        let cookie = cookie.split(';').next().unwrap_or_default();
        let status = Request::new("GET", "/v1/status").header("Cookie", cookie);
        let status = status.answer(bridge.addr()).await.expect(200);
        assert_eq!(status["operator"], is_operator);
        assert_eq!(follow().await.status, 401, "a second time");
    }
    let wrong = Request::new("GET", "/sign-in?ticket=0").answer(bridge.addr()).await;
    assert!(wrong.status == 401 && wrong.text().contains("mantyx-bridge open"));
}

#[tokio::test]
async fn guesses_at_the_form_do_not_flood_the_log() {
    let rig = Harness::start().await;
    let (mut answered, mut refused) = (0, 0);
    while refused == 0 {
        // The bridge reads so many forms of one address at once.
        let guesses = join_all((0..8).map(|_| sign_in(&rig.bridge, "wrong"))).await;
        let count = |status| guesses.iter().filter(|it| it.status == status).count();
        (answered, refused) = (answered + count(401), count(429));
    }
    let log = rig.bridge.log();
    assert_eq!(log.matches("sign-in").count(), answered);
}

#[tokio::test]
async fn a_session_opens_what_the_page_needs_and_no_more() {
    let rig = Harness::start().await;
    let cookie = session(&rig.bridge).await;
    let ask = async |method: &str, target: &str, origin: Option<&str>| {
        let mut request = Request::new(method, target).header("Cookie", &cookie);
        if let Some(origin) = origin {
            request = request.header("Origin", origin);
        }
        request.json("{}").answer(rig.bridge.addr()).await.status
    };
    for target in ["/v1/status", "/v1/tool-refs", "/v1/runs", "/v1/calls"] {
        assert_eq!(ask("GET", target, None).await, 200, "{target}");
    }
    let own = rig.bridge.url();
    let refresh = "/v1/backends/plain/refresh";
    assert_eq!(ask("POST", refresh, Some(&own)).await, 200);
    assert_eq!(ask("POST", refresh, None).await, 401, "no page says that it asks");
    assert_eq!(ask("POST", refresh, Some("http://evil.example")).await, 403);
    for target in ["/v1/tool-calls", "/v1/runs", "/v1/specs/inject", "/v1/runs/run_1/attach"] {
        assert_eq!(ask("POST", target, Some(&own)).await, 401, "{target}");
    }
    assert_eq!(ask("GET", "/api/v1/workspaces/acme/agent-runs", Some(&own)).await, 401);
    assert!(rig.mantyx.recorded().is_empty() && rig.executions().is_empty());
}

/// Browsers send a host's cookies to all of its ports: whoever listens on another one has the
/// cookie.
#[tokio::test]
async fn a_cookie_alone_decides_nothing_and_shows_no_arguments() {
    let rig = Harness::with_keys(approvals::ALL, "", &[], "").await;
    let operator = rig.bridge.operator();
    let (cookie, key) = session_and_key(&rig.bridge, &operator).await;
    let (_, another) = session_and_key(&rig.bridge, &operator).await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#)).await;
    let target = format!("/v1/approvals/{}", approvals::asked(&rig.bridge).await);
    let own = rig.bridge.url();
    let ask = async |method: &str, target: &str, key: Option<&str>, origin: Option<&str>| {
        let mut request = Request::new(method, target).header("Cookie", &cookie);
        for (name, value) in [("X-Bridge-Key", key), ("Origin", origin)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request
    };
    let deny = r#"{"decision":"deny"}"#;
    let at = rig.bridge.addr();
    for wrong in [None, Some(""), Some(another.as_str())] {
        let looked = ask("GET", "/v1/approvals", wrong, None).await.answer(at).await;
        assert_eq!(looked.status, 401, "{wrong:?}");
        let decided = ask("POST", &target, wrong, Some(&own)).await.json(deny).answer(at).await;
        assert_eq!(decided.status, 401, "{wrong:?}");
    }
    let key = Some(key.as_str());
    let evil = Some("http://evil.example");
    assert_eq!(ask("POST", &target, key, evil).await.json(deny).answer(at).await.status, 403);
    assert_eq!(ask("POST", &target, key, None).await.json(deny).answer(at).await.status, 401);
    let form = ask("POST", &target, key, Some(&own)).await.body("text/plain", deny);
    assert_eq!(form.answer(at).await.status, 415);
    assert!(rig.mantyx.posts("tu_1").is_empty(), "nothing was decided");
    let looked = ask("GET", "/v1/approvals", key, None).await.answer(at).await.expect(200);
    assert_eq!(looked["approvals"][0]["argumentsText"], r#"{"text":"x"}"#);
    let decided = ask("POST", &target, key, Some(&own)).await.json(deny).answer(at).await;
    assert_eq!(decided.expect(200)["state"], "denied");
}

/// The operator's session sees what is all apps', decides and accepts; an app's looks at its own.
#[tokio::test]
async fn the_operators_session_decides_and_an_apps_looks() {
    for (app, approves) in
        [(Some("a"), ""), (Some("b"), ""), (None, ""), (Some("a"), ", approves: true")]
    {
        let apps = Apps::with(approvals::ALL, approves).await;
        let bridge = &apps.bridge;
        let shown = app.map_or_else(|| bridge.operator(), token);
        let (cookie, key) = session_and_key(bridge, &shown).await;
        let ask = async |method: &str, target: &str, body: Option<&str>| {
            let request = Request::new(method, target).header("Cookie", &cookie);
            let request = request.header("Origin", &bridge.url()).header("X-Bridge-Key", &key);
            let request = match body {
                Some(body) => request.json(body),
                None => request,
            };
            request.answer(bridge.addr()).await
        };
        let script = Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#);
        apps.submit("a", "agent-runs", script).await;
        let id = apps.asked().await;
        let sees = app != Some("b");
        let count = |answer: &Answer, list: &str| answer.expect(200)[list].as_array().map(Vec::len);
        for list in ["approvals", "runs", "calls"] {
            let listed = ask("GET", &format!("/v1/{list}"), None).await;
            assert_eq!(count(&listed, list), Some(usize::from(sees)), "{list} of {app:?}");
        }
        let status = ask("GET", "/v1/status", None).await.expect(200);
        assert_eq!(status["operator"], app.is_none());
        let accept = r#"{"accept":"all","digest":"0"}"#;
        let accepted = ask("POST", "/v1/trust/plain", Some(accept)).await.status;
        assert_eq!(accepted, if app.is_none() { 409 } else { 403 }, "{app:?}");
        let keyless = Request::new("POST", "/v1/trust/plain").header("Cookie", &cookie);
        let keyless = keyless.header("Origin", &bridge.url()).json(accept);
        assert_eq!(keyless.answer(bridge.addr()).await.status, 401, "{app:?}");
        let decision = r#"{"decision":"approve"}"#;
        let decided = ask("POST", &format!("/v1/approvals/{id}"), Some(decision)).await.status;
        let may = app.is_none() || !approves.is_empty();
        assert_eq!(decided, if may { 200 } else { 403 }, "{app:?}{approves}");
        if may {
            assert_eq!(apps.mantyx.answer("tu_1").await["result"], "noted: x");
        }
        assert_eq!(ask("POST", "/v1/runs", Some("{}")).await.status, 401, "no run is the page's");
        // The page has a form to call a tool; the operator says as which app.
        let call = r#"{"toolUseId":"tu_2","name":"plain_args","args":{"by":"hand"}}"#;
        let as_app = if app.is_none() { "?app=b" } else { "" };
        let target = format!("/v1/tool-calls{as_app}");
        let keyless = Request::new("POST", &target).header("Cookie", &cookie).json(call);
        let keyless = keyless.header("Origin", &bridge.url());
        assert_eq!(keyless.answer(bridge.addr()).await.status, 401, "{app:?}");
        if app.is_none() {
            assert_eq!(ask("POST", "/v1/tool-calls", Some(call)).await.status, 400, "as nobody");
            assert_eq!(ask("POST", "/v1/tool-calls?app=c", Some(call)).await.status, 400);
        }
        // What a call was made with is the operator's to see.
        let texts = ask("GET", "/v1/calls/0", None).await;
        match app {
            None => assert!(texts.expect(200)["arguments"] == r#"{"text":"x"}"#),
            Some(_) => assert_eq!(texts.status, 403, "{app:?}"),
        }
    }
}

#[tokio::test]
async fn history_of_a_backend_is_shown() {
    let saying =
        peers::with(&peers::saying("x"), "approve: [{tool: say, when: [{path: /a, gt: 1}]}]");
    let rig = Harness::bare(&format!(
        "mcp:\n  saying: {saying}\n  gone: {{command: /nonexistent/program}}\n"
    ))
    .await;
    let bridge = &rig.bridge;
    bridge.wait_backend("saying", "ready").await;
    bridge.wait_backend("gone", "down").await;
    let as_operator = async |method: &str, target: &str| {
        let request = bridge.request(method, target);
        request.header("X-Bridge-Operator", &bridge.operator()).answer(bridge.addr()).await
    };
    // A call of a run: what its server writes, and when it was sent and posted.
    let call = r#"{"stderr":"a line","result":{"content":[]}}"#;
    rig.run(Script::one_call("tu_1", "saying", "saying_say", call)).await;
    rig.mantyx.answer("tu_1").await;
    let call = soon("the history is told", async || {
        let calls = bridge.api("GET", "/v1/calls?limit=1", None).await.expect(200);
        Some(calls["calls"][0].clone()).filter(|call| call["postedMs"].is_u64())
    })
    .await;
    assert!(call["sentMs"].as_u64() <= call["ms"].as_u64(), "{call}");
    assert!(call["ms"].as_u64() <= call["postedMs"].as_u64(), "{call}");

    let told = soon("the history is told", async || {
        let told = as_operator("GET", "/v1/backends").await.expect(200);
        Some(told).filter(|told| told["backends"][1]["stderr"] == json!(["a line"]))
    })
    .await;
    let states = |of: &Value| -> Vec<Value> {
        of["states"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect()
    };
    let [gone, saying] = [&told["backends"][0], &told["backends"][1]];
    assert_eq!(states(saying), ["connecting", "starting", "ready"]);
    assert_eq!(states(gone), ["connecting", "starting", "down"]);
    assert_eq!(saying["approve"], json!(["saying_say"]));
    assert_eq!(gone["approve"], json!([]));
    let of_app = bridge.api("GET", "/v1/backends", None).await.expect(200);
    assert_eq!(of_app["backends"][1]["stderr"], json!([]), "what it wrote is the operator's");

    let examined = as_operator("POST", "/v1/backends/gone/doctor").await.expect(200);
    assert_eq!(examined["examined"][1]["name"], "gone");
    assert_eq!(examined["examined"][1]["steps"][0]["verdict"], "fail", "{examined}");
    let examined = as_operator("POST", "/v1/backends/saying/doctor").await.expect(200);
    assert_eq!(examined["ok"], true, "{examined}");
    assert_eq!(as_operator("POST", "/v1/backends/other/doctor").await.status, 404);
    let by_app = bridge.api("POST", "/v1/backends/gone/doctor", None).await;
    assert_eq!(by_app.expect(403)["error"], "operator_only");
}

#[tokio::test]
async fn page_works_in_a_browser() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let plain = peers::with(&peers::ledger(&ledger_in(&dir), &[]), "approve: [args]");
    let catalog = dir.path().join("catalog.json");
    fs::write(
        &catalog,
        r#"{"tools":[{"name":"read","inputSchema":{"type":"object"},"description":"Reads."}]}"#,
    )
    .expect("writable");
    let fickle = peers::with(&peers::changing(&catalog, &[]), "pin: enforce");
    let ask = peers::eliciting();
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\nmcp:\n  plain: {plain}\n  fickle: {fickle}\n  \
         ask: {ask}\n  gone: {{command: /nonexistent/program}}\na2a:\n  desk: {{bundled: true}}\n"
    );
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("plain", "ready").await;
    bridge.wait_backend("fickle", "ready").await;
    bridge.wait_backend("ask", "ready").await;
    bridge.wait_backend("gone", "down").await;
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    fs::create_dir_all(&shots).expect("the target directory is writable");
    look("page.mjs", &bridge, &[&shots, &catalog]).await;
}

/// The operator's work: approvals, backends, trust, calls and runs, at three widths.
#[tokio::test]
async fn page_acts_for_the_operator() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let plain = peers::with(&peers::ledger(&ledger_in(&dir), &[]), "approve: [args, fail]");
    let catalog = dir.path().join("catalog.json");
    let description = "Reads what there is, and tells it in the order in which it was written. ";
    let input = json!({ "type": "object", "properties": { "a": {}, "b": {}, "c": {} } });
    let tool =
        json!({ "name": "read", "inputSchema": input, "description": description.repeat(8) });
    fs::write(&catalog, json!({ "tools": [tool] }).to_string()).expect("writable");
    let fickle = peers::with(&peers::changing(&catalog, &[]), "pin: enforce");
    let instructions = dir.path().join("instructions.json");
    fs::write(&instructions, json!("Read first.").to_string()).expect("writable");
    let teller = peers::with(&peers::instructing(&instructions, &[]), "pin: enforce");
    let ask = peers::eliciting();
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\nmcp:\n  plain: {plain}\n  fickle: {fickle}\n  \
         ask: {ask}\n  teller: {teller}\n  gone: {{command: /nonexistent/program}}\n"
    );
    let bridge = Bridge::ready(&config).await;
    for name in ["plain", "fickle", "ask", "teller"] {
        bridge.wait_backend(name, "ready").await;
    }
    bridge.wait_backend("gone", "down").await;
    look("acts.mjs", &bridge, &[&catalog, &instructions]).await;
}

#[tokio::test]
async fn page_of_a_bridge_that_is_gone_says_so_and_names_the_cure_after_a_restart() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let mut bridge = Bridge::ready("upstream: {sandbox: true}\n").await;
    let signal = dir.path().join("seen");
    let process = bridge.process().pid().as_raw_nonzero().to_string();
    let file = bridge.config_path();
    let script = browser("gone.mjs", &bridge, &[&file, Path::new(&process), &signal]);
    let restart = async {
        let seen = async || signal.exists().then_some(());
        until("the page says that the bridge is gone", BROWSER, seen).await;
        bridge.kill9();
        bridge.restart().await;
    };
    futures_util::join!(done(script), restart);
}

/// The operator disables, enables and restarts backends; an app does not.
#[tokio::test]
async fn backend_is_disabled_until_enabled_and_only_by_the_operator() {
    let rig = Harness::start().await;
    let bridge = &rig.bridge;
    let as_operator = async |target: &str| {
        let request =
            bridge.request("POST", target).header("X-Bridge-Operator", &bridge.operator());
        request.answer(bridge.addr()).await
    };
    for verb in ["disable", "enable", "restart"] {
        let target = format!("/v1/backends/plain/{verb}");
        let by_app = bridge.api("POST", &target, None).await;
        assert_eq!(by_app.expect(403)["error"], "operator_only", "{verb}");
        let cookie = session_and_key(bridge, &bridge.operator()).await.0;
        let keyless = Request::new("POST", &target)
            .header("Cookie", &cookie)
            .header("Origin", &bridge.url())
            .answer(bridge.addr())
            .await;
        assert_eq!(keyless.status, 401, "{verb}");
        assert_eq!(as_operator(&format!("/v1/backends/nobody/{verb}")).await.status, 404, "{verb}");
    }
    assert_eq!(bridge.backend("plain").await["state"], "ready", "nothing has happened");
    assert_eq!(as_operator("/v1/backends/plain/disable").await.expect(200)["state"], "disabled");
    let call = r#"{"toolUseId":"tu_1","name":"plain_note","args":{"text":"x"}}"#;
    let refused = bridge.api("POST", "/v1/tool-calls", Some(call)).await.text();
    assert!(refused.contains("disabled"), "{refused}");
    assert!(rig.executions().is_empty());
    let status = bridge.status().await;
    let mut problems = status["problems"].as_array().expect("a list").iter();
    assert!(problems.all(|problem| problem["subject"] != "plain"), "{status}");
    bridge.api("POST", "/v1/backends/plain/refresh", None).await.expect(200);
    assert_eq!(bridge.backend("plain").await["state"], "disabled", "a refresh enables nothing");
    assert_eq!(as_operator("/v1/backends/plain/enable").await.expect(200)["state"], "ready");
    let answer = bridge.api("POST", "/v1/tool-calls", Some(call)).await.expect(200);
    assert_eq!(answer["result"], "noted: x");
}

/// The first words of a prompt are for people who may see them, and for no file.
#[tokio::test]
async fn prompt_is_shown_with_the_key_and_kept_nowhere() {
    let rig = Harness::start().await;
    let bridge = &rig.bridge;
    rig.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    let run = bridge.post_run(r#"{"modelId":"m","prompt":"Sum up\n the news"}"#).await.run_id;
    rig.mantyx.answer("tu_1").await;
    let (cookie, key) = session_and_key(bridge, bridge.token()).await;
    let one = format!("/v1/runs/{run}");
    for (target, path) in [("/v1/runs", "/runs/0/prompt"), (one.as_str(), "/prompt")] {
        let by_token = bridge.api("GET", target, None).await.expect(200);
        assert_eq!(by_token.pointer(path), Some(&json!("Sum up the news")), "{target}");
        let in_session = || Request::new("GET", target).header("Cookie", &cookie);
        let by_cookie = in_session().answer(bridge.addr()).await.expect(200);
        assert_eq!(by_cookie.pointer(path), None, "a cookie alone");
        let with_key = in_session().header("X-Bridge-Key", &key).answer(bridge.addr()).await;
        assert_eq!(with_key.expect(200).pointer(path), Some(&json!("Sum up the news")));
    }
    let journal = fs::read(bridge.state("journal")).expect("the journal can be read");
    assert!(!String::from_utf8_lossy(&journal).contains("the news"));
    assert!(!bridge.log().contains("the news"));
}

/// A8: nothing is changed and nothing is read by a page of another origin, whatever it tries.
#[tokio::test]
async fn a_page_of_another_origin_gets_nowhere() {
    let rig = Harness::start().await;
    let refreshed = rig.bridge.backend("plain").await["lastRefresh"].clone();
    look("foreign.mjs", &rig.bridge, &[]).await;
    assert!(rig.executions().is_empty() && rig.mantyx.recorded().is_empty());
    assert_eq!(rig.bridge.backend("plain").await["lastRefresh"], refreshed);
    for list in ["runs", "calls"] {
        let shown = rig.bridge.api("GET", &format!("/v1/{list}"), None).await.expect(200);
        assert_eq!(shown[list], json!([]));
    }
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    let counted = "mantyx_bridge_refused_requests_total{code=\"origin_refused\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(counted)?.parse::<u64>().ok());
    assert!(count.unwrap_or(0) > 30, "its requests did come: {count:?}");
}

/// How long a script of tests/browser may take.
const BROWSER: Duration = Duration::from_secs(120);

/// Runs a script of tests/browser, with `more` behind the bridge's address and token.
pub(crate) async fn look(script: &str, bridge: &Bridge, more: &[&Path]) {
    done(browser(script, bridge, more)).await;
}

/// A script of tests/browser, with `more` behind the bridge's address and token.
fn browser(script: &str, bridge: &Bridge, more: &[&Path]) -> Command {
    let mut browser = Command::new(peers::fetch::node());
    let script = peers::repository(&format!("tests/browser/{script}"));
    browser.arg(script).arg(peers::fetch::puppeteer());
    browser.env("CHROMIUM", peers::fetch::chromium());
    browser.arg(bridge.url()).arg(bridge.token()).args(more).env("OPERATOR", bridge.operator());
    browser.stdin(Stdio::null()).kill_on_drop(true);
    browser
}

async fn done(mut browser: Command) {
    let output = tokio::time::timeout(BROWSER, browser.output()).await;
    let output = output.expect("the browser should be done in time").expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
