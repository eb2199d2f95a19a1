//! What a browser brings back from an issuer (RFC 6749, 4.1.2; RFC 9207). Pure.
//!
//! Must not: look at a code or an error before the state and the issuer are checked.

use secrecy::SecretString;
use url::form_urlencoded;

use super::failure::{self, LoginResult};

/// The errors of authorization endpoints that are shown (RFC 6749, 4.1.2.1; OpenID Connect); other
/// text is the issuer's own, and may hold anything.
const ERRORS: [&str; 11] = [
    "invalid_request",
    "unauthorized_client",
    "unsupported_response_type",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "temporarily_unavailable",
    "login_required",
    "consent_required",
    "interaction_required",
    "account_selection_required",
];

/// The query of the address that the issuer sent the browser to.
#[derive(derive_more::Debug)]
#[debug("Return(..)")]
pub(super) struct Return {
    pub(super) state: String,
    code: Option<SecretString>,
    issuer: Option<String>,
    error: Option<String>,
}

/// What is known of the issuer of an open login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedIssuer {
    pub(super) name: String,
    /// It has said that it sends its name along.
    pub(super) is_sent: bool,
}

impl Return {
    /// Reads the query; `None` without a state, or with a parameter twice: two readers could take
    /// two different ones.
    pub(super) fn read(query: &str) -> Option<Self> {
        let mut found: [Option<String>; 4] = Default::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(at) = ["state", "code", "iss", "error"].iter().position(|name| key == *name)
            else {
                continue;
            };
            if found[at].replace(value.into_owned()).is_some() {
                return None;
            }
        }
        let [state, code, issuer, error] = found;
        Some(Self { state: state?, code: code.map(SecretString::from), issuer, error })
    }

    /// The code, if the answer comes from `expected`. The name of the issuer is compared to the
    /// letter, for errors too: an issuer that the operator uses elsewhere must not be able to send
    /// its code, or its refusal, in place of this one's (mix-up).
    pub(super) fn code(self, expected: &ExpectedIssuer) -> LoginResult<SecretString> {
        match &self.issuer {
            Some(issuer) if *issuer != expected.name => return Err(failure::ended()),
            None if expected.is_sent => return Err(failure::ended()),
            _ => {}
        }
        match (self.error, self.code) {
            (Some(error), _) if error == "access_denied" => Err(failure::declined()),
            (Some(error), _) => {
                let known = ERRORS.iter().find(|known| **known == error).copied();
                Err(failure::issuer_error(known))
            }
            (None, Some(code)) => Ok(code),
            (None, None) => Err(failure::ended()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is taken, and what is refused.

    use secrecy::ExposeSecret as _;

    use super::*;

    fn code(query: &str, is_sent: bool) -> Result<String, String> {
        let expected = ExpectedIssuer { name: "https://as.test".to_owned(), is_sent };
        let outcome = Return::read(query).unwrap().code(&expected);
        outcome.map(|code| code.expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn code_of_the_right_issuer_is_taken() {
        assert_eq!(code("state=s&code=c&iss=https%3A%2F%2Fas.test", true).unwrap(), "c");
        assert_eq!(code("code=c&state=s&session_state=x", false).unwrap(), "c");
    }

    #[test]
    fn issuer_that_is_wrong_or_missing_ends_the_login_before_its_error_is_read() {
        for query in [
            "state=s&code=c",
            "state=s&code=c&iss=https://as.test/",
            "state=s&code=c&iss=https://AS.test",
            "state=s&error=access_denied&iss=https://evil.test",
            "state=s&iss=https://as.test",
        ] {
            assert!(code(query, true).unwrap_err().contains("has ended"), "{query}");
        }
        assert!(code("state=s&code=c&iss=https://evil.test", false).is_err(), "though unasked");
    }

    #[test]
    fn error_is_shown_by_its_code_alone() {
        let error = |error: &str| code(&format!("state=s&error={error}"), false).unwrap_err();
        assert_eq!(error("access_denied"), "the login was declined");
        assert!(error("invalid_scope").contains("(invalid_scope)"));
        assert!(!error("hunter2&error_description=hunter2").contains("hunter2"));
        assert!(code("state=s&error=invalid_scope&code=c", false).is_err());
    }

    #[test]
    fn query_without_a_state_or_with_two_is_nothing() {
        for query in ["", "code=c", "state=a&state=a&code=c", "state=a&code=c&code=d"] {
            assert!(Return::read(query).is_none(), "{query}");
        }
        assert!(!format!("{:?}", Return::read("state=hunter2&code=hunter2")).contains("hunter2"));
    }
}
