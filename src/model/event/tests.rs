//! Events are read in every form that the protocol's editions have.

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
    assert_eq!(Event::read(None, Some("message"), data).unwrap().body, Body::End(RunKind::Agent));
}

#[test]
fn an_unknown_kind_is_not_local() {
    let data = r#"{"toolUseId":"t","name":"n","kind":"quantum"}"#;
    assert_eq!(call(&Event::read(None, Some("local_tool_call"), data).unwrap()).kind, None);
}

#[test]
fn what_is_not_json_is_handed_on() {
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
    for kind in ["run_completed", "run_error", "run_cancelled"] {
        let data = format!(r#"{{"type":"{kind}"}}"#);
        let event = Event::read(None, None, &data).unwrap();
        assert_eq!(event.body, Body::End(RunKind::Eval), "{kind}");
    }
}
