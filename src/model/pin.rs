//! Pins: the operator's record of what a model may be shown of a backend. A server that changes the
//! description of a tool may want the model to do something else with it, so the bridge compares
//! each catalog with the accepted one.
//!
//! A pin of an MCP tool covers what the model sees of it; a pin of an agent covers its card without
//! the signatures. The instructions of an MCP server have a pin of their own. All are in one form
//! (`canonical`), so that order and whitespace are no change.
//!
//! docs/design/trust.md says what it is not, and how it came about.
//!
//! Must not: know where pins are kept, or what a tool does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Digest as _;

use super::canonical::Node;
use super::catalog::{hash_of, hex};
use super::words::words;
use super::{Catalog, Content, Instructions, Naming, diff, visible};

/// The members of an MCP tool that a model sees (agent-runs-protocol §4.3), in lower case.
const VISIBLE: [&str; 6] =
    ["annotations", "description", "inputschema", "name", "outputschema", "title"];

/// Takes the place of a tool's name for an agent, which has a card and no tools.
pub const CARD: &str = "";

/// The same for the card that an agent shows to clients with a credential. It is pinned apart: an
/// entry that begins or ceases to ask for it has not changed the public card.
pub const EXTENDED_CARD: &str = "(extended card)";

/// Takes the place of a tool's name for the instructions of an MCP server. No tool has this name,
/// as one with an empty name is left out.
pub const INSTRUCTIONS: &str = "";

/// The pin of a server that had no instructions when they were first looked at. Later ones are new,
/// as a tool is that comes later. No tool and no card has this text.
const NO_INSTRUCTIONS: &str = "null";

words! {
    /// What happens to tools that were not accepted; the `pin` of bridge.yaml.
    // A doc comment at a value would change the schema of bridge.yaml.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[schemars(inline)]
    pub enum Mode {
        // They are not compared.
        Off = "off",
        // They are offered, and reported.
        #[default]
        Warn = "warn",
        // They are withdrawn, and reported.
        Enforce = "enforce",
    }
}

/// The accepted tools of one backend: what the model sees of each, by the server's name for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins(pub BTreeMap<String, Arc<str>>);

/// The state of a backend's pins.
#[derive(Debug, Clone, Default)]
pub enum Accepted {
    /// The backend has not been used yet: its first catalog is accepted.
    #[default]
    Nothing,
    Pins(Arc<Pins>),
    /// There are pins that cannot be read: why.
    Damaged(Arc<str>),
}

words! {
    /// How a tool differs from what was accepted.
    pub enum Change {
        /// The model sees something else than what was accepted.
        Changed = "changed",
        /// The backend was known, and the tool was not.
        New = "new",
        /// The tool is new and has hidden characters: it is not accepted automatically, not even
        /// the first time.
        Hidden = "hidden",
        /// The backend no longer has the tool. That is no fault; its pin stays.
        Gone = "gone",
    }
}

words! {
    /// What a finding is about.
    pub enum Subject {
        Tool = "tool",
        /// The card of an agent.
        Card = "card",
        /// The instructions of an MCP server.
        Instructions = "instructions",
    }
}

/// One tool, card or text that differs from what was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub subject: Subject,
    /// The server's name for a tool; [`CARD`] for an agent, [`INSTRUCTIONS`] for a server.
    pub tool: String,
    pub change: Change,
    /// The characters in it that a reader does not see.
    pub hidden: BTreeSet<char>,
    before: Option<Arc<str>>,
    now: Option<Arc<str>>,
}

/// The result of comparing a catalog with what was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    pub mode: Mode,
    /// Why the pins cannot be read.
    pub damaged: Option<Arc<str>>,
    /// The number of tools that are as they were accepted.
    pub known: usize,
    /// By the names of the tools.
    pub findings: BTreeMap<String, Finding>,
    /// SHA-256 of the findings, in hex: the operator accepts findings by naming their digest.
    pub digest: String,
}

/// Why nothing was accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The findings have changed since the operator looked at them.
    Moved,
    /// The findings have no such tool.
    NoSuchTool(String),
}

/// What a model sees of one tool.
struct ModelView {
    text: Arc<str>,
    hidden: BTreeSet<char>,
}

impl ModelView {
    /// Of the members of `raw` that are to `keep`.
    fn new(raw: &RawValue, keep: impl Fn(&str) -> bool) -> Self {
        let mut node = Node::read(raw);
        if let Node::Map(members) = &mut node {
            members.retain(|(key, _)| keep(key));
        }
        let mut hidden = BTreeSet::new();
        node.each_text(&mut |text| {
            // U+FFFD stands for what is no character.
            let unread = text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER);
            hidden.extend(visible::hidden(text).chain(unread));
        });
        Self { text: node.canonical().into(), hidden }
    }
}

/// What a finding under the name `tool` is about.
fn subject(tool: &str, catalog: Option<&Catalog>) -> Subject {
    match catalog.map(Catalog::content) {
        _ if !tool.is_empty() => Subject::Tool,
        Some(Content::Mcp { .. }) => Subject::Instructions,
        Some(Content::A2a { .. } | Content::Local { .. }) | None => Subject::Card,
    }
}

/// What a model sees of a server's instructions.
fn view_of_instructions(text: &str) -> Option<ModelView> {
    let json = serde_json::value::to_raw_value(text).ok()?;
    Some(ModelView::new(&json, |_| true))
}

/// Whether the operator is asked about `tool`: a tool that bridge.yaml leaves out reaches no model.
fn is_reviewed(tool: &str, naming: &Naming) -> bool {
    tool.is_empty() || naming.tools.passes(tool)
}

/// What a model sees of the tools of a catalog.
fn model_views(catalog: &Catalog) -> BTreeMap<&str, ModelView> {
    match catalog.content() {
        Content::Mcp { tools, .. } => tools
            .iter()
            .map(|tool| (tool.name.as_str(), ModelView::new(&tool.raw, is_visible)))
            .collect(),
        Content::A2a { .. } => {
            let cards = [(CARD, catalog.public_card()), (EXTENDED_CARD, catalog.extended_card())];
            let cards = cards.into_iter().filter_map(|(name, card)| Some((name, card?)));
            cards.map(|(name, card)| (name, ModelView::new(card, is_signed))).collect()
        }
        // A local tool is the operator's own.
        Content::Local { .. } => BTreeMap::new(),
    }
}

/// Whether the member of a card is a part of what its signatures are over.
fn is_signed(key: &str) -> bool {
    key != "signatures"
}

fn is_visible(key: &str) -> bool {
    VISIBLE.contains(&key.to_ascii_lowercase().as_str())
}

impl Accepted {
    /// The pins, if there are any.
    pub fn pins(&self) -> Option<&Arc<Pins>> {
        match self {
            Self::Pins(pins) => Some(pins),
            Self::Nothing | Self::Damaged(_) => None,
        }
    }

    /// Compares `catalog` with what was accepted. The first catalog of a backend is accepted,
    /// except for tools with hidden characters.
    pub fn judge(&mut self, mode: Mode, catalog: Option<&Catalog>, naming: &Naming) -> Review {
        let mut review = Review { mode, ..Review::default() };
        if mode == Mode::Off {
            return review;
        }
        let mut views = catalog.map(model_views).unwrap_or_default();
        // A catalog without tools has nothing to accept yet.
        if matches!(self, Self::Nothing) && !views.is_empty() {
            let plain = views.iter().filter(|(_, view)| view.hidden.is_empty());
            let pins = plain.map(|(tool, view)| ((*tool).to_owned(), Arc::clone(&view.text)));
            *self = Self::Pins(Arc::new(Pins(pins.collect())));
        }
        self.accept_first_extended_card(&views);
        let instructions = catalog.map(Catalog::instructions).cloned().unwrap_or_default();
        let view = instructions.text().and_then(|text| view_of_instructions(text));
        self.take_first(&instructions, view.as_ref());
        views.extend(view.map(|view| (INSTRUCTIONS, view)));
        if let Self::Damaged(why) = self {
            review.damaged = Some(Arc::clone(why));
        }
        let pins = self.pins().cloned().unwrap_or_default();
        for (&tool, view) in views.iter().filter(|(tool, _)| is_reviewed(tool, naming)) {
            let subject = subject(tool, catalog);
            let before = pins.0.get(tool).filter(|before| ***before != *NO_INSTRUCTIONS);
            let change = match before {
                Some(before) if *before == view.text => {
                    review.known += usize::from(subject != Subject::Instructions);
                    continue;
                }
                Some(_) => Change::Changed,
                // A server without tools has no pins yet.
                None if matches!(self, Self::Nothing) && view.hidden.is_empty() => continue,
                None if !view.hidden.is_empty() => Change::Hidden,
                None => Change::New,
            };
            review.add(Finding {
                subject,
                tool: tool.to_owned(),
                change,
                hidden: view.hidden.clone(),
                before: before.cloned(),
                now: Some(Arc::clone(&view.text)),
            });
        }
        for (tool, before) in &pins.0 {
            // Without a catalog, nothing is known of the present tools.
            if catalog.is_none() || views.contains_key(tool.as_str()) || !is_reviewed(tool, naming)
            {
                continue;
            }
            let subject = subject(tool, catalog);
            let is_unknown = instructions == Instructions::Unknown;
            if subject == Subject::Instructions && (is_unknown || **before == *NO_INSTRUCTIONS) {
                continue;
            }
            review.add(Finding {
                subject,
                tool: tool.clone(),
                change: Change::Gone,
                hidden: BTreeSet::new(),
                before: Some(Arc::clone(before)),
                now: None,
            });
        }
        review.digest = review.digest();
        review
    }

    /// Accepts the first extended card of an agent that was known before: the operator has asked
    /// for it. One with hidden characters is not accepted, as with all that is first.
    fn accept_first_extended_card(&mut self, views: &BTreeMap<&str, ModelView>) {
        let (Self::Pins(pins), Some(view)) = (&mut *self, views.get(EXTENDED_CARD)) else { return };
        let is_first = pins.0.contains_key(CARD) && !pins.0.contains_key(EXTENDED_CARD);
        if is_first && view.hidden.is_empty() {
            Arc::make_mut(pins).0.insert(EXTENDED_CARD.to_owned(), Arc::clone(&view.text));
        }
    }

    /// Pins the first instructions that are seen of a server with pins, be they of a version that
    /// had no pins of instructions. Hidden characters are accepted by the operator alone, so what
    /// is pinned then is that there are none.
    fn take_first(&mut self, instructions: &Instructions, view: Option<&ModelView>) {
        let Self::Pins(pins) = self else { return };
        if *instructions == Instructions::Unknown || pins.0.contains_key(INSTRUCTIONS) {
            return;
        }
        let plain = view.filter(|view| view.hidden.is_empty());
        let text = plain.map_or(NO_INSTRUCTIONS.into(), |view| Arc::clone(&view.text));
        Arc::make_mut(pins).0.insert(INSTRUCTIONS.to_owned(), text);
    }

    /// Accepts the findings of `review` on these `tools`, or all; `digest` is the one that the
    /// operator has seen.
    pub fn accept(
        &mut self,
        review: &Review,
        digest: &str,
        tools: Option<&[String]>,
    ) -> Result<(), NotTaken> {
        if review.digest != digest {
            return Err(NotTaken::Moved);
        }
        let findings: Vec<&Finding> = match tools {
            None => review.findings.values().collect(),
            Some(tools) => tools
                .iter()
                .map(|tool| review.findings.get(tool).ok_or(NotTaken::NoSuchTool(tool.clone())))
                .collect::<Result<_, _>>()?,
        };
        if findings.is_empty() {
            return Ok(());
        }
        let mut pins = self.pins().map(|pins| Pins::clone(pins)).unwrap_or_default();
        for Finding { subject, tool, now, .. } in findings {
            match now {
                Some(now) => pins.0.insert(tool.clone(), Arc::clone(now)),
                // Without a pin, the next ones would be taken as the first.
                None if *subject == Subject::Instructions => {
                    pins.0.insert(tool.clone(), NO_INSTRUCTIONS.into())
                }
                None => pins.0.remove(tool),
            };
        }
        *self = Self::Pins(Arc::new(pins));
        Ok(())
    }
}

impl Review {
    fn add(&mut self, finding: Finding) {
        self.findings.insert(finding.tool.clone(), finding);
    }

    fn digest(&self) -> String {
        let findings = self.findings.values();
        let parts = findings.flat_map(|one| [&one.tool, one.now.as_deref().unwrap_or_default()]);
        hex(&hash_of(parts).finalize())
    }

    /// The findings that the operator has not accepted and should look at.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values().filter(|finding| finding.change != Change::Gone)
    }

    /// Whether `tool` must be neither offered nor called. An agent is withdrawn for either card.
    pub fn withdraws(&self, tool: &str) -> bool {
        let differs = |name: &str| {
            self.findings.get(name).is_some_and(|finding| finding.change != Change::Gone)
        };
        self.mode == Mode::Enforce && (differs(tool) || tool == CARD && differs(EXTENDED_CARD))
    }

    /// Only `enforce` withdraws what it reports; `warn` offers it.
    pub fn withdrawn(&self) -> usize {
        if self.mode == Mode::Enforce { self.open().count() } else { 0 }
    }

    /// How many of the tools are withdrawn. The instructions of a server are none of them.
    pub fn withdrawn_tools(&self) -> usize {
        if self.mode != Mode::Enforce {
            return 0;
        }
        self.open().filter(|finding| finding.subject != Subject::Instructions).count()
    }

    /// The findings that `before` did not have.
    pub fn news<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Finding> {
        self.findings.values().filter(|finding| before.findings.get(&finding.tool) != Some(finding))
    }
}

impl Finding {
    /// The present tools against the accepted ones, line by line, with hidden characters written
    /// out.
    pub fn diff(&self) -> Vec<String> {
        let before = self.before.as_deref().map(readable).unwrap_or_default();
        let now = self.now.as_deref().map(readable).unwrap_or_default();
        diff::lines(&before, &now)
    }
}

/// A pinned text in lines for people: long texts as they are, the rest as JSON.
fn readable(canonical: &str) -> Vec<String> {
    let Ok(raw) = serde_json::from_str::<&RawValue>(canonical) else {
        return vec![visible::shown(canonical)];
    };
    let mut lines = Vec::new();
    match Node::read(raw) {
        Node::Map(members) => {
            for (key, value) in members {
                match value {
                    Node::Text(text) if text.contains('\n') => {
                        lines.push(format!("{key}:"));
                        lines.extend(text.split('\n').map(|line| format!("  {line}")));
                    }
                    Node::Text(text) => lines.push(format!("{key}: {text}")),
                    value => value.lines(&format!("{key}: "), 0, &mut lines),
                }
            }
        }
        // Instructions are one text.
        Node::Text(text) => lines.extend(text.split('\n').map(str::to_owned)),
        other => other.lines("", 0, &mut lines),
    }
    // A line end in a key must not begin a line of its own: the server could forge a line of the
    // diff.
    for line in &mut lines {
        let text = visible::shown(line.trim_end_matches('\r'));
        *line = text.replace('\r', "\\u{d}").replace('\n', "\\u{a}");
    }
    lines
}

#[cfg(test)]
mod tests;
