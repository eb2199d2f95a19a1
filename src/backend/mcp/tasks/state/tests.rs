//! What is read out of a task, in the words of both revisions.

use super::*;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[test]
fn a_task_is_told_from_a_result() {
    let new = r#"{"resultType":"task","taskId":"a","status":"working"}"#;
    let old = r#"{"task":{"taskId":"a","status":"working"}}"#;
    let with_null = r#"{"content":null,"task":{"taskId":"a","status":"working"}}"#;
    for (result, wanted) in [(new, false), (new, true), (old, true), (with_null, true)] {
        let result = raw(result);
        let task = Task::created(&result, wanted).unwrap().expect("a task");
        assert_eq!((task.id.as_str(), task.status), ("a", Status::Working));
    }
    // Nobody asked for a task there, or the server chose to answer at once.
    let content = r#"{"content":[],"task":{"taskId":"a","status":"working"}}"#;
    let null = r#"{"task":null}"#;
    for (result, wanted) in
        [(old, false), (content, true), ("[]", true), ("{}", true), (null, true)]
    {
        assert!(Task::created(&raw(result), wanted).unwrap().is_none(), "{result}");
    }
    for bad in [
        r#"{"resultType":"task","status":"working"}"#,
        r#"{"resultType":"task","taskId":"","status":"working"}"#,
        r#"{"resultType":"task","taskId":"a","status":"asleep"}"#,
        r#"{"task":{"taskId":7,"status":"working"}}"#,
    ] {
        let error = Task::created(&raw(bad), true).unwrap_err();
        assert!(matches!(error, CallError::Unreadable(_)), "{bad}");
    }
}

#[test]
fn content_of_a_task_is_kept_as_it_is() {
    let text = raw(
        r#"{"taskId":"\u00e9","status":"completed","x":1e400,"statusMessage":" ","result":{"b":1e400, "a":1,"a":2}}"#,
    );
    let task = Task::read(&text).unwrap();
    assert_eq!(task.id, "é");
    assert_eq!(task.result.unwrap().get(), r#"{"b":1e400, "a":1,"a":2}"#);
    assert!(task.error.is_none() && task.message.is_none());
    let failed =
        raw(r#"{"taskId":"a","status":"failed","error":{"code":-1},"statusMessage":"no"}"#);
    let task = Task::read(&failed).unwrap();
    assert_eq!(
        (task.error.unwrap().get(), task.message.as_deref()),
        (r#"{"code":-1}"#, Some("no"))
    );
}

#[test]
fn the_server_says_how_often_it_is_asked_within_bounds() {
    let wait = |members: &str| {
        let text = raw(&format!(r#"{{"taskId":"a","status":"working"{members}}}"#));
        Task::read(&text).unwrap().wait.as_millis()
    };
    for (members, expected) in [
        ("", 1000),
        (r#","pollInterval":5000"#, 5000),
        (r#","pollIntervalMs":5000,"pollInterval":7"#, 5000),
        (r#","pollInterval":2500.5"#, 2500),
        (r#","pollInterval":0"#, 100),
        (r#","pollInterval":-1"#, 100),
        (r#","pollIntervalMs":600000"#, 30_000),
        (r#","pollInterval":1e400"#, 1000),
        (r#","pollInterval":"soon""#, 1000),
        (r#","pollInterval":5000,"ttl":null"#, 5000),
        (r#","pollInterval":5000,"ttl":60000"#, 5000),
        (r#","pollInterval":5000,"ttl":4000"#, 2000),
        (r#","pollIntervalMs":5000,"ttlMs":1"#, 100),
    ] {
        assert_eq!(wait(members), expected, "{members}");
    }
}

#[test]
fn tools_say_how_they_may_be_called() {
    for (tool, support) in [
        (r#"{"execution":{"taskSupport":"required"}}"#, true),
        (r#"{"execution":{"taskSupport":"optional","x":1e400}}"#, true),
        (r#"{"execution":{"taskSupport":"forbidden"}}"#, false),
        (r#"{"execution":{}}"#, false),
        (r#"{"taskSupport":"required"}"#, false),
        (r#"{"execution":"required"}"#, false),
    ] {
        assert_eq!(may_be_task(&raw(tool)), support, "{tool}");
    }
}
