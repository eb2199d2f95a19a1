//! The budget of log lines, and what is done to a line.

use std::sync::Arc;
use tokio::time::Instant;

use super::{AROUND, BYTES_PER_WINDOW, LINE_LIMIT, LastLines, LogQuota, Redactor, Sum, WINDOW};
use crate::config::Secrets;
use crate::model::redaction::{Known, Pattern, Redaction};

#[tokio::test(start_paused = true)]
async fn a_flood_is_cut_off_and_the_loss_is_told_once() {
    let start = Instant::now();
    let mut budget = LogQuota::new(start);
    let line = 1024 - AROUND;
    for _ in 0..BYTES_PER_WINDOW / 1024 {
        assert!(budget.admit(line, start));
    }
    assert_eq!(budget.due(), None);
    assert!(!budget.admit(line, start));
    assert!(!budget.admit(line, start));
    assert_eq!(budget.settle(start), None, "the window is not over");
    assert_eq!(budget.due(), Some(start + WINDOW));

    let later = start + WINDOW;
    assert_eq!(budget.settle(later), Some(Sum { lines: 2, bytes: 2 * line }));
    assert_eq!(budget.settle(later), None);
    assert!(budget.admit(line, later));
}

#[tokio::test(start_paused = true)]
async fn a_steady_trickle_is_never_cut() {
    let mut now = Instant::now();
    let mut budget = LogQuota::new(now);
    for _ in 0..1000 {
        assert!(budget.admit(BYTES_PER_WINDOW / 10 - AROUND, now));
        now += WINDOW / 9;
    }
}

#[tokio::test(start_paused = true)]
async fn flood_of_empty_lines_is_cut_off() {
    let now = Instant::now();
    let mut budget = LogQuota::new(now);
    let logged = (0..100_000).filter(|_| budget.admit(1, now)).count();
    assert!(logged * AROUND <= BYTES_PER_WINDOW, "{logged}");
}

#[test]
fn control_characters_are_written_out() {
    let line = |bytes: &[u8]| Redactor::default().line(bytes, 0);
    assert_eq!(line(b"a\x1b[31m\tb\r\n"), "a\\u{1b}[31m\tb");
    assert_eq!(line("x\u{202e}y\u{0}".as_bytes()), "x\\u{202e}y\\u{0}");
    assert_eq!(line(b"\xff\xfe"), "\u{fffd}\u{fffd}");
}

#[test]
fn a_long_line_says_what_is_missing() {
    assert_eq!(Redactor::default().line(b"abc", 5), "abc [5 bytes more]");
    let text = Redactor::default().line(&vec![b'x'; LINE_LIMIT + 7], 3);
    assert!(text.ends_with("x [10 bytes more]"));
    assert!(text.len() < LINE_LIMIT + 30);
}

#[test]
fn the_last_lines_are_kept_and_no_more() {
    let mut last = LastLines::default();
    assert_eq!(last.last(), None);
    for number in 0..1_000 {
        last.push(&format!("line {number}"));
    }
    last.push("");
    assert_eq!(last.last(), Some("line 999"));
    // A trace of Node.js with the modules that were loaded has some 30 lines.
    let [all, shown] = [last.all(), last.shown()];
    assert_eq!((all.len(), all.first().unwrap().as_str()), (100, "line 900"));
    assert_eq!((shown.len(), shown.first().unwrap().as_str()), (20, "line 980"));
    last.push(&"é".repeat(1000));
    assert_eq!(last.last().unwrap().len(), 500);
}

#[test]
fn secret_that_a_cut_divides_is_left_out() {
    let pattern = Pattern::new("SECRET-[0-9]{6}", Some("X")).unwrap();
    let mut secrets = Secrets::default();
    secrets.add("hunter22-canary");
    let redactor = Redactor {
        secrets: Arc::new(secrets),
        redact: Arc::new(Redaction(vec![pattern, Pattern::known(Known::PrivateKeys, None)])),
        ..Redactor::default()
    };
    for secret in ["SECRET-777123", "hunter22-canary"] {
        for at in 0..40 {
            let text = format!("{}{secret}{}", "é".repeat(20), "ü".repeat(20));
            for part in [redactor.head(text.as_bytes(), at), redactor.tail(text.as_bytes(), at)] {
                let left = part.replace("[hidden]", "").replace(['X', 'é', 'ü'], "");
                assert!(left.len() < 8 && !secret.contains(&left) || left.is_empty(), "{part}");
            }
        }
    }
    let key = format!(
        "-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----",
        "KEYLINE\n".repeat(1000)
    );
    assert_eq!(redactor.tail(format!("a {key}\nb").as_bytes(), 100), "[private key removed]\nb");
    assert_eq!(redactor.head(format!("a {key}\nb").as_bytes(), 100), "a [private key removed]");
    assert_eq!(redactor.line(format!("a {key}").as_bytes(), 0), "a [private key removed]");
    assert_eq!(redactor.redacted.get(), 3 + 40 * 2);
}
