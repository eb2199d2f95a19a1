//! Hides secrets in the source lines and messages that tell of mistakes in bridge.yaml.
//!
//! What fits the file format is judged by its key. What does not fit may be anything, such as a
//! token below a mistyped key, so no value of it is shown, whatever its shape.
//!
//! Must not: be the only guard. Resolved references never come near a message.

mod line;

use std::ops::Range;

use super::deserialize::Mistake;
use super::document::{Kind, Node, Place, shown_key};
use super::error::Snippet;
use super::reference::{looks_secret, reference_end, scheme_and_token};
use super::{Document, NodeId, Secrets};

const MASK: &str = "***";

/// What must not be shown of a file.
pub(super) struct Redactor<'t> {
    text: &'t str,
    /// What is hidden, in bytes of the file.
    hidden: Vec<Range<usize>>,
    /// Where the file has values and keys: what stands outside of them may be a comment.
    tokens: Vec<Range<usize>>,
    /// The hidden texts of some length, for messages that repeat one.
    secrets: Secrets,
    /// The file has no tree, so that no value is known to be harmless.
    is_unparsed: bool,
}

impl<'t> Redactor<'t> {
    /// The redactor of a file that was parsed. The values at `unfit` do not fit the file format; if
    /// `all_unfit`, more of them may not.
    pub(super) fn new(
        document: &Document,
        text: &'t str,
        unfit: &[NodeId],
        all_unfit: bool,
    ) -> Self {
        let mut redactor = Self::unparsed(text);
        redactor.is_unparsed = false;
        redactor.keys(&document.root);
        redactor.secrets_in(&document.root, false, false);
        for node in unfit {
            redactor.whole(document.node(*node));
        }
        if all_unfit {
            redactor.whole(&document.root);
        }
        redactor
    }

    /// The redactor of a file that could not be parsed.
    pub(super) fn unparsed(text: &'t str) -> Self {
        let (hidden, tokens) = (Vec::new(), Vec::new());
        Self { text, hidden, tokens, secrets: Secrets::default(), is_unparsed: true }
    }

    /// `text`, which tells of `mistake` at `node`, without the secrets of the file.
    pub(super) fn message(&self, mistake: &Mistake, node: &Node, text: &str) -> String {
        // A mistake of the value's shape does not repeat the value.
        let may_repeat = !mistake.is_unfit && mistake.node == node.id;
        // An alias may stand where its value fits, and be of one that does not.
        let hides_value = self.hidden.iter().any(|hidden| node.source.start == hidden.start);
        match &node.kind {
            Kind::Str(value) if may_repeat && hides_value && value.len() > 3 => {
                self.apply(&text.replace(value, MASK))
            }
            _ => self.apply(text),
        }
    }

    fn apply(&self, text: &str) -> String {
        let text = self.secrets.replace(text.to_owned(), MASK);
        let mut masked = String::with_capacity(text.len());
        let mut end = 0;
        for hidden in line::merged(line::in_urls(&text)) {
            masked.push_str(text.get(end..hidden.start).unwrap_or_default());
            masked.push_str(MASK);
            end = hidden.end;
        }
        masked.push_str(text.get(end..).unwrap_or_default());
        in_one_line(&masked)
    }

    /// The line of `place`, with a mask for each hidden part.
    pub(super) fn snippet(&self, place: Place) -> Option<Snippet> {
        let number = place.line.checked_sub(1)?;
        let line = self.text.lines().nth(number)?;
        let start = line.as_ptr().addr().checked_sub(self.text.as_ptr().addr())?;
        let hidden = if self.is_unparsed {
            line::after_key(line).into_iter().collect()
        } else {
            self.hidden_in(start, line)
        };
        Some(Snippet::new(line, place, &line::merged(hidden), MASK))
    }

    /// The lines of these numbers, with a mask for each hidden part.
    pub(super) fn lines(&self, numbers: Range<usize>) -> Vec<String> {
        let snippets = numbers.map(|line| self.snippet(Place { line, column: 1, width: 1 }));
        snippets.map(|snippet| snippet.map(|snippet| snippet.text).unwrap_or_default()).collect()
    }

    /// What is hidden in `line`, which begins at `start`, in bytes of the line.
    fn hidden_in(&self, start: usize, line: &str) -> Vec<Range<usize>> {
        let within = |range: &Range<usize>| {
            let (from, to) = (range.start.max(start), range.end.min(start + line.len()));
            if from < to { Some(from - start..to - start) } else { None }
        };
        let mut hidden: Vec<_> = self.hidden.iter().filter_map(within).collect();
        let tokens: Vec<_> = self.tokens.iter().filter_map(within).collect();
        hidden.extend(line::comment(line, &tokens));
        hidden.extend(line::by_looks(line));
        hidden.extend(self.secrets.found_in(line));
        hidden
    }

    /// Notes the places of all keys and values, and hides what follows the name in a key: someone
    /// has written `NAME=value` or `Name: value` as a whole.
    fn keys(&mut self, node: &Node) {
        match &node.kind {
            Kind::Map(entries) => {
                for (key, value) in entries {
                    self.tokens.push(value.key_source.clone());
                    if let Some((_, rest)) = shown_key(key) {
                        let source = &value.key_source;
                        let key_text = self.text.get(source.clone()).unwrap_or_default();
                        let at = key_text.find(rest).unwrap_or_default();
                        self.hidden.push(source.start + at..source.end);
                        self.secrets.add_longer_than(3, rest.trim());
                    }
                    self.keys(value);
                }
            }
            Kind::Seq(items) => items.iter().for_each(|item| self.keys(item)),
            _ => self.tokens.push(node.source.clone()),
        }
    }

    /// Hides the values that are secrets by their keys.
    fn secrets_in(&mut self, node: &Node, is_secret: bool, are_names: bool) {
        match &node.kind {
            Kind::Map(entries) => {
                for (key, value) in entries {
                    if key == "tls" && !are_names {
                        self.pasted(value);
                        continue;
                    }
                    if key == "webhook" && !are_names {
                        self.webhook(value);
                    }
                    let names_secret =
                        looks_secret(key) || matches!(key.as_str(), "headers" | "pattern");
                    let hides_all = is_secret || !are_names && names_secret;
                    // Below these keys are the user's names of backends and apps.
                    let sections = ["mcp", "mcpServers", "a2a", "apps", "local", "notify"];
                    self.secrets_in(value, hides_all, sections.contains(&key.as_str()));
                }
            }
            Kind::Seq(items) => self.arguments(items, is_secret),
            Kind::Str(text) if is_secret && text != "passthrough" => self.literals(node, text),
            Kind::Int(_, text) | Kind::Float(_, text) if is_secret => self.literals(node, text),
            // `Bearer abc`, whatever the name of its variable is.
            Kind::Str(text) if scheme_and_token(text).is_some() => self.literals(node, text),
            _ => (),
        }
    }

    /// `--token abc` and `--token=abc`.
    fn arguments(&mut self, items: &[Node], is_secret: bool) {
        let mut after_option = false;
        for item in items {
            self.secrets_in(item, is_secret || after_option, false);
            let option = match &item.kind {
                Kind::Str(text) if text.starts_with('-') => text.as_str(),
                _ => "",
            };
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            after_option = looks_secret(name) && value.is_empty();
            if looks_secret(name) && !value.is_empty() {
                let source = self.text.get(item.source.clone()).unwrap_or_default();
                let at = source.find('=').map_or(0, |at| at + 1);
                self.pieces(item.source.start + at..item.source.end);
                self.secrets.add_longer_than(3, value);
            }
        }
    }

    /// The values in `tls` are names of files, also `key`; a key itself is there only by mistake.
    fn pasted(&mut self, tls: &Node) {
        let Kind::Map(entries) = &tls.kind else { return };
        for (_, value) in entries {
            if let Kind::Str(text) = &value.kind
                && text.contains("-----")
            {
                self.literals(value, text);
            }
        }
    }

    /// Hides the address in `webhook`, or what stands in place of the map: who knows it can post
    /// there.
    fn webhook(&mut self, webhook: &Node) {
        match &webhook.kind {
            Kind::Map(entries) => {
                for (key, value) in entries {
                    if let ("url", Kind::Str(text)) = (key.as_str(), &value.kind) {
                        self.literals(value, text);
                    }
                }
            }
            Kind::Str(text) => self.literals(webhook, text),
            _ => (),
        }
    }

    /// Hides what is written out in a value; references stay.
    fn literals(&mut self, node: &Node, value: &str) {
        self.pieces(node.source.clone());
        // The source differs from the value if it has escapes or several lines.
        let source = self.text.get(node.source.clone()).unwrap_or_default();
        let lines = value.lines().chain(source.lines());
        for line in lines.map(|line| line.trim().trim_matches(['"', '\''])) {
            let token = scheme_and_token(line).unwrap_or(line);
            for piece in literal_pieces(token) {
                self.secrets.add_longer_than(3, token.get(piece).unwrap_or_default());
            }
        }
    }

    /// Hides the part `source` of the file without its references, its quotes and the word
    /// `Bearer`.
    fn pieces(&mut self, source: Range<usize>) {
        let text = self.text.get(source.clone()).unwrap_or_default();
        let mut inner = text;
        for quote in ['"', '\''] {
            inner = inner.strip_prefix(quote).unwrap_or(inner);
            inner = inner.strip_suffix(quote).unwrap_or(inner);
        }
        let token = scheme_and_token(inner).unwrap_or(inner);
        let at = source.start + (token.as_ptr().addr() - text.as_ptr().addr());
        let pieces = literal_pieces(token).into_iter();
        self.hidden.extend(pieces.map(|piece| at + piece.start..at + piece.end));
    }

    /// Hides a value and all in it, keys included.
    fn whole(&mut self, node: &Node) {
        match &node.kind {
            Kind::Map(entries) => {
                for (_, value) in entries {
                    self.hidden.push(value.key_source.clone());
                    self.whole(value);
                }
            }
            Kind::Seq(items) => items.iter().for_each(|item| self.whole(item)),
            Kind::Str(_) | Kind::Int(..) | Kind::Float(..) => self.pieces(node.source.clone()),
            Kind::Null | Kind::Bool(_) => (),
        }
    }
}

/// `text` without line ends: one in a value would begin a line of the report.
pub(super) fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The parts of `text` that are no references.
fn literal_pieces(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices("${") {
        if let Some(end) = reference_end(text, at).filter(|_| at >= start) {
            pieces.push(start..at);
            start = end;
        }
    }
    pieces.push(start..text.len());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests;
