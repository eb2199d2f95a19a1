//! Makes text safe to show: it cannot control a terminal, fake a line, or hide characters. For all
//! text from outside that people see.
//!
//! Must not: change text that is plain already.

use std::fmt::{self, Write};

use crate::model::visible;

/// Whether `c` is visible as what it is, and where it is.
pub fn is_plain(c: char) -> bool {
    // The joiners within emoji can also hide between other characters.
    c != '\n' && !visible::hides(c) && !matches!(c, '\u{200c}' | '\u{200d}')
}

/// Passes plain characters on, and writes `\n` or `\u{1b}` for others.
pub(super) struct Escaping<W>(pub(super) W);

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c| !is_plain(c)) {
            let (plain, odd) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = odd.chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Makes a line of JSON plain, where other characters can only stand in strings, and become
/// escapes. Line ends between tokens become spaces, except a last one.
pub fn json(text: &str) -> String {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let mut out = String::with_capacity(text.len() + 16);
    for c in body.chars() {
        if is_plain(c) {
            out.push(c);
        } else if c == '\n' || c == '\r' {
            out.push(' ');
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
            }
        }
    }
    out.push_str(text.get(body.len()..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    //! What is escaped, and what is left as it is.

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut out = String::new();
        Escaping(&mut out).write_str(text).unwrap();
        assert_eq!(out, expected);
    }

    #[test]
    fn control_characters_are_written_out() {
        check("plain\tgrün 猫 🐈", "plain\tgrün 猫 🐈");
        check("a\x1b[31m\r\nb\x07", "a\\u{1b}[31m\\r\\nb\\u{7}");
        check("\u{9b}2J\x7f", "\\u{9b}2J\\u{7f}");
        check("x\u{202e}y\u{2028}\u{200b}\u{e0041}", "x\\u{202e}y\\u{2028}\\u{200b}\\u{e0041}");
        check("\u{feff}", "\\u{feff}");
    }

    #[test]
    fn json_says_the_same_afterwards() {
        let said = "a\u{9b}\x7f\u{202e}\u{e0041}ü\n";
        let line = format!("{}\n", serde_json::to_string(said).unwrap());
        let plain = json(&line);
        assert_eq!(plain, "\"a\\u009b\\u007f\\u202e\\udb40\\udc41ü\\n\"\n");
        assert_eq!(serde_json::from_str::<String>(&plain).unwrap(), said);
        assert_eq!(json("{\r\n\"a\": 1}\n"), "{  \"a\": 1}\n");
    }
}
