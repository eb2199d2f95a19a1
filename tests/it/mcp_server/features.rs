//! What a client gets beside tools: resources, prompts, and questions for its user.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Client, META};
use crate::{harness::Harness, http::Request, peers, wait};

#[tokio::test]
async fn resources_and_prompts_are_those_of_the_apps_servers() {
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa}}\n  \
         b: {{token: bbbbbbbbbbbbbbbb, tools: {{one: {{allow: [echo]}}}}}}\n\
         mcp:\n  one: {}\n  two: {}\n",
        peers::everything_stdio(),
        peers::everything_stdio()
    );
    let rig = Harness::bare(&config).await;
    let a = Client::with_token(&rig.bridge, "aaaaaaaaaaaaaaaa").await;
    let b = Client::with_token(&rig.bridge, "bbbbbbbbbbbbbbbb").await;
    let names = async |client: &Client<'_>, method: &str, list: &str, key: &str| -> Vec<String> {
        let listed = client.answer(method, "").await.expect(200);
        let all = listed["result"][list].as_array().unwrap().iter();
        all.map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    let prompts = async |client| names(client, "prompts/list", "prompts", "name").await;
    // Resources are listed after the tools of a new connection.
    wait::soon("prompts of both", async || (prompts(&a).await.len() == 8).then_some(())).await;
    assert_eq!(prompts(&b).await, prompts(&a).await[4..], "it may use all of `two` alone");
    let uris = names(&a, "resources/list", "resources", "uri").await;
    let mut once = uris.clone();
    once.dedup();
    assert_eq!(uris, once, "each URI is there once");
    let status = rig.bridge.status().await;
    let shadowed = |name: &str| {
        let all = status["problems"].as_array().unwrap().iter();
        all.filter(|one| one["subject"] == name)
            .map(|one| one["message"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(shadowed("one"), Vec::<Value>::new());
    assert!(shadowed("two")[0].as_str().unwrap().contains("from `one`"), "{status}");
    let hidden = b.answer("prompts/get", r#""name":"one_simple_prompt""#).await;
    assert_eq!(hidden.expect(200)["error"]["code"], -32602);
    let refused = a.answer("prompts/get", r#""name":"one_args_prompt","arguments":{}"#).await;
    assert_eq!(refused.expect(200)["error"]["code"], -32602, "the server's own error");
}

/// Seen with several real servers: they say that they have resources and refuse the list of
/// templates.
#[tokio::test]
async fn server_without_templates_has_its_resources_and_prompts() {
    let rig = Harness::bare(&format!("mcp:\n  say: {}\n", peers::saying("x"))).await;
    rig.bridge.wait_backend("say", "ready").await;
    let client = Client::with_token(&rig.bridge, rig.bridge.token()).await;
    wait::soon("its prompt", async || {
        let prompts = client.answer("prompts/list", "").await.text();
        assert!(!rig.bridge.log().contains("were not listed"), "{}", rig.bridge.log());
        prompts.contains("say_say").then_some(())
    })
    .await;
    assert!(client.answer("resources/list", "").await.text().contains("say://it"));
}

#[tokio::test]
async fn a_question_goes_to_no_one_but_the_client_that_called() {
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa}}\n  b: {{token: bbbbbbbbbbbbbbbb}}\n\
         mcp:\n  all: {}\n  ask: {}\n",
        peers::everything_stdio(),
        peers::asking()
    );
    let mut rig = Harness::bare(&config).await;
    let addr = rig.bridge.addr();
    // This client has not said that it can ask.
    let mute = Client::with_token(&rig.bridge, "aaaaaaaaaaaaaaaa").await;
    wait::soon("the tools of both", async || {
        let listed = mute.answer("tools/list", "").await.text();
        ["all_trigger_url_elicitation", "ask_greet"]
            .iter()
            .all(|name| listed.contains(name))
            .then_some(())
    })
    .await;
    let cancelled = mute.answer("tools/call", r#""name":"all_trigger_elicitation_request""#).await;
    assert!(cancelled.text().contains("cancelled"), "{}", cancelled.text());
    let refused = mute.answer("tools/call", r#""name":"ask_greet""#).await.expect(200);
    let why = refused["result"]["content"][0]["text"].as_str();
    let why = why.unwrap_or_else(|| panic!("{refused}"));
    assert!(refused["result"]["isError"] == true && why.contains("input from the user"), "{why}");

    let stateless =
        |token: &str| Client { bridge: &rig.bridge, token: token.to_owned(), session: None };
    let (a, b) = (stateless("aaaaaaaaaaaaaaaa"), stateless("bbbbbbbbbbbbbbbb"));
    // A client with sessions knows the error that asks for a link to be opened before the call.
    let link = r#""name":"all_trigger_url_elicitation","arguments":{"url":"https://a.example/x","message":"m","errorPath":true}"#;
    let first = mute.answer("tools/call", link).await.expect(200);
    assert_eq!(first["error"]["code"], -32042, "{first}");
    let url = first["error"]["data"]["elicitations"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("https://"), "{first}");
    let other = link.replace("a.example", "b.example");
    let told = a.answer("tools/call", &other).await.expect(200);
    let text = told["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("open https://"), "{told}");
    let greet = async |client: &Client<'_>, params: &str| -> Value {
        let capable = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"ask_greet"{params},{capable}}}}}"#
        );
        let request = client.post(&message).header("MCP-Protocol-Version", "2026-07-28");
        let request = request.header("Mcp-Method", "tools/call").header("Mcp-Name", "ask_greet");
        request.answer(addr).await.expect(200)
    };
    let asked = greet(&a, "").await;
    let question = &asked["result"]["inputRequests"]["name"];
    assert_eq!(question["params"]["message"], "Which name?", "{asked}");
    let state = asked["result"]["requestState"].to_string();
    let reply = r#"{"name":{"action":"accept","content":{"value":"Ada"}}}"#;
    let with = |responses: &str| format!(r#","requestState":{state},"inputResponses":{responses}"#);
    assert_eq!(greet(&b, &with(reply)).await["error"]["code"], -32602, "another app's call");
    assert_eq!(greet(&a, &with("{}")).await["error"]["code"], -32602, "no answer");
    let number = greet(&a, r#","requestState":7"#).await;
    assert_eq!(number["error"]["code"], -32602, "no state of a call");
    let asked = greet(&a, &with(reply)).await;
    assert_eq!(greet(&a, &with(reply)).await["error"]["code"], -32602, "answered already");
    let next = asked["result"]["requestState"].to_string();
    let decline = with(r#"{"colour":{"action":"decline"}}"#).replace(&state, &next);
    let declined = greet(&a, &decline).await;
    assert_eq!(declined["result"]["content"][0]["text"], "decline: colour", "{declined}");
    let idle = async || {
        let status = Request::new("GET", "/v1/status").bearer("aaaaaaaaaaaaaaaa");
        let status = status.answer(addr).await.expect(200);
        let all = status["backends"].as_array().unwrap().iter();
        all.map(|one| one["callsInFlight"].as_u64().unwrap()).sum::<u64>() == 0
    };
    assert!(idle().await, "no call is left");
    // An open question does not hold the daemon up: its server is told that the daemon stops.
    let asked = greet(&a, "").await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let began = Instant::now();
    rig.bridge.stop().await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A read keeps to the limit of its app: otherwise an app with a limit of one call fills a server.
#[tokio::test]
async fn read_waits_for_a_place_among_the_calls_of_its_app() {
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa, max_concurrent_calls: 1}}\n\
         calls: {{timeout: 8s}}\nmcp:\n  one: {}\n",
        peers::everything_stdio(),
    );
    let rig = Harness::bare(&config).await;
    let addr = rig.bridge.addr();
    let a = Client::with_token(&rig.bridge, "aaaaaaaaaaaaaaaa").await;
    let resources = wait::soon("the resources", async || {
        let listed = a.answer("resources/list", "").await.expect(200);
        listed["result"]["resources"].as_array().filter(|all| !all.is_empty()).cloned()
    })
    .await;
    let long =
        r#""name":"one_trigger_long_running_operation","arguments":{"duration":60,"steps":1}"#;
    let long = a.call(7, "tools/call", long);
    let mut pending = tokio::task::JoinSet::new();
    pending.spawn(async move { drop(long.answer(addr).await) });
    wait::soon("the long call", async || {
        let status = Request::new("GET", "/v1/status").bearer("aaaaaaaaaaaaaaaa");
        let status = status.answer(addr).await.expect(200);
        (status["backends"][0]["callsInFlight"] == 1).then_some(())
    })
    .await;
    let uri = format!(r#""uri":{}"#, resources[0]["uri"]);
    let refused = a.answer("resources/read", &uri).await.expect(200);
    let why = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("as many calls running as it may"), "{refused}");
    // The long call has ended by its time limit.
    pending.join_all().await;
    let read = a.answer("resources/read", &uri).await.expect(200);
    assert!(read["result"]["contents"].is_array(), "{read}");
}
