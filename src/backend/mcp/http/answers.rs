//! What is said of an HTTP answer that carries no JSON-RPC message, and what to do about it.
//!
//! Must not: show a body. Servers repeat the headers that they refuse, and those are secrets.

use http::StatusCode;

/// What to do about a web page in the place of a message.
pub(super) const PAGE_CURE: &str = "see in a browser what this `url` shows: it may be a login page \
     before the server (set `auth` or `headers`), or need the path of the MCP endpoint (often /mcp)";

/// What to do about a body in an encoding that was not asked for.
pub(super) const ENCODING_CURE: &str = "the bridge asks for none (`Accept-Encoding: identity`): the server, \
     or the gateway before it, compresses its answers nevertheless; switch that off there for this `url`";

/// What a status means.
pub(super) fn hint(status: StatusCode) -> &'static str {
    match status {
        // The cure says which: a login, or a credential in the configuration.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ": the server wants another authorization"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            ": there is no MCP server at this `url`"
        }
        StatusCode::MISDIRECTED_REQUEST => {
            ": the server goes by another name; set `headers: {Host: NAME}` in the configuration"
        }
        _ => "",
    }
}

/// What to do about a status; `None` where the generic cure is the right one.
pub(super) fn cure(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => {
            "correct the path of `url`: the MCP endpoint is often at /mcp or /sse; leave `transport` \
             out, so that both are tried"
        }
        StatusCode::MISDIRECTED_REQUEST => "set `headers: {Host: NAME}`",
        StatusCode::TOO_MANY_REQUESTS => {
            "wait: the server limits requests; raise `refresh` of this entry if this comes again"
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            "give the proxy's user and password in HTTPS_PROXY of the daemon's environment"
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            "see whether the server behind this gateway runs"
        }
        status if status.is_server_error() => "read the server's own log: it failed by itself",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    //! Whether statuses have a cure that fits.

    use super::*;

    #[test]
    fn each_status_has_the_cure_of_its_cause() {
        let cases = [
            (404, "path of `url`"),
            (405, "path of `url`"),
            (429, "wait"),
            (407, "HTTPS_PROXY"),
            (421, "Host"),
            (500, "own log"),
            (502, "gateway"),
            (503, "gateway"),
        ];
        for (status, part) in cases {
            let cure = cure(StatusCode::from_u16(status).unwrap()).unwrap_or_default();
            assert!(cure.contains(part), "{status}: {cure}");
        }
        assert_eq!(cure(StatusCode::BAD_REQUEST), None);
    }
}
