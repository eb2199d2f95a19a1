//! Posts a notice to a webhook.
//!
//! Must not: follow a redirect, read more of an answer than an error has room for, or show the
//! address.

use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::timeout;
use url::Url;

use super::Failure;
use super::format::body;
use super::notice::Notice;
use super::outbox::Attempt;
use super::signature::signature;
use crate::clock;
use crate::config::{Secrets, Webhook};
use crate::http_client::{self, Client, Clients};
use crate::model::visible;

/// How long an attempt may take, from the connection to what is read of the answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How much of a refusal is read, and how much of that is shown.
const MAX_ANSWER: usize = 4096;
const SHOWN_ANSWER: usize = 200;
/// The longest pause that a receiver may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The client for a webhook; `others` is the one with the usual settings.
pub fn client(webhook: &Webhook, others: Client) -> Client {
    Clients::new(Some(&webhook.url), webhook.tls.as_ref(), others).own
}

/// Posts it once.
pub async fn post(
    client: &Client,
    webhook: &Webhook,
    secrets: &Secrets,
    notice: &Notice,
    page: &Url,
) -> Result<(), Failure> {
    let (url, body) = body(webhook.format, notice, page, &webhook.url);
    let mut headers = webhook.headers.clone();
    if !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    sign(&mut headers, webhook, notice, &body, clock::now());
    let request = client.request(Method::POST, url).headers(headers).body(body);
    let exchange = async {
        let response = client.send(request).await.map_err(|error| {
            let (is_unsent, why) = http_client::why_no_answer(error);
            let attempt = if is_unsent { Attempt::NotDelivered } else { Attempt::Unclear };
            Failure::new(attempt, secrets.hide(why))
        })?;
        judge(response, secrets).await
    };
    match timeout(LIMIT, exchange).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => {
            let why = format!("no answer within {} s", LIMIT.as_secs());
            Err(Failure::new(Attempt::Unclear, why))
        }
    }
}

/// Adds the headers of Standard Webhooks. Receivers without a secret can tell a repetition by the
/// id, too.
fn sign(headers: &mut HeaderMap, webhook: &Webhook, notice: &Notice, body: &str, wall: SystemTime) {
    let seconds = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut pairs =
        vec![("webhook-id", notice.id.clone()), ("webhook-timestamp", seconds.to_string())];
    if !webhook.secrets.is_empty() {
        let signature = signature(&webhook.secrets, &notice.id, seconds, body.as_bytes());
        pairs.push(("webhook-signature", signature));
    }
    for (name, value) in pairs {
        let value = HeaderValue::try_from(value).expect("ids, numbers and base64 are visible");
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// What an answer says. The body of a success is not read, whatever its length.
async fn judge(response: reqwest::Response, secrets: &Secrets) -> Result<(), Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let pause = http_client::retry_after(response.headers(), clock::now());
    let reason = status.canonical_reason().unwrap_or_default();
    let mut why = format!("HTTP {} {reason}", status.as_u16()).trim_end().to_owned();
    if status.is_redirection() {
        why.push_str(", a redirect, which is not followed");
    } else if let Ok((bytes, _)) = http_client::body_up_to(response, MAX_ANSWER).await {
        let text = secrets.hide(String::from_utf8_lossy(&bytes).into_owned());
        let text = visible::line(&visible::shown(text.trim()), SHOWN_ANSWER);
        if !text.is_empty() {
            why.push_str(&format!(": {text}"));
        }
    }
    Err(Failure {
        attempt: if is_certain(status) { Attempt::NotDelivered } else { Attempt::Unclear },
        why,
        pause: pause.map(|pause| pause.min(MAX_PAUSE)),
    })
}

/// Whether a receiver that answers so has not taken the notice.
fn is_certain(status: StatusCode) -> bool {
    status.is_redirection() || status.is_client_error()
}
