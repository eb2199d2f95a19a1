//! A small MCP server on stdin and stdout, with tools whose answers a reader can check.
//!
//! Must not: write to stdout by itself, touch files or the network.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::schemars::JsonSchema;
use rmcp::transport::stdio;
use rmcp::{ServerHandler, ServiceExt as _, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

/// Serves on stdin and stdout until stdin ends. The error says why it ended earlier.
pub async fn serve_stdio() -> Result<(), String> {
    let running = DemoServer.serve(stdio()).await;
    let running =
        running.map_err(|error| format!("the client did not finish the MCP handshake: {error}"))?;
    let ended = running.waiting().await;
    ended.map(drop).map_err(|error| format!("the server's task ended early: {error}"))
}

/// The server. It has no state.
#[derive(Debug, Clone, Copy)]
struct DemoServer;

#[derive(Debug, Deserialize, JsonSchema)]
struct WordCount {
    /// The text to count in.
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Add {
    /// The first number.
    a: f64,
    /// The second number.
    b: f64,
}

#[tool_router]
impl DemoServer {
    #[tool(
        description = "Tells the current date and time in UTC, in the form of RFC 3339.",
        annotations(title = "Clock", read_only_hint = true, open_world_hint = false)
    )]
    fn clock(&self) -> String {
        // A clock before 1970 is set wrong; the epoch says so better than a panic.
        humantime::format_rfc3339_seconds(crate::clock::now()).to_string()
    }

    #[tool(
        description = "Counts the words, lines and characters of a text.",
        annotations(
            title = "Word count",
            read_only_hint = true,
            idempotent_hint = true,
            open_world_hint = false
        )
    )]
    fn word_count(&self, Parameters(WordCount { text }): Parameters<WordCount>) -> String {
        let words = text.split_whitespace().count();
        let lines = text.lines().count();
        let characters = text.chars().count();
        format!("words: {words}, lines: {lines}, characters: {characters}")
    }

    #[tool(
        description = "Adds two numbers and returns their sum.",
        annotations(
            title = "Add",
            read_only_hint = true,
            idempotent_hint = true,
            open_world_hint = false
        )
    )]
    fn add(&self, Parameters(Add { a, b }): Parameters<Add>) -> String {
        (a + b).to_string()
    }
}

#[tool_handler]
impl ServerHandler for DemoServer {
    fn get_info(&self) -> ServerConfig {
        let mut server = Implementation::new("mantyx-bridge-demo", env!("CARGO_PKG_VERSION"));
        server.title = Some("MANTYX bridge demo".to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions("Three small tools to try the bridge with.")
    }
}

#[cfg(test)]
mod tests;
