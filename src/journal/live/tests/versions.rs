//! What the records of one version are to another one. The earlier texts are those that the
//! versions of that day wrote; docs/design/records.md has the rules.

use super::*;
use crate::journal::record::Slot;
use crate::model::recovery::{Recovery, RecoveryFacts, decide};

/// A record of a kind, as an earlier version wrote it.
struct Earlier {
    name: &'static str,
    key: &'static str,
    text: &'static str,
    /// What this version writes in its place, once it changes the record.
    today: &'static str,
}

const ROUTES: &str = r#"{"routes":"abc"}"#;
const RUN: &str = r#"{"run":7}"#;
const RUN_TEXT: &str = r#"{"workspace":"acme","kind":"agent-runs","run":"run_1","app":"a","session":null,"callers_credential":false,"table":{"routes":"abc","backends":["fs"],"renamed":{},"taken":[],"assumed":false},"has_past":false,"started_at":1,"ended_at":null}"#;
const CALL_KEY: &str = r#"{"call":[7,"","tu_1"]}"#;
const ANSWER_KEY: &str = r#"{"answer":[7,"","tu_1"]}"#;
const CALL_TEXT: &str = r#"{"stage":"dispatched","attempts":1,"seq":7,"received_at":2,"content":9,"name":"fs_ls","kind":"mcp_local","mcp_server":null,"args":{"n" : 1e400}}"#;
const REQUEST: &str = r#"{"request":["a","key"]}"#;
const OWNER: &str = r#"{"owner":["acme","agent-runs","run_1"]}"#;

const EARLIER: [Earlier; 17] = [
    Earlier {
        name: "the address of MANTYX",
        key: "\"upstream\"",
        text: "\"https://app.mantyx.io\"",
        today: "\"https://app.mantyx.io\"",
    },
    Earlier {
        name: "a loss without the time since the boot",
        key: "\"lost\"",
        text: r#"{"at":5,"what":"A part."}"#,
        today: r#"{"at":5,"what":"A part."}"#,
    },
    Earlier {
        name: "a run before `read_to`",
        key: RUN,
        text: RUN_TEXT,
        today: r#"{"workspace":"acme","kind":"agent-runs","run":"run_1","app":"a","session":null,"callers_credential":false,"table":{"routes":"abc","backends":["fs"],"renamed":{},"taken":[],"results":false,"assumed":false},"has_past":false,"read_to":0,"started_at":1,"ended_at":null}"#,
    },
    Earlier {
        name: "an eval that has ended, before `given_up` and `refused`",
        key: RUN,
        text: r#"{"workspace":"acme","kind":"eval-runs","run":"eval_1","app":"a","session":null,"callers_credential":true,"table":{"routes":"abc","backends":[],"renamed":{"ls":"fs_ls"},"taken":["ls"],"results":true,"assumed":false},"has_past":true,"past_is_lost":true,"started_at":1,"ended_at":2,"trace":["00-a-b-01",null]}"#,
        today: r#"{"workspace":"acme","kind":"eval-runs","run":"eval_1","app":"a","session":null,"callers_credential":true,"table":{"routes":"abc","backends":[],"renamed":{"ls":"fs_ls"},"taken":["ls"],"results":true,"assumed":false},"has_past":true,"past_is_lost":true,"read_to":0,"started_at":1,"ended_at":2,"trace":["00-a-b-01",null]}"#,
    },
    Earlier {
        name: "a call before `peer` and `is_others`",
        key: CALL_KEY,
        text: CALL_TEXT,
        today: CALL_TEXT,
    },
    Earlier {
        name: "a call with a name at its peer",
        key: CALL_KEY,
        text: r#"{"stage":"dispatched","attempts":1,"handle":"task-1","seq":7,"received_at":2,"received_up":[3,4],"content":9,"name":"fs_ls","kind":null,"mcp_server":"fs","args":null}"#,
        today: r#"{"stage":"dispatched","attempts":1,"handle":"task-1","seq":7,"received_at":2,"received_up":[3,4],"content":9,"name":"fs_ls","kind":null,"mcp_server":"fs","args":null}"#,
    },
    Earlier {
        name: "a session",
        key: r#"{"session":["acme","s"]}"#,
        text: r#"{"app":"a","tools":[ 1.0 ],"selection":null,"table":{"routes":"abc","backends":["fs"],"renamed":{},"taken":[],"assumed":true},"created_at":3}"#,
        today: r#"{"app":"a","tools":[ 1.0 ],"selection":null,"table":{"routes":"abc","backends":["fs"],"renamed":{},"taken":[],"results":false,"assumed":true},"created_at":3}"#,
    },
    Earlier {
        name: "the owner that created a run",
        key: OWNER,
        text: r#"{"app":"a","since":4}"#,
        today: r#"{"app":"a","since":4}"#,
    },
    Earlier {
        name: "the owner of a task of an agent",
        key: r#"{"owner":["hr","a2a-tasks","t"]}"#,
        text: r#"{"app":"a","attached":true,"message":"m","since":3}"#,
        today: r#"{"app":"a","attached":true,"message":"m","since":3}"#,
    },
    Earlier {
        name: "the owner of an eval's run",
        key: OWNER,
        text: r#"{"app":"a","eval":"eval_1","since":4}"#,
        today: r#"{"app":"a","eval":"eval_1","since":4}"#,
    },
    Earlier {
        name: "a long call that has ended, before `slot` and `peer`",
        key: r#"{"long":"call_1"}"#,
        text: r#"{"app":"a","of":{"session":{"workspace":"acme","session":"s"}},"tool":"fs_ls","backend":"fs","kind":"mcp_local","target":"ls","origin":["r","tu_1"],"handle":null,"begun_at":4,"ended":[5,{"result":"x"}]}"#,
        today: r#"{"app":"a","of":{"session":{"workspace":"acme","session":"s"}},"tool":"fs_ls","backend":"fs","kind":"mcp_local","target":"ls","origin":["r","tu_1"],"handle":null,"begun_at":4,"ended":[5,{"result":"x"}]}"#,
    },
    Earlier {
        name: "a long call that waits",
        key: r#"{"long":"call_1"}"#,
        text: r#"{"app":"a","of":{"run":{"workspace":"acme","kind":"agent-runs","run":"r","agent_run":"r"}},"tool":"fs_ls","backend":"fs","kind":"mcp_local","target":"ls","origin":null,"handle":null,"arguments":{"n" : 1e400},"begun_at":4,"begun_up":[1,2],"ended":null}"#,
        today: r#"{"app":"a","of":{"run":{"workspace":"acme","kind":"agent-runs","run":"r","agent_run":"r"}},"tool":"fs_ls","backend":"fs","kind":"mcp_local","target":"ls","origin":null,"handle":null,"arguments":{"n" : 1e400},"begun_at":4,"begun_up":[1,2],"ended":null}"#,
    },
    Earlier {
        name: "a request before `post_to`, `nonce` and `lost`",
        key: REQUEST,
        text: r#"{"digest":"d","begun_at":5,"answer":{"a" : 1e400}}"#,
        today: r#"{"digest":"d","begun_at":5,"answer":{"a" : 1e400}}"#,
    },
    Earlier {
        name: "a request of a runtime",
        key: REQUEST,
        text: r#"{"digest":"d","begun_at":5,"answer":null,"post_to":"/result"}"#,
        today: r#"{"digest":"d","begun_at":5,"answer":null,"post_to":"/result"}"#,
    },
    Earlier {
        name: "a request of a replica whose nonce was a plain number",
        key: REQUEST,
        text: r#"{"digest":"d","begun_at":5,"answer":null,"nonce":7,"lost":true}"#,
        today: r#"{"digest":"d","begun_at":5,"answer":null,"nonce":7,"lost":true}"#,
    },
    Earlier {
        name: "a conversation",
        key: r#"{"conversation":"c"}"#,
        text: r#"{"context":"c","task":null,"used_at":5}"#,
        today: r#"{"context":"c","task":null,"used_at":5}"#,
    },
    Earlier {
        name: "an answer",
        key: ANSWER_KEY,
        text: r#"{"result" : "x"}"#,
        today: r#"{"result" : "x"}"#,
    },
];

/// A file with the record, and what it belongs to.
fn file_with(key: &str, text: &str) -> Live {
    let mut rows = vec![(ROUTES, r#"{"digests":{},"routes":[]}"#), (RUN, RUN_TEXT)];
    if key == ANSWER_KEY {
        rows.push((CALL_KEY, CALL_TEXT));
    }
    rows.push((key, text));
    Live::of_rows(rows.into_iter().map(|(key, text)| (key.into(), text.into())).collect())
}

fn text_of(live: &Live, key: &str) -> String {
    let value = live.0.get(key.as_bytes()).unwrap_or_else(|| panic!("{key} is gone"));
    String::from_utf8(value.to_vec()).expect("a record is text")
}

/// The changes that write all of `kept` once more.
fn changes(kept: StoredRecords) -> Vec<Change> {
    let mut changes: Vec<Change> = kept.upstream.map(Change::Upstream).into_iter().collect();
    for StoredRun { slot, record, calls, .. } in kept.runs {
        changes.push(Change::Run(slot, record));
        for StoredCall { key, record, answer } in calls {
            changes.push(Change::Call(key.clone(), record));
            changes.extend(answer.map(|body| Change::Answer(key, body)));
        }
    }
    let sessions = kept.sessions.into_iter();
    changes.extend(sessions.map(|session| Change::Session(session.key, session.record)));
    changes.extend(kept.owners.into_iter().map(|(key, owner)| Change::Owner(key, owner)));
    changes.extend(kept.long.into_iter().map(|(id, long)| Change::Long(id, long)));
    changes.extend(kept.requests.into_iter().map(|(key, request)| Change::Request(key, request)));
    let conversations = kept.conversations.into_iter();
    changes.extend(conversations.map(|(id, record)| Change::Conversation(id, record)));
    changes.extend(kept.lost.map(Change::Lost));
    changes
}

/// The record, as this version writes it once it changes the record.
fn rewritten(key: &str, text: &str) -> String {
    let mut live = file_with(key, text);
    for change in changes(live.records()) {
        live.apply(&change);
    }
    text_of(&live, key)
}

/// The file after a compaction.
fn compacted(live: &Live) -> Live {
    let live = live.clone().without_unused_routes();
    let mut file = frames::file_head(1, 0).to_vec();
    live.frames((1, 0), |frame| {
        file.extend_from_slice(frame);
        Ok::<_, ()>(())
    })
    .expect("a vector has room");
    let bytes = Bytes::from(file);
    let contents = frames::read(&bytes).expect("a file of this version");
    Live::from_file(&bytes, &contents)
}

/// The text with a member that no version knows yet. A run takes no number beyond those of a `f64`:
/// its key is flattened, so that serde holds unknown members as values.
fn with_unknown_member(key: &str, text: &str) -> Option<String> {
    let members = text.strip_suffix('}')?;
    let number = if key == RUN { "1.0" } else { "1e400" };
    Some(format!(r#"{members},"later":{{"a" : [{number}]}}}}"#))
}

#[test]
fn record_of_an_earlier_version_is_read_with_safe_defaults() {
    for Earlier { name, key, text, today } in EARLIER {
        assert_eq!(rewritten(key, text), today, "{name}");
        assert!(file_with(key, text).records().lost.is_none() || key == "\"lost\"", "{name}");
    }
}

#[test]
fn route_of_an_earlier_version_may_destroy_something() {
    let text = r#"{"digests":{"fs":"d"},"routes":[{"name":"fs_ls","backend":"fs","kind":"mcp_local","tool":"ls","repeatable":false}]}"#;
    let routes = restore(text.as_bytes()).expect("it can be read");
    let route = routes.shown("fs_ls").expect("runs are shown it");
    assert!(route.destructive && !route.repeatable, "{route:?}");
    let later = text.replace("\"tool\"", "\"later\":[1],\"tool\"");
    assert_eq!(restore(later.as_bytes()).expect("it can be read").stored(), routes.stored());
}

#[test]
fn member_of_a_later_version_is_ignored_and_stays_until_the_record_is_changed() {
    for Earlier { name, key, text, today } in EARLIER {
        let Some(later) = with_unknown_member(key, text) else { continue };
        assert_eq!(text_of(&compacted(&file_with(key, &later)), key), later, "{name}");
        // An answer is passed on byte for byte.
        let expected = if key == ANSWER_KEY { &later } else { today };
        assert_eq!(&rewritten(key, &later), expected, "{name}");
    }
}

#[test]
fn unreadable_record_counts_as_what_makes_no_call() {
    struct Case {
        name: &'static str,
        key: &'static str,
        text: &'static str,
        /// What this version takes it for.
        counts_as: &'static str,
    }
    const MADE: &str = r#"{"stage":"dispatched","attempts":1,"seq":7,"received_at":2,"content":9,"name":"fs_ls","kind":null,"mcp_server":null,"args":null}"#;
    for Case { name, key, text, counts_as } in [
        Case {
            name: "a call at a stage that is not known",
            key: CALL_KEY,
            text: r#"{"stage":"held","attempts":0,"seq":7,"received_at":2,"content":9,"name":"fs_ls","kind":"mcp_local","mcp_server":null,"args":{}}"#,
            counts_as: MADE,
        },
        Case {
            name: "a call of a kind that is not known",
            key: CALL_KEY,
            text: r#"{"stage":"received","attempts":0,"seq":7,"received_at":2,"content":9,"name":"fs_ls","kind":"grpc_local","mcp_server":null,"args":{}}"#,
            counts_as: MADE,
        },
        Case {
            name: "a call that another driver answers",
            key: CALL_KEY,
            text: r#"{"stage":"held","attempts":0,"seq":7,"received_at":2,"content":9,"name":"fs_ls","is_others":true}"#,
            counts_as: r#"{"stage":"dispatched","attempts":1,"seq":7,"received_at":2,"content":9,"name":"fs_ls","kind":null,"mcp_server":null,"args":null,"is_others":true}"#,
        },
        Case {
            name: "a call of which nothing can be read",
            key: CALL_KEY,
            text: "[]",
            counts_as: r#"{"stage":"dispatched","attempts":1,"seq":0,"received_at":0,"content":0,"name":"","kind":null,"mcp_server":null,"args":null}"#,
        },
        Case {
            name: "a request in another form",
            key: REQUEST,
            text: r#"{"digest":"d","begun_at":5,"answer":null,"nonce":"7"}"#,
            counts_as: r#"{"digest":"d","begun_at":5,"answer":null,"lost":true}"#,
        },
        Case {
            name: "an owner by a rule that is not known",
            key: OWNER,
            text: r#"{"app":"a","eval":{"batch":"b"},"since":4}"#,
            counts_as: r#"{"app":"a","attached":true,"since":4}"#,
        },
    ] {
        assert_eq!(rewritten(key, text), counts_as, "{name}");
        assert_eq!(text_of(&compacted(&file_with(key, text)), key), text, "{name}");
    }
}

#[test]
fn unreadable_call_is_not_made_and_its_answer_is_posted() {
    let held = CALL_TEXT.replace("dispatched", "held");
    let mut live = file_with(CALL_KEY, &held);
    let recovery = |live: &Live| {
        let runs = live.records().runs;
        let CallRecord { stage, attempts, ref handle, .. } = runs[0].calls[0].record;
        let has_handle = handle.is_some();
        let remaining = std::time::Duration::from_secs(300);
        decide(RecoveryFacts { stage, attempts, has_handle, repeatable: false, remaining })
    };
    assert_eq!(recovery(&live), Recovery::Unknown);
    live.set(ANSWER_KEY.into(), Some(r#"{"result":"x"}"#.into()));
    assert_eq!(recovery(&live), Recovery::Post);
    // After damage, the later version must not take it for a call that was not made.
    live.salvage();
    assert!(live.records().runs[0].calls.is_empty());
    assert!(live.records().runs[0].record.past_is_lost);
}

#[test]
fn unreadable_request_and_owner_without_a_time_count_as_of_now() {
    let live = file_with(REQUEST, "{}");
    let (_, request) = live.records().requests.pop().expect("it counts");
    assert!(request.lost && request.begun_at > 0, "{request:?}");
    let (_, owner) = file_with(OWNER, "7").records().owners.pop().expect("it counts");
    assert!(owner.app.as_str().is_empty() && owner.since > 0, "{owner:?}");
}

#[test]
fn unreadable_record_of_a_run_is_told_as_a_loss_and_stays() {
    struct Case {
        name: &'static str,
        key: &'static str,
        text: &'static str,
        is_loss: bool,
    }
    for Case { name, key, text, is_loss } in [
        Case {
            name: "a run of a kind that is not known",
            key: r#"{"run":8}"#,
            text: r#"{"workspace":"acme","kind":"batch-runs","run":"b"}"#,
            is_loss: true,
        },
        Case {
            name: "a call under a key of another form",
            key: r#"{"call":[7,"","tu_1","part"]}"#,
            text: CALL_TEXT,
            is_loss: true,
        },
        Case {
            name: "a request under a key of another form",
            key: r#"{"request":["a","key","tenant"]}"#,
            text: "{}",
            is_loss: true,
        },
        Case {
            name: "an address of MANTYX in another form",
            key: "\"upstream\"",
            text: r#"{"url":"https://app.mantyx.io"}"#,
            is_loss: true,
        },
        Case { name: "a loss in another form", key: "\"lost\"", text: "{}", is_loss: true },
        Case {
            name: "a session in another form",
            key: r#"{"session":["acme","s"]}"#,
            text: "{}",
            is_loss: false,
        },
        Case {
            name: "a long call of a kind that is not known",
            key: r#"{"long":"call_1"}"#,
            text: r#"{"app":"a","of":{"batch":"b"}}"#,
            is_loss: false,
        },
        Case {
            name: "a conversation in another form",
            key: r#"{"conversation":"c"}"#,
            text: "[]",
            is_loss: false,
        },
        Case {
            name: "a record of a kind that is not known",
            key: r#"{"later":"key"}"#,
            text: "{}",
            is_loss: false,
        },
    ] {
        let live = file_with(key, text);
        let kept = live.records();
        assert_eq!(kept.lost.is_some(), is_loss, "{name}: {:?}", kept.lost);
        assert_eq!(kept.runs.len(), 1, "{name}: the other run is read");
        assert_eq!(kept.runs[0].slot, Slot(7), "{name}");
        assert_eq!(text_of(&compacted(&live), key), text, "{name}");
    }
}

#[test]
fn loss_by_unreadable_records_names_the_earlier_one() {
    let mut live = file_with(r#"{"run":8}"#, "{}");
    live.lose(&LossRecord { at: 5, up: None, what: "A part.".to_owned() });
    let loss = live.records().lost.expect("a loss");
    assert!(loss.at > 5 && loss.what.starts_with("1 records") && loss.what.ends_with(" A part."));
}
