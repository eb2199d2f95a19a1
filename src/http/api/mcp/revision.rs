//! The revisions of MCP that clients may speak, and what 2026-07-28 wants of each request. Pure.
//!
//! Must not: know a session.

use http::{HeaderMap, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;

use super::message::{Replied, Request, RpcError};
use crate::model::ParamHeaders;
use crate::model::mcp::method::{CALL_TOOL, INITIALIZE};
use crate::model::mcp::revision::{NEWEST_WITH_SESSIONS, STATELESS};
use crate::model::mcp::{error_code, header, meta};
use crate::model::param_headers::decoded;

/// All revisions, the newest first.
pub(super) const SUPPORTED: [&str; 5] =
    [STATELESS, NEWEST_WITH_SESSIONS, "2025-06-18", "2025-03-26", "2024-11-05"];

/// The methods whose subject a header repeats, and the parameter that names it.
const NAMED: [(&str, &str); 3] =
    [(CALL_TOOL, "name"), ("resources/read", "uri"), ("prompts/get", "name")];

/// The revision that a client with sessions gets which asks for `requested`.
pub(super) fn negotiated(requested: Option<&str>) -> &'static str {
    SUPPORTED
        .into_iter()
        .find(|revision| Some(*revision) == requested && *revision != STATELESS)
        .unwrap_or(NEWEST_WITH_SESSIONS)
}

/// Set by `mantyx-bridge mcp`: the message came over stdio, where no headers repeat it.
pub const STDIO: &str = "x-bridge-stdio";

/// Whether a request begins a session. A client that has looked at `server/discover` may still
/// choose a revision with sessions, and may name that one in `_meta`, too.
pub(super) fn begins_session(request: &Request<'_>) -> bool {
    request.method == INITIALIZE && !names_stateless(request)
}

/// Whether the body of a request names 2026-07-28.
pub fn names_stateless(request: &Request<'_>) -> bool {
    let version =
        request.meta(meta::REVISION).map(|json| serde_json::from_str::<String>(json.get()));
    version.is_some_and(|version| version.is_ok_and(|version| version == STATELESS))
}

/// Whether a request is one of 2026-07-28; otherwise it belongs to a session.
///
/// # Errors
///
/// The request names a revision that the bridge does not speak, or two.
pub(super) fn is_stateless(request: &Request<'_>, headers: &HeaderMap) -> Replied<bool> {
    let in_meta = request
        .meta(meta::REVISION)
        .and_then(|json| serde_json::from_str::<String>(json.get()).ok());
    let in_header = if headers.contains_key(STDIO) {
        in_meta.as_deref()
    } else {
        text(headers, header::REVISION)
    };
    match (in_header, in_meta.as_deref()) {
        (Some(header), Some(meta)) if header != meta => {
            Err(mismatch("MCP-Protocol-Version", Some(header), meta))
        }
        (Some(version), _) | (None, Some(version)) if !SUPPORTED.contains(&version) => {
            let message = "Unsupported protocol version";
            Err(RpcError {
                data: Some(json!({ "supported": SUPPORTED, "requested": version }).to_string()),
                ..RpcError::new(StatusCode::BAD_REQUEST, error_code::UNSUPPORTED_REVISION, message)
            })
        }
        (Some(STATELESS), None) => Err(lacks(meta::REVISION)),
        (None, Some(STATELESS)) => Err(mismatch("MCP-Protocol-Version", None, STATELESS)),
        (header, _) => Ok(header == Some(STATELESS)),
    }
}

/// Checks what 2026-07-28 requires of every request: its capabilities in the body, and headers that
/// repeat the body (Streamable HTTP: Server Validation).
pub(super) fn check(request: &Request<'_>, headers: &HeaderMap) -> Replied<()> {
    if request.meta(meta::CLIENT_CAPABILITIES).is_none_or(|value| !value.get().starts_with('{')) {
        return Err(lacks(meta::CLIENT_CAPABILITIES));
    }
    if headers.contains_key(STDIO) {
        return Ok(());
    }
    let method = text(headers, header::METHOD);
    if method != Some(&request.method) {
        return Err(mismatch("Mcp-Method", method, &request.method));
    }
    let subject = NAMED.iter().find(|(method, _)| *method == request.method);
    if let Some(subject) = subject.and_then(|(_, key)| request.string(key)) {
        let name = text(headers, header::NAME);
        if name.and_then(decoded).as_deref() != Some(&subject) {
            return Err(mismatch("Mcp-Name", name, &subject));
        }
    }
    Ok(())
}

/// Checks that the headers repeat the `arguments` that the schema of a tool marks.
pub(super) fn check_params(
    marked: &ParamHeaders,
    arguments: &RawValue,
    headers: &HeaderMap,
) -> Replied<()> {
    if headers.contains_key(STDIO) {
        return Ok(());
    }
    match marked.mismatch(arguments, |name| single_value(headers, name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("Header mismatch: {name} does not repeat its argument");
            Err(RpcError::new(StatusCode::BAD_REQUEST, error_code::HEADER_MISMATCH, message))
        }
    }
}

/// The decoded value of the header `name`. One that comes twice is a text that equals no argument:
/// an intermediary may have decided by one of them, and the server by the other.
fn single_value(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok().and_then(decoded);
    value.filter(|_| values.next().is_none()).or(Some("\0".to_owned()))
}

/// The error for a request without this member of `_meta`.
fn lacks(member: &str) -> RpcError {
    let message = format!("`params._meta` must have `{member}`.");
    RpcError::new(StatusCode::BAD_REQUEST, error_code::INVALID_PARAMS, message)
}

fn mismatch(name: &str, header: Option<&str>, body: &str) -> RpcError {
    let why = match header {
        Some(header) => format!("the header {name} is `{header}`, and the body says `{body}`"),
        None => format!("the header {name} is missing, and the body says `{body}`"),
    };
    let message = format!("Header mismatch: {why}");
    RpcError::new(StatusCode::BAD_REQUEST, error_code::HEADER_MISMATCH, message)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    //! Which revision a request is of, and which headers it needs.

    use super::*;
    use crate::http::api::mcp::message::Message;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn verdict(params: &str, pairs: &[(&'static str, &str)]) -> String {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let Ok(Message::Request(request)) = Message::read(&text) else { panic!("{text}") };
        let headers = headers(pairs);
        match is_stateless(&request, &headers) {
            Ok(true) => match check(&request, &headers) {
                Ok(()) => "stateless".to_owned(),
                Err(error) => error.code.to_string(),
            },
            Ok(false) => "session".to_owned(),
            Err(error) => error.code.to_string(),
        }
    }

    #[test]
    fn a_request_says_which_revision_it_is_of() {
        let params = |more: &str| {
            format!(r#"{{"name":"é","_meta":{{"{}":"2026-07-28"{more}}}}}"#, meta::REVISION)
        };
        let whole = params(&format!(r#","{}":{{}}"#, meta::CLIENT_CAPABILITIES));
        let version = ("mcp-protocol-version", STATELESS);
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", "=?base64?w6k=?=");
        for (params, pairs, is) in [
            (&*whole, &[version, method, name][..], "stateless"),
            ("{}", &[], "session"),
            ("{}", &[("mcp-protocol-version", "2025-06-18")], "session"),
            ("{}", &[("mcp-protocol-version", "1900-01-01")], "-32022"),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}"#, &[version], "-32020"),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}"#, &[], "-32022"),
            ("{}", &[version, method], "-32602"),
            (&*params(""), &[version, method, name], "-32602"),
            (&*whole, &[method, name], "-32020"),
            (&*whole, &[("mcp-protocol-version", "2025-06-18"), method, name], "-32020"),
            (&*whole, &[version, name], "-32020"),
            (&*whole, &[version, method], "-32020"),
            (&*whole, &[version, method, ("mcp-name", "e")], "-32020"),
            (&*whole, &[version, method, ("mcp-name", "=?base64?!?=")], "-32020"),
        ] {
            assert_eq!(verdict(params, pairs), is, "{params} {pairs:?}");
        }
    }

    #[test]
    fn headers_repeat_the_marked_arguments() {
        let tool = r#"{"inputSchema":{"type":"object","properties":{
            "n":{"type":"integer","x-mcp-header":"N"},"s":{"type":"string","x-mcp-header":"S"}}}}"#;
        let marked = ParamHeaders::read(tool).unwrap();
        let check = |arguments: &str, pairs: &[_]| {
            let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
            check_params(&marked, &arguments, &headers(pairs)).is_ok()
        };
        let (n, s) = (|value| ("mcp-param-n", value), |value| ("mcp-param-s", value));
        assert!(check("{}", &[]));
        assert!(check(r#"{"n":7,"s":"007"}"#, &[n("7.0"), s("007")]), "numbers are compared so");
        assert!(check(r#"{"n":7}"#, &[n("=?base64?Nw==?=")]));
        assert!(check(r#"{"n":null}"#, &[]));
        for (arguments, pairs) in [
            (r#"{"n":7}"#, &[n("8")][..]),
            (r#"{"n":7}"#, &[]),
            (r#"{"s":"007"}"#, &[s("7")]),
            (r#"{"s":"10"}"#, &[s("1e1")]),
            (r#"{"n":9007199254740991}"#, &[n("9007199254740990")]),
            ("{}", &[s("evil")]),
            (r#"{"n":null}"#, &[n("null")]),
            (r#"{"s":"a"}"#, &[s("=?base64?!?=")]),
        ] {
            assert!(!check(arguments, pairs), "{arguments} {pairs:?}");
        }
        let mut twice = headers(&[s("a")]);
        twice.append("mcp-param-s", "b".parse().unwrap());
        let arguments = RawValue::from_string(r#"{"s":"a"}"#.to_owned()).unwrap();
        assert!(check_params(&marked, &arguments, &twice).is_err());
    }

    #[test]
    fn a_session_gets_the_revision_that_it_asks_for_or_the_newest() {
        assert_eq!(negotiated(Some("2025-06-18")), "2025-06-18");
        assert_eq!(negotiated(Some("2026-07-28")), "2025-11-25");
        assert_eq!(negotiated(None), "2025-11-25");
    }
}
