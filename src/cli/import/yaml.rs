//! Texts as YAML writes them.
//!
//! Must not: know what a text means.

/// `text` as a YAML scalar that is read back as the same string: plain where that is safe.
pub(in crate::cli) fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// JSON's strings are valid YAML, except for one control character that YAML wants escaped.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\x7f")
}

/// Texts in one line: `[a, b]`.
pub(super) fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| scalar(item)).collect();
    format!("[{}]", items.join(", "))
}

/// Whether every reader of YAML takes `text` for a string, within brackets, too.
fn is_plain(text: &str) -> bool {
    let rest = text.trim_start_matches('-');
    let dashes = text.len() - rest.len();
    let first = rest.chars().next();
    let begins =
        first.is_some_and(|c| c.is_ascii_alphabetic() || (dashes == 0 && "/_".contains(c)));
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_./@+=".contains(c);
    // A colon is safe before a slash, as in an address.
    let safe = rest.replace(":/", "/").chars().all(inside);
    let word = text.to_ascii_lowercase();
    let means_more = matches!(
        word.as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
    );
    begins && dashes <= 2 && safe && !means_more
}
