//! `mantyx-bridge`: answers the `local_tool_call` events of MANTYX agent runs with the MCP servers
//! and A2A agents of the network that it stands in.
//!
//! ARCHITECTURE.md has the map. The library exists so that the binary stays thin and the parts can
//! be tested. Must not: promise a stable interface to other crates.

pub mod audit;
pub mod backend;
pub mod backoff;
pub mod budget;
pub mod catalogs;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod demo;
pub mod descriptors;
pub(crate) mod error_chain;
#[cfg(test)]
pub(crate) mod fake_http;
pub mod http;
pub mod http_client;
pub mod journal;
pub mod metrics;
pub mod model;
pub mod oauth;
pub mod public_keys;
pub mod runs;
pub mod sandbox;
pub mod sse;
pub mod state_dir;
pub mod systemd;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod tool_pins;
pub mod traces;
pub mod upstream;
pub mod watch;
