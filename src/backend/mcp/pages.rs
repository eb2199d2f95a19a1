//! Joins the pages of a list, such as that of `tools/list`, within limits that only a broken or
//! hostile server reaches.
//!
//! Must not: do IO, or look into an item.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::model::catalog::Cut;
use crate::model::maps::HashSet;
use crate::model::{Members, elements, limits};

/// The most pages that are asked for.
const MAX_PAGES: usize = 1_000;
/// The most items that are read of one list. Of tools, [`limits::MAX_TOOLS`] are offered, and the
/// log names the others. Items beyond this limit are not read at all, as a list may have no end.
const MAX_ITEMS: usize = 10_000;
const _: () = assert!(MAX_ITEMS > limits::MAX_TOOLS);
/// The most bytes that the items of one list may take.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// A list as its server gives it.
#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Vec<Box<RawValue>>,
    /// Why it was not read to its end.
    pub(super) cut: Option<Cut>,
    /// For how long it holds.
    pub(super) ttl: Option<Duration>,
}

/// The pages so far.
#[derive(Debug)]
pub(super) struct Pages {
    /// The member of each page that has its items.
    list: &'static str,
    /// The items of all pages, in the server's order.
    pub(super) items: Vec<Box<RawValue>>,
    /// For how long the list holds: the shortest `ttlMs` of the pages (2026-07-28), if each has
    /// one.
    pub(super) ttl: Option<Duration>,
    bytes: usize,
    pages: usize,
    /// How many items the first page has.
    first: usize,
    cursors: HashSet<String>,
    /// Whether the empty text is a cursor.
    takes_empty: bool,
}

/// What to do after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// Ask for the page with this cursor.
    Page(String),
    /// A limit is reached, or the server gives a cursor again. The pages so far are valid; the rest
    /// is not read.
    Cut,
    /// The place of the next page is no text. The pages so far are valid.
    BadCursor,
}

/// Why the pages are no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPages {
    #[error("has no array `{0}`")]
    NoItems(&'static str),
}

impl Pages {
    /// No pages yet, of lists whose items are under `list`. `takes_empty`: a cursor may be empty,
    /// as 2026-07-28 says; servers of earlier revisions write an empty one on the last page.
    pub(super) fn new(list: &'static str, takes_empty: bool) -> Self {
        Self {
            list,
            items: Vec::new(),
            ttl: None,
            bytes: 0,
            pages: 0,
            first: 0,
            cursors: HashSet::default(),
            takes_empty,
        }
    }

    /// Takes the result of one request.
    pub(super) fn add(&mut self, page: &RawValue) -> Result<Next, BadPages> {
        let none = BadPages::NoItems(self.list);
        let page = Members::read(page.get()).ok().ok_or(none)?;
        let items = match page.get(self.list).ok_or(none)? {
            // Libraries of Go write an empty list so.
            null if null.get() == "null" => Vec::new(),
            items => elements(items.get()).ok().ok_or(none)?,
        };
        if self.repeats(&items) {
            return Ok(Next::Done);
        }
        if self.pages == 0 {
            self.first = items.len();
        }
        for item in items {
            if self.bytes + item.get().len() > MAX_BYTES || self.items.len() == MAX_ITEMS {
                return Ok(Next::Cut);
            }
            self.bytes += item.get().len();
            self.items.push(item.to_owned());
        }
        let ttl = page.get("ttlMs").and_then(|ttl| serde_json::from_str(ttl.get()).ok());
        let ttl = ttl.map(Duration::from_millis);
        self.ttl = if self.pages == 0 { ttl } else { self.ttl.min(ttl) };
        self.pages += 1;
        let cursor = page.get("nextCursor").filter(|cursor| cursor.get() != "null");
        let Some(cursor) = cursor else { return Ok(Next::Done) };
        let Ok(cursor) = serde_json::from_str::<String>(cursor.get()) else {
            return Ok(Next::BadCursor);
        };
        if cursor.is_empty() && !self.takes_empty {
            return Ok(Next::Done);
        }
        if self.pages == MAX_PAGES || !self.cursors.insert(cursor.clone()) {
            return Ok(Next::Cut);
        }
        Ok(Next::Page(cursor))
    }

    /// Whether the page with the empty cursor has these items and is the first page once more: the
    /// server writes such a cursor on its last page, although its revision forbids that.
    fn repeats(&self, items: &[&RawValue]) -> bool {
        let first = self.items.get(..self.first).unwrap_or_default();
        let is_same =
            || first.iter().map(|item| item.get()).eq(items.iter().map(|item| item.get()));
        self.pages > 0 && self.cursors.contains("") && is_same()
    }
}

#[cfg(test)]
mod tests;
