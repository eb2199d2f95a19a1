//! What addresses of peers say about where they lead, and how they may be shown.
//!
//! Must not: resolve a name.

use url::{Host, Url};

/// Whether `url` leads to this machine by its own word.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
        Some(Host::Ipv6(address)) => {
            let mapped = address.to_ipv4_mapped();
            address.is_loopback()
                || address.is_unspecified()
                || mapped.is_some_and(|address| address.is_loopback() || address.is_unspecified())
        }
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        None => false,
    }
}

/// Whether `url` has a user or a password in it. They would become a header that nobody configured.
pub(super) fn names_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether `url` is one that what is configured for a server at `base` may go to: on its origin, and
/// for nobody else.
pub(super) fn is_own(base: &Url, url: &Url) -> bool {
    url.origin() == base.origin() && !names_user(url)
}

/// `url` without what may be a secret: the user, the password and the query.
pub(super) fn shown(url: &Url) -> String {
    let path = url.path();
    let query = if url.query().is_some() { "?…" } else { "" };
    format!("{}{path}{query}", url.origin().ascii_serialization())
}
