//! The codes of the bridge's own errors. Programs depend on them, so a code never changes.
//! docs/errors.md explains each code and what to do.
//!
//! Must not: have a code that no answer uses.

use http::StatusCode;

use crate::model::words::words;

macro_rules! codes {
    ($($name:ident = $code:literal, $status:ident;)*) => {
        words! {
            /// The kind of an error.
            pub enum Code {
                $(#[doc = $code] $name = $code,)*
            }
        }

        impl Code {
            /// The status that an answer with this code mostly has.
            pub fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }
        }
    };
}

impl Code {
    /// What to do, for errors below `/api/`. A client of MANTYX shows this text to people who need
    /// not know that there is a bridge.
    pub fn hint(self) -> &'static str {
        match self {
            Self::BackendUnavailable => "`mantyx-bridge status` says why it is down.",
            Self::BodyTooLarge => "Send less.",
            Self::BodyTooSlow => "Send the body without pauses.",
            Self::Busy
            | Self::TooManyConnections
            | Self::TooManyFailures
            | Self::TooManyRequests => "Send it again after as long as Retry-After says.",
            Self::HostRefused => "Use an address of the bridge, or name the host in listen.hosts.",
            Self::Internal | Self::UpstreamBroken => {
                "Check whether the run exists before you send it again."
            }
            Self::MethodNotAllowed => "Use a method that `Allow` lists.",
            Self::NotReady => "Send it again later; `mantyx-bridge status` says what is wrong.",
            Self::OriginRefused => "Use the bridge from programs, or from its own page.",
            Self::StreamRefused => "The run may be gone; the status is MANTYX's.",
            Self::Unauthorized => "Show what `mantyx-bridge token` prints, not MANTYX's API key.",
            Self::UnknownBackend => "Name one of `candidates`, or see the app's `backends`.",
            Self::UnsupportedEncoding => "Send it uncompressed, or with X-Bridge-Backends: none.",
            Self::UnsupportedMediaType => "Send it with Content-Type: application/json.",
            Self::UpstreamUnauthorized => "Correct upstream.credential or upstream.oauth.",
            Self::UpstreamUnreachable => "`mantyx-bridge doctor` says what is wrong.",
            Self::AlreadyDecided
            | Self::CatalogChanged
            | Self::DrivenAlready
            | Self::IdempotencyKeyReused
            | Self::InvalidRequest
            | Self::NoWorkspace
            | Self::LoginEnded
            | Self::LoginFailed
            | Self::NotFound
            | Self::OperatorOnly
            | Self::UnknownToolUse
            | Self::UpstreamRefused => "docs/errors.md of mantyx-bridge says what to do.",
        }
    }

    /// Whether MANTYX itself answers with this code, so that the error keeps MANTYX's own form.
    pub fn is_mantyxs(self) -> bool {
        matches!(self, Self::InvalidRequest | Self::NotFound | Self::UnknownToolUse)
    }
}

codes! {
    AlreadyDecided = "already_decided", CONFLICT;
    BackendUnavailable = "backend_unavailable", SERVICE_UNAVAILABLE;
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT;
    Busy = "busy", SERVICE_UNAVAILABLE;
    CatalogChanged = "catalog_changed", CONFLICT;
    DrivenAlready = "driven_already", CONFLICT;
    HostRefused = "host_refused", FORBIDDEN;
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY;
    Internal = "internal", INTERNAL_SERVER_ERROR;
    InvalidRequest = "invalid_request", BAD_REQUEST;
    LoginEnded = "login_ended", BAD_REQUEST;
    LoginFailed = "login_failed", BAD_GATEWAY;
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    NoWorkspace = "no_workspace", CONFLICT;
    NotFound = "not_found", NOT_FOUND;
    NotReady = "not_ready", SERVICE_UNAVAILABLE;
    OperatorOnly = "operator_only", FORBIDDEN;
    OriginRefused = "origin_refused", FORBIDDEN;
    StreamRefused = "stream_refused", BAD_GATEWAY;
    TooManyConnections = "too_many_connections", SERVICE_UNAVAILABLE;
    TooManyFailures = "too_many_failures", TOO_MANY_REQUESTS;
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS;
    Unauthorized = "unauthorized", UNAUTHORIZED;
    UnknownBackend = "unknown_backend", BAD_REQUEST;
    UnknownToolUse = "unknown_tool_use", NOT_FOUND;
    UnsupportedEncoding = "unsupported_encoding", UNSUPPORTED_MEDIA_TYPE;
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    UpstreamBroken = "upstream_broken", BAD_GATEWAY;
    UpstreamRefused = "upstream_refused", BAD_GATEWAY;
    UpstreamUnauthorized = "upstream_unauthorized", BAD_GATEWAY;
    UpstreamUnreachable = "upstream_unreachable", BAD_GATEWAY;
}

#[cfg(test)]
mod tests {
    //! docs/errors.md has every code, and no other.

    use std::collections::BTreeSet;

    use super::*;
    use crate::model::answer::codes;
    use crate::model::words::Words as _;

    const PAGE: &str = include_str!("../../docs/errors.md");

    /// The codes that the tables below this heading explain.
    fn explained(heading: &str) -> BTreeSet<&'static str> {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| row.split('`').next().unwrap()).collect()
    }

    #[test]
    fn the_page_explains_every_code() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(explained("For apps"), codes);
    }

    /// The rest are errors of the bridge's own routes, or in MANTYX's own form.
    #[test]
    fn errors_below_api_say_what_to_do() {
        let silent: Vec<&str> = Code::ALL
            .iter()
            .filter(|code| !code.is_mantyxs() && code.hint().contains("docs/errors.md"))
            .map(|code| code.as_str())
            .collect();
        let own = [
            "already_decided",
            "catalog_changed",
            "driven_already",
            "idempotency_key_reused",
            "login_ended",
            "login_failed",
            "no_workspace",
            "operator_only",
            "upstream_refused",
        ];
        assert_eq!(silent, own);
    }

    #[test]
    fn the_page_explains_what_models_read() {
        assert_eq!(explained("For models"), BTreeSet::from(codes::ALL));
    }
}
