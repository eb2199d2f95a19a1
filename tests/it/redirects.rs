//! Redirects, on every way out of the bridge: a server that sends elsewhere what it was asked is
//! told of, and nothing goes there.

use crate::{frames::Script, mantyx::Mantyx, rig::Rig, wait};

const CANARY: &str = "backend-canary-77";
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const RUNS: &str = "/api/v1/workspaces/acme/agent-runs";

/// Where the trap sends its clients: another origin, in several spellings of it.
fn locations(target: &Mantyx) -> [String; 3] {
    let host = target.url().trim_start_matches("http://").to_owned();
    [format!("http://{host}/x"), format!("//{host}/x"), format!("http://u:{CANARY}@{host}/x")]
}

fn card(rpc: &str) -> String {
    format!(
        r#"{{"protocolVersion":"0.3.0","name":"hr","description":"d","version":"1","url":"{rpc}","preferredTransport":"JSONRPC","capabilities":{{}},"skills":[]}}"#
    )
}

/// A14: MCP over both transports, cards, calls of agents, tokens, local tools.
#[tokio::test]
async fn no_backend_sends_us_elsewhere() {
    let (trap, target) = (Mantyx::start().await, Mantyx::start().await);
    let url = trap.url();
    let (mut mcp, mut a2a, mut local) = (String::new(), String::new(), String::new());
    // The way, and what is asked for there.
    let mut ways: Vec<(&str, String)> = Vec::new();
    let mut tried = Vec::new();
    for status in STATUSES {
        for (n, location) in locations(&target).iter().enumerate() {
            let tag = format!("{status}_{n}");
            let (line, location) =
                (format!("HTTP/1.1 {status} Moved"), format!("Location: {location}"));
            let head = [line.as_str(), &location];
            for (way, method, path) in [
                ("mcp", "POST", format!("/mcp_{tag}")),
                ("sse", "GET", format!("/sse_{tag}")),
                ("card", "GET", format!("/card_{tag}")),
                ("call", "POST", format!("/rpc_{tag}")),
                ("token", "POST", format!("/token_{tag}")),
                ("page", "POST", format!("/page_{tag}")),
            ] {
                trap.canned(method, &path, &head, "");
                ways.push((method, path));
                tried.push(format!("{way}_{tag}"));
            }
            let ok = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
            trap.canned("GET", &format!("/good_{tag}"), &ok, &card(&format!("/rpc_{tag}")));
            let headers = format!("headers: {{X-API-Key: {CANARY}}}");
            let oauth = format!(
                "auth: {{oauth: {{client_id: b, client_secret: {CANARY}, token_url: '{url}/token_{tag}'}}}}"
            );
            mcp.push_str(&format!(
                "  mcp_{tag}: {{url: '{url}/mcp_{tag}', {headers}, transport: streamable-http}}\n  \
                 sse_{tag}: {{url: '{url}/sse_{tag}', {headers}, transport: sse}}\n  \
                 token_{tag}: {{url: '{url}/behind', {oauth}}}\n"
            ));
            a2a.push_str(&format!(
                "  card_{tag}: {{card_url: '{url}/card_{tag}', {headers}}}\n  \
                 call_{tag}: {{card_url: '{url}/good_{tag}', {headers}}}\n"
            ));
            local.push_str(&format!(
                "  page_{tag}: {{description: d, parameters: {{type: object}}, \
                 http: {{url: '{url}/page_{tag}', {headers}}}}}\n"
            ));
        }
    }
    let rig = Rig::bare(&format!("mcp:\n{mcp}a2a:\n{a2a}local:\n{local}")).await;
    for name in &tried {
        if name.starts_with("call") || name.starts_with("page") {
            rig.bridge.wait_backend(name, "ready").await;
            let call =
                format!(r#"{{"toolUseId":"{name}","name":"{name}","args":{{"message":"hi"}}}}"#);
            let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200);
            assert!(answer["error"].is_string(), "{name}: {answer}");
            continue;
        }
        wait::soon(&format!("{name} should be refused"), async || {
            rig.bridge.backend(name).await["lastError"].is_string().then_some(())
        })
        .await;
    }
    let asked: Vec<_> = trap.recorded().into_iter().map(|one| (one.method, one.target)).collect();
    for (method, path) in &ways {
        assert!(asked.iter().any(|(m, p)| m == method && p == path), "{method} {path} was met");
        let other = asked.iter().find(|(m, p)| p == path && m != method);
        assert!(other.is_none(), "a {method} stays a {method}: {other:?}");
    }
    assert!(target.recorded().is_empty(), "none was followed: {:?}", target.recorded());
    assert!(!rig.bridge.log().contains(CANARY), "the log shows what a header has");
    let status = rig.bridge.status().await.to_string();
    assert!(!status.contains(CANARY), "the status shows it: {status}");
}

/// A14: MANTYX itself. What an app asked for is answered to the app, as it came.
#[tokio::test]
async fn no_credential_of_mantyx_goes_elsewhere() {
    for status in STATUSES {
        let target = Mantyx::start().await;
        let rig = Rig::bare(
            "local:\n  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n",
        )
        .await;
        let location = format!("Location: {}{RUNS}", target.url());
        let line = format!("HTTP/1.1 {status} Moved");
        let head = [line.as_str(), location.as_str()];
        let results = format!("{RUNS}/run_1/tool-results");
        rig.mantyx.canned("POST", &results, &head, "");
        rig.mantyx.canned("GET", &format!("{RUNS}?limit=1"), &head, "");
        rig.run(Script::new().local("tu_1", "ok", "{}").until("never")).await;
        wait::soon("the result should be posted", async || {
            rig.mantyx.posts("tu_1").first().map(drop)
        })
        .await;
        let piped = rig.bridge.api("GET", &format!("{RUNS}?limit=1"), None).await;
        assert_eq!(piped.status, status, "it is the app's to follow");
        rig.mantyx.canned("POST", RUNS, &head, "");
        let refused = rig.bridge.api("POST", RUNS, Some(r#"{"prompt":"x"}"#)).await;
        assert_eq!(refused.status, status);
        rig.mantyx.canned("POST", &format!("{RUNS}/run_9/cancel"), &head, "");
        rig.bridge.api("POST", &format!("{RUNS}/run_9/cancel"), None).await;
        assert!(target.recorded().is_empty(), "{status}: {:?}", target.recorded());
        let turned = rig
            .mantyx
            .recorded()
            .into_iter()
            .find(|one| one.method == "GET" && one.target == results);
        assert!(turned.is_none(), "a POST becomes no GET: {turned:?}");
    }
}
