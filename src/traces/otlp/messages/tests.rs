//! Against messages that the protobuf library of Google has written from opentelemetry-proto's
//! descriptors.

use std::num::NonZeroU128;

use super::*;

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
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = Trace::read(&[parent], &["a=1"]).unwrap();
    let trace = parent.within(NonZeroU64::new(0xab).unwrap());
    let of = Some(parent.ids().span);
    let mut first = Span::begin(&trace, of, true, Kind::Client, "call é".to_owned());
    first.set("text", "x".into());
    first.set("none", "".into());
    first.set("number", Value::Number(-5));
    first.set("zero", 0_u16.into());
    first.set("flag", true.into());
    first.set("off", false.into());
    first.set_failed(true);
    let id = (NonZeroU128::new(7).unwrap(), NonZeroU64::new(9).unwrap());
    let trace = Trace::begin(id.0, id.1);
    let mut second = Span::begin(&trace, None, false, Kind::Server, "n".to_owned());
    for (span, took) in [(&mut first, Duration::from_millis(1500)), (&mut second, Duration::ZERO)] {
        span.start_time_unix_nano = 1_700_000_000_000_000_001;
        span.end(took);
    }
    let resource = Resource::new(&[("service.name".to_owned(), "here".to_owned())]);
    assert_eq!(request(&resource, &[first, second]), bytes(TWO_SPANS));
}
