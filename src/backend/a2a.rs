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
mod extended_card;
mod failure;
mod findings;
mod follow;
mod grpc;
mod interface;
mod link;
mod links;
mod output_modes;
mod probe;
mod progress_text;
mod redirect;
mod relay;
pub mod result;
mod threads;
mod update;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::card_fetch::Fresh;
use self::findings::Findings;
use self::interface::{Endpoint, Rules};
use self::link::{Habits, Link};
use self::links::Links;
use self::threads::Thread;
pub use self::threads::Threads;
use super::readiness::{Health, Occasion};
use super::{
    A2aWire, About, CallError, CallOutcome, Called, Dial, Handle, Peer, PeerError, PeerErrorKind,
    RelayReply, RelayRequest, Remark, Signature, ToolCall, address, auth,
};
use crate::config::{A2a, A2aBinding, CardSource, Signers};
use crate::error_chain::error_chain;
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
    /// The value of the header that names the extensions, if there are any.
    extensions: Option<HeaderValue>,
    /// The binding chosen from the last card.
    chosen: Mutex<Option<A2aBinding>>,
    /// The well-known path that has given the last card.
    card_place: Mutex<Option<&'static str>>,
    health: Health,
    findings: Mutex<Findings>,
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
    links: Arc<Links>,
    signature: Option<Arc<Signature>>,
}

/// A card that was read.
struct ReadCard {
    raw: Box<RawValue>,
    signature: Option<Arc<Signature>>,
    card: Card,
    /// The media types that the card names for replies.
    output_modes: Vec<String>,
}

const UNUSABLE: &str = "the Agent Card cannot be used";

fn unusable() -> PeerError {
    PeerError::new(PeerErrorKind::Protocol, UNUSABLE)
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
        let extensions = HeaderValue::try_from(config.extensions.join(", ")).ok();
        Self(Arc::new(AgentSettings {
            name,
            config: config.clone(),
            client,
            tokens,
            extensions: extensions.filter(|value| !value.is_empty()),
            chosen: Mutex::new(config.binding),
            card_place: Mutex::default(),
            health: Health::default(),
            findings: Mutex::default(),
            threads,
        }))
    }
}

#[async_trait]
impl Dial for A2aDialer {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        self.0.health.reset();
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

    fn remark(&self) -> Option<Remark> {
        self.0.findings.lock().remark()
    }
}

impl AgentSettings {
    /// Fetches the card and chooses the interfaces. If the card is as in `known`, keeps its
    /// catalog.
    async fn resolve(
        self: &Arc<Self>,
        known: Option<Arc<Resolved>>,
    ) -> Result<Arc<Resolved>, PeerError> {
        let Fresh { bytes, url } = card_fetch::fetch(self).await?;
        let ReadCard { raw, signature, card, output_modes } =
            self.read(card_fetch::without_mark(&bytes))?;
        let rules = Rules::new(&self.config, url.as_ref());
        if let (Some(tokens), Some(named)) = (&self.tokens, &card.token_url) {
            tokens.learn(url.as_ref(), named);
        }
        let endpoints = interface::choose(&card, rules).map_err(|error| {
            let cure = error.cure();
            unusable().because(error).cured(cure)
        })?;
        self.findings.lock().read_card(&card, &self.config.extensions);
        let public = Catalog::a2a(raw);
        let same = known.as_ref().filter(|known| known.catalog.has_public_card_of(&public));
        let links = match same {
            Some(known) => Arc::clone(&known.links),
            None => self.take_card(&card, &output_modes, endpoints, signature.as_deref()),
        };
        let before = same.map(|known| &known.catalog);
        let (catalog, flaw) = self.extended(public, &card, &links, before).await;
        let catalog = match &known {
            Some(known) if known.catalog.digest() == catalog.digest() => Arc::clone(&known.catalog),
            _ => Arc::new(catalog),
        };
        Ok(Arc::new(Resolved { catalog, links, signature: flaw.or(signature) }))
    }

    /// The card in `bytes`, the verdict on its signature, and what the bridge reads of it.
    fn read(&self, bytes: &[u8]) -> Result<ReadCard, PeerError> {
        let raw: Box<RawValue> = serde_json::from_slice(bytes).map_err(|error| {
            let text = format!("{UNUSABLE}: it is not JSON");
            PeerError::new(PeerErrorKind::Protocol, text).because(error)
        })?;
        let (signed, signature) = self
            .signed(&raw)
            .map_err(|why| PeerError::new(PeerErrorKind::Unsigned, format!("{UNUSABLE}: {why}")))?;
        // If the card is signed, use the signed part alone: the rest is not trustworthy.
        let trusted = signed.as_deref().unwrap_or(raw.get());
        let card = Card::read(trusted).map_err(|error| unusable().because(error))?;
        let output_modes = output_modes::of_card(trusted);
        Ok(ReadCard { raw, signature, card, output_modes })
    }

    /// The links to the agent of a card that is new. What is known of another card's endpoints says
    /// nothing of these.
    fn take_card(
        self: &Arc<Self>,
        card: &Card,
        output_modes: &[String],
        endpoints: Vec<Endpoint>,
        signature: Option<&Signature>,
    ) -> Arc<Links> {
        let links = endpoints.into_iter().map(|endpoint| self.link(endpoint, card, output_modes));
        let links = Arc::new(Links::new(links.collect()));
        let endpoint = &links.first().endpoint;
        tracing::info!(
            backend = %self.name,
            url = address::shown(&endpoint.url),
            transport = endpoint.binding.as_str(),
            version = endpoint.version,
            streaming = card.streaming,
            "Agent Card of {:?} read",
            card.name,
        );
        if self.config.allow_plain
            && self.config.has_credentials()
            && endpoint.url.scheme() == "http"
        {
            let url = address::shown(&endpoint.url);
            tracing::warn!(backend = %self.name, url, "credentials go there in plain text, as `allow_plain` says");
        }
        self.tell(signature);
        *self.chosen.lock() = Some(endpoint.binding);
        self.health.reset();
        links
    }

    fn link(
        self: &Arc<Self>,
        endpoint: Endpoint,
        card: &Card,
        output_modes: &[String],
    ) -> Arc<Link> {
        let client = match endpoint.binding {
            A2aBinding::JsonRpc | A2aBinding::HttpJson => self.client.clone(),
            A2aBinding::Grpc => crate::http_client::http2(self.config.tls.as_ref()),
        };
        Arc::new(Link {
            settings: Arc::clone(self),
            client,
            endpoint,
            streams: card.streaming,
            output_modes: output_modes.to_vec(),
            habits: Habits::default(),
        })
    }

    /// The catalog with the extended card, if the entry wants it, and why that card counts as not
    /// signed, if it does. Until the agent gives it, the last one that it gave with this public
    /// card stays.
    async fn extended(
        &self,
        public: Catalog,
        card: &Card,
        links: &Links,
        before: Option<&Arc<Catalog>>,
    ) -> (Catalog, Option<Arc<Signature>>) {
        if !self.config.extended_card {
            return (public, None);
        }
        let extended = match extended_card::fetch(links).await {
            Ok(raw) => self.read(raw.get().as_bytes()).map_err(|error| error_chain(&error)),
            Err(why) => Err(why),
        };
        match extended {
            Ok(ReadCard { raw, signature, .. }) => {
                self.findings.lock().extended_card = None;
                let flaw = signature.filter(|signature| !signature.valid);
                (public.with_extended_card(raw), flaw)
            }
            Err(why) => {
                let remark = findings::no_extended_card(&why, card.has_extended_card);
                let is_news =
                    self.findings.lock().extended_card.replace(remark.clone()) != Some(remark);
                if is_news {
                    tracing::warn!(backend = %self.name, why, "the agent did not give its extended card");
                }
                let catalog = match before.and_then(|before| before.extended_card()) {
                    Some(extended) => public.with_extended_card(extended.to_owned()),
                    None => public,
                };
                (catalog, None)
            }
        }
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
            protocol_version: Some(current.links.preferred().endpoint.version.clone()),
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

    fn health(&self) -> Option<&Health> {
        Some(&self.settings.health)
    }

    async fn probe(&self, occasion: Occasion) {
        let begin = Instant::now();
        let links = Arc::clone(&self.current().links);
        let readiness = probe::probe(&self.settings, &links, occasion).await;
        *self.settings.chosen.lock() = Some(links.preferred().endpoint.binding);
        self.settings.health.judge(readiness, begin);
    }

    fn wires(&self) -> Vec<A2aWire> {
        relay::wires(&self.current().links)
    }

    fn has_conversation(&self, context: &str) -> bool {
        self.settings.threads.has(context)
    }

    async fn relay(&self, request: &RelayRequest) -> Called<RelayReply> {
        let links = Arc::clone(&self.current().links);
        relay::ask(&links, request).await
    }

    async fn call(&self, call: ToolCall) -> Called<CallOutcome> {
        if let Some(client) = call.progress.a2a_client.clone() {
            let links = Arc::clone(&self.current().links);
            let doubt = self.settings.health.call();
            let outcome = relay::call(&links, &client, &call).await?;
            doubt.answered();
            return Ok(outcome);
        }
        let text = message(call.request.arguments.get())?;
        let links = Arc::clone(&self.current().links);
        let doubt = self.settings.health.call();
        let mut outcome = Err(CallError::NotSent("there is no interface".to_owned()));
        for link in links.by_preference() {
            outcome = call::call(link, &self.cancellations, &text, &call).await;
            // Another interface is of use only if this one was not reached, and safe only if no
            // byte of the message was sent.
            if !matches!(outcome, Err(CallError::NotSent(_))) {
                if outcome.is_ok() {
                    links.prefer(link);
                    doubt.answered();
                }
                break;
            }
        }
        Ok(outcome?.into())
    }

    async fn resume(&self, handle: Handle, call: ToolCall) -> Called<CallOutcome> {
        let thread = Thread::read(&handle)
            .ok_or_else(|| CallError::Lost("the task was not noted down readably".to_owned()))?;
        let links = Arc::clone(&self.current().links);
        let doubt = self.settings.health.call();
        let link = links.preferred();
        let answer = call::resume(link, &self.cancellations, thread, &call).await?;
        doubt.answered();
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
