//! The matrix of names, origins and tokens.

use super::*;
use crate::model::ids::AppName;

fn app(name: &str, token: &str) -> App {
    App {
        name: AppName::from(name),
        token: token.to_owned().into(),
        backends: None,
        max_concurrent_calls: None,
        credential: None,
    }
}

fn guard(auth: Auth) -> Guard {
    let apps = vec![app("billing", "t0ken-one"), app("hr", "t0ken-two")];
    Guard::new(auth, &apps, &["127.0.0.1:7717".parse().unwrap()])
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), value.parse::<http::HeaderValue>().unwrap())
    };
    pairs.iter().map(parse).collect()
}

#[track_caller]
fn browser(pairs: &[(&str, &str)], expected: &Result<(), Refusal>) {
    let arrival = Arrival::Tcp { peer: "127.0.0.1:50000".parse().unwrap() };
    let uri = Uri::from_static("/v1/status");
    assert_eq!(guard(Auth::Token).check_browser(&uri, &headers(pairs), arrival), *expected);
}

#[test]
fn only_our_names_are_ours() {
    for host in ["127.0.0.1:7717", "localhost:7717", "LOCALHOST:7717"] {
        browser(&[("host", host)], &Ok(()));
    }
    for host in [
        "evil.com",
        "evil.com:7717",
        "127.0.0.1.nip.io:7717",
        "localhost.evil.com:7717",
        "localhost",
        "localhost.:7717",
        "0.0.0.0:7717",
        "[::]:7717",
        "",
        "127.0.0.1:7718",
    ] {
        browser(&[("host", host)], &Err(Refusal::ForeignHost));
    }
    browser(&[], &Err(Refusal::NoHost));
}

#[test]
fn two_hosts_and_another_authority_are_refused() {
    let arrival = Arrival::Tcp { peer: "127.0.0.1:50000".parse().unwrap() };
    let mut two = headers(&[("host", "127.0.0.1:7717")]);
    two.append(header::HOST, "evil.com".parse().unwrap());
    let guard = guard(Auth::Token);
    let plain = Uri::from_static("/v1/status");
    assert_eq!(guard.check_browser(&plain, &two, arrival), Err(Refusal::NoHost));
    let absolute = Uri::from_static("http://evil.com/v1/status");
    let one = headers(&[("host", "127.0.0.1:7717")]);
    assert_eq!(guard.check_browser(&absolute, &one, arrival), Err(Refusal::ForeignHost));
}

#[test]
fn foreign_pages_are_refused() {
    let host = ("host", "127.0.0.1:7717");
    for (name, value) in [
        ("origin", "null"),
        ("origin", "http://evil.com"),
        ("origin", "http://localhost:1"),
        ("origin", "https://127.0.0.1:7717"),
        ("referer", "http://evil.com/a"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        browser(&[host, (name, value)], &Err(Refusal::CrossOrigin));
    }
    browser(&[host, ("origin", "http://127.0.0.1:7717")], &Ok(()));
    browser(&[host, ("referer", "http://localhost:7717/page")], &Ok(()));
    browser(&[host, ("sec-fetch-site", "none")], &Ok(()));
}

#[track_caller]
fn identify(auth: Auth, pairs: &[(&str, &str)], expected: Result<&str, Refusal>) {
    let found = guard(auth).identify(&headers(pairs));
    let found = found.map(|caller| caller.app.name.as_str().to_owned());
    assert_eq!(found, expected.map(str::to_owned));
}

#[test]
fn a_token_finds_its_app() {
    identify(Auth::Token, &[("authorization", "Bearer t0ken-one")], Ok("billing"));
    identify(Auth::Token, &[("authorization", "bearer t0ken-two")], Ok("hr"));
    identify(Auth::Token, &[("x-api-key", "t0ken-two")], Ok("hr"));
    identify(
        Auth::Token,
        &[("authorization", "Bearer mantyx_key"), ("x-api-key", "t0ken-one")],
        Ok("billing"),
    );
}

#[test]
fn without_a_right_token_nobody_comes_in() {
    identify(Auth::Token, &[], Err(Refusal::NoToken));
    identify(Auth::Token, &[("authorization", "Basic abc")], Err(Refusal::NoToken));
    identify(Auth::Token, &[("authorization", "Bearer ")], Err(Refusal::WrongToken));
    identify(Auth::Token, &[("x-api-key", "t0ken-on")], Err(Refusal::WrongToken));
    identify(Auth::Off, &[], Ok("billing"));
}

#[test]
fn a_refusal_is_counted_by_the_code_that_its_sender_reads() {
    use Refusal::{CrossOrigin, ForeignHost, NoHost, NoToken, WrongToken};
    for refusal in [NoHost, ForeignHost, CrossOrigin, NoToken, WrongToken] {
        assert_eq!(crate::metrics::Label::as_str(refusal.kind()), refusal.code().as_str());
    }
}
