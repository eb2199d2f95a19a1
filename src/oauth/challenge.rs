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
        let values: Vec<&str> = headers.iter().filter_map(|value| value.to_str().ok()).collect();
        let find = |name| values.iter().find_map(|value| parameter(value, name));
        Self {
            url: response.url().clone(),
            metadata: find("resource_metadata"),
            scope: find("scope"),
            error: find("error"),
        }
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

/// The parameter `name` of a challenge, quoted or not.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let lower = challenge.to_ascii_lowercase();
    let starts = lower.match_indices(name).map(|(at, _)| at);
    starts.into_iter().find_map(|at| {
        let (before, rest) = challenge.split_at_checked(at)?;
        if !before.ends_with([' ', ',', '\t']) {
            return None;
        }
        let value = rest.get(name.len()..)?.trim_start().strip_prefix('=')?.trim_start();
        match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(value, _)| value.to_owned()),
            None => value.split([',', ' ']).next().map(str::to_owned),
        }
    })
}

#[cfg(test)]
mod tests {
    //! What is read in challenges.

    use super::*;

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
}
