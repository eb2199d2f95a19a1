//! What people read of a run's prompt in lists.
//!
//! Must not: keep more of a prompt than that. Thousands of runs are remembered.

use serde_json::value::RawValue;

/// The most characters.
const MAX: usize = 100;
/// The most bytes of a prompt that are read: it may have megabytes.
const READ: usize = 2 << 10;
/// The longest escape of a character in JSON.
const ESCAPE: usize = 12;

/// The beginning of a prompt on one line; empty if `value` is no text.
pub(super) fn first_words(value: Option<&RawValue>) -> Box<str> {
    let prompt = value.and_then(|value| beginning(value.get())).unwrap_or_default();
    let mut line = String::new();
    // Whitespace counts at most once, so that this many characters are enough.
    for word in prompt.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(MAX + 1));
        if line.chars().nth(MAX).is_some() {
            break;
        }
    }
    if let Some((end, _)) = line.char_indices().nth(MAX) {
        line.truncate(end);
        line.push('…');
    }
    line.into()
}

/// The text that `json` is, or the beginning of a longer one.
fn beginning(json: &str) -> Option<String> {
    if json.len() <= READ {
        return serde_json::from_str(json).ok();
    }
    // No end within an escape or a character makes a text.
    let ends = (READ - ESCAPE..=READ).rev();
    ends.filter_map(|end| json.get(..end)).find_map(|text| {
        let text = format!("{text}\"");
        serde_json::from_str(&text).ok()
    })
}

#[cfg(test)]
mod tests {
    //! How a prompt is cut.

    use super::*;

    fn words(prompt: &str) -> String {
        let json = serde_json::to_string(prompt).unwrap();
        first_words(Some(serde_json::from_str(&json).unwrap())).into()
    }

    #[test]
    fn first_words_are_one_line_of_limited_length() {
        assert_eq!(words("  Sum up\n\tthe news "), "Sum up the news");
        assert_eq!(words(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(words(&"ä".repeat(1 << 20)), format!("{}…", "ä".repeat(100)));
        assert_eq!(words(&"\u{1}".repeat(1 << 20)), format!("{}…", "\u{1}".repeat(100)));
        assert_eq!(words(&"ab ".repeat(1 << 10)), format!("{}a…", "ab ".repeat(33)));
    }

    #[test]
    fn first_words_of_no_text_are_empty() {
        assert_eq!(&*first_words(None), "");
        assert_eq!(&*first_words(Some(serde_json::from_str("{\"a\":1}").unwrap())), "");
        let list = format!("[{}1]", "1,".repeat(READ));
        assert_eq!(&*first_words(Some(serde_json::from_str(&list).unwrap())), "");
    }
}
