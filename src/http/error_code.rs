//! The codes of the bridge's own errors. Programs depend on them, so a code never changes.
//! docs/errors.md explains each code and what to do.
//!
//! Must not: have a code that no answer uses.

use std::fmt;

use http::StatusCode;

macro_rules! codes {
    ($($name:ident = $code:literal, $status:ident;)*) => {
        /// The kind of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $code] $name,)*
        }

        impl Code {
            /// All codes.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

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
            Self::BackendUnavailable | Self::NotReady => {
                "`mantyx-bridge status` says what is missing."
            }
            Self::Busy | Self::TooManyFailures | Self::TooManyRequests => {
                "Wait as long as Retry-After says, then send the request again."
            }
            Self::HostRefused => "Use an address of the bridge, or name the host in listen.hosts.",
            Self::Unauthorized => {
                "`mantyx-bridge token` prints the token of the bridge; it is not MANTYX's API key."
            }
            Self::UnsupportedEncoding => {
                "Send the body without Content-Encoding, or with X-Bridge-Backends: none."
            }
            Self::UpstreamBroken => "Check whether the run exists before you send it again.",
            Self::UpstreamUnauthorized => {
                "Correct upstream.credential or upstream.oauth in bridge.yaml."
            }
            Self::UpstreamUnreachable => "`mantyx-bridge doctor` says what is wrong.",
            _ => "docs/errors.md of mantyx-bridge says what to do.",
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

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    //! docs/errors.md has every code, and no other.

    use std::collections::BTreeSet;

    use super::*;
    use crate::model::answer::codes;

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

    #[test]
    fn the_page_explains_what_models_read() {
        assert_eq!(explained("For models"), BTreeSet::from(codes::ALL));
    }
}
