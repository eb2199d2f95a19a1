//! Where a response redirects to.
//!
//! Must not: follow a redirect.

use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use url::Url;

/// The most redirects that are followed for one request.
pub(super) const MAX: usize = 3;

/// Where the response to a request to `url` redirects to; `None` if it is no redirect.
pub(super) fn target(status: StatusCode, url: &Url, headers: &HeaderMap) -> Option<Url> {
    if !status.is_redirection() {
        return None;
    }
    let location = headers.get(LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}

/// Whether the redirected request has the same method and body. For other statuses, clients make a
/// GET of it.
pub(super) fn keeps_request(status: StatusCode) -> bool {
    matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
}
