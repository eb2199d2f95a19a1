//! Answers that are no messages: what is told of them, and which of them are let pass.

use super::*;

/// The sentence and the cure for a server that answers each request with these bytes.
async fn told(answer: fn(&Seen) -> Vec<u8>) -> (String, String) {
    let server = server(answer).await;
    let error = timeout(PATIENCE, dialer_to(&server.url).dial()).await.expect("in time");
    let error = error.expect_err("no connection");
    (error_chain(&error), error.own_cure().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn refused_initialized_is_let_pass_and_remarked() {
    for status in [404, 405, 501] {
        let server = server(move |seen| match seen.is("notifications/initialized") {
            true => response(status, &[], "no"),
            false => usual(seen, "s").unwrap_or_else(|| seen.result(HELLO)),
        })
        .await;
        let dialer = dialer_to(&server.url);
        let peer = timeout(PATIENCE, dialer.dial()).await.expect("in time").expect("a connection");
        assert_eq!(call(&peer).await.unwrap(), text("hello"), "HTTP {status}");
        let remark = dialer.remark().expect("a remark");
        assert!(remark.message.contains(&format!("HTTP {status}")), "{remark:?}");
    }
}

#[tokio::test]
async fn redirects_over_a_slash_name_the_url_to_write() {
    let (why, cure) = told(|_| response(301, &[("location", "/mcp/")], "")).await;
    assert!(why.contains("`…/mcp/` (HTTP 301"), "{why}");
    assert!(cure.contains("with a slash at its end"), "{cure}");
}

#[tokio::test]
async fn web_page_is_told_as_what_it_is() {
    let page = |_: &Seen| response(200, &[("content-type", "text/html; charset=utf-8")], "<html>");
    let (why, cure) = told(page).await;
    assert!(why.contains("HTTP 200") && why.contains("web page"), "{why}");
    assert!(cure.contains("in a browser"), "{cure}");
}

#[tokio::test]
async fn gateway_without_its_server_is_told_from_a_wrong_path() {
    let (why, cure) = told(|_| response(502, &[], "")).await;
    assert!(why.contains("HTTP 502"), "{why}");
    assert!(cure.contains("behind this gateway"), "{cure}");
    let (why, cure) = told(|_| response(404, &[], "")).await;
    assert!(why.contains("HTTP 404"), "{why}");
    assert!(cure.contains("path of `url`"), "{cure}");
}

#[tokio::test]
async fn compressed_body_is_told_with_its_encoding() {
    for encoding in ["gzip", "br"] {
        let server = server(move |_: &Seen| {
            let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
            response(200, &headers, "\u{1f}\u{8b}")
        })
        .await;
        let error = timeout(PATIENCE, dialer_to(&server.url).dial()).await.expect("in time");
        let error = error.expect_err("no connection");
        assert!(error_chain(&error).contains(&format!("encoding `{encoding}`")), "{error:?}");
        let cure = error.own_cure().unwrap_or_default();
        assert!(cure.contains("Accept-Encoding: identity"), "{cure}");
    }
    let identity = server(|seen| {
        usual(seen, "s").unwrap_or_else(|| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{HELLO}}}"#, seen.id());
            let headers = [("content-type", "application/json"), ("content-encoding", "identity")];
            response(200, &headers, &body)
        })
    })
    .await;
    assert_eq!(call(&dial(&identity).await).await.unwrap(), text("hello"));
}

#[tokio::test]
async fn answer_to_initialize_without_a_revision_is_told_as_such() {
    for revision in ["20250618", "null", "{}"] {
        let server = server(move |seen| match seen.is("initialize") {
            true => seen.result(&format!(
                r#"{{"protocolVersion":{revision},"capabilities":{{}},"serverInfo":{{"name":"x","version":"1"}}}}"#
            )),
            false => {
                let error = r#"{"code":-32601,"message":"Method not found"}"#;
                let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, seen.id());
                response(200, &[("content-type", "application/json")], &body)
            }
        })
        .await;
        let error = timeout(PATIENCE, dialer_to(&server.url).dial()).await.expect("in time");
        let error = error.expect_err("no connection");
        let told = error_chain(&error);
        assert!(told.contains("no `protocolVersion` that is a text"), "{told}");
        assert!(!told.contains("-32601"), "{told}");
        assert!(error.own_cure().is_some_and(|cure| cure.contains("a text such as")), "{error:?}");
    }
}
