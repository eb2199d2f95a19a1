//! Puts the pages of `tools/list` together, within limits that no honest server meets.
//!
//! Must not: do IO, or look into a tool.

use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::model::json::{Elements, Members};

/// The most pages that are asked for.
const MOST_PAGES: usize = 1_000;
/// The most tools that one server may have.
const MOST_TOOLS: usize = 10_000;
/// The most bytes that the tools of one server may take.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The pages so far.
#[derive(Debug, Default)]
pub(super) struct Pages {
    tools: Vec<Box<RawValue>>,
    bytes: usize,
    pages: usize,
    cursors: HashSet<String>,
}

/// What to do after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// Ask for the page with this cursor.
    Page(String),
    /// The server leads in a circle: it gave this cursor before.
    Circle(String),
}

/// Why the pages are no catalog.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPages {
    #[error("its tools/list has no array `tools`")]
    NoTools,
    #[error("its tools/list has a `nextCursor` that is not a string")]
    BadCursor,
    #[error("its tools/list has more than {MOST_PAGES} pages")]
    TooManyPages,
    #[error("it has more than {MOST_TOOLS} tools")]
    TooManyTools,
    #[error("its tools take more than {MOST_BYTES} bytes")]
    TooLarge,
}

impl Pages {
    /// Takes the result of one `tools/list`.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Next, BadPages> {
        let page = Members::read(page.get()).ok().ok_or(BadPages::NoTools)?;
        let tools = page.get("tools").and_then(|tools| Elements::read(tools.get()).ok());
        for tool in tools.ok_or(BadPages::NoTools)?.0 {
            self.bytes += tool.get().len();
            if self.bytes > MOST_BYTES {
                return Err(BadPages::TooLarge);
            }
            if self.tools.len() == MOST_TOOLS {
                return Err(BadPages::TooManyTools);
            }
            self.tools.push(tool.to_owned());
        }
        self.pages += 1;
        let cursor = match page.get("nextCursor").filter(|cursor| cursor.get() != "null") {
            Some(cursor) => {
                serde_json::from_str::<String>(cursor.get()).ok().ok_or(BadPages::BadCursor)?
            }
            None => return Ok(Next::Done),
        };
        // An empty cursor is what some servers put where none is due.
        if cursor.is_empty() {
            return Ok(Next::Done);
        }
        if !self.cursors.insert(cursor.clone()) {
            return Ok(Next::Circle(cursor));
        }
        if self.pages == MOST_PAGES {
            return Err(BadPages::TooManyPages);
        }
        Ok(Next::Page(cursor))
    }

    /// The tools of all pages, in the server's order.
    pub(super) fn into_tools(self) -> Vec<Box<RawValue>> {
        self.tools
    }
}

#[cfg(test)]
mod tests;
