//! What a peer says with a refusal (`WWW-Authenticate`; RFC 6750, 3 and RFC 9728, 5.1).
//!
//! Must not: trust it. Where it leads is decided by [`super::discovery`].

use http::header::WWW_AUTHENTICATE;
use url::Url;

/// The challenge that a peer sent with a 401 or a 403.
#[derive(Debug, Clone)]
pub struct Challenge {
    /// The URL of the request.
    pub url: Url,
    /// The address of the metadata that names the token issuer (RFC 9728).
    pub metadata: Option<String>,
    /// The scope that the token needs.
    pub scope: Option<String>,
    /// The code of the error, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
}

impl Challenge {
    /// The challenge of a server that has said nothing.
    pub fn silent(url: Url) -> Self {
        Self { url, metadata: None, scope: None, error: None }
    }

    pub fn read(response: &reqwest::Response) -> Self {
        let headers = response.headers().get_all(WWW_AUTHENTICATE);
        let values = headers.iter().filter_map(|value| value.to_str().ok());
        let mut challenge = Self::silent(response.url().clone());
        for (name, value) in values.flat_map(parameters) {
            let member = match name.as_str() {
                "resource_metadata" => &mut challenge.metadata,
                "scope" => &mut challenge.scope,
                "error" => &mut challenge.error,
                _ => continue,
            };
            // The first one counts.
            member.get_or_insert(value);
        }
        challenge
    }

    /// Whether the token is good, and may not do what was asked for.
    pub fn wants_more_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// The scopes that it names.
    pub fn scopes(&self) -> Vec<String> {
        let words = self.scope.iter().flat_map(|scope| scope.split_ascii_whitespace());
        words.map(str::to_owned).collect()
    }
}

/// The parameters of the challenges in one header, in their order: the name in lower case, and the
/// value (RFC 9110, 11.6.1). A quoted text is a value and nothing else, whatever stands in it.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',', '=']);
        if let Some(quoted) = rest.strip_prefix('"') {
            // A text that belongs to nothing.
            let Some((_, behind)) = quoted_text(quoted) else { return parameters };
            rest = behind;
            continue;
        }
        let end = rest.find([' ', '\t', ',', '=', '"']).unwrap_or(rest.len());
        let Some((word, behind)) = rest.split_at_checked(end).filter(|(word, _)| !word.is_empty())
        else {
            return parameters;
        };
        // A word without a value names the scheme of a challenge.
        let Some(value) = behind.trim_start_matches([' ', '\t']).strip_prefix('=') else {
            rest = behind;
            continue;
        };
        let value = value.trim_start_matches([' ', '\t']);
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => match quoted_text(quoted) {
                Some(text_and_rest) => text_and_rest,
                None => return parameters,
            },
            None => {
                // A URL without quotes is no token, and sent all the same.
                let end = value.find([' ', '\t', ',']).unwrap_or(value.len());
                let (value, behind) = value.split_at(end);
                (value.to_owned(), behind)
            }
        };
        parameters.push((word.to_ascii_lowercase(), value));
        rest = behind;
    }
}

/// The text up to the closing quote, without its escapes, and what follows; `None` if it is not
/// closed.
fn quoted_text(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, quoted.get(at + 1..)?)),
            '\\' => text.push(characters.next()?.1),
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! What is read in challenges.

    use super::*;

    fn parameter(header: &str, name: &str) -> Option<String> {
        let found = parameters(header).into_iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    #[test]
    fn parameters_of_challenges() {
        let header =
            r#"Bearer realm="scope=x", Scope = "a b",resource_metadata=https://rs/meta, error="x""#;
        assert_eq!(parameter(header, "scope").as_deref(), Some("a b"));
        assert_eq!(parameter(header, "resource_metadata").as_deref(), Some("https://rs/meta"));
        assert_eq!(parameter(header, "metadata"), None);
        assert_eq!(parameter("Bearer", "scope"), None);
        assert_eq!(parameter("Bearer scope=\"a", "scope"), None);
    }

    #[test]
    fn quoted_text_of_a_challenge_has_no_parameters() {
        for (header, scope) in [
            (r#"Bearer realm="a, scope=wrong b", scope="right""#, Some("right")),
            (r#"Bearer realm="a \", scope=wrong", scope=right"#, Some("right")),
            (r#"Bearer realm="a scope="wrong", error="x""#, None),
            (r#"Bearer error_description="needs scope=admin, more""#, None),
            (r#"Basic realm="scope=x", Bearer scope="a \"b\" c""#, Some("a \"b\" c")),
            (r#"Negotiate YII==, Bearer scope=a"#, Some("a")),
            (r#""scope=x" Bearer scope=a"#, Some("a")),
        ] {
            assert_eq!(parameter(header, "scope").as_deref(), scope, "{header}");
        }
    }
}
