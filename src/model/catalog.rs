//! The resolved content of one backend: what the peer said it can do, byte for byte, and a digest.
//!
//! Must not: rename, filter or interpret tools (naming.rs does), or keep anything that the peer, or
//! for a local tool the configuration, did not say.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::visible::{brief, line};
use super::{InputSchema, Instructions, Members, form, limits};

use crate::model::maps::{HashMap, HashSet};

mod left_out;

pub use left_out::{Cut, Fault, LeftOut, Omission};

/// What one backend offers. Immutable: a refresh makes a new one.
#[derive(Debug)]
pub struct Catalog {
    content: Content,
    /// What an MCP server says of itself to models. It is no part of any ref.
    instructions: Instructions,
    digest: String,
    /// The tools that are not listed any more, by place.
    gone: Vec<FormerTool>,
    /// The part of the peer's list that is not offered.
    left_out: Option<Omission>,
}

/// The content of a [`Catalog`], by the kind of its backend.
#[derive(Debug)]
pub enum Content {
    /// An MCP server: the `Implementation` of its handshake and all pages of `tools/list`.
    Mcp { server_info: Option<Box<RawValue>>, tools: Vec<Tool> },
    /// An A2A agent: its Agent Card. `public` is the card that anyone can read, where `card` is the
    /// one that the agent shows to clients with a credential.
    A2a { card: Box<RawValue>, public: Option<Box<RawValue>> },
    /// A local tool: the members of its ref, as the configuration has them, and what its arguments
    /// have to be.
    Local(Arc<InputSchema>),
}

/// One MCP tool as its server sent it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The server's own name for the tool; what `tools/call` takes.
    pub name: String,
    /// The whole `Tool` object, verbatim.
    pub raw: Arc<RawValue>,
    /// What its arguments have to be.
    pub input: Arc<InputSchema>,
    /// The member for which MCP clients and the APIs of models would refuse the whole list.
    pub flaw: Option<Arc<str>>,
}

/// The longest text that says what is wrong with a definition, in bytes.
pub const MAX_FLAW: usize = 200;

/// The most tools that a sentence about definitions names.
const MAX_NAMED: usize = 10;

/// What to do about definitions that clients cannot read, and about schemas that cannot be checked.
pub const DEFINITION_CURE: &str = "Tell the server's author, or look for a newer version of the \
                                   server. Runs get the definitions as they are.";

/// How long a tool that is not listed any more keeps its place, in seconds: a month.
const KEEP_PLACE: u64 = 30 * 24 * 60 * 60;

/// A tool that its server does not list any more. It gets its place back when it is listed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerTool {
    name: String,
    /// Its place among all tools, those that are gone included.
    place: usize,
    /// The first moment without it, in seconds since 1970.
    since: u64,
}

impl Catalog {
    /// The catalog of an MCP server, out of the entries of its `tools/list`, in its order.
    ///
    /// A tool that has no usable `name`, or the name of an earlier one, cannot be called; it is
    /// left out, and so is one that is too large (`limits`), or one too many. The caller reports
    /// it.
    pub fn mcp(
        server_info: Option<Box<RawValue>>,
        tools: Vec<Box<RawValue>>,
    ) -> (Self, Vec<LeftOut>) {
        Self::mcp_if(server_info, tools, |_, _| Ok(()))
    }

    /// The same, without the tools that `fits`, which is given the name of each and the whole of
    /// it, says something against.
    pub fn mcp_if(
        server_info: Option<Box<RawValue>>,
        tools: Vec<Box<RawValue>>,
        mut fits: impl FnMut(&str, &RawValue) -> Result<(), String>,
    ) -> (Self, Vec<LeftOut>) {
        let mut offered = Vec::with_capacity(tools.len());
        let mut left_out = Vec::new();
        let mut names = HashSet::default();
        for (index, raw) in tools.into_iter().enumerate() {
            let mut leave_out = |fault, why: String| left_out.push(LeftOut { index, why, fault });
            match super::json::string_member(raw.get(), "name") {
                Some(name) if name.is_empty() => {
                    leave_out(Fault::Name, "its name is empty".to_owned());
                }
                Some(name) if !names.insert(name.clone()) => {
                    let why = format!("an earlier tool has the same name, {:?}", brief(&name));
                    leave_out(Fault::SameName, why);
                }
                Some(name) => match fault(&name, &raw, &mut fits) {
                    Ok(()) if offered.len() < limits::MAX_TOOLS => {
                        let raw: Arc<RawValue> = raw.into();
                        let input = Arc::new(InputSchema::new(Arc::clone(&raw)));
                        let flaw = form::flaw(raw.get(), &form::TOOL)
                            .map(|flaw| line(&flaw, MAX_FLAW).into());
                        offered.push(Tool { name, raw, input, flaw });
                    }
                    Ok(()) => {
                        let (name, most) = (brief(&name), limits::MAX_TOOLS);
                        let why =
                            format!("{name:?} is one more than the {most} that a server may have");
                        leave_out(Fault::Size, why);
                    }
                    Err((fault, why)) => leave_out(fault, format!("{:?} {why}", brief(&name))),
                },
                None => {
                    let why = "it is not an object with exactly one string `name`".to_owned();
                    leave_out(Fault::Name, why);
                }
            }
        }
        (Self::new(Content::Mcp { server_info, tools: offered }), left_out)
    }

    /// The catalog of an A2A agent: its card, verbatim.
    pub fn a2a(card: Box<RawValue>) -> Self {
        Self::new(Content::A2a { card, public: None })
    }

    /// The catalog of the same agent that offers `extended`, the card that it shows to clients with
    /// a credential.
    #[must_use]
    pub fn with_extended_card(self, extended: Box<RawValue>) -> Self {
        match self.content {
            Content::A2a { card, public } => {
                let public = Some(public.unwrap_or(card));
                Self::new(Content::A2a { card: extended, public })
            }
            Content::Mcp { .. } | Content::Local { .. } => self,
        }
    }

    /// The extended card of an agent, if it is offered.
    pub fn extended_card(&self) -> Option<&RawValue> {
        match &self.content {
            Content::A2a { card, public: Some(_) } => Some(card),
            _ => None,
        }
    }

    /// Whether both are of agents with the same public card.
    pub fn has_public_card_of(&self, other: &Self) -> bool {
        let cards = (self.public_card(), other.public_card());
        matches!(cards, (Some(own), Some(others)) if own.get() == others.get())
    }

    /// The card of an agent that anyone can read.
    pub fn public_card(&self) -> Option<&RawValue> {
        match &self.content {
            Content::A2a { card, public } => Some(public.as_deref().unwrap_or(card)),
            Content::Mcp { .. } | Content::Local { .. } => None,
        }
    }

    /// The catalog of a local tool: a JSON object of all that its ref says besides kind and name.
    pub fn local(definition: Arc<InputSchema>) -> Self {
        Self::new(Content::Local(definition))
    }

    fn new(content: Content) -> Self {
        let mut hash = Sha256::new();
        let mut part = |tag: &[u8], text: &str| {
            hash.update(tag);
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        match &content {
            Content::Mcp { server_info, tools } => {
                part(b"info", server_info.as_ref().map_or("", |info| info.get()));
                for tool in tools {
                    part(b"tool", tool.raw.get());
                }
            }
            Content::A2a { card, public } => {
                part(b"card", card.get());
                if let Some(public) = public {
                    part(b"public", public.get());
                }
            }
            Content::Local(input) => part(b"local", input.definition().get()),
        }
        let digest = hex(&hash.finalize());
        let instructions = Instructions::default();
        Self { content, instructions, digest, gone: Vec::new(), left_out: None }
    }

    /// The same, of a server with these instructions. They count for the digest: if they alone have
    /// changed, the catalog is another one, or nothing would compare them with what was accepted.
    #[must_use]
    pub fn with_instructions(self, instructions: Instructions) -> Self {
        if instructions == Instructions::Unknown {
            return self;
        }
        let text = instructions.text().map_or("", |text| text);
        let digest = hex(&hash_of([self.digest.as_str(), text]).finalize());
        Self { instructions, digest, ..self }
    }

    pub fn instructions(&self) -> &Instructions {
        &self.instructions
    }

    /// The same tools in the order of `before`, new ones last. A model's prompt cache holds only as
    /// long as its tools keep their order. `now` is in seconds since 1970.
    pub fn ordered_after(self: &Arc<Self>, before: &Self, now: u64) -> Arc<Self> {
        let Content::Mcp { server_info, tools } = &self.content else { return Arc::clone(self) };
        let mut new: HashMap<&str, &Tool> =
            tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let mut ordered = Vec::with_capacity(tools.len());
        let mut gone_tools = Vec::new();
        for (name, since) in before.places() {
            let since = since.unwrap_or(now);
            if now.saturating_sub(since) >= KEEP_PLACE {
                continue;
            }
            if let Some(tool) = new.remove(name) {
                ordered.push(tool.clone());
            } else if gone_tools.len() < limits::MAX_TOOLS {
                let place = ordered.len() + gone_tools.len();
                gone_tools.push(FormerTool { name: name.to_owned(), place, since });
            }
        }
        ordered.extend(tools.iter().filter(|tool| new.contains_key(&*tool.name)).cloned());
        let content = Content::Mcp { server_info: server_info.clone(), tools: ordered };
        let ordered = Self::new(content).with_instructions(self.instructions.clone());
        Arc::new(Self { gone: gone_tools, left_out: self.left_out.clone(), ..ordered })
    }

    /// Every tool that has a place, and since when it is gone.
    fn places(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        let mut tools = self.tools();
        let mut gone_tools = self.gone.iter().peekable();
        (0..).map_while(move |place| match gone_tools.next_if(|gone| gone.place == place) {
            Some(gone) => Some((&*gone.name, Some(gone.since))),
            None => tools.next().map(|tool| (&*tool.name, None)),
        })
    }

    /// This catalog, as it was read from the disk, where the tools in `gone` still have their
    /// places: one that comes back gets its own again.
    #[must_use]
    pub fn with_gone(self, gone: Vec<FormerTool>) -> Self {
        Self { gone, ..self }
    }

    /// The tools that its server does not list any more.
    pub fn gone(&self) -> &[FormerTool] {
        &self.gone
    }

    /// The same, where `left_out` of what the peer listed is missing; `cut` says why its list was
    /// not read to the end.
    #[must_use]
    pub fn without(mut self, left_out: &[LeftOut], cut: Option<&Cut>) -> Self {
        self.left_out = Omission::new(left_out, cut);
        self
    }

    /// The part of the peer's list that is not offered.
    pub fn left_out(&self) -> Option<&Omission> {
        self.left_out.as_ref()
    }

    /// The tools that MCP clients and the APIs of models are not given, and the member of each that
    /// they could not read, in a sentence.
    pub fn unreadable(&self) -> Option<String> {
        let flaws = self.tools().filter_map(|tool| {
            Some(format!("{:?} ({})", brief(&tool.name), tool.flaw.as_deref()?))
        });
        let tools = listed(flaws);
        if tools.is_empty() {
            return None;
        }
        Some(format!("MCP clients and the APIs of models do not get these tools: {tools}."))
    }

    /// The parts of its tools' schemas that arguments are not checked against, in a sentence. What
    /// [`Self::examine`] has not looked at is not in it.
    pub fn unchecked(&self) -> Option<String> {
        let parts = match &self.content {
            Content::Local(input) => in_one_line(input.unchecked()),
            _ => listed(self.tools().filter_map(|tool| {
                let unchecked = tool.input.unchecked_so_far().filter(|parts| !parts.is_empty())?;
                Some(format!("{:?} ({})", brief(&tool.name), in_one_line(unchecked)))
            })),
        };
        if parts.is_empty() {
            return None;
        }
        Some(format!(
            "Schemas have parts that cannot be used, so arguments are not checked against them, and \
             the API of a model may refuse the whole list of tools: {parts}."
        ))
    }

    /// Looks at all schemas, which takes a while if there are many.
    pub fn examine(&self) {
        self.tools().for_each(|tool| {
            tool.input.unchecked();
        });
    }

    /// The tools of an MCP server.
    fn tools(&self) -> impl Iterator<Item = &Tool> {
        match &self.content {
            Content::Mcp { tools, .. } => tools.iter(),
            Content::A2a { .. } | Content::Local { .. } => [].iter(),
        }
    }

    pub fn content(&self) -> &Content {
        &self.content
    }

    /// SHA-256 over the peer's bytes, in hex: equal digests mean equal catalogs.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// How many tools the backend offers; an A2A agent and a local tool count as one.
    pub fn tool_count(&self) -> usize {
        match &self.content {
            Content::Mcp { tools, .. } => tools.len(),
            Content::A2a { .. } | Content::Local { .. } => 1,
        }
    }
}

/// What is wrong with the tool `name`, and why, in words that follow its name.
fn fault(
    name: &str,
    tool: &RawValue,
    fits: &mut impl FnMut(&str, &RawValue) -> Result<(), String>,
) -> Result<(), (Fault, String)> {
    if let Err(why) = limits::check(tool.get()) {
        let fault = if limits::Shape::measure(tool.get()).depth > limits::MAX_DEPTH {
            Fault::Nesting
        } else if Members::read(tool.get()).is_err() {
            Fault::Unreadable
        } else {
            Fault::Size
        };
        return Err((fault, why));
    }
    fits(name, tool).map_err(|why| (Fault::Header, why))
}

fn in_one_line(parts: &[String]) -> String {
    line(&parts.join(", "), MAX_FLAW)
}

/// The first of `items`, and how many more there are; empty if there is none.
pub fn listed(items: impl Iterator<Item = String>) -> String {
    let mut parts: Vec<String> = items.collect();
    let more = parts.len().saturating_sub(MAX_NAMED);
    parts.truncate(MAX_NAMED);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

/// Which peer a backend is: a hash of how it is reached. The catalog of one server is never offered
/// as that of another which took its name, and work that one has begun is not asked of the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(pub String);

impl Identity {
    /// Of a backend that is reached as `text` says.
    pub fn from_text(text: &str) -> Self {
        Self(hex(&Sha256::digest(text)))
    }
}

/// A hash of `parts`, each with its length, so that no two lists of them are one text.
pub(crate) fn hash_of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Sha256 {
    parts.into_iter().fold(Sha256::new(), |hash, part| {
        let part = part.as_ref();
        hash.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
    })
}

/// Lower-case hex of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    //! What is left out is told.

    use super::*;

    /// The names of the tools of a catalog, in order.
    fn names(catalog: &Catalog) -> Vec<&str> {
        let Content::Mcp { tools, .. } = catalog.content() else { panic!("{catalog:?}") };
        tools.iter().map(|tool| &*tool.name).collect()
    }

    fn listing(names: &str) -> Arc<Catalog> {
        let tool = |name| RawValue::from_string(format!(r#"{{"name":"{name}"}}"#)).unwrap();
        Arc::new(Catalog::mcp(None, names.split_whitespace().map(tool).collect()).0)
    }

    #[test]
    fn known_tools_keep_their_places_and_new_ones_come_last() {
        let (now, day) = (1_000_000_000, 24 * 60 * 60);
        let mut catalog = listing("a b c d");
        struct Case {
            later: u64,
            listed: &'static str,
            expected: &'static str,
        }
        for Case { later, listed, expected } in [
            Case { later: 0, listed: "d c b a", expected: "a b c d" },
            Case { later: 1, listed: "e d b a", expected: "a b d e" },
            Case { later: 2, listed: "b c f", expected: "b c f" },
            // What is gone for less than a month comes back to its place.
            Case { later: 31, listed: "f e d c b a", expected: "a b c d e f" },
            Case { later: 31, listed: "e", expected: "e" },
            Case { later: 61, listed: "x f e a", expected: "e x f a" },
        ] {
            let digest = catalog.digest().to_owned();
            catalog = listing(listed).ordered_after(&catalog, now + later * day);
            assert_eq!(names(&catalog).join(" "), expected, "{later}: {listed}");
            // As it is when it was kept on disk.
            let read = listing(expected);
            assert_eq!(catalog.digest(), read.digest(), "{later}: {listed}");
            let read = Arc::try_unwrap(read).unwrap().with_gone(catalog.gone().to_vec());
            assert!(read.places().eq(catalog.places()), "{read:?}");
            assert_eq!(digest == catalog.digest(), later == 0, "{later}: {listed}");
        }
        let card = Catalog::a2a(RawValue::from_string("{}".to_owned()).unwrap());
        assert_eq!(names(&listing("b a").ordered_after(&card, now)), ["b", "a"]);
        assert_eq!(Arc::new(card).ordered_after(&catalog, now).tool_count(), 1);
        // A damaged file.
        let odd = vec![FormerTool { name: "z".to_owned(), place: 7, since: 0 }];
        let odd = Arc::try_unwrap(listing("a b")).unwrap().with_gone(odd);
        assert_eq!(names(&listing("b c a").ordered_after(&odd, now)), ["a", "b", "c"]);
    }

    #[test]
    fn tool_that_clients_cannot_read_stays_and_is_told_with_its_member() {
        let tool = |members: &str| {
            let text = format!(r#"{{"name":"t"{members}}}"#);
            Catalog::mcp(None, vec![RawValue::from_string(text).unwrap()]).0
        };
        let flawed = tool(r#","inputSchema":{"type":"object"},"annotations":{"title":7}"#);
        assert_eq!(flawed.tool_count(), 1);
        let told = flawed.unreadable().unwrap();
        assert!(told.ends_with(r#": "t" (`annotations.title` is no text)."#), "{told}");
        let nulls = tool(r#","inputSchema":{"type":"object"},"annotations":null,"_meta":null"#);
        assert_eq!(nulls.unreadable(), None);
    }

    #[test]
    fn part_of_a_schema_that_cannot_be_used_is_told_once_it_was_looked_for() {
        let text = r#"{"name":"t","inputSchema":{"properties":{"n":{"exclusiveMinimum":true}}}}"#;
        let (catalog, _) = Catalog::mcp(None, vec![RawValue::from_string(text.into()).unwrap()]);
        assert_eq!(catalog.unchecked(), None);
        catalog.examine();
        let told = catalog.unchecked().unwrap();
        assert!(told.contains(r#""t" (/properties/n/exclusiveMinimum: "#), "{told}");
        let later = Arc::new(catalog);
        assert_eq!(later.ordered_after(&later, 0).unchecked(), later.unchecked());
    }

    #[test]
    fn instructions_stay_with_their_catalog_and_count_for_its_digest() {
        let before = listing("a b");
        let with = |text: &str| {
            let catalog = Arc::try_unwrap(listing("b a")).unwrap();
            Arc::new(catalog.with_instructions(Instructions::from_text(text)))
        };
        let ordered = with("Read first.").ordered_after(&before, 0);
        assert_eq!(ordered.instructions().text().map(|text| &**text), Some("Read first."));
        assert_ne!(ordered.digest(), with("Other.").ordered_after(&before, 0).digest());
        assert_ne!(ordered.digest(), before.digest());
    }

    #[test]
    fn local_tool_with_a_bad_keyword_is_told() {
        let text = r#"{"parameters":{"type":"object","properties":{"n":{"type":"strin"}}}}"#;
        let definition = RawValue::from_string(text.to_owned()).unwrap();
        let catalog = Catalog::local(Arc::new(InputSchema::of_local(definition.into())));
        assert!(catalog.unchecked().is_some_and(|told| told.contains("/properties/n/type: ")));
    }
}
