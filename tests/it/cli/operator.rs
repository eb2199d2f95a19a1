//! What the operator sees of a bridge with several apps, and what the view of one app is.

use serde_json::Value;

use super::{FAILED, OK, Ran, USAGE, client_config, run, run_with};
use crate::{bridge::Bridge, http::Request, owners::token, wait};

/// Two apps, each with its own backends; one of the second app's is down.
fn two_apps() -> String {
    let echo = "{description: Echoes., parameters: {type: object}, command: [cat]}";
    format!(
        "upstream: {{sandbox: true, workspace: acme}}\n\
         local:\n  first: {echo}\n  second: {echo}\n\
         mcp:\n  broken: {{command: /nonexistent/program}}\n\
         apps:\n  one: {{token: {}, backends: [first]}}\n  \
         two: {{token: {}, backends: [second, broken]}}\n",
        token("one"),
        token("two")
    )
}

/// Waits until the operator, who shows no app's token, reads that the second app's backend is down.
async fn wait_down(bridge: &Bridge) {
    wait::soon("the backend should be down", async || {
        let request = Request::new("GET", "/v1/status");
        let request = request.header("X-Bridge-Operator", &bridge.operator());
        let status = request.answer(bridge.addr()).await.expect(200);
        let backends = status["backends"].as_array().expect("a list").clone();
        backends.iter().any(|one| one["name"] == "broken" && one["state"] == "down").then_some(())
    })
    .await;
}

async fn asked(bridge: &Bridge, words: &[&str]) -> Ran {
    run(&[words, &["-c", &client_config(bridge)]].concat()).await
}

fn names(backends: &Value) -> Vec<&str> {
    let all = backends.as_array().expect("a list");
    all.iter().filter_map(|backend| backend["name"].as_str()).collect()
}

#[tokio::test]
async fn operator_sees_all_backends_and_app_one_view() {
    let bridge = Bridge::start(&two_apps()).await;
    wait_down(&bridge).await;
    let status = asked(&bridge, &["status", "--json"]).await.expect(OK).json();
    assert_eq!(names(&status["backends"]), ["broken", "first", "second"]);
    let one = asked(&bridge, &["status", "--json", "--app", "one"]).await.expect(OK).json();
    assert_eq!(names(&one["backends"]), ["first"]);
    assert_eq!(one["injected"].as_array().expect("a list").len(), 1, "{one}");

    let tools = asked(&bridge, &["tools"]).await.expect(OK).out;
    assert!(tools.contains("\nfirst ") && tools.contains("\nsecond "), "{tools}");
    let tools = asked(&bridge, &["tools", "--app", "two"]).await.expect(OK).out;
    assert!(!tools.contains("\nfirst ") && tools.contains("\nsecond "), "{tools}");

    let unknown = asked(&bridge, &["status", "--app", "three"]).await.expect(FAILED);
    assert!(unknown.err.contains("there are: one, two"), "{}", unknown.err);
    let given = ["status", "--url", &bridge.url(), "--app", "one"];
    let given = run_with(&given, &[("MANTYX_BRIDGE_TOKEN", &token("one"))]).await.expect(USAGE);
    assert!(given.err.contains("the token says"), "{}", given.err);
}

#[tokio::test]
async fn check_fails_for_a_backend_that_only_another_app_may_use() {
    let bridge = Bridge::start(&two_apps()).await;
    wait_down(&bridge).await;
    let check = asked(&bridge, &["status", "--check"]).await.expect(FAILED);
    assert!(check.out.contains("broken: "), "{}", check.out);
    asked(&bridge, &["status", "--check", "--app", "one"]).await.expect(OK);
    asked(&bridge, &["status", "--check", "--app", "two"]).await.expect(FAILED);
}

#[tokio::test]
async fn call_and_refresh_reach_the_backends_of_each_app() {
    let bridge = Bridge::start(&two_apps()).await;
    for tool in ["first", "second"] {
        let called = asked(&bridge, &["call", tool, r#"{"a":1}"#]).await.expect(OK);
        assert_eq!(called.out, "{\"a\":1}\n", "{tool}");
        asked(&bridge, &["refresh", tool]).await.expect(OK);
    }
    let refused = asked(&bridge, &["call", "second", "{}", "--app", "one"]).await.expect(FAILED);
    assert!(refused.err.contains("second"), "{}", refused.err);
    let refused = asked(&bridge, &["refresh", "second", "--app", "one"]).await.expect(FAILED);
    assert!(refused.err.contains("first"), "the backends of the app: {}", refused.err);
}

#[tokio::test]
async fn app_without_the_operators_secret_sees_its_own_backends() {
    let bridge = Bridge::start(&two_apps()).await;
    let request = Request::new("GET", "/v1/status?app=two").bearer(&token("one"));
    let refused = request.answer(bridge.addr()).await.expect_error(400);
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("operator")));
    std::fs::remove_file(bridge.state("operator")).expect("the daemon has written it");
    let status = asked(&bridge, &["status", "--json", "--app", "two"]).await.expect(OK).json();
    assert_eq!(names(&status["backends"]), ["broken", "second"]);
}
