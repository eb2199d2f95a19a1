//! The URL of a request whose path and query the bridge must not rewrite.
//!
//! `Url` follows the WHATWG's rules for browsers: it encodes an apostrophe in a query, and turns a
//! backslash into a slash. Both would break a signature of the app, or lead MANTYX to another
//! resource.
//!
//! Must not: send anything.

use serde_json::Value;
use url::Url;

/// `target`, a path with its query, below `base`: byte for byte as HTTP sends it.
///
/// `None` if it would not lead there: it has dots for segments, a fragment, or bytes that HTTP
/// forbids.
pub(super) fn below(base: &Url, target: &str) -> Option<Url> {
    if !target.starts_with('/') || target.contains('#') {
        return None;
    }
    let whole = format!("{}{target}", base.as_str().trim_end_matches('/'));
    let url = Url::parse(&whole).ok()?;
    if url.as_str() == whole {
        return Some(url);
    }
    // The HTTP client parses the URL as a `Uri`, which keeps every byte that it accepts.
    let path = whole.parse::<http::Uri>().ok()?.path().to_owned();
    if path.to_ascii_lowercase().split(['/', '\\']).any(is_dots) {
        return None;
    }
    verbatim(base, whole)
}

/// Whether a segment in lower case means the directory itself or the one above. With such a
/// segment, the path could leave the one for which the bridge has checked the app's rights.
fn is_dots(segment: &str) -> bool {
    matches!(segment.replace("%2e", ".").as_str(), "." | "..")
}

/// A URL whose text is `whole`, which begins with the origin of `base`.
///
/// reqwest accepts only a `Url`, and none of the usual constructors keeps such a text.
/// Deserializing the parts of a serialized `Url` does.
fn verbatim(base: &Url, whole: String) -> Option<Url> {
    const TEXT: usize = 0;
    const QUERY: usize = 8;
    const FRAGMENT: usize = 9;
    let mut parts = base.serialize_internal(serde_json::value::Serializer).ok()?;
    let query = whole.find('?');
    for (at, value) in [(TEXT, Value::from(whole)), (QUERY, query.into()), (FRAGMENT, Value::Null)]
    {
        *parts.get_mut(at)? = value;
    }
    Url::deserialize_internal(parts).ok()
}

#[cfg(test)]
mod tests {
    //! What goes out as it came, and what does not go out.

    use super::*;

    #[test]
    fn targets_go_out_as_they_came() {
        for base in ["http://127.0.0.1:8080", "https://app.mantyx.io/", "https://h/below/it/"] {
            let base = Url::parse(base).unwrap();
            let own = base.as_str().trim_end_matches('/');
            for target in [
                "/api/x",
                "/api/x?metadata=name:O'Brien",
                "/api//x?a='&b=\"",
                "/api/{x}/a|b^c/\"d\"?q={|}^`\\'",
                "/api/a\\b?c\\d",
                "/api/%7Ex/%5f?%27='",
                "/api/\u{e4}?\u{e4}='",
                "/api/x?",
                "/api/x?a?b",
            ] {
                let Ok(uri) = format!("{own}{target}").parse::<http::Uri>() else {
                    // Nothing that HTTP forbids comes here.
                    assert!(target.contains("b=\""), "{target}");
                    continue;
                };
                let url = below(&base, target).unwrap();
                assert_eq!(url.as_str(), format!("{own}{target}"));
                assert_eq!(url.as_str().parse::<http::Uri>().unwrap(), uri);
                assert_eq!((url.host_str(), url.port()), (base.host_str(), base.port()));
                assert_eq!(url.query(), target.split_once('?').map(|(_, query)| query));
            }
        }
    }

    #[test]
    fn path_that_leads_elsewhere_does_not_go_out() {
        let base = Url::parse("http://127.0.0.1:8080").unwrap();
        for target in [
            "/api/../x",
            "/api/./x?a='",
            "/api/%2E%2e/x?a='",
            "/api/a\\..\\b",
            "/api/x#y",
            "/api/x y",
            "/api/x\n",
            "@evil/api",
        ] {
            assert_eq!(below(&base, target), None, "{target}");
        }
    }
}
