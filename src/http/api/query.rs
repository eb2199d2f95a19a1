//! The names in the query of a request. Pure.
//!
//! A name that no handler reads would change nothing, and `?Backends=fs` would give what all
//! backends have.
//!
//! Must not: look at a value.

use url::form_urlencoded;

use crate::config::error::did_you_mean;

/// The most characters of a name that an answer repeats.
const MAX_SHOWN: usize = 64;

/// Why the query is refused: it has a name that is none of `known`, or one of them twice.
pub(super) fn flaw(query: Option<&str>, known: &[&str]) -> Option<String> {
    let mut names = Vec::new();
    for (name, _) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if !known.contains(&&*name) {
            return Some(unknown(&name, known));
        }
        if names.contains(&name) {
            return Some(format!("The query has `{name}` twice; send it once."));
        }
        names.push(name);
    }
    None
}

fn unknown(name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(MAX_SHOWN).collect();
    let hint = match (did_you_mean(name, known.iter().copied()), known) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, []) => "this route takes none.".to_owned(),
        (None, known) => format!("this route takes `{}`.", known.join("`, `")),
    };
    format!("The query has `{shown}`, which the bridge does not know; {hint}")
}

#[cfg(test)]
mod tests {
    //! Which names pass, and what is said of others.

    use super::*;

    struct Case {
        query: Option<&'static str>,
        flaw: Option<&'static str>,
    }

    #[test]
    fn name_that_is_not_known_is_refused_with_the_closest() {
        let known = ["format", "backends", "app"];
        for Case { query, flaw: expected } in [
            Case { query: None, flaw: None },
            Case { query: Some(""), flaw: None },
            Case { query: Some("format=mcp&backends=a,b"), flaw: None },
            Case { query: Some("Backends=fs"), flaw: Some("`Backends`, which") },
            Case { query: Some("Backends=fs"), flaw: Some("did you mean `backends`?") },
            Case { query: Some("format=mcp&backend=fs"), flaw: Some("did you mean `backends`?") },
            Case { query: Some("%41pp=fs"), flaw: Some("did you mean `app`?") },
            Case { query: Some("x=1"), flaw: Some("takes `format`, `backends`, `app`.") },
            Case { query: Some("=1"), flaw: Some("``, which") },
            Case { query: Some("app=a&app=b"), flaw: Some("`app` twice") },
        ] {
            let found = flaw(query, &known);
            match expected {
                None => assert_eq!(found, None, "{query:?}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{found:?}");
                }
            }
        }
        assert!(flaw(Some("a=1"), &[]).is_some_and(|text| text.contains("takes none")));
        let long = flaw(Some(&"x".repeat(5_000)), &[]).unwrap();
        assert!(long.len() < 200, "{long}");
    }
}
