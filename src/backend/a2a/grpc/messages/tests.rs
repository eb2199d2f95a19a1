//! Against messages that the protobuf library of Google has written from a2a-sdk's descriptors.

use super::*;
use crate::backend::a2a::wire;

const BARE: wire::Message<'_> = wire::Message {
    text: "hi",
    id: "m",
    context: None,
    task: None,
    output_modes: &[],
    trace: None,
};
const SENDING: Operation<'_> = Operation::Send(BARE, ReplyMode::AtOnce);

fn bytes(hex: &str) -> Bytes {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn requests_are_those_of_the_official_library() {
    let full = wire::Message { context: Some("c"), task: Some("t"), text: "hi é", ..BARE };
    let acme = Some("acme");
    for (operation, tenant, method_name, expected) in [
        (
            Operation::Send(full, ReplyMode::AtOnce),
            acme,
            "SendMessage",
            "0a0461636d6512140a016d1201631a017420012a070a05686920c3a91a0418002001",
        ),
        (
            Operation::Send(BARE, ReplyMode::WhenDone),
            None,
            "SendMessage",
            "120b0a016d20012a040a0268691a021800",
        ),
        (Operation::GetTask("t"), acme, "GetTask", "0a0461636d651201741800"),
        (Operation::CancelTask("t"), None, "CancelTask", "120174"),
        (Operation::Subscribe("t"), None, "SubscribeToTask", "120174"),
        (Operation::GetHistory("t"), None, "GetTask", "1201741864"),
        (
            Operation::Stream(wire::Message { output_modes: &["a/b".to_owned()], ..BARE }),
            None,
            "SendStreamingMessage",
            "120b0a016d20012a040a0268691a070a03612f621800",
        ),
    ] {
        assert_eq!(encode(operation, tenant), bytes(expected), "{operation:?}");
        assert_eq!(operation.method(), method_name);
    }
}

/// With metadata and a time, which nothing here reads.
const TASK: &str = "0a0274311201631a1b080612130a017120022a0c0a0a5768696368206461793f1a02080122a101\
    0a016112016e22020a00221c120200ff3205662e62696e3a0f6170706c69636174696f6e2f706466220c1a0a687474\
    703a2f2f782f79226922672a650a410a0161123c323a0a0911000000000000f83f0a091100000000000008c00a0911\
    9c7500883ce4377e0a091100000000000040430a0208000a0220010a041a02c3a90a100a016f120b2a090a070a016b\
    12022a000a0e0a017a12091100000000000028402a140a016d1201631a017420012a070a05686920c3a932100a0e0a\
    016b120911000000000000f03f";

#[test]
fn a_task_is_the_json_that_the_other_bindings_have() {
    let task = decode(Operation::GetTask("t1"), bytes(TASK)).unwrap();
    let expected = concat!(
        r#"{"id":"t1","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":"#,
        r#"{"messageId":"q","contextId":"","taskId":"","role":"ROLE_AGENT","parts":[{"text":"Which day?"}]}},"#,
        r#""artifacts":[{"artifactId":"a","parts":[{"text":""},"#,
        r#"{"raw":"AP8=","filename":"f.bin","mediaType":"application/pdf"},"#,
        r#"{"url":"http://x/y"},"#,
        r#"{"data":{"a":[1.5,-3,1e+300,9007199254740992,null,true,"é"],"o":{"k":{}},"z":12}}]}],"#,
        r#""history":[{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_USER","parts":[{"text":"hi é"}]}]}"#,
    );
    assert_eq!(task.get(), expected);
}

#[test]
fn replies_are_told_apart() {
    for (message, expected) in [
        (
            "0a080a0274311a020802",
            r#"{"task":{"id":"t1","contextId":"","status":{"state":"TASK_STATE_WORKING"},"artifacts":[]}}"#,
        ),
        (
            "120e0a016d12016320022a040a026869",
            r#"{"message":{"messageId":"m","contextId":"c","taskId":"","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#,
        ),
        // A state that is newer than this code.
        (
            "0a080a0274311a02085a",
            r#"{"task":{"id":"t1","contextId":"","status":{"state":90},"artifacts":[]}}"#,
        ),
    ] {
        assert_eq!(decode(SENDING, bytes(message)).unwrap().get(), expected);
    }
    for unknown in ["9a06020a00", ""] {
        let failure = decode(SENDING, bytes(unknown)).unwrap_err();
        assert!(matches!(failure, A2aFailure::Call(CallError::Unclear { .. })), "{failure:?}");
    }
}

/// An order that only a list keeps: "z" before "a".
#[test]
fn members_keep_the_order_of_the_wire() {
    let field = |key: &str, kind| Field { key: key.to_owned(), value: Some(Value { kind }) };
    let fields = vec![field("z", Some(Kind::Null(0))), field("a", None)];
    let value = Value { kind: Some(Kind::Struct(Struct { fields })) };
    let value = Value::decode(value.encode_to_vec().as_slice()).unwrap();
    assert_eq!(json(&value).unwrap().get(), r#"{"z":null,"a":null}"#);
}

#[test]
fn numbers_are_written_as_an_agent_means_them() {
    for (number, expected) in [
        (0.0, "0"),
        (-7.0, "-7"),
        (0.1, "0.1"),
        (1e15, "1000000000000000"),
        (-9_007_199_254_740_992.0, "-9007199254740992"),
        (1e20, "1e+20"),
        // JSON has neither.
        (f64::NAN, "null"),
        (f64::INFINITY, "null"),
    ] {
        let value = Value { kind: Some(Kind::Number(number)) };
        assert_eq!(json(&value).unwrap().get(), expected);
    }
}

#[test]
fn unreadable_message_is_told() {
    for broken in [&b"\x0a\xff"[..], b"\x0a\x03\x0a\x01\xff"] {
        let failure = decode(SENDING, Bytes::from_static(broken)).unwrap_err();
        let said = "a message of its reply is no protobuf of A2A 1.0 (";
        assert!(
            matches!(&failure, A2aFailure::Call(CallError::Unclear { why, .. }) if why.starts_with(said)),
            "{failure:?}"
        );
    }
    // Every byte becomes six: \u0001.
    let text = "\u{1}".repeat(MAX_REPLY / 6 + 1);
    let part = Part { content: Some(Content::Text(text)), ..Part::default() };
    let message = Message { parts: vec![part], ..Message::default() };
    let response = Response { payload: Some(Payload::Message(message)) };
    let failure = decode(SENDING, response.encode_to_vec().into()).unwrap_err();
    let A2aFailure::Call(CallError::NotRead(NotRead::TooLarge {
        limit: MAX_REPLY,
        size: Some(size),
    })) = failure
    else {
        panic!("{failure:?}")
    };
    assert!(size > MAX_REPLY as u64, "{size}");
}
