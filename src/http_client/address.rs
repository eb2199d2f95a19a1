//! The addresses of peers: whether they are of one origin, and how to show them.
//!
//! Must not: resolve a name.

use url::Url;

/// Whether `url` has a user or a password in it. The client would send them as a header that the
/// operator did not configure.
pub fn names_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether the credentials for the server at `base` may be sent to `url`: it has the same origin,
/// and no user or password of its own.
pub fn is_own(base: &Url, url: &Url) -> bool {
    url.origin() == base.origin() && !names_user(url)
}

/// `url` without the parts that may be secret: the user, the password and the query. Of one without
/// a host (`data:…`) only the scheme is shown: the rest can be any sentence of a stranger.
pub fn shown(url: &Url) -> String {
    if url.cannot_be_a_base() {
        return format!("{}:…", url.scheme());
    }
    let path = url.path();
    let query = if url.query().is_some() { "?…" } else { "" };
    format!("{}{path}{query}", url.origin().ascii_serialization())
}
