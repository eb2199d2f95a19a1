//! What a redirect that is not followed says of the configured `url`.
//!
//! Must not: show more of an address than its origin and the end of its path, as the rest may be a
//! secret.

use http::StatusCode;
use url::Url;

/// A sentence, and what to do about it.
pub(in crate::backend) type Redirected = (String, &'static str);

/// Why the redirect from `from` to `to` is not followed, and what to write as `url`.
pub(in crate::backend) fn redirected(from: &Url, to: &Url, status: StatusCode) -> Redirected {
    let origin = to.origin().ascii_serialization();
    let same_host = from.host_str() == to.host_str();
    let end = to.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let is_slash = from.path() != to.path()
        && from.path().trim_end_matches('/') == to.path().trim_end_matches('/');
    if same_host && from.scheme() == "http" && to.scheme() == "https" {
        let why = format!("the server redirects to {origin} (HTTP {status})");
        return (why, "write https:// in place of http:// in `url`");
    }
    if same_host && is_slash {
        return match to.path().ends_with('/') {
            true => (
                format!("the server redirects to `…/{end}/` (HTTP {status})"),
                "write `url` with a slash at its end",
            ),
            false => (
                format!("the server redirects to `…/{end}` (HTTP {status})"),
                "write `url` without the slash at its end",
            ),
        };
    }
    let why = format!("the server redirects to {origin} (HTTP {status}), which is not followed");
    (why, "see whether that address is right, and write it as `url`")
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
                cure: "with a slash",
            },
            Case {
                from: "http://a.test/mcp/",
                to: "http://a.test/mcp",
                sentence: "to `…/mcp` (HTTP 301",
                cure: "without the slash",
            },
            Case {
                from: "http://a.test/secret/mcp",
                to: "https://a.test/secret/mcp",
                sentence: "to https://a.test (HTTP 301",
                cure: "https://",
            },
            // A proxy in front of the server often does both at once.
            Case {
                from: "http://a.test/secret/mcp",
                to: "https://a.test/secret/mcp/",
                sentence: "to https://a.test (HTTP 301",
                cure: "https://",
            },
            Case {
                from: "https://a.test/mcp",
                to: "https://b.test/secret",
                sentence: "to https://b.test (HTTP 301",
                cure: "write it",
            },
        ];
        for Case { from, to, sentence, cure } in cases {
            let [from, to] = [from, to].map(|url| Url::parse(url).unwrap());
            let (why, what_to_do) = redirected(&from, &to, StatusCode::MOVED_PERMANENTLY);
            assert!(why.contains(sentence) && !why.contains("secret"), "{why}");
            assert!(what_to_do.contains(cure), "{from}: {what_to_do}");
        }
    }
}
