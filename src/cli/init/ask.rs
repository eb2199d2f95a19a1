//! Questions on a terminal: one line out, one line in.
//!
//! Must not: ask without a person at the terminal.

use std::io::{self, BufRead};

use crate::cli::{Outcome, terminal};

/// Asks a person, or uses the default if there is none.
pub(in crate::cli) struct Asker {
    pub(in crate::cli) input: Box<dyn BufRead>,
    /// Whether a person can answer.
    pub(in crate::cli) on: bool,
}

impl Asker {
    /// Asks the person at the terminal, which the caller has made sure of.
    pub(in crate::cli) fn at_terminal() -> Self {
        Self { input: Box::new(io::stdin().lock()), on: true }
    }

    /// A line; `None` if it is empty.
    pub(in crate::cli) fn text(&mut self, question: &str) -> Outcome<Option<String>> {
        if !self.on {
            return Ok(None);
        }
        terminal::ask(question)?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            // The end of the input is no answer, and there will be no other.
            self.on = false;
            terminal::ask("\n")?;
        }
        let answer = line.trim();
        if answer.is_empty() { Ok(None) } else { Ok(Some(answer.to_owned())) }
    }

    /// Yes or no; an empty line means yes, and any other answer no.
    pub(in crate::cli) fn yes(&mut self, question: &str) -> Outcome<bool> {
        let answer = self.text(&format!("{question}[Y/n] "))?.unwrap_or_default();
        Ok(matches!(answer.to_lowercase().as_str(), "" | "y" | "yes"))
    }

    /// Whether the person agrees in so many words: neither an empty line does that, which a key
    /// pressed too often would be, nor the end of the input.
    pub(in crate::cli) fn agrees(&mut self, question: &str) -> Outcome<bool> {
        let answer = self.text(&format!("{question}[y/N] "))?.unwrap_or_default();
        Ok(matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }
}
