//! Lines out of a stream, kept for the error that tells of the end.

use parking_lot::Mutex;

use tokio::io::AsyncWriteExt as _;

use super::{LINE_LIMIT, PartialLine, drain};
use crate::{backend::log::LastLines, config::Secrets, model::ids::BackendName};

#[tokio::test]
async fn the_last_lines_are_kept_to_the_very_end() {
    let (mut server, stderr) = tokio::io::duplex(16);
    let last_lines = Mutex::new(LastLines::default());
    let name = BackendName::parse("b").unwrap();
    let secrets = Secrets::default();
    let write = async move {
        for number in 0..1000 {
            server.write_all(format!("line {number}\r\n\n").as_bytes()).await.unwrap();
        }
        server.write_all(b"no line end").await.unwrap();
    };
    tokio::join!(write, drain(&name, stderr, &secrets, &last_lines));
    let text = last_lines.into_inner().text().unwrap();
    assert_eq!(text, "line 996 | line 997 | line 998 | line 999 | no line end");
}

#[test]
fn a_line_without_end_takes_no_more_memory_than_a_long_one() {
    let mut line = PartialLine::default();
    for _ in 0..1000 {
        line.push(&[b'x'; 1000]);
    }
    assert_eq!(line.kept.len(), LINE_LIMIT);
    assert!(line.take().ends_with(&format!("[{} bytes more]", 1_000_000 - LINE_LIMIT)));
    assert_eq!(line.take(), "");
}
