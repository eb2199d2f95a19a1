//! What an app sees of a call that the bridge answers.
//!
//! Must not: decide which calls those are.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::{Call, RunId, RunKind};
use crate::sse::Frame;

/// The call as the informational `tool_call` event, with the same place in the log: otherwise a
/// stock client would answer the call, too. In the stream of an eval it is flat, as all events
/// there are.
///
/// The arguments go through as the bytes that MANTYX sent. Read into values and written again, a
/// large number would lose digits, and the app would show other arguments than the tool has got.
pub(super) fn masked(stream: RunKind, seq: Option<u64>, call: &Call) -> Frame {
    #[derive(Serialize)]
    struct Masked<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        #[serde(rename = "type")]
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a Data<'a>>,
        #[serde(flatten)]
        flat: Option<&'a Data<'a>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        agent_run_id: Option<&'a str>,
        tool_use_id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    }
    let kind = "tool_call";
    let agent_run_id = match stream {
        RunKind::Agent => None,
        RunKind::Eval => call.agent_run.as_ref().map(RunId::as_str),
    };
    let content = Data {
        agent_run_id,
        tool_use_id: call.tool_use.as_str(),
        name: &call.name,
        input: &call.args,
    };
    let (data, flat) = match stream {
        RunKind::Agent => (Some(&content), None),
        RunKind::Eval => (None, Some(&content)),
    };
    let text = serde_json::to_string(&Masked { seq, kind, data, flat })
        .expect("strings, a number and raw JSON can be written");
    let id = seq.map(|seq| seq.to_string());
    Frame::write(id.as_deref(), Some(kind), &text)
}

#[cfg(test)]
mod tests {
    //! A mask keeps the event's place.

    use super::*;
    use crate::model::event::{Body, Event};

    #[test]
    fn a_masked_call_keeps_its_place_and_its_arguments() {
        let data = r#"{"seq":6,"type":"local_tool_call","data":{"toolUseId":"tu","name":"fs_ls","args":{"n":1e400}}}"#;
        let event = Event::read(None, None, data).unwrap();
        let Body::Call(call) = &event.body else { panic!("not a call") };
        let frame = masked(RunKind::Agent, event.seq, call);
        let expected = "id: 6\nevent: tool_call\ndata: {\"seq\":6,\"type\":\"tool_call\",\"data\":{\"toolUseId\":\"tu\",\"name\":\"fs_ls\",\"input\":{\"n\":1e400}}}\n\n";
        assert_eq!(frame.raw, expected);
        let fields = frame.fields();
        let again =
            Event::read(fields.id.as_deref(), fields.event.as_deref(), &fields.data.unwrap());
        assert_eq!(
            again.unwrap(),
            Event { seq: Some(6), print: None, agent_run: None, body: Body::Other }
        );
    }

    #[test]
    fn masked_call_of_an_eval_is_flat_and_names_its_agent_run() {
        let data = r#"{"type":"local_tool_call","agentRunId":"r","toolUseId":"tu","name":"fs_ls","args":{"n":1.0}}"#;
        let event = Event::read(None, None, data).unwrap();
        let Body::Call(call) = &event.body else { panic!("not a call") };
        let frame = masked(RunKind::Eval, event.seq, call);
        let expected = "event: tool_call\ndata: {\"type\":\"tool_call\",\"agentRunId\":\"r\",\"toolUseId\":\"tu\",\"name\":\"fs_ls\",\"input\":{\"n\":1.0}}\n\n";
        assert_eq!(frame.raw, expected);
    }
}
