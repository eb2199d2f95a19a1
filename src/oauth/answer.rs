//! What is made of a token endpoint's answer (RFC 6749, 5): a token, or what the answer is instead,
//! with what to do about it.
//!
//! Must not: let a secret, a token or an endpoint's free text into a message.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use secrecy::SecretString;

use super::endpoint::Granted;
use super::{IssueError, Issued};
use crate::model::Members;
use crate::{clock, http_client};

/// Longer than any token is used.
const LONGEST_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The longest pause that an endpoint may ask for.
const LONGEST_AFTER: Duration = Duration::from_secs(5 * 60);

/// The errors that endpoints may name (RFC 6749, 5.2; RFC 8707), and some more that well-known
/// endpoints name. Other text of theirs is not shown, as it may repeat the request with its
/// secrets.
const ERRORS: [&str; 17] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "slow_down",
    "temporarily_unavailable",
    "access_denied",
    "invalid_client_id",
    "bad_client_secret",
    "invalid_auth",
    "incorrect_client_credentials",
    "invalid_token",
    "unsupported_token_type",
];

/// Those of them that pass by themselves, whatever the status says.
const PASSING: [&str; 3] = ["server_error", "slow_down", "temporarily_unavailable"];

/// The errors about the client itself.
const ABOUT_CLIENT: [&str; 4] =
    ["invalid_client", "invalid_client_id", "bad_client_secret", "incorrect_client_credentials"];

/// The types of tokens that are sent as `Authorization: Bearer`. Apigee calls them `BearerToken`,
/// and takes no other header.
const BEARER: [&str; 2] = ["bearer", "bearertoken"];

/// The other types of tokens that are named, as they hold no secret.
const OTHER_TYPES: [&str; 6] = ["DPoP", "PoP", "MAC", "N_A", "SAML2", "JWT"];

/// Why an endpoint gave no token.
#[derive(Debug)]
pub(super) struct TokenRefusal {
    pub(super) error: IssueError,
    /// It rejects the client, or the way in which that showed its secret.
    pub(super) is_about_client: bool,
}

/// The answer of a token endpoint.
pub(super) struct Answer<'a> {
    /// The endpoint, in a form that may be shown.
    pub(super) place: &'a str,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a str,
}

impl Answer<'_> {
    pub(super) fn read(&self) -> Result<Granted, TokenRefusal> {
        if !self.status.is_success() {
            return Err(self.refusal());
        }
        let Ok(members) = Members::read(self.body) else {
            return Err(self.unusable(&format!("{}, and not with JSON", self.what_it_is())));
        };
        // GitHub, Slack and others refuse with a 200.
        let names_error = members.get("error").is_some_and(|error| error.get() != "null");
        if names_error && members.get("access_token").is_none() {
            return Err(self.refusal());
        }
        let kind = members.string("token_type");
        if let Some(kind) = kind.filter(|kind| !is_bearer(kind)) {
            let description = OTHER_TYPES
                .iter()
                .find(|other| other.eq_ignore_ascii_case(&kind))
                .map_or("of another type than Bearer".to_owned(), |other| {
                    format!("of the type {other}")
                });
            let cure = "have the issuer give this client bearer tokens";
            let what = format!("with a token {description}, which is not used: {cure}");
            return Err(self.unusable(&what));
        }
        let token = members.string("access_token").filter(|token| !token.is_empty());
        let Some(token) = token else {
            return Err(self.unusable("with JSON without an `access_token`"));
        };
        let Ok(value) = http_client::sensitive(&format!("Bearer {token}")) else {
            return Err(self.unusable("with an `access_token` that no header can carry"));
        };
        // Some issuers write the number as a string.
        let lifetime = members
            .get("expires_in")
            .and_then(|raw| raw.get().trim_matches('"').parse::<f64>().ok())
            .filter(|seconds| seconds.is_finite())
            .map(|seconds| seconds.min(LONGEST_LIFE.as_secs_f64()))
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let refresh_token = self.refresh_token();
        let scope = members.string("scope");
        let access_token = SecretString::from(token);
        Ok(Granted { issued: Issued { value, lifetime }, access_token, refresh_token, scope })
    }

    /// The refresh token in it, whatever the rest says. It is looked for before the answer is
    /// judged: the issuer has replaced the earlier one by now, so that an answer which cannot be
    /// used would lose the grant.
    pub(super) fn refresh_token(&self) -> Option<SecretString> {
        if !self.status.is_success() {
            return None;
        }
        let token = Members::read(self.body).ok()?.string("refresh_token")?;
        if token.is_empty() { None } else { Some(token.into()) }
    }

    /// An answer that refuses the request: with a status, or with `error` in a 2xx.
    fn refusal(&self) -> TokenRefusal {
        let Self { place, status, headers, body } = *self;
        let word = Members::read(body).ok().and_then(|body| body.string("error"));
        let oauth_error = ERRORS.into_iter().find(|error| word.as_deref() == Some(*error));
        let code = status.as_u16();
        let mut text = match oauth_error {
            Some(error) => format!("the token endpoint {place} answered {code} {error}"),
            None if status.is_success() => format!(
                "the token endpoint {place} answered HTTP {code} with an `error` that OAuth does \
                 not know"
            ),
            None => format!("the token endpoint {place} answered HTTP {code}"),
        };
        if is_page(headers, body) {
            text.push_str(" with a web page: ");
            text.push_str(PAGE_CURE);
        }
        let is_about_client = match oauth_error {
            None => status == StatusCode::UNAUTHORIZED,
            Some(error) if ABOUT_CLIENT.contains(&error) => {
                status.is_success()
                    || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST)
            }
            Some(_) => false,
        };
        let passes = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            || oauth_error.is_some_and(|error| PASSING.contains(&error));
        let after =
            http_client::retry_after(headers, clock::now()).map(|after| after.min(LONGEST_AFTER));
        if let Some(after) = after.filter(|after| !after.is_zero()) {
            text.push_str(&format!(", and wants no request for {} s", after.as_secs()));
        }
        let grant_ended = oauth_error == Some("invalid_grant");
        let error =
            IssueError { text, passes, after, grant_ended, client_refused: is_about_client };
        TokenRefusal { error, is_about_client }
    }

    /// What a body without JSON is.
    fn what_it_is(&self) -> String {
        if self.body.trim().is_empty() {
            return "with an empty body".to_owned();
        }
        if is_page(self.headers, self.body) {
            return format!("with a web page ({PAGE_CURE})");
        }
        if self.body.contains("access_token=") {
            return "in form encoding".to_owned();
        }
        "with a text".to_owned()
    }

    /// A 2xx without a usable token.
    fn unusable(&self, what: &str) -> TokenRefusal {
        let (place, code) = (self.place, self.status.as_u16());
        let text = format!("the token endpoint {place} answered HTTP {code} {what}");
        TokenRefusal { error: IssueError::lasting(text), is_about_client: false }
    }
}

/// What to do where a web page stands in place of a token endpoint.
const PAGE_CURE: &str = "see whether `token_url` is the token endpoint itself, and whether a login page \
    or a proxy stands before it";

fn is_page(headers: &HeaderMap, body: &str) -> bool {
    http_client::media_type(headers).eq_ignore_ascii_case("text/html")
        || body.trim_start().starts_with('<')
}

fn is_bearer(kind: &str) -> bool {
    BEARER.iter().any(|bearer| kind.trim().eq_ignore_ascii_case(bearer))
}

#[cfg(test)]
mod tests {
    //! What is made of answers.

    use http::HeaderValue;
    use http::header::{CONTENT_TYPE, RETRY_AFTER};
    use secrecy::ExposeSecret as _;

    use super::*;

    fn read(status: u16, headers: &HeaderMap, body: &str) -> Result<Granted, TokenRefusal> {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { place: "p", status, headers, body }.read()
    }

    fn granted(body: &str) -> Granted {
        read(200, &HeaderMap::new(), body).unwrap()
    }

    fn why(status: u16, body: &str) -> String {
        read(status, &HeaderMap::new(), body).unwrap_err().error.text
    }

    #[test]
    fn lifetimes_of_all_sorts() {
        for (lifetime, expected) in [
            ("60", Some(60)),
            ("\"60\"", Some(60)),
            ("60.0", Some(60)),
            ("-1", None),
            ("null", None),
            ("1e300", Some(LONGEST_LIFE.as_secs())),
            ("\"NaN\"", None),
            ("\"inf\"", None),
        ] {
            let text = format!(r#"{{"access_token":"t","expires_in":{lifetime}}}"#);
            let issued = granted(&text).issued;
            assert_eq!(issued.lifetime.map(|life| life.as_secs()), expected, "{lifetime}");
        }
    }

    #[test]
    fn a_refresh_token_that_is_new() {
        let next = |more: &str| {
            let granted = granted(&format!(r#"{{"access_token":"t"{more}}}"#));
            granted.refresh_token.map(|token| token.expose_secret().to_owned())
        };
        assert_eq!(next(r#","refresh_token":"r2""#).as_deref(), Some("r2"));
        for none in ["", r#","refresh_token":"""#, r#","refresh_token":null"#] {
            assert_eq!(next(none), None, "{none}");
        }
    }

    #[test]
    fn pause_of_an_endpoint_is_kept_and_told() {
        let refused = |value: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            read(503, &headers, "{}").unwrap_err().error
        };
        assert_eq!(refused("7").after, Some(Duration::from_secs(7)));
        assert!(refused("7").text.ends_with("503, and wants no request for 7 s"));
        assert_eq!(refused("86400").after, Some(LONGEST_AFTER));
        assert_eq!(refused("soon").after, None);
    }

    #[test]
    fn token_types_that_are_bearer_tokens_are_taken() {
        for kind in ["Bearer", "bearer", "BEARER", "BearerToken", " bearertoken "] {
            let body = format!(r#"{{"access_token":"t","token_type":"{kind}"}}"#);
            assert_eq!(granted(&body).issued.value, "Bearer t", "{kind}");
        }
    }

    #[test]
    fn answer_without_a_token_is_named_as_what_it_is() {
        struct Case {
            status: u16,
            body: &'static str,
            expected: &'static str,
        }
        for Case { status, body, expected } in [
            Case { status: 200, body: "<html>log in</html>", expected: "HTTP 200 with a web page" },
            Case { status: 404, body: "<!doctype html>", expected: "HTTP 404 with a web page" },
            Case {
                status: 200,
                body: "",
                expected: "HTTP 200 with an empty body, and not with JSON",
            },
            Case {
                status: 200,
                body: "access_token=hunter2&token_type=bearer",
                expected: "HTTP 200 in form encoding",
            },
            Case {
                status: 200,
                body: "hunter2",
                expected: "HTTP 200 with a text, and not with JSON",
            },
            Case {
                status: 200,
                body: r#"{"error":"invalid_scope"}"#,
                expected: "200 invalid_scope",
            },
            Case {
                status: 200,
                body: r#"{"error":"hunter2"}"#,
                expected: "200 with an `error` that OAuth does not know",
            },
            Case {
                status: 200,
                body: r#"{"token_type":"Bearer"}"#,
                expected: "without an `access_token`",
            },
            Case {
                status: 200,
                body: r#"{"access_token":"hunter2","token_type":"dpop"}"#,
                expected: "token of the type DPoP",
            },
            Case {
                status: 200,
                body: r#"{"access_token":"t","token_type":"hunter2"}"#,
                expected: "of another type than Bearer",
            },
        ] {
            let text = why(status, body);
            assert!(text.contains(expected), "{status} {body}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/html"))]);
        let text = read(200, &headers, "Log in").unwrap_err().error.text;
        assert!(text.contains("web page") && text.contains("`token_url`"), "{text}");
    }

    #[test]
    fn refusal_that_names_a_passing_error_passes_whatever_its_status() {
        for (status, error, expected) in [
            (400, "temporarily_unavailable", true),
            (200, "slow_down", true),
            (503, "invalid_request", true),
            (400, "invalid_request", false),
        ] {
            let body = format!(r#"{{"error":"{error}"}}"#);
            let refusal = read(status, &HeaderMap::new(), &body).unwrap_err();
            assert_eq!(refusal.error.passes, expected, "{status} {error}");
        }
    }

    #[test]
    fn client_that_is_refused_with_a_200_may_show_its_secret_in_another_way() {
        struct Case {
            status: u16,
            error: &'static str,
            expected: bool,
        }
        for Case { status, error, expected } in [
            Case { status: 200, error: "invalid_client", expected: true },
            Case { status: 200, error: "incorrect_client_credentials", expected: true },
            Case { status: 200, error: "invalid_scope", expected: false },
            Case { status: 401, error: "unknown", expected: true },
            Case { status: 403, error: "invalid_client", expected: false },
        ] {
            let body = format!(r#"{{"error":"{error}"}}"#);
            let refusal = read(status, &HeaderMap::new(), &body).unwrap_err();
            assert_eq!(refusal.is_about_client, expected, "{status} {error}");
        }
    }
}
