//! Backends that want tokens: a real agent and a real MCP server behind a gate that lets nothing
//! through without the token that it issued last.

use std::time::Duration;

use crate::{
    frames::Script,
    gate::{CLIENT, Gate, Rules},
    harness::Harness,
    peers::{self, Peer},
    wait,
};

/// The `oauth` of a bridge.yaml; `more` are further keys.
fn oauth(more: &str) -> String {
    let (id, secret) = CLIENT;
    format!("auth: {{oauth: {{client_id: {id}, client_secret: {secret}{more}}}}}")
}

fn token_url(gate: &Gate) -> String {
    format!(", token_url: \"{}/token\"", gate.url())
}

async fn agent(rules: Rules, arguments: &[&str]) -> (Gate, Peer) {
    let gate = Gate::start(rules).await;
    let agent = peers::a2a_behind(&gate.url(), arguments).await;
    gate.leads_to(agent.url());
    (gate, agent)
}

async fn server(rules: Rules) -> (Gate, Peer) {
    let gate = Gate::start(rules).await;
    let server = peers::everything_http().await;
    gate.leads_to(server.url());
    (gate, server)
}

async fn ask(rig: &Harness, id: &str, message: &str) -> serde_json::Value {
    let script = Script::new().a2a(id, "hr", &format!("task {message}")).answered(id).done();
    rig.run(script).await;
    rig.mantyx.answer(id).await
}

async fn echo(rig: &Harness, id: &str, message: &str) -> serde_json::Value {
    let arguments = serde_json::json!({ "message": message }).to_string();
    rig.run(Script::one_call(id, "ev", "ev_echo", &arguments)).await;
    rig.mantyx.answer(id).await
}

/// No secret and no token got anywhere but where it belongs.
async fn nothing_leaked(rig: &Harness) {
    let posted: Vec<String> = rig.mantyx.recorded().iter().map(|seen| seen.text()).collect();
    let status = rig.bridge.status().await.to_string();
    for text in [rig.bridge.log(), status, posted.concat()] {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn an_agent_gets_a_token_with_everything() {
    let (gate, _agent) = agent(Rules::default(), &[]).await;
    let keys = oauth(&format!("{}, scopes: [hr, talk]", token_url(&gate)));
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\", {keys}}}\n", gate.url())).await;
    rig.bridge.wait_backend("hr", "ready").await;
    assert_eq!(ask(&rig, "tu_1", "Monday").await["result"], "Monday");
    assert_eq!(gate.asked(), ["grant_type=client_credentials&scope=hr+talk"]);
    let passed = gate.passed();
    assert!(passed.contains(&"/.well-known/agent-card.json".to_owned()), "{passed:?}");
    assert!(passed.contains(&"/a2a/jsonrpc".to_owned()), "{passed:?}");
    assert_eq!((gate.issued(), gate.refused()), (1, 0));

    gate.revoke();
    assert_eq!(ask(&rig, "tu_2", "Tuesday").await["result"], "Tuesday");
    assert_eq!((gate.issued(), gate.refused()), (2, 1), "one refusal, and one new token");
    nothing_leaked(&rig).await;
}

#[tokio::test]
async fn a_server_gets_a_token_with_everything() {
    for (has_metadata, wants_post) in [(false, false), (false, true), (true, false)] {
        let rules = Rules { has_metadata, wants_post, ..Rules::default() };
        let (gate, _server) = server(rules).await;
        let keys = oauth(&if has_metadata { String::new() } else { token_url(&gate) });
        let rig =
            Harness::bare(&format!("mcp:\n  ev: {{url: \"{}/mcp\", {keys}}}\n", gate.url())).await;
        rig.bridge.wait_backend("ev", "ready").await;
        assert_eq!(echo(&rig, "tu_1", "hé").await["result"], "Echo: hé");
        let refused = gate.refused();
        assert!(refused <= usize::from(has_metadata), "only what asks where tokens are: {refused}");
        assert_eq!(gate.issued(), 1);
        let asked = gate.asked();
        let resource = format!("resource=http%3A%2F%2F127.0.0.1%3A{}%2Fmcp", port(&gate));
        assert!(asked.iter().all(|form| form.contains(&resource)), "{asked:?}");
        assert_eq!(asked[0].contains("scope=mcp"), has_metadata, "{asked:?}");

        gate.revoke();
        assert_eq!(echo(&rig, "tu_2", "a").await["result"], "Echo: a");
        assert_eq!(gate.issued(), 2, "{has_metadata} {wants_post}");
        assert!(gate.refused() > refused);
        nothing_leaked(&rig).await;
    }
}

fn port(gate: &Gate) -> String {
    gate.url().rsplit(':').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn tokens_are_renewed_before_they_expire() {
    let rules = Rules { lifetime: Duration::from_secs(2), ..Rules::default() };
    let (agent_gate, _agent) = agent(rules, &[]).await;
    let (server_gate, _server) = server(rules).await;
    let rig = Harness::bare(&format!(
        "a2a:\n  hr: {{url: \"{}\", {}}}\nmcp:\n  ev: {{url: \"{}/mcp\", {}}}\n",
        agent_gate.url(),
        oauth(&token_url(&agent_gate)),
        server_gate.url(),
        oauth(&token_url(&server_gate)),
    ))
    .await;
    rig.bridge.wait_backend("hr", "ready").await;
    rig.bridge.wait_backend("ev", "ready").await;
    let mut round = 0;
    wait::until("both should have been renewed", Duration::from_secs(60), async || {
        round += 1;
        let asked = ask(&rig, &format!("tu_a{round}"), "Monday").await;
        assert_eq!(asked["result"], "Monday", "{asked}");
        let echo = echo(&rig, &format!("tu_e{round}"), "a").await;
        assert_eq!(echo["result"], "Echo: a", "{echo}");
        (agent_gate.issued() > 2 && server_gate.issued() > 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_card_says_where_its_tokens_are_issued() {
    let rules = Rules { open: "/.well-known/agent-card.json", ..Rules::default() };
    for revision in ["1.0", "0.3"] {
        let gate = Gate::start(rules).await;
        let token_url = format!("{}/token", gate.url());
        let arguments = ["--card", revision, "--token-url", &token_url];
        let agent = peers::a2a_behind(&gate.url(), &arguments).await;
        gate.leads_to(agent.url());
        let keys = oauth("");
        let rig =
            Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\", {keys}}}\n", gate.url())).await;
        rig.bridge.wait_backend("hr", "ready").await;
        assert_eq!(ask(&rig, "tu_1", "Monday").await["result"], "Monday", "{revision}");
        assert_eq!((gate.issued(), gate.refused()), (1, 0), "{revision}");
        nothing_leaked(&rig).await;
    }
}

#[tokio::test]
async fn mistake_in_a_client_is_told_to_the_operator_alone() {
    let (gate, _server) = server(Rules::default()).await;
    let url = gate.url();
    let rig = Harness::bare(&format!(
        "a2a:\n  hr: {{url: \"{url}\", auth: {{oauth: {{client_id: bridge, \
         client_secret: wrong-canary, token_url: \"{url}/token\"}}}}}}\n"
    ))
    .await;
    let error = wait::soon("the refusal should be in the status", async || {
        rig.bridge.backend("hr").await["lastError"].as_str().map(str::to_owned)
    })
    .await;
    let expected =
        format!("there is no token: the token endpoint {url}/token answered 401 invalid_client");
    assert!(error.ends_with(&expected), "{error}");
    let body = r#"{"toolUseId":"tu_1","name":"hr_unavailable","input":{}}"#;
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(body)).await;
    assert!(!answer.text().contains("token endpoint"), "{}", answer.text());
    assert_eq!(gate.asked().len(), 2, "both ways to show the secret, once");
    nothing_leaked(&rig).await;
}

#[tokio::test]
async fn a_static_token_is_a_header() {
    let (gate, _agent) = agent(Rules::default(), &[]).await;
    // The first token that a gate issues, to somebody else.
    let form = format!("grant_type=client_credentials&client_id={}", CLIENT.0);
    let addr = gate.url().trim_start_matches("http://").parse().expect("an address");
    let request = crate::http::Request::new("POST", "/token")
        .header("authorization", "Basic YnJpZGdlOnMzY3JldC1jYW5hcnk=");
    let issued = request.json(form).answer(addr).await.expect(200);
    let token = issued["access_token"].as_str().expect("a token");
    let rig = Harness::bare(&format!(
        "a2a:\n  hr: {{url: \"{}\", auth: {{bearer: \"{token}\"}}}}\n",
        gate.url()
    ))
    .await;
    rig.bridge.wait_backend("hr", "ready").await;
    assert_eq!(ask(&rig, "tu_1", "Monday").await["result"], "Monday");
    assert_eq!((gate.issued(), gate.refused()), (1, 0));
    nothing_leaked(&rig).await;
}
