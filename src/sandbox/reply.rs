//! Responses: JSON, and refusals in the protocol's error shape (agent-runs-protocol §10).
//!
//! Must not: know a route.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Invalid;

/// The body of every response, a stream or not.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a handler gives back.
pub(super) type Reply = Result<Response<Body>, Refusal>;

/// An answer other than 2xx.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// It has `error`, and may have `message`, `code` and `hint`.
    pub(super) body: Value,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        let mut refusal = Self::only(status, error);
        refusal.body["message"] = message.into().into();
        refusal
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// A body with `error` alone, for the few errors that the protocol's document shows so.
    pub(super) fn only(status: StatusCode, error: &'static str) -> Self {
        Self { status, body: json!({ "error": error }) }
    }

    /// The sandbox is full: the same error as from MANTYX's rate limiter.
    pub(super) fn full(message: impl Into<String>) -> Self {
        let mut refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        refusal.body["code"] = "rate_limit_exceeded".into();
        refusal
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = json(self.status, &self.body);
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", invalid)
    }
}

/// A response with a JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string(body).expect("our own types have string keys");
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(Full::from(text).boxed_unsync())
        .expect("the header is valid")
}

/// The snapshot of a run or a session, with its spec as it was sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot<'a> {
    pub(super) agent_spec: &'a RawValue,
    #[serde(flatten)]
    pub(super) rest: Value,
}
