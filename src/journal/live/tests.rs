//! Journals of earlier versions are read, and later ones by them: the text stays as it is.

mod versions;

use std::fmt::Debug;

use super::*;
use crate::journal::record::OwnerRecord;

fn stays<T: DeserializeOwned + Serialize + Debug>(text: &str) -> T {
    let read: T = serde_json::from_str(text).expect(text);
    assert_eq!(serde_json::to_string(&read).expect("it was JSON"), text, "{read:?}");
    read
}

#[test]
fn keys_have_the_text_that_they_always_had() {
    for key in [
        "\"upstream\"",
        "\"lost\"",
        r#"{"routes":"abc"}"#,
        r#"{"run":7}"#,
        r#"{"call":[7,"","tu_1"]}"#,
        r#"{"call":[7,"run_1","tu_1"]}"#,
        r#"{"answer":[7,"run_1","tu_\"1"]}"#,
        r#"{"calls":7}"#,
        r#"{"session":["acme","s"]}"#,
        r#"{"owner":["acme","agent-runs","run_1"]}"#,
        r#"{"owner":["acme","agent-sessions","s"]}"#,
        r#"{"long":"call_1"}"#,
        r#"{"request":["app","key"]}"#,
        r#"{"conversation":"[\"hr url\",[\"a\",\"acme\",\"session\",\"s\"]]"}"#,
    ] {
        stays::<Key>(key);
    }
}

#[test]
fn a_record_of_a_later_version_is_left_out_and_stays_in_the_file() {
    let later = br#"{"later":"key"}"#.to_vec();
    let upstream = (b"\"upstream\"".to_vec(), b"\"u\"".to_vec());
    let live = Live::of_rows(vec![(later.clone(), b"{}".to_vec()), upstream]);
    assert_eq!(live.records().upstream.as_deref(), Some("u"));
    assert!(live.without_unused_routes().0.contains_key(later.as_slice()));
}

#[test]
fn records_have_the_text_that_they_always_had() {
    let table = r#"{"routes":"abc","backends":["fs"],"renamed":{"a":"b"},"taken":["c"],"results":true,"assumed":false}"#;
    let run = |kind: &str, session: &str| {
        format!(
            r#"{{"workspace":"acme","kind":"{kind}","run":"Run_1","app":"a","session":{session},"callers_credential":false,"table":{table},"has_past":true,"read_to":18446744073709551615,"started_at":1,"ended_at":null,"trace":["00-a-b-01",null]}}"#
        )
    };
    stays::<RunRecord>(&run("eval-runs", "null"));
    let of_session = stays::<RunRecord>(&run("agent-runs", "\"s\""));
    assert_eq!(of_session.key.run.as_str(), "Run_1");
    assert!(serde_json::from_str::<RunRecord>(&run("other-runs", "null")).is_err());
    stays::<OwnerRecord>(r#"{"app":"a","eval":"eval_1","since":4}"#);
    stays::<ConversationRecord>(r#"{"context":"c","task":null,"used_at":5}"#);
    stays::<SessionRecord>(&format!(
        r#"{{"app":"a","tools":[ 1.0 ],"selection":["fs"],"table":{table},"created_at":3}}"#
    ));
    for kind in ["\"local\"", "\"a2a_local\"", "\"mcp_local\"", "null"] {
        stays::<CallRecord>(&format!(
            r#"{{"stage":"dispatched","attempts":1,"seq":7,"received_at":2,"content":18446744073709551615,"name":"fs_ls","kind":{kind},"mcp_server":null,"args":{{"n" : 1e400}}}}"#
        ));
    }
    for of in [
        r#"{"session":{"workspace":"acme","session":"s"}}"#,
        r#"{"run":{"workspace":"acme","kind":"eval-runs","run":"e","agent_run":"r"}}"#,
        "\"app\"",
    ] {
        let long = |backend: &str| {
            format!(
                r#"{{"app":"a","of":{of},"tool":"fs_ls","backend":"{backend}","kind":"mcp_local","target":"ls","origin":["r","tu_1"],"handle":null,"arguments":{{"n" : 1e400}},"begun_at":4,"ended":null}}"#
            )
        };
        stays::<LongRecord>(&long("fs"));
        assert!(serde_json::from_str::<LongRecord>(&long("no name")).is_err());
    }
}
