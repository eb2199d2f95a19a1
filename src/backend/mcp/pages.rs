//! Joins the pages of `tools/list`, within limits that only a broken or hostile server reaches.
//!
//! Must not: do IO, or look into a tool.

use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::model::{
    json::{Elements, Members},
    limits,
};

/// The most pages that are asked for.
const MOST_PAGES: usize = 1_000;
/// The most tools that are read of one server. Of these, [`limits::MAX_TOOLS`] are offered, and the
/// log names the others. Tools beyond this limit are not read at all, as a list may have no end.
const MOST_TOOLS: usize = 10_000;
const _: () = assert!(MOST_TOOLS > limits::MAX_TOOLS);
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
    /// The server repeats itself: it gave this cursor before.
    Circle(String),
    /// A limit is reached. The pages so far are valid; the rest is not read.
    Full(Full),
}

/// Which limit a list of tools has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("Its tools/list has more than {MOST_PAGES} pages; the rest is left out")]
    Pages,
    #[error("Its tools/list has more than {MOST_TOOLS} tools; the rest is left out")]
    Tools,
    #[error("Its tools take more than {} MiB; the rest is left out", MOST_BYTES >> 20)]
    Bytes,
}

/// Why the pages are no catalog.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPages {
    #[error("its tools/list has no array `tools`")]
    NoTools,
    #[error("its tools/list has a `nextCursor` that is not a string")]
    BadCursor,
}

impl Pages {
    /// Takes the result of one `tools/list`.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Next, BadPages> {
        let page = Members::read(page.get()).ok().ok_or(BadPages::NoTools)?;
        let tools = page.get("tools").and_then(|tools| Elements::read(tools.get()).ok());
        for tool in tools.ok_or(BadPages::NoTools)?.0 {
            if self.bytes + tool.get().len() > MOST_BYTES {
                return Ok(Next::Full(Full::Bytes));
            }
            if self.tools.len() == MOST_TOOLS {
                return Ok(Next::Full(Full::Tools));
            }
            self.bytes += tool.get().len();
            self.tools.push(tool.to_owned());
        }
        self.pages += 1;
        let cursor = match page.get("nextCursor").filter(|cursor| cursor.get() != "null") {
            Some(cursor) => {
                serde_json::from_str::<String>(cursor.get()).ok().ok_or(BadPages::BadCursor)?
            }
            None => return Ok(Next::Done),
        };
        // Some servers send an empty cursor on the last page.
        if cursor.is_empty() {
            return Ok(Next::Done);
        }
        if !self.cursors.insert(cursor.clone()) {
            return Ok(Next::Circle(cursor));
        }
        if self.pages == MOST_PAGES {
            return Ok(Next::Full(Full::Pages));
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
