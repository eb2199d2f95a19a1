//! What each status is taken for.

use super::*;

/// Details as Google's library writes them, with an `ErrorInfo` whose reason is `TASK_NOT_FOUND`;
/// once with and once without padding.
const NOT_FOUND: &str = "CAUSDG5vIHN1Y2ggdGFzaxpOCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuRXJy\
    b3JJbmZvEiIKDlRBU0tfTk9UX0ZPVU5EEhBhMmEtcHJvdG9jb2wub3Jn";
const NOT_CANCELABLE: &str = "CAUSDG5vIHN1Y2ggdGFzaxpTCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMu\
    RXJyb3JJbmZvEicKE1RBU0tfTk9UX0NBTkNFTEFCTEUSEGEyYS1wcm90b2NvbC5vcmc";

fn trailers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
    fields.iter().map(|(name, text)| (name.parse().unwrap(), value(text))).collect()
}

fn failure(fields: &[(&'static str, &str)]) -> A2aFailure {
    read(&trailers(fields)).unwrap().unwrap_err()
}

fn refused(code: Option<i32>, status: u16, text: &str) -> A2aFailure {
    let status = StatusCode::from_u16(status).unwrap();
    let text = text.to_owned();
    A2aFailure::Refused { code: code.map(i64::from), status, text, pause: None }
}

#[test]
fn success_and_nothing() {
    assert_eq!(read(&trailers(&[(STATUS, "0")])), Some(Ok(())));
    assert_eq!(read(&trailers(&[(MESSAGE, "lost")])), None);
}

#[test]
fn refusals_are_those_of_the_other_bindings() {
    for (status, code, http) in [
        ("2", None, 500),
        ("3", Some(error_code::INVALID_PARAMS), 400),
        ("5", Some(error_code::TASK_NOT_FOUND), 404),
        ("7", None, 403),
        ("8", None, 429),
        ("9", None, 400),
        ("12", Some(error_code::METHOD_NOT_FOUND), 501),
        ("13", None, 500),
        ("16", None, 401),
        // What is no status cannot mean success.
        ("17", None, 500),
        ("-1", None, 500),
        ("0x0", None, 500),
    ] {
        let A2aFailure::Refused { code: found, status: like, .. } = failure(&[(STATUS, status)])
        else {
            panic!("{status}");
        };
        assert_eq!((found, like.as_u16()), (code.map(i64::from), http), "{status}");
    }
}

#[test]
fn a_proxys_word_leaves_open_what_the_agent_did() {
    for (status, name) in [("1", "CANCELLED"), ("4", "DEADLINE_EXCEEDED"), ("14", "UNAVAILABLE")] {
        let found = failure(&[(STATUS, status), (MESSAGE, "upstream reset")]);
        assert_eq!(found, A2aFailure::lost(format!("gRPC status {name}: upstream reset")));
    }
}

#[test]
fn the_reason_says_more_than_the_status() {
    let found =
        failure(&[(STATUS, "5"), (MESSAGE, "no%20such task%0A%C3%A9"), (DETAILS, NOT_FOUND)]);
    assert_eq!(found, refused(Some(-32001), 404, "A2A error -32001: no such task é"));
    // By its status alone, it would be anything.
    let found = failure(&[(STATUS, "9"), (MESSAGE, "done"), (DETAILS, NOT_CANCELABLE)]);
    assert_eq!(found, refused(Some(-32002), 400, "A2A error -32002: done"));
    // The agent's own word, and not a proxy's.
    let found = failure(&[(STATUS, "14"), (MESSAGE, "x"), (DETAILS, NOT_FOUND)]);
    assert_eq!(found, refused(Some(-32001), 503, "A2A error -32001: x"));
    for details in ["", "!", "AAAA"] {
        let found = failure(&[(STATUS, "13"), (MESSAGE, "x"), (DETAILS, details)]);
        assert_eq!(found, refused(None, 500, "gRPC status INTERNAL: x"), "{details}");
    }
}

#[test]
fn a_message_is_one_line_and_not_long() {
    assert_eq!(failure(&[(STATUS, "13")]), refused(None, 500, "gRPC status INTERNAL"));
    let long = "é".repeat(5_000);
    let A2aFailure::Refused { text, .. } = failure(&[(STATUS, "13"), (MESSAGE, &long)]) else {
        panic!("it is a refusal");
    };
    assert!(text.len() < 1_100 && text.ends_with('…'), "{text}");
    let found = failure(&[(STATUS, "13"), (MESSAGE, "%FF%")]);
    assert_eq!(found, refused(None, 500, "gRPC status INTERNAL: \u{fffd}%"));
}

#[test]
fn a_refused_credential_is_known_by_the_head() {
    assert!(is_unauthenticated(&trailers(&[(STATUS, "16")])));
    assert!(!is_unauthenticated(&trailers(&[(STATUS, "7")])));
    assert!(!is_unauthenticated(&trailers(&[])));
}
