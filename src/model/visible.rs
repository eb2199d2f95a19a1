//! Characters that a reader does not see, or does not see in their place: a text must say the same
//! to a model as to the person who looks at it.
//!
//! Must not: change any text but one that is shown to people.

use std::fmt::Write as _;

/// The most of several names that a message has.
const MAX_NAMED: usize = 5;

/// The first of `names`, and how many more there are.
pub fn first(names: &[String]) -> String {
    at_most(names, MAX_NAMED)
}

/// The first `most` of `names`, and how many more there are.
pub fn at_most(names: &[String], most: usize) -> String {
    let first = names.get(..most).unwrap_or(names);
    let more = match names.len() - first.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", first.join(", "))
}

/// At most `most` bytes of `text`, in one line.
pub fn line(text: &str, most: usize) -> String {
    let (head, rest) = text.split_at(text.floor_char_boundary(most));
    let mut head: String = head.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if !rest.is_empty() {
        head.push('…');
    }
    head
}

/// As much of a peer's own words as a message has room for.
pub fn brief(text: &str) -> &str {
    text.get(..text.floor_char_boundary(100)).unwrap_or_default()
}

/// Whether `c` is unwanted anywhere in a text: it steers a terminal, changes the direction of text,
/// or is not visible at all. Line ends and tabs are allowed.
pub fn hides(c: char) -> bool {
    let layout = matches!(c, '\n' | '\t');
    let unseen = matches!(
        c,
        // Changes the direction of what stands around it, or ends a line for some.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Takes no room: zero-width characters, soft hyphens, the byte order mark, tags.
        | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        // Letters that look like nothing.
        | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}'
        // Private use: only its author knows the meaning.
        | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}'
    );
    (c.is_control() && !layout) || unseen
}

/// The characters of `text`, each with whether it is hidden where it stands: what [`hides`] says,
/// but for a line end of two characters; and joiners and variation selectors where no emoji and no
/// script has use for them.
fn marked(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut chars = text.chars().peekable();
    let mut before = None;
    std::iter::from_fn(move || {
        let c = chars.next()?;
        let after = chars.peek().copied();
        let hidden = match c {
            '\r' => after != Some('\n'),
            '\u{200c}' | '\u{200d}' => {
                ![before, after].into_iter().all(|c| c.is_some_and(|c| c > '\u{2ff}' && !hides(c)))
            }
            // One says how a character is drawn; several in a row are a message.
            '\u{fe00}'..='\u{fe0f}' => matches!(before, None | Some('\u{fe00}'..='\u{fe0f}')),
            _ => hides(c),
        };
        before = Some(c);
        Some((c, hidden))
    })
}

/// The hidden characters of `text`.
pub fn hidden(text: &str) -> impl Iterator<Item = char> {
    marked(text).filter(|(_, hidden)| *hidden).map(|(c, _)| c)
}

/// `text` with what is hidden in it written out, as `\u{202e}`.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (c, hidden) in marked(text) {
        if hidden {
            write!(out, "{}", c.escape_unicode()).expect("writing to a String cannot fail");
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! What is hidden, and what only looks like it.

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(text), expected);
        assert_eq!(hidden(text).count() > 0, shown(text) != text, "both agree on {text:?}");
    }

    #[test]
    fn invisible_characters_are_written_out() {
        check("a\x1b[31mb\x07", r"a\u{1b}[31mb\u{7}");
        check("\u{9b}2J\x7f\0", r"\u{9b}2J\u{7f}\u{0}");
        check("x\u{202e}y\u{2066}", r"x\u{202e}y\u{2066}");
        check("a\u{200b}b\u{feff}\u{ad}", r"a\u{200b}b\u{feff}\u{ad}");
        check("\u{e0041}\u{e000}\u{3164}", r"\u{e0041}\u{e000}\u{3164}");
        check("over\rwritten", r"over\u{d}written");
        check("ig\u{200d}nore", r"ig\u{200d}nore");
        check("a\u{fe01}\u{fe02}", "a\u{fe01}\\u{fe02}");
    }

    #[test]
    fn honest_text_is_left_alone() {
        for text in [
            "Grüße, 猫 🐈\n\t- one\r\n- two",
            "👩\u{200d}👩\u{200d}👧 and ⚠\u{fe0f} and 1\u{fe0f}\u{20e3}",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "",
        ] {
            check(text, text);
        }
    }
}
