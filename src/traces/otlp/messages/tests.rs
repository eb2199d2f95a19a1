//! Against messages that the protobuf library of Google has written from opentelemetry-proto's
//! descriptors.

use std::{
    num::{NonZeroU64, NonZeroU128},
    sync::Arc,
    time::Duration,
};

use super::*;
use crate::model::trace::Trace;

const TWO_SPANS: &str = "0a98020a180a160a0c736572766963652e6e616d6512060a046865726512fb010a160a0d\
    6d616e7479782d6272696467651205302e312e3012a5010a100af7651916cd43dd8448eb211c80319c1208000000\
    00000000ab1a03613d312208b7ad6b71692033312a0763616c6c20c3a930033901002a36fe9c971741012f928ffe9c\
    97174a0b0a047465787412030a01784a0a0a046e6f6e6512020a004a150a066e756d626572120b18fbffffffffffff\
    ffff014a0a0a047a65726f120218004a0a0a04666c6167120210014a090a036f6666120210007a0218028501010300\
    0012390a1000000000000000000000000000000007120800000000000000092a016e30023901002a36fe9c97174101\
    002a36fe9c9717850101010000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn a_request_is_that_of_the_official_library() {
    assert_eq!(VERSION, "0.1.0", "the bytes above hold the version: write them anew");
    let begun_at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = Trace::read(&[parent], &["a=1"]).unwrap();
    let first = Finished {
        trace: Arc::new(parent.within(NonZeroU64::new(0xab).unwrap())),
        parent: Some(parent.ids().span),
        remote_parent: true,
        kind: Kind::Client,
        name: "call é".to_owned(),
        begun_at,
        took: Duration::from_millis(1500),
        attributes: vec![
            ("text", "x".into()),
            ("none", "".into()),
            ("number", Value::Number(-5)),
            ("zero", 0_u16.into()),
            ("flag", true.into()),
            ("off", false.into()),
        ],
        failed: true,
    };
    let id = (NonZeroU128::new(7).unwrap(), NonZeroU64::new(9).unwrap());
    let second = Finished {
        trace: Arc::new(Trace::begin(id.0, id.1)),
        parent: None,
        remote_parent: false,
        kind: Kind::Server,
        name: "n".to_owned(),
        took: Duration::ZERO,
        attributes: Vec::new(),
        failed: false,
        ..first
    };
    let resource = Resource::of(&[("service.name".to_owned(), "here".to_owned())]);
    assert_eq!(request(&resource, &[first, second]), bytes(TWO_SPANS));
}
