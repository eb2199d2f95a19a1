//! A local tool that is an HTTP request: the arguments go out, the body of the answer comes back.
//!
//! Must not: follow a redirect, so that headers reach the configured address alone, or show the
//! model that address.

use ::http::header::{CONTENT_TYPE, Entry};
use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::value::RawValue;
use url::Url;

use super::text;
use crate::backend::log::{Redactor, SEEN, printable_lines};
use crate::backend::{CallError, Called, ToolCall};
use crate::http_client;
use crate::model::sentences;
use crate::model::{Answer, BackendName, Members};

/// How many bytes of a result are read: all that MANTYX takes, and 64 KiB more, so that the length
/// of a slightly longer result is known.
const MAX_RESULT: usize = Answer::MAX_RESULT + 64 * 1024;
/// How many bytes of an error are shown, of the [`SEEN`] that are read.
const MAX_ERROR: usize = 1024;

/// Where the request goes, and how.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) name: BackendName,
    pub(super) client: http_client::Client,
    pub(super) method: Method,
    pub(super) url: Url,
    /// The configured headers.
    pub(super) headers: HeaderMap,
}

impl Endpoint {
    /// Sends one request and reads the answer.
    pub(super) async fn call(&self, call: &ToolCall) -> Called {
        let arguments = &call.request.arguments;
        let mut headers = self.headers.clone();
        if let Some(trace) = &call.trace {
            http_client::add_trace(&mut headers, trace);
        }
        let mut url = self.url.clone();
        let mut builder = if matches!(self.method, Method::GET | Method::HEAD | Method::DELETE) {
            put_into_query(arguments, &mut url)?;
            self.client.request(self.method.clone(), url)
        } else {
            if let Entry::Vacant(entry) = headers.entry(CONTENT_TYPE) {
                entry.insert(HeaderValue::from_static("application/json"));
            }
            self.client.request(self.method.clone(), url).body(arguments.get().to_owned())
        };
        builder = builder.headers(headers);
        let response = self.client.send(builder).await?;
        if !response.status().is_success() {
            return Ok(Answer::Error(self.failure(response, &call.progress.redactor).await));
        }
        let kind = media_type(response.headers());
        let (body, whole) = http_client::body_up_to(response, MAX_RESULT).await?;
        Ok(match text(&body, whole) {
            Some(text) if whole => Answer::text(text),
            Some(text) => {
                Answer::unfinished(call.progress.redactor.head(text.as_bytes(), Answer::MAX_RESULT))
            }
            None => {
                let more = if whole { "" } else { "more than " };
                let bytes = body.len();
                Answer::Error(sentences::body_not_text(&self.name, kind, more, bytes))
            }
        })
    }

    /// The text for the model if the status is no success.
    async fn failure(&self, response: reqwest::Response, redactor: &Redactor) -> String {
        let status = response.status();
        let reason = status.canonical_reason().unwrap_or_default();
        let mut words = format!("`{}` failed with HTTP {} {reason}", self.name, status.as_u16());
        words.truncate(words.trim_end().len());
        if status.is_redirection() {
            words.push_str(", a redirect, which is not followed");
            return words;
        }
        // The body may repeat the configured headers, which are secrets.
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return words;
        }
        // If the body breaks off, the status still is the error.
        let body = http_client::body_up_to(response, SEEN).await.ok();
        if let Some((body, whole)) = body
            && let Some(text) = text(&body, whole)
        {
            let message = printable_lines(redactor.head(text.as_bytes(), MAX_ERROR).trim());
            if !message.is_empty() {
                let more = if body.len() <= MAX_ERROR { "" } else { "…" };
                words.push_str(&format!(": {message}{more}"));
            }
        }
        words
    }
}

/// Adds the arguments to the query: texts as they are, other scalars as JSON writes them, and what
/// has members or elements as JSON. An argument that is `null` has no value and is left out.
fn put_into_query(arguments: &RawValue, url: &mut Url) -> Called<()> {
    let members = Members::read(arguments.get()).map_err(|_not_an_object| {
        CallError::Refused("The arguments must be a JSON object.".to_owned())
    })?;
    let pairs: Vec<_> = members.0.iter().filter(|(_, value)| value.get() != "null").collect();
    if pairs.is_empty() {
        return Ok(());
    }
    let mut query = url.query_pairs_mut();
    for (name, value) in pairs {
        let text = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
        query.append_pair(name, &text);
    }
    Ok(())
}

/// The media type that the answer names, for an error.
fn media_type(headers: &HeaderMap) -> String {
    const LONGEST: usize = 100;
    let kind = http_client::media_type(headers);
    if kind.is_empty() {
        return "something of an unnamed type".to_owned();
    }
    kind.chars().take(LONGEST).collect()
}
