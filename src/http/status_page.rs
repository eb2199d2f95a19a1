//! The status page for people: one document that shows the bridge's API, and the sign-in form.
//!
//! Style and script stand in the document, and it loads nothing else. So its policy can allow these
//! two by their hashes, and forbid everything else.
//!
//! Must not: show anything that the API does not.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::http::{Body, response};

const STYLE: &str = include_str!("status_page/page.css");
/// Text of apps and backends reaches the page only by `textContent`, never as markup.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("status_page/script/elements.js"),
    include_str!("status_page/script/state.js"),
    include_str!("status_page/script/connection.js"),
    include_str!("status_page/script/forms.js"),
    include_str!("status_page/script/actions.js"),
    include_str!("status_page/script/overview.js"),
    include_str!("status_page/script/approvals.js"),
    include_str!("status_page/script/backends.js"),
    include_str!("status_page/script/tools.js"),
    include_str!("status_page/script/activity.js"),
    include_str!("status_page/script/trust.js"),
    include_str!("status_page/script/live.js"),
);

/// The script of the sign-in form.
const SIGN_IN_SCRIPT: &str = include_str!("status_page/sign_in.js");

/// The Content-Security-Policy of these documents.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {} {}; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT),
        hash(SIGN_IN_SCRIPT)
    );
    HeaderValue::try_from(policy).expect("letters, digits and marks")
});

/// The documents that were sent before. Each is written once, and all answers share its bytes:
/// anyone may ask for the form on thousands of streams, and read none of them.
static WRITTEN: LazyLock<Mutex<BTreeMap<Document, Bytes>>> = LazyLock::new(Mutex::default);

/// One of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Document {
    /// The page itself. The button to sign out is hidden without a session.
    Page { signed_in: bool },
    /// The sign-in form, with the reason why the last attempt failed.
    SignIn(Option<&'static str>),
}

impl Document {
    fn write(self) -> String {
        let text = match self {
            Self::Page { signed_in } => {
                let sign_out = if signed_in { "" } else { "hidden" };
                let page = include_str!("status_page/page.html").replace("{{sign_out}}", sign_out);
                page.replace("{{script}}", SCRIPT)
            }
            Self::SignIn(refused) => {
                let refused =
                    refused.map(|why| format!("<p class=\"problem\" role=\"alert\">{why}</p>"));
                let form = include_str!("status_page/sign_in.html");
                let form = form.replace("{{refused}}", &refused.unwrap_or_default());
                form.replace("{{script}}", SIGN_IN_SCRIPT)
            }
        };
        text.replace("{{style}}", STYLE)
    }

    fn bytes(self) -> Bytes {
        WRITTEN.lock().entry(self).or_insert_with(|| self.write().into()).clone()
    }
}

/// The page itself, with or without the button to sign out.
pub fn page(signed_in: bool) -> Response<Body> {
    document(Document::Page { signed_in })
}

/// The sign-in form, with the reason why the last attempt failed.
pub fn sign_in(refused: Option<&'static str>) -> Response<Body> {
    response::with_status(document(Document::SignIn(refused)), StatusCode::UNAUTHORIZED)
}

/// A redirect to the page, which sets this cookie. The session's key stands in the fragment, which
/// browsers send to no server; the script removes it from the address.
pub fn see_page(cookie: HeaderValue, key: Option<&str>) -> Response<Body> {
    let see_other = StatusCode::SEE_OTHER;
    let mut response = response::with_status(Response::new(response::full("")), see_other);
    let location = key.map_or_else(|| "/".to_owned(), |key| format!("/#key={key}"));
    let location = HeaderValue::try_from(location).expect("letters, digits and marks");
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

fn document(document: Document) -> Response<Body> {
    let mut response = response::text("text/html; charset=utf-8", document.bytes());
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
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

    #[test]
    fn answers_share_the_bytes_of_a_document() {
        let (first, second) = (Document::SignIn(None).bytes(), Document::SignIn(None).bytes());
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_ne!(first, Document::SignIn(Some("No.")).bytes());
    }
}
