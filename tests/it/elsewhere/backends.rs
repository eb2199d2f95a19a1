//! Replicas that do not have the same backends.

use std::time::Duration;

use tempfile::TempDir;

use crate::{
    approvals::{ALL, approve, asked},
    bridge::Bridge,
    frames::Script,
    harness::ledger_in,
    mantyx::Mantyx,
    peers,
    postgres::Postgres,
    wait,
};

/// The replicas `with` have the backend `plain`, the others none.
async fn group<const N: usize>(with: [bool; N]) -> ([Bridge; N], Mantyx, Postgres, TempDir) {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let dir = TempDir::new().expect("a directory");
    let plain = peers::ledger(&ledger_in(&dir), &[]).replacen('{', &format!("{{{ALL}"), 1);
    let mut replicas = Vec::new();
    for with in with {
        let only_on = if with { "" } else { "only_on: [another-host.example]," };
        let config = format!(
            "{}state: {{postgres: \"{}\"}}\nmcp:\n  plain: {}\n",
            mantyx.upstream(),
            postgres.url(),
            plain.replacen('{', &format!("{{{only_on}"), 1)
        );
        let replica = Bridge::ready(&config).await;
        if with {
            replica.wait_backend("plain", "ready").await;
        }
        replicas.push(replica);
    }
    // They have said what they have.
    let published = format!("{}", with.iter().filter(|with| **with).count());
    wait::soon("all should say which backends they have", async || {
        let rows =
            postgres.query("select count(*) from mantyx_bridge.replica where backends <> '{}'");
        (rows == [published.clone()]).then_some(())
    })
    .await;
    let replicas = replicas.try_into().expect("as many as were asked for");
    (replicas, mantyx, postgres, dir)
}

async fn run_that_waits(bridge: &Bridge, mantyx: &Mantyx) -> String {
    mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    asked(bridge).await
}

#[tokio::test]
async fn a_run_goes_to_a_replica_that_has_its_backends() {
    let ([mut first, without, with], mantyx, postgres, _dir) = group([true, false, true]).await;
    let refs = without.api("GET", "/v1/tool-refs", None).await.text();
    assert!(!refs.contains("plain_note"), "{refs}");
    run_that_waits(&first, &mantyx).await;
    let id = asked(&with).await;
    first.kill9();
    approve(&with, &id).await;
    wait::until("the call should be made", Duration::from_secs(40), async || {
        mantyx.is_answered("tu_1").then_some(())
    })
    .await;
    assert_eq!(mantyx.answer("tu_1").await["result"], "noted: x");
    let owner = postgres.query("select count(*) from mantyx_bridge.run join mantyx_bridge.replica on owner = id where backends <> '{}'");
    assert_eq!(owner, ["1"]);
}

#[tokio::test]
async fn a_backend_that_is_another_one_elsewhere_is_a_problem() {
    let ([first], mantyx, postgres, _dir) = group([true]).await;
    let config = format!(
        "{}state: {{postgres: \"{}\"}}\nmcp:\n  plain: {}\n",
        mantyx.upstream(),
        postgres.url(),
        peers::asking()
    );
    let other = Bridge::ready(&config).await;
    for replica in [&first, &other] {
        wait::soon("the problem should be told", async || {
            let status = replica.status().await;
            let problems = status["problems"].as_array().expect("problems").clone();
            let told = problems.into_iter().find(|problem| problem["subject"] == "replicas")?;
            told["message"].as_str().unwrap_or_default().contains("`plain`").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_run_whose_backends_are_nowhere_is_answered_all_the_same() {
    let ([mut first, _without], mantyx, _postgres, _dir) = group([true, false]).await;
    run_that_waits(&first, &mantyx).await;
    first.kill9();
    wait::until("the call should be answered", Duration::from_secs(40), async || {
        mantyx.is_answered("tu_1").then_some(())
    })
    .await;
    let error = mantyx.answer("tu_1").await["error"].to_string();
    assert!(error.contains("plain"), "{error}");
}
