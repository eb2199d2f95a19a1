//! Hides secrets in the source lines that error messages show.
//!
//! Must not: be the only guard. Resolved references never come near a message.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::document::{Kind, Node};
use super::reference::{looks_secret, scheme_and_token};
use super::{Document, Secrets};

const MASK: &str = "***";

/// `user:password@` in a URL.
static USER_INFO: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"://[^/?# "'`]*@"#).expect("a test compiles it"));
/// A parameter of a URL: `?name=value` or `&name=value`.
static QUERY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"([?&])([^=?&]*)=([^?&# "'`,}]*)"#).expect("a test compiles it"));

/// The texts that must not be shown.
pub(super) struct Redactor {
    secrets: Secrets,
    /// The file has no tree to find secrets in, so each line is judged by its looks.
    by_looks: bool,
}

impl Redactor {
    /// The redactor of a file that was parsed.
    pub(super) fn of(document: &Document, text: &str) -> Self {
        let mut secrets = Secrets::default();
        collect(&document.root, false, false, &mut |node, value: &str| {
            // The source differs from the value if it has escapes or several lines.
            let source = text.get(node.source.clone()).unwrap_or_default();
            for line in value.lines().chain(source.lines()) {
                let line = line.trim().trim_matches(['"', '\'']);
                // A short value or a reference reveals nothing, but a reference's default does.
                let is_reference = line.contains("${") && !line.contains(":-");
                if !is_reference && line != "passthrough" {
                    secrets.add_longer_than(3, line);
                }
            }
        });
        Self { secrets, by_looks: false }
    }

    /// The redactor of a file that could not be parsed.
    pub(super) fn by_looks() -> Self {
        Self { secrets: Secrets::default(), by_looks: true }
    }

    pub(super) fn apply(&self, text: &str) -> String {
        let mut text = self.secrets.replace(text.to_owned(), MASK);
        if self.by_looks {
            text = hide_by_looks(&text);
        }
        let text = USER_INFO.replace_all(&text, format!("://{MASK}@"));
        let hidden = QUERY.replace_all(&text, |found: &Captures<'_>| {
            match looks_secret(&found[2]) && !found[3].starts_with("${") {
                true => format!("{}{}={MASK}", &found[1], &found[2]),
                false => found[0].to_owned(),
            }
        });
        hidden.into_owned()
    }
}

fn collect(node: &Node, is_secret: bool, names: bool, keep: &mut dyn FnMut(&Node, &str)) {
    match &node.kind {
        Kind::Map(entries) => {
            for (key, value) in entries {
                if key == "tls" && !names {
                    collect_pasted(value, keep);
                    continue;
                }
                let is_secret = is_secret || !names && (looks_secret(key) || key == "headers");
                // Below these keys are the user's names of backends and apps.
                let sections = ["mcp", "mcpServers", "a2a", "apps", "local"];
                collect(value, is_secret, sections.contains(&key.as_str()), keep);
            }
        }
        Kind::Seq(items) => {
            let mut after_option = false;
            for item in items {
                collect(item, is_secret || after_option, false, keep);
                // `--token abc` and `--token=abc`.
                let option = match &item.kind {
                    Kind::Str(text) if text.starts_with('-') => text.as_str(),
                    _ => "",
                };
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                after_option = looks_secret(name) && value.is_empty();
                if looks_secret(name) {
                    keep(item, value);
                }
            }
        }
        Kind::Str(text) | Kind::Int(_, text) | Kind::Float(_, text) if is_secret => {
            keep(node, text);
        }
        // `Bearer abc`, whatever the name of its variable is.
        Kind::Str(text) if scheme_and_token(text).is_some() => keep(node, text),
        _ => (),
    }
}

/// The values in `tls` are names of files, also `key`; a key itself is there only by mistake.
fn collect_pasted(tls: &Node, keep: &mut dyn FnMut(&Node, &str)) {
    let Kind::Map(entries) = &tls.kind else { return };
    for (_, value) in entries {
        if let Kind::Str(text) = &value.kind
            && text.contains("-----")
        {
            keep(value, text);
        }
    }
}

/// Hides the text after `password:` and similar words on one line.
fn hide_by_looks(line: &str) -> String {
    for (at, _) in line.match_indices(':') {
        let (before, after) = line.split_at(at);
        let value = after.trim_start_matches(':').trim_start_matches([' ', '"', '\'']);
        let key = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let key = key.into_iter().find(|word| !word.is_empty()).unwrap_or_default();
        if looks_secret(key) && !value.is_empty() && !value.starts_with("${") {
            return format!("{before}: {MASK}");
        }
    }
    line.to_owned()
}
