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
    let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
    match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}{path}{query}"),
        None => format!("{scheme}://{host}{path}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://u:p@acme.example:8443/a?key=1#f", "https://acme.example:8443/a?…"),
            ("https://acme.example:443/", "https://acme.example/"),
            ("https://[::1]:8443/a", "https://[::1]:8443/a"),
            ("myapp://auth.acme/authorize", "myapp://auth.acme/authorize"),
            ("data:text/plain,hunter2", "data:…"),
        ] {
            assert_eq!(shown(&Url::parse(url).unwrap()), expected);
        }
    }
}
