//! Tasks that a client of A2A has begun at one replica, at another one.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::two_of;
use crate::{bridge::Bridge, owners::token, peers, wait};

async fn rpc(bridge: &Bridge, app: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    super::ask(bridge, app, "POST", "/a2a/hr", &body).await.expect(200)
}

#[tokio::test]
async fn tasks_of_an_app_are_listed_at_each_replica() {
    let agent = peers::a2a_v1("1.0").await;
    let apps = format!("apps:\n  a: {{token: {}}}\n  b: {{token: {}}}\n", token("a"), token("b"));
    let sections = format!("{apps}a2a:\n  hr: {{url: \"{}\"}}\n", agent.url());
    let it = two_of(TempDir::new().expect("a directory"), &sections).await;
    for bridge in [&it.one, &it.two] {
        wait::soon("the agent should be known", async || {
            let status = super::ask(bridge, "a", "GET", "/v1/status", "").await.expect(200);
            (status["backends"][0]["state"] == "ready").then_some(())
        })
        .await;
    }
    let begin = async |bridge: &Bridge, app: &str, id: &str| {
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "task x"}]});
        let answer = rpc(bridge, app, "SendMessage", json!({ "message": message })).await;
        answer["result"]["task"]["id"].as_str().expect("an id").to_owned()
    };
    // An id that is no text for PostgreSQL.
    let first = begin(&it.one, "a", "m\u{0}1").await;
    let second = begin(&it.two, "a", "m2").await;
    let others = begin(&it.one, "b", "m1").await;
    let listed = async |bridge: &Bridge, app: &str| {
        let answer = rpc(bridge, app, "ListTasks", json!({})).await;
        let tasks = answer["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let mut ids: Vec<String> =
            tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect();
        ids.sort();
        ids
    };
    let mut own = [first, second];
    own.sort();
    for bridge in [&it.one, &it.two] {
        assert_eq!(listed(bridge, "a").await, own);
        assert_eq!(listed(bridge, "b").await, std::slice::from_ref(&others));
    }
    // Page after page.
    let mut token = json!("");
    let mut paged = Vec::new();
    for _ in 0..2 {
        let page = rpc(&it.two, "a", "ListTasks", json!({"pageSize": 1, "pageToken": token})).await;
        paged.push(page["result"]["tasks"][0]["id"].as_str().expect("an id").to_owned());
        token = page["result"]["nextPageToken"].clone();
    }
    paged.sort();
    assert_eq!((paged.as_slice(), token), (own.as_slice(), json!("")));
}
