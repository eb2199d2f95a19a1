//! Names and numbers of MCP's wire that the bridge needs on both of its sides: as the client of
//! servers (`backend::mcp`), as the server of clients (`http::api::mcp`), and in the relay over
//! stdio (`cli::mcp`).
//!
//! Must not: hold what only one of them uses.

pub mod revision {
    /// The revision without sessions: each request says all that the server has to know. The
    /// earlier ones have `initialize` and sessions.
    pub const STATELESS: &str = "2026-07-28";
    pub const NEWEST_WITH_SESSIONS: &str = "2025-11-25";
}

pub mod method {
    pub const CALL_TOOL: &str = "tools/call";
    pub const LIST_TOOLS: &str = "tools/list";
    pub const INITIALIZE: &str = "initialize";
    pub const DISCOVER: &str = "server/discover";
    /// Its answer is a stream without an end.
    pub const LISTEN: &str = "subscriptions/listen";
    pub const ELICIT: &str = "elicitation/create";
}

pub mod notification {
    pub const INITIALIZED: &str = "notifications/initialized";
    pub const CANCELLED: &str = "notifications/cancelled";
    pub const PROGRESS: &str = "notifications/progress";
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    /// The first message of the answer to [`super::method::LISTEN`].
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
}

/// Headers of Streamable HTTP, as the `http` crate writes names.
pub mod header {
    pub const SESSION: &str = "mcp-session-id";
    pub const REVISION: &str = "mcp-protocol-version";
    /// The method and the subject of a message, since 2026-07-28: for proxies between client and
    /// server, which then need not read the body.
    pub const METHOD: &str = "mcp-method";
    pub const NAME: &str = "mcp-name";
}

/// Members of `_meta`.
pub mod meta {
    /// The revision of a request.
    pub const REVISION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client of a request can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
}

/// JSON-RPC's own error codes, and those of MCP (2026-07-28, basic: Error Codes).
pub mod error_code {
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// The headers of a request do not repeat its body (2026-07-28).
    pub const HEADER_MISMATCH: i32 = -32020;
    /// The call needs what its client cannot do (2026-07-28).
    pub const CAPABILITY_MISSING: i32 = -32021;
    pub const UNSUPPORTED_REVISION: i32 = -32022;
    /// The user has to open a link before the call (2025-11-25).
    pub const URL_FIRST: i32 = -32042;
}
