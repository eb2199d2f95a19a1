//! What the operator sees of a bridge with several apps, and what the view of one app is.

use std::{net::TcpListener, time::Duration};

use rustix::{
    process::{Uid, geteuid},
    thread::set_thread_res_uid,
};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

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

    let run = asked(&bridge, &["run", "--app", "two", "second {\"a\": 1}"]).await.expect(OK);
    assert!(run.err.contains("-> second"), "{}", run.err);
    let not_its = asked(&bridge, &["run", "--app", "one", "second {\"a\": 1}"]).await.expect(OK);
    assert!(!not_its.err.contains("-> second"), "{}", not_its.err);
    asked(&bridge, &["run", "--app", "three", "x"]).await.expect(USAGE);

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

/// Listens on `port` as the user of this number.
fn listen_as(uid: u32, port: u16) -> TcpListener {
    let listening = std::thread::spawn(move || {
        // Of this thread alone, which makes nothing but the socket.
        let user = Uid::from_raw(uid);
        set_thread_res_uid(None, Some(user), None).expect("root may");
        TcpListener::bind(("127.0.0.1", port)).expect("the port is free")
    });
    listening.join().expect("it does not panic")
}

/// While the daemon is away, any user of the machine may listen on its port.
#[tokio::test]
async fn operators_secret_goes_to_no_program_of_another_user() {
    let mut bridge = Bridge::start(&two_apps()).await;
    let config = client_config(&bridge);
    let port = bridge.addr().port();
    bridge.kill9();
    let own = geteuid().as_raw();
    // Only root can be another user; for others, the first case remains: their own program is
    // asked.
    let users = if geteuid().is_root() { vec![own, 65534] } else { vec![own] };
    for uid in users {
        let listener = listen_as(uid, port);
        listener.set_nonblocking(true).expect("a socket of ours");
        let command = async {
            let words = ["status", "-c", &config];
            let ran = tokio::time::timeout(Duration::from_secs(10), run(&words)).await;
            ran.map(|ran| ran.expect(FAILED).err).unwrap_or_default()
        };
        let asked = async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.expect("it is open");
            String::from_utf8_lossy(&head[..length]).into_owned()
        };
        let secret = bridge.operator();
        tokio::select! {
            said = command => {
                assert_ne!(uid, own, "{said}");
                assert!(said.contains("and it is not the daemon"), "{said}");
            }
            head = asked => {
                assert_eq!(uid, own, "another user's program was asked");
                assert!(head.contains(&secret), "{head}");
            }
        }
    }
}
