//! The answers of the official SDKs, and of what stands before agents.

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::*;

fn headers(media_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))])
}

fn json_rpc(status: u16, body: &str) -> Verdict {
    of_json_rpc(StatusCode::from_u16(status).unwrap(), &headers("application/json"), body)
}

fn http_json(status: u16, body: &str) -> Verdict {
    of_http_json(StatusCode::from_u16(status).unwrap(), &headers("application/json"), body)
}

#[test]
fn official_sdks_without_the_task_answer_well_over_json_rpc() {
    for (status, body) in [
        // a2a-sdk 0.2.16 and 0.3.26.
        (200, r#"{"error":{"code":-32001,"message":"Task not found"},"id":"1","jsonrpc":"2.0"}"#),
        // a2a-sdk 1.3.0 for 0.3.
        (
            200,
            r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"data":null,"message":"Task not found"}}"#,
        ),
        // a2a-js 0.3.13.
        (
            200,
            r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"Task not found: nope"}}"#,
        ),
        // Whatever the status is.
        (500, r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32000,"message":"busy"}}"#),
        (404, r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"message":"no"}}"#),
        (200, r#"{"jsonrpc":"2.0","id":"1","result":{"id":"nope"}}"#),
    ] {
        assert_eq!(json_rpc(status, body), Verdict::Answers, "{body}");
    }
}

#[test]
fn official_sdks_without_the_task_answer_well_over_http_json() {
    for (status, body) in [
        // a2a-sdk 0.3.26 and a2a-js 0.3.13.
        (404, r#"{"message":"Task not found"}"#),
        (500, r#"{"code":-32603,"message":"Task not found: nope"}"#),
        // a2a-sdk 1.3.0 and a2a-js 1.3.0.
        (
            404,
            r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND"}]}}"#,
        ),
        (400, r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"no"}}"#),
        (200, r#"{"id":"nope"}"#),
    ] {
        assert_eq!(http_json(status, body), Verdict::Answers, "{body}");
    }
}

#[test]
fn agent_that_does_not_know_the_question_is_unclear() {
    for code in ["-32601", "-32600", "-32602"] {
        let body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"no"}}}}"#);
        assert!(matches!(json_rpc(200, &body), Verdict::Unclear(_)), "{code}");
    }
    let framework = r#"{"detail":"Invalid A2A request: params.message is missing"}"#;
    assert_eq!(json_rpc(400, framework), Verdict::Unclear(NOT_TAKEN));
    let unimplemented = r#"{"error":{"code":501,"status":"UNIMPLEMENTED","message":"no"}}"#;
    assert_eq!(http_json(501, unimplemented), Verdict::Unclear(NO_TASKS));
}

#[test]
fn another_version_and_a_required_extension_are_told_with_the_agents_words() {
    let error = |code: i32| {
        json_rpc(
            200,
            &format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"only 1.0"}}}}"#),
        )
    };
    let words = "only 1.0".to_owned();
    assert_eq!(error(-32009), Verdict::Fails(Trouble::Version(Some(words.clone()))));
    assert_eq!(error(-32008), Verdict::Fails(Trouble::Extension(words.clone())));
    assert_eq!(error(401), Verdict::Fails(Trouble::CredentialCode(words)));
    let reason = r#"{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"only 1.0","details":[{"reason":"VERSION_NOT_SUPPORTED"}]}}"#;
    assert!(matches!(http_json(400, reason), Verdict::Fails(Trouble::Version(Some(_)))));
}

#[test]
fn response_that_is_no_a2a_is_told_by_its_kind() {
    let page =
        of_json_rpc(StatusCode::OK, &headers("text/html; charset=utf-8"), "<html>log in</html>");
    let Verdict::Fails(Trouble::Other(what)) = page else { panic!("{page:?}") };
    assert!(what.contains("web page"), "{what}");
    for (status, body) in [
        (404, r#"{"detail":"Not Found"}"#),
        (404, "Not Found"),
        (404, r#"{"error":{"code":404,"message":"Not Found"}}"#),
        (405, r#"{"detail":"Method Not Allowed"}"#),
    ] {
        for verdict in [json_rpc(status, body), http_json(status, body)] {
            assert!(matches!(verdict, Verdict::Fails(Trouble::NoPath(_))), "{body}: {verdict:?}");
        }
    }
    for verdict in [json_rpc(503, "away"), http_json(502, "<html>")] {
        assert!(matches!(verdict, Verdict::Fails(Trouble::Gone(_))), "{verdict:?}");
    }
    for body in ["{}", "[]", "", r#"{"error":"no"}"#, r#"{"message":"Hello"}"#] {
        assert!(matches!(json_rpc(200, body), Verdict::Fails(Trouble::Other(_))), "{body}");
    }
}

#[test]
fn grpc_tells_a_missing_task_from_a_missing_service() {
    let refused = |code: Option<i64>, status: u16, text: &str| {
        of_grpc(Err(A2aFailure::Refused {
            code,
            status: StatusCode::from_u16(status).unwrap(),
            text: text.to_owned(),
            pause: None,
        }))
    };
    assert_eq!(refused(Some(-32001), 404, "gRPC status NOT_FOUND"), Verdict::Answers);
    let method = refused(Some(-32601), 501, "gRPC status UNIMPLEMENTED: Method not implemented!");
    assert_eq!(method, Verdict::Unclear(NO_TASKS));
    let service = refused(Some(-32601), 501, "gRPC status UNIMPLEMENTED: Method not found!");
    assert!(matches!(service, Verdict::Fails(Trouble::NoPath(_))), "{service:?}");
    let credential = refused(None, 401, "gRPC status UNAUTHENTICATED");
    assert!(matches!(credential, Verdict::Fails(Trouble::CredentialCode(_))), "{credential:?}");
    let away = of_grpc(Err(A2aFailure::lost("gRPC status UNAVAILABLE")));
    assert!(matches!(away, Verdict::Fails(Trouble::Gone(_))), "{away:?}");
}
