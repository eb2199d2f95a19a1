//! `kill -9` while the bridge renews a login. `CRASH_CYCLES` sets the number of kills.

use std::path::Path;

use serde_json::{Value, json};

use super::{Scene, read};
use crate::{crash::number, wait};

#[tokio::test]
async fn login_outlives_kill_9_during_refreshes() {
    kill_during_refreshes(6).await;
}

#[tokio::test]
#[ignore = "takes half an hour"]
async fn login_kills_200() {
    let count = number("CRASH_CYCLES").map_or(200, |n| usize::try_from(n).expect("64 bits"));
    kill_during_refreshes(count).await;
}

/// Kills the bridge before the issuer's answer is there, with the answer, and once it is on disk. A
/// login is lost only where the issuer has exchanged the token that is on disk, so that its
/// successor was lost with the process. Each such case is counted.
async fn kill_during_refreshes(times: usize) {
    let mut scene = Scene::start(2).await;
    scene.log_in().await;
    let path = scene.bridge.state("logins/notion/bridge.json");
    let (mut kept, mut lost) = (0, 0);
    for round in 0..times {
        let slow = if round % 3 == 0 { 30 } else { 0 };
        let before = scene.world(json!({ "slow": slow })).await;
        let stored = refresh_token(&path);
        wait::soon("a token should be renewed", async || {
            if round % 3 == 2 {
                return (refresh_token(&path) != stored).then_some(());
            }
            let world = scene.world(json!({})).await;
            (world["refreshes"].as_u64() > before["refreshes"].as_u64()).then_some(())
        })
        .await;
        scene.bridge.kill9();
        let last = refresh_token(&path);
        scene.world(json!({ "slow": 0 })).await;
        scene.bridge.restart().await;
        let state = wait::soon("the backend should be ready, or need a login", async || {
            let backend = scene.bridge.backend("notion").await;
            let is_settled = backend["state"] == "ready" || backend["needs"] == "login";
            is_settled.then_some(backend)
        })
        .await;
        if state["needs"] == "login" {
            lost += 1;
            let end = scene.logins().await[0]["state"].clone();
            assert_eq!(end, "ended", "no login is lost in silence");
            let exchanged = scene.world(json!({})).await["exchanged"].clone();
            let mut exchanged = exchanged.as_array().expect("a list").iter();
            assert!(exchanged.any(|token| *token == last), "round {round}: the token was good");
            scene.log_in().await;
        } else {
            kept += 1;
            assert!(scene.call().await.to_string().contains("called by anna"));
        }
    }
    println!("{kept} logins were kept, {lost} were killed between the answer and the disk");
    assert_eq!(kept + lost, times);
    assert!(kept > 0);
}

/// The refresh token on disk.
fn refresh_token(path: &Path) -> Value {
    let record: Value = serde_json::from_str(&read(path)).expect("a whole record");
    record["refresh"].clone()
}
