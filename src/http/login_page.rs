//! What a browser sees while a person logs in at a backend's issuer: the way there, and a page at
//! the end. It is a page and no redirect, as a browser that was sent on would still count as one
//! that comes from the issuer.
//!
//! Must not: show a code, a state or what an issuer writes; or load anything.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::http::{Body, response};
use crate::model::catalog::hex;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;margin:4rem auto;max-width:34rem;\
                     padding:0 1rem;color-scheme:light dark}h1{font-size:1.4rem}";

/// The beginning of the names of cookies. Each login has a cookie to itself, so that two in one
/// browser do not take each other's place.
const COOKIE: &str = "mantyx_bridge_login_";
/// The most cookies that are looked at.
const MAX_COOKIES: usize = 64;
/// How long a browser keeps one, in seconds: as long as a login may take.
const COOKIE_LIFE: u64 = 600;

/// The Content-Security-Policy of these pages.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'none'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("letters, digits and marks")
});

/// Sends the browser to the issuer. Its cookie comes back with the return alone: `Lax`, as a
/// `Strict` one would not come from another site.
pub fn to_issuer(address: &Url, cookie: &SecretString, is_secure: bool) -> Response<Body> {
    let mut response = response::with_status(Response::new(response::full("")), StatusCode::FOUND);
    let value = cookie.expose_secret();
    let name = hex(&Sha256::digest(value)).get(..8).unwrap_or_default().to_owned();
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}{name}={value}; Path=/oauth; Max-Age={COOKIE_LIFE}; HttpOnly; SameSite=Lax{secure}"
    );
    let headers = response.headers_mut();
    let text = |text: &str| HeaderValue::try_from(text).expect("letters, digits and marks");
    headers.insert(header::LOCATION, text(address.as_str()));
    headers.insert(header::SET_COOKIE, text(&cookie));
    headers.insert(header::CACHE_CONTROL, text("no-store"));
    headers.insert(header::REFERRER_POLICY, text("no-referrer"));
    response
}

/// The values of the cookies of logins in a request.
pub fn cookies(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let own = pairs.filter(|(name, _)| name.starts_with(COOKIE));
    own.map(|(_, value)| value.to_owned()).take(MAX_COOKIES).collect()
}

/// The login is done; with the reason if it could not be written.
pub fn done(backend: &str, unwritten: Option<&str>) -> Response<Body> {
    let text = match unwritten {
        None => "The bridge keeps the login, and renews it. You can close this window.".to_owned(),
        Some(why) => format!(
            "The bridge uses the login, and cannot write it to its disk: {why}. It tries again. If \
             it is restarted before that, log in again."
        ),
    };
    page(StatusCode::OK, &format!("Logged in: {backend}"), &text)
}

/// The login is not open: it took too long, was finished before, or is another browser's.
pub fn ended() -> Response<Body> {
    let text =
        "This login has ended; begin again with mantyx-bridge login, or on the bridge's page.";
    page(StatusCode::BAD_REQUEST, "Not logged in", text)
}

/// The login came to nothing.
pub fn failed(why: &str) -> Response<Body> {
    page(StatusCode::BAD_REQUEST, "Not logged in", why)
}

/// A look ahead of a browser, which changes nothing.
pub fn not_opened() -> Response<Body> {
    page(StatusCode::OK, "A login begins here", "Open this address in a browser.")
}

fn page(status: StatusCode, title: &str, text: &str) -> Response<Body> {
    let (title, text) = (escaped(title), escaped(text));
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}</h1><p>{text}</p><p><a href=\"/\">The bridge's page</a></p></html>"
    );
    let mut response =
        response::with_status(response::text("text/html; charset=utf-8", html), status);
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(header::CACHE_CONTROL, fixed("no-store"));
    // The address of this page has the code.
    headers.insert(header::REFERRER_POLICY, fixed("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), fixed("same-origin"));
    response
}

/// `text` as HTML text.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    //! What browsers get.

    use super::*;

    #[tokio::test]
    async fn page_says_that_a_login_is_kept_only_if_it_is_on_disk() {
        for (unwritten, is_kept) in [(None, true), (Some("no space left on device"), false)] {
            let body = done("notion", unwritten).into_body();
            let bytes = response::read(body, 1 << 20).await.unwrap();
            let text = str::from_utf8(&bytes).unwrap();
            assert_eq!(text.contains("keeps the login"), is_kept, "{text}");
            assert!(is_kept || text.contains("no space left on device"), "{text}");
        }
    }

    #[tokio::test]
    async fn page_shows_text_and_no_markup() {
        let response = failed("<script>alert(1)</script> & \"more\"");
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        let bytes = response::read(response.into_body(), 1 << 20).await.unwrap();
        let text = str::from_utf8(&bytes).unwrap();
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script"), "{text}");
    }

    #[test]
    fn cookie_comes_back_and_others_are_left_out() {
        let address = Url::parse("https://as.test/authorize?x=1").unwrap();
        let response = to_issuer(&address, &"canary".to_owned().into(), true);
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
        assert!(cookie.ends_with("; Path=/oauth; Max-Age=600; HttpOnly; SameSite=Lax; Secure"));
        let pair = cookie.split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        let line = format!("mantyx_bridge_7717=other; {pair}; x=y");
        headers.insert(header::COOKIE, HeaderValue::try_from(line).unwrap());
        assert_eq!(cookies(&headers), ["canary"]);
    }
}
