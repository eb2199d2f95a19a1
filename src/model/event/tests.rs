//! Events are read in every form that the protocol's editions have.

use proptest::prelude::*;

use super::*;

fn call(event: &Event) -> &Call {
    match &event.body {
        Body::Call(call) => call,
        other => panic!("not a call: {other:?}"),
    }
}

#[test]
fn a_call_in_its_envelope() {
    let data = r#"{"seq":6,"type":"local_tool_call","data":{"toolUseId":"tu_x","name":"fs_read",
        "args":{"n":123456789012345678901234567890, "x":1.0},"kind":"mcp_local","mcpServer":"fs"}}"#;
    let event = Event::read(Some("6"), Some("local_tool_call"), data).unwrap();
    assert_eq!(event.seq, Some(6));
    let call = call(&event);
    assert_eq!(call.args.get(), r#"{"n":123456789012345678901234567890, "x":1.0}"#);
    assert_eq!(call.kind, Some(RefKind::McpLocal));
    assert_eq!(call.mcp_server.as_deref(), Some("fs"));
}

#[test]
fn the_type_may_stand_in_the_event_field_alone() {
    let data = r#"{"toolUseId":"tu_x","name":"page","args":null}"#;
    let event = Event::read(Some("9"), Some("local_tool_call"), data).unwrap();
    assert_eq!(event.seq, Some(9));
    assert_eq!(call(&event).args.get(), "{}");
    assert_eq!(call(&event).kind, Some(RefKind::Local));
}

#[test]
fn the_type_in_the_data_wins() {
    let data = r#"{"seq":2,"type":"cancelled","data":{}}"#;
    assert_eq!(
        Event::read(None, Some("message"), data).unwrap().body,
        Body::End(RunKind::Agent, RunEnding::Cancelled)
    );
}

#[test]
fn an_unknown_kind_is_not_local() {
    let data = r#"{"toolUseId":"t","name":"n","kind":"quantum"}"#;
    assert_eq!(call(&Event::read(None, Some("local_tool_call"), data).unwrap()).kind, None);
}

#[test]
fn event_that_is_not_json_is_handed_on() {
    let event = Event::read(Some("4"), Some("new_thing"), "not json").unwrap();
    assert_eq!(event, Event { seq: Some(4), print: None, agent_run: None, body: Body::Other });
}

#[test]
fn a_call_without_its_id_is_an_error() {
    let data = r#"{"seq":1,"type":"local_tool_call","data":{"name":"x"}}"#;
    assert!(Event::read(None, None, data).is_err());
}

#[test]
fn the_events_of_an_eval_are_flat_and_name_their_run() {
    let data = r#"{"type":"local_tool_call","agentRunId":"run_a","toolUseId":"tu","name":"fs_ls","args":{"n":1.0},"kind":"mcp_local"}"#;
    let event = Event::read(None, Some("local_tool_call"), data).unwrap();
    assert_eq!((event.seq, call(&event).agent_run.as_ref()), (None, Some(&"run_a".into())));
    assert_eq!(call(&event).args.get(), r#"{"n":1.0}"#);
    let again = Event::read(None, Some("local_tool_call"), data).unwrap();
    assert!(event.print.is_some() && event.print == again.print, "a repetition can be told");

    let beside = r#"{"type":"local_tool_call","agentRunId":"run_a","seq":4,"data":{"toolUseId":"tu","name":"n"}}"#;
    let event = Event::read(None, None, beside).unwrap();
    assert_eq!((event.seq, event.print), (Some(4), None));
    assert_eq!(call(&event).agent_run, Some("run_a".into()), "beside the payload");

    let data = r#"{"type":"local_tool_result_in","agentRunId":"run_a","toolUseId":"tu"}"#;
    let event = Event::read(None, None, data).unwrap();
    assert_eq!(event.body, Body::Answered(Some("run_a".into()), "tu".into()));
}

#[test]
fn evals_have_ends_of_their_own() {
    for (kind, ending) in [
        ("run_completed", RunEnding::Result),
        ("run_error", RunEnding::Error),
        ("run_cancelled", RunEnding::Cancelled),
    ] {
        let data = format!(r#"{{"type":"{kind}"}}"#);
        let event = Event::read(None, None, &data).unwrap();
        assert_eq!(event.body, Body::End(RunKind::Eval, ending), "{kind}");
    }
}

#[track_caller]
fn beginning(event: Option<&str>, data: &str) -> Beginning {
    Beginning::read(Some("7"), event, data)
}

#[test]
fn the_beginning_of_a_last_event_says_so() {
    struct Case {
        event: Option<&'static str>,
        data: &'static str,
        kind: RunKind,
        end: RunEnding,
    }
    for Case { event, data, kind, end } in [
        Case {
            event: Some("result"),
            data: r#"{"seq":8,"data":{"text":"yy"#,
            kind: RunKind::Agent,
            end: RunEnding::Result,
        },
        Case {
            event: None,
            data: r#"{"seq":8,"type":"error","data":{"error":"yy"#,
            kind: RunKind::Agent,
            end: RunEnding::Error,
        },
        Case {
            event: None,
            data: r#"{"type":"cancelled","seq":8,"data":[1,2"#,
            kind: RunKind::Agent,
            end: RunEnding::Cancelled,
        },
        Case {
            event: None,
            data: r#"{"type":"run_cancelled","seq":8,"report":"yy"#,
            kind: RunKind::Eval,
            end: RunEnding::Cancelled,
        },
        Case {
            event: Some("run_completed"),
            data: r#"{"seq":8,"#,
            kind: RunKind::Eval,
            end: RunEnding::Result,
        },
    ] {
        let read = beginning(event, data);
        assert!(read.names_type, "{data}");
        assert_eq!(read.event.body, Body::End(kind, end), "{data}");
        assert_eq!(read.event.seq, Some(8), "{data}");
    }
}

#[test]
fn a_beginning_without_its_kind_is_not_guessed_at() {
    for data in [r#"{"data":{"type":"result","text":"yy"#, "yyy", "", "[1"] {
        let read = beginning(None, data);
        assert!(!read.names_type && read.event.body == Body::Other, "{data}");
        assert_eq!(read.event.seq, Some(7), "by its id: {data}");
    }
}

#[test]
fn the_beginning_of_a_call_is_a_call_that_no_tool_takes() {
    let data = r#"{"seq":8,"type":"local_tool_call","data":{"toolUseId":"tu","kind":"mcp_local","mcpServer":"fs","name":"fs_ls","args":{"a":"yy"#;
    let Body::Call(call) = beginning(None, data).event.body else { panic!("no call") };
    assert_eq!((call.tool_use.as_str(), call.name.as_str()), ("tu", "fs_ls"));
    assert_eq!((call.kind, call.mcp_server.as_deref()), (Some(RefKind::McpLocal), Some("fs")));
    assert!(!call.args.get().starts_with('{'), "{}", call.args);
    let flat =
        r#"{"type":"local_tool_call","agentRunId":"r","toolUseId":"tu","name":"n","args":{"a"#;
    let Body::Call(call) = beginning(None, flat).event.body else { panic!("no call") };
    assert_eq!(call.agent_run, Some("r".into()));
    let nameless = r#"{"type":"local_tool_call","data":{"args":{"a":"yy"#;
    assert_eq!(beginning(None, nameless).event.body, Body::Other);
}

proptest! {
    /// Wherever an event is cut, its beginning says nothing that the whole does not.
    #[test]
    fn a_beginning_says_what_the_whole_says(cut in 0usize..200) {
        let data = r#"{"seq":8,"type":"local_tool_call","data":{"toolUseId":"tu","name":"fs_ls","kind":"mcp_local","args":{"a":1}}}"#;
        let read = Beginning::read(None, None, data.get(..cut).unwrap_or(data));
        if let Some(seq) = read.event.seq {
            prop_assert_eq!(seq, 8);
        }
        if let Body::Call(call) = read.event.body {
            prop_assert_eq!((call.tool_use.as_str(), call.name.as_str()), ("tu", "fs_ls"));
        }
    }
}
