//! The status page for people: one document that draws what the bridge's API says, and the form to
//! sign in.
//!
//! Style and script stand in the document and nothing else is loaded, so that its policy can forbid
//! everything but these two by their hashes.
//!
//! Must not: show anything that the API does not.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::http::response::{self, Body};

const STYLE: &str = include_str!("status_page/page.css");
const SCRIPT: &str = include_str!("status_page/page.js");

/// What a browser may do in these documents.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    HeaderValue::try_from(policy).expect("letters, digits and marks")
});

/// The page itself. One who needed no session has none to end.
pub fn page(signed_in: bool) -> Response<Body> {
    let sign_out = if signed_in { "" } else { "hidden" };
    let page = include_str!("status_page/page.html").replace("{{sign_out}}", sign_out);
    document(StatusCode::OK, &page.replace("{{script}}", SCRIPT))
}

/// The form to sign in, and why the last try was refused.
pub fn sign_in(refused: Option<&'static str>) -> Response<Body> {
    let refused = refused.map(|why| format!("<p class=\"problem\" role=\"alert\">{why}</p>"));
    let form = include_str!("status_page/sign_in.html");
    document(StatusCode::UNAUTHORIZED, &form.replace("{{refused}}", &refused.unwrap_or_default()))
}

/// To the page, with this `Set-Cookie`, and with the session's key where no server is told of it:
/// the script takes it out of the address.
pub fn see_page(cookie: HeaderValue, key: Option<&str>) -> Response<Body> {
    let mut response = Response::new(response::full(""));
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = key.map_or_else(|| "/".to_owned(), |key| format!("/#key={key}"));
    let location = HeaderValue::try_from(location).expect("letters, digits and marks");
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

fn document(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(response::full(text.replace("{{style}}", STYLE)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, text("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, text("no-store"));
    headers.insert(header::REFERRER_POLICY, text("same-origin"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

#[cfg(test)]
mod tests {
    //! Nothing is left to be filled in.

    use super::*;

    #[tokio::test]
    async fn the_documents_are_whole() {
        for response in [page(true), page(false), sign_in(None), sign_in(Some("No."))] {
            let bytes = response::read(response.into_body(), 1 << 20).await.unwrap();
            let text = std::str::from_utf8(&bytes).unwrap();
            assert!(text.contains(STYLE) && !text.contains("{{"), "{text}");
        }
    }
}
