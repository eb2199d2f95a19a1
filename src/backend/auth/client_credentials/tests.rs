//! What is sent to a token endpoint, and what is made of its answers.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::json;
use url::form_urlencoded;

use super::*;
use crate::fake_http::{Agent, Reply, Seen};

const SECRET: &str = "s3cret/+";

fn clients() -> http_client::Clients {
    http_client::Clients::new(None, None, http_client::new())
}

fn issuer(token_url: Option<Url>, resource: Option<&str>, scopes: &[&str]) -> Issuer {
    let config = ClientCredentials {
        audience: None,
        id: "bridge one".to_owned(),
        secret: SECRET.to_owned().into(),
        auth_method: ClientAuthMethod::default(),
        method_is_configured: false,
        token_url: token_url.map(Into::into),
        scopes: scopes.iter().map(ToString::to_string).collect(),
    };
    let resource = resource.map(|url| Url::parse(url).unwrap());
    Issuer::new(BackendName::parse("b").unwrap(), Arc::new(config), resource.as_ref(), clients())
}

async fn endpoint(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Agent, Url) {
    let agent = Agent::start(answer).await;
    let url = agent.url.join("token?tenant=hunter2").unwrap();
    (agent, url)
}

fn token() -> Reply {
    Reply::json(json!({"access_token": "t1", "token_type": "Bearer", "expires_in": 60}).to_string())
}

fn fails(status: u16, error: &str) -> Reply {
    let body = json!({"error": error, "error_description": SECRET});
    Reply::json(body.to_string()).but(status)
}

fn form(seen: &Seen) -> Vec<(String, String)> {
    form_urlencoded::parse(seen.body.as_bytes()).into_owned().collect()
}

#[tokio::test]
async fn a_client_with_a_key_signs_and_is_not_asked_twice() {
    for audience in [None, Some("https://idp")] {
        let (agent, url) = endpoint(|_| fails(401, "invalid_client")).await;
        let config = ClientCredentials {
            audience: audience.map(str::to_owned),
            id: "me".to_owned(),
            secret: rcgen::KeyPair::generate().unwrap().serialize_pem().into(),
            auth_method: ClientAuthMethod::Signed,
            method_is_configured: false,
            token_url: Some(url.clone().into()),
            scopes: Vec::new(),
        };
        let name = BackendName::parse("b").unwrap();
        let issuer = Issuer::new(name, Arc::new(config), None, clients());
        assert!(issuer.issue(None).await.is_err());
        let [seen] = &agent.seen()[..] else { panic!("one request") };
        let form = form(seen);
        let keys: Vec<&str> = form.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["grant_type", "client_id", "client_assertion_type", "client_assertion"]);
        assert_eq!(form[2].1, "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        let [_, claims, _] = form[3].1.split('.').collect::<Vec<_>>()[..] else { panic!("no JWT") };
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], audience.unwrap_or(url.as_str()));
        assert!(!seen.body.contains("PRIVATE"));
    }
}

#[tokio::test]
async fn a_request_says_who_asks_and_for_what() {
    let (agent, url) = endpoint(|_| token()).await;
    let issuer = issuer(Some(url), Some("https://rs:8443/mcp?x=1"), &["read", "write"]);
    assert!(issuer.is_ready());
    let issued = issuer.issue(None).await.unwrap();
    assert_eq!(
        (issued.value.to_str().unwrap(), issued.lifetime),
        ("Bearer t1", Some(Duration::from_secs(60)))
    );
    assert!(issued.value.is_sensitive());
    let [seen] = &agent.seen()[..] else { panic!("one request") };
    assert_eq!(seen.header("content-type"), "application/x-www-form-urlencoded");
    // RFC 6749, 2.3.1: both are form-encoded before they are joined.
    let pair = BASE64_STANDARD.encode("bridge+one:s3cret%2F%2B");
    assert_eq!(seen.header("authorization"), format!("Basic {pair}"));
    let pairs = [
        ("grant_type", "client_credentials"),
        ("scope", "read write"),
        ("resource", "https://rs:8443/mcp"),
    ];
    assert_eq!(form(seen), pairs.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[tokio::test]
async fn the_other_way_to_show_the_secret_is_tried_once_and_remembered() {
    for status in [400, 401] {
        let (agent, url) = endpoint(move |seen| match seen.header("authorization") {
            "" => token(),
            _ => fails(status, "invalid_client"),
        })
        .await;
        let issuer = issuer(Some(url), None, &[]);
        for _ in 0..2 {
            assert!(issuer.issue(None).await.is_ok());
        }
        let seen = agent.seen();
        assert_eq!(seen.len(), 3, "the second time, the right way is known");
        let body = form(&seen[2]);
        assert!(body.contains(&("client_id".into(), "bridge one".into())), "{body:?}");
        assert!(body.contains(&("client_secret".into(), SECRET.into())), "{body:?}");
    }
}

#[tokio::test]
async fn way_that_the_operator_has_chosen_is_the_only_one() {
    for (auth_method, has_header) in
        [(ClientAuthMethod::InBody, false), (ClientAuthMethod::InHeader, true)]
    {
        let (agent, url) = endpoint(|_| fails(401, "invalid_client")).await;
        let mut config = ClientCredentials::clone(&issuer(Some(url), None, &[]).credentials);
        config.auth_method = auth_method;
        config.method_is_configured = true;
        let name = BackendName::parse("b").unwrap();
        let issuer = Issuer::new(name, Arc::new(config), None, clients());
        assert!(issuer.issue(None).await.is_err());
        let [seen] = &agent.seen()[..] else { panic!("one request") };
        assert_eq!(!seen.header("authorization").is_empty(), has_header);
        assert_eq!(!seen.body.contains("client_secret"), has_header);
    }
}

#[tokio::test]
async fn refusals_are_told_without_what_may_be_secret() {
    struct Case {
        status: u16,
        error: &'static str,
        expected: &'static str,
        passes: bool,
        requests: usize,
    }
    for Case { status, error, expected, passes, requests } in [
        Case {
            status: 401,
            error: "invalid_client",
            expected: "answered 401 invalid_client",
            passes: false,
            requests: 2,
        },
        Case {
            status: 401,
            error: "s3cret/+",
            expected: "answered HTTP 401",
            passes: false,
            requests: 2,
        },
        Case {
            status: 400,
            error: "invalid_scope",
            expected: "answered 400 invalid_scope",
            passes: false,
            requests: 1,
        },
        Case {
            status: 400,
            error: "s3cret/+",
            expected: "answered HTTP 400",
            passes: false,
            requests: 1,
        },
        Case {
            status: 503,
            error: "temporarily_unavailable",
            expected: "answered 503 temporarily_unavailable",
            passes: true,
            requests: 1,
        },
        Case {
            status: 429,
            error: "slow_down",
            expected: "answered 429 slow_down",
            passes: true,
            requests: 1,
        },
        Case { status: 302, error: "", expected: "answered HTTP 302", passes: false, requests: 1 },
    ] {
        let (agent, url) = endpoint(move |_| fails(status, error)).await;
        let failure = issuer(Some(url), None, &[]).issue(None).await.unwrap_err();
        assert!(failure.text.ends_with(expected), "{status} {error}: {}", failure.text);
        assert!(failure.text.contains("/token?…") && !failure.text.contains("hunter2"));
        assert!(!failure.text.contains("s3cret"), "{}", failure.text);
        assert_eq!((failure.passes, agent.seen().len()), (passes, requests), "{status} {error}");
    }
}

#[tokio::test]
async fn answers_without_a_usable_token() {
    for body in [
        "<html>".to_owned(),
        json!({"token_type": "Bearer"}).to_string(),
        json!({"access_token": ""}).to_string(),
        json!({"access_token": "a\nb"}).to_string(),
        json!({"access_token": "t", "token_type": "DPoP"}).to_string(),
        "x".repeat((64 << 10) + 1),
    ] {
        let (_agent, url) = endpoint(move |_| Reply::json(body.clone())).await;
        assert!(issuer(Some(url), None, &[]).issue(None).await.is_err());
    }
    let (_agent, url) = endpoint(|_| Reply::hang_up()).await;
    let failure = issuer(Some(url), None, &[]).issue(None).await.unwrap_err();
    assert!(failure.passes, "{}", failure.text);
    let url = Url::parse("http://169.254.169.254/token").unwrap();
    let failure = issuer(Some(url), None, &[]).issue(None).await.unwrap_err();
    assert!(failure.text.contains("link-local"), "{}", failure.text);
}

#[tokio::test]
async fn a_card_is_heeded_where_the_operator_says_nothing() {
    let base = Url::parse("https://hr.test/card").unwrap();
    let card = Some(&base);
    let asked = issuer(None, None, &[]);
    assert!(!asked.is_ready());
    for bad in
        ["http://idp.test/t", "http://127.0.0.1/t", "https://[::1]/t", "https://169.254.1.1/"]
    {
        asked.learn(card, bad);
        assert!(!asked.is_ready(), "{bad}");
    }
    for (named, expected) in
        [("/token", "https://hr.test/token"), ("https://idp.test/t", "https://idp.test/t")]
    {
        asked.learn(card, named);
        assert_eq!(asked.endpoint_state.lock().endpoint.as_ref().unwrap().url.as_str(), expected);
    }
    let told = issuer(Some(Url::parse("https://own.test/t").unwrap()), None, &[]);
    told.learn(card, "https://idp.test/t");
    assert_eq!(
        told.endpoint_state.lock().endpoint.as_ref().unwrap().url.as_str(),
        "https://own.test/t"
    );
}

#[test]
fn the_name_of_a_server() {
    for (url, name) in [
        ("https://rs/", "https://rs"),
        ("https://rs/mcp/", "https://rs/mcp/"),
        ("https://rs/mcp?a=b#c", "https://rs/mcp"),
    ] {
        assert_eq!(resource_name(&Url::parse(url).unwrap()), name);
    }
}
