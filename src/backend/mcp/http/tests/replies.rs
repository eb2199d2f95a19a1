//! Replies that are not as the specification has them.

use super::*;

#[tokio::test]
async fn error_without_the_id_of_its_request_is_the_calls_error_in_its_own_words() {
    let errors = [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"boom"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"boom"}}"#,
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32603,"message":"boom"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"boom"}}"#,
        r#"{"id":[1],"error":{"code":-32603,"message":"boom"}}"#,
    ];
    for error in errors {
        for is_stream in [false, true] {
            let server = server(move |seen| {
                usual(seen, "s").unwrap_or_else(|| {
                    let event = format!("data: {error}\n\n");
                    if is_stream { events(&event, event.len()) } else { json(200, error) }
                })
            })
            .await;
            let peer = dial(&server).await;
            let refused = call(&peer).await.unwrap_err();
            let expected = CallError::Refused("boom (JSON-RPC error -32603)".to_owned());
            assert_eq!(refused, expected, "{error} {is_stream}");
            let listed = error_chain(&peer.resolve().await.unwrap_err());
            assert!(listed.contains("boom"), "{listed}");
        }
    }
}

#[tokio::test]
async fn result_without_an_id_is_the_calls_and_one_with_anothers_is_not() {
    for (id, is_taken) in [("", true), (r#""id":null,"#, true), (r#""id":99,"#, false)] {
        let server = server(move |seen| {
            usual(seen, "s").unwrap_or_else(|| {
                json(200, &format!(r#"{{"jsonrpc":"2.0",{id}"result":{HELLO}}}"#))
            })
        })
        .await;
        assert_eq!(call(&dial(&server).await).await.is_ok(), is_taken, "{id}");
    }
}

#[tokio::test]
async fn reply_counts_when_its_json_is_whole_though_its_body_has_no_end() {
    let server = server(|seen| {
        usual(seen, "s").unwrap_or_else(|| {
            let id = seen.id();
            let reply = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{HELLO}}}"#);
            endless("application/json", &reply)
        })
    })
    .await;
    let peer = dial(&server).await;
    for _ in 0..2 {
        assert_eq!(call(&peer).await.unwrap(), text("hello"));
    }
}

#[tokio::test]
async fn stream_in_answer_to_initialized_blocks_nothing_and_is_read() {
    let change = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
    for (media_type, body, gets) in [
        ("text/event-stream", change, 405),
        ("text/event-stream", change, 200),
        ("text/event-stream", "", 405),
        ("text/plain", "ok", 405),
    ] {
        let server = server(move |seen| {
            if seen.line.starts_with("GET") && gets == 200 {
                return endless("text/event-stream", ": hello\n\n");
            }
            if seen.is("notifications/initialized") {
                return endless(media_type, body);
            }
            usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
        })
        .await;
        let peer = dial(&server).await;
        assert_eq!(call(&peer).await.unwrap(), text("hello"), "{media_type} {body}");
        if body == change {
            timeout(PATIENCE, peer.changed()).await.expect("the stream is read");
        }
        assert_eq!(server.count("initialize"), 1);
    }
}

#[tokio::test]
async fn refusal_without_an_end_is_a_refusal() {
    let server = server(|seen| {
        if seen.is("server/discover") {
            return b"HTTP/1.1 404 endless\r\n\r\nwhat?".to_vec();
        }
        usual(seen, "s").unwrap_or_else(|| seen.result(HELLO))
    })
    .await;
    assert_eq!(call(&dial(&server).await).await.unwrap(), text("hello"));
}

#[tokio::test]
async fn endpoint_event_in_answer_to_a_post_names_the_older_transport() {
    let server = server(|_| {
        endless("text/event-stream", "event: endpoint\ndata: /messages?sessionId=1\n\n")
    })
    .await;
    let why = try_dial(&server.url).await.unwrap_err();
    assert!(why.contains("HTTP+SSE") && why.contains("transport: sse"), "{why}");
}

#[tokio::test]
async fn list_that_a_server_need_not_have_may_be_refused() {
    let server = server(|seen| {
        if seen.is("initialize") {
            return seen.result(
                r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"s","version":"1"}}"#,
            );
        }
        if seen.is("resources/list") {
            return seen.result(r#"{"resources":[{"uri":"a:b","name":"b"}]}"#);
        }
        usual(seen, "s").unwrap_or_else(|| {
            let error = r#""error":{"code":-32601,"message":"no"}"#;
            json(200, &format!(r#"{{"jsonrpc":"2.0","id":{},{error}}}"#, seen.id()))
        })
    })
    .await;
    let peer = dial(&server).await;
    assert_eq!(peer.resolve().await.unwrap().tool_count(), 0);
    peer.features().await.expect("its resources are there, and it has no templates");
}
