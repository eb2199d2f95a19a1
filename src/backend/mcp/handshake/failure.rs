//! Why a handshake failed: its words, its kind, and whether another proposal may succeed.
//!
//! Must not: decide what is tried next.

use ::http::StatusCode;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};

use crate::backend::mcp::http::HttpFailure;
use crate::backend::mcp::rpc::{Rpc, error_data, error_of};
use crate::backend::mcp::transport::SendFailure;
use crate::backend::{PeerError, PeerErrorKind};
use crate::model::member;

/// What to do about a peer that repeats what it gets, as `cat` and terminals do.
const ECHO_CURE: &str = "name the MCP server itself in the entry: what runs there repeats each message, as \
     `cat` does, or a terminal (then leave out `-t`, or `script`)";
/// What to do about an answer to `initialize` that says no revision.
const NO_REVISION_CURE: &str = "update the server, or tell its author: `protocolVersion` has to be a text \
     such as \"2025-11-25\", in quotation marks";

/// A failed handshake.
#[derive(Debug)]
pub(in crate::backend::mcp) enum Failure {
    /// The server refused a message with a JSON-RPC error.
    Refused(ErrorData),
    /// A message could not be carried; with the body of the HTTP refusal, if there was one.
    Transport(SendFailure, Option<String>),
    /// The server ended the connection.
    Closed,
    /// The server answered with something else than a handshake.
    NoHandshake,
    /// The server has read what it was sent, and says nothing.
    Silent,
    /// The server has sent back a request of the bridge.
    Echo,
    /// The answer to `initialize` does not say a revision.
    NoRevision,
}

impl Failure {
    /// A `failure` of the transport. The JSON-RPC error in the body of an HTTP refusal says more
    /// than the status.
    pub(super) fn transport(failure: SendFailure, rpc: &Rpc) -> Self {
        let body = rpc.take_refusal();
        let error = body
            .as_deref()
            .and_then(|body| member(body, "error"))
            .filter(|error| member(error.get(), "code").is_some());
        match (failure, error) {
            (SendFailure::Cut, _) => Self::Closed,
            (SendFailure::Http(HttpFailure::Status(status)), Some(error))
                if is_of_proposal(status) =>
            {
                Self::Refused(error_data(error_of(error)))
            }
            (failure, _) => Self::Transport(failure, body),
        }
    }

    /// The failure of the HTTP transport, if that is what failed.
    pub(in crate::backend::mcp) fn http(&self) -> Option<&HttpFailure> {
        match self {
            Self::Transport(SendFailure::Http(failure), _) => Some(failure),
            _ => None,
        }
    }

    /// The status with which an HTTP server has refused a message without a JSON-RPC error.
    pub(in crate::backend::mcp) fn status(&self) -> Option<StatusCode> {
        self.http().and_then(status)
    }

    /// Whether the connection is at an end. A server that refuses a message still reads the next.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Transport(..))
    }

    /// Whether no other message to this process is of use.
    pub(super) fn ends_handshake(&self) -> bool {
        self.is_end() || matches!(self, Self::Echo)
    }

    /// Whether the server asks for the revision that it was asked in.
    pub(super) fn wants_repeat(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        let named = error.data.as_ref().and_then(|data| data.get("supported"));
        error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            && named.is_some_and(|it| it.to_string().contains(ProtocolVersion::LATEST.as_str()))
    }

    /// What the server has said against a proposal; empty if it gave no reason, and `None` if no
    /// other proposal would be of use.
    pub(in crate::backend::mcp) fn refusal(&self) -> Option<String> {
        match self {
            // Without the method, no parameters of it help.
            Self::Refused(error) if error.code == ErrorCode::METHOD_NOT_FOUND => None,
            Self::Refused(error) => {
                let data = error.data.as_ref().map(ToString::to_string).unwrap_or_default();
                Some(format!("{} {data}", error.message))
            }
            Self::Transport(_, body) => {
                self.status().filter(|status| is_of_proposal(*status))?;
                Some(body.clone().unwrap_or_default())
            }
            Self::Closed | Self::NoHandshake | Self::Silent | Self::Echo | Self::NoRevision => None,
        }
    }

    /// The reason, for operators.
    pub(in crate::backend::mcp) fn describe(&self, rpc: &Rpc) -> String {
        match self {
            Self::Transport(failure, _) => failure.words(),
            Self::Closed => {
                let why = rpc.why_lost();
                why.unwrap_or_else(|| "the connection ended during the handshake".to_owned())
            }
            Self::NoHandshake => {
                "it does not answer the handshake as an MCP server would".to_owned()
            }
            Self::Refused(error) => {
                let ErrorData { message, code, .. } = error;
                format!("it refuses the handshake: {message} (JSON-RPC error {})", code.0)
            }
            Self::Silent => "it has read the handshake and does not answer".to_owned(),
            Self::Echo => "it sends back what it gets, so it is no MCP server".to_owned(),
            Self::NoRevision => {
                "its answer to `initialize` has no `protocolVersion` that is a text".to_owned()
            }
        }
    }

    pub(in crate::backend::mcp) fn error(&self, rpc: &Rpc) -> PeerError {
        let kind = match (self.http(), self) {
            (Some(failure), _) => failure.kind(),
            (None, Self::Transport(..) | Self::Closed) => PeerErrorKind::Connect,
            (None, _) => PeerErrorKind::Protocol,
        };
        let cure = match self {
            Self::Echo => Some(ECHO_CURE.into()),
            Self::NoRevision => Some(NO_REVISION_CURE.into()),
            _ => self.http().and_then(HttpFailure::cure),
        };
        PeerError::new(kind, self.describe(rpc)).with_cure(cure)
    }
}

fn status(failure: &HttpFailure) -> Option<StatusCode> {
    match failure {
        HttpFailure::Status(status) => Some(*status),
        _ => None,
    }
}

/// Whether a server may answer a proposal that it does not like with this status. Others are about
/// the place, the credential or the load.
fn is_of_proposal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::INTERNAL_SERVER_ERROR
    )
}
