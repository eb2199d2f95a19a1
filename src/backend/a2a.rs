//! A2A agents as backends: an Agent Card is the catalog, a message is the call.
//!
//! A2A has no connection. [`A2aDialer::dial`] fetches the card, and the peer that it returns is
//! never closed and never says that its card changed. Each refresh fetches the card again.
//!
//! docs/design/a2a.md says what it is not, and how it came about.
//!
//! Must not: change a byte of the card, or let a card direct the configured headers to a host that
//! is neither its own nor allowed.

mod assembly;
mod call;
mod card_fetch;
mod events;
mod failure;
mod follow;
mod grpc;
mod interface;
mod link;
mod output_modes;
mod progress_text;
pub mod result;
mod threads;
mod update;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;

use self::card_fetch::Fresh;
use self::interface::Rules;
use self::link::{Habits, Link};
use self::threads::Thread;
pub use self::threads::Threads;
use super::{
    About, CallError, CallOutcome, Called, Dial, Handle, Peer, PeerError, PeerErrorKind, Signature,
    ToolCall, address, auth,
};
use crate::config::{A2a, A2aBinding, CardSource, Signers};
use crate::http_client::{Client, Clients};
use crate::model::card::signature::Key as _;
use crate::model::card::{Card, signature};
use crate::model::{BackendName, Catalog, json};

/// The conversations with one agent. A dialer that replaces another one continues them.
pub type Conversations = Arc<Threads>;

/// Knows how to reach one A2A agent.
#[derive(Debug)]
pub struct A2aDialer(Arc<AgentSettings>);

#[derive(Debug)]
struct AgentSettings {
    name: BackendName,
    config: A2a,
    client: Client,
    /// Fetches tokens, if the agent wants them.
    tokens: Option<Arc<auth::Tokens>>,
    /// The binding chosen from the last card.
    chosen: Mutex<Option<A2aBinding>>,
    /// In the dialer and not in the peer, so that conversations outlive connections.
    threads: Conversations,
}

/// One A2A agent whose card has been read.
#[derive(Debug)]
struct A2aPeer {
    settings: Arc<AgentSettings>,
    /// The last good card; a refresh replaces it as a whole.
    current: Mutex<Arc<Resolved>>,
    /// The cancellations that are still being sent after their calls ended.
    cancellations: TaskTracker,
}

/// A card and what follows from it.
#[derive(Debug)]
struct Resolved {
    catalog: Arc<Catalog>,
    link: Arc<Link>,
    signature: Option<Arc<Signature>>,
}

impl A2aDialer {
    /// A dialer for the agent `name`; `client` comes from [`crate::http_client::new`].
    pub fn new(name: BackendName, config: &A2a, client: Client, threads: Conversations) -> Self {
        let url = match &config.card {
            CardSource::Base(url) | CardSource::Url(url) => Some(&**url),
            CardSource::File(_) | CardSource::Bundled => None,
        };
        let clients = Clients::new(url, config.tls.as_ref(), client);
        let client = clients.own.clone();
        let tokens = auth::tokens(&name, config.oauth.as_ref(), None, clients);
        let chosen = Mutex::new(config.binding);
        let config = config.clone();
        Self(Arc::new(AgentSettings { name, config, client, tokens, chosen, threads }))
    }
}

#[async_trait]
impl Dial for A2aDialer {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        let resolved = self.0.resolve(None).await?;
        Ok(Arc::new(A2aPeer {
            settings: self.0.clone(),
            current: Mutex::new(resolved),
            cancellations: TaskTracker::new(),
        }))
    }

    /// `a2a` until a card has told which binding it is.
    fn transport(&self) -> &'static str {
        let chosen = *self.0.chosen.lock();
        chosen.map_or("a2a", A2aBinding::as_str)
    }
}

impl AgentSettings {
    /// Fetches the card and chooses the interface. If the card is as in `known`, keeps its catalog.
    async fn resolve(
        self: &Arc<Self>,
        known: Option<Arc<Resolved>>,
    ) -> Result<Arc<Resolved>, PeerError> {
        const UNUSABLE: &str = "the Agent Card cannot be used";
        let unusable = PeerError::new(PeerErrorKind::Protocol, UNUSABLE);
        let Fresh { bytes, url } = card_fetch::fetch(self).await?;
        // JSON has no byte order mark, yet some files begin with one.
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        let raw: Box<RawValue> = serde_json::from_slice(bytes).map_err(|error| {
            let text = format!("{UNUSABLE}: it is not JSON");
            PeerError::new(PeerErrorKind::Protocol, text).because(error)
        })?;
        let (signed, signature) = self
            .signed(&raw)
            .map_err(|why| PeerError::new(PeerErrorKind::Unsigned, format!("{UNUSABLE}: {why}")))?;
        // If the card is signed, use the signed part alone: the rest is not trustworthy.
        let trusted = signed.as_deref().unwrap_or(raw.get());
        let card = Card::read(trusted).map_err(|error| unusable.clone().because(error))?;
        let output_modes = output_modes::of_card(trusted);
        let A2a { allow_hosts, binding, .. } = &self.config;
        let rules = Rules { card_url: url.as_ref(), allow_hosts, binding: *binding };
        if let (Some(tokens), Some(named)) = (&self.tokens, &card.token_url) {
            tokens.learn(url.as_ref(), named);
        }
        let endpoint = interface::choose(&card, rules).map_err(|error| unusable.because(error))?;
        let catalog = Catalog::a2a(raw);
        let (catalog, link) = match known {
            Some(known) if known.catalog.digest() == catalog.digest() => {
                (known.catalog.clone(), known.link.clone())
            }
            _ => {
                tracing::info!(
                    backend = %self.name,
                    url = address::shown(&endpoint.url),
                    transport = endpoint.binding.as_str(),
                    version = endpoint.version,
                    streaming = card.streaming,
                    "Agent Card of {:?} read",
                    card.name,
                );
                self.tell(signature.as_deref());
                let client = match endpoint.binding {
                    A2aBinding::JsonRpc | A2aBinding::HttpJson => self.client.clone(),
                    A2aBinding::Grpc => crate::http_client::http2(self.config.tls.as_ref()),
                };
                let settings = Arc::clone(self);
                let link = Link {
                    settings,
                    client,
                    endpoint,
                    streams: card.streaming,
                    output_modes,
                    habits: Habits::default(),
                };
                (Arc::new(catalog), Arc::new(link))
            }
        };
        *self.chosen.lock() = Some(link.endpoint.binding);
        Ok(Arc::new(Resolved { catalog, link, signature }))
    }

    /// The signed part of the card and the verdict; `None` if no keys are configured. An error if a
    /// signature is required and there is no good one.
    fn signed(&self, card: &RawValue) -> Result<(Option<String>, Option<Arc<Signature>>), String> {
        let Some(Signers { keys, required }) = &self.config.signers else {
            return Ok((None, None));
        };
        match signature::verify(card, keys) {
            Ok(signed) => {
                let algorithm = Some(signed.algorithm.as_str().to_owned());
                let key = signed.key.id().map(str::to_owned);
                let signature = Signature { valid: true, algorithm, key, error: None };
                Ok((Some(signed.payload), Some(Arc::new(signature))))
            }
            Err(why) if *required => Err(format!("{why}; `signature` requires a good one")),
            Err(why) => {
                let error = Some(why.to_string());
                let signature = Signature { valid: false, algorithm: None, key: None, error };
                Ok((None, Some(Arc::new(signature))))
            }
        }
    }

    fn tell(&self, signature: Option<&Signature>) {
        let Some(Signature { algorithm, key, error, .. }) = signature else { return };
        match error {
            None => {
                tracing::info!(backend = %self.name, algorithm, key, "the Agent Card is signed");
            }
            Some(why) => tracing::warn!(
                backend = %self.name,
                why,
                "the Agent Card is not signed by a key that is configured, and is taken all the same"
            ),
        }
    }
}

impl A2aPeer {
    fn current(&self) -> Arc<Resolved> {
        self.current.lock().clone()
    }
}

#[async_trait]
impl Peer for A2aPeer {
    fn about(&self) -> About {
        let current = self.current();
        About {
            protocol_version: Some(current.link.endpoint.version.clone()),
            server_info: None,
            signature: current.signature.clone(),
        }
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        let resolved = self.settings.resolve(Some(self.current())).await?;
        let catalog = resolved.catalog.clone();
        *self.current.lock() = resolved;
        Ok(catalog)
    }

    async fn call(&self, call: ToolCall) -> Called<CallOutcome> {
        let text = message(call.request.arguments.get())?;
        let answer = call::call(&self.current().link, &self.cancellations, &text, &call).await?;
        Ok(answer.into())
    }

    async fn resume(&self, handle: Handle, call: ToolCall) -> Called<CallOutcome> {
        let thread = Thread::read(&handle)
            .ok_or_else(|| CallError::Lost("the task was not noted down readably".to_owned()))?;
        let answer = call::resume(&self.current().link, &self.cancellations, thread, &call).await?;
        Ok(answer.into())
    }

    async fn close(&self) {
        self.cancellations.close();
        let cancelled = self.cancellations.wait();
        if tokio::time::timeout(link::CANCEL_TIMEOUT, cancelled).await.is_err() {
            let left = self.cancellations.len();
            tracing::warn!(
                backend = %self.settings.name,
                left,
                "tasks of the agent are still being cancelled"
            );
        }
    }
}

/// The `message` of the arguments, the only argument of a call to an agent.
fn message(arguments: &str) -> Called<String> {
    let why = match json::string_member(arguments, "message") {
        Some(message) if !message.trim().is_empty() => return Ok(message),
        Some(_) => "the argument `message` is empty: say what the agent should do",
        None => "the arguments must be {\"message\": string}: the whole task in plain words",
    };
    Err(CallError::Refused(why.to_owned()))
}

#[cfg(test)]
mod tests;
