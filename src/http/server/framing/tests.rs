//! Which requests of a connection pass, wherever they are cut, and that what passes is what came.

use proptest::prelude::*;

use super::*;

const HEAD: &str = "Host: a\r\nX-B: c\r\n";

/// A request with these headers and this body.
fn request(headers: &str, body: &str) -> String {
    format!("POST /v1/runs?x=1 HTTP/1.1\r\n{HEAD}{headers}\r\n{body}")
}

/// Requests that end where every reader sees it.
fn plain() -> Vec<String> {
    vec![
        request("", ""),
        format!("\r\n\r\n{}", request("", "")),
        request("Content-Length: 0\r\n", ""),
        request("Content-Length: 11\r\nContent-Length: 11\r\n", "a\nb\r\n\r\n\n\nG "),
        request("Expect: 100-continue\r\nContent-Length: 3\r\n", "0\r\n"),
        "GET http://a/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /?q=O'Brien&\u{e4}={|}^\\` HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ]
}

/// Heads that do not pass.
fn odd() -> Vec<String> {
    vec![
        request("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        request("transfer-encoding: chunked\r\nCONTENT-LENGTH: 5\r\n", "0\r\n\r\n"),
        request("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        request("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        request("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "0\r\n\r\n"),
        request("Transfer-Encoding: chunked\r\n", "").replace("1.1", "1.0"),
        request("Content-Length: 2\r\nContent-Length: 5\r\n", "{}"),
        request("Content-Length: 2, 5\r\n", "{}"),
        request("Content-Length: +2\r\n", "{}"),
        request("Content-Length:\r\n", "{}"),
        request("Content-Length: 99999999999999999999\r\n", "{}"),
        request("X-A: b\r\n Content-Length: 2\r\n", "{}"),
        request("X-A: b\n", ""),
        request("X-A: b\nContent-Length: 2\r\n", "{}"),
        request("", "").replace("\r\n", "\n"),
        request("", "").replacen("\r\n", "\n", 1),
        request("", "").replace("\r\n\r\n", "\r\n\n"),
        request("", "").replace("\r\n\r\n", "\n\r\n"),
        format!("\n{}", request("", "")),
    ]
}

/// All that passes of `bytes`, pushed in pieces that end at `cuts`.
fn push(gate: &mut Gate, bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut passed = Vec::new();
    let mut at = 0;
    let ends = cuts.iter().copied().filter(|cut| *cut < bytes.len()).chain([bytes.len()]);
    for end in ends {
        let piece = &bytes[at.min(end)..end];
        let now = gate.push(piece);
        passed.extend_from_slice(&piece[..now]);
        while !gate.ready.is_empty() {
            passed.extend(gate.read(7));
        }
        at = end;
    }
    passed
}

/// Every request of `good`, and then `bad`: the first pass as they came, and `bad` is refused.
#[track_caller]
fn check(good: &[String], bad: Option<&String>, cuts: &[usize]) {
    let mut gate = Gate::default();
    let before = good.concat();
    let bytes = format!("{before}{}", bad.map_or("", String::as_str));
    let passed = push(&mut gate, bytes.as_bytes(), cuts);
    let substitute = if bad.is_some() { SUBSTITUTE } else { b"" };
    // Empty lines before a request belong to it.
    let expected = [before.as_bytes(), substitute].concat();
    assert_eq!(String::from_utf8_lossy(&passed), String::from_utf8_lossy(&expected), "{bytes:?}");
    let served: Vec<_> = good.iter().map(|_| gate.next()).collect();
    assert_eq!(served, vec![true; good.len()], "{bytes:?}");
    match bad {
        None => assert_eq!(gate.at, At::Head),
        Some(_) => {
            assert!(gate.is_closed());
            assert!(!gate.next(), "{bytes:?}");
            assert_eq!(gate.push(b"GET / HTTP/1.1\r\n\r\n"), 0);
            assert!(gate.is_closed(), "nothing passes behind it");
        }
    }
}

#[test]
fn each_request_is_taken_for_what_it_is_wherever_it_is_cut() {
    for good in plain() {
        for cut in 0..=good.len() {
            check(&[good.clone(), request("", "")], None, &[cut]);
        }
    }
    let plain = plain();
    for bad in odd() {
        for cut in 0..bad.len() {
            check(&[], Some(&bad), &[cut]);
        }
        for good in &plain {
            // In one buffer, behind another request and its body.
            check(std::slice::from_ref(good), Some(&bad), &[]);
        }
    }
}

proptest! {
    #[test]
    fn pipelines_pass_up_to_the_first_odd_request(
        good in prop::collection::vec(prop::sample::select(plain()), 0..6),
        bad in prop::option::of(prop::sample::select(odd())),
        mut cuts in prop::collection::vec(0_usize..900, 0..12),
    ) {
        cuts.sort_unstable();
        check(&good, bad.as_ref(), &cuts);
    }

    #[test]
    fn any_bytes_pass_in_their_order_or_not_at_all(
        bytes in prop::collection::vec(prop::sample::select(b"GET /:\r\n\n0a;X".as_slice()), 0..200),
        cuts in prop::collection::vec(0_usize..200, 0..4),
    ) {
        let mut sorted = cuts;
        sorted.sort_unstable();
        let (mut whole, mut cut) = (Gate::default(), Gate::default());
        let passed = push(&mut whole, &bytes, &[]);
        prop_assert_eq!(&passed, &push(&mut cut, &bytes, &sorted));
        prop_assert_eq!(whole.refused, cut.refused);
    }
}

#[test]
fn a_chunked_request_passes_and_all_behind_it_are_refused() {
    let (plain, coded) =
        ("Transfer-Encoding: chunked\r\n", "transfer-encoding: gzip , Chunked\r\n");
    for (chunked, body) in [
        (plain, "0\r\n\r\n"),
        (coded, "2;a\n{}\r\n0\r\n\r\n"),
        (plain, "x\r\n"),
        (coded, "1\r\nab"),
    ] {
        let bytes = format!("{}{}", request(chunked, body), request("", ""));
        for cut in 0..bytes.len() {
            let mut gate = Gate::default();
            let passed = push(&mut gate, bytes.as_bytes(), &[cut]);
            assert_eq!(passed, bytes.as_bytes(), "hyper sees what is wrong: {body:?}");
            let served = (gate.next(), gate.next());
            assert_eq!(served, (true, false), "{body:?}");
        }
    }
}

#[test]
fn a_head_that_is_too_long_is_hypers_to_refuse() {
    let mut gate = Gate::default();
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(MAX));
    assert_eq!(push(&mut gate, long.as_bytes(), &[100]), long.as_bytes());
    assert!(!gate.next());
}

#[test]
fn a_request_that_only_hyper_has_seen_is_refused() {
    assert!(!Gate::default().next());
}
