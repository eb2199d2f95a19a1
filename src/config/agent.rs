//! One A2A agent of bridge.yaml, and where its card comes from.
//!
//! Must not: fetch or read the card.

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::{ClientCredentials, Written};
use crate::http_client::Tls;
use crate::model::words::words;
use crate::public_keys::PublicKey;

/// An A2A agent.
#[derive(Debug, Clone, PartialEq)]
pub struct A2a {
    pub card: CardSource,
    /// Sent with the card's fetch and with every call; the values are marked sensitive.
    pub headers: HeaderMap,
    /// Replaces the description that the model sees.
    pub description: Option<String>,
    /// The binding to use; `None` means the card's preferred one that the bridge speaks.
    pub binding: Option<A2aBinding>,
    /// Hosts (`host` or `host:port`) beyond the card's own origin that its endpoints may name.
    pub allow_hosts: Vec<String>,
    /// Whether each message waits for its reply until the task is done: no stream, no polls.
    pub blocking: bool,
    pub oauth: Option<Arc<ClientCredentials>>,
    pub tls: Option<Tls>,
    /// The required signers of the card; `None`: signatures are not checked.
    pub signers: Option<Signers>,
    /// The address for calls, in place of those that the card names.
    pub endpoint: Option<Written<Url>>,
    /// The URIs of the extensions that each request asks the agent to use.
    pub extensions: Vec<String>,
    /// Whether the agent is asked for the card that it shows to clients with a credential.
    pub extended_card: bool,
    /// Whether credentials may go over plain http where the card came over https.
    pub allow_plain: bool,
}

impl A2a {
    /// An agent whose entry in bridge.yaml says no more than where its card is.
    pub fn new(card: CardSource) -> Self {
        Self {
            card,
            headers: HeaderMap::new(),
            description: None,
            binding: None,
            allow_hosts: Vec::new(),
            blocking: false,
            oauth: None,
            tls: None,
            signers: None,
            endpoint: None,
            extensions: Vec::new(),
            extended_card: false,
            allow_plain: false,
        }
    }

    /// Whether requests to it carry what others on the network path must not read.
    pub fn has_credentials(&self) -> bool {
        !self.headers.is_empty() || self.oauth.is_some()
    }
}

/// The signers of an Agent Card that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signers {
    /// A signature by one of them is enough.
    pub keys: Vec<PublicKey>,
    /// Whether a card without such a signature is refused, or only reported.
    pub required: bool,
}

/// Where an Agent Card comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum CardSource {
    /// `<url>/.well-known/agent-card.json`, then the older `<url>/.well-known/agent.json`.
    Base(Written<Url>),
    /// The card itself.
    Url(Written<Url>),
    /// A file, read at each refresh.
    File(PathBuf),
    /// The example agent that the daemon serves itself, on a loopback port.
    Bundled,
}

words! {
    /// How calls travel to an A2A agent, as bridge.yaml and status pages name it.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(inline)]
    pub enum A2aBinding {
        #[serde(rename = "jsonrpc")]
        JsonRpc = "jsonrpc",
        HttpJson = "http-json",
        Grpc = "grpc",
    }
}
