//! What an app gets in place of a redirect from MANTYX.
//!
//! Clients follow a redirect with the headers that they have sent, so one that leads elsewhere
//! would bring an app's token for the bridge there. MANTYX's protocol has no redirects; a proxy
//! before MANTYX may add some, such as one that adds a slash.
//!
//! Must not: follow a redirect, or show an app where one leads.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tracing::warn;
use url::Url;

use super::path::NormalizedPath;
use super::{Body, Code, response};

/// The redirects of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The answer leads nowhere else.
    None,
    /// Within MANTYX: the path and query of the same place, below the bridge's own address.
    Within(HeaderValue),
    Elsewhere,
}

/// Where an answer of `status` with `headers` leads; `request_url` is the URL of its request, below
/// `base`.
pub(super) fn redirect(
    base: &Url,
    request_url: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Redirect {
    let mut locations = headers.get_all(header::LOCATION).iter();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return Redirect::None;
    }
    let Some(location) = locations.next() else { return Redirect::None };
    let within = location.to_str().ok().and_then(|location| {
        let target = request_url.join(location).ok()?;
        below_bridge(base, &target)
    });
    match within {
        // Of two, each client may choose another.
        Some(path) if locations.next().is_none() => Redirect::Within(path),
        _ => Redirect::Elsewhere,
    }
}

/// `target` as a path of the bridge; `None` if it is not below `base`.
fn below_bridge(base: &Url, target: &Url) -> Option<HeaderValue> {
    if target.origin() != base.origin()
        || !target.username().is_empty()
        || target.password().is_some()
    {
        return None;
    }
    let path = target.path().strip_prefix(base.path().trim_end_matches('/'))?;
    // The bridge's own routes are not MANTYX's: a client that repeats its request there, with its
    // token and body, would call a tool or decide on a call. `//host` would be another server's
    // address.
    if !path.starts_with('/')
        || path.starts_with("//")
        || !NormalizedPath::new(path).is_proxied(path)
    {
        return None;
    }
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::try_from(format!("{path}{query}")).ok()
}

/// The answer in place of a redirect that leads elsewhere.
pub(super) fn refused(status: StatusCode) -> Response<Body> {
    warn!(
        status = status.as_u16(),
        "MANTYX's answer is a redirect to another address, which no app gets; see whether \
         upstream.base_url is MANTYX's own address"
    );
    let message = format!(
        "MANTYX's answer was a redirect to another address ({}). The bridge passes on none, since \
         your client would show your token for the bridge there. The operator has to see whether \
         `upstream.base_url` in bridge.yaml is MANTYX's own address.",
        status.as_u16()
    );
    response::error(Code::UpstreamBroken, &message)
}

#[cfg(test)]
mod tests {
    //! Which redirects lead elsewhere.

    use super::*;

    fn led(base: &str, location: &str) -> Redirect {
        let base = Url::parse(base).unwrap();
        let asked = base.join("api/v1/workspaces/acme/models").unwrap();
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        redirect(&base, &asked, StatusCode::TEMPORARY_REDIRECT, &headers)
    }

    fn within(path: &str) -> Redirect {
        Redirect::Within(path.parse().unwrap())
    }

    #[test]
    fn redirect_within_mantyx_leads_to_the_bridge() {
        let base = "https://app.mantyx.io/";
        assert_eq!(led(base, "https://app.mantyx.io/api/x?y=1#z"), within("/api/x?y=1"));
        assert_eq!(
            led(base, "/api/v1/workspaces/acme/models/"),
            within("/api/v1/workspaces/acme/models/")
        );
        assert_eq!(led(base, "runs"), within("/api/v1/workspaces/acme/runs"));
        assert_eq!(led("https://h/below/", "https://h:443/below/api/x"), within("/api/x"));
    }

    #[test]
    fn redirect_elsewhere_is_recognized() {
        for location in [
            "http://127.0.0.1:9/x",
            "http://app.mantyx.io/api/x",
            "https://app.mantyx.io:8443/api/x",
            "https://u:p@app.mantyx.io/api/x",
            "https://app.mantyx.io.evil.test/api/x",
            "//evil.test/api/x",
            r"\\evil.test/api/x",
            r"/\evil.test/api/x",
            "/.//evil.test/x",
            "/v1/tool-calls",
            "/mcp",
            "/api/../v1/tool-calls",
            "https://app.mantyx.io//evil.test/x",
            "javascript:alert(1)",
            "https://[",
        ] {
            assert_eq!(led("https://app.mantyx.io/", location), Redirect::Elsewhere, "{location}");
        }
        for location in [
            "https://h/x",
            "https://h/belower/x",
            "/x",
            "https://h/below//evil/x",
            "https://h/below/v1/trust",
        ] {
            assert_eq!(led("https://h/below/", location), Redirect::Elsewhere, "{location}");
        }
    }

    #[test]
    fn several_locations_lead_elsewhere() {
        let base = Url::parse("https://h/").unwrap();
        let mut headers = HeaderMap::new();
        headers.append(header::LOCATION, "/a".parse().unwrap());
        headers.append(header::LOCATION, "https://evil.test/".parse().unwrap());
        let led = redirect(&base, &base, StatusCode::FOUND, &headers);
        assert_eq!(led, Redirect::Elsewhere);
    }

    #[test]
    fn other_answers_are_no_redirects() {
        let base = Url::parse("https://h/").unwrap();
        let headers = HeaderMap::from_iter([(header::LOCATION, "/a".parse().unwrap())]);
        for status in [StatusCode::CREATED, StatusCode::NOT_MODIFIED] {
            assert_eq!(redirect(&base, &base, status, &headers), Redirect::None);
        }
        assert_eq!(redirect(&base, &base, StatusCode::FOUND, &HeaderMap::new()), Redirect::None);
    }
}
