//! Lines out of a stream, kept for the error that tells of the end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use tokio::io::AsyncWriteExt as _;

use super::{PartialLine, Redactor, SEEN, drain};
use crate::backend::LiveRedaction;
use crate::backend::log::{LINE_LIMIT, LastLines};
use crate::model::ids::BackendName;
use crate::model::redaction::{Known, Pattern, Redaction};

/// The log tells all.
static LOUD: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn the_last_lines_are_kept_to_the_very_end() {
    let (mut server, stderr) = tokio::io::duplex(16);
    let last_lines = Mutex::new(LastLines::default());
    let name = BackendName::parse("b").unwrap();
    let redact = LiveRedaction::default();
    let write = async move {
        for number in 0..1000 {
            server.write_all(format!("line {number}\r\n\n").as_bytes()).await.unwrap();
        }
        server.write_all(b"no line end").await.unwrap();
    };
    tokio::join!(write, drain(&name, stderr, &redact, &last_lines, &LOUD));
    let kept = last_lines.into_inner().all();
    assert_eq!(kept.join(" | ").split_once("line 998 | ").unwrap().1, "line 999 | no line end");
}

#[test]
fn a_line_without_end_takes_no_more_memory_than_a_long_one() {
    let mut line = PartialLine::default();
    for _ in 0..1000 {
        line.push(&[b'x'; 1000]);
    }
    assert_eq!(line.kept.len(), SEEN);
    let redactor = Redactor::default();
    assert!(line.take(&redactor).ends_with(&format!("[{} bytes more]", 1_000_000 - LINE_LIMIT)));
    assert_eq!(line.take(&redactor), "");
}

#[tokio::test]
async fn a_secret_is_removed_from_lines_and_a_key_from_all_of_its_lines() {
    let (mut server, stderr) = tokio::io::duplex(16);
    let last_lines = Mutex::new(LastLines::default());
    let name = BackendName::parse("b").unwrap();
    let patterns = [
        Pattern::new("SECRET-[0-9]{6}", None).unwrap(),
        Pattern::known(Known::PrivateKeys, Some("X")),
    ];
    let redact = LiveRedaction::new(Arc::new(Redaction(patterns.into())), Arc::default());
    let write = async move {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMII1\nMII2\n-----END RSA PRIVATE KEY-----";
        server.write_all(format!("a SECRET-777123\n{key}\nb\n").as_bytes()).await.unwrap();
        let line = [&"w".repeat(8 * 1024 - 8), "SECRET-777123\n"].concat();
        server.write_all(line.as_bytes()).await.unwrap();
    };
    tokio::join!(write, drain(&name, stderr, &redact, &last_lines, &LOUD));
    let text = last_lines.into_inner().all().join(" | ");
    assert!(text.starts_with("a [removed] | X | b | www"), "{text}");
}

#[test]
fn a_key_without_end_hides_no_more_than_its_bound() {
    let redact = Arc::new(Redaction(vec![Pattern::known(Known::PrivateKeys, Some("X"))]));
    let redactor = Redactor { redact, ..Redactor::default() };
    let mut line = PartialLine::default();
    let mut next = |text: &str| {
        line.push(text.as_bytes());
        line.take(&redactor)
    };
    assert_eq!(next("no -----BEGIN PRIVATE KEY----- found"), "no X");
    for _ in 0..SEEN / 1024 {
        assert_eq!(next(&"x".repeat(1024)), "");
    }
    assert_eq!(next("said again"), "said again");
}
