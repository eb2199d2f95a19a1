//! What the operator accepts at one replica, and the order of tools, are the group's.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::two_of;
use crate::{bridge::Bridge, harness::tool_names, http::Request, peers, wait};

fn catalog(tools: &[(&str, &str)]) -> String {
    let tool = |(name, description): &(&str, &str)| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
    json!({ "tools": tools.iter().map(tool).collect::<Vec<Value>>() }).to_string()
}

async fn trust(bridge: &Bridge) -> Value {
    bridge.api("GET", "/v1/trust", None).await.expect(200)["backends"][0].clone()
}

async fn wait_findings(bridge: &Bridge, count: usize) -> Value {
    wait::soon(&format!("there should be {count} findings"), async || {
        let trust = trust(bridge).await;
        (trust["findings"].as_array().map(Vec::len) == Some(count)).then_some(trust)
    })
    .await
}

async fn offered(bridge: &Bridge) -> Vec<String> {
    let refs = bridge.api("GET", "/v1/tool-refs", None).await.expect(200);
    let mut names = tool_names(&refs);
    names.retain(|name| name.starts_with("chg_"));
    names
}

#[tokio::test]
async fn pin_that_is_accepted_at_one_replica_is_accepted_at_all() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("catalog.json");
    fs::write(&path, catalog(&[("b", "B."), ("a", "A.")])).expect("a new directory");
    let entry = peers::with(&peers::changing(&path, &[]), "pin: enforce");
    let mut it = two_of(dir, &format!("mcp:\n  chg: {entry}\n")).await;
    for bridge in [&it.one, &it.two] {
        bridge.wait_backend("chg", "ready").await;
    }
    let changed = [("c", "C."), ("a", "Other words."), ("b", "B.")];
    fs::write(&path, catalog(&changed)).expect("the directory is there");
    for bridge in [&it.one, &it.two] {
        bridge.api("POST", "/v1/backends/chg/refresh", Some("{}")).await.expect(200);
        wait_findings(bridge, 2).await;
        assert_eq!(offered(bridge).await, ["chg_b"]);
    }
    let digest = trust(&it.one).await["digest"].clone();
    let accept = json!({"accept": "all", "digest": digest}).to_string();
    let request = it.two.request("POST", "/v1/trust/chg").json(accept);
    let request: Request = request.header("X-Bridge-Operator", &it.two.operator());
    request.clone().answer(it.two.addr()).await.expect(200);
    for bridge in [&it.two, &it.one] {
        wait_findings(bridge, 0).await;
        assert_eq!(offered(bridge).await, ["chg_b", "chg_a", "chg_c"]);
    }

    // A replica that comes later has neither a file nor seen the first catalog.
    let later = it.one.replica().await;
    later.wait_backend("chg", "ready").await;
    wait::soon("it should take over the order", async || {
        (offered(&later).await == ["chg_b", "chg_a", "chg_c"]).then_some(())
    })
    .await;
    assert_eq!(trust(&later).await["findings"], json!([]));

    it.postgres.stop().await;
    wait::soon("the replica should miss the database", async || {
        (Request::new("GET", "/readyz").answer(it.two.addr()).await.status == 503).then_some(())
    })
    .await;
    let refused = request.answer(it.two.addr()).await.expect_error(503);
    assert_eq!(refused["error"], "not_ready", "{refused}");
}
