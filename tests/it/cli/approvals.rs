//! `approvals`: a person at a terminal decides.

use super::{FAILED, OK, run, with};
use crate::{
    approvals::{ALL, asked},
    frames::Script,
    harness::Harness,
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
    assert!(help.out.contains("Example: mantyx-bridge approvals deny"), "{}", help.out);
}
