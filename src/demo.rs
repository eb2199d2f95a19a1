//! What `mantyx-bridge demo` brings along, so that it needs nothing on the machine.
//!
//! Must not: be used by `serve`.

pub mod mcp_server;
