//! The matrix of names, origins and tokens.

use super::*;
use crate::model::san::San;

fn app(name: &str, token: &str) -> App {
    App { token: Some(TokenHash::new(token.as_bytes())), ..App::named(name) }
}

fn settings(apps: &[App]) -> Arc<Settings> {
    let second = Duration::from_secs(1);
    let limits =
        crate::config::Calls { timeout: second, pending_timeout: second, max_concurrent: 1 };
    Arc::new(Settings::new(limits, apps.to_vec(), None))
}

/// An authenticator of `apps`, and what a reload replaces.
fn knows(auth: Auth, apps: &[App]) -> (Authenticator, watch::Sender<Arc<Settings>>) {
    let (reload, read) = watch::channel(settings(apps));
    (Authenticator::new(auth, operator(), read, hosts()), reload)
}

fn hosts() -> Hosts {
    Hosts::new(&["127.0.0.1:7717".parse().unwrap()], &[], None)
}

fn operator() -> TokenHash {
    TokenHash::new(b"the operator")
}

fn authenticator(auth: Auth) -> Authenticator {
    knows(auth, &[app("billing", "t0ken-one"), app("hr", "t0ken-two")]).0
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), value.parse::<http::HeaderValue>().unwrap())
    };
    pairs.iter().map(parse).collect()
}

fn request(uri: &'static str, headers: HeaderMap) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static(uri);
    *request.headers_mut() = headers;
    request
}

fn tcp() -> ClientInfo {
    ClientInfo::Tcp { peer: "127.0.0.1:50000".parse().unwrap() }
}

#[track_caller]
fn browser(pairs: &[(&str, &str)], expected: &Result<(), AuthRefusal>) {
    let request = request("/v1/status", headers(pairs));
    assert_eq!(authenticator(Auth::Token).check_browser(Access::App, &request, &tcp()), *expected);
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
        browser(&[("host", host)], &Err(AuthRefusal::ForeignHost));
    }
    browser(&[], &Err(AuthRefusal::NoHost));
}

#[test]
fn two_hosts_and_another_authority_are_refused() {
    let client = &tcp();
    let mut two = headers(&[("host", "127.0.0.1:7717")]);
    two.append(header::HOST, "evil.com".parse().unwrap());
    let authenticator = authenticator(Auth::Token);
    let plain = request("/v1/status", two);
    assert_eq!(authenticator.check_browser(Access::App, &plain, client), Err(AuthRefusal::NoHost));
    let one = headers(&[("host", "127.0.0.1:7717")]);
    let absolute = request("http://evil.com/v1/status", one);
    assert_eq!(
        authenticator.check_browser(Access::App, &absolute, client),
        Err(AuthRefusal::ForeignHost)
    );
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
        browser(&[host, (name, value)], &Err(AuthRefusal::CrossOrigin));
    }
    browser(&[host, ("origin", "http://127.0.0.1:7717")], &Ok(()));
    browser(&[host, ("referer", "http://localhost:7717/page")], &Ok(()));
    browser(&[host, ("sec-fetch-site", "none")], &Ok(()));
}

#[track_caller]
fn identify(auth: Auth, pairs: &[(&str, &str)], expected: Result<&str, AuthRefusal>) {
    let found = authenticator(auth).identify(&headers(pairs), &ClientInfo::Unix { peer: None });
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
fn request_without_a_right_token_is_refused() {
    identify(Auth::Token, &[], Err(AuthRefusal::NoToken));
    identify(Auth::Token, &[("authorization", "Basic abc")], Err(AuthRefusal::NoToken));
    identify(Auth::Token, &[("authorization", "Bearer ")], Err(AuthRefusal::WrongToken));
    identify(Auth::Token, &[("x-api-key", "t0ken-on")], Err(AuthRefusal::WrongToken));
    identify(Auth::Off, &[], Ok("billing"));
}

#[test]
fn a_refusal_is_counted_by_the_code_that_its_sender_reads() {
    use AuthRefusal::{
        CrossOrigin, ForeignHost, NoHost, NoToken, OtherApp, OtherCertificate, TooManyFailures,
        TooManyRequests, WrongToken,
    };
    let all = [
        NoHost,
        ForeignHost,
        CrossOrigin,
        NoToken,
        WrongToken,
        OtherApp,
        OtherCertificate,
        TooManyFailures(Duration::ZERO),
        TooManyRequests(Duration::ZERO),
    ];
    for refusal in all {
        let (kind, code) = refusal.kinds();
        assert_eq!(kind.as_str(), code.as_str());
    }
}

/// A33: the kernel's word on who has connected is worth a token, and only to whom it was given.
#[test]
fn a_user_is_its_app_on_a_unix_socket() {
    let mut apps = vec![app("billing", "t0ken-one"), app("hr", "t0ken-two")];
    apps[1].users = vec![1000, 1001];
    let (authenticator, _) = knows(Auth::Token, &apps);
    let by = |uid: Option<u32>, pairs: &[(&str, &str)]| {
        let peer = uid.map(|uid| crate::http::client_info::Process { uid, pid: Some(7) });
        let found = authenticator.identify(&headers(pairs), &ClientInfo::Unix { peer });
        found.map(|caller| (caller.app.name.to_string(), caller.token_in.is_some()))
    };
    let is = |name: &str, by_token| Ok((name.to_owned(), by_token));
    assert_eq!(by(Some(1001), &[]), is("hr", false));
    // What it shows besides is its own credential, for MANTYX.
    assert_eq!(by(Some(1000), &[("authorization", "Bearer its-own")]), is("hr", false));
    assert_eq!(by(Some(1000), &[("x-api-key", "t0ken-one")]), is("billing", true));
    for uid in [Some(0), Some(1002), None] {
        assert_eq!(by(uid, &[]), Err(AuthRefusal::NoToken));
        assert_eq!(by(uid, &[("x-api-key", "t0ken-two")]), is("hr", true));
    }
    let over_tcp = authenticator.identify(&headers(&[]), &tcp());
    assert!(matches!(over_tcp, Err(AuthRefusal::NoToken)));
}

#[test]
fn client_that_fails_too_often_has_to_wait() {
    let authenticator = authenticator(Auth::Token);
    let from = |address: &str| ClientInfo::Tcp { peer: address.parse().unwrap() };
    let (guesser, other) = (from("192.0.2.1:1"), from("192.0.2.2:1"));
    for _ in 0..10 {
        authenticator.check_failures(&guesser).unwrap();
        assert_eq!(
            authenticator.turned_away(AuthRefusal::WrongToken, &guesser),
            AuthRefusal::WrongToken
        );
        // What is no guess does not count.
        assert_eq!(authenticator.turned_away(AuthRefusal::NoHost, &other), AuthRefusal::NoHost);
    }
    let told = authenticator.turned_away(AuthRefusal::WrongToken, &guesser);
    assert!(
        matches!(told, AuthRefusal::TooManyFailures(wait) if wait <= Duration::from_millis(100))
    );
    assert!(authenticator.check_failures(&guesser).is_err());
    authenticator.check_failures(&other).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_app_sends_no_more_than_it_may() {
    use crate::config::Rate;
    let mut apps = vec![app("billing", "t0ken-one"), app("hr", "t0ken-two")];
    apps[0].rate = Some(Rate { per_second: 10.0, burst: 20.0 });
    let (authenticator, reload) = knows(Auth::Token, &apps);
    let went = |app: &App| (0..100).filter(|_| authenticator.check_rate(app).is_ok()).count();
    assert_eq!((went(&apps[0]), went(&apps[1])), (20, 100));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(went(&apps[0]), 10);
    // A reload gives nothing, and takes away what is no app any more.
    reload.send_replace(settings(&apps));
    assert_eq!(went(&apps[0]), 0);
    apps[1].rate = apps[0].rate;
    reload.send_replace(settings(&apps[1..]));
    assert_eq!(went(&apps[1]), 20);
    assert_eq!(authenticator.buckets.lock().keys().collect::<Vec<_>>(), [&apps[1].name]);
}

/// `billing` has a token, `hr` a certificate, `ops` both.
fn certified() -> (Authenticator, watch::Sender<Arc<Settings>>) {
    let named = |name: &str| Some(vec![San::parse(name).unwrap()]);
    let apps = vec![
        app("billing", "t0ken-one"),
        App { token: None, certificate: named("spiffe://acme/hr"), ..app("hr", "") },
        App { certificate: named("ops.acme"), ..app("ops", "t0ken-ops") },
    ];
    knows(Auth::Token, &apps)
}

/// A connection that was made with a certificate of these names.
fn with_certificate(names: &[&str]) -> ClientInfo {
    let names = names.iter().map(|name| San::parse(name).unwrap()).collect();
    ClientInfo::Tls { peer: "10.0.0.9:50000".parse().unwrap(), names: Some(names) }
}

#[track_caller]
fn known(
    authenticator: &Authenticator,
    client: &ClientInfo,
    token: Option<&str>,
    expected: Result<&str, AuthRefusal>,
) {
    let pairs: Vec<(&str, &str)> = token.map(|token| ("x-api-key", token)).into_iter().collect();
    let found = authenticator.identify(&headers(&pairs), client);
    let found = found.map(|caller| caller.app.name.as_str().to_owned());
    assert_eq!(found, expected.map(str::to_owned));
}

#[test]
fn a_certificate_says_who_it_is() {
    let (authenticator, _) = certified();
    let hr = with_certificate(&["other.acme", "spiffe://acme/hr"]);
    known(&authenticator, &hr, None, Ok("hr"));
    known(&authenticator, &hr, Some("a key of MANTYX"), Ok("hr"));
    known(&authenticator, &hr, Some("t0ken-one"), Err(AuthRefusal::OtherApp));
    let ops = with_certificate(&["ops.acme"]);
    known(&authenticator, &ops, Some("t0ken-ops"), Ok("ops"));
    known(&authenticator, &ops, None, Ok("ops"));
}

#[test]
fn a_certificate_that_is_nobodys_needs_a_token() {
    let (authenticator, _) = certified();
    for names in [&["acme/hr", "SPIFFE://acme/hr", "ops.acme.evil"][..], &[]] {
        let other = with_certificate(names);
        known(&authenticator, &other, None, Err(AuthRefusal::NoToken));
        known(&authenticator, &other, Some("t0ken-one"), Ok("billing"));
        // A stolen token does not stand in for the certificate.
        known(&authenticator, &other, Some("t0ken-ops"), Err(AuthRefusal::OtherCertificate));
        assert!(authenticator.app_of(TokenHash::new(b"t0ken-ops"), &other).is_none());
    }
    known(&authenticator, &ClientInfo::Unix { peer: None }, Some("t0ken-ops"), Ok("ops"));
}

#[test]
fn removed_app_is_refused_at_once() {
    let ((authenticator, reload), hr) = (certified(), with_certificate(&["spiffe://acme/hr"]));
    known(&authenticator, &hr, None, Ok("hr"));
    reload.send_replace(settings(&[app("billing", "t0ken-one")]));
    known(&authenticator, &hr, None, Err(AuthRefusal::NoToken));
}

#[test]
fn navigation_from_an_issuer_reaches_the_routes_of_a_login_alone() {
    let check = |access: Access, pairs: &[(&str, &str)]| {
        let all = [&[("host", "127.0.0.1:7717"), ("referer", "https://issuer.test/")], pairs];
        let request = request("/oauth/callback", headers(&all.concat()));
        authenticator(Auth::Token).check_browser(access, &request, &tcp())
    };
    let navigation = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(check(Access::Navigation, &navigation), Ok(()));
    assert_eq!(check(Access::Anyone, &navigation), Err(AuthRefusal::CrossOrigin));
    let mut framed = navigation;
    framed[2].1 = "iframe";
    assert_eq!(check(Access::Navigation, &framed), Err(AuthRefusal::CrossOrigin));
    assert_eq!(check(Access::Navigation, &navigation[..1]), Err(AuthRefusal::CrossOrigin));
}
