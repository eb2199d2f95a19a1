//! Redirects, on every way out of the bridge: a server that sends elsewhere what it was asked is
//! told of, and nothing goes there.

use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    certs::Authority,
    frames::Script,
    harness::Harness,
    mantyx::{CREDENTIAL, Mantyx, Recorded},
    tls_front::{Front, client_files},
    wait,
};

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

/// A bridge with every kind of backend at `url`, where the trap is, once for each status and
/// location; `tls` is what it takes to get there. All of them have been tried when it returns.
async fn spring(trap: &Mantyx, (url, tls): (&str, &str), locations: &[String]) -> Harness {
    let tls = if tls.is_empty() { String::new() } else { format!(", {tls}") };
    let (mut mcp, mut a2a, mut local) = (String::new(), String::new(), String::new());
    // The way, and what is asked for there.
    let mut ways: Vec<(&str, String)> = Vec::new();
    let mut tried = Vec::new();
    for status in STATUSES {
        for (n, location) in locations.iter().enumerate() {
            let tag = format!("{status}_{n}");
            let (line, location) =
                (format!("HTTP/1.1 {status} Moved"), format!("Location: {location}"));
            let head = [line.as_str(), &location];
            struct Way {
                way: &'static str,
                method: &'static str,
                path: String,
            }
            for Way { way, method, path } in [
                Way { way: "mcp", method: "POST", path: format!("/mcp_{tag}") },
                Way { way: "sse", method: "GET", path: format!("/sse_{tag}") },
                Way { way: "card", method: "GET", path: format!("/card_{tag}") },
                Way { way: "call", method: "POST", path: format!("/rpc_{tag}") },
                Way { way: "token", method: "POST", path: format!("/token_{tag}") },
                Way { way: "page", method: "POST", path: format!("/page_{tag}") },
            ] {
                trap.canned(method, &path, &head, "");
                ways.push((method, path));
                tried.push(format!("{way}_{tag}"));
            }
            let ok = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
            trap.canned("GET", &format!("/good_{tag}"), &ok, &card(&format!("/rpc_{tag}")));
            let headers = format!("headers: {{X-API-Key: {CANARY}}}{tls}");
            let oauth = format!(
                "auth: {{oauth: {{client_id: b, client_secret: {CANARY}, token_url: '{url}/token_{tag}'}}}}{tls}"
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
    let rig = Harness::bare(&format!("mcp:\n{mcp}a2a:\n{a2a}local:\n{local}")).await;
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
    assert!(!rig.bridge.log().contains(CANARY), "the log shows what a header has");
    let status = rig.bridge.status().await.to_string();
    assert!(!status.contains(CANARY), "the status shows it: {status}");
    rig
}

/// The requests that only who follows makes: for `/x`.
fn followed(server: &Mantyx) -> Vec<Recorded> {
    server.recorded().into_iter().filter(|one| one.target.starts_with("/x")).collect()
}

/// A14: MCP over both transports, cards, calls of agents, tokens, local tools.
#[tokio::test]
async fn no_backend_sends_us_elsewhere() {
    let (trap, target) = (Mantyx::start().await, Mantyx::start().await);
    let _rig = spring(&trap, (&trap.url(), ""), &locations(&target)).await;
    assert!(target.recorded().is_empty(), "none was followed: {:?}", target.recorded());
}

/// A14: the same server without TLS is another one, on the same port, too.
#[tokio::test]
async fn no_backend_leads_us_off_tls() {
    let (trap, authority) = (Mantyx::start().await, Authority::new());
    let front = Front::before(&trap.url(), &authority, None, "http/1.1").await;
    let dir = TempDir::new().expect("the temporary directory is writable");
    let tls = client_files(dir.path(), &authority, &authority.sign(&["bridge.acme"]));
    let same_port = front.url().replacen("https", "http", 1);
    let locations = [format!("{}/x", trap.url()), format!("{same_port}/x")];
    let rig = spring(&trap, (&front.url(), &tls), &locations).await;
    assert!(followed(&trap).is_empty(), "{:?}", followed(&trap));
    let told = rig.bridge.backend("mcp_307_1").await["lastError"].to_string();
    assert!(told.contains(&same_port) && told.contains("not followed"), "{told}");
}

/// A14: within an origin, MCP's clients follow what repeats the request, and nobody else anything;
/// a user in the address is no origin that was configured.
#[tokio::test]
async fn client_that_follows_redirects_reaches_the_same_origin_and_no_further() {
    let trap = Mantyx::start().await;
    let named = trap.url().replacen("http://", &format!("http://u:{CANARY}@"), 1);
    let rig = spring(&trap, (&trap.url(), ""), &["/x".to_owned(), format!("{named}/xu")]).await;
    let followed = followed(&trap);
    assert!(followed.iter().all(|one| one.target == "/x"), "nobody's user: {followed:?}");
    let by = |method: &str| followed.iter().filter(|one| one.method == method).count();
    assert!(by("POST") > 0 && by("GET") > 0, "Streamable HTTP and SSE: {followed:?}");
    assert!(followed.iter().all(|one| one.header("x-api-key") == Some(CANARY)), "{followed:?}");
    for way in ["card", "token"] {
        for status in STATUSES {
            let told = rig.bridge.backend(&format!("{way}_{status}_0")).await;
            assert!(told["lastError"].to_string().contains(&status.to_string()), "{told}");
        }
    }
}

/// A14: eleven hops, of which five are made.
#[tokio::test]
async fn a_chain_of_redirects_ends() {
    let trap = Mantyx::start().await;
    for hop in 0..11 {
        let head = ["HTTP/1.1 308 Moved".to_owned(), format!("Location: /hop_{}", hop + 1)];
        for method in ["GET", "POST"] {
            trap.canned(method, &format!("/hop_{hop}"), &[&head[0], &head[1]], "");
        }
    }
    let url = trap.url();
    let rig = Harness::bare(&format!(
        "mcp:\n  new: {{url: '{url}/hop_0', transport: streamable-http}}\n  \
         old: {{url: '{url}/hop_0', transport: sse}}\n"
    ))
    .await;
    for name in ["new", "old"] {
        let told = wait::soon("the chain should end", async || {
            rig.bridge.backend(name).await["lastError"].as_str().map(str::to_owned)
        });
        assert!(told.await.contains("more than 5 times"), "{name}");
    }
    let met = |hop: usize| trap.recorded().iter().any(|one| one.target == format!("/hop_{hop}"));
    assert!((0..=5).all(met) && !(6..=11).any(met), "{:?}", trap.recorded());
}

/// Has a result posted, a stream opened, and an app ask, at a MANTYX that answers with a redirect
/// to `location`.
async fn ask_mantyx(mantyx: &Mantyx, bridge: &Bridge, status: u16, location: &str) {
    let (line, location) = (format!("HTTP/1.1 {status} Moved"), format!("Location: {location}"));
    let head = [line.as_str(), location.as_str()];
    let results = format!("{RUNS}/run_1/tool-results");
    mantyx.canned("POST", &results, &head, "");
    mantyx.canned("GET", &format!("{RUNS}?limit=1"), &head, "");
    mantyx.script(Script::new().local("tu_1", "ok", "{}").until("never"));
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    wait::soon("the result should be posted", async || mantyx.posts("tu_1").first().map(drop))
        .await;
    let piped = bridge.api("GET", &format!("{RUNS}?limit=1"), None).await;
    // One that leads elsewhere would bring the app's token there.
    let expected = if location.contains("://") { 502 } else { status };
    assert_eq!(piped.status, expected, "{location}");
    mantyx.canned("POST", RUNS, &head, "");
    let refused = bridge.api("POST", RUNS, Some(r#"{"prompt":"x"}"#)).await;
    assert_eq!(refused.status, expected);
    mantyx.canned("POST", &format!("{RUNS}/run_9/cancel"), &head, "");
    bridge.api("POST", &format!("{RUNS}/run_9/cancel"), None).await;
    let turned =
        mantyx.recorded().into_iter().find(|one| one.method == "GET" && one.target == results);
    assert!(turned.is_none(), "a POST becomes no GET: {turned:?}");
}

const TOOL: &str =
    "local:\n  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n";

/// A14: MANTYX itself. An app gets no redirect that leads elsewhere.
#[tokio::test]
async fn no_credential_of_mantyx_goes_elsewhere() {
    for status in STATUSES {
        let target = Mantyx::start().await;
        let rig = Harness::bare(TOOL).await;
        ask_mantyx(&rig.mantyx, &rig.bridge, status, &format!("{}/x", target.url())).await;
        assert!(target.recorded().is_empty(), "{status}: {:?}", target.recorded());
    }
}

/// A14: nor to MANTYX itself by another way: without TLS, or as another user.
#[tokio::test]
async fn mantyx_does_not_lead_us_off_tls() {
    let authority = Authority::new();
    let dir = TempDir::new().expect("the temporary directory is writable");
    let tls = client_files(dir.path(), &authority, &authority.sign(&["bridge.acme"]));
    for status in STATUSES {
        for way in ["http", "the same port", "a user", "a path"] {
            let mantyx = Mantyx::start().await;
            let front = Front::before(&mantyx.url(), &authority, None, "http/1.1").await;
            let url = front.url();
            let bridge = Bridge::ready(&format!(
                "upstream: {{base_url: '{url}', workspace: acme, credential: {CREDENTIAL}, {tls}}}\n\
                 {TOOL}"
            ))
            .await;
            let location = match way {
                "http" => mantyx.url(),
                "the same port" => url.replacen("https", "http", 1),
                "a user" => url.replacen("https://", "https://u:p@", 1),
                _ => "/api".to_owned(),
            };
            ask_mantyx(&mantyx, &bridge, status, &format!("{location}/x")).await;
            assert!(followed(&mantyx).is_empty(), "{way}, {status}: {:?}", followed(&mantyx));
        }
    }
}

/// A14: what renews the tokens of MANTYX is shown to whom it was issued by, and to nobody else.
#[tokio::test]
async fn no_refresh_token_goes_elsewhere() {
    let (trap, target) = (Mantyx::start().await, Mantyx::start().await);
    for status in STATUSES {
        let path = format!("/token_{status}");
        let location = format!("Location: {}/x", target.url());
        trap.canned("POST", &path, &[&format!("HTTP/1.1 {status} Moved"), &location], "");
        let url = trap.url();
        let oauth = format!(
            "token_url: '{url}{path}', client_id: b, client_secret: {CANARY}, refresh_token: {CANARY}"
        );
        let bridge = Bridge::ready(&format!(
            "upstream: {{base_url: '{url}', workspace: acme, oauth: {{{oauth}}}}}\n{TOOL}"
        ))
        .await;
        let told = wait::soon("the redirect should be told", async || {
            bridge.status().await["upstream"]["tokenError"].as_str().map(str::to_owned)
        });
        let told = told.await;
        assert!(told.contains(&status.to_string()) && !told.contains(CANARY), "{told}");
        assert!(trap.recorded().iter().any(|one| one.target == path), "{status} was met");
    }
    assert!(target.recorded().is_empty(), "{:?}", target.recorded());
}
