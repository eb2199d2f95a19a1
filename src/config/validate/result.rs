//! What becomes of results: `max_result` and `redact`.
//!
//! Must not: know a backend's kind.

use super::Validator;
use crate::config::file_format::Redact;
use crate::config::{At, List, SizeText};
use crate::model::redaction::Pattern;
use crate::model::{Answer, Redaction};

/// The smallest `max_result`, in bytes: room for a few lines.
const LEAST: usize = 1 << 10;

impl Validator<'_> {
    pub(super) fn max_result(&self, at: Option<&At<SizeText>>) -> Option<usize> {
        let At { value: SizeText(bytes), node } = at?;
        if !(LEAST..=Answer::MAX_RESULT).contains(bytes) {
            let cure = "write at least 1KiB, and at most 1MiB: MANTYX takes no more than 2 MB";
            self.error(*node, "no result can have this size", cure);
        }
        Some(*bytes)
    }

    /// `inherited`, and then what `at` adds.
    pub(super) fn redaction(
        &self,
        at: Option<&List<Redact>>,
        inherited: Option<&Redaction>,
    ) -> Redaction {
        let own = at.iter().flat_map(|at| &at.value).filter_map(|at| self.redact(at));
        let all = inherited.iter().flat_map(|all| &all.0).cloned();
        Redaction(all.chain(own).collect())
    }

    fn redact(&self, At { value: entry, node }: &At<Redact>) -> Option<Pattern> {
        let with = entry.with.as_ref().map(|at| at.value.as_str());
        match (&entry.pattern, &entry.known) {
            (Some(_), Some(at)) => {
                self.refuse(at.node.key(), "`pattern` and `use` are two things", "make two entries")
            }
            (None, Some(at)) => Some(Pattern::known(at.value, with)),
            (Some(at), None) => match Pattern::new(&at.value, with) {
                Ok(pattern) if !pattern.matches_nothing() => Some(pattern),
                Ok(_) => self.refuse(
                    at.node,
                    "this matches the empty text, and so between any two letters",
                    "write `+` in place of `*`, for example",
                ),
                Err(error) => {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().trim();
                    let cure = "the syntax is that of Rust's crate `regex`: no look-around, no \
                                back-references; put it into 'single quotes'";
                    self.refuse(at.node, format!("this is no regular expression: {why}"), cure)
                }
            },
            (None, None) => self.missing(
                *node,
                "neither `pattern` nor `use` says what is replaced",
                "write `pattern: 'REGEX'`, or `use: private_keys`",
            ),
        }
    }
}
