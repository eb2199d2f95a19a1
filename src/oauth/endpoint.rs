//! One exchange with a token endpoint (RFC 6749, 2.3.1, 4.4, 5 and 6).
//!
//! Must not: ask twice by itself, except to show the client's secret in the other way; or let a
//! secret, a token or an endpoint's free text into a message.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::answer::{Answer, TokenRefusal};
use super::assertion::ClientKey;
use super::{IssueError, IssueResult, Issued};
use crate::error_chain::error_chain;
use crate::http_client::Client;
use crate::{clock, http_client};

/// How long one exchange with an issuer of tokens may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// The form of an assertion (RFC 7523, 2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How a client authenticates at the token endpoint (RFC 6749, section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuthMethod {
    #[default]
    InHeader,
    InBody,
    /// The secret is a private key, which signs ([`super::assertion`]).
    Signed,
    /// There is no secret: a public client names itself alone.
    Nothing,
}

/// One request for a token.
#[derive(Debug)]
pub struct TokenRequest<'a> {
    pub url: &'a Url,
    /// `url` in a form that may be shown.
    pub place: &'a str,
    /// For whom a key signs.
    pub audience: &'a str,
    pub client_id: &'a str,
    pub client_secret: &'a SecretString,
    /// Whether the operator has chosen how the secret is shown, so that no other way is tried.
    pub method_is_configured: bool,
    pub grant: &'static str,
    /// The other fields of the form; those without a value are left out.
    pub fields: &'a [(&'static str, Option<&'a str>)],
}

/// An endpoint's answer with a token.
#[derive(Debug)]
pub struct Granted {
    pub issued: Issued,
    /// The token itself, for a store.
    pub access_token: SecretString,
    /// The refresh token for the next request, if the endpoint sent one.
    pub refresh_token: Option<SecretString>,
    /// The scopes of the token, if the endpoint says that they differ from what was asked for.
    pub scope: Option<String>,
}

impl TokenRequest<'_> {
    /// Sends the request. If the endpoint rejects the client, sends it once more with the secret
    /// shown in the other way; if that works, records it in `auth_method`.
    pub async fn send(
        &self,
        http: &Client,
        auth_method: &mut ClientAuthMethod,
    ) -> IssueResult<Granted> {
        self.send_and_store(http, auth_method, |_refresh_token| std::future::ready(())).await
    }

    /// [`Self::send`], where `store` gets the refresh token of an answer before the answer is
    /// judged: a token of an answer that is refused later would be lost otherwise.
    pub async fn send_and_store<K: Future<Output = ()> + Send>(
        &self,
        http: &Client,
        auth_method: &mut ClientAuthMethod,
        store: impl Fn(SecretString) -> K + Sync,
    ) -> IssueResult<Granted> {
        let refusal = match self.send_once(http, *auth_method, &store).await {
            Ok(granted) => return Ok(granted),
            Err(refusal) => refusal,
        };
        let other = match *auth_method {
            _ if self.method_is_configured || !refusal.is_about_client => return Err(refusal.error),
            ClientAuthMethod::InHeader => ClientAuthMethod::InBody,
            ClientAuthMethod::InBody => ClientAuthMethod::InHeader,
            ClientAuthMethod::Signed | ClientAuthMethod::Nothing => return Err(refusal.error),
        };
        match self.send_once(http, other, &store).await {
            // Both ways were refused; the first refusal is the one to show.
            Err(second) if second.is_about_client => Err(refusal.error),
            outcome => {
                *auth_method = other;
                outcome.map_err(|second| second.error)
            }
        }
    }

    /// Sends the fields to a revocation endpoint (RFC 7009), without a grant. The error says what
    /// the endpoint has answered.
    pub async fn revoke(&self, http: &Client, auth_method: ClientAuthMethod) -> Result<(), String> {
        let sent = timeout(PATIENCE, http.send(self.request(http, auth_method))).await;
        let sent = sent.map_err(|_late| format!("no answer in {} s", PATIENCE.as_secs()))?;
        let status = sent.map_err(|error| error_chain(&error.without_url()))?.status();
        if status.is_success() { Ok(()) } else { Err(format!("HTTP {}", status.as_u16())) }
    }

    async fn send_once<K: Future<Output = ()> + Send>(
        &self,
        http: &Client,
        auth_method: ClientAuthMethod,
        store: &(impl Fn(SecretString) -> K + Sync),
    ) -> Result<Granted, TokenRefusal> {
        let place = self.place;
        let exchange = async {
            let response = http
                .send(self.request(http, auth_method))
                .await
                .map_err(|error| error_chain(&error.without_url()))?;
            let status = response.status();
            let headers = response.headers().clone();
            let body = http_client::body(response, MAX_ANSWER).await;
            Ok((status, headers, body.map_err(|error| error.to_string())?))
        };
        let answer = timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_elapsed| Err(format!("none in {} s", PATIENCE.as_secs())));
        let (status, headers, bytes) = answer.map_err(|why| {
            let text = format!("the token endpoint {place} gave no answer: {why}");
            TokenRefusal { error: IssueError::passing(text), is_about_client: false }
        })?;
        let body = String::from_utf8_lossy(&bytes);
        let answer = Answer { place, status, headers: &headers, body: &body };
        if let Some(token) = answer.refresh_token() {
            store(token).await;
        }
        answer.read()
    }

    fn request(&self, http: &Client, auth_method: ClientAuthMethod) -> reqwest::RequestBuilder {
        let id = self.client_id;
        let secret = self.client_secret.expose_secret();
        let mut form = form_urlencoded::Serializer::new(String::new());
        if !self.grant.is_empty() {
            form.append_pair("grant_type", self.grant);
        }
        for (name, value) in self.fields {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        let mut request = http
            .post(self.url.clone())
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match auth_method {
            ClientAuthMethod::InHeader => {
                request = request.header(AUTHORIZATION, basic(id, secret));
            }
            ClientAuthMethod::InBody => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
            }
            ClientAuthMethod::Nothing => drop(form.append_pair("client_id", id)),
            ClientAuthMethod::Signed => {
                let assertion = ClientKey::read(secret)
                    .and_then(|key| key.assertion(id, self.audience, clock::now()))
                    .unwrap_or_default();
                form.append_pair("client_id", id)
                    .append_pair("client_assertion_type", JWT_BEARER)
                    .append_pair("client_assertion", &assertion);
            }
        }
        request.body(form.finish())
    }
}

fn basic(id: &str, secret: &str) -> HeaderValue {
    let [id, secret] = [id, secret]
        .map(|text| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
    let pair = BASE64_STANDARD.encode(format!("{id}:{secret}"));
    http_client::sensitive(&format!("Basic {pair}")).expect("base64 is graphic ASCII")
}
