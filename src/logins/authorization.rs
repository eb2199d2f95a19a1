//! The request for a person's consent (RFC 6749, 4.1.1, with RFC 7636, RFC 8707): its scopes, its
//! proofs, and the address that a browser opens. Pure but for chance.
//!
//! Must not: send anything.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::random;

/// The scope without which many issuers give no refresh token.
const OFFLINE: &str = "offline_access";

/// A text of 256 random bits.
pub(super) fn secret() -> Result<SecretString, getrandom::Error> {
    let mut bytes = [0; 32];
    random::fill(&mut bytes)?;
    Ok(BASE64URL.encode(bytes).into())
}

/// What a secret is known by here: who reads the memory of the process, or its records, cannot show
/// the secret itself.
pub(super) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// The `code_challenge` of a verifier.
fn challenge(verifier: &SecretString) -> String {
    BASE64URL.encode(digest(verifier.expose_secret()))
}

/// Where the scopes of a login come from.
#[derive(Debug, Default)]
pub(super) struct ScopeSources<'a> {
    pub(super) configured: &'a [String],
    /// Those that the server's last refusal names.
    pub(super) of_challenge: &'a [String],
    /// Those that the server's metadata names.
    pub(super) of_resource: &'a [String],
    /// Those that a call has lacked, and those that the person asks for.
    pub(super) more: &'a [String],
    /// Those that the issuer knows.
    pub(super) of_issuer: &'a [String],
}

impl ScopeSources<'_> {
    /// The scopes to ask for: the operator's, or else the server's, and what was missing.
    pub(super) fn chosen(&self) -> Vec<String> {
        let first = [self.configured, self.of_challenge, self.of_resource];
        let base = first.into_iter().find(|scopes| !scopes.is_empty()).unwrap_or_default();
        let mut chosen: Vec<String> = Vec::new();
        for scope in base.iter().chain(self.more) {
            if !chosen.contains(scope) {
                chosen.push(scope.clone());
            }
        }
        let offers_offline = self.of_issuer.iter().any(|scope| scope == OFFLINE);
        if offers_offline && !chosen.iter().any(|scope| scope == OFFLINE) {
            chosen.push(OFFLINE.to_owned());
        }
        chosen
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Authorization<'a> {
    pub(super) endpoint: &'a Url,
    pub(super) client_id: &'a str,
    pub(super) redirect_uri: &'a Url,
    pub(super) state: &'a SecretString,
    pub(super) verifier: &'a SecretString,
    pub(super) scopes: &'a [String],
    pub(super) resource: Option<&'a str>,
    pub(super) audience: Option<&'a str>,
}

impl Authorization<'_> {
    /// The address that the browser opens.
    pub(super) fn address(&self) -> Url {
        let mut url = self.endpoint.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", self.client_id)
                .append_pair("redirect_uri", self.redirect_uri.as_str())
                .append_pair("state", self.state.expose_secret())
                .append_pair("code_challenge", &challenge(self.verifier))
                .append_pair("code_challenge_method", "S256");
            if !self.scopes.is_empty() {
                query.append_pair("scope", &self.scopes.join(" "));
            }
            for (name, value) in [("resource", self.resource), ("audience", self.audience)] {
                if let Some(value) = value {
                    query.append_pair(name, value);
                }
            }
            // Issuers drop the scope in silence if the person is not asked for consent.
            if self.scopes.iter().any(|scope| scope == OFFLINE) {
                query.append_pair("prompt", "consent");
            }
        }
        url
    }
}

#[cfg(test)]
mod tests {
    //! What is asked for.

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn challenge_is_the_one_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned().into();
        assert_eq!(challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn scopes_come_from_the_operator_then_the_refusal_then_the_metadata() {
        let (configured, refusal, metadata) = (texts("c"), texts("r s"), texts("m"));
        let none = Vec::new();
        for (sources, expected) in [
            ((&configured, &refusal, &metadata), "c x"),
            ((&none, &refusal, &metadata), "r s x"),
            ((&none, &none, &metadata), "m x"),
            ((&none, &none, &none), "x"),
        ] {
            let (configured, of_challenge, of_resource) = sources;
            let more = texts("x");
            let sources =
                ScopeSources { configured, of_challenge, of_resource, more: &more, of_issuer: &[] };
            assert_eq!(sources.chosen(), texts(expected));
        }
    }

    #[test]
    fn offline_access_is_asked_for_with_consent_where_the_issuer_has_it() {
        let of_issuer = texts("openid offline_access");
        let scopes = ScopeSources { of_issuer: &of_issuer, ..ScopeSources::default() }.chosen();
        assert_eq!(scopes, ["offline_access"]);
        let (state, verifier) = (SecretString::from("s"), SecretString::from("v"));
        let endpoint = Url::parse("https://as.test/authorize?tenant=a").unwrap();
        let redirect_uri = Url::parse("http://127.0.0.1:7717/oauth/callback").unwrap();
        let mut request = Authorization {
            endpoint: &endpoint,
            client_id: "c",
            redirect_uri: &redirect_uri,
            state: &state,
            verifier: &verifier,
            scopes: &scopes,
            resource: Some("https://mcp.test/mcp"),
            audience: None,
        };
        let address = request.address().to_string();
        for part in [
            "tenant=a&",
            "prompt=consent",
            "code_challenge_method=S256",
            "state=s&",
            "resource=https%3A%2F%2Fmcp.test%2Fmcp",
        ] {
            assert!(address.contains(part), "{address}");
        }
        assert!(!address.contains("audience"));
        request.scopes = &[];
        assert!(!request.address().as_str().contains("prompt"));
        assert!(!request.address().as_str().contains("scope"));
    }
}
