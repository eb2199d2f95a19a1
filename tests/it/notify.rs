//! Notices at real receivers: sockets of the test, and programs. They come once, under one id,
//! whatever becomes of the receiver and of the bridge; and no receiver harms the bridge.

mod hostile;
pub(crate) mod receiver;

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use self::receiver::{Behaviour, Delivery, Receiver};
use crate::{
    approvals::{ALL, approve, asked, decide, id, waiting},
    cli,
    frames::Script,
    harness::{Harness, new_dir},
    page, peers, wait,
};

/// An attempt takes up to 10 s, and the pause before the next one as long.
const PATIENCE: Duration = Duration::from_secs(60);
const NOTE: &str = r#"{"text":"x"}"#;
/// 24 bytes, and others.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A bridge whose calls all need approval, and the entry `ops` of `notify`.
async fn bridge(on: &str, webhook: &str) -> Harness {
    let rest = format!("notify:\n  ops: {{on: [{on}], webhook: {{{webhook}}}}}\n");
    Harness::with_keys(ALL, "", &[], &rest).await
}

/// How the receiver `ops` stands.
async fn ops(rig: &Harness) -> Value {
    let status = rig.bridge.status().await;
    status["notify"].as_array().expect("a list").first().expect("a receiver").clone()
}

async fn problem(rig: &Harness) -> Option<String> {
    let status = rig.bridge.status().await;
    let problems = status["problems"].as_array()?;
    let problem = problems.iter().find(|problem| problem["subject"] == "notify")?;
    Some(problem["message"].as_str()?.to_owned())
}

async fn call(rig: &Harness, id: &str) {
    rig.run(Script::one_call(id, "plain", "plain_note", NOTE)).await;
}

/// What the library of Standard Webhooks says of a delivery.
#[track_caller]
fn verify(delivery: &Delivery, secret: &str) -> bool {
    let program = "import json, sys; from standardwebhooks import Webhook\n\
                   headers, body, secret = json.load(sys.stdin)\n\
                   Webhook(secret).verify(body, headers)";
    let headers: serde_json::Map<String, Value> =
        delivery.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let input = json!([headers, delivery.text, secret]).to_string();
    let dir = new_dir();
    let file = dir.path().join("in");
    fs::write(&file, input).expect("the test's directory is writable");
    let mut command = Command::new(peers::fetch::python_webhooks());
    command.args(["-c", program]).stdin(fs::File::open(&file).expect("it was just written"));
    command.output().expect("python runs").status.success()
}

#[tokio::test]
async fn approval_is_told_signed_and_with_a_link_within_seconds_and_so_is_its_decision() {
    let receiver = Receiver::start().await;
    let keys = format!("url: '{}', secret: ['{OTHER_SECRET}', '{SECRET}']", receiver.url());
    let rig = bridge("approval", &keys).await;
    let begun = Instant::now();
    call(&rig, "tu_1").await;
    let first = receiver.delivery(1).await;
    let took = begun.elapsed();
    println!("the notice came {} ms after the run began", took.as_millis());
    assert!(took.as_secs() < 10, "a person has ten seconds for all of it: {took:?}");
    let approval = waiting(&rig.bridge, 1).await.remove(0);
    let body = first.json();
    assert_eq!(body["type"], "approval.waiting");
    let data = &body["data"];
    assert_eq!(
        [&data["app"], &data["backend"], &data["name"], &data["approval"], &data["until"]],
        [
            &json!("default"),
            &json!("plain"),
            &json!("plain_note"),
            &approval["id"],
            &approval["deadline"]
        ]
    );
    assert_eq!(data.get("arguments"), None, "they were not asked for");
    let link = format!("{}/#overview/{}", rig.bridge.url(), id(&approval));
    assert_eq!(body["link"], link);
    for secret in [SECRET, OTHER_SECRET] {
        assert!(verify(&first, secret), "{secret} has signed: {first:?}");
    }
    let forged = Delivery { text: first.text.replace("plain_note", "plain_hang"), ..first.clone() };
    assert!(!verify(&forged, SECRET), "the signature is of this body");
    approve(&rig.bridge, &id(&approval)).await;
    rig.mantyx.answer("tu_1").await;
    let second = receiver.delivery(2).await;
    let body = second.json();
    assert_eq!(
        [&body["type"], &body["data"]["outcome"], &body["data"]["by"]],
        ["approval.decided", "approved", "operator"]
    );
    assert!(verify(&second, SECRET));
    assert_ne!(first.id(), second.id());
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains(r#"mantyx_bridge_notices_sent_total{receiver="ops"} 2"#), "{metrics}");
}

#[tokio::test]
async fn receiver_that_was_away_is_told_once_and_not_of_what_was_decided_meanwhile() {
    let mut receiver = Receiver::start().await;
    receiver.stop().await;
    let rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    call(&rig, "tu_1").await;
    let decided = asked(&rig.bridge).await;
    wait::soon("the failure should be told", async || {
        problem(&rig).await.filter(|message| message.contains("`ops`")).map(drop)
    })
    .await;
    assert!(ops(&rig).await["failed"].as_u64() > Some(0));
    decide(&rig.bridge, &decided, r#"{"decision":"deny"}"#).await.expect(200);
    rig.mantyx.answer("tu_1").await;
    // What is decided is looked at a moment later.
    wait::soon("the notice should be dropped", async || {
        (ops(&rig).await["waiting"] == 0).then_some(())
    })
    .await;
    call(&rig, "tu_2").await;
    let waits = asked(&rig.bridge).await;
    receiver.restart().await;
    let first = receiver.delivery(1).await;
    assert_eq!(first.json()["data"]["approval"], waits, "the decided one is told no more");
    wait::soon("the problem should be over", async || problem(&rig).await.is_none().then_some(()))
        .await;
    decide(&rig.bridge, &waits, r#"{"decision":"deny"}"#).await.expect(200);
    assert_eq!(receiver.delivery(2).await.json()["type"], "approval.decided");
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn receiver_that_fails_gets_the_same_notice_under_the_same_id() {
    let receiver = Receiver::start().await;
    receiver.behave(Behaviour::Status("503 Busy"));
    let rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    call(&rig, "tu_1").await;
    let first = receiver.delivery(1).await;
    receiver.delivery(2).await;
    wait::soon("the answer should be told", async || {
        problem(&rig).await.filter(|message| message.contains("HTTP 503")).map(drop)
    })
    .await;
    receiver.behave(Behaviour::Take);
    wait::soon("it should be taken", async || (ops(&rig).await["sent"] == 1).then_some(())).await;
    for delivery in receiver.all() {
        assert_eq!((delivery.id(), &delivery.text), (first.id(), &first.text));
    }
}

#[tokio::test]
async fn notice_outlives_a_kill_and_what_was_delivered_is_not_told_again() {
    let receiver = Receiver::start().await;
    receiver.behave(Behaviour::Status("503 Busy"));
    let mut rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    call(&rig, "tu_1").await;
    let first = receiver.delivery(1).await;
    let approval = asked(&rig.bridge).await;
    rig.bridge.kill9();
    receiver.behave(Behaviour::Take);
    receiver.forget();
    rig.bridge.restart().await;
    let again = receiver.delivery(1).await;
    assert_eq!((again.id(), &again.text), (first.id(), &first.text));
    wait::soon("it should count as sent", async || (ops(&rig).await["sent"] == 1).then_some(()))
        .await;
    let kept = rig.bridge.state("notices/ops.json");
    wait::soon("it should be noted", async || {
        let text = fs::read_to_string(&kept).unwrap_or_default();
        text.contains(r#""waiting":[]"#).then_some(())
    })
    .await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(asked(&rig.bridge).await, approval, "it is asked about again under its id");
    decide(&rig.bridge, &approval, r#"{"decision":"deny"}"#).await.expect(200);
    let next = receiver.delivery(2).await;
    assert_eq!(next.json()["type"], "approval.decided", "the call was told before");
}

#[tokio::test]
async fn reload_takes_another_address_and_loses_nothing_that_waits() {
    let mut away = Receiver::start().await;
    away.stop().await;
    let receiver = Receiver::start().await;
    let mut rig = bridge("approval", &format!("url: '{}'", away.url())).await;
    call(&rig, "tu_1").await;
    let approval = asked(&rig.bridge).await;
    wait::soon("it should fail", async || problem(&rig).await.map(drop)).await;
    rig.bridge.change_config(&away.url(), &receiver.url());
    assert_eq!(receiver.delivery(1).await.json()["data"]["approval"], approval);
}

#[tokio::test]
async fn program_gets_the_notice_in_its_arguments_and_on_stdin() {
    let dir = new_dir();
    let out = dir.path().join("out");
    let script =
        r#"cat > "$1.part"; printf '%s\n%s\n%s' "$2" "$3" "$4" > "$1.args"; mv "$1.part" "$1""#;
    let rest = format!(
        "notify:\n  desk:\n    on: [approval]\n    with: [arguments]\n    command: [sh, -c, '{}', sh, {}, \
         '{{title}}', 'text: {{text}}', '{{link}}']\n",
        script.replace('\'', "''"),
        out.display()
    );
    let rig = Harness::with_keys(ALL, "", &[], &rest).await;
    call(&rig, "tu_1").await;
    let approval = asked(&rig.bridge).await;
    let body = wait::soon("the program should run", async || {
        serde_json::from_str::<Value>(&fs::read_to_string(&out).ok()?).ok()
    })
    .await;
    assert_eq!(
        (&body["type"], &body["data"]["approval"]),
        (&json!("approval.waiting"), &json!(approval))
    );
    assert_eq!(body["data"]["arguments"], json!({ "text": "x" }));
    let args = fs::read_to_string(out.with_extension("args")).expect("it was written before");
    let link = format!("{}/#overview/{approval}", rig.bridge.url());
    assert!(
        args.starts_with("Approval wanted: plain_note\ntext: A call of plain_note waits"),
        "{args}"
    );
    assert!(args.contains(r#"Arguments: {"text":"x"}"#) && args.ends_with(&link), "{args}");
}

#[tokio::test]
async fn program_that_fails_or_hangs_is_ended_and_told() {
    let hang = "notify:\n  desk: {on: [approval], command: [sh, -c, 'echo no bus >&2; exit 3']}\n  \
                slow: {on: [approval], command: [sleep, '600']}\n";
    let rig = Harness::with_keys(ALL, "", &[], hang).await;
    let plain = rig.bridge.children().len();
    call(&rig, "tu_1").await;
    let approval = asked(&rig.bridge).await;
    for (name, why) in [("desk", "no bus"), ("slow", "did not end within 10 s")] {
        wait::until(&format!("{name} should be told"), PATIENCE, async || {
            let status = rig.bridge.status().await;
            let problems = status["problems"].as_array()?;
            let mut texts = problems.iter().filter_map(|problem| problem["message"].as_str());
            texts
                .any(|text| text.contains(&format!("`{name}`")) && text.contains(why))
                .then_some(())
        })
        .await;
    }
    approve(&rig.bridge, &approval).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
    wait::until("no program should be left", PATIENCE, async || {
        (rig.bridge.children().len() == plain).then_some(())
    })
    .await;
}

#[tokio::test]
async fn test_of_a_receiver_says_what_came_of_it() {
    let receiver = Receiver::start().await;
    let rig = bridge("trust", &format!("url: '{}', format: ntfy", receiver.url())).await;
    let ran = cli::with(&rig, &["notify", "test", "ops"]).await.expect(cli::OK);
    assert_eq!(ran.out, "ops: delivered\n");
    let delivery = receiver.delivery(1).await;
    assert_eq!(delivery.path, "/", "ntfy takes JSON at its root");
    assert_eq!(
        (&delivery.json()["topic"], &delivery.json()["title"]),
        (&json!("hook-0123456789abcdef"), &json!("Test of mantyx-bridge"))
    );
    receiver.behave(Behaviour::Status("404 Gone"));
    let ran = cli::with(&rig, &["notify", "test", "ops"]).await.expect(cli::FAILED);
    assert!(ran.err.contains("HTTP 404"), "{}", ran.err);
    let ran = cli::with(&rig, &["notify", "test", "nobody"]).await.expect(cli::FAILED);
    assert!(ran.err.contains("`nobody`") && ran.err.contains("ops"), "{}", ran.err);
}

#[tokio::test]
async fn link_leads_past_the_sign_in_to_what_waits() {
    let receiver = Receiver::start().await;
    let rig = bridge("approval", &format!("url: '{}'", receiver.url())).await;
    call(&rig, "tu_1").await;
    let body = receiver.delivery(1).await.json();
    let link = body["link"].as_str().expect("a link");
    page::look("notice.mjs", &rig.bridge, &[Path::new(link)]).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x", "it was approved there");
}
