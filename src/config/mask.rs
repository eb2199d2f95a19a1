//! Hides secrets in the source lines that error messages show.
//!
//! Must not: be the only guard. Resolved references never come near a message.

use super::{
    document::{Document, Kind, Node},
    reference::looks_secret,
};

const MASK: &str = "***";

/// What must not be shown.
pub(super) struct Mask {
    /// Longest first, so that none is hidden only in part.
    secrets: Vec<String>,
    /// There is no tree to find secrets in, so lines are judged by their looks.
    by_looks: bool,
}

impl Mask {
    /// For a file that could be parsed.
    pub fn of(document: &Document) -> Self {
        let mut secrets = Vec::new();
        collect(&document.root, false, 0, &mut secrets);
        secrets.sort_by_key(|secret: &String| std::cmp::Reverse(secret.len()));
        Self { secrets, by_looks: false }
    }

    /// For a file that could not.
    pub fn by_looks() -> Self {
        Self { secrets: Vec::new(), by_looks: true }
    }

    pub fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), MASK);
        }
        if self.by_looks {
            text = hide_by_looks(&text);
        }
        hide_user_info(&text)
    }
}

fn collect(node: &Node, is_secret: bool, depth: usize, secrets: &mut Vec<String>) {
    match &node.kind {
        Kind::Map(entries) => {
            for (key, value) in entries {
                // At depth 1 stand the names that the user gave to backends and apps.
                let is_secret = is_secret || depth != 1 && (looks_secret(key) || key == "headers");
                collect(value, is_secret, depth + 1, secrets);
            }
        }
        Kind::Seq(items) => {
            for item in items {
                collect(item, is_secret, depth + 1, secrets);
            }
        }
        Kind::Str(text) | Kind::Int(_, text) | Kind::Float(_, text) if is_secret => {
            let shown_word = |line: &str| matches!(line, "passthrough" | "true" | "false");
            let lines = text.lines().map(str::trim);
            // What is short or a reference tells nobody anything.
            let secret =
                lines.filter(|line| line.len() >= 4 && !line.contains("${") && !shown_word(line));
            secrets.extend(secret.map(str::to_owned));
        }
        _ => (),
    }
}

/// Hides what follows `password:` and the like on one line.
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

/// Hides `user:password@` in URLs.
fn hide_user_info(text: &str) -> String {
    let mut pieces = text.split("://");
    let mut hidden = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        hidden.push_str("://");
        let authority =
            piece.split(['/', '?', '#', ' ', '"', '\'', '`']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((user, _)) => {
                hidden.push_str(MASK);
                hidden.push_str(piece.strip_prefix(user).unwrap_or_default());
            }
            None => hidden.push_str(piece),
        }
    }
    hidden
}
