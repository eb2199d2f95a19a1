//! Logins at servers that others have written, with their own issuers.

use serde_json::Value;

use super::{Waiting, person};
use crate::{
    bridge::Bridge,
    peers::{self, Login},
};

/// Logs in, and calls a tool of the server; what the command said, and the call's answer.
async fn log_in_and_call(login: &Login, keys: &str, tool: &str) -> (String, Value, Bridge) {
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\nmcp:\n  notion: {{url: \"{}\"{keys}}}\n",
        login.url
    );
    let bridge = Bridge::start(&config).await;
    let waiting = Waiting::begin(&bridge).await;
    let page = person(&[&waiting.url]).await;
    assert!(page.contains("Logged in: notion"), "{page}");
    let said = waiting.end().await;
    bridge.wait_backend("notion", "ready").await;
    let call = format!(r#"{{"toolUseId":"tu_1","name":"{tool}","args":{{"name":"Ada"}}}}"#);
    let answer = bridge.api("POST", "/v1/tool-calls", Some(&call)).await.value();
    (said, answer, bridge)
}

/// Its issuer rotates refresh tokens, and lets a client that it knows in at once.
#[tokio::test]
async fn server_of_fastmcp_takes_a_login_and_keeps_it_over_a_restart() {
    let login = peers::fastmcp_login().await;
    let (said, answer, mut bridge) = log_in_and_call(&login, "", "notion_greet").await;
    assert_eq!(said, "notion: logged in; 1 tool. The bridge renews the login.");
    assert!(answer.to_string().contains("Hello, Ada"), "{answer}");
    bridge.stop().await;
    bridge.restart().await;
    bridge.wait_backend("notion", "ready").await;
}

/// Its issuer has another port, which the operator names, and gives no refresh tokens.
#[tokio::test]
async fn example_of_the_typescript_sdk_takes_a_login_at_the_issuer_that_the_operator_names() {
    let login = peers::sdk_login().await;
    let keys = format!(", auth: {{oauth: {{issuer: \"{}\"}}}}", login.issuer);
    let (said, answer, _bridge) = log_in_and_call(&login, &keys, "notion_greet").await;
    assert!(said.contains("gave no refresh token: the login ends in"), "{said}");
    assert!(answer.to_string().contains("Hello, Ada"), "{answer}");
}
