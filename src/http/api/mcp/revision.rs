//! The revisions of MCP that clients may speak, and what 2026-07-28 wants of each request. Pure.
//!
//! Must not: know a session.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, StatusCode};

use super::message::{Request, RpcError, codes};

/// The revision without sessions: each request says all that the server has to know.
pub(super) const STATELESS: &str = "2026-07-28";
/// The revisions with `initialize` and sessions, the newest first.
pub(super) const WITH_SESSIONS: [&str; 4] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The methods whose subject a header repeats, and the parameter that names it.
const NAMED: [(&str, &str); 3] =
    [("tools/call", "name"), ("resources/read", "uri"), ("prompts/get", "name")];

/// The revision that a client with sessions gets which asks for `wanted`.
pub(super) fn negotiated(wanted: Option<&str>) -> &'static str {
    let [newest, ..] = WITH_SESSIONS;
    WITH_SESSIONS.into_iter().find(|known| Some(*known) == wanted).unwrap_or(newest)
}

/// Set by `mantyx-bridge mcp`: the message came over stdio, where no headers repeat it.
pub const STDIO: &str = "x-bridge-stdio";

/// Whether a request is one of 2026-07-28; otherwise it belongs to a session.
///
/// # Errors
///
/// The request names a revision that the bridge does not speak, or two.
pub(super) fn is_stateless(request: &Request<'_>, headers: &HeaderMap) -> Result<bool, RpcError> {
    let stated = request.meta(VERSION).and_then(|it| serde_json::from_str::<String>(it.get()).ok());
    let header = match headers.contains_key(STDIO) {
        true => stated.as_deref(),
        false => text(headers, "mcp-protocol-version"),
    };
    let version = stated.as_deref().or(header);
    if let Some(version) = version
        && version != STATELESS
        && !WITH_SESSIONS.contains(&version)
    {
        return Err(unsupported(version));
    }
    match (header, stated.as_deref()) {
        (Some(STATELESS), Some(STATELESS)) => Ok(true),
        (Some(STATELESS), None) => Err(RpcError {
            status: StatusCode::BAD_REQUEST,
            ..RpcError::invalid_params(format!("`params._meta` must have `{VERSION}`."))
        }),
        (header, Some(STATELESS)) => Err(mismatch("MCP-Protocol-Version", header, STATELESS)),
        _ => Ok(false),
    }
}

/// Checks what 2026-07-28 requires of every request: its capabilities in the body, and headers that
/// repeat the body (Streamable HTTP: Server Validation).
pub(super) fn check(request: &Request<'_>, headers: &HeaderMap) -> Result<(), RpcError> {
    if request.meta(CAPABILITIES).is_none_or(|value| !value.get().starts_with('{')) {
        return Err(RpcError {
            status: StatusCode::BAD_REQUEST,
            ..RpcError::invalid_params(format!("`params._meta` must have `{CAPABILITIES}`."))
        });
    }
    if headers.contains_key(STDIO) {
        return Ok(());
    }
    let method = text(headers, "mcp-method");
    if method != Some(&request.method) {
        return Err(mismatch("Mcp-Method", method, &request.method));
    }
    let subject = NAMED.iter().find(|(method, _)| *method == request.method);
    if let Some(subject) = subject.and_then(|(_, key)| request.string(key)) {
        let name = text(headers, "mcp-name");
        if name.and_then(decoded).as_deref() != Some(&subject) {
            return Err(mismatch("Mcp-Name", name, &subject));
        }
    }
    Ok(())
}

/// Checks that the headers repeat the arguments that a tool's schema marks: `wanted` has their names
/// and values, and `Mcp-Param-` stands before each name.
pub(super) fn check_params(
    wanted: &[(String, String)],
    headers: &HeaderMap,
) -> Result<(), RpcError> {
    for (name, value) in wanted.iter().filter(|_| !headers.contains_key(STDIO)) {
        let header = text(headers, name);
        let same = |one: &str, other: &str| {
            one == other || one.parse::<f64>().ok().is_some_and(|it| other.parse() == Ok(it))
        };
        let both = header.and_then(decoded).zip(decoded(value));
        if !both.is_some_and(|(one, other)| same(&one, &other)) {
            return Err(mismatch(name, header, value));
        }
    }
    Ok(())
}

fn unsupported(version: &str) -> RpcError {
    let mut supported = vec![STATELESS];
    supported.extend(WITH_SESSIONS);
    let message = "Unsupported protocol version";
    RpcError {
        data: Some(serde_json::json!({ "supported": supported, "requested": version })),
        ..RpcError::new(StatusCode::BAD_REQUEST, codes::UNSUPPORTED_VERSION, message)
    }
}

fn mismatch(name: &str, header: Option<&str>, body: &str) -> RpcError {
    let why = match header {
        Some(header) => format!("the header {name} is `{header}`, and the body says `{body}`"),
        None => format!("the header {name} is missing, and the body says `{body}`"),
    };
    let message = format!("Header mismatch: {why}");
    RpcError::new(StatusCode::BAD_REQUEST, codes::HEADER_MISMATCH, message)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The value of a header that may be written in Base64 (Streamable HTTP: Value Encoding).
fn decoded(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(value.to_owned());
    };
    String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok()
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
        let meta =
            |more: &str| format!(r#"{{"name":"é","_meta":{{"{VERSION}":"2026-07-28"{more}}}}}"#);
        let whole = meta(&format!(r#","{CAPABILITIES}":{{}}"#));
        let version = ("mcp-protocol-version", STATELESS);
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", "=?base64?w6k=?=");
        for (params, pairs, is) in [
            (&*whole, &[version, method, name][..], "stateless"),
            ("{}", &[], "session"),
            ("{}", &[("mcp-protocol-version", "2025-06-18")], "session"),
            ("{}", &[("mcp-protocol-version", "1900-01-01")], "-32022"),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}"#, &[version], "-32022"),
            ("{}", &[version, method], "-32602"),
            (&*meta(""), &[version, method, name], "-32602"),
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
        let wanted = [("Mcp-Param-Region".to_owned(), "7".to_owned())];
        let check = |pairs: &[_]| check_params(&wanted, &headers(pairs)).is_ok();
        assert!(check(&[("mcp-param-region", "7")]));
        assert!(check(&[("mcp-param-region", "7.0")]), "integers are compared as numbers");
        assert!(check(&[("mcp-param-region", "=?base64?Nw==?=")]));
        assert!(!check(&[("mcp-param-region", "8")]));
        assert!(!check(&[]));
    }

    #[test]
    fn a_session_gets_the_revision_that_it_asks_for_or_the_newest() {
        assert_eq!(negotiated(Some("2025-06-18")), "2025-06-18");
        assert_eq!(negotiated(Some("2026-07-28")), "2025-11-25");
        assert_eq!(negotiated(None), "2025-11-25");
    }
}
