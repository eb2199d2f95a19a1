//! Where cards are looked for, redirects within an origin, extended cards, and interfaces of which
//! the first cannot be reached.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::backend::readiness::Readiness;

const OLDER: &str = "/.well-known/agent.json";
const CURRENT: &str = "/.well-known/agent-card.json";

fn base(agent: &Agent) -> CardSource {
    CardSource::Base(agent.url.clone().into())
}

#[tokio::test]
async fn older_path_is_tried_whatever_the_first_answers() {
    let answers: [fn() -> Reply; 11] = [
        || Reply::status(404),
        || Reply::status(405),
        || Reply::status(403),
        || Reply::status(401),
        || Reply::status(400),
        || Reply::status(410),
        || Reply::status(500),
        || Reply::status(501),
        || Reply::status(302).with("location", "https://elsewhere.test/"),
        || Reply::json("<html>welcome</html>".to_owned()),
        || Reply::json("{}".to_owned()),
    ];
    for answer in answers {
        let agent = Agent::start(move |seen| match seen.path.as_str() {
            OLDER => Reply::json(card()),
            _ => answer(),
        })
        .await;
        if let Err(error) = dialer(base(&agent)).dial().await {
            panic!("{}", error_chain(&error));
        }
    }
}

#[tokio::test]
async fn error_says_what_both_paths_have_answered() {
    let agent = Agent::start(|seen| match seen.path.as_str() {
        CURRENT => Reply::json("<html>".to_owned()),
        OLDER => Reply::status(405),
        _ => Reply::status(404),
    })
    .await;
    let error = dial_error(base(&agent)).await;
    for expected in [CURRENT, "not a JSON object", OLDER, "HTTP 405", "`card_url`"] {
        assert!(error.contains(expected), "{expected} in {error}");
    }
}

#[tokio::test]
async fn redirect_within_the_origin_leads_to_the_card_and_one_out_of_it_does_not() {
    let agent = Agent::start(|seen| match seen.path.as_str() {
        CURRENT => Reply::status(308).with("location", "/cards/hr"),
        "/cards/hr" => Reply::status(302).with("location", "hr.json"),
        "/cards/hr.json" => Reply::json(card()),
        "/loop" => Reply::status(307).with("location", "/loop"),
        _ => Reply::status(404),
    })
    .await;
    dialer(base(&agent)).dial().await.unwrap();
    assert!(agent.seen().iter().all(|seen| seen.header("authorization") == "Bearer hunter2"));
    let looping = dial_error(CardSource::Url(agent.url.join("loop").unwrap().into())).await;
    assert!(looping.contains("redirects from one address to the next"), "{looping}");
}

#[tokio::test]
async fn busy_server_does_not_bring_back_the_older_card() {
    let fetches = AtomicUsize::new(0);
    let agent = Agent::start(move |seen| match seen.path.as_str() {
        CURRENT if fetches.fetch_add(1, Ordering::SeqCst) == 0 => Reply::json(card()),
        CURRENT => Reply::status(503),
        OLDER => Reply::json(card().replace("HR", "old HR")),
        _ => Reply::status(404),
    })
    .await;
    let dialer = dialer(base(&agent));
    let peer = dialer.dial().await.unwrap();
    let error = error_chain(&peer.resolve().await.unwrap_err());
    assert!(error.contains("HTTP 503"), "{error}");
    assert!(dialer.dial().await.is_err(), "a new connection knows it, too");
}

#[tokio::test]
async fn redirected_message_arrives_once_with_its_body_and_credentials() {
    for status in [307, 308] {
        let agent = json_rpc_anywhere(move |seen| match seen.path.as_str() {
            "/rpc" => Reply::status(status).with("location", "/rpc/"),
            _ => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        })
        .await;
        assert_eq!(dial(&agent).await.call(hello()).await.unwrap().answer, ok("hi"));
        let last = agent.seen().pop().unwrap();
        assert_eq!((last.path.as_str(), method(&last).as_str()), ("/rpc/", "SendMessage"));
        assert_eq!(last.header("authorization"), "Bearer hunter2");
    }
}

/// An agent that serves [`card`] and answers the rest as `answer` says.
async fn json_rpc_anywhere(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Agent {
    Agent::start(move |seen| match seen.path.as_str() {
        CURRENT => Reply::json(card()),
        _ => answer(seen),
    })
    .await
}

#[tokio::test]
async fn redirect_to_another_origin_or_by_another_status_is_not_followed() {
    let elsewhere = Agent::start(|_| panic!("nothing must come here")).await;
    let url = elsewhere.url.to_string();
    for (status, location) in
        [(307, url.as_str()), (308, url.as_str()), (301, "/rpc/"), (303, "/x")]
    {
        let location = location.to_owned();
        let agent = json_rpc(move |_| Reply::status(status).with("location", &location)).await;
        let error = dial(&agent).await.call(hello()).await.unwrap_err();
        assert!(matches!(error, CallError::Denied(_)), "{status}: {error:?}");
        assert_eq!(agent.seen().len(), 2);
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let agent = json_rpc(|_| Reply::status(307).with("location", "/rpc")).await;
    let error = dial(&agent).await.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Denied(_)), "{error:?}");
    assert_eq!(agent.seen().len(), 2 + redirect::MAX);
}

#[tokio::test]
async fn message_goes_to_the_next_interface_only_if_no_byte_was_sent() {
    let interface =
        |url: &str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    for (first, arrives) in [("http://127.0.0.1:1/rpc", true), ("/first", false)] {
        let card =
            json!({"name": "HR", "supportedInterfaces": [interface(first), interface("/second")]});
        let agent = Agent::start(move |seen| match seen.path.as_str() {
            CURRENT => Reply::json(card.to_string()),
            "/first" => Reply::hang_up(),
            _ => result(&json!({"message": {"parts": [{"text": "hi"}]}})),
        })
        .await;
        let config = A2a { allow_hosts: vec!["127.0.0.1".to_owned()], ..A2a::new(base(&agent)) };
        let peer = dialer_with(&config).dial().await.unwrap();
        let outcome = peer.call(hello()).await.map(|outcome| outcome.answer);
        if arrives {
            assert_eq!(outcome.unwrap(), ok("hi"));
        } else {
            assert!(matches!(outcome, Err(CallError::Lost(_))), "{outcome:?}");
        }
        let sent = agent.seen().iter().filter(|seen| seen.path == "/second").count();
        assert_eq!(sent, usize::from(arrives), "{first}");
    }
}

#[tokio::test]
async fn endpoint_of_the_entry_takes_the_place_of_the_cards() {
    let other = Agent::start(|_| result(&json!({"message": {"parts": [{"text": "hi"}]}}))).await;
    for url in
        ["", "https://REPLACE_BY_HOST/", "{BASE_URL}/x", "http://[::]:9/", "http://gone.invalid/"]
    {
        let card = card().replace("/rpc", url);
        let agent = Agent::start(move |_| Reply::json(card.clone())).await;
        let endpoint = Some(other.url.join("a2a").unwrap().into());
        let config = A2a { endpoint, ..A2a::new(base(&agent)) };
        let peer = dialer_with(&config).dial().await.unwrap();
        assert_eq!(peer.call(hello()).await.unwrap().answer, ok("hi"), "{url}");
    }
    let last = other.seen().pop().unwrap();
    assert_eq!((last.path.as_str(), last.header("a2a-version")), ("/a2a", "1.0"));
}

/// An agent of this version with an extended card, over one binding.
async fn with_extended_card(version: &'static str, binding: &'static str) -> Agent {
    let own = format!(
        r#"{{"name":"HR","protocolVersion":"{version}","supportedInterfaces":[{{"url":"/rpc","protocolBinding":"{binding}","protocolVersion":"{version}"}}]}}"#
    );
    Agent::start(move |seen| {
        let extended = own.replace("HR", "extended HR");
        let asked_for = method(seen);
        match (seen.path.as_str(), asked_for.as_str()) {
            (CURRENT, _) => Reply::json(own.clone()),
            (_, "GetExtendedAgentCard" | "agent/getAuthenticatedExtendedCard") => {
                Reply::json(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{extended}}}"#))
            }
            (
                "/rpc/extendedAgentCard" | "/rpc/v1/card" | "/agent/authenticatedExtendedCard",
                "",
            ) => Reply::json(extended),
            _ => Reply::status(404),
        }
    })
    .await
}

#[tokio::test]
async fn extended_card_is_offered_over_each_binding_and_version() {
    for (version, binding) in [
        ("1.0", "JSONRPC"),
        ("1.0", "HTTP+JSON"),
        ("0.3.0", "JSONRPC"),
        ("0.3.0", "HTTP+JSON"),
        ("0.2.6", "JSONRPC"),
    ] {
        let agent = with_extended_card(version, binding).await;
        let config = A2a { extended_card: true, ..A2a::new(base(&agent)) };
        let dialer = dialer_with(&config);
        let catalog = dialer.dial().await.unwrap().resolve().await.unwrap();
        let offered = catalog.extended_card().map(|card| card.get().to_owned());
        let offered =
            offered.unwrap_or_else(|| panic!("{version} {binding}: {:?}", dialer.remark()));
        assert!(offered.contains("extended HR"), "{offered}");
        assert!(catalog.public_card().unwrap().get().contains(r#""name":"HR""#));
        assert_eq!(dialer.remark(), None);
    }
}

#[tokio::test]
async fn extended_card_that_is_not_given_is_told_and_the_last_one_stays() {
    let fetches = AtomicUsize::new(0);
    let extended = card().replace("HR", "extended HR");
    let agent = json_rpc(move |_| match fetches.fetch_add(1, Ordering::SeqCst) {
        1 => Reply::json(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{extended}}}"#)),
        _ => Reply::json(refusal(-32007)),
    })
    .await;
    let config = A2a { extended_card: true, ..A2a::new(base(&agent)) };
    let dialer = dialer_with(&config);
    let peer = dialer.dial().await.unwrap();
    assert!(dialer.remark().unwrap().with_quote().message.contains("-32007"));
    let first = peer.resolve().await.unwrap();
    assert!(first.extended_card().is_some() && dialer.remark().is_none());
    let second = peer.resolve().await.unwrap();
    assert!(Arc::ptr_eq(&first, &second) && dialer.remark().is_some());
}

#[tokio::test]
async fn call_that_is_denied_or_lost_is_a_doubt_and_an_answered_one_is_none() {
    let agent = json_rpc(|_| Reply::status(401)).await;
    let peer = dial(&agent).await;
    let doubts = |peer: &Arc<dyn Peer>| peer.health().unwrap().subscribe().borrow().doubts;
    let error = peer.call(hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Denied(_)), "{error:?}");
    assert_eq!(doubts(&peer), 1);
    let agent = json_rpc(|_| result(&json!({"message": {"parts": [{"text": "hi"}]}}))).await;
    let peer = dial(&agent).await;
    peer.call(hello()).await.unwrap();
    assert_eq!(doubts(&peer), 0);
    assert!(matches!(peer.health().unwrap().readiness(), Readiness::Answers(_)));
}
