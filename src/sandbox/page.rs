//! The query of a list: filters and paging (agent-runs-protocol §5, §6.1).
//!
//! Must not: know the listed things.

use std::cmp::Reverse;

use super::{reply::Refusal, spec::Metadata};

/// The requested page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) limit: usize,
    /// The end of the previous page.
    pub(super) cursor: Option<u64>,
    pub(super) offset: usize,
    pub(super) include_total: Option<bool>,
    pub(super) status: Option<String>,
    pub(super) model_id: Option<String>,
    pub(super) agent_id: Option<String>,
    metadata: Vec<(String, String)>,
}

impl Page {
    pub(super) fn read(query: &str) -> Result<Self, Refusal> {
        let mut page = Self { limit: 50, ..Self::default() };
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            page.take(&key, &value)?;
        }
        if page.cursor.is_some() {
            page.offset = 0;
        }
        Ok(page)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let bad =
            |wanted: &str| Refusal::invalid(format!("{key}: must be {wanted}, not {value:?}"));
        match key {
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=200).contains(limit));
                self.limit = limit.ok_or_else(|| bad("an integer from 1 to 200"))?;
            }
            "offset" => {
                self.offset = value.parse().map_err(|_error| bad("an integer from 0"))?;
            }
            "cursor" => self.cursor = Some(read_cursor(value).ok_or_else(|| bad("a nextCursor"))?),
            "includeTotal" => self.include_total = Some(!matches!(value, "0" | "false")),
            "status" => self.status = Some(value.to_owned()),
            "modelId" => self.model_id = Some(value.to_owned()),
            "agentId" => self.agent_id = Some(value.to_owned()),
            "metadata" => {
                let (key, value) = value.split_once(':').ok_or_else(|| bad("key:value"))?;
                self.metadata.push((key.to_owned(), value.to_owned()));
            }
            _ => (),
        }
        Ok(())
    }

    /// Whether `metadata` has all requested entries.
    pub(super) fn matches(&self, metadata: &Metadata) -> bool {
        self.metadata.iter().all(|(key, value)| metadata.get(key) == Some(value))
    }

    /// The entries of the page out of `all`, those with the highest `number` first, and the cursor
    /// of the next page.
    pub(super) fn cut<T>(
        &self,
        mut all: Vec<T>,
        number: impl Fn(&T) -> u64,
    ) -> (Vec<T>, Option<String>) {
        all.retain(|entry| self.cursor.is_none_or(|cursor| number(entry) < cursor));
        all.sort_unstable_by_key(|entry| Reverse(number(entry)));
        let mut found: Vec<T> = all.into_iter().skip(self.offset).take(self.limit + 1).collect();
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let last = found.last().filter(|_| has_more);
        let next = last.map(|last| format!("c{:016x}", number(last)));
        (found, next)
    }
}

fn read_cursor(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix('c')?, 16).ok()
}
