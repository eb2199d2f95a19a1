//! A lenient view of an A2A Agent Card: what the bridge needs of it, for cards of 0.3 and 1.0.
//!
//! Must not: judge where an interface points to, or stand in for the card. What goes to MANTYX is
//! the card's own bytes; fields that are absent or of another type are read as absent here.

mod payload;
pub mod signature;

use super::Members;

/// What the bridge reads of an Agent Card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub name: String,
    /// The ways to reach the agent, in the card's order of preference.
    pub interfaces: Vec<Interface>,
    /// Whether the agent says that it streams.
    pub streaming: bool,
    /// Where the agent says that OAuth clients get tokens for their own credentials.
    pub token_url: Option<String>,
}

/// One way to reach an agent, as its card names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// May be relative to the card's own URL.
    pub url: String,
    /// `JSONRPC`, `HTTP+JSON`, `GRPC` or a binding that the bridge does not know.
    pub binding: String,
    /// The protocol version spoken there; cards before 0.3 did not name one.
    pub version: Option<String>,
    /// The tenant that a 1.0 agent expects in every request to this interface.
    pub tenant: Option<String>,
}

/// The text is not an Agent Card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCard {
    #[error("it is not a JSON object ({0})")]
    NotAnObject(String),
    #[error("it has no `name`, or an empty one")]
    NoName,
}

/// The binding of a 0.3 card that names none.
const DEFAULT_BINDING: &str = "JSONRPC";

impl Card {
    /// Reads a card of either generation, or of both at once: agents that serve 0.3 and 1.0 put the
    /// fields of both into one card.
    pub fn read(text: &str) -> Result<Self, BadCard> {
        let card = Members::read(text).map_err(|error| BadCard::NotAnObject(error.to_string()))?;
        let name =
            card.string("name").filter(|name| !name.trim().is_empty()).ok_or(BadCard::NoName)?;
        let version = card.string("protocolVersion");

        let mut interfaces = Vec::new();
        for entry in card.objects("supportedInterfaces") {
            let Some(url) = entry.string("url") else { continue };
            interfaces.push(Interface {
                url,
                binding: entry.string("protocolBinding").unwrap_or(DEFAULT_BINDING.to_owned()),
                version: entry.string("protocolVersion").or_else(|| version.clone()),
                tenant: entry.string("tenant").filter(|tenant| !tenant.is_empty()),
            });
        }
        if let Some(url) = card.string("url") {
            let binding = card.string("preferredTransport").unwrap_or(DEFAULT_BINDING.to_owned());
            interfaces.push(Interface { url, binding, version: version.clone(), tenant: None });
        }
        for entry in card.objects("additionalInterfaces") {
            let (Some(url), Some(binding)) = (entry.string("url"), entry.string("transport"))
            else {
                continue;
            };
            interfaces.push(Interface { url, binding, version: version.clone(), tenant: None });
        }
        let capabilities = card.object("capabilities");
        let streaming = capabilities
            .and_then(|has| serde_json::from_str::<bool>(has.get("streaming")?.get()).ok());
        let token_url = token_url(&card);
        Ok(Self { name, interfaces, streaming: streaming == Some(true), token_url })
    }
}

/// The token URL of the first security scheme that has the flow of client credentials.
fn token_url(card: &Members<'_>) -> Option<String> {
    let schemes = card.object("securitySchemes")?;
    schemes.0.iter().find_map(|(_, scheme)| {
        let entry = Members::read(scheme.get()).ok()?;
        // 1.0 wraps the schemes that 0.3 distinguishes by `type`.
        let scheme = entry.object("oauth2SecurityScheme").unwrap_or(entry);
        let flow = scheme.object("flows")?.object("clientCredentials")?;
        flow.string("tokenUrl").filter(|url| !url.is_empty())
    })
}

#[cfg(test)]
mod tests;
