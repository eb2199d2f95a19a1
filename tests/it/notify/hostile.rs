//! Receivers that do harm where they can.

use super::receiver::{Behaviour, PATH, Receiver};
use super::{NOTE, PATIENCE, SECRET, bridge, call, ops, problem};
use crate::{
    approvals::{approve, asked, waiting},
    frames::Script,
    wait,
};

/// A receiver that does something else than take notices, and what the operator reads of it.
struct Case {
    behaviour: Behaviour,
    told: &'static str,
}

#[tokio::test]
async fn hostile_receiver_harms_nothing_and_is_told() {
    let elsewhere = Receiver::start().await;
    for Case { behaviour, told } in [
        Case { behaviour: Behaviour::Redirect(elsewhere.url()), told: "a redirect, which is not" },
        Case { behaviour: Behaviour::Flood("500 No", 10 << 20), told: "HTTP 500" },
        Case { behaviour: Behaviour::Silence, told: "no answer within 10 s" },
        Case { behaviour: Behaviour::Status("garbage"), told: "does not take notices" },
    ] {
        let receiver = Receiver::start().await;
        receiver.behave(behaviour.clone());
        let keys = format!("url: '{}', secret: '{SECRET}'", receiver.url());
        let rig = bridge("approval", &keys).await;
        call(&rig, "tu_1").await;
        receiver.delivery(1).await;
        let approval = asked(&rig.bridge).await;
        approve(&rig.bridge, &approval).await;
        let answer = rig.mantyx.answer("tu_1").await;
        assert_eq!(answer["result"], "noted: x", "{behaviour:?}: the call is made");
        let message = wait::until(&format!("{behaviour:?} should be told"), PATIENCE, async || {
            problem(&rig).await.filter(|message| message.contains(told))
        })
        .await;
        let status = rig.bridge.status().await.to_string();
        for text in [message, status, rig.bridge.log()] {
            assert!(!text.contains(PATH) && !text.contains(SECRET), "a secret is in {text}");
        }
        let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
        let failed = r#"mantyx_bridge_notices_failed_total{receiver="ops"} "#;
        assert!(
            metrics.lines().any(|line| line.starts_with(failed) && !line.ends_with(" 0")),
            "{metrics}"
        );
    }
    assert_eq!(elsewhere.count(), 0, "no redirect was followed");
}

#[tokio::test]
async fn success_with_ten_megabytes_counts_and_is_not_read() {
    let receiver = Receiver::start().await;
    receiver.behave(Behaviour::Flood("200 OK", 10 << 20));
    let rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    call(&rig, "tu_1").await;
    wait::soon("it should count as sent", async || (ops(&rig).await["sent"] == 1).then_some(()))
        .await;
    assert_eq!(problem(&rig).await, None);
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn eleven_calls_and_more_at_once_are_one_notice() {
    let mut receiver = Receiver::start().await;
    receiver.stop().await;
    let rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    let mut script = Script::new();
    for number in 0..20 {
        script = script.mcp(&format!("tu_{number}"), "plain", "plain_note", NOTE);
    }
    rig.run(script.answered("tu_0")).await;
    waiting(&rig.bridge, 20).await;
    wait::soon("all should wait", async || (ops(&rig).await["waiting"] == 20).then_some(())).await;
    receiver.restart().await;
    // The first may be under way before the others have come.
    let mut told = 0;
    for number in 1..=11 {
        let body = receiver.delivery(number).await.json();
        told += body["data"]["count"].as_u64().unwrap_or(1);
        if told == 20 {
            break;
        }
    }
    assert_eq!(told, 20, "{:?}", receiver.all());
    assert!(receiver.count() <= 2, "{:?}", receiver.all());
}
