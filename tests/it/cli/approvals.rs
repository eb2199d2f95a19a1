//! `approvals`: a person at a terminal decides.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{FAILED, OK, USAGE, desk::Desk, run, with};
use crate::{
    approvals::{ALL, asked, id, waiting},
    frames::Script,
    harness::Harness,
    peers, wait,
};

#[tokio::test]
async fn a_person_reads_the_arguments_and_decides() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let nothing = with(&rig, &["approvals"]).await.expect(OK);
    assert!(nothing.out.lines().count() == 1 && !nothing.out.contains("apr_"), "{}", nothing.out);

    let args = "{\"text\":  \"a \u{202e}b\"}";
    rig.run(Script::one_call("tu_1", "plain", "plain_note", args)).await;
    let id = asked(&rig.bridge).await;
    let listed = with(&rig, &["approvals"]).await.expect(OK);
    assert!(
        listed.out.starts_with(&format!("{id}\nplain_note of plain, app default, run run_")),
        "{}",
        listed.out
    );
    let exact = "\n{\"text\":  \"a \\u202eb\"}\n";
    assert!(listed.out.contains(exact), "exact, and nothing is hidden: {}", listed.out);
    let json = with(&rig, &["approvals", "--json"]).await.expect(OK).json();
    assert_eq!(json["approvals"][0]["id"], id.as_str());
    let status = with(&rig, &["status"]).await.expect(OK);
    assert!(status.out.contains("1 call"), "{}", status.out);

    let denied = with(&rig, &["approvals", "deny", &id, "--reason", "Not that."]).await.expect(OK);
    assert!(denied.out.contains("plain_note") && denied.out.contains("denied"), "{}", denied.out);
    let answer = rig.mantyx.answer("tu_1").await;
    assert!(answer["error"].as_str().is_some_and(|e| e.ends_with("Not that.")), "{answer}");
    let late = with(&rig, &["approvals", "approve", &id]).await.expect(FAILED);
    assert!(late.err.contains("denied already"), "{}", late.err);

    rig.run(Script::one_call("tu_2", "plain", "plain_note", r#"{"text":"b"}"#)).await;
    let id = asked(&rig.bridge).await;
    let approved = with(&rig, &["approvals", "approve", &id, "--json"]).await.expect(OK).json();
    assert_eq!(approved["state"], "approved");
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: b");

    let unknown = with(&rig, &["approvals", "approve", "../status"]).await.expect(FAILED);
    assert!(unknown.err.contains("no such"), "{}", unknown.err);
    let help = run(&["approvals", "deny", "--help"]).await.expect(OK);
    assert!(help.out.contains("Example: mantyx-bridge deny"), "{}", help.out);
}

/// Runs the command that a message of ours prints behind its two spaces.
async fn follow(err: &str, verb: &str, more: &[&str]) -> super::Ran {
    let line = err.lines().find(|line| line.contains(&format!(" {verb} apr_")));
    let line = line.unwrap_or_else(|| panic!("a command with {verb}: {err}")).trim();
    let words: Vec<&str> =
        line.split(' ').skip(1).filter(|word| !matches!(*word, "KEY=VALUE" | "…")).collect();
    run(&[words.as_slice(), more].concat()).await
}

#[tokio::test]
async fn run_that_waits_for_a_person_prints_the_command_that_works() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_note", r#"{"text":"a"}"#);
    rig.mantyx.script(script.answered("tu_1").done());
    let desk = Desk::start(&["run", "x", "-c", &rig.client_config()]);
    wait::soon("the command should say who is waited for", async || {
        desk.err().contains("plain_note waits for a person").then_some(())
    })
    .await;
    follow(&desk.err(), "approve", &[]).await.expect(OK);
    desk.ended().await.expect(OK);
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a");
}

#[tokio::test]
async fn call_whose_server_asks_prints_the_command_that_answers() {
    let rig = Harness::bare(&format!("mcp:\n  ask: {}\n", peers::eliciting())).await;
    rig.bridge.wait_backend("ask", "ready").await;
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let args = json!({"params": {"message": "Who are you?", "requestedSchema": schema}});
    let desk = Desk::start(&["call", "ask_ask", &args.to_string(), "-c", &rig.client_config()]);
    wait::soon("the command should tell the question", async || {
        desk.err().contains("its server asks: Who are you? (name)").then_some(())
    })
    .await;
    follow(&desk.err(), "answer", &["name=Ada"]).await.expect(OK);
    let ran = desk.ended().await.expect(OK);
    assert_eq!(ran.out, "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\"}}\n");
}

#[tokio::test]
async fn id_may_be_cut_or_left_out_and_an_ambiguous_one_lists_the_candidates() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let none = with(&rig, &["approve"]).await.expect(FAILED);
    assert!(none.err.contains("no call waits"), "{}", none.err);
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)).await;
    asked(&rig.bridge).await;
    let unseen = with(&rig, &["approve"]).await.expect(USAGE);
    assert!(unseen.err.contains(r#"{"text":"a"}"#), "it is shown: {}", unseen.err);
    waiting(&rig.bridge, 1).await;
    follow(&unseen.err, "approve", &[]).await.expect(OK);
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a");

    for tool_use in ["tu_2", "tu_3"] {
        rig.run(Script::one_call(tool_use, "plain", "plain_note", r#"{"text":"b"}"#)).await;
    }
    let ids: Vec<String> = waiting(&rig.bridge, 2).await.iter().map(id).collect();
    for words in [&["approve"][..], &["deny", "apr_"]] {
        let ambiguous = with(&rig, words).await.expect(USAGE);
        assert!(ids.iter().all(|id| ambiguous.err.contains(id)), "{}", ambiguous.err);
    }
    waiting(&rig.bridge, 2).await;
    let common = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    let short = ids[1].get(..=common).expect("an id is ASCII");
    let unseen = with(&rig, &["approvals", "deny", short, "--json"]).await.expect(USAGE);
    assert!(unseen.out.is_empty() && unseen.err.contains(&format!(" deny {}", ids[1])));
    let denied = with(&rig, &["deny", &ids[1], "--json"]).await.expect(OK).json();
    assert_eq!((&denied["id"], &denied["state"]), (&json!(ids[1]), &json!("denied")));
    waiting(&rig.bridge, 1).await;
}

#[tokio::test]
async fn call_without_its_whole_id_is_shown_and_decided_once_a_person_agrees() {
    let rig = Harness::with_keys(ALL, "", &[], "").await;
    let config = rig.client_config();
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)).await;
    let full_id = asked(&rig.bridge).await;
    let cut = full_id.get(..8).expect("an id is ASCII");
    // A key that is pressed once too often agrees to nothing, and nor does the end of the input.
    for (words, answer) in
        [(&["approve"][..], "\n"), (&["deny", cut], "n\n"), (&["approve"], "\u{4}")]
    {
        let mut desk = Desk::on_terminal(120, 40, &[words, &["-c", &config]].concat());
        desk.says("[y/N]").await;
        let shown = desk.out();
        assert!(shown.contains(&full_id) && shown.contains(r#"{"text":"a"}"#), "{shown}");
        desk.type_in(answer);
        let ran = desk.ended().await.expect(FAILED);
        assert!(ran.out.contains(&format!("{full_id} still waits")), "{}", ran.out);
    }
    waiting(&rig.bridge, 1).await;
    let mut desk = Desk::on_terminal(120, 40, &["approve", "-c", &config]);
    desk.says("[y/N]").await;
    desk.type_in("y\n");
    let ran = desk.ended().await.expect(OK);
    assert!(ran.out.contains("plain_note is approved"), "{}", ran.out);
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a");
}

#[tokio::test]
async fn watch_shows_what_waits_and_its_end_over_a_restart_until_ctrl_c() {
    let mut rig = Harness::with_keys(ALL, "", &[], "").await;
    let config = rig.client_config();
    let desk = Desk::start(&["approvals", "--watch", "-c", &config]);
    let lines = Desk::start(&["approvals", "--watch", "--json", "-c", &config]);
    wait::soon("the command should say that nothing waits", async || {
        desk.err().contains("No call waits").then_some(())
    })
    .await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"a"}"#)).await;
    let first = asked(&rig.bridge).await;
    desk.says(&format!("approve {first}\n")).await;
    lines.says(&format!(r#"{{"event":"waiting","approval":{{"id":"{first}""#)).await;
    rig.bridge.kill9();
    lines.says(r#"{"event":"away""#).await;
    wait::soon("the command should say that the daemon is away", async || {
        desk.err().contains("the daemon is away: nothing listens").then_some(())
    })
    .await;
    rig.bridge.restart().await;
    lines.says(r#"{"event":"back""#).await;
    asked(&rig.bridge).await;
    with(&rig, &["deny", &first, "--reason", "No."]).await.expect(OK);
    desk.says(&format!("{first}: the call of plain_note of plain is denied: No.")).await;
    lines.says(r#"{"event":"ended""#).await;
    for mut watcher in [desk, lines] {
        watcher.signal(Signal::INT);
        let ran = watcher.ended().await.expect(OK);
        for line in ran.out.lines().filter(|line| line.starts_with('{') && line.contains("event")) {
            serde_json::from_str::<Value>(line).expect("an object a line");
        }
    }
}
