//! The OAuth tokens of one backend, by the client credentials grant, and the backend's hints on how
//! to get them.
//!
//! Must not: keep a token ([`crate::oauth`] does), send one anywhere, or show one.

mod client_credentials;
mod discovery;

use std::sync::Arc;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{PeerError, PeerErrorKind};
use crate::config::ClientCredentials;
use crate::http_client::Clients;
use crate::model::BackendName;
use crate::oauth;
use crate::oauth::TokenError;

/// A token is renewed when this much of its life is left.
const MARGIN: Duration = Duration::from_secs(60);

/// The challenge that a backend sent with a 401.
#[derive(Debug)]
pub(super) struct Challenge {
    /// The URL of the request.
    url: Url,
    /// The address of the metadata that names the token issuer (RFC 9728).
    metadata: Option<String>,
    /// The scope that the token needs.
    scope: Option<String>,
}

impl From<TokenError> for PeerError {
    fn from(error: TokenError) -> Self {
        Self::new(PeerErrorKind::from(&error), error.to_string())
    }
}

impl From<&TokenError> for PeerErrorKind {
    fn from(error: &TokenError) -> Self {
        match error {
            TokenError::NoToken(_) => Self::NoToken,
            TokenError::Refused => Self::Unauthorized,
        }
    }
}

/// The tokens of one backend.
pub(super) type Tokens = oauth::Tokens<client_credentials::Issuer>;

/// The tokens of a client at an MCP server or an A2A agent, if it wants some. `resource` is the
/// server's own name for itself in requests for tokens (RFC 8707). `clients` are those of the
/// backend.
pub(super) fn tokens(
    backend: &BackendName,
    credentials: Option<&Arc<ClientCredentials>>,
    resource: Option<&Url>,
    clients: Clients,
) -> Option<Arc<Tokens>> {
    let credentials = Arc::clone(credentials?);
    let issuer = client_credentials::Issuer::new(backend.clone(), credentials, resource, clients);
    // A stop need not wait for these exchanges: the client credentials grant replaces no earlier
    // token, so none can be lost.
    Some(Tokens::new(Some(backend.clone()), issuer, MARGIN, TaskTracker::new()))
}

impl Challenge {
    fn read(response: &reqwest::Response) -> Self {
        let url = response.url().clone();
        let headers = response.headers().get_all(WWW_AUTHENTICATE);
        let values: Vec<&str> = headers.iter().filter_map(|value| value.to_str().ok()).collect();
        Self {
            url,
            metadata: values.iter().find_map(|value| parameter(value, "resource_metadata")),
            scope: values.iter().find_map(|value| parameter(value, "scope")),
        }
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
