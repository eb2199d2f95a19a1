//! Questions on a terminal: one line out, one line in.
//!
//! Must not: ask where nobody is.

use std::io::{self, BufRead, Write as _};

use crate::cli::Failure;

/// Asks a person, or takes the default where there is none.
pub(super) struct Asker {
    pub(super) input: Box<dyn BufRead>,
    /// Whether there is somebody to ask.
    pub(super) on: bool,
}

impl Asker {
    /// A line; `None` if it is empty.
    pub(super) fn text(&mut self, question: &str) -> Result<Option<String>, Failure> {
        if !self.on {
            return Ok(None);
        }
        let mut out = io::stderr();
        write!(out, "{question}")?;
        out.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            // The end of the input is no answer: nothing more is asked.
            self.on = false;
            writeln!(out)?;
        }
        let line = line.trim();
        Ok((!line.is_empty()).then(|| line.to_owned()))
    }

    /// Yes or no; an empty line and whatever is neither is `default`.
    pub(super) fn yes(&mut self, question: &str, default: bool) -> Result<bool, Failure> {
        let choices = if default { "[Y/n] " } else { "[y/N] " };
        let answer = self.text(&format!("{question}{choices}"))?.unwrap_or_default();
        Ok(match answer.to_lowercase().as_str() {
            "y" | "yes" => true,
            "n" | "no" => false,
            _ => default,
        })
    }
}
