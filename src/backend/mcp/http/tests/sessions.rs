//! Sessions that the server has forgotten.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::backend::peer::{PermissionCheck, Progress, ReadPermission};
use crate::config::{ClientCredentials, OauthClient};
use crate::model::rights::CallRefusal;
use crate::model::{CallRequest, Permission};
use crate::oauth::endpoint::ClientAuthMethod;

/// A server whose sessions are numbered, and which answers calls in the first one with `refusal`.
async fn forgetful(refusal: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let sessions = AtomicUsize::new(0);
    server(move |seen| {
        if seen.is("initialize") {
            let number = sessions.fetch_add(1, Ordering::Relaxed);
            return usual(seen, &format!("session-{number}")).unwrap();
        }
        usual(seen, "").unwrap_or_else(|| match seen.header("mcp-session-id") {
            Some("session-0") => refusal(seen),
            _ => seen.result(HELLO),
        })
    })
    .await
}

/// A refusal in JSON-RPC, with the id as it is written in JSON.
fn error(id: &str, code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

#[tokio::test]
async fn lost_session_in_any_form_is_renewed_and_the_call_sent_again_once() {
    for (status, id, code, message) in [
        (404, "", 0, "gone"),
        (410, "", 0, ""),
        (401, "", 0, "Unauthorized: Session not found"),
        (400, "", 0, "Invalid session ID"),
        (400, "null", -32000, "Bad Request: No valid session ID provided"),
        (400, "\"server-error\"", -32600, "Bad Request: No valid session ID provided"),
        (400, "own", -32000, "Session not found"),
        (200, "own", -32001, "Session expired"),
        (200, "null", -32603, "the session was terminated"),
    ] {
        let server = forgetful(move |seen| {
            let own = seen.id().to_string();
            match id {
                "" => response(status, &[], message),
                "own" => json(status, &error(&own, code, message)),
                id => json(status, &error(id, code, message)),
            }
        })
        .await;
        let peer = dial(&server).await;
        assert_eq!(call(&peer).await.unwrap(), text("hello"), "{status} {id} {message}");
        timeout(PATIENCE, peer.changed()).await.expect("the catalog may have changed");
        assert!(peer.about().server_info.unwrap().get().contains("session-1"));
        assert_eq!(server.count("initialize"), 2);
        assert_eq!(server.count("tools/call"), 2, "{status} {id} {message}");
    }
}

#[tokio::test]
async fn calls_that_find_a_session_lost_together_begin_one_other_session() {
    let server = forgetful(|_| response(404, &[], "gone")).await;
    let peer = dial(&server).await;
    let answers = futures_util::future::join_all((0..8).map(|_| call(&peer))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(text("hello"))), "{answers:?}");
    assert_eq!(server.count("initialize"), 2);
    assert_eq!(server.count("notifications/initialized"), 2);
}

#[tokio::test]
async fn lost_session_that_looks_like_a_refused_token_replaces_no_token() {
    for (body, tokens) in [("Unauthorized: Session not found", 1), ("Unauthorized", 2)] {
        let calls = AtomicUsize::new(0);
        let server = forgetful(move |seen| {
            // Without a lost session, the fresh token is taken.
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                return seen.result(HELLO);
            }
            response(401, &[], body)
        })
        .await;
        let issuer = server_of_tokens().await;
        let oauth = ClientCredentials {
            id: "bridge".to_owned(),
            secret: SECRET.to_owned().into(),
            auth_method: ClientAuthMethod::InHeader,
            method_is_configured: false,
            token_url: Some(issuer.url.clone().into()),
            audience: None,
            scopes: Vec::new(),
        };
        let config = Mcp::Http {
            url: server.url.clone().into(),
            headers: HeaderMap::new(),
            socket: None,
            transport: HttpTransport::Streamable,
            oauth: Some(OauthClient::Credentials(Arc::new(oauth))),
            tls: None,
            listen: false,
            sessions: false,
        };
        let name = BackendName::parse("scripted").unwrap();
        let dialer = dialer(&name, &config, None, http_client::new());
        let peer = dialer.dial().await.unwrap();
        assert_eq!(call(&peer).await.unwrap(), text("hello"), "{body}");
        assert_eq!(issuer.seen.lock().unwrap().len(), tokens, "{body}");
    }
}

/// An issuer of tokens.
async fn server_of_tokens() -> Server {
    server(|_| json(200, r#"{"access_token":"t","token_type":"Bearer"}"#)).await
}

#[tokio::test]
async fn session_that_cannot_be_renewed_ends_the_connection() {
    let is_down = Arc::new(AtomicBool::new(false));
    let is_refused = Arc::clone(&is_down);
    let server = server(move |seen| {
        if seen.is("initialize") && is_refused.load(Ordering::Relaxed) {
            return response(503, &[], "");
        }
        usual(seen, "s").unwrap_or_else(|| response(404, &[], ""))
    })
    .await;
    let peer = dial(&server).await;
    is_down.store(true, Ordering::Relaxed);
    let (outcome, closed) = tokio::join!(call(&peer), timeout(PATIENCE, peer.closed()));
    assert!(matches!(outcome, Err(CallError::NoSession(_))), "{outcome:?}");
    let closed = error_chain(&closed.expect("it is told"));
    assert!(closed.contains("forgotten the session") && closed.contains("503"), "{closed}");
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn session_that_is_forgotten_at_once_ends_the_connection_with_a_cure() {
    let server =
        server(|seen| usual(seen, "s").unwrap_or_else(|| response(404, &[], "no session"))).await;
    let peer = dial(&server).await;
    let (outcome, closed) = tokio::join!(call(&peer), timeout(PATIENCE, peer.closed()));
    assert!(matches!(outcome, Err(CallError::NotSent(_))), "{outcome:?}");
    let closed = error_chain(&closed.expect("it is told"));
    assert!(closed.contains("load balancer"), "{closed}");
    assert_eq!(server.count("tools/call"), 2, "once more, and not for ever");
}

#[tokio::test]
async fn session_that_an_event_says_is_lost_ends_the_connection() {
    let server = forgetful(|seen| {
        let error = error(&seen.id().to_string(), -32001, "Session not found");
        let body = format!("data: {error}\n\n");
        events(&body, body.len())
    })
    .await;
    let peer = dial(&server).await;
    let (outcome, closed) = tokio::join!(call(&peer), timeout(PATIENCE, peer.closed()));
    assert!(matches!(outcome, Err(CallError::NoSession(_))), "{outcome:?}");
    assert!(error_chain(&closed.expect("it is told")).contains("forgotten the session"));
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn call_that_has_shown_progress_is_not_sent_again_for_a_lost_session() {
    let server = forgetful(|seen| {
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
        let error = error(&seen.id().to_string(), -32001, "Session not found");
        let body = format!("data: {progress}\n\ndata: {error}\n\n");
        events(&body, body.len())
    })
    .await;
    let peer = dial(&server).await;
    let refused = call(&peer).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused(why) if why.starts_with("Session not found")),
        "{refused:?}"
    );
    assert_eq!(server.count("tools/call"), 1);
    // The next call asks whether the server knows the session.
    let _outcome = call(&peer).await;
    assert_eq!(server.count("ping"), 1);
}

#[tokio::test]
async fn tool_error_about_a_session_is_passed_on_and_the_next_call_asks_for_the_session() {
    for is_lost in [true, false] {
        let calls = AtomicUsize::new(0);
        let server = forgetful(move |seen| {
            let own = seen.id().to_string();
            if seen.is("ping") && is_lost {
                return json(200, &error(&own, -32603, "session expired"));
            }
            if seen.is("ping") || calls.fetch_add(1, Ordering::Relaxed) > 0 {
                return seen.result(HELLO);
            }
            json(200, &error(&own, -32603, "Session expired"))
        })
        .await;
        let peer = dial(&server).await;
        let refused = call(&peer).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(why) if why.starts_with("Session expired")),
            "{refused:?}"
        );
        assert_eq!(server.count("tools/call"), 1, "the tool may have run");
        assert_eq!(call(&peer).await.unwrap(), text("hello"));
        let sessions = if is_lost { 2 } else { 1 };
        assert_eq!(server.count("initialize"), sessions, "{is_lost}");
        assert_eq!((server.count("ping"), server.count("tools/call")), (1, 2));
    }
}

#[tokio::test]
async fn doubt_about_a_session_outlives_a_caller_that_goes_away_while_it_asks() {
    let (calls, pings) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = forgetful(move |seen| {
        let own = seen.id().to_string();
        if seen.is("ping") {
            // The first one gets no answer.
            return match pings.fetch_add(1, Ordering::Relaxed) {
                0 => Vec::new(),
                _ => json(200, &error(&own, -32603, "session expired")),
            };
        }
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => json(200, &error(&own, -32603, "Session expired")),
            _ => seen.result(HELLO),
        }
    })
    .await;
    let peer = dial(&server).await;
    call(&peer).await.unwrap_err();
    let asking = async {
        while server.count("ping") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        outcome = call(&peer) => panic!("{outcome:?}"),
        () = asking => {}
    }
    assert_eq!(call(&peer).await.unwrap(), text("hello"));
    assert_eq!((server.count("ping"), server.count("initialize")), (2, 2));
}

/// Permits calls until it is told otherwise.
#[derive(Debug, Default)]
struct Revocable(AtomicBool);

impl PermissionCheck for Revocable {
    fn now(&self, _call: &CallRequest) -> Permission {
        if self.0.load(Ordering::Relaxed) { Permission::Ask } else { Permission::Given }
    }
}

#[tokio::test]
async fn call_whose_permission_has_ended_is_not_sent_in_a_new_session() {
    let check = Arc::new(Revocable::default());
    let revoked = Arc::clone(&check);
    let server = forgetful(move |_| {
        revoked.0.store(true, Ordering::Relaxed);
        response(404, &[], "")
    })
    .await;
    let peer = dial(&server).await;
    let order = order("{}");
    let progress = Progress::new(None, None, check, Arc::clone(&order.request));
    let outcome = peer.call(ToolCall { progress, ..order });
    let outcome = timeout(PATIENCE, outcome).await.expect("in time");
    assert!(matches!(outcome, Err(CallError::NotSent(_) | CallError::NoSession(_))), "{outcome:?}");
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn read_whose_permission_has_ended_is_not_sent_in_a_new_session() {
    for is_revoked in [false, true] {
        let revoked = Arc::new(AtomicBool::new(false));
        let at_server = Arc::clone(&revoked);
        let server = forgetful(move |_| {
            at_server.store(is_revoked, Ordering::Relaxed);
            response(404, &[], "")
        })
        .await;
        let peer = dial(&server).await;
        let permission: ReadPermission = Arc::new(move || match revoked.load(Ordering::Relaxed) {
            true => Err(CallRefusal::Backend),
            false => Ok(()),
        });
        let outcome = peer.ask("resources/read", serde_json::json!({"uri": "x://y"}), permission);
        let outcome = timeout(PATIENCE, outcome).await.expect("in time");
        assert_eq!(outcome.is_err(), is_revoked, "{outcome:?}");
        assert_eq!(server.count("resources/read"), if is_revoked { 1 } else { 2 });
    }
}
