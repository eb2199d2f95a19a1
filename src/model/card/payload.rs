//! The texts that a signature of an Agent Card may cover: the card without its `signatures`, in the
//! form of RFC 8785, with or without members of little meaning.
//!
//! A2A 1.0 (§8.4.1) leaves out optional members with their default value. The SDKs leave out all
//! empty members, and an agent that also speaks 0.3 adds 0.3's members after the card was signed.
//! So there are several payloads. A member of the card that a payload leaves out must say nothing
//! that the payload does not say itself ([`Payload::leaves_out`]).
//!
//! Must not: be shown in place of the card. What goes to MANTYX is the card's own bytes.

use std::sync::LazyLock;

use serde_json::value::RawValue;

use crate::model::canonical::{Node, Unclear};
use crate::model::maps::{HashMap, HashSet};

/// The messages of a card: a2a.proto of A2A 1.0, `AgentCard` and what it is made of. A line has the
/// path of a message from the top and its members; in the path, `*` is each element of a list, and
/// each name of a map with free names. A member with a `?` is implicit: it is left out with its
/// default value. Such a field is neither `REQUIRED` nor `optional`, and no message itself.
const PLACES: &str = include_str!("payload/places.txt");

/// The members of the message at each of [`PLACES`], by its path.
static MEMBERS: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let places = PLACES.lines().filter_map(|line| line.split_once(':'));
    places.map(|(at, members)| (at, members.split_whitespace().collect())).collect()
});

/// Names and values of 0.3 that 1.0 lacks. Its SDK leaves `protocolVersion` and
/// `preferredTransport` out of the signed text if they have these values.
const WORDS_0_3: &str = include_str!("payload/words_0_3.txt");
const DEFAULT_VERSION: &str = "0.3.0";
const DEFAULT_TRANSPORT: &str = "JSONRPC";

/// A text that a signature of the card may cover.
#[derive(Debug)]
pub(super) struct Payload<'a> {
    node: Node<'a>,
    /// Its bytes, which are a card themselves.
    pub(super) text: String,
}

/// A card without its `signatures`.
#[derive(Debug)]
pub(super) struct Unsigned<'a>(Node<'a>);

impl<'a> Unsigned<'a> {
    /// Reads the whole card.
    pub(super) fn read(card: &'a RawValue) -> Result<Self, Unclear> {
        let mut node = Node::read_clear(card)?;
        if let Node::Map(members) = &mut node {
            members.retain(|(key, _)| key != "signatures");
        }
        Ok(Self(node))
    }

    /// All payloads, no two alike; the card as it is comes first.
    pub(super) fn payloads(&self) -> Vec<Payload<'a>> {
        let Self(card) = self;
        let mut nodes = vec![card.clone()];
        if has_member(card, "supportedInterfaces") {
            for knows_all in [true, false] {
                let explicit = without_defaults(card, "", knows_all);
                let full = without_empty(&explicit);
                nodes.extend(std::iter::once(explicit).chain(full));
            }
        } else {
            nodes.extend(without_empty(card));
            nodes.extend(without_empty(&without_defaults_0_3(card)));
        }
        let mut payloads: Vec<Payload<'a>> = Vec::new();
        for node in nodes {
            let text = node.jcs();
            if payloads.iter().all(|other| other.text != text) {
                payloads.push(Payload { node, text });
            }
        }
        payloads
    }
}

impl Payload<'_> {
    /// A text of `card` that is neither in the payload nor a word of the format: anyone on the
    /// network path could have added it.
    pub(super) fn leaves_out(&self, card: &Unsigned<'_>) -> Option<String> {
        let members = MEMBERS.values().flatten().map(|name| name.trim_start_matches('?'));
        let words = WORDS_0_3.split_whitespace().chain(["", "true", "false", "null"]);
        let mut signed: HashSet<String> = members.chain(words).map(str::to_owned).collect();
        self.node.each_text(&mut |text| _ = signed.insert(text.to_owned()));
        let mut left_out = None;
        card.0.each_text(&mut |text| {
            if left_out.is_none() && !signed.contains(text) {
                left_out = Some(text.to_owned());
            }
        });
        left_out
    }
}

/// `node` without the members that have the default values of A2A 1.0, and, unless `knows_all`,
/// without those that 1.0 does not know.
fn without_defaults<'a>(node: &Node<'a>, at: &str, knows_all: bool) -> Node<'a> {
    let inside =
        |node: &Node<'a>, name: &str| without_defaults(node, &format!("{at}/{name}"), knows_all);
    match node {
        Node::Text(_) | Node::Raw(_) => node.clone(),
        Node::List(elements) => {
            Node::List(elements.iter().map(|element| inside(element, "*")).collect())
        }
        Node::Map(members) => {
            let place = MEMBERS.get(at);
            let mut signed = Vec::new();
            for (key, value) in members {
                if place.is_some_and(|fields| leaves_out(fields, key, value, knows_all)) {
                    continue;
                }
                let name = if place.is_some() { key.as_str() } else { "*" };
                signed.push((key.clone(), inside(value, name)));
            }
            Node::Map(signed)
        }
    }
}

fn has_member(node: &Node<'_>, name: &str) -> bool {
    matches!(node, Node::Map(members) if members.iter().any(|(key, _)| key == name))
}

/// Whether the text that an agent signs lacks the member `key` of a message with these `fields`:
/// the agent's library writes no field that has its default value, and none that it does not know.
fn leaves_out(fields: &[&str], key: &str, value: &Node<'_>, knows_all: bool) -> bool {
    let implicit = fields.iter().any(|field| field.strip_prefix('?') == Some(key));
    if !knows_all && !implicit && !fields.contains(&key) {
        return true;
    }
    // JSON's `null` is how protobuf's may say that a field is not set.
    matches!(value, Node::Raw("null"))
        || implicit && (is_empty(value) || matches!(value, Node::Raw("false")))
}

fn is_empty(value: &Node<'_>) -> bool {
    match value {
        Node::Text(text) => text.is_empty(),
        Node::List(elements) => elements.is_empty(),
        Node::Map(members) => members.is_empty(),
        Node::Raw(raw) => *raw == "null",
    }
}

/// `node` without what is empty, and what is empty without that; `None` if nothing is left.
fn without_empty<'a>(node: &Node<'a>) -> Option<Node<'a>> {
    let full = match node {
        Node::Text(_) | Node::Raw(_) => node.clone(),
        Node::List(elements) => Node::List(elements.iter().filter_map(without_empty).collect()),
        Node::Map(members) => Node::Map(
            members
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), without_empty(value)?)))
                .collect(),
        ),
    };
    if is_empty(&full) { None } else { Some(full) }
}

/// A card of 0.3 without what its SDK does not sign.
fn without_defaults_0_3<'a>(card: &Node<'a>) -> Node<'a> {
    let mut card = card.clone();
    let Node::Map(members) = &mut card else { return card };
    members.retain(|(key, value)| match key.as_str() {
        "protocolVersion" => !is_text(value, DEFAULT_VERSION),
        "preferredTransport" => !is_text(value, DEFAULT_TRANSPORT),
        _ => true,
    });
    for (_, schemes) in members.iter_mut().filter(|(key, _)| key == "securitySchemes") {
        let Node::Map(schemes) = schemes else { continue };
        for (_, scheme) in schemes {
            if let Node::Map(scheme) = scheme {
                scheme.retain(|(key, _)| key != "type");
            }
        }
    }
    card
}

fn is_text(value: &Node<'_>, text: &str) -> bool {
    matches!(value, Node::Text(own) if own == text)
}

#[cfg(test)]
mod tests;
