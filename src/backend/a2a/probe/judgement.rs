//! What a response to the question for a task that does not exist shows. Pure.
//!
//! Must not: word what an operator does about it.

use a2a::error_code;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use crate::backend::a2a::failure::{A2aFailure, A2aResult};
use crate::backend::a2a::wire;
use crate::http_client;
use crate::model::{Members, string_member};

/// What an agent's answers mean that do not take the question.
const NO_TASKS: &str = "it answers, and keeps no tasks";
const NOT_TAKEN: &str = "it answers, and takes no question for a task";

/// What is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Credential(StatusCode),
    /// The same, by an error of the protocol.
    CredentialCode(String),
    /// With the address where it leads to, as it may be shown.
    Redirect(StatusCode, Option<String>),
    /// With the agent's own words, if it has said so itself.
    Version(Option<String>),
    Extension(String),
    /// There is a server, and nothing at this path.
    NoPath(String),
    Other(String),
    /// A gateway says that the agent is away.
    Gone(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the agent, in this version.
    Answers,
    /// It is an agent that does not take the question, and may be of the other version; what that
    /// means if it is not.
    Unclear(&'static str),
    Fails(Trouble),
}

/// Of a response over JSON-RPC. An error counts whatever the HTTP status is.
pub(super) fn of_json_rpc(status: StatusCode, headers: &HeaderMap, body: &str) -> Verdict {
    let Ok(members) = Members::read(body) else { return foreign(status, headers, body) };
    if let Some(error) = members.object("error")
        && let Some(code) = code(&error)
        && (members.get("jsonrpc").is_some() || code <= error_code::TASK_NOT_FOUND.into())
    {
        return of_error(code, words(&error));
    }
    if status.is_success() && members.get("result").is_some() {
        return Verdict::Answers;
    }
    // Frameworks answer so that take messages alone at this path (agno).
    if matches!(status.as_u16(), 400 | 422) && members.get("detail").is_some() {
        return Verdict::Unclear(NOT_TAKEN);
    }
    foreign(status, headers, body)
}

/// Of a response over HTTP+JSON. A bare 404 is what any web server gives, so an error has to look
/// like one of A2A: a status of Google's RPC (1.0), a code of JSON-RPC, or a message about a task.
pub(super) fn of_http_json(status: StatusCode, headers: &HeaderMap, body: &str) -> Verdict {
    let Ok(members) = Members::read(body) else { return foreign(status, headers, body) };
    if status.is_success() {
        return Verdict::Answers;
    }
    if let Some(error) = members.object("error") {
        let reasons = error.array("details").unwrap_or_default();
        let reasons = reasons.iter().filter_map(|detail| string_member(detail.get(), "reason"));
        let codes = reasons.filter_map(|reason| a2a::reason_to_error_code(&reason));
        if let Some(code) = codes.map(i64::from).next() {
            return of_error(code, words(&error));
        }
        match error.string("status").as_deref() {
            Some("UNIMPLEMENTED") => return Verdict::Unclear(NO_TASKS),
            Some("UNAUTHENTICATED" | "PERMISSION_DENIED") => {
                return Verdict::Fails(Trouble::CredentialCode(words(&error)));
            }
            Some(_) if status != StatusCode::NOT_FOUND || speaks_of_task(&error) => {
                return Verdict::Answers;
            }
            _ => {}
        }
    }
    match code(&members) {
        Some(code) if code <= error_code::TASK_NOT_FOUND.into() => of_error(code, words(&members)),
        _ if speaks_of_task(&members) => Verdict::Answers,
        _ if matches!(status.as_u16(), 400 | 409 | 422) => Verdict::Answers,
        _ => foreign(status, headers, body),
    }
}

/// Of the first event of a streamed response; `None` if it ends without one.
pub(super) fn of_event(outcome: A2aResult<Option<Box<RawValue>>>) -> Verdict {
    match outcome {
        Ok(Some(_)) => Verdict::Answers,
        Ok(None) => {
            Verdict::Fails(Trouble::Other("answers with an event stream without an event".into()))
        }
        Err(A2aFailure::Refused { code: Some(code), text, .. }) => of_error(code, text),
        Err(A2aFailure::Refused { code: None, status, text, .. }) => match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Verdict::Fails(Trouble::CredentialCode(text))
            }
            _ => Verdict::Answers,
        },
        Err(failure @ A2aFailure::Call(_)) => Verdict::Fails(failure.into()),
    }
}

/// Of the outcome of a gRPC call.
pub(super) fn of_grpc(outcome: A2aResult) -> Verdict {
    let failure = match outcome {
        Ok(_task) => return Verdict::Answers,
        Err(failure) => failure,
    };
    let A2aFailure::Refused { code, status, text, .. } = &failure else {
        return Verdict::Fails(failure.into());
    };
    match code.and_then(|code| i32::try_from(code).ok()) {
        Some(error_code::VERSION_NOT_SUPPORTED) => {
            Verdict::Fails(Trouble::Version(Some(text.clone())))
        }
        Some(error_code::EXTENSION_SUPPORT_REQUIRED) => {
            Verdict::Fails(Trouble::Extension(text.clone()))
        }
        // The code of a server is made from A2A's definition, so a method that it lacks means
        // another service, unless it says that this one method is not there.
        Some(error_code::METHOD_NOT_FOUND) if !text.contains("not implemented") => {
            Verdict::Fails(Trouble::NoPath(format!("has no service of A2A 1.x ({text})")))
        }
        Some(error_code::METHOD_NOT_FOUND) => Verdict::Unclear(NO_TASKS),
        None if matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Verdict::Fails(Trouble::CredentialCode(text.clone()))
        }
        _ => Verdict::Answers,
    }
}

/// Of an error of the protocol, with the agent's own words.
fn of_error(code: i64, words: String) -> Verdict {
    match i32::try_from(code).unwrap_or(0) {
        error_code::VERSION_NOT_SUPPORTED => Verdict::Fails(Trouble::Version(Some(words))),
        error_code::EXTENSION_SUPPORT_REQUIRED => Verdict::Fails(Trouble::Extension(words)),
        401 | 403 => Verdict::Fails(Trouble::CredentialCode(words)),
        // a2a-sdk 0.2 says of an unknown method that the request is not valid.
        error_code::INVALID_REQUEST | error_code::INVALID_PARAMS => Verdict::Unclear(NOT_TAKEN),
        error_code::METHOD_NOT_FOUND => Verdict::Unclear(NO_TASKS),
        _ => Verdict::Answers,
    }
}

fn code(error: &Members<'_>) -> Option<i64> {
    error.get("code").map(RawValue::get).and_then(|code| code.parse().ok())
}

fn words(error: &Members<'_>) -> String {
    wire::cut(&error.string("message").unwrap_or_else(|| "without a message".to_owned()))
}

/// Whether the message is about a task, as the older SDKs write it without a code.
fn speaks_of_task(error: &Members<'_>) -> bool {
    let message = error.string("message").or_else(|| error.string("detail"));
    message.is_some_and(|message| message.to_ascii_lowercase().contains("task"))
}

/// Of what is no A2A.
fn foreign(status: StatusCode, headers: &HeaderMap, body: &str) -> Verdict {
    let what = description(status, headers, body);
    Verdict::Fails(match status.as_u16() {
        404 | 405 | 410 | 501 => Trouble::NoPath(what),
        502..=504 => Trouble::Gone(what),
        _ => Trouble::Other(what),
    })
}

/// What the response is, in words that follow the endpoint.
pub(super) fn description(status: StatusCode, headers: &HeaderMap, body: &str) -> String {
    let code = status.as_u16();
    let is_page = http_client::media_type(headers).eq_ignore_ascii_case("text/html")
        || body.trim_start().starts_with('<');
    match code {
        404 | 410 => format!("has nothing at this path (HTTP {code})"),
        405 => "takes no request of A2A at this path (HTTP 405)".to_owned(),
        429 => "takes no requests at the moment (HTTP 429)".to_owned(),
        502..=504 => format!("HTTP {code}"),
        _ if is_page => {
            format!("answers with a web page, as a login or a proxy does (HTTP {code})")
        }
        _ => format!("answers HTTP {code}, and not as A2A"),
    }
}

#[cfg(test)]
mod tests;
