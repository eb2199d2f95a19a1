//! What an app sees of a call that the bridge answers.
//!
//! Must not: decide which calls those are.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{model::event::Call, wire::sse::Frame};

/// The call as the informational `tool_call` event, with
/// the same place in the log, so that a stock client does not answer it too.
pub(super) fn masked(seq: Option<u64>, call: &Call) -> Frame {
    #[derive(Serialize)]
    struct Masked<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        #[serde(rename = "type")]
        kind: &'static str,
        data: Data<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data<'a> {
        tool_use_id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    }
    let data = Data { tool_use_id: call.tool_use.as_str(), name: &call.name, input: &call.args };
    let text = serde_json::to_string(&Masked { seq, kind: "tool_call", data })
        .expect("strings, a number and raw JSON can be written");
    let id = seq.map(|seq| seq.to_string());
    Frame::write(id.as_deref(), Some("tool_call"), &text)
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
        let frame = masked(event.seq, call);
        let expected = "id: 6\nevent: tool_call\ndata: {\"seq\":6,\"type\":\"tool_call\",\"data\":{\"toolUseId\":\"tu\",\"name\":\"fs_ls\",\"input\":{\"n\":1e400}}}\n\n";
        assert_eq!(frame.raw, expected);
        let fields = frame.fields();
        let again =
            Event::read(fields.id.as_deref(), fields.event.as_deref(), &fields.data.unwrap());
        assert_eq!(again.unwrap(), Event { seq: Some(6), body: Body::Other });
    }
}
