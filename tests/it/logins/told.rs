//! Where logins are told: metrics, events, doctor and the page; and what does not change by them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Scene, files};
use crate::{
    events::{self, EVENTS},
    metrics::WITH_LOGINS,
    page,
    sse::Stream,
    wait,
};

#[tokio::test]
async fn events_tell_the_operator_of_logins_and_no_app() {
    let scene = Scene::start(3600).await;
    scene.log_in().await;
    let request = || scene.bridge.request("GET", EVENTS);
    let operators = request().header("X-Bridge-Operator", &scene.bridge.operator());
    let mut operators = Stream::request(&scene.bridge, operators).await;
    let mut apps = Stream::request(&scene.bridge, request()).await;
    let login = events::until(&mut operators, "login", |_| true).await;
    assert_eq!((&login["backend"], &login["state"]), (&"notion".into(), &"ok".into()));
    scene.world(json!({ "needs": "write" })).await;
    scene.call().await;
    events::until(&mut operators, "login", |login| login["state"] == "needs_scopes").await;
    scene.run(&["logout", "notion"]).await;
    events::until(&mut operators, "login", |login| login["state"] == "removed").await;
    loop {
        let fields = apps.event().await.expect("the stream stays open").fields();
        assert_ne!(fields.event.as_deref(), Some("login"));
        let data = fields.data.unwrap_or_default();
        // The backend changes once the login is removed.
        if fields.event.as_deref() == Some("backend") && data.contains("\"needs\":\"login\"") {
            break;
        }
    }
}

#[tokio::test]
async fn doctor_says_log_in_in_place_of_a_credential() {
    let scene = Scene::start(3600).await;
    let doctor = async || {
        let output = scene.run(&["doctor", "notion", "--json"]).await;
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let examined = report["examined"].as_array().expect("a list").iter();
        let mut steps = examined.flat_map(|one| one["steps"].as_array().expect("a list"));
        steps.find(|step| step["step"] == "auth").cloned()
    };
    let step = doctor().await.expect("a step");
    assert_eq!(step["verdict"], "fail", "{step}");
    assert_eq!(step["cure"], "log in: `mantyx-bridge login notion`", "{step}");
    scene.log_in().await;
    assert_eq!(doctor().await, None, "the doctor uses the login");
    assert_eq!(scene.world(json!({})).await["refreshes"], 0);
    scene.world(json!({ "end": true, "expire": true })).await;
    scene.call().await;
    scene.problem("invalid_grant").await;
    let step = doctor().await.expect("a step");
    assert_eq!(step["cure"], "log in: `mantyx-bridge login notion`", "{step}");
}

#[tokio::test]
async fn metrics_show_the_state_of_a_login_and_the_exchanges_of_its_token() {
    let scene = Scene::start(3600).await;
    let needed = "mantyx_bridge_login_needed{backend=\"notion\"} 1.0";
    wait::soon("the backend should need a login", async || {
        scene.bridge.api("GET", "/metrics", None).await.text().contains(needed).then_some(())
    })
    .await;
    scene.log_in().await;
    scene.world(json!({ "expire": true })).await;
    scene.call().await;
    let page = scene.bridge.api("GET", "/metrics", None).await.text();
    for name in WITH_LOGINS {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}: {page}");
    }
    for series in [
        "mantyx_bridge_logins{backend=\"notion\",state=\"ok\"} 1.0",
        "mantyx_bridge_logins{backend=\"notion\",state=\"ended\"} 0.0",
        "mantyx_bridge_login_refreshes_total{backend=\"notion\",outcome=\"renewed\"} 1",
        "mantyx_bridge_login_needed{backend=\"notion\"} 0.0",
    ] {
        assert!(page.contains(&format!("\n{series}\n")), "{series}: {page}");
    }
}

/// The chip of a backend that needs a login leads through the issuer back to the page.
#[tokio::test]
async fn person_logs_in_from_the_page() {
    let scene = Scene::start(3600).await;
    wait::soon("the backend should need a login", async || {
        (scene.bridge.backend("notion").await["needs"] == "login").then_some(())
    })
    .await;
    page::look("login.mjs", &scene.bridge, &[]).await;
    scene.bridge.wait_backend("notion", "ready").await;
    assert_eq!(scene.logins().await[0]["state"], "ok");
    assert!(scene.call().await.to_string().contains("called by anna"));
}

/// A bridge before logins finds its own files as they were, and does not look into the others.
#[tokio::test]
async fn login_changes_no_file_that_an_earlier_bridge_reads() {
    let scene = Scene::start(3600).await;
    let others = || -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> =
            files(&scene.bridge.state("")).into_iter().collect();
        // What a server offers is written by every version, and the journal by each start.
        let others = ["/catalogs/", "/pins/", "/journal"];
        all.retain(|path, _| !others.iter().any(|part| path.contains(part)));
        all
    };
    let before = others();
    scene.log_in().await;
    let mut after = others();
    let state = scene.bridge.state("").display().to_string();
    let (mut logins, mut registrations) = (0, 0);
    after.retain(|path, _| {
        let name = path.trim_start_matches(&state).trim_start_matches('/');
        logins += usize::from(name.starts_with("logins/"));
        registrations += usize::from(name.starts_with("registrations/"));
        !name.starts_with("logins/") && !name.starts_with("registrations/")
    });
    assert_eq!((logins, registrations), (1, 1));
    assert_eq!(after, before);
}
