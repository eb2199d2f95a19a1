//! A small MCP server on stdin and stdout, with tools whose answers a reader can check.
//!
//! Must not: write to stdout by itself, touch files or the network.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rmcp::{
    ServerHandler, ServiceExt as _,
    handler::server::wrapper::Parameters,
    model::{Implementation, ServerCapabilities, ServerConfig},
    schemars::{self, JsonSchema},
    tool, tool_handler, tool_router,
    transport::stdio,
};
use serde::Deserialize;

/// The server could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client did not finish the MCP handshake")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the server's task ended early")]
    Task(#[source] tokio::task::JoinError),
}

/// Serves on stdin and stdout until stdin ends.
pub async fn serve_stdio() -> Result<(), ServeError> {
    let running = DemoServer.serve(stdio()).await;
    let running = running.map_err(|error| ServeError::Handshake(Box::new(error)))?;
    running.waiting().await.map_err(ServeError::Task)?;
    Ok(())
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
        rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
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

/// A time since the Unix epoch in UTC, to the second.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The Gregorian date `days` after 1970-01-01. Years are counted from March, so that the leap day
/// is the last of its year, and in eras of 400 years, which all have the same length.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_0000: u64 = 719_468;
    const DAYS_OF_ERA: u64 = 146_097;
    let days = days + DAYS_FROM_MARCH_0000;
    let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, the months' lengths repeat in a way that this line follows.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests;
