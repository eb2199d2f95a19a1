//! What a redirect that is not followed says of the configured `url`.
//!
//! Must not: show a part of the configured path but its end, or anything of a query: that may be a
//! secret.

use http::StatusCode;
use url::Url;

/// A sentence, and what to do about it.
pub(in crate::backend) type Redirected = (String, String);

/// Why the redirect from `from` to `to` is not followed, and what to write as `url`.
pub(in crate::backend) fn redirected(from: &Url, to: &Url, status: StatusCode) -> Redirected {
    let origin = origin(to);
    let same_host = from.host_str() == to.host_str();
    let to_https = from.scheme() == "http" && to.scheme() == "https";
    let only_slash = from.path() != to.path()
        && from.path().trim_end_matches('/') == to.path().trim_end_matches('/');
    let change = change(from, to, only_slash);
    if same_host && to_https {
        return (format!("the server redirects to {origin} (HTTP {status})"), change);
    }
    if same_host && only_slash {
        let end = to.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let slash = if to.path().ends_with('/') { "/" } else { "" };
        return (format!("the server redirects to `…/{end}{slash}` (HTTP {status})"), change);
    }
    let why = format!("the server redirects to {origin} (HTTP {status}), which is not followed");
    (why, format!("see whether that address is right; if so, {change}"))
}

/// What to change in the configured `from`, so that it is `to`: its origin, the slash at the end of
/// its path, or all of it.
fn change(from: &Url, to: &Url, only_slash: bool) -> String {
    // Behind a query, a slash would be part of a value.
    let slash = match (to.path().ends_with('/'), from.query().is_some()) {
        (true, false) => "with a slash at its end",
        (true, true) => "with a slash at the end of its path, before the `?`",
        (false, false) => "without the slash at its end",
        (false, true) => "without the slash at the end of its path, before the `?`",
    };
    let other_origin = from.origin() != to.origin();
    let origins = format!("write {} in place of {} in `url`", origin(to), origin(from));
    match (other_origin, only_slash) {
        (true, true) => format!("{origins}, {slash}"),
        (false, true) => format!("write `url` {slash}"),
        (true, false) if from.path() == to.path() => origins,
        _ => format!("write {} as `url`", safe_address(from, to)),
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The address `to` without its query, and without the parts of its path that are of `from`, too: a
/// key that is configured there must not be shown.
fn safe_address(from: &Url, to: &Url) -> String {
    let mut secret_parts: Vec<&str> =
        from.path().split('/').filter(|part| !part.is_empty()).collect();
    // The end of the path is the name of the endpoint.
    secret_parts.pop();
    let parts =
        to.path().split('/').map(|part| if secret_parts.contains(&part) { "…" } else { part });
    let path = parts.collect::<Vec<_>>().join("/");
    let query = if to.query().is_some() { "?…" } else { "" };
    let address = format!("{}{path}{query}", origin(to));
    if address.contains('…') {
        format!("{address} (with your own parts for each `…`)")
    } else {
        address
    }
}

#[cfg(test)]
mod tests {
    //! Redirects, and the `url` to write.

    use super::*;

    #[test]
    fn redirects_name_the_url_to_write() {
        struct Case {
            from: &'static str,
            to: &'static str,
            sentence: &'static str,
            cure: &'static str,
        }
        let cases = [
            Case {
                from: "http://a.test/secret/mcp",
                to: "http://a.test/secret/mcp/",
                sentence: "to `…/mcp/` (HTTP 301",
                cure: "write `url` with a slash at its end",
            },
            Case {
                from: "http://a.test/mcp/",
                to: "http://a.test/mcp",
                sentence: "to `…/mcp` (HTTP 301",
                cure: "write `url` without the slash at its end",
            },
            Case {
                from: "http://a.test/mcp?token=secret",
                to: "http://a.test/mcp/?token=secret",
                sentence: "to `…/mcp/` (HTTP 301",
                cure: "write `url` with a slash at the end of its path, before the `?`",
            },
            Case {
                from: "http://a.test/mcp/?token=secret",
                to: "http://a.test/mcp",
                sentence: "to `…/mcp` (HTTP 301",
                cure: "write `url` without the slash at the end of its path, before the `?`",
            },
            Case {
                from: "http://a.test/secret/mcp",
                to: "https://a.test/secret/mcp",
                sentence: "to https://a.test (HTTP 301",
                cure: "write https://a.test in place of http://a.test in `url`",
            },
            // A proxy in front of the server often does both at once.
            Case {
                from: "http://a.test:8080/secret/mcp",
                to: "https://a.test/secret/mcp/",
                sentence: "to https://a.test (HTTP 301",
                cure: "write https://a.test in place of http://a.test:8080 in `url`, with a slash at \
                       its end",
            },
            Case {
                from: "http://127.0.0.1:8080/mcp",
                to: "https://127.0.0.1/x",
                sentence: "to https://127.0.0.1 (HTTP 301",
                cure: "write https://127.0.0.1/x as `url`",
            },
            Case {
                from: "http://a.test/secret/mcp?token=secret",
                to: "https://a.test:8443/v2/secret/mcp?token=secret",
                sentence: "to https://a.test:8443 (HTTP 301",
                cure: "write https://a.test:8443/v2/…/mcp?… (with your own parts for each `…`) as \
                       `url`",
            },
            Case {
                from: "https://a.test/mcp",
                to: "https://u:secret@b.test/other",
                sentence: "to https://b.test (HTTP 301",
                cure: "if so, write https://b.test/other as `url`",
            },
        ];
        for Case { from, to, sentence, cure } in cases {
            let [from, to] = [from, to].map(|url| Url::parse(url).unwrap());
            let (why, what_to_do) = redirected(&from, &to, StatusCode::MOVED_PERMANENTLY);
            assert!(why.contains(sentence) && !why.contains("secret"), "{why}");
            assert!(what_to_do.ends_with(cure) && !what_to_do.contains("secret"), "{what_to_do}");
        }
    }
}
