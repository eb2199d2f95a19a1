//! What answers tool calls: the peers and the tasks that keep them connected and resolved.
//!
//! Must not: know runs, apps or MANTYX. A call comes in as a [`peer::ToolCall`] and leaves as an
//! answer or a [`peer::CallError`].

pub mod mcp;
pub mod peer;
