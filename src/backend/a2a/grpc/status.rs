//! The outcome of a gRPC call, from its trailers.
//!
//! Must not: decide what a failure means for the call.

use a2a::error_code;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::percent_decode;
use prost::Message as _;

use crate::backend::a2a::failure::{A2aFailure, A2aResult};
use crate::backend::a2a::wire;

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";

const UNAUTHENTICATED: usize = 16;

/// The statuses by number, one a line: their name, and the HTTP status for them.
const CODES: &str = include_str!("status/codes.txt");

/// `google.rpc.Status`, without the fields that the trailers have themselves.
#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: bytes::Bytes,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
}

/// Whether the call was refused for its credential.
pub(super) fn is_unauthenticated(headers: &HeaderMap) -> bool {
    headers.get(STATUS).is_some_and(|value| number(value) == UNAUTHENTICATED)
}

/// The outcome of the call; `None` if these trailers have none.
pub(super) fn read(trailers: &HeaderMap) -> Option<A2aResult<()>> {
    let number = number(trailers.get(STATUS)?);
    if number == 0 {
        return Some(Ok(()));
    }
    let code = CODES.lines().nth(number).and_then(|line| line.split_once(' '));
    let (name, status) = code.unwrap_or(("UNKNOWN", "500"));
    let status = status.parse().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = trailers.get(MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
    let message = percent_decode(message).decode_utf8_lossy();
    let reason = trailers.get(DETAILS).and_then(reason);
    let text = match reason {
        Some(code) => format!("A2A error {code}: {message}"),
        None if message.is_empty() => format!("gRPC status {name}"),
        None => format!("gRPC status {name}: {message}"),
    };
    let text = wire::cut(&text);
    // A proxy answers so when it has lost the agent, or given up waiting for it, as with HTTP's 502
    // and 504. UNKNOWN and INTERNAL are errors of the agent itself, as 500 is.
    if reason.is_none() && matches!(name, "CANCELLED" | "DEADLINE_EXCEEDED" | "UNAVAILABLE") {
        return Some(Err(A2aFailure::lost(text)));
    }
    let code = reason.or(match name {
        "NOT_FOUND" => Some(error_code::TASK_NOT_FOUND),
        "INVALID_ARGUMENT" => Some(error_code::INVALID_PARAMS),
        "UNIMPLEMENTED" => Some(error_code::METHOD_NOT_FOUND),
        _ => None,
    });
    Some(Err(A2aFailure::Refused { code: code.map(i64::from), status, text, pause: None }))
}

/// Anything but a number counts as an unknown status, so never as a success.
fn number(value: &HeaderValue) -> usize {
    value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
}

/// The JSON-RPC code for the reason in the details: several errors share one status.
fn reason(details: &HeaderValue) -> Option<i32> {
    // Some servers leave the padding out.
    let details = STANDARD_PAD_INDIFFERENT.decode(details.as_bytes()).ok()?;
    let details = Status::decode(details.as_slice()).ok()?.details;
    let infos = details.into_iter().filter(|any| any.type_url.ends_with("/google.rpc.ErrorInfo"));
    let reasons = infos.filter_map(|any| ErrorInfo::decode(any.value).ok());
    reasons.filter_map(|info| a2a::reason_to_error_code(&info.reason)).next()
}

#[cfg(test)]
mod tests;
