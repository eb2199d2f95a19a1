//! The peers that come with the bridge, for `demo`, for the examples and for tests.
//!
//! Must not: be reachable from outside of this host.

pub mod a2a_agent;
pub mod mcp_server;
