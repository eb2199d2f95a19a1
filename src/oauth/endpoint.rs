//! One exchange with a token endpoint (RFC 6749, 2.3.1, 4.4, 5 and 6).
//!
//! Must not: ask twice by itself, except to show the client's secret in the other way; or let a
//! secret, a token or an endpoint's free text into a message.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::assertion::ClientKey;
use super::{IssueError, IssueResult, Issued};
use crate::error_chain::error_chain;
use crate::http_client::Client;
use crate::model::Members;
use crate::{clock, http_client};

/// How long one exchange with an issuer of tokens may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Longer than any token is used.
const LONGEST_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The longest pause that an endpoint may ask for.
const LONGEST_AFTER: Duration = Duration::from_secs(5 * 60);

/// The errors that endpoints may name (RFC 6749, 5.2; RFC 8707). Other text of theirs is not shown,
/// as it may repeat the request with its secrets.
const ERRORS: &str = "invalid_request invalid_client invalid_grant unauthorized_client \
    unsupported_grant_type invalid_scope invalid_target server_error slow_down \
    temporarily_unavailable";

/// The form of an assertion (RFC 7523, 2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The way in which a client shows its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shows {
    #[default]
    InHeader,
    InBody,
    /// The secret is a private key, which signs ([`super::assertion`]).
    Signed,
}

/// One request for a token.
#[derive(Debug)]
pub struct Question<'a> {
    pub url: &'a Url,
    /// `url` in a form that may be shown.
    pub place: &'a str,
    /// For whom a key signs.
    pub audience: &'a str,
    pub client_id: &'a str,
    pub client_secret: &'a SecretString,
    pub grant: &'static str,
    /// The other fields of the form; those without a value are left out.
    pub fields: &'a [(&'static str, Option<&'a str>)],
}

/// An endpoint's answer with a token.
#[derive(Debug)]
pub struct Granted {
    pub issued: Issued,
    /// The refresh token for the next request, if the endpoint sent one.
    pub refresh_token: Option<SecretString>,
}

/// Why an endpoint gave no token, and whether it rejected the client, or the way in which that showed
/// its secret.
type TokenRefusal = (IssueError, bool);

impl Question<'_> {
    /// Sends the request. If the endpoint rejects the client, sends it once more with the secret
    /// shown in the other way; if that works, records it in `shows`.
    pub async fn ask(&self, http: &Client, shows: &mut Shows) -> IssueResult<Granted> {
        let (refusal, is_about_client) = match self.ask_once(http, *shows).await {
            Ok(granted) => return Ok(granted),
            Err(refusal) => refusal,
        };
        let other = match *shows {
            Shows::InHeader if is_about_client => Shows::InBody,
            Shows::InBody if is_about_client => Shows::InHeader,
            _ => return Err(refusal),
        };
        match self.ask_once(http, other).await {
            // Both ways were refused; the first refusal is the one to show.
            Err((_, true)) => Err(refusal),
            known => {
                *shows = other;
                known.map_err(|(second, _)| second)
            }
        }
    }

    async fn ask_once(&self, http: &Client, shows: Shows) -> Result<Granted, TokenRefusal> {
        let place = self.place;
        let exchange = async {
            let sent = http.send(self.request(http, shows)).await;
            let response = sent.map_err(|error| error_chain(&error.without_url()))?;
            let status = response.status();
            let headers = response.headers().clone();
            let body = http_client::body(response, MAX_ANSWER).await;
            Ok((status, headers, body.map_err(|error| error.to_string())?))
        };
        let late = |_elapsed| Err(format!("none in {} s", PATIENCE.as_secs()));
        let answer = timeout(PATIENCE, exchange).await.unwrap_or_else(late);
        let (status, headers, body) = answer.map_err(|why| {
            let text = format!("the token endpoint {place} gave no answer: {why}");
            (IssueError::passing(text), false)
        })?;
        let body = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(refused(place, status, &headers, &body));
        }
        read(&body).ok_or_else(|| {
            let text = format!("the token endpoint {place} answered without a bearer token");
            (IssueError::lasting(text), false)
        })
    }

    fn request(&self, http: &Client, shows: Shows) -> reqwest::RequestBuilder {
        let id = self.client_id;
        let secret = self.client_secret.expose_secret();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", self.grant);
        for (name, value) in self.fields {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        let request = http.post(self.url.clone()).header(ACCEPT, "application/json");
        let mut request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match shows {
            Shows::InHeader => request = request.header(AUTHORIZATION, basic(id, secret)),
            Shows::InBody => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
            }
            Shows::Signed => {
                let key = ClientKey::read(secret);
                let sign = |key: ClientKey| key.assertion(id, self.audience, clock::now());
                let assertion = key.and_then(sign).unwrap_or_default();
                form.append_pair("client_id", id)
                    .append_pair("client_assertion_type", JWT_BEARER)
                    .append_pair("client_assertion", &assertion);
            }
        }
        request.body(form.finish())
    }
}

fn basic(id: &str, secret: &str) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
    http_client::sensitive(&format!("Basic {pair}")).expect("base64 is graphic ASCII")
}

fn refused(place: &str, status: StatusCode, headers: &HeaderMap, body: &str) -> TokenRefusal {
    let named = Members::read(body).ok().and_then(|body| body.string("error"));
    let known = ERRORS.split(' ').find(|error| named.as_deref() == Some(*error));
    let code = status.as_u16();
    let text = match known {
        Some(error) => format!("the token endpoint {place} answered {code} {error}"),
        None => format!("the token endpoint {place} answered HTTP {code}"),
    };
    let unnamed = status == StatusCode::UNAUTHORIZED && known.is_none();
    let is_client = known == Some("invalid_client")
        && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST);
    let passes = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    let after = http_client::retry_after(headers, clock::now());
    let after = after.map(|after| after.min(LONGEST_AFTER));
    let grant_ended = known == Some("invalid_grant");
    let error = IssueError { text, passes, after, grant_ended };
    (error, unnamed || is_client)
}

/// The token in an answer, if it is a bearer token.
fn read(body: &str) -> Option<Granted> {
    let body = Members::read(body).ok()?;
    if body.string("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let token = body.string("access_token").filter(|token| !token.is_empty())?;
    let value = http_client::sensitive(&format!("Bearer {token}")).ok()?;
    // Some issuers write the number as a string.
    let seconds = body.get("expires_in").map(|raw| raw.get().trim_matches('"'));
    let seconds = seconds.and_then(|seconds| seconds.parse::<f64>().ok());
    let seconds = seconds.map(|seconds| seconds.min(LONGEST_LIFE.as_secs_f64()));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let refresh_token = body.string("refresh_token").filter(|token| !token.is_empty());
    let refresh_token = refresh_token.map(SecretString::from);
    Some(Granted { issued: Issued { value, lifetime }, refresh_token })
}

#[cfg(test)]
mod tests {
    //! What is made of answers.

    use super::*;

    #[test]
    fn lifetimes_of_all_sorts() {
        for (lifetime, expected) in [
            ("60", Some(60)),
            ("\"60\"", Some(60)),
            ("60.0", Some(60)),
            ("-1", None),
            ("null", None),
            ("1e300", Some(LONGEST_LIFE.as_secs())),
        ] {
            let text = format!(r#"{{"access_token":"t","expires_in":{lifetime}}}"#);
            let issued = read(&text).unwrap().issued;
            assert_eq!(issued.lifetime.map(|life| life.as_secs()), expected, "{lifetime}");
        }
    }

    #[test]
    fn a_refresh_token_that_is_new() {
        let next = |more: &str| {
            let granted = read(&format!(r#"{{"access_token":"t"{more}}}"#)).unwrap();
            granted.refresh_token.map(|token| token.expose_secret().to_owned())
        };
        assert_eq!(next(r#","refresh_token":"r2""#).as_deref(), Some("r2"));
        for none in ["", r#","refresh_token":"""#, r#","refresh_token":null"#] {
            assert_eq!(next(none), None, "{none}");
        }
    }

    #[test]
    fn how_long_an_endpoint_wants_to_be_left_alone() {
        let after = |value: &'static str| {
            let headers = HeaderMap::from_iter([(
                http::header::RETRY_AFTER,
                HeaderValue::from_static(value),
            )]);
            refused("p", StatusCode::SERVICE_UNAVAILABLE, &headers, "{}").0.after
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("86400"), Some(LONGEST_AFTER));
        assert_eq!(after("soon"), None);
    }
}
